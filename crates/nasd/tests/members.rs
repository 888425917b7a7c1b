//! People and machines: who is let in, as whom, and how they are shut out. The real binary.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use serde_json::Value;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;
use support::{CellOptions, TestCell, finish, nasd, text};

fn cell() -> TestCell {
    let cell = TestCell::start(&CellOptions { drives: 2, size: "128M", cache: "32M" });
    fs::set_permissions(cell.mountpoint(), fs::Permissions::from_mode(0o777)).unwrap();
    cell
}

fn told(cell: &TestCell, line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let output = cell.nasd(&words);
    assert!(output.status.success(), "nasd {line}: {}", text(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn refused(output: &Output, expected: &[&str]) {
    let printed = text(output);
    assert!(!output.status.success(), "it succeeded: {printed}");
    for word in expected {
        assert!(printed.contains(word), "no `{word}` in: {printed}");
    }
    assert!(!printed.contains("panicked"), "{printed}");
}

/// `nasd` as whoever was handed a directory.
fn with(directory: &Path, words: &[&str]) -> Output {
    let mut command = nasd();
    command.args(words).arg("--cell").arg(directory);
    finish(command)
}

fn ok(directory: &Path, words: &[&str]) -> String {
    let output = with(directory, words);
    assert!(output.status.success(), "{words:?}: {}", text(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn handed(cell: &TestCell, member: &str) -> PathBuf {
    cell.cell().join("members").join(member)
}

#[test]
fn a_person_has_its_own_files_and_no_others() {
    let cell = cell();
    told(&cell, "user add bob --uid 1000");
    let bob = handed(&cell, "user-bob");
    assert_eq!(fs::metadata(bob.join("tls/user.key")).unwrap().mode() & 0o777, 0o600);
    assert!(!bob.join("keyring.toml").exists() && !bob.join("tls/ca.key").exists());

    let local = cell.directory.path().join("note");
    fs::write(&local, "bob's own").unwrap();
    ok(&bob, &["cp", local.to_str().unwrap(), "main:/note"]);
    assert_eq!(fs::metadata(cell.path("note")).unwrap().uid(), 1000);
    assert_eq!(ok(&bob, &["cat", "main:/note"]), "bob's own");
    fs::write(cell.path("secret"), "root's").unwrap();
    fs::set_permissions(cell.path("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    refused(&with(&bob, &["cat", "main:/secret"]), &["secret"]);
    // Nor can bob do what administrators do.
    refused(&with(&bob, &["key", "rotate"]), &["manager's machine"]);
    refused(&with(&bob, &["user", "add", "eve", "--uid", "0"]), &["ca.key"]);
}

#[test]
fn who_is_removed_is_out_at_once_and_others_go_on() {
    let cell = cell();
    for (name, uid) in [("bob", "1000"), ("carol", "1001")] {
        told(&cell, &format!("user add {name} --uid {uid}"));
    }
    let (bob, carol) = (handed(&cell, "user-bob"), handed(&cell, "user-carol"));
    ok(&bob, &["ls", "main:/"]);
    ok(&carol, &["ls", "main:/"]);
    fs::write(cell.path("open"), vec![7; 1 << 20]).unwrap();
    let mut open = fs::File::open(cell.path("open")).unwrap();
    let mut half = vec![0; 1 << 19];
    open.read_exact(&mut half).unwrap();

    refused(&cell.nasd(&["user", "remove", "bob"]), &["--yes"]);
    ok(&bob, &["ls", "main:/"]);
    told(&cell, "user remove bob --yes");
    refused(&with(&bob, &["ls", "main:/"]), &[]);
    // The keys have been changed twice, which the mount and carol do not notice.
    let keys: Value = serde_json::from_str(&told(&cell, "key show --json")).unwrap();
    assert_eq!(keys["drives"][0]["working_key_epoch"], 3);
    open.read_exact(&mut half).unwrap();
    assert!(half.iter().all(|byte| *byte == 7));
    ok(&carol, &["ls", "main:/"]);

    let list: Value = serde_json::from_str(&told(&cell, "user list --json")).unwrap();
    let members = list["members"].as_array().unwrap();
    assert!(members[0]["name"] == "bob" && members[0]["removed"].is_u64(), "{list}");
    assert!(members[1]["name"] == "carol" && members[1]["removed"].is_null(), "{list}");
    assert!(told(&cell, "user list").contains("removed"));
    refused(&cell.nasd(&["user", "remove", "bob", "--yes"]), &["no such member"]);

    // It may come back, and what it had before stays worthless.
    let again = cell.directory.path().join("bob-again");
    told(&cell, &format!("user add bob --uid 1000 --out {}", again.display()));
    ok(&again, &["ls", "main:/"]);
    refused(&with(&bob, &["ls", "main:/"]), &[]);
}

#[test]
fn a_machine_speaks_for_all_of_its_users() {
    let cell = cell();
    told(&cell, "host add other");
    let other = handed(&cell, "host-other");
    fs::write(cell.path("secret"), "root's").unwrap();
    fs::set_permissions(cell.path("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(ok(&other, &["cat", "main:/secret"]), "root's");
    let list = told(&cell, "host list");
    assert!(list.contains("other") && list.contains("good for 364 d"), "{list}");
    told(&cell, "host remove other --yes");
    refused(&with(&other, &["cat", "main:/secret"]), &[]);
}

#[test]
fn names_are_checked_and_certificates_expire() {
    let cell = cell();
    told(&cell, "user add bob --uid 1000");
    for (line, words) in [
        ("user add bob --uid 1001", &["there is one of this name"][..]),
        ("user add bill --uid 1000", &["bob", "same user number"]),
        ("user add ../x --uid 5", &["letters"]),
        ("user add nobody-knows-me", &["--uid"]),
        ("host add a/b", &["letters"]),
        ("user add x --uid 6 --for soon", &["soon", "30s"]),
    ] {
        let words_of_line: Vec<&str> = line.split_whitespace().collect();
        refused(&cell.nasd(&words_of_line), words);
    }
    told(&cell, "user add root");
    assert_eq!(ok(&handed(&cell, "user-root"), &["ls", "main:/"]), "");

    told(&cell, "user add brief --uid 7 --for 4s");
    let brief = handed(&cell, "user-brief");
    ok(&brief, &["ls", "main:/"]);
    std::thread::sleep(Duration::from_secs(5));
    refused(&with(&brief, &["ls", "main:/"]), &["expired"]);
    assert!(told(&cell, "user list").contains("expired"));
}

#[test]
fn a_certificate_without_its_entry_in_the_ledger_is_worthless() {
    let mut cell = cell();
    told(&cell, "host add other");
    let other = handed(&cell, "host-other");
    ok(&other, &["ls", "main:/"]);
    cell.stop();
    let ledger = cell.cell().join("tls/members.toml");
    let entries = fs::read_to_string(&ledger).unwrap();
    let (kept, _) = entries.rsplit_once("[[member]]").unwrap();
    fs::write(&ledger, kept).unwrap();
    cell.restart();
    refused(&with(&other, &["ls", "main:/"]), &[]);
    fs::write(cell.path("file"), "this machine is a member").unwrap();
}

#[test]
fn a_cell_without_a_ledger_gets_one() {
    let mut cell = cell();
    cell.stop();
    for file in ["members.toml", "admin.key", "admin.pem"] {
        fs::remove_file(cell.cell().join("tls").join(file)).unwrap();
    }
    cell.restart();
    fs::write(cell.path("file"), "x").unwrap();
    told(&cell, "key rotate");
    assert_eq!(told(&cell, "host list").lines().count(), 2);
}
