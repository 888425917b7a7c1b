//! What a faulty device does wrong, and when.

use std::ops::Range;

/// When and how the device fails; nothing by default.
///
/// Reads, writes and syncs are numbered from 0 as they are asked for; each request of a batch
/// counts. What the plan leaves open is drawn by [`seed`](Self::seed), so that a plan and a
/// sequence of calls are one outcome.
#[derive(Clone, Debug, Default)]
pub struct FaultPlan {
    /// Lose power in the sync of this number (the first is 0): it does not happen, and from then
    /// on everything fails.
    pub crash_at_sync: Option<u64>,
    /// Lose power in the write of this number (the first is 0): what it wrote may survive in part,
    /// and so may the rest of its batch.
    pub crash_at_write: Option<u64>,
    /// Lose power in the write or sync of this number, counted together: one after the other,
    /// these are all crashes that a sequence of calls can have.
    pub crash_at_change: Option<u64>,
    /// Fail the reads of these numbers and go on.
    pub failing_reads: Vec<u64>,
    /// Fail the writes of these numbers and go on.
    pub failing_writes: Vec<u64>,
    /// Whether a write that fails writes some of its sectors all the same.
    pub partial_writes: bool,
    /// Fail the syncs of these numbers and go on.
    pub failing_syncs: Vec<u64>,
    /// What becomes of the writes that a failing sync was to make durable.
    pub failed_sync: FailedSync,
    /// Fail every read that touches a byte of this range.
    pub unreadable: Range<u64>,
    /// Fail every read that touches a byte of any of these ranges too: bad places of the medium.
    pub bad_ranges: Vec<Range<u64>>,
    /// Whether a sector that is written is readable from then on, as on a disk that has spare
    /// sectors. Healed sectors are forgotten when the plan is replaced.
    pub writing_heals: bool,
    /// Fail every write that touches a byte of this range.
    pub unwritable: Range<u64>,
    /// Pretend that the writes of these numbers were done, and do not do them.
    pub lost_writes: Vec<u64>,
    /// Flip one bit of what the writes of these numbers write.
    pub flipped_writes: Vec<u64>,
    /// Flip one bit of what the reads of these numbers bring; the medium stays as it is.
    pub flipped_reads: Vec<u64>,
    /// In what state a crash may leave a sector that was written and not made durable.
    pub tearing: Tearing,
    /// Draws what is left open above: parts, bits, and what a failed sync drops.
    pub seed: u64,
}

/// What becomes of the writes that a failing sync was to make durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailedSync {
    /// They wait for the next sync.
    #[default]
    Keeps,
    /// Some sectors, drawn by seed, are back at what was durable; a later sync that succeeds
    /// makes only the others durable.
    Drops,
    /// As `Drops`, but reads go on seeing what was dropped until a crash: Linux marks pages that
    /// it could not write as clean, and they stay in the page cache.
    DropsUnseen,
}

/// In what state a crash may leave a sector of 4 KiB that was written and not made durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tearing {
    /// Mostly one of its versions; in one of eight cases each piece of 512 bytes is from a
    /// version of its own.
    #[default]
    Seldom,
    /// Always one of its versions.
    Never,
    /// Each piece of 512 bytes is always from a version of its own.
    Always,
}

pub(super) fn touches(range: &Range<u64>, offset: u64, length: u64) -> bool {
    range.start < offset + length && offset < range.end
}

/// SplitMix64: small, seeded, and the same on every machine.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// What the plan of `seed` draws for the operation of this number: the streams of different
    /// kinds and numbers have nothing in common.
    pub(super) fn of(seed: u64, kind: &[u8; 4], number: u64) -> Random {
        let kind = u64::from(u32::from_le_bytes(*kind));
        let mixed = Random(seed ^ (kind << 32)).next();
        Random(mixed.wrapping_add(Random(number).next()))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(super) fn coin(&mut self) -> bool {
        self.below(2) == 0
    }
}
