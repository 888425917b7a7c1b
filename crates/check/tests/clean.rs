//! Drives with nothing wrong: no finding, no write, and what the log says is seen.

mod image;

use std::sync::Arc;

use image::*;
use nasd_check::{Code, Options, Outcome, RepairOptions, Report, check, repair};
use nasd_device::{BlockDevice, MemoryDevice};

fn checked(device: &Arc<MemoryDevice>) -> Report {
    let before = device.image();
    let shared: Arc<dyn BlockDevice> = device.clone();
    let report = check(&shared, &Options::default(), &mut |_| {});
    assert!(before == device.image(), "a check wrote to the device");
    report
}

#[test]
fn a_good_drive_is_clean_and_untouched() {
    let device = Image::sample().write();
    let report = checked(&device);
    assert_eq!(report.findings, [], "{report}");
    assert_eq!(report.outcome(), Outcome::Clean);
    assert_eq!(report.statistics.objects, 9);
    assert_eq!(report.statistics.partitions, 2);
    assert_eq!(report.statistics.blocks_in_use, report.statistics.blocks_verified);
    assert!(report.statistics.blocks_verified >= 11);
    let shared: Arc<dyn BlockDevice> = device.clone();
    let before = device.image();
    let repaired = repair(&shared, &RepairOptions::default(), &mut |_| {}).unwrap();
    assert_eq!(repaired.outcome(), Outcome::Clean);
    assert!(before == device.image(), "a repair of a clean drive wrote to it");
}

fn put(object: u64, size: u64) -> Vec<u8> {
    // BLOCKS_USED and FAMILY of a record in the log have no meaning.
    change(1, 1, object, &sealed(object_key(1, object), object_record(size, 99, 99)))
}

fn copy(source: u64, object: u64, size: u64) -> Vec<u8> {
    let record = sealed(object_key(1, object), object_record(size, 0, 0));
    change(7, 1, object, &[&source.to_le_bytes()[..], &record].concat())
}

fn numbers(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn blank(length: usize) -> Vec<u8> {
    let mut record = vec![0; length];
    record[0] = 2;
    record
}

#[test]
fn a_tree_is_as_the_last_durable_commit_left_it() {
    let image = Image::sample().crashed();
    let report = checked(&Arc::new(MemoryDevice::from_image(&image).unwrap()));
    assert_eq!(report.findings, [], "{report}");
}

/// A log with every kind of change; what it leaves is a drive with nothing wrong.
fn logged() -> Image {
    let mut image = Image::sample();
    let mut counters = blank(48);
    set64(&mut counters, 8, 256);
    let first = [
        put(71, 3 * 4096),
        change(4, 1, 71, &map(0, 300, &noise(20, 8192), true)),
        // Continues its neighbour.
        change(4, 1, 71, &map(2, 302, &noise(21, 4096), true)),
        change(11, 0, 0, &sealed(short(2), counters)),
    ];
    let second = [
        // Cuts a shared extent in its middle, and puts something there.
        change(3, 1, 67, &numbers(&[1, 3])),
        change(4, 1, 67, &map(2, 310, &noise(22, 4096), true)),
        // A copy of a copy, one of small contents, one of what was never copied.
        copy(67, 72, 4 * 4096),
        copy(65, 73, 100),
        copy(64, 74, 10_000),
        change(2, 1, 66, &[]),
    ];
    let third = [
        // Small contents grow.
        change(6, 1, 65, &[]),
        put(65, 4096),
        change(4, 1, 65, &map(0, 311, &noise(23, 4096), true)),
        // Blocks become small.
        put(71, 10),
        change(3, 1, 71, &numbers(&[0, 1 << 50])),
        change(5, 1, 71, &[&10u32.to_le_bytes()[..], &[7; 10]].concat()),
        // Moves part of an extent that two share.
        change(12, 0, 0, &numbers(&[11, 320, 1])),
        change(8, 3, 0, &sealed(short(3), partition_record(77, 77))),
        change(1, 3, 4, &sealed(object_key(3, 4), object_record(0, 0, 0))),
        change(10, 0, 0, &sealed(short(1), blank(72))),
    ];
    image.block(320, &noise(1, 8192)[4096..]);
    let next = image.entry(0, 1, &first);
    let next = image.entry(next, 2, &second);
    let next = image.entry(next, 3, &third);
    image.entry(next, 4, &[change(2, 3, 4, &[]), change(9, 3, 0, &[])]);
    image
}

#[test]
fn a_log_is_applied_over_the_device() {
    let device = logged().write();
    let report = checked(&device);
    assert_eq!(report.findings, [], "{report}");
    assert_eq!(report.statistics.log_entries, 4);
    assert_eq!(report.statistics.partitions, 2);
    assert_eq!(report.statistics.objects, 9 + 4 - 1);
}

#[test]
fn a_repair_applies_the_log_and_brings_blocks_home() {
    let mut image = logged();
    image.edit("partitions", short(2), |record| set64(record, 16, 9));
    let device = image.write();
    let shared: Arc<dyn BlockDevice> = device.clone();
    let repaired = repair(&shared, &RepairOptions::default(), &mut |_| {}).unwrap();
    assert_eq!(repaired.before.counts.keys().collect::<Vec<_>>(), [&Code::PartitionObjectsWrong]);
    assert_eq!(repaired.outcome(), Outcome::Repaired, "{repaired}");
    // The log counts no more: what it says is in the tables and at its place.
    device.poke(LOG_AT, &vec![0; LOG_BYTES as usize]);
    let report = checked(&device);
    assert_eq!(report.findings, [], "{report}");
    assert_eq!(report.statistics.log_entries, 0);
    assert_eq!(report.statistics.objects, 9 + 4 - 1);
}

#[test]
fn the_log_may_wrap_and_old_entries_do_not_count() {
    let mut image = Image::sample();
    let last = LOG_BYTES - 4096;
    image.put("drive", short(3), mark_record(8, last));
    image.entry(last, 9, &[change(2, 1, 64, &[])]);
    image.entry(0, 10, &[change(2, 1, 65, &[])]);
    // Left from the round before.
    image.entry(4096, 3, &[change(2, 1, 4, &[])]);
    image.entry(8192, 7, &[change(2, 1, 4, &[])]);
    let report = checked(&image.write());
    assert_eq!(report.findings, [], "{report}");
    assert_eq!(report.statistics.log_entries, 2);
    assert_eq!(report.statistics.objects, 7);
}

#[test]
fn data_may_be_left_out() {
    let mut image = Image::sample();
    image.blocks.get_mut(&10).unwrap()[0] ^= 1;
    let shared: Arc<dyn BlockDevice> = image.write();
    let report = check(&shared, &Options::default().with_data(false), &mut |_| {});
    assert_eq!(report.outcome(), Outcome::Clean);
    assert_eq!(report.statistics.blocks_verified, 0);
    assert_eq!(check(&shared, &Options::default(), &mut |_| {}).outcome(), Outcome::Damaged);
}

#[test]
fn progress_is_told() {
    let shared: Arc<dyn BlockDevice> = Image::sample().write();
    let mut last = None;
    check(&shared, &Options::default(), &mut |progress| {
        assert!(progress.done <= progress.total, "{progress:?}");
        last = Some(progress);
    });
    assert_eq!(last.map(|progress| progress.stage), Some(nasd_check::Stage::Data));
}
