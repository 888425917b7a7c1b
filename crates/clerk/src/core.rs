//! What all parts of one clerk share: the cell's two faces, caches, open files and threads.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use nasd_client::{Spare, interrupt};
use nasd_types::{DriveId, Personality, Protection};

use crate::ClerkError;
use crate::attributes::AttributeCache;
use crate::backend::{Grant, Names, Objects};
use crate::budget::Budget;
use crate::buffers::{BufferPool, SpareBuffers};
use crate::callbacks::{GivenSince, Lists, Promises};
use crate::file::FileState;
use crate::grants::{Grants, Slot};
use crate::hints::Room;
use crate::measures::{MeasuredObjects, Measures};
use crate::names::KnownNames;
use crate::settings::Settings;
use crate::wire::{Caller, File, FileAttributes, FileHandle, ManagerStatus, Status, Volume};
use crate::work_pool::WorkPool;

/// First pause before a momentary failure is tried again.
const FIRST_PAUSE: Duration = Duration::from_millis(5);

/// Longest such pause.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// States of files that are not open any more are swept out when there are this many.
const SWEEP_FILES: usize = 1024;

/// Files kept at most only because a failure has not been told.
const MAX_FAILED: usize = 1024;

/// Bytes of answers that nobody looks at any more, whose memory is kept for the next ones.
const ANSWER_BYTES: usize = 16 << 20;

/// Renewals that may wait for the manager side by side.
const RENEWAL_THREADS: usize = 2;

/// Parts of directories that are listed side by side at most, and one for each that lists them.
pub(crate) const LISTER_THREADS: usize = 3;

/// Names of hints that are looked up side by side at most.
const FINDER_THREADS: usize = 16;

/// Drives answer at once that they were told something.
const TELLER_THREADS: usize = 2;

/// The threads and the memory that serve one drive: a drive that is away uses up only its own.
pub(crate) struct Lane {
    /// Write-behind and background flushes.
    pub(crate) senders: WorkPool,
    /// Read-ahead.
    pub(crate) fetchers: WorkPool,
    /// What will be read: the drive is to hear of it while it is busy with what it was asked for before.
    pub(crate) tellers: WorkPool,
    /// Memory for what is not durable.
    pub(crate) budget: Budget,
    /// What the drive was last heard to run as: drawn anew by each start of it; 0 before that.
    pub(crate) instance: AtomicU64,
    /// How many drives' share of threads and memory it has: one behind which there are many has that of
    /// several.
    shares: AtomicU32,
}

/// Drives' shares that one lane has at most.
const MAX_SHARES: u32 = 4;

impl Lane {
    fn new(settings: &Settings) -> Lane {
        let threads = settings.requests_per_drive;
        Lane {
            senders: WorkPool::new("nasd-write", threads),
            fetchers: WorkPool::new("nasd-read", threads),
            tellers: WorkPool::new("nasd-tell", TELLER_THREADS),
            budget: Budget::new(settings.unflushed_bytes_per_drive),
            instance: AtomicU64::new(0),
            shares: AtomicU32::new(1),
        }
    }

    /// So many drives are behind it, as is known now.
    pub(crate) fn widen(&self, drives: u32, settings: &Settings) {
        let shares = drives.clamp(1, MAX_SHARES);
        if self.shares.fetch_max(shares, Ordering::AcqRel) < shares {
            // A window of read-ahead is no longer than this many requests.
            let threads = settings.requests_per_drive * shares.min(2) as usize;
            self.senders.allow(threads);
            self.fetchers.allow(threads);
            self.budget.allow(settings.unflushed_bytes_per_drive * u64::from(shares));
        }
    }

    /// Bytes of one file that may be written and not yet durable before a flush is begun.
    pub(crate) fn flush_after_bytes(&self, settings: &Settings) -> u64 {
        settings.flush_after_bytes * u64::from(self.shares.load(Ordering::Acquire))
    }
}

/// The shared part of a clerk.
pub(crate) struct Core {
    pub(crate) names: Arc<dyn Names>,
    pub(crate) objects: Arc<dyn Objects>,
    pub(crate) settings: Settings,
    pub(crate) measures: Arc<Measures>,
    pub(crate) grants: Grants,
    pub(crate) attributes: AttributeCache,
    pub(crate) known: Arc<KnownNames>,
    /// Of a volume with callbacks.
    pub(crate) promises: OnceLock<Arc<Promises>>,
    /// Of such a volume.
    pub(crate) lists: Lists,
    pub(crate) buffers: BufferPool,
    /// Buffers of write-behind to be used again.
    pub(crate) spare: SpareBuffers,
    /// Memory for answers of extensions, as long as some are waited for.
    answers: Mutex<Weak<Spare>>,
    lanes: Mutex<HashMap<DriveId, Arc<Lane>>>,
    files: Mutex<HashMap<FileHandle, Weak<FileState>>>,
    dirty: Mutex<Dirty>,
    /// Files with failures that nobody was told of.
    failed: Mutex<HashMap<FileHandle, Arc<FileState>>>,
    /// Wakes the background thread.
    pub(crate) dirtied: Condvar,
    renewals: WorkPool,
    /// Lists parts of directories.
    pub(crate) listers: WorkPool,
    /// Looks up what was hinted.
    pub(crate) finders: WorkPool,
    /// What streams of hints have together.
    pub(crate) hints: Arc<Room>,
    /// Bits of the volume's `Protection`.
    protection: AtomicU32,
    /// Nobody changes anything in the volume.
    is_read_only: AtomicBool,
    next_owner: AtomicU64,
    /// On whose behalf the volume is asked about.
    pub(crate) caller: Arc<Caller>,
}

/// Files that the background thread looks at: those with bytes that are not durable, and others; being here keeps them alive.
#[derive(Default)]
pub(crate) struct Dirty {
    pub(crate) files: HashMap<FileHandle, Arc<FileState>>,
    /// Files that may be stored since they were made here, the oldest first.
    pub(crate) given: VecDeque<GivenSince>,
    /// The clerk is closing.
    pub(crate) closed: bool,
    /// The background thread waits for the first one.
    pub(crate) is_awaited: bool,
}

impl Dirty {
    /// Whether nothing is to be looked at.
    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty() && self.given.is_empty()
    }

    /// Takes those that were not stored for a while since they were made.
    pub(crate) fn take_given(&mut self) -> Vec<GivenSince> {
        let due = self.given.iter().take_while(|given| given.is_due()).count();
        self.given.drain(..due).collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a capability is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Look,
    Change,
}

/// Most capabilities that are got for one operation.
const MAX_RENEWALS: u32 = 8;

impl Core {
    /// A core without files.
    pub(crate) fn new(
        names: Arc<dyn Names>,
        objects: Arc<dyn Objects>,
        caller: &Arc<Caller>,
        settings: Settings,
    ) -> Self {
        let measures = Arc::new(Measures::default());
        Core {
            names,
            objects: Arc::new(MeasuredObjects::new(objects, Arc::clone(&measures))),
            measures,
            grants: Grants::default(),
            attributes: AttributeCache::default(),
            known: Arc::default(),
            promises: OnceLock::new(),
            lists: Lists::default(),
            buffers: BufferPool::new(settings.read_ahead_bytes),
            answers: Mutex::default(),
            spare: SpareBuffers::default(),
            lanes: Mutex::default(),
            files: Mutex::default(),
            dirty: Mutex::default(),
            failed: Mutex::default(),
            dirtied: Condvar::new(),
            renewals: WorkPool::new("nasd-renew", RENEWAL_THREADS),
            listers: WorkPool::new("nasd-list", LISTER_THREADS),
            finders: WorkPool::new("nasd-find", FINDER_THREADS),
            hints: Arc::new(Room::new(settings.read_ahead_bytes)),
            protection: AtomicU32::new(0),
            is_read_only: AtomicBool::new(false),
            next_owner: AtomicU64::new(1),
            caller: Arc::clone(caller),
            settings,
        }
    }

    /// Memory for answers of extensions: that of others which are under way, too, so that many short files take it once.
    pub(crate) fn room_for_answers(&self) -> Arc<Spare> {
        let mut answers = lock(&self.answers);
        answers.upgrade().unwrap_or_else(|| {
            let spare = Arc::new(Spare::new(ANSWER_BYTES));
            *answers = Arc::downgrade(&spare);
            spare
        })
    }

    /// Asks where the drives are: one may have been added since, or what was on it moved.
    pub(crate) fn find_drives(&self, caller: &Arc<Caller>) -> Result<(), ClerkError> {
        self.set_volume(&self.ask_names(|names| names.volume(caller))?);
        Ok(())
    }

    /// The manager has described the volume.
    pub(crate) fn set_volume(&self, volume: &Volume) {
        self.protection.store(volume.protection.bits(), Ordering::Relaxed);
        self.is_read_only.store(volume.read_only, Ordering::Relaxed);
        if volume.personality == Personality::Afs {
            let cache = &self.settings.cache;
            self.promises.get_or_init(|| Arc::new(Promises::new(&self.known, cache, volume)));
        }
        self.objects.set_volume(volume);
    }

    /// Whether nobody changes anything in the volume.
    pub(crate) fn is_read_only(&self) -> bool {
        self.is_read_only.load(Ordering::Relaxed)
    }

    /// How requests to drives are protected.
    pub(crate) fn protection(&self) -> Protection {
        Protection::from_bits_retain(self.protection.load(Ordering::Relaxed))
    }

    /// When an operation that begins now gives up.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.settings.deadline
    }

    /// A number that names an open file's read-ahead.
    pub(crate) fn new_owner(&self) -> u64 {
        self.next_owner.fetch_add(1, Ordering::Relaxed)
    }

    /// A number that names a stream of hints, and that nobody else can guess.
    pub(crate) fn new_stream(&self) -> u64 {
        RandomState::new().hash_one(self.names.client())
    }

    /// The lane of a drive.
    pub(crate) fn lane(&self, drive: DriveId) -> Arc<Lane> {
        let mut lanes = lock(&self.lanes);
        let lane = lanes.entry(drive).or_insert_with(|| Arc::new(Lane::new(&self.settings)));
        Arc::clone(lane)
    }

    /// The state of a file, shared by all who have it open.
    pub(crate) fn file(&self, handle: FileHandle) -> Arc<FileState> {
        let mut files = lock(&self.files);
        if let Some(file) = files.get(&handle).and_then(Weak::upgrade) {
            return file;
        }
        if files.len() >= SWEEP_FILES && files.len().is_multiple_of(SWEEP_FILES) {
            files.retain(|_, file| file.strong_count() > 0);
        }
        let file = Arc::new(FileState::new(handle, self.lane(handle.drive), self.spare.clone()));
        files.insert(handle, Arc::downgrade(&file));
        file
    }

    /// The state of a file, if somebody has it open or it is not durable.
    pub(crate) fn open_file(&self, handle: FileHandle) -> Option<Arc<FileState>> {
        lock(&self.files).get(&handle).and_then(Weak::upgrade)
    }

    /// The files that are not durable.
    pub(crate) fn dirty(&self) -> MutexGuard<'_, Dirty> {
        lock(&self.dirty)
    }

    /// A file has bytes that are not durable now.
    pub(crate) fn mark_dirty(&self, file: &Arc<FileState>) {
        let mut dirty = self.dirty();
        if std::mem::take(&mut dirty.is_awaited) {
            self.dirtied.notify_all();
        }
        dirty.files.insert(file.handle, Arc::clone(file));
    }

    /// A file was made here, and may be stored.
    pub(crate) fn mark_given(&self, given: GivenSince) {
        let mut dirty = self.dirty();
        if std::mem::take(&mut dirty.is_awaited) {
            self.dirtied.notify_all();
        }
        dirty.given.push_back(given);
    }

    /// A file is durable now.
    pub(crate) fn mark_clean(&self, handle: FileHandle) {
        self.dirty().files.remove(&handle);
    }

    /// Remembers a failure even when nobody has the file open, until somebody is told.
    pub(crate) fn keep_failed(&self, file: &Arc<FileState>) {
        let mut failed = lock(&self.failed);
        if failed.len() < MAX_FAILED {
            failed.insert(file.handle, Arc::clone(file));
        }
    }

    /// A failure that nobody was told of, if there is one.
    pub(crate) fn untold_failure(&self) -> Option<ClerkError> {
        let failed: Vec<Arc<FileState>> = lock(&self.failed).values().cloned().collect();
        failed.iter().find_map(|file| file.lock().errors.since(0))
    }

    /// Somebody was told.
    pub(crate) fn forget_failed(&self, handle: FileHandle) {
        lock(&self.failed).remove(&handle);
    }

    /// Begins to flush every file of a lane, to make room in its budget.
    pub(crate) fn flush_all_of(self: &Arc<Self>, lane: &Arc<Lane>) {
        let files: Vec<Arc<FileState>> = self
            .dirty()
            .files
            .values()
            .filter(|file| Arc::ptr_eq(&file.lane, lane))
            .cloned()
            .collect();
        for file in files {
            file.sync_in_background(self);
        }
    }

    /// Runs `operation` with a capability. If it is refused in a way that a new capability may
    /// mend, gets one and runs it again, once; a busy drive is asked again until the deadline.
    pub(crate) fn with_grant<T>(
        self: &Arc<Self>,
        slot: &Arc<Slot>,
        operation: impl FnMut(&Grant) -> Result<T, ClerkError>,
    ) -> Result<T, ClerkError> {
        self.with_grant_for(slot, Purpose::Look, operation)
    }

    /// The same for what changes the file: where there are callbacks it is being stored.
    pub(crate) fn with_grant_to_change<T>(
        self: &Arc<Self>,
        slot: &Arc<Slot>,
        operation: impl FnMut(&Grant) -> Result<T, ClerkError>,
    ) -> Result<T, ClerkError> {
        self.with_grant_for(slot, Purpose::Change, operation)
    }

    fn with_grant_for<T>(
        self: &Arc<Self>,
        slot: &Arc<Slot>,
        purpose: Purpose,
        mut operation: impl FnMut(&Grant) -> Result<T, ClerkError>,
    ) -> Result<T, ClerkError> {
        let deadline = self.deadline();
        let mut grant = self.grant_of(slot)?;
        let (mut renewals, mut refreshed) = (0, false);
        let mut pause = FIRST_PAUSE;
        loop {
            match operation(&grant) {
                Err(error) if error.wants_volume() && !refreshed => {
                    tracing::debug!(%error, handle = ?slot.handle, "asking where the drives are");
                    self.find_drives(&slot.caller)?;
                    refreshed = true;
                }
                Err(error)
                    if error.wants_new_capability() && self.may_renew(renewals, deadline) =>
                {
                    tracing::debug!(%error, handle = ?slot.handle, "getting a new capability");
                    let fresh = self.fresh_grant(slot, &grant, purpose, deadline)?;
                    // The same again is no use. Another one may have been revoked meanwhile too:
                    // several changes of owner and mode come close together.
                    // Where there are callbacks it may be good now: a drive that was started anew was told its version again.
                    let is_same = fresh.issued == grant.issued && self.promises().is_none();
                    let may_do_no_more = error == ClerkError::Drive(Status::RefusedRights)
                        && fresh.rights() == grant.rights();
                    if renewals > 0 && (is_same || may_do_no_more) {
                        return Err(error);
                    }
                    // Other refusals may be over with another capability, however many there were. This one is for good.
                    if purpose == Purpose::Look
                        && error.is_refused_right()
                        && fresh.rights() == grant.rights()
                    {
                        return Err(ClerkError::Manager(ManagerStatus::Access));
                    }
                    grant = fresh;
                    // It may be for a drive that is not known yet.
                    refreshed = false;
                    renewals += 1;
                    if renewals >= MAX_RENEWALS {
                        interrupt::pause(FIRST_PAUSE)?;
                    }
                }
                Err(error) if error.is_momentary() && Instant::now() < deadline => {
                    interrupt::pause(pause)?;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                outcome => return outcome,
            }
        }
    }

    /// Whether another capability is worth to be asked for after so many. Where there are callbacks each may be ended by the next store
    /// before it is used.
    fn may_renew(&self, renewals: u32, deadline: Instant) -> bool {
        match self.promises() {
            // Who has waited long for a drive that was away need not hear that his capability has become old meanwhile.
            Some(_) => renewals < MAX_RENEWALS || Instant::now() < deadline,
            None => renewals < MAX_RENEWALS,
        }
    }

    /// The capability to use: that of a store under way, or the caller's.
    fn grant_of(self: &Arc<Self>, slot: &Arc<Slot>) -> Result<Arc<Grant>, ClerkError> {
        if let Some(store) = self.store_of(slot.handle) {
            return Ok(store.grant);
        }
        if let Some(grant) = self.given_grant(slot) {
            return Ok(grant);
        }
        match slot.current() {
            Some(grant) => {
                self.renew_in_time(slot, &grant);
                Ok(grant)
            }
            None => self.renew(slot, None),
        }
    }

    /// Another one than the one that was refused.
    fn fresh_grant(
        self: &Arc<Self>,
        slot: &Arc<Slot>,
        stale: &Arc<Grant>,
        purpose: Purpose,
        deadline: Instant,
    ) -> Result<Arc<Grant>, ClerkError> {
        loop {
            match self.store_of(slot.handle) {
                Some(store) if !Arc::ptr_eq(&store.grant, stale) => return Ok(store.grant),
                Some(_) if purpose == Purpose::Change => {
                    let file = self.open_file(slot.handle);
                    let file = file.ok_or(ClerkError::Manager(ManagerStatus::Stale))?;
                    return file.store_anew(self, stale);
                }
                // Who stores has just returned it, or gets another one.
                Some(_) if Instant::now() < deadline => interrupt::pause(FIRST_PAUSE)?,
                Some(_) => return Err(ClerkError::Manager(ManagerStatus::Busy)),
                None => return self.renew(slot, Some(stale)),
            }
        }
    }

    /// Queues a renewal when the capability is about to expire.
    fn renew_in_time(self: &Arc<Self>, slot: &Arc<Slot>, grant: &Arc<Grant>) {
        if slot.should_queue_renewal(grant, self.objects.drive_time(grant)) {
            let (core, slot, grant) = (Arc::clone(self), Arc::clone(slot), Arc::clone(grant));
            self.renewals.clone().submit(move || {
                if let Err(error) = core.renew(&slot, Some(&grant)) {
                    tracing::warn!(%error, handle = ?slot.handle, "capability not renewed");
                }
                slot.renewal_done();
            });
        }
    }

    /// A capability other than `stale`, from the manager unless somebody else has just got one.
    pub(crate) fn renew(
        self: &Arc<Self>,
        slot: &Arc<Slot>,
        stale: Option<&Arc<Grant>>,
    ) -> Result<Arc<Grant>, ClerkError> {
        let _turn = slot.renewal_turn()?;
        if let Some(current) = slot.current()
            && stale.is_none_or(|stale| !Arc::ptr_eq(stale, &current))
        {
            return Ok(current);
        }
        if self.promises().is_some() {
            let told = self.ask_capability(slot)?;
            return Ok(slot
                .current()
                .unwrap_or_else(|| slot.install(&told.file, self.protection())));
        }
        let asked = Instant::now();
        let file = self.ask_names(|names| names.getattr(&slot.caller, slot.handle))?;
        self.attributes.told(file.handle, &file.attributes, asked);
        Ok(slot.install(&file, self.protection()))
    }

    /// Makes durable what was changed of names and attributes; `file` is any of the volume's.
    pub(crate) fn commit(&self, file: FileHandle) -> Result<(), ClerkError> {
        self.ask_names(|names| names.commit(&self.caller, file))
    }

    /// Has the manager remove now what nobody needs any more; whether that may have made room.
    pub(crate) fn reclaim_space(&self) -> bool {
        self.ask_names(|names| names.space(&self.caller)).is_ok()
    }

    /// Asks the manager; again, when a drive that it needs is away, until the deadline.
    pub(crate) fn ask_names<T>(
        &self,
        mut ask: impl FnMut(&dyn Names) -> Result<T, ClerkError>,
    ) -> Result<T, ClerkError> {
        let deadline = self.deadline();
        let mut pause = FIRST_PAUSE;
        self.measures.of_manager(|| {
            loop {
                match ask(&*self.names) {
                    Err(error) if error.is_momentary() && Instant::now() < deadline => {
                        interrupt::pause(pause)?;
                        pause = (pause * 2).min(LONGEST_PAUSE);
                    }
                    outcome => return outcome,
                }
            }
        })
    }

    /// Keeps what the manager told about a file in answer to a request made at `asked`.
    pub(crate) fn learn(&self, caller: &Arc<Caller>, file: &File, asked: Instant) -> Arc<Slot> {
        self.attributes.told(file.handle, &file.attributes, asked);
        self.grants.install(caller, file, self.protection())
    }

    /// Attributes not older than `ttl`: from the cache, from the drive, or from the manager.
    pub(crate) fn getattr(
        self: &Arc<Self>,
        caller: &Arc<Caller>,
        handle: FileHandle,
        ttl: Duration,
    ) -> Result<FileAttributes, ClerkError> {
        self.getattr_aged(caller, handle, ttl).map(|(attributes, _)| attributes)
    }

    /// The same, and how old they may be.
    pub(crate) fn getattr_aged(
        self: &Arc<Self>,
        caller: &Arc<Caller>,
        handle: FileHandle,
        ttl: Duration,
    ) -> Result<(FileAttributes, Duration), ClerkError> {
        if let Some(promises) = self.promises() {
            let told = self.getattr_promised(promises, caller, handle)?;
            return Ok((told, Duration::ZERO));
        }
        let Some(file) = self.open_file(handle) else {
            return self.getattr_from_servers(caller, handle, ttl);
        };
        // Length and times are the drive's to tell, once it has everything. A failure to write is
        // kept for those who wrote.
        file.drain(self)?;
        let (answers, pending_end, may_change) = {
            let inner = file.lock();
            (inner.answers(), inner.pending.end(), inner.bulk.may_change())
        };
        let ttl = if may_change { Duration::ZERO } else { ttl };
        let (mut attributes, age) = self.getattr_from_servers(caller, handle, ttl)?;
        let mut inner = file.lock();
        inner.show_after_restart(self);
        if inner.answers() != answers {
            // A write was answered meanwhile: this may be older.
            self.attributes.expire(handle);
        }
        inner.note_size(attributes.size, answers);
        // A drive that was restarted may know less than what is kept for it here.
        attributes.size = attributes.size.max(pending_end).max(inner.pending.end());
        Ok((attributes, age))
    }

    /// Attributes of which only length and times may be older than `Settings::attribute_ttl`. Nothing
    /// that is written waits for it, or is waited for.
    pub(crate) fn standing(
        self: &Arc<Self>,
        caller: &Arc<Caller>,
        handle: FileHandle,
    ) -> Result<FileAttributes, ClerkError> {
        if let Some(promises) = self.promises()
            && let Some((_, known)) = promises.believed(handle)
        {
            return Ok(known);
        }
        if let Some(known) = self.attributes.standing(handle, self.settings.attribute_ttl) {
            return Ok(known);
        }
        let told = self.getattr_from_servers(caller, handle, Duration::ZERO);
        if self.promises().is_none() && self.open_file(handle).is_some() {
            // What is written here and not sent is not in the length that was told.
            self.attributes.expire(handle);
        }
        told.map(|(attributes, _)| attributes)
    }

    /// Attributes as the drive or the manager tells them, without what is written here and not sent.
    pub(crate) fn getattr_from_servers(
        self: &Arc<Self>,
        caller: &Arc<Caller>,
        handle: FileHandle,
        ttl: Duration,
    ) -> Result<(FileAttributes, Duration), ClerkError> {
        if let Some(promises) = self.promises() {
            let told = self.getattr_promised(promises, caller, handle)?;
            return Ok((told, Duration::ZERO));
        }
        if let Some(known) = self.attributes.fresh(handle, ttl) {
            self.measures.attributes_known.add(1);
            return Ok(known);
        }
        self.measures.attributes_asked.add(1);
        let slot = self.grants.slot(caller, handle);
        let asked = Instant::now();
        if self.attributes.is_of_drive(handle) && slot.current().is_some() {
            match self.with_grant(&slot, |grant| self.objects.getattr(grant)) {
                Ok(drive) => {
                    if let Some(attributes) = self.attributes.merge(handle, &drive, asked) {
                        return Ok((attributes, Duration::ZERO));
                    }
                }
                Err(error) if error.wants_new_capability() => {}
                Err(error) => return Err(error),
            }
        }
        let asked = Instant::now();
        let file = self.ask_names(|names| names.getattr(caller, handle))?;
        self.learn(caller, &file, asked);
        Ok((file.attributes, Duration::ZERO))
    }

    /// Bytes that were written and are not durable, and the files that they are of.
    pub(crate) fn undurable(&self) -> (u64, usize) {
        let bytes = lock(&self.lanes).values().map(|lane| lane.budget.used()).sum();
        (bytes, self.dirty().files.len())
    }

    /// Ends the threads that have nothing to do; queued work is still done.
    pub(crate) fn close_pools(&self) {
        self.renewals.close();
        self.listers.close();
        self.finders.close();
        for lane in lock(&self.lanes).values() {
            lane.senders.close();
            lane.fetchers.close();
            lane.tellers.close();
        }
    }
}
