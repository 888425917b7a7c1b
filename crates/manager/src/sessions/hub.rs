//! Where threads wait for sessions: for something to tell a client, or for clients to have dealt
//! with something.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nasd_protocol::manager::{Event, FileHandle};

use super::{Earlier, SessionError, SessionTimes, Sessions};

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
    pub fn new(times: SessionTimes, earlier: Earlier) -> SessionHub {
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

    /// Ends the leases of other clients on a directory that `client` is about to change, and waits
    /// until they know, or are gone.
    ///
    /// # Errors
    /// `Grace`.
    pub fn recall(&self, client: u64, directory: FileHandle) -> Result<(), SessionError> {
        let mut sessions = self.lock();
        let recall = sessions.recall(client, directory, self.now())?;
        if sessions.is_recalled(&recall) {
            return Ok(());
        }
        drop(sessions);
        self.changed.notify_all();
        let mut sessions = self.lock();
        while !sessions.is_recalled(&recall) && !self.closing.load(Ordering::Acquire) {
            let woken = self.changed.wait_timeout(sessions, self.times.lease / 8);
            sessions = woken.unwrap_or_else(PoisonError::into_inner).0;
            sessions.expire(self.now());
        }
        Ok(())
    }

    /// Ends all waiting: the manager stops.
    pub fn close(&self) {
        self.closing.store(true, Ordering::Release);
        drop(self.lock());
        self.changed.notify_all();
    }

    /// What is due: sessions that have ended. Returns files that nobody has open any more.
    pub fn tend(&self) -> Vec<FileHandle> {
        self.with(|sessions, now| {
            for client in sessions.expire(now) {
                tracing::info!(client, "the session of a client that is not heard of has ended");
            }
            sessions.take_free_orphans()
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Arc;
    use std::thread;

    use super::super::Claims;
    use super::*;
    use nasd_types::{DriveId, ObjectId, PartitionId};

    fn directory() -> FileHandle {
        FileHandle { drive: DriveId(1), partition: PartitionId(1), object: ObjectId(70) }
    }

    fn hub(lease: Duration) -> Arc<SessionHub> {
        let hub = Arc::new(SessionHub::new(SessionTimes { lease }, Earlier::These(HashSet::new())));
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
        assert!(hub.with(|all, now| all.lease(2, directory(), now)));
        let changer = {
            let hub = Arc::clone(&hub);
            thread::spawn(move || hub.recall(1, directory()))
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
        let hub = hub(Duration::from_millis(200));
        assert!(hub.with(|all, now| all.lease(2, directory(), now)));
        let begin = Instant::now();
        assert_eq!(hub.recall(1, directory()), Ok(()));
        assert!(begin.elapsed() >= Duration::from_millis(150), "{:?}", begin.elapsed());
        assert_eq!(hub.wait_for_events(2, "host:a"), Err(SessionError::Gone));
    }

    #[test]
    fn a_client_is_answered_in_time_even_if_there_is_nothing_to_tell() {
        let hub = hub(Duration::from_millis(600));
        let begin = Instant::now();
        assert_eq!(hub.wait_for_events(1, "host:a"), Ok((1, Vec::new())));
        assert!((190..590).contains(&begin.elapsed().as_millis()), "{:?}", begin.elapsed());
        assert_eq!(hub.wait_for_events(1, "host:b"), Err(SessionError::NotYours));
        hub.close();
        let begin = Instant::now();
        assert_eq!(hub.wait_for_events(1, "host:a"), Ok((1, Vec::new())));
        assert!(begin.elapsed() < Duration::from_millis(190));
    }
}
