//! Nonces: a timestamp by the drive's clock and a part that makes them unique.
//!
//! ```text
//! nonce = timestamp (64 bits, ns)  ||  unique (64 bits) = sender (40 bits) || sequence (24 bits)
//! ```
//!
//! A *sender* is whoever numbers requests from one counter: a client draws a random sender for
//! each connection (so that arrival follows numbering closely) and counts from 0. After 2^24
//! requests, or when the drive refuses a nonce as seen before (two clients may have drawn the same
//! sender), it moves on to another random sender. The drive's window ([`crate::window`]) relies
//! on this structure for its speed, never for its safety: a client that numbers otherwise, even
//! at random, is served too, but costs the drive more memory of its past.
//!
//! Timestamps need not rise, but should be fresh. Nothing breaks when a nonce repeats by accident:
//! the drive refuses the second, and the MACs of both suites keep their strength.

use std::sync::atomic::{AtomicU64, Ordering};

use nasd_types::Timestamp;

/// Bytes of a nonce in its canonical form, which is also its XDR form.
pub const NONCE_BYTES: usize = 16;

/// Bits of [`Nonce::unique`] that number the requests of one sender.
pub const SEQUENCE_BITS: u32 = 24;

/// Most requests of one sender.
pub const MAX_SEQUENCE: u32 = (1 << SEQUENCE_BITS) - 1;

const SENDER_MASK: u64 = u64::MAX >> SEQUENCE_BITS;

/// What makes a request or reply unlike any other (`nasd_nonce`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Nonce {
    /// When it was made, by the drive's clock.
    pub timestamp: Timestamp,
    /// Sender and sequence, see the module.
    pub unique: u64,
}

impl Nonce {
    /// The canonical form: both fields big-endian.
    pub fn to_bytes(&self) -> [u8; NONCE_BYTES] {
        let mut bytes = [0; NONCE_BYTES];
        bytes[..8].copy_from_slice(&self.timestamp.0.to_be_bytes());
        bytes[8..].copy_from_slice(&self.unique.to_be_bytes());
        bytes
    }

    /// Whose numbering it belongs to: 40 bits.
    pub const fn sender(&self) -> u64 {
        self.unique >> SEQUENCE_BITS
    }

    /// Its number: 24 bits.
    pub const fn sequence(&self) -> u32 {
        (self.unique & MAX_SEQUENCE as u64) as u32
    }
}

/// Draws nonces; any number of threads may share one. Clients keep one for each connection, a
/// drive one for its replies.
#[derive(Debug)]
pub struct NonceSource {
    seed: u64,
    /// How many were drawn; the bits above the sequence tell how often the sender changed.
    drawn: AtomicU64,
}

impl NonceSource {
    /// `seed` must be random and drawn anew for each source, else senders collide.
    pub const fn new(seed: u64) -> Self {
        NonceSource { seed, drawn: AtomicU64::new(0) }
    }

    /// A nonce that this source never gave before.
    pub fn draw(&self, timestamp: Timestamp) -> Nonce {
        let drawn = self.drawn.fetch_add(1, Ordering::Relaxed);
        let sender = self.sender_of(drawn >> SEQUENCE_BITS);
        let sequence = drawn & u64::from(MAX_SEQUENCE);
        Nonce { timestamp, unique: sender << SEQUENCE_BITS | sequence }
    }

    /// Moves on to another sender, because the drive refused `refused` as seen before. Does
    /// nothing if another thread has done so already.
    pub fn change_sender(&self, refused: &Nonce) {
        let drawn = self.drawn.load(Ordering::Relaxed);
        let generation = drawn >> SEQUENCE_BITS;
        if self.sender_of(generation) == refused.sender() {
            self.drawn.fetch_max((generation + 1) << SEQUENCE_BITS, Ordering::Relaxed);
        }
    }

    const fn sender_of(&self, generation: u64) -> u64 {
        mix(self.seed.wrapping_add(generation)) & SENDER_MASK
    }
}

/// A bijection of 64 bits in which every bit of the input moves every bit of the output
/// (the finalizer of SplitMix64).
pub(crate) const fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_source_never_repeats_itself_over_changes_of_sender() {
        let source = NonceSource::new(42);
        let mut seen = HashSet::new();
        let mut senders = HashSet::new();
        let mut last = Nonce::default();
        for round in 0..20 {
            let before = last;
            for _ in 0..100 {
                last = source.draw(Timestamp(5));
                assert!(seen.insert(last.unique));
                senders.insert(last.sender());
            }
            assert_eq!(senders.len(), round + 1);
            source.change_sender(&before);
            assert_eq!(source.draw(Timestamp(5)).sender(), last.sender(), "an old refusal");
            source.change_sender(&last);
        }
    }

    #[test]
    fn the_sender_changes_when_its_numbers_are_used_up() {
        let source = NonceSource::new(1);
        source.drawn.store(u64::from(MAX_SEQUENCE), Ordering::Relaxed);
        let last = source.draw(Timestamp(0));
        let first = source.draw(Timestamp(0));
        assert_eq!(last.sequence(), MAX_SEQUENCE);
        assert_eq!(first.sequence(), 0);
        assert_ne!(last.sender(), first.sender());
    }

    #[test]
    fn parts_and_bytes() {
        let nonce = Nonce { timestamp: Timestamp(0x0102), unique: 0xaa_0000_0005 << 24 | 7 };
        assert_eq!(nonce.sender(), 0xaa_0000_0005);
        assert_eq!(nonce.sequence(), 7);
        let expected = [0, 0, 0, 0, 0, 0, 1, 2, 0xaa, 0, 0, 0, 5, 0, 0, 7];
        assert_eq!(nonce.to_bytes(), expected);
    }
}
