//! The library's beginning and end in a process, and what a child of it has.
//!
//! A child of fork(2) has copies of its parent's connections, which both must not use: it closes them, says nothing, and opens
//! its files anew when it uses them. A child of vfork(2) has its parent's memory itself, for a moment in which it becomes another
//! program: it goes the ordinary way and touches nothing.

use std::cell::{Cell, UnsafeCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_int;
use std::mem;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, MutexGuard, RwLockWriteGuard};

use crate::guard::{self, Guard};
use crate::mapped::Mapped;
use crate::{config, own, table};

/// Whose memory this is; 0 before the library has begun.
static PROCESS: AtomicI32 = AtomicI32::new(0);

/// What a thread that forks has meanwhile.
struct Held {
    files: RwLockWriteGuard<'static, BTreeMap<c_int, Arc<Mapped>>>,
    own: MutexGuard<'static, BTreeSet<c_int>>,
    // Dropped last.
    _guard: Guard,
}

/// Used by the one thread that has the locks, and then by its copy in the child.
struct Place(UnsafeCell<Option<Held>>);

// SAFETY: as said above.
unsafe impl Sync for Place {}

static HELD: Place = Place(UnsafeCell::new(None));

thread_local! {
    /// Whether this thread is the one.
    static HOLDS: Cell<bool> = const { Cell::new(false) };
}

/// When the library is loaded.
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = at_start;

#[cfg_attr(test, allow(dead_code, reason = "a test program is left as it is"))]
extern "C" fn at_start() {
    let Some(_guard) = Guard::enter() else { return };
    // Whoever does not want to know is told nothing, wherever it comes from.
    config::read();
    if !config::get().is_some_and(|config| config.debug) {
        std::panic::set_hook(Box::new(|_| {}));
    }
    begin();
}

/// Begins: nothing is mapped before.
pub(crate) fn begin() {
    // SAFETY: the functions are there as long as the library is, which is not unloaded with what it has told the system.
    unsafe {
        if libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child)) != 0 {
            return;
        }
        libc::atexit(at_exit);
    }
    PROCESS.store(here(), Ordering::Release);
}

fn here() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// Whether this is the process that the library has begun in, or a child that it knows of.
pub(crate) fn is_known() -> bool {
    PROCESS.load(Ordering::Acquire) == here()
}

/// Those who know a file that the program has not closed.
extern "C" fn at_exit() {
    if let Some(_guard) = Guard::enter()
        && is_known()
    {
        table::tell_all();
    }
}

extern "C" fn before_fork() {
    // From a signal handler, within the library: it may have a lock. The child goes the ordinary way.
    if guard::is_inside() || !is_known() {
        return;
    }
    let Some(guard) = Guard::enter() else { return };
    // A program that the child becomes knows only the ordinary way.
    table::tell_all();
    let held = Held { files: table::write(), own: own::lock(), _guard: guard };
    // SAFETY: the locks are this thread's.
    unsafe { *HELD.0.get() = Some(held) };
    HOLDS.with(|holds| holds.set(true));
}

/// What this thread has, if it has anything.
fn take_held() -> Option<Held> {
    let holds = HOLDS.with(|holds| holds.replace(false));
    // SAFETY: see `Place`.
    if holds { unsafe { (*HELD.0.get()).take() } } else { None }
}

extern "C" fn in_parent() {
    drop(take_held());
}

extern "C" fn in_child() {
    let Some(mut held) = take_held() else { return };
    for fd in mem::take(&mut *held.own) {
        // SAFETY: nobody uses what it was of any more: see below.
        unsafe { rustix::io::close(fd) };
    }
    own::count(&held.own);
    let mut anew: BTreeMap<*const Mapped, Arc<Mapped>> = BTreeMap::new();
    for file in held.files.values_mut() {
        let child = anew.entry(Arc::as_ptr(file)).or_insert_with(|| Arc::new(file.for_child()));
        // Threads that are not here were within it: it is left as it is.
        mem::forget(mem::replace(file, Arc::clone(child)));
    }
    PROCESS.store(here(), Ordering::Release);
}
