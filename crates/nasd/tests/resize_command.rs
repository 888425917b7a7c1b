//! `nasd drive resize`: the drive of a real cell grows and shrinks with everything it has.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use std::fs;
use std::path::Path;
use std::process::Output;
use support::{CellOptions, TestCell, finish, nasd, noise, text};

fn resize(image: &Path, words: &[&str]) -> Output {
    let mut command = nasd();
    command.args(["drive", "resize"]).arg(image).args(words);
    finish(command)
}

fn assert_refused(output: &Output, words: &[&str]) {
    let printed = text(output);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(words.iter().all(|word| printed.contains(word)), "{words:?} in {printed}");
}

fn assert_clean(image: &Path) {
    let mut check = nasd();
    check.arg("check").arg(image);
    let output = finish(check);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
}

#[test]
fn a_drive_grows_and_shrinks_with_its_files() {
    let mut cell = TestCell::start(&CellOptions {
        drives: 1,
        size: "64M",
        cache: "32M",
        ..CellOptions::default()
    });
    let image = cell.cell().join("drives/drive-1.img");
    fs::write(cell.path("first"), noise(1, 8 << 20)).unwrap();
    assert_refused(&resize(&image, &["--size", "128M"]), &["stop the drive"]);
    cell.stop();

    let output = resize(&image, &["--size", "128M", "--json"]);
    assert!(output.status.success(), "{}", text(&output));
    let facts: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(facts["after_bytes"], 128 << 20);
    assert_eq!(fs::metadata(&image).unwrap().len(), 128 << 20);
    assert_clean(&image);
    cell.restart();
    fs::write(cell.path("second"), noise(2, 70 << 20)).unwrap();
    assert!(fs::read(cell.path("first")).unwrap() == noise(1, 8 << 20));
    cell.stop();

    // It does not fit any more; when it does, it moves in front of the new end.
    assert_refused(&resize(&image, &["--size", "64M", "--yes"]), &["needs at least", "--size"]);
    assert_eq!(fs::metadata(&image).unwrap().len(), 128 << 20);
    cell.restart();
    fs::remove_file(cell.path("first")).unwrap();
    fs::write(cell.path("third"), noise(3, 4 << 20)).unwrap();
    cell.stop();
    assert_refused(&resize(&image, &["--size", "96M"]), &["cut", "--yes"]);
    let output = resize(&image, &["--size", "96M", "--yes"]);
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(fs::metadata(&image).unwrap().len(), 96 << 20);
    assert_clean(&image);
    cell.restart();
    assert!(fs::read(cell.path("second")).unwrap() == noise(2, 70 << 20));
    assert!(fs::read(cell.path("third")).unwrap() == noise(3, 4 << 20));
}

#[test]
fn what_is_no_drive_keeps_its_size() {
    let directory = support::scratch();
    let plain = directory.path().join("plain");
    fs::write(&plain, noise(1, 1 << 20)).unwrap();
    assert_refused(&resize(&plain, &["--size", "2M"]), &["not a NASD drive"]);
    assert_refused(&resize(&plain, &["--size", "512K", "--yes"]), &["not a NASD drive"]);
    assert_eq!(fs::metadata(&plain).unwrap().len(), 1 << 20);
}
