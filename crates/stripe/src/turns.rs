//! Locks that are held while drives are asked.
//!
//! Where threads take turns, as in a simulation, whoever finds one of them taken lets others run until it is free;
//! elsewhere he waits for it as for any lock.

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

/// The same for who changes nothing.
pub(crate) fn read<'a, T>(
    lock: &'a RwLock<T>,
    components: &dyn Components,
) -> RwLockReadGuard<'a, T> {
    let wait = || lock.read().unwrap_or_else(PoisonError::into_inner);
    taken(|| lock.try_read(), wait, components)
}

/// The same for who changes something.
pub(crate) fn write<'a, T>(
    lock: &'a RwLock<T>,
    components: &dyn Components,
) -> RwLockWriteGuard<'a, T> {
    let wait = || lock.write().unwrap_or_else(PoisonError::into_inner);
    taken(|| lock.try_write(), wait, components)
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
