//! Names that the kernel believes, and how it stops.
//!
//! The kernel may believe a name for a moment where the clerk has a lease on its directory, and not at all
//! where it has none: then it asks for each name, each time. That there is no such name it believes by the same.
//!
//! When a lease ends, the kernel is told to look at all names anew (from Linux 6.16 on), for which nobody waits. Kernels before that
//! are told so of each name that they were told of lately. They take the directory's lock
//! for that, which a program may have that waits for the file manager, which waits for us. So nobody waits
//! longer than what was told is believed: then it is believed no more in any case. And they are never told to believe that there is no such name:
//! the clerk knows, where there is a lease.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, Weak};
use std::thread;
use std::time::{Duration, Instant};

use nasd_clerk::{Belief, FileAttributes, FileHandle, NameWatcher};
use nasd_fuse::{Attributes, Entry, Errno};

use crate::attributes::to_kernel;
use crate::tree::{Absent, MountPoint, Tree};

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
    /// The kernel did not know the file before.
    is_new: bool,
}

impl Told {
    /// A file whose name has just been noted.
    pub(crate) fn now(attributes: Attributes, age: Duration, belief: Option<Belief>) -> Told {
        Told { attributes, age, belief, noted: Instant::now(), is_new: false }
    }

    /// The same, of which the kernel may have known nothing before.
    pub(crate) fn if_new(self, is_new: bool) -> Told {
        Told { is_new, ..self }
    }

    /// A file that has no name, or none that may be believed.
    pub(crate) fn nameless(attributes: Attributes) -> Told {
        Told::now(attributes, Duration::ZERO, None)
    }

    fn entry(&self, tree: &Tree) -> Entry {
        let name_valid = tree.name_valid(self.noted, self.belief.as_ref());
        // When callbacks on it are broken the kernel can only be told of files that it knows.
        let is_unknown = self.is_new && tree.clerk.has_callbacks();
        let attributes_valid =
            if is_unknown { Duration::ZERO } else { tree.attributes_valid(&self.attributes) };
        Entry {
            node: self.attributes.node,
            generation: 0,
            name_valid,
            attributes_valid: attributes_valid.saturating_sub(self.age),
            attributes: tree.as_shown(self.attributes),
        }
    }
}

/// Tells the kernel of the root of a volume by the name of a mount point in another one.
pub(crate) fn tell_mounted(
    (outer, point): (&Tree, &MountPoint),
    (inner, root): (&Tree, &Told),
    tell: impl FnOnce(Entry),
) {
    let _passing = (outer.gate.pass(), inner.gate.pass());
    let name_valid = outer.name_valid(point.noted, point.belief.as_ref());
    tell(Entry { name_valid, ..root.entry(inner) });
}

/// Held by whoever tells the kernel of names, from the moment when he looks whether they may be believed until
/// the kernel has been told.
#[derive(Debug, Default)]
pub(crate) struct Gate(RwLock<()>);

impl Gate {
    pub(crate) fn pass(&self) -> RwLockReadGuard<'_, ()> {
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
        tell(told.entry(self));
    }

    /// Tells the kernel that there is no such name: an entry without a node.
    pub(crate) fn tell_absent(&self, absent: Absent, tell: impl FnOnce(Entry)) {
        let _passing = self.gate.pass();
        let name_valid = match self.has_epochs() {
            true => self.name_valid(absent.noted, absent.belief.as_ref()),
            false => Duration::ZERO,
        };
        tell(Entry { name_valid, ..Entry::default() });
    }

    /// A change of names has failed. Where it may have been made all the same the kernel believes none that it was told before, also not that there
    /// is none: the change is this mount's own, so that the file manager tells nobody here.
    pub(crate) fn doubt_names(&self, error: Errno) {
        const NOT_DONE: [Errno; 13] = [
            Errno::ENOENT,
            Errno::EEXIST,
            Errno::EACCES,
            Errno::EPERM,
            Errno::ENOTEMPTY,
            Errno::ENOTDIR,
            Errno::EISDIR,
            Errno::EXDEV,
            Errno::ENOSPC,
            Errno::EROFS,
            Errno::EINVAL,
            Errno::ENAMETOOLONG,
            Errno::ENODEV,
        ];
        if NOT_DONE.contains(&error) || !self.has_epochs() {
            return;
        }
        if let Some(Err(error)) = self.notifier.get().map(nasd_fuse::Notifier::increment_epoch) {
            tracing::warn!(%error, "the kernel keeps names that may be old");
        }
    }

    /// Tells the kernel of many files at once: `tell` is given what makes entries of them.
    pub(crate) fn tell_names(&self, tell: impl FnOnce(&dyn Fn(&Told) -> Entry)) {
        let _passing = self.gate.pass();
        tell(&|told| told.entry(self));
    }

    /// How long the kernel may believe a name.
    fn name_valid(&self, noted: Instant, belief: Option<&Belief>) -> Duration {
        let is_believed = noted.elapsed() < ON_ITS_WAY
            && belief.is_some_and(|belief| self.clerk.is_believed(belief));
        if is_believed { self.names_valid() } else { Duration::ZERO }
    }

    /// How long the kernel may believe names that are believed.
    fn names_valid(&self) -> Duration {
        match self.clerk.has_callbacks() && self.has_epochs() {
            true => self.clerk.names_good_for().saturating_sub(ON_ITS_WAY),
            false => NAME_TTL,
        }
    }

    /// How long the kernel may believe attributes that it is about to be told. It believes no answers to what it had asked for before
    /// it was told that they are old.
    pub(crate) fn attributes_valid(&self, told: &Attributes) -> Duration {
        if !self.clerk.has_callbacks() {
            return ATTRIBUTE_TTL;
        }
        let known = self.inodes.handle(told.node).and_then(|handle| self.clerk.believes(handle));
        let is_told = |known: &(FileAttributes, Duration)| {
            let known = to_kernel(told.node, &known.0);
            Attributes { access_time: told.access_time, ..known } == *told
        };
        known.filter(is_told).map_or(Duration::ZERO, |(_, good)| good.saturating_sub(ON_ITS_WAY))
    }

    /// Whether the kernel can be told that all names are old, without waiting for anybody.
    fn has_epochs(&self) -> bool {
        let tell = || self.notifier.get().is_some_and(|told| told.increment_epoch().is_ok());
        *self.epochs.get_or_init(tell)
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
        if tree.has_epochs() {
            let told = tree.notifier.get().map(nasd_fuse::Notifier::increment_epoch);
            if let Some(Err(error)) = told {
                tracing::warn!(%error, "the kernel keeps old names");
            }
            return;
        }
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

    fn files_changed(&self, files: Option<&[FileHandle]>) {
        let Some(tree) = self.tree.upgrade() else {
            return;
        };
        let Some(notifier) = tree.notifier.get() else {
            return;
        };
        tree.gate.settle();
        let Some(files) = files else {
            // The kernel believes no attributes for longer than the clerk may, but pages for as long as nobody says otherwise.
            let all = tree.inodes.with_pages();
            self.forget_pages_of(&tree, all);
            return;
        };
        let known: Vec<u64> = files.iter().filter_map(|file| tree.inodes.known(*file)).collect();
        for ino in &known {
            // A negative offset is about attributes only: nothing is waited for.
            let _ = notifier.inval_inode(*ino, -1, 0);
        }
        let mapped: Vec<u64> =
            known.into_iter().filter(|ino| tree.inodes.may_have_pages(*ino)).collect();
        self.forget_pages_of(&tree, mapped);
    }
}

impl Forgetting {
    /// The pages of files are to be read anew, also by those who have mapped them. Those who read with read(2) look at the attributes
    /// first, of which the kernel was told: nobody need wait for this, and it may wait for readers.
    fn forget_pages_of(&self, tree: &Arc<Tree>, files: Vec<u64>) {
        if files.is_empty() {
            return;
        }
        let tree = Arc::clone(tree);
        let forget = move || files.iter().for_each(|ino| tree.forget_pages(*ino, 0, 0));
        if let Err(error) = thread::Builder::new().name("nasd-pages".into()).spawn(forget) {
            tracing::warn!(%error, "old pages of mapped files stay");
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
