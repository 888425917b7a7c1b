//! Files of a cell by `nasd bulk`: copied over all drives that have them, and played in step.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;
use support::{CellOptions, TestCell, nasd, noise, text};

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
fn a_transfer_goes_on_when_its_capabilities_are_taken_back() {
    for options in [CellOptions::default(), CellOptions::striped(3, "raid0")] {
        let cell = TestCell::start(&options);
        let here = |name: &str| cell.directory.path().join(name).to_str().unwrap().to_owned();
        let bytes = noise(3, (8 << 20) + 5);
        std::fs::write(here("source"), &bytes).unwrap();
        // So many short ones that it takes a while.
        let slowly = ["--streams", "2", "--block", "4K"];
        let (source, back) = (here("source"), here("back"));
        let put = [&["put", "--resume"], &slowly[..], &[&*source, "main:/f"]].concat();
        let get = [&["get"], &slowly[..], &["main:/f", &*back]].concat();
        for (arguments, name) in [(put, "main:/f.part"), (get, "main:/f")] {
            let mut command = nasd();
            command.arg("bulk").args(&arguments).arg("--cell").arg(cell.cell());
            let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
            let mut taken_back = 0;
            while child.try_wait().unwrap().is_none() {
                taken_back += u32::from(cell.nasd(&["cap", "revoke", name]).status.success());
                std::thread::sleep(Duration::from_millis(200));
            }
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success(), "{arguments:?}: {}", text(&output));
            assert!(taken_back > 0, "{arguments:?} was over before anything was taken back");
        }
        assert!(std::fs::read(cell.path("f")).unwrap() == bytes);
        assert!(std::fs::read(here("back")).unwrap() == bytes);
    }
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
    assert!(number("shown") > 20, "{told}");
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
