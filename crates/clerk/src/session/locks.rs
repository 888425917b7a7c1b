//! Locks: asking for them, waiting, and what of them this clerk holds.

use std::time::{Duration, Instant};

use nasd_client::interrupt;
use nasd_protocol::range_locks::{LockOwner, LockRange, RangeLock};

use super::{LockedFile, Session, State};
use crate::ClerkError;
use crate::wire::{
    Caller, FileHandle, HeldLock, LockAnswer, LockArguments, LockKind, LockMode, ManagerStatus,
    UnlockArguments,
};

/// How often whoever waits looks whether he still wants to.
const LOOK: Duration = Duration::from_millis(50);

/// How long whoever waits for a lock relies on being told: then he asks again.
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// A lock that somebody asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRequest {
    /// On which file.
    pub file: FileHandle,
    /// Of which kind.
    pub kind: LockKind,
    /// A number for the owner: an open file, a process.
    pub owner: u64,
    /// The first byte.
    pub first: u64,
    /// The last byte; the largest number stands for the end of any file.
    pub last: u64,
    /// Whether others may hold one too.
    pub mode: LockMode,
    /// The process, for those who ask who is in the way.
    pub process: u32,
}

impl LockRequest {
    fn place(&self) -> LockedFile {
        (self.file, self.kind)
    }

    fn on_wire(&self) -> HeldLock {
        let LockRequest { file, kind, owner, first, last, mode, process } = *self;
        HeldLock { file, kind, owner, first, last, mode, process }
    }

    fn range(&self) -> LockRange {
        match self.kind {
            LockKind::Flock => LockRange::ALL,
            LockKind::Posix => LockRange { first: self.first, last: self.last },
        }
    }

    fn held_by(&self, client: u64) -> RangeLock {
        let owner = LockOwner { client, owner: self.owner };
        RangeLock { owner, range: self.range(), mode: self.mode, process: self.process }
    }
}

impl State {
    /// A lock is not held any more, and others may have had it.
    pub(super) fn lose(&mut self, lock: &HeldLock) {
        let place = (lock.file, lock.kind);
        tracing::warn!(file = ?lock.file, "a lock was lost: the file manager did not hear of us");
        self.lost.insert((place, lock.owner));
        let range = LockRange { first: lock.first, last: lock.last };
        let held = self.held.get_mut(&place);
        let owner = held.as_ref().and_then(|held| {
            held.iter().map(|lock| lock.owner).find(|owner| owner.owner == lock.owner)
        });
        if let (Some(held), Some(owner)) = (held, owner) {
            held.clear(owner, range);
        }
    }
}

impl Session {
    /// Takes a lock: `None` when the owner has it, else the one that is in the way. With `wait`, it
    /// returns when the owner has it, or whoever waits is interrupted.
    ///
    /// # Errors
    ///
    /// `Manager(Deadlock)`, `Manager(NoLocks)`, `Interrupted`; `LockLost` if the owner has lost a lock on the file
    /// and has not unlocked it since.
    pub(crate) fn lock(
        &self,
        caller: &Caller,
        request: &LockRequest,
        wait: bool,
    ) -> Result<Option<HeldLock>, ClerkError> {
        let place = request.place();
        if self.state().lost.contains(&(place, request.owner)) {
            return Err(ClerkError::LockLost);
        }
        let _waiting = Waiting::begin(self, place);
        let lock = request.on_wire();
        let arguments = LockArguments { client: self.client, lock, wait };
        loop {
            let (instance, freed) = self.now(place);
            match self.backend.lock(caller, &arguments) {
                Ok(LockAnswer::Granted) if self.take(request, instance) => return Ok(None),
                // Another manager: it does not know of this lock.
                Ok(LockAnswer::Granted) => {}
                Ok(LockAnswer::Denied(other)) => return Ok(Some(other)),
                Ok(LockAnswer::Queued(_)) => {
                    let waited = self.wait_until_free(place, (instance, freed));
                    waited.inspect_err(|_| self.stop_waiting(request))?;
                }
                Err(error) if is_soon_over(&error) => self.look_again()?,
                Err(error) => return Err(error),
            }
        }
    }

    /// The present manager, and how often a lock of the file was said to be free.
    fn now(&self, place: LockedFile) -> (Option<u64>, u64) {
        let state = self.state();
        let freed = state.freed.get(&place).copied().unwrap_or(0);
        (state.attached.map(|attached| attached.instance), freed)
    }

    /// Takes note of a lock that was granted, if the manager that has granted it is still there.
    fn take(&self, request: &LockRequest, instance: Option<u64>) -> bool {
        let mut state = self.state();
        let is_same = state.attached.map(|attached| attached.instance) == instance;
        if is_same {
            let held = state.held.entry(request.place()).or_default();
            held.set(request.held_by(self.client));
        }
        is_same
    }

    /// Waits until it is worth asking again.
    fn wait_until_free(
        &self,
        place: LockedFile,
        before: (Option<u64>, u64),
    ) -> Result<(), ClerkError> {
        let end = Instant::now() + ASK_AGAIN;
        while self.now(place) == before && Instant::now() < end {
            self.look_again()?;
        }
        Ok(())
    }

    /// Waits a little, or until something has changed; not for ever.
    fn look_again(&self) -> Result<(), ClerkError> {
        drop(self.wait(self.state(), LOOK));
        interrupt::check().map_err(|_| ClerkError::Interrupted)
    }

    fn stop_waiting(&self, request: &LockRequest) {
        let arguments = self.unlock_arguments(request, true);
        if let Err(error) = self.backend.unlock(&arguments) {
            tracing::debug!(%error, "the manager thinks that somebody still waits for a lock");
        }
    }

    fn unlock_arguments(&self, request: &LockRequest, only_waiting: bool) -> UnlockArguments {
        let LockRequest { file, kind, owner, first, last, .. } = *request;
        UnlockArguments { client: self.client, file, kind, owner, first, last, only_waiting }
    }

    /// Lets go of an owner's locks on the bytes of the request.
    ///
    /// # Errors
    ///
    /// What the manager says; the lock is given back nevertheless when the session ends.
    pub(crate) fn unlock(&self, request: &LockRequest) -> Result<(), ClerkError> {
        let place = request.place();
        let mut state = self.state();
        state.lost.remove(&(place, request.owner));
        let owner = LockOwner { client: self.client, owner: request.owner };
        let Some(held) = state.held.get_mut(&place) else {
            return Ok(());
        };
        let had = held.clear(owner, request.range());
        if held.is_empty() {
            state.held.remove(&place);
        }
        drop(state);
        if !had {
            return Ok(());
        }
        loop {
            match self.backend.unlock(&self.unlock_arguments(request, false)) {
                // With the session its locks have ended.
                Err(ClerkError::Manager(ManagerStatus::NoSession)) => return Ok(()),
                Err(error) if is_soon_over(&error) => self.look_again()?,
                outcome => return outcome,
            }
        }
    }

    /// Who would be in the way of a lock.
    ///
    /// # Errors
    ///
    /// What the manager says.
    pub(crate) fn test_lock(&self, request: &LockRequest) -> Result<Option<HeldLock>, ClerkError> {
        let lock = request.on_wire();
        let arguments = LockArguments { client: self.client, lock, wait: false };
        loop {
            match self.backend.test_lock(&arguments) {
                Err(error) if is_soon_over(&error) => self.look_again()?,
                outcome => return outcome,
            }
        }
    }

    /// Whether an owner holds any lock on a file: unlocking can be left out where not.
    pub(crate) fn holds(&self, file: FileHandle, kind: LockKind, owner: u64) -> bool {
        let state = self.state();
        state.lost.contains(&((file, kind), owner))
            || state
                .held
                .get(&(file, kind))
                .is_some_and(|held| held.iter().any(|lock| lock.owner.owner == owner))
    }
}

/// Whether the manager is away or has just started, or the session is about to begin.
fn is_soon_over(error: &ClerkError) -> bool {
    let begins = matches!(error, ClerkError::Manager(ManagerStatus::NoSession));
    begins || error.is_momentary() || matches!(error, ClerkError::Unreachable(_))
}

/// Somebody waits for a lock of a file, or may have to.
struct Waiting<'a> {
    session: &'a Session,
    place: LockedFile,
}

impl<'a> Waiting<'a> {
    fn begin(session: &'a Session, place: LockedFile) -> Self {
        session.state().freed.entry(place).or_default();
        *session.state().waiting.entry(place).or_default() += 1;
        Waiting { session, place }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.session.state();
        let waiting = state.waiting.get_mut(&self.place);
        let is_last = waiting.is_none_or(|count| {
            *count -= 1;
            *count == 0
        });
        if is_last {
            state.waiting.remove(&self.place);
            state.freed.remove(&self.place);
        }
    }
}
