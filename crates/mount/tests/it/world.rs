//! A mounted volume of a cell in memory.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nasd_clerk::fake::FakeCell;
use nasd_clerk::{Caller, Clerk, FileHandle, Name, Settings};
use nasd_mount::{Mount, MountOptions, OtherVolumes};
use tempfile::TempDir;

/// A cell, and one mount of its volume.
pub struct World {
    pub cell: Arc<FakeCell>,
    /// The clerk of the mount.
    pub clerk: Arc<Clerk>,
    mount: Option<Mount>,
    dir: TempDir,
}

/// What waits for something away gives up after this long.
pub const DEADLINE: Duration = Duration::from_secs(20);

pub fn settings() -> Settings {
    Settings { deadline: DEADLINE, ..Settings::default() }
}

impl World {
    /// A new cell with two drives.
    pub fn new() -> Self {
        World::on(&FakeCell::new(2, DEADLINE), |_| {})
    }

    /// Another mount of the same cell, with a clerk of its own, as another host would have.
    pub fn beside(&self) -> Self {
        World::on(&self.cell, |_| {})
    }

    pub fn on(cell: &Arc<FakeCell>, adjust: impl FnOnce(&mut MountOptions)) -> Self {
        World::among(cell, None, adjust)
    }

    /// A mount in which others are seen at mount points.
    pub fn among(
        cell: &Arc<FakeCell>,
        volumes: Option<Arc<dyn OtherVolumes>>,
        adjust: impl FnOnce(&mut MountOptions),
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clerk = Arc::new(cell.clerk(settings()));
        let mut options = MountOptions::new(dir.path());
        adjust(&mut options);
        let mount = match Mount::start_among(Arc::clone(&clerk), volumes, options) {
            Ok(mount) => mount,
            Err(error) => panic!("these tests need FUSE: {error}"),
        };
        World { cell: Arc::clone(cell), clerk, mount: Some(mount), dir }
    }

    pub fn root(&self) -> &Path {
        self.dir.path()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    pub fn mount(&self) -> &Mount {
        self.mount.as_ref().unwrap()
    }

    /// Unmounts, and tells how that went.
    pub fn stop(mut self) -> Result<(), nasd_mount::MountError> {
        self.mount.take().unwrap().stop()
    }

    /// Waits until somebody unmounts.
    pub fn wait(mut self) -> Result<(), nasd_mount::MountError> {
        self.mount.take().unwrap().wait()
    }

    /// Waits until this mount's process has given it to another one. The directory stays.
    pub fn wait_handed_over(mut self) {
        self.mount.take().unwrap().wait().unwrap();
        // It is the successor's mountpoint.
        self.dir.disable_cleanup(true);
    }

    /// A file of the root directory, as the manager knows it.
    pub fn handle(&self, name: &str) -> FileHandle {
        let caller = Arc::new(Caller::default());
        let name = Name::new(name).unwrap();
        self.clerk.lookup(&caller, self.clerk.root(), &name).unwrap().handle
    }

    /// What of a file of the root would survive a power cut of its drive after fsync.
    pub fn durable(&self, name: &str) -> Vec<u8> {
        std::fs::File::open(self.path(name)).unwrap().sync_all().unwrap();
        let handle = self.handle(name);
        self.cell.drive_of(handle).durable_bytes(handle.object).unwrap()
    }

    /// All names in the root directory as the manager knows them.
    pub fn all_names(&self) -> Vec<String> {
        let caller = Arc::new(Caller::default());
        let page = self.clerk.readdir(&caller, self.clerk.root(), 0, 1000).unwrap();
        page.entries.iter().map(|entry| entry.name.to_string()).collect()
    }

    /// Requests for data that all drives have answered.
    pub fn reads(&self) -> u64 {
        let count = |index| {
            let counters = &self.cell.drive(index).counters;
            counters.reads.load(std::sync::atomic::Ordering::Relaxed)
        };
        count(0) + count(1)
    }
}

/// Bytes that are different at each place, and for each seed.
pub fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut random = Random(seed);
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend_from_slice(&random.next().to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// A small generator: xorshift64*.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// Names in a directory as programs see them.
pub fn listed(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Waits for something that happens soon.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < end, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether two paths lead to the same file of one mount.
pub fn same_file(one: &Path, other: &Path) -> bool {
    fs::metadata(one).unwrap().ino() == fs::metadata(other).unwrap().ino()
}

/// Runs as another user in a thread of its own; Linux has credentials by thread.
pub fn as_user<T: Send>(uid: u32, gid: u32, run: impl FnOnce() -> T + Send) -> T {
    let change = || {
        // SAFETY: these calls have no preconditions; raw ones concern this thread only, which
        // ends with the closure.
        unsafe {
            assert_eq!(libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<u32>()), 0);
            assert_eq!(libc::syscall(libc::SYS_setresgid, gid, gid, gid), 0);
            assert_eq!(libc::syscall(libc::SYS_setresuid, uid, uid, uid), 0);
        }
    };
    std::thread::scope(|scope| {
        scope
            .spawn(|| {
                change();
                run()
            })
            .join()
            .unwrap()
    })
}
