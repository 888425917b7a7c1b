//! `nasd check` and `nasd drive inspect` on the devices of real cells: clean, damaged, in use.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use serde_json::Value;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Output;
use support::{CellOptions, TestCell, finish, nasd, noise, scratch, text};

fn run(words: &[&str], path: &Path) -> Output {
    let mut command = nasd();
    command.args(words).arg(path);
    finish(command)
}

fn json(words: &[&str], path: &Path) -> Value {
    let output = run(words, path);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output)))
}

/// A cell with one file of 32 blocks that is durable, and where its drive's device is.
fn cell_with_a_file() -> (TestCell, PathBuf, Vec<u8>) {
    let cell = TestCell::start(&CellOptions {
        drives: 1,
        size: "64M",
        cache: "32M",
        ..CellOptions::default()
    });
    let bytes = noise(5, 128 << 10);
    let mut file = File::create(cell.path("file")).unwrap();
    file.write_all(&bytes).unwrap();
    file.sync_all().unwrap();
    let image = cell.cell().join("drives/drive-1.img");
    (cell, image, bytes)
}

/// Changes one byte of a data block that holds `bytes`.
fn damage_data(image: &Path, bytes: &[u8]) {
    let contents = fs::read(image).unwrap();
    let block = &bytes[8192..12288];
    let at = contents.chunks(4096).position(|chunk| chunk == block).unwrap() as u64 * 4096;
    let device = OpenOptions::new().write(true).open(image).unwrap();
    device.write_all_at(&[bytes[8192] ^ 1], at).unwrap();
    device.sync_all().unwrap();
}

fn damage_superblock_b(image: &Path) {
    let device = OpenOptions::new().write(true).open(image).unwrap();
    device.write_all_at(&[0x55; 16], 524_288 + 20).unwrap();
    device.sync_all().unwrap();
}

#[test]
fn a_clean_drive_is_clean_once_it_is_stopped() {
    let (mut cell, image, _) = cell_with_a_file();
    for words in [&["check"][..], &["drive", "inspect"], &["check", "--repair", "--yes"]] {
        let output = run(words, &image);
        assert!(!output.status.success(), "{}", text(&output));
        assert!(text(&output).contains("stop the drive"), "{}", text(&output));
    }
    cell.stop();
    let output = run(&["check"], &image);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(text(&output).contains("0 findings"), "{}", text(&output));
    let facts = json(&["check", "--json"], &image);
    assert_eq!(facts["outcome"], "clean");
    assert!(facts["statistics"]["blocks_verified"].as_u64().unwrap() >= 32, "{facts}");
    let facts = json(&["check", "--json", "--no-data"], &image);
    assert_eq!(facts["statistics"]["blocks_verified"], 0);
    let before = fs::read(&image).unwrap();
    let output = run(&["check", "--repair"], &image);
    assert_eq!(output.status.code(), Some(0), "nothing to agree to: {}", text(&output));
    assert!(fs::read(&image).unwrap() == before, "a check changed the device");
}

#[test]
fn damage_is_told_repaired_and_gone() {
    let (mut cell, image, bytes) = cell_with_a_file();
    cell.stop();
    damage_superblock_b(&image);
    damage_data(&image, &bytes);

    let output = run(&["check"], &image);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let printed = text(&output);
    for word in ["damage: superblock-b-damaged", "data loss: block-damaged: object p1/", "--repair"]
    {
        assert!(printed.contains(word), "no `{word}` in {printed}");
    }
    let facts = json(&["check", "--json"], &image);
    assert_eq!(
        (&facts["outcome"], &facts["counts"]["block-damaged"]),
        (&"damaged".into(), &1.into())
    );
    let finding = &facts["findings"][0];
    for field in ["code", "severity", "subject", "detail", "repair"] {
        assert!(finding[field].as_str().is_some_and(|text| !text.is_empty()), "{finding}");
    }

    // Nobody agrees: nothing changes.
    let before = fs::read(&image).unwrap();
    let output = run(&["check", "--repair"], &image);
    assert!(text(&output).contains("--yes") && !output.status.success(), "{}", text(&output));
    assert!(fs::read(&image).unwrap() == before);

    // The superblock is mended; the contents are lost, and stay so.
    let output = run(&["check", "--repair", "--yes"], &image);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let facts = json(&["check", "--json"], &image);
    assert_eq!(facts["counts"], serde_json::json!({ "block-damaged": 1 }));
    // On request they become a hole.
    let facts = json(&["check", "--repair", "--punch", "--yes", "--json"], &image);
    assert_eq!((&facts["outcome"], &facts["repair"]["done"]), (&"repaired".into(), &true.into()));
    let output = run(&["check"], &image);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));

    cell.restart();
    let mut expected = bytes;
    expected[8192..12288].fill(0);
    assert!(fs::read(cell.path("file")).unwrap() == expected, "the rest of the file is there");
}

#[test]
fn a_repair_of_everything_ends_with_success() {
    let (mut cell, image, bytes) = cell_with_a_file();
    cell.stop();
    damage_superblock_b(&image);
    let output = run(&["check", "--repair", "--yes"], &image);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(
        text(&output).contains("would mend superblock-b-damaged, leave nothing"),
        "the plan: {}",
        text(&output)
    );
    cell.restart();
    assert!(fs::read(cell.path("file")).unwrap() == bytes);
}

#[test]
fn what_is_no_drive_is_said_to_be_none() {
    let scratch = scratch();
    let plain = scratch.path().join("plain");
    fs::write(&plain, noise(1, 1 << 20)).unwrap();
    let output = run(&["check"], &plain);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("not-a-drive"), "{}", text(&output));
    let output = run(&["check", "--repair", "--yes"], &plain);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(fs::read(&plain).unwrap() == noise(1, 1 << 20), "it was written to");
    for words in [&["check"][..], &["drive", "inspect"]] {
        let output = run(words, &scratch.path().join("missing"));
        assert!(text(&output).contains("missing"), "{}", text(&output));
        let output = run(words, scratch.path());
        assert!(text(&output).contains("neither a regular file"), "{}", text(&output));
    }
    let output = run(&["check", "--punch"], &plain);
    assert!(text(&output).contains("--repair"), "{}", text(&output));
}

#[test]
fn inspection_tells_all_and_changes_nothing() {
    let (mut cell, image, _) = cell_with_a_file();
    let made = cell.nasd(&["partition", "create", "1", "7", "--quota", "16M"]);
    assert!(made.status.success(), "{}", text(&made));
    cell.nasd(&["partition", "set", "1", "7", "--compression", "zstd"]);
    let mut facts = Value::Null;
    // A drive empties its log before long: a machine that is slow to kill it may come too late.
    for round in 0..5 {
        if round > 0 {
            cell.restart();
        }
        let mut file = File::create(cell.path("changed")).unwrap();
        file.write_all(&noise(round, 9000)).unwrap();
        file.sync_all().unwrap();
        drop(file);
        cell.kill_everything();
        let before = fs::read(&image).unwrap();
        facts = json(&["drive", "inspect", "--json"], &image);
        assert!(fs::read(&image).unwrap() == before, "an inspection changed the device");
        if facts["log_entries"].as_u64().unwrap() > 0 {
            break;
        }
    }
    assert!(facts["log_entries"].as_u64().unwrap() > 0, "it was killed: {facts}");
    for copy in facts["superblocks"].as_array().unwrap() {
        assert_eq!((&copy["state"], &copy["version"]), (&"valid".into(), &2.into()));
    }
    let geometry = &facts["geometry"];
    assert_eq!(
        (&geometry["device_bytes"], &geometry["log_offset"]),
        (&(64 << 20).into(), &(1 << 20).into())
    );
    let end = geometry["data_offset"].as_u64().unwrap()
        + 4096 * geometry["data_blocks"].as_u64().unwrap();
    assert!(end <= 64 << 20 && end > (64 << 20) - 4096, "{geometry}");
    let contents = &facts["contents"];
    assert_eq!(contents["drive_keys"], serde_json::json!({ "master": true, "drive": true }));
    let partition = &contents["partitions"][1];
    assert_eq!(partition["partition"], "p7");
    assert_eq!(
        (&partition["quota_bytes"], &partition["compression"]),
        (&(16 << 20).into(), &"zstd".into())
    );
    assert_eq!(
        (&partition["current_epoch"], &partition["previous_epoch"]),
        (&1.into(), &Value::Null)
    );
    // Keys are never shown.
    let keyring = fs::read_to_string(cell.cell().join("keyring.toml")).unwrap();
    let printed = text(&run(&["drive", "inspect"], &image)) + &facts.to_string();
    for key in keyring.split('"').filter(|word| word.len() == 64) {
        assert!(!printed.contains(key), "a key is shown");
    }
    assert!(printed.contains("partition  keys") && printed.contains("current epoch 1"));

    damage_superblock_b(&image);
    let facts = json(&["drive", "inspect", "--json"], &image);
    assert_eq!(facts["superblocks"][1]["state"], "damaged");
    assert!(facts["contents"].is_object() && facts["findings"].as_u64().unwrap() >= 1, "{facts}");
}
