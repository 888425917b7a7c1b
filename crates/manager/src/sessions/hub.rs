//! Where threads wait for sessions: for something to tell a client, or for clients to have dealt
//! with something.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nasd_protocol::manager::{Event, FileHandle};

use super::{SessionError, SessionTimes, Sessions};

/// All sessions of a manager, shared by its threads.
#[derive(Debug)]
pub struct SessionHub {
    sessions: Mutex<Sessions>,
    /// Something was told, acknowledged, or ended.
    changed: Condvar,
    /// The manager stops: nobody is waited for.
    closing: AtomicBool,
    started: Instant,
    times: SessionTimes,
}

impl SessionHub {
    /// After an earlier manager that had these clients.
    pub fn new(times: SessionTimes, earlier: HashSet<u64>) -> SessionHub {
        SessionHub {
            sessions: Mutex::new(Sessions::new(times, earlier, Duration::ZERO)),
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

    fn lock(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with the sessions at the present time, and wakes those who wait where there
    /// may be something for them: most locks concern nobody else.
    pub fn with<T>(&self, operation: impl FnOnce(&mut Sessions, Duration) -> T) -> T {
        let mut sessions = self.lock();
        let before = sessions.news();
        let outcome = operation(&mut sessions, self.now());
        let is_news = sessions.news() != before;
        drop(sessions);
        if is_news {
            self.changed.notify_all();
        }
        outcome
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
        let mut sessions = self.lock();
        loop {
            let (first, events) = sessions.next_events(client, member)?;
            let left = deadline.saturating_duration_since(Instant::now());
            if !events.is_empty() || left.is_zero() || self.closing.load(Ordering::Acquire) {
                return Ok((first, events));
            }
            let woken = self.changed.wait_timeout(sessions, left);
            sessions = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Begins a change of directories by a client: ends the leases of the others, and waits until they know,
    /// or are gone. Until what is returned is dropped nobody else gets a lease on them.
    ///
    /// # Errors
    /// `Grace`.
    pub fn change(
        &self,
        client: u64,
        member: &str,
        directories: [Option<FileHandle>; 2],
    ) -> Result<Changing<'_>, SessionError> {
        let mut sessions = self.lock();
        let client = sessions.session_of(client, member);
        let recall = sessions.begin_change(client, named(directories), self.now())?;
        let others = sessions.has_others(client);
        let changing = Changing { hub: self, client, others, directories };
        if sessions.is_recalled(&recall) {
            return Ok(changing);
        }
        self.changed.notify_all();
        while !sessions.is_recalled(&recall) && !self.closing.load(Ordering::Acquire) {
            let woken = self.changed.wait_timeout(sessions, self.times.lease / 8);
            sessions = woken.unwrap_or_else(PoisonError::into_inner).0;
            sessions.expire(self.now());
        }
        Ok(changing)
    }

    /// Ends all waiting: the manager stops.
    pub fn close(&self) {
        self.closing.store(true, Ordering::Release);
        drop(self.lock());
        self.changed.notify_all();
    }

    /// What is due: the clients whose sessions have ended, and files that nobody has open any more.
    pub fn tend(&self) -> (Vec<u64>, Vec<FileHandle>) {
        self.with(|sessions, now| {
            for client in sessions.expire(now) {
                tracing::info!(client, "the session of a client that is not heard of has ended");
            }
            (sessions.take_ended(), sessions.take_free_orphans())
        })
    }
}

/// A change that a client is making.
#[derive(Debug)]
pub struct Changing<'a> {
    hub: &'a SessionHub,
    client: u64,
    others: bool,
    directories: [Option<FileHandle>; 2],
}

fn named(directories: [Option<FileHandle>; 2]) -> impl Iterator<Item = FileHandle> {
    directories.into_iter().flatten()
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
        self.hub.lock().end_change(self.client, named(self.directories));
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
            thread::spawn(move || hub.change(1, "host:a", [Some(directory()), None]).map(drop))
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
        let changing = hub.change(1, "host:a", [None, Some(directory())]).unwrap();
        assert_eq!((changing.client(), changing.has_others()), (1, true));
        assert!(begin.elapsed() >= lease, "{:?}", begin.elapsed());
        assert_eq!(hub.wait_for_events(2, "host:a"), Err(SessionError::Gone));
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
