//! How a file is cut into large parts, which are moved side by side, and its checksum, which is made of theirs.

use blake3::Hasher;
use blake3::hazmat::{
    ChainingValue, HasherExt, Mode, left_subtree_len, merge_subtrees_non_root, merge_subtrees_root,
};
use nasd_types::ByteRange;

/// Parts are no smaller, so that few requests stand alone, and no larger, so that an interruption costs little.
const LEAST: u64 = 8 << 20;
const MOST: u64 = 256 << 20;

/// Of a file that is too long for that, parts are so long that there are no more than about so many.
const MOST_PARTS: u64 = 1 << 16;

/// Parts that each stream gets of a file that is large enough: so all end at about the same time.
const FOR_EACH: u64 = 4;

/// A file's parts: all of one size, which is a power of two, but the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parts {
    length: u64,
    part: u64,
}

impl Parts {
    /// Of a file of that length, for so many streams.
    pub fn new(length: u64, streams: u16) -> Parts {
        let each = length.div_ceil(u64::from(streams.max(1)) * FOR_EACH);
        let part = each.clamp(LEAST, MOST.max(length / MOST_PARTS)).next_power_of_two();
        Parts { length, part }
    }

    /// The same of a size that somebody has noted, if it is one that there may be.
    pub fn of_size(length: u64, part: u64) -> Option<Parts> {
        let is_one = part.is_power_of_two() && part >= LEAST;
        (is_one && length.div_ceil(part) <= MOST_PARTS).then_some(Parts { length, part })
    }

    /// Bytes of all.
    pub fn length(self) -> u64 {
        self.length
    }

    /// Bytes of each but the last.
    pub fn part_bytes(self) -> u64 {
        self.part
    }

    /// How many there are.
    pub fn count(self) -> u64 {
        self.length.div_ceil(self.part)
    }

    /// Where one is.
    pub fn range(self, index: u64) -> ByteRange {
        let offset = index * self.part;
        ByteRange::new(offset, self.part.min(self.length - offset))
    }

    /// What hashes one.
    pub fn hasher(self, index: u64) -> PartHasher {
        let mut hasher = Hasher::new();
        hasher.set_input_offset(index * self.part);
        PartHasher { hasher, is_all: self.count() <= 1 }
    }

    /// The BLAKE3 checksum of the file, by those of its parts; nothing if one is missing.
    pub fn whole(self, parts: &[Option<PartHash>]) -> Option<blake3::Hash> {
        match parts {
            [] => Some(blake3::hash(b"")),
            [one] => one.as_ref().map(|one| blake3::Hash::from_bytes(one.0)),
            _ => {
                let left = left_subtree_len(self.length);
                let (first, rest) = (self.tree(parts, 0, left)?, self.length - left);
                let second = self.tree(parts, left, rest)?;
                Some(merge_subtrees_root(&first, &second, Mode::Hash))
            }
        }
    }

    /// That of a part of the tree: of what is left of the last part, or of a number of parts.
    fn tree(self, parts: &[Option<PartHash>], offset: u64, length: u64) -> Option<ChainingValue> {
        if length <= self.part {
            let index = usize::try_from(offset / self.part).ok()?;
            return parts.get(index)?.as_ref().map(|part| part.0);
        }
        let left = left_subtree_len(length);
        let first = self.tree(parts, offset, left)?;
        let second = self.tree(parts, offset + left, length - left)?;
        Some(merge_subtrees_non_root(&first, &second, Mode::Hash))
    }
}

/// What a part comes to in the tree of its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartHash(ChainingValue);

impl PartHash {
    /// As digits.
    pub fn to_hex(self) -> String {
        blake3::Hash::from_bytes(self.0).to_hex().to_string()
    }

    /// From digits.
    pub fn from_hex(digits: &str) -> Option<PartHash> {
        blake3::Hash::from_hex(digits).ok().map(|hash| PartHash(*hash.as_bytes()))
    }
}

/// Hashes a part, from its first byte to its last.
pub struct PartHasher {
    hasher: Hasher,
    /// There is no other part.
    is_all: bool,
}

impl PartHasher {
    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
    }

    /// What it comes to.
    pub fn finish(self) -> PartHash {
        PartHash(match self.is_all {
            true => *self.hasher.finalize().as_bytes(),
            false => self.hasher.finalize_non_root(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_the_file_once() {
        for length in
            [0, 1, LEAST - 1, LEAST, LEAST + 1, 100 << 20, 5 << 30, (1 << 40) + 7, 1 << 60]
        {
            for streams in [1, 4, 64] {
                let parts = Parts::new(length, streams);
                let mut at = 0;
                for index in 0..parts.count() {
                    let range = parts.range(index);
                    assert!(range.offset == at && range.length > 0);
                    at = range.end();
                }
                assert_eq!(at, length);
                assert_eq!(Parts::of_size(length, parts.part_bytes()), Some(parts));
            }
        }
        assert_eq!(Parts::new(4 << 30, 4).count(), 16);
        assert_eq!(Parts::of_size(1 << 60, LEAST), None, "too many");
        for wrong in [0, 1, LEAST - 1, LEAST + 1, u64::MAX] {
            assert_eq!(Parts::of_size(1, wrong), None);
        }
    }

    #[test]
    fn a_checksum_is_that_of_the_whole_file() {
        let bytes: Vec<u8> = (0..(5 * LEAST + 12_345)).map(|at| (at % 251) as u8).collect();
        for length in [0, 1, 1024, LEAST, LEAST + 1, 2 * LEAST, 3 * LEAST + 7, 5 * LEAST + 12_345] {
            let bytes = &bytes[..length as usize];
            let parts = Parts { length, part: LEAST };
            let mut hashes: Vec<Option<PartHash>> = Vec::new();
            for index in 0..parts.count() {
                let range = parts.range(index);
                let mut hasher = parts.hasher(index);
                bytes[range.offset as usize..range.end() as usize]
                    .chunks(1_000_000)
                    .for_each(|chunk| hasher.update(chunk));
                let hash = hasher.finish();
                assert_eq!(PartHash::from_hex(&hash.to_hex()), Some(hash));
                hashes.push(Some(hash));
            }
            assert_eq!(parts.whole(&hashes), Some(blake3::hash(bytes)), "{length}");
            if let Some(last) = hashes.last_mut() {
                *last = None;
                assert_eq!(parts.whole(&hashes), None);
            }
        }
    }
}
