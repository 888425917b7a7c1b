//! Threads for operations that may wait: started when there is work, ended when there is none.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// A thread without work ends after this long.
const IDLE: Duration = Duration::from_secs(10);

/// Work of any kind.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// Runs jobs on at most a fixed number of threads.
#[derive(Clone)]
pub(crate) struct WorkPool {
    shared: Arc<Shared>,
}

struct Shared {
    name: &'static str,
    max_threads: usize,
    state: Mutex<State>,
    /// There is a job, or it is time to end.
    wake: Condvar,
    /// A job is done.
    done: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs a job; one that panics must not take the thread with it. The request that it was to answer
/// is answered with an I/O error when its reply is dropped.
pub(crate) fn run_guarded(job: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(job)).is_err() {
        tracing::error!("an operation panicked; it is answered with an I/O error");
    }
}

impl WorkPool {
    /// A pool without threads yet.
    pub(crate) fn new(name: &'static str, max_threads: usize) -> Self {
        let shared = Shared {
            name,
            max_threads: max_threads.max(1),
            state: Mutex::default(),
            wake: Condvar::new(),
            done: Condvar::new(),
        };
        WorkPool { shared: Arc::new(shared) }
    }

    /// Queues a job. When the system gives no thread at all, it runs here and now.
    pub(crate) fn submit(&self, job: Job) {
        let mut state = self.shared.lock();
        state.queue.push_back(job);
        if state.idle >= state.queue.len() {
            self.shared.wake.notify_one();
        } else if state.threads < self.shared.max_threads {
            state.threads += 1;
            drop(state);
            self.start_thread();
        }
    }

    fn start_thread(&self) {
        let shared = Arc::clone(&self.shared);
        let started = thread::Builder::new().name(shared.name.into()).spawn(move || work(&shared));
        let Err(error) = started else { return };
        tracing::warn!(%error, pool = self.shared.name, "no new thread");
        let mut state = self.shared.lock();
        state.threads -= 1;
        let stranded = if state.threads == 0 { state.queue.pop_front() } else { None };
        drop(state);
        if let Some(job) = stranded {
            run_guarded(job);
        }
    }

    /// Ends threads that have nothing to do, and waits for the others until `deadline`. False if
    /// some still have work then.
    pub(crate) fn close(&self, deadline: Instant) -> bool {
        let mut state = self.shared.lock();
        state.closed = true;
        self.shared.wake.notify_all();
        while state.threads > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let woken = self.shared.done.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

fn work(shared: &Shared) {
    let mut state = shared.lock();
    loop {
        if let Some(job) = state.queue.pop_front() {
            drop(state);
            run_guarded(job);
            state = shared.lock();
            continue;
        }
        if state.closed {
            break;
        }
        state.idle += 1;
        let woken = shared.wake.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
        state = woken.0;
        state.idle -= 1;
        if woken.1.timed_out() && state.queue.is_empty() {
            break;
        }
    }
    state.threads -= 1;
    shared.done.notify_all();
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn jobs_run_side_by_side_and_all_before_close_returns() {
        let pool = WorkPool::new("test", 3);
        let meet = Arc::new(Barrier::new(3));
        let count = Arc::new(AtomicUsize::new(0));
        for number in 0..50 {
            let (meet, count) = (Arc::clone(&meet), Arc::clone(&count));
            pool.submit(Box::new(move || {
                if number < 3 {
                    meet.wait();
                }
                count.fetch_add(1, Ordering::Relaxed);
            }));
        }
        assert!(pool.close(Instant::now() + Duration::from_secs(60)));
        assert_eq!(count.load(Ordering::Relaxed), 50);
    }

    #[test]
    fn a_panic_costs_no_thread_and_a_stuck_job_does_not_hold_up_close_forever() {
        let pool = WorkPool::new("test", 1);
        let (release, held) = std::sync::mpsc::channel::<()>();
        let (tell, told) = std::sync::mpsc::channel();
        pool.submit(Box::new(|| panic!("as planned by this test")));
        pool.submit(Box::new(move || {
            tell.send(()).unwrap();
            let _ = held.recv();
        }));
        told.recv().unwrap();
        assert!(!pool.close(Instant::now() + Duration::from_millis(30)));
        drop(release);
        assert!(pool.close(Instant::now() + Duration::from_secs(60)));
    }
}
