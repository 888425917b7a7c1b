//! Clients' sessions: locks, directory leases, callbacks, files that are open without a name, and what each
//! client is to be told (`docs/decisions/0010-sessions-and-leases.md`).
//!
//! [`Sessions`] is pure: the time is an argument. [`hub`] makes it what threads wait at.

pub mod callbacks;
pub mod events;
pub mod hub;
pub mod leases;
pub mod locks;
pub mod orphans;

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use nasd_afs::callbacks::{NeverGiven, Reading, Version};
use nasd_protocol::manager::{Cut, Event, FileHandle};
use nasd_types::{DriveId, PartitionId};

use callbacks::{Beforehand, DriveWork, FileCallbacks, Told, Turn};
use events::Events;
use leases::DirectoryLeases;
use locks::{LockAnswer, LockTable, LockedFile, Wakeups};
use nasd_protocol::range_locks::{LockOwner, LockRange, RangeLock};
use orphans::Orphans;

/// Sessions at most.
pub const MAX_SESSIONS: usize = 1 << 16;

/// Events of one answer at most.
pub const MAX_EVENTS: usize = 1024;

/// An event that a client has not dealt with after so many leases ends its session. One that is quick enough for its lease to go on
/// asks for what it is told within a lease, and says within another one that it has dealt with it.
const LEASES_TO_DEAL_WITH_AN_EVENT: u32 = 2;

/// Times of a manager's sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionTimes {
    /// A client that is not heard of for so long is gone.
    pub lease: Duration,
}

impl Default for SessionTimes {
    fn default() -> Self {
        SessionTimes { lease: Duration::from_secs(6) }
    }
}

/// Why a session's request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionError {
    /// There is no such session, or it is over: attach, and what was held is lost.
    Gone,
    /// The number is another member's.
    NotYours,
    /// There are as many sessions as can be.
    TooMany,
    /// Clients of an earlier manager may hold what is asked for: ask again soon.
    Grace,
    /// The client can't have been given what it returns.
    NeverGiven,
}

/// What a client that comes back says it holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// Locks.
    pub locks: Vec<(LockedFile, RangeLock)>,
    /// Removed files that it has open.
    pub open: Vec<FileHandle>,
}

/// How an attachment went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attached {
    /// Which of the claimed locks, by their place, the client does not hold.
    pub lost: Vec<u32>,
}

#[derive(Debug)]
struct Client {
    /// The certificate that the session came with.
    member: String,
    /// Which of all sessions this is: a client may begin another one.
    serial: u64,
    /// When it called last and was not refused: the client may believe for a lease after that.
    heard: Duration,
    events: Events,
    /// It has not dealt with what it was told: it is refused, and told nothing more. It is gone when its lease is over, or it attaches anew.
    is_over: bool,
}

impl Client {
    fn end(&mut self) {
        self.is_over = true;
        self.events = Events::default();
    }

    /// Whether it may believe yet what ended by the event of that number.
    const fn may_not_know(&self, number: u64) -> bool {
        self.is_over || !self.events.is_done(number)
    }
}

/// All sessions of one manager.
#[derive(Debug)]
pub struct Sessions {
    times: SessionTimes,
    clients: HashMap<u64, Client>,
    /// Sessions that have begun.
    begun: u64,
    locks: LockTable,
    leases: DirectoryLeases,
    callbacks: FileCallbacks,
    orphans: Orphans,
    /// Clients of the manager before this one that have not come back yet.
    awaited: HashSet<u64>,
    /// They are not waited for longer than that.
    grace_ends: Duration,
    /// Clients whose sessions have ended, until somebody has written that down.
    ended: Vec<u64>,
    /// How often something happened that somebody may wait for.
    news: u64,
    /// Whom something was told, or whose sessions have ended, since somebody has asked.
    told: Vec<u64>,
}

/// A change of a directory that others must be told of: whom, and by which events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recall(Vec<Recalled>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Recalled {
    client: u64,
    /// The event's number, and the session that it is counted in.
    number: u64,
    serial: u64,
}

impl Sessions {
    /// After an earlier manager, whose clients must come back within the lease.
    pub fn new(times: SessionTimes, earlier: HashSet<u64>, now: Duration) -> Sessions {
        Sessions {
            times,
            clients: HashMap::new(),
            begun: 0,
            locks: LockTable::default(),
            leases: DirectoryLeases::default(),
            callbacks: FileCallbacks::default(),
            orphans: Orphans::default(),
            grace_ends: now + times.lease,
            awaited: earlier,
            ended: Vec::new(),
            news: 0,
            told: Vec::new(),
        }
    }

    /// Whether clients of an earlier manager may still come back.
    pub fn is_grace(&self, now: Duration) -> bool {
        !self.awaited.is_empty() && now < self.grace_ends
    }

    /// Begins a session, or goes on with it: what the client claims of an earlier manager's time is
    /// its own if that time is not over.
    ///
    /// # Errors
    /// `NotYours`, `TooMany`.
    pub fn attach(
        &mut self,
        client: u64,
        member: &str,
        claims: &Claims,
        now: Duration,
    ) -> Result<Attached, SessionError> {
        if client == 0 || self.clients.get(&client).is_some_and(|known| known.member != member) {
            return Err(SessionError::NotYours);
        }
        if self.clients.len() >= MAX_SESSIONS && !self.clients.contains_key(&client) {
            return Err(SessionError::TooMany);
        }
        // Whoever attaches anew has nothing but what it claims.
        if self.clients.contains_key(&client) {
            self.remove(client);
        }
        let is_awaited = self.awaited.contains(&client) && self.is_grace(now);
        self.begun += 1;
        let (member, serial, events) = (member.to_owned(), self.begun, Events::default());
        let begun = Client { member, serial, heard: now, events, is_over: false };
        self.clients.insert(client, begun);
        let mut attached = Attached::default();
        for (place, (file, lock)) in claims.locks.iter().enumerate() {
            let is_own = lock.owner.client == client;
            let held = is_awaited
                && is_own
                && self.locks.lock(*file, *lock, false).0 == LockAnswer::Granted;
            if !held {
                attached.lost.push(place as u32);
            }
        }
        claims.open.iter().for_each(|file| self.orphans.claim(client, *file));
        if self.awaited.remove(&client) {
            self.orphans.settle_all(client);
        }
        Ok(attached)
    }

    /// Ends a session in good order.
    ///
    /// # Errors
    /// `Gone`, `NotYours`.
    pub fn detach(&mut self, client: u64, member: &str) -> Result<(), SessionError> {
        self.known(client, member)?;
        self.remove(client);
        self.ended.push(client);
        Ok(())
    }

    /// The client is alive, has dealt with what it was told up to `seen`, and has the removed files
    /// that are in `open` open: none else of those that it was told of, and perhaps some that were
    /// others' before.
    ///
    /// # Errors
    /// `Gone`, `NotYours`.
    pub fn acknowledge(
        &mut self,
        client: u64,
        member: &str,
        seen: u64,
        open: &[FileHandle],
        now: Duration,
    ) -> Result<(), SessionError> {
        let done = {
            let known = self.require(client, member)?;
            known.heard = now;
            known.events.acknowledge(seen)
        };
        self.news += u64::from(!done.is_empty());
        open.iter().for_each(|file| self.orphans.claim(client, *file));
        for event in done {
            if let Event::Removed(file) = event {
                self.orphans.settle(client, file);
            }
            let told = self.callbacks.dealt_with(client, &event);
            self.tell_all(told);
        }
        Ok(())
    }

    /// What the client is to be told next: the number of the first event, and the events.
    ///
    /// # Errors
    /// `Gone`, `NotYours`.
    pub fn next_events(
        &mut self,
        client: u64,
        member: &str,
    ) -> Result<(u64, Vec<Event>), SessionError> {
        Ok(self.require(client, member)?.events.next(MAX_EVENTS))
    }

    /// A client asks for a lock, as [`LockTable::lock`].
    ///
    /// # Errors
    /// `Gone`, `NotYours`, `Grace`.
    pub fn lock(
        &mut self,
        member: &str,
        file: LockedFile,
        wanted: RangeLock,
        wait: bool,
        now: Duration,
    ) -> Result<LockAnswer, SessionError> {
        self.require(wanted.owner.client, member)?;
        if self.is_grace(now) {
            return Err(SessionError::Grace);
        }
        let (answer, wakeups) = self.locks.lock(file, wanted, wait);
        self.wake(wakeups);
        Ok(answer)
    }

    /// Who is in the way of such a lock.
    ///
    /// # Errors
    /// `Grace`.
    pub fn test_lock(
        &self,
        file: LockedFile,
        wanted: &RangeLock,
        now: Duration,
    ) -> Result<Option<RangeLock>, SessionError> {
        if self.is_grace(now) {
            return Err(SessionError::Grace);
        }
        Ok(self.locks.test(file, wanted))
    }

    /// A client lets go of locks and of waiting for them; with `only_waiting` of that alone.
    ///
    /// # Errors
    /// `Gone`, `NotYours`.
    pub fn unlock(
        &mut self,
        member: &str,
        file: LockedFile,
        owner: LockOwner,
        range: LockRange,
        only_waiting: bool,
    ) -> Result<(), SessionError> {
        self.require(owner.client, member)?;
        let wakeups = match only_waiting {
            true => self.locks.stop_waiting(file, owner, range),
            false => self.locks.unlock(file, owner, range),
        };
        self.wake(wakeups);
        Ok(())
    }

    /// Whether the client may believe from now on what it is told of a directory.
    ///
    /// # Errors
    /// `Gone`, `NotYours`, `Grace`.
    pub fn lease(
        &mut self,
        client: u64,
        member: &str,
        directory: FileHandle,
        now: Duration,
    ) -> Result<bool, SessionError> {
        self.require(client, member)?;
        if self.is_grace(now) {
            return Err(SessionError::Grace);
        }
        let (granted, ended) = self.leases.grant(client, directory, now);
        for (other, directory) in ended {
            self.tell(other, Event::DirectoryChanged(directory));
        }
        Ok(granted)
    }

    /// A client wants to read a file of a volume of the personality `afs`, and to hold a callback.
    ///
    /// # Errors
    /// `Gone`, `NotYours`, `Grace`.
    pub fn may_read(
        &mut self,
        client: u64,
        member: &str,
        file: FileHandle,
        now: Duration,
    ) -> Result<Turn<Reading>, SessionError> {
        self.require(client, member)?;
        self.require_no_grace(now)?;
        let turn = self.callbacks.may_read(client, file);
        self.end_some_callbacks(client);
        Ok(turn)
    }

    /// A client may want to read some files: those of which nobody stores anything, and of which it is to be said what their drive tells
    /// by [`Sessions::found`], as nothing is known of them.
    ///
    /// # Errors
    /// `Gone`, `NotYours`, `Grace`.
    pub fn begin_to_look(
        &mut self,
        client: u64,
        member: &str,
        files: &[FileHandle],
        now: Duration,
    ) -> Result<Vec<(FileHandle, bool)>, SessionError> {
        self.require(client, member)?;
        self.require_no_grace(now)?;
        let mut told = Vec::with_capacity(files.len());
        for file in files {
            match self.callbacks.begin_to_look(client, *file) {
                Beforehand::Ask => told.push((*file, true)),
                Beforehand::Settled => told.push((*file, false)),
                Beforehand::Leave => {}
            }
        }
        Ok(told)
    }

    /// It is to hold callbacks on those of them of which nobody stores or changes anything: on which, and of which version.
    ///
    /// # Errors
    /// `Gone`, `NotYours`, `Grace`.
    pub fn promise_settled(
        &mut self,
        client: u64,
        member: &str,
        files: &[FileHandle],
        now: Duration,
    ) -> Result<Vec<(FileHandle, Version)>, SessionError> {
        self.require(client, member)?;
        self.require_no_grace(now)?;
        let promise = |file: &FileHandle| {
            let version = self.callbacks.promise_if_settled(client, *file)?;
            Some((*file, version))
        };
        let promised = files.iter().filter_map(promise).collect();
        self.end_some_callbacks(client);
        Ok(promised)
    }

    /// A client was promised something, and there may be too many callbacks now.
    fn end_some_callbacks(&mut self, client: u64) {
        for (client, file) in self.callbacks.end_some(client) {
            self.tell_changed(client, file);
        }
    }

    fn tell_changed(&mut self, client: u64, file: FileHandle) {
        if self.tell(client, Event::Changed(file)).is_none() {
            // The file manager itself.
            self.callbacks.dealt_with(client, &Event::Changed(file));
        }
    }

    /// A client (0: one without a session) has made such a file, of that version: whether it holds a callback on it now.
    pub fn made(&mut self, client: u64, file: FileHandle, version: Version) -> bool {
        let is_good = self.clients.get(&client).is_some_and(|known| !known.is_over);
        let is_promised = is_good && self.callbacks.made(client, file, version);
        if is_promised {
            self.end_some_callbacks(client);
        }
        is_promised
    }

    /// A client is about to make such a file of an object that has an odd version, and that nobody knows of: whether it may write under that from
    /// now on. If the file is not made after all, [`Sessions::has_not_begun`].
    pub fn may_begin(
        &mut self,
        client: u64,
        file: FileHandle,
        version: Version,
        now: Duration,
    ) -> bool {
        let is_good = self.clients.get(&client).is_some_and(|known| !known.is_over);
        let is_grace = self.require_no_grace(now).is_err();
        is_good && !is_grace && self.callbacks.may_begin(client, (file, version), now)
    }

    /// The file was not made.
    pub fn has_not_begun(&mut self, file: FileHandle) {
        self.callbacks.has_not_begun(file);
        self.news += 1;
    }

    /// The version under which a client stores such a file, where nobody need be told when it has.
    pub fn store_alone(&self, client: u64, file: FileHandle) -> Option<Version> {
        let version = self.callbacks.version_of(file)?;
        self.callbacks.is_alone(client, file, version).then_some(version)
    }

    /// A client wants to write such a file: the version of its store, once it may.
    ///
    /// # Errors
    /// `Gone`, `NotYours`, `Grace`.
    pub fn may_write(
        &mut self,
        client: u64,
        member: &str,
        file: FileHandle,
        now: Duration,
    ) -> Result<Turn<Version>, SessionError> {
        self.may_cut(client, member, (file, None), now)
    }

    /// The same for who wants to cut the file as the store begins, if it has the version still that is to be cut.
    ///
    /// # Errors
    /// `Gone`, `NotYours`, `Grace`.
    pub fn may_cut(
        &mut self,
        client: u64,
        member: &str,
        file: (FileHandle, Option<Cut>),
        now: Duration,
    ) -> Result<Turn<Version>, SessionError> {
        self.require(client, member)?;
        self.require_no_grace(now)?;
        let (turn, told) = self.callbacks.may_write(client, file, now);
        self.tell_all(told);
        Ok(turn)
    }

    /// Whether nobody need be told when a client has stored such a file under this version.
    pub fn stores_alone(&self, client: u64, file: FileHandle, version: Version) -> bool {
        self.callbacks.is_alone(client, file, version)
    }

    /// Others wait for what the stores of these files may not need: they end soon.
    pub fn wait_for(&mut self, files: &[FileHandle]) {
        self.callbacks.wait_for(files);
    }

    /// The store of a file was kept waiting, and begins now.
    pub fn store_begins(&mut self, file: FileHandle, now: Duration) {
        self.callbacks.begins(file, now);
    }

    /// A client has stored such a file under this version: whether it holds a callback for that, once all others know. `is_noted` becomes
    /// true when that is noted: then [`Sessions::end_return`] is to follow.
    ///
    /// # Errors
    /// `Gone`, `NotYours`, `Grace`, `NeverGiven`.
    pub fn returned(
        &mut self,
        (client, member): (u64, &str),
        file: FileHandle,
        version: Version,
        is_noted: &mut bool,
        now: Duration,
    ) -> Result<Turn<bool>, SessionError> {
        self.require(client, member)?;
        self.require_no_grace(now)?;
        let (turn, told) = self.callbacks.returned((client, file, version), is_noted);
        self.tell_all(told);
        if turn == Ok(Turn::Done(true)) {
            self.end_some_callbacks(client);
        }
        turn.map_err(|NeverGiven| SessionError::NeverGiven)
    }

    /// Whether a client stores a file, as far as is known: then it was asked whether it may.
    pub fn is_stored_by(&self, client: u64, file: FileHandle) -> bool {
        self.callbacks.is_stored_by(client, file)
    }

    /// A call waits no longer for what a return comes to.
    pub fn end_return(&mut self, client: u64, file: FileHandle, version: Version) {
        self.callbacks.end_return(client, file, version);
    }

    /// The file manager wants to store something in such a file itself: the version, once it may.
    ///
    /// # Errors
    /// `Grace`.
    pub fn may_store(
        &mut self,
        file: FileHandle,
        now: Duration,
    ) -> Result<Turn<Version>, SessionError> {
        self.require_no_grace(now)?;
        let (turn, told) = self.callbacks.may_store(file, now);
        self.tell_all(told);
        Ok(turn)
    }

    /// No client begins to store in these parts of a volume until it is released, or then.
    pub fn hold(&mut self, ticket: u64, parts: Vec<(DriveId, PartitionId)>, until: Duration) {
        self.callbacks.hold(ticket, parts, until);
    }

    /// Clients may begin to store again in what was held.
    pub fn release(&mut self, ticket: u64, now: Duration) {
        self.callbacks.release(ticket, now);
        self.news += 1;
    }

    /// Whether nobody stores any more in what is held; otherwise what is to be done for that.
    pub fn quiet(&mut self, ticket: u64) -> Turn<()> {
        self.callbacks.quiet(ticket)
    }

    /// The file manager has stored under this version.
    pub fn end_store(&mut self, file: FileHandle, version: Version) {
        let told = self.callbacks.end_store(file, version);
        self.tell_all(told);
        self.news += 1;
    }

    /// Whether a store of that version is over, and everybody knows; what is to be done for that otherwise.
    pub fn settled(&mut self, file: FileHandle, version: Version) -> Turn<()> {
        if self.callbacks.is_settled(file, version) {
            return Turn::Done(());
        }
        self.callbacks.take_work_of(file).map_or(Turn::Wait, Turn::Work)
    }

    /// The version of a file, if anything is known of it.
    pub fn version_of(&self, file: FileHandle) -> Option<Version> {
        self.callbacks.version_of(file)
    }

    /// The highest version that a file's drive can have by what it was told here, if anything is known of the file.
    pub fn highest_version(&self, file: FileHandle) -> Option<Version> {
        self.callbacks.highest_version(file)
    }

    /// A drive was asked a file's version, and has told it or not.
    pub fn found(&mut self, file: FileHandle, version: Option<Version>) {
        let told = self.callbacks.found(file, version);
        self.tell_all(told);
        self.news += 1;
    }

    /// A drive has set a file's version.
    pub fn advanced(&mut self, file: FileHandle, to: Version, now: Duration) {
        let told = self.callbacks.advanced(file, to, now);
        self.tell_all(told);
        self.news += 1;
    }

    /// A drive could not be asked: it is to be asked again.
    pub fn not_done(&mut self, work: DriveWork) {
        self.callbacks.not_done(work);
        self.news += 1;
    }

    /// Somebody else has raised a file's version: whoever believes something of it is told, and no store of it ends before they know.
    pub fn version_raised(&mut self, file: FileHandle) {
        for client in self.callbacks.raised(file) {
            self.tell_changed(client, file);
        }
        self.news += 1;
    }

    /// A file is gone: whoever believes something of it is told.
    pub fn forget_file(&mut self, file: FileHandle) {
        let told = self.callbacks.removed(file);
        self.tell_all(told);
        self.news += 1;
    }

    /// What drives are to be asked that nobody waits for.
    pub fn take_work(&mut self) -> Option<DriveWork> {
        self.callbacks.take_work()
    }

    /// The session that a client's request counts for: 0 where it has none, or has given another's
    /// number for its own.
    pub fn session_of(&self, client: u64, member: &str) -> u64 {
        let known = self.clients.get(&client);
        known.filter(|known| known.member == member).map_or(0, |_| client)
    }

    /// Whether a client besides this one has a session.
    pub fn has_others(&self, client: u64) -> bool {
        self.clients.keys().chain(&self.awaited).any(|other| *other != client)
    }

    /// A client (0: one without a session) is about to change directories: the leases of the others
    /// end. It may go on when [`Sessions::is_recalled`], and has to tell when it has done so.
    ///
    /// # Errors
    /// `Grace`.
    pub fn begin_change(
        &mut self,
        client: u64,
        directories: impl Iterator<Item = FileHandle>,
        now: Duration,
    ) -> Result<Recall, SessionError> {
        self.require_no_grace(now)?;
        let mut told = Vec::new();
        for directory in directories {
            for holder in self.callbacks.begin_change(client, directory) {
                told.extend(self.tell(holder, Event::Changed(directory)));
            }
            for holder in self.leases.begin_change(client, directory, now) {
                told.extend(self.tell(holder, Event::DirectoryChanged(directory)));
            }
        }
        Ok(Recall(told))
    }

    /// The change is made, or not.
    pub fn end_change(&mut self, client: u64, directories: impl Iterator<Item = FileHandle>) {
        directories.for_each(|directory| {
            self.leases.end_change(client, directory);
            self.callbacks.end_change(client, directory);
        });
    }

    /// Whether all whose leases were recalled have dealt with it, or are gone. Who has is not looked at again when it is asked anew.
    pub fn is_recalled(&self, recall: &mut Recall) -> bool {
        while let Some(last) = recall.0.last() {
            let session = self.clients.get(&last.client);
            let session = session.filter(|session| session.serial == last.serial);
            if session.is_some_and(|session| session.may_not_know(last.number)) {
                return false;
            }
            recall.0.pop();
        }
        true
    }

    /// A file is without a name. A session, or 0, says whether it has it open; the others are asked.
    pub fn removed(&mut self, file: FileHandle, session: u64, is_open: bool) {
        let asked: HashSet<u64> =
            self.clients.keys().copied().filter(|client| *client != session).collect();
        for client in &asked {
            self.tell(*client, Event::Removed(file));
        }
        // Those who have not come back yet will say.
        let asked = asked.into_iter().chain(self.awaited.iter().copied()).collect();
        let open = (is_open && self.clients.contains_key(&session)).then_some(session);
        self.orphans.add(file, asked, open);
    }

    /// A client has closed removed files.
    ///
    /// # Errors
    /// `Gone`, `NotYours`.
    pub fn close(
        &mut self,
        client: u64,
        member: &str,
        files: &[FileHandle],
    ) -> Result<(), SessionError> {
        self.require(client, member)?;
        files.iter().for_each(|file| self.orphans.close(client, *file));
        Ok(())
    }

    /// Ends the sessions of clients that were not heard of for the lease time, and waits no longer for those that should have come
    /// back; whose. Clients that live, and have not dealt in time with what they are told, are refused from now on.
    pub fn expire(&mut self, now: Duration) -> Vec<u64> {
        let lease = self.times.lease;
        let mut gone = Vec::new();
        for (number, client) in &mut self.clients {
            client.events.note(now);
            let is_late = |since: Duration| since + lease * LEASES_TO_DEAL_WITH_AN_EVENT <= now;
            if client.heard + lease <= now {
                gone.push(*number);
            } else if client.events.waits_since().is_some_and(is_late) {
                client.end();
                // It may be waiting for events.
                self.told.push(*number);
            }
        }
        gone.iter().for_each(|client| self.remove(*client));
        let told = self.callbacks.expire(now);
        self.news += u64::from(!told.is_empty());
        self.tell_all(told);
        if now >= self.grace_ends {
            for client in std::mem::take(&mut self.awaited) {
                self.orphans.remove_client(client);
                self.ended.push(client);
            }
        }
        self.ended.extend(&gone);
        gone
    }

    /// Clients whose sessions have ended, each told once: those that have begun another since are not.
    pub fn take_ended(&mut self) -> Vec<u64> {
        let ended = std::mem::take(&mut self.ended);
        ended.into_iter().filter(|client| !self.clients.contains_key(client)).collect()
    }

    /// A file that was told to be free could not be removed: it is told again.
    pub fn keep_free(&mut self, file: FileHandle) {
        self.orphans.keep_free(file);
    }

    /// Files without a name that nobody has open any more, each told once: to be removed.
    pub fn take_free_orphans(&mut self) -> Vec<FileHandle> {
        let free = self.orphans.take_free();
        free.iter().for_each(|file| self.locks.remove_file(*file));
        free
    }

    /// The sessions that there are, and those waited for.
    pub fn clients(&self) -> impl Iterator<Item = u64> {
        self.clients.keys().chain(&self.awaited).copied()
    }

    /// Locks held, requests waiting, leases, orphans.
    pub fn counts(&self) -> SessionCounts {
        let (locks, waiting_locks) = self.locks.counts();
        SessionCounts {
            sessions: self.clients.len(),
            locks,
            waiting_locks,
            leases: self.leases.len(),
            callbacks: self.callbacks.held(),
            orphans: self.orphans.len(),
        }
    }

    /// A session that is good.
    fn require(&mut self, client: u64, member: &str) -> Result<&mut Client, SessionError> {
        let known = self.known(client, member)?;
        if known.is_over { Err(SessionError::Gone) } else { Ok(known) }
    }

    /// One that may be over.
    fn known(&mut self, client: u64, member: &str) -> Result<&mut Client, SessionError> {
        let known = self.clients.get_mut(&client).ok_or(SessionError::Gone)?;
        if known.member == member { Ok(known) } else { Err(SessionError::NotYours) }
    }

    /// A number that is another one when there may be something for those who wait for others: an event that was dealt with,
    /// the end of a session, what a drive has done.
    pub const fn news(&self) -> u64 {
        self.news
    }

    /// Those for whom there is something new, each perhaps more than once.
    pub fn take_told(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.told)
    }

    fn remove(&mut self, client: u64) {
        self.news += 1;
        self.told.push(client);
        self.clients.remove(&client);
        self.leases.remove_client(client);
        self.orphans.remove_client(client);
        let wakeups = self.locks.remove_client(client);
        self.wake(wakeups);
        let told = self.callbacks.gone(client);
        self.tell_all(told);
    }

    fn require_no_grace(&self, now: Duration) -> Result<(), SessionError> {
        if self.is_grace(now) { Err(SessionError::Grace) } else { Ok(()) }
    }

    fn tell_all(&mut self, told: Told) {
        for (client, event) in told {
            self.tell(client, event);
        }
    }

    fn wake(&mut self, wakeups: Wakeups) {
        for (client, (file, kind)) in wakeups {
            self.tell(client, Event::LockFree(file, kind));
        }
    }

    fn tell(&mut self, client: u64, event: Event) -> Option<Recalled> {
        let session = self.clients.get_mut(&client)?;
        let serial = session.serial;
        let mut number = u64::MAX;
        if !session.is_over {
            number = session.events.push(event);
            if session.events.is_overdue() {
                session.end();
            }
            self.told.push(client);
        }
        Some(Recalled { client, number, serial })
    }
}

/// How much there is of everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionCounts {
    /// Clients.
    pub sessions: usize,
    /// Locks that are held.
    pub locks: usize,
    /// Requests that wait for a lock.
    pub waiting_locks: usize,
    /// Directory leases.
    pub leases: usize,
    /// Callbacks.
    pub callbacks: usize,
    /// Removed files that are waited for.
    pub orphans: usize,
}

#[cfg(test)]
mod callback_tests;
#[cfg(test)]
mod tests;
