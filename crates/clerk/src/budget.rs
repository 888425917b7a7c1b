//! Bounded memory for what is written but not durable, one budget a drive.
//!
//! A budget of its own for each drive keeps a drive that is away from stopping writers to others.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nasd_client::interrupt;

/// How often a waiting writer asks again for memory to be freed.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// Bytes that may be held at once.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: AtomicU64,
    used: Mutex<u64>,
    freed: Condvar,
}

/// Why there is no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exhausted {
    /// The deadline passed before enough was freed.
    Late,
    /// Whoever asked does not want to wait any more.
    Interrupted,
}

impl Budget {
    /// A budget of `limit` bytes.
    pub(crate) fn new(limit: u64) -> Self {
        Budget { limit: AtomicU64::new(limit), used: Mutex::new(0), freed: Condvar::new() }
    }

    /// Raises the limit.
    pub(crate) fn allow(&self, limit: u64) {
        self.limit.fetch_max(limit, Ordering::AcqRel);
        self.freed.notify_all();
    }

    fn limit(&self) -> u64 {
        self.limit.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, u64> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes `bytes`, waiting until they fit; a request above the whole limit is let in alone.
    /// `make_room` is called, without any lock, whenever they do not fit.
    pub(crate) fn reserve(
        &self,
        bytes: u64,
        deadline: Instant,
        mut make_room: impl FnMut(),
    ) -> Result<(), Exhausted> {
        loop {
            if self.try_reserve(bytes) {
                return Ok(());
            }
            make_room();
            let used = self.lock();
            if !self.fits(*used, bytes) {
                let now = Instant::now();
                if now >= deadline {
                    return Err(Exhausted::Late);
                }
                let wait = ASK_AGAIN.min(deadline - now);
                drop(self.freed.wait_timeout(used, wait));
                interrupt::check().map_err(|_| Exhausted::Interrupted)?;
            }
        }
    }

    /// Takes `bytes` if they fit.
    pub(crate) fn try_reserve(&self, bytes: u64) -> bool {
        let mut used = self.lock();
        let fits = self.fits(*used, bytes);
        if fits {
            *used += bytes;
        }
        fits
    }

    fn fits(&self, used: u64, bytes: u64) -> bool {
        used == 0 || used.saturating_add(bytes) <= self.limit()
    }

    /// Gives `bytes` back.
    pub(crate) fn release(&self, bytes: u64) {
        if bytes > 0 {
            let mut used = self.lock();
            debug_assert!(*used >= bytes, "released more than was reserved");
            *used = used.saturating_sub(bytes);
            self.freed.notify_all();
        }
    }

    /// Bytes taken.
    pub(crate) fn used(&self) -> u64 {
        *self.lock()
    }

    /// Whether more than half is taken: time to flush in the background.
    pub(crate) fn is_tight(&self) -> bool {
        self.used() > self.limit() / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_budget_times_out_and_asks_for_room() {
        let budget = Budget::new(100);
        let soon = || Instant::now() + Duration::from_millis(50);
        assert_eq!(budget.reserve(100, soon(), || ()), Ok(()));
        let mut asked = 0;
        assert_eq!(budget.reserve(1, soon(), || asked += 1), Err(Exhausted::Late));
        assert!(asked > 0);
        assert_eq!(budget.reserve(100, soon(), || budget.release(100)), Ok(()));
    }

    #[test]
    fn a_request_above_the_limit_is_let_in_alone() {
        let budget = Budget::new(10);
        assert!(budget.try_reserve(50));
        assert!(!budget.try_reserve(1));
        budget.release(50);
        assert_eq!(budget.used(), 0);
    }
}
