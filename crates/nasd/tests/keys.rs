//! Keys, as an administrator has them changed, and as they change by themselves. The real binary
//! on real sockets.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};
use support::{CellOptions, TestCell, noise, signal, text, wait_until};

fn cell(drives: u32) -> TestCell {
    TestCell::start(&CellOptions { drives, size: "128M", cache: "32M" })
}

fn told(cell: &TestCell, line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let output = cell.nasd(&words);
    assert!(output.status.success(), "nasd {line}: {}", text(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn refused(cell: &TestCell, line: &str, expected: &[&str]) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let output = cell.nasd(&words);
    let printed = text(&output);
    assert!(!output.status.success(), "nasd {line} succeeded: {printed}");
    for word in expected {
        assert!(printed.contains(word), "no `{word}` in: {printed}");
    }
}

fn json(cell: &TestCell, line: &str) -> Value {
    serde_json::from_str(&told(cell, &format!("{line} --json"))).unwrap()
}

fn epochs(cell: &TestCell) -> Vec<u64> {
    let facts = json(cell, "key show");
    let drives = facts["drives"].as_array().unwrap();
    drives.iter().map(|drive| drive["working_key_epoch"].as_u64().unwrap()).collect()
}

/// Changes how often the manager changes keys; the cell must be stopped.
fn rotate_every(cell: &TestCell, interval: &str) {
    let path = cell.cell().join("cell.toml");
    let config = fs::read_to_string(&path).unwrap();
    let changed = config
        .replace("rotate_keys_every = \"1d\"", &format!("rotate_keys_every = \"{interval}\""));
    assert_ne!(config, changed);
    fs::write(&path, changed).unwrap();
}

fn write_key(path: &Path, digits: &str) {
    fs::write(path, digits).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn nobody_notices_that_keys_change_all_the_time() {
    let mut cell = cell(2);
    cell.stop();
    rotate_every(&cell, "20ms");
    cell.restart();
    let before = epochs(&cell);
    let until = Instant::now() + Duration::from_secs(5);
    std::thread::scope(|scope| {
        for user in 0..3_u64 {
            let cell = &cell;
            scope.spawn(move || {
                let mut round = 0;
                while Instant::now() < until {
                    let (path, bytes) =
                        (cell.path(&format!("{user}-{round}")), noise(user, 300_000));
                    fs::write(&path, &bytes).unwrap();
                    fs::File::open(&path).unwrap().sync_all().unwrap();
                    assert!(fs::read(&path).unwrap() == bytes);
                    fs::rename(&path, cell.path(&format!("{user}-moved"))).unwrap();
                    round += 1;
                }
                assert!(round > 3, "{round}");
            });
        }
    });
    let after = epochs(&cell);
    for (before, after) in before.iter().zip(&after) {
        assert!(after > &(before + 20), "{before} {after}");
    }
    // A manager that is killed goes on with a key that its drives know.
    for _ in 0..5 {
        signal(cell.member("manager serve"), "KILL");
        fs::write(cell.path("after-kill"), "x").unwrap();
        fs::remove_file(cell.path("after-kill")).unwrap();
    }
    cell.stop();
}

#[test]
fn keys_are_shown_and_changed_on_demand() {
    let cell = cell(2);
    fs::write(cell.path("file"), noise(1, 100_000)).unwrap();
    assert_eq!(epochs(&cell), [1, 1]);
    let facts = json(&cell, "key show");
    assert_eq!(facts["rotate_keys_every"], "1d");
    let drive = &facts["drives"][0];
    assert!(drive["working_key_age"].as_u64().unwrap() < 100, "{drive}");
    assert!((86_000..=86_400).contains(&drive["next_rotation"].as_u64().unwrap()), "{drive}");
    assert_eq!(drive["master_key_here"], true);
    assert!(told(&cell, "key show").contains("master-keys.toml"));

    told(&cell, "key rotate");
    assert_eq!(epochs(&cell), [2, 2]);
    let facts = json(&cell, "key rotate --now");
    assert_eq!(facts["drives"][1]["done"], true);
    assert_eq!(epochs(&cell), [4, 4]);
    assert!(fs::read(cell.path("file")).unwrap() == noise(1, 100_000), "the mount goes on");

    // No secret is ever shown.
    let shown = told(&cell, "key show --json") + &told(&cell, "key show");
    let keyring = fs::read_to_string(cell.cell().join("keyring.toml")).unwrap();
    let secrets: Vec<&str> = keyring.split('"').filter(|word| word.len() == 64).collect();
    assert!(secrets.len() >= 6);
    assert!(secrets.iter().all(|secret| !shown.contains(secret)));
}

#[test]
fn a_drive_that_is_away_gets_its_key_when_it_is_back() {
    let cell = cell(2);
    // Stopped, it neither answers nor is started again.
    let second = cell.member("drive-2.img");
    signal(second, "STOP");
    let facts = json(&cell, "key rotate --now");
    let done = |index: usize| facts["drives"][index]["done"].as_bool().unwrap();
    assert!(done(0) != done(1), "{facts}");
    assert_eq!(epochs(&cell).iter().filter(|epoch| **epoch == 3).count(), 1);
    let owing = json(&cell, "key show");
    let drives = owing["drives"].as_array().unwrap();
    assert!(drives.iter().any(|drive| drive["next_rotation"] == 0), "{owing}");
    signal(second, "CONT");
    wait_until("the second drive has its key", || epochs(&cell).iter().all(|epoch| *epoch >= 3));
    fs::write(cell.path("file"), "x").unwrap();
}

#[test]
fn each_step_of_the_hierarchy_is_done_by_hand() {
    let cell = cell(1);
    told(&cell, "partition create 1 2");
    let object = told(&cell, "object create 1 2");
    let stat = format!("object stat 1 2 {}", object.trim());

    // Each key has authority over the one below, and each way to ask works before and after.
    told(&cell, "key set-drive 1");
    told(&cell, &stat);
    told(&cell, "key set-partition 1 2");
    told(&cell, &format!("{stat} --key-kind partition"));
    assert!(told(&cell, "key set-working 1 2").contains("epoch 2"));
    assert!(told(&cell, "key set-working 1 2").contains("epoch 3"));
    told(&cell, &format!("{stat} --key-kind working"));
    assert_eq!(json(&cell, "key show")["partitions"][0]["working_key_epoch"], 3);

    // The volume's own partition key too: the manager goes on with the new one.
    told(&cell, "key set-partition 1 1");
    told(&cell, "key rotate");
    fs::write(cell.path("file"), "x").unwrap();
    refused(&cell, "key set-working 1 1", &["nasd key rotate"]);
    refused(&cell, "key set-working 1 9", &["p9"]);
    refused(&cell, &format!("{stat} --key-kind master"), &["master"]);
    refused(&cell, "partition list 1 --key-kind working", &["--key-kind"]);
    refused(&cell, "partition resize 1 2 --quota 1M --key-kind partition", &["--key-kind"]);

    // A key that is the wrong one, or open to others.
    let file = cell.directory.path().join("key");
    write_key(&file, &"7".repeat(64));
    let by_file = format!("--key-file {}", file.display());
    refused(&cell, &format!("key set-drive 1 {by_file}"), &["master key"]);
    told(&cell, "partition list 1");
    fs::set_permissions(cell.cell().join("master-keys.toml"), fs::Permissions::from_mode(0o644))
        .unwrap();
    refused(&cell, "key set-drive 1", &["chmod 600"]);
    fs::rename(cell.cell().join("master-keys.toml"), cell.directory.path().join("away")).unwrap();
    refused(&cell, "key set-drive 1", &["master-keys.toml", "--key-file"]);
}

#[test]
fn a_drive_begins_anew() {
    let cell = cell(2);
    told(&cell, "partition create 2 5");
    refused(&cell, "key init 2", &["everything", "main", "--yes"]);
    told(&cell, "key init 2 --yes");
    refused(&cell, "partition create 2 5", &["drive key"]);
    // The new master key is in the place of the old one.
    let masters = fs::read_to_string(cell.cell().join("master-keys.toml")).unwrap();
    assert_eq!(masters.matches("[[drive]]").count(), 2);
    told(&cell, "key set-drive 2");
    assert_eq!(json(&cell, "partition list 2")["partitions"].as_array().unwrap().len(), 0);
    told(&cell, "key init 2 --yes");
}

/// Runs a command of the cell with something in its environment.
fn with_environment(cell: &TestCell, line: &str, name: &str, value: &Path) -> std::process::Output {
    let mut command = support::nasd();
    command.args(line.split_whitespace()).arg("--cell").arg(cell.cell()).env(name, value);
    support::finish(command)
}

/// Seals the keyring, runs the cell with it, and opens it again.
fn seal_and_use(line: &str, name: &'static str, secret: &Path, wrong: &Path, sealed_by: &str) {
    let mut cell = cell(1);
    refused(&cell, line, &["running"]);
    cell.stop();
    let asked = |line: &str, value: &Path| with_environment(&cell, line, name, value);
    let sealed = asked(line, secret);
    assert!(sealed.status.success(), "{}", text(&sealed));
    let path = cell.cell().join("keyring.toml");
    let keyring = || fs::read_to_string(&path).unwrap();
    assert!(!keyring().contains("drive_key") && keyring().contains("sealed"));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    refused(&cell, "key show", &["sealed"]);
    assert!(text(&asked("key show", wrong)).contains("wrong one"));
    assert!(text(&asked("key show --json", secret)).contains(sealed_by));
    assert!(text(&asked(line, secret)).contains("unseal it first"));

    // The manager has the secret, and goes on changing keys.
    rotate_every(&cell, "200ms");
    let before = keyring();
    cell.restart_with(name, secret);
    fs::write(cell.path("file"), "x").unwrap();
    wait_until("keys are changed", || keyring() != before);
    assert!(!keyring().contains("drive_key"));
    fs::write(cell.path("file"), "y").unwrap();
    cell.stop();

    let unsealed = with_environment(&cell, "key unseal", name, secret);
    assert!(unsealed.status.success(), "{}", text(&unsealed));
    assert!(fs::read_to_string(&path).unwrap().contains("drive_key"));
    assert!(epochs(&cell)[0] >= 2);
}

#[test]
fn a_keyring_sealed_by_a_passphrase_goes_on_changing() {
    let scratch = support::scratch();
    let (right, wrong) = (scratch.path().join("right"), scratch.path().join("wrong"));
    write_key(&right, "correct horse battery staple\n");
    write_key(&wrong, "another\n");
    seal_and_use("key seal", "NASD_PASSPHRASE_FILE", &right, &wrong, "passphrase");
}

#[test]
fn a_keyring_sealed_by_a_credential_goes_on_changing() {
    let scratch = support::scratch();
    let (right, wrong) = (scratch.path().join("right"), scratch.path().join("wrong"));
    for (directory, secret) in [(&right, "a secret of systemd's"), (&wrong, "some other secret")] {
        fs::create_dir(directory).unwrap();
        write_key(&directory.join("nasd"), secret);
    }
    let line = "key seal --credential nasd";
    seal_and_use(line, "CREDENTIALS_DIRECTORY", &right, &wrong, "credential");
}
