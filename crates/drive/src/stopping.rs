//! That a server is to stop, told to the threads that work beside its calls.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Whether it is to stop; who waits for something else meanwhile hears of it at once.
#[derive(Debug, Default)]
pub struct Stopping {
    now: Mutex<bool>,
    changed: Condvar,
}

impl Stopping {
    /// Waits for so long, or until it is to stop; whether it is.
    pub fn wait(&self, patience: Duration) -> bool {
        let now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(now, patience, |now| !*now);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Whether it is to stop.
    pub fn is_now(&self) -> bool {
        self.wait(Duration::ZERO)
    }

    /// It is to stop.
    pub fn stop(&self) {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }
}
