//! Drives of mirrored volumes that answer but whose medium is slow, while programs read and write: real processes, a real
//! mount.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use support::workers::{LIMP, Pace, Worker, component, wait_for_state, while_working};
use support::{CellOptions, TestCell, shell};

/// A cell whose drives can be made slow.
fn cell_that_may_limp(drives: u32, stripe: &str) -> TestCell {
    let mut cell = TestCell::start(&CellOptions::striped(drives, stripe));
    cell.stop();
    cell.restart_with("NASD_TEST_LIMP", std::path::Path::new("1"));
    cell
}

/// A drive each of whose transfers takes so many milliseconds more, as long as this lives.
struct Limps(PathBuf);

impl Limps {
    fn new(cell: &TestCell, index: u64, milliseconds: u64) -> Limps {
        let path = cell.cell().join("drives").join(format!("drive-{index}.limp"));
        std::fs::write(&path, milliseconds.to_string()).unwrap();
        Limps(path)
    }
}

impl Drop for Limps {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_drive_that_limps_is_named_and_not_waited_for() {
    let cell = cell_that_may_limp(4, "raid1 --stripe-unit 64K");
    let mut workers: Vec<Worker> = (0..4).map(|number| Worker::new(&cell, number)).collect();
    let paces: Vec<Arc<Pace>> = workers.iter().map(|worker| Arc::clone(&worker.pace)).collect();
    let paces = || paces.iter().map(|pace| pace.take()).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
    while_working(&mut workers, || {
        std::thread::sleep(Duration::from_secs(2));
        let begun = Instant::now();
        let limps = Limps::new(&cell, 2, LIMP.as_millis() as u64);
        wait_for_state(&cell, 2, "out");
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(15), "it was out after {took:?}");
        assert_eq!(component(&cell, 2)["complaint"], "slow");
        let told = cell.nasd(&["status"]);
        let told = String::from_utf8_lossy(&told.stdout).into_owned();
        assert!(told.contains("DRIVE_LIMPS") && told.contains("slow"), "{told}");
        // Those that had begun may have waited for it.
        std::thread::sleep(Duration::from_secs(2));
        paces();
        // It answers, but that is not enough to be used again.
        std::thread::sleep(Duration::from_secs(6));
        let (all, slow) = paces();
        eprintln!("{slow} of {all} operations took as long as one of its transfers");
        assert!(all > 20 && slow * 20 <= all, "{slow} of {all}");
        assert_eq!(component(&cell, 2)["state"], "out");
        drop(limps);
        wait_for_state(&cell, 2, "current");
        assert_eq!(component(&cell, 2)["complaint"], "");
    });
    let longest = workers.iter().map(|worker| worker.longest).max().unwrap();
    eprintln!("the longest stall was {longest:?}");
    assert!(longest < Duration::from_secs(5), "{longest:?}");
}

#[test]
fn a_drive_that_limps_without_copies_is_named_and_waited_for() {
    let cell = cell_that_may_limp(3, "raid0 --stripe-unit 64K");
    let limps = Limps::new(&cell, 3, 3000);
    support::wait_until("drive 3 is named", || component(&cell, 3)["complaint"] == "slow");
    assert_eq!(component(&cell, 3)["state"], "current");
    drop(limps);
    support::wait_until("drive 3 is quick", || component(&cell, 3)["complaint"] == "");
}

#[test]
fn a_cell_with_much_to_do_loses_no_drive() {
    let cell = TestCell::start(&CellOptions {
        size: "1G",
        cache: "128M",
        ..CellOptions::striped(4, "raid1")
    });
    for round in 0..3 {
        let write = "for n in 1 2 3 4 5 6 7 8; do dd if=/dev/zero of=\"$1-$n\" bs=1M count=64 conv=fsync 2>/dev/null & done; wait";
        shell(write, &[&cell.path(&format!("round-{round}"))]);
        shell("cat \"$1\"-* | wc -c; rm \"$1\"-*", &[&cell.path(&format!("round-{round}"))]);
        for index in 1..=4 {
            let told = component(&cell, index);
            assert_eq!((&told["state"], &told["complaint"]), (&"current".into(), &"".into()));
        }
    }
    let log = cell.cell().join("log");
    let told = shell("cat \"$1\"/*", &[&log]);
    assert!(!told.contains("a component drive limps"), "{told}");
    assert!(!told.contains("is out: its copies"), "{told}");
}
