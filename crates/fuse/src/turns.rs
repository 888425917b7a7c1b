//! Whose turn it is to read a request.
//!
//! One thread reads, answers, and reads again; the others are parked, and read as well where that is too
//! slow (`crate::pace`). While requests come, a thread of its own looks whether one waits that nobody
//! reads: so whatever an operation waits for, even another request of the same mount, is not held up longer
//! than two looks.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::device::Device;
use crate::pace::{Look, Pace};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(1);

/// Looks at an idle mount before there are no more until a request comes.
const LAST_LOOKS: u32 = 8;

#[derive(Debug, Default)]
struct State {
    pace: Pace,
    /// Threads that wait for a request, or are about to.
    reading: usize,
    /// Threads that parked.
    parked: usize,
    /// Requests that are being answered by who has read them.
    busy: usize,
    received: u64,
    /// Nobody looks: the next request has to say so.
    is_unwatched: bool,
    closed: bool,
}

impl State {
    fn may_read(&self) -> bool {
        self.reading == 0 || self.pace.is_wide()
    }
}

/// The turns of the threads of a session.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    state: Mutex<State>,
    /// Somebody may read now.
    turn: Condvar,
    /// There is something to look at.
    watch: Condvar,
}

impl Turns {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the caller may read. False when nobody shall any more.
    pub(crate) fn wait(&self) -> bool {
        let mut state = self.lock();
        while !state.closed && !state.may_read() {
            state.parked += 1;
            state = self.turn.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.parked -= 1;
        }
        state.reading += usize::from(!state.closed);
        !state.closed
    }

    /// The caller has read a request, and answers it. With `takes_long` somebody else is to read at once.
    pub(crate) fn received(&self, takes_long: bool) {
        let mut state = self.lock();
        state.reading -= 1;
        state.busy += 1;
        state.received += 1;
        let wakes = takes_long && state.may_read() && state.parked > 0;
        let was_unwatched = std::mem::take(&mut state.is_unwatched);
        drop(state);
        if wakes {
            self.turn.notify_one();
        }
        if was_unwatched {
            self.watch.notify_one();
        }
    }

    /// The caller has read nothing.
    pub(crate) fn got_nothing(&self) {
        self.lock().reading -= 1;
    }

    /// The caller has done what it had to do with the request.
    pub(crate) fn done(&self) {
        self.lock().busy -= 1;
    }

    /// Nobody is to read any more; whoever is in the middle of it does not know yet.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.turn.notify_all();
        self.watch.notify_all();
    }

    /// Looks, as long as there is something to look at, until all is closed.
    fn look(&self, device: &Device) {
        let mut idle = 0;
        while self.is_watched(&mut idle) {
            thread::sleep(LOOK);
            let is_waiting = device.has_request();
            let mut state = self.lock();
            idle = if state.busy == 0 && !is_waiting { idle + 1 } else { 0 };
            let (reading, busy, received) = (state.reading, state.busy, state.received);
            state.pace.look(Look { reading, busy, received, is_waiting });
            let is_wide = state.pace.is_wide() && state.parked > 0;
            drop(state);
            if is_wide {
                self.turn.notify_all();
            }
        }
    }

    /// Waits for the first request after a while without. False when all is closed.
    fn is_watched(&self, idle: &mut u32) -> bool {
        let mut state = self.lock();
        // A request that came since the last look did not say so: it found itself watched.
        if *idle >= LAST_LOOKS && !state.pace.is_wide() && state.busy == 0 {
            state.is_unwatched = true;
            while state.is_unwatched && !state.closed {
                state = self.watch.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            *idle = 0;
        }
        !state.closed
    }
}

/// Starts the thread that looks. It ends when the turns are closed.
///
/// # Errors
///
/// What keeps it from being started.
pub(crate) fn watch(turns: &Arc<Turns>, device: &Arc<Device>) -> std::io::Result<()> {
    let (turns, device) = (Arc::clone(turns), Arc::clone(device));
    let run = move || turns.look(&device);
    thread::Builder::new().name("nasd-fuse-look".to_owned()).spawn(run).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_after_the_last_look_is_watched() {
        let turns = Arc::new(Turns::default());
        assert!(turns.wait());
        // Between a look that found nothing and the decision to look no more.
        turns.received(false);
        let looking = {
            let turns = Arc::clone(&turns);
            thread::spawn(move || turns.is_watched(&mut { LAST_LOOKS }))
        };
        let begun = std::time::Instant::now();
        while !looking.is_finished() && begun.elapsed() < Duration::from_secs(10) {
            thread::sleep(LOOK);
        }
        assert!(looking.is_finished(), "nobody looks while a request is being answered");
        turns.close();
        assert!(looking.join().is_ok());
    }
}
