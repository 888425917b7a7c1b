//! Memory for what is received, used again: new memory has to be cleared first.

use std::sync::{Mutex, PoisonError};

/// Buffers that nobody uses now, up to so many bytes together.
#[derive(Debug, Default)]
pub struct Spare {
    most_bytes: usize,
    kept: Mutex<Vec<Vec<u8>>>,
}

impl Spare {
    /// None yet; at most so many bytes are kept.
    pub fn new(most_bytes: usize) -> Spare {
        Spare { most_bytes, kept: Mutex::default() }
    }

    /// A buffer of exactly this length, with whatever bytes.
    pub fn take(&self, length: usize) -> Vec<u8> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
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
    pub fn give(&self, mut buffer: Vec<u8>) {
        // As long as it was, which costs only what was cut off.
        buffer.resize(buffer.capacity(), 0);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.iter().map(Vec::len).sum::<usize>() + buffer.len() <= self.most_bytes {
            kept.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_of_the_length_that_was_asked_for_and_used_again() {
        let spare = Spare::new(2000);
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

    #[test]
    fn no_more_than_so_many_bytes_are_kept() {
        let spare = Spare::new(2000);
        spare.give(vec![1; 1500]);
        spare.give(vec![2; 600]);
        spare.give(vec![3; 500]);
        let kept: Vec<usize> = spare.kept.lock().unwrap().iter().map(Vec::len).collect();
        assert_eq!(kept, [1500, 500]);
    }
}
