//! Numbers that look random and are the same for a seed (SplitMix64).

use std::time::Duration;

/// The seed, and then the state.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The numbers of a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0x6a09_e667_f3bc_c909)
    }

    /// Other numbers, which depend on these.
    pub fn fork(&mut self) -> Random {
        Random(self.draw())
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`; 0 if that is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.draw() % limit.max(1)
    }

    /// An index of `count` things; 0 if there are none.
    pub fn index(&mut self, count: usize) -> usize {
        self.below(count as u64) as usize
    }

    /// Whether something happens that happens once in so many times; never if that is 0.
    pub fn one_in(&mut self, times: u64) -> bool {
        times > 0 && self.below(times) == 0
    }

    /// A time between two.
    pub fn between(&mut self, least: Duration, most: Duration) -> Duration {
        let span = most.saturating_sub(least).as_nanos() as u64;
        least + Duration::from_nanos(self.below(span + 1))
    }
}
