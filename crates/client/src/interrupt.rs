//! Waits that somebody may end early: the program on whose behalf a server that is away is waited
//! for was interrupted.
//!
//! Who may interrupt belongs to the thread that works for him, for the time of one operation
//! ([`Interruptible::run`]); so nothing that calls have to do with needs to carry it. Work of other
//! threads is nobody's and goes on.

use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use crate::Host;

/// Between two looks at a lock that somebody has who waits.
const LOOK: Duration = Duration::from_millis(5);

/// Knows which requests were interrupted.
pub trait Interrupts: Send + Sync {
    /// Waits for `limit`, or less if the request is interrupted: true then.
    fn wait(&self, request: u64, limit: Duration) -> bool;
}

/// A wait was ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("interrupted while waiting")]
pub struct Interrupted;

/// A request whose waits end when it is interrupted.
#[derive(Clone)]
pub struct Interruptible {
    request: u64,
    by: Arc<dyn Interrupts>,
}

impl fmt::Debug for Interruptible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interruptible").field("request", &self.request).finish_non_exhaustive()
    }
}

thread_local! {
    static CURRENT: RefCell<Option<Interruptible>> = const { RefCell::new(None) };
}

/// Puts back who was there before, also after a panic.
struct Restore(Option<Interruptible>);

impl Drop for Restore {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

impl Interruptible {
    /// The request that `by` knows by this number.
    pub fn new(request: u64, by: Arc<dyn Interrupts>) -> Self {
        Interruptible { request, by }
    }

    /// The one that may end this thread's waits, for other threads that do its work.
    pub fn current() -> Option<Interruptible> {
        CURRENT.with_borrow(Clone::clone)
    }

    /// Runs `operation`, whose waits on this thread end when the request is interrupted.
    pub fn run<R>(&self, operation: impl FnOnce() -> R) -> R {
        let _restore = Restore(CURRENT.replace(Some(self.clone())));
        operation()
    }
}

/// Waits for `limit`: with `sleep`, if nobody may interrupt this thread's waits.
pub(crate) fn pause_with(limit: Duration, sleep: impl FnOnce(Duration)) -> Result<(), Interrupted> {
    let Some(current) = Interruptible::current() else {
        sleep(limit);
        return Ok(());
    };
    if current.by.wait(current.request, limit) { Err(Interrupted) } else { Ok(()) }
}

/// Waits for `limit`.
///
/// # Errors
///
/// `Interrupted`, maybe at once.
pub fn pause(limit: Duration) -> Result<(), Interrupted> {
    pause_with(limit, std::thread::sleep)
}

/// Waits for `limit` on this host.
///
/// # Errors
///
/// `Interrupted`, maybe at once.
pub fn pause_on(host: &dyn Host, limit: Duration) -> Result<(), Interrupted> {
    pause_with(limit, |limit| host.sleep(limit))
}

/// Whether this thread should go on waiting.
///
/// # Errors
///
/// `Interrupted` if not.
pub fn check() -> Result<(), Interrupted> {
    pause_with(Duration::ZERO, |_| {})
}

/// Takes a lock whose holder may wait for long.
///
/// # Errors
///
/// `Interrupted` before the lock could be had.
pub fn lock<T>(mutex: &Mutex<T>) -> Result<MutexGuard<'_, T>, Interrupted> {
    if CURRENT.with_borrow(Option::is_none) {
        return Ok(mutex.lock().unwrap_or_else(PoisonError::into_inner));
    }
    loop {
        match mutex.try_lock() {
            Ok(guard) => return Ok(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => pause(LOOK)?,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Instant;

    use super::*;

    /// The request that is interrupted.
    #[derive(Default)]
    struct One(AtomicU64);

    impl Interrupts for One {
        fn wait(&self, request: u64, limit: Duration) -> bool {
            let interrupted = self.0.load(Ordering::SeqCst) == request;
            if !interrupted {
                std::thread::sleep(limit);
            }
            interrupted
        }
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn waits_end_for_the_request_that_is_interrupted_and_for_the_time_of_its_run() {
        let one = Arc::new(One::default());
        let [first, second] = [1, 2].map(|request| Interruptible::new(request, one.clone()));
        one.0.store(1, Ordering::SeqCst);
        let begun = Instant::now();
        assert_eq!(first.run(|| pause(LONG)), Err(Interrupted));
        assert_eq!(first.run(check), Err(Interrupted));
        first.run(|| {
            assert_eq!(second.run(check), Ok(()));
            assert_eq!(check(), Err(Interrupted), "the first again");
        });
        assert_eq!(check(), Ok(()));
        assert!(begun.elapsed() < LONG);
        let panics =
            std::panic::AssertUnwindSafe(|| first.run(|| panic!("as planned by this test")));
        assert!(std::panic::catch_unwind(panics).is_err());
        assert_eq!(check(), Ok(()));
    }

    #[test]
    fn a_lock_that_is_held_is_waited_for_until_the_interrupt() {
        let one = Arc::new(One::default());
        let request = Interruptible::new(1, one.clone());
        let mutex = Mutex::new(());
        let held = mutex.lock().unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| request.run(|| lock(&mutex).map(drop)));
            std::thread::sleep(Duration::from_millis(30));
            assert!(!waiting.is_finished());
            one.0.store(1, Ordering::SeqCst);
            assert_eq!(waiting.join().unwrap(), Err(Interrupted));
        });
        drop(held);
        assert!(request.run(|| lock(&mutex).map(drop)).is_ok());
    }
}
