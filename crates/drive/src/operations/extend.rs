//! `extend`: has an extension do something with an object, under the caller's authority.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use nasd_capability::Access;
use nasd_prefetch::notice;
use nasd_protocol::Status;
use nasd_protocol::cancelling;
use nasd_protocol::drive::{Extend, ExtendArguments, Extended, ExtensionOutcome};
use nasd_transport::{Answer, Presence};
use nasd_types::limits::MAX_TRANSFER_BYTES;
use nasd_types::{AuditId, ByteRange, ObjectName, Rights};

use super::{Context, Perform, Source, authorize, finish, on_object, refuse_synthetic};
use crate::Drive;
use crate::extensions::{
    Bytes, Extension, ExtensionCall, ExtensionError, Failure, Job, JobName, Told,
};
use crate::prefetching;
use crate::reply::{Done, ReplyData};
use crate::status::status_of;

/// Decode, authorize, perform, seal: as for any other, but that it is given up when its caller goes.
pub(super) fn run(drive: &Drive, source: Source<'_>, presence: Presence<'_>) -> Answer<ReplyData> {
    match authorize::<Extend>(drive, source) {
        Ok(permitted) => finish::<Extend>(drive, permitted, presence),
        Err(answer) => answer,
    }
}

impl Perform for Extend {
    const TELLS_CONTENTS: bool = true;

    fn access(arguments: &ExtendArguments) -> Access<'_> {
        // Regions without a meaning are told to those with authority alone, by `perform`.
        let bytes = arguments.pieces().ok().map(|pieces| pieces.span());
        on_object(arguments.name, arguments.rights, bytes)
    }

    fn perform(
        drive: &Drive,
        arguments: ExtendArguments,
        context: &Context<'_>,
    ) -> Result<Done<Extended>, Status> {
        let since = Some(Instant::now());
        let ExtendArguments { name, rights, bytes_left, job: number, .. } = arguments;
        refuse_synthetic(name)?;
        let pieces: Vec<ByteRange> = arguments.pieces()?.iter().collect();
        if !pieces.is_sorted_by(|one, next| one.end() <= next.offset) {
            return Err(Status::BadArgument);
        }
        let begin = pieces[0].offset;
        if drive.elsewhere().is_some() {
            // It has no bytes itself: those who have are in the object's map.
            return Err(Status::NoSuchExtension);
        }
        let asked = (arguments.extension, arguments.revision);
        if asked == (notice::NUMBER, notice::REVISION) {
            return prefetch(drive, &arguments, &pieces, context);
        }
        let caller = context.grant.subject.audit_id;
        if asked == (cancelling::NUMBER, cancelling::REVISION) {
            return cancel(drive, &arguments, caller, &pieces);
        }
        let extension = drive.extensions.find(asked.0, asked.1);
        let extension = extension.ok_or(Status::NoSuchExtension)?;
        if !rights.contains(extension.description().rights) {
            return Err(Status::NotPermitted);
        }
        let most = (arguments.most as usize).min(MAX_TRANSFER_BYTES);
        let call = ExtensionCall { pieces, most, arguments: arguments.arguments, since };
        let object_bytes = drive.store.getattr(name).map_err(|error| status_of(&error))?;
        let object_bytes = object_bytes.logical_size;
        let ran = memory(drive, &**extension, &call).and_then(|memory_bytes| {
            let is_left = &|| context.presence.is_gone();
            let job = Job {
                extension,
                call,
                name,
                caller,
                number,
                object_bytes,
                bytes_left,
                memory_bytes,
                is_left,
            };
            drive.extensions.workers.run(job, |range| read(drive, name, range))
        });
        let (told, granted) = match ran {
            Ok((told, granted)) => (Ok(told), granted),
            Err(failure) => (Err(failure), None),
        };
        let (extended, data) = outcome(told, begin, most)?;
        drive.counters.read.add(context.grant.holder, data.len());
        let data = match granted {
            Some(granted) => ReplyData::Told(granted.holding(data)),
            None => ReplyData::Bytes(data),
        };
        Ok(Done { reply: extended, data: Some(vec![data]) })
    }
}

/// Writes down what will be read, and tells how much of it was taken.
fn prefetch(
    drive: &Drive,
    arguments: &ExtendArguments,
    pieces: &[ByteRange],
    context: &Context<'_>,
) -> Result<Done<Extended>, Status> {
    if !arguments.rights.contains(Rights::READ) {
        return Err(Status::NotPermitted);
    }
    if drive.prefetching.has_failed() {
        // Whoever tells hints need not go on.
        return Err(Status::NoSuchExtension);
    }
    // It is in memory when the first piece is fetched.
    drive.store.getattr(arguments.name).map_err(|error| status_of(&error))?;
    let told = match prefetching::notice(&arguments.arguments) {
        Ok(notice) => {
            let now = drive.environment.elapsed_ns();
            let teller = prefetching::teller(&context.grant.subject);
            let taken = drive.prefetching.tell(teller, &notice, arguments.name, pieces, now);
            let position = pieces.last().map_or(0, ByteRange::end);
            Ok(Told { position, data: notice::encode_taken(taken) })
        }
        Err(text) => Err(Failure::Told(ExtensionError::Refused(text))),
    };
    let most = (arguments.most as usize).min(MAX_TRANSFER_BYTES);
    let (extended, data) = outcome(told, pieces[0].offset, most)?;
    Ok(Done { reply: extended, data: Some(vec![ReplyData::Bytes(data)]) })
}

/// Gives up a job of the same caller.
fn cancel(
    drive: &Drive,
    arguments: &ExtendArguments,
    caller: AuditId,
    pieces: &[ByteRange],
) -> Result<Done<Extended>, Status> {
    let told = match cancelling::decode(&arguments.arguments) {
        Ok(extension) => {
            let (number, object) = (arguments.job, arguments.name);
            drive.extensions.workers.give_up(&JobName { caller, extension, number, object });
            let position = pieces.last().map_or(0, ByteRange::end);
            Ok(Told { position, data: Vec::new() })
        }
        Err(error) => {
            let text = format!("no extension is named: {error}");
            Err(Failure::Told(ExtensionError::Refused(text)))
        }
    };
    let most = (arguments.most as usize).min(MAX_TRANSFER_BYTES);
    let (extended, data) = outcome(told, pieces[0].offset, most)?;
    Ok(Done { reply: extended, data: Some(vec![ReplyData::Bytes(data)]) })
}

/// The memory that a call takes, if there is so much.
fn memory(
    drive: &Drive,
    extension: &dyn Extension,
    call: &ExtensionCall,
) -> Result<usize, Failure> {
    let checked = catch_unwind(AssertUnwindSafe(|| extension.check(call)));
    let wanted = checked.map_err(|_| Failure::Panicked)?.map_err(Failure::Told)?;
    let all = drive.extensions.workers.memory_bytes();
    if wanted > all {
        let text = format!("it takes {wanted} bytes of memory, and the drive has {all} for that");
        return Err(Failure::Told(ExtensionError::Refused(text)));
    }
    Ok(wanted)
}

fn read(drive: &Drive, name: ObjectName, range: ByteRange) -> Result<Bytes, Status> {
    let read = drive.store.read_pieces(name, &[range]).map_err(|error| status_of(&error))?;
    Ok(Bytes(read.segments))
}

/// What is answered.
fn outcome(
    told: Result<Told, Failure>,
    begin: u64,
    most: usize,
) -> Result<(Extended, Vec<u8>), Status> {
    let stopped =
        "it did not end in time; other calls of it that did not are running yet, it may be";
    let (outcome, position, data) = match told {
        // It has a bug, or tells what was not asked for.
        Ok(told) if told.data.len() > most || told.position < begin => {
            return Err(Status::DriveFault);
        }
        Ok(Told { position, data }) => (ExtensionOutcome::Done, position, data),
        Err(Failure::Told(ExtensionError::Object(status))) => return Err(status),
        // Its caller asks again in a while.
        Err(Failure::ManyWait) => return Err(Status::Busy),
        Err(Failure::Panicked | Failure::NoThread) => return Err(Status::DriveFault),
        Err(Failure::Told(ExtensionError::Refused(text))) => {
            (ExtensionOutcome::Refused, begin, text.into_bytes())
        }
        Err(Failure::Told(ExtensionError::Failed { position, text })) => {
            (ExtensionOutcome::Failed, position, text.into_bytes())
        }
        Err(Failure::NeverEnds | Failure::Told(ExtensionError::Stopped)) => {
            (ExtensionOutcome::Stopped, begin, stopped.as_bytes().to_vec())
        }
    };
    let mut data = data;
    // A text may be cut where there is no room for it.
    data.truncate(most);
    Ok((Extended { outcome, position, data_length: data.len() }, data))
}
