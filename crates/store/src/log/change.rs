//! Changes of the metadata, as they are written to the log and applied to the tree
//! (docs/on-disk-format.md, section 4). Pure.

use std::sync::Arc;

use nasd_types::limits::BLOCK_BYTES;
use nasd_types::{AppendToken, ObjectId, ObjectName, PartitionId, Timestamp};

use crate::DriveKeys;
use crate::free_map::Run;
use crate::layout::layout;
use crate::metadata::record::{
    self, Appended, Codec, Counters, Extent, LOGICAL_BLOCKS_MAX, ObjectRecord, PartitionRecord,
    RecordError, SMALL_BYTES_MAX, drive_counters, drive_keys, object, object_key, partition,
};

layout! {
    /// What every change begins with.
    pub(crate) mod change {
        KIND: 1,
        RESERVED: 3,
        PARTITION: 4,
        OBJECT: 8,
    }
}

layout! {
    /// The body of a map change, up to its checksums.
    pub(crate) mod map {
        LOGICAL: 8,
        PHYSICAL: 8,
        BLOCKS: 4,
        STORED: 4,
        LENGTH: 4,
        CODEC: 1,
        INLINE: 1,
        RESERVED: 2,
    }
}

layout! {
    /// The body of an appended change.
    pub(crate) mod appended {
        TOKEN: 16,
        OFFSET: 8,
        TIME: 8,
        LENGTH: 4,
        RESERVED: 4,
    }
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Makes or replaces an object's record, but for what the tree itself keeps in it.
    PutObject(ObjectName, Box<ObjectRecord>),
    /// Removes an object with everything it has.
    RemoveObject(ObjectName),
    /// Drops the object's blocks `[from, to)`.
    Clear { name: ObjectName, from: u64, to: u64 },
    /// Puts an extent in place of whatever is there.
    Map {
        name: ObjectName,
        extent: Extent,
        /// One for each data block.
        sums: Vec<u32>,
        /// The data blocks' contents, if they are not at their places yet.
        contents: Option<Arc<Vec<u8>>>,
    },
    /// Keeps the object's contents whole in the tree.
    PutSmall(ObjectName, Vec<u8>),
    /// Drops contents that were.
    DropSmall(ObjectName),
    /// Makes an object that shares everything that the source has.
    Clone { source: ObjectId, name: ObjectName, record: Box<ObjectRecord> },
    /// Puts blocks that the source shares in place of whatever the object has there.
    Share(Box<Share>),
    /// Makes or replaces a partition's record, but for its counts.
    PutPartition(PartitionId, Box<PartitionRecord>),
    /// Removes a partition without objects.
    RemovePartition(PartitionId),
    /// Makes a partition that has all that `source` has, and shares its blocks.
    CopyPartition { source: PartitionId, target: PartitionId },
    /// Replaces the drive's keys.
    PutDriveKeys(DriveKeys),
    /// Replaces the drive's counters.
    PutCounters(Counters),
    /// Lets every extent that names blocks of `from` name those of `to` on.
    Move { from: Run, to: u64 },
    /// Remembers an append, whose bytes other changes of the same entry or of earlier ones have.
    Appended(Appended),
}

/// Blocks of one object that become blocks of another one too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) source: ObjectId,
    /// The first block of the source.
    pub(crate) from: u64,
    /// The object that gets them.
    pub(crate) name: ObjectName,
    /// Its first block.
    pub(crate) to: u64,
    pub(crate) blocks: u64,
    /// When, which is when its data was modified.
    pub(crate) time: Timestamp,
}

impl Share {
    /// Behind the last block of the object that gets them.
    pub(crate) fn end(&self) -> u64 {
        self.to + self.blocks
    }
}

/// Why bytes are not a change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ChangeError {
    #[error("it ends in the middle of a change")]
    Short,
    #[error("a change of unknown kind {0}")]
    Kind(u8),
    #[error("{0}")]
    Field(&'static str),
    #[error(transparent)]
    Record(#[from] RecordError),
}

const NO_NAME: ObjectName = ObjectName { partition: PartitionId(0), object: ObjectId(0) };

fn of_partition(partition: PartitionId) -> ObjectName {
    ObjectName { partition, ..NO_NAME }
}

impl Change {
    fn kind_and_name(&self) -> (u8, ObjectName) {
        match self {
            Change::PutObject(name, _) => (1, *name),
            Change::RemoveObject(name) => (2, *name),
            Change::Clear { name, .. } => (3, *name),
            Change::Map { name, .. } => (4, *name),
            Change::PutSmall(name, _) => (5, *name),
            Change::DropSmall(name) => (6, *name),
            Change::Clone { name, .. } => (7, *name),
            Change::PutPartition(partition, _) => (8, of_partition(*partition)),
            Change::RemovePartition(partition) => (9, of_partition(*partition)),
            Change::PutDriveKeys(_) => (10, NO_NAME),
            Change::PutCounters(_) => (11, NO_NAME),
            Change::Move { .. } => (12, NO_NAME),
            Change::Appended(appended) => (13, appended.name),
            Change::Share(share) => (14, share.name),
            Change::CopyPartition { target, .. } => (15, of_partition(*target)),
        }
    }

    /// Appends the change's bytes.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let (kind, name) = self.kind_and_name();
        let mut head = [0; change::BYTES];
        change::KIND.put(&mut head, &[kind]);
        change::PARTITION.put(&mut head, &name.partition.0.to_le_bytes());
        change::OBJECT.put(&mut head, &name.object.0.to_le_bytes());
        out.extend_from_slice(&head);
        let numbers = |out: &mut Vec<u8>, numbers: &[u64]| {
            numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
        };
        match self {
            Change::PutObject(_, record) => {
                out.extend_from_slice(&record.encode(&record::object_key(name)));
            }
            Change::Clear { from, to, .. } => numbers(out, &[*from, *to]),
            Change::Map { extent, sums, contents, .. } => {
                encode_map(extent, sums, contents.as_deref(), out);
            }
            Change::PutSmall(_, bytes) => {
                out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
                out.extend_from_slice(bytes);
            }
            Change::Clone { source, record, .. } => {
                numbers(out, &[source.0]);
                out.extend_from_slice(&record.encode(&record::object_key(name)));
            }
            Change::PutPartition(partition, record) => {
                out.extend_from_slice(&record.encode(*partition));
            }
            Change::PutDriveKeys(keys) => {
                out.extend_from_slice(&record::encode_drive_keys(keys));
            }
            Change::PutCounters(counters) => out.extend_from_slice(&counters.encode()),
            Change::Move { from, to } => numbers(out, &[from.start, *to, from.blocks]),
            Change::Appended(one) => encode_appended(one, out),
            Change::Share(share) => {
                let Share { source, from, to, blocks, time, .. } = **share;
                numbers(out, &[source.0, from, to, blocks, time.0]);
            }
            Change::CopyPartition { source, .. } => out.extend_from_slice(&source.0.to_le_bytes()),
            Change::RemoveObject(_) | Change::DropSmall(_) | Change::RemovePartition(_) => {}
        }
    }

    /// Reads a change, and leaves the input behind it.
    pub(crate) fn decode(input: &mut &[u8]) -> Result<Change, ChangeError> {
        let head = take(input, change::BYTES)?;
        if !change::RESERVED.is_zero(head) {
            return Err(ChangeError::Field("a reserved byte is not zero"));
        }
        let partition = PartitionId(change::PARTITION.u32(head));
        let name = ObjectName { partition, object: ObjectId(change::OBJECT.u64(head)) };
        let key = record::object_key(name);
        Ok(match change::KIND.of(head)[0] {
            1 => Change::PutObject(name, take_object(input, &key)?),
            2 => Change::RemoveObject(name),
            3 => {
                let (from, to) = (take_u64(input)?, take_u64(input)?);
                if from > to || to > LOGICAL_BLOCKS_MAX {
                    return Err(ChangeError::Field("a range of blocks makes no sense"));
                }
                Change::Clear { name, from, to }
            }
            4 => decode_map(name, input)?,
            5 => {
                let length = u32::from_le_bytes(take_array(input)?) as usize;
                if !(1..=SMALL_BYTES_MAX).contains(&length) {
                    return Err(ChangeError::Field("small contents of a senseless length"));
                }
                Change::PutSmall(name, take(input, length)?.to_vec())
            }
            6 => Change::DropSmall(name),
            7 => {
                let source = ObjectId(take_u64(input)?);
                Change::Clone { source, name, record: take_object(input, &key)? }
            }
            8 => {
                let record = PartitionRecord::parse(partition, take(input, partition::BYTES)?)?;
                Change::PutPartition(partition, Box::new(record))
            }
            9 => Change::RemovePartition(partition),
            10 => Change::PutDriveKeys(record::parse_drive_keys(take(input, drive_keys::BYTES)?)?),
            11 => Change::PutCounters(Counters::parse(take(input, drive_counters::BYTES)?)?),
            12 => {
                let (start, to, blocks) = (take_u64(input)?, take_u64(input)?, take_u64(input)?);
                Change::Move { from: Run { start, blocks }, to }
            }
            13 => Change::Appended(decode_appended(name, input)?),
            14 => Change::Share(Box::new(decode_share(name, input)?)),
            15 => {
                let source = PartitionId(u32::from_le_bytes(take_array(input)?));
                if source == partition {
                    return Err(ChangeError::Field("a partition that is copied onto itself"));
                }
                Change::CopyPartition { source, target: partition }
            }
            kind => return Err(ChangeError::Kind(kind)),
        })
    }
}

fn encode_appended(one: &Appended, out: &mut Vec<u8>) {
    let mut body = [0; appended::BYTES];
    appended::TOKEN.put(&mut body, &one.token.0);
    appended::OFFSET.put(&mut body, &one.offset.to_le_bytes());
    appended::TIME.put(&mut body, &one.time.0.to_le_bytes());
    appended::LENGTH.put(&mut body, &one.length.to_le_bytes());
    out.extend_from_slice(&body);
}

fn decode_appended(name: ObjectName, input: &mut &[u8]) -> Result<Appended, ChangeError> {
    let body = take(input, appended::BYTES)?;
    if !appended::RESERVED.is_zero(body) {
        return Err(ChangeError::Field("a reserved byte is not zero"));
    }
    Ok(Appended {
        name,
        token: AppendToken(appended::TOKEN.array(body)),
        offset: appended::OFFSET.u64(body),
        length: appended::LENGTH.u32(body),
        time: Timestamp(appended::TIME.u64(body)),
    })
}

fn decode_share(name: ObjectName, input: &mut &[u8]) -> Result<Share, ChangeError> {
    let source = ObjectId(take_u64(input)?);
    let (from, to, blocks) = (take_u64(input)?, take_u64(input)?, take_u64(input)?);
    let fits =
        |first: u64| first.checked_add(blocks).is_some_and(|behind| behind <= LOGICAL_BLOCKS_MAX);
    if blocks == 0 || !fits(from) || !fits(to) || source == name.object {
        return Err(ChangeError::Field("shared blocks that make no sense"));
    }
    Ok(Share { source, from, name, to, blocks, time: Timestamp(take_u64(input)?) })
}

fn encode_map(extent: &Extent, sums: &[u32], contents: Option<&Vec<u8>>, out: &mut Vec<u8>) {
    let mut body = [0; map::BYTES];
    let (codec, length) = match extent.codec {
        Codec::Plain => (0, 0),
        Codec::Packed { compression, length, .. } => (compression as u8, length),
    };
    map::LOGICAL.put(&mut body, &extent.logical.to_le_bytes());
    map::PHYSICAL.put(&mut body, &extent.physical.to_le_bytes());
    map::BLOCKS.put(&mut body, &(extent.blocks as u32).to_le_bytes());
    map::STORED.put(&mut body, &(extent.run().blocks as u32).to_le_bytes());
    map::LENGTH.put(&mut body, &length.to_le_bytes());
    map::CODEC.put(&mut body, &[codec]);
    map::INLINE.put(&mut body, &[u8::from(contents.is_some())]);
    out.extend_from_slice(&body);
    sums.iter().for_each(|sum| out.extend_from_slice(&sum.to_le_bytes()));
    out.extend_from_slice(contents.map_or(&[], |contents| contents));
}

fn decode_map(name: ObjectName, input: &mut &[u8]) -> Result<Change, ChangeError> {
    let body = take(input, map::BYTES)?;
    let numbers = [map::BLOCKS, map::STORED, map::LENGTH].map(|field| field.u32(body));
    let inline = map::INLINE.of(body)[0];
    if inline > 1 || !map::RESERVED.is_zero(body) {
        return Err(ChangeError::Field("a reserved bit is not zero"));
    }
    let codec = map::CODEC.of(body)[0];
    let extent =
        Extent::from_fields(map::LOGICAL.u64(body), map::PHYSICAL.u64(body), codec, numbers)
            .map_err(ChangeError::Field)?;
    let stored = extent.run().blocks as usize;
    let sums = take(input, 4 * stored)?
        .chunks_exact(4)
        .map(|bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
        .collect();
    let contents = match inline {
        0 => None,
        _ => Some(Arc::new(take(input, stored * BLOCK_BYTES)?.to_vec())),
    };
    Ok(Change::Map { name, extent, sums, contents })
}

fn take_object(
    input: &mut &[u8],
    key: &[u8; object_key::BYTES],
) -> Result<Box<ObjectRecord>, ChangeError> {
    Ok(Box::new(ObjectRecord::parse(key, take(input, object::BYTES)?)?))
}

fn take<'a>(input: &mut &'a [u8], bytes: usize) -> Result<&'a [u8], ChangeError> {
    let (taken, rest) = input.split_at_checked(bytes).ok_or(ChangeError::Short)?;
    *input = rest;
    Ok(taken)
}

fn take_array<const N: usize>(input: &mut &[u8]) -> Result<[u8; N], ChangeError> {
    let mut array = [0; N];
    array.copy_from_slice(take(input, N)?);
    Ok(array)
}

fn take_u64(input: &mut &[u8]) -> Result<u64, ChangeError> {
    Ok(u64::from_le_bytes(take_array(input)?))
}

#[cfg(test)]
mod tests {
    use nasd_types::{Compression, SetAttributes};
    use proptest::prelude::*;

    use super::*;
    use crate::object::initial_record;

    fn samples() -> Vec<Change> {
        let name = ObjectName { partition: PartitionId(3), object: ObjectId(99) };
        let record = Box::new(initial_record(&SetAttributes::default(), Timestamp(4)));
        let partition = PartitionRecord {
            quota_bytes: 9,
            keys: crate::PartitionKeys::default(),
            settings: crate::PartitionSettings::default(),
            removing: false,
            objects: 1,
            charged_blocks: 2,
        };
        let plain = Extent { logical: 5, blocks: 2, physical: 7, codec: Codec::Plain };
        let codec = Codec::Packed { compression: Compression::Lz4, stored: 1, length: 100 };
        let packed = Extent { logical: 16, blocks: 3, physical: 70, codec };
        let contents = Some(Arc::new(vec![7; 2 * BLOCK_BYTES]));
        vec![
            Change::PutObject(name, record.clone()),
            Change::RemoveObject(name),
            Change::Clear { name, from: 3, to: LOGICAL_BLOCKS_MAX },
            Change::Map { name, extent: plain, sums: vec![1, 2], contents },
            Change::Map { name, extent: packed, sums: vec![3], contents: None },
            Change::PutSmall(name, b"small".to_vec()),
            Change::DropSmall(name),
            Change::Clone { source: ObjectId(80), name, record },
            Change::PutPartition(PartitionId(3), Box::new(partition)),
            Change::RemovePartition(PartitionId(3)),
            Change::CopyPartition { source: PartitionId(2), target: PartitionId(3) },
            Change::PutDriveKeys(DriveKeys::default()),
            Change::PutCounters(Counters::default()),
            Change::Move { from: Run { start: 1, blocks: 2 }, to: 3 },
            Change::Share(Box::new(Share {
                source: ObjectId(80),
                from: 1,
                name,
                to: 2,
                blocks: 3,
                time: Timestamp(4),
            })),
            Change::Appended(Appended {
                name,
                token: AppendToken([9; 16]),
                offset: 5,
                length: 6,
                time: Timestamp(7),
            }),
        ]
    }

    #[test]
    fn changes_survive_their_bytes_and_no_start_of_them_passes() {
        for sample in samples() {
            let mut bytes = Vec::new();
            sample.encode(&mut bytes);
            let mut input = &bytes[..];
            assert_eq!(Change::decode(&mut input).as_ref(), Ok(&sample));
            assert!(input.is_empty());
            for length in 0..bytes.len() {
                let short = Change::decode(&mut &bytes[..length]);
                assert_eq!(short, Err(ChangeError::Short), "{length} bytes of {sample:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_change_or_an_error(
            kind in 0..17u8, bytes in prop::collection::vec(any::<u8>(), 0..600),
        ) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() {
                *first = kind;
            }
            let _ = Change::decode(&mut &bytes[..]);
        }
    }
}
