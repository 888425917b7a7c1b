//! Numbers of requests: by them the manager knows one that it has executed already.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nasd_protocol::manager::Request;

/// The requests of a client.
#[derive(Debug)]
pub(super) struct Requests {
    client: u64,
    numbers: Mutex<Numbers>,
}

#[derive(Debug)]
struct Numbers {
    next: u64,
    /// Those that an answer is waited for.
    open: BTreeSet<u64>,
}

/// A request that an answer is waited for, until this is dropped.
#[derive(Debug)]
pub(super) struct Numbered<'a> {
    requests: &'a Requests,
    pub(super) request: Request,
}

impl Requests {
    /// The requests of a client that has drawn this number for itself.
    pub(super) fn of(client: u64) -> Requests {
        Requests { client, numbers: Mutex::new(Numbers { next: 1, open: BTreeSet::new() }) }
    }

    /// The client's number.
    pub(super) const fn client(&self) -> u64 {
        self.client
    }

    fn numbers(&self) -> MutexGuard<'_, Numbers> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next request.
    pub(super) fn begin(&self) -> Numbered<'_> {
        let mut numbers = self.numbers();
        let number = numbers.next;
        numbers.next += 1;
        numbers.open.insert(number);
        let oldest = numbers.open.first().copied().unwrap_or(number);
        Numbered { requests: self, request: Request { client: self.client, number, oldest } }
    }
}

impl Drop for Numbered<'_> {
    fn drop(&mut self) {
        self.requests.numbers().open.remove(&self.request.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_the_first_that_is_waited_for() {
        let requests = Requests::of(7);
        let (first, second) = (requests.begin(), requests.begin());
        assert_eq!(first.request, Request { client: 7, number: 1, oldest: 1 });
        assert_eq!(second.request, Request { client: 7, number: 2, oldest: 1 });
        drop(first);
        let third = requests.begin();
        assert_eq!((third.request.number, third.request.oldest), (3, 2));
        drop((second, third));
        let fourth = requests.begin().request;
        assert_eq!((fourth.number, fourth.oldest), (4, 4));
    }
}
