//! `private`: any other call, decrypted, and then executed as it always is.
//!
//! When the head of a call has come, `receive` makes the checks that need no arguments, verifies the
//! digest, and decrypts the arguments, once. Only then the other checks can be made: what they
//! refuse is refused as any operation fails, by a reply that is proved and encrypted, so that nobody
//! learns of it who does not know what was asked.
//!
//! Whoever sends a call may hold its end back. What was found out when the arguments came is therefore
//! looked at once more when the call has come whole, as of then: its keys and its object's access
//! control version, and then all that needs the arguments.

use nasd_capability::{Refusal, Way};
use nasd_protocol::drive::{Procedure, Sealed, Written, unwrap_arguments};
use nasd_protocol::{Credential, Status};
use nasd_transport::{AcceptStatus, Answer, Arriving, Call, CallHead, Presence, Receive};
use nasd_types::Timestamp;
use nasd_xdr::{Decoder, XdrDecode, XdrError, from_bytes};

use super::write::{self, Sent};
use super::{Perform, Permitted, Source};
use crate::Drive;
use crate::audit::Subject;
use crate::authority::{Claimed, Denied, Grant, Vouched};
use crate::incoming::{Incoming, Kind};
use crate::reply::ReplyData;

/// A call that was decrypted, and whose nonce is not used up yet.
#[derive(Debug)]
pub(crate) struct Opened {
    /// `None` where the sender encrypted what is no call.
    procedure: Option<Procedure>,
    arguments: Vec<u8>,
    credential: Credential,
    vouched: Vouched,
    /// When it was decrypted.
    now: Timestamp,
}

/// Decrypts the call, and decides where its data goes.
pub(crate) fn receive(drive: &Drive, call: &Arriving<'_>) -> Receive<Incoming> {
    let mut input = Decoder::new(call.arguments);
    let sealed = match Sealed::decode(&mut input) {
        Ok(sealed) => sealed,
        Err(XdrError::Truncated { missing }) if !call.complete => {
            return Receive::More { at_least: call.arguments.len().saturating_add(missing) };
        }
        // `execute` finds the same error.
        Err(_) => return Receive::Discard { head_bytes: 0 },
    };
    let head_bytes = input.position();
    match prepare(drive, call.head, &call.arguments[..head_bytes], &sealed) {
        Some(payload) => Receive::Data { head_bytes, payload },
        // `execute` makes the same checks, and answers.
        None => Receive::Discard { head_bytes },
    }
}

fn prepare(drive: &Drive, head: &CallHead<'_>, bytes: &[u8], sealed: &Sealed) -> Option<Incoming> {
    let claimed = Claimed::new(head, bytes, Some(sealed.data_length)).ok()?;
    let opened = open(drive, &claimed, sealed).ok()?;
    if !opened.brings_data() {
        return (sealed.data_length == 0).then(|| Incoming(Kind::Opened(Box::new(opened))));
    }
    let arguments = opened.data_arguments(sealed)?;
    drive.admit_opened(&opened.credential, &arguments.access(), opened.now).ok()?;
    write::find_buffers(drive, arguments, claimed, (opened.vouched, opened.now))
}

/// Makes the checks that need no arguments, and decrypts those; or says why not.
fn open(drive: &Drive, claimed: &Claimed<'_>, sealed: &Sealed) -> Result<Opened, Denied> {
    let now = drive.environment.now();
    let admission = drive.admit_private(claimed, now)?;
    let vouched = drive.vouch(claimed, admission, now)?;
    let keys = vouched.keys().ok_or(Refusal::Protection)?;
    // Covered by the digest, so that only who has the key can have sealed it wrongly.
    let plain = keys
        .open_args(Way::Request, claimed.nonce(), &sealed.sealed)
        .map_err(|_| Refusal::Digest)?;
    let (procedure, arguments) = unwrap_arguments(&plain).unwrap_or((u32::MAX, &[]));
    let subject = Subject::new(procedure, &claimed.credential, arguments);
    Ok(Opened {
        procedure: Procedure::try_from(procedure).ok(),
        arguments: arguments.to_vec(),
        credential: claimed.credential.clone(),
        vouched: vouched.about(procedure, subject),
        now,
    })
}

/// Executes a call.
pub(crate) fn execute(drive: &Drive, call: Call<'_, Incoming>) -> Answer<ReplyData> {
    let Call { head, arguments, payload, presence, .. } = call;
    match payload {
        Some(Incoming(Kind::Write(incoming))) => write::execute_received(drive, *incoming),
        Some(Incoming(Kind::Opened(opened))) => opened.execute(drive, presence),
        Some(Incoming(Kind::Held(_))) | None => execute_discarded(drive, head, arguments, presence),
    }
}

/// Finds out why nothing came of it when it was received.
fn execute_discarded(
    drive: &Drive,
    head: &CallHead<'_>,
    bytes: &[u8],
    presence: Presence<'_>,
) -> Answer<ReplyData> {
    let Ok(sealed) = Sealed::decode(&mut Decoder::new(bytes)) else {
        return Answer::Rejected(AcceptStatus::GarbageArguments);
    };
    let claimed = match Claimed::new(head, bytes, Some(sealed.data_length)) {
        Ok(claimed) => claimed,
        Err(error) => return Answer::Denied(error.auth_status()),
    };
    let opened = match open(drive, &claimed, &sealed) {
        Ok(opened) => opened,
        Err(denied) => return drive.deny(&claimed, &denied, drive.environment.now()),
    };
    let arguments = match opened.procedure {
        Some(Procedure::Write | Procedure::Append) => opened.data_arguments(&sealed),
        _ if sealed.data_length == 0 => {
            return Box::new(opened).execute(drive, presence);
        }
        _ => None,
    };
    let Opened { credential, vouched, now, .. } = opened;
    let grant = match record(drive, vouched, now) {
        Ok(grant) => grant,
        Err(answer) => return answer,
    };
    let Some(arguments) = arguments else {
        return drive.seal_before_access(&grant, Status::BadArgument);
    };
    match drive.admit_opened(&credential, &arguments.access(), now) {
        Ok(()) => drive.seal::<Written>(&grant, Err(write::why_no_buffer(drive, &arguments))),
        Err(refusal) => drive.seal_refusal(&grant, refusal),
    }
}

/// Uses the nonce up; or answers.
fn record(drive: &Drive, vouched: Vouched, now: Timestamp) -> Result<Grant, Answer<ReplyData>> {
    let (subject, nonce) = (*vouched.subject(), *vouched.nonce());
    drive.record(vouched, now).map_err(|refusal| drive.refusal(&subject, &nonce, refusal, now))
}

impl Opened {
    pub(crate) fn procedure(&self) -> Option<Procedure> {
        self.procedure
    }

    fn brings_data(&self) -> bool {
        matches!(self.procedure, Some(Procedure::Write | Procedure::Append))
    }

    /// The arguments of a call that brings data, which announce as many as follow.
    fn data_arguments(&self, sealed: &Sealed) -> Option<Sent> {
        let mut input = Decoder::new(&self.arguments);
        let appends = self.procedure == Some(Procedure::Append);
        let arguments = Sent::decode(appends, &mut input).ok()?;
        input.finish().ok()?;
        (arguments.data_length() == sealed.data_length).then_some(arguments)
    }

    /// A call of any procedure that brings no data.
    fn execute(self: Box<Self>, drive: &Drive, presence: Presence<'_>) -> Answer<ReplyData> {
        match self.procedure {
            None
            | Some(Procedure::Null | Procedure::Private | Procedure::Write | Procedure::Append) => {
                match self.grant(drive) {
                    Ok((grant, _)) => drive.seal_before_access(&grant, Status::BadArgument),
                    Err(answer) => answer,
                }
            }
            Some(procedure) => super::execute(drive, procedure, Source::Opened(self), presence),
        }
    }

    /// Makes the checks that need the arguments; or answers.
    pub(super) fn permit<O: Perform>(
        self: Box<Self>,
        drive: &Drive,
    ) -> Result<Permitted<O::Arguments>, Answer<ReplyData>> {
        let (grant, Asked { arguments, credential }) = self.grant(drive)?;
        let now = grant.received;
        let Ok(arguments) = from_bytes::<O::Arguments>(&arguments) else {
            return Err(drive.seal_before_access(&grant, Status::BadArgument));
        };
        match drive.admit_opened(&credential, &O::access(&arguments), now) {
            Ok(()) => Ok(Permitted { arguments, credential, grant, now }),
            Err(refusal) => Err(drive.seal_refusal(&grant, refusal)),
        }
    }

    /// Looks once more at what was vouched for, and uses the nonce up; or answers.
    fn grant(self: Box<Self>, drive: &Drive) -> Result<(Grant, Asked), Answer<ReplyData>> {
        let now = drive.environment.now();
        let Opened { arguments, credential, vouched, .. } = *self;
        let (subject, nonce) = (*vouched.subject(), *vouched.nonce());
        let vouched = drive
            .vouch_again(&credential, vouched, now)
            .map_err(|denied| drive.deny_about(&subject, &nonce, &denied, now))?;
        Ok((record(drive, vouched, now)?, Asked { arguments, credential }))
    }
}

/// What was asked, and by which authority.
struct Asked {
    arguments: Vec<u8>,
    credential: Credential,
}
