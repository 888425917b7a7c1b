//! Transfers of one file that are under way, for programs that begin many and wait for one.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use crate::error::{PreloadError, last_error};
use crate::mapped::Mapped;
use crate::parts::one;
use crate::real;

/// Most threads of a file: each has connections of its own, and a server has many readers beside this one.
const MOST_WORKERS: usize = 8;

/// What is to be done.
pub(crate) struct Job {
    pub(crate) writes: bool,
    /// The program's memory.
    pub(crate) buffer: *mut std::ffi::c_void,
    pub(crate) count: usize,
    pub(crate) at: i64,
    pub(crate) tag: u64,
}

// SAFETY: the program leaves the memory alone until it is told that the job has ended.
unsafe impl Send for Job {}

/// One that has ended.
pub(crate) struct Ended {
    pub(crate) tag: u64,
    pub(crate) outcome: Result<isize, PreloadError>,
}

/// A file, and who works on it.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    workers: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    fd: c_int,
    file: Arc<Mapped>,
    state: Mutex<State>,
    /// There is something to be done, or nothing any more.
    has_work: Condvar,
    has_ended: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Job>,
    ended: VecDeque<Ended>,
    /// Not ended.
    under_way: usize,
    idle: usize,
    is_over: bool,
}

impl Pool {
    pub(crate) fn new(fd: c_int, file: Arc<Mapped>) -> Pool {
        let shared = Shared {
            fd,
            file,
            state: Mutex::default(),
            has_work: Condvar::new(),
            has_ended: Condvar::new(),
        };
        Pool { shared: Arc::new(shared), workers: Mutex::default() }
    }

    /// Its descriptor.
    pub(crate) fn fd(&self) -> c_int {
        self.shared.fd
    }

    /// It.
    pub(crate) fn file(&self) -> &Mapped {
        &self.shared.file
    }

    /// Does a job at once.
    pub(crate) fn run(&self, job: &Job) -> Result<isize, PreloadError> {
        self.shared.run(job)
    }

    /// Begins one.
    pub(crate) fn begin(&self, job: Job) -> Result<(), PreloadError> {
        let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        let is_short = self.shared.lock().idle == 0;
        if workers.is_empty() || is_short && workers.len() < MOST_WORKERS {
            match self.worker() {
                Ok(worker) => workers.push(worker),
                // Others will do it.
                Err(_) if !workers.is_empty() => {}
                Err(error) => return Err(error),
            }
        }
        drop(workers);
        let mut state = self.shared.lock();
        state.under_way += 1;
        state.waiting.push_back(job);
        self.shared.has_work.notify_one();
        Ok(())
    }

    fn worker(&self) -> Result<JoinHandle<()>, PreloadError> {
        let shared = Arc::clone(&self.shared);
        let begun =
            thread::Builder::new().name("nasd-bulk".to_owned()).spawn(move || shared.work());
        begun.map_err(|_| PreloadError::Memory)
    }

    /// The next one that ends; nothing if none is under way.
    pub(crate) fn wait(&self) -> Option<Ended> {
        let mut state = self.shared.lock();
        loop {
            if let Some(ended) = state.ended.pop_front() {
                return Some(ended);
            }
            if state.under_way == 0 {
                return None;
            }
            state = self.shared.has_ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Pool {
    /// Waits for all.
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.has_work.notify_all();
        let workers =
            std::mem::take(self.workers.get_mut().unwrap_or_else(PoisonError::into_inner));
        for worker in workers {
            // One that has panicked has ended too.
            worker.join().ok();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic is done with it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut state = self.lock();
        loop {
            let Some(job) = state.waiting.pop_front() else {
                if state.is_over {
                    return;
                }
                state.idle += 1;
                state = self.has_work.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
                continue;
            };
            drop(state);
            let run = std::panic::AssertUnwindSafe(|| self.run(&job));
            let outcome = std::panic::catch_unwind(run).unwrap_or(Err(PreloadError::Broken));
            state = self.lock();
            state.under_way -= 1;
            state.ended.push_back(Ended { tag: job.tag, outcome });
            self.has_ended.notify_all();
        }
    }

    fn run(&self, job: &Job) -> Result<isize, PreloadError> {
        let Job { writes, buffer, count, at, .. } = *job;
        let parts = one(buffer, count);
        // SAFETY: the memory is the program's, as it says.
        unsafe {
            let told = match writes {
                true => self.file.write_at(self.fd, &parts, at)?,
                false => self.file.read_at(self.fd, &parts, at)?,
            };
            let told = told.unwrap_or_else(|| match writes {
                true => real::pwrite(self.fd, buffer, count, at),
                false => real::pread(self.fd, buffer, count, at),
            });
            if told < 0 { Err(last_error().into()) } else { Ok(told) }
        }
    }
}
