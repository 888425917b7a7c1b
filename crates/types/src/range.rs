//! Ranges of bytes of an object.

use std::fmt;

/// `length` bytes from `offset`. The end never exceeds `u64::MAX`; `new` saturates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct ByteRange {
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
}

impl ByteRange {
    /// Every byte that an object can have.
    pub const ALL: ByteRange = ByteRange { offset: 0, length: u64::MAX };

    /// A range whose end is cut at `u64::MAX`.
    pub const fn new(offset: u64, length: u64) -> Self {
        let room = u64::MAX - offset;
        ByteRange { offset, length: if length < room { length } else { room } }
    }

    /// The byte after the last one.
    pub const fn end(&self) -> u64 {
        self.offset.saturating_add(self.length)
    }

    /// No byte at all.
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Whether every byte of `inner` is in `self`. An empty range must still lie within the bounds.
    pub const fn contains(&self, inner: &ByteRange) -> bool {
        inner.offset >= self.offset && inner.end() <= self.end()
    }

    /// The bytes in both, or an empty range.
    pub fn intersection(&self, other: &ByteRange) -> ByteRange {
        let offset = self.offset.max(other.offset);
        let end = self.end().min(other.end());
        ByteRange { offset, length: end.saturating_sub(offset) }
    }
}

impl fmt::Display for ByteRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {})", self.offset, self.end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_saturate() {
        let range = ByteRange::new(u64::MAX - 1, 10);
        assert_eq!(range.length, 1);
        assert_eq!(range.end(), u64::MAX);
        assert!(ByteRange::ALL.contains(&range));
    }

    #[test]
    fn containment_and_intersection() {
        let outer = ByteRange::new(10, 10);
        assert!(outer.contains(&ByteRange::new(10, 10)));
        assert!(outer.contains(&ByteRange::new(20, 0)));
        assert!(!outer.contains(&ByteRange::new(21, 0)));
        assert!(!outer.contains(&ByteRange::new(9, 2)));
        assert_eq!(outer.intersection(&ByteRange::new(15, 100)), ByteRange::new(15, 5));
        assert!(outer.intersection(&ByteRange::new(30, 5)).is_empty());
    }
}
