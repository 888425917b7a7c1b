//! Every check that a drive makes of a request, in its one fixed order.
//!
//! | step | check | refusal | where |
//! |---|---|---|---|
//! | 1 | the drive offers the suite | `Suite` | [`admit`] |
//! | 2 | the kind of key is allowed for the operation, has its capability, and is of the operation's partition | `Key` | [`admit`] |
//! | 3 | protection: understood, has a meaning, meets the capability's minimum; by a key, the drive's and the partition's, and never none | `Protection` | [`admit`] |
//! | 4 | the capability's minimum meets the drive's and the partition's | `Minimum` | [`admit`] |
//! | 5 | the nonce's timestamp is in the window | `Skew` | [`admit`] |
//! | 6 | the nonce was not seen, and is not from before the drive's start | `Replay` | [`admit`] |
//! | 7 | no narrowing of the capability widens it | `Chain` | [`admit`], [`effective`] |
//! | 8 | the capability, as narrowed, has not expired | `Expired` | [`admit`] |
//! | 9 | it names this drive | `Drive` | [`admit`] |
//! | 10 | it names the partition | `Partition` | [`admit`] |
//! | 11 | it names the object | `Object` | [`admit`] |
//! | 12 | it has the rights, as narrowed | `Rights` | [`admit`] |
//! | 13 | its region, as narrowed, has the bytes | `Region` | [`admit`] |
//! | 14 | the partition has the key | `Key` | the drive |
//! | 15 | the capability's key epoch is not gone | `Epoch` | [`crate::WorkingKeys::of_epoch`] |
//! | 16 | the object exists, and the digest is right | `Digest` | [`Admission::prove`] |
//! | 17 | the nonce was still not seen; now it is | `Replay` | [`Proved::record`] |
//! | 18 | the data are those whose tag the digest covers | `Digest` | the drive, [`DigestKeys::data`] |
//! | 19 | of a request that has waited: steps 1-4 and 7-16 still pass | theirs | [`admit_again`] |
//!
//! Steps 1-17 come before the payload of a write is received, and step 16 before any room is found
//! for it; so that there is a moment between 16 and 17, after which nothing may fail but by the
//! nonce. Steps 1-13 look at the request and a few constants, and so come first. What they tell, the
//! caller knew. Steps 14 and 15 tell about keys, and
//! nothing about objects. The access control version has no status of its own: a capability that it
//! revoked, one that was forged, and one for an object that does not exist are the same wrong digest,
//! as anything else would tell strangers which objects there are. The look-up of the access control version is the only one that can find an
//! object missing; that is answered like a wrong digest, after about the same work (how long the
//! look-up itself took is not hidden). The nonce is recorded last, so that only somebody with the key can use nonces up; a second copy of the same
//! request that passed step 6 at the same time is stopped at step 17, before anything is done.
//!
//! With NO_PROTECTION nothing proves who asks, so that steps 5, 6 and 14 to 18 are left out: it is allowed
//! to those without a key only for what anybody may ask, and with a capability only on a drive
//! whose own minimum is NO_PROTECTION, which is to say that it trusts its network.
//!
//! An operation on [`Target::Nothing`] does nothing, and tells anybody the same: whoever makes it with a key
//! wants nothing but a reply that only the drive can make, most of all if he does not know its clock
//! yet. So steps 5-13 and 17 are left out of it: no nonce is too old for it, or used up by it.
//!
//! A sealed capability (PRIVACY_CAPABILITY) is opened before step 1, which takes the working key, so
//! that steps 14 and 15 come first then, and a seal that is not right is a wrong digest.
//!
//! With PRIVACY_ARGS the arguments are known only when the digest is right. Steps 1, 3 to 9 and 14 to 16
//! come first ([`admit_private`] makes those that need no look-up), then the arguments are decrypted,
//! and the nonce is used up (step 17) before steps 2 and 10 to 13 are made ([`admit_again`]): what these
//! refuse is told to who has the key alone, by an encrypted reply. For a key of the drive, whose
//! credential names no partition, the partition's minimum (step 3) is among them. Data (step 18) and
//! step 19 are the same.
//!
//! A request that copies shows a second authority, that for the object that is copied from. It is looked
//! at when the request's own has passed all steps, by steps 1-4 and 7-16, of which step 16 is about the
//! second one's proof ([`prove_source`]): that covers the request's nonce, so that steps 5, 6 and 17 hold
//! for both. As it travels among the arguments, the request must be protected at least as it demands of
//! arguments. What these steps refuse is told to who has the key of the request, by a reply that is proved.

use nasd_types::{ByteRange, DriveId, ObjectId, PartitionId, Protection, Rights, Timestamp};

use crate::{
    Capability, CoveredData, Digest, DigestKeys, KeyKind, KeyKinds, Nonce, NonceWindow, Refusal,
    SecretKey, Suite, effective, narrow::Narrowing,
};

/// What a drive demands of every request.
#[derive(Clone, Copy, Debug)]
pub struct DriveRules<'a> {
    /// Its own name.
    pub drive: DriveId,
    /// Suites that it offers; it must be able to run them.
    pub suites: &'a [Suite],
    /// The weakest protection that it accepts in capabilities and requests, here: for the partition
    /// that is about to be touched.
    pub minimum_protection: Protection,
}

/// By what authority a request says that it comes: the RPC credential.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    /// Which key the digest was made with.
    pub key: KeyKind,
    /// Whose key, for the kinds that partitions have; else 0.
    pub key_partition: PartitionId,
    /// With which algorithms; `None` if the number on the wire is unknown.
    pub suite: Option<Suite>,
    /// How the request and its reply are protected.
    pub protection: Protection,
    /// Present exactly when `key` is [`KeyKind::Capability`].
    pub capability: Option<&'a Capability>,
    /// What its holders took away from it, in that order.
    pub narrowings: &'a [Narrowing],
    /// Whether it came sealed, so that nobody on the way could read it.
    pub was_sealed: bool,
}

/// What an operation is about to touch.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// Nothing: `inquiry`. Any capability may prove its answer.
    Nothing,
    /// The drive as a whole: operations of the master key. No capability allows it.
    Drive,
    /// The partition: `create`, `flushpartition`, and what only keys may. Its capability names
    /// object 0.
    Partition(PartitionId),
    /// One object.
    Object(PartitionId, ObjectId),
    /// Several objects of a partition (`flush`): a capability must be for each of them. An empty
    /// list is the partition.
    Objects(PartitionId, &'a [ObjectId]),
}

/// What an operation needs.
#[derive(Clone, Copy, Debug)]
pub struct Access<'a> {
    /// What it touches.
    pub target: Target<'a>,
    /// The rights that a capability must have, all of them.
    pub rights: Rights,
    /// For reads and writes, the range from the first byte to the last. (A region is contiguous, so that it
    /// holds every piece of a strided transfer if it holds this.) `None` for all else.
    pub bytes: Option<ByteRange>,
    /// The kinds of keys that the operation may be authorized with.
    pub keys: KeyKinds,
}

/// A request that has passed all checks but those of its digest (steps 1-13).
#[derive(Clone, Copy, Debug)]
#[must_use = "a request that was admitted is not authorized yet"]
pub struct Admission {
    protection: Protection,
    nonce: Nonce,
    /// Whether the request may pass once only.
    passes_once: bool,
    region: ByteRange,
}

/// A request whose digest is right (steps 1-16), and whose nonce is not used up yet.
#[derive(Clone, Copy, Debug)]
#[must_use = "the nonce of a request whose digest is right must be recorded"]
pub struct Proved {
    authorized: Authorized,
    passes_once: bool,
}

/// Proof that a request passed every check. Only this module makes it.
#[derive(Clone, Copy, Debug)]
pub struct Authorized {
    protection: Protection,
    nonce: Nonce,
    region: ByteRange,
}

/// Steps 1-13: every check that needs neither the digest nor a look-up.
pub fn admit(
    rules: &DriveRules<'_>,
    claim: &Claim<'_>,
    access: &Access<'_>,
    nonce: &Nonce,
    window: &NonceWindow,
    now: Timestamp,
) -> Result<Admission, Refusal> {
    check_suite(rules, claim)?;
    check_key_kind(claim, access)?;
    check_protection(rules, claim)?;
    check_minimum(rules, claim)?;
    let does_something = !matches!(access.target, Target::Nothing);
    let passes_once = does_something && !claim.protection.is_empty();
    if passes_once {
        window.check(now, nonce)?;
    }
    let mut region = ByteRange::ALL;
    if let Some(capability) = claim.capability.filter(|_| does_something) {
        let allowed = effective(capability, claim.narrowings)?;
        check_capability(rules.drive, &allowed, access, now)?;
        region = allowed.region;
    }
    // What does nothing says nothing, and is answered with what anybody may ask: in the clear.
    let private = if does_something { Protection::NONE } else { Protection::PRIVACY_ARGS };
    Ok(Admission { protection: claim.protection - private, nonce: *nonce, passes_once, region })
}

/// Steps 1-4 and 7-13 once more, of a request that was authorized and has waited since: for those
/// rules, and what the capability says, at this time.
pub fn admit_again(
    rules: &DriveRules<'_>,
    claim: &Claim<'_>,
    access: &Access<'_>,
    now: Timestamp,
) -> Result<(), Refusal> {
    check_suite(rules, claim)?;
    check_key_kind(claim, access)?;
    check_protection(rules, claim)?;
    check_minimum(rules, claim)?;
    match claim.capability.filter(|_| !matches!(access.target, Target::Nothing)) {
        Some(capability) => {
            let allowed = effective(capability, claim.narrowings)?;
            check_capability(rules.drive, &allowed, access, now)
        }
        None => Ok(()),
    }
}

/// Steps 1 and 3-9 of a request whose arguments are encrypted: every check that needs neither those nor
/// a look-up. `rules` are those for the partition that the credential names, if it names one. The
/// other steps are made by [`admit_again`], when the arguments have been decrypted.
pub fn admit_private(
    rules: &DriveRules<'_>,
    claim: &Claim<'_>,
    nonce: &Nonce,
    window: &NonceWindow,
    now: Timestamp,
) -> Result<Admission, Refusal> {
    check_suite(rules, claim)?;
    if claim.key == KeyKind::None {
        return Err(Refusal::Key);
    }
    check_protection(rules, claim)?;
    check_minimum(rules, claim)?;
    window.check(now, nonce)?;
    let mut region = ByteRange::ALL;
    if let Some(capability) = claim.capability {
        let allowed = effective(capability, claim.narrowings)?;
        check_term(rules.drive, &allowed, now)?;
        region = allowed.region;
    }
    Ok(Admission { protection: claim.protection, nonce: *nonce, passes_once: true, region })
}

/// Step 1. With no protection the suite is not used, but must still be one that is offered.
fn check_suite(rules: &DriveRules<'_>, claim: &Claim<'_>) -> Result<(), Refusal> {
    match claim.suite {
        Some(suite) if rules.suites.contains(&suite) => Ok(()),
        _ => Err(Refusal::Suite),
    }
}

/// Step 2.
fn check_key_kind(claim: &Claim<'_>, access: &Access<'_>) -> Result<(), Refusal> {
    let has_its_capability = claim.capability.is_some() == (claim.key == KeyKind::Capability);
    let of_the_partition = !claim.key.is_of_a_partition()
        || access.target.partition().is_none_or(|partition| partition == claim.key_partition);
    if access.keys.contains(claim.key) && has_its_capability && of_the_partition {
        Ok(())
    } else {
        Err(Refusal::Key)
    }
}

/// Step 3.
fn check_protection(rules: &DriveRules<'_>, claim: &Claim<'_>) -> Result<(), Refusal> {
    let actual = claim.protection;
    let minimum = match (claim.key, claim.capability) {
        // Nobody's authority: there is no key to protect anything with.
        (KeyKind::None, _) => {
            return if actual.is_empty() { Ok(()) } else { Err(Refusal::Protection) };
        }
        (_, Some(capability)) => capability.minimum_protection,
        // Without a digest, anybody could say that he has the key. It shows no capability that
        // anybody could read.
        (_, None) => {
            let readable = rules.minimum_protection - Protection::PRIVACY_CAPABILITY;
            readable | Protection::INTEGRITY_ARGS
        }
    };
    let is_sealed = actual.contains(Protection::PRIVACY_CAPABILITY);
    let has_a_meaning = actual.is_understood() && is_sealed == claim.was_sealed;
    if has_a_meaning && actual.contains(minimum) { Ok(()) } else { Err(Refusal::Protection) }
}

/// Step 4. A capability says how it may be used; one that may be used with less than is demanded
/// here is of no use here, however well this request is protected.
fn check_minimum(rules: &DriveRules<'_>, claim: &Claim<'_>) -> Result<(), Refusal> {
    let is_enough =
        |capability: &Capability| capability.minimum_protection.contains(rules.minimum_protection);
    if claim.capability.is_none_or(is_enough) { Ok(()) } else { Err(Refusal::Minimum) }
}

/// Steps 8-13, the checks of a capability, as it was narrowed, against the operation.
pub fn check_capability(
    drive: DriveId,
    capability: &Capability,
    access: &Access<'_>,
    now: Timestamp,
) -> Result<(), Refusal> {
    check_term(drive, capability, now)?;
    if access.target.partition().is_some_and(|partition| partition != capability.partition) {
        return Err(Refusal::Partition);
    }
    if !access.target.is_named_by(capability) {
        return Err(Refusal::Object);
    }
    if !capability.rights.contains(access.rights) {
        return Err(Refusal::Rights);
    }
    if access.bytes.is_some_and(|bytes| !capability.region.contains(&bytes)) {
        return Err(Refusal::Region);
    }
    Ok(())
}

/// Steps 8 and 9.
fn check_term(drive: DriveId, capability: &Capability, now: Timestamp) -> Result<(), Refusal> {
    if now >= capability.expires && capability.expires != Timestamp::MAX {
        return Err(Refusal::Expired);
    }
    if capability.drive == drive { Ok(()) } else { Err(Refusal::Drive) }
}

impl Target<'_> {
    /// The partition, if it is not the drive as a whole.
    pub fn partition(&self) -> Option<PartitionId> {
        match *self {
            Target::Nothing | Target::Drive => None,
            Target::Partition(partition)
            | Target::Object(partition, _)
            | Target::Objects(partition, _) => Some(partition),
        }
    }

    /// Whether it is what the capability names, in the partition that it names.
    fn is_named_by(&self, capability: &Capability) -> bool {
        match *self {
            Target::Nothing | Target::Drive => false,
            Target::Partition(_) | Target::Objects(_, []) => capability.object == ObjectId(0),
            Target::Object(_, object) => object == capability.object,
            Target::Objects(_, objects) => {
                objects.iter().all(|object| *object == capability.object)
            }
        }
    }
}

impl Admission {
    /// The bytes of the object that may be known of; all of them with a key.
    pub fn region(&self) -> ByteRange {
        self.region
    }

    /// Whether the digest must be verified, so that keys have to be looked up.
    pub fn needs_digest(&self) -> bool {
        !self.protection.is_empty()
    }

    /// Steps 16 and 17: [`prove`](Self::prove) and [`Proved::record`].
    pub fn verify(
        self,
        keys: Option<&DigestKeys>,
        covered: &[&[u8]],
        data: Option<&CoveredData>,
        digest: &Digest,
        window: &NonceWindow,
        now: Timestamp,
    ) -> Result<Authorized, Refusal> {
        self.prove(keys, covered, data, digest)?.record(window, now)
    }

    /// Step 16. `keys` are those of the key that was claimed; `None` when the object that the
    /// capability names does not exist. `data` is what is announced of the bulk data, exactly when
    /// the request is of a kind that has any and the protection covers it.
    pub fn prove(
        self,
        keys: Option<&DigestKeys>,
        covered: &[&[u8]],
        data: Option<&CoveredData>,
        digest: &Digest,
    ) -> Result<Proved, Refusal> {
        let Admission { protection, nonce, passes_once, region } = self;
        let authorized = Authorized { protection, nonce, region };
        let proved = Proved { authorized, passes_once };
        if !self.needs_digest() {
            return Ok(proved);
        }
        let is_right = match keys {
            Some(keys) => keys.request(&self.nonce, covered, data) == *digest,
            None => {
                // The same work as for an object that exists, so that time does not tell.
                let decoy = DigestKeys::new(&SecretKey::new([0; 32]), Suite::preferred());
                let _ = std::hint::black_box(decoy.request(&self.nonce, covered, data) == *digest);
                false
            }
        };
        if is_right { Ok(proved) } else { Err(Refusal::Digest) }
    }
}

/// Step 16 for the authority that a request shows besides its own, for the object that is copied from:
/// whether its `proof` is right. `keys` and `protection` are those of that authority; `nonce` is the
/// request's. All other steps but 5, 6 and 17, which are the nonce's, are made for it as well
/// ([`admit_again`]).
pub fn prove_source(
    protection: Protection,
    keys: Option<&DigestKeys>,
    nonce: &Nonce,
    covered: &[&[u8]],
    proof: &Digest,
) -> Result<(), Refusal> {
    let is_right = match keys {
        _ if protection.is_empty() => true,
        Some(keys) => keys.source_proof(nonce, covered) == *proof,
        None => {
            // As above.
            let decoy = DigestKeys::new(&SecretKey::new([0; 32]), Suite::preferred());
            let _ = std::hint::black_box(decoy.source_proof(nonce, covered) == *proof);
            false
        }
    };
    if is_right { Ok(()) } else { Err(Refusal::Digest) }
}

impl Proved {
    /// The request's nonce.
    pub fn nonce(&self) -> &Nonce {
        &self.authorized.nonce
    }

    /// Whether the request passes no second time, so that it came from whoever made it.
    pub fn passes_once(&self) -> bool {
        self.passes_once
    }

    /// Step 17.
    pub fn record(self, window: &NonceWindow, now: Timestamp) -> Result<Authorized, Refusal> {
        if self.passes_once {
            window.record(now, &self.authorized.nonce)?;
        }
        Ok(self.authorized)
    }
}

impl Authorized {
    /// How the reply must be protected.
    pub fn protection(&self) -> Protection {
        self.protection
    }

    /// The bytes of the object that may be known of; all of them with a key.
    pub fn region(&self) -> ByteRange {
        self.region
    }

    /// The request's nonce, which the reply's digest covers.
    pub fn nonce(&self) -> &Nonce {
        &self.nonce
    }
}
