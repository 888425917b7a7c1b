//! Connections that take the place of others.
//!
//! A client that has lost a connection makes another one, and asks again for what was not answered. What it has sent on the lost
//! one may still lie at the server; done later, it would go over what was written since. So a client names its session in
//! each open, and a connection of that name is served only when nothing is done any more for the one before. Where that
//! hangs in its medium nobody waits for it for ever, and of several that wait for one place only the newest does.

use std::collections::HashMap;
use std::fmt;
use std::net::{Shutdown, TcpStream};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::ahead::AllReads;
use super::hands::AllHands;

/// How long a connection waits for the one whose place it takes: so that a client, who waits for half a minute, is told to try
/// again.
const PLACE_PATIENCE: Duration = Duration::from_secs(20);

/// Most threads of all connections of a server besides those that receive.
const MOST_HANDS: usize = 1024;

/// The sessions of one server, and what its connections share besides.
pub struct Sessions {
    state: Mutex<State>,
    changed: Condvar,
    patience: Duration,
    hands: AllHands,
    reads: AllReads,
}

#[derive(Default)]
struct State {
    /// By their names and files.
    places: HashMap<(u64, u64), Place>,
    count: u64,
}

/// Another handle of a connection's socket, which is no other descriptor.
type Holder = Box<dyn AsRef<TcpStream> + Send>;

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").field("hands", &self.hands).finish_non_exhaustive()
    }
}

/// That of one session.
#[derive(Default)]
struct Place {
    /// The connection that has it.
    holder: Option<Holder>,
    /// The newest one that waits for it.
    next: Option<u64>,
}

/// Whether a connection may begin.
#[derive(Debug)]
pub(super) enum Begun<'a> {
    /// It may. It is the only one of its session, if that has a name, as long as this lives.
    Now(Option<Session<'a>>),
    /// The one before does not end.
    TooSoon,
    /// Another one came meanwhile, and takes the place itself.
    Never,
}

/// A connection that is the only one of its session as long as this lives.
#[derive(Debug)]
pub(super) struct Session<'a> {
    sessions: &'a Sessions,
    name: (u64, u64),
}

impl Default for Sessions {
    fn default() -> Sessions {
        Sessions {
            state: Mutex::default(),
            changed: Condvar::new(),
            patience: PLACE_PATIENCE,
            hands: AllHands::new(MOST_HANDS),
            reads: AllReads::default(),
        }
    }
}

impl Sessions {
    /// With another patience with connections that don't end.
    #[cfg(test)]
    pub(super) fn with_patience(patience: Duration) -> Sessions {
        Sessions { patience, ..Sessions::default() }
    }

    /// With at most so many threads besides those that receive.
    #[cfg(test)]
    pub(super) fn with_hands(most: usize) -> Sessions {
        Sessions { hands: AllHands::new(most), ..Sessions::default() }
    }

    pub(super) fn hands(&self) -> &AllHands {
        &self.hands
    }

    pub(super) fn reads(&self) -> &AllReads {
        &self.reads
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic is done with it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection begins in the place of the one that has the name for the same file, which is closed and waited for. Those without a name (0) take
    /// nobody's place.
    pub(super) fn begin(&self, name: (u64, u64), socket: Holder) -> Begun<'_> {
        if name.0 == 0 {
            return Begun::Now(None);
        }
        let deadline = Instant::now() + self.patience;
        let mut state = self.lock();
        state.count += 1;
        let number = state.count;
        let place = state.places.entry(name).or_default();
        place.next = Some(number);
        if let Some(before) = &place.holder {
            let before: &TcpStream = (**before).as_ref();
            before.shutdown(Shutdown::Both).ok();
        }
        // Whoever waited for it until now does not any more.
        self.changed.notify_all();
        loop {
            let Some(place) = state.places.get_mut(&name) else {
                return Begun::Never;
            };
            if place.next != Some(number) {
                return Begun::Never;
            }
            if place.holder.is_none() {
                *place = Place { holder: Some(socket), next: None };
                return Begun::Now(Some(Session { sessions: self, name }));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                place.next = None;
                return Begun::TooSoon;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        let mut state = self.sessions.lock();
        if let Some(place) = state.places.get_mut(&self.name) {
            place.holder = None;
            if place.next.is_none() {
                state.places.remove(&self.name);
            }
        }
        drop(state);
        self.sessions.changed.notify_all();
    }
}
