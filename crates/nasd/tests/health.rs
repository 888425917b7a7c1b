//! What `nasd status` says of a cell to which things happen, and `nasd explain` of that.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use serde_json::Value;
use std::fs;
use std::io::Write;
use std::time::{Duration, Instant};
use support::{CellOptions, PATIENCE, TestCell, nasd, noise, signal, text, wait_until};

fn status(cell: &TestCell) -> Value {
    let output = cell.nasd(&["status", "--json"]);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output)))
}

/// What is found: codes and what they are about.
fn found(cell: &TestCell) -> Vec<String> {
    let status = status(cell);
    let finding = |finding: &Value| {
        let word = |key: &str| finding[key].as_str().unwrap().to_owned();
        format!("{} {} {}", word("severity"), word("code"), word("about"))
    };
    status["health"].as_array().unwrap().iter().map(finding).collect()
}

/// Waits until that is found, and nothing else: a drive that is slow to answer may be missed for a while.
fn wait_for(cell: &TestCell, expected: &[&str]) {
    let mut last = Vec::new();
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        last = found(cell);
        if last == expected {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(last, expected);
}

fn exit_status(cell: &TestCell) -> Option<i32> {
    cell.nasd(&["status", "--check"]).status.code()
}

fn done(cell: &TestCell, line: &str) {
    let output = cell.nasd(&line.split_whitespace().collect::<Vec<_>>());
    assert!(output.status.success(), "{line}: {}", text(&output));
}

/// Writes a durable file.
fn write(cell: &TestCell, name: &str, length: usize) -> std::io::Result<()> {
    let mut file = fs::File::create(cell.path(name))?;
    file.write_all(&noise(7, length))?;
    file.sync_all()
}

#[test]
fn volumes_that_fill_are_told_before_and_after() {
    let mut cell = TestCell::start(&CellOptions {
        drives: 2,
        size: "128M",
        cache: "32M",
        ..CellOptions::default()
    });
    wait_for(&cell, &[]);
    assert_eq!(exit_status(&cell), Some(0));
    assert_eq!(status(&cell)["state"], "HEALTHY");
    for index in 0..12 {
        write(&cell, &format!("file-{index}"), 1 << 20).unwrap();
    }
    done(&cell, "volume resize main --quota 26M");
    write(&cell, "more-1", 6 << 20).unwrap();
    write(&cell, "more-2", 6 << 20).unwrap();
    wait_for(&cell, &["WARNING VOLUME_QUOTA_NEARLY_FULL volume main"]);
    assert_eq!((exit_status(&cell), status(&cell)["state"].as_str()), (Some(3), Some("WARNING")));
    let small = cell.nasd(&["volume", "resize", "main", "--quota", "8M"]);
    assert!(!small.status.success() && text(&small).contains("are in use"), "{}", text(&small));
    done(&cell, "volume resize main --quota 25M");
    wait_for(&cell, &["ERROR VOLUME_FULL volume main"]);
    assert_eq!(exit_status(&cell), Some(4));
    done(&cell, "volume resize main --quota none");
    wait_for(&cell, &[]);
    // Without a quota it is the drives that fill.
    let mut index = 0;
    while write(&cell, &format!("fill-{index}"), 4 << 20).is_ok() {
        index += 1;
        assert!(index < 100, "it is never full");
    }
    let all = found(&cell).join("\n");
    assert!(all.contains("DRIVE_NEARLY_FULL drive") || all.contains("DRIVE_FULL drive"), "{all}");
    cell.stop();
}

#[test]
fn what_is_away_or_unfinished_is_told() {
    let mut cell = TestCell::start(&CellOptions {
        drives: 2,
        size: "64M",
        cache: "32M",
        ..CellOptions::default()
    });
    done(&cell, "volume create half");
    let config = cell.cell().join("cell.toml");
    let text = fs::read_to_string(&config).unwrap();
    let half = text.replace("name = \"half\"", "name = \"half\"\nunfinished = true");
    fs::write(&config, half).unwrap();
    wait_for(&cell, &["WARNING VOLUME_UNFINISHED volume half"]);
    fs::write(&config, text).unwrap();

    let ring = cell.cell().join("keyring.toml");
    let keys = fs::read_to_string(&ring).unwrap();
    let owed = keys.replacen("[[drive]]", "[[drive]]\nowed_changes = 2", 1);
    fs::write(&ring, owed).unwrap();
    wait_for(&cell, &["WARNING KEY_DUE working key of drive 1, volume main"]);
    fs::write(&ring, keys).unwrap();

    let drive = cell.member("drive-2");
    signal(drive, "STOP");
    wait_until("the drive is missed", || found(&cell).contains(&"ERROR DRIVE_AWAY drive 2".into()));
    let screen = cell.nasd(&["status"]);
    assert!(support::text(&screen).contains("ERROR DRIVE_AWAY: drive 2 at"), "{screen:?}");
    signal(drive, "CONT");
    wait_until("the drive is back", || found(&cell).is_empty());
    cell.stop();

    // Without a manager it is told all the same, and the command has failed.
    assert_eq!(found(&cell), ["ERROR MANAGER_AWAY manager"]);
    let output = cell.nasd(&["status"]);
    assert!(output.status.code() == Some(1) && support::text(&output).contains("MANAGER_AWAY"));
    assert_eq!(exit_status(&cell), Some(4));
}

#[test]
fn codes_are_explained() {
    let explain = |words: &[&str]| {
        let output = nasd().arg("explain").args(words).output().unwrap();
        (output.status.success(), text(&output))
    };
    let (good, all) = explain(&[]);
    assert!(good && all.lines().count() > 10 && all.contains("DRIVE_AWAY"), "{all}");
    let (good, one) = explain(&["drive_away"]);
    assert!(good && one.contains("DRIVE_AWAY (ERROR)") && one.contains("Do: "), "{one}");
    let (good, none) = explain(&["DRIVE_ASLEEP"]);
    assert!(!good && none.contains("no health code `DRIVE_ASLEEP`"), "{none}");
    let (good, json) = explain(&["--json"]);
    assert!(good && json.contains("\"severity\": \"WARNING\""), "{json}");
}
