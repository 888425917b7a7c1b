//! Access times: when a file was read, told to the manager now and then.
//!
//! The kernel keeps none for us. What it reads, it asks us for, but for pages that it has already;
//! so a file that was opened for reading alone, and closed without our being asked for anything, is taken to have
//! been read when it was closed. Of that it does not know either: it is told where it would believe older times for long.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nasd_clerk::{Caller, Clerk, FileAccess, FileAttributes, FileHandle, Timestamp};

use crate::tree::Tree;

/// Told together: what was read within this time of the first.
const GATHER: Duration = Duration::from_secs(5);

/// Told at once: so many.
const MANY: usize = 1024;

/// `relatime`: an access time that is older moves, whatever has changed since.
const DAY_NS: u64 = 24 * 3600 * Timestamp::SECOND_NS;

/// How long the last ones may take to be told when the mount ends.
const LAST: Duration = Duration::from_secs(1);

/// When reading moves access times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum AccessTimes {
    /// Never (`noatime`).
    Never,
    /// Where the time is not later than that of the last change, or older than a day (`relatime`).
    #[default]
    Relative,
    /// Always (`strictatime`).
    Strict,
}

/// Times of a file as they are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Times {
    pub(crate) accessed: Timestamp,
    /// The later of the times of change of data and of attributes.
    pub(crate) changed: Timestamp,
}

impl From<&FileAttributes> for Times {
    fn from(attributes: &FileAttributes) -> Self {
        let changed = attributes.change_time.max(attributes.modify_time);
        Times { accessed: attributes.access_time, changed }
    }
}

impl AccessTimes {
    /// Whether reading now moves the access time.
    fn moves(self, times: Times, now: Timestamp) -> bool {
        match self {
            AccessTimes::Never => false,
            AccessTimes::Strict => true,
            AccessTimes::Relative => {
                times.accessed <= times.changed || times.accessed.0.saturating_add(DAY_NS) <= now.0
            }
        }
    }
}

/// A file that was read.
#[derive(Clone, Debug)]
struct Read {
    file: FileHandle,
    /// Who may read it.
    caller: Arc<Caller>,
    time: Timestamp,
}

#[derive(Debug, Default)]
struct State {
    /// By the file's number.
    read: HashMap<u64, Read>,
    /// When the first of them was read.
    since: Option<Instant>,
    ends: bool,
}

/// Access times that the manager was not told yet.
#[derive(Debug)]
pub(crate) struct Accesses {
    rule: AccessTimes,
    state: Mutex<State>,
    changed: Condvar,
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_parts(since.as_secs(), since.subsec_nanos())
}

impl Accesses {
    pub(crate) fn new(rule: AccessTimes) -> Self {
        Accesses { rule, state: Mutex::default(), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether who looks at a file that was just read is to see so.
    pub(crate) fn are_seen_at_once(&self) -> bool {
        self.rule == AccessTimes::Strict
    }

    /// A file is being read.
    pub(crate) fn read(&self, ino: u64, file: FileHandle, caller: &Arc<Caller>, times: Times) {
        if self.rule == AccessTimes::Never {
            return;
        }
        let now = now();
        let mut state = self.lock();
        let accessed = state.read.get(&ino).map_or(times.accessed, |read| read.time);
        if !self.rule.moves(Times { accessed, ..times }, now) {
            return;
        }
        state.read.insert(ino, Read { file, caller: Arc::clone(caller), time: now });
        state.since.get_or_insert_with(Instant::now);
        drop(state);
        self.changed.notify_all();
    }

    /// When a file was read, if the manager does not know yet.
    pub(crate) fn time_of(&self, ino: u64) -> Option<Timestamp> {
        if self.rule == AccessTimes::Never {
            return None;
        }
        self.lock().read.get(&ino).map(|read| read.time)
    }

    /// The access time is set by somebody.
    pub(crate) fn forget(&self, ino: u64) {
        self.lock().read.remove(&ino);
    }

    /// What is to be told now; nothing when the mount ends.
    fn due(&self) -> Option<HashMap<u64, Read>> {
        let mut state = self.lock();
        loop {
            let left = state.since.map(|since| GATHER.saturating_sub(since.elapsed()));
            let is_due = left == Some(Duration::ZERO) || state.read.len() >= MANY || state.ends;
            match left {
                Some(_) if is_due => return Some(state.read.clone()),
                None if state.ends => return None,
                Some(left) => {
                    let woken = self.changed.wait_timeout(state, left);
                    state = woken.unwrap_or_else(PoisonError::into_inner).0;
                }
                None => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// These were told, or can't be.
    fn settle(&self, told: &HashMap<u64, Read>) {
        let mut state = self.lock();
        state.read.retain(|ino, read| told.get(ino).is_none_or(|told| told.time != read.time));
        state.since = (!state.read.is_empty()).then(Instant::now);
    }

    fn end(&self) {
        self.lock().ends = true;
        self.changed.notify_all();
    }
}

/// Tells the manager, each caller's files together. What it does not take is given up: it is only an
/// access time. Where the kernel believes attributes as long as nobody says otherwise, it is told.
fn tell(tree: &Weak<Tree>, read: &HashMap<u64, Read>) {
    let Some(tree) = tree.upgrade() else {
        return;
    };
    tell_manager(&tree.clerk, read);
    if let Some(notifier) = tree.notifier.get().filter(|_| tree.clerk.has_callbacks()) {
        for ino in read.keys() {
            // A negative offset is about attributes only. It may know nothing of the file.
            let _ = notifier.inval_inode(*ino, -1, 0);
        }
    }
}

fn tell_manager(clerk: &Clerk, read: &HashMap<u64, Read>) {
    let mut by_caller: HashMap<&Arc<Caller>, Vec<FileAccess>> = HashMap::new();
    for Read { file, caller, time } in read.values() {
        by_caller.entry(caller).or_default().push(FileAccess { file: *file, time: *time });
    }
    for (caller, files) in by_caller {
        for some in files.chunks(MANY) {
            if let Err(error) = clerk.accessed(caller, some) {
                tracing::debug!(%error, "access times of {} files are lost", some.len());
            }
        }
    }
}

/// The thread that tells.
pub(crate) struct Teller {
    accesses: Arc<Accesses>,
    thread: Option<JoinHandle<()>>,
}

impl Teller {
    /// Begins to tell.
    pub(crate) fn start(tree: &Arc<Tree>) -> std::io::Result<Self> {
        let accesses = &tree.accesses;
        let (shared, tree) = (Arc::clone(accesses), Arc::downgrade(tree));
        let thread = (accesses.rule != AccessTimes::Never).then(|| {
            thread::Builder::new().name("nasd-accessed".into()).spawn(move || {
                while let Some(read) = shared.due() {
                    tell(&tree, &read);
                    shared.settle(&read);
                }
            })
        });
        Ok(Teller { accesses: Arc::clone(accesses), thread: thread.transpose()? })
    }

    /// Tells the rest, if the manager takes it soon.
    pub(crate) fn end(&mut self) {
        self.accesses.end();
        let Some(thread) = self.thread.take() else {
            return;
        };
        let deadline = Instant::now() + LAST;
        while !thread.is_finished() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
        if thread.is_finished() && thread.join().is_err() {
            tracing::error!("the thread that tells access times has failed");
        }
    }
}

#[cfg(test)]
mod tests {
    use nasd_types::{DriveId, ObjectId, PartitionId};

    use super::*;

    const FILE: FileHandle =
        FileHandle { drive: DriveId(1), partition: PartitionId(1), object: ObjectId(70) };

    fn times(accessed: u64, changed: u64) -> Times {
        Times { accessed: Timestamp(accessed), changed: Timestamp(changed) }
    }

    #[test]
    fn the_rules_are_those_of_disks() {
        let now = Timestamp(10 * DAY_NS);
        let recent = now.0 - 5;
        let relative =
            |accessed, changed| AccessTimes::Relative.moves(times(accessed, changed), now);
        assert!(relative(recent, recent), "read for the first time since the change");
        assert!(relative(recent - 1, recent));
        assert!(!relative(recent, recent - 1));
        assert!(relative(now.0 - DAY_NS, 0), "a day old");
        assert!(!relative(now.0 - DAY_NS + 1, 0));
        assert!(AccessTimes::Strict.moves(times(recent, 0), now));
        assert!(!AccessTimes::Never.moves(times(0, recent), now));
    }

    #[test]
    fn what_was_read_counts_until_it_is_told_or_set() {
        let caller = Arc::new(Caller::default());
        let accesses = Accesses::new(AccessTimes::Relative);
        let changed = now().0 - 1000;
        accesses.read(5, FILE, &caller, times(changed, changed));
        let first = accesses.time_of(5).unwrap();
        accesses.read(5, FILE, &caller, times(changed, changed));
        assert_eq!(accesses.time_of(5), Some(first), "it has moved already");
        let told = accesses.lock().read.clone();
        accesses.read(5, FILE, &caller, times(changed, u64::MAX));
        assert!(accesses.time_of(5).unwrap() >= first, "written since");
        accesses.settle(&told);
        let newer = accesses.time_of(5).is_some_and(|time| time != first);
        assert!(newer || accesses.time_of(5).is_none());
        accesses.forget(5);
        assert_eq!(accesses.time_of(5), None);
        let never = Accesses::new(AccessTimes::Never);
        never.read(5, FILE, &caller, times(0, changed));
        assert_eq!(never.time_of(5), None);
    }

    #[test]
    fn who_tells_gets_everything_before_the_end() {
        let accesses = Accesses::new(AccessTimes::Strict);
        accesses.read(5, FILE, &Arc::new(Caller::default()), times(0, 0));
        accesses.end();
        let last = accesses.due().unwrap();
        assert_eq!(last.len(), 1);
        accesses.settle(&last);
        assert!(accesses.due().is_none());
    }
}
