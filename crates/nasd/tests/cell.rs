//! What a user does with a cell: copy trees in and out, mount again, use the commands.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::process::Stdio;
use support::{CellOptions, TestCell, make_tree, nasd, noise, scratch, shell, text};

#[test]
fn a_tree_of_many_files_comes_back_the_same() {
    let source = scratch();
    make_tree(source.path(), 5_200);
    let mut cell = TestCell::start(&CellOptions { drives: 4, ..CellOptions::default() });
    let copy = cell.path("tree");
    shell("cp -a \"$1\" \"$2\"", &[source.path(), &copy]);
    shell("diff -r --no-dereference \"$1\" \"$2\"", &[source.path(), &copy]);
    let list = "cd \"$1\" && find . -printf '%P %y %m %n %s %l %T@\\n' | sed 's/ d \\(.*\\) [0-9]* \\([0-9]*\\)  / d \\1 \\2 /' | grep -v ' d ' | sort";
    assert_eq!(shell(list, &[source.path()]), shell(list, &[&copy]), "metadata differs");

    cell.stop();
    cell.restart();
    shell("diff -r --no-dereference \"$1\" \"$2\"", &[source.path(), &copy]);
    shell("rm -r \"$1\" && test -z \"$(ls -A \"$2\")\"", &[&copy, &cell.mountpoint()]);
}

#[test]
fn a_big_file_is_equal_after_a_new_mount() {
    let mut cell = TestCell::start(&CellOptions { size: "768M", ..CellOptions::default() });
    let big = cell.path("big");
    let bytes = noise(7, 320 << 20);
    fs::write(&big, &bytes).unwrap();
    cell.stop();
    cell.restart();
    assert!(fs::read(&big).unwrap() == bytes, "the file differs");
}

#[test]
fn no_data_passes_the_manager() {
    let cell = TestCell::start(&CellOptions::default());
    fs::write(cell.path("file"), noise(1, 3 << 20)).unwrap();
    // What the mount has in memory would be read from there.
    fs::File::open(cell.path("file")).unwrap().sync_all().unwrap();
    shell("dd if=\"$1\" of=/dev/null bs=1M iflag=direct", &[&cell.path("file")]);
    let status = cell.nasd(&["status", "--json"]);
    assert!(status.status.success(), "{}", text(&status));
    let facts: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(facts["bytes"]["manager"], 0);
    // Measured on the manager's sockets: all that it exchanged is far less than the data.
    let manager = &facts["managers"][0];
    let exchanged = manager["client_bytes_received"].as_u64().unwrap()
        + manager["client_bytes_sent"].as_u64().unwrap();
    assert!(exchanged > 0 && exchanged < 100_000, "{facts}");
    assert!(facts["bytes"]["direct"].as_u64().unwrap() >= 6 << 20, "{facts}");
    assert_eq!(facts["drives"].as_array().unwrap().len(), 2);
}

#[test]
fn new_files_spread_over_the_drives() {
    let cell = TestCell::start(&CellOptions { drives: 4, size: "128M", ..CellOptions::default() });
    for index in 0..64 {
        fs::write(cell.path(&format!("f{index}")), noise(index, 200_000)).unwrap();
        fs::File::open(cell.path(&format!("f{index}"))).unwrap().sync_all().unwrap();
    }
    let status = cell.nasd(&["status", "--json"]);
    let facts: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    for drive in facts["drives"].as_array().unwrap() {
        assert!(drive["used_bytes"].as_u64().unwrap() > 1_000_000, "one drive is idle: {facts}");
    }
}

#[test]
fn file_operations_behave_as_on_a_disk() {
    let cell = TestCell::start(&CellOptions::default());
    let file = cell.path("a");
    let mut open = fs::OpenOptions::new()
        .create(true)
        .read(true)
        .write(true)
        .truncate(true)
        .open(&file)
        .unwrap();
    open.write_all(b"hello world").unwrap();
    open.seek(SeekFrom::Start(6)).unwrap();
    let mut rest = String::new();
    open.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "world");

    // A hole, then a cut, then an extension: what was cut never reappears.
    open.write_all_at(b"far", 1 << 20).unwrap();
    open.set_len(8).unwrap();
    open.set_len(100).unwrap();
    let mut bytes = Vec::new();
    open.seek(SeekFrom::Start(0)).unwrap();
    open.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, [b"hello wo".as_slice(), &[0; 92]].concat());

    // Rename over an open file, and an unlinked file that stays readable.
    fs::write(cell.path("b"), "new").unwrap();
    fs::rename(cell.path("b"), &file).unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "new");
    let mut doomed = fs::File::open(&file).unwrap();
    fs::remove_file(&file).unwrap();
    let mut still = String::new();
    doomed.read_to_string(&mut still).unwrap();
    assert_eq!(still, "new");
    assert!(!file.exists());
}

#[test]
fn links_modes_times_and_errors_are_as_on_a_disk() {
    let cell = TestCell::start(&CellOptions::default());
    fs::write(cell.path("c"), "x").unwrap();
    fs::hard_link(cell.path("c"), cell.path("d")).unwrap();
    assert_eq!(fs::metadata(cell.path("c")).unwrap().nlink(), 2);
    assert_eq!(
        fs::metadata(cell.path("c")).unwrap().ino(),
        fs::metadata(cell.path("d")).unwrap().ino()
    );
    fs::set_permissions(cell.path("c"), fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(fs::metadata(cell.path("d")).unwrap().mode() & 0o7777, 0o640);
    shell("touch -d '2001-02-03 04:05:06.789' \"$1\"", &[&cell.path("c")]);
    assert_eq!(fs::metadata(cell.path("c")).unwrap().mtime_nsec(), 789_000_000);

    // Errors are the right ones.
    fs::create_dir(cell.path("dir")).unwrap();
    fs::write(cell.path("dir/x"), "").unwrap();
    let kind = |result: std::io::Result<()>| result.unwrap_err().kind();
    assert_eq!(kind(fs::remove_dir(cell.path("dir"))), std::io::ErrorKind::DirectoryNotEmpty);
    assert_eq!(kind(fs::remove_file(cell.path("none"))), std::io::ErrorKind::NotFound);
    assert_eq!(kind(fs::create_dir(cell.path("dir"))), std::io::ErrorKind::AlreadyExists);
    let long = "n".repeat(256);
    assert_eq!(kind(fs::write(cell.path(&long), "")), std::io::ErrorKind::InvalidFilename);
    fs::write(cell.path(&"n".repeat(255)), "").unwrap();
}

#[test]
fn another_user_gets_what_the_mode_allows() {
    let cell = TestCell::start(&CellOptions::default());
    // The way to the mount must be open for the other user.
    shell("chmod 755 \"$1\"", &[cell.directory.path()]);
    fs::write(cell.path("secret"), "s").unwrap();
    fs::set_permissions(cell.path("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(cell.path("open"), "o").unwrap();
    fs::set_permissions(cell.path("open"), fs::Permissions::from_mode(0o644)).unwrap();
    let as_other = |line: &str| {
        let mut command = std::process::Command::new("setpriv");
        command.args(["--reuid", "12345", "--regid", "12345", "--clear-groups", "sh", "-c", line]);
        command.current_dir(cell.mountpoint());
        support::finish(command)
    };
    assert_eq!(as_other("cat open").stdout, b"o");
    assert!(!as_other("cat secret").status.success());
    assert!(!as_other("echo x > open").status.success());
    assert!(!as_other("touch new").status.success());
    assert!(!as_other("chmod 777 open").status.success());
}

#[test]
fn the_commands_work_without_a_mount() {
    let cell = TestCell::start(&CellOptions::default());
    let local = scratch();
    make_tree(&local.path().join("tree"), 60);
    let tree = local.path().join("tree");
    let tree = tree.to_str().unwrap();
    let ok = |arguments: &[&str]| {
        let output = cell.nasd(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    ok(&["mkdir", "-p", "main:/x/y"]);
    ok(&["cp", "-r", tree, "main:/x/y/"]);
    let listing = ok(&["ls", "main:/x/y/tree"]);
    assert_eq!(listing.lines().count(), 40, "{listing}");
    let back = local.path().join("back");
    ok(&["cp", "-r", "main:/x/y/tree", back.to_str().unwrap()]);
    shell("diff -r --no-dereference \"$1\" \"$2\"", &[&local.path().join("tree"), &back]);
    // What the commands wrote, the mount shows.
    shell(
        "diff -r --no-dereference \"$1\" \"$2\"",
        &[&local.path().join("tree"), &cell.path("x/y/tree")],
    );

    fs::write(cell.path("note"), "from the mount\n").unwrap();
    assert_eq!(ok(&["cat", "main:/note"]), "from the mount\n");
    let facts: serde_json::Value =
        serde_json::from_str(&ok(&["stat", "main:/note", "--json"])).unwrap();
    assert_eq!(facts["size"], 15);
    ok(&["rm", "main:/note"]);
    ok(&["rm", "-r", "--yes", "main:/x"]);
    assert_eq!(ok(&["ls", "main:/"]), "");

    for (arguments, words) in [
        (vec!["cat", "main:/nothing"], "nothing"),
        (vec!["ls", "other:/"], "other"),
        (vec!["cat", "no-volume"], "VOLUME:/path"),
        (vec!["rm", "main:/"], "root"),
        (vec!["cp", "main:/a", "main:/b"], "within"),
        (vec!["cp", tree, "main:/t"], "add -r"),
    ] {
        let output = cell.nasd(&arguments);
        assert!(!output.status.success(), "{arguments:?} succeeded");
        assert!(text(&output).contains(words), "{arguments:?}: {}", text(&output));
    }
}

#[test]
fn up_detaches_and_down_stops() {
    let directory = scratch();
    let cell = directory.path().join("cell");
    let port = support::free_ports(3).to_string();
    let up = |extra: &[&str]| {
        let mut command = support::nasd();
        command.arg("up").arg(&cell).args(["--drives", "2", "--size", "64M", "--base-port", &port]);
        command.args(extra);
        support::finish(command)
    };
    let down = || {
        let mut command = support::nasd();
        command.arg("down").arg(&cell);
        support::finish(command)
    };
    let first = up(&["--detach"]);
    assert!(first.status.success() && first.stdout == b"ready\n", "{}", text(&first));
    let second = up(&["--detach"]);
    assert!(
        !second.status.success() && text(&second).contains("running already"),
        "{}",
        text(&second)
    );
    let third = up(&[]);
    assert!(
        !third.status.success() && text(&third).contains("running already"),
        "{}",
        text(&third)
    );
    let stopped = down();
    assert!(stopped.status.success(), "{}", text(&stopped));
    let again = down();
    assert!(!again.status.success() && text(&again).contains("not running"), "{}", text(&again));
}

#[test]
fn drives_that_are_added_at_the_same_time_are_all_of_the_cell() {
    let mut cell = TestCell::start(&CellOptions {
        drives: 1,
        size: "64M",
        cache: "32M",
        ..CellOptions::default()
    });
    cell.stop();
    let adding: Vec<_> = (0..6)
        .map(|number| {
            let mut command = nasd();
            command.args(["drive", "format", "--size", "64M", "--cell"]).arg(cell.cell());
            command.arg(cell.directory.path().join(format!("added-{number}")));
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        })
        .collect();
    for mut adding in adding {
        assert!(support::wait_for_exit(&mut adding).success());
    }
    let config: toml::Table =
        fs::read_to_string(cell.cell().join("cell.toml")).unwrap().parse().unwrap();
    let drives = config["drive"].as_array().unwrap();
    let different = |field: &str| {
        let values: Vec<String> = drives.iter().map(|drive| drive[field].to_string()).collect();
        let all: std::collections::BTreeSet<_> = values.iter().collect();
        assert_eq!(all.len(), 7, "{field}: {values:?}");
    };
    ["index", "id", "address", "device"].into_iter().for_each(different);
    // Each with its keys.
    let shown = cell.nasd(&["key", "show", "--json"]);
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    let shown = shown["drives"].as_array().unwrap();
    assert_eq!(shown.len(), 7);
    for drive in shown {
        assert!(drive["index"].is_u64() && drive["master_key_here"] == true, "{drive}");
    }
}
