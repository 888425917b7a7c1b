//! Whose turn it is: requests for flushes are collected, begun one after the other, and finished in order.
//!
//! A flush has two stages. First it takes objects and *writes* their data; then it is *logged*, when all
//! before it have ended. The device is synced in the second alone, so that no sync hides what another one
//! has lost. A plain one whose data go to places of their own, and not into its entry of the log, and none of
//! which may be packed, lets the next one begin when it has places for them and begins to write: so several are
//! under way, and the device need not rest. All others let nobody begin until they end; who has also the turn to be
//! logged is *alone*.
//!
//! Nothing is logged behind a flush that fails: those behind it have to *fail with it*, the youngest first, as
//! what each has taken was taken later. If the reason has passed then, they are tried again.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use super::{Failure, Request};
use crate::Store;

/// Most flushes under way: one that is being logged, and those that write meanwhile.
const UNDER_WAY_MAX: u64 = 4;

/// Whether a flush has done all that was asked for, when it has ended: for all who are in its request, whenever
/// they look.
type Outcome = Arc<OnceLock<bool>>;

/// A flush that has begun and not ended.
#[derive(Debug)]
struct UnderWay {
    /// Of its request.
    number: u64,
    outcome: Outcome,
    /// It is in the log, but not all that was asked for is done.
    is_durable: bool,
    /// Those behind it have to fail.
    is_failing: bool,
}

#[derive(Debug, Default)]
struct Queue {
    collecting: Request,
    outcome: Outcome,
    /// Number of the request that is being collected.
    number: u64,
    /// The oldest first. None has a number lower than `number` by more than [`UNDER_WAY_MAX`].
    under_way: VecDeque<UnderWay>,
    /// One of them lets nobody begin.
    is_closed: bool,
    /// Blocks written by all of them.
    written_blocks: u64,
}

impl Queue {
    /// Not as long as the oldest one is that far behind, whether those between are under way or have failed:
    /// who waits for a request is told from others by that ([`WAITED_FOR`]).
    fn may_begin(&self) -> bool {
        let is_far = |first: &UnderWay| self.number - first.number >= UNDER_WAY_MAX;
        let fails = self.under_way.iter().any(|flush| flush.is_failing);
        !self.is_closed && !fails && !self.under_way.front().is_some_and(is_far)
    }

    /// The request that is being collected begins.
    fn begin(&mut self) -> (u64, Request) {
        let number = self.number;
        let outcome = std::mem::take(&mut self.outcome);
        let (is_durable, is_failing) = (false, false);
        self.under_way.push_back(UnderWay { number, outcome, is_durable, is_failing });
        self.is_closed = true;
        self.number += 1;
        (number, std::mem::take(&mut self.collecting))
    }

    fn end(&mut self, number: u64, succeeded: bool) {
        if let Some(flush) = self.find(number) {
            flush.outcome.get_or_init(|| succeeded);
        }
        self.under_way.retain(|flush| flush.number != number);
    }

    fn find(&mut self, number: u64) -> Option<&mut UnderWay> {
        self.under_way.iter_mut().find(|flush| flush.number == number)
    }

    /// Whether who is in that request has to wait: for all of it, or until it is durable.
    fn is_pending(&mut self, number: u64, for_all: bool) -> bool {
        let is_collected = number == self.number;
        is_collected || self.find(number).is_some_and(|flush| for_all || !flush.is_durable)
    }

    fn is_first(&self, number: u64) -> bool {
        self.under_way.front().is_some_and(|flush| flush.number == number)
    }

    fn is_last(&self, number: u64) -> bool {
        self.under_way.back().is_some_and(|flush| flush.number == number)
    }

    fn has_to_fail(&self, number: u64) -> bool {
        self.under_way.iter().any(|flush| flush.is_failing && flush.number < number)
    }
}

/// Requests that somebody may wait for at a time: those under way, and one that is being collected.
const WAITED_FOR: u64 = UNDER_WAY_MAX + 1;

/// Where flushes meet. Who waits is woken for nothing else, as there may be many.
#[derive(Debug, Default)]
pub(crate) struct FlushQueue {
    queue: Mutex<Queue>,
    /// A request is finished, or, of the one that is being collected, may begin: of those whose number leaves
    /// the same rest.
    requests: [Condvar; WAITED_FOR as usize],
    /// A flush has ended, or fails: for leaders.
    turns: Condvar,
}

/// What became of joining a request.
pub(super) enum Joined {
    Done,
    Failed,
    /// This thread has to do it.
    Lead(u64, Request),
}

impl FlushQueue {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where those wait that are in a request.
    fn request(&self, number: u64) -> &Condvar {
        &self.requests[(number % WAITED_FOR) as usize]
    }

    /// The next request is led by one of those who are in it, if it may begin.
    fn wake_a_leader(&self, queue: &Queue) {
        if queue.may_begin() {
            self.request(queue.number).notify_one();
        }
    }

    /// Whether a flush is under way.
    pub(crate) fn is_running(&self) -> bool {
        !self.lock().under_way.is_empty()
    }

    /// Blocks written by all flushes.
    pub(super) fn written_blocks(&self) -> u64 {
        self.lock().written_blocks
    }

    /// Adds to the request that is being collected, and waits until it is done or a leader is wanted.
    pub(super) fn join(&self, request: &Request) -> Joined {
        let mut queue = self.lock();
        let (number, outcome) = (queue.number, Arc::clone(&queue.outcome));
        queue.collecting.merge(request.clone());
        let wants_all = request.settle || request.checkpoint;
        while queue.is_pending(number, wants_all) {
            if queue.number == number && queue.may_begin() {
                let (number, collected) = queue.begin();
                return Joined::Lead(number, collected);
            }
            queue = wait(self.request(number), queue);
        }
        // It is durable if it has not ended.
        if outcome.get().copied().unwrap_or(true) { Joined::Done } else { Joined::Failed }
    }
}

/// Who leads a flush, which ends when this is dropped, even after a panic. It begins with that of writing.
pub(super) struct Leading<'a> {
    store: &'a Store,
    /// The number of the request.
    number: u64,
    /// It lets nobody begin.
    is_closed: bool,
    /// All before it have ended.
    is_first: bool,
    /// Whether all that was asked for was done.
    succeeded: bool,
}

impl<'a> Leading<'a> {
    pub(super) fn new(store: &'a Store, number: u64) -> Leading<'a> {
        Leading { store, number, is_closed: true, is_first: false, succeeded: false }
    }

    /// Waits until all before it have ended; fails if it has to with one of them.
    pub(super) fn turn_to_log(&mut self) -> Result<(), Failure> {
        let flushes = &self.store.queue;
        let mut queue = flushes.lock();
        while !queue.is_first(self.number) {
            if queue.has_to_fail(self.number) {
                return Err(Failure::WithAnother);
            }
            queue = wait(&flushes.turns, queue);
        }
        self.is_first = true;
        Ok(())
    }

    /// Fails if it has to with one before it.
    pub(super) fn check_those_before(&self) -> Result<(), Failure> {
        let has_to_fail = self.store.queue.lock().has_to_fail(self.number);
        if has_to_fail { Err(Failure::WithAnother) } else { Ok(()) }
    }

    /// Whether no other flush can be under way.
    pub(super) fn is_alone(&self) -> bool {
        self.is_closed && self.is_first
    }

    /// Lets the next flush begin.
    pub(super) fn let_others_begin(&mut self) {
        let flushes = &self.store.queue;
        let mut queue = flushes.lock();
        queue.is_closed = false;
        self.is_closed = false;
        flushes.wake_a_leader(&queue);
    }

    /// What the request asks for is durable when all before it is, for which this waits; the leader goes on
    /// leading. Those who asked for more wait for that.
    pub(super) fn done(&mut self, written_blocks: u64) -> Result<(), Failure> {
        self.turn_to_log()?;
        let flushes = &self.store.queue;
        let mut queue = flushes.lock();
        queue.written_blocks += written_blocks;
        if let Some(flush) = queue.find(self.number) {
            flush.is_durable = true;
        }
        flushes.request(self.number).notify_all();
        Ok(())
    }

    /// All of it is done.
    pub(super) fn succeed(mut self) {
        self.succeeded = true;
    }

    /// Lets nobody be under way beside it, whose turn to be logged it is: those behind it try again later.
    pub(super) fn be_alone(&mut self) {
        if !self.is_alone() {
            self.fail_those_behind();
        }
    }

    /// Waits until all behind it have failed, and lets nobody begin from then on.
    pub(super) fn fail_those_behind(&mut self) {
        let flushes = &self.store.queue;
        let mut queue = flushes.lock();
        if let Some(flush) = queue.find(self.number) {
            flush.is_failing = true;
        }
        flushes.turns.notify_all();
        while !queue.is_last(self.number) {
            queue = wait(&flushes.turns, queue);
        }
        if let Some(flush) = queue.find(self.number) {
            flush.is_failing = false;
        }
        queue.is_closed = true;
        self.is_closed = true;
    }
}

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // What the batch had taken is not durable and not dirty either, so the next flush would
            // find nothing to do and call it done. There must be no next one.
            self.store.latch(&"a flush failed unexpectedly");
            self.fail_those_behind();
        }
        let flushes = &self.store.queue;
        let mut queue = flushes.lock();
        queue.end(self.number, self.succeeded);
        queue.is_closed &= !self.is_closed;
        flushes.request(self.number).notify_all();
        flushes.turns.notify_all();
        flushes.wake_a_leader(&queue);
    }
}

fn wait<'q>(condition: &Condvar, queue: MutexGuard<'q, Queue>) -> MutexGuard<'q, Queue> {
    condition.wait(queue).unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::io::{self, IoSlice, IoSliceMut};
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::thread;
    use std::time::Duration;

    use nasd_device::{BlockDevice, DeviceError, FaultPlan, FaultyDevice};
    use nasd_types::{ByteRange, ObjectName, SetAttributes, Timestamp};

    use super::*;
    use crate::testing::{PARTITION, assert_idle, formatted};
    use crate::{OpenOptions, StoreError, WriteData};

    const NOW: Timestamp = Timestamp(9);
    const BLOCK: u64 = 4096;
    /// Blocks of each thread's part of the object of all.
    const PART: u64 = 60;

    /// A device that takes a while for writes, fails long ones of data now and then, and counts how many of these are
    /// made at a time.
    #[derive(Debug)]
    struct Slow {
        inner: Arc<FaultyDevice>,
        fails: AtomicBool,
        writing: AtomicUsize,
        most: AtomicUsize,
    }

    impl BlockDevice for Slow {
        fn capacity(&self) -> u64 {
            self.inner.capacity()
        }

        fn alignment(&self) -> usize {
            self.inner.alignment()
        }

        fn read(&self, offset: u64, into: &mut [IoSliceMut<'_>]) -> Result<(), DeviceError> {
            self.inner.read(offset, into)
        }

        fn write(&self, offset: u64, from: &[IoSlice<'_>]) -> Result<(), DeviceError> {
            // Nothing else begins with as many equal bytes; and short ones may have been in the log before, and
            // have to be brought home.
            let length: usize = from.iter().map(|piece| piece.len()).sum();
            let value = from[0][0];
            let is_data = ![0, 255].contains(&value) && from[0][..64] == [value; 64];
            if length <= 16 * BLOCK as usize || !is_data {
                return self.inner.write(offset, from);
            }
            let writing = self.writing.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(writing, Ordering::SeqCst);
            thread::sleep(Duration::from_micros(offset / BLOCK % 7 * 100));
            let source = || io::Error::other("a planned failure");
            let written = match self.fails.load(Ordering::SeqCst) {
                true => Err(DeviceError::Medium {
                    operation: "write",
                    offset,
                    length: length as u64,
                    source: source(),
                }),
                false => self.inner.write(offset, from),
            };
            self.writing.fetch_sub(1, Ordering::SeqCst);
            written
        }

        fn sync(&self) -> Result<(), DeviceError> {
            self.inner.sync()
        }
    }

    struct Random(u64);

    impl Random {
        fn below(&mut self, bound: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (self.0 >> 33) % bound
        }
    }

    fn create(store: &Store) -> ObjectName {
        let (object, _) = store.create(PARTITION, &SetAttributes::default(), NOW).unwrap();
        ObjectName { partition: PARTITION, object }
    }

    /// What one thread does to its part of an object, and what that holds.
    struct Worker<'a> {
        store: &'a Store,
        device: &'a Slow,
        all: ObjectName,
        from: u64,
        /// Of each block what it has held since it was durable last, and holds now.
        blocks: Vec<Vec<u8>>,
        random: Random,
    }

    impl Worker<'_> {
        fn some_blocks(&mut self) -> (u64, u64) {
            let start = self.random.below(PART);
            (start, start + 1 + self.random.below(PART - start))
        }

        fn note(&mut self, (start, end): (u64, u64), value: u8) {
            self.blocks[start as usize..end as usize].iter_mut().for_each(|held| held.push(value));
        }

        fn write(&mut self) -> Result<(), StoreError> {
            let (start, end) = self.some_blocks();
            let value = 1 + self.random.below(254) as u8;
            let bytes = vec![value; ((end - start) * BLOCK) as usize];
            let place = self.from + start * BLOCK;
            self.store.write(self.all, place, WriteData::Slice(&bytes), NOW)?;
            self.note((start, end), value);
            Ok(())
        }

        fn cut(&mut self) -> Result<(), StoreError> {
            let (start, end) = self.some_blocks();
            let range = ByteRange::new(self.from + start * BLOCK, (end - start) * BLOCK);
            self.store.punch(self.all, range, NOW)?;
            self.note((start, end), 0);
            Ok(())
        }

        /// Makes it durable, or not; now and then data can't be written for a while.
        fn flush(&mut self) {
            if self.random.below(3) == 0 {
                self.device.fails.store(true, Ordering::SeqCst);
            }
            let flushed = self.store.flush(&[self.all]);
            self.device.fails.store(false, Ordering::SeqCst);
            if flushed.is_ok() {
                self.blocks.iter_mut().for_each(|held| drop(held.drain(..held.len() - 1)));
            }
        }

        /// An object that does not last.
        fn make_and_remove(&mut self) -> Result<(), StoreError> {
            let own = create(self.store);
            self.store.write(own, 0, WriteData::Slice(&[1; 100_000]), NOW)?;
            if self.random.below(2) == 0 {
                let _ = self.store.flush(&[own]);
            }
            self.store.remove(own)?;
            let _ = self.store.flush(&[own]);
            Ok(())
        }

        fn work(&mut self) -> Result<(), StoreError> {
            for _ in 0..60 {
                match self.random.below(6) {
                    0 => self.cut()?,
                    1 => self.make_and_remove()?,
                    2 | 3 => self.write()?,
                    _ => self.flush(),
                }
            }
            Ok(())
        }
    }

    /// Whether each block of the object holds something that it may.
    fn check(store: &Store, all: ObjectName, blocks: &[Vec<u8>], seed: u64) {
        let length = blocks.len() * BLOCK as usize;
        let mut held = store.read(all, ByteRange::new(0, length as u64)).unwrap().to_vec();
        held.resize(length, 0);
        for (number, (held, allowed)) in held.chunks(BLOCK as usize).zip(blocks).enumerate() {
            assert_eq!(held, vec![held[0]; held.len()], "seed {seed}: block {number} is torn");
            assert!(allowed.contains(&held[0]), "seed {seed}: block {number} has {}", held[0]);
        }
    }

    fn now(blocks: &[Vec<u8>]) -> Vec<Vec<u8>> {
        blocks.iter().map(|held| vec![held[held.len() - 1]]).collect()
    }

    /// Threads that write to one object, and flush it, while the medium fails now and then; how many writes of data
    /// were made at a time.
    fn what_fails_for_a_while_is_whole_in_the_end(seed: u64) -> usize {
        const THREADS: u64 = 6;
        let inner = formatted();
        let device = Arc::new(Slow {
            inner: inner.clone(),
            fails: AtomicBool::new(false),
            writing: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
        });
        let options = OpenOptions { cache_bytes: 8 << 20, ..OpenOptions::default() };
        let store = Store::open(device.clone(), &options).unwrap();
        let all = create(&store);
        let works = |number: u64| {
            let (from, blocks) = (number * PART * BLOCK, vec![vec![0]; PART as usize]);
            let random = Random(seed * THREADS + number);
            let mut worker = Worker { store: &store, device: &device, all, from, blocks, random };
            worker.work().unwrap();
            worker.blocks
        };
        let blocks: Vec<Vec<u8>> = thread::scope(|scope| {
            let threads: Vec<_> =
                (0..THREADS).map(|number| scope.spawn(move || works(number))).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(store.read_only(), None, "a failure that passes has lasted");
        check(&store, all, &now(&blocks), seed);
        let object = store.object(all).unwrap();
        let fresh = store.cache.frames(&object).fresh_blocks();
        let body = object.read();
        assert_eq!(body.fresh, fresh, "seed {seed}: blocks that replace nothing");
        // What was cut off counts until something else is written.
        let (charge, needed) = (body.charge, body.charge_with(0));
        assert!(charge >= needed, "seed {seed}: charged for {charge} blocks of {needed}");
        drop(body);
        drop(object);
        let survivor = || FaultyDevice::over(inner.survivor(seed), FaultPlan::default());
        // What was said to be durable is.
        check(&Store::open(Arc::new(survivor()), &options).unwrap(), all, &blocks, seed);
        store.flush_all().unwrap();
        assert_idle(&store);
        let used = now(&blocks).iter().filter(|held| held[0] != 0).count() as u64;
        assert_eq!(store.getattr(all).unwrap().blocks_used, used, "seed {seed}: blocks used");
        inner.crash();
        drop(store);
        let store = Store::open(Arc::new(survivor()), &options).unwrap();
        check(&store, all, &now(&blocks), seed);
        store.remove(all).unwrap();
        store.flush_all().unwrap();
        assert_idle(&store);
        assert_eq!(store.space().used_bytes, 0, "seed {seed}");
        device.most.load(Ordering::SeqCst)
    }

    #[test]
    fn flushes_that_fail_together_lose_nothing() {
        let seeds = std::env::var_os("NASD_LONG_TESTS").map_or(20, |_| 500);
        let most = (0..seeds).map(what_fails_for_a_while_is_whole_in_the_end).max();
        assert!((2..=UNDER_WAY_MAX as usize).contains(&most.unwrap()), "{most:?} at a time");
    }

    fn begins(store: &Store) -> Leading<'_> {
        match store.queue.join(&Request::default()) {
            Joined::Lead(number, _) => Leading::new(store, number),
            Joined::Done | Joined::Failed => panic!("nobody was asked"),
        }
    }

    #[test]
    fn who_wants_to_be_alone_has_those_behind_try_again() {
        let device = formatted();
        let store = Store::open(device, &OpenOptions::default()).unwrap();
        let mut first = begins(&store);
        first.let_others_begin();
        let mut second = begins(&store);
        second.let_others_begin();
        let third = begins(&store);
        first.turn_to_log().ok().unwrap();
        assert!(!first.is_alone());
        thread::scope(|scope| {
            scope.spawn(move || {
                let mut third = third;
                assert!(matches!(third.done(1), Err(Failure::WithAnother)));
            });
            scope.spawn(move || {
                assert!(matches!(second.turn_to_log(), Err(Failure::WithAnother)));
                // It puts back what it has taken when the third one has.
                second.fail_those_behind();
            });
            first.be_alone();
        });
        assert!(first.is_alone() && first.check_those_before().is_ok());
        first.done(2).ok().unwrap();
        first.succeed();
        let mut next = begins(&store);
        next.done(3).ok().unwrap();
        assert!(next.is_alone());
        next.succeed();
        assert_eq!(store.queue.written_blocks(), 5);
        assert!(!store.queue.is_running());
    }

    #[test]
    fn what_is_tried_again_goes_to_the_same_places() {
        let store = Store::open(formatted(), &OpenOptions::default()).unwrap();
        let name = create(&store);
        let object = store.object(name).unwrap();
        let bytes = vec![1; 50 * BLOCK as usize];
        let write = |offset| {
            store.write(name, offset * BLOCK, WriteData::Slice(&bytes), NOW).unwrap();
        };
        write(0);
        store.flush(&[name]).unwrap();
        let end = object.placed_end().unwrap();
        write(50);
        let mut first = begins(&store);
        first.let_others_begin();
        thread::scope(|scope| {
            let behind = scope.spawn(|| store.flush(&[name]));
            while object.placed_end() == Some(end) {
                thread::yield_now();
            }
            first.turn_to_log().ok().unwrap();
            first.be_alone();
            assert_eq!(object.placed_end(), Some(end));
            first.succeed();
            behind.join().unwrap().unwrap();
        });
        assert_eq!(object.placed_end(), Some(end + 50));
    }

    #[test]
    fn no_more_are_under_way_than_may_be() {
        let device = formatted();
        let store = Store::open(device, &OpenOptions::default()).unwrap();
        let mut leading: Vec<Leading<'_>> = (0..UNDER_WAY_MAX)
            .map(|number| {
                let mut leading = begins(&store);
                if number + 1 < UNDER_WAY_MAX {
                    leading.let_others_begin();
                }
                leading
            })
            .collect();
        assert!(!store.queue.lock().may_begin(), "the youngest lets nobody begin");
        leading.last_mut().unwrap().let_others_begin();
        assert!(!store.queue.lock().may_begin(), "there are as many as may be");
        // Those in the middle have ended, but the oldest is far behind.
        drop(leading.drain(1..));
        assert!(!store.queue.lock().may_begin());
        leading.clear();
        assert!(store.queue.lock().may_begin());
    }

    #[test]
    fn who_looks_late_learns_of_a_failure() {
        let store = Store::open(formatted(), &OpenOptions::default()).unwrap();
        let outcome = {
            let queue = store.queue.lock();
            Arc::clone(&queue.outcome)
        };
        for _ in 0..200 {
            drop(begins(&store));
        }
        assert_eq!(outcome.get(), Some(&false));
    }
}
