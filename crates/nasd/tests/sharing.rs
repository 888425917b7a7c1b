//! One file is shared with one line, and used by somebody who has no account, no certificate and no way
//! into the cell's directory: he has a URL.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use support::{CellOptions, TestCell, finish, noise, text};

const STRANGER: u32 = 12_345;

/// A cell, and somebody who can't look into it.
struct Scene {
    cell: TestCell,
    /// Where the stranger is at home.
    home: tempfile::TempDir,
}

impl Scene {
    fn new() -> Scene {
        let cell = TestCell::start(&CellOptions::default());
        fs::set_permissions(cell.cell(), fs::Permissions::from_mode(0o700)).unwrap();
        // In a place that everybody can reach, with the program.
        let home = tempfile::tempdir_in("/tmp").unwrap();
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
        chown(home.path(), Some(STRANGER), Some(STRANGER)).unwrap();
        let program = home.path().join("nasd");
        fs::hard_link(env!("CARGO_BIN_EXE_nasd"), &program)
            .or_else(|_| fs::copy(env!("CARGO_BIN_EXE_nasd"), &program).map(|_| ()))
            .unwrap();
        let scene = Scene { cell, home };
        let inside = scene.stranger("ls", &[&text_of(&scene.cell.cell())]);
        assert!(!finish(inside).status.success(), "the stranger can look into the cell");
        scene
    }

    /// A program as the stranger runs it.
    fn stranger(&self, program: &str, arguments: &[&str]) -> Command {
        let id = STRANGER.to_string();
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &id, "--regid", &id, "--clear-groups", program]);
        command.args(arguments).current_dir(self.home.path()).stdin(Stdio::null());
        command.env_remove("NASD_CELL").env("HOME", self.home.path());
        command
    }

    fn strange_nasd(&self, arguments: &[&str]) -> Output {
        finish(self.stranger("./nasd", arguments))
    }

    /// What the owner's command prints.
    fn owner(&self, arguments: &[&str]) -> String {
        let output = self.cell.nasd(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output));
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    /// A file of the volume, written through the mount.
    fn file(&self, name: &str, contents: &[u8]) {
        let mut file = fs::File::create(self.cell.path(name)).unwrap();
        file.write_all(contents).unwrap();
        file.sync_all().unwrap();
    }

    fn strange_file(&self, name: &str, contents: &[u8]) -> PathBuf {
        let path = self.home.path().join(name);
        fs::write(&path, contents).unwrap();
        chown(&path, Some(STRANGER), Some(STRANGER)).unwrap();
        path
    }
}

fn text_of(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

fn assert_fails(output: &Output, words: &str) {
    assert!(!output.status.success(), "it succeeded, and should say `{words}`");
    let said = text(output);
    assert!(said.contains(words), "`{words}` is not in: {said}");
    assert!(!said.contains("#nasdcap1.A"), "an error shows the secret: {said}");
}

#[test]
fn one_line_shares_a_file_read_only_for_an_hour() {
    let scene = Scene::new();
    let contents = noise(3, (5 << 20) + 7);
    scene.file("a file", &contents);
    let url = scene.owner(&["cap", "mint", "main:/a file", "--read", "--for", "1h"]);
    assert!(url.starts_with("nasd://127.0.0.1:") && url.contains("/a%20file#nasdcap1."), "{url}");
    let read = scene.strange_nasd(&["cat", &url]);
    assert!(read.status.success(), "{}", text(&read));
    assert!(read.stdout == contents, "{} bytes of {}", read.stdout.len(), contents.len());
    // Into a directory, by the name in the URL; and to a name.
    for destination in [".", "./copy"] {
        let copied = scene.strange_nasd(&["cp", &url, destination]);
        assert!(copied.status.success(), "{}", text(&copied));
    }
    for name in ["a file", "copy"] {
        assert!(fs::read(scene.home.path().join(name)).unwrap() == contents, "{name}");
    }
    // It is for reading.
    let more = scene.strange_file("more", b"more");
    let written = scene.strange_nasd(&["cp", &text_of(&more), &url]);
    assert_fails(&written, "does not allow writing");
    assert!(fs::read(scene.cell.path("a file")).unwrap() == contents);
    // Nothing went through the manager, and no account was needed.
    let shown = scene.strange_nasd(&["cap", "show", &url, "--json"]);
    let facts: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(facts["rights"], serde_json::json!(["read", "getattr"]));
    assert_eq!((facts["expired"].as_bool(), facts["name"].as_str()), (Some(false), Some("a file")));
    assert!(!text(&shown).contains("nasdcap1."));
}

#[test]
fn the_secret_need_not_be_on_the_command_line() {
    let scene = Scene::new();
    scene.file("f", b"contents");
    let url = scene.owner(&["cap", "mint", "main:/f", "--read"]);
    let file = text_of(&scene.strange_file("url", format!("{url}\n").as_bytes()));
    assert_eq!(scene.strange_nasd(&["cat", &format!("@{file}")]).stdout, b"contents");
    let mut by_variable = scene.stranger("./nasd", &["cat", "env:THE_URL"]);
    by_variable.env("THE_URL", &url);
    assert_eq!(finish(by_variable).stdout, b"contents");
    let line = format!("./nasd cat - < {file}");
    assert_eq!(finish(scene.stranger("sh", &["-c", &line])).stdout, b"contents");
    let copied = scene.strange_nasd(&["cp", &format!("@{file}"), "copy"]);
    assert!(copied.status.success(), "{}", text(&copied));
    assert_eq!(fs::read(scene.home.path().join("copy")).unwrap(), b"contents");
    assert_fails(&scene.strange_nasd(&["cat", "@missing"]), "missing");
    assert_fails(&scene.strange_nasd(&["cat", "env:MISSING"]), "MISSING");
    let cut = &url[..url.len() - 5];
    assert_fails(&scene.strange_nasd(&["cat", cut]), "copy all of it");
    // What takes no URL does not print it either.
    for arguments in [
        &["grep", "-c", "contents", &url][..],
        &["scan", &url, "SELECT count(*) FROM t"],
        &["extend", &url, "checksum", "--arguments", "00000000"],
        &["ls", &url],
        &["rm", &url],
    ] {
        assert_fails(&scene.cell.nasd(arguments), "are taken by `nasd cat`");
    }
}

#[test]
fn what_was_handed_over_can_be_narrowed_and_not_widened() {
    let mut scene = Scene::new();
    let contents = noise(4, 100_000);
    scene.file("f", &contents);
    let url = scene.owner(&["cap", "mint", "main:/f", "--read", "--write", "--region", "4K+8K"]);
    let narrow = |scene: &Scene, arguments: &[&str]| {
        let output = scene.strange_nasd(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output));
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    };
    assert!(scene.strange_nasd(&["cat", &url]).stdout == contents[4096..12_288]);
    let part = narrow(&scene, &["cap", "attenuate", &url, "--read", "--region", "8K+100"]);
    assert!(scene.strange_nasd(&["cat", &part]).stdout == contents[8192..8292]);
    let brief = narrow(&scene, &["cap", "attenuate", &part, "--for", "1s"]);
    let data = text_of(&scene.strange_file("data", b"data"));
    assert_fails(&scene.strange_nasd(&["cp", &data, &part]), "does not allow writing");
    for wider in [["--region", "8K+101"], ["--region", "0+1M"], ["--for", "0s"]] {
        let mut arguments = vec!["cap", "attenuate", &part];
        arguments.extend(wider);
        assert!(!scene.strange_nasd(&arguments).status.success(), "{wider:?}");
    }
    assert_fails(&scene.strange_nasd(&["cap", "attenuate", &part, "--write"]), "allows");
    // The drive's clock may be a second ahead when it has just started.
    std::thread::sleep(Duration::from_millis(3000));
    assert_fails(&scene.strange_nasd(&["cat", &brief]), "the URL was good until");
    // Nobody is asked for that.
    scene.cell.stop();
    let offline = narrow(&scene, &["cap", "attenuate", &url, "--read"]);
    scene.cell.restart();
    assert!(scene.strange_nasd(&["cat", &offline]).stdout == contents[4096..12_288]);
}

#[test]
fn a_url_for_writing_writes_what_fits() {
    let scene = Scene::new();
    scene.file("f", b"before");
    let url = scene.owner(&["cap", "mint", "main:/f", "--write"]);
    let contents = noise(5, (3 << 20) + 1);
    let new = text_of(&scene.strange_file("new", &contents));
    let written = scene.strange_nasd(&["cp", &new, &url]);
    assert!(written.status.success(), "{}", text(&written));
    assert!(scene.owner(&["stat", "main:/f", "--json"]).contains(&contents.len().to_string()));
    let back = scene.cell.nasd(&["cat", "main:/f"]).stdout;
    assert!(back == contents, "{} bytes", back.len());
    assert_fails(&scene.strange_nasd(&["cat", &url]), "does not allow reading");
    let short = text_of(&scene.strange_file("short", b"short"));
    assert_fails(&scene.strange_nasd(&["cp", &short, &url]), "can't make a file shorter");
    let region = scene.owner(&["cap", "mint", "main:/f", "--write", "--region", "10+5"]);
    assert!(scene.strange_nasd(&["cp", &short, &region]).status.success());
    assert_fails(&scene.strange_nasd(&["cp", &new, &region]), "allows 5");
    let back = scene.cell.nasd(&["cat", "main:/f"]).stdout;
    assert!(back[10..15] == *b"short" && back[15..] == contents[15..], "only what was allowed");
}

#[test]
fn what_is_revoked_is_of_no_use_and_the_owner_goes_on() {
    let scene = Scene::new();
    scene.file("f", b"contents");
    scene.file("other", b"other");
    let mint = |name: &str| scene.owner(&["cap", "mint", &format!("main:/{name}"), "--read"]);
    let (url, second, other) = (mint("f"), mint("f"), mint("other"));
    let narrowed = scene.owner(&["cap", "attenuate", &url, "--region", "0+4"]);
    scene.owner(&["cap", "revoke", "main:/f"]);
    for revoked in [&url, &second, &narrowed] {
        assert_fails(&scene.strange_nasd(&["cat", revoked]), "revoked");
    }
    assert_eq!(scene.strange_nasd(&["cat", &other]).stdout, b"other");
    assert_eq!(fs::read(scene.cell.path("f")).unwrap(), b"contents", "the mount goes on");
    let new = mint("f");
    assert_eq!(scene.strange_nasd(&["cat", &new]).stdout, b"contents");
    // By the capability itself, for whoever may.
    scene.owner(&["cap", "revoke", &new]);
    assert_fails(&scene.strange_nasd(&["cat", &new]), "revoked");
    assert!(!scene.strange_nasd(&["cap", "revoke", &other]).status.success());
    fs::remove_file(scene.cell.path("other")).unwrap();
    // The object goes a moment after its last name.
    let gone = || !scene.strange_nasd(&["cat", &other]).status.success();
    support::wait_until("the object is gone", gone);
    assert_fails(&scene.strange_nasd(&["cat", &other]), "the file is gone");
}

#[test]
fn more_than_there_is_to_give_is_told() {
    let scene = Scene::new();
    scene.file("f", b"contents");
    let output = scene.cell.nasd(&["cap", "mint", "main:/f", "--read", "--for", "30d"]);
    assert!(output.status.success(), "{}", text(&output));
    let note = String::from_utf8(output.stderr).unwrap();
    assert!(note.contains("for 1 d instead of 30 d"), "{note}");
    for (arguments, words) in [
        (vec!["cap", "mint", "main:/f"], "--read, --write or both"),
        (vec!["cap", "mint", "main:/", "--read"], "directory"),
        (vec!["cap", "mint", "main:/nothing", "--read"], "nothing"),
        (vec!["cap", "mint", "nothing", "--read"], "VOLUME:/path"),
        (vec!["cap", "show", "nothing"], "is no capability"),
        (vec!["cat", "nasd://host:1/x#y"], "is no capability"),
        (vec!["cp", "nasd://a", "nasd://b"], "this machine"),
    ] {
        let output = scene.cell.nasd(&arguments);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(text(&output).contains(words), "{arguments:?}: {}", text(&output));
    }
    let private = scene.owner(&["cap", "mint", "main:/f", "--read", "--private"]);
    assert_eq!(scene.strange_nasd(&["cat", &private]).stdout, b"contents");
    let bare = scene.owner(&["cap", "mint", "main:/f", "--read", "--text"]);
    assert!(bare.starts_with("nasdcap1."));
    assert!(scene.strange_nasd(&["cap", "show", &bare]).status.success());
    assert_fails(&scene.strange_nasd(&["cat", &bare]), "");
}
