//! A bounded pool of threads that starts them when there is work and ends them when there is none.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::ClerkError;

/// A thread without work ends after this long.
const IDLE: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

/// Runs jobs on at most a fixed number of threads, in order of submission.
#[derive(Clone)]
pub(crate) struct WorkPool {
    shared: Arc<Shared>,
}

struct Shared {
    name: String,
    max_threads: AtomicUsize,
    state: Mutex<State>,
    wake: Condvar,
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

impl WorkPool {
    /// A pool without threads yet.
    pub(crate) fn new(name: impl Into<String>, max_threads: usize) -> Self {
        let shared = Shared {
            name: name.into(),
            max_threads: AtomicUsize::new(max_threads.max(1)),
            state: Mutex::default(),
            wake: Condvar::new(),
        };
        WorkPool { shared: Arc::new(shared) }
    }

    /// From now on it may have so many threads, if those are more.
    pub(crate) fn allow(&self, max_threads: usize) {
        self.shared.max_threads.fetch_max(max_threads, Ordering::AcqRel);
    }

    /// Queues a job. When the system gives no thread at all, the job runs here and now: callers
    /// must not hold a lock that the job takes.
    pub(crate) fn submit(&self, job: impl FnOnce() + Send + 'static) {
        let mut state = self.shared.lock();
        state.queue.push_back(Box::new(job));
        if state.idle >= state.queue.len() {
            self.shared.wake.notify_one();
        } else if state.threads < self.shared.max_threads.load(Ordering::Acquire) {
            self.start_thread(state);
        }
    }

    /// Whether jobs wait for a thread.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.shared.lock().queue.is_empty()
    }

    fn start_thread(&self, mut state: MutexGuard<'_, State>) {
        state.threads += 1;
        drop(state);
        let shared = Arc::clone(&self.shared);
        let started =
            thread::Builder::new().name(self.shared.name.clone()).spawn(move || run(&shared));
        if let Err(error) = started {
            tracing::warn!(%error, pool = self.shared.name, "no new thread");
            let mut state = self.shared.lock();
            state.threads -= 1;
            let stranded = if state.threads == 0 { state.queue.pop_front() } else { None };
            drop(state);
            if let Some(job) = stranded {
                job();
            }
        }
    }

    /// Ends idle threads; queued jobs still run.
    pub(crate) fn close(&self) {
        self.shared.lock().closed = true;
        self.shared.wake.notify_all();
    }
}

/// Does something of which others wait to hear the end: a panic is a failure as any other.
pub(crate) fn caught<T>(work: impl FnOnce() -> Result<T, ClerkError>) -> Result<T, ClerkError> {
    let caught = catch_unwind(AssertUnwindSafe(work));
    caught.unwrap_or_else(|_| Err(ClerkError::Protocol("a request has panicked".to_owned())))
}

fn run(shared: &Shared) {
    let mut state = shared.lock();
    loop {
        if let Some(job) = state.queue.pop_front() {
            drop(state);
            // The thread goes on with what others have submitted.
            if catch_unwind(AssertUnwindSafe(job)).is_err() {
                tracing::error!(pool = shared.name, "a job has panicked");
            }
            state = shared.lock();
            continue;
        }
        if state.closed {
            break;
        }
        state.idle += 1;
        let (woken, timeout) =
            shared.wake.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
        state = woken;
        state.idle -= 1;
        if timeout.timed_out() && state.queue.is_empty() {
            break;
        }
    }
    state.threads -= 1;
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn jobs_run_side_by_side_up_to_the_limit() {
        let pool = WorkPool::new("test", 3);
        let meet = Arc::new(Barrier::new(3));
        let done = Arc::new(Barrier::new(4));
        for _ in 0..3 {
            let (meet, done) = (Arc::clone(&meet), Arc::clone(&done));
            pool.submit(move || {
                meet.wait();
                done.wait();
            });
        }
        done.wait();
        assert!(pool.shared.lock().threads <= 3);
    }

    #[test]
    fn a_job_that_panics_takes_no_thread_with_it() {
        let pool = WorkPool::new("test", 1);
        let (sender, receiver) = std::sync::mpsc::channel();
        for number in 0..3 {
            let sender = sender.clone();
            pool.submit(move || {
                assert_ne!(number, 0, "it is to panic");
                sender.send(number).unwrap();
            });
        }
        let soon = Duration::from_secs(20);
        assert_eq!(receiver.recv_timeout(soon), Ok(1));
        assert_eq!(receiver.recv_timeout(soon), Ok(2));
        let panicked: Result<(), _> = caught(|| panic!("it is to panic"));
        assert!(matches!(panicked, Err(ClerkError::Protocol(_))));
    }

    #[test]
    fn every_job_runs_even_after_close() {
        let pool = WorkPool::new("test", 2);
        let count = Arc::new(AtomicUsize::new(0));
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        for _ in 0..100 {
            let (count, sender) = (Arc::clone(&count), sender.clone());
            pool.submit(move || {
                count.fetch_add(1, Ordering::Relaxed);
                drop(sender);
            });
        }
        pool.close();
        drop(sender);
        assert!(receiver.recv().is_err());
        assert_eq!(count.load(Ordering::Relaxed), 100);
    }
}
