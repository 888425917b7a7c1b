//! Refused calls in the log: anybody can make one, as often as it likes, and must not fill the disk.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// One line in this time, which tells how many were left out.
const INTERVAL: Duration = Duration::from_secs(1);

/// Says which refusals are worth a line.
#[derive(Debug)]
pub(crate) struct Refusals {
    started: Instant,
    /// When the next line may come, in milliseconds since the start.
    next: AtomicU64,
    left_out: AtomicU64,
}

impl Default for Refusals {
    fn default() -> Self {
        let (next, left_out) = (AtomicU64::new(0), AtomicU64::new(0));
        Refusals { started: Instant::now(), next, left_out }
    }
}

impl Refusals {
    /// One more refusal: how many were left out since the last line, if this one gets a line.
    pub(crate) fn count(&self) -> Option<u64> {
        self.count_at(self.started.elapsed())
    }

    fn count_at(&self, elapsed: Duration) -> Option<u64> {
        let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let (now, next) = (milliseconds(elapsed), self.next.load(Ordering::Relaxed));
        let then = now.saturating_add(milliseconds(INTERVAL));
        let order = Ordering::Relaxed;
        if now < next || self.next.compare_exchange(next, then, order, order).is_err() {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(self.left_out.swap(0, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_second_tells_of_all() {
        let refusals = Refusals::default();
        let count = |milliseconds| refusals.count_at(Duration::from_millis(milliseconds));
        assert_eq!(count(0), Some(0));
        for _ in 0..1000 {
            assert_eq!(count(999), None);
        }
        assert_eq!(count(1000), Some(1000));
        assert_eq!(count(1500), None);
        assert_eq!(count(9000), Some(1));
        assert_eq!(count(90_000), Some(0));
    }
}
