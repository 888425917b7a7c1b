//! The connections that a server has, so that they can be counted, closed and waited for.
//!
//! When there are too many, one is closed for each new one: of those that have never proved anything,
//! one of the address that has the most of them, the oldest; where all have, one of the address that has
//! the most of those that are idle, the one that has been idle longest. So whoever fills the places
//! takes them from himself first, and a newcomer has longer to prove himself than anybody else. One
//! that was closed so counts until its last thread is gone.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::accounts::Origin;
use super::standing::Standing;
use crate::wire::Wire;

/// A connection that has proved itself must have been idle so long to be closed for a new one.
const EVICTABLE_IDLE_MS: u64 = 1000;

/// How long a new connection waits for one that was closed for it.
const ROOM_PATIENCE: Duration = Duration::from_millis(if cfg!(test) { 2000 } else { 100 });

/// One place of so many is kept free, so that nobody needs to wait for that.
const KEPT_FREE: usize = 16;

/// What the registry and the threads of a connection share.
#[derive(Debug)]
pub(super) struct Member {
    /// For how many milliseconds nothing has come.
    pub(super) idle_ms: AtomicU64,
    /// Threads that wait for calls to be done while another one receives: the connection is not idle then.
    pub(super) under_way: AtomicUsize,
    /// This end receives nothing any more.
    pub(super) is_draining: AtomicBool,
    pub(super) standing: Standing,
}

/// A thread waits for calls to be done, as long as this lives.
pub(super) struct UnderWay<'a>(&'a Member);

impl Member {
    pub(super) fn is_waited_for(&self) -> UnderWay<'_> {
        self.under_way.fetch_add(1, Ordering::AcqRel);
        UnderWay(self)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::AcqRel);
    }
}

/// How a connection is ended from outside.
#[derive(Debug)]
pub(super) enum Closer {
    /// During a handshake, by another handle of its socket.
    Socket(TcpStream),
    Wire(Arc<Wire>),
}

impl Closer {
    fn close(&self) {
        match self {
            Closer::Wire(wire) => wire.close(),
            Closer::Socket(socket) => {
                // Fails only where the connection is gone, which is what is wanted.
                let _ = socket.shutdown(std::net::Shutdown::Both);
            }
        }
    }
}

/// What the registry knows of a connection.
#[derive(Debug)]
struct Entry {
    closer: Closer,
    /// Whether calls can have come from it.
    is_served: bool,
    /// Whether it was closed for another one.
    is_leaving: bool,
    member: Arc<Member>,
}

#[derive(Debug, Default)]
struct Entries {
    next: u64,
    /// No new connection is wanted.
    closed: bool,
    connections: HashMap<u64, Entry>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Registry {
    entries: Mutex<Entries>,
    changed: Condvar,
}

/// A connection's place among `max_connections`; given back when dropped.
#[derive(Debug)]
pub(super) struct Place {
    registry: Arc<Registry>,
    number: u64,
    pub(super) member: Arc<Member>,
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a new connection, for which another one may be closed; `None` if there is none: the
    /// new one must go.
    pub(super) fn enter(
        self: &Arc<Self>,
        closer: Closer,
        standing: Standing,
        max_connections: usize,
    ) -> Option<Place> {
        let mut entries = self.lock();
        if entries.staying() >= max_connections - max_connections / KEPT_FREE {
            entries.evict();
        }
        let deadline = Instant::now() + ROOM_PATIENCE;
        while !entries.closed && entries.connections.len() >= max_connections {
            let left = deadline.saturating_duration_since(Instant::now());
            let none_leaves = entries.staying() == entries.connections.len();
            if left.is_zero() || none_leaves {
                return None;
            }
            entries =
                self.changed.wait_timeout(entries, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        if entries.closed {
            return None;
        }
        let number = entries.next;
        entries.next += 1;
        let member = Arc::new(Member {
            idle_ms: AtomicU64::new(0),
            under_way: AtomicUsize::new(0),
            is_draining: AtomicBool::new(false),
            standing,
        });
        let (is_served, is_leaving) = (false, false);
        let entry = Entry { closer, is_served, is_leaving, member: Arc::clone(&member) };
        entries.connections.insert(number, entry);
        Some(Place { registry: Arc::clone(self), number, member })
    }

    /// Closes a connection, as for a new one.
    pub(super) fn evict(&self) {
        self.lock().evict();
    }

    pub(super) fn count(&self) -> usize {
        self.lock().connections.len()
    }

    /// Lets no connection in any more, and none receive more than it has.
    pub(super) fn drain(&self) {
        let mut entries = self.lock();
        entries.closed = true;
        for entry in entries.connections.values() {
            // First, so that nobody takes the one for a peer's leave.
            entry.member.is_draining.store(true, Ordering::Release);
            match &entry.closer {
                Closer::Wire(wire) if entry.is_served => wire.stop_receiving(),
                unserved => unserved.close(),
            }
        }
    }

    /// Waits until every connection that calls could have come from has ended; `false` at the
    /// deadline.
    pub(super) fn wait_empty(&self, deadline: Instant) -> bool {
        let mut entries = self.lock();
        while entries.connections.values().any(|entry| entry.is_served) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            entries =
                self.changed.wait_timeout(entries, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Ends every connection now.
    pub(super) fn close_all(&self) {
        for entry in self.lock().connections.values() {
            entry.closer.close();
        }
    }
}

impl Entries {
    /// How many were not told to go.
    fn staying(&self) -> usize {
        self.connections.values().filter(|entry| !entry.is_leaving).count()
    }

    /// Closes the one that has to make room, if there is one. Its threads go on to their end.
    fn evict(&mut self) {
        let number = self.stranger().or_else(|| self.idle());
        if let Some(entry) = number.and_then(|number| self.connections.get_mut(&number)) {
            tracing::debug!("closed a connection: too many are open");
            entry.is_leaving = true;
            entry.closer.close();
        }
    }

    /// The oldest stranger of the address that has most of them.
    fn stranger(&self) -> Option<u64> {
        let strangers = |entry: &Entry| !entry.member.standing.is_proved();
        self.of_the_largest_share(strangers, |number, _| Reverse(number))
    }

    /// The one that has been idle longest of the address that has most idle ones.
    fn idle(&self) -> Option<u64> {
        let idle = |entry: &Entry| entry.member.idle_ms.load(Ordering::Relaxed);
        self.of_the_largest_share(|entry| idle(entry) >= EVICTABLE_IDLE_MS, |_, entry| idle(entry))
    }

    /// Of those that `may` go, and come from the address from which most of them come, the one with the
    /// greatest `order`.
    fn of_the_largest_share<O: Ord>(
        &self,
        may: impl Fn(&Entry) -> bool,
        order: impl Fn(u64, &Entry) -> O,
    ) -> Option<u64> {
        let candidates =
            || self.connections.iter().filter(|(_, entry)| !entry.is_leaving && may(entry));
        let mut shares: HashMap<Origin, usize> = HashMap::new();
        for (_, entry) in candidates() {
            *shares.entry(entry.member.standing.origin()).or_default() += 1;
        }
        let share = |entry: &Entry| shares.get(&entry.member.standing.origin()).copied();
        candidates()
            .max_by_key(|(number, entry)| (share(entry), order(**number, entry)))
            .map(|(number, _)| *number)
    }
}

impl Place {
    /// Calls may come from it now, over this wire. `false` if the server has stopped meanwhile, or it
    /// has to make room.
    pub(super) fn occupy(&self, wire: &Arc<Wire>) -> bool {
        let mut entries = self.registry.lock();
        if entries.closed {
            return false;
        }
        match entries.connections.get_mut(&self.number) {
            Some(entry) if !entry.is_leaving => {
                entry.closer = Closer::Wire(Arc::clone(wire));
                entry.is_served = true;
                true
            }
            _ => false,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.registry.lock().connections.remove(&self.number);
        self.registry.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::ServerOptions;
    use crate::server::standing::Strangers;

    /// A registry, and sockets to put into it.
    struct World {
        registry: Arc<Registry>,
        strangers: Arc<Strangers>,
        listener: TcpListener,
    }

    impl World {
        fn new() -> World {
            let strangers = Arc::new(Strangers::new(&ServerOptions::default()));
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            World { registry: Arc::default(), strangers, listener }
        }

        fn enter(&self, origin: u32, max_connections: usize) -> Option<Place> {
            let socket = TcpStream::connect(self.listener.local_addr().unwrap()).unwrap();
            let (_, standing) = self.strangers.knock(Origin::V4(origin), false);
            self.registry.enter(Closer::Socket(socket), standing, max_connections)
        }

        fn leaving(&self) -> Vec<u64> {
            let entries = self.registry.lock();
            let leaving = entries.connections.iter().filter(|(_, entry)| entry.is_leaving);
            let mut leaving: Vec<u64> = leaving.map(|(number, _)| *number).collect();
            leaving.sort_unstable();
            leaving
        }
    }

    #[test]
    fn strangers_go_first_and_of_them_the_oldest_of_the_greediest() {
        let world = World::new();
        let places: Vec<_> = [7, 1, 1, 2, 1, 2]
            .into_iter()
            .map(|origin| world.enter(origin, 100).unwrap())
            .collect();
        places[1].member.standing.prove();
        places[1].member.idle_ms.store(1_000_000, Ordering::Relaxed);
        let mut gone = Vec::new();
        for expected in [2, 3, 0, 4, 5, 1] {
            world.registry.evict();
            let leaving = world.leaving();
            let new: Vec<u64> =
                leaving.into_iter().filter(|number| !gone.contains(number)).collect();
            assert_eq!(new, [expected], "after {gone:?}");
            gone.push(expected);
        }
    }

    #[test]
    fn who_has_proved_himself_goes_only_when_idle() {
        let world = World::new();
        let places: Vec<_> =
            [1, 1, 2].into_iter().map(|origin| world.enter(origin, 100).unwrap()).collect();
        for place in &places {
            place.member.standing.prove();
        }
        world.registry.evict();
        assert_eq!(world.leaving(), []);
        places[2].member.idle_ms.store(5000, Ordering::Relaxed);
        places[0].member.idle_ms.store(1000, Ordering::Relaxed);
        places[1].member.idle_ms.store(2000, Ordering::Relaxed);
        world.registry.evict();
        assert_eq!(world.leaving(), [1], "the longer idle one of the address that has two");
    }

    #[test]
    fn one_that_leaves_counts_until_it_is_gone() {
        let world = World::new();
        let first = world.enter(1, 2).unwrap();
        let _second = world.enter(1, 2).unwrap();
        assert!(world.enter(2, 2).is_none(), "the first has not gone");
        assert_eq!(world.leaving(), [0]);
        assert_eq!(world.registry.count(), 2);
        let leaver = std::thread::spawn(move || {
            std::thread::sleep(ROOM_PATIENCE / 4);
            drop(first);
        });
        let third = world.enter(2, 2);
        leaver.join().unwrap();
        assert!(third.is_some());
        assert_eq!(world.registry.count(), 2);
    }
}
