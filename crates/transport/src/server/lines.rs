//! Log lines that peers can cause: only so many of each kind a second, then one that counts the others.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Lines of a kind in one second.
const LINES_A_SECOND: u32 = 5;

/// What a line is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Somebody was turned away for lack of room.
    Full,
    /// Somebody's address owes too much.
    Shut,
    /// A handshake failed.
    Handshake,
    /// Bytes that are no calls.
    Protocol,
    /// A call that comes too slowly, or a reply that is not taken.
    Slow,
    /// Too many calls in a row that prove nothing.
    Unproved,
    /// The system gave no socket or thread.
    System,
}

const KINDS: usize = 7;

/// The lines of one kind.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    /// The second of the last line.
    second: u64,
    /// Lines in it.
    lines: u32,
    /// Left out since the last line.
    left_out: u64,
}

impl Counted {
    /// Whether a line may be written in this second, and how many were left out before it.
    fn admit(&mut self, second: u64) -> Option<u64> {
        if second != self.second {
            self.second = second;
            self.lines = 0;
        }
        if self.lines >= LINES_A_SECOND {
            self.left_out += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

/// The lines of a server.
#[derive(Debug)]
pub(super) struct Lines {
    began: Instant,
    kinds: [Mutex<Counted>; KINDS],
}

impl Lines {
    pub(super) fn new() -> Lines {
        Lines { began: Instant::now(), kinds: Default::default() }
    }

    /// Runs `line`, which writes one, unless there were too many of the kind.
    pub(super) fn write(&self, kind: Kind, line: impl FnOnce()) {
        let second = self.began.elapsed().as_secs();
        let counted = &self.kinds[kind as usize];
        let admitted = counted.lock().unwrap_or_else(PoisonError::into_inner).admit(second);
        let Some(left_out) = admitted else {
            return;
        };
        if left_out > 0 {
            tracing::warn!(about = ?kind, left_out, "too many lines: some were left out");
        }
        line();
    }

    /// Tells what was left out and never counted, as the server stops.
    pub(super) fn finish(&self) {
        for (kind, counted) in Kind::ALL.into_iter().zip(&self.kinds) {
            let mut counted = counted.lock().unwrap_or_else(PoisonError::into_inner);
            let left_out = std::mem::take(&mut counted.left_out);
            if left_out > 0 {
                tracing::warn!(about = ?kind, left_out, "too many lines: some were left out");
            }
        }
    }
}

impl Kind {
    const ALL: [Kind; KINDS] = [
        Kind::Full,
        Kind::Shut,
        Kind::Handshake,
        Kind::Protocol,
        Kind::Slow,
        Kind::Unproved,
        Kind::System,
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_a_few_lines_and_a_count() {
        let mut counted = Counted::default();
        let mut written = 0;
        let mut left_out = 0;
        for second in 0..10 {
            for _ in 0..10_000 {
                if let Some(before) = counted.admit(second) {
                    written += 1;
                    left_out += before;
                }
            }
        }
        assert_eq!(written, 10 * u64::from(LINES_A_SECOND));
        assert_eq!(written + left_out + counted.left_out, 100_000, "none is forgotten");
    }

    #[test]
    fn each_kind_has_its_place() {
        for (index, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, index);
        }
    }
}
