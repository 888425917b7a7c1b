//! The clerk's session with the file manager: locks that hold between clients, and removed files
//! that stay while they are open (`docs/decisions/0010-sessions-and-leases.md`).
//!
//! One thread keeps the session alive, deals with what the manager tells, and begins the session
//! anew, with everything that is held, when the manager was started anew.

mod locks;
mod nameless;
mod thread;

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nasd_protocol::range_locks::RangeLocks;

use crate::backend::Sessions;
use crate::callbacks::Promises;
use crate::core::Core;
use crate::names::KnownNames;
use crate::wire::{FileHandle, LeaseArguments, LockKind};

pub use locks::LockRequest;

/// Somebody who has passed names on that he believes by a [`crate::Belief`].
pub trait NameWatcher: Send + Sync {
    /// The names in these directories (`None`: all) are not to be believed any more. Whoever changes them waits
    /// until this returns; it should not wait for anything that waits for the file manager.
    fn names_changed(&self, directories: Option<&[FileHandle]>);

    /// What was told of these files (`None`: any) is not to be believed any more, as far as it was to be believed until somebody says so.
    /// Whoever changes them waits, too.
    fn files_changed(&self, files: Option<&[FileHandle]>);
}

/// A file's locks of one kind.
type LockedFile = (FileHandle, LockKind);

/// The session of one clerk.
pub(crate) struct Session {
    backend: Arc<dyn Sessions>,
    /// The number that was drawn for it.
    client: u64,
    /// What is believed while the session is good.
    known: Arc<KnownNames>,
    promises: Option<Arc<Promises>>,
    watcher: OnceLock<Arc<dyn NameWatcher>>,
    state: Mutex<State>,
    /// Something in the state has changed.
    changed: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct State {
    /// What this clerk holds, as the manager knows it.
    held: HashMap<LockedFile, RangeLocks>,
    /// Locks that were held, and are another's now or may be.
    lost: HashSet<(LockedFile, u64)>,
    /// How often the manager has said that a lock may be had, where somebody waits for one.
    freed: HashMap<LockedFile, u64>,
    /// How many wait for a lock, or are about to.
    waiting: HashMap<LockedFile, usize>,
    /// Files without a name that are open here, as far as is known.
    removed: HashSet<FileHandle>,
    /// The present attachment, if there is one.
    attached: Option<Attachment>,
    closing: bool,
}

/// What the manager knows of this session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Attachment {
    /// Which start of the manager it is with.
    instance: u64,
    lease: Duration,
    /// Until then nobody else can have been given what is held here.
    good_until: Instant,
}

impl Session {
    /// Begins a session; where the manager is away, as soon as it is back.
    pub(crate) fn start(
        backend: Arc<dyn Sessions>,
        client: u64,
        core: &Arc<Core>,
    ) -> io::Result<Arc<Session>> {
        let session = Arc::new(Session {
            backend,
            client,
            known: Arc::clone(&core.known),
            promises: core.promises().cloned(),
            watcher: OnceLock::new(),
            state: Mutex::default(),
            changed: Condvar::new(),
            thread: Mutex::default(),
        });
        // From now on files that are opened stay.
        if let Err(error) = session.attach() {
            tracing::info!(%error, "no session with the file manager yet");
        }
        let thread = thread::start(Arc::clone(&session), Arc::downgrade(core))?;
        *session.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(session)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a change of the state, for `most` at most.
    fn wait<'a>(&self, state: MutexGuard<'a, State>, most: Duration) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, most).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Tells somebody of names that are not to be believed any more. Only the first is told.
    pub(crate) fn watch(&self, watcher: Arc<dyn NameWatcher>) {
        let _ = self.watcher.set(watcher);
    }

    /// Whether what is told of a directory from now on may be believed; if there is no answer, it may not.
    pub(crate) fn lease(&self, directory: FileHandle) -> bool {
        let arguments = LeaseArguments { client: self.client, directory };
        self.backend.lease(&arguments).unwrap_or(false)
    }

    /// Ends the session and its thread.
    pub(crate) fn close(&self) {
        self.state().closing = true;
        self.changed.notify_all();
        // The call that waits for events ends by this, too.
        if let Err(error) = self.backend.detach(self.client) {
            tracing::debug!(%error, "the session ends by itself");
        }
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the thread of the session failed");
        }
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("client", &self.client).finish_non_exhaustive()
    }
}
