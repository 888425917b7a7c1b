//! A drive in memory that restarts, loses what was not flushed, goes away and refuses on demand.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nasd_client::interrupt;
use nasd_types::{
    AppendToken, Attributes, ByteRange, FS_SPECIFIC_BYTES, ObjectId, Rights, Timestamp,
};

use super::bytes::SparseBytes;
use crate::ClerkError;
use crate::backend::Grant;
use crate::wire::{Appended, Copied, RangeToCopy, ReadOutcome, SeekTarget, Status, Written};

/// Between two tries to reach a drive that is away.
const TRY_AGAIN: Duration = Duration::from_millis(20);

/// Bytes that one call copies from object to object, at most.
const COPIED_AT_ONCE: u64 = 100_000;

/// Calls that a drive has answered, or refused.
#[derive(Debug, Default)]
pub struct Counters {
    /// Reads.
    pub reads: AtomicU64,
    /// Bytes read.
    pub read_bytes: AtomicU64,
    /// Writes.
    pub writes: AtomicU64,
    /// Appends.
    pub appends: AtomicU64,
    /// Copies from object to object.
    pub copies: AtomicU64,
    /// Bytes written.
    pub written_bytes: AtomicU64,
    /// Writes that were to be durable, and flushes.
    pub flushes: AtomicU64,
    /// Attribute reads.
    pub getattrs: AtomicU64,
    /// Calls under way now.
    pub under_way: AtomicU64,
    /// Most calls that were under way together.
    pub most_under_way: AtomicU64,
}

/// A call that is under way until this is dropped.
struct UnderWay<'a>(&'a Counters);

impl Counters {
    fn begin(&self) -> UnderWay<'_> {
        let now = self.under_way.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_under_way.fetch_max(now, Ordering::Relaxed);
        UnderWay(self)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One drive.
pub struct FakeDrive {
    state: Mutex<State>,
    changed: Condvar,
    deadline: Duration,
    /// What it was asked.
    pub counters: Counters,
}

struct State {
    instance: u64,
    reachable: bool,
    delay: Duration,
    /// Reads and writes wait until so many are under way together.
    gather: u64,
    /// Reads wait.
    holds_reads: bool,
    /// Capabilities with an older audit number are expired.
    oldest_capability: u64,
    fail_writes: Option<Status>,
    fail_flushes: Option<Status>,
    crash_at_write: Option<u64>,
    lost_answers: u64,
    /// Where the bytes of appends went.
    appended: HashMap<(u64, AppendToken), u64>,
    capacity_bytes: u64,
    objects: HashMap<u64, Object>,
    next_object: u64,
}

#[derive(Clone, Default)]
struct Object {
    now: Contents,
    durable: Contents,
}

#[derive(Clone, Default)]
struct Contents {
    bytes: SparseBytes,
    modify_time: Timestamp,
    /// Which nobody can set.
    data_time: Timestamp,
    attribute_time: Timestamp,
}

/// The time of day; each call tells a later one.
pub(super) fn now() -> Timestamp {
    static LATEST: AtomicU64 = AtomicU64::new(0);
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let wall = Timestamp::from_parts(since.as_secs(), since.subsec_nanos()).0;
    let before = LATEST.fetch_max(wall, Ordering::Relaxed);
    if before < wall {
        Timestamp(wall)
    } else {
        Timestamp(LATEST.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

impl FakeDrive {
    pub(super) fn new(deadline: Duration) -> Self {
        let state = State {
            instance: 1,
            reachable: true,
            delay: Duration::ZERO,
            gather: 0,
            holds_reads: false,
            oldest_capability: 0,
            fail_writes: None,
            fail_flushes: None,
            crash_at_write: None,
            lost_answers: 0,
            appended: HashMap::new(),
            capacity_bytes: u64::MAX,
            objects: HashMap::new(),
            next_object: ObjectId::FIRST_DYNAMIC.0,
        };
        FakeDrive {
            state: Mutex::new(state),
            changed: Condvar::new(),
            deadline,
            counters: Counters::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Killed and started again: whatever was not flushed is lost.
    pub fn crash(&self) {
        self.lock().crash();
    }

    /// The drive dies after the `count`th write from now, before it answers; the client, who got
    /// no answer, writes again.
    pub fn crash_at_write(&self, count: u64) {
        self.lock().crash_at_write = Some(count);
    }

    /// Makes the drive go away, or come back.
    pub fn set_reachable(&self, reachable: bool) {
        self.lock().reachable = reachable;
        self.changed.notify_all();
    }

    /// How long each call takes.
    pub fn set_delay(&self, delay: Duration) {
        self.lock().delay = delay;
    }

    /// Reads and writes wait until `count` of them are under way together, once.
    pub fn gather(&self, count: u64) {
        // Those that are under way already count: they may be all that come, and wait.
        let now = self.counters.under_way.load(Ordering::Relaxed);
        self.counters.most_under_way.store(now, Ordering::Relaxed);
        self.lock().gather = count;
    }

    /// Reads of data wait from now on, or not any more.
    pub fn hold_reads(&self, hold: bool) {
        self.lock().holds_reads = hold;
        self.changed.notify_all();
    }

    /// Every write from now on is answered with this.
    pub fn fail_writes(&self, status: Option<Status>) {
        self.lock().fail_writes = status;
    }

    /// The drive makes nothing durable by itself, and answers this.
    pub fn fail_flushes(&self, status: Option<Status>) {
        self.lock().fail_flushes = status;
    }

    /// How many bytes the drive can hold.
    pub fn set_capacity(&self, bytes: u64) {
        self.lock().capacity_bytes = bytes;
    }

    /// Capabilities minted before `number` are expired.
    pub(super) fn expire_before(&self, number: u64) {
        self.lock().oldest_capability = number;
    }

    /// An object has these bytes, durably, though the drive may be away for the clerks.
    pub(super) fn replace(&self, object: ObjectId, bytes: &[u8]) {
        let mut state = self.lock();
        if let Some(entry) = state.objects.get_mut(&object.0) {
            entry.now.bytes.set_length(0);
        }
        state.write(object.0, 0, bytes, true);
    }

    /// Which start of the drive this is.
    pub fn instance(&self) -> u64 {
        self.lock().instance
    }

    /// All bytes of an object that would survive a power cut, if it has not been removed.
    pub fn durable_bytes(&self, object: ObjectId) -> Option<Vec<u8>> {
        let state = self.lock();
        let bytes = &state.objects.get(&object.0)?.durable.bytes;
        let mut all = vec![0; usize::try_from(bytes.length()).ok()?];
        bytes.read(0, &mut all);
        Some(all)
    }

    /// The modification time of an object that would survive a power cut, if it has not been removed.
    pub fn durable_time(&self, object: ObjectId) -> Option<Timestamp> {
        Some(self.lock().objects.get(&object.0)?.durable.modify_time)
    }

    /// Waits until the drive can be reached, up to the deadline.
    fn reach(&self) -> Result<MutexGuard<'_, State>, ClerkError> {
        let mut state = self.lock();
        if !state.delay.is_zero() {
            let delay = state.delay;
            drop(state);
            std::thread::sleep(delay);
            state = self.lock();
        }
        let end = Instant::now() + self.deadline;
        self.changed.notify_all();
        while !state.reachable || !self.has_gathered(&state) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ClerkError::Unreachable("the fake drive".into()));
            }
            let woken = self.changed.wait_timeout(state, left.min(TRY_AGAIN));
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
            if !state.reachable {
                interrupt::check()?;
            }
        }
        Ok(state)
    }

    fn has_gathered(&self, state: &State) -> bool {
        self.counters.most_under_way.load(Ordering::Relaxed) >= state.gather
    }

    fn admit(
        &self,
        grant: &Grant,
        rights: Rights,
    ) -> Result<(MutexGuard<'_, State>, u64), ClerkError> {
        let state = self.reach()?;
        let capability = &grant.issued.capability;
        let object = grant.handle.object.0;
        if capability.audit_id.0 < state.oldest_capability {
            return Err(ClerkError::Drive(Status::RefusedExpired));
        }
        if !capability.rights.contains(rights) {
            return Err(ClerkError::Drive(Status::RefusedRights));
        }
        if !state.objects.contains_key(&object) {
            return Err(ClerkError::Drive(Status::RefusedDigest));
        }
        Ok((state, object))
    }

    pub(super) fn read(
        &self,
        grant: &Grant,
        offset: u64,
        into: &mut [u8],
    ) -> Result<ReadOutcome, ClerkError> {
        let _under_way = self.counters.begin();
        self.counters.reads.fetch_add(1, Ordering::Relaxed);
        let held = self.changed.wait_while(self.lock(), |state| state.holds_reads);
        drop(held.unwrap_or_else(PoisonError::into_inner));
        let (state, object) = self.admit(grant, Rights::READ)?;
        let contents = state.objects[&object].now.clone();
        drop(state);
        let length = contents.bytes.read(offset, into);
        self.counters.read_bytes.fetch_add(length as u64, Ordering::Relaxed);
        let logical_size = contents.bytes.length();
        Ok(ReadOutcome { length, logical_size, fs_data_modify_time: contents.modify_time })
    }

    pub(super) fn punch(&self, grant: &Grant, range: ByteRange) -> Result<(), ClerkError> {
        let (mut state, object) = self.admit(grant, Rights::WRITE)?;
        let entry = state.objects.entry(object).or_default();
        entry.now.bytes.punch(range);
        entry.now.modify_time = now();
        entry.now.data_time = entry.now.modify_time;
        state.make_durable(object);
        Ok(())
    }

    pub(super) fn seek(
        &self,
        grant: &Grant,
        offset: u64,
        target: SeekTarget,
    ) -> Result<Option<u64>, ClerkError> {
        let (state, object) = self.admit(grant, Rights::READ)?;
        Ok(state.objects.get(&object).and_then(|entry| entry.now.bytes.seek(offset, target)))
    }

    /// At most a few bytes at once, so that callers have to go on.
    pub(super) fn copy_range(
        &self,
        target: &Grant,
        source: &Grant,
        copy: &RangeToCopy,
    ) -> Result<Copied, ClerkError> {
        assert_eq!((copy.name, copy.source), (target.handle.name(), source.handle.object));
        self.counters.copies.fetch_add(1, Ordering::Relaxed);
        let (state, from) = self.admit(source, Rights::READ)?;
        let mut bytes = vec![0; copy.length.min(COPIED_AT_ONCE) as usize];
        let length = state.objects[&from].now.bytes.read(copy.source_offset, &mut bytes);
        drop(state);
        let (mut state, object) = self.admit(target, Rights::WRITE)?;
        state.check_room(&bytes[..length])?;
        if length > 0 {
            state.write(object, copy.offset, &bytes[..length], true);
        }
        let attributes = attributes(&state.objects[&object].now);
        Ok(Copied { length: length as u64, attributes })
    }

    pub(super) fn write(
        &self,
        grant: &Grant,
        offset: u64,
        data: &[u8],
        durable: bool,
    ) -> Result<Written, ClerkError> {
        let _under_way = self.counters.begin();
        self.counters.writes.fetch_add(1, Ordering::Relaxed);
        self.counters.written_bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
        if durable {
            self.counters.flushes.fetch_add(1, Ordering::Relaxed);
        }
        let (mut state, object) = self.admit(grant, Rights::WRITE)?;
        if let Some(status) = state.fail_writes {
            return Err(ClerkError::Drive(status));
        }
        state.check_room(data)?;
        let written = state.write(object, offset, data, durable);
        match state.crash_at_write {
            Some(0 | 1) => {
                state.crash_at_write = None;
                state.crash();
                Ok(state.write(object, offset, data, durable))
            }
            Some(count) => {
                state.crash_at_write = Some(count - 1);
                Ok(written)
            }
            None => Ok(written),
        }
    }

    pub(super) fn append(
        &self,
        grant: &Grant,
        (token, age): (AppendToken, Duration),
        data: &[u8],
    ) -> Result<Appended, ClerkError> {
        let _under_way = self.counters.begin();
        self.counters.appends.fetch_add(1, Ordering::Relaxed);
        let (mut state, object) = self.admit(grant, Rights::WRITE)?;
        if let Some(status) = state.fail_writes {
            return Err(ClerkError::Drive(status));
        }
        let before = state.appended.get(&(object, token)).copied();
        assert!(before.is_none() || !age.is_zero(), "one that is asked for again says so");
        let offset = match before {
            Some(offset) => offset,
            None => {
                state.check_room(data)?;
                let offset = state.objects[&object].now.bytes.length();
                state.write(object, offset, data, true);
                state.appended.insert((object, token), offset);
                offset
            }
        };
        if state.lost_answers > 0 {
            state.lost_answers -= 1;
            state.crash();
            return Err(ClerkError::Interrupted);
        }
        Ok(Appended { offset, attributes: attributes(&state.objects[&object].now) })
    }

    /// The drive dies after each of the next `count` appends, before it answers, and whoever asked
    /// does not wait for it.
    pub fn lose_answers(&self, count: u64) {
        self.lock().lost_answers = count;
    }

    pub(super) fn flush(&self, grant: &Grant) -> Result<u64, ClerkError> {
        self.counters.flushes.fetch_add(1, Ordering::Relaxed);
        let (mut state, object) = self.admit(grant, Rights::FLUSH)?;
        if let Some(status) = state.fail_flushes {
            return Err(ClerkError::Drive(status));
        }
        let instance = state.instance;
        state.make_durable(object);
        Ok(instance)
    }

    pub(super) fn getattr(&self, grant: &Grant) -> Result<Attributes, ClerkError> {
        self.counters.getattrs.fetch_add(1, Ordering::Relaxed);
        let _under_way = self.counters.begin();
        let (state, object) = self.admit(grant, Rights::GETATTR)?;
        Ok(attributes(&state.objects[&object].now))
    }

    /// What the manager does with the drive key; it gives up at once when the drive is away.
    pub(super) fn create(&self) -> Option<ObjectId> {
        let mut state = self.reachable()?;
        let object = state.next_object;
        state.next_object += 1;
        let time = now();
        let contents = Contents {
            bytes: SparseBytes::default(),
            modify_time: time,
            data_time: time,
            attribute_time: time,
        };
        state.objects.insert(object, Object { now: contents.clone(), durable: contents });
        Some(ObjectId(object))
    }

    pub(super) fn remove(&self, object: ObjectId) -> Option<()> {
        self.reachable()?.objects.remove(&object.0);
        Some(())
    }

    pub(super) fn inspect(&self, object: ObjectId) -> Option<Option<Attributes>> {
        let state = self.reachable()?;
        Some(state.objects.get(&object.0).map(|object| attributes(&object.now)))
    }

    /// Changes length, data time and attribute time: a length durably, a data time not, and the third
    /// as the journal does, which is not lost.
    pub(super) fn set(
        &self,
        object: ObjectId,
        size: Option<u64>,
        modify_time: Option<Timestamp>,
        attribute_time: Timestamp,
    ) -> Option<()> {
        let mut state = self.reachable()?;
        let entry = state.objects.get_mut(&object.0)?;
        // Durable is what the manager asked for, and no more than that.
        for contents in [&mut entry.now, &mut entry.durable] {
            if let Some(size) = size {
                contents.bytes.set_length(size);
                contents.modify_time = attribute_time;
                contents.data_time = attribute_time;
            }
            contents.attribute_time = attribute_time;
        }
        if let Some(time) = modify_time {
            entry.now.modify_time = time;
        }
        Some(())
    }

    pub(super) fn fill(&self, object: ObjectId, data: &[u8]) -> Option<()> {
        let mut state = self.reachable()?;
        state.write(object.0, 0, data, true);
        Some(())
    }

    fn reachable(&self) -> Option<MutexGuard<'_, State>> {
        let state = self.lock();
        state.reachable.then_some(state)
    }

    /// Used bytes of all objects, and how many objects there are.
    pub(super) fn usage(&self) -> (u64, u64) {
        let state = self.lock();
        let used = state.objects.values().map(|object| object.now.bytes.used_bytes()).sum();
        (used, state.objects.len() as u64)
    }
}

impl State {
    fn crash(&mut self) {
        self.instance += 1;
        for object in self.objects.values_mut() {
            object.now = object.durable.clone();
        }
    }

    fn check_room(&self, data: &[u8]) -> Result<(), ClerkError> {
        let used: u64 = self.objects.values().map(|object| object.now.bytes.used_bytes()).sum();
        match used.saturating_add(data.len() as u64) > self.capacity_bytes {
            true => Err(ClerkError::Drive(Status::NoSpace)),
            false => Ok(()),
        }
    }

    fn write(&mut self, object: u64, offset: u64, data: &[u8], durable: bool) -> Written {
        let entry = self.objects.entry(object).or_default();
        entry.now.bytes.write(offset, data);
        entry.now.modify_time = now();
        entry.now.data_time = entry.now.modify_time;
        let written = Written {
            instance: self.instance,
            length: data.len() as u64,
            logical_size: entry.now.bytes.length(),
            fs_data_modify_time: entry.now.modify_time,
        };
        if durable {
            self.make_durable(object);
        }
        written
    }

    fn make_durable(&mut self, object: u64) {
        if let Some(entry) = self.objects.get_mut(&object) {
            entry.durable = entry.now.clone();
        }
    }
}

fn attributes(contents: &Contents) -> Attributes {
    Attributes {
        access_control_version: 1,
        nearby_object: ObjectId(0),
        copied_object: ObjectId(0),
        logical_size: contents.bytes.length(),
        blocks_allocated: 0,
        blocks_used: contents.bytes.used_bytes() / 4096,
        block_size: 4096,
        create_time: Timestamp(0),
        data_modify_time: contents.data_time,
        data_version: contents.data_time.0,
        attribute_modify_time: contents.attribute_time,
        fs_data_modify_time: contents.modify_time,
        fs_attribute_modify_time: contents.attribute_time,
        fs_specific: Box::new([0; FS_SPECIFIC_BYTES]),
    }
}
