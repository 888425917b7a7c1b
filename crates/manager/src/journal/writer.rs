//! The journal at work: what is changed goes to the home drive, in order, many changes at a time.
//!
//! ```text
//! enqueue: a number, its bytes in the queue, its steps in image and ledger        (under `core`)
//! written: whoever needs a number on the drive, and finds nobody writing, writes all that is
//!          queued as one frame; those who come meanwhile wait for that, and for the next (`disk`)
//! durable: one flush at a time, for all who need one                              (`flushing`)
//! ```
//!
//! Frames are kept until a flush has answered with the drive's instance that they were written with; if
//! the drive has started anew in between, they are written again, before anything else is answered.
//!
//! A write that fails keeps its place: its frame is written again, the same bytes at the same offset, by
//! whoever needs something next. Until that succeeds nothing is answered that depends on it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nasd_protocol::manager::FileHandle;
use nasd_types::DriveId;
use thiserror::Error;

use super::frame::{Area, Chain, FRAME_HEAD_BYTES, FrameError, Kind, scan};
use super::image::{Image, Ledger, RecordImage, Slots};
use super::step::{MAX_STEP_BYTES, RequestKey, Step};
use crate::objects::{ObjectError, ObjectStore, Wait};

/// Bytes of steps in one frame, unless a single change has more.
const MAX_BODY_BYTES: usize = 1 << 20;

/// Areas of a journal, of which one is written at a time.
pub(crate) const AREAS: usize = 2;

/// Bytes of an area at least: a frame with any step, several times.
pub(crate) const MIN_AREA_BYTES: usize = 4 * (FRAME_HEAD_BYTES + MAX_STEP_BYTES);

/// Bytes of an area at most: both are read at the start.
pub(crate) const MAX_AREA_BYTES: usize = 256 << 20;

/// Why something is not in the journal.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum JournalError {
    /// The home drive did not take it.
    #[error(transparent)]
    Drive(#[from] ObjectError),
    /// The area is full: what the other one holds must be brought home first.
    #[error("the journal is full")]
    Full,
}

/// Why a journal can't be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OpenError {
    /// The drive.
    #[error(transparent)]
    Drive(#[from] ObjectError),
    /// What was written can't be understood.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// Neither area holds anything whole.
    #[error("the journal has no beginning")]
    Nothing,
}

#[derive(Debug, Default)]
struct Core {
    /// Number of the last change.
    sequence: u64,
    queue: VecDeque<(u64, Vec<u8>)>,
    /// What was changed since the area was begun.
    image: Image,
    /// What the other area holds, which is being brought home.
    going: Option<Arc<Image>>,
    ledger: Ledger,
}

#[derive(Clone, Debug)]
struct Frame {
    offset: u64,
    bytes: Arc<Vec<u8>>,
    /// The last change in it.
    last: u64,
}

#[derive(Debug)]
struct Disk {
    chain: Chain,
    /// 0 or 1.
    area: usize,
    /// Bytes of the area that are used.
    position: usize,
    /// Bytes that were used when the area was begun, and after what could not go home was put there.
    base: usize,
    unwritten: VecDeque<Frame>,
    /// With the instance that took them.
    retained: VecDeque<(Frame, u64)>,
    failure: Option<ObjectError>,
}

/// The journal.
pub(crate) struct Journal {
    objects: Arc<dyn ObjectStore>,
    object: FileHandle,
    area_bytes: usize,
    core: Mutex<Core>,
    disk: Mutex<Disk>,
    flushing: Mutex<()>,
    written: AtomicU64,
    durable: AtomicU64,
    failures: AtomicU64,
}

/// The bytes of a journal that nothing was written to yet.
pub(crate) fn empty_journal() -> Vec<u8> {
    Chain::new(1).frame(Kind::Opened, &[])
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Journal {
    /// Reads the journal. What it holds is to be brought home before the other area is begun.
    pub(crate) fn open(
        objects: Arc<dyn ObjectStore>,
        object: FileHandle,
        area_bytes: usize,
    ) -> Result<Journal, OpenError> {
        // What was written but never answered must not vanish once it was acted upon.
        objects.flush(object.drive, &[object.object], Wait::Patient)?;
        let read = |area: usize| {
            let offset = (area * area_bytes) as u64;
            let bytes = objects.read(object, offset, area_bytes as u64, Wait::Patient)?;
            Ok::<_, OpenError>(scan(&bytes)?)
        };
        let (newest, number, older) = match (read(0)?, read(1)?) {
            (None, None) => return Err(OpenError::Nothing),
            (Some(one), None) => (one, 0, None),
            (None, Some(other)) => (other, 1, None),
            (Some(one), Some(other)) if one.chain.generation > other.chain.generation => {
                (one, 0, Some(other))
            }
            (Some(one), Some(other)) => (other, 1, Some(one)),
        };
        let core = fold(older.as_ref(), &newest);
        let disk = Disk {
            chain: newest.chain,
            area: number,
            position: newest.length,
            base: newest.length,
            unwritten: VecDeque::new(),
            retained: VecDeque::new(),
            failure: None,
        };
        Ok(Journal {
            objects,
            object,
            area_bytes,
            core: Mutex::new(core),
            disk: Mutex::new(disk),
            flushing: Mutex::new(()),
            written: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        })
    }

    fn core(&self) -> MutexGuard<'_, Core> {
        lock(&self.core)
    }

    /// Takes a change in; its number. Whoever holds the locks of what it changes decides so what comes
    /// before and after it.
    pub(crate) fn enqueue(&self, steps: &[Step]) -> u64 {
        let bytes = Step::encode_all(steps);
        let mut core = self.core();
        core.enqueue(steps, bytes)
    }

    /// Number of the last change.
    pub(crate) fn sequence(&self) -> u64 {
        self.core().sequence
    }

    /// Returns when the home drive has the change, and all before it.
    pub(crate) fn written(&self, sequence: u64) -> Result<(), JournalError> {
        loop {
            if self.written.load(Ordering::Acquire) >= sequence {
                return Ok(());
            }
            let failures = self.failures.load(Ordering::Acquire);
            let mut disk = lock(&self.disk);
            if self.written.load(Ordering::Acquire) >= sequence {
                return Ok(());
            }
            if self.failures.load(Ordering::Acquire) != failures
                && let Some(error) = &disk.failure
            {
                // Who waited as long as another one who has failed need not try as long again.
                return Err(error.clone().into());
            }
            self.take_queue(&mut disk)?;
            self.write_out(&mut disk)?;
        }
    }

    /// Returns when the change, and all before it, would survive a power cut.
    pub(crate) fn durable(&self, sequence: u64) -> Result<(), JournalError> {
        loop {
            if self.durable.load(Ordering::Acquire) >= sequence {
                return Ok(());
            }
            self.written(sequence)?;
            let _one = lock(&self.flushing);
            if self.durable.load(Ordering::Acquire) >= sequence {
                return Ok(());
            }
            let covered = self.written.load(Ordering::Acquire);
            let instance = self.flush()?;
            self.flushed(&mut lock(&self.disk), covered, instance);
        }
    }

    fn flush(&self) -> Result<u64, ObjectError> {
        self.objects.flush(self.object.drive, &[self.object.object], Wait::Patient)
    }

    /// Takes note of a flush that began when `covered` was written.
    fn flushed(&self, disk: &mut Disk, covered: u64, instance: u64) {
        let is_covered = |(frame, _): &&mut (Frame, u64)| frame.last <= covered;
        let mut all = true;
        for (_, other) in disk.retained.iter_mut().take_while(is_covered) {
            if *other != instance {
                (*other, all) = (LOST, false);
            }
        }
        if all {
            let count = disk.retained.partition_point(|(frame, _)| frame.last <= covered);
            disk.retained.drain(..count);
            self.durable.fetch_max(covered, Ordering::AcqRel);
        } else {
            // Not written, until it was written again.
            let first = disk.retained.iter().find(|(_, other)| *other == LOST);
            let first = first.map_or(covered, |(frame, _)| frame.last);
            tracing::warn!("the home drive has started anew: the journal is written again");
            self.written.fetch_min(first.saturating_sub(1), Ordering::AcqRel);
        }
    }

    /// Makes a frame of what is queued and fits into the area.
    fn take_queue(&self, disk: &mut Disk) -> Result<(), JournalError> {
        if !disk.unwritten.is_empty() || disk.retained.iter().any(|(_, other)| *other == LOST) {
            return Ok(());
        }
        let room = (self.area_bytes - disk.position).saturating_sub(FRAME_HEAD_BYTES);
        let (mut body, mut last) = (Vec::new(), None);
        let mut core = self.core();
        while let Some((_, bytes)) = core.queue.front() {
            let length = body.len() + bytes.len();
            if length > room || (length > MAX_BODY_BYTES && !body.is_empty()) {
                break;
            }
            if let Some((sequence, bytes)) = core.queue.pop_front() {
                body.extend_from_slice(&bytes);
                last = Some(sequence);
            }
        }
        drop(core);
        let last = last.ok_or(JournalError::Full)?;
        self.add_frame(disk, Kind::Changes, &body, last);
        Ok(())
    }

    fn add_frame(&self, disk: &mut Disk, kind: Kind, body: &[u8], last: u64) {
        let bytes = disk.chain.frame(kind, body);
        let offset = (disk.area * self.area_bytes + disk.position) as u64;
        disk.position += bytes.len();
        disk.unwritten.push_back(Frame { offset, bytes: Arc::new(bytes), last });
    }

    /// Writes all frames that the drive does not have.
    fn write_out(&self, disk: &mut Disk) -> Result<(), JournalError> {
        let result = self.try_write_out(disk);
        if let Err(error) = &result {
            disk.failure = Some(error.clone());
            self.failures.fetch_add(1, Ordering::AcqRel);
        }
        Ok(result?)
    }

    fn try_write_out(&self, disk: &mut Disk) -> Result<(), ObjectError> {
        loop {
            while let Some(frame) = disk.unwritten.front() {
                let instance = self.write_frame(frame)?;
                if let Some(frame) = disk.unwritten.pop_front() {
                    let has_restarted = |(_, other): &&mut (Frame, u64)| *other != instance;
                    disk.retained.iter_mut().filter(has_restarted).for_each(|(_, old)| *old = LOST);
                    disk.retained.push_back((frame, instance));
                }
            }
            let Some(lost) = disk.retained.iter().position(|(_, other)| *other == LOST) else {
                break;
            };
            let instance = self.write_frame(&disk.retained[lost].0)?;
            for (number, (_, other)) in disk.retained.iter_mut().enumerate() {
                if number == lost {
                    *other = instance;
                } else if *other != instance {
                    *other = LOST;
                }
            }
        }
        if let Some((frame, _)) = disk.retained.back() {
            self.written.fetch_max(frame.last, Ordering::AcqRel);
        }
        Ok(())
    }

    fn write_frame(&self, frame: &Frame) -> Result<u64, ObjectError> {
        self.objects.write(self.object, frame.offset, &frame.bytes, false, Wait::Patient)
    }

    /// Begins the other area, if what that held is home: what was changed until now is to go home next.
    pub(crate) fn begin_area(&self) -> Result<(), JournalError> {
        let _one = lock(&self.flushing);
        let mut disk = lock(&self.disk);
        // What the new area builds upon must not be lost before it.
        loop {
            self.write_out(&mut disk)?;
            let Some((frame, _)) = disk.retained.back() else {
                break;
            };
            let covered = frame.last;
            let instance = self.flush()?;
            self.flushed(&mut disk, covered, instance);
        }
        let mut core = self.core();
        if core.going.is_some() {
            return Ok(());
        }
        // What is queued is in the ledger already, so it must come to the drive with that.
        let mut body = Step::encode_all(&core.ledger.steps().collect::<Vec<_>>());
        body.extend(core.queue.iter().flat_map(|(_, bytes)| bytes));
        let frames = body.len() / MAX_BODY_BYTES + 1;
        if body.len() + frames * (FRAME_HEAD_BYTES + MAX_STEP_BYTES) > self.area_bytes {
            return Err(JournalError::Full);
        }
        core.queue.clear();
        core.going = Some(Arc::new(std::mem::take(&mut core.image)));
        let last = core.sequence;
        drop(core);
        disk.chain = Chain::new(disk.chain.generation + 1);
        (disk.area, disk.position) = (1 - disk.area, 0);
        self.add_opening(&mut disk, &body, last);
        disk.base = disk.position;
        self.write_out(&mut disk)
    }

    fn add_opening(&self, disk: &mut Disk, mut body: &[u8], last: u64) {
        let before = self.written.load(Ordering::Acquire);
        while let Some(cut) = Step::boundary(body, MAX_BODY_BYTES) {
            let (now, later) = body.split_at(cut);
            self.add_frame(disk, Kind::Opening, now, before);
            body = later;
        }
        self.add_frame(disk, Kind::Opened, body, last);
    }

    /// What is to be brought home now.
    pub(crate) fn going(&self) -> Option<Arc<Image>> {
        self.core().going.clone()
    }

    /// Leaves records out of what is to be brought home: newer ones are there.
    pub(crate) fn leave_out(&self, records: &[FileHandle]) {
        let mut core = self.core();
        if let Some(going) = core.going.as_mut().filter(|_| !records.is_empty()) {
            let going = Arc::make_mut(going);
            records.iter().for_each(|object| drop(going.records.remove(object)));
        }
    }

    /// Files and directories with something that is not home.
    pub(crate) fn changes(&self) -> usize {
        let core = self.core();
        let count = |image: &Image| image.directories.len() + image.records.len();
        core.images().map(count).sum()
    }

    /// Whether anything was changed since the area was begun.
    pub(crate) fn has_changes(&self) -> bool {
        !self.core().image.is_empty()
    }

    /// What was going home is there, but for what lies on these drives: that is put into the
    /// journal again. From then on the other area is free.
    pub(crate) fn came_home(&self, failed: &[DriveId]) -> Result<(), JournalError> {
        let mut disk = lock(&self.disk);
        let mut core = self.core();
        let Some(going) = &core.going else {
            return Ok(());
        };
        let mut left = Image::clone(going);
        left.retain(|drive| failed.contains(&drive));
        core.ledger.doomed.iter().for_each(|object| left.forget(*object));
        if left.is_empty() {
            core.going = None;
            // Worth no write of its own: it comes with the next.
            core.enqueue(&[Step::Home], Step::encode_all(&[Step::Home]));
            return Ok(());
        }
        // What was changed again since counts, and is said again in its present state.
        left.take_newer(&core.image);
        let steps: Vec<Step> = left.steps().collect();
        let bytes: usize = Step::encode_all(&steps).len() + FRAME_HEAD_BYTES;
        let queued: usize = core.queue.iter().map(|(_, bytes)| bytes.len()).sum();
        if disk.position + queued + 2 * bytes > self.area_bytes {
            return Err(JournalError::Full);
        }
        let mut last = core.sequence;
        for steps in steps.chunks(256).chain([&[Step::Home][..]]) {
            last = core.enqueue(steps, Step::encode_all(steps));
        }
        disk.base = disk.position + queued + bytes;
        drop((core, disk));
        self.durable(last)?;
        self.core().going = None;
        Ok(())
    }

    /// What the slots of a directory shall hold, whatever the object holds.
    pub(crate) fn slots(&self, directory: FileHandle) -> Slots {
        let core = self.core();
        let mut slots = Slots::new();
        for image in core.images() {
            if let Some(found) = image.directories.get(&directory) {
                slots.extend(found.slots.iter().map(|(place, name)| (*place, name.clone())));
            }
        }
        slots
    }

    /// A file's record and times, if the object may not have them.
    pub(crate) fn record(&self, object: FileHandle) -> Option<RecordImage> {
        let core = self.core();
        let mut found: Option<RecordImage> = None;
        for image in core.images().filter_map(|image| image.records.get(&object)) {
            let modified = image.modified.or(found.and_then(|older| older.modified));
            found = Some(RecordImage { modified, ..image.clone() });
        }
        found
    }

    /// Number of the last change of a file, if it may not be on the drive.
    pub(crate) fn changed_at(&self, object: FileHandle) -> u64 {
        let core = self.core();
        if self.written.load(Ordering::Acquire) >= core.sequence {
            return 0;
        }
        core.images().map(|image| image.sequence_of(object)).max().unwrap_or(0)
    }

    /// Looks at what is kept in the journal alone.
    pub(crate) fn ledger<T>(&self, look: impl FnOnce(&Ledger) -> T) -> T {
        look(&self.core().ledger)
    }

    /// Objects that were to be removed are gone, durably.
    pub(crate) fn removed(&self, objects: impl IntoIterator<Item = FileHandle>) {
        let mut core = self.core();
        for object in objects {
            core.ledger.doomed.remove(&object);
        }
    }

    /// The outcome of a request that was executed.
    pub(crate) fn outcome(&self, request: &RequestKey) -> Option<Option<FileHandle>> {
        self.core().ledger.outcome(request)
    }
}

/// The instance of a frame that the drive may have lost. No drive draws it but by a chance of 2^-64,
/// and then frames are written once more than need be.
const LOST: u64 = 0;

impl Core {
    fn enqueue(&mut self, steps: &[Step], bytes: Vec<u8>) -> u64 {
        self.sequence += 1;
        let sequence = self.sequence;
        for step in steps {
            self.image.apply(step, sequence);
            self.ledger.apply(step);
        }
        self.queue.push_back((sequence, bytes));
        sequence
    }

    /// The older one first.
    fn images(&self) -> impl Iterator<Item = &Image> {
        self.going.as_deref().into_iter().chain([&self.image])
    }
}

/// What a journal comes to that is found at the start.
fn fold(older: Option<&Area>, newest: &Area) -> Core {
    let mut core = Core::default();
    let mut image = Image::default();
    let is_home = newest.changes.contains(&Step::Home);
    let is_before =
        |older: &&Area| !is_home && older.chain.generation + 1 == newest.chain.generation;
    for step in
        older.filter(is_before).iter().flat_map(|older| older.opening.iter().chain(&older.changes))
    {
        image.apply(step, 0);
    }
    for step in newest.opening.iter().chain(&newest.changes) {
        image.apply(step, 0);
        core.ledger.apply(step);
    }
    core.going = (!image.is_empty()).then(|| Arc::new(image));
    core
}
