//! A few connections to one server, made when they are needed and made anew when they break.
//!
//! A call takes the connection that has the fewest calls under way. Whoever finds it closed makes
//! it; others that want it wait for him, up to their own time. When making it has failed, nobody
//! tries again for a short while, so that many callers don't storm a server that is starting.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::Host;

/// How long nobody tries to connect after somebody failed to.
const REST: Duration = Duration::from_millis(5);

/// How long others are let run at a time, where threads take turns.
const TURN: Duration = Duration::from_millis(1);

/// What a pool keeps: a connection and what goes with it.
pub(crate) trait Connected {
    /// Whether new calls may be made over it.
    fn is_open(&self) -> bool;
}

pub(crate) struct Pool<T, E> {
    slots: Box<[Slot<T, E>]>,
}

struct Slot<T, E> {
    state: Mutex<State<T, E>>,
    changed: Condvar,
    in_flight: AtomicUsize,
    /// Connections that take no new calls, over which some may be under way still.
    left: Mutex<Vec<Weak<T>>>,
}

enum State<T, E> {
    Closed,
    Connecting,
    Open(Arc<T>),
    /// Nobody tries before that time.
    Failed(E, Duration),
}

/// A connection, lent for one call.
pub(crate) struct Lease<'a, T> {
    pub(crate) connection: Arc<T>,
    _counted: Counted<'a>,
}

/// One call more under way.
struct Counted<'a>(&'a AtomicUsize);

impl<T: Connected, E: Clone> Pool<T, E> {
    pub(crate) fn new(connections: usize) -> Self {
        let slot = || Slot {
            state: Mutex::new(State::Closed),
            changed: Condvar::new(),
            in_flight: AtomicUsize::new(0),
            left: Mutex::default(),
        };
        Pool { slots: (0..connections.max(1)).map(|_| slot()).collect() }
    }

    /// Lends a connection, made by `connect` if need be. `None` if somebody else was making it and
    /// took longer than `timeout`.
    pub(crate) fn lease(
        &self,
        host: &dyn Host,
        timeout: Duration,
        connect: impl FnOnce() -> Result<T, E>,
    ) -> Option<Result<Lease<'_, T>, E>> {
        let slot = self.least_used();
        // Counted from here on, so that callers who come at once spread.
        slot.in_flight.fetch_add(1, Ordering::Relaxed);
        let counted = Counted(&slot.in_flight);
        let result = slot.get(host, timeout, connect)?;
        Some(result.map(|connection| Lease { connection, _counted: counted }))
    }

    /// All connections over which calls may be under way.
    pub(crate) fn in_use(&self) -> Vec<Arc<T>> {
        let mut in_use = Vec::new();
        for slot in &self.slots {
            if let State::Open(connection) = &*slot.lock() {
                in_use.push(Arc::clone(connection));
            }
            in_use.extend(slot.left().iter().filter_map(Weak::upgrade));
        }
        in_use
    }

    fn least_used(&self) -> &Slot<T, E> {
        let mut least = &self.slots[0];
        for slot in &self.slots[1..] {
            if slot.in_flight.load(Ordering::Relaxed) < least.in_flight.load(Ordering::Relaxed) {
                least = slot;
            }
        }
        least
    }
}

impl<T: Connected, E: Clone> Slot<T, E> {
    fn get(
        &self,
        host: &dyn Host,
        timeout: Duration,
        connect: impl FnOnce() -> Result<T, E>,
    ) -> Option<Result<Arc<T>, E>> {
        let mut until = None;
        let mut waited = Duration::ZERO;
        let mut state = self.lock();
        loop {
            match &*state {
                State::Open(connection) if connection.is_open() => {
                    return Some(Ok(Arc::clone(connection)));
                }
                State::Failed(error, until) if host.elapsed() < *until => {
                    return Some(Err(error.clone()));
                }
                State::Closed | State::Open(_) | State::Failed(..) => break,
                State::Connecting if host.takes_turns() => {
                    drop(state);
                    waited += TURN;
                    if waited > timeout {
                        return None;
                    }
                    host.sleep(TURN);
                    state = self.lock();
                }
                State::Connecting => {
                    let until = *until.get_or_insert_with(|| Instant::now() + timeout);
                    let waited = self
                        .changed
                        .wait_timeout(state, until.saturating_duration_since(Instant::now()));
                    let (guard, timed_out) = waited.unwrap_or_else(PoisonError::into_inner);
                    state = guard;
                    if timed_out.timed_out() {
                        return None;
                    }
                }
            }
        }
        if let State::Open(connection) = std::mem::replace(&mut *state, State::Connecting) {
            let mut left = self.left();
            left.retain(|connection| connection.strong_count() > 0);
            left.push(Arc::downgrade(&connection));
        }
        drop(state);
        Some(self.make(host, connect))
    }

    /// Makes the connection, without the lock; the state is `Connecting`.
    fn make(&self, host: &dyn Host, connect: impl FnOnce() -> Result<T, E>) -> Result<Arc<T>, E> {
        let mut done = Finish { slot: self, state: Some(State::Closed) };
        let result = connect().map(Arc::new);
        done.state = Some(match &result {
            Ok(connection) => State::Open(Arc::clone(connection)),
            Err(error) => State::Failed(error.clone(), host.elapsed() + REST),
        });
        result
    }

    fn left(&self) -> MutexGuard<'_, Vec<Weak<T>>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, State<T, E>> {
        // The state is replaced whole, so that it is right even after a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sets the slot's state when dropped, so that nobody waits forever should connecting panic.
struct Finish<'a, T: Connected, E: Clone> {
    slot: &'a Slot<T, E>,
    state: Option<State<T, E>>,
}

impl<T: Connected, E: Clone> Drop for Finish<'_, T, E> {
    fn drop(&mut self) {
        if let Some(state) = self.state.take() {
            *self.slot.lock() = state;
        }
        self.slot.changed.notify_all();
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::host::Clock;

    struct Connection {
        open: AtomicBool,
        number: usize,
    }

    impl Connected for Connection {
        fn is_open(&self) -> bool {
            self.open.load(Ordering::SeqCst)
        }
    }

    const PATIENCE: Duration = Duration::from_secs(10);

    #[derive(Default)]
    struct Maker(AtomicUsize);

    impl Maker {
        fn make(&self) -> Result<Connection, &'static str> {
            let number = self.0.fetch_add(1, Ordering::SeqCst);
            Ok(Connection { open: AtomicBool::new(true), number })
        }
    }

    fn number(
        pool: &Pool<Connection, &'static str>,
        host: &Clock,
        make: impl FnOnce() -> Result<Connection, &'static str>,
    ) -> Result<usize, &'static str> {
        let lease = pool.lease(host, PATIENCE, make).expect("nobody else is connecting");
        lease.map(|lease| lease.connection.number)
    }

    #[test]
    fn calls_at_a_time_spread_and_calls_in_turn_stay() {
        let (pool, host, maker) = (Pool::new(2), Clock::default(), Maker::default());
        assert_eq!(number(&pool, &host, || maker.make()), Ok(0));
        assert_eq!(number(&pool, &host, || maker.make()), Ok(0));
        let first = pool.lease(&host, PATIENCE, || maker.make()).unwrap().unwrap();
        assert_eq!(number(&pool, &host, || maker.make()), Ok(1));
        drop(first);
        assert_eq!(number(&pool, &host, || maker.make()), Ok(0));
    }

    #[test]
    fn a_closed_connection_is_replaced() {
        let (pool, host, maker) = (Pool::new(1), Clock::default(), Maker::default());
        let lease = pool.lease(&host, PATIENCE, || maker.make()).unwrap().unwrap();
        lease.connection.open.store(false, Ordering::SeqCst);
        assert_eq!(number(&pool, &host, || maker.make()), Ok(1));
    }

    #[test]
    fn one_that_takes_no_new_calls_is_in_use_as_long_as_it_has_others() {
        let pool: Pool<Connection, &'static str> = Pool::new(1);
        let (host, maker) = (Clock::default(), Maker::default());
        let in_use = || -> Vec<usize> { pool.in_use().iter().map(|it| it.number).collect() };
        let first = pool.lease(&host, PATIENCE, || maker.make()).unwrap().unwrap();
        first.connection.open.store(false, Ordering::SeqCst);
        assert_eq!(in_use(), [0]);
        let second = pool.lease(&host, PATIENCE, || maker.make()).unwrap().unwrap();
        second.connection.open.store(false, Ordering::SeqCst);
        assert_eq!(number(&pool, &host, || maker.make()), Ok(2));
        assert_eq!(in_use(), [2, 0, 1]);
        drop(first);
        assert_eq!(in_use(), [2, 1]);
        drop(second);
        assert_eq!(in_use(), [2]);
    }

    #[test]
    fn nobody_tries_right_after_a_failure() {
        let (pool, host, maker) = (Pool::new(1), Clock::default(), Maker::default());
        assert_eq!(number(&pool, &host, || Err("away")), Err("away"));
        assert_eq!(number(&pool, &host, || maker.make()), Err("away"));
        host.sleep(REST);
        assert_eq!(number(&pool, &host, || maker.make()), Ok(0));
    }

    #[test]
    fn one_connects_and_the_others_wait() {
        let (pool, host, maker) = (Pool::new(1), Clock::default(), Maker::default());
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..8).map(|_| scope.spawn(|| number(&pool, &host, || maker.make()))).collect();
            for thread in threads {
                assert_eq!(thread.join().unwrap(), Ok(0));
            }
        });
        assert_eq!(maker.0.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn waiting_for_another_ends_in_time() {
        let (pool, host, maker) = (Pool::new(1), Clock::default(), Maker::default());
        let connected = pool.lease(&host, PATIENCE, || {
            let meanwhile = pool.lease(&host, Duration::from_millis(1), || maker.make());
            assert!(meanwhile.is_none());
            maker.make()
        });
        assert!(connected.unwrap().is_ok());
    }

    #[test]
    fn a_panic_while_connecting_blocks_nobody() {
        let (pool, host, maker) = (Pool::new(1), Clock::default(), Maker::default());
        let panicking = || pool.lease(&host, PATIENCE, || panic!("told to"));
        assert!(catch_unwind(AssertUnwindSafe(panicking)).is_err());
        assert_eq!(number(&pool, &host, || maker.make()), Ok(0));
    }
}
