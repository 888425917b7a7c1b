//! Waiting for the signals that end a server.

use nasd_cell::terminal::hand_over_signals;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How late a signal may be noticed.
const TICK: Duration = Duration::from_millis(20);

/// Notices SIGINT and SIGTERM from the moment it is made.
pub struct Shutdown {
    signals: Signals,
}

impl Shutdown {
    /// Takes the two signals over.
    ///
    /// # Errors
    /// The system's, when it refuses.
    pub fn new() -> io::Result<Self> {
        let signals = Signals::new([SIGINT, SIGTERM])?;
        hand_over_signals(&[SIGINT, SIGTERM]);
        Ok(Shutdown { signals })
    }

    /// Waits for one of them.
    pub fn wait(&mut self) {
        self.signals.forever().next();
    }

    /// Waits for one of them, but no longer than `time`. Whether one has come.
    pub fn wait_for(&mut self, time: Duration) -> bool {
        let deadline = Instant::now() + time;
        while Instant::now() < deadline {
            if self.signals.pending().next().is_some() {
                return true;
            }
            std::thread::sleep(TICK);
        }
        false
    }

    /// A flag that is set when one of them comes.
    pub fn into_flag(mut self) -> Arc<AtomicBool> {
        let flag = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&flag);
        std::thread::spawn(move || {
            for _ in self.signals.forever() {
                seen.store(true, Ordering::Release);
            }
        });
        flag
    }
}
