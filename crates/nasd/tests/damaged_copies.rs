//! Copies that a drive's medium has lost are written anew from the others: when somebody meets them, and when the
//! scrub does. Real devices with planted damage, a real mount.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use support::workers::{Gone, wait_for_state};
use support::{CellOptions, TestCell, nasd, noise, shell, text, wait_until};

const BLOCK: usize = 4096;
const BYTES: usize = 3 << 19;

fn image(cell: &TestCell, index: u64) -> PathBuf {
    cell.cell().join("drives").join(format!("drive-{index}.img"))
}

/// Changes a byte of blocks of some contents wherever a device has them: of those whose number leaves this remainder
/// by that. How many there were.
fn damage(
    cell: &TestCell,
    index: u64,
    contents: &[u8],
    (every, remainder): (usize, usize),
) -> usize {
    let wanted: HashMap<&[u8], usize> =
        contents.chunks(BLOCK).enumerate().map(|(number, block)| (block, number)).collect();
    let device = fs::read(image(cell, index)).unwrap();
    let file = OpenOptions::new().write(true).open(image(cell, index)).unwrap();
    let mut count = 0;
    for (place, block) in device.chunks(BLOCK).enumerate() {
        if wanted.get(block).is_some_and(|number| number % every == remainder) {
            let at = place * BLOCK + 77;
            file.write_all_at(&[!block[77]], at as u64).unwrap();
            count += 1;
        }
    }
    count
}

/// A cell with a file of these contents, that does not run.
fn cell_with_file() -> (TestCell, Vec<u8>) {
    let mut cell = TestCell::start(&CellOptions::striped(2, "raid1 --stripe-unit 64K"));
    let contents = noise(5, BYTES);
    fs::write(cell.path("file"), &contents).unwrap();
    fs::write(cell.path("small"), &contents[..10_000]).unwrap();
    fs::File::open(cell.path("file")).unwrap().sync_all().unwrap();
    cell.stop();
    (cell, contents)
}

/// What `nasd check` finds on a device.
fn findings(cell: &TestCell, index: u64) -> String {
    text(&nasd().arg("check").arg(image(cell, index)).output().unwrap())
}

#[test]
fn what_one_drive_has_lost_is_read_from_the_other_and_written_anew() {
    let (mut cell, mut contents) = cell_with_file();
    // Both have lost something, but not the same.
    assert!(damage(&cell, 1, &contents, (13, 1)) > 25);
    assert!(damage(&cell, 2, &contents, (17, 5)) > 20);
    let lost_by_both = |number: usize| number % 13 == 1 && number % 17 == 5;
    assert!(!findings(&cell, 1).starts_with("0 findings"));
    cell.restart();
    let file = OpenOptions::new().read(true).write(true).open(cell.path("file")).unwrap();
    // A part of a block that one has lost.
    let at = 14 * BLOCK + 100;
    file.write_all_at(b"changed", at as u64).unwrap();
    file.sync_all().unwrap();
    contents[at..at + 7].copy_from_slice(b"changed");
    for (number, block) in contents.chunks(BLOCK).enumerate() {
        let mut read = vec![0; BLOCK];
        let told = file.read_exact_at(&mut read, (number * BLOCK) as u64);
        match lost_by_both(number) {
            true => drop(told.unwrap_err()),
            false => {
                told.unwrap();
                assert!(read == block, "block {number}");
                continue;
            }
        }
        // It can be written, as any other.
        file.write_all_at(block, (number * BLOCK) as u64).unwrap();
    }
    drop(file);
    assert!(fs::read(cell.path("small")).unwrap() == noise(5, BYTES)[..10_000]);
    cell.stop();
    cell.restart();
    assert!(fs::read(cell.path("file")).unwrap() == contents);
    for index in [1, 2] {
        let gone = Gone::new(&cell, index);
        wait_for_state(&cell, index, "out");
        shell("echo 3 > /proc/sys/vm/drop_caches", &[]);
        assert!(fs::read(cell.path("file")).unwrap() == contents, "without drive {index}");
        gone.come_back();
    }
}

#[test]
fn what_the_scrub_finds_is_written_anew() {
    let (mut cell, contents) = cell_with_file();
    assert!(damage(&cell, 1, &contents, (9, 2)) > 25);
    cell.restart();
    let log = cell.cell().join("log/striping-3.log");
    wait_until("the drive is looked through", || {
        fs::read_to_string(&log).unwrap().contains("bad blocks of a drive were looked for")
    });
    cell.stop();
    let found = findings(&cell, 1);
    assert!(found.contains("0 findings"), "{found}");
    cell.restart();
    let gone = Gone::new(&cell, 2);
    wait_for_state(&cell, 2, "out");
    assert!(fs::read(cell.path("file")).unwrap() == contents);
    gone.come_back();
}
