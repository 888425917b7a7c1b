//! The session calls of the program: from what is on the wire to what [`crate::sessions`] means, and
//! back.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use nasd_protocol::manager::{
    AttachArguments, Attached, ClosedArguments, EventsArguments, EventsPage, FileHandle, HeldLock,
    InTheWay, LeaseArguments, Leased, LockAnswer, LockArguments, LockKind, ManagerStatus,
    UnlockArguments,
};
use nasd_protocol::range_locks::{LockOwner, LockRange, RangeLock};

use crate::namespace::{Namespace, Orphaned, Outcome};
use crate::sessions::hub::{Changing, SessionHub};
use crate::sessions::locks::{self, LockedFile};
use crate::sessions::{Claims, SessionError, SessionTimes};
use crate::volumes::Volumes;
use crate::{callback_service, governing};

/// All sessions of a manager, as its clients meet them.
#[derive(Debug)]
pub(crate) struct SessionService {
    hub: Arc<SessionHub>,
    /// The name spaces, of which the first has the list of sessions in its journal.
    volumes: Arc<Volumes>,
    /// Which start of the manager this is.
    instance: u64,
}

/// The sessions of one member of the cell.
pub(crate) struct SessionsOf<'a> {
    service: &'a SessionService,
    member: String,
}

impl SessionService {
    /// After the manager before this one, whose clients the journal tells.
    pub(crate) fn new(times: SessionTimes, volumes: Arc<Volumes>) -> SessionService {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let hub = Arc::new(SessionHub::new(times, volumes.first().sessions()));
        // It has to differ from that of the manager before.
        let service = SessionService { hub, volumes, instance: now.as_nanos() as u64 };
        service.tell_of_orphans();
        service
    }

    /// Tells clients of files that have lost their names: who has them open is to say so.
    fn tell_of_orphans(&self) {
        for names in self.volumes.open_ones() {
            self.tell_of(&names);
        }
    }

    fn tell_of(&self, names: &Namespace) {
        let orphaned = names.take_orphaned();
        if orphaned.is_empty() {
            return;
        }
        self.hub.with(|sessions, _| {
            for Orphaned { file, session, is_open } in orphaned {
                sessions.removed(file, session, is_open);
            }
        });
    }

    /// What is due: sessions that have ended, and files that nobody has open any more.
    pub(crate) fn tend(&self) {
        self.tell_of_orphans();
        callback_service::tend(&self.hub, &self.volumes);
        governing::tend_lists(&self.hub, &self.volumes);
        // Whoever begins such a session anew finds after that that it is not written down.
        let free = self.hub.tend(|ended| self.volumes.first().end_sessions(ended));
        self.remove(free);
    }

    /// Removes files that nobody has open any more.
    fn remove(&self, mut free: Vec<FileHandle>) {
        if free.is_empty() {
            return;
        }
        for names in self.volumes.open_ones() {
            let ours: Vec<FileHandle> = free.extract_if(.., |file| names.has(*file)).collect();
            // Calls about sessions do not wait for who holds a volume: its files go with the next look.
            let inside = names.door().try_enter();
            let removed = match &inside {
                Some(_) => names.remove_orphans(&ours),
                None => Err(ManagerStatus::Busy),
            };
            if let Err(status) = removed {
                tracing::warn!(%status, "removed files stay for a while");
                self.hub.with(|sessions, _| ours.iter().for_each(|file| sessions.keep_free(*file)));
            }
        }
    }

    /// Begins a change: see [`SessionHub::change`].
    pub(crate) fn change(
        &self,
        client: u64,
        member: &str,
        touched: Vec<FileHandle>,
    ) -> Outcome<Changing<'_>> {
        self.hub.change(client, member, touched).map_err(status)
    }

    /// Ends a change of a name space: those who may have open what has lost its name by it are told.
    pub(crate) fn changed(&self, names: &Namespace) {
        self.tell_of(names);
    }

    pub(crate) const fn hub(&self) -> &Arc<SessionHub> {
        &self.hub
    }

    pub(crate) const fn of(&self, member: String) -> SessionsOf<'_> {
        SessionsOf { service: self, member }
    }
}

/// What a client is told.
pub(crate) fn status(error: SessionError) -> ManagerStatus {
    match error {
        SessionError::Gone => ManagerStatus::NoSession,
        SessionError::NotYours => ManagerStatus::Permission,
        SessionError::TooMany => ManagerStatus::NoLocks,
        SessionError::Grace => ManagerStatus::Grace,
        SessionError::NeverGiven => ManagerStatus::Invalid,
    }
}

/// A lock as the tables have it; nothing for a range that ends before it begins.
fn inward(client: u64, lock: &HeldLock) -> Outcome<(LockedFile, RangeLock)> {
    let owner = LockOwner { client, owner: lock.owner };
    let range = range_of(lock.kind, lock.first, lock.last)?;
    let held = RangeLock { owner, range, mode: lock.mode, process: lock.process };
    Ok(((lock.file, lock.kind), held))
}

/// flock is always about all of the file.
fn range_of(kind: LockKind, first: u64, last: u64) -> Outcome<LockRange> {
    match kind {
        LockKind::Flock => Ok(LockRange::ALL),
        LockKind::Posix => LockRange::new(first, last).ok_or(ManagerStatus::Invalid),
    }
}

fn outward((file, kind): LockedFile, lock: &RangeLock) -> HeldLock {
    HeldLock {
        file,
        kind,
        owner: lock.owner.owner,
        first: lock.range.first,
        last: lock.range.last,
        mode: lock.mode,
        process: lock.process,
    }
}

impl SessionsOf<'_> {
    fn hub(&self) -> &SessionHub {
        &self.service.hub
    }

    /// Begins a session, or goes on with it.
    pub(crate) fn attach(&self, arguments: &AttachArguments) -> Outcome<Attached> {
        let locks: Outcome<Vec<_>> =
            arguments.locks.iter().map(|lock| inward(arguments.client, lock)).collect();
        let claims = Claims { locks: locks?, open: arguments.open.clone() };
        let attach = |sessions: &mut crate::sessions::Sessions, now| {
            sessions.attach(arguments.client, &self.member, &claims, now)
        };
        let attached = self.hub().with(attach).map_err(status)?;
        // Nothing is granted that the next manager would not wait for.
        if let Err(failed) = self.service.volumes.first().begin_session(arguments.client) {
            let _ = self.detach(arguments.client);
            return Err(failed);
        }
        Ok(Attached {
            instance: self.service.instance,
            // Far below 2^64 nanoseconds.
            lease: self.hub().lease().as_nanos() as u64,
            lost: attached.lost,
        })
    }

    /// Ends a session.
    pub(crate) fn detach(&self, client: u64) -> Outcome<()> {
        self.hub().with(|sessions, _| sessions.detach(client, &self.member)).map_err(status)
    }

    /// What the client has dealt with, and what it should know next.
    pub(crate) fn events(&self, arguments: &EventsArguments) -> Outcome<EventsPage> {
        let EventsArguments { client, seen, ref open, wait } = *arguments;
        let acknowledged = self
            .hub()
            .with(|sessions, now| sessions.acknowledge(client, &self.member, seen, open, now));
        acknowledged.map_err(status)?;
        let next = match wait {
            true => self.hub().wait_for_events(client, &self.member),
            false => self.hub().with(|sessions, _| sessions.next_events(client, &self.member)),
        };
        let (first, events) = next.map_err(status)?;
        Ok(EventsPage { first, events })
    }

    /// Removed files are not open any more.
    pub(crate) fn closed(&self, arguments: &ClosedArguments) -> Outcome<()> {
        let ClosedArguments { client, ref files } = *arguments;
        let close = |sessions: &mut crate::sessions::Sessions, _| {
            sessions.close(client, &self.member, files).map(|()| sessions.take_free_orphans())
        };
        let free = self.hub().with(close).map_err(status)?;
        self.service.remove(free);
        Ok(())
    }

    /// Whether the client may believe what it is told of a directory.
    pub(crate) fn lease(&self, arguments: &LeaseArguments) -> Outcome<Leased> {
        let LeaseArguments { client, directory } = *arguments;
        let lease = self.hub().with(|all, now| all.lease(client, &self.member, directory, now));
        Ok(Leased { granted: lease.map_err(status)? })
    }

    /// Takes a lock, or tells who has it.
    pub(crate) fn lock(&self, arguments: &LockArguments) -> Outcome<LockAnswer> {
        let (file, wanted) = inward(arguments.client, &arguments.lock)?;
        let lock = |sessions: &mut crate::sessions::Sessions, now| {
            sessions.lock(&self.member, file, wanted, arguments.wait, now)
        };
        match self.hub().with(lock).map_err(status)? {
            locks::LockAnswer::Granted => Ok(LockAnswer::Granted),
            locks::LockAnswer::Denied(other) => Ok(LockAnswer::Denied(outward(file, &other))),
            locks::LockAnswer::Queued(other) => Ok(LockAnswer::Queued(outward(file, &other))),
            locks::LockAnswer::Deadlock => Err(ManagerStatus::Deadlock),
            locks::LockAnswer::TooMany => Err(ManagerStatus::NoLocks),
        }
    }

    /// Lets go of locks, and of waiting for them.
    pub(crate) fn unlock(&self, arguments: &UnlockArguments) -> Outcome<()> {
        let UnlockArguments { client, file, kind, owner, first, last, only_waiting } = *arguments;
        let range = range_of(kind, first, last)?;
        let owner = LockOwner { client, owner };
        let unlock = |sessions: &mut crate::sessions::Sessions, _| {
            sessions.unlock(&self.member, (file, kind), owner, range, only_waiting)
        };
        self.hub().with(unlock).map_err(status)
    }

    /// Who would be in the way of a lock.
    pub(crate) fn test_lock(&self, arguments: &LockArguments) -> Outcome<InTheWay> {
        let (file, wanted) = inward(arguments.client, &arguments.lock)?;
        let found = self.hub().with(|sessions, now| sessions.test_lock(file, &wanted, now));
        Ok(InTheWay(found.map_err(status)?.map(|other| outward(file, &other))))
    }
}
