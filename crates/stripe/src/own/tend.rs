//! Copies come and go while the striping manager runs.

use std::collections::BTreeMap;
use std::time::Duration;

use nasd_types::{ByteRange, DriveId};

use super::choose::{Candidate, Step, next_step};
use super::equal::{AnyCopy, CopyOn, make_equal};
use super::holders::{HolderError, Membership};
use super::{Held, OwnError, OwnState, failures, without};

/// A copy whose drive has not answered for so long is current no more, if there are others.
const SILENT: Duration = Duration::from_secs(3);

/// How often drives with copies are asked whether they answer: each question is in their audit trails.
const PROBE_EVERY: Duration = Duration::from_secs(2);

/// For how long a drive gets no copy after it could not be given one, or had to be left out; twice as long each time.
const FIRST_HOLD: Duration = Duration::from_secs(1);
const LONGEST_HOLD: Duration = Duration::from_secs(60);

/// How often it is tried to give one to a drive that is back, before others may be lost.
const MOST_TRIES: u32 = 3;

/// A drive with a copy for so long has all forgiven.
const FORGIVEN_AFTER: Duration = Duration::from_secs(120);

/// What is remembered from one time to the next.
#[derive(Debug, Default)]
pub(super) struct Tended {
    /// When drives with copies were asked last.
    probed: Option<Duration>,
    /// Since when they have not answered.
    silent: BTreeMap<DriveId, Duration>,
    /// Until when drives are held back, and for how long that was.
    held_back: BTreeMap<DriveId, (Duration, Duration)>,
    /// The copies when that was looked at last.
    copies: Vec<DriveId>,
}

impl Tended {
    fn hold_back(&mut self, drive: DriveId, now: Duration) {
        let before = self.held_back.get(&drive).filter(|(until, _)| *until + FORGIVEN_AFTER > now);
        let hold = before.map_or(FIRST_HOLD, |(_, hold)| (*hold * 2).min(LONGEST_HOLD));
        self.held_back.insert(drive, (now + hold, hold));
    }

    /// Whether a drive gets no copy yet; not for long if there is but one.
    fn is_held_back(&self, drive: DriveId, now: Duration, is_alone: bool) -> bool {
        let excess = |hold: Duration| {
            if is_alone { hold.saturating_sub(FIRST_HOLD) } else { Duration::ZERO }
        };
        self.held_back.get(&drive).is_some_and(|(until, hold)| *until > now + excess(*hold))
    }
}

impl OwnState {
    /// Does what is to be done now: has copies be no more current that can't be reached, and others be made. To be
    /// called about twice a second, by one thread.
    ///
    /// # Errors
    ///
    /// Why nothing can be written any more.
    pub fn tend(&self, drives: &[Candidate]) -> Result<(), OwnError> {
        self.check()?;
        let mut tended = self.tended.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.look_after(&mut tended)?;
        let now = self.holders.elapsed();
        let copies = self.membership().copies;
        let left_out: Vec<DriveId> =
            tended.copies.iter().copied().filter(|drive| !copies.contains(drive)).collect();
        left_out.into_iter().for_each(|drive| tended.hold_back(drive, now));
        tended.copies.clone_from(&copies);
        for (drive, failed) in self.returned().iter() {
            tended.held_back.retain(|other, _| *failed > 0 || other != drive);
        }
        let is_alone = copies.len() < 2;
        let done = match next_step(&copies, drives, |drive| {
            tended.is_held_back(drive, now, is_alone)
        }) {
            None => {
                // Of one that was not to be called yet when it was looked who is there, this says nothing.
                let is_unknown = |drive: &DriveId| {
                    let found = drives.iter().find(|candidate| candidate.drive == *drive);
                    found.is_some_and(|candidate| !candidate.is_reachable)
                };
                self.returned().retain(|drive, _| is_unknown(drive));
                return Ok(());
            }
            Some(Step::LetGo(drive)) => self.let_go(drive),
            Some(Step::TakeIn(drive)) => {
                let taken = self.take_in(drive);
                self.has_tried(drive, taken.is_ok());
                if let Err(error) = &taken {
                    tracing::warn!(%drive, %error, "it can't be given the striping manager's state yet");
                    tended.hold_back(drive, self.holders.elapsed());
                }
                taken
            }
        };
        tended.copies = self.membership().copies;
        // What has gone wrong with one drive is tried again.
        done.or_else(|_| self.check())
    }

    /// A drive that may be back was given a copy, or could not be.
    fn has_tried(&self, drive: DriveId, is_done: bool) {
        let mut returned = self.returned();
        if let Some(failed) = returned.get_mut(&drive) {
            *failed += 1;
            if is_done || *failed >= MOST_TRIES {
                returned.remove(&drive);
            }
        }
    }

    /// Finds out who does not answer, or writes the copies instead of this striping manager; and has those be no more
    /// current that are of no use.
    fn look_after(&self, tended: &mut Tended) -> Result<(), OwnError> {
        let Membership { epoch, copies } = self.membership();
        let mut failed = self.silent(tended, &copies, epoch);
        let suspects =
            std::mem::take(&mut *self.suspects.lock().unwrap_or_else(|it| it.into_inner()));
        let mut held = self.held_alone();
        if held.membership.epoch != epoch {
            return Ok(());
        }
        self.look_for_successor(epoch, &failed)?;
        for drive in suspects.into_iter().filter(|drive| copies.contains(drive)) {
            let error = HolderError::Failed("something of it could not be read".to_owned());
            failed.push((drive, error));
        }
        if failed.is_empty() || without(&copies, &failed).is_empty() {
            return Ok(());
        }
        let state = held.record.state.clone();
        self.settle(&mut held, state, failed, false)
    }

    /// Those that are asked now and do not answer as they should, or have not for too long.
    fn silent(
        &self,
        tended: &mut Tended,
        copies: &[DriveId],
        epoch: u32,
    ) -> Vec<(DriveId, HolderError)> {
        let now = self.holders.elapsed();
        if tended.probed.is_some_and(|probed| now.saturating_sub(probed) < PROBE_EVERY) {
            return Vec::new();
        }
        let mut failed = failures(copies, self.holders.probe(copies, epoch));
        let now = self.holders.elapsed();
        tended.probed = Some(now);
        tended.silent.retain(|drive, _| failed.iter().any(|(other, _)| other == drive));
        failed.retain(|(drive, error)| {
            let since = *tended.silent.entry(*drive).or_insert(now);
            !matches!(error, HolderError::Away(_)) || now.saturating_sub(since) >= SILENT
        });
        failed
    }

    /// Another epoch with the same copies: whatever was on its way to any drive is not done any more.
    fn begin_epoch(&self, held: &mut Held) -> Result<(), OwnError> {
        let next = held.membership.next(held.membership.copies.clone());
        self.enter(held, next)?;
        let state = held.record.state.clone();
        self.settle(held, state, Vec::new(), true)
    }

    /// Gives a drive a copy, which is current when this returns.
    fn take_in(&self, drive: DriveId) -> Result<(), OwnError> {
        let epoch = {
            let mut held = self.held_alone();
            self.begin_epoch(&mut held)?;
            held.membership.epoch
        };
        self.begin_copy(drive, epoch)?;
        let copies = {
            let held = self.held_alone();
            *self.written() = Some(Vec::new());
            held.membership.copies.clone()
        };
        let whole = ByteRange::new(0, self.device_bytes);
        // If one of these is current no more before this has ended, all that it lacks was written meanwhile.
        let given = self.give((drive, epoch), &copies, &[whole]);
        // From here on nothing is written.
        let mut held = self.held_alone();
        let written = self.written().take().unwrap_or_default();
        given?;
        let copies = held.membership.copies.clone();
        self.give((drive, epoch), &copies, &written)?;
        let failed = self.write_record(&[drive], epoch, &held.record).pop();
        if let Some((drive, error)) = failed {
            return Err(OwnError::Drive(drive, error));
        }
        let mut copies = copies;
        copies.push(drive);
        copies.sort_unstable();
        let next = held.membership.next(copies);
        self.enter(&mut held, next)?;
        let state = held.record.state.clone();
        self.settle(&mut held, state, Vec::new(), true)?;
        tracing::info!(%drive, "it has a copy of the striping manager's state");
        Ok(())
    }

    /// Gives a drive, by the key of that epoch, what any of these copies has in these ranges.
    pub(super) fn give(
        &self,
        (drive, epoch): (DriveId, u32),
        copies: &[DriveId],
        ranges: &[ByteRange],
    ) -> Result<(), OwnError> {
        let to = CopyOn { holders: &*self.holders, drive };
        ranges
            .iter()
            .try_for_each(|range| make_equal(&AnyCopy { own: self, copies }, &to, epoch, *range))
    }

    /// A copy is current no more, as it is not needed, and is removed.
    fn let_go(&self, drive: DriveId) -> Result<(), OwnError> {
        {
            let mut held = self.held_alone();
            let copies = held.membership.copies.iter().copied();
            let next = held.membership.next(copies.filter(|other| *other != drive).collect());
            if next.copies.is_empty() {
                return Ok(());
            }
            self.enter(&mut held, next)?;
            let state = held.record.state.clone();
            self.settle(&mut held, state, Vec::new(), true)?;
        }
        tracing::info!(%drive, "it needs no copy of the striping manager's state any more");
        self.holders.remove(drive).map_err(|error| OwnError::Drive(drive, error))
    }
}
