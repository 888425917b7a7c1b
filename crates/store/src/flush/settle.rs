//! Settling: the tree gets what the log has.
//!
//! A flush is durable when its entry is in the log, and leaves the entry here, in the *backlog*. Any
//! number of entries is applied to the tree by one transaction, which costs little more than that of
//! one. That is done by a background thread soon after the first of them, while flushes go on; or by
//! whoever needs the tree to be complete, or finds the backlog long.
//!
//! An entry that is applied is *let go* of: what its flush took is clean, and what that replaced is
//! free. Until then an object may be taken by more flushes; what each of them took is let go of in
//! the order of the log.
//!
//! If the tree can't be changed, the store takes no more changes, and the entries stay here for good: they
//! are durable, so what they took is not dirty again and the places that they name are not free. Reads find
//! it in the cache, and the next open applies the entries.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::batch::{Durable, Taken};
use super::place::block_count;
use crate::frames::BlockSet;
use crate::log::{Change, Share};
use crate::metadata::record::LogMark;
use crate::metadata::{CopiedPartition, Effects, TreeError};
use crate::space::Account;
use crate::{Store, StoreError};

/// How long an entry may wait for others to be applied with.
const PATIENCE: Duration = Duration::from_millis(10);

/// Entries, or frames of the cache, with which a background thread does not wait any longer.
const ENTRIES_MANY: usize = 64;
const FRAMES_MANY: usize = 256;

/// Entries with which a flush settles before it goes on.
const ENTRIES_MAX: usize = 512;

/// What is durable in the log and not in the tree.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    waiting: Mutex<Waiting>,
    /// The backlog has got its first entry, or many.
    attention: Condvar,
    /// How often something was applied.
    settled: AtomicU64,
    /// Held by whoever applies, so that entries are applied in their order.
    applying: Mutex<()>,
}

#[derive(Debug, Default)]
struct Waiting {
    entries: Vec<Durable>,
    /// Frames of the cache that are kept until these are in the tree.
    frames: usize,
    /// When the first of them came.
    since: Option<Instant>,
    /// The same number of those that are being applied; `None` while none are.
    applying: Option<usize>,
}

impl Waiting {
    /// When a background thread should settle; `None` if there is nothing to.
    fn due(&self) -> Option<Instant> {
        let since = self.since?;
        let many = self.entries.len() >= ENTRIES_MANY || self.frames >= FRAMES_MANY;
        Some(if many { since } else { since + PATIENCE })
    }
}

impl Backlog {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // What is there is whole after every statement.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push(&self, durable: Durable) {
        let mut waiting = self.waiting();
        let before = waiting.due();
        waiting.frames += durable.frames();
        waiting.since.get_or_insert_with(Instant::now);
        waiting.entries.push(durable);
        if waiting.due() != before {
            self.attention.notify_all();
        }
    }

    fn take(&self) -> Vec<Durable> {
        let mut waiting = self.waiting();
        let entries = std::mem::take(&mut waiting.entries);
        let frames = std::mem::take(&mut waiting.frames);
        waiting.applying = (!entries.is_empty()).then_some(frames);
        waiting.since = None;
        entries
    }

    /// Changes whenever something was applied, and what it frees is free.
    pub(crate) fn settled(&self) -> u64 {
        self.settled.load(Ordering::SeqCst)
    }

    /// Keeps for good what could not be applied.
    fn keep(&self, mut entries: Vec<Durable>) {
        let mut waiting = self.waiting();
        entries.append(&mut waiting.entries);
        waiting.frames += waiting.applying.unwrap_or(0);
        waiting.entries = entries;
        waiting.since = None;
    }

    /// Nobody need look at it again until something is added.
    fn rest(&self) {
        self.waiting().since = None;
    }

    /// Whether the tree has everything.
    pub(crate) fn is_empty(&self) -> bool {
        let waiting = self.waiting();
        waiting.entries.is_empty() && waiting.applying.is_none()
    }

    /// Whether a flush should settle before it adds to it.
    pub(super) fn is_full(&self) -> bool {
        self.waiting().entries.len() >= ENTRIES_MAX
    }

    /// Frames of the cache that are kept, at most, until the tree has everything: a frame that several
    /// flushes took some of counts for each.
    pub(crate) fn frames(&self) -> usize {
        let waiting = self.waiting();
        waiting.frames + waiting.applying.unwrap_or(0)
    }

    /// Waits until it is time to settle; whether it is before the deadline.
    fn wait(&self, deadline: Instant) -> bool {
        let mut waiting = self.waiting();
        loop {
            let now = Instant::now();
            let due = waiting.due();
            if due.is_some_and(|due| due <= now) {
                return true;
            }
            let until = due.map_or(deadline, |due| due.min(deadline));
            if until <= now {
                return false;
            }
            waiting = match self.attention.wait_timeout(waiting, until - now) {
                Ok((waiting, _)) => waiting,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }
}

/// Whoever applies, which he is until this is dropped.
struct Applying<'a> {
    store: &'a Store,
    _alone: MutexGuard<'a, ()>,
}

impl<'a> Applying<'a> {
    fn begin(store: &'a Store) -> Applying<'a> {
        let alone = store.backlog.applying.lock();
        Applying { store, _alone: alone.unwrap_or_else(PoisonError::into_inner) }
    }
}

impl Drop for Applying<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // What was being applied is neither waiting nor in the tree.
            self.store.latch(&"settling failed unexpectedly");
        }
        self.store.backlog.waiting().applying = None;
    }
}

impl Store {
    /// For a background thread: waits until there is something to settle that has waited for long
    /// enough, at most for `patience`, and settles it.
    pub fn settle_when_due(&self, patience: Duration) -> Result<(), StoreError> {
        if self.backlog.wait(Instant::now() + patience) { self.settle_all() } else { Ok(()) }
    }

    /// Applies to the tree what is durable in the log alone. No body may be locked.
    pub(crate) fn settle_all(&self) -> Result<(), StoreError> {
        let _applying = Applying::begin(self);
        loop {
            self.writable().inspect_err(|_| self.backlog.rest())?;
            let entries = self.backlog.take();
            let Some(mark) = entries.last().map(|last| last.mark) else {
                return Ok(());
            };
            let changes = entries.iter().flat_map(|entry| &entry.changes);
            match self.apply(changes, mark) {
                Ok(effects) => {
                    let shares = shares_of(&entries);
                    let taken = entries.into_iter().flat_map(|entry| entry.taken);
                    self.let_go(taken, &shares, &effects);
                    self.backlog.settled.fetch_add(1, Ordering::SeqCst);
                    // What is applied is right, and can't become durable any more.
                    if let Err(error) = self.metadata.check_writable() {
                        let error = StoreError::from(error);
                        self.latch(&error);
                        return Err(error);
                    }
                }
                Err(error) => {
                    let error = StoreError::from(error);
                    self.latch(&error);
                    self.backlog.keep(entries);
                    return Err(error);
                }
            }
        }
    }

    fn apply<'c>(
        &self,
        changes: impl Iterator<Item = &'c Change> + Clone,
        mark: LogMark,
    ) -> Result<Effects, TreeError> {
        let mut transaction = self.metadata.begin()?;
        let effects = transaction.apply(changes, mark)?;
        // Before anybody can find the extents.
        for (run, contents) in &effects.inlined {
            self.inlined.insert(*run, contents);
        }
        transaction.commit()?;
        Ok(effects)
    }

    /// What was taken is in the tree: clean, and charged for what it is.
    fn let_go(&self, taken: impl Iterator<Item = Taken>, shares: &[Share], effects: &Effects) {
        {
            // Before those are let go of who are charged less by it.
            let mut accounts = self.accounts();
            for CopiedPartition { target, record } in &effects.copied {
                accounts.add_partition(*target, Account::of(record));
            }
            accounts.count_common(effects.joined, effects.parted);
        }
        // What moves between an object and its family is charged twice for a moment, and never not
        // at all.
        let (more, less): (Vec<_>, Vec<_>) =
            effects.shared.iter().partition(|&(_, &change)| change > 0);
        for (&partition, &change) in more {
            self.accounts().charge_shared(partition, change);
        }
        let mut others = effects.objects.clone();
        let mut removed = Vec::new();
        // Several flushes may have taken an object, each in its turn.
        let mut taken: Vec<Taken> = taken.collect();
        taken.sort_by_key(|one| Arc::as_ptr(&one.object));
        for of_object in taken.chunk_by(|one, next| Arc::ptr_eq(&one.object, &next.object)) {
            let name = of_object[0].object.name;
            others.remove(&name);
            self.let_go_of(of_object, effects);
            removed.extend(of_object.iter().any(|one| one.removed).then_some(name));
        }
        // Sources of copies, and those of shared ranges with their targets.
        for (name, settled) in others {
            if let (Some(settled), Ok(object)) = (settled, self.table.get(name)) {
                let mut body = object.write();
                (body.record.blocks_used, body.record.family) =
                    (settled.blocks_used, settled.family);
                let charge = body.charge_with(0);
                self.settle_charge(&object, &mut body, charge);
            }
        }
        shares.iter().for_each(|share| self.let_shared(share));
        // A read that had found these blocks in the tree before has ended by now: it held the object's
        // body, which was locked alone since. A prefetch holds nothing, and drops what it has read of
        // an object whose blocks have changed meanwhile (`FrameMap::epoch`), as they have by now. So
        // nobody misses what is in them from here on.
        self.inlined.forget(&effects.freed);
        self.accounts().free(&effects.freed);
        for (&partition, &change) in less {
            self.accounts().charge_shared(partition, change);
        }
        // Last: from here on there may be other objects of these names, which all of this is not meant for.
        removed.into_iter().for_each(|name| self.table.forget(name));
    }

    /// All that was taken of an object, the oldest first. What the tree counts for it is what it has of all of them: so nobody sees
    /// it when some are let go of and others not.
    fn let_go_of(&self, taken: &[Taken], effects: &Effects) {
        let Some(last) = taken.last() else { return };
        let object = &last.object;
        let mut body = object.write();
        for one in taken {
            // What was written again meanwhile, and replaces blocks that have become fewer.
            let uncovered = {
                let mut frames = self.cache.frames(object);
                frames.written(&one.claims);
                let uncover = |(number, blocks): &(u64, BlockSet)| frames.uncover(*number, *blocks);
                one.shrunk.iter().map(uncover).sum::<u64>()
            };
            body.fresh += uncovered;
            body.writing.pop_oldest();
            self.metadata.capacity.release(one.promised_records);
            // The free blocks that were promised and not needed.
            self.accounts().forget_dirty(block_count(&one.claims) - one.placed_blocks());
        }
        if last.removed {
            self.settle_charge(object, &mut body, 0);
            return;
        }
        if let Some(Some(settled)) = effects.objects.get(&object.name) {
            body.record.blocks_used = settled.blocks_used;
            body.record.family = settled.family;
        }
        let charge = body.charge_with(0);
        self.settle_charge(object, &mut body, charge);
    }
}

/// What of entries shares ranges.
fn shares_of(entries: &[Durable]) -> Vec<Share> {
    let changes = entries.iter().flat_map(|entry| &entry.changes);
    let shares = changes.filter_map(|change| match change {
        Change::Share(share) => Some(**share),
        _ => None,
    });
    shares.collect()
}

#[cfg(test)]
mod tests {
    use nasd_device::{FaultPlan, FaultyDevice};
    use nasd_types::{ObjectId, ObjectName, SetAttributes, Timestamp};

    use super::*;
    use crate::OpenOptions;
    use crate::object::{Object, initial_record};
    use crate::testing::{PARTITION, formatted};

    /// More objects than the table keeps when nobody uses them.
    const MANY: u64 = 100_000;

    /// A store over a tree that has objects, of which it has hardly any in memory.
    fn store() -> (Arc<FaultyDevice>, Store, Vec<ObjectName>) {
        let device = formatted();
        let store = crate::testing::open(&device);
        let initial = SetAttributes::default();
        let name = |_| {
            let (object, _) = store.create(PARTITION, &initial, Timestamp(2)).unwrap();
            ObjectName { partition: PARTITION, object }
        };
        let names = (0..300).map(name).collect();
        store.close().unwrap();
        let (cache_bytes, metadata_cache_bytes) = (4 << 20, 32 << 10);
        let options = OpenOptions { cache_bytes, metadata_cache_bytes, ..OpenOptions::default() };
        let store = Store::open(device.clone(), &options).unwrap();
        (device, store, names)
    }

    fn set_version(store: &Store, name: ObjectName, version: u64) {
        let changes =
            SetAttributes { access_control_version: Some(version), ..SetAttributes::default() };
        store.setattr(name, &changes, Timestamp(3)).unwrap();
    }

    #[test]
    fn what_cannot_be_applied_stays_in_memory_in_its_order() {
        let (device, store, names) = store();
        let (removed, changed) = (&names[..20], &names[200..220]);
        for version in 1..=3 {
            changed.iter().for_each(|name| set_version(&store, *name, version));
            store.flush(changed).unwrap();
        }
        removed.iter().for_each(|name| store.remove(*name).unwrap());
        store.flush(removed).unwrap();
        let metadata = store.geometry.metadata_offset;
        let unreadable = metadata..metadata + store.geometry.metadata_bytes;
        device.set_plan(FaultPlan { unreadable, ..FaultPlan::default() });
        store.settle_when_due(Duration::from_secs(5)).unwrap_err();
        assert!(store.read_only().is_some());
        let marks: Vec<u64> =
            store.backlog.waiting().entries.iter().map(|entry| entry.mark.applied).collect();
        assert!(marks.len() == 4 && marks.is_sorted(), "{marks:?}");
        // Other objects come and go.
        let record = initial_record(&SetAttributes::default(), Timestamp(2));
        for number in 0..MANY {
            let name = ObjectName { object: ObjectId((1 << 40) + number), ..names[0] };
            store.table.insert_created(Arc::new(Object::created(name, record.clone(), 0)));
        }
        for name in removed {
            assert_eq!(store.access_control_version(*name).unwrap(), None, "{name}");
        }
        for name in changed {
            assert_eq!(store.access_control_version(*name).unwrap(), Some(3), "{name}");
        }
    }
}
