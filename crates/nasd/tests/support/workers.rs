//! Programs that write and read blocks of files while something happens to the drives, and drives that are gone.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{TestCell, noise, signal, wait_until};

const BLOCK: usize = 96 << 10;
const BLOCKS: u64 = 40;

/// Longer than it takes to notice a loss and go on, however busy the machine is; an operation that just waits for a
/// drive that is away waits for ten minutes.
const STALL: Duration = Duration::from_secs(45);

/// How many operations a program has done, and how many of them took so long that a drive was waited for which is slow.
#[derive(Default)]
pub struct Pace {
    all: AtomicU64,
    slow: AtomicU64,
}

/// Each transfer of a drive that limps takes so much longer.
pub const LIMP: Duration = Duration::from_secs(2);

impl Pace {
    /// Counts anew; what was counted before, all and slow ones.
    pub fn take(&self) -> (u64, u64) {
        (self.all.swap(0, Ordering::Relaxed), self.slow.swap(0, Ordering::Relaxed))
    }

    fn count(&self, took: Duration) {
        self.all.fetch_add(1, Ordering::Relaxed);
        self.slow.fetch_add(u64::from(took >= LIMP), Ordering::Relaxed);
    }
}

/// What one program does: it writes blocks of its own file, and reads them again.
pub struct Worker {
    path: std::path::PathBuf,
    seed: u64,
    written: Vec<u64>,
    /// How long its slowest operation took.
    pub longest: Duration,
    pub pace: Arc<Pace>,
}

impl Worker {
    pub fn new(cell: &TestCell, number: u64) -> Worker {
        let path = cell.path(&format!("worker-{number}"));
        Worker {
            path,
            seed: number * 1_000_003,
            written: vec![0; BLOCKS as usize],
            longest: Duration::ZERO,
            pace: Arc::default(),
        }
    }

    fn data(version: u64, block: u64) -> Vec<u8> {
        if version == 0 { vec![0; BLOCK] } else { noise(version ^ (block << 40), BLOCK) }
    }

    fn work(&mut self, until: &AtomicBool) {
        let options =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).clone();
        let file = options.open(&self.path).unwrap();
        file.set_len(BLOCKS * BLOCK as u64).unwrap();
        while !until.load(Ordering::Acquire) {
            self.seed += 1;
            let block = noise(self.seed, 8)[0] as u64 % BLOCKS;
            let at = block * BLOCK as u64;
            let begun = Instant::now();
            if self.seed.is_multiple_of(2) {
                let version = self.seed << 1 | 1;
                file.write_all_at(&Worker::data(version, block), at).unwrap();
                self.written[block as usize] = version;
                if self.seed.is_multiple_of(16) {
                    file.sync_all().unwrap();
                }
            } else {
                self.check(&file, block);
            }
            self.longest = self.longest.max(begun.elapsed());
            self.pace.count(begun.elapsed());
            assert!(begun.elapsed() < STALL, "an operation took {:?}", begun.elapsed());
        }
        file.sync_all().unwrap();
    }

    fn check(&self, file: &fs::File, block: u64) {
        let mut read = vec![0; BLOCK];
        file.read_exact_at(&mut read, block * BLOCK as u64).unwrap();
        let wanted = Worker::data(self.written[block as usize], block);
        assert!(read == wanted, "block {block} of {}", self.path.display());
    }

    pub fn check_all(&self) {
        let file = fs::File::open(&self.path).unwrap();
        (0..BLOCKS).for_each(|block| self.check(&file, block));
    }
}

/// What `nasd status` tells of a component drive, once it tells of any.
pub fn component(cell: &TestCell, index: u64) -> serde_json::Value {
    let mut told = serde_json::Value::Null;
    wait_until("component drives are told of", || {
        let output = cell.nasd(&["status", "--json"]);
        told = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let drives = told["drives"].as_array().into_iter().flatten();
        let mut components = drives.filter_map(|drive| drive["components"].as_array());
        components.any(|components| !components.is_empty())
    });
    component_of(&told, index)
}

/// What status has told of a component drive.
pub fn component_of(told: &serde_json::Value, index: u64) -> serde_json::Value {
    let drives = told["drives"].as_array().cloned().unwrap_or_default();
    let components = drives.iter().flat_map(|drive| drive["components"].as_array());
    let found = components.flatten().find(|component| component["index"] == index);
    found.cloned().unwrap_or_default()
}

fn state(cell: &TestCell, index: u64) -> String {
    component(cell, index)["state"].as_str().unwrap_or_default().to_owned()
}

/// Waits until that is its state.
pub fn wait_for_state(cell: &TestCell, index: u64, wanted: &str) {
    wait_until(&format!("drive {index} is {wanted}"), || state(cell, index) == wanted);
}

/// A drive that does not come back until it is to.
pub struct Gone<'a> {
    cell: &'a TestCell,
    index: u64,
}

impl<'a> Gone<'a> {
    pub fn new(cell: &'a TestCell, index: u64) -> Gone<'a> {
        let gone = Gone { cell, index };
        fs::rename(gone.image("img"), gone.image("hidden")).unwrap();
        signal(cell.member(&format!("drive-{index}.img")), "KILL");
        gone
    }

    pub fn image(&self, suffix: &str) -> std::path::PathBuf {
        self.cell.cell().join("drives").join(format!("drive-{}.{suffix}", self.index))
    }

    pub fn come_back(self) {
        fs::rename(self.image("hidden"), self.image("img")).unwrap();
        wait_for_state(self.cell, self.index, "current");
    }
}

/// Programs work while something happens to the drives.
pub fn while_working(workers: &mut [Worker], happens: impl FnOnce()) {
    let until = AtomicBool::new(false);
    let told = std::thread::scope(|scope| {
        for worker in workers.iter_mut() {
            scope.spawn(|| worker.work(&until));
        }
        // They end, whatever has happened.
        let told = catch_unwind(AssertUnwindSafe(happens));
        until.store(true, Ordering::Release);
        told
    });
    if let Err(panic) = told {
        resume_unwind(panic);
    }
    workers.iter().for_each(Worker::check_all);
}
