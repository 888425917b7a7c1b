//! What a client needs of the machine it runs on: time, sleep and random numbers.

use std::hash::BuildHasher;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nasd_types::Timestamp;

/// Time, sleep and random numbers. Tests have one whose time passes only when it is slept away.
pub trait Host: Send + Sync {
    /// Time since some fixed instant. Never runs backwards.
    fn elapsed(&self) -> Duration;

    /// What this machine believes the time of day to be. Somebody may set it at any time, so that
    /// it only serves to find out that a drive's clock is far off.
    fn wall_clock(&self) -> Timestamp;

    /// Waits.
    fn sleep(&self, duration: Duration);

    /// 64 bits that differ from those of other clients. They need not be secret.
    fn random(&self) -> u64;

    /// Whether threads take turns here, as in a simulation: none runs while another one neither sleeps nor waits
    /// for an answer. Who waits for another thread sleeps a little meanwhile, again and again; and nobody begins
    /// threads by himself.
    fn takes_turns(&self) -> bool {
        false
    }
}

/// This machine.
#[derive(Debug)]
pub struct SystemHost {
    started: Instant,
}

impl SystemHost {
    /// A host whose time starts now.
    pub fn new() -> Self {
        SystemHost { started: Instant::now() }
    }
}

impl Default for SystemHost {
    fn default() -> Self {
        Self::new()
    }
}

impl Host for SystemHost {
    fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    fn wall_clock(&self) -> Timestamp {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_parts(since_epoch.as_secs(), since_epoch.subsec_nanos())
    }

    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }

    fn random(&self) -> u64 {
        // Each such state is keyed differently, from the system's random numbers.
        std::hash::RandomState::new().hash_one(self.started.elapsed())
    }
}

/// A host for tests: sleeps take no time but pass it.
#[cfg(test)]
#[derive(Default)]
pub(crate) struct Clock(pub(crate) std::sync::Mutex<Duration>);

#[cfg(test)]
impl Host for Clock {
    fn elapsed(&self) -> Duration {
        *self.0.lock().unwrap()
    }

    fn wall_clock(&self) -> Timestamp {
        Timestamp(0)
    }

    fn sleep(&self, duration: Duration) {
        *self.0.lock().unwrap() += duration;
    }

    fn random(&self) -> u64 {
        7
    }
}
