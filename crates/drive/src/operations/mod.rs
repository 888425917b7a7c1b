//! What a drive does, one file an operation.

mod append;
mod audit;
mod batch;
mod blocksrequired;
mod comparepartition;
mod control;
mod copypartition;
mod copyrange;
mod create;
mod createpartition;
mod endwrites;
mod extend;
mod fastcopy;
mod flush;
mod flushpartition;
mod getattr;
mod initialize;
mod inquiry;
mod map;
pub(crate) mod private;
pub(crate) mod prompt;
mod punch;
mod putobject;
mod read;
mod reads;
mod remove;
mod removepartition;
mod resizepartition;
mod seek;
mod setattr;
mod setdrive;
mod setdrivekey;
mod setpartition;
mod setpartitionkey;
mod setstriping;
pub(crate) mod write;

pub(crate) use prompt::Held;
pub(crate) use reads::Reads;

use nasd_capability::{Access, Admission, KeyKind, KeyKinds, SealedKey, Target};
use nasd_protocol::drive::{self as wire, Operation, Procedure};
use nasd_protocol::{Credential, CredentialKey, Status};
use nasd_store::StoredKey;
use nasd_transport::{AcceptStatus, Answer, CallHead, Presence};
use nasd_types::limits::BLOCK_BYTES;
use nasd_types::{
    ByteRange, ObjectId, ObjectName, PartitionId, Protection, Rights, SetAttributes, Timestamp,
};
use nasd_xdr::from_bytes;

use crate::Drive;
use crate::authority::{Claimed, Grant, is_synthetic};
use crate::reply::{Done, ReplyData};

/// How the drive does an operation that has no bulk data in its request.
pub(crate) trait Perform: Operation {
    /// Whether it tells what an object contains: then the call must be granted still when that was found, as in step 16 of `docs/wire-protocol.md`.
    const TELLS_CONTENTS: bool = false;

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
pub(crate) struct Context<'a> {
    pub(crate) grant: &'a Grant,
    /// By whose authority it comes.
    pub(crate) key: &'a CredentialKey,
    /// When the call was received whole.
    pub(crate) now: Timestamp,
    /// Whether its caller is there.
    pub(crate) presence: Presence<'a>,
}

impl Context<'_> {
    /// Who holds keys of a partition sees to it that no identifier is chosen twice; a capability says nothing
    /// of that.
    fn check_choice(&self, chosen: Option<ObjectId>) -> Result<(), Status> {
        match chosen {
            Some(_) if self.key.kind() == KeyKind::Capability => Err(Status::NotPermitted),
            _ => Ok(()),
        }
    }
}

/// A call without bulk data.
pub(crate) enum Source<'a> {
    /// As it came.
    Plain {
        /// Its decoded header.
        head: &'a CallHead<'a>,
        /// All of its arguments.
        arguments: &'a [u8],
    },
    /// Decrypted.
    Opened(Box<private::Opened>),
}

/// Executes a call of any procedure but `write`, `append` and `private`.
pub(crate) fn execute(
    drive: &Drive,
    procedure: Procedure,
    source: Source<'_>,
    presence: Presence<'_>,
) -> Answer<ReplyData> {
    match procedure {
        Procedure::Null => null(&source),
        Procedure::Inquiry => run::<wire::Inquiry>(drive, source),
        Procedure::Create => run::<wire::Create>(drive, source),
        Procedure::Remove => run::<wire::Remove>(drive, source),
        Procedure::Getattr => prompt::run::<wire::Getattr>(drive, source),
        Procedure::Setattr => run::<wire::Setattr>(drive, source),
        Procedure::Read => prompt::run::<wire::Read>(drive, source),
        Procedure::Write | Procedure::Append | Procedure::Private => {
            unreachable!("invariant: the service sends these elsewhere")
        }
        Procedure::Flush => run::<wire::Flush>(drive, source),
        Procedure::Fastcopy => run::<wire::Fastcopy>(drive, source),
        Procedure::Blocksrequired => run::<wire::Blocksrequired>(drive, source),
        Procedure::Punch => run::<wire::Punch>(drive, source),
        Procedure::Seek => run::<wire::Seek>(drive, source),
        Procedure::Createpartition => run::<wire::Createpartition>(drive, source),
        Procedure::Copypartition => run::<wire::Copypartition>(drive, source),
        Procedure::Comparepartition => run::<wire::Comparepartition>(drive, source),
        Procedure::Putobject => run::<wire::Putobject>(drive, source),
        Procedure::Removepartition => run::<wire::Removepartition>(drive, source),
        Procedure::Resizepartition => run::<wire::Resizepartition>(drive, source),
        Procedure::Flushpartition => run::<wire::Flushpartition>(drive, source),
        Procedure::Setpartitionkey => run::<wire::Setpartitionkey>(drive, source),
        Procedure::Setpartition => run::<wire::Setpartition>(drive, source),
        Procedure::Initialize => run::<wire::Initialize>(drive, source),
        Procedure::Setdrivekey => run::<wire::Setdrivekey>(drive, source),
        Procedure::Setdrive => run::<wire::Setdrive>(drive, source),
        Procedure::Audit => run::<wire::Audit>(drive, source),
        Procedure::Batch => run::<wire::Batch>(drive, source),
        Procedure::Copyrange => run::<wire::Copyrange>(drive, source),
        Procedure::Map => run::<wire::Map>(drive, source),
        Procedure::Setstriping => run::<wire::Setstriping>(drive, source),
        Procedure::Endwrites => run::<wire::Endwrites>(drive, source),
        Procedure::Extend => extend::run(drive, source, presence),
    }
}

/// The procedure that every program has: it does nothing.
fn null(source: &Source<'_>) -> Answer<ReplyData> {
    match source {
        Source::Plain { arguments: [], .. } => {
            Answer::Results { verifier: Default::default(), results: Vec::new(), data: Vec::new() }
        }
        _ => Answer::Rejected(AcceptStatus::GarbageArguments),
    }
}

/// Decode, authorize, perform, seal; for all that takes no longer than the answer is waited for.
fn run<O: Perform>(drive: &Drive, source: Source<'_>) -> Answer<ReplyData> {
    match authorize::<O>(drive, source) {
        Ok(permitted) => finish::<O>(drive, permitted, Presence::ALWAYS),
        Err(answer) => answer,
    }
}

/// A call whose every check has passed.
#[derive(Debug)]
pub(crate) struct Permitted<A> {
    arguments: A,
    credential: Credential,
    grant: Grant,
    now: Timestamp,
}

/// Makes every check, in the order of `authority`; or answers.
fn authorize<O: Perform>(
    drive: &Drive,
    source: Source<'_>,
) -> Result<Permitted<O::Arguments>, Answer<ReplyData>> {
    match source {
        Source::Plain { head, arguments } => admit::<O>(drive, head, arguments)?.verify(drive),
        Source::Opened(opened) => opened.permit::<O>(drive),
    }
}

/// A call whose own words allow it, and that is still to be verified.
struct Admitted<'a, A> {
    arguments: A,
    claimed: Claimed<'a>,
    admission: Admission,
    now: Timestamp,
}

/// Makes the checks for which nothing is looked up; or answers.
fn admit<'a, O: Perform>(
    drive: &Drive,
    head: &CallHead<'a>,
    bytes: &'a [u8],
) -> Result<Admitted<'a, O::Arguments>, Answer<ReplyData>> {
    let Ok(arguments) = from_bytes::<O::Arguments>(bytes) else {
        return Err(Answer::Rejected(AcceptStatus::GarbageArguments));
    };
    let claimed = match Claimed::new(head, bytes, None) {
        Ok(claimed) => claimed,
        Err(error) => return Err(Answer::Denied(error.auth_status())),
    };
    let now = drive.environment.now();
    match drive.admit(&claimed, &O::access(&arguments), now) {
        Ok(admission) => Ok(Admitted { arguments, claimed, admission, now }),
        Err(refusal) => Err(drive.refuse(&claimed, refusal, now)),
    }
}

impl<A> Admitted<'_, A> {
    /// Makes the other checks; or answers.
    fn verify(self, drive: &Drive) -> Result<Permitted<A>, Answer<ReplyData>> {
        let Admitted { arguments, claimed, admission, now } = self;
        match drive.verify(&claimed, admission, now) {
            Ok(grant) => Ok(Permitted { arguments, credential: claimed.credential, grant, now }),
            Err(denied) => Err(drive.deny(&claimed, &denied, now)),
        }
    }
}

fn finish<O: Perform>(
    drive: &Drive,
    permitted: Permitted<O::Arguments>,
    presence: Presence<'_>,
) -> Answer<ReplyData> {
    let Permitted { arguments, credential, grant, now } = permitted;
    let context = Context { grant: &grant, key: &credential.key, now, presence };
    let done = match grant.must_not_be_done {
        true => Err(Status::ReadOnly),
        false => O::perform(drive, arguments, &context),
    };
    if O::TELLS_CONTENTS
        && let Err(denied) = drive.grant_again(&credential, &grant)
    {
        // What was found may have been written since the capability was revoked.
        let (nonce, now) = (grant.authorized.nonce(), drive.environment.now());
        return drive.deny_about(&grant.subject, nonce, &denied, now);
    }
    drive.seal(&grant, done)
}

/// Looks once more at a call that was granted and has waited since, for its data or for the medium:
/// who sends it may have had a hand in that. Tells the time as of which it may be executed; or answers.
fn look_again(
    drive: &Drive,
    credential: &Credential,
    access: &Access<'_>,
    grant: &Grant,
) -> Result<Timestamp, Answer<ReplyData>> {
    let now = drive.environment.now();
    let nonce = grant.authorized.nonce();
    drive
        .grant_again(credential, grant)
        .map_err(|denied| drive.deny_about(&grant.subject, nonce, &denied, now))?;
    drive
        .admit_opened(credential, access, now)
        .map_err(|refusal| drive.refuse_granted(grant, refusal, now))?;
    Ok(now)
}

/// What an operation on one object needs.
pub(crate) fn on_object(
    name: ObjectName,
    rights: Rights,
    bytes: Option<ByteRange>,
) -> Access<'static> {
    let target = Target::Object(name.partition, name.object);
    Access { target, rights, bytes, keys: KeyKinds::OBJECT }
}

/// What an operation on a partition needs that only one kind of key may ask for.
fn on_partition(partition: PartitionId, key: KeyKind) -> Access<'static> {
    Access {
        target: Target::Partition(partition),
        rights: Rights::empty(),
        bytes: None,
        keys: KeyKinds::only(key),
    }
}

/// What an operation of the master key needs.
fn on_drive() -> Access<'static> {
    Access {
        target: Target::Drive,
        rights: Rights::empty(),
        bytes: None,
        keys: KeyKinds::only(KeyKind::Master),
    }
}

/// The key that travelled sealed under the key of the request. Keys must not be changing.
fn open_key(drive: &Drive, sealed: &SealedKey, key: &CredentialKey) -> Result<StoredKey, Status> {
    let ring = drive.ring.read();
    let under = ring.direct_key(key).map_err(|_| Status::BadKey)?;
    let opened = sealed.open(under).ok_or(Status::BadKey)?;
    Ok(StoredKey::new(*opened.expose()))
}

/// Refuses a minimum protection that nobody could meet: it would lock everybody out.
fn check_minimum(minimum: Option<Protection>) -> Result<(), Status> {
    if minimum.is_none_or(Protection::is_understood) { Ok(()) } else { Err(Status::BadArgument) }
}

/// Refuses attributes that this drive does not let anybody set.
fn check_settable(changes: &SetAttributes) -> Result<(), Status> {
    match changes.block_size {
        Some(bytes) if bytes as usize != BLOCK_BYTES => Err(Status::NotAdjustable),
        _ => Ok(()),
    }
}

/// A partition always has its First Object (Table 4).
fn refuse_well_known(name: ObjectName) -> Result<(), Status> {
    refuse_synthetic(name)?;
    if name.object == ObjectId::FIRST_OBJECT { Err(Status::NotPermitted) } else { Ok(()) }
}

/// The objects that the drive makes up can only be read.
fn refuse_synthetic(name: ObjectName) -> Result<(), Status> {
    if is_synthetic(name.object) { Err(Status::NotPermitted) } else { Ok(()) }
}
