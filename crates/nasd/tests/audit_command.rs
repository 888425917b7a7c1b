//! Who read my file? The audit trail of a real cell, by the real binary.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use serde_json::Value;
use std::fs;
use std::process::Output;
use support::{CellOptions, TestCell, finish, nasd, noise, text};

fn asked(cell: &TestCell, line: &str) -> Output {
    cell.nasd(&line.split_whitespace().collect::<Vec<_>>())
}

fn json(cell: &TestCell, line: &str) -> Value {
    let output = asked(cell, &format!("{line} --json"));
    assert!(output.status.success(), "nasd {line}: {}", text(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn records(cell: &TestCell, line: &str) -> Vec<Value> {
    json(cell, &format!("audit {line}"))["records"].as_array().unwrap().clone()
}

fn of<'a>(records: &'a [Value], procedure: &str) -> Vec<&'a Value> {
    records.iter().filter(|record| record["procedure"] == procedure).collect()
}

/// The user that tests run as, as the mount tells it.
fn uid(cell: &TestCell) -> u64 {
    use std::os::unix::fs::MetadataExt;
    u64::from(fs::metadata(cell.path("letter")).unwrap().uid())
}

#[test]
fn who_read_my_file() {
    let mut cell = TestCell::start(&CellOptions {
        drives: 2,
        size: "128M",
        cache: "32M",
        ..CellOptions::default()
    });
    fs::write(cell.path("letter"), noise(1, 300_000)).unwrap();
    fs::write(cell.path("other"), noise(2, 5_000)).unwrap();
    let facts = json(&cell, "stat main:/letter");
    let object = format!("o{:x}", facts["object"].as_u64().unwrap());
    let drive = facts["drive"].as_str().unwrap().to_owned();
    let index = drive_index(&cell, &drive);
    let output = asked(&cell, "cat main:/letter");
    assert_eq!(output.stdout, noise(1, 300_000));

    let mine = records(&cell, &format!("{index} --object {object}"));
    let reads = of(&mine, "read");
    assert!(!reads.is_empty(), "{mine:?}");
    for read in &reads {
        assert_eq!(read["uid"].as_u64(), Some(uid(&cell)), "{read}");
        assert_eq!((&read["status"], &read["kind"]), (&"ok".into(), &"proved".into()), "{read}");
        assert_eq!(read["object"], object.as_str());
        assert_eq!(read["key"], "capability");
    }
    assert!(!of(&mine, "write").is_empty(), "{mine:?}");
    // By user, on all drives; and nobody else's.
    let user = uid(&cell);
    let by_user = records(&cell, &format!("all --user {user} --object {object}"));
    assert!(!of(&by_user, "read").is_empty());
    assert!(records(&cell, "--user 54321").is_empty());
    let audit_id = reads[0]["audit_id"].as_str().unwrap();
    let by_id = records(&cell, &format!("{index} --audit-id {audit_id} --object {object}"));
    assert!(!of(&by_id, "read").is_empty());
    assert!(records(&cell, "--until 2020-01-01").is_empty());
    assert!(!records(&cell, "--since 1h").is_empty());
    // As people read it.
    let printed = asked(&cell, &format!("audit {index} --object {object}"));
    let printed = String::from_utf8(printed.stdout).unwrap();
    assert!(printed.contains(&format!("uid {user}")) && printed.contains("read"), "{printed}");

    cell.stop();
    check_is_clean(&cell);
    cell.restart();
    let after = records(&cell, &format!("{index} --object {object}"));
    assert!(of(&after, "read").iter().any(|read| read["sequence"] == reads[0]["sequence"]));
    let whole = records(&cell, &index);
    assert_eq!((of(&whole, "started").len(), of(&whole, "stopped").len()), (2, 1));
}

/// The number of the drive with that identifier.
fn drive_index(cell: &TestCell, id: &str) -> String {
    let status = json(cell, "status");
    let drives = status["drives"].as_array().unwrap();
    let found = drives.iter().find(|drive| drive["id"] == id);
    let found = found.unwrap_or_else(|| panic!("no {id} in {status}"));
    found["index"].as_u64().unwrap().to_string()
}

/// The trail is nothing that the checker minds.
fn check_is_clean(cell: &TestCell) {
    let images = fs::read_dir(cell.cell().join("drives")).unwrap().flatten();
    for image in images.map(|entry| entry.path()).filter(|path| path.is_file()) {
        let mut command = nasd();
        command.arg("check").arg(&image);
        let output = finish(command);
        assert!(output.status.success(), "{}: {}", image.display(), text(&output));
    }
}

#[test]
fn refusals_are_found_and_wrong_words_are_told() {
    let cell = TestCell::start(&CellOptions {
        drives: 1,
        size: "128M",
        cache: "32M",
        ..CellOptions::default()
    });
    // A key that is not the drive's.
    let key = cell.directory.path().join("key");
    fs::write(&key, format!("{}\n", "ab".repeat(32))).unwrap();
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let line = format!("partition list 1 --key-file {}", key.display());
    assert!(!asked(&cell, &line).status.success());
    let refused = records(&cell, "--status refused");
    let claims: Vec<&Value> =
        refused.iter().filter(|record| record["status"] == "refused-digest").collect();
    assert!(!claims.is_empty(), "{refused:?}");
    assert!(claims.iter().all(|claim| claim["kind"] == "claimed" && claim["key"] == "drive"));
    assert!(!records(&cell, "--status refused-digest").is_empty());
    assert!(records(&cell, "--status refused-suite").is_empty());
    for (line, word) in [
        ("audit 9", "has no drive"),
        ("audit --status luck", "refused-rights"),
        ("audit --since yesterday", "yesterday"),
        ("audit --user nobody-at-all", "nobody-at-all"),
    ] {
        let output = asked(&cell, line);
        assert!(!output.status.success(), "{line}");
        assert!(text(&output).contains(word), "{line}: {}", text(&output));
    }
}

/// A minimum that is raised while the cell runs: what is weaker is cut off, and the file manager, its
/// clients and the administrator go on with more. The drive keeps it over a crash.
#[test]
fn a_drive_keeps_its_minimum_protection() {
    let mut cell = TestCell::start(&CellOptions {
        drives: 1,
        size: "128M",
        cache: "32M",
        ..CellOptions::default()
    });
    fs::write(cell.path("letter"), b"before").unwrap();
    fs::File::open(cell.path("letter")).unwrap().sync_all().unwrap();
    let minimum = |cell: &TestCell| {
        json(cell, "object control 1")["minimum_protection"].as_str().unwrap().to_owned()
    };
    assert_eq!(minimum(&cell), "integrity-args");
    let set = asked(&cell, "drive set 1 --minimum-protection integrity-data");
    assert!(set.status.success(), "{}", text(&set));
    for round in 0..2 {
        assert_eq!(minimum(&cell), "integrity-data", "round {round}");
        // The mount has had weaker capabilities.
        assert_eq!(fs::read(cell.path("letter")).unwrap(), b"before");
        fs::write(cell.path(&format!("new-{round}")), b"after").unwrap();
        assert_eq!(asked(&cell, "cat main:/letter").stdout, b"before");
        assert!(!json(&cell, "partition list 1")["partitions"].as_array().unwrap().is_empty());
        if round == 0 {
            cell.kill_everything();
            cell.restart();
        }
    }
}
