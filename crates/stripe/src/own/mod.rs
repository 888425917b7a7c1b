//! The striping manager's own state, on several of its component drives, so that it is there wherever a striping
//! manager is started, whichever of them is lost: docs/decisions/0013-striping.md.
//!
//! It is the device of the virtual drive's own store ([`MirroredDevice`]), and what the virtual drive keeps besides
//! ([`Keeper`], which [`OwnState`] is). Both are on each drive that the [`Membership`] names. A copy that can't be
//! written is taken out of that before anything is acknowledged without it, so that there is no copy which is named
//! and lacks something: whichever is found first is enough, and nothing is ever voted on.

mod choose;
mod equal;
mod export;
mod holders;
mod mirror;
mod record;
mod remote;
mod start;
mod tend;

pub use choose::Candidate;
pub use export::{Out, export};
pub use holders::{HolderError, Holders, Membership, Part, Piece, Register, RegisterError};
pub use mirror::MirroredDevice;
pub use remote::RemoteHolders;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use nasd_types::{ByteRange, DriveId};
use thiserror::Error;

use self::record::Record;
use self::tend::Tended;
use crate::state::Keeper;

/// Most copies that there are, however many drives.
pub const MOST_COPIES: usize = 3;

/// How long is waited before something is tried again.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Bytes of a piece that is read or written at a time.
const PIECE_BYTES: u64 = 1 << 20;

/// Why the striping manager's own state can't be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OwnError {
    /// Another striping manager writes the copies now. Nothing can be written here any more.
    #[error("another striping manager has taken over: {0}")]
    Superseded(String),
    /// Drives know of a later membership than the one that was found.
    #[error(
        "cell.toml is an old one: by it {}, but drive {drive} has a copy of epoch {found}, when {}. Nothing \
         is used before that is resolved: put the present cell.toml there again; or, if it is lost, write that \
         epoch and those drives there, after making sure that no other striping manager runs",
        .told, .copies
    )]
    OldMembership {
        /// What the membership says.
        told: String,
        /// Which drive has something later.
        drive: DriveId,
        /// The epoch of that.
        found: u32,
        /// Which drives had copies then.
        copies: String,
    },
    /// None of the current copies can be read.
    #[error("none of the drives with the striping manager's state gives it: {0}")]
    NoCopy(String),
    /// What was waited for has not come before waiting was to end.
    #[error("stopped while it was waited for: {0}")]
    Stopped(String),
    /// Where the membership is kept can't be read.
    #[error("which drives have the striping manager's state can't be told: {0}")]
    Register(String),
    /// A drive could not do something that is not needed at once.
    #[error("drive {0}: {1}")]
    Drive(DriveId, HolderError),
    /// A device that is to be copied can't be read.
    #[error("the device can't be read: {0}")]
    Device(String),
}

/// See the module. Any number of threads may use it.
pub struct OwnState {
    holders: Arc<dyn Holders>,
    register: Arc<dyn Register>,
    /// Read while the device is written, written while copies come and go.
    held: RwLock<Held>,
    device_bytes: u64,
    /// Which drive is read, as long as it answers.
    reader: AtomicU64,
    /// What was written since somebody has begun to copy the device.
    written: Mutex<Option<Vec<ByteRange>>>,
    /// Drives that had something which they could not read.
    suspects: Mutex<BTreeSet<DriveId>>,
    /// Drives that are back, as long as it is not known whether they get copies, and how often that has failed.
    returned: Mutex<BTreeMap<DriveId, u32>>,
    /// Why nothing can be written any more.
    ended: OnceLock<OwnError>,
    is_stopping: AtomicBool,
    tended: Mutex<Tended>,
}

/// What all copies have.
#[derive(Debug, Default)]
struct Held {
    membership: Membership,
    record: Record,
}

impl OwnState {
    fn new(holders: Arc<dyn Holders>, register: Arc<dyn Register>, held: Held) -> OwnState {
        OwnState {
            holders,
            register,
            device_bytes: held.record.device_bytes,
            reader: AtomicU64::new(held.membership.copies.first().map_or(0, |drive| drive.0)),
            held: RwLock::new(held),
            written: Mutex::default(),
            suspects: Mutex::default(),
            returned: Mutex::default(),
            ended: OnceLock::new(),
            is_stopping: AtomicBool::new(false),
            tended: Mutex::default(),
        }
    }

    /// Which drives have current copies.
    pub fn membership(&self) -> Membership {
        self.held().membership.clone()
    }

    /// Why nothing can be written any more, if that is so.
    pub fn ended(&self) -> Option<OwnError> {
        self.ended.get().cloned()
    }

    /// From now on nothing is waited for: what can't be done fails.
    pub fn stop_waiting(&self) {
        self.is_stopping.store(true, Ordering::Release);
    }

    fn held(&self) -> std::sync::RwLockReadGuard<'_, Held> {
        // What is in it is replaced whole.
        self.held.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn held_alone(&self) -> std::sync::RwLockWriteGuard<'_, Held> {
        self.held.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn written(&self) -> MutexGuard<'_, Option<Vec<ByteRange>>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn returned(&self) -> MutexGuard<'_, BTreeMap<DriveId, u32>> {
        self.returned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self) -> Result<(), OwnError> {
        self.ended.get().map_or(Ok(()), |why| Err(why.clone()))
    }

    fn end(&self, why: OwnError) -> OwnError {
        tracing::error!(%why, "the striping manager's state can't be written any more");
        self.ended.get_or_init(|| why).clone()
    }

    /// Waits before something is tried again, unless nobody wants to wait.
    fn wait(&self, what: &str) -> Result<(), OwnError> {
        self.check()?;
        if self.is_stopping.load(Ordering::Acquire) {
            return Err(OwnError::Stopped(what.to_owned()));
        }
        self.holders.pause(AGAIN_AFTER);
        Ok(())
    }

    /// Writes pieces of the device to all copies.
    fn write_device(&self, pieces: &[Piece<'_>]) -> Result<(), OwnError> {
        loop {
            self.check()?;
            let held = self.held();
            let Membership { epoch, copies } = held.membership.clone();
            let done = self.holders.write(&copies, epoch, pieces);
            if let Some(written) = self.written().as_mut() {
                written.extend(pieces.iter().map(range_of));
            }
            drop(held);
            let failed = failures(&copies, done);
            if failed.is_empty() {
                return Ok(());
            }
            let mut held = self.held_alone();
            if held.membership.epoch != epoch {
                // Others may be current now.
                continue;
            }
            self.look_for_successor(epoch, &failed)?;
            if failed.len() == copies.len() {
                drop(held);
                self.wait(&said(&failed))?;
                continue;
            }
            let state = held.record.state.clone();
            return self.settle(&mut held, state, failed, false);
        }
    }

    /// Reads from any copy.
    fn read_device(&self, offset: u64, length: usize) -> Result<Vec<u8>, OwnError> {
        loop {
            self.check()?;
            let copies = self.held().membership.copies.clone();
            let failed = match self.read_any(&copies, offset, length) {
                Ok(data) => return Ok(data),
                Err(failed) => failed,
            };
            if failed.iter().all(|(_, error)| matches!(error, HolderError::Failed(_))) {
                return Err(OwnError::NoCopy(said(&failed)));
            }
            self.wait(&said(&failed))?;
        }
    }

    /// Reads from the first of these copies that can be read, beginning with the one that could the last time.
    fn read_any(
        &self,
        copies: &[DriveId],
        offset: u64,
        length: usize,
    ) -> Result<Vec<u8>, Vec<(DriveId, HolderError)>> {
        let first = DriveId(self.reader.load(Ordering::Relaxed));
        let mut in_turn = copies.to_vec();
        in_turn.sort_by_key(|drive| *drive != first);
        let mut failed = Vec::new();
        for drive in in_turn {
            match self.holders.read(drive, Part::Device, offset, length) {
                Ok(mut data) => {
                    data.resize(length, 0);
                    self.reader.store(drive.0, Ordering::Relaxed);
                    self.suspect(failed);
                    return Ok(data);
                }
                Err(error) => failed.push((drive, error)),
            }
        }
        Err(failed)
    }

    /// Those that could not read something which others have are to be made the same as these.
    fn suspect(&self, failed: Vec<(DriveId, HolderError)>) {
        let bad = failed
            .into_iter()
            .filter(|(_, error)| matches!(error, HolderError::Failed(_) | HolderError::Missing));
        let mut suspects = self.suspects.lock().unwrap_or_else(PoisonError::into_inner);
        suspects.extend(bad.map(|(drive, _)| drive));
    }

    /// Makes another membership the present one, durably.
    fn enter(&self, held: &mut Held, next: Membership) -> Result<(), OwnError> {
        loop {
            match self.register.replace(held.membership.epoch, &next) {
                Ok(()) => break,
                // A try that has failed may have been the one.
                Err(RegisterError::Changed) if self.register.read().as_ref() == Ok(&next) => break,
                Err(error @ RegisterError::Changed) => {
                    return Err(self.end(OwnError::Superseded(error.to_string())));
                }
                Err(RegisterError::Failed(why)) => {
                    tracing::error!(why, "which copies are current can't be written down");
                    self.wait(&why)?;
                }
            }
        }
        held.membership = next;
        Ok(())
    }

    /// Has each current copy have the record of this state. Those that are lost are current no more, nor are others that
    /// can't get it; but one always is. `claim` says that the key by which they are written has changed.
    ///
    /// The record goes to the same place on all until all that are current have it: so in the other place each
    /// has the record that all had before, whatever becomes of this one.
    fn settle(
        &self,
        held: &mut Held,
        state: Option<Vec<u8>>,
        mut lost: Vec<(DriveId, HolderError)>,
        mut claim: bool,
    ) -> Result<(), OwnError> {
        loop {
            self.check()?;
            if !lost.is_empty() {
                claim = true;
                if lost.len() == held.membership.copies.len() {
                    self.wait(&said(&lost))?;
                } else {
                    self.give_up(held, &lost)?;
                }
            }
            let Membership { epoch, copies } = held.membership.clone();
            lost = match claim {
                true => failures(&copies, self.holders.claim(&copies, epoch, false)),
                false => Vec::new(),
            };
            let record = Record {
                epoch,
                sequence: held.record.sequence + 1,
                device_bytes: held.record.device_bytes,
                copies: copies.clone(),
                state: state.clone(),
            };
            lost.extend(self.write_record(&without(&copies, &lost), epoch, &record));
            if lost.is_empty() {
                held.record = record;
                return Ok(());
            }
            self.look_for_successor(epoch, &lost)?;
        }
    }

    /// From now on those copies are not current.
    fn give_up(&self, held: &mut Held, lost: &[(DriveId, HolderError)]) -> Result<(), OwnError> {
        for (drive, error) in lost {
            tracing::warn!(%drive, %error, "a copy of the striping manager's state is not current any more");
        }
        let next = held.membership.next(without(&held.membership.copies, lost));
        self.enter(held, next)
    }

    /// Writes a record; which drives don't have it.
    fn write_record(
        &self,
        drives: &[DriveId],
        epoch: u32,
        record: &Record,
    ) -> Vec<(DriveId, HolderError)> {
        let bytes = record.to_bytes();
        let part = Part::of_record(record.sequence);
        let pieces: Vec<Piece<'_>> = bytes
            .chunks(PIECE_BYTES as usize)
            .enumerate()
            .map(|(turn, data)| Piece { part, offset: turn as u64 * PIECE_BYTES, data })
            .collect();
        failures(drives, self.holders.write(drives, epoch, &pieces))
    }

    /// Finds out whether drives have refused something because another striping manager has taken them over. The
    /// epoch is the present one: nobody changes the membership meanwhile.
    fn look_for_successor(
        &self,
        epoch: u32,
        failed: &[(DriveId, HolderError)],
    ) -> Result<(), OwnError> {
        let superseded = |what: String| Err(self.end(OwnError::Superseded(what)));
        if let Some((drive, _)) = failed.iter().find(|(_, it)| *it == HolderError::Overtaken) {
            return superseded(format!("drive {drive} takes its key, and not this one's"));
        }
        let refusing = failed.iter().filter(|(_, it)| matches!(it, HolderError::Refused(_)));
        let refusing: Vec<DriveId> = refusing.map(|(drive, _)| *drive).collect();
        if refusing.is_empty() {
            return Ok(());
        }
        if let Ok(present) = self.register.read()
            && present.epoch != epoch
        {
            let what = format!("the copies are in epoch {}, not in {epoch}", present.epoch);
            return superseded(what);
        }
        let claimed = failures(&refusing, self.holders.claim(&refusing, epoch, false));
        match claimed.iter().find(|(_, error)| *error == HolderError::Overtaken) {
            Some((drive, _)) => {
                superseded(format!("drive {drive} takes its key, and not this one's"))
            }
            None => Ok(()),
        }
    }
}

impl Keeper for OwnState {
    fn load(&self) -> Result<Option<Vec<u8>>, String> {
        Ok(self.held().record.state.clone())
    }

    fn save(&self, bytes: &[u8]) -> Result<(), String> {
        let mut held = self.held_alone();
        let saved = self.settle(&mut held, Some(bytes.to_vec()), Vec::new(), false);
        saved.map_err(|error| error.to_string())
    }

    fn give_up(&self, drive: DriveId) {
        self.holders.give_up(drive);
    }

    fn call_again(&self, drive: DriveId) {
        self.holders.call_again(drive);
        if !self.held().membership.copies.contains(&drive) {
            self.returned().insert(drive, 0);
        }
    }

    fn is_about_to_use(&self, drive: DriveId) -> bool {
        self.returned().contains_key(&drive)
    }
}

impl std::fmt::Debug for OwnState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OwnState").field("membership", &self.membership()).finish_non_exhaustive()
    }
}

/// Those that have failed, and why.
fn failures(
    drives: &[DriveId],
    answers: Vec<Result<(), HolderError>>,
) -> Vec<(DriveId, HolderError)> {
    let failed = drives.iter().zip(answers);
    failed.filter_map(|(drive, answer)| Some((*drive, answer.err()?))).collect()
}

fn without(drives: &[DriveId], failed: &[(DriveId, HolderError)]) -> Vec<DriveId> {
    let has_failed = |drive: &DriveId| failed.iter().any(|(other, _)| other == drive);
    drives.iter().copied().filter(|drive| !has_failed(drive)).collect()
}

/// What was seen of each.
fn said(failed: &[(DriveId, HolderError)]) -> String {
    let each: Vec<_> =
        failed.iter().map(|(drive, error)| format!("drive {drive}: {error}")).collect();
    each.join("; ")
}

fn range_of(piece: &Piece<'_>) -> ByteRange {
    ByteRange::new(piece.offset, piece.data.len() as u64)
}
