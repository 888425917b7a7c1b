//! How quick a component drive answers reads, beside others that have the same bytes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Whoever is quicker is not slow, whatever others are.
const QUICK_NS: u64 = 5_000_000;

/// Slow is who takes so many times as long as the quickest.
const TIMES: u64 = 4;

/// How often one that is slow is tried all the same.
const AGAIN: Duration = Duration::from_secs(1);

/// Bytes that make a read twice as long as it is without any.
const LONG: u64 = 128 << 10;

/// A mean of which every read is an eighth.
#[derive(Debug, Default)]
pub(super) struct Pace {
    mean_ns: AtomicU64,
    /// When it was looked at last, in milliseconds by the clock that it is told.
    looked_ms: AtomicU64,
}

impl Pace {
    /// A read of so many bytes was waited for so long.
    pub(super) fn note(&self, waited: Duration, bytes: usize) {
        self.note_sample(sample_ns(waited, bytes));
    }

    /// The same, and it has failed: who only says no is not quick, but may be slow at that.
    pub(super) fn note_failed(&self, waited: Duration, bytes: usize) {
        let sample = sample_ns(waited, bytes);
        if sample > self.mean_ns() {
            self.note_sample(sample);
        }
    }

    fn note_sample(&self, sample: u64) {
        // Two that come at once may lose one of them.
        let mean = self.mean_ns.load(Ordering::Relaxed);
        self.mean_ns.store(mean - mean / 8 + sample / 8, Ordering::Relaxed);
    }

    pub(super) fn mean_ns(&self) -> u64 {
        self.mean_ns.load(Ordering::Relaxed)
    }

    /// Whether another copy is better read, the quickest of which takes so long: but for one read now and then, which
    /// shows whether it is still so.
    pub(super) fn is_slow(&self, quickest_ns: u64, now: Duration) -> bool {
        let mean = self.mean_ns();
        if mean < QUICK_NS || mean / TIMES < quickest_ns {
            return false;
        }
        let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let looked = self.looked_ms.load(Ordering::Relaxed);
        let is_soon = now.saturating_sub(looked) < AGAIN.as_millis() as u64;
        let order = Ordering::Relaxed;
        // One of those who come at once tries it.
        is_soon || self.looked_ms.compare_exchange(looked, now, order, order).is_err()
    }
}

/// How long a read without any bytes would have been waited for.
fn sample_ns(waited: Duration, bytes: usize) -> u64 {
    let waited = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
    waited / (1 + bytes as u64 / LONG)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_only_says_no_is_not_quick_but_may_be_slow() {
        let pace = Pace::default();
        (0..50).for_each(|_| pace.note(Duration::from_millis(10), 4096));
        let before = pace.mean_ns();
        (0..50).for_each(|_| pace.note_failed(Duration::from_micros(50), 4096));
        assert_eq!(pace.mean_ns(), before);
        pace.note_failed(Duration::from_secs(2), 4096);
        assert!(pace.mean_ns() > 10 * before);
    }

    #[test]
    fn who_is_far_slower_than_another_is_slow_but_for_a_try_now_and_then() {
        let now = Duration::from_secs(60);
        let (slow, quick) = (Pace::default(), Pace::default());
        slow.looked_ms.store(59_500, Ordering::Relaxed);
        for _ in 0..20 {
            slow.note(Duration::from_millis(200), 4096);
            quick.note(Duration::from_millis(1), 1 << 20);
        }
        assert!(slow.is_slow(quick.mean_ns(), now) && !quick.is_slow(slow.mean_ns(), now));
        assert!(!slow.is_slow(slow.mean_ns(), now), "all are slow");
        let later = now + AGAIN;
        assert!(!slow.is_slow(0, later), "one tries");
        assert!(slow.is_slow(0, later) && slow.is_slow(0, later), "and no other");
        for _ in 0..60 {
            slow.note(Duration::from_millis(1), 4096);
        }
        assert!(!slow.is_slow(0, later), "it is quick again");
    }
}
