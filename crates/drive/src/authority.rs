//! From the bytes of a call to the proof that it may be executed.
//!
//! The order of the checks is that of `nasd_capability::authorize`; this module gives it what it
//! needs: the decoded header, the clock, the keys (step 13) and the access control version.

mod source;

use std::sync::Arc;

use nasd_capability::{
    Access, Admission, Authorized, Capability, Claim, CoveredData, Digest, DigestKeys, DriveRules,
    KeyKind, Nonce, Proved, Refusal, SealedCapability, Suite, Target, admit, admit_again,
    admit_private, capability_key, narrowed_key, procedure_bytes,
};
use nasd_protocol::auth::AuthError;
use nasd_protocol::bulk::{COVERED_BYTES, Packet, covered_data};
use nasd_protocol::drive::Procedure;
use nasd_protocol::{Credential, Status, Verifier};
use nasd_store::{Located, StoreError};
use nasd_transport::CallHead;
use nasd_types::{ObjectId, ObjectName, PartitionId, Protection, Timestamp};

use crate::Drive;
use crate::audit::Subject;
use crate::counters::Holder;
use crate::key_cache::{Derived, KeyName};
use crate::key_ring::KeyRing;

/// A call whose security header is understood, and nothing more.
#[derive(Debug)]
pub(crate) struct Claimed<'a> {
    pub(crate) credential: Credential,
    pub(crate) verifier: Verifier,
    procedure: [u8; 12],
    procedure_number: u32,
    /// The body of the credential, or what a packet of the bulk service shows in its place.
    credential_body: &'a [u8],
    /// The arguments without bulk data.
    arguments: &'a [u8],
    /// What is announced of the bulk data, if the digest covers any.
    pub(crate) data: Option<CoveredData>,
    /// An object that was found already, most likely that of the capability.
    pub(crate) known: Option<Located>,
    /// The object that it is about, where that is not among its arguments.
    about: Option<ObjectName>,
}

/// Where an object was found.
#[derive(Clone, Debug)]
pub(crate) enum Whereabouts {
    /// In the drive's own store.
    Here(Located),
    /// On other drives, if there still is one of this name.
    Elsewhere(ObjectName),
}

impl Whereabouts {
    /// In the store under this name.
    pub(crate) fn here(&self, name: ObjectName) -> Option<&Located> {
        match self {
            Whereabouts::Here(found) if found.name() == name => Some(found),
            Whereabouts::Here(_) | Whereabouts::Elsewhere(_) => None,
        }
    }
}

/// Proof that a call may be executed, and what its reply is sealed with.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub(crate) authorized: Authorized,
    /// `None` with NO_PROTECTION.
    pub(crate) keys: Option<Arc<DigestKeys>>,
    pub(crate) holder: Holder,
    /// What the audit trail says of it.
    pub(crate) subject: Subject,
    /// The object that a capability is for, as it was found.
    pub(crate) object: Option<Whereabouts>,
    /// Its access control version then, under which the request's digest was right.
    access_control_version: u64,
    /// Which ring of keys was in force then.
    generation: u64,
    /// Whether it may change something while nothing on the medium would keep it from passing once more
    /// after the next start ([`crate::clock`]): it is not done then.
    pub(crate) must_not_be_done: bool,
    /// Whether it shows who asks: anybody may send a request that passes more than once again.
    pub(crate) shows_who_asks: bool,
    /// When the call was received whole: asking the clock once more would cost as much as half a
    /// digest.
    pub(crate) received: Timestamp,
}

/// A call whose digest is right, and whose nonce is not used up yet.
#[derive(Debug)]
#[must_use = "the nonce of a call whose digest is right must be recorded"]
pub(crate) struct Vouched {
    proved: Proved,
    found: Found,
    holder: Holder,
    subject: Subject,
    generation: u64,
    /// Which operation it is.
    procedure: u32,
    /// Whether the clock shows a time that it may show once more after a restart.
    is_above_the_mark: bool,
}

impl Vouched {
    /// The keys with which the digest is right; none with NO_PROTECTION.
    pub(crate) fn keys(&self) -> Option<&DigestKeys> {
        self.found.keys.as_deref()
    }

    pub(crate) fn subject(&self) -> &Subject {
        &self.subject
    }

    pub(crate) fn nonce(&self) -> &Nonce {
        self.proved.nonce()
    }

    /// What the request turned out to be about, once its arguments were decrypted.
    pub(crate) fn about(self, procedure: u32, subject: Subject) -> Vouched {
        let subject = said_by(subject, self.found.opened.as_ref());
        Vouched { procedure, subject, ..self }
    }
}

/// Why a call may not be executed.
#[derive(Debug)]
pub(crate) enum Denied {
    /// It is refused.
    Refused(Refusal),
    /// Whether it may could not be found out.
    Failed(StoreError),
    /// The same, where the object is elsewhere.
    Unknown(Status),
}

impl From<Refusal> for Denied {
    fn from(refusal: Refusal) -> Self {
        Denied::Refused(refusal)
    }
}

impl From<StoreError> for Denied {
    fn from(error: StoreError) -> Self {
        Denied::Failed(error)
    }
}

impl<'a> Claimed<'a> {
    /// Decodes the header of a call whose arguments (without bulk data) are `arguments`, and whose
    /// bulk data, if it is of a kind that has any, are of the length `data`.
    pub(crate) fn new(
        head: &CallHead<'a>,
        arguments: &'a [u8],
        data: Option<usize>,
    ) -> Result<Self, AuthError> {
        let credential = Credential::from_opaque(&head.credential)?;
        let verifier = Verifier::from_opaque(&head.verifier)?;
        let covered = data.filter(|_| credential.protection.contains(Protection::INTEGRITY_DATA));
        verifier.check_data_tag(covered.is_some())?;
        let covered = covered.zip(verifier.data_tag);
        Ok(Claimed {
            credential,
            verifier,
            procedure: procedure_bytes(head.program, head.version, head.procedure),
            procedure_number: head.procedure,
            credential_body: head.credential.body,
            arguments,
            data: covered.map(|(length, tag)| CoveredData { length: length as u64, tag }),
            known: None,
            about: None,
        })
    }

    /// A request of the bulk service about an object: what its digest covers is there already.
    pub(crate) fn of_packet(
        packet: &Packet,
        (procedure, said): &'a ([u8; 12], [u8; COVERED_BYTES]),
        (credential, body): (&Credential, &'a [u8]),
        about: ObjectName,
    ) -> Self {
        let data = covered_data(packet, credential.protection);
        let data_tag = data.map(|data| data.tag);
        Claimed {
            credential: credential.clone(),
            verifier: Verifier { nonce: packet.nonce, digest: packet.digest, data_tag },
            procedure: *procedure,
            procedure_number: packet.kind.procedure().into(),
            credential_body: body,
            arguments: said,
            data,
            known: None,
            about: Some(about),
        }
    }

    fn covered(&self) -> [&[u8]; 3] {
        [&self.procedure, self.credential_body, self.arguments]
    }

    fn holder(&self) -> Holder {
        match self.credential.key.kind() {
            KeyKind::Capability => Holder::Capability,
            _ => Holder::Key,
        }
    }

    fn subject(&self) -> Subject {
        let subject = Subject::new(self.procedure_number, &self.credential, self.arguments);
        match self.about {
            Some(ObjectName { partition, object }) => Subject { partition, object, ..subject },
            None => subject,
        }
    }

    pub(crate) fn nonce(&self) -> &Nonce {
        &self.verifier.nonce
    }
}

/// Whether an operation may leave anything other than it was.
fn may_change(procedure: u32) -> bool {
    !matches!(
        Procedure::try_from(procedure),
        Ok(Procedure::Null
            | Procedure::Inquiry
            | Procedure::Read
            | Procedure::Getattr
            | Procedure::Seek
            | Procedure::Blocksrequired)
    )
}

impl Drive {
    /// Steps 1-13: what can be told from the request alone, if its capability is not sealed.
    pub(crate) fn admit(
        &self,
        claimed: &Claimed<'_>,
        access: &Access<'_>,
        now: Timestamp,
    ) -> Result<Admission, Refusal> {
        refuse_audit(access)?;
        let opened = self.open_credential(&claimed.credential)?;
        let claim = claim_of(&claimed.credential, opened.as_ref());
        // Who asks for privacy of arguments that came in the clear did not get it. An inquiry has none.
        let is_readable = !matches!(access.target, Target::Nothing);
        if is_readable && claim.protection.contains(Protection::PRIVACY_ARGS) {
            return Err(Refusal::Protection);
        }
        let rules = self.rules(access.target.partition());
        admit(&rules, &claim, access, claimed.nonce(), &self.window, now)
    }

    /// Of these, those that need no arguments, for a call whose arguments are encrypted.
    pub(crate) fn admit_private(
        &self,
        claimed: &Claimed<'_>,
        now: Timestamp,
    ) -> Result<Admission, Refusal> {
        let opened = self.open_credential(&claimed.credential)?;
        let claim = claim_of(&claimed.credential, opened.as_ref());
        if !claim.protection.contains(Protection::PRIVACY_ARGS) {
            return Err(Refusal::Protection);
        }
        let named = match claim.capability {
            Some(capability) => Some(capability.partition),
            None => claim.key.is_of_a_partition().then_some(claim.key_partition),
        };
        admit_private(&self.rules(named), &claim, claimed.nonce(), &self.window, now)
    }

    /// The others, when the arguments have been decrypted; and all of them once more for a call that
    /// has waited, but for those of the nonce.
    pub(crate) fn admit_opened(
        &self,
        credential: &Credential,
        access: &Access<'_>,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        refuse_audit(access)?;
        let opened = self.open_credential(credential)?;
        let claim = claim_of(credential, opened.as_ref());
        admit_again(&self.rules(access.target.partition()), &claim, access, now)
    }

    fn rules(&self, partition: Option<PartitionId>) -> DriveRules<'static> {
        DriveRules {
            drive: self.identity.drive,
            suites: Suite::available(),
            minimum_protection: self.minimum_protection() | self.ring.minimum_protection(partition),
        }
    }

    /// Steps 14-17.
    pub(crate) fn verify(
        &self,
        claimed: &Claimed<'_>,
        admission: Admission,
        now: Timestamp,
    ) -> Result<Grant, Denied> {
        let vouched = self.vouch(claimed, admission, now)?;
        Ok(self.record(vouched, now)?)
    }

    /// Steps 14-16.
    pub(crate) fn vouch(
        &self,
        claimed: &Claimed<'_>,
        admission: Admission,
        now: Timestamp,
    ) -> Result<Vouched, Denied> {
        let holder = claimed.holder();
        let is_above_the_mark = self.clock.pass(now, &self.store).is_err();
        // Held until what was derived is kept: see `key_ring`.
        let ring = self.ring.read();
        let generation = ring.generation();
        let found = if admission.needs_digest() {
            self.find_keys(&ring, &claimed.credential, claimed.known.as_ref())?
        } else {
            Found::NONE
        };
        let proved = admission.prove(
            found.keys.as_deref(),
            &claimed.covered(),
            claimed.data.as_ref(),
            &claimed.verifier.digest,
        )?;
        self.keep_keys(&claimed.credential, &found);
        let subject = said_by(claimed.subject(), found.opened.as_ref());
        let procedure = claimed.procedure_number;
        Ok(Vouched { proved, found, holder, subject, generation, procedure, is_above_the_mark })
    }

    /// Keeps what was derived for an authority that has proved itself.
    fn keep_keys(&self, credential: &Credential, found: &Found) {
        let (true, Some(keys), Some(suite)) = (found.is_new, &found.keys, credential.suite())
        else {
            return;
        };
        let name = KeyName { key: &credential.key, suite };
        let &Found { opened, access_control_version, .. } = found;
        let keys = Arc::clone(keys);
        self.keys.keep(&name, Derived { access_control_version, opened, keys });
    }

    /// Step 17.
    pub(crate) fn record(&self, vouched: Vouched, now: Timestamp) -> Result<Grant, Refusal> {
        let Vouched { proved, found, holder, subject, generation, .. } = vouched;
        let must_not_be_done = vouched.is_above_the_mark && may_change(vouched.procedure);
        let shows_who_asks = found.keys.is_some() && proved.passes_once();
        let authorized = proved.record(&self.window, now)?;
        let Found { keys, object, access_control_version, .. } = found;
        Ok(Grant {
            authorized,
            keys,
            holder,
            subject,
            object,
            access_control_version,
            generation,
            must_not_be_done,
            shows_who_asks,
            received: now,
        })
    }

    /// Step 19: whether the key with which a call was granted still is one, now that it has waited, for
    /// its data or for the medium. What the arguments need is looked at again by `admit_opened`.
    pub(crate) fn grant_again(&self, credential: &Credential, grant: &Grant) -> Result<(), Denied> {
        if self.has_another_version(grant.object.as_ref(), grant.access_control_version)? {
            return Err(Refusal::Digest.into());
        }
        self.check_keys_again(credential, grant.keys.as_deref(), grant.generation)
    }

    /// The same of a call that is vouched for since its arguments came, and whose end may have taken
    /// its time; it is vouched for as of `now` from here on.
    pub(crate) fn vouch_again(
        &self,
        credential: &Credential,
        vouched: Vouched,
        now: Timestamp,
    ) -> Result<Vouched, Denied> {
        let found = &vouched.found;
        let version = found.access_control_version;
        if self.has_another_version(found.object.as_ref(), version)? {
            return Err(Refusal::Digest.into());
        }
        self.check_keys_again(credential, found.keys.as_deref(), vouched.generation)?;
        let is_above_the_mark = self.clock.pass(now, &self.store).is_err();
        Ok(Vouched { is_above_the_mark, ..vouched })
    }

    /// Whether the digest, which was right with these keys, still is, if keys have changed since the
    /// ring of this generation. A key that has only become the previous one still is a key.
    fn check_keys_again(
        &self,
        credential: &Credential,
        keys: Option<&DigestKeys>,
        generation: u64,
    ) -> Result<(), Denied> {
        let ring = self.ring.read();
        let Some(keys) = keys.filter(|_| ring.generation() != generation) else {
            return Ok(());
        };
        match self.find_keys(&ring, credential, None)?.keys {
            Some(found) if found.are_of_the_same_key(keys) => Ok(()),
            Some(_) | None => Err(Refusal::Digest.into()),
        }
    }

    /// Steps 14 and 15, and the look-up of step 16. `known` is an object that was found already.
    fn find_keys(
        &self,
        ring: &KeyRing,
        credential: &Credential,
        known: Option<&Located>,
    ) -> Result<Found, Denied> {
        // `admit` has checked that the suite is known.
        let suite = credential.suite().ok_or(Refusal::Suite)?;
        let name = KeyName { key: &credential.key, suite };
        if let Some(sealed) = credential.key.sealed_capability() {
            let opened = self.open(ring, credential, sealed)?;
            let found = self.find_capability_keys(ring, &name, &opened, known)?;
            return Ok(Found { opened: Some(opened), ..found });
        }
        if let Some(capability) = credential.key.capability() {
            return self.find_capability_keys(ring, &name, capability, known);
        }
        let secret = ring.direct_key(&credential.key)?;
        match self.keys.find(&name, 0) {
            Some(keys) => Ok(Found::kept(keys, None, 0)),
            None => Ok(Found::derived(DigestKeys::new(secret, suite), None, 0)),
        }
    }

    /// The same for a capability, as it was minted.
    fn find_capability_keys(
        &self,
        ring: &KeyRing,
        name: &KeyName<'_>,
        capability: &Capability,
        known: Option<&Located>,
    ) -> Result<Found, Denied> {
        let working = ring.working_key(capability)?;
        let object = self.subject(capability, known)?;
        let version = match &object {
            Some(found) => self.version_of(found)?,
            None if has_version(capability.object) => None,
            None => Some(0),
        };
        let Some(version) = version else {
            return Ok(Found::NONE);
        };
        if let Some(keys) = self.keys.find(name, version) {
            return Ok(Found::kept(keys, object, version));
        }
        let minted = capability_key(working, capability, version);
        let secret = narrowed_key(minted, name.key.narrowings());
        Ok(Found::derived(DigestKeys::new(&secret, name.suite), object, version))
    }

    /// The capability of a call that shows it sealed.
    pub(crate) fn open_credential(
        &self,
        credential: &Credential,
    ) -> Result<Option<Capability>, Refusal> {
        let sealed = credential.key.sealed_capability();
        sealed.map(|sealed| self.open(&self.ring.read(), credential, sealed)).transpose()
    }

    /// What a call is about, for the audit trail; also by whom, if it shows its capability sealed.
    pub(crate) fn subject_of(&self, claimed: &Claimed<'_>) -> Subject {
        // It may also be sealed by nobody who could say who it is.
        let opened = self.open_credential(&claimed.credential).ok().flatten();
        said_by(claimed.subject(), opened.as_ref())
    }

    /// Opens a sealed capability, unless that was done before.
    fn open(
        &self,
        ring: &KeyRing,
        credential: &Credential,
        sealed: &SealedCapability,
    ) -> Result<Capability, Refusal> {
        let suite = credential.suite().ok_or(Refusal::Suite)?;
        let name = KeyName { key: &credential.key, suite };
        match self.keys.opened(&name) {
            Some(opened) => Ok(opened),
            None => ring.open(sealed),
        }
    }

    /// The object that a capability is for, if it exists and has a version.
    fn subject(
        &self,
        capability: &Capability,
        known: Option<&Located>,
    ) -> Result<Option<Whereabouts>, Denied> {
        let &Capability { partition, object, .. } = capability;
        let name = ObjectName { partition, object };
        match known.filter(|known| known.name() == name) {
            _ if !has_version(object) => Ok(None),
            _ if self.elsewhere().is_some() => Ok(Some(Whereabouts::Elsewhere(name))),
            Some(known) => Ok(Some(Whereabouts::Here(known.clone()))),
            None => Ok(self.store.locate(name)?.map(Whereabouts::Here)),
        }
    }

    /// The access control version of an object; `None` when it was removed.
    fn version_of(&self, found: &Whereabouts) -> Result<Option<u64>, Denied> {
        match (found, self.elsewhere()) {
            (Whereabouts::Here(found), _) => Ok(found.access_control_version()),
            (Whereabouts::Elsewhere(name), Some(elsewhere)) => {
                elsewhere.version(*name).map_err(Denied::Unknown)
            }
            (Whereabouts::Elsewhere(_), None) => Ok(None),
        }
    }

    /// Whether a capability's object has another access control version than its key was made for.
    fn has_another_version(
        &self,
        object: Option<&Whereabouts>,
        version: u64,
    ) -> Result<bool, Denied> {
        match object {
            Some(found) => Ok(self.version_of(found)? != Some(version)),
            None => Ok(false),
        }
    }
}

/// The subject of a call whose capability, if it came sealed, was opened to this.
fn said_by(subject: Subject, opened: Option<&Capability>) -> Subject {
    match opened {
        Some(opened) => Subject { audit_id: opened.audit_id, ..subject },
        None => subject,
    }
}

/// What the checks look at; `opened` is what a sealed capability was opened to.
fn claim_of<'c>(credential: &'c Credential, opened: Option<&'c Capability>) -> Claim<'c> {
    let claim = credential.claim();
    Claim { capability: claim.capability.or(opened), ..claim }
}

/// Of the audit trail's partition there is no key.
fn refuse_audit(access: &Access<'_>) -> Result<(), Refusal> {
    if access.target.partition() == Some(PartitionId::AUDIT) {
        return Err(Refusal::Key);
    }
    Ok(())
}

/// Whether a capability's key depends on an access control version of this object. Where there is none
/// that could have one, the version is 0.
fn has_version(object: ObjectId) -> bool {
    object != ObjectId(0) && !is_synthetic(object)
}

/// Whether the object is made up by the drive when it is read, rather than kept by the store.
pub(crate) fn is_synthetic(object: ObjectId) -> bool {
    matches!(
        object,
        ObjectId::DRIVE_CONTROL | ObjectId::PARTITION_CONTROL | ObjectId::PARTITION_CONTENTS
    )
}

#[derive(Debug)]
struct Found {
    /// `None` when there is no object, so that no digest can be right.
    keys: Option<Arc<DigestKeys>>,
    /// Whether they are not kept yet.
    is_new: bool,
    /// What a sealed capability was opened to.
    opened: Option<Capability>,
    object: Option<Whereabouts>,
    access_control_version: u64,
}

impl Found {
    const NONE: Found =
        Found { keys: None, is_new: false, opened: None, object: None, access_control_version: 0 };

    /// With keys that are kept already.
    fn kept(
        keys: Arc<DigestKeys>,
        object: Option<Whereabouts>,
        access_control_version: u64,
    ) -> Found {
        Found { keys: Some(keys), object, access_control_version, ..Found::NONE }
    }

    /// With keys that were derived just now.
    fn derived(
        keys: DigestKeys,
        object: Option<Whereabouts>,
        access_control_version: u64,
    ) -> Found {
        let is_new = true;
        Found { is_new, ..Found::kept(Arc::new(keys), object, access_control_version) }
    }
}

/// What a reply's verifier has with NO_PROTECTION and in refusals.
pub(crate) const NO_DIGEST: Digest = Digest::ZERO;
