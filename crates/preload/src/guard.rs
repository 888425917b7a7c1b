//! Whether a thread is within this library: what that calls itself goes straight to the C library.
//!
//! Signal handlers that run meanwhile do the same, so that they never wait for a lock that their own thread has.

use std::cell::Cell;
use std::marker::PhantomData;

thread_local! {
    /// Needs no memory and no destructor, so that it is there as long as the thread is.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// A thread that is inside.
pub(crate) struct Guard(PhantomData<*const ()>);

impl Guard {
    /// Enters; nothing if the thread was inside.
    pub(crate) fn enter() -> Option<Guard> {
        INSIDE.with(|inside| (!inside.replace(true)).then(|| Guard(PhantomData)))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        INSIDE.with(|inside| inside.set(false));
    }
}

/// Whether this thread is inside.
pub(crate) fn is_inside() -> bool {
    INSIDE.with(Cell::get)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_inside_once() {
        assert!(!is_inside());
        let guard = Guard::enter();
        assert!(guard.is_some() && is_inside());
        assert!(Guard::enter().is_none());
        assert!(is_inside());
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(!is_inside()));
        });
        drop(guard);
        assert!(!is_inside());
    }
}
