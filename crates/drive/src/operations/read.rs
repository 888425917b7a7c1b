//! `read`: data of an object, sent from where it lies in the cache.

use nasd_capability::Access;
use nasd_protocol::drive::{self as wire, Read, ReadArguments};
use nasd_protocol::{Pieces, Status};
use nasd_store::{Located, ReadData};
use nasd_transport::Waits;
use nasd_types::{ByteRange, ObjectId, ObjectName, Rights, Timestamp};

use super::prompt::{HeldCall, Prompt};
use super::{Context, Perform, Permitted, control, on_object};
use crate::authority::is_synthetic;
use crate::reply::{Done, ReplyData};
use crate::status::status_of;
use crate::{Drive, ReadElsewhere};

/// Reads of so many bytes and fewer wait for the medium together; the device is kept busy by larger
/// ones that wait in a thread each, and what they bring is checked by several.
const SMALL_BYTES: u64 = 64 << 10;

impl Perform for Read {
    fn access(arguments: &ReadArguments) -> Access<'_> {
        // Regions without a meaning are told to those with authority alone, by `perform`.
        let bytes = arguments.pieces().ok().map(|pieces| pieces.span());
        // What is read with an order keeps others from writing.
        let rights = match arguments.order {
            Some(_) => Rights::READ | Rights::WRITE,
            None => Rights::READ,
        };
        on_object(arguments.name, rights, bytes)
    }

    fn perform(
        drive: &Drive,
        arguments: ReadArguments,
        context: &Context<'_>,
    ) -> Result<Done<wire::ReadData>, Status> {
        Read::perform_late(drive, &arguments, context)
    }
}

impl Prompt for Read {
    fn perform_late(
        drive: &Drive,
        arguments: &ReadArguments,
        context: &Context<'_>,
    ) -> Result<Done<wire::ReadData>, Status> {
        let pieces = arguments.pieces()?;
        let found = if is_synthetic(arguments.name.object) {
            read_synthetic(drive, arguments.name, &pieces, context.now)?
        } else {
            if let Some(elsewhere) = drive.elsewhere() {
                return Ok(Found::elsewhere(elsewhere.read(arguments)?).counted(drive, context));
            }
            drive.prefetching.note_read(arguments.name, pieces.iter());
            drive.prefetching.await_coming(arguments.name, pieces.iter());
            let known = context.grant.object.as_ref();
            let known = known.and_then(|found| found.here(arguments.name));
            let read = || read_stored(drive, arguments.name, known, &pieces);
            match arguments.order {
                Some(order) => {
                    let (name, now) = (arguments.name, context.now);
                    drive.orders.within(name, order, pieces.iter(), now, read)?
                }
                None => read()?,
            }
        };
        Ok(found.counted(drive, context))
    }

    fn perform_now(
        drive: &Drive,
        arguments: &ReadArguments,
        context: &Context<'_>,
    ) -> Result<Result<Done<wire::ReadData>, Status>, Waits> {
        let name = arguments.name;
        if is_synthetic(name.object) || drive.elsewhere().is_some() || arguments.order.is_some() {
            // It may tell what is in use, which is known when the last flushes are settled.
            return Err(Waits::Alone);
        }
        let range = match arguments.pieces() {
            // Looking each of many pieces up twice would cost more than a hand-over.
            Ok(pieces) => pieces.contiguous().ok_or(Waits::Alone)?,
            Err(status) => return Ok(Err(status)),
        };
        let known = context.grant.object.as_ref().and_then(|found| found.here(name)).cloned();
        let object = known.or_else(|| drive.store.locate_in_memory(name)).ok_or(Waits::Alone)?;
        match drive.store.read_cached(&object, range) {
            Some(Ok(read)) => {
                drive.prefetching.note_read(name, std::iter::once(range));
                Ok(Ok(Found::of(read).counted(drive, context)))
            }
            Some(Err(error)) => Ok(Err(status_of(&error))),
            None if range.length <= SMALL_BYTES
                && drive.store.can_prefetch(name)
                && !drive.prefetching.is_coming(name, range) =>
            {
                Err(Waits::Together)
            }
            None => Err(Waits::Alone),
        }
    }

    fn object(arguments: &ReadArguments) -> Option<ObjectName> {
        Some(arguments.name)
    }

    fn held(permitted: Permitted<ReadArguments>) -> HeldCall {
        HeldCall::Read(permitted)
    }
}

struct Found {
    logical_size: u64,
    fs_data_modify_time: Timestamp,
    data: Vec<ReplyData>,
    /// Bytes of it.
    data_length: usize,
}

impl Found {
    fn of(read: ReadData) -> Found {
        let ReadData { segments, logical_size, fs_data_modify_time } = read;
        let data_length = segments.iter().map(|segment| segment.len()).sum();
        let data = segments.into_iter().map(ReplyData::Frame).collect();
        Found { logical_size, fs_data_modify_time, data, data_length }
    }

    fn elsewhere(read: ReadElsewhere) -> Found {
        let ReadElsewhere { data, logical_size, fs_data_modify_time } = read;
        let data_length = data.len();
        let data = vec![ReplyData::Bytes(data)];
        Found { logical_size, fs_data_modify_time, data, data_length }
    }

    fn counted(self, drive: &Drive, context: &Context<'_>) -> Done<wire::ReadData> {
        let Found { logical_size, fs_data_modify_time, data, data_length } = self;
        drive.counters.read.add(context.grant.holder, data_length);
        let reply = wire::ReadData { logical_size, fs_data_modify_time, data_length };
        Done { reply, data: Some(data) }
    }
}

/// Reads up to and with the first piece that runs into the end of the object.
fn read_stored(
    drive: &Drive,
    name: ObjectName,
    known: Option<&Located>,
    pieces: &Pieces<'_>,
) -> Result<Found, Status> {
    let pieces: Vec<ByteRange> = pieces.iter().collect();
    let read = match known {
        Some(object) => drive.store.read_pieces_located(object, &pieces),
        None => drive.store.read_pieces(name, &pieces),
    };
    Ok(Found::of(read.map_err(|error| status_of(&error))?))
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
