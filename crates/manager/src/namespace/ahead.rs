//! Objects that are made before anybody needs them: a file then costs no wait for its drive.
//!
//! The journal says that objects are about to be made on a drive, durably, before they are, and which were
//! made, after. So whoever finds the journal knows of all of them, or where to look for those whose
//! numbers were never told: above the highest that is known. Those carry a mark, which is no record of
//! a file.
//!
//! Where there are callbacks, there are two kinds of them: such that clients may store them from the moment when they become files have an odd version
//! already (`specs/callbacks.md`).

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nasd_protocol::drive::{BatchDone, BatchOperation};
use nasd_protocol::manager::{FileHandle, ManagerStatus};
use nasd_types::{
    Attributes, DriveId, FS_SPECIFIC_BYTES, FsSpecific, ObjectId, SetAttributes, Timestamp,
};

use super::home::BATCH;
use super::space::free_objects;
use super::{Namespace, Outcome, failure};
use crate::journal::{JournalError, Step};
use crate::objects::{NewObject, ObjectError, Wait};

/// Objects that are made at a time: as many, at first and where few are needed.
const FEWEST: usize = 64;

/// As many where very many are needed.
const MOST: usize = 2048;

/// Of what a drive has room for, one part in this many at a time: others need it too.
const SHARE: u64 = 8;

/// Who needs more within this time is given twice as many.
const SOON: Duration = Duration::from_secs(1);

/// First bytes of the `fs_specific` attribute of an object that is no file yet; the others are zeros.
const MARK: &[u8; 4] = b"NFSA";

/// The version of objects that begin with a store.
pub(crate) const BEGUN_VERSION: u64 = 1;

/// What becomes of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Anything.
    Settled,
    /// Files that whoever makes them may store at once.
    Begun,
}

impl Kind {
    const ALL: [Kind; 2] = [Kind::Settled, Kind::Begun];

    fn of(new: &NewObject) -> Kind {
        match new.attributes.access_control_version {
            BEGUN_VERSION => Kind::Begun,
            _ => Kind::Settled,
        }
    }

    /// What such objects are made with.
    fn initial(self) -> SetAttributes {
        let version = (self == Kind::Begun).then_some(BEGUN_VERSION);
        SetAttributes {
            fs_specific: Some(mark()),
            access_control_version: version,
            ..SetAttributes::default()
        }
    }
}

/// The objects, by drive.
#[derive(Debug, Default)]
pub(super) struct Pool {
    drives: Mutex<HashMap<DriveId, Supply>>,
}

/// Those of one kind.
#[derive(Debug)]
struct Stock {
    available: VecDeque<NewObject>,
    /// How many to make next time.
    amount: usize,
    made_last: Option<Instant>,
    failed_last: Option<Instant>,
}

impl Default for Stock {
    fn default() -> Self {
        Stock { available: VecDeque::new(), amount: FEWEST, made_last: None, failed_last: None }
    }
}

#[derive(Debug, Default)]
struct Supply {
    settled: Stock,
    begun: Stock,
    /// Objects may have been made whose numbers are not known.
    is_uncertain: bool,
    /// What the drive's clock is ahead of what is known of it without asking, in nanoseconds: as the
    /// times of the objects that it made last show.
    clock_ahead: i64,
    /// The latest time that the drive was seen to have stamped on an object, or that was given.
    latest: Timestamp,
    /// Held by who makes more.
    making: Arc<Mutex<()>>,
}

impl Stock {
    fn is_low(&self) -> bool {
        self.available.len() < self.amount / 2
    }

    /// Whether it is worth while to make more now, before anybody waits for it.
    fn is_due(&self) -> bool {
        let has_failed = self.failed_last.is_some_and(|last| last.elapsed() < SOON);
        self.made_last.is_some() && self.is_low() && !has_failed
    }
}

impl Supply {
    const fn stock(&mut self, kind: Kind) -> &mut Stock {
        match kind {
            Kind::Settled => &mut self.settled,
            Kind::Begun => &mut self.begun,
        }
    }

    /// Whether any were made.
    const fn has_made(&self) -> bool {
        self.settled.made_last.is_some() || self.begun.made_last.is_some()
    }
}

impl Pool {
    fn drives(&self) -> MutexGuard<'_, HashMap<DriveId, Supply>> {
        self.drives.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn on<T>(&self, drive: DriveId, run: impl FnOnce(&mut Supply) -> T) -> T {
        run(self.drives().entry(drive).or_default())
    }

    fn take(&self, drive: DriveId, kind: Kind) -> Option<NewObject> {
        self.on(drive, |supply| supply.stock(kind).available.pop_front())
    }
}

/// The attribute of an object that is no file yet.
pub(super) fn mark() -> Box<FsSpecific> {
    let mut mark = Box::new([0; FS_SPECIFIC_BYTES]);
    mark[..MARK.len()].copy_from_slice(MARK);
    mark
}

impl Namespace {
    /// An object to be made into a file, on the first of the drives in placement's order that has one or
    /// makes one. Called without locks.
    pub(super) fn take_ahead(&self, kind: Kind) -> Outcome<NewObject> {
        let order = self.placement.choose();
        // Where there is no other drive, this one is worth waiting for.
        let wait = if order.len() == 1 { Wait::Patient } else { Wait::Brief };
        let mut worst = None;
        for drive in &order {
            match self.take_ahead_on(*drive, kind, wait) {
                Ok(new) => return Ok(new),
                Err(status) => {
                    self.placement.exclude(*drive);
                    // Space can be made; a drive may come back; nothing helps against the rest.
                    if worst != Some(ManagerStatus::NoSpace) {
                        worst = Some(status);
                    }
                }
            }
        }
        if worst == Some(ManagerStatus::NoSpace) && kind == Kind::Settled {
            self.discard_begun();
        }
        if worst == Some(ManagerStatus::NoSpace) && !self.doomed_is_empty() {
            self.remove_doomed()?;
            if let Some(drive) = order.first() {
                return self.take_ahead_on(*drive, kind, wait);
            }
        }
        match (worst, order.first()) {
            (Some(ManagerStatus::Unavailable), Some(drive)) if wait == Wait::Brief => {
                self.take_ahead_on(*drive, kind, Wait::Patient)
            }
            (status, _) => Err(status.unwrap_or(ManagerStatus::Io)),
        }
    }

    /// There is room for no more objects: those that nobody has stored yet are not needed as much as others.
    fn discard_begun(&self) {
        for drive in self.objects.drives() {
            let begun = self.pool.on(drive, |supply| std::mem::take(&mut supply.begun.available));
            let steps: Vec<Step> =
                begun.iter().map(|new| Step::Remove { object: new.handle }).collect();
            if !steps.is_empty() {
                self.journal.enqueue(&steps);
            }
        }
    }

    pub(super) fn doomed_is_empty(&self) -> bool {
        self.journal.ledger(|ledger| ledger.doomed.is_empty())
    }

    pub(super) fn take_ahead_on(
        &self,
        drive: DriveId,
        kind: Kind,
        wait: Wait,
    ) -> Outcome<NewObject> {
        loop {
            if let Some(new) = self.pool.take(drive, kind) {
                return Ok(new);
            }
            self.make_ahead_on((drive, kind), wait, |stock| stock.available.is_empty())?;
        }
    }

    /// An object that was not made into a file after all.
    pub(super) fn give_back(&self, new: NewObject) {
        let (drive, kind) = (new.handle.drive, Kind::of(&new));
        self.pool.on(drive, |supply| supply.stock(kind).available.push_front(new));
    }

    /// Makes objects where few are left, and removes those that an earlier manager may have left; not while somebody holds the volume.
    pub fn make_ahead(&self) {
        if self.read_only {
            return;
        }
        for drive in self.objects.drives() {
            // Reasons of failures were logged; who needs one tries again.
            for kind in Kind::ALL {
                let _ = self
                    .unless_held(|| self.make_ahead_on((drive, kind), Wait::Brief, Stock::is_due));
            }
            if self.pool.on(drive, |supply| supply.is_uncertain) {
                let _ = self.unless_held(|| {
                    let making = self.pool.on(drive, |supply| Arc::clone(&supply.making));
                    let _one = making.lock().unwrap_or_else(PoisonError::into_inner);
                    self.find_unknown(drive, Wait::Brief)
                });
            }
        }
    }

    /// Where nobody has needed any for a while, few are made next time.
    pub(super) fn calm_down(&self) {
        for supply in self.pool.drives().values_mut() {
            for kind in Kind::ALL {
                let stock = supply.stock(kind);
                if stock.made_last.is_some_and(|last| last.elapsed() > 8 * SOON) {
                    stock.amount = FEWEST;
                }
            }
        }
    }

    /// The objects that were made ahead and not taken, on all drives.
    pub fn made_ahead(&self) -> Vec<FileHandle> {
        let handle = |drive: DriveId, object: ObjectId| {
            self.objects.partition(drive).map(|partition| FileHandle { drive, partition, object })
        };
        self.journal.ledger(|ledger| {
            let ahead = ledger.ahead.iter();
            let each =
                ahead.flat_map(|(drive, ahead)| ahead.objects.iter().map(|at| (*drive, *at)));
            each.filter_map(|(drive, object)| handle(drive, object)).collect()
        })
    }

    fn make_ahead_on(
        &self,
        (drive, kind): (DriveId, Kind),
        wait: Wait,
        needs: impl Fn(&Stock) -> bool,
    ) -> Outcome<()> {
        let made = self.try_make_ahead((drive, kind), wait, needs);
        let failed = made.is_err().then(Instant::now);
        self.pool.on(drive, |supply| supply.stock(kind).failed_last = failed);
        made
    }

    fn try_make_ahead(
        &self,
        (drive, kind): (DriveId, Kind),
        wait: Wait,
        needs: impl Fn(&Stock) -> bool,
    ) -> Outcome<()> {
        let making = self.pool.on(drive, |supply| Arc::clone(&supply.making));
        let _one = making.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.pool.on(drive, |supply| needs(supply.stock(kind))) {
            return Ok(());
        }
        self.find_unknown(drive, wait)?;
        let amount = self.amount(drive, kind);
        let sequence = self.journal.enqueue(&[Step::Making { drive }]);
        self.make_durable(sequence)?;
        let mut left = amount;
        while left > 0 {
            let count = left.min(BATCH);
            let made = self.make_some((drive, kind), count, wait);
            let last = left == count;
            match made {
                Ok(objects) if objects.len() == count => {
                    self.add_ahead((drive, kind), objects, last)
                }
                // As many as there was room for.
                Ok(objects) if !objects.is_empty() || left < amount => {
                    self.add_ahead((drive, kind), objects, true);
                    return Ok(());
                }
                Ok(_) => {
                    self.add_ahead((drive, kind), Vec::new(), true);
                    return Err(ManagerStatus::NoSpace);
                }
                Err(error) => {
                    if error.is_certain() {
                        self.add_ahead((drive, kind), Vec::new(), true);
                    } else {
                        self.pool.on(drive, |supply| supply.is_uncertain = true);
                    }
                    return Err(failure("make objects", drive_of(drive), &error));
                }
            }
            left -= count;
        }
        Ok(())
    }

    /// How many to make. Who is about to make many asks for the drive's room before.
    fn amount(&self, drive: DriveId, kind: Kind) -> usize {
        let wanted = self.pool.on(drive, |supply| {
            let stock = supply.stock(kind);
            if stock.made_last.is_some_and(|last| last.elapsed() < SOON) {
                stock.amount = MOST.min(2 * stock.amount);
            }
            stock.made_last = Some(Instant::now());
            stock.amount
        });
        if wanted <= FEWEST {
            return wanted;
        }
        let room = self.partition_control(drive).map_or(u64::MAX, |told| free_objects(&told));
        let share = usize::try_from(room / SHARE).unwrap_or(usize::MAX);
        wanted.min(share.max(FEWEST))
    }

    fn make_durable(&self, sequence: u64) -> Outcome<()> {
        match self.journal.durable(sequence) {
            Err(JournalError::Full) => {
                self.bring_home()?;
                self.commit()
            }
            done => done.map_err(|_| ManagerStatus::Unavailable),
        }
    }

    /// As many as the drive has room for.
    fn make_some(
        &self,
        (drive, kind): (DriveId, Kind),
        count: usize,
        wait: Wait,
    ) -> Result<Vec<NewObject>, ObjectError> {
        let operations = vec![BatchOperation::Create(None, kind.initial()); count];
        let partition = self.objects.partition(drive).ok_or(ObjectError::NoSuchObject)?;
        let mut made = Vec::with_capacity(count);
        let mut failed = None;
        for outcome in self.objects.batch(drive, &operations, true, wait)? {
            match outcome {
                Ok(BatchDone { object, attributes: Some(attributes) }) => {
                    let handle = FileHandle { drive, partition, object };
                    made.push(NewObject { handle, attributes });
                }
                Ok(_) => failed = Some(ObjectError::Fault("no attributes".to_owned())),
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            Some(error) if error != ObjectError::NoSpace && made.is_empty() => Err(error),
            _ => Ok(made),
        }
    }

    /// Takes objects in that were made, all that were to be made or some.
    fn add_ahead(&self, (drive, kind): (DriveId, Kind), made: Vec<NewObject>, is_all: bool) {
        let objects: Vec<ObjectId> = made.iter().map(|new| new.handle.object).collect();
        let highest = objects.iter().copied().max().unwrap_or_default();
        let mut steps = vec![Step::Made { drive, highest, objects }];
        if !is_all {
            steps.push(Step::Making { drive });
        }
        self.journal.enqueue(&steps);
        let told = made.last().map(|last| last.attributes.create_time);
        let known = self.objects.drive_time(drive);
        self.pool.on(drive, |supply| {
            supply.stock(kind).available.extend(made);
            if let Some(told) = told {
                supply.clock_ahead = told.0.wrapping_sub(known.0).cast_signed();
            }
        });
    }

    /// The time on a drive's clock, as the drive would stamp it on an object: hardly ahead of that, and
    /// later than any stamp that was seen there, or given here since its clock is known. So change times do
    /// not go back.
    pub(super) fn time_on(&self, drive: DriveId) -> Timestamp {
        let known = self.objects.drive_time(drive).0;
        self.pool.on(drive, |supply| {
            let estimate = known.wrapping_add_signed(supply.clock_ahead);
            let time = Timestamp(estimate.max(supply.latest.0.saturating_add(1)));
            if supply.has_made() {
                supply.latest = time;
            }
            time
        })
    }

    /// Takes note of the times that a drive has stamped on an object.
    pub(super) fn note_times(&self, drive: DriveId, attributes: &Attributes) {
        let stamped = attributes.attribute_modify_time.max(attributes.data_modify_time);
        self.pool.on(drive, |supply| supply.latest = supply.latest.max(stamped));
    }

    /// After objects were made whose numbers are not known, by this manager or an earlier one: removes
    /// them. Whoever makes objects there is kept from it.
    fn find_unknown(&self, drive: DriveId, wait: Wait) -> Outcome<()> {
        if !self.pool.on(drive, |supply| supply.is_uncertain) {
            return Ok(());
        }
        let found = self.unknown(drive, wait);
        let found = found.map_err(|error| failure("list objects", drive_of(drive), &error))?;
        let mut steps: Vec<Step> =
            found.iter().map(|object| Step::Remove { object: *object }).collect();
        let highest = found.iter().map(|object| object.object).max().unwrap_or_default();
        steps.push(Step::Made { drive, highest, objects: Vec::new() });
        tracing::info!(%drive, objects = found.len(), "removing objects that were made for nobody");
        self.journal.enqueue(&steps);
        self.pool.on(drive, |supply| supply.is_uncertain = false);
        Ok(())
    }

    fn unknown(&self, drive: DriveId, wait: Wait) -> Result<Vec<FileHandle>, ObjectError> {
        let partition = self.objects.partition(drive).ok_or(ObjectError::NoSuchObject)?;
        let highest = self.journal.ledger(|ledger| ledger.ahead.get(&drive).map(|at| at.highest));
        let from = ObjectId(highest.unwrap_or_default().0 + 1).max(ObjectId::FIRST_DYNAMIC);
        let objects = self.objects.objects_from(drive, from, wait)?;
        let mut unknown = Vec::new();
        for objects in objects.chunks(BATCH) {
            let operations: Vec<BatchOperation> =
                objects.iter().map(|object| BatchOperation::Getattr(*object)).collect();
            for outcome in self.objects.batch(drive, &operations, false, wait)? {
                let Ok(BatchDone { object, attributes: Some(attributes) }) = outcome else {
                    continue;
                };
                let handle = FileHandle { drive, partition, object };
                // A file that was made of one has its record in the journal, if not at the drive.
                if attributes.fs_specific == mark() && self.journal.record(handle).is_none() {
                    unknown.push(handle);
                }
            }
        }
        let is_ours = |object: &FileHandle| {
            self.journal.ledger(|ledger| {
                let ahead = ledger.ahead.get(&drive);
                ahead.is_some_and(|ahead| ahead.objects.contains(&object.object))
            })
        };
        unknown.retain(|object| !is_ours(object));
        Ok(unknown)
    }

    /// What an earlier manager has made ahead is not used, but removed: should that one still live, it
    /// may not make files of it.
    pub(super) fn disown_ahead(&self) {
        let mut steps = Vec::new();
        self.journal.ledger(|ledger| {
            for (drive, ahead) in &ledger.ahead {
                let Some(partition) = self.objects.partition(*drive) else {
                    continue;
                };
                let handle =
                    |object: &ObjectId| FileHandle { drive: *drive, partition, object: *object };
                steps.extend(ahead.objects.iter().map(|at| Step::Remove { object: handle(at) }));
                self.pool.on(*drive, |supply| supply.is_uncertain = ahead.making);
            }
        });
        for steps in steps.chunks(BATCH) {
            self.journal.enqueue(steps);
        }
    }
}

/// Stands for the drive in messages.
fn drive_of(drive: DriveId) -> FileHandle {
    FileHandle { drive, partition: Default::default(), object: Default::default() }
}
