//! Memory for what is kept of texts and records: one slab, cut into blocks of powers of two, which are used
//! again.

/// The smallest block, in bytes.
const LEAST: usize = 16;
/// No block.
const NONE: u32 = u32::MAX;

/// A slab of bounded size.
#[derive(Debug)]
pub(crate) struct Arena {
    bytes: Vec<u8>,
    used: usize,
    /// The first free block of each size; each holds the number of the next one.
    free: [u32; 32],
}

/// Some bytes in an arena.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slot {
    start: u32,
    length: u32,
}

impl Slot {
    /// In one word, for accumulators.
    pub(crate) fn to_word(self) -> u64 {
        u64::from(self.start) << 32 | u64::from(self.length)
    }

    pub(crate) fn from_word(word: u64) -> Slot {
        Slot { start: (word >> 32) as u32, length: word as u32 }
    }

    fn block(length: usize) -> usize {
        length.max(LEAST).next_power_of_two()
    }
}

impl Arena {
    /// Of at most `bytes`, below 2^31.
    pub(crate) fn new(bytes: usize) -> Arena {
        Arena { bytes: vec![0; bytes], used: 0, free: [NONE; 32] }
    }

    /// A block for `length` bytes; `None` if there is none left.
    pub(crate) fn allocate(&mut self, length: usize) -> Option<Slot> {
        let block = Slot::block(length);
        let class = block.trailing_zeros() as usize;
        let first = *self.free.get(class)?;
        if first != NONE {
            let at = first as usize;
            let next = self.bytes[at..].first_chunk::<4>()?;
            self.free[class] = u32::from_le_bytes(*next);
            return Some(Slot { start: first, length: length as u32 });
        }
        if block > self.bytes.len() - self.used {
            return None;
        }
        let start = self.used as u32;
        self.used += block;
        Some(Slot { start, length: length as u32 })
    }

    /// A block with a copy of `bytes`.
    pub(crate) fn keep(&mut self, bytes: &[u8]) -> Option<Slot> {
        let slot = self.allocate(bytes.len())?;
        self.get_mut(slot).copy_from_slice(bytes);
        Some(slot)
    }

    /// Gives a block back.
    pub(crate) fn release(&mut self, slot: Slot) {
        let class = Slot::block(slot.length as usize).trailing_zeros() as usize;
        let at = slot.start as usize;
        self.bytes[at..at + 4].copy_from_slice(&self.free[class].to_le_bytes());
        self.free[class] = slot.start;
    }

    /// No less than what all that is kept has, in bytes.
    pub(crate) fn used_bytes(&self) -> usize {
        self.used
    }

    pub(crate) fn get(&self, slot: Slot) -> &[u8] {
        &self.bytes[slot.start as usize..][..slot.length as usize]
    }

    pub(crate) fn get_mut(&mut self, slot: Slot) -> &mut [u8] {
        &mut self.bytes[slot.start as usize..][..slot.length as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_used_again() {
        let mut arena = Arena::new(64);
        let first = arena.keep(b"one").unwrap();
        let second = arena.keep(b"seventeen letters").unwrap();
        let third = arena.keep(b"three").unwrap();
        assert!(arena.keep(b"x").is_none());
        assert_eq!(arena.get(second), b"seventeen letters");
        arena.release(first);
        arena.release(third);
        let fourth = arena.keep(b"four").unwrap();
        let fifth = arena.keep(b"").unwrap();
        assert_eq!((arena.get(fourth), arena.get(fifth)), (&b"four"[..], &b""[..]));
        assert!(arena.keep(b"x").is_none());
        assert_eq!(arena.get(second), b"seventeen letters");
    }
}
