//! A volume whose drives have room for no more files: what `df -i` told before, and what comes after.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use std::fs;
use std::io::ErrorKind;

use support::{CellOptions, TestCell, wait_until};

/// Files that there are, and that there is room for, as `df -i` tells.
fn told(cell: &TestCell) -> (u64, u64) {
    let told = rustix::fs::statvfs(cell.mountpoint()).unwrap();
    (told.f_files - told.f_ffree, told.f_ffree)
}

#[test]
fn df_tells_how_many_more_files_can_be_made() {
    let mut cell = TestCell::start(&CellOptions {
        drives: 2,
        size: "256M",
        cache: "16M",
        ..CellOptions::default()
    });
    let path = |number: u64| cell.path(&format!("d{}/file-{number}", number % 8));
    (0..8).for_each(|number| fs::create_dir(cell.path(&format!("d{number}"))).unwrap());
    let (files, room) = told(&cell);
    assert!(files < 16 && room > 500, "{files} files, room for {room}");
    let mut made = 0;
    let full = loop {
        match fs::write(path(made), b"") {
            Ok(()) => made += 1,
            Err(error) => break error,
        }
        if made == room / 2 {
            // Objects that are being made for the next files are not told as files.
            wait_until("files are told", || told(&cell).0.abs_diff(files + made) < 8);
            let (expected, left) = (room - made, told(&cell).1);
            assert!(left.abs_diff(expected) < room / 8, "{left} are told, and not {expected}");
        }
    };
    assert_eq!(full.kind(), ErrorKind::StorageFull, "{full}");
    assert!(made.abs_diff(room) < room / 10, "there was room for {room}, and {made} were made");
    let (_, left) = told(&cell);
    assert!(left < room / 20, "{left} more are told where none can be made");
    let status = String::from_utf8(cell.nasd(&["status", "--json"]).stdout).unwrap();
    assert!(status.contains("VOLUME_F"), "{status}");
    // What is there can still be written, and room comes back.
    fs::write(path(0), vec![7; 100_000]).unwrap();
    (1..made / 2).for_each(|number| fs::remove_file(path(number)).unwrap());
    wait_until("another file can be made", || fs::write(path(1), b"again").is_ok());
    assert_eq!(fs::read(path(0)).unwrap(), vec![7; 100_000]);
    let (_, left) = told(&cell);
    assert!(left > room / 4, "{left} more are told where a half was removed");
    let checked = cell.nasd(&["fsck", "main"]);
    assert!(checked.status.success(), "{}", support::text(&checked));
    cell.stop();
}
