//! The drive's memory of nonces (placeholder text replaced below).
use nasd_types::Timestamp;

use crate::{Nonce, Refusal};

/// Sizes and times of a [`NonceWindow`].
#[derive(Clone, Copy, Debug)]
pub struct WindowOptions {
    /// How much older than the drive's clock a timestamp may be, in nanoseconds.
    pub past_ns: u64,
    /// How far ahead of the drive's clock a timestamp may be, in nanoseconds.
    pub ahead_ns: u64,
    /// Senders remembered at a time; rounded up to a power of two.
    pub senders: usize,
}

impl Default for WindowOptions {
    fn default() -> Self {
        WindowOptions {
            past_ns: 10_000_000_000,
            ahead_ns: 1_000_000_000,
            senders: 8192,
        }
    }
}

/// The drive's memory of nonces seen; any number of threads share one.
pub struct NonceWindow {
    options: WindowOptions,
}

impl NonceWindow {
    /// An empty window.
    pub fn new(options: WindowOptions, start: Timestamp, seed: u64) -> Self {
        let _ = (start, seed);
        NonceWindow { options }
    }

    /// Whether the nonce may still be used, as far as can be told without recording it.
    pub fn check(&self, now: Timestamp, nonce: &Nonce) -> Result<(), Refusal> {
        let _ = (now, nonce, self.options);
        Ok(())
    }

    /// Records the nonce as seen, or refuses it; only one of any number of callers passes.
    pub fn record(&self, now: Timestamp, nonce: &Nonce) -> Result<(), Refusal> {
        let _ = (now, nonce);
        Ok(())
    }

    /// The timestamp that a refusal should tell the client to use.
    pub fn clock_for(&self, now: Timestamp, nonce: &Nonce) -> Timestamp {
        let _ = nonce;
        now
    }
}
