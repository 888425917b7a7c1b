//! Requests that wait, and the kernel's word that somebody does not want to wait any more.
//!
//! Only who waits is in the table: a request that is answered at once costs nothing. An interrupt
//! that comes before its request waits, or was read by a faster thread than the request itself, is
//! remembered for when it does. (The protocol's other way, to have the kernel send the interrupt
//! again with EAGAIN, keeps both busy until the request waits or is answered.)

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Interrupts that are remembered for requests that do not wait: the newest. Most of them are for
/// requests that were answered meanwhile, whose numbers never come again.
const MAX_EARLY: usize = 1024;

#[derive(Default)]
struct State {
    waiting: HashMap<u64, Arc<Flag>>,
    early: VecDeque<u64>,
}

/// The requests of one session that wait.
#[derive(Default)]
pub struct Interrupts {
    state: Mutex<State>,
}

impl fmt::Debug for Interrupts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interrupts").field("waiting", &self.lock().waiting.len()).finish()
    }
}

#[derive(Default)]
struct Flag {
    set: Mutex<bool>,
    changed: Condvar,
}

impl Flag {
    fn lock(&self) -> MutexGuard<'_, bool> {
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self) {
        *self.lock() = true;
        self.changed.notify_all();
    }
}

impl Interrupts {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody does not want to wait for this request any more.
    pub(crate) fn interrupt(&self, unique: u64) {
        let mut state = self.lock();
        if let Some(flag) = state.waiting.get(&unique).cloned() {
            drop(state);
            flag.set();
            return;
        }
        if state.early.len() >= MAX_EARLY {
            state.early.pop_front();
        }
        state.early.push_back(unique);
    }

    /// The request with this number.
    pub fn request(self: &Arc<Self>, unique: u64) -> Interruption {
        Interruption { unique, interrupts: Arc::clone(self) }
    }

    /// Nobody is to wait any more.
    pub(crate) fn interrupt_all(&self) {
        let flags: Vec<Arc<Flag>> = self.lock().waiting.values().cloned().collect();
        flags.iter().for_each(|flag| flag.set());
    }
}

/// How a request can be interrupted; cheap to make and to move to another thread.
#[derive(Clone, Debug)]
pub struct Interruption {
    pub(crate) unique: u64,
    pub(crate) interrupts: Arc<Interrupts>,
}

impl Interruption {
    /// The request's number.
    pub fn unique(&self) -> u64 {
        self.unique
    }

    /// The table that it is in when it waits.
    pub fn interrupts(&self) -> &Arc<Interrupts> {
        &self.interrupts
    }

    /// The request begins to wait.
    pub fn begin(&self) -> Waiting {
        let mut state = self.interrupts.lock();
        let flag = Arc::new(Flag::default());
        if let Some(at) = state.early.iter().position(|early| *early == self.unique) {
            state.early.remove(at);
            flag.set();
        }
        state.waiting.insert(self.unique, Arc::clone(&flag));
        drop(state);
        Waiting { of: self.clone(), flag }
    }
}

/// A request that waits, until this is dropped.
pub struct Waiting {
    of: Interruption,
    flag: Arc<Flag>,
}

impl Waiting {
    /// Whether the wait is to end.
    pub fn is_interrupted(&self) -> bool {
        *self.flag.lock()
    }

    /// Waits for `limit`, or less when it is interrupted: true then.
    pub fn wait(&self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        let mut set = self.flag.lock();
        while !*set {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let woken = self.flag.changed.wait_timeout(set, left);
            set = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").field("unique", &self.of.unique).finish_non_exhaustive()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut state = self.of.interrupts.lock();
        // Each try of a request waits anew, and the kernel interrupts it once.
        if *self.flag.lock() {
            if state.early.len() >= MAX_EARLY {
                state.early.pop_front();
            }
            state.early.push_back(self.of.unique);
        }
        state.waiting.remove(&self.of.unique);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn request(interrupts: &Arc<Interrupts>, unique: u64) -> Interruption {
        Interruption { unique, interrupts: Arc::clone(interrupts) }
    }

    #[test]
    fn who_waits_is_woken_and_nobody_else() {
        let interrupts = Arc::new(Interrupts::default());
        let waiting = request(&interrupts, 4).begin();
        let other = request(&interrupts, 6).begin();
        thread::scope(|scope| {
            let woken = scope.spawn(|| waiting.wait(LONG));
            interrupts.interrupt(4);
            assert!(woken.join().unwrap());
        });
        assert!(!other.wait(Duration::from_millis(5)) && !other.is_interrupted());
        interrupts.interrupt_all();
        assert!(other.is_interrupted());
    }

    #[test]
    fn an_interrupt_may_come_first_and_holds_for_later_waits_of_the_request() {
        let interrupts = Arc::new(Interrupts::default());
        interrupts.interrupt(4);
        let first = request(&interrupts, 4).begin();
        assert!(first.wait(LONG));
        drop(first);
        assert!(request(&interrupts, 4).begin().is_interrupted());
        assert!(!request(&interrupts, 6).begin().is_interrupted());
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let interrupts = Arc::new(Interrupts::default());
        (0..5000).for_each(|unique| interrupts.interrupt(unique));
        assert_eq!(interrupts.lock().early.len(), MAX_EARLY);
        assert!(interrupts.lock().waiting.is_empty());
        assert!(request(&interrupts, 4999).begin().is_interrupted());
    }
}
