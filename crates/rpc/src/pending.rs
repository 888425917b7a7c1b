//! Calls that wait for their replies.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};

/// A table of the calls in flight on one connection: transaction identifier to whatever the owner
/// needs when the reply comes.
///
/// Identifiers count up and wrap around; one that is still in flight is passed over, and one that
/// was given up comes again only after 2^32 calls, so a reply that nobody waits for any more finds
/// nobody.
#[derive(Debug)]
pub struct PendingCalls<T> {
    next_xid: u32,
    limit: usize,
    calls: HashMap<u32, T, BuildHasherDefault<XidHasher>>,
}

impl<T> PendingCalls<T> {
    /// Empty; the first call gets `first_xid`, and at most `limit` calls are in flight.
    pub fn new(first_xid: u32, limit: usize) -> Self {
        PendingCalls { next_xid: first_xid, limit, calls: HashMap::default() }
    }

    /// Adds a call and gives it an identifier.
    ///
    /// # Errors
    ///
    /// `call` itself, when as many calls as allowed are in flight.
    pub fn insert(&mut self, call: T) -> Result<u32, T> {
        // There are 2^32 identifiers: below that a free one is always found.
        if self.calls.len() >= self.limit || self.calls.len() as u64 > u64::from(u32::MAX) {
            return Err(call);
        }
        loop {
            let xid = self.next_xid;
            self.next_xid = xid.wrapping_add(1);
            if let Entry::Vacant(free) = self.calls.entry(xid) {
                free.insert(call);
                return Ok(xid);
            }
        }
    }

    /// The call with this identifier, if it is in flight.
    pub fn get_mut(&mut self, xid: u32) -> Option<&mut T> {
        self.calls.get_mut(&xid)
    }

    /// Every call in flight, in no order.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> + '_ {
        self.calls.values_mut()
    }

    /// Takes the call out: its reply has come, or nobody waits for it any more. `None` means that
    /// no such call is in flight: a reply that came too late, or a peer that makes things up.
    pub fn remove(&mut self, xid: u32) -> Option<T> {
        self.calls.remove(&xid)
    }

    /// The same, if `may_go` says so.
    pub fn remove_if(&mut self, xid: u32, may_go: impl FnOnce(&T) -> bool) -> Option<T> {
        match self.calls.entry(xid) {
            Entry::Occupied(call) if may_go(call.get()) => Some(call.remove()),
            Entry::Occupied(_) | Entry::Vacant(_) => None,
        }
    }

    /// Takes all calls out, in no order: the connection is lost.
    pub fn drain(&mut self) -> impl Iterator<Item = (u32, T)> + '_ {
        self.calls.drain()
    }

    /// Calls in flight.
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// Whether no call is in flight.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }
}

/// Identifiers are drawn here, not by a peer, so they need mixing but no secret.
#[derive(Debug, Default)]
struct XidHasher(u64);

impl Hasher for XidHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(u32::from(byte));
        }
    }

    fn write_u32(&mut self, value: u32) {
        // Fibonacci hashing (Knuth, The Art of Computer Programming, volume 3, section 6.4).
        self.0 = (self.0 ^ u64::from(value)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wraps_around_and_skips_what_is_in_flight() {
        let mut calls = PendingCalls::new(u32::MAX, 10);
        assert_eq!(calls.insert('a'), Ok(u32::MAX));
        assert_eq!(calls.insert('b'), Ok(0));
        assert_eq!(calls.remove(0), Some('b'));
        calls.next_xid = u32::MAX;
        assert_eq!(calls.insert('c'), Ok(0));
        assert_eq!(calls.get_mut(u32::MAX), Some(&mut 'a'));
        assert_eq!(calls.len(), 2);
    }

    #[test]
    fn a_late_reply_finds_nobody() {
        let mut calls = PendingCalls::new(5, 10);
        let xid = calls.insert(()).unwrap();
        assert_eq!(calls.remove_if(xid, |()| false), None);
        assert_eq!(calls.remove_if(xid, |()| true), Some(()));
        assert_eq!(calls.remove_if(xid, |()| true), None);
        assert_eq!(calls.remove(xid), None);
        assert_ne!(calls.insert(()), Ok(xid));
    }

    #[test]
    fn the_limit_hands_the_call_back() {
        let mut calls = PendingCalls::new(0, 1);
        calls.insert("first").unwrap();
        assert_eq!(calls.insert("second"), Err("second"));
        assert_eq!(calls.drain().collect::<Vec<_>>(), [(0, "first")]);
        assert!(calls.is_empty());
        assert!(calls.insert("second").is_ok());
    }
}
