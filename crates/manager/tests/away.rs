//! A drive that is away keeps nobody from work that does not need it.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use nasd_manager::Namespace;
use nasd_manager::objects::memory::MemoryDrives;
use nasd_manager::objects::{ObjectError, Wait};
use nasd_protocol::manager::{FileHandle, ManagerStatus, RenameFlags};
use nasd_types::DriveId;

use support::checker::check;
use support::operation::Op;
use support::watched::{Seen, WatchedDrives, What};
use support::{HOME, open, place, root, walk};

const FAR: DriveId = DriveId(2);

/// Calls to the far drive that wait patiently hang until they are let go, and then fail.
#[derive(Default)]
struct Hang {
    away: AtomicBool,
    let_go: Mutex<bool>,
    changed: Condvar,
}

impl Hang {
    fn watch(&self, seen: Seen) -> Result<(), ObjectError> {
        if seen.drive != FAR || !self.away.load(Ordering::SeqCst) {
            return Ok(());
        }
        if seen.wait == Wait::Patient {
            let let_go = self.let_go.lock().unwrap();
            drop(self.changed.wait_while(let_go, |let_go| !*let_go).unwrap());
        }
        Err(ObjectError::Unavailable { reason: "hangs".to_owned(), maybe_done: false })
    }

    fn let_go(&self) {
        *self.let_go.lock().unwrap() = true;
        self.changed.notify_all();
    }
}

struct Cell {
    drives: Arc<MemoryDrives>,
    hang: Arc<Hang>,
    namespace: Arc<Namespace>,
}

/// Directories and files of the home drive and of the far one, by name.
fn cell() -> Cell {
    let drives = Arc::new(MemoryDrives::new(2));
    let hang = Arc::new(Hang::default());
    let watcher = Arc::clone(&hang);
    let watched = WatchedDrives::new(drives.clone(), move |seen| watcher.watch(seen));
    let namespace = Arc::new(open(Arc::new(watched)));
    let cell = Cell { drives, hang, namespace };
    for (drive, name) in [(HOME, "near"), (HOME, "near2"), (FAR, "far"), (FAR, "far2")] {
        cell.make(drive, &format!("dir-{name}"), true);
        cell.make(drive, &format!("file-{name}"), false);
    }
    cell.make(FAR, "dir-near/file-far", false);
    cell.make(HOME, "dir-near/file-near", false);
    cell.make(HOME, "dir-near/other", false);
    cell.make(HOME, "dir-far/file-near", false);
    cell
}

impl Cell {
    /// Makes names until one comes to lie on the drive.
    fn make(&self, drive: DriveId, path: &str, directory: bool) -> FileHandle {
        let (parent, name) = place(&self.namespace, path).unwrap();
        loop {
            let made = match directory {
                true => self.namespace.mkdir(&root(), parent, name, 0o755),
                false => self.namespace.create(&root(), parent, name, 0o644, true),
            };
            let handle = made.unwrap().handle;
            if handle.drive == drive {
                return handle;
            }
            match directory {
                true => self.namespace.rmdir(&root(), parent, name).unwrap(),
                false => self.namespace.unlink(&root(), parent, name).unwrap(),
            }
        }
    }

    /// Runs something on a thread of its own; says when it is done, and how.
    fn start<T: Send + 'static>(
        &self,
        run: impl FnOnce(&Namespace) -> T + Send + 'static,
    ) -> Receiver<T> {
        let (sender, receiver) = channel();
        let namespace = Arc::clone(&self.namespace);
        std::thread::spawn(move || sender.send(run(&namespace)));
        receiver
    }
}

fn soon<T>(receiver: &Receiver<T>, what: &str) -> T {
    receiver.recv_timeout(Duration::from_secs(20)).unwrap_or_else(|_| panic!("{what} hangs"))
}

fn rename(namespace: &Namespace, from: &str, to: &str) -> Result<(), ManagerStatus> {
    Op::rename(from, to).run(namespace)
}

/// Some of everything in the near directory and in the root, which are on the home drive.
fn work_nearby(names: &Namespace, near: FileHandle, round: u8) -> Result<(), ManagerStatus> {
    let name = format!("new{round}");
    names.create(&root(), near, name.as_bytes(), 0o644, true)?;
    names.mkdir(&root(), names.root(), name.as_bytes(), 0o755)?;
    names.lookup(&root(), near, b"file-near")?;
    names.readdir(&root(), near, 0, 100)?;
    let file = walk(names, "file-near").unwrap().handle;
    names.link(&root(), file, near, &[b'k', round + b'0'])?;
    rename(names, &format!("dir-near/new{round}"), "dir-near2/again")?;
    rename(names, "dir-near2/again", &format!("dir-near/new{round}"))?;
    names.unlink(&root(), near, name.as_bytes())
}

#[test]
fn others_go_on_while_some_wait() {
    let cell = cell();
    let root_directory = cell.namespace.root();
    let handle = |path: &str| walk(&cell.namespace, path).unwrap().handle;
    let (far, dir_near, dir_far) = (handle("file-far"), handle("dir-near"), handle("dir-far"));
    cell.hang.away.store(true, Ordering::SeqCst);
    // These need the far drive, and wait for it.
    let set = |change: nasd_protocol::manager::SetFileAttributes| {
        cell.start(move |names| names.setattr(&root(), far, &change).map(|_| ()))
    };
    let waiting = [
        cell.start(move |names| names.getattr(&root(), far).map(|_| ())),
        cell.start(move |names| names.lookup(&root(), root_directory, b"file-far").map(|_| ())),
        set(nasd_protocol::manager::SetFileAttributes { mode: Some(0o600), ..Default::default() }),
        set(nasd_protocol::manager::SetFileAttributes { size: Some(9), ..Default::default() }),
    ];
    // Names in a directory over there do not: they are in the journal.
    let made = cell.start(move |names| {
        names.create(&root(), dir_far, b"new", 0o644, true).map(|file| file.handle.drive)
    });
    assert!(soon(&made, "a name in the far directory").is_ok());
    let moved = cell.start(move |names| {
        let (from, to) = ((dir_near, &b"other"[..]), (dir_far, &b"moved"[..]));
        names.rename(&root(), from, to, RenameFlags::NONE)
    });
    assert_eq!(soon(&moved, "a name that moves to the far directory"), Ok(()));
    std::thread::sleep(Duration::from_millis(100));
    // These do not, even in the directories that the ones above look at.
    for round in 0..3 {
        let done = cell.start(move |names| work_nearby(names, dir_near, round));
        assert_eq!(soon(&done, "work on the home drive"), Ok(()));
    }
    for receiver in &waiting {
        assert!(receiver.try_recv().is_err(), "it did not wait");
    }
    cell.hang.let_go();
    for receiver in &waiting {
        assert_eq!(soon(receiver, "a call that was let go"), Err(ManagerStatus::Unavailable));
    }
    cell.hang.away.store(false, Ordering::SeqCst);
    assert_eq!(cell.namespace.keep_house(), Default::default());
    let report = check(&cell.drives);
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    assert!(report.tree.contains_key("/dir-near/file-near"));
    assert!(report.tree.contains_key("/dir-far/moved"));
    assert!(report.tree.contains_key("/dir-far/new"));
    assert_eq!(report.orphans, 0);
}

#[test]
fn new_files_go_to_the_drives_that_are_there() {
    let cell = cell();
    cell.hang.away.store(true, Ordering::SeqCst);
    // Objects were made ahead over there; housekeeping finds out that they are of no use now.
    cell.namespace.keep_house();
    for number in 0..10 {
        let name = format!("n{number}");
        let directory = cell.namespace.root();
        let made =
            cell.start(move |names| names.create(&root(), directory, name.as_bytes(), 0o644, true));
        assert_eq!(soon(&made, "create").unwrap().handle.drive, HOME);
    }
}

#[test]
fn a_full_drive_is_passed_over() {
    let drives = Arc::new(MemoryDrives::new(3));
    let namespace = open(drives.clone());
    drives.set_capacity(DriveId(2), 1);
    let make = |number: usize| {
        let name = format!("{number}");
        namespace.create(&root(), namespace.root(), name.as_bytes(), 0o644, true)
    };
    let used: Vec<DriveId> = (0..20).map(|number| make(number).unwrap().handle.drive).collect();
    assert!(!used.contains(&DriveId(2)) && used.contains(&DriveId(3)));
    // The home is full too: there is no room for the root directory to come home.
    drives.set_capacity(HOME, 1);
    drives.set_capacity(DriveId(3), 1);
    namespace.keep_house();
    assert_eq!(make(100).map(|_| ()), Err(ManagerStatus::NoSpace));
    drives.set_capacity(HOME, 1 << 30);
    drives.set_capacity(DriveId(3), 1 << 30);
    namespace.keep_house();
    assert_ne!(make(100).unwrap().handle.drive, DriveId(2));
    assert_eq!(namespace.keep_house(), Default::default());
    let report = check(&drives);
    assert_eq!((report.problems, report.orphans), (Vec::new(), 0));
}

/// The drive of the old directory goes away before a rename comes home: it was answered, everybody is told of
/// it, and it is brought home when the drive is back, by the same manager or the next.
#[test]
fn what_was_answered_comes_home_later() {
    for restart in [false, true] {
        let drives = Arc::new(MemoryDrives::new(2));
        let cut: Arc<Mutex<Option<DriveId>>> = Arc::default();
        let watcher = Arc::clone(&cut);
        let watched = WatchedDrives::new(drives.clone(), move |seen| {
            match *watcher.lock().unwrap() == Some(seen.drive) && seen.what != What::Getattr {
                true => {
                    let reason = "gone".to_owned();
                    Err(ObjectError::Unavailable { reason, maybe_done: false })
                }
                false => Ok(()),
            }
        });
        let watched = Arc::new(watched);
        let namespace = open(watched.clone());
        let make = |name: &str| {
            namespace.mkdir(&root(), namespace.root(), name.as_bytes(), 0o755).unwrap().handle
        };
        let old = (0..9).map(|number| make(&format!("old{number}")));
        let old = old.into_iter().find(|old| old.drive == FAR).unwrap();
        let new = make("new");
        namespace.create(&root(), old, b"file", 0o644, true).unwrap();
        assert_eq!(namespace.keep_house(), Default::default());
        *cut.lock().unwrap() = Some(FAR);
        let (from, to) = ((old, &b"file"[..]), (new, &b"file"[..]));
        namespace.rename(&root(), from, to, RenameFlags::NONE).unwrap();
        namespace.create(&root(), old, b"more", 0o644, true).unwrap();
        // Again and again: what can't go home stays in the journal, whichever area is begun.
        for _ in 0..5 {
            assert!(namespace.keep_house().changes > 0);
        }
        assert!(walk(&namespace, "new/file").is_some());
        let namespace = match restart {
            true => {
                drop(namespace);
                drives.power_cut();
                let next = open(watched.clone());
                assert!(next.keep_house().changes > 0, "it is away still");
                assert!(walk(&next, "new/file").is_some());
                next
            }
            false => namespace,
        };
        *cut.lock().unwrap() = None;
        assert_eq!(namespace.keep_house().changes, 0);
        let missing = namespace.lookup(&root(), old, b"file").map(|_| ());
        assert_eq!(missing, Err(ManagerStatus::NotFound));
        assert!(namespace.lookup(&root(), old, b"more").is_ok());
        assert!(walk(&namespace, "new/file").is_some());
        let report = check(&drives);
        assert_eq!((report.problems, report.orphans), (Vec::new(), 0));
    }
}
