//! The scrub of a drive that is being served: it finds what rotted, tells it, and stops in time.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::*;
use nasd_device::FaultyDevice;
use nasd_drive::{DriveOptions, ScrubPass};
use nasd_store::{OpenOptions, Store, WriteData};
use nasd_types::{ObjectName, SetAttributes, Timestamp};

const BYTES: u64 = 1 << 20;

/// A formatted device with an object of `BYTES` bytes, of which every block begins with 0xab.
fn device() -> Arc<FaultyDevice> {
    let device = Arc::new(FaultyDevice::zeroed(32 << 20));
    Store::format(device.clone(), &format_options()).unwrap();
    let store = Store::open(device.clone(), &OpenOptions::default()).unwrap();
    let (object, _) = store.create(PARTITION, &SetAttributes::default(), Timestamp(START)).unwrap();
    let name = ObjectName { partition: PARTITION, object };
    let data = vec![0xab; BYTES as usize];
    store.write(name, 0, WriteData::Slice(&data), Timestamp(START)).unwrap();
    store.close().unwrap();
    device
}

fn quick() -> DriveOptions {
    DriveOptions {
        scrub_bytes_per_second: 64 << 20,
        scrub_every: Duration::from_millis(10),
        ..DriveOptions::default()
    }
}

/// Waits for a pass that `wanted` wants.
fn pass(drive: &TestDrive, wanted: impl Fn(&ScrubPass) -> bool) -> ScrubPass {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match drive.server().drive().last_scrub() {
            Some(pass) if wanted(&pass) => return pass,
            _ => assert!(Instant::now() < deadline, "no such pass"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn rot_is_found_while_the_drive_runs_and_is_counted() {
    let device = device();
    let drive = TestDrive::on(device.clone(), quick(), START);
    let clean = pass(&drive, |_| true);
    assert_eq!((clean.read_bytes, clean.bad_blocks, clean.skipped), (BYTES, 0, 0));
    let image = device.live_image();
    let block = |at: &usize| image[at * 4096..][..4096].iter().all(|byte| *byte == 0xab);
    let at = (0..image.len() / 4096).find(block).unwrap() as u64 * 4096;
    device.flip_bit(at + 5 * 4096, 1);
    let found = pass(&drive, |pass| pass.bad_blocks > 0);
    assert_eq!((found.read_bytes, found.bad_blocks), (BYTES, 1));
    let metrics = drive.server().drive().metrics();
    assert!(metrics.contains("\nnasd_scrub_last_pass_bad_blocks 1\n"), "{metrics}");
    let value = |name: &str| -> u64 {
        let line = metrics.lines().find(|line| line.starts_with(name)).unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    assert!(value("nasd_scrub_bad_blocks_total") >= 1);
    assert!(value("nasd_scrub_passes_total") >= 2);
    assert!(value("nasd_scrub_read_bytes_total") >= 2 * BYTES);
    assert!(value("nasd_store_corrupt_blocks_total") >= 1);
}

#[test]
fn a_scrub_under_way_does_not_hold_up_the_stop_and_zero_is_off() {
    for scrub_bytes_per_second in [0, 1] {
        let options = DriveOptions { scrub_bytes_per_second, ..quick() };
        let mut drive = TestDrive::on(device(), options, START);
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(drive.server().drive().last_scrub(), None);
        let start = Instant::now();
        let server = drive.server.take().unwrap();
        server.shut_down(Duration::from_secs(5)).unwrap();
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    }
}
