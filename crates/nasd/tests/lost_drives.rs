//! Drives of mirrored volumes that die, hang, and come back, while programs read and write: real processes, a
//! real mount.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::{CellOptions, TestCell, make_tree, noise, scratch, shell, signal, wait_until};

const BLOCK: usize = 96 << 10;
const BLOCKS: u64 = 40;

/// Longer than it takes to notice a loss and go on, however busy the machine is; an operation that just waits for a
/// drive that is away waits for ten minutes.
const STALL: Duration = Duration::from_secs(45);

/// What one program does: it writes blocks of its own file, and reads them again.
struct Worker {
    path: std::path::PathBuf,
    seed: u64,
    written: Vec<u64>,
}

impl Worker {
    fn new(cell: &TestCell, number: u64) -> Worker {
        let path = cell.path(&format!("worker-{number}"));
        Worker { path, seed: number * 1_000_003, written: vec![0; BLOCKS as usize] }
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

    fn check_all(&self) {
        let file = fs::File::open(&self.path).unwrap();
        (0..BLOCKS).for_each(|block| self.check(&file, block));
    }
}

/// What `nasd status` tells of a component drive.
fn state(cell: &TestCell, index: u64) -> String {
    let told = cell.nasd(&["status", "--json"]);
    let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap_or_default();
    let drives = told["drives"].as_array().cloned().unwrap_or_default();
    let components = drives.iter().flat_map(|drive| drive["components"].as_array());
    let found = components.flatten().find(|component| component["index"] == index);
    found.and_then(|component| component["state"].as_str()).unwrap_or_default().to_owned()
}

fn wait_for_state(cell: &TestCell, index: u64, wanted: &str) {
    wait_until(&format!("drive {index} is {wanted}"), || state(cell, index) == wanted);
}

/// A drive that does not come back until it is to.
struct Gone<'a> {
    cell: &'a TestCell,
    index: u64,
}

impl<'a> Gone<'a> {
    fn new(cell: &'a TestCell, index: u64) -> Gone<'a> {
        let gone = Gone { cell, index };
        fs::rename(gone.image("img"), gone.image("hidden")).unwrap();
        signal(cell.member(&format!("drive-{index}.img")), "KILL");
        gone
    }

    fn image(&self, suffix: &str) -> std::path::PathBuf {
        self.cell.cell().join("drives").join(format!("drive-{}.{suffix}", self.index))
    }

    fn come_back(self) {
        fs::rename(self.image("hidden"), self.image("img")).unwrap();
        wait_for_state(self.cell, self.index, "current");
    }
}

/// Programs work while something happens to the drives.
fn while_working(workers: &mut [Worker], happens: impl FnOnce()) {
    let until = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for worker in workers.iter_mut() {
            scope.spawn(|| worker.work(&until));
        }
        happens();
        until.store(true, Ordering::Release);
    });
    workers.iter().for_each(Worker::check_all);
}

#[test]
fn each_drive_may_be_lost_in_turn_and_is_given_what_it_lacks() {
    let cell = TestCell::start(&CellOptions::striped(4, "raid1 --stripe-unit 64K"));
    let source = scratch();
    make_tree(source.path(), 100);
    shell("cp -a \"$1\" \"$2\"", &[source.path(), &cell.path("before")]);
    let mut workers: Vec<Worker> = (0..6).map(|number| Worker::new(&cell, number)).collect();
    for index in 1..=4 {
        while_working(&mut workers, || {
            std::thread::sleep(Duration::from_millis(500));
            let gone = Gone::new(&cell, index);
            wait_for_state(&cell, index, "out");
            // Names and small files too are made and removed.
            let (now, before) = (cell.path(&format!("now-{index}")), cell.path("before"));
            shell("cp -a \"$1\" \"$2\"", &[source.path(), &now]);
            shell("rm -r \"$1\"; mv \"$2\" \"$1\"", &[&before, &now]);
            gone.come_back();
        });
        shell("diff -r --no-dereference \"$1\" \"$2\"", &[source.path(), &cell.path("before")]);
    }
}

#[test]
fn a_drive_that_hangs_is_not_waited_for() {
    let cell = TestCell::start(&CellOptions::striped(3, "raid1 --stripe-unit 16K"));
    let mut workers: Vec<Worker> = (0..4).map(|number| Worker::new(&cell, number)).collect();
    while_working(&mut workers, || {
        std::thread::sleep(Duration::from_millis(500));
        let hung = cell.member("drive-2.img");
        signal(hung, "STOP");
        wait_for_state(&cell, 2, "out");
        std::thread::sleep(Duration::from_secs(2));
        signal(hung, "CONT");
        wait_for_state(&cell, 2, "current");
    });
}

#[test]
fn the_striping_manager_may_die_while_a_drive_is_out() {
    let mut cell = TestCell::start(&CellOptions::striped(3, "raid1 --stripe-unit 64K"));
    let mut workers: Vec<Worker> = (0..4).map(|number| Worker::new(&cell, number)).collect();
    while_working(&mut workers, || {
        let gone = Gone::new(&cell, 3);
        wait_for_state(&cell, 3, "out");
        signal(cell.member("striping serve"), "KILL");
        std::thread::sleep(Duration::from_secs(1));
        wait_for_state(&cell, 3, "out");
        gone.come_back();
    });
    // Nor does it matter after a start of everything.
    cell.kill_everything();
    cell.restart();
    workers.iter().for_each(Worker::check_all);
}
