//! Writes of copies, from the first of an object until the striping manager is told that they have ended.
//!
//! As long as somebody may write copies, readers take the first of each; so a clerk that has written, and
//! whose writes are durable on all copies, says so soon, and asks for a new map before it writes again.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nasd_client::{Authority, DriveClient};
use nasd_protocol::drive::{Endwrites, EndwritesArguments};

/// How often it is looked who has ended.
const EVERY: Duration = Duration::from_millis(500);

/// Who has not written for so long has ended, if all is durable.
const IDLE: Duration = Duration::from_secs(1);

/// Capabilities for writing copies end long before.
const GIVEN_UP: Duration = Duration::from_secs(600);

/// No write under the map may begin any more.
const ENDED: u32 = 1 << 31;

/// The writes of one object, under whatever map, until they are ended.
#[derive(Debug)]
pub(super) struct Writing {
    /// How many are under way, and `ENDED`.
    state: AtomicU32,
    begun: AtomicU64,
    /// So many of those that were begun are durable.
    flushed: AtomicU64,
    /// Writes that failed and were not made again: copies may differ.
    failed: AtomicU32,
    last: Mutex<Instant>,
    is_listed: AtomicBool,
}

/// A write that is under way.
pub(super) struct UnderWay<'a>(&'a Writing);

impl Writing {
    pub(super) fn new() -> Writing {
        Writing {
            state: AtomicU32::new(0),
            begun: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
            failed: AtomicU32::new(0),
            last: Mutex::new(Instant::now()),
            is_listed: AtomicBool::new(false),
        }
    }

    /// Begins a write; `None` where the striping manager was told that there are no more.
    pub(super) fn begin(&self) -> Option<UnderWay<'_>> {
        let before = self.state.fetch_add(1, Ordering::AcqRel);
        let under_way = UnderWay(self);
        if before & ENDED != 0 {
            return None;
        }
        self.begun.fetch_add(1, Ordering::AcqRel);
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        Some(under_way)
    }

    /// A write failed, and may have been made at some copies only.
    pub(super) fn fail(&self) {
        self.failed.fetch_add(1, Ordering::AcqRel);
    }

    /// It was made again, at all.
    pub(super) fn make_good(&self) {
        self.failed.fetch_sub(1, Ordering::AcqRel);
    }

    /// How many writes there were: a flush that begins now makes these durable.
    pub(super) fn so_far(&self) -> u64 {
        self.begun.load(Ordering::Acquire)
    }

    /// So many are durable.
    pub(super) fn flushed(&self, count: u64) {
        self.flushed.fetch_max(count, Ordering::AcqRel);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.state.load(Ordering::Acquire) & ENDED != 0
    }

    /// Whether it will never be ended: its capabilities have ended, or will with nothing said.
    fn is_given_up(&self) -> bool {
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.elapsed() >= GIVEN_UP
    }

    /// Ends it if nothing is under way, all is durable, and nobody has written for a while.
    fn end(&self, idle: Duration) -> bool {
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let is_done = last.elapsed() >= idle
            && self.failed.load(Ordering::Acquire) == 0
            && self.flushed.load(Ordering::Acquire) >= self.so_far();
        is_done
            && self.state.compare_exchange(0, ENDED, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.state.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Objects that were written, and the thread that looks after them.
pub(super) struct Ends {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    list: Mutex<List>,
    changed: Condvar,
}

#[derive(Default)]
struct List {
    open: Vec<Open>,
    is_stopped: bool,
}

struct Open {
    writing: Arc<Writing>,
    authority: Authority,
    manager: DriveClient,
    arguments: EndwritesArguments,
}

impl Ends {
    pub(super) fn new() -> Ends {
        let shared = Shared { list: Mutex::default(), changed: Condvar::new() };
        Ends { shared: Arc::new(shared), thread: Mutex::new(None) }
    }

    /// Something of an object is written, which is looked after from now on.
    pub(super) fn watch(
        &self,
        writing: &Arc<Writing>,
        authority: impl FnOnce() -> Authority,
        manager: &DriveClient,
        arguments: EndwritesArguments,
    ) {
        if writing.is_listed.swap(true, Ordering::AcqRel) {
            return;
        }
        let (writing, manager) = (Arc::clone(writing), manager.clone());
        let mut list = self.shared.lock();
        list.open.push(Open { writing, authority: authority(), manager, arguments });
        drop(list);
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let shared = Arc::clone(&self.shared);
            let run = move || shared.run();
            // Without it writes end with their capabilities, which others wait for.
            *thread = std::thread::Builder::new().name("nasd-ends".to_owned()).spawn(run).ok();
        }
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.shared.lock().is_stopped = true;
        self.shared.changed.notify_all();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the thread that ends writes had panicked");
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        loop {
            let list = self.lock();
            let waited = self.changed.wait_timeout_while(list, EVERY, |list| !list.is_stopped);
            let (mut list, _) = waited.unwrap_or_else(PoisonError::into_inner);
            let is_stopped = list.is_stopped;
            // At the end nobody writes any more.
            let idle = if is_stopped { Duration::ZERO } else { IDLE };
            let (ended, open): (Vec<_>, Vec<_>) =
                std::mem::take(&mut list.open).into_iter().partition(|open| open.writing.end(idle));
            list.open = open;
            list.open.retain(|open| !open.writing.is_given_up());
            drop(list);
            Shared::tell(ended);
            if is_stopped {
                return;
            }
        }
    }

    /// Tells the striping manager; one that does not hear it waits until capabilities have ended.
    fn tell(ended: Vec<Open>) {
        let begun: Vec<_> = ended
            .iter()
            .map(|open| open.manager.begin_call::<Endwrites>(&open.authority, open.arguments))
            .collect();
        for (open, call) in ended.iter().zip(begun) {
            if let Err(error) = call.wait() {
                tracing::debug!(%error, name = %open.arguments.name, "writes were not ended");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writing_ends_when_all_is_durable_and_not_before() {
        let writing = Writing::new();
        let first = writing.begin().unwrap();
        assert!(!writing.end(Duration::ZERO), "one is under way");
        drop(first);
        assert!(!writing.end(Duration::ZERO), "it is not durable");
        let count = writing.so_far();
        drop(writing.begin().unwrap());
        writing.flushed(count);
        assert!(!writing.end(Duration::ZERO), "one more was begun");
        writing.flushed(writing.so_far());
        assert!(!writing.end(Duration::from_secs(60)), "lately");
        assert!(writing.end(Duration::ZERO) && writing.has_ended());
        assert!(writing.begin().is_none() && writing.begin().is_none());
        assert!(!writing.end(Duration::ZERO), "once");
    }

    #[test]
    fn who_failed_does_not_say_that_copies_are_the_same() {
        let writing = Writing::new();
        drop(writing.begin().unwrap());
        writing.fail();
        writing.flushed(writing.so_far());
        assert!(!writing.end(Duration::ZERO));
        writing.make_good();
        assert!(writing.end(Duration::ZERO));
    }
}
