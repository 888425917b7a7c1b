//! Operations that are done at once where nothing has to be waited for: `read` and `getattr`.
//!
//! Every check comes first. Only of a call that may be executed is it found out whether the data that it
//! needs are in memory, so that the time of an answer tells that to nobody else. (Whether its object is,
//! without which a capability can't be verified, is found out before.) One that has to wait for the medium
//! keeps its permission, as its nonce is used up, and is executed by that. Either way the call is looked at again when it was executed,
//! before it is answered with anything.

use std::time::Instant;

use nasd_protocol::drive::{Getattr, GetattrArguments, Procedure, Read, ReadArguments};
use nasd_protocol::{Credential, Status};
use nasd_transport::{Answer, Attempt, Call, Presence, Waits};
use nasd_types::{ObjectName, Timestamp};

use super::{Context, Perform, Permitted, Source, admit, authorize, look_again};
use crate::Drive;
use crate::authority::Grant;
use crate::incoming::{Incoming, Kind};
use crate::reply::{Done, ReplyData};

/// An operation that most often waits for nothing.
pub(crate) trait Prompt: Perform + Sized {
    /// Does it, whatever it waits for. It changes nothing, so that it may be refused afterwards.
    fn perform_late(
        drive: &Drive,
        arguments: &Self::Arguments,
        context: &Context<'_>,
    ) -> Result<Done<Self::Reply>, Status>;

    /// Does it, if it has to wait for nothing; or tells how it waits.
    fn perform_now(
        drive: &Drive,
        arguments: &Self::Arguments,
        context: &Context<'_>,
    ) -> Result<Result<Done<Self::Reply>, Status>, Waits>;

    /// The object that has to be in memory for the call to be verified without the medium, where that
    /// is worth a hand-over.
    fn object(arguments: &Self::Arguments) -> Option<ObjectName>;

    /// A call that waits.
    fn held(permitted: Permitted<Self::Arguments>) -> HeldCall;
}

/// A call that may be executed, and has to wait for that.
#[derive(Debug)]
pub(crate) struct Held {
    /// When it began, if its time is taken.
    pub(crate) begin: Option<Instant>,
    pub(super) call: HeldCall,
}

/// Which.
#[derive(Debug)]
pub(crate) enum HeldCall {
    Read(Permitted<ReadArguments>),
    Getattr(Permitted<GetattrArguments>),
}

impl Held {
    pub(crate) fn procedure(&self) -> Procedure {
        match self.call {
            HeldCall::Read(_) => Procedure::Read,
            HeldCall::Getattr(_) => Procedure::Getattr,
        }
    }

    /// Executes it, whatever it waits for.
    pub(crate) fn execute(self, drive: &Drive) -> Answer<ReplyData> {
        match self.call {
            HeldCall::Read(permitted) => finish_late::<Read>(drive, &permitted),
            HeldCall::Getattr(permitted) => finish_late::<Getattr>(drive, &permitted),
        }
    }
}

/// None of these works for long.
fn context<'a>(grant: &'a Grant, credential: &'a Credential, now: Timestamp) -> Context<'a> {
    Context { grant, key: &credential.key, now, presence: Presence::ALWAYS }
}

/// Executes a call, waits for the medium if need be, and looks at the call once more before it is
/// answered with anything.
pub(super) fn finish_late<O: Prompt>(
    drive: &Drive,
    permitted: &Permitted<O::Arguments>,
) -> Answer<ReplyData> {
    let Permitted { arguments, credential, grant, now } = permitted;
    let context = context(grant, credential, *now);
    let done = O::perform_late(drive, arguments, &context);
    seal_if_granted::<O>(drive, permitted, done)
}

/// Answers with what was done, if the call still is granted now that it was. So nobody sees anything that was written after the
/// access control version was raised that his capability is of.
fn seal_if_granted<O: Prompt>(
    drive: &Drive,
    permitted: &Permitted<O::Arguments>,
    done: Result<Done<O::Reply>, Status>,
) -> Answer<ReplyData> {
    let Permitted { arguments, credential, grant, .. } = permitted;
    match look_again(drive, credential, &O::access(arguments), grant) {
        Ok(_) => drive.seal(grant, done),
        Err(answer) => answer,
    }
}

/// Makes every check, and executes a call.
pub(super) fn run<O: Prompt>(drive: &Drive, source: Source<'_>) -> Answer<ReplyData> {
    match authorize::<O>(drive, source) {
        Ok(permitted) => finish_late::<O>(drive, &permitted),
        Err(answer) => answer,
    }
}

/// Executes a call of the operation that began then, or finds out how it waits.
pub(crate) fn attempt<O: Prompt>(
    drive: &Drive,
    call: Call<'_, Incoming>,
    begin: Option<Instant>,
) -> Attempt<Incoming, ReplyData> {
    let permitted = match permit::<O>(drive, call) {
        Ok(Some(permitted)) => permitted,
        Ok(None) => return Attempt::Waits(Waits::Alone, None),
        Err(answer) => return Attempt::Answered(answer),
    };
    let Permitted { arguments, credential, grant, now } = &permitted;
    match O::perform_now(drive, arguments, &context(grant, credential, *now)) {
        // The capability may have been revoked between the checks and the reading, and what was read be written since.
        Ok(done) => Attempt::Answered(seal_if_granted::<O>(drive, &permitted, done)),
        Err(waits) => {
            let held = Held { begin, call: O::held(permitted) };
            Attempt::Waits(waits, Some(Incoming(Kind::Held(Box::new(held)))))
        }
    }
}

/// Makes every check; `None` if the medium is needed for that, so that nothing came of it yet.
fn permit<O: Prompt>(
    drive: &Drive,
    call: Call<'_, Incoming>,
) -> Result<Option<Permitted<O::Arguments>>, Answer<ReplyData>> {
    let Call { head, arguments, payload, .. } = call;
    if let Some(Incoming(Kind::Opened(opened))) = payload {
        return opened.permit::<O>(drive).map(Some);
    }
    let mut admitted = admit::<O>(drive, head, arguments)?;
    if let Some(name) = O::object(&admitted.arguments) {
        match drive.store.locate_in_memory(name) {
            Some(known) => admitted.claimed.known = Some(known),
            None => return Ok(None),
        }
    }
    admitted.verify(drive).map(Some)
}
