//! Leaders that wait and have laid their turn down.
//!
//! Giving the turn to a follower costs more than many a wait, so a leader whose peer has sent nothing
//! more lays the turn down, to take it up again. Nobody but this thread of the server would see that
//! something comes meanwhile; it looks at the connections of such leaders every half millisecond, for
//! as long as there are any.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use super::connection::start_thread;

/// Between two looks. How many of these a call may lie unseen is one more than the looks at which the
/// turn may have lain (`LOOKS_ALONE`, `LOOKS_TOGETHER`): two behind a call that waits alone, and five
/// behind calls that wait together.
const TICK: Duration = Duration::from_micros(500);

/// A connection, as far as it is watched.
pub(super) trait Watched: Send + Sync {
    /// Has a follower take the turn if something has come, or it has lain for long, and the turn has lain at as many looks
    /// before as its leader wished, one or more. Whether the connection is to be looked at again; if
    /// not, it asks for it when it is.
    fn relieve(&self) -> bool;
}

/// See the module.
#[derive(Default)]
pub(super) struct Watch {
    connections: Mutex<Vec<Weak<dyn Watched>>>,
    /// Whether the thread looks at nothing, since there is nothing.
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
    /// Starts the thread, which ends after `stop`.
    pub(super) fn start(name: &str) -> io::Result<(Arc<Watch>, JoinHandle<()>)> {
        let watch = Arc::new(Watch::default());
        let watching = Arc::clone(&watch);
        let handle = start_thread(name, move || watching.run())?;
        // Set once, here.
        let _ = watch.thread.set(handle.thread().clone());
        Ok((watch, handle))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<dyn Watched>>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This connection is to be looked at, until it says that it need not be. Its turn may not be
    /// locked.
    pub(super) fn add(&self, connection: Weak<dyn Watched>) {
        self.lock().push(connection);
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
        while !self.stopping.load(Ordering::SeqCst) {
            if self.relieve_all() {
                thread::sleep(TICK);
                continue;
            }
            self.asleep.store(true, Ordering::SeqCst);
            // Asked again: what was added before the line above did not wake this thread. What else
            // may wake it too early does no harm.
            if self.lock().is_empty() && !self.stopping.load(Ordering::SeqCst) {
                thread::park();
            }
            self.asleep.store(false, Ordering::SeqCst);
        }
    }

    /// Looks at every connection; whether there are any.
    fn relieve_all(&self) -> bool {
        // Locked all the while: a connection that need not be looked at any more may ask for it anew
        // as soon as it has said so, and must be added again then.
        let mut connections = self.lock();
        connections.retain(|connection| connection.upgrade().is_some_and(|c| c.relieve()));
        !connections.is_empty()
    }
}
