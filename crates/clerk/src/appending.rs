//! What was appended to one file and is not with its drive yet: pure bookkeeping.
//!
//! Where appended bytes go is known only when the drive has them. Until then they lie in *batches*, in the
//! order in which they came; what one writer appends shortly after one another goes into the same
//! batch, which the drive appends in one piece. One batch is sent at a time, the oldest, by a
//! token that stays the same until it is known what became of it: so a batch is appended once, however
//! often it is sent.
//!
//! Nothing here locks, waits or does I/O.

use std::collections::VecDeque;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use nasd_types::AppendToken;

use crate::buffers::BUFFER_BYTES;

/// Most bytes of a batch: the longest request that a clerk makes.
const BATCH_BYTES: usize = BUFFER_BYTES;

/// Bytes that are appended together.
#[derive(Debug)]
pub(crate) struct Batch<W> {
    bytes: Vec<u8>,
    /// On whose behalf.
    pub(crate) writer: W,
    token: AppendToken,
    /// When it was sent first.
    sent: OnceLock<Instant>,
    /// What was written before it has an identifier below this.
    pub(crate) behind: u64,
}

impl<W> Batch<W> {
    /// The bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The token, and how long ago the batch was sent first; it is being sent now.
    pub(crate) fn identity(&self) -> (AppendToken, Duration) {
        match self.sent.get() {
            // Not the first time, however short ago that was.
            Some(first) => (self.token, first.elapsed().max(Duration::from_nanos(1))),
            None => {
                self.sent.get_or_init(Instant::now);
                (self.token, Duration::ZERO)
            }
        }
    }
}

/// The batches of one file, the oldest first.
#[derive(Debug)]
pub(crate) struct Appending<W> {
    batches: VecDeque<Arc<Batch<W>>>,
    /// Number of the oldest; they are numbered in their order.
    oldest: u64,
    held_bytes: u64,
    /// Somebody sends the oldest.
    is_sending: bool,
}

impl<W> Default for Appending<W> {
    fn default() -> Self {
        Appending { batches: VecDeque::new(), oldest: 0, held_bytes: 0, is_sending: false }
    }
}

impl<W: PartialEq> Appending<W> {
    /// Whether the drive has everything.
    pub(crate) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Bytes held.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// The number that the next batch will get.
    pub(crate) fn next(&self) -> u64 {
        self.oldest + self.batches.len() as u64
    }

    /// Who has appended the oldest batch.
    pub(crate) fn first_writer(&self) -> Option<W>
    where
        W: Clone,
    {
        self.batches.front().map(|batch| batch.writer.clone())
    }

    /// Takes bytes to be appended behind all that were taken before, and behind what was written with
    /// an identifier below `behind`. All of them are appended together. Whether there is a batch
    /// that will not grow any more.
    pub(crate) fn put(&mut self, bytes: &[u8], writer: &W, behind: u64) -> bool
    where
        W: Clone,
    {
        self.held_bytes += bytes.len() as u64;
        // Nobody else has a batch that nobody has taken to send it.
        let grown = match self.batches.back_mut().and_then(Arc::get_mut) {
            Some(last)
                if last.sent.get().is_none()
                    && last.writer == *writer
                    && last.bytes.len() + bytes.len() <= BATCH_BYTES =>
            {
                last.bytes.extend_from_slice(bytes);
                last.behind = behind;
                true
            }
            _ => false,
        };
        if !grown {
            let (bytes, writer) = (bytes.to_vec(), writer.clone());
            let (token, sent) = (draw_token(), OnceLock::new());
            self.batches.push_back(Arc::new(Batch { bytes, writer, token, sent, behind }));
        }
        self.batches.len() > 1
            || self.batches.back().is_some_and(|last| last.bytes.len() >= BATCH_BYTES)
    }

    /// Whether a batch with a number below `target` is not with the drive.
    pub(crate) fn has_before(&self, target: u64) -> bool {
        !self.batches.is_empty() && self.oldest < target
    }

    /// Whether somebody sends the oldest batch.
    pub(crate) fn is_sending(&self) -> bool {
        self.is_sending
    }

    /// What the oldest batch comes behind, if there is one.
    pub(crate) fn behind(&self) -> u64 {
        self.batches.front().map_or(0, |batch| batch.behind)
    }

    /// The oldest batch, for whoever sends it now.
    pub(crate) fn take(&mut self) -> Option<Arc<Batch<W>>> {
        let oldest = Arc::clone(self.batches.front()?);
        self.is_sending = true;
        Some(oldest)
    }

    /// What was taken waits to be sent again.
    pub(crate) fn put_back(&mut self) {
        self.is_sending = false;
    }

    /// It is known what became of what was taken: it is with the drive, or lost.
    pub(crate) fn finish(&mut self) {
        self.is_sending = false;
        if let Some(done) = self.batches.pop_front() {
            self.oldest += 1;
            self.held_bytes -= done.bytes.len() as u64;
        }
    }

    /// Forgets everything that nobody is sending.
    pub(crate) fn discard(&mut self) {
        let kept = usize::from(self.is_sending);
        while self.batches.len() > kept
            && let Some(gone) = self.batches.pop_back()
        {
            self.held_bytes -= gone.bytes.len() as u64;
        }
    }
}

/// A token unlike all others: each such state is keyed from the system's random numbers, and differently.
fn draw_token() -> AppendToken {
    let random = || RandomState::new().build_hasher().finish();
    let mut token = [0; AppendToken::BYTES];
    token[..8].copy_from_slice(&random().to_be_bytes());
    token[8..].copy_from_slice(&random().to_be_bytes());
    AppendToken(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writers_appends_go_together_until_they_are_taken() {
        let mut appending = Appending::default();
        assert!(!appending.put(b"one ", &1, 5));
        assert!(!appending.put(b"two ", &1, 6));
        assert!(appending.put(b"three ", &2, 7), "another writer");
        assert!(appending.put(b"four ", &2, 8));
        assert_eq!((appending.next(), appending.behind(), appending.held_bytes()), (2, 6, 19));
        let first = appending.take().unwrap();
        assert_eq!((first.bytes(), first.writer), (&b"one two "[..], 1));
        assert!(appending.is_sending() && appending.has_before(1));
        appending.put_back();
        drop(first);
        appending.put(b"five", &2, 9);
        let again = appending.take().unwrap();
        assert_eq!(again.bytes(), b"one two ");
        appending.finish();
        assert!(!appending.has_before(1) && appending.has_before(2));
        assert_eq!(appending.take().unwrap().bytes(), b"three four five");
        appending.finish();
        assert!(appending.is_empty() && !appending.has_before(u64::MAX));
        assert_eq!(appending.held_bytes(), 0);
    }

    #[test]
    fn what_was_sent_once_never_grows_and_keeps_its_token() {
        let mut appending = Appending::default();
        appending.put(b"a", &1, 0);
        let (token, age) = appending.take().unwrap().identity();
        assert_eq!(age, Duration::ZERO, "the first time");
        appending.put_back();
        assert!(appending.put(b"b", &1, 0));
        let oldest = appending.take().unwrap();
        assert_eq!(oldest.bytes(), b"a");
        let (again, age) = oldest.identity();
        assert_eq!(again, token);
        assert!(age > Duration::ZERO, "not the first time");
        appending.discard();
        assert_eq!((appending.next(), appending.held_bytes()), (1, 1));
        appending.finish();
        appending.put(b"c", &1, 0);
        assert_ne!(appending.take().unwrap().identity().0, token);
    }

    #[test]
    fn a_batch_is_as_long_as_a_request_at_most_and_a_write_is_never_divided() {
        let mut appending = Appending::default();
        assert!(!appending.put(&[1; BATCH_BYTES - 10], &1, 0));
        assert!(appending.put(&[2; 11], &1, 0), "too much for the first batch");
        assert_eq!(appending.take().unwrap().bytes().len(), BATCH_BYTES - 10);
        appending.finish();
        assert_eq!(appending.take().unwrap().bytes(), [2; 11]);
    }
}
