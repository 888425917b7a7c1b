//! Instants, as numbers: this crate never reads a clock.

/// Nanoseconds since 1970-01-01 00:00:00 UTC by the clock of whoever made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Nanoseconds in a second.
    pub const SECOND_NS: u64 = 1_000_000_000;
    /// Never reached: the expiry of what does not expire.
    pub const MAX: Timestamp = Timestamp(u64::MAX);

    /// From whole seconds and the rest in nanoseconds; saturates.
    pub const fn from_parts(seconds: u64, nanoseconds: u32) -> Self {
        Timestamp(seconds.saturating_mul(Self::SECOND_NS).saturating_add(nanoseconds as u64))
    }

    /// Whole seconds since the epoch.
    pub const fn seconds(self) -> u64 {
        self.0 / Self::SECOND_NS
    }

    /// The rest, in nanoseconds.
    pub const fn subsecond_ns(self) -> u32 {
        (self.0 % Self::SECOND_NS) as u32
    }

    /// Later by `nanoseconds`; saturates.
    pub const fn plus_ns(self, nanoseconds: u64) -> Self {
        Timestamp(self.0.saturating_add(nanoseconds))
    }

    /// How far apart two instants are, in nanoseconds.
    pub const fn distance_ns(self, other: Timestamp) -> u64 {
        self.0.abs_diff(other.0)
    }
}
