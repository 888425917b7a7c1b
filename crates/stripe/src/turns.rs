//! Locks that are held while drives are asked.
//!
//! Where threads take turns, as in a simulation, whoever finds one of them taken lets others run until it is free;
//! elsewhere he waits for it as for any lock.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{
    Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError,
};
use std::time::Duration;

use crate::components::Components;

/// How long others are let run at a time, at most.
const MOST_US: u64 = 2000;

/// Takes a lock. What it guards is whole even after a panic.
pub(crate) fn lock<'a, T>(mutex: &'a Mutex<T>, components: &dyn Components) -> MutexGuard<'a, T> {
    let wait = || mutex.lock().unwrap_or_else(PoisonError::into_inner);
    taken(|| mutex.try_lock(), wait, components)
}

/// A lock that many may have who change nothing, or one alone. Who waits to be alone comes before those who ask later, as
/// with threads: there are always some who change nothing.
#[derive(Debug, Default)]
pub(crate) struct Common {
    lock: RwLock<()>,
    /// How many wait to be alone, where turns are taken.
    waiting: AtomicUsize,
}

impl Common {
    /// Has it with others.
    pub(crate) fn shared(&self, components: &dyn Components) -> RwLockReadGuard<'_, ()> {
        let attempt = || match self.waiting.load(Ordering::Relaxed) {
            0 => self.lock.try_read(),
            _ => Err(TryLockError::WouldBlock),
        };
        let wait = || self.lock.read().unwrap_or_else(PoisonError::into_inner);
        taken(attempt, wait, components)
    }

    /// Has it alone.
    pub(crate) fn alone(&self, components: &dyn Components) -> RwLockWriteGuard<'_, ()> {
        let wait = || self.lock.write().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let guard = taken(|| self.lock.try_write(), wait, components);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        guard
    }
}

fn taken<G>(
    attempt: impl Fn() -> Result<G, TryLockError<G>>,
    wait: impl FnOnce() -> G,
    components: &dyn Components,
) -> G {
    if !components.takes_turns() {
        return wait();
    }
    let mut draw = 1_u64;
    loop {
        match attempt() {
            Ok(guard) => return guard,
            Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                // Not in step with others who wait, of whom it would always be the same one who comes first.
                draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                components.pause(Duration::from_micros(100 + (draw >> 33) % MOST_US));
            }
        }
    }
}
