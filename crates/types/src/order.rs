//! The order of writes that go to several drives.

use crate::Timestamp;

/// Which of two overlapping writes is the later one, wherever they arrive first: a time on the drives' clocks,
/// and a number that no other writer draws at that time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriteOrder {
    /// The time.
    pub time: Timestamp,
    /// The number.
    pub unique: u64,
}
