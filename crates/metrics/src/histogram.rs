//! How often things happened, and how long they took.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper ends of the classes of time, in microseconds: each four times the one before.
pub const CLASS_ENDS_US: [u64; 11] =
    [4, 16, 64, 256, 1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22];

/// A number that rises.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// So much more.
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// How much there was so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How long things took, counted in classes.
#[derive(Debug, Default)]
pub struct Histogram {
    /// What took that long; the last class has no upper end.
    classes: [Counter; CLASS_ENDS_US.len() + 1],
    nanoseconds: Counter,
}

impl Histogram {
    /// One more, that took so long.
    pub fn count(&self, taken: Duration) {
        let nanoseconds = u64::try_from(taken.as_nanos()).unwrap_or(u64::MAX);
        let class = CLASS_ENDS_US.partition_point(|end| end * 1000 < nanoseconds);
        self.classes[class].add(1);
        self.nanoseconds.add(nanoseconds);
    }

    /// How many took at most the time of each class's end, and how many there were.
    pub fn within(&self) -> [u64; CLASS_ENDS_US.len() + 1] {
        let mut sum = 0;
        std::array::from_fn(|class| {
            sum += self.classes[class].get();
            sum
        })
    }

    /// How long all took together.
    pub fn time(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_in_the_first_class_that_holds_them() {
        let histogram = Histogram::default();
        for microseconds in [0, 4, 5, 16, 17, 1 << 22, (1 << 22) + 1] {
            histogram.count(Duration::from_micros(microseconds));
        }
        assert_eq!(histogram.within(), [2, 4, 5, 5, 5, 5, 5, 5, 5, 5, 6, 7]);
        assert_eq!(histogram.time(), Duration::from_micros(42 + (1 << 23) + 1));
    }
}
