//! The working keys with which the volume's drives check capabilities, and how they change.
//!
//! A change has three steps, in an order that leaves a manager which dies between any two of them
//! with a key that its drive knows (CMU-CS-97-118, Table 6 and section 4.4):
//!
//! 1. the new key is drawn, and made durable beside the present one ([`KeyKeeper`]);
//! 2. the drive gets it, by the partition key; the drive takes the same key twice without harm;
//! 3. it is the present key from then on, and that is made durable.
//!
//! Who wants a key meanwhile waits, so that nothing is signed or minted with one that is about to
//! go. What was signed before is refused by the drive when it arrives after step 2; the sender sees
//! then that the epoch has changed, and signs anew.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use nasd_capability::{KEY_BYTES, SecretKey};
use nasd_types::{DriveId, Location, Timestamp};
use thiserror::Error;

use crate::config::{DriveConfig, TableError};
use crate::objects::ObjectError;

/// How often a key is changed so that no capability given out before is good any more: a drive
/// knows the present key and the one before.
pub const AT_ONCE: u32 = 2;

/// A working key and its number, which capabilities name.
#[derive(Clone, PartialEq, Eq)]
pub struct WorkingKey {
    /// Rises with each change.
    pub epoch: u32,
    /// The key.
    pub key: SecretKey,
}

impl fmt::Debug for WorkingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "working key {}", self.epoch)
    }
}

/// All that must survive the manager of the working keys of one drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptKeys {
    /// What capabilities are made with.
    pub current: WorkingKey,
    /// Its successor, if the drive may have that already.
    pub pending: Option<WorkingKey>,
    /// When the current key came into use, by the manager's clock; 0 if that is not known.
    pub changed: Timestamp,
    /// How often the key must be changed yet, whatever its age: somebody's capabilities must go.
    pub owed: u32,
}

impl KeptKeys {
    /// A key that nothing is known of but its number.
    pub fn new(epoch: u32, key: SecretKey) -> KeptKeys {
        let current = WorkingKey { epoch, key };
        KeptKeys { current, pending: None, changed: Timestamp(0), owed: 0 }
    }

    /// Whether the key should be changed now: a change was begun or is owed, or the key is older
    /// than `interval`. One from the future is taken for old: a clock was set back.
    pub fn is_due(&self, interval: Option<Duration>, now: Timestamp) -> bool {
        let by_age = interval.is_some_and(|interval| {
            let interval = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
            self.changed > now || now.0 - self.changed.0 >= interval
        });
        by_age || self.owed > 0 || self.pending.is_some()
    }
}

/// Could not make keys durable, and why.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the keys can't be kept: {0}")]
pub struct KeeperError(pub String);

/// Where the keys are at rest.
pub trait KeyKeeper: fmt::Debug + Send + Sync {
    /// Makes these the keys of `drive`, durably, in place of what was kept for it.
    ///
    /// # Errors
    /// Whatever stands in the way; then either the new keys are kept or the old.
    fn keep(&self, drive: DriveId, keys: &KeptKeys) -> Result<(), KeeperError>;

    /// The key of the volume's partition of `drive`, by which working keys are set; while one
    /// replaces another, both, as nobody knows which the drive has. Asked for each time, so that the
    /// manager has it no longer than it needs it, and never an old one.
    ///
    /// # Errors
    /// If there is none, or it can't be read.
    fn partition_keys(&self, drive: DriveId) -> Result<Vec<SecretKey>, KeeperError>;

    /// From now on the keys of `drive` are those of another partition, to which the volume's was moved.
    fn relocated(&self, _drive: DriveId, _to: Location) {}
}

/// Why a drive's working key was not changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ChangeError {
    /// There is no such drive, or the manager has nobody who keeps keys.
    #[error("the manager has no keyring: it can't set working keys")]
    NoAuthority,
    /// The keys could not be made durable; the drive was told nothing.
    #[error(transparent)]
    Keeper(#[from] KeeperError),
    /// The drive is away or refuses; it may have the new key, and will be told again.
    #[error(transparent)]
    Drive(#[from] ObjectError),
    /// Where the keys' partition is could not be written down.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The system gave no random numbers.
    #[error("the system's random number generator failed: {0}")]
    Random(String),
    /// All numbers of working keys are used up.
    #[error("the drive has had all working keys that can be numbered: set its partition key anew")]
    NoMoreEpochs,
}

/// The working keys of the volume's drives.
#[derive(Debug)]
pub struct WorkingKeys {
    drives: BTreeMap<DriveId, RwLock<KeptKeys>>,
    keeper: Option<Arc<dyn KeyKeeper>>,
    /// That the file manager before this one is kept out by other keys is not written down for all drives yet.
    is_to_be_fenced: AtomicBool,
}

impl WorkingKeys {
    /// These keys; without a keeper they never change.
    pub fn new(
        drives: impl IntoIterator<Item = (DriveId, KeptKeys)>,
        keeper: Option<Arc<dyn KeyKeeper>>,
    ) -> WorkingKeys {
        let drives = drives.into_iter().map(|(drive, keys)| (drive, RwLock::new(keys))).collect();
        WorkingKeys { drives, keeper, is_to_be_fenced: AtomicBool::new(false) }
    }

    /// The file manager before this one is to be kept out of all drives by changes of keys that are [owed](WorkingKeys::owe): no drive
    /// counts as fenced before [`WorkingKeys::fencing_is_noted`].
    pub(crate) fn begin_fencing(&self) {
        self.is_to_be_fenced.store(true, Ordering::Release);
    }

    /// These changes are owed durably, for every drive.
    pub(crate) fn fencing_is_noted(&self) {
        self.is_to_be_fenced.store(false, Ordering::Release);
    }

    /// Whether that could not be done yet.
    pub(crate) fn is_to_be_fenced(&self) -> bool {
        self.is_to_be_fenced.load(Ordering::Acquire)
    }

    /// Whether a drive takes nothing more of the file manager before this one.
    pub(crate) fn is_fenced(&self, drive: DriveId) -> bool {
        let is_done = |kept: KeptKeys| kept.owed == 0 && kept.pending.is_none();
        !self.is_to_be_fenced() && self.kept(drive).is_none_or(is_done)
    }

    /// Keys that never change.
    pub fn fixed(drives: impl IntoIterator<Item = (DriveId, WorkingKey)>) -> WorkingKeys {
        let kept = |(drive, key): (DriveId, WorkingKey)| (drive, KeptKeys::new(key.epoch, key.key));
        WorkingKeys::new(drives.into_iter().map(kept), None)
    }

    /// The drives.
    pub fn drives(&self) -> Vec<DriveId> {
        self.drives.keys().copied().collect()
    }

    /// All that is kept of a drive's keys, once a change under way is over.
    pub fn kept(&self, drive: DriveId) -> Option<KeptKeys> {
        self.read(drive).map(|keys| keys.clone())
    }

    /// What sets a drive's working keys: one of these.
    ///
    /// # Errors
    /// `NoAuthority` or `Keeper`.
    pub(crate) fn partition_keys(&self, drive: DriveId) -> Result<Vec<SecretKey>, ChangeError> {
        let keeper = self.keeper.as_ref().ok_or(ChangeError::NoAuthority)?;
        Ok(keeper.partition_keys(drive)?)
    }

    /// The key to sign and to mint with, once a change under way is over.
    pub(crate) fn current(&self, drive: DriveId) -> Option<WorkingKey> {
        self.read(drive).map(|keys| keys.current.clone())
    }

    /// The number of that key.
    pub(crate) fn epoch(&self, drive: DriveId) -> Option<u32> {
        self.read(drive).map(|keys| keys.current.epoch)
    }

    /// Whether the drive may have a key that is not in use yet.
    pub(crate) fn has_pending(&self, drive: DriveId) -> bool {
        self.read(drive).is_some_and(|keys| keys.pending.is_some())
    }

    /// Notes, durably, that the key must be changed so often, also if this manager dies.
    ///
    /// # Errors
    /// `NoAuthority` or `Keeper`.
    pub(crate) fn owe(&self, drive: DriveId, changes: u32) -> Result<(), ChangeError> {
        let keeper = self.keeper.as_ref().ok_or(ChangeError::NoAuthority)?;
        let mut keys = self.write(drive).ok_or(ChangeError::NoAuthority)?;
        let next = KeptKeys { owed: keys.owed.max(changes), ..keys.clone() };
        keeper.keep(drive, &next)?;
        *keys = next;
        Ok(())
    }

    /// Changes the key, as often as is owed and once at least; a change that was begun counts as the
    /// first. `send` gives a key to the drive.
    ///
    /// # Errors
    /// [`ChangeError`]; the next call takes it up where this one failed.
    pub(crate) fn change(
        &self,
        drive: DriveId,
        now: Timestamp,
        send: impl FnMut(&WorkingKey) -> Result<(), ObjectError>,
    ) -> Result<(), ChangeError> {
        let mut keys = self.write(drive).ok_or(ChangeError::NoAuthority)?;
        self.change_locked((drive, &mut keys), now, send)
    }

    /// The objects that files know by this drive are elsewhere from now on, and have other keys there, which `move_to` tells when that is written down. No capability that
    /// was given for where they were is good any more then: the keys of there are changed as often as that takes, by `send`, and who wants a
    /// key waits from before that until the new ones are used.
    ///
    /// # Errors
    /// [`ChangeError`], or what `move_to` says: then they are where they were.
    pub(crate) fn relocate(
        &self,
        drive: DriveId,
        now: Timestamp,
        send: impl FnMut(&WorkingKey) -> Result<(), ObjectError>,
        move_to: impl FnOnce() -> Result<DriveConfig, TableError>,
    ) -> Result<(), ChangeError> {
        let keeper = self.keeper.as_ref().ok_or(ChangeError::NoAuthority)?;
        let mut keys = self.write(drive).ok_or(ChangeError::NoAuthority)?;
        keys.owed = keys.owed.max(AT_ONCE);
        self.change_locked((drive, &mut keys), now, send)?;
        let there = move_to()?;
        keeper.relocated(drive, there.location());
        *keys = there.keys;
        Ok(())
    }

    fn change_locked(
        &self,
        (drive, keys): (DriveId, &mut KeptKeys),
        now: Timestamp,
        mut send: impl FnMut(&WorkingKey) -> Result<(), ObjectError>,
    ) -> Result<(), ChangeError> {
        let keeper = self.keeper.as_ref().ok_or(ChangeError::NoAuthority)?;
        loop {
            let next = match keys.pending.clone() {
                Some(next) => next,
                None => {
                    let next = successor(&keys.current)?;
                    let kept = KeptKeys { pending: Some(next.clone()), ..keys.clone() };
                    keeper.keep(drive, &kept)?;
                    *keys = kept;
                    next
                }
            };
            send(&next)?;
            let owed = keys.owed.saturating_sub(1);
            *keys = KeptKeys { current: next, pending: None, changed: now, owed };
            // If this fails, what is kept still has the new key, as the pending one.
            keeper.keep(drive, keys)?;
            if owed == 0 {
                return Ok(());
            }
        }
    }

    fn read(&self, drive: DriveId) -> Option<RwLockReadGuard<'_, KeptKeys>> {
        // Each change is a single assignment: a panic elsewhere leaves nothing half done.
        self.drives.get(&drive).map(|keys| keys.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write(&self, drive: DriveId) -> Option<RwLockWriteGuard<'_, KeptKeys>> {
        self.drives.get(&drive).map(|keys| keys.write().unwrap_or_else(PoisonError::into_inner))
    }
}

fn successor(current: &WorkingKey) -> Result<WorkingKey, ChangeError> {
    let epoch = current.epoch.checked_add(1).ok_or(ChangeError::NoMoreEpochs)?;
    let mut key = zeroize::Zeroizing::new([0; KEY_BYTES]);
    getrandom::fill(&mut *key).map_err(|error| ChangeError::Random(error.to_string()))?;
    Ok(WorkingKey { epoch, key: SecretKey::new(*key) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    const DRIVE: DriveId = DriveId(7);

    /// Keeps in memory, and fails at the calls it is told to: before or after it has kept.
    #[derive(Debug, Default)]
    struct Memory {
        kept: Mutex<Option<KeptKeys>>,
        calls: Mutex<u32>,
        dies_at: Option<(u32, bool)>,
    }

    impl KeyKeeper for Memory {
        fn keep(&self, _: DriveId, keys: &KeptKeys) -> Result<(), KeeperError> {
            let mut calls = self.calls.lock().unwrap();
            *calls += 1;
            let dies = self.dies_at.filter(|(call, _)| call == &*calls);
            if dies.is_none_or(|(_, after)| after) {
                *self.kept.lock().unwrap() = Some(keys.clone());
            }
            dies.map_or(Ok(()), |_| Err(KeeperError("dead".to_owned())))
        }

        fn partition_keys(&self, _: DriveId) -> Result<Vec<SecretKey>, KeeperError> {
            Ok(vec![SecretKey::new([2; 32])])
        }
    }

    /// A drive, as it takes keys: the same again is no change, an older one is refused.
    #[derive(Debug)]
    struct FakeDrive {
        current: WorkingKey,
        previous: Option<WorkingKey>,
    }

    impl FakeDrive {
        fn take(&mut self, key: &WorkingKey) -> Result<(), ObjectError> {
            if self.current == *key {
                return Ok(());
            }
            if key.epoch <= self.current.epoch {
                return Err(ObjectError::Refused("stale epoch".to_owned()));
            }
            self.previous = Some(std::mem::replace(&mut self.current, key.clone()));
            Ok(())
        }
    }

    fn first() -> KeptKeys {
        KeptKeys::new(1, SecretKey::new([1; 32]))
    }

    fn away() -> ObjectError {
        ObjectError::Unavailable { reason: "away".to_owned(), maybe_done: true }
    }

    #[test]
    fn a_manager_that_dies_at_any_point_knows_a_key_of_its_drive() {
        for owed in [0, AT_ONCE] {
            for (call, after) in (1..=5).flat_map(|call| [(call, false), (call, true)]) {
                let start = KeptKeys { owed, ..first() };
                let mut drive = FakeDrive { current: start.current.clone(), previous: None };
                let keeper = Arc::new(Memory {
                    kept: Mutex::new(Some(start.clone())),
                    dies_at: Some((call, after)),
                    ..Memory::default()
                });
                let keys = WorkingKeys::new([(DRIVE, start)], Some(keeper.clone()));
                let died = keys.change(DRIVE, Timestamp(5), |key| drive.take(key)).is_err();
                assert_eq!(died, call <= 2 * owed.max(1), "{owed} {call}");
                // The next manager has what was kept, and nothing else.
                let kept = keeper.kept.lock().unwrap().clone().unwrap();
                let known = [Some(kept.current.clone()), kept.pending.clone()];
                assert!(known.contains(&Some(drive.current.clone())), "{owed} {call} {after}");
                let keeper = Arc::new(Memory::default());
                let keys = WorkingKeys::new([(DRIVE, kept)], Some(keeper));
                keys.change(DRIVE, Timestamp(6), |key| drive.take(key)).unwrap();
                assert_eq!(keys.current(DRIVE).unwrap(), drive.current);
                assert!(!keys.has_pending(DRIVE));
                let (old, died) = (drive.previous.unwrap().epoch, owed == AT_ONCE);
                assert!(!died || old > 1, "twice at least: {owed} {call} {after}");
            }
        }
    }

    #[test]
    fn a_drive_that_may_have_taken_the_key_is_told_the_same_again() {
        let keeper = Arc::new(Memory::default());
        let keys = WorkingKeys::new([(DRIVE, first())], Some(keeper));
        let mut told = Vec::new();
        let error = keys.change(DRIVE, Timestamp(5), |key| {
            told.push(key.clone());
            Err(away())
        });
        assert_eq!(error, Err(ChangeError::Drive(away())));
        assert!(keys.has_pending(DRIVE) && keys.epoch(DRIVE) == Some(1));
        assert!(keys.kept(DRIVE).unwrap().is_due(None, Timestamp(0)));
        keys.change(DRIVE, Timestamp(9), |key| {
            told.push(key.clone());
            Ok(())
        })
        .unwrap();
        assert_eq!(told[0], told[1]);
        assert_eq!(keys.current(DRIVE).unwrap(), told[1]);
        assert_eq!(keys.kept(DRIVE).unwrap().changed, Timestamp(9));
    }

    #[test]
    fn nothing_is_sent_that_is_not_kept() {
        let keeper = Arc::new(Memory { dies_at: Some((1, false)), ..Memory::default() });
        let keys = WorkingKeys::new([(DRIVE, first())], Some(keeper));
        let changed = keys.change(DRIVE, Timestamp(5), |_| panic!("sent"));
        assert!(matches!(changed, Err(ChangeError::Keeper(_))));
        assert_eq!(keys.epoch(DRIVE), Some(1));
        assert_eq!(
            WorkingKeys::new([(DRIVE, first())], None).owe(DRIVE, 2),
            Err(ChangeError::NoAuthority)
        );
    }

    #[test]
    fn keys_are_due_by_age_debt_and_what_was_begun() {
        let day = Some(Duration::from_secs(86_400));
        let at = |seconds: u64| Timestamp::from_parts(seconds, 0);
        let kept = KeptKeys { changed: at(1000), ..first() };
        assert!(!kept.is_due(day, at(1000 + 86_399)));
        assert!(kept.is_due(day, at(1000 + 86_400)));
        assert!(!kept.is_due(None, Timestamp::MAX));
        assert!(kept.is_due(day, at(999)), "a clock was set back");
        assert!(KeptKeys { owed: 1, ..kept.clone() }.is_due(None, at(1000)));
        assert!(KeptKeys { pending: Some(kept.current.clone()), ..kept }.is_due(None, at(1000)));
    }

    #[test]
    fn keys_are_not_shown() {
        let keys = KeptKeys { pending: Some(first().current), ..first() };
        assert!(!format!("{keys:?}").contains("[1"), "{keys:?}");
    }
}
