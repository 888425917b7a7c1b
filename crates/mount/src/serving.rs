//! The session that serves a mount: running, about to be handed over, or gone.

use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nasd_fuse::{HandOver, Session};

/// What became of a session.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The mount is gone, or could not be served any more.
    Gone(io::Result<()>),
    /// Another process serves it.
    HandedOver,
}

#[derive(Debug)]
enum Phase {
    Served(Session),
    /// Nobody reads requests.
    Stopped,
    HandedOver,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// How often a session has begun.
    generation: u64,
}

/// The session of one mount.
#[derive(Debug)]
pub(crate) struct Serving {
    state: Mutex<State>,
    changed: Condvar,
}

impl Serving {
    /// A mount that is served.
    pub(crate) fn new(session: Session) -> Self {
        let state = State { phase: Phase::Served(session), generation: 0 };
        Serving { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the mount is gone, or another process serves it.
    pub(crate) fn wait(&self) -> Ended {
        let mut state = self.lock();
        loop {
            let (handle, generation) = match &state.phase {
                Phase::Served(session) => (session.handle(), state.generation),
                Phase::HandedOver => return Ended::HandedOver,
                Phase::Stopped => {
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                    continue;
                }
            };
            drop(state);
            let outcome = handle.wait();
            state = self.lock();
            // It may have stopped for a successor, who did not come after all.
            if state.generation == generation && matches!(state.phase, Phase::Served(_)) {
                return Ended::Gone(outcome);
            }
        }
    }

    /// Stops for a successor. Must be followed by `go_on` or `handed_over`.
    pub(crate) fn stop(&self, patience: Duration) -> io::Result<HandOver> {
        let mut state = self.lock();
        match std::mem::replace(&mut state.phase, Phase::Stopped) {
            Phase::Served(mut session) => {
                // Without the lock, the one who waits for the end would wait for this.
                drop(state);
                session.hand_over(patience).inspect_err(|_| self.go_on_with(session))
            }
            other => {
                state.phase = other;
                Err(io::Error::other("the mount is handed over already"))
            }
        }
    }

    /// The successor did not come: this process goes on.
    pub(crate) fn go_on_with(&self, session: Session) {
        let mut state = self.lock();
        state.phase = Phase::Served(session);
        state.generation += 1;
        self.changed.notify_all();
    }

    /// The successor serves the mount.
    pub(crate) fn handed_over(&self) {
        self.lock().phase = Phase::HandedOver;
        self.changed.notify_all();
    }
}
