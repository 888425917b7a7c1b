//! The threads of a connection besides the one that receives: they start when they are needed, and end with it.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Most of them at a time.
pub(super) const MOST_HANDS: usize = 16;

/// What they have to do.
pub(super) struct Hands<J> {
    state: Mutex<State<J>>,
    changed: Condvar,
}

struct State<J> {
    jobs: VecDeque<J>,
    threads: usize,
    idle: usize,
    is_over: bool,
}

impl<J> Hands<J> {
    pub(super) fn new() -> Hands<J> {
        let state = State { jobs: VecDeque::new(), threads: 0, idle: 0, is_over: false };
        Hands { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State<J>> {
        // Nothing that can panic is done with it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a job done, some time. Tells whether one more thread is to [`work`](Self::work).
    pub(super) fn push(&self, job: J) -> bool {
        let mut state = self.lock();
        state.jobs.push_back(job);
        self.changed.notify_one();
        let is_short = state.jobs.len() > state.idle && state.threads < MOST_HANDS;
        state.threads += usize::from(is_short);
        is_short
    }

    /// Whether all of them have something to do.
    pub(super) fn are_full(&self) -> bool {
        let state = self.lock();
        state.jobs.len() + state.threads - state.idle >= MOST_HANDS
    }

    /// Does jobs until it is over.
    pub(super) fn work(&self, mut run: impl FnMut(J)) {
        let mut state = self.lock();
        while !state.is_over {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                run(job);
                state = self.lock();
                continue;
            }
            state.idle += 1;
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }

    /// Nothing more is done.
    pub(super) fn end(&self) {
        let mut state = self.lock();
        state.is_over = true;
        state.jobs.clear();
        self.changed.notify_all();
    }
}
