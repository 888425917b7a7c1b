//! Files of a cell by `nasd bulk`: copied over all drives that have them, and played in step.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use std::time::{Duration, Instant};

use serde_json::Value;
use support::{CellOptions, TestCell, noise, text};

const FRAME: usize = 64 << 10;

fn bulk(cell: &TestCell, arguments: &[&str]) -> std::process::Output {
    cell.nasd(&[&["bulk"], arguments].concat())
}

fn done(cell: &TestCell, arguments: &[&str]) -> String {
    let output = bulk(cell, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn refused(cell: &TestCell, arguments: &[&str], why: &str) {
    let output = bulk(cell, arguments);
    let said = text(&output);
    assert!(!output.status.success() && said.contains(why), "{arguments:?}: {said}");
}

fn copies_come_back(stripe: &str, protection: &str) {
    let cell = TestCell::start(&CellOptions::striped(3, stripe));
    let here = |name: &str| cell.directory.path().join(name).to_str().unwrap().to_owned();
    for length in [0, 1, 4095, 600_000, (5 << 20) + 77] {
        let bytes = noise(length as u64, length);
        std::fs::write(here("source"), &bytes).unwrap();
        done(&cell, &["put", "--checksum", "--protection", protection, &here("source"), "main:/f"]);
        assert!(std::fs::read(cell.path("f")).unwrap() == bytes, "{length}");
        done(&cell, &["get", "--checksum", "--protection", protection, "main:/f", &here("back")]);
        assert!(std::fs::read(here("back")).unwrap() == bytes, "{length}");
    }
}

#[test]
fn copies_over_several_drives_come_back() {
    copies_come_back("raid0", "privacy-data");
}

#[test]
fn copies_of_what_is_kept_twice_come_back() {
    copies_come_back("raid1", "integrity-args");
}

#[test]
fn more_protection_than_the_ordinary_way_has_is_not_promised() {
    let cell = TestCell::start(&CellOptions::striped(2, "raid1"));
    std::fs::write(cell.path("f"), noise(1, 1 << 20)).unwrap();
    let to = cell.directory.path().join("to");
    let to = to.to_str().unwrap();
    refused(&cell, &["get", "--protection", "privacy-data", "main:/f", to], "leave --protection");
}

#[test]
fn streams_are_played_in_step_and_told_how() {
    let cell = TestCell::start(&CellOptions::striped(3, "raid0"));
    let (frames, frame) = (40, FRAME.to_string());
    for name in ["a", "b"] {
        std::fs::write(cell.path(name), noise(7, frames * FRAME + 100)).unwrap();
    }
    let into = cell.directory.path().join("into");
    std::fs::create_dir(&into).unwrap();
    let options = ["--frame", &frame, "--rate", "100", "--into", into.to_str().unwrap()];
    let begun = Instant::now();
    let arguments = [&["--json", "play"], &options[..], &["main:/a", "main:/b"]].concat();
    let told: Value = serde_json::from_str(&done(&cell, &arguments)).unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(390), "no faster than it is to be");
    let number = |name: &str| told[name].as_u64().unwrap();
    assert_eq!((number("frames"), number("streams")), (40, 2));
    assert_eq!(number("shown") + number("dropped"), 40);
    let shown = std::fs::read(into.join("0")).unwrap();
    assert_eq!(shown.len() as u64, number("shown") * FRAME as u64);
    assert!(std::fs::read(into.join("1")).unwrap() == shown, "all have shown the same frames");
    // For longer than they are: from the beginning again.
    let arguments =
        ["--json", "play", "--frame", &frame, "--rate", "200", "--for", "1s", "main:/a"];
    let told: Value = serde_json::from_str(&done(&cell, &arguments)).unwrap();
    assert_eq!(told["frames"], 200);
}

#[test]
fn what_can_not_be_played_is_refused() {
    let cell = TestCell::start(&CellOptions::default());
    std::fs::write(cell.path("short"), b"short").unwrap();
    refused(&cell, &["play", "main:/short"], "less than a frame");
    refused(&cell, &["play", "main:/none"], "main:/none");
    refused(&cell, &["play", "/etc/passwd"], "of this machine");
    refused(&cell, &["play", "--frame", "1000", "main:/short"], "no block");
    refused(&cell, &["play", "--rate", "0", "main:/short"], "--rate");
    refused(&cell, &["play"], "<FILES>");
}
