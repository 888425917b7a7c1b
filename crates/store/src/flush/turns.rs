//! Whose turn it is: requests for flushes are collected, led one after the other, and finished in order.
//!
//! A flush has two stages. First it takes objects and *writes* their data; then it is *logged*, when
//! the one before it is. Each stage is one flush's at a time, and the device is synced in the second alone, so
//! that no sync hides what another one has lost. A plain one whose data have gone to places
//! of their own, and not into its entry of the log, and none of which may be packed, lets the next flush
//! write while its own is being logged: so at most two are under way, and the device need not rest. All
//! others keep both stages until they end, and so have everything to themselves: they are *alone*. If a
//! flush can't be logged none behind it succeeds, whether or not that had anything to log.

use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::Request;
use crate::{Store, StoreError};

/// Failed flushes that are remembered until those who waited for them have looked.
const FAILURES_KEPT: usize = 64;

#[derive(Debug, Default)]
struct Queue {
    collecting: Request,
    /// Number of the request that is being collected.
    number: u64,
    /// Requests with lower numbers are finished: what they ask for is durable, or failed.
    finished: u64,
    /// Of requests with lower numbers the tree has everything, too, if they asked for that.
    settled: u64,
    /// A flush takes objects, or writes data.
    writing: bool,
    /// A flush is being logged.
    logging: bool,
    /// One failed while it was being logged, and has latched the store: nothing succeeds behind it.
    broken: bool,
    /// Which of the finished ones failed.
    failed: BTreeSet<u64>,
    /// Blocks written by all of them.
    written_blocks: u64,
}

impl Queue {
    /// Those up to this one are finished.
    fn finish(&mut self, number: u64, succeeded: bool) {
        self.finished = self.finished.max(number + 1);
        self.settled = self.settled.max(number + 1);
        if !succeeded {
            self.failed.insert(number);
        }
        if self.failed.len() > FAILURES_KEPT {
            self.failed.pop_first();
        }
    }
}

/// Requests that somebody may wait for at a time: one that is being logged, one that is being written, and
/// one that is being collected.
const WAITED_FOR: u64 = 3;

/// Where flushes meet. Who waits is woken for nothing else, as there may be many.
#[derive(Debug, Default)]
pub(crate) struct FlushQueue {
    queue: Mutex<Queue>,
    /// A request is finished, or, of the one that is being collected, may be led: of those whose number leaves
    /// the same rest.
    requests: [Condvar; WAITED_FOR as usize],
    /// A stage is free: for leaders.
    stages: Condvar,
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

    /// The next request may be led, by one of those who are in it.
    fn wake_a_leader(&self, queue: &Queue) {
        self.request(queue.number).notify_one();
    }

    /// Whether a flush is under way.
    pub(crate) fn is_running(&self) -> bool {
        let queue = self.lock();
        queue.writing || queue.logging
    }

    /// Blocks written by all flushes.
    pub(super) fn written_blocks(&self) -> u64 {
        self.lock().written_blocks
    }

    /// Adds to the request that is being collected, and waits until it is done or a leader is wanted.
    pub(super) fn join(&self, request: &Request) -> Joined {
        let mut queue = self.lock();
        let number = queue.number;
        queue.collecting.merge(request.clone());
        let wants_all = request.settle || request.checkpoint;
        while if wants_all { queue.settled } else { queue.finished } <= number {
            if !queue.writing && queue.number == number {
                queue.writing = true;
                queue.number += 1;
                return Joined::Lead(number, std::mem::take(&mut queue.collecting));
            }
            queue = wait(self.request(number), queue);
        }
        if queue.failed.contains(&number) { Joined::Failed } else { Joined::Done }
    }
}

/// Who leads a flush: the stages that it has are free again when this is dropped, and the others told,
/// even after a panic. It begins with that of writing.
pub(super) struct Leading<'a> {
    store: &'a Store,
    /// The number of the request.
    number: u64,
    writes: bool,
    logs: bool,
    /// Whether all that was asked for was done.
    succeeded: bool,
}

impl<'a> Leading<'a> {
    pub(super) fn new(store: &'a Store, number: u64) -> Leading<'a> {
        Leading { store, number, writes: true, logs: false, succeeded: false }
    }

    /// Waits until the flush before has ended. From then on this one is alone.
    pub(super) fn turn_to_log(&mut self) {
        let mut queue = self.wait_for_the_one_before();
        queue.logging = true;
        drop(queue);
        self.logs = true;
    }

    fn wait_for_the_one_before(&self) -> MutexGuard<'a, Queue> {
        let flushes = &self.store.queue;
        let mut queue = flushes.lock();
        while queue.logging && !self.logs {
            queue = wait(&flushes.stages, queue);
        }
        queue
    }

    /// Fails if a flush before could not be logged.
    pub(super) fn check_the_one_before(&self) -> Result<(), StoreError> {
        let is_broken = self.store.queue.lock().broken;
        if is_broken { self.store.writable() } else { Ok(()) }
    }

    /// Whether no other flush can be under way.
    pub(super) fn is_alone(&self) -> bool {
        self.writes && self.logs
    }

    /// Lets the next flush take objects and write while this one is being logged.
    pub(super) fn let_others_write(&mut self) {
        let mut queue = self.store.queue.lock();
        queue.writing = false;
        self.store.queue.wake_a_leader(&queue);
        drop(queue);
        self.writes = false;
    }

    /// What the request asks for is durable when the flush before is, for which this waits; the leader goes
    /// on leading. Those who asked for more wait for that.
    pub(super) fn done(&mut self, written_blocks: u64) -> Result<(), StoreError> {
        self.turn_to_log();
        self.check_the_one_before()?;
        let mut queue = self.store.queue.lock();
        queue.finished = self.number + 1;
        queue.written_blocks += written_blocks;
        self.store.queue.request(self.number).notify_all();
        Ok(())
    }

    /// All of it is done.
    pub(super) fn succeed(mut self) {
        self.succeeded = true;
    }

    /// The flush has failed while it was being logged, and the store takes no more changes. Waits until the
    /// flush that may be writing meanwhile has failed too: what that has taken was taken later, and is to be
    /// put back first.
    pub(super) fn let_others_fail(&mut self) {
        if self.writes {
            return;
        }
        let flushes = &self.store.queue;
        let mut queue = flushes.lock();
        queue.finish(self.number, false);
        (queue.logging, queue.broken) = (false, true);
        self.logs = false;
        flushes.request(self.number).notify_all();
        flushes.stages.notify_all();
        while queue.writing {
            queue = wait(&flushes.stages, queue);
        }
        queue.writing = true;
        self.writes = true;
    }
}

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // What the batch had taken is not durable and not dirty either, so the next flush would
            // find nothing to do and call it done. There must be no next one.
            self.store.latch(&"a flush failed unexpectedly");
        }
        // Those who wait for that one would take it for finished.
        let mut queue = self.wait_for_the_one_before();
        queue.broken |= std::thread::panicking();
        queue.writing &= !self.writes;
        queue.logging &= !self.logs;
        queue.finish(self.number, self.succeeded);
        let flushes = &self.store.queue;
        flushes.request(self.number).notify_all();
        flushes.stages.notify_all();
        if !queue.writing {
            flushes.wake_a_leader(&queue);
        }
    }
}

fn wait<'q>(condition: &Condvar, queue: MutexGuard<'q, Queue>) -> MutexGuard<'q, Queue> {
    condition.wait(queue).unwrap_or_else(PoisonError::into_inner)
}
