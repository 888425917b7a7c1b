//! Finding the copies at a start, and making the first ones.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use nasd_device::BlockDevice;
use nasd_types::{ByteRange, DriveId};

use super::choose::{Candidate, first_copies};
use super::equal::{CopyOn, LocalDevice, make_equal};
use super::holders::{HolderError, Holders, Membership, Part, Piece, Register, RegisterError};
use super::record::{HEAD_BYTES, Record, length_of};
use super::{AGAIN_AFTER, Held, OwnError, OwnState, PIECE_BYTES, failures, said, without};

/// For how long other current copies are waited for when there is one.
const OTHERS_PATIENCE: Duration = Duration::from_millis(1500);

/// What was found on drives.
type Found = BTreeMap<DriveId, Result<Record, HolderError>>;

impl OwnState {
    /// What there is on the drives. From then on no other striping manager can write it. Drives with current copies
    /// are waited for, all of them for a moment, one for `patience`.
    ///
    /// # Errors
    ///
    /// `OldMembership`, and then nothing was changed; `NoCopy`; `Superseded` by one that is started at the same
    /// time; `Register`.
    pub fn start(
        holders: Arc<dyn Holders>,
        register: Arc<dyn Register>,
        drives: &[DriveId],
        patience: Duration,
    ) -> Result<OwnState, OwnError> {
        let membership = register.read().map_err(unreadable)?;
        let found = await_copies(&*holders, &membership, patience)?;
        let others: Vec<DriveId> =
            drives.iter().copied().filter(|drive| !found.contains_key(drive)).collect();
        check_epochs(&membership, &found)?;
        check_epochs(&membership, &look(&*holders, &others))?;
        // Whoever was before can't write any more from here on; what it has written until then counts.
        let own = OwnState::new(holders, register, Held { membership, ..Held::default() });
        let mut held = std::mem::take(&mut *own.held_alone());
        let next = held.membership.next(held.membership.copies.clone());
        own.enter(&mut held, next)?;
        let held = own.gather(held, &found)?;
        let own = OwnState { device_bytes: held.record.device_bytes, ..own };
        *own.held_alone() = held;
        Ok(own)
    }

    /// Has all copies that can be reached be the same, and no others be current.
    fn gather(&self, mut held: Held, found: &Found) -> Result<Held, OwnError> {
        let Membership { epoch, copies } = held.membership.clone();
        let asked: Vec<DriveId> = copies
            .iter()
            .copied()
            .filter(|drive| matches!(found.get(drive), Some(Ok(_))))
            .collect();
        let mut lost: Vec<(DriveId, HolderError)> = copies
            .iter()
            .filter_map(|drive| Some((*drive, found.get(drive)?.as_ref().err()?.clone())))
            .collect();
        lost.extend(failures(&asked, self.holders.claim(&asked, epoch, false)));
        self.look_for_successor(epoch, &lost)?;
        let mut records: BTreeMap<DriveId, Record> = BTreeMap::new();
        for (drive, found) in look(&*self.holders, &without(&asked, &lost)) {
            match found {
                Ok(record) => _ = records.insert(drive, record),
                Err(error) => lost.push((drive, error)),
            }
        }
        let best = records.iter().max_by_key(|(_, record)| (record.sequence, record.epoch));
        let Some((source, best)) = best.map(|(drive, record)| (*drive, record.clone())) else {
            return Err(OwnError::NoCopy(said(&lost)));
        };
        if !lost.is_empty() {
            self.give_up(&mut held, &lost)?;
            let left = held.membership.copies.clone();
            let failed = failures(&left, self.holders.claim(&left, held.membership.epoch, false));
            if let Some((drive, error)) = failed.first() {
                return Err(OwnError::Drive(*drive, error.clone()));
            }
        }
        self.reader.store(source.0, Ordering::Relaxed);
        let copies = held.membership.copies.clone();
        for (drive, record) in records.iter().filter(|(drive, _)| **drive != source) {
            self.equal_to(&copies, *drive, held.membership.epoch, (record, &best))?;
        }
        let state = best.state.clone();
        held.record = best;
        self.settle(&mut held, state, Vec::new(), false)?;
        Ok(held)
    }

    /// Gives a current copy what the one has that is read: each may have what nobody was told of.
    fn equal_to(
        &self,
        copies: &[DriveId],
        drive: DriveId,
        epoch: u32,
        (present, best): (&Record, &Record),
    ) -> Result<(), OwnError> {
        self.give((drive, epoch), copies, &[ByteRange::new(0, best.device_bytes)])?;
        if present.sequence == best.sequence {
            return Ok(());
        }
        match self.write_record(&[drive], epoch, best).pop() {
            Some((drive, error)) => Err(OwnError::Drive(drive, error)),
            None => Ok(()),
        }
    }

    /// The first copies, of a device and a state that were elsewhere until now; they are current when this returns.
    /// If it has ended before, it is to be done again.
    ///
    /// # Errors
    ///
    /// `NoCopy` if no drive can have one; those of [`OwnState::start`].
    pub fn found(
        holders: Arc<dyn Holders>,
        register: Arc<dyn Register>,
        candidates: &[Candidate],
        (device, state): (&dyn BlockDevice, Option<Vec<u8>>),
    ) -> Result<OwnState, OwnError> {
        let membership = register.read().map_err(unreadable)?;
        let all: Vec<DriveId> = candidates.iter().map(|candidate| candidate.drive).collect();
        check_epochs(&membership, &look(&*holders, &all))?;
        let own = OwnState::new(holders, register, Held { membership, ..Held::default() });
        let mut held = std::mem::take(&mut *own.held_alone());
        // No request of an earlier attempt is done any more.
        let next = held.membership.next(Vec::new());
        own.enter(&mut held, next)?;
        let epoch = held.membership.epoch;
        let record = Record {
            epoch,
            sequence: 1,
            device_bytes: device.capacity(),
            copies: Vec::new(),
            state,
        };
        let (mut copies, mut failed) = (Vec::new(), Vec::new());
        for drive in first_copies(candidates) {
            match own.give_first_copy(drive, epoch, device, &record) {
                Ok(()) => copies.push(drive),
                Err(OwnError::Drive(drive, error)) => failed.push((drive, error)),
                Err(error) => return Err(error),
            }
        }
        if copies.is_empty() {
            return Err(OwnError::NoCopy(said(&failed)));
        }
        own.look_for_successor(epoch, &failed)?;
        let next = held.membership.next(copies);
        own.enter(&mut held, next)?;
        let (device_bytes, state) = (record.device_bytes, record.state.clone());
        held.record = record;
        own.settle(&mut held, state, Vec::new(), true)?;
        let own = OwnState { device_bytes, ..own };
        *own.held_alone() = held;
        Ok(own)
    }

    fn give_first_copy(
        &self,
        drive: DriveId,
        epoch: u32,
        device: &dyn BlockDevice,
        record: &Record,
    ) -> Result<(), OwnError> {
        self.begin_copy(drive, epoch)?;
        let to = CopyOn { holders: &*self.holders, drive };
        let range = ByteRange::new(0, device.capacity());
        make_equal(&LocalDevice(device), &to, epoch, range)?;
        match self.write_record(&[drive], epoch, record).pop() {
            Some((drive, error)) => Err(OwnError::Drive(drive, error)),
            None => Ok(()),
        }
    }

    /// Makes a place for a copy on a drive, without records.
    pub(super) fn begin_copy(&self, drive: DriveId, epoch: u32) -> Result<(), OwnError> {
        let nothing = [0; HEAD_BYTES];
        let empty =
            [Part::RecordA, Part::RecordB].map(|part| Piece { part, offset: 0, data: &nothing });
        let claimed = self.holders.claim(&[drive], epoch, true).into_iter().find_map(Result::err);
        let failed = claimed.or_else(|| {
            self.holders.write(&[drive], epoch, &empty).into_iter().find_map(Result::err)
        });
        failed.map_or(Ok(()), |error| Err(OwnError::Drive(drive, error)))
    }
}

fn unreadable(error: RegisterError) -> OwnError {
    OwnError::Register(error.to_string())
}

/// Waits until all current copies have answered, or one has and the others have not for a while.
fn await_copies(
    holders: &dyn Holders,
    membership: &Membership,
    patience: Duration,
) -> Result<Found, OwnError> {
    let begun = holders.elapsed();
    let mut first_at = None;
    let mut found = Found::new();
    loop {
        let is_settled =
            |drive: &&DriveId| matches!(found.get(*drive), Some(Ok(_) | Err(HolderError::Missing)));
        let open: Vec<DriveId> =
            membership.copies.iter().filter(|drive| !is_settled(drive)).copied().collect();
        found.extend(look(holders, &open));
        let is_one_there = found.values().any(Result::is_ok);
        let is_open =
            found.values().any(|it| matches!(it, Err(error) if *error != HolderError::Missing));
        let now = holders.elapsed();
        if is_one_there {
            first_at.get_or_insert(now);
        }
        let is_over = match first_at {
            Some(first) => now.saturating_sub(first) >= OTHERS_PATIENCE,
            None => now.saturating_sub(begun) >= patience,
        };
        if is_over || !is_open {
            break;
        }
        holders.pause(AGAIN_AFTER);
    }
    if first_at.is_some() {
        return Ok(found);
    }
    let failed: Vec<(DriveId, HolderError)> =
        found.into_iter().filter_map(|(drive, it)| Some((drive, it.err()?))).collect();
    Err(OwnError::NoCopy(said(&failed)))
}

/// What records drives have.
fn look(holders: &dyn Holders, drives: &[DriveId]) -> Found {
    std::thread::scope(|scope| {
        let begun: Vec<_> = drives
            .iter()
            .map(|drive| (*drive, scope.spawn(move || read_record(holders, *drive))))
            .collect();
        begun
            .into_iter()
            .map(|(drive, thread)| {
                let ended = || HolderError::Failed("looking at it has ended early".to_owned());
                (drive, thread.join().unwrap_or_else(|_| Err(ended())))
            })
            .collect()
    })
}

/// The later one of a drive's records that are whole.
pub(super) fn read_record(holders: &dyn Holders, drive: DriveId) -> Result<Record, HolderError> {
    let mut found: Option<Record> = None;
    for part in [Part::RecordA, Part::RecordB] {
        let mut bytes = holders.read(drive, part, 0, PIECE_BYTES as usize)?;
        let length = length_of(&bytes).unwrap_or(0);
        while bytes.len() < length {
            let more = (length - bytes.len()).min(PIECE_BYTES as usize);
            let read = holders.read(drive, part, bytes.len() as u64, more)?;
            if read.is_empty() {
                break;
            }
            bytes.extend(read);
        }
        let record = Record::from_bytes(&bytes);
        found = record.into_iter().chain(found).max_by_key(|record| record.sequence);
    }
    found.ok_or(HolderError::Missing)
}

/// No drive must know of something later than what is taken for the present membership.
fn check_epochs(membership: &Membership, found: &Found) -> Result<(), OwnError> {
    for (drive, record) in found {
        let Ok(record) = record else { continue };
        let is_another = record.epoch == membership.epoch && record.copies != membership.copies;
        if record.epoch > membership.epoch || is_another {
            return Err(OwnError::OldMembership {
                told: format!(
                    "there are copies of epoch {} on {}",
                    membership.epoch,
                    list(&membership.copies)
                ),
                drive: *drive,
                found: record.epoch,
                copies: format!("there were copies on {}", list(&record.copies)),
            });
        }
    }
    Ok(())
}

fn list(drives: &[DriveId]) -> String {
    if drives.is_empty() {
        return "no drive".to_owned();
    }
    let named: Vec<String> = drives.iter().map(|drive| format!("drive {drive}")).collect();
    named.join(", ")
}
