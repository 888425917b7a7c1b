//! Numbers that look random and are the same for a seed (SplitMix64), for the tests of every crate: they
//! name this file by its path.
#![allow(dead_code, reason = "each test uses its part")]

/// The seed, and then the state.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`; 0 if that is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    /// An index of `count` things; 0 if there are none.
    pub fn index(&mut self, count: usize) -> usize {
        self.below(count as u64) as usize
    }
}
