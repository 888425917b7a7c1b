//! A small file system, mounted for real: answers from other threads, data that are kept, waits
//! that are interrupted, and a session that another one takes over while programs have files open.

#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use nasd_fuse::{
    Attributes, AttributesFor, Bytes, Connection, Context, Created, Directory, Done, Entry, Errno,
    FileKind, Filesystem, InitFlags, Listing, MountFlags, NewName, Opened, OpenedFlags,
    OwnedPayload, Payload, Read, Release, Reply, Session, SetAttributes, Wanted, Write, Written,
    handover, mount,
};

const VALID: Duration = Duration::from_secs(60);
const LONG: Duration = Duration::from_secs(30);

/// Reading this one waits until somebody interrupts it.
const STUCK: u64 = 2;

/// Files in one directory; a file is the payloads that were written to it, by offset.
#[derive(Default)]
struct Memory {
    files: Mutex<Files>,
    /// Requests to read `STUCK` that have come.
    stuck: AtomicUsize,
}

#[derive(Default)]
struct Files {
    names: HashMap<String, u64>,
    data: HashMap<u64, Vec<(u64, OwnedPayload)>>,
    requests: u64,
}

fn attributes(node: u64, size: u64) -> Attributes {
    let kind = if node == 1 { FileKind::Directory } else { FileKind::Regular };
    Attributes { node, size, kind, permissions: 0o755, links: 1, ..Attributes::default() }
}

impl Memory {
    fn size(&self, node: u64) -> u64 {
        if node == STUCK {
            return 100;
        }
        let files = self.files.lock().unwrap();
        let parts = files.data.get(&node).map(Vec::as_slice).unwrap_or_default();
        parts.iter().map(|(offset, data)| offset + data.len() as u64).max().unwrap_or(0)
    }

    fn entry(&self, node: u64) -> Entry {
        let attributes = attributes(node, self.size(node));
        Entry { node, generation: 0, name_valid: VALID, attributes_valid: VALID, attributes }
    }
}

impl Filesystem for Memory {
    fn lookup(&self, _: &Context, _: u64, name: &OsStr, reply: Reply<Entry>) {
        let name = name.to_str().unwrap();
        let known = self.files.lock().unwrap().names.get(name).copied();
        let node = if name == "stuck" { Some(STUCK) } else { known };
        reply.send(node.map(|node| self.entry(node)).ok_or(Errno::ENOENT));
    }

    fn get_attributes(&self, _: &Context, node: u64, _: Option<u64>, reply: Reply<AttributesFor>) {
        self.files.lock().unwrap().requests += 1;
        reply.ok(&AttributesFor { valid: VALID, attributes: attributes(node, self.size(node)) });
    }

    fn set_attributes(
        &self,
        _: &Context,
        node: u64,
        _: SetAttributes,
        reply: Reply<AttributesFor>,
    ) {
        reply.ok(&AttributesFor { valid: VALID, attributes: attributes(node, self.size(node)) });
    }

    fn create(&self, _: &Context, new: NewName<'_>, _: i32, reply: Reply<Created>) {
        let mut files = self.files.lock().unwrap();
        let node = 10 + files.names.len() as u64;
        files.names.insert(new.name.to_str().unwrap().to_owned(), node);
        drop(files);
        let opened = Opened { handle: node, flags: OpenedFlags::empty() };
        reply.ok(&Created { entry: self.entry(node), opened });
    }

    fn open(&self, _: &Context, node: u64, _: i32, reply: Reply<Opened>) {
        reply.ok(&Opened { handle: node, flags: OpenedFlags::DIRECT_IO });
    }

    fn read(&self, context: &Context, node: u64, read: Read, reply: Reply<Bytes>) {
        if node == STUCK {
            self.stuck.fetch_add(1, Ordering::Relaxed);
            let interruption = context.interruption.clone();
            thread::spawn(move || {
                let interrupted = interruption.begin().wait(LONG);
                reply.error(if interrupted { Errno::EINTR } else { Errno::EIO });
            });
            return;
        }
        let mut bytes = vec![0; self.size(node) as usize];
        for (offset, data) in self.files.lock().unwrap().data.entry(node).or_default() {
            bytes[*offset as usize..][..data.len()].copy_from_slice(data);
        }
        let end = bytes.len().min((read.offset + u64::from(read.size)) as usize);
        let bytes = bytes.get(read.offset as usize..end).unwrap_or_default().to_vec();
        // From another thread, in two parts.
        thread::spawn(move || {
            let (first, second) = bytes.split_at(bytes.len() / 3);
            reply.parts(&[first, second]);
        });
    }

    fn write(
        &self,
        _: &Context,
        node: u64,
        write: Write,
        data: Payload<'_>,
        reply: Reply<Written>,
    ) {
        assert!((data.as_ptr() as usize).is_multiple_of(4096), "data begin on a page");
        let data = data.into_owned();
        let length = data.len() as u32;
        self.files.lock().unwrap().data.entry(node).or_default().push((write.offset, data));
        reply.ok(&Written(length));
    }

    fn flush(&self, _: &Context, _: u64, _: u64, _: u64, reply: Reply<Done>) {
        reply.ok(&Done);
    }

    fn fsync(&self, _: &Context, _: u64, _: u64, _: bool, reply: Reply<Done>) {
        // Whoever forgets to answer has answered with an error.
        drop(reply);
    }

    fn open_directory(&self, _: &Context, node: u64, _: i32, reply: Reply<Opened>) {
        reply.ok(&Opened { handle: node, flags: OpenedFlags::empty() });
    }

    fn read_directory(&self, _: &Context, _: u64, read: Read, reply: Reply<Directory>) {
        let mut listing = Listing::new(read.size);
        let mut names: Vec<_> = self.files.lock().unwrap().names.clone().into_iter().collect();
        names.sort();
        for (at, (name, node)) in names.iter().enumerate().skip(read.offset as usize) {
            if !listing.add(*node, at as u64 + 1, FileKind::Regular, OsStr::new(name)) {
                break;
            }
        }
        reply.listing(&listing);
    }

    fn release(&self, _: &Context, _: u64, _: Release, reply: Reply<Done>) {
        reply.ok(&Done);
    }
}

fn wanted() -> Wanted {
    let flags = InitFlags::ASYNC_READ
        | InitFlags::BIG_WRITES
        | InitFlags::MAX_PAGES
        | InitFlags::INIT_EXT
        | InitFlags::PARALLEL_DIROPS
        | InitFlags::HAS_RESEND;
    Wanted { flags, max_write: 1 << 20, max_background: 16 }
}

/// Mounts an empty directory; needs /dev/fuse.
fn connect(path: &Path) -> Connection {
    let flags = MountFlags {
        read_only: false,
        allow_other: false,
        no_exec: false,
        allow_suid: false,
        allow_devices: false,
    };
    mount(path, "a, test", "nasd-test", flags, &wanted()).expect("these tests need FUSE")
}

/// Takes the mount away when a test ends, however.
struct Mounted(tempfile::TempDir);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn files_are_made_written_listed_and_read() {
    let dir = Mounted(tempfile::tempdir().unwrap());
    let path = dir.0.path().to_owned();
    let memory = Arc::new(Memory::default());
    let session = Session::start(connect(&path), Arc::clone(&memory), 3).unwrap();
    assert!(session.negotiated().minor >= 31);
    let data: Vec<u8> = (0..5_000_000_u32).map(|at| (at / 7) as u8).collect();
    let mut file = File::create(path.join("a")).unwrap();
    file.write_all(&data).unwrap();
    assert_eq!(file.sync_all().unwrap_err().raw_os_error(), Some(libc::EIO));
    drop(file);
    assert!(fs::read(path.join("a")).unwrap() == data);
    for number in 0..300 {
        File::create(path.join(format!("{number:0200}"))).unwrap();
    }
    assert_eq!(fs::read_dir(&path).unwrap().count(), 301);
    assert_eq!(fs::metadata(path.join("no")).unwrap_err().raw_os_error(), Some(libc::ENOENT));
    let mkdir = fs::create_dir(path.join("dir")).unwrap_err();
    assert_eq!(mkdir.raw_os_error(), Some(libc::ENOSYS), "not implemented");
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = mounts.lines().find(|line| line.contains(path.to_str().unwrap())).unwrap();
    assert!(line.contains("fuse.nasd-test a,\\040test"), "{line}");
    assert!(Command::new("umount").arg(&path).status().unwrap().success());
    session.wait().unwrap();
}

#[test]
fn a_notification_has_the_kernel_ask_again() {
    let dir = Mounted(tempfile::tempdir().unwrap());
    let path = dir.0.path().to_owned();
    let memory = Arc::new(Memory::default());
    let session = Session::start(connect(&path), Arc::clone(&memory), 1).unwrap();
    File::create(path.join("a")).unwrap();
    let notifier = session.handle().notifier().unwrap();
    let node = fs::metadata(path.join("a")).unwrap().ino();
    let asked = |memory: &Memory| {
        let before = memory.files.lock().unwrap().requests;
        fs::metadata(path.join("a")).unwrap();
        memory.files.lock().unwrap().requests - before
    };
    assert_eq!(asked(&memory), 0, "it believes what it was told");
    notifier.inval_inode(node, -1, 0).unwrap();
    assert_eq!(asked(&memory), 1);
    notifier.inval_inode(4711, 0, 0).expect("what it does not know it need not forget");
    notifier.inval_entry(1, OsStr::new("a"), true).unwrap();
    notifier.inval_entry(1, OsStr::new("a"), false).unwrap();
    notifier.delete(1, node, OsStr::new("a")).unwrap();
    notifier.store(node, 0, b"data").unwrap();
}

/// Programs end by the signals of a keyboard, also where the tests run in the background of a shell, which has those
/// ignored: children inherit it.
fn let_keyboard_interrupt() {
    for signal in [libc::SIGINT, libc::SIGQUIT] {
        // SAFETY: nobody else here sets what these do.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// A program that reads `STUCK`, once its request has come.
fn reader(path: &Path, memory: &Memory) -> Child {
    let_keyboard_interrupt();
    let before = memory.stuck.load(Ordering::Relaxed);
    let program = Command::new("cat").arg(path.join("stuck")).spawn().unwrap();
    let begun = Instant::now();
    while memory.stuck.load(Ordering::Relaxed) == before {
        assert!(begun.elapsed() < Duration::from_secs(20), "it does not read");
        thread::sleep(Duration::from_millis(5));
    }
    program
}

#[test]
fn a_program_that_waits_can_be_interrupted() {
    let dir = Mounted(tempfile::tempdir().unwrap());
    let path = dir.0.path().to_owned();
    let memory = Arc::new(Memory::default());
    let _session = Session::start(connect(&path), Arc::clone(&memory), 2).unwrap();
    for signal in [libc::SIGINT, libc::SIGKILL] {
        let mut cat = reader(&path, &memory);
        thread::sleep(Duration::from_millis(200));
        assert!(cat.try_wait().unwrap().is_none(), "it waits");
        let begun = Instant::now();
        // SAFETY: the process is a child that was not waited for.
        unsafe { libc::kill(cat.id() as i32, signal) };
        assert!(!cat.wait().unwrap().success());
        assert!(begun.elapsed() < LONG / 4, "{:?}", begun.elapsed());
    }
}

#[test]
fn a_successor_goes_on_with_open_files_and_with_what_was_not_answered() {
    let dir = Mounted(tempfile::tempdir().unwrap());
    let path = dir.0.path().to_owned();
    let memory = Arc::new(Memory::default());
    let mut first = Session::start(connect(&path), Arc::clone(&memory), 3).unwrap();
    let mut options = File::options();
    options.create(true).truncate(true).read(true).write(true);
    let file = options.open(path.join("a")).unwrap();
    file.write_all_at(b"before", 0).unwrap();
    // One that is under way, and is not answered by the first.
    let mut cat = reader(&path, &memory);
    let (here, there) = UnixStream::pair().unwrap();
    let handed = first.hand_over(Duration::from_millis(300)).unwrap();
    assert_eq!(handed.unanswered, 1);
    // Whoever comes now waits.
    let asking = {
        let path = path.clone();
        thread::spawn(move || fs::metadata(path.join("nobody")).unwrap_err().raw_os_error())
    };
    thread::sleep(Duration::from_millis(100));
    assert!(!asking.is_finished());
    let giving = thread::spawn(move || handover::give(&here, &handed.connection, b"state"));
    let (connection, state) = handover::take(&there).unwrap();
    giving.join().unwrap().unwrap();
    assert_eq!(state, b"state");
    connection.resend().expect("Linux 6.9 or later");
    let second = Session::start(connection, Arc::clone(&memory), 2).unwrap();
    drop(first);
    assert_eq!(asking.join().unwrap(), Some(libc::ENOENT));
    file.write_all_at(b" after", 6).unwrap();
    let mut text = String::new();
    File::open(path.join("a")).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "before after");
    assert!(cat.try_wait().unwrap().is_none(), "it waits at the second");
    // SAFETY: the process is a child that was not waited for.
    unsafe { libc::kill(cat.id() as i32, libc::SIGINT) };
    assert!(!cat.wait().unwrap().success());
    drop(file);
    assert!(Command::new("umount").arg(&path).status().unwrap().success());
    second.wait().unwrap();
}
