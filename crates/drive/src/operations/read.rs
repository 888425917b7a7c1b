//! `read`: data of an object, sent from where it lies in the cache.

use nasd_capability::Access;
use nasd_protocol::drive::{self as wire, Read, ReadArguments};
use nasd_protocol::{Pieces, Status};
use nasd_store::{Located, ReadData};
use nasd_transport::Waits;
use nasd_types::{ByteRange, ObjectId, ObjectName, PartitionId, Rights, Timestamp};
use nasd_xdr::{Decoder, from_bytes};

use super::{Context, Perform, control, on_object};
use crate::Drive;
use crate::authority::is_synthetic;
use crate::reply::{Done, ReplyData};
use crate::status::status_of;

/// Reads of so many bytes and fewer wait for the medium together; the device is kept busy by larger
/// ones that wait in a thread each, and what they bring is checked by several.
const SMALL_BYTES: u64 = 64 << 10;

impl Perform for Read {
    fn access(arguments: &ReadArguments) -> Access<'_> {
        // Regions without a meaning are told to those with authority alone, by `perform`.
        let bytes = arguments.pieces().ok().map(|pieces| pieces.span());
        on_object(arguments.name, Rights::READ, bytes)
    }

    fn perform(
        drive: &Drive,
        arguments: ReadArguments,
        context: &Context<'_>,
    ) -> Result<Done<wire::ReadData>, Status> {
        let pieces = arguments.pieces()?;
        let found = if is_synthetic(arguments.name.object) {
            read_synthetic(drive, arguments.name, &pieces, context.now)?
        } else {
            let known = context.grant.object.as_ref();
            let known = known.filter(|found| found.name() == arguments.name);
            read_stored(drive, arguments.name, known, &pieces)?
        };
        let Found { logical_size, fs_data_modify_time, data, data_length } = found;
        drive.counters.read.add(context.grant.holder, data_length);
        let reply = wire::ReadData { logical_size, fs_data_modify_time, data_length };
        Ok(Done { reply, data: Some(data) })
    }
}

struct Found {
    logical_size: u64,
    fs_data_modify_time: Timestamp,
    data: Vec<ReplyData>,
    /// Bytes of it.
    data_length: usize,
}

/// Reads up to and with the first piece that runs into the end of the object.
fn read_stored(
    drive: &Drive,
    name: ObjectName,
    known: Option<&Located>,
    pieces: &Pieces<'_>,
) -> Result<Found, Status> {
    let mut found: Option<Found> = None;
    for range in pieces.iter() {
        let read = match known {
            Some(object) => drive.store.read_located(object, range),
            None => drive.store.read(name, range),
        };
        let read = read.map_err(|error| status_of(&error))?;
        let ReadData { segments, logical_size, fs_data_modify_time } = read;
        let found = found.get_or_insert_with(|| {
            let data = Vec::with_capacity(segments.len());
            Found { logical_size, fs_data_modify_time, data, data_length: 0 }
        });
        let mut length = 0;
        for segment in segments {
            length += segment.len();
            found.data.push(ReplyData::Frame(segment));
        }
        found.data_length += length;
        if (length as u64) < range.length {
            break;
        }
    }
    // `expand` refuses a list of no pieces.
    found.ok_or(Status::BadArgument)
}

fn read_synthetic(
    drive: &Drive,
    name: ObjectName,
    pieces: &Pieces<'_>,
    now: Timestamp,
) -> Result<Found, Status> {
    if name.object == ObjectId::PARTITION_CONTENTS {
        let list = control::list(drive, name.partition, pieces)?;
        let data_length = list.len();
        let data = vec![ReplyData::Bytes(list)];
        let logical_size = control::list_bytes(drive, name.partition)?;
        return Ok(Found { logical_size, fs_data_modify_time: now, data, data_length });
    }
    let contents = control::contents(drive, name, now)?;
    let logical_size = contents.len() as u64;
    let data: Vec<ReplyData> = pieces
        .within(logical_size)
        // The ranges lie within the contents, whose length is a `usize`.
        .map(|range| contents[range.offset as usize..range.end() as usize].to_vec())
        .map(ReplyData::Bytes)
        .collect();
    let data_length = data.iter().map(|piece| piece.as_ref().len()).sum();
    Ok(Found { logical_size, fs_data_modify_time: now, data, data_length })
}

/// Whether a read must wait for the medium.
pub(super) fn waits(drive: &Drive, bytes: &[u8]) -> Waits {
    if let Some((name, range)) = single_range(bytes) {
        return if is_synthetic(name.object) {
            // It may tell what is in use, which is known when the last flushes are settled.
            Waits::Alone
        } else if drive.store.is_cached(name, range) {
            Waits::Never
        } else if range.length <= SMALL_BYTES && drive.store.can_prefetch(name) {
            Waits::Together
        } else {
            Waits::Alone
        };
    }
    let Ok(arguments) = from_bytes::<ReadArguments>(bytes) else {
        return Waits::Never;
    };
    let waits = if is_synthetic(arguments.name.object) {
        true
    } else {
        match arguments.pieces().map(|pieces| pieces.contiguous()) {
            Ok(Some(range)) => !drive.store.is_cached(arguments.name, range),
            // Looking each of many pieces up twice would cost more than a hand-over.
            Ok(None) => true,
            Err(_) => false,
        }
    };
    if waits { Waits::Alone } else { Waits::Never }
}

/// What a read needs, if it makes sense.
pub(super) fn access_of(bytes: &[u8]) -> Option<Access<'static>> {
    if let Some((name, range)) = single_range(bytes) {
        return Some(on_object(name, Rights::READ, Some(range)));
    }
    let arguments: ReadArguments = from_bytes(bytes).ok()?;
    let bytes = arguments.pieces().ok().map(|pieces| pieces.span());
    Some(on_object(arguments.name, Rights::READ, bytes))
}

/// What a read of one piece asks for, as nearly all do, without memory for the list of regions.
/// Nothing is checked: that is done when the call is executed.
fn single_range(bytes: &[u8]) -> Option<(ObjectName, ByteRange)> {
    let mut input = Decoder::new(bytes);
    let partition = PartitionId(input.u32().ok()?);
    let object = ObjectId(input.u64().ok()?);
    let regions = input.u32().ok()?;
    let (offset, length, _stride) = (input.u64().ok()?, input.u64().ok()?, input.u64().ok()?);
    let pieces = input.u32().ok()?;
    let is_single = regions == 1 && pieces == 1 && input.finish().is_ok();
    is_single.then(|| (ObjectName { partition, object }, ByteRange::new(offset, length)))
}

#[cfg(test)]
mod tests {
    use nasd_protocol::Region;
    use nasd_xdr::to_bytes;

    use super::*;

    #[test]
    fn a_single_range_is_what_the_protocol_says() {
        let name = ObjectName { partition: PartitionId(3), object: ObjectId(1 << 40) };
        let single = ReadArguments::single(name, 12_345, 678);
        let range = ByteRange::new(12_345, 678);
        assert_eq!(single_range(&to_bytes(&single)), Some((name, range)));
        let row = Region { offset: 0, length: 4, stride: 8, count: 2 };
        for regions in [vec![], vec![row], vec![Region::single(0, 1); 2]] {
            assert_eq!(single_range(&to_bytes(&ReadArguments { name, regions })), None);
        }
        let bytes = to_bytes(&single);
        for length in 0..bytes.len() {
            assert_eq!(single_range(&bytes[..length]), None);
        }
        assert_eq!(single_range(&[&bytes[..], &[0; 4]].concat()), None);
    }
}
