//! What a drive does, one file an operation.

mod control;
mod create;
mod flush;
mod getattr;
mod inquiry;
mod read;
mod remove;
mod setattr;
pub(crate) mod write;

use nasd_capability::{Access, KeyKinds, Target};
use nasd_protocol::Status;
use nasd_protocol::drive::{self as wire, Operation, Procedure};
use nasd_transport::{AcceptStatus, Answer, CallHead};
use nasd_types::{ByteRange, ObjectName, Rights, Timestamp};
use nasd_xdr::from_bytes;

use crate::Drive;
use crate::authority::{Claimed, Grant, is_synthetic};
use crate::reply::{Done, ReplyData};

/// How the drive does an operation that has no bulk data in its request.
trait Perform: Operation {
    /// What it needs.
    fn access(arguments: &Self::Arguments) -> Access<'_>;

    /// Does it. The call is authorized.
    fn perform(
        drive: &Drive,
        arguments: Self::Arguments,
        context: &Context<'_>,
    ) -> Result<Done<Self::Reply>, Status>;
}

/// What an operation may know of its call.
struct Context<'a> {
    grant: &'a Grant,
    /// When the call was received whole.
    now: Timestamp,
}

/// Executes a call of any procedure but `write`.
pub(crate) fn execute(
    drive: &Drive,
    procedure: Procedure,
    head: &CallHead<'_>,
    arguments: &[u8],
) -> Answer<ReplyData> {
    match procedure {
        Procedure::Null => null(arguments),
        Procedure::Inquiry => run::<wire::Inquiry>(drive, head, arguments),
        Procedure::Create => run::<wire::Create>(drive, head, arguments),
        Procedure::Remove => run::<wire::Remove>(drive, head, arguments),
        Procedure::Getattr => run::<wire::Getattr>(drive, head, arguments),
        Procedure::Setattr => run::<wire::Setattr>(drive, head, arguments),
        Procedure::Read => run::<wire::Read>(drive, head, arguments),
        Procedure::Write => unreachable!("invariant: the service sends writes to `write`"),
        Procedure::Flush => run::<wire::Flush>(drive, head, arguments),
    }
}

/// Whether a call of a procedure other than `write` may wait for the medium, or for others who do.
pub(crate) fn may_block(drive: &Drive, procedure: Procedure, arguments: &[u8]) -> bool {
    match procedure {
        Procedure::Null | Procedure::Inquiry | Procedure::Getattr => false,
        Procedure::Read => read::may_block(drive, arguments),
        // Changes of metadata wait for the commit of whoever is flushing.
        Procedure::Create | Procedure::Remove | Procedure::Setattr => true,
        Procedure::Write | Procedure::Flush => true,
    }
}

/// The procedure that every program has: it does nothing.
fn null(arguments: &[u8]) -> Answer<ReplyData> {
    if !arguments.is_empty() {
        return Answer::Rejected(AcceptStatus::GarbageArguments);
    }
    Answer::Results { verifier: Default::default(), results: Vec::new(), data: Vec::new() }
}

/// Decode, authorize, perform, seal.
fn run<O: Perform>(drive: &Drive, head: &CallHead<'_>, bytes: &[u8]) -> Answer<ReplyData> {
    let Ok(arguments) = from_bytes::<O::Arguments>(bytes) else {
        return Answer::Rejected(AcceptStatus::GarbageArguments);
    };
    let claimed = match Claimed::new(head, bytes) {
        Ok(claimed) => claimed,
        Err(error) => return Answer::Denied(error.auth_status()),
    };
    let now = drive.environment.now();
    let admission = match drive.admit(&claimed, &O::access(&arguments), now) {
        Ok(admission) => admission,
        Err(refusal) => return drive.refuse(&claimed, refusal, now),
    };
    let grant = match drive.verify(&claimed, admission, None, now) {
        Ok(grant) => grant,
        Err(denied) => return drive.deny(&claimed, &denied, now),
    };
    let done = O::perform(drive, arguments, &Context { grant: &grant, now });
    drive.seal(&grant, done)
}

/// What an operation on one object needs.
fn on_object(name: ObjectName, rights: Rights, bytes: Option<ByteRange>) -> Access<'static> {
    let target = Target::Object(name.partition, name.object);
    Access { target, rights, bytes, keys: KeyKinds::OBJECT }
}

/// The objects that the drive makes up can only be read.
fn refuse_synthetic(name: ObjectName) -> Result<(), Status> {
    if is_synthetic(name.object) { Err(Status::NotPermitted) } else { Ok(()) }
}
