//! Hashing of short names that nobody outside can choose so that they collide.

use std::hash::{BuildHasher, Hasher};

/// Hashes a word by a multiplication with a seed of this process; SipHash, for what every request
/// looks up several times, would cost as much as its digest. Only for keys that are made here, or
/// that somebody must hold a secret for: it does not stand up to keys that were chosen to collide
/// by somebody who knows the seed.
#[derive(Clone, Copy, Debug)]
pub struct NameHashing {
    seed: u64,
}

impl NameHashing {
    /// `seed` should be another one in each process.
    pub const fn new(seed: u64) -> NameHashing {
        NameHashing { seed }
    }
}

impl BuildHasher for NameHashing {
    type Hasher = NameHasher;

    fn build_hasher(&self) -> NameHasher {
        NameHasher(self.seed)
    }
}

/// See [`NameHashing`].
#[derive(Debug)]
pub struct NameHasher(u64);

impl Hasher for NameHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_u64(&mut self, word: u64) {
        // As in SplitMix64: high bits come down again, so that all of them count.
        let product = (self.0 ^ word).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        self.0 = product ^ (product >> 32);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::{ObjectId, ObjectName, PartitionId};

    #[test]
    fn names_that_follow_one_another_are_spread() {
        let hashing = NameHashing::new(0x1234_5678_9abc_def1);
        let name = |object| ObjectName { partition: PartitionId(1), object: ObjectId(object) };
        let hashes: Vec<u64> = (0..4096).map(|object| hashing.hash_one(name(object))).collect();
        assert_eq!(hashes.iter().collect::<HashSet<_>>().len(), 4096);
        // The parts that maps and their owners take.
        for shift in [0, 40, 57] {
            let mut counts = [0; 64];
            hashes.iter().for_each(|hash| counts[(hash >> shift) as usize % 64] += 1);
            assert!(counts.iter().all(|count| (20..140).contains(count)), "{shift}: {counts:?}");
        }
    }
}
