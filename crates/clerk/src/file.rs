//! One file that is open, or not durable yet: shared by all openings of it in this clerk.
//!
//! Writes go into `pending` and leave through the drive's lane; reads see them from there. What a
//! drive has acknowledged stays in `pending` until a flush answered by the same instance of the
//! drive, so that a drive that is killed and started again loses nothing of a living client.
//!
//! A modification time that was set is kept in the same way (`times`).
//!
//! What is appended has no place yet, and waits in `appending`; how it gets to the drive is in `appends`.
//! Everything else that is done with the file comes behind what was appended before.
//!
//! Locks: `inner` is taken before a lane's budget and before the clerk's list of dirty files, and
//! never held during a call to a drive or the manager.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use nasd_client::interrupt::{self, Interrupted};
use nasd_protocol::Status;
use nasd_types::ByteRange;
use nasd_types::limits::MAX_OBJECT_BYTES;

use crate::ClerkError;
use crate::appending::Appending;
use crate::backend::Grant;
use crate::budget::Exhausted;
use crate::buffers::{BUFFER_BYTES, SpareBuffers};
use crate::bulk::BulkUses;
use crate::callbacks::{Given, Store, Unfinished, Until};
use crate::core::{Core, Lane};
use crate::extending::{ExtendedPart, ExtensionCall};
use crate::fetched::Fetched;
use crate::grants::{Slot, Writer};
use crate::hinted::Hinted;
use crate::hints::HintStream;
use crate::latch::ErrorLatch;
use crate::pending::{Answer, Outgoing, Pending};
use crate::times::KeptTime;
use crate::wire::{Caller, Copied, FileHandle, SeekTarget, Written};

/// Waiting threads look around at least this often.
const LOOK_AROUND: Duration = Duration::from_millis(500);

/// The state of one file.
pub(crate) struct FileState {
    pub(crate) handle: FileHandle,
    /// Whether `appending` has anything, to be had without the lock.
    pub(crate) has_appends: AtomicBool,
    pub(crate) lane: Arc<Lane>,
    inner: Mutex<Inner>,
    changed: Condvar,
    /// Held by the one who asks the drive to flush; the others then often find it done.
    pub(crate) flush_turn: Mutex<()>,
    /// Held by the one who stores the file, where the volume has callbacks, and by the one who asks for another capability for that.
    pub(crate) store_turn: Mutex<()>,
    pub(crate) store_renewal: Mutex<()>,
    background: AtomicBool,
}

/// What the lock protects.
pub(crate) struct Inner {
    pub(crate) pending: Pending<Writer>,
    pub(crate) appending: Appending<Writer>,
    pub(crate) fetched: Fetched,
    pub(crate) hinted: Hinted,
    /// Streams of hints that have some of the file.
    pub(crate) watchers: Vec<Weak<HintStream>>,
    pub(crate) errors: ErrorLatch,
    pub(crate) time: KeptTime,
    /// Length of the object, as the drive told last.
    pub(crate) drive_size: u64,
    /// How often drives had started anew when it was looked at last what of `pending` is to be hidden.
    restarts: Option<u64>,
    /// When its length was told, unless somebody has changed it since.
    size_told: Option<Instant>,
    /// Answers to writes so far: tells an old attribute answer from a new one.
    answers: u64,
    /// When the last one came.
    answered: Instant,
    /// Bytes reserved in the lane's budget on behalf of `pending` and `appending`.
    pub(crate) charged: u64,
    /// A truncation is on its way: writes wait.
    pub(crate) gate: bool,
    /// The file is being removed: nothing needs to be kept.
    doomed: bool,
    /// The store under way, where the volume has callbacks.
    pub(crate) store: Option<Store>,
    /// Or what has come with the file, and may be used to store it.
    pub(crate) given: Option<Given>,
    /// A store that was begun and that nobody has returned, as whoever waited was interrupted.
    pub(crate) unfinished: Option<Unfinished>,
    /// Who has asked for a store that has not ended: it may have begun though nobody knows of it here, if he was interrupted.
    pub(crate) begun: Option<Arc<Caller>>,
    /// Who has cut the file to nothing, which comes with the next store: nothing is shown of what the drive has.
    pub(crate) emptied: Option<Writer>,
    /// What was written before this number is stored, or about to be.
    pub(crate) target: Option<u64>,
    /// The version that what was read is of.
    pub(crate) shown: Option<u64>,
    /// Who may read and write the file past this clerk.
    pub(crate) bulk: BulkUses,
    /// Writes go to the drive at once, because the last ones failed.
    pub(crate) write_through: bool,
    /// Whoever wrote last: with his capability the file is flushed.
    writer: Option<Writer>,
    pub(crate) last_write: Instant,
    pub(crate) dirty_since: Option<Instant>,
}

impl Inner {
    /// Length as a local reader sees it.
    pub(crate) fn size(&self) -> u64 {
        self.drive_size.max(self.pending.end())
    }

    /// Whether the drive's file is known to end at or before `offset`, as of not long ago.
    pub(crate) fn ends_before(&self, offset: u64, ttl: Duration) -> bool {
        self.drive_size <= offset && self.knows_size_within(ttl)
    }

    /// Whether the file is known to end at `offset`, own writes included, as of not long ago.
    pub(crate) fn ends_at(&self, offset: u64, ttl: Duration) -> bool {
        self.size() == offset && self.knows_size_within(ttl)
    }

    fn knows_size_within(&self, ttl: Duration) -> bool {
        !self.bulk.may_change() && self.size_told.is_some_and(|told| told.elapsed() < ttl)
    }

    /// Somebody has changed the file, or may have: nothing is known of its bytes and its length.
    pub(crate) fn was_changed_elsewhere(&mut self, core: &Core) {
        self.forget_read();
        self.hide_acknowledged(core);
        self.size_told = None;
    }

    /// Bytes that are not durable, or not known to be.
    fn held_bytes(&self) -> u64 {
        self.pending.held_bytes() + self.appending.held_bytes()
    }

    /// Whether there are so many that they should be made durable.
    pub(crate) fn holds_much(&self, core: &Core, lane: &Lane) -> bool {
        self.held_bytes() >= lane.flush_after_bytes(&core.settings)
    }

    /// The drive told the length, in answer to a request made when `answers` was as given.
    pub(crate) fn note_size(&mut self, size: u64, answers: u64) {
        if self.emptied.is_some() {
            return;
        }
        let current = self.answers == answers;
        self.drive_size = if current { size } else { self.drive_size.max(size) };
        self.size_told = Some(Instant::now());
    }

    /// Bytes up to `end` were appended.
    pub(crate) fn note_appended(&mut self, range: ByteRange, size: u64) {
        self.drop_read(range);
        self.note_grown(size);
    }

    /// What was read ahead of a range may not be used any more.
    pub(crate) fn drop_read(&mut self, range: ByteRange) {
        self.fetched.drop_overlapping(range);
        self.hinted.drop_overlapping(range);
    }

    /// Nor may what was read ahead at all.
    pub(crate) fn forget_read(&mut self) {
        self.fetched.clear();
        self.hinted.clear();
    }

    /// A stream of hints wants to know what is read.
    pub(crate) fn watch(&mut self, stream: &Arc<HintStream>) {
        self.watchers.retain(|watcher| watcher.strong_count() > 0);
        if !self.watchers.iter().any(|watcher| watcher.as_ptr() == Arc::as_ptr(stream)) {
            self.watchers.push(Arc::downgrade(stream));
        }
    }

    /// The drive told a length, other than in answer to a write.
    fn note_grown(&mut self, size: u64) {
        self.note_answer();
        self.drive_size = self.drive_size.max(size);
        self.size_told = Some(Instant::now());
    }

    /// Notes that the drive runs as `instance`. Returns how many chunks must be sent again.
    fn heard(&mut self, lane: &Lane, instance: u64) -> usize {
        lane.instance.store(instance, Ordering::Release);
        let requeued = self.pending.requeue_other_instances(instance);
        self.time.heard(instance, requeued);
        requeued
    }

    /// The drive has answered a change.
    fn note_answer(&mut self) {
        self.answers += 1;
        self.answered = Instant::now();
    }

    /// Whether it has since then.
    pub(crate) fn has_answered_since(&self, then: Instant) -> bool {
        self.answered >= then
    }

    /// To be given to `note_size` later.
    pub(crate) fn answers(&self) -> u64 {
        self.answers
    }

    /// The file is opened anew: what others have written is to be seen, also in the place of what was written here before and the drive has.
    pub(crate) fn hide_acknowledged(&mut self, core: &Core) {
        self.restarts = core.objects.restarts();
        self.pending.hide_acknowledged(self.restarts);
    }

    /// Readers see again what was hidden from them if a drive has started anew since, as it may have lost that. Tells whether.
    pub(crate) fn show_after_restart(&mut self, core: &Core) -> bool {
        let is_anew = self.pending.hides_any() && core.objects.restarts() != self.restarts;
        if is_anew {
            self.hide_acknowledged(core);
        }
        is_anew
    }

    /// How often drives had started anew when it was looked at last, if that is told.
    pub(crate) fn restarts(&self) -> Option<u64> {
        self.restarts
    }

    /// Whether something is hidden from readers that lies behind a length which was told.
    pub(crate) fn is_hiding_behind(&self, length: u64) -> bool {
        self.pending.hides_any() && length < self.pending.end_of_all()
    }

    /// The oldest bytes that are to be sent now. What is written while the file is stored comes with the next store.
    fn take_to_send(&mut self) -> Option<Outgoing<Writer>> {
        match &self.store {
            Some(store) => self.pending.take_queued_before(store.target),
            None => self.pending.take_queued(),
        }
    }

    /// What was written before this number is to be with the drive: everything, or what is being stored.
    fn sent_before(&self) -> u64 {
        self.store.as_ref().map_or(self.pending.next_id(), |store| store.target)
    }

    /// The same of what was appended.
    pub(crate) fn appended_before(&self) -> u64 {
        self.store.as_ref().map_or(self.appending.next(), |store| store.appends)
    }

    /// Whether bytes of `range` are on their way, so that nothing can take their place now.
    fn is_being_sent(&self, range: ByteRange) -> bool {
        let is_stored = |target: u64| self.pending.has_unsent_of(range, target);
        self.pending.is_in_flight(range) || self.target.is_some_and(is_stored)
    }

    /// What was done to the file here, and is not on its way, is not to be kept.
    pub(crate) fn forget_written(&mut self) {
        self.pending.discard();
        self.appending.discard();
        self.time.forget();
        self.emptied = None;
    }

    /// Whether nothing is being done to the file here.
    fn is_at_rest(&self) -> bool {
        let is_stored = self.store.is_some() || self.target.is_some() || self.begun.is_some();
        self.is_durable() && !is_stored && !self.gate && !self.doomed
    }

    /// Who wrote last.
    pub(crate) fn last_writer(&self) -> Option<Arc<Caller>> {
        Some(Arc::clone(&self.writer.as_ref()?.0.caller))
    }

    /// Where something is hidden from readers: how often drives had started anew then.
    pub(crate) fn hides_since(&self) -> Option<u64> {
        self.restarts.filter(|_| self.pending.hides_any())
    }
}

/// What to do next on the way to durability.
enum Step {
    /// Nothing: everything is durable.
    Done,
    /// Somebody else is sending: look again later.
    Wait,
    /// Send this; with `true`, it is the last one and may as well be the flush.
    Send(Box<Outgoing<Writer>>, bool),
    /// Everything is with the drive, which may have lost the time that was set.
    SetTime,
    /// Everything is with the drive: flush.
    Flush,
}

impl FileState {
    /// The state of a file that nobody has touched.
    pub(crate) fn new(handle: FileHandle, lane: Arc<Lane>, spare: SpareBuffers) -> Self {
        let inner = Inner {
            pending: Pending::new(spare),
            appending: Appending::default(),
            fetched: Fetched::default(),
            hinted: Hinted::default(),
            watchers: Vec::new(),
            errors: ErrorLatch::default(),
            time: KeptTime::default(),
            drive_size: 0,
            restarts: None,
            size_told: Some(Instant::now()),
            answers: 0,
            answered: Instant::now(),
            charged: 0,
            gate: false,
            doomed: false,
            store: None,
            given: None,
            unfinished: None,
            begun: None,
            emptied: None,
            target: None,
            shown: None,
            bulk: BulkUses::default(),
            write_through: false,
            writer: None,
            last_write: Instant::now(),
            dirty_since: None,
        };
        FileState {
            handle,
            has_appends: AtomicBool::new(false),
            lane,
            inner: Mutex::new(inner),
            changed: Condvar::new(),
            flush_turn: Mutex::default(),
            store_turn: Mutex::default(),
            store_renewal: Mutex::default(),
            background: AtomicBool::new(false),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn notify(&self) {
        self.changed.notify_all();
    }

    /// Waits for a change, for a while; or tells that nobody wants to wait any more, once nothing
    /// has changed for so long.
    pub(crate) fn wait<'a>(
        &self,
        inner: MutexGuard<'a, Inner>,
    ) -> Result<MutexGuard<'a, Inner>, Interrupted> {
        let woken = self.changed.wait_timeout(inner, LOOK_AROUND);
        let (inner, waited) = woken.unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            interrupt::check()?;
        }
        Ok(inner)
    }

    /// Takes a write of at most a few MiB; it reaches the drive later.
    pub(crate) fn write(
        self: &Arc<Self>,
        core: &Arc<Core>,
        writer: &Writer,
        offset: u64,
        data: &[u8],
    ) -> Result<(), ClerkError> {
        let length = data.len() as u64;
        if offset.checked_add(length).is_none_or(|end| end > MAX_OBJECT_BYTES) {
            return Err(ClerkError::TooLarge);
        }
        let deadline = core.deadline();
        self.commit_appends(core)?;
        self.reserve(core, length, deadline)?;
        let range = ByteRange::new(offset, length);
        let mut inner = self.lock();
        while inner.gate || inner.is_being_sent(range) {
            if Instant::now() >= deadline {
                drop(inner);
                self.lane.budget.release(length);
                return Err(self.away());
            }
            inner = self.wait(inner).inspect_err(|_| self.lane.budget.release(length))?;
        }
        let queued = inner.pending.put(offset, data, writer);
        inner.time.forget();
        inner.charged += length;
        inner.drop_read(range);
        inner.writer = Some(writer.clone());
        inner.last_write = Instant::now();
        if inner.dirty_since.is_none() {
            inner.dirty_since = Some(inner.last_write);
            core.mark_dirty(self);
        }
        self.settle(&mut inner);
        let errors_before = inner.errors.count();
        let (write_through, much) = (inner.write_through, inner.holds_much(core, &self.lane));
        drop(inner);
        // Where there are callbacks the file is stored as a whole.
        let is_sent = core.promises().is_none();
        self.submit_sends(core, if is_sent { queued } else { 0 });
        self.go_on_after_write(core, write_through.then_some(errors_before), much)
    }

    /// Takes memory for bytes that are not durable yet.
    pub(crate) fn reserve(
        self: &Arc<Self>,
        core: &Arc<Core>,
        bytes: u64,
        deadline: Instant,
    ) -> Result<(), ClerkError> {
        let make_room = || core.flush_all_of(&self.lane);
        let reserved = self.lane.budget.reserve(bytes, deadline, make_room);
        reserved.map_err(|exhausted| match exhausted {
            Exhausted::Late => self.away(),
            Exhausted::Interrupted => ClerkError::Interrupted,
        })
    }

    /// What follows when bytes were taken: they are made durable at once if earlier ones failed, of
    /// which there were so many failures, unless the file is stored as a whole; or soon if there are many.
    pub(crate) fn go_on_after_write(
        self: &Arc<Self>,
        core: &Arc<Core>,
        write_through: Option<u64>,
        much: bool,
    ) -> Result<(), ClerkError> {
        if let Some(errors_before) = write_through.filter(|_| core.promises().is_none()) {
            match self.sync_reporting(core, errors_before) {
                // The bytes are taken, and what becomes of them is told later.
                Err(ClerkError::Interrupted) => return Ok(()),
                outcome => outcome?,
            }
            self.lock().write_through = false;
        }
        let uses = self.lock().bulk;
        if uses.any() {
            let settled = if uses.may_change() { self.sync(core) } else { self.drain(core) };
            // Other failures are kept for those who wrote.
            if let Err(ClerkError::Interrupted) = settled {
                self.sync_in_background(core);
            }
        } else if much || self.lane.budget.is_tight() {
            self.sync_in_background(core);
        }
        Ok(())
    }

    pub(crate) fn away(&self) -> ClerkError {
        ClerkError::Unreachable(format!("drive {} takes no writes", self.handle.drive))
    }

    /// Makes the budget agree with what is held.
    pub(crate) fn settle(&self, inner: &mut Inner) {
        let held = inner.held_bytes();
        self.has_appends.store(!inner.appending.is_empty(), Ordering::Release);
        debug_assert!(inner.charged >= held, "memory is reserved before it is used");
        self.lane.budget.release(inner.charged.saturating_sub(held));
        inner.charged = held;
    }

    fn submit_sends(self: &Arc<Self>, core: &Arc<Core>, count: usize) {
        for _ in 0..count {
            let (core, file) = (Arc::clone(core), Arc::clone(self));
            self.lane.senders.submit(move || {
                let mut inner = file.lock();
                // Where there are callbacks, what comes with the next store is not sent before that has begun.
                let may_send = core.promises().is_none() || inner.store.is_some();
                let outgoing = if may_send { inner.take_to_send() } else { None };
                drop(inner);
                if let Some(outgoing) = outgoing {
                    // Nobody interrupts this thread.
                    let _ = file.send(&core, &outgoing, false);
                }
            });
        }
    }

    /// Sends a chunk and deals with the answer. When that is interrupted, the chunk waits for
    /// another sender.
    fn send(
        self: &Arc<Self>,
        core: &Arc<Core>,
        outgoing: &Outgoing<Writer>,
        durable: bool,
    ) -> Result<(), ClerkError> {
        // A durable answer covers what was acknowledged before the request, and nothing later.
        let mark = self.lock().pending.acknowledged();
        let restarts = core.objects.restarts();
        let piece = &outgoing.piece;
        let write = || {
            core.with_grant_to_change(&outgoing.writer.0, |grant| {
                core.objects.write(grant, piece.offset, piece.data(), durable)
            })
        };
        let mut answer = write();
        if answer == Err(ClerkError::Drive(Status::NoSpace)) && core.reclaim_space() {
            answer = write();
        }
        core.expire(self.handle);
        self.lane.widen(core.objects.breadth(self.handle.drive), &core.settings);
        let mut inner = self.lock();
        let requeued = match answer {
            Ok(written) => {
                let answer = Answer { instance: written.instance, restarts, durable };
                inner.pending.acknowledge(outgoing, answer);
                let mark = durable.then_some(mark);
                note_written(&mut inner, &self.lane, outgoing, &written, mark)
            }
            Err(ClerkError::Interrupted) => {
                inner.pending.put_back(outgoing);
                self.after_answer(core, inner, 1);
                return Err(ClerkError::Interrupted);
            }
            Err(error) => {
                inner.pending.drop_failed(outgoing);
                self.note_failure(core, &mut inner, error);
                0
            }
        };
        self.after_answer(core, inner, requeued);
        Ok(())
    }

    pub(crate) fn note_failure(
        self: &Arc<Self>,
        core: &Core,
        inner: &mut Inner,
        error: ClerkError,
    ) {
        if inner.doomed {
            return;
        }
        let is_gone = error.is_gone();
        if !is_gone {
            tracing::warn!(%error, handle = ?self.handle, "written data is lost");
        }
        inner.errors.record(error);
        inner.write_through = true;
        // Of a file that was removed nothing is lost that anybody could find again.
        if !is_gone {
            core.keep_failed(self);
        }
    }

    pub(crate) fn after_answer(
        self: &Arc<Self>,
        core: &Arc<Core>,
        mut inner: MutexGuard<'_, Inner>,
        requeued: usize,
    ) {
        if inner.doomed {
            inner.forget_written();
        }
        self.settle(&mut inner);
        if inner.is_settled() && inner.dirty_since.take().is_some() {
            core.mark_clean(self.handle);
        }
        let has_lost_time = requeued > 0 && inner.time.is_kept();
        drop(inner);
        self.notify();
        if requeued > 0 {
            tracing::info!(handle = ?self.handle, requeued, "writing again");
            self.submit_sends(core, requeued);
        }
        if has_lost_time {
            self.sync_in_background(core);
        }
    }

    /// Waits until the drive has everything written so far, durably or not. Failures are kept for
    /// those who wrote.
    pub(crate) fn drain(self: &Arc<Self>, core: &Arc<Core>) -> Result<(), ClerkError> {
        if core.promises().is_some() {
            return match self.sync(core) {
                Err(ClerkError::Interrupted) => Err(ClerkError::Interrupted),
                _ => Ok(()),
            };
        }
        self.commit_appends(core)?;
        self.drain_writes(core)
    }

    /// The same of what was not appended.
    pub(crate) fn drain_writes(self: &Arc<Self>, core: &Arc<Core>) -> Result<(), ClerkError> {
        let mut inner = self.lock();
        if !inner.pending.has_unacknowledged_before(u64::MAX) {
            return Ok(());
        }
        let target = inner.sent_before();
        let sealed = inner.pending.seal();
        drop(inner);
        self.submit_sends(core, sealed.saturating_sub(1));
        let mut inner = self.lock();
        while inner.pending.has_unacknowledged_before(target) {
            match inner.take_to_send() {
                Some(outgoing) => {
                    drop(inner);
                    self.send(core, &outgoing, false)?;
                    inner = self.lock();
                }
                None => inner = self.wait(inner)?,
            }
        }
        Ok(())
    }

    /// Makes everything written so far durable. Returns the first failure met on the way; it is
    /// also kept for each open file.
    pub(crate) fn sync(self: &Arc<Self>, core: &Arc<Core>) -> Result<(), ClerkError> {
        let errors_before = self.lock().errors.count();
        self.sync_reporting(core, errors_before)
    }

    /// `sync` that returns any failure after the first `errors_before`.
    fn sync_reporting(
        self: &Arc<Self>,
        core: &Arc<Core>,
        errors_before: u64,
    ) -> Result<(), ClerkError> {
        match core.promises() {
            Some(_) => self.store(core, errors_before, Until::Returned),
            None => self.sync_now(core, errors_before),
        }
    }

    /// The same for who wants no more of the file.
    pub(crate) fn make_durable(self: &Arc<Self>, core: &Arc<Core>) -> Result<(), ClerkError> {
        let errors_before = self.lock().errors.count();
        match core.promises() {
            Some(_) => self.store(core, errors_before, Until::Done),
            None => self.sync_now(core, errors_before),
        }
    }

    /// What close does: the drive has everything written so far, and others read it.
    pub(crate) fn close(self: &Arc<Self>, core: &Arc<Core>) -> Result<(), ClerkError> {
        match core.promises() {
            Some(_) => self.make_durable(core),
            None => self.drain(core),
        }
    }

    /// The same without more ado: where there are callbacks, the file is being stored.
    pub(crate) fn sync_now(
        self: &Arc<Self>,
        core: &Arc<Core>,
        errors_before: u64,
    ) -> Result<(), ClerkError> {
        self.commit_appends_now(core)?;
        let mut inner = self.lock();
        let target = inner.sent_before();
        let sealed = inner.pending.seal();
        drop(inner);
        // The caller sends one, and the last one is sent as the flush.
        self.submit_sends(core, sealed.saturating_sub(2));
        loop {
            let mut inner = self.lock();
            match next_step(&mut inner, target) {
                Step::Done => break,
                Step::Wait => drop(self.wait(inner)?),
                Step::Send(outgoing, durable) => {
                    drop(inner);
                    self.send(core, &outgoing, durable)?;
                }
                Step::SetTime => {
                    drop(inner);
                    self.set_time_again(core)?;
                }
                Step::Flush => {
                    let mark = inner.pending.acknowledged();
                    let writer = inner.writer.clone().or_else(|| inner.time.writer());
                    drop(inner);
                    self.flush(core, writer, mark)?;
                }
            }
        }
        self.lock().errors.since(errors_before).map_or(Ok(()), Err)
    }

    /// Asks the drive to flush what it acknowledged up to `mark`.
    fn flush(
        self: &Arc<Self>,
        core: &Arc<Core>,
        writer: Option<Writer>,
        mark: u64,
    ) -> Result<(), ClerkError> {
        let _turn = interrupt::lock(&self.flush_turn)?;
        let inner = self.lock();
        let time_mark = inner.time.mark();
        if time_mark.is_none() && !inner.pending.has_retained_to(mark) {
            return Ok(());
        }
        drop(inner);
        let Some(writer) = writer else { return Ok(()) };
        let flush = |grant: &Grant| core.objects.flush(grant);
        let answer = core.with_grant_to_change(&writer.0, flush);
        let mut inner = self.lock();
        let requeued = match answer {
            Ok(instance) => {
                inner.pending.release(instance, mark);
                let requeued = inner.heard(&self.lane, instance);
                inner.time.flushed(instance, time_mark);
                requeued
            }
            Err(ClerkError::Interrupted) => return Err(ClerkError::Interrupted),
            Err(error) => {
                inner.pending.give_up(mark);
                inner.time.give_up(time_mark);
                self.note_failure(core, &mut inner, error);
                0
            }
        };
        self.after_answer(core, inner, requeued);
        Ok(())
    }

    /// Begins to make everything durable, unless that is already under way.
    pub(crate) fn sync_in_background(self: &Arc<Self>, core: &Arc<Core>) {
        if self.background.swap(true, Ordering::AcqRel) {
            return;
        }
        let (core, file) = (Arc::clone(core), Arc::clone(self));
        self.lane.senders.submit(move || {
            // A failure is kept for those who wrote.
            let _ = file.sync(&core);
            file.background.store(false, Ordering::Release);
        });
    }

    /// Whether it is time for a flush in the background: it was not written for so long, or flushed for so long.
    pub(crate) fn is_due(&self, idle: Duration, at_least: Duration) -> bool {
        let inner = self.lock();
        inner
            .dirty_since
            .is_some_and(|since| inner.last_write.elapsed() >= idle || since.elapsed() >= at_least)
    }

    /// Runs a change of the file's length: after everything written before, and before everything
    /// written later.
    pub(crate) fn truncate<T>(
        self: &Arc<Self>,
        core: &Arc<Core>,
        size: u64,
        change: impl FnOnce() -> Result<T, ClerkError>,
    ) -> Result<T, ClerkError> {
        self.alone(core, Some(size), change)
    }

    /// Cuts the file to nothing as of now for those who use it here, and for others with the next store. Tells whether that can be.
    pub(crate) fn empty(self: &Arc<Self>, core: &Core, writer: &Writer) -> bool {
        let mut inner = self.lock();
        if !inner.is_at_rest() {
            return false;
        }
        inner.emptied = Some(writer.clone());
        inner.drive_size = 0;
        inner.forget_read();
        inner.writer = Some(writer.clone());
        inner.last_write = Instant::now();
        inner.dirty_since = Some(inner.last_write);
        core.mark_dirty(self);
        true
    }

    /// Frees a part of the file, in order with what is written.
    pub(crate) fn punch(
        self: &Arc<Self>,
        core: &Arc<Core>,
        slot: &Arc<Slot>,
        range: ByteRange,
    ) -> Result<(), ClerkError> {
        let punch_it = || {
            // The capability to store may reach no further than the file.
            let size = self.lock().store.as_ref().map(|store| store.attributes_before().size);
            let length = size
                .map_or(range.length, |size| range.length.min(size.saturating_sub(range.offset)));
            if length == 0 {
                // The store's version is to be durable all the same.
                return core
                    .with_grant_to_change(slot, |grant| core.objects.flush(grant))
                    .map(drop);
            }
            let range = ByteRange::new(range.offset, length);
            core.with_grant_to_change(slot, |grant| core.objects.punch(grant, range))
        };
        let punch = || self.storing(core, &slot.caller, 0, punch_it);
        let outcome = self.alone(core, None, punch);
        core.expire(self.handle);
        outcome
    }

    /// Has the drive put other bytes into the file, in order with what is written.
    pub(crate) fn put_copied(
        self: &Arc<Self>,
        core: &Arc<Core>,
        copy: impl FnOnce() -> Result<Copied, ClerkError>,
    ) -> Result<Copied, ClerkError> {
        let copied = self.alone(core, None, copy)?;
        let mut inner = self.lock();
        inner.note_grown(copied.attributes.logical_size);
        Ok(copied)
    }

    /// Where data, or a hole, begins next, what was written here included.
    pub(crate) fn seek(
        self: &Arc<Self>,
        core: &Arc<Core>,
        slot: &Arc<Slot>,
        offset: u64,
        target: SeekTarget,
    ) -> Result<Option<u64>, ClerkError> {
        self.drain(core)?;
        core.with_grant(slot, |grant| core.objects.seek(grant, offset, target))
    }

    /// Has extensions of the drives do something with a range, what was written here included.
    pub(crate) fn extend(
        self: &Arc<Self>,
        core: &Arc<Core>,
        slot: &Arc<Slot>,
        range: ByteRange,
        call: &ExtensionCall,
    ) -> Result<Vec<ExtendedPart>, ClerkError> {
        self.drain(core)?;
        core.with_grant(slot, |grant| core.objects.extend(grant, &[range], call))
    }

    /// Runs a change that nothing of what is written may pass; `size` is the length that the file
    /// has then.
    fn alone<T>(
        self: &Arc<Self>,
        core: &Arc<Core>,
        size: Option<u64>,
        change: impl FnOnce() -> Result<T, ClerkError>,
    ) -> Result<T, ClerkError> {
        let deadline = core.deadline();
        let mut inner = self.lock();
        while inner.gate {
            if Instant::now() >= deadline {
                return Err(self.away());
            }
            inner = self.wait(inner)?;
        }
        inner.gate = true;
        drop(inner);
        // Nothing may be left that could be sent again after the change and make the file grow.
        // A failure is kept for those who wrote; it does not concern the change.
        let outcome = match self.sync(core) {
            Err(ClerkError::Interrupted) => Err(ClerkError::Interrupted),
            _ => change(),
        };
        let mut inner = self.lock();
        inner.gate = false;
        inner.forget_read();
        if outcome.is_ok() {
            inner.note_answer();
            inner.time.forget();
        }
        if let Some(size) = size.filter(|_| outcome.is_ok()) {
            inner.drive_size = size;
            inner.size_told = Some(Instant::now());
        }
        drop(inner);
        self.notify();
        outcome
    }

    /// The file has no name any more and nobody will read it: what is not written need not be.
    pub(crate) fn discard(self: &Arc<Self>, core: &Arc<Core>) {
        let mut inner = self.lock();
        inner.doomed = true;
        inner.forget_written();
        self.after_answer(core, inner, 0);
    }

    /// Longest piece of a write that is taken at once.
    pub(crate) const WRITE_BYTES: usize = BUFFER_BYTES;
}

/// A write was answered. Returns how many older chunks must be sent again.
fn note_written(
    inner: &mut Inner,
    lane: &Lane,
    outgoing: &Outgoing<Writer>,
    written: &Written,
    durable_mark: Option<u64>,
) -> usize {
    // What was read ahead before the drive had this write hides it as soon as it is released.
    inner.drop_read(outgoing.piece.range());
    if let Some(mark) = durable_mark {
        inner.pending.release(written.instance, mark);
    }
    inner.note_answer();
    inner.drive_size = inner.drive_size.max(written.logical_size);
    inner.size_told = Some(Instant::now());
    inner.heard(lane, written.instance)
}

/// What brings the chunks older than `target` nearer to durability.
fn next_step(inner: &mut Inner, target: u64) -> Step {
    // A time that was set belongs behind everything: what is written later would have ended it.
    let target = if inner.time.is_kept() { u64::MAX } else { target };
    if inner.pending.has_unacknowledged_before(target) {
        // A time that was set has to be set again behind it.
        let last =
            inner.pending.unsent() == 1 && inner.pending.in_flight() == 0 && !inner.time.is_kept();
        return match inner.take_to_send() {
            Some(outgoing) => Step::Send(Box::new(outgoing), last),
            None => Step::Wait,
        };
    }
    if inner.time.is_lost() {
        return Step::SetTime;
    }
    match inner.pending.has_retained_before(target) || inner.time.is_kept() {
        true => Step::Flush,
        false => Step::Done,
    }
}
