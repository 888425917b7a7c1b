//! Memory for data on their way through: so much for all clients together, and a part of it for each at
//! most, so that one that is slow to take its answers keeps nobody else from getting any.

use std::collections::HashMap;
use std::io::IoSliceMut;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nasd_transport::{BufferPool, Payload, PooledBuffer};

/// Memory that nobody uses is kept up to this, in bytes.
const IDLE_BYTES: usize = 32 << 20;

/// One client may have this part of all.
const SHARES: usize = 2;

/// The memory.
#[derive(Debug)]
pub(super) struct Room {
    pool: BufferPool,
    /// Bytes that each member of the cell has.
    lent: Mutex<HashMap<Arc<str>, usize>>,
    given_back: Condvar,
    /// Most that one member has.
    share: usize,
}

/// Memory that a client's data are in, until it is dropped.
#[derive(Debug)]
pub struct Lent {
    /// Given back before it counts as such.
    buffer: Option<PooledBuffer>,
    bytes: usize,
    /// When it was lent: as the first bytes of a request came, or later.
    since: Instant,
    member: Arc<str>,
    room: Arc<Room>,
}

impl Room {
    /// Room for so many bytes.
    pub(super) fn new(bytes: usize) -> Arc<Room> {
        Arc::new(Room {
            pool: BufferPool::limited(IDLE_BYTES.min(bytes), bytes),
            lent: Mutex::default(),
            given_back: Condvar::new(),
            share: bytes / SHARES,
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, usize>> {
        // Whole after every statement that could panic.
        self.lent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that are lent.
    pub(super) fn lent_bytes(&self) -> usize {
        self.lock().values().sum()
    }

    /// Memory for a member's data, if there is any.
    pub(super) fn try_lend(self: &Arc<Self>, member: &str, bytes: usize) -> Option<Lent> {
        self.lend_from(&mut self.lock(), member, bytes)
    }

    /// The same, waiting for others to give back what they have.
    pub(super) fn lend_within(
        self: &Arc<Self>,
        member: &str,
        bytes: usize,
        patience: Duration,
    ) -> Option<Lent> {
        let end = Instant::now() + patience;
        let mut lent = self.lock();
        loop {
            if let Some(buffer) = self.lend_from(&mut lent, member, bytes) {
                return Some(buffer);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            let woken = self.given_back.wait_timeout(lent, left);
            lent = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lend_from(
        self: &Arc<Self>,
        lent: &mut HashMap<Arc<str>, usize>,
        member: &str,
        bytes: usize,
    ) -> Option<Lent> {
        let (member, has) = match lent.get_key_value(member) {
            Some((member, has)) => (Arc::clone(member), *has),
            None => (Arc::from(member), 0),
        };
        let sum = has.checked_add(bytes).filter(|sum| *sum <= self.share)?;
        let buffer = Some(self.pool.try_take(bytes)?);
        lent.insert(Arc::clone(&member), sum);
        Some(Lent { buffer, bytes, since: Instant::now(), member, room: Arc::clone(self) })
    }
}

impl Lent {
    /// How many bytes.
    pub(crate) const fn len(&self) -> usize {
        self.bytes
    }

    /// How long ago it was lent.
    pub(super) fn age(&self) -> Duration {
        self.since.elapsed()
    }

    /// The bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer.as_deref().unwrap_or_default()[..self.bytes]
    }

    /// The bytes, to be received into.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buffer.as_deref_mut().unwrap_or_default()[..self.bytes]
    }

    /// Only the first bytes are meant. What it counts for stays.
    pub(super) fn cut(self, length: usize) -> ForwardedData {
        ForwardedData { length: length.min(self.bytes), lent: self }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        drop(self.buffer.take());
        let mut lent = self.room.lock();
        let left = lent.get(&self.member).map_or(0, |has| has.saturating_sub(self.bytes));
        if left == 0 {
            lent.remove(&self.member);
        } else {
            lent.insert(Arc::clone(&self.member), left);
        }
        drop(lent);
        self.room.given_back.notify_all();
    }
}

impl Payload for Lent {
    fn buffers(&mut self) -> Vec<IoSliceMut<'_>> {
        vec![IoSliceMut::new(self.bytes_mut())]
    }
}

/// Data of an answer, sent from where they were received.
#[derive(Debug)]
pub struct ForwardedData {
    lent: Lent,
    length: usize,
}

impl AsRef<[u8]> for ForwardedData {
    fn as_ref(&self) -> &[u8] {
        &self.lent.bytes()[..self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_gets_more_than_his_share_nor_all_more_than_there_is() {
        let room = Room::new(1000);
        let first = room.try_lend("host:a", 300).unwrap();
        let second = room.try_lend("host:a", 200).unwrap();
        assert!(room.try_lend("host:a", 1).is_none(), "half is his share");
        let other = room.try_lend("host:b", 500).unwrap();
        assert!(room.try_lend("host:c", 1).is_none(), "all is lent");
        drop(first);
        assert!(room.try_lend("host:a", 301).is_none());
        let again = room.try_lend("host:a", 300).unwrap();
        assert_eq!(again.bytes().len(), 300);
        drop((second, other, again));
        assert!(room.lock().is_empty());
        assert!(room.try_lend("host:a", 501).is_none());
        assert!(room.try_lend("host:a", usize::MAX).is_none());
    }

    #[test]
    fn who_waits_gets_what_is_given_back() {
        let room = Room::new(1000);
        let lent = room.try_lend("host:a", 500).unwrap();
        assert!(room.lend_within("host:a", 1, Duration::from_millis(20)).is_none());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| room.lend_within("host:a", 400, Duration::from_secs(60)));
            drop(lent);
            assert_eq!(waiting.join().unwrap().unwrap().bytes().len(), 400);
        });
    }

    #[test]
    fn an_answer_is_cut_to_what_was_read() {
        let room = Room::new(1000);
        let mut lent = room.try_lend("host:a", 10).unwrap();
        lent.bytes_mut().copy_from_slice(b"0123456789");
        assert_eq!(lent.cut(4).as_ref(), b"0123");
    }
}
