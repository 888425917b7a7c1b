//! The threads of a connection besides the one that receives: they come when they are needed, and go when they are not for a
//! while, to be another connection's.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nasd_transport::Threads;

/// Most of them at a time.
pub(super) const MOST_HANDS: usize = 16;

/// How long one waits for something to do before it goes: others may have it then.
const IDLE: Duration = Duration::from_millis(if cfg!(test) { 100 } else { 5000 });

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
    changed: Condvar,
}

struct State<J> {
    jobs: VecDeque<J>,
    threads: usize,
    idle: usize,
    is_over: bool,
}

impl<'a, J> Hands<'a, J> {
    pub(super) fn new(all: &'a AllHands) -> Hands<'a, J> {
        let state = State { jobs: VecDeque::new(), threads: 0, idle: 0, is_over: false };
        Hands { all, state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State<J>> {
        // Nothing that can panic is done with it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a job done now by one that has nothing to do; gives it back if there is none.
    pub(super) fn offer(&self, job: J) -> Option<J> {
        let mut state = self.lock();
        if state.jobs.len() >= state.idle {
            return Some(job);
        }
        state.jobs.push_back(job);
        self.changed.notify_one();
        None
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

    /// Does jobs until it is over, or there are none for a while.
    pub(super) fn work(&self, _hand: Hand, mut run: impl FnMut(J)) {
        let mut state = self.lock();
        let mut was_idle = false;
        while !state.is_over {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                run(job);
                state = self.lock();
                was_idle = false;
                continue;
            }
            if was_idle {
                break;
            }
            state.idle += 1;
            let waited = self.changed.wait_timeout(state, IDLE);
            let (waited, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = waited;
            state.idle -= 1;
            was_idle = timeout.timed_out();
        }
        state.threads -= 1;
    }

    /// Nothing more is done.
    pub(super) fn end(&self) {
        let mut state = self.lock();
        state.is_over = true;
        state.jobs.clear();
        self.changed.notify_all();
    }
}

/// Ends them when it is dropped, also by a panic: who waits for them would wait for ever.
pub(super) struct Ending<'a, J>(pub(super) &'a Hands<'a, J>);

impl<J> Drop for Ending<'_, J> {
    fn drop(&mut self) {
        self.0.end();
    }
}
