//! Names that the kernel believes, and how it stops.
//!
//! The kernel may believe a name for a moment where the clerk has a lease on its directory, and not at all
//! where it has none: then it asks for each name, each time. That there is no such name it never believes; the
//! clerk knows, where there is a lease.
//!
//! When a lease ends, the kernel is told to look at what it was told lately anew. It takes the directory's lock
//! for that, which a program may have that waits for the file manager, which waits for us. So nobody waits
//! longer than what was told is believed: then it is believed no more in any case.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, Weak};
use std::thread;
use std::time::{Duration, Instant};

use nasd_clerk::{Belief, Clerk, FileHandle, NameWatcher};
use nasd_fuse::{Attributes, Entry};

use crate::tree::Tree;

/// How long the kernel may believe what a name leads to.
pub(crate) const NAME_TTL: Duration = Duration::from_millis(300);

/// How long it takes to tell the kernel of a name. What took longer it may not believe.
const ON_ITS_WAY: Duration = Duration::from_millis(100);

/// How long the kernel may believe attributes.
pub(crate) const ATTRIBUTE_TTL: Duration = Duration::from_secs(1);

/// A file that the kernel is told of by a name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    /// What it is told.
    pub(crate) attributes: Attributes,
    /// How old that is.
    pub(crate) age: Duration,
    /// By what the name may be believed.
    belief: Option<Belief>,
    /// Since when it is noted that the kernel knows the name.
    noted: Instant,
}

impl Told {
    /// A file whose name has just been noted.
    pub(crate) fn now(attributes: Attributes, age: Duration, belief: Option<Belief>) -> Told {
        Told { attributes, age, belief, noted: Instant::now() }
    }

    /// A file that has no name, or none that may be believed.
    pub(crate) fn nameless(attributes: Attributes) -> Told {
        Told::now(attributes, Duration::ZERO, None)
    }

    fn entry(&self, clerk: &Clerk) -> Entry {
        let is_believed = self.noted.elapsed() < ON_ITS_WAY
            && self.belief.is_some_and(|belief| clerk.is_believed(&belief));
        let name_valid = if is_believed { NAME_TTL } else { Duration::ZERO };
        Entry {
            node: self.attributes.node,
            generation: 0,
            name_valid,
            attributes_valid: ATTRIBUTE_TTL.saturating_sub(self.age),
            attributes: self.attributes,
        }
    }
}

/// Held by whoever tells the kernel of names, from the moment when he looks whether they may be believed until
/// the kernel has been told.
#[derive(Debug, Default)]
pub(crate) struct Gate(RwLock<()>);

impl Gate {
    fn pass(&self) -> RwLockReadGuard<'_, ()> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when all who had looked before have told.
    fn settle(&self) {
        drop(self.0.write().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Tree {
    /// Tells the kernel of a file by its name.
    pub(crate) fn tell_name(&self, told: &Told, tell: impl FnOnce(Entry)) {
        let _passing = self.gate.pass();
        tell(told.entry(&self.clerk));
    }

    /// Tells the kernel of many files at once: `tell` is given what makes entries of them.
    pub(crate) fn tell_names(&self, tell: impl FnOnce(&dyn Fn(&Told) -> Entry)) {
        let _passing = self.gate.pass();
        tell(&|told| told.entry(&self.clerk));
    }
}

/// Names that the kernel is to look at anew.
#[derive(Debug, Default)]
struct Queue {
    names: Vec<(u64, Box<[u8]>)>,
    /// How many were ever put here, and how many the kernel was told of.
    put: u64,
    told: u64,
    ends: bool,
}

/// Makes the kernel forget names whose leases have ended.
#[derive(Debug)]
pub(crate) struct Forgetting {
    tree: Weak<Tree>,
    queue: Arc<(Mutex<Queue>, Condvar)>,
}

fn lock(queue: &(Mutex<Queue>, Condvar)) -> MutexGuard<'_, Queue> {
    queue.0.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Forgetting {
    /// Begins to listen to the clerk.
    pub(crate) fn start(tree: &Arc<Tree>) -> std::io::Result<()> {
        let queue: Arc<(Mutex<Queue>, Condvar)> = Arc::default();
        let (told, whose) = (Arc::clone(&queue), Arc::downgrade(tree));
        thread::Builder::new()
            .name("nasd-names".into())
            .spawn(move || tell_kernel(&told, &whose))?;
        let forgetting = Forgetting { tree: Arc::downgrade(tree), queue };
        tree.clerk.watch_names(Arc::new(forgetting));
        Ok(())
    }
}

impl Drop for Forgetting {
    fn drop(&mut self) {
        lock(&self.queue).ends = true;
        self.queue.1.notify_all();
    }
}

impl NameWatcher for Forgetting {
    fn names_changed(&self, directories: Option<&[FileHandle]>) {
        let deadline = Instant::now() + NAME_TTL;
        let Some(tree) = self.tree.upgrade() else {
            return;
        };
        tree.gate.settle();
        let names = tree.inodes.told_within(directories, NAME_TTL + ON_ITS_WAY);
        drop(tree);
        if names.is_empty() {
            return;
        }
        let mut queue = lock(&self.queue);
        queue.put += names.len() as u64;
        queue.names.extend(names);
        let all = queue.put;
        self.queue.1.notify_all();
        while queue.told < all && !queue.ends {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let woken = self.queue.1.wait_timeout(queue, left);
            queue = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

fn tell_kernel(queue: &(Mutex<Queue>, Condvar), tree: &Weak<Tree>) {
    loop {
        let waiting =
            queue.1.wait_while(lock(queue), |queue| queue.names.is_empty() && !queue.ends);
        let mut waiting = waiting.unwrap_or_else(PoisonError::into_inner);
        if waiting.ends {
            return;
        }
        let names = std::mem::take(&mut waiting.names);
        drop(waiting);
        if let Some(notifier) = tree.upgrade().and_then(|tree| tree.notifier.get().cloned()) {
            for (directory, name) in &names {
                // It may have forgotten it by itself.
                let _ = notifier.inval_entry(*directory, OsStr::from_bytes(name), true);
            }
        }
        lock(queue).told += names.len() as u64;
        queue.1.notify_all();
    }
}
