//! The fake manager's sessions: locks, and removed files that are open. Nobody's lease ends.

use std::collections::{HashMap, HashSet};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nasd_protocol::range_locks::{LockOwner, LockRange, RangeLock, RangeLocks};

use super::FakeCell;
use crate::ClerkError;
use crate::backend::Sessions;
use crate::wire::{
    AttachArguments, Attached, Caller, ClosedArguments, Event, EventsArguments, EventsPage,
    FileHandle, HeldLock, LeaseArguments, LockAnswer, LockArguments, LockKind, ManagerStatus,
    UnlockArguments,
};

/// As long as clients may be without being heard of: they ask three times as often.
const LEASE: Duration = Duration::from_secs(3);

/// Stands for the client that has removed a file while it had it open, or made one without a name. Which it
/// is, is not known here: it is taken for the first one that says so, or leaves.
const SOMEBODY: u64 = 0;

type LockedFile = (FileHandle, LockKind);

#[derive(Debug, Default)]
struct State {
    instance: u64,
    /// The last number that a client was given.
    drawn: u64,
    /// Events of each client, all that there ever were.
    clients: HashMap<u64, Vec<Event>>,
    locks: HashMap<LockedFile, RangeLocks>,
    waiting: HashMap<LockedFile, HashSet<u64>>,
    /// Removed files, and who may have them open.
    removed: HashMap<FileHandle, HashSet<u64>>,
    /// Of these, the ones that clients have not answered about.
    asked: HashSet<(u64, FileHandle)>,
}

/// All sessions.
#[derive(Debug, Default)]
pub(super) struct FakeSessions {
    state: Mutex<State>,
    changed: Condvar,
}

impl State {
    fn require(&self, client: u64) -> Result<(), ClerkError> {
        let known = self.clients.contains_key(&client);
        if known { Ok(()) } else { Err(ClerkError::Manager(ManagerStatus::NoSession)) }
    }

    fn wake(&mut self, place: LockedFile) {
        for client in self.waiting.remove(&place).unwrap_or_default() {
            if let Some(events) = self.clients.get_mut(&client) {
                events.push(Event::LockFree(place.0, place.1));
            }
        }
    }

    fn answer(&mut self, client: u64, file: FileHandle, is_open: bool) {
        if self.asked.remove(&(client, file)) && !is_open {
            self.close(client, file);
        }
    }

    fn close(&mut self, client: u64, file: FileHandle) {
        if let Some(open) = self.removed.get_mut(&file) {
            open.remove(&client);
        }
    }

    /// Removed files that nobody has open.
    fn take_free(&mut self) -> Vec<FileHandle> {
        let is_free = |(file, open): (&FileHandle, &HashSet<u64>)| open.is_empty().then_some(*file);
        let free: Vec<FileHandle> = self.removed.iter().filter_map(is_free).collect();
        free.iter().for_each(|file| {
            self.removed.remove(file);
        });
        free
    }
}

fn inward(client: u64, lock: &HeldLock) -> (LockedFile, RangeLock) {
    let owner = LockOwner { client, owner: lock.owner };
    let range = LockRange { first: lock.first, last: lock.last };
    ((lock.file, lock.kind), RangeLock { owner, range, mode: lock.mode, process: lock.process })
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

impl FakeCell {
    fn sessions_state(&self) -> MutexGuard<'_, State> {
        self.sessions.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The manager forgets all sessions, as though it had been started anew.
    pub fn forget_sessions(&self) {
        let mut state = self.sessions_state();
        let (instance, drawn) = (state.instance + 1, state.drawn);
        let removed = std::mem::take(&mut state.removed);
        *state = State { instance, drawn, removed, ..State::default() };
        self.sessions.changed.notify_all();
    }

    /// A number for one more client.
    pub(super) fn next_client(&self) -> u64 {
        let mut state = self.sessions_state();
        state.drawn += 1;
        state.drawn
    }

    /// Locks that are held.
    pub fn locks_held(&self) -> usize {
        self.sessions_state().locks.values().map(RangeLocks::len).sum()
    }

    /// A file has no name, and the client that made it has it open.
    pub(super) fn keep_nameless(&self, file: FileHandle) {
        self.sessions_state().removed.insert(file, HashSet::from([SOMEBODY]));
    }

    /// A file has lost its last name, of a client that has it open itself or not: true if it can go at once.
    pub(super) fn is_unused(&self, file: FileHandle, is_kept: bool) -> bool {
        let mut state = self.sessions_state();
        let mut clients: HashSet<u64> = state.clients.keys().copied().collect();
        for (client, events) in &mut state.clients {
            let _ = client;
            events.push(Event::Removed(file));
        }
        state.asked.extend(clients.iter().map(|client| (*client, file)));
        clients.extend(is_kept.then_some(SOMEBODY));
        let is_unused = clients.is_empty();
        if !is_unused {
            state.removed.insert(file, clients);
        }
        drop(state);
        self.sessions.changed.notify_all();
        is_unused
    }

    fn remove_free(&self) {
        let free = self.sessions_state().take_free();
        free.into_iter().for_each(|file| self.forget_file(file));
    }
}

impl Sessions for FakeCell {
    fn attach(&self, arguments: &AttachArguments) -> Result<Attached, ClerkError> {
        let mut state = self.sessions_state();
        state.clients.insert(arguments.client, Vec::new());
        for lock in &arguments.locks {
            let (place, lock) = inward(arguments.client, lock);
            state.locks.entry(place).or_default().set(lock);
        }
        let instance = state.instance;
        Ok(Attached { instance, lease: LEASE.as_nanos() as u64, lost: Vec::new() })
    }

    fn detach(&self, client: u64) -> Result<(), ClerkError> {
        let mut state = self.sessions_state();
        state.require(client)?;
        state.clients.remove(&client);
        let places: Vec<LockedFile> = state.locks.keys().copied().collect();
        for place in places {
            let cleared = state.locks.get_mut(&place).is_some_and(|held| held.clear_client(client));
            if cleared {
                state.wake(place);
            }
        }
        let files: Vec<FileHandle> = state.removed.keys().copied().collect();
        for file in files {
            state.close(client, file);
            state.close(SOMEBODY, file);
        }
        drop(state);
        self.sessions.changed.notify_all();
        self.remove_free();
        Ok(())
    }

    fn events(&self, arguments: &EventsArguments) -> Result<EventsPage, ClerkError> {
        let mut state = self.sessions_state();
        state.require(arguments.client)?;
        let seen = usize::try_from(arguments.seen).unwrap_or(usize::MAX);
        let dealt_with: Vec<Event> =
            state.clients[&arguments.client].iter().take(seen).copied().collect();
        for file in &arguments.open {
            // Claimed, by whoever has it from another client.
            if let Some(open) = state.removed.get_mut(file) {
                open.insert(arguments.client);
            }
        }
        for event in dealt_with {
            if let Event::Removed(file) = event {
                state.answer(arguments.client, file, arguments.open.contains(&file));
            }
        }
        drop(state);
        self.remove_free();
        let state = self.sessions_state();
        if !arguments.wait {
            return Ok(EventsPage { first: arguments.seen + 1, events: Vec::new() });
        }
        let is_quiet = |state: &mut State| {
            let events = state.clients.get(&arguments.client);
            events.is_some_and(|events| events.len() <= seen)
        };
        let waited = self.sessions.changed.wait_timeout_while(state, LEASE / 3, is_quiet);
        let state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.require(arguments.client)?;
        let events = state.clients[&arguments.client].iter().skip(seen).copied().collect();
        Ok(EventsPage { first: arguments.seen + 1, events })
    }

    fn closed(&self, arguments: &ClosedArguments) -> Result<(), ClerkError> {
        let mut state = self.sessions_state();
        state.require(arguments.client)?;
        for file in &arguments.files {
            state.close(arguments.client, *file);
            state.close(SOMEBODY, *file);
        }
        drop(state);
        self.remove_free();
        Ok(())
    }

    /// Everybody may change everything here without anybody being told.
    fn lease(&self, _arguments: &LeaseArguments) -> Result<bool, ClerkError> {
        Ok(false)
    }

    fn lock(&self, _: &Caller, arguments: &LockArguments) -> Result<LockAnswer, ClerkError> {
        let mut state = self.sessions_state();
        state.require(arguments.client)?;
        let (place, wanted) = inward(arguments.client, &arguments.lock);
        match state.locks.get(&place).and_then(|held| held.conflict(&wanted)) {
            None => {
                state.locks.entry(place).or_default().set(wanted);
                state.wake(place);
                Ok(LockAnswer::Granted)
            }
            Some(other) if arguments.wait => {
                state.waiting.entry(place).or_default().insert(arguments.client);
                Ok(LockAnswer::Queued(outward(place, &other)))
            }
            Some(other) => Ok(LockAnswer::Denied(outward(place, &other))),
        }
    }

    fn unlock(&self, arguments: &UnlockArguments) -> Result<(), ClerkError> {
        let UnlockArguments { client, file, kind, owner, first, last, only_waiting } = *arguments;
        let mut state = self.sessions_state();
        state.require(client)?;
        if let Some(held) = state.locks.get_mut(&(file, kind))
            && !only_waiting
        {
            held.clear(LockOwner { client, owner }, LockRange { first, last });
            state.wake((file, kind));
        }
        drop(state);
        self.sessions.changed.notify_all();
        Ok(())
    }

    fn test_lock(&self, arguments: &LockArguments) -> Result<Option<HeldLock>, ClerkError> {
        let state = self.sessions_state();
        let (place, wanted) = inward(arguments.client, &arguments.lock);
        let other = state.locks.get(&place).and_then(|held| held.conflict(&wanted));
        Ok(other.map(|other| outward(place, &other)))
    }
}
