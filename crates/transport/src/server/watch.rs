//! Leaders that wait and have kept their turn.
//!
//! Giving the turn to a follower costs more than many a wait, so a leader whose peer has sent nothing
//! more keeps it until something comes. Nobody but this thread of the server would see that; it looks
//! at every connection now and then, for as long as there are such leaders.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::thread::{self, Thread};
use std::time::Duration;

use super::connection::start_thread;

/// How long a call may lie unseen behind one that waits, at most twice.
const TICK: Duration = Duration::from_micros(500);

/// The thread sleeps when for so many ticks no leader has waited.
const QUIET_TICKS: u32 = 200;

/// A connection, as far as it is watched.
pub(super) trait Watched: Send + Sync {
    /// Gives the turn away if its leader has kept it since the last time, and something has come.
    fn relieve(&self);
}

/// See the module.
#[derive(Default)]
pub(super) struct Watch {
    connections: Mutex<Vec<Weak<dyn Watched>>>,
    /// A leader waits, or has waited since this was last looked at.
    noted: AtomicBool,
    asleep: AtomicBool,
    stopping: AtomicBool,
    thread: OnceLock<Thread>,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}

impl Watch {
    /// Starts the thread.
    pub(super) fn start(name: &str) -> io::Result<Arc<Watch>> {
        let watch = Arc::new(Watch::default());
        let watching = Arc::clone(&watch);
        let handle = start_thread(name, move || watching.run())?;
        // Set once, here.
        let _ = watch.thread.set(handle.thread().clone());
        Ok(watch)
    }

    /// One more connection.
    pub(super) fn add(&self, connection: Weak<dyn Watched>) {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
    }

    /// A leader waits and has kept its turn.
    pub(super) fn note(&self) {
        self.noted.store(true, Ordering::SeqCst);
        if self.asleep.load(Ordering::SeqCst) {
            self.wake();
        }
    }

    /// The thread ends soon.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.wake();
    }

    fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    fn run(&self) {
        let mut quiet = 0;
        while !self.stopping.load(Ordering::SeqCst) {
            quiet = if self.noted.swap(false, Ordering::SeqCst) { 0 } else { quiet + 1 };
            if quiet <= QUIET_TICKS {
                thread::sleep(TICK);
                self.relieve_all();
                continue;
            }
            self.asleep.store(true, Ordering::SeqCst);
            // Asked again: whoever noted before the line above did not wake this thread. What else
            // may wake it too early does no harm.
            if !self.noted.load(Ordering::SeqCst) && !self.stopping.load(Ordering::SeqCst) {
                thread::park();
            }
            self.asleep.store(false, Ordering::SeqCst);
        }
    }

    fn relieve_all(&self) {
        let mut present: Vec<Arc<dyn Watched>> = Vec::new();
        self.connections.lock().unwrap_or_else(PoisonError::into_inner).retain(|connection| {
            let connection = connection.upgrade();
            present.extend(connection.clone());
            connection.is_some()
        });
        present.iter().for_each(|connection| connection.relieve());
    }
}
