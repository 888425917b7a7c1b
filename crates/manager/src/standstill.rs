//! A volume that stands still for a moment, so that all its parts can be copied as they are at one moment.
//!
//! Whoever may change something enters, and leaves when it is done; what the manager does by itself is left for later where it is not let in. Whoever
//! holds the volume lets nobody in, and waits until those who are inside have left. A hold ends when it is released, and by itself when its time is over: nobody waits for somebody who has died.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Who is inside, and who holds the volume.
#[derive(Debug, Default)]
struct State {
    inside: usize,
    held: Option<Hold>,
}

#[derive(Clone, Copy, Debug)]
struct Hold {
    ticket: u64,
    /// When it ends by itself.
    until: Instant,
}

/// The door of a volume.
#[derive(Debug, Default)]
pub(crate) struct Standstill {
    state: Mutex<State>,
    changed: Condvar,
}

/// Somebody who is inside.
#[derive(Debug)]
pub(crate) struct Inside(Arc<Standstill>);

impl State {
    /// Who holds the volume at this time.
    fn holder(&mut self, now: Instant) -> Option<Hold> {
        self.held = self.held.filter(|hold| now < hold.until);
        self.held
    }
}

impl Standstill {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, until: Instant) -> MutexGuard<'a, State> {
        let most = until.saturating_duration_since(Instant::now());
        self.changed.wait_timeout(state, most).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Goes in, once nobody holds the volume.
    pub(crate) fn enter(self: &Arc<Self>) -> Inside {
        let mut state = self.state();
        while let Some(hold) = state.holder(Instant::now()) {
            state = self.wait(state, hold.until);
        }
        state.inside += 1;
        Inside(Arc::clone(self))
    }

    /// Goes in, unless somebody holds the volume: for what can be done later as well.
    pub(crate) fn try_enter(self: &Arc<Self>) -> Option<Inside> {
        let mut state = self.state();
        if state.holder(Instant::now()).is_some() {
            return None;
        }
        state.inside += 1;
        Some(Inside(Arc::clone(self)))
    }

    /// Lets nobody in any more until then, for whom `ticket` stands; `false` where somebody else holds the volume.
    pub(crate) fn hold(&self, ticket: u64, until: Instant) -> bool {
        let mut state = self.state();
        if state.holder(Instant::now()).is_some() {
            return false;
        }
        state.held = Some(Hold { ticket, until });
        true
    }

    /// Whether somebody holds the volume.
    pub(crate) fn is_held(&self) -> bool {
        self.state().holder(Instant::now()).is_some()
    }

    /// Whether everybody has left before this time, and the volume was held all the time.
    pub(crate) fn is_empty(&self, ticket: u64, deadline: Instant) -> bool {
        let mut state = self.state();
        loop {
            let now = Instant::now();
            if state.holder(now).is_none_or(|hold| hold.ticket != ticket) {
                return false;
            }
            if state.inside == 0 || now >= deadline {
                return state.inside == 0;
            }
            state = self.wait(state, deadline);
        }
    }

    /// The volume is held until then, and not until an earlier time that was said before; whether it was held still.
    pub(crate) fn hold_on(&self, ticket: u64, until: Instant) -> bool {
        let mut state = self.state();
        let is_held = state.holder(Instant::now()).is_some_and(|hold| hold.ticket == ticket);
        if is_held {
            state.held = Some(Hold { ticket, until });
        }
        is_held
    }

    /// Lets everybody in again; whether the volume was held until now.
    pub(crate) fn release(&self, ticket: u64) -> bool {
        let mut state = self.state();
        let is_held = state.holder(Instant::now()).is_some_and(|hold| hold.ticket == ticket);
        if is_held {
            state.held = None;
            self.changed.notify_all();
        }
        is_held
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.inside -= 1;
        if state.inside == 0 {
            self.0.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn nobody_goes_in_before_it_is_released() {
        let door = Arc::new(Standstill::default());
        let far = Instant::now() + Duration::from_secs(600);
        let inside = door.enter();
        let ticket = 7;
        assert!(door.hold(ticket, far) && !door.hold(8, far));
        assert!(!door.is_empty(ticket, Instant::now()));
        let leaving = thread::spawn(move || drop(inside));
        assert!(door.is_empty(ticket, far));
        leaving.join().unwrap();
        let (other, (told, tells)) = (Arc::clone(&door), std::sync::mpsc::channel());
        let entering = thread::spawn(move || {
            let inside = other.enter();
            told.send(()).unwrap();
            inside
        });
        assert!(tells.recv_timeout(Duration::from_millis(50)).is_err());
        assert!(door.hold_on(ticket, far) && !door.release(ticket + 1) && door.release(ticket));
        tells.recv().unwrap();
        drop(entering.join().unwrap());
        assert!(!door.release(ticket) && !door.is_empty(ticket, far));
    }

    #[test]
    fn who_can_come_later_does_not_wait_and_is_waited_for() {
        let door = Arc::new(Standstill::default());
        let (ticket, far) = (7, Instant::now() + Duration::from_secs(600));
        let inside = door.try_enter();
        assert!(inside.is_some() && door.hold(ticket, far));
        assert!(door.try_enter().is_none() && !door.is_empty(ticket, Instant::now()));
        drop(inside);
        assert!(door.is_empty(ticket, far) && door.try_enter().is_none());
        assert!(door.release(ticket) && door.try_enter().is_some());
        // Where it was not let in it has left nothing behind.
        assert!(door.hold(ticket, far) && door.is_empty(ticket, Instant::now()));
    }

    #[test]
    fn a_hold_that_nobody_ends_ends() {
        let door = Arc::new(Standstill::default());
        let ticket = 3;
        assert!(door.hold(ticket, Instant::now() + Duration::from_millis(30)));
        drop(door.enter());
        assert!(!door.release(ticket) && !door.hold_on(ticket, Instant::now()));
    }
}
