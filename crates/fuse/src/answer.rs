//! What the kernel is answered: layouts of `linux/fuse.h`, put into bytes.

use std::time::Duration;

use crate::flags::OpenedFlags;
use crate::wire::Writer;

/// A time since 1970; negative seconds are before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Whole seconds.
    pub seconds: i64,
    /// And these.
    pub nanoseconds: u32,
}

/// What kind of thing a name leads to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    #[default]
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A FIFO.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharacterDevice,
    /// A block device.
    BlockDevice,
}

impl FileKind {
    /// The bits of a mode that tell the kind.
    pub const fn mode_bits(self) -> u32 {
        match self {
            FileKind::Regular => libc::S_IFREG,
            FileKind::Directory => libc::S_IFDIR,
            FileKind::Symlink => libc::S_IFLNK,
            FileKind::Fifo => libc::S_IFIFO,
            FileKind::Socket => libc::S_IFSOCK,
            FileKind::CharacterDevice => libc::S_IFCHR,
            FileKind::BlockDevice => libc::S_IFBLK,
        }
    }
}

/// Attributes of a file: number, size, blocks u64 each; atime, mtime, ctime u64 each and their
/// nanoseconds u32 each; mode, links, uid, gid, device, block size, flags u32 each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Number of the file.
    pub node: u64,
    /// Length in bytes.
    pub size: u64,
    /// Space used, in sectors of 512 bytes.
    pub blocks: u64,
    /// Of the last access.
    pub access_time: Time,
    /// Of the last change of data.
    pub modify_time: Time,
    /// Of the last change of anything.
    pub change_time: Time,
    /// When it was made; told by `statx` only.
    pub create_time: Time,
    /// What it is.
    pub kind: FileKind,
    /// Permission bits, within 07777.
    pub permissions: u32,
    /// Names.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Of a device: its number, as the kernel packs it (`minor & 0xff | major << 8 | ...`).
    pub device: u32,
    /// What programs are told to read and write at a time, in bytes.
    pub block_bytes: u32,
}

impl Attributes {
    fn encode(&self, to: &mut Writer) {
        let times = [self.access_time, self.modify_time, self.change_time];
        to.u64(self.node);
        to.u64(self.size);
        to.u64(self.blocks);
        for time in times {
            to.i64(time.seconds);
        }
        for time in times {
            to.u32(time.nanoseconds);
        }
        to.u32(self.mode());
        to.u32(self.links);
        to.u32(self.uid);
        to.u32(self.gid);
        to.u32(self.device);
        to.u32(self.block_bytes);
        to.u32(0);
    }

    fn mode(&self) -> u32 {
        self.kind.mode_bits() | self.permissions & 0o7777
    }
}

/// An answer of a fixed layout.
pub trait Answer {
    #[doc(hidden)]
    fn encode(&self, to: &mut Encoder);
}

/// Where answers are put together; only this crate can.
#[derive(Debug)]
pub struct Encoder(pub(crate) Writer);

/// A name leads to this file: node u64, generation u64, name's and attributes' time of validity
/// (seconds u64 each, then nanoseconds u32 each), attributes. Node 0 tells that there is no such
/// name, and for how long that may be believed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Number of the file.
    pub node: u64,
    /// Tells files apart that have the same number one after the other.
    pub generation: u64,
    /// How long the name may be believed.
    pub name_valid: Duration,
    /// How long the attributes may be believed.
    pub attributes_valid: Duration,
    /// The attributes.
    pub attributes: Attributes,
}

impl Answer for Entry {
    fn encode(&self, to: &mut Encoder) {
        let writer = &mut to.0;
        writer.u64(self.node);
        writer.u64(self.generation);
        writer.u64(self.name_valid.as_secs());
        writer.u64(self.attributes_valid.as_secs());
        writer.u32(self.name_valid.subsec_nanos());
        writer.u32(self.attributes_valid.subsec_nanos());
        self.attributes.encode(writer);
    }
}

/// Attributes: time of validity (seconds u64, nanoseconds u32), padding u32, attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttributesFor {
    /// How long they may be believed.
    pub valid: Duration,
    /// The attributes.
    pub attributes: Attributes,
}

impl Answer for AttributesFor {
    fn encode(&self, to: &mut Encoder) {
        to.0.u64(self.valid.as_secs());
        to.0.u32(self.valid.subsec_nanos());
        to.0.u32(0);
        self.attributes.encode(&mut to.0);
    }
}

/// A file is open: handle u64, flags u32, backing file i32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// What the kernel is to call it.
    pub handle: u64,
    /// How it is to treat it.
    pub flags: OpenedFlags,
}

impl Answer for Opened {
    fn encode(&self, to: &mut Encoder) {
        to.0.u64(self.handle);
        to.0.u32(self.flags.bits());
        to.0.u32(0);
    }
}

/// A file was made and is open: both layouts after each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Created {
    /// The file.
    pub entry: Entry,
    /// Its opening.
    pub opened: Opened,
}

impl Answer for Created {
    fn encode(&self, to: &mut Encoder) {
        self.entry.encode(to);
        self.opened.encode(to);
    }
}

/// Bytes written or copied: u32, padding u32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written(pub u32);

impl Answer for Written {
    fn encode(&self, to: &mut Encoder) {
        to.0.u32(self.0);
        to.0.u32(0);
    }
}

/// Bytes copied, or a position: u64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offset(pub u64);

impl Answer for Offset {
    fn encode(&self, to: &mut Encoder) {
        to.0.u64(self.0);
    }
}

/// How long an extended attribute, or their list, is: u32, padding u32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XattrSize(pub u32);

impl Answer for XattrSize {
    fn encode(&self, to: &mut Encoder) {
        to.0.u32(self.0);
        to.0.u32(0);
    }
}

/// Nothing but success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done;

impl Answer for Done {
    fn encode(&self, _to: &mut Encoder) {}
}

/// Room: blocks, free, available, files, free files u64 each; block size, name length, fragment
/// size, padding u32 each; 6 spare u32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatFs {
    /// Blocks in all.
    pub blocks: u64,
    /// Those that are free.
    pub free_blocks: u64,
    /// Those that users may have.
    pub available_blocks: u64,
    /// Files that there are and can be.
    pub files: u64,
    /// Files that can be made.
    pub free_files: u64,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Longest name, in bytes.
    pub name_bytes: u32,
}

impl Answer for StatFs {
    fn encode(&self, to: &mut Encoder) {
        let numbers =
            [self.blocks, self.free_blocks, self.available_blocks, self.files, self.free_files];
        numbers.into_iter().for_each(|number| to.0.u64(number));
        to.0.u32(self.block_bytes);
        to.0.u32(self.name_bytes);
        to.0.u32(self.block_bytes);
        to.0.zeros(28);
    }
}

/// A lock that is in the way, or none (`F_UNLCK`): start u64, end u64, type u32, pid u32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockFound {
    /// First byte.
    pub start: u64,
    /// Last byte.
    pub end: u64,
    /// `F_RDLCK`, `F_WRLCK` or `F_UNLCK`.
    pub kind: u32,
    /// Who has it.
    pub pid: u32,
}

impl Answer for LockFound {
    fn encode(&self, to: &mut Encoder) {
        to.0.u64(self.start);
        to.0.u64(self.end);
        to.0.u32(self.kind);
        to.0.u32(self.pid);
    }
}

/// What is ready, of poll(2): u32, padding u32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Polled(pub u32);

impl Answer for Polled {
    fn encode(&self, to: &mut Encoder) {
        to.0.u32(self.0);
        to.0.u32(0);
    }
}

/// Bits of statx(2) that are told: everything of stat(2), and the time of making.
const STATX_TOLD: u32 = 0x7ff | 0x800;

/// Attributes with the time of making: validity (seconds u64, nanoseconds u32), flags u32, 2 spare
/// u64, then as statx(2) has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statx {
    /// How long they may be believed.
    pub valid: Duration,
    /// The attributes.
    pub attributes: Attributes,
}

impl Answer for Statx {
    fn encode(&self, to: &mut Encoder) {
        let (to, attributes) = (&mut to.0, &self.attributes);
        to.u64(self.valid.as_secs());
        to.u32(self.valid.subsec_nanos());
        to.zeros(20);
        to.u32(STATX_TOLD);
        to.u32(attributes.block_bytes);
        to.u64(0);
        to.u32(attributes.links);
        to.u32(attributes.uid);
        to.u32(attributes.gid);
        // The kind and the permissions are 16 bits.
        to.u16(attributes.mode() as u16);
        to.u16(0);
        to.u64(attributes.node);
        to.u64(attributes.size);
        to.u64(attributes.blocks);
        to.u64(0);
        let (accessed, made) = (attributes.access_time, attributes.create_time);
        for time in [accessed, made, attributes.change_time, attributes.modify_time] {
            to.i64(time.seconds);
            to.u32(time.nanoseconds);
            to.u32(0);
        }
        // The kernel's packing of a device number, as stat(2) has it, taken apart.
        to.u32(attributes.device >> 8 & 0xfff);
        to.u32(attributes.device & 0xff | attributes.device >> 12 & 0xfff00);
        to.zeros(8 + 14 * 8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(answer: &impl Answer) -> Vec<u8> {
        let mut encoder = Encoder(Writer::new());
        answer.encode(&mut encoder);
        encoder.0.as_bytes().to_vec()
    }

    fn word(bytes: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
    }

    fn long(bytes: &[u8], at: usize) -> u64 {
        u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
    }

    fn attributes() -> Attributes {
        let time = |seconds| Time { seconds, nanoseconds: seconds.unsigned_abs() as u32 + 7 };
        Attributes {
            node: 5,
            size: 6,
            blocks: 7,
            access_time: time(-10),
            modify_time: time(11),
            change_time: time(12),
            create_time: time(13),
            kind: FileKind::BlockDevice,
            permissions: 0o4755,
            links: 2,
            uid: 1000,
            gid: 100,
            device: 0x0801,
            block_bytes: 4096,
        }
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn an_entry_has_its_places() {
        let valid = Duration::new(3, 4);
        let entry = Entry {
            node: 5,
            generation: 9,
            name_valid: valid,
            attributes_valid: Duration::from_secs(1),
            attributes: attributes(),
        };
        let bytes = bytes(&entry);
        assert_eq!(bytes.len(), 128);
        assert_eq!([long(&bytes, 0), long(&bytes, 8), long(&bytes, 16)], [5, 9, 3]);
        assert_eq!([long(&bytes, 24), u64::from(word(&bytes, 32))], [1, 4]);
        let attributes = &bytes[40..];
        assert_eq!([long(attributes, 0), long(attributes, 8), long(attributes, 16)], [5, 6, 7]);
        assert_eq!(long(attributes, 24) as i64, -10);
        assert_eq!(
            [word(attributes, 48), word(attributes, 52), word(attributes, 56)],
            [17, 18, 19]
        );
        assert_eq!(word(attributes, 60), libc::S_IFBLK | 0o4755);
        assert_eq!(
            [word(attributes, 64), word(attributes, 68), word(attributes, 72)],
            [2, 1000, 100]
        );
        assert_eq!([word(attributes, 76), word(attributes, 80)], [0x0801, 4096]);
    }

    #[test]
    fn all_answers_have_the_lengths_of_the_kernels_header() {
        let opened = Opened { handle: 1, flags: OpenedFlags::NOFLUSH };
        let valid = Duration::ZERO;
        assert_eq!(bytes(&AttributesFor { valid, attributes: attributes() }).len(), 104);
        assert_eq!(bytes(&opened).len(), 16);
        assert_eq!(bytes(&Created { entry: Entry::default(), opened }).len(), 144);
        assert_eq!(bytes(&Written(1)).len(), 8);
        assert_eq!(bytes(&Offset(1)).len(), 8);
        assert_eq!(bytes(&StatFs::default()).len(), 80);
        assert_eq!(bytes(&LockFound { start: 0, end: 1, kind: 2, pid: 3 }).len(), 24);
        assert_eq!(bytes(&Statx { valid, attributes: attributes() }).len(), 32 + 256);
        assert_eq!(bytes(&Done).len(), 0);
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn statx_tells_the_time_of_making_and_the_device() {
        let bytes = bytes(&Statx { valid: Duration::ZERO, attributes: attributes() });
        let stat = &bytes[32..];
        assert_eq!(word(stat, 0), 0xfff);
        assert_eq!(long(stat, 32), 5);
        assert_eq!([long(stat, 64) as i64, long(stat, 80) as i64], [-10, 13]);
        assert_eq!([word(stat, 128), word(stat, 132)], [8, 1]);
    }
}
