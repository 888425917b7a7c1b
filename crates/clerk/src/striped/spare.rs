//! Memory for what comes from several drives at once, used again: new memory has to be cleared first.

use std::sync::{Mutex, PoisonError};

/// Buffers that are kept while nobody uses them: 64 MiB of those that are most common.
const MOST: usize = 64;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Spare(Mutex<Vec<Vec<u8>>>);

impl Spare {
    /// A buffer of exactly this length, with whatever bytes.
    pub(super) fn take(&self, length: usize) -> Vec<u8> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = kept.iter().rposition(|buffer| buffer.len() >= length);
        let buffer = fits.map(|at| kept.swap_remove(at));
        drop(kept);
        match buffer {
            Some(mut buffer) => {
                buffer.truncate(length);
                buffer
            }
            None => vec![0; length],
        }
    }

    /// Nobody uses it any more.
    pub(super) fn give(&self, mut buffer: Vec<u8>) {
        // As long as it was, which costs only what was cut off.
        buffer.resize(buffer.capacity(), 0);
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < MOST {
            kept.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_of_the_length_that_was_asked_for_and_used_again() {
        let spare = Spare::default();
        let first = spare.take(1000);
        let at = first.as_ptr();
        assert_eq!(first.len(), 1000);
        spare.give(first);
        let second = spare.take(400);
        assert_eq!((second.len(), second.as_ptr()), (400, at));
        spare.give(second);
        let (longer, again) = (spare.take(2000), spare.take(1000));
        assert_ne!(longer.as_ptr(), at);
        assert_eq!(again.as_ptr(), at, "all of it is there again");
    }
}
