//! `write`, data of an object, kept where it was received; and what it has in common with `append`,
//! which brings data too.
//!
//! Such a call is looked at twice. When its arguments have come, `receive` makes all checks that can be
//! made without the data, and then finds buffers: nobody without a key gets any. When its data have
//! come, `execute` checks those, and once more what may have changed meanwhile, and applies it.
//! Until every check has passed nothing is changed but buffers.

use nasd_capability::{Access, CoveredData, Refusal, Way};
use nasd_protocol::drive::{AppendArguments, Procedure, WriteArguments, Written};
use nasd_protocol::{Pieces, Status};
use nasd_store::{StoreError, WriteData};
use nasd_transport::{AcceptStatus, Answer, Arriving, Call, CallHead, Receive};
use nasd_types::{ByteRange, ObjectName, Protection, Rights, Timestamp};
use nasd_xdr::{Decoder, XdrDecode, XdrError};

use super::{append, look_again, on_object, refuse_synthetic};
use crate::Drive;
use crate::authority::{Claimed, Grant, Vouched};
use crate::incoming::{Buffer, Incoming, IncomingWrite, Kind};
use crate::reply::{Done, ReplyData};
use crate::status::status_of;

/// Up to so many bytes a copy is cheaper than a frame of 64 KiB that is mostly empty.
const SMALL_BYTES: usize = 16 << 10;

/// From so many bytes on, receiving the next call meanwhile is worth a hand-over.
const LARGE_BYTES: usize = 256 << 10;

/// The arguments of a call that brings data.
#[derive(Debug)]
pub(crate) enum Sent {
    Write(WriteArguments),
    Append(AppendArguments),
}

impl Sent {
    /// Those of a call of `append`, or else of `write`. Leaves the input at the first byte of the data.
    pub(super) fn decode(appends: bool, input: &mut Decoder<'_>) -> Result<Sent, XdrError> {
        match appends {
            true => AppendArguments::decode(input).map(Sent::Append),
            false => WriteArguments::decode(input).map(Sent::Write),
        }
    }

    pub(crate) fn procedure(&self) -> Procedure {
        match self {
            Sent::Write(_) => Procedure::Write,
            Sent::Append(_) => Procedure::Append,
        }
    }

    pub(super) fn data_length(&self) -> usize {
        match self {
            Sent::Write(write) => write.data_length,
            Sent::Append(append) => append.data_length,
        }
    }

    /// What it needs. Regions without a meaning are told to those with authority alone, by `apply`; and
    /// where an append goes, is known only then.
    pub(super) fn access(&self) -> Access<'static> {
        let (name, bytes) = match self {
            Sent::Write(write) => (write.name, write.pieces().ok().map(|pieces| pieces.span())),
            Sent::Append(append) => (append.name, None),
        };
        on_object(name, Rights::WRITE, bytes)
    }

    /// The one range that the data goes to, if it is one and known.
    fn contiguous(&self) -> Option<ByteRange> {
        match self {
            Sent::Write(write) => write.pieces().ok().and_then(|pieces| pieces.contiguous()),
            Sent::Append(_) => None,
        }
    }

    /// Where in its frames the data lies as it does in the object, if that is one range.
    fn place(&self) -> u64 {
        self.contiguous().map_or(0, |range| range.offset)
    }

    /// Whether it is answered when the data are durable.
    fn is_durable(&self) -> bool {
        match self {
            Sent::Write(write) => write.durable,
            Sent::Append(_) => true,
        }
    }
}

/// Whether a call with this head is of `append`.
fn appends(head: &CallHead<'_>) -> bool {
    head.procedure == u32::from(Procedure::Append)
}

/// Decides where the data goes.
pub(crate) fn receive(drive: &Drive, call: &Arriving<'_>) -> Receive<Incoming> {
    let mut input = Decoder::new(call.arguments);
    let arguments = match Sent::decode(appends(call.head), &mut input) {
        Ok(arguments) => arguments,
        Err(XdrError::Truncated { missing }) if !call.complete => {
            return Receive::More { at_least: call.arguments.len().saturating_add(missing) };
        }
        // `execute` finds the same error.
        Err(_) => return Receive::Discard { head_bytes: 0 },
    };
    let head_bytes = input.position();
    match prepare(drive, call.head, &call.arguments[..head_bytes], arguments) {
        Some(payload) => Receive::Data { head_bytes, payload },
        // `execute` makes the same checks, and answers.
        None => Receive::Discard { head_bytes },
    }
}

/// Checks what can be checked and finds buffers; `None` if either fails. A nonce passes only once, so
/// that it is not recorded before there are buffers: who gets none can then be told so by `execute`.
fn prepare(drive: &Drive, head: &CallHead<'_>, bytes: &[u8], arguments: Sent) -> Option<Incoming> {
    let now = drive.environment.now();
    let claimed = Claimed::new(head, bytes, Some(arguments.data_length())).ok()?;
    let admission = drive.admit(&claimed, &arguments.access(), now).ok()?;
    let vouched = drive.vouch(&claimed, admission, now).ok()?;
    find_buffers(drive, arguments, claimed, (vouched, now))
}

/// Finds buffers for data of which every check but those of the data has passed as of then.
pub(super) fn find_buffers(
    drive: &Drive,
    arguments: Sent,
    claimed: Claimed<'_>,
    (vouched, now): (Vouched, Timestamp),
) -> Option<Incoming> {
    let buffer = buffer_for(drive, &arguments).ok()?;
    let grant = drive.record(vouched, now).ok()?;
    let Claimed { credential, data: announced, .. } = claimed;
    let waits = drive.elsewhere().is_some();
    let write = IncomingWrite { arguments, buffer, credential, grant, announced, waits };
    Some(Incoming(Kind::Write(Box::new(write))))
}

pub(crate) fn buffer_for(drive: &Drive, arguments: &Sent) -> Result<Buffer, StoreError> {
    let length = arguments.data_length();
    if length <= SMALL_BYTES {
        return Ok(Buffer::Small(vec![0; length]));
    }
    let frames = drive.store.frames_for_write(arguments.place(), length)?;
    let is_in_place = arguments.contiguous().is_some();
    Ok(if is_in_place { Buffer::InPlace(frames) } else { Buffer::Joined(frames) })
}

/// Such a call may wait for the medium, or is long enough that others should not wait for it.
pub(crate) fn waits(payload: Option<&Incoming>) -> bool {
    payload.is_some_and(|Incoming(kind)| match kind {
        Kind::Write(write) => {
            write.waits
                || write.arguments.is_durable()
                || write.arguments.data_length() >= LARGE_BYTES
        }
        Kind::Opened(_) | Kind::Held(_) => false,
    })
}

/// Executes a call whose data have come, or were thrown away.
pub(crate) fn execute(drive: &Drive, call: Call<'_, Incoming>) -> Answer<ReplyData> {
    match call.payload {
        Some(Incoming(Kind::Write(write))) => execute_received(drive, *write),
        Some(Incoming(Kind::Opened(_) | Kind::Held(_))) | None => {
            execute_without_data(drive, call.head, call.arguments)
        }
    }
}

pub(super) fn execute_received(drive: &Drive, write: IncomingWrite) -> Answer<ReplyData> {
    let IncomingWrite { arguments, mut buffer, credential, grant, announced, .. } = write;
    if !open_data(drive, announced.as_ref(), &grant, &mut buffer) {
        let now = drive.environment.now();
        return drive.refusal(&grant.subject, grant.authorized.nonce(), Refusal::Digest, now);
    }
    match (look_again(drive, &credential, &arguments.access(), &grant), arguments) {
        (Ok(now), Sent::Write(arguments)) => {
            let done = apply(drive, &arguments, buffer, &grant, now);
            drive.seal(&grant, done.map(Done::plain))
        }
        (Ok(now), Sent::Append(arguments)) => {
            let done = append::apply(drive, &arguments, &buffer, &grant, now);
            drive.seal(&grant, done.map(Done::plain))
        }
        (Err(answer), _) => answer,
    }
}

/// Whether the data are those that were announced; decrypts them if they are private.
fn open_data(
    drive: &Drive,
    announced: Option<&CoveredData>,
    grant: &Grant,
    buffer: &mut Buffer,
) -> bool {
    let (Some(announced), Some(keys)) = (announced, &grant.keys) else {
        return true;
    };
    let (way, nonce) = (Way::Request, grant.authorized.nonce());
    if !grant.authorized.protection().contains(Protection::PRIVACY_DATA) {
        return keys.data(way, nonce, &buffer.slices()) == *announced;
    }
    match buffer {
        Buffer::Small(bytes) => keys.open_data(way, nonce, &announced.tag, bytes).is_ok(),
        Buffer::InPlace(frames) | Buffer::Joined(frames) => {
            let mut plain = drive.buffers.take(frames.len());
            let sealed = frames.slices();
            if keys.open_data_into(way, nonce, &announced.tag, &sealed, &mut plain).is_err() {
                return false;
            }
            let mut rest = &plain[..];
            for mut place in frames.io_slices_mut() {
                let (bytes, others) = rest.split_at(place.len());
                place.copy_from_slice(bytes);
                rest = others;
            }
            true
        }
    }
}

/// Finds out why the data were thrown away. A failure looks the same, whichever operation it is of.
fn execute_without_data(drive: &Drive, head: &CallHead<'_>, bytes: &[u8]) -> Answer<ReplyData> {
    let now = drive.environment.now();
    let Ok(arguments) = Sent::decode(appends(head), &mut Decoder::new(bytes)) else {
        return Answer::Rejected(AcceptStatus::GarbageArguments);
    };
    let claimed = match Claimed::new(head, bytes, Some(arguments.data_length())) {
        Ok(claimed) => claimed,
        Err(error) => return Answer::Denied(error.auth_status()),
    };
    let admission = match drive.admit(&claimed, &arguments.access(), now) {
        Ok(admission) => admission,
        Err(refusal) => return drive.refuse(&claimed, refusal, now),
    };
    match drive.verify(&claimed, admission, now) {
        // The digest covers what is answered to, whatever the data were.
        Ok(grant) => drive.seal::<Written>(&grant, Err(why_no_buffer(drive, &arguments))),
        Err(denied) => drive.deny(&claimed, &denied, now),
    }
}

/// The status of a call that had authority but got no buffer for its data.
pub(super) fn why_no_buffer(drive: &Drive, arguments: &Sent) -> Status {
    match drive.store.check_frames_for_write(arguments.place(), arguments.data_length()) {
        // It was busy, and is not any more.
        Ok(()) => Status::Busy,
        Err(error) => status_of(&error),
    }
}

/// Writes the data. The call is authorized.
pub(crate) fn apply(
    drive: &Drive,
    arguments: &WriteArguments,
    buffer: Buffer,
    grant: &Grant,
    now: Timestamp,
) -> Result<Written, Status> {
    if grant.must_not_be_done {
        return Err(Status::ReadOnly);
    }
    let name = arguments.name;
    refuse_synthetic(name)?;
    let pieces = arguments.pieces()?;
    if let Some(elsewhere) = drive.elsewhere() {
        let written = elsewhere.write(arguments, &buffer.slices())?;
        drive.counters.written.add(grant.holder, arguments.data_length);
        return Ok(written);
    }
    let write = || {
        let written = match buffer {
            Buffer::InPlace(frames) => {
                let offset = frames.offset();
                drive.store.write(name, offset, WriteData::Frames(frames), now)
            }
            Buffer::Small(bytes) => write_pieces(drive, name, &pieces, &[&bytes], now),
            Buffer::Joined(frames) => write_pieces(drive, name, &pieces, &frames.slices(), now),
        };
        written.map_err(|error| status_of(&error))
    };
    let written = match arguments.order {
        Some(order) => drive.orders.within(name, order, pieces.iter(), now, write)?,
        None => write()?,
    };
    drive.counters.written.add(grant.holder, arguments.data_length);
    if arguments.durable {
        drive.flush(&[name])?;
    }
    Ok(Written {
        instance: drive.instance,
        length: arguments.data_length as u64,
        logical_size: written.logical_size,
        fs_data_modify_time: written.fs_data_modify_time,
    })
}

/// Writes the bytes of `slices`, joined, to the pieces. Each part is applied as a whole; a failure
/// leaves those before it applied.
fn write_pieces(
    drive: &Drive,
    name: ObjectName,
    pieces: &Pieces<'_>,
    slices: &[&[u8]],
    now: Timestamp,
) -> Result<nasd_store::Written, StoreError> {
    let mut slices = slices.iter().copied();
    let mut slice: &[u8] = slices.next().unwrap_or_default();
    let mut last = None;
    for mut range in pieces.iter() {
        loop {
            if slice.is_empty() {
                slice = slices.next().unwrap_or_default();
            }
            let count = usize::try_from(range.length).unwrap_or(usize::MAX).min(slice.len());
            let (part, rest) = slice.split_at(count);
            last = Some(drive.store.write(name, range.offset, WriteData::Slice(part), now)?);
            slice = rest;
            range = ByteRange::new(range.offset + count as u64, range.length - count as u64);
            // `WriteArguments::pieces` has checked that there are as many bytes as the pieces take.
            if range.is_empty() || count == 0 {
                break;
            }
        }
    }
    match last {
        Some(written) => Ok(written),
        // There is always a piece; it may be empty.
        None => drive.store.write(name, 0, WriteData::Slice(&[]), now),
    }
}
