//! Where threads wait for sessions: for something to tell a client, or for clients to have dealt
//! with something.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nasd_protocol::manager::{Event, FileHandle};

use super::callbacks::Turn;
use super::{SessionError, SessionTimes, Sessions};

/// All sessions of a manager, shared by its threads.
#[derive(Debug)]
pub struct SessionHub {
    shared: Mutex<Shared>,
    /// Something was acknowledged, or has ended.
    changed: Condvar,
    /// The manager stops: nobody is waited for.
    closing: AtomicBool,
    started: Instant,
    times: SessionTimes,
}

#[derive(Debug)]
struct Shared {
    sessions: Sessions,
    /// Where those wait who want to be told something, each by itself: what one is told concerns no other.
    listeners: HashMap<u64, Arc<Condvar>>,
}

impl SessionHub {
    /// After an earlier manager that had these clients.
    pub fn new(times: SessionTimes, earlier: HashSet<u64>) -> SessionHub {
        SessionHub {
            shared: Mutex::new(Shared {
                sessions: Sessions::new(times, earlier, Duration::ZERO),
                listeners: HashMap::new(),
            }),
            changed: Condvar::new(),
            closing: AtomicBool::new(false),
            started: Instant::now(),
            times,
        }
    }

    /// The lease time.
    pub const fn lease(&self) -> Duration {
        self.times.lease
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes those for whom there may be something: most operations concern nobody else.
    fn announce(&self, shared: &mut Shared, news_before: u64) {
        for client in shared.sessions.take_told() {
            if let Some(listener) = shared.listeners.get(&client) {
                listener.notify_all();
            }
        }
        if shared.sessions.news() != news_before {
            self.changed.notify_all();
        }
    }

    /// Waits until something has changed, for a while.
    fn wait<'a>(
        &'a self,
        shared: MutexGuard<'a, Shared>,
        most: Duration,
    ) -> MutexGuard<'a, Shared> {
        let most = most.min(self.times.lease / 8);
        let woken = self.changed.wait_timeout(shared, most);
        let (mut shared, waited) = woken.unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            let before = shared.sessions.news();
            shared.sessions.expire(self.now());
            self.announce(&mut shared, before);
        }
        shared
    }

    /// Does something with the sessions at the present time, and wakes those who wait where there
    /// may be something for them.
    pub fn with<T>(&self, operation: impl FnOnce(&mut Sessions, Duration) -> T) -> T {
        let mut shared = self.lock();
        let before = shared.sessions.news();
        let outcome = operation(&mut shared.sessions, self.now());
        self.announce(&mut shared, before);
        outcome
    }

    /// Asks again and again, whenever something has changed, until there is something to do, or nothing to wait for; at the
    /// deadline that is still [`Turn::Wait`].
    ///
    /// # Errors
    /// Those of `ask`.
    pub fn turn<T>(
        &self,
        deadline: Instant,
        mut ask: impl FnMut(&mut Sessions, Duration) -> Result<Turn<T>, SessionError>,
    ) -> Result<Turn<T>, SessionError> {
        let mut shared = self.lock();
        loop {
            let before = shared.sessions.news();
            let turn = ask(&mut shared.sessions, self.now());
            self.announce(&mut shared, before);
            let left = deadline.saturating_duration_since(Instant::now());
            let is_over = left.is_zero() || self.closing.load(Ordering::Acquire);
            if is_over || !matches!(turn, Ok(Turn::Wait)) {
                return turn;
            }
            shared = self.wait(shared, left);
        }
    }

    /// Waits until there is something to tell the client, at most a third of the lease: then it
    /// should ask again, so that it is known to live.
    ///
    /// # Errors
    /// `Gone`, `NotYours`.
    pub fn wait_for_events(
        &self,
        client: u64,
        member: &str,
    ) -> Result<(u64, Vec<Event>), SessionError> {
        let deadline = Instant::now() + self.times.lease / 3;
        let mut shared = self.lock();
        let listener = Arc::clone(shared.listeners.entry(client).or_default());
        let told = loop {
            let told = shared.sessions.next_events(client, member);
            let left = deadline.saturating_duration_since(Instant::now());
            let is_over = left.is_zero() || self.closing.load(Ordering::Acquire);
            if is_over || !matches!(&told, Ok((_, events)) if events.is_empty()) {
                break told;
            }
            let woken = listener.wait_timeout(shared, left);
            shared = woken.unwrap_or_else(PoisonError::into_inner).0;
        };
        // The list's and this one: nobody else listens for the client.
        if Arc::strong_count(&listener) == 2 {
            shared.listeners.remove(&client);
        }
        told
    }

    /// Begins a change of directories and files by a client: ends the leases and callbacks of the others, and waits until they know,
    /// or are gone. Until what is returned is dropped nobody else gets a lease on them.
    ///
    /// # Errors
    /// `Grace`.
    pub fn change(
        &self,
        client: u64,
        member: &str,
        touched: Vec<FileHandle>,
    ) -> Result<Changing<'_>, SessionError> {
        let mut shared = self.lock();
        let before = shared.sessions.news();
        let client = shared.sessions.session_of(client, member);
        let mut recall =
            shared.sessions.begin_change(client, touched.iter().copied(), self.now())?;
        let others = shared.sessions.has_others(client);
        let changing = Changing { hub: self, client, others, touched };
        self.announce(&mut shared, before);
        while !shared.sessions.is_recalled(&mut recall) && !self.closing.load(Ordering::Acquire) {
            shared = self.wait(shared, self.times.lease);
        }
        Ok(changing)
    }

    /// Ends all waiting: the manager stops.
    pub fn close(&self) {
        self.closing.store(true, Ordering::Release);
        let shared = self.lock();
        shared.listeners.values().for_each(|listener| listener.notify_all());
        drop(shared);
        self.changed.notify_all();
    }

    /// What is due: files that nobody has open any more. It is written down which clients' sessions have ended; no session begins
    /// meanwhile, as what is written down of that would be undone.
    pub fn tend(&self, write_down: impl FnOnce(&[u64])) -> Vec<FileHandle> {
        self.with(|sessions, now| {
            for client in sessions.expire(now) {
                tracing::info!(client, "the session of a client that is not heard of has ended");
            }
            write_down(&sessions.take_ended());
            sessions.take_free_orphans()
        })
    }
}

/// A change that a client is making.
#[derive(Debug)]
pub struct Changing<'a> {
    hub: &'a SessionHub,
    client: u64,
    others: bool,
    touched: Vec<FileHandle>,
}

impl Changing<'_> {
    /// The client's session, or 0.
    pub const fn client(&self) -> u64 {
        self.client
    }

    /// Whether other clients may have files open that lose their names by it.
    pub const fn has_others(&self) -> bool {
        self.others
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.hub.lock().sessions.end_change(self.client, self.touched.iter().copied());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::super::Claims;
    use super::*;
    use nasd_types::{DriveId, ObjectId, PartitionId};

    fn directory() -> FileHandle {
        FileHandle { drive: DriveId(1), partition: PartitionId(1), object: ObjectId(70) }
    }

    fn hub(lease: Duration) -> Arc<SessionHub> {
        let hub = Arc::new(SessionHub::new(SessionTimes { lease }, HashSet::new()));
        for client in [1, 2] {
            let attached =
                hub.with(|all, now| all.attach(client, "host:a", &Claims::default(), now));
            assert!(attached.unwrap().lost.is_empty());
        }
        hub
    }

    #[test]
    fn a_change_waits_for_those_who_hold_leases() {
        let hub = hub(Duration::from_secs(600));
        assert!(hub.with(|all, now| all.lease(2, "host:a", directory(), now)).unwrap());
        let changer = {
            let hub = Arc::clone(&hub);
            thread::spawn(move || hub.change(1, "host:a", vec![directory()]).map(drop))
        };
        let (first, events) = hub.wait_for_events(2, "host:a").unwrap();
        assert_eq!((first, &events[..]), (1, &[Event::DirectoryChanged(directory())][..]));
        thread::sleep(Duration::from_millis(30));
        assert!(!changer.is_finished());
        hub.with(|all, now| all.acknowledge(2, "host:a", 1, &[], now)).unwrap();
        assert_eq!(changer.join().unwrap(), Ok(()));
    }

    #[test]
    fn a_client_that_is_silent_is_not_waited_for() {
        let lease = Duration::from_secs(3);
        let begin = Instant::now();
        let hub = hub(lease);
        assert!(hub.with(|all, now| all.lease(2, "host:a", directory(), now)).unwrap());
        let changing = hub.change(1, "host:a", vec![directory()]).unwrap();
        assert_eq!((changing.client(), changing.has_others()), (1, true));
        assert!(begin.elapsed() >= lease, "{:?}", begin.elapsed());
        assert_eq!(hub.wait_for_events(2, "host:a"), Err(SessionError::Gone));
    }

    #[test]
    fn no_session_begins_while_it_is_written_down_which_have_ended() {
        let hub = hub(Duration::from_secs(600));
        hub.with(|all, _| all.detach(2, "host:a")).unwrap();
        let mut told = Vec::new();
        hub.tend(|ended| {
            told.extend_from_slice(ended);
            assert!(hub.shared.try_lock().is_err());
        });
        assert_eq!(told, [2]);
    }

    #[test]
    fn a_client_is_answered_in_time_even_if_there_is_nothing_to_tell() {
        let waiting = hub(Duration::from_millis(9000));
        let begin = Instant::now();
        assert_eq!(waiting.wait_for_events(1, "host:a"), Ok((1, Vec::new())));
        assert!((2950..8950).contains(&begin.elapsed().as_millis()), "{:?}", begin.elapsed());
        // Nobody would wait so long for that one.
        let hub = hub(Duration::from_secs(600));
        assert_eq!(hub.wait_for_events(1, "host:b"), Err(SessionError::NotYours));
        hub.close();
        let begin = Instant::now();
        assert_eq!(hub.wait_for_events(1, "host:a"), Ok((1, Vec::new())));
        assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    }
}
