//! Makes the capabilities that ride on answers, and those that are made to be handed on.
//!
//! * Region: all of the object; the rights are those of [`crate::permission::rights`].
//! * Expiry: the configured lifetime from now on the drive's clock, rounded up to the next eighth
//!   of the lifetime. So a caller who asks again soon gets the same capability, and the drive,
//!   which keeps the keys it derived, need not derive another.
//!   None outlives the certificate of who asked, by the drive's clock (CMU-CS-97-118, section 3.2).
//! * Audit identifier: the caller's uid in the upper 32 bits, the number of its host's certificate
//!   ([`crate::caller::peer_number`]) in the lower 32.
//! * Minimum protection: as configured, and what drive and partition demand.

use std::sync::Arc;
use std::time::Duration;

use nasd_capability::{Capability, Narrowing, SealingKeys, capability_key};
use nasd_protocol::manager::{FileHandle, IssuedCapability, MintArguments};
use nasd_types::{AuditId, ByteRange, Location, Protection, Rights, Timestamp};

use crate::caller::Caller;
use crate::keys::WorkingKeys;

/// How capabilities are minted.
#[derive(Clone, Debug)]
pub struct MintOptions {
    /// How long a capability is good, at least; at most an eighth longer.
    pub lifetime: Duration,
    /// The longest that a capability to be handed on is good: the working key must live as long.
    pub longest_lifetime: Duration,
    /// The weakest protection with which it may be used.
    pub minimum_protection: Protection,
}

/// What is known of the drive that a capability is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DriveState {
    /// Where the object is, if the drive is of this volume.
    pub(crate) location: Option<Location>,
    /// The time on its clock.
    pub(crate) time: Timestamp,
    /// The weakest protection that it accepts.
    pub(crate) minimum_protection: Protection,
}

/// Mints.
#[derive(Debug)]
pub(crate) struct Mint {
    keys: Arc<WorkingKeys>,
    lifetime_ns: u64,
    longest_ns: u64,
    minimum_protection: Protection,
}

impl Mint {
    pub(crate) fn new(keys: Arc<WorkingKeys>, options: &MintOptions) -> Self {
        Mint {
            keys,
            lifetime_ns: nanoseconds(options.lifetime),
            longest_ns: nanoseconds(options.longest_lifetime),
            minimum_protection: options.minimum_protection,
        }
    }

    /// A capability for the caller; `None` for a drive that is not of this volume.
    pub(crate) fn issue(
        &self,
        handle: FileHandle,
        access_control_version: u64,
        rights: Rights,
        caller: &Caller,
        drive: DriveState,
    ) -> Option<IssuedCapability> {
        let allowed =
            Narrowing { rights, region: ByteRange::ALL, expires: self.expiry(drive.time) };
        let minimum = self.minimum_protection | drive.minimum_protection;
        self.make(
            (handle, drive.location?),
            access_control_version,
            caller,
            allowed,
            (minimum, false),
        )
    }

    /// A capability to be handed on: for what was asked, until then and no longer than working keys
    /// live.
    pub(crate) fn issue_asked(
        &self,
        asked: &MintArguments,
        access_control_version: u64,
        caller: &Caller,
        drive: DriveState,
    ) -> Option<IssuedCapability> {
        let expires = drive.time.plus_ns(asked.lifetime.min(self.longest_ns));
        let allowed = Narrowing { rights: asked.rights, region: asked.region(), expires };
        let minimum = self.minimum_protection | drive.minimum_protection;
        let how = (minimum, asked.sealed);
        self.make((asked.file, drive.location?), access_control_version, caller, allowed, how)
    }

    /// A capability for these rights on this region until then.
    pub(crate) fn issue_until(
        &self,
        handle: FileHandle,
        access_control_version: u64,
        (rights, region, expires): (Rights, ByteRange, Timestamp),
        caller: &Caller,
        drive: DriveState,
    ) -> Option<IssuedCapability> {
        let minimum = self.minimum_protection | drive.minimum_protection;
        let allowed = Narrowing { rights, region, expires };
        self.make(
            (handle, drive.location?),
            access_control_version,
            caller,
            allowed,
            (minimum, false),
        )
    }

    /// The longest lifetime of [`issue_asked`](Self::issue_asked), in nanoseconds.
    pub(crate) fn longest_ns(&self) -> u64 {
        self.longest_ns
    }

    fn make(
        &self,
        (handle, location): (FileHandle, Location),
        access_control_version: u64,
        caller: &Caller,
        allowed: Narrowing,
        (minimum_protection, sealed): (Protection, bool),
    ) -> Option<IssuedCapability> {
        let Narrowing { rights, region, expires } = allowed;
        let expires = caller.certified_until.map_or(expires, |until| until.min(expires));
        let key = self.keys.current(handle.drive)?;
        let capability = Capability {
            drive: location.drive,
            partition: location.partition,
            object: handle.object,
            region,
            rights,
            expires,
            audit_id: AuditId(u64::from(caller.uid) << 32 | u64::from(caller.peer)),
            minimum_protection,
            key_epoch: key.epoch,
        };
        let seals = sealed || minimum_protection.contains(Protection::PRIVACY_CAPABILITY);
        let sealed = seals.then(|| SealingKeys::new(&key.key).seal(&capability));
        let key = capability_key(&key.key, &capability, access_control_version);
        Some(IssuedCapability { capability, key, sealed })
    }

    fn expiry(&self, now: Timestamp) -> Timestamp {
        let end = now.plus_ns(self.lifetime_ns);
        let step = (self.lifetime_ns / 8).max(1);
        Timestamp(end.0.checked_next_multiple_of(step).unwrap_or(u64::MAX))
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::WorkingKey;
    use nasd_capability::SecretKey;
    use nasd_types::{DriveId, ObjectId, PartitionId};

    fn mint() -> Mint {
        let key = WorkingKey { epoch: 3, key: SecretKey::new([9; 32]) };
        let keys = Arc::new(WorkingKeys::fixed([(DriveId(7), key)]));
        let options = MintOptions {
            lifetime: Duration::from_secs(600),
            longest_lifetime: Duration::from_secs(86_400),
            minimum_protection: Protection::INTEGRITY_ARGS,
        };
        Mint::new(keys, &options)
    }

    fn handle(drive: u64) -> FileHandle {
        FileHandle { drive: DriveId(drive), partition: PartitionId(1), object: ObjectId(70) }
    }

    fn state(time: Timestamp) -> DriveState {
        let location = Some(Location { drive: DriveId(17), partition: PartitionId(3) });
        DriveState { location, time, minimum_protection: Protection::NONE }
    }

    #[test]
    fn the_key_is_the_drives() {
        let caller = Caller {
            uid: 1000,
            gid: 100,
            groups: Vec::new(),
            peer: 0xaabb_ccdd,
            ..Caller::default()
        };
        let now = Timestamp(5_000_000_000_000);
        let now = state(now);
        let issued = mint().issue(handle(7), 4, Rights::READ, &caller, now).unwrap();
        assert_eq!(issued.capability.audit_id, AuditId(0x0000_03e8_aabb_ccdd));
        assert_eq!(issued.capability.region, ByteRange::ALL);
        assert_eq!(issued.capability.key_epoch, 3);
        // It is for where the object is, whatever the file is known by.
        let for_where = (issued.capability.drive, issued.capability.partition);
        assert_eq!(for_where, (DriveId(17), PartitionId(3)));
        let nowhere = DriveState { location: None, ..now };
        assert!(mint().issue(handle(7), 4, Rights::READ, &caller, nowhere).is_none());
        assert_eq!(issued.key, capability_key(&SecretKey::new([9; 32]), &issued.capability, 4));
        assert!(mint().issue(handle(8), 4, Rights::READ, &caller, now).is_none());
        let demanding = DriveState { minimum_protection: Protection::INTEGRITY_DATA, ..now };
        let issued = mint().issue(handle(7), 4, Rights::READ, &caller, demanding).unwrap();
        let both = Protection::INTEGRITY_ARGS | Protection::INTEGRITY_DATA;
        assert_eq!(issued.capability.minimum_protection, both);
    }

    #[test]
    fn what_is_asked_for_is_given_and_no_more() {
        let caller =
            Caller { uid: 1000, gid: 100, groups: Vec::new(), peer: 1, ..Caller::default() };
        let now = Timestamp(5_000_000_000_000);
        let drive = state(now);
        let day = 86_400 * Timestamp::SECOND_NS;
        for (lifetime, given) in [(1, 1), (day, day), (day + 1, day), (u64::MAX, day)] {
            let asked = MintArguments {
                file: handle(7),
                rights: Rights::READ,
                region_offset: 10,
                region_length: 20,
                lifetime,
                sealed: lifetime == 1,
            };
            let issued = mint().issue_asked(&asked, 4, &caller, drive).unwrap();
            assert_eq!(issued.capability.expires, now.plus_ns(given));
            assert_eq!(issued.capability.region, ByteRange::new(10, 20));
            assert_eq!(issued.capability.rights, Rights::READ);
            assert_eq!(issued.key, capability_key(&SecretKey::new([9; 32]), &issued.capability, 4));
            let keys = SealingKeys::new(&SecretKey::new([9; 32]));
            let opened = issued.sealed.map(|sealed| keys.open(&sealed));
            assert_eq!(opened, asked.sealed.then_some(Some(issued.capability)));
        }
    }

    #[test]
    fn nothing_outlives_the_certificate_of_who_asked() {
        let now = Timestamp(5_000_000_000_000);
        let (drive, mint) = (state(now), mint());
        let second = Timestamp::SECOND_NS;
        let asked = MintArguments {
            file: handle(7),
            rights: Rights::READ,
            region_offset: 0,
            region_length: 1,
            lifetime: 500 * second,
            sealed: false,
        };
        let allowed = (Rights::WRITE, ByteRange::ALL, now.plus_ns(500 * second));
        for (certified_until, ends) in [
            (None, now.plus_ns(500 * second)),
            (Some(now.plus_ns(501 * second)), now.plus_ns(500 * second)),
            (Some(now.plus_ns(499 * second)), now.plus_ns(499 * second)),
            (Some(Timestamp(1)), Timestamp(1)),
        ] {
            let caller = Caller { certified_until, ..Caller::default() };
            let by_time = mint.issue_until(handle(7), 4, allowed, &caller, drive).unwrap();
            let handed_on = mint.issue_asked(&asked, 4, &caller, drive).unwrap();
            let usual = mint.issue(handle(7), 4, Rights::READ, &caller, drive).unwrap();
            assert_eq!(by_time.capability.expires, ends);
            assert_eq!(handed_on.capability.expires, ends);
            let lifetime = mint.expiry(now);
            let ends = certified_until.map_or(lifetime, |until| until.min(lifetime));
            assert_eq!(usual.capability.expires, ends);
        }
    }

    #[test]
    fn expiry_is_in_steps_and_never_early() {
        let mint = mint();
        let step = 75 * Timestamp::SECOND_NS;
        for now in [0, 1, step - 1, step, 123_456_789_012_345] {
            let expiry = mint.expiry(Timestamp(now)).0;
            assert!(expiry >= now + 600 * Timestamp::SECOND_NS);
            assert!(expiry < now + 600 * Timestamp::SECOND_NS + step);
            assert_eq!(expiry % step, 0);
        }
        assert_eq!(mint.expiry(Timestamp(u64::MAX - 1)), Timestamp::MAX);
    }
}
