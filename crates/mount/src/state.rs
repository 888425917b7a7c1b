//! What one process of a mount tells the next one when it hands the mount over: the files that the
//! kernel knows, and those that are open. In XDR, behind a version.

use nasd_clerk::{Caller, FileHandle, Name, OpenMode};
use nasd_types::{DriveId, ObjectId, PartitionId};
use nasd_xdr::{Decoder, Encoder, XdrDecode, XdrEncode, XdrError, from_bytes, to_bytes};

/// Of this layout.
const VERSION: u32 = 3;

/// Longest lists: the kernel knows no more files than fit into memory.
const MANY: usize = 1 << 28;

/// Longest name, in bytes, and most groups of a caller.
const FEW: usize = 65_536;

/// A file that the kernel knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KnownFile {
    pub(crate) ino: u64,
    pub(crate) handle: FileHandle,
    /// How often the kernel was told of it, and has not forgotten it.
    pub(crate) lookups: u64,
    /// Directories and names that lead to it.
    pub(crate) names: Vec<(u64, Vec<u8>)>,
    /// It has no name, and goes with its last closing.
    pub(crate) nameless: bool,
}

/// A file that is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KnownOpening {
    /// What the kernel calls it.
    pub(crate) number: u64,
    pub(crate) ino: u64,
    pub(crate) caller: Caller,
    pub(crate) read: bool,
    pub(crate) write: bool,
    /// Around the page cache.
    pub(crate) direct: bool,
}

impl KnownOpening {
    pub(crate) fn mode(&self) -> OpenMode {
        OpenMode { read: self.read, write: self.write }
    }
}

/// A directory that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KnownListing {
    /// What the kernel calls it.
    pub(crate) number: u64,
    pub(crate) ino: u64,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// A volume that is seen at a mount point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KnownVolume {
    /// What its files' numbers begin with.
    pub(crate) tag: u16,
    /// The number, as it is shown, of the directory above it.
    pub(crate) above: u64,
    /// How many mount points are above it.
    pub(crate) depth: u32,
    /// The tag of the volume that has the mount point, 0 for the mounted one, and the mount point's handle.
    pub(crate) place: (u16, FileHandle),
    /// The volume's name.
    pub(crate) name: Name,
    /// Something else is seen there now.
    pub(crate) is_over: bool,
    pub(crate) state: VolumeState,
}

/// Everything that goes over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MountState {
    pub(crate) mounted: VolumeState,
    pub(crate) volumes: Vec<KnownVolume>,
}

/// What goes over of one volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct VolumeState {
    /// The volume's root, so that no other volume is served in its place.
    pub(crate) root: Option<FileHandle>,
    pub(crate) files: Vec<KnownFile>,
    pub(crate) openings: Vec<KnownOpening>,
    pub(crate) listings: Vec<KnownListing>,
    /// Open files that the file manager keeps for the process, as they have no name.
    pub(crate) kept: Vec<FileHandle>,
}

impl MountState {
    /// For the wire.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        to_bytes(self)
    }

    /// From the wire.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self, XdrError> {
        from_bytes(bytes)
    }
}

fn put_handle(out: &mut Encoder, handle: FileHandle) {
    out.u64(handle.drive.0);
    out.u32(handle.partition.0);
    out.u64(handle.object.0);
}

fn get_handle(input: &mut Decoder<'_>) -> Result<FileHandle, XdrError> {
    let (drive, partition) = (DriveId(input.u64()?), PartitionId(input.u32()?));
    Ok(FileHandle { drive, partition, object: ObjectId(input.u64()?) })
}

fn put_caller(out: &mut Encoder, caller: &Caller) {
    out.u32(caller.uid);
    out.u32(caller.gid);
    out.array_with(&caller.groups, |out, group| out.u32(*group));
}

fn get_caller(input: &mut Decoder<'_>) -> Result<Caller, XdrError> {
    let (uid, gid) = (input.u32()?, input.u32()?);
    Ok(Caller { uid, gid, groups: input.array_with(FEW, Decoder::u32)? })
}

impl XdrEncode for MountState {
    fn encode(&self, out: &mut Encoder) {
        out.u32(VERSION);
        self.mounted.encode(out);
        out.array_with(&self.volumes, |out, volume| {
            out.u32(volume.tag.into());
            out.u64(volume.above);
            out.u32(volume.depth);
            out.u32(volume.place.0.into());
            put_handle(out, volume.place.1);
            out.opaque(volume.name.as_bytes());
            out.bool(volume.is_over);
            volume.state.encode(out);
        });
    }
}

/// A tag, and the index of a place.
fn get_tag(input: &mut Decoder<'_>) -> Result<u16, XdrError> {
    let value = input.u32()?;
    let unknown = nasd_xdr::UnknownValue { enumeration: "tag", value };
    u16::try_from(value).map_err(|_| unknown.into())
}

fn get_volume(input: &mut Decoder<'_>) -> Result<KnownVolume, XdrError> {
    let (tag, above, depth) = (get_tag(input)?, input.u64()?, input.u32()?);
    let place = (get_tag(input)?, get_handle(input)?);
    let name = input.opaque(nasd_types::limits::MAX_NAME_BYTES)?;
    let unknown = nasd_xdr::UnknownValue { enumeration: "volume", value: 0 };
    let name = Name::new(name).map_err(|_| unknown)?;
    let (is_over, state) = (input.bool()?, VolumeState::decode(input)?);
    Ok(KnownVolume { tag, above, depth, place, name, is_over, state })
}

impl XdrEncode for VolumeState {
    fn encode(&self, out: &mut Encoder) {
        out.optional_with(self.root, put_handle);
        out.array_with(&self.files, |out, file| {
            out.u64(file.ino);
            put_handle(out, file.handle);
            out.u64(file.lookups);
            out.array_with(&file.names, |out, (dir, name)| {
                out.u64(*dir);
                out.opaque(name);
            });
            out.bool(file.nameless);
        });
        out.array_with(&self.openings, |out, opening| {
            out.u64(opening.number);
            out.u64(opening.ino);
            put_caller(out, &opening.caller);
            out.bool(opening.read);
            out.bool(opening.write);
            out.bool(opening.direct);
        });
        out.array_with(&self.listings, |out, listing| {
            out.u64(listing.number);
            out.u64(listing.ino);
            out.u32(listing.uid);
            out.u32(listing.gid);
        });
        out.array_with(&self.kept, |out, file| put_handle(out, *file));
    }
}

fn get_file(input: &mut Decoder<'_>) -> Result<KnownFile, XdrError> {
    Ok(KnownFile {
        ino: input.u64()?,
        handle: get_handle(input)?,
        lookups: input.u64()?,
        names: input.array_with(MANY, |input| Ok((input.u64()?, input.opaque(FEW)?.to_vec())))?,
        nameless: input.bool()?,
    })
}

fn get_opening(input: &mut Decoder<'_>) -> Result<KnownOpening, XdrError> {
    Ok(KnownOpening {
        number: input.u64()?,
        ino: input.u64()?,
        caller: get_caller(input)?,
        read: input.bool()?,
        write: input.bool()?,
        direct: input.bool()?,
    })
}

impl XdrDecode for MountState {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        let version = input.u32()?;
        if version != VERSION {
            let unknown = nasd_xdr::UnknownValue { enumeration: "MountState", value: version };
            return Err(unknown.into());
        }
        let mounted = VolumeState::decode(input)?;
        Ok(MountState { mounted, volumes: input.array_with(MANY, get_volume)? })
    }
}

impl XdrDecode for VolumeState {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(VolumeState {
            root: input.optional_with(get_handle)?,
            files: input.array_with(MANY, get_file)?,
            openings: input.array_with(MANY, get_opening)?,
            listings: input.array_with(MANY, |input| {
                let (number, ino) = (input.u64()?, input.u64()?);
                Ok(KnownListing { number, ino, uid: input.u32()?, gid: input.u32()? })
            })?,
            kept: input.array_with(MANY, get_handle)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_arrives_and_other_versions_are_refused() {
        let handle = |object| FileHandle {
            drive: DriveId(7),
            partition: PartitionId(1),
            object: ObjectId(object),
        };
        let caller = Caller { uid: 1000, gid: 100, groups: vec![4, 30] };
        let file = KnownFile {
            ino: 70,
            handle: handle(70),
            lookups: 3,
            names: vec![(1, b"a".to_vec()), (5, vec![0xff; 255])],
            nameless: true,
        };
        let opening =
            KnownOpening { number: 9, ino: 70, caller, read: true, write: false, direct: true };
        let mounted = VolumeState {
            root: Some(handle(65)),
            files: vec![file.clone(), KnownFile { names: vec![], nameless: false, ..file }],
            openings: vec![opening],
            listings: vec![KnownListing { number: 2, ino: 1, uid: 0, gid: 0 }],
            kept: vec![handle(70)],
        };
        let volume = KnownVolume {
            tag: 3,
            above: 65,
            depth: 1,
            place: (0, handle(77)),
            name: Name::new("other").unwrap(),
            is_over: false,
            state: VolumeState { root: Some(handle(66)), ..VolumeState::default() },
        };
        let state = MountState { mounted, volumes: vec![volume] };
        let bytes = state.to_bytes();
        assert_eq!(MountState::from_bytes(&bytes).unwrap(), state);
        for length in 0..bytes.len() {
            assert!(MountState::from_bytes(&bytes[..length]).is_err(), "{length}");
        }
        let mut other = bytes;
        other[3] = 1;
        assert!(MountState::from_bytes(&other).is_err());
    }
}
