//! Time and randomness, which a drive is given.

use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nasd_types::Timestamp;
use rustix::time::{ClockId, clock_gettime};

/// Where a drive takes its time and its random numbers from.
#[derive(Clone)]
pub struct Environment {
    clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    elapsed: Arc<dyn Fn() -> Duration + Send + Sync>,
    random: Arc<dyn Fn() -> u64 + Send + Sync>,
}

impl Environment {
    /// `clock` is the machine's time of day, which somebody may set; `elapsed` the time that has passed
    /// since some instant, which never goes back. By both goes the drive's clock, and by that go
    /// nonces, expiry and attributes. `random` draws 64 bits that nobody can guess or has drawn before.
    pub fn new(
        clock: impl Fn() -> Timestamp + Send + Sync + 'static,
        elapsed: impl Fn() -> Duration + Send + Sync + 'static,
        random: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Environment {
        Environment { clock: Arc::new(clock), elapsed: Arc::new(elapsed), random: Arc::new(random) }
    }

    /// The system's clocks, and the system's random numbers.
    pub fn system() -> Environment {
        Environment::new(system_clock, system_elapsed, system_random)
    }

    /// The same randomness under another clock.
    pub(crate) fn with_clock(&self, clock: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Environment { clock: Arc::new(clock), ..self.clone() }
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.clock)()
    }

    pub(crate) fn elapsed_ns(&self) -> u64 {
        u64::try_from((self.elapsed)().as_nanos()).unwrap_or(u64::MAX)
    }

    pub(crate) fn random(&self) -> u64 {
        (self.random)()
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Environment")
    }
}

fn system_clock() -> Timestamp {
    // Before 1970 there were no drives: such a clock is wrong, and clients will say so.
    let age = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_parts(age.as_secs(), age.subsec_nanos())
}

/// Since the machine's start, the time that it slept included.
fn system_elapsed() -> Duration {
    let passed = clock_gettime(ClockId::Boottime);
    // Neither is ever negative.
    Duration::new(passed.tv_sec.cast_unsigned(), passed.tv_nsec.try_into().unwrap_or_default())
}

fn system_random() -> u64 {
    // Linux refuses only where the call itself is forbidden. `RandomState` has its keys from
    // another source then, or ends the process.
    getrandom::u64().unwrap_or_else(|_| std::hash::RandomState::new().hash_one(system_clock().0))
}
