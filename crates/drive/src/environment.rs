//! Time and randomness, which a drive is given.

use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use nasd_types::Timestamp;

/// Where a drive takes its time and its random numbers from.
#[derive(Clone)]
pub struct Environment {
    clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    random: Arc<dyn Fn() -> u64 + Send + Sync>,
}

impl Environment {
    /// `clock` is the machine's clock, by which the drive's goes: nonces, expiry and attributes go by
    /// that. `random` draws 64 bits
    /// that nobody can guess or has drawn before.
    pub fn new(
        clock: impl Fn() -> Timestamp + Send + Sync + 'static,
        random: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Environment {
        Environment { clock: Arc::new(clock), random: Arc::new(random) }
    }

    /// The system's clock, and the system's random numbers.
    pub fn system() -> Environment {
        Environment::new(system_clock, system_random)
    }

    /// The same randomness under another clock.
    pub(crate) fn with_clock(&self, clock: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Environment { clock: Arc::new(clock), random: Arc::clone(&self.random) }
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.clock)()
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

fn system_random() -> u64 {
    // Linux refuses only where the call itself is forbidden. `RandomState` has its keys from
    // another source then, or ends the process.
    getrandom::u64().unwrap_or_else(|_| std::hash::RandomState::new().hash_one(system_clock().0))
}
