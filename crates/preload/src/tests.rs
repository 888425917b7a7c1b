//! Mapped files over a real server, with an origin that can refuse, and the table of descriptors.

use std::ffi::{c_int, c_void};
use std::fs::{self, File, OpenOptions};
use std::net::TcpListener;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use libc::iovec;
use nasd_bulk_service::client::StripedFile;
use nasd_bulk_service::desk::{Desk, DeskOptions};
use nasd_bulk_service::directory::{DirectoryOptions, Surroundings};
use nasd_capability::SecretKey;
use nasd_protocol::bulk_desk::FileFacts;
use nasd_transport::{Server, ServerOptions};
use nasd_types::{DriveId, Timestamp};
use rustix::io::Errno;

use crate::error::PreloadError;
use crate::map::Rule;
use crate::mapped::{Mapped, Seen};
use crate::origin::Origin;
use crate::parts::one;
use crate::served::Served;
use crate::table;
use crate::testing::scratch;
use crate::verify::{Identity, Manner};

const BLOCK: usize = 4096;

/// A directory, and its server that anybody may ask.
struct Rig {
    root: tempfile::TempDir,
    server: Server,
}

/// Where authority comes from, until it does not.
struct Fake {
    served: Served,
    refuses: AtomicBool,
    opens: AtomicUsize,
    told: AtomicUsize,
}

impl Origin for Fake {
    fn open(&self, fd: c_int, is_anew: bool) -> Result<StripedFile, PreloadError> {
        if self.refuses.load(Ordering::Relaxed) {
            return Err(PreloadError::NotGranted(Errno::BUSY));
        }
        self.opens.fetch_add(1, Ordering::Relaxed);
        self.served.open(fd, is_anew)
    }

    fn tell_changed(&self, _fd: c_int) {
        self.told.fetch_add(1, Ordering::Relaxed);
    }

    fn stand_in(&self) -> Option<FileFacts> {
        self.served.stand_in()
    }
}

impl Rig {
    fn new() -> Rig {
        let root = scratch();
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let surroundings = Surroundings {
            identity: DriveId(7),
            secret: SecretKey::new([3; 32]),
            clock: Box::new(|| {
                let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
                let since = since.unwrap();
                Timestamp::from_parts(since.as_secs(), since.subsec_nanos())
            }),
            random: [1, 2, 3],
        };
        let options = DeskOptions { anyone: true, ..DeskOptions::default() };
        let desk = Desk::new(root.path(), surroundings, DirectoryOptions::default(), options);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let options = ServerOptions::default();
        let server = Server::start(listener, None, Arc::new(desk.unwrap()), options).unwrap();
        Rig { root, server }
    }

    /// A file that is opened past the cache.
    fn file(&self, name: &str, contents: &[u8]) -> File {
        let path = self.root.path().join(name);
        fs::write(&path, contents).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(path).unwrap()
    }

    fn mapped(&self, name: &str, file: &File) -> (Arc<Mapped>, Arc<Fake>) {
        let address = self.server.address().to_string();
        let rule = Rule { prefix: Vec::new(), address, is_insecure: true };
        let fake = Arc::new(Fake {
            served: Served::here(&rule, name.as_bytes(), libc::O_RDWR),
            refuses: AtomicBool::new(false),
            opens: AtomicUsize::new(0),
            told: AtomicUsize::new(0),
        });
        let fd = file.as_raw_fd();
        let seen = Seen { identity: Identity::of(fd).unwrap().0, manner: Manner::of(fd).unwrap() };
        let origin: Arc<dyn Origin> = fake.clone();
        let mapped = Mapped::open(fd, origin, seen, ((true, true), false)).unwrap();
        (Arc::new(mapped), fake)
    }
}

fn into(bytes: &mut [u8]) -> [iovec; 1] {
    one(bytes.as_mut_ptr().cast(), bytes.len())
}

fn from(bytes: &[u8]) -> [iovec; 1] {
    one(bytes.as_ptr().cast_mut().cast::<c_void>(), bytes.len())
}

#[test]
fn the_position_is_the_kernels() {
    let rig = Rig::new();
    let file = rig.file("file", &[[1; BLOCK], [2; BLOCK], [3; BLOCK]].concat());
    let (mapped, fake) = rig.mapped("file", &file);
    let (fd, other) = (file.as_raw_fd(), file.try_clone().unwrap());
    let position = |file: &File| rustix::fs::tell(file).unwrap();
    let mut bytes = [0; BLOCK];
    // SAFETY: the memory is there.
    assert_eq!(unsafe { mapped.read(fd, &into(&mut bytes)) }.unwrap(), Some(BLOCK as isize));
    assert_eq!((bytes[0], position(&other)), (1, BLOCK as u64));
    // SAFETY: as above.
    let told = unsafe { mapped.read(other.as_raw_fd(), &into(&mut bytes)) };
    assert_eq!((told.unwrap(), bytes[0], position(&file)), (Some(BLOCK as isize), 2, 8192));
    // SAFETY: as above.
    let told = unsafe { mapped.write(fd, &from(&[9; BLOCK])) };
    assert_eq!((told.unwrap(), position(&file)), (Some(BLOCK as isize), 12_288));
    // SAFETY: as above.
    assert_eq!(unsafe { mapped.read(fd, &into(&mut bytes)) }.unwrap(), Some(0));
    assert_eq!(position(&file), 12_288);
    // What has no length, or no place, is the kernel's to answer.
    for (at, length) in [(0, 0), (-1, BLOCK), (i64::MAX, BLOCK)] {
        // SAFETY: as above.
        let told = unsafe { mapped.read_at(fd, &into(&mut bytes[..length]), at) };
        assert_eq!(told.unwrap(), None, "{at} {length}");
    }
    assert_eq!(fake.told.load(Ordering::Relaxed), 0);
    mapped.tell_changed(fd);
    mapped.tell_changed(fd);
    assert_eq!(fake.told.load(Ordering::Relaxed), 1);
    let contents = fs::read(rig.root.path().join("file")).unwrap();
    assert_eq!((contents[8192], contents.len()), (9, 12_288));
}

#[test]
fn a_descriptor_that_is_of_something_else_is_forgotten() {
    let rig = Rig::new();
    let file = rig.file("file", &[1; BLOCK]);
    let (mapped, fake) = rig.mapped("file", &file);
    let (copy, fd) = (file.try_clone().unwrap().into_raw_fd(), file.as_raw_fd());
    table::insert(fd, Arc::clone(&mapped));
    table::insert(copy, Arc::clone(&mapped));
    assert!(Arc::ptr_eq(&table::find(copy).unwrap(), &table::find(fd).unwrap()));
    // Closed, and open again, without this library.
    let other = rig.file("other", &[2; BLOCK]);
    // SAFETY: it is this test's own.
    unsafe { rustix::io::dup2(&other, &mut std::os::fd::FromRawFd::from_raw_fd(copy)) }.unwrap();
    assert!(table::find(copy).is_none() && table::find(fd).is_some());
    // The other one no longer goes past the cache.
    // SAFETY: as above.
    unsafe { mapped.write_at(fd, &from(&[5; BLOCK]), 0) }.unwrap();
    rustix::fs::fcntl_setfl(&file, rustix::fs::OFlags::empty()).unwrap();
    assert!(table::find(fd).is_none());
    assert_eq!(fake.told.load(Ordering::Relaxed), 1, "it is the same file");
    rustix::fs::fcntl_setfl(&file, rustix::fs::OFlags::DIRECT).unwrap();
    assert!(table::find(fd).is_none(), "what is forgotten stays so");
    table::insert(fd, Arc::clone(&mapped));
    assert!(table::within(fd..=fd).contains(&fd));
    table::remove(fd);
    assert!(table::find(fd).is_none() && table::within(fd..=fd).is_empty());
    assert_eq!(Arc::strong_count(&mapped), 1);
}

#[test]
fn a_child_opens_the_file_anew() {
    let rig = Rig::new();
    let file = rig.file("file", &[4; BLOCK]);
    let (mapped, fake) = rig.mapped("file", &file);
    let child = mapped.for_child();
    assert_eq!(fake.opens.load(Ordering::Relaxed), 1);
    let mut bytes = [0; BLOCK];
    // SAFETY: the memory is there.
    unsafe { child.read_at(file.as_raw_fd(), &into(&mut bytes), 0) }.unwrap();
    assert_eq!((fake.opens.load(Ordering::Relaxed), bytes[0]), (2, 4));
    // Where it is not let in, it goes the ordinary way for good.
    let child = mapped.for_child();
    fake.refuses.store(true, Ordering::Relaxed);
    // SAFETY: as above.
    let told = unsafe { child.read_at(file.as_raw_fd(), &into(&mut bytes), 0) };
    assert_eq!(told.unwrap(), None);
    assert!(!child.is_of(file.as_raw_fd()) && mapped.is_of(file.as_raw_fd()));
}

#[test]
fn a_length_and_what_is_not_aligned() {
    let rig = Rig::new();
    let file = rig.file("file", &[4; BLOCK]);
    let (mapped, _) = rig.mapped("file", &file);
    let fd = file.as_raw_fd();
    assert_eq!((mapped.size(fd).unwrap(), mapped.length(fd).unwrap()), (4096, 4096));
    // SAFETY: the memory is there.
    let told = unsafe { mapped.write_at(fd, &from(&[1; 100]), 4096) };
    assert_eq!(told.unwrap_err().errno(), libc::EINVAL);
    mapped.relax(true);
    // SAFETY: as above.
    let told = unsafe { mapped.write_at(fd, &from(&[1; 100]), 4096) };
    assert_eq!((told.unwrap(), mapped.size(fd).unwrap()), (Some(100), 4196));
    // Not where it would go over what is there.
    // SAFETY: as above.
    let told = unsafe { mapped.write_at(fd, &from(&[1; 50]), 4096) };
    assert_eq!(told.unwrap_err().errno(), libc::EINVAL);
    mapped.set_size(fd, 10).unwrap();
    mapped.sync(fd).unwrap();
    let mut bytes = [0; 1];
    assert_eq!(file.metadata().unwrap().len(), 10);
    rustix::fs::fcntl_setfl(&file, rustix::fs::OFlags::empty()).unwrap();
    assert_eq!((file.read_at(&mut bytes, 9).unwrap(), bytes), (1, [4]));
}
