//! The threads of a connection besides the one that receives: they come when they are needed, and are another connection's as
//! soon as they have nothing to do, so that a connection that ends has none to wake.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nasd_transport::Threads;

/// Most of them at a time.
pub(super) const MOST_HANDS: usize = 16;

/// Those of all connections of a server.
#[derive(Debug)]
pub(super) struct AllHands {
    count: Arc<AtomicUsize>,
    most: usize,
    threads: Threads,
}

/// One of them, until this is dropped.
#[derive(Debug)]
pub(super) struct Hand(Arc<AtomicUsize>);

impl AllHands {
    pub(super) fn new(most: usize) -> AllHands {
        AllHands { count: Arc::default(), most, threads: Threads::new("nasd-bulk") }
    }

    fn one_more(&self) -> Option<Hand> {
        let add = |count: usize| (count < self.most).then_some(count + 1);
        self.count.fetch_update(Ordering::AcqRel, Ordering::Acquire, add).ok()?;
        Some(Hand(Arc::clone(&self.count)))
    }

    /// How many there are.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What those of a connection have to do. Only the thread that receives gives them something.
pub(super) struct Hands<'a, J> {
    all: &'a AllHands,
    state: Mutex<State<J>>,
}

struct State<J> {
    /// For threads that are about to take them.
    jobs: VecDeque<J>,
    threads: usize,
}

impl<'a, J> Hands<'a, J> {
    pub(super) fn new(all: &'a AllHands) -> Hands<'a, J> {
        Hands { all, state: Mutex::new(State { jobs: VecDeque::new(), threads: 0 }) }
    }

    fn lock(&self) -> MutexGuard<'_, State<J>> {
        // Nothing that can panic is done with it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where they come from.
    pub(super) fn threads(&self) -> &'a Threads {
        &self.all.threads
    }

    /// One more, if there may be one, which is to [`work`](Self::work).
    pub(super) fn one_more(&self) -> Option<Hand> {
        let has_room = self.lock().threads < MOST_HANDS;
        has_room.then(|| self.all.one_more()).flatten()
    }

    /// It is about to start, for this job.
    pub(super) fn begin(&self, job: J) {
        let mut state = self.lock();
        state.threads += 1;
        state.jobs.push_back(job);
    }

    /// It could not start. The job is given back, if nobody has taken it meanwhile.
    pub(super) fn take_back(&self) -> Option<J> {
        let mut state = self.lock();
        state.threads -= 1;
        state.jobs.pop_back()
    }

    /// Does jobs until there are none.
    pub(super) fn work(&self, _hand: Hand, mut run: impl FnMut(J)) {
        let mut state = self.lock();
        while let Some(job) = state.jobs.pop_front() {
            drop(state);
            run(job);
            state = self.lock();
        }
        state.threads -= 1;
    }
}
