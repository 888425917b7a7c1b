//! Several volumes of one cell: made, mounted, filled, resized and removed while the cell runs.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use support::lines::{Mounted, ask, done, facts};
use support::workers::{Gone, wait_for_state};
use support::{CellOptions, TestCell, noise, text, wait_until};

fn cell() -> TestCell {
    TestCell::start(&CellOptions {
        drives: 2,
        size: "256M",
        cache: "32M",
        ..CellOptions::default()
    })
}

/// A command that must fail, and what it said.
fn refused(cell: &TestCell, line: &str) -> String {
    let output = ask(cell, line);
    assert!(!output.status.success(), "{line}: {}", text(&output));
    text(&output)
}

/// Mounts a volume beside the first one.
fn mounted(cell: &TestCell, volume: &str) -> Mounted {
    let at = cell.directory.path().join(format!("mnt-{volume}"));
    fs::create_dir_all(&at).unwrap();
    done(cell, &format!("mount {} --volume {volume} --detach", at.display()));
    Mounted(at)
}

fn unmounted(cell: &TestCell, at: Mounted) {
    done(cell, &format!("umount {}", at.0.display()));
}

/// Writes a file and has it made durable.
fn write(path: PathBuf, seed: u64, length: usize) -> std::io::Result<()> {
    let mut file = fs::File::create(path)?;
    file.write_all(&noise(seed, length))?;
    file.sync_all()
}

#[test]
fn a_volume_is_made_used_and_removed_while_the_cell_runs() {
    let mut cell = cell();
    fs::write(cell.path("file"), "of main").unwrap();
    done(&cell, "volume create scratch --quota 32M");
    assert!(refused(&cell, "volume create scratch").contains("already"));
    assert!(refused(&cell, "volume create a:b").contains("no name of a volume"));
    let at = mounted(&cell, "scratch");
    fs::write(at.join("file"), "of scratch").unwrap();
    assert_eq!(fs::read_to_string(cell.path("file")).unwrap(), "of main");
    assert_eq!(
        done(&cell, "cat scratch:/file main:/file scratch:/file"),
        "of scratchof mainof scratch"
    );
    assert!(refused(&cell, "ls nowhere:/").contains("no volume `nowhere`"));
    assert!(refused(&cell, "mount /mnt --volume nowhere").contains("no volume `nowhere`"));

    let list = facts(&cell, "volume list");
    let names: Vec<&str> =
        list["volumes"].as_array().unwrap().iter().map(|v| v["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["main", "scratch"]);
    assert!(list["volumes"][1]["total_bytes"] == 32 << 20, "{list}");
    let partitions = done(&cell, "partition list 1");
    assert!(partitions.contains("(volume scratch)"), "{partitions}");
    assert!(refused(&cell, "partition remove 1 2 --yes").contains("nasd volume remove"));
    assert!(done(&cell, "key show").contains("with volume scratch"));
    assert!(refused(&cell, "key set-working 1 2").contains("nasd key rotate"));

    // It is there after a restart, as it was.
    unmounted(&cell, at);
    cell.stop();
    refused(&cell, "volume remove scratch --yes");
    cell.restart();
    let at = mounted(&cell, "scratch");
    assert_eq!(fs::read_to_string(at.join("file")).unwrap(), "of scratch");
    unmounted(&cell, at);

    assert!(refused(&cell, "volume remove main --yes").contains("first volume"));
    assert!(refused(&cell, "volume remove scratch --yes").contains("--with-files"));
    let plan = refused(&cell, "volume remove scratch --with-files");
    assert!(plan.contains("drive 2: partition p2") && plan.contains("--yes"), "{plan}");
    done(&cell, "volume remove scratch --with-files --yes");
    assert!(refused(&cell, "ls scratch:/").contains("no volume"));
    assert!(!done(&cell, "partition list 2").contains("p2"));
    assert!(!done(&cell, "key show").contains("scratch"));
    // Its number is not used again.
    done(&cell, "volume create scratch");
    assert!(done(&cell, "volume show scratch").contains("p3"));
    assert_eq!(done(&cell, "ls scratch:/"), "");
    cell.stop();
}

#[test]
fn the_files_of_a_volume_lie_on_the_drives_that_are_named() {
    let mut cell = cell();
    let said = refused(&cell, "volume create other --drives 2,3");
    assert!(said.contains("can't lie on drive 3, but on: 1, 2"), "{said}");
    for personality in ["nfs", "afs"] {
        done(&cell, &format!("volume create {personality} --personality {personality} --drives 2"));
        let parts = facts(&cell, &format!("volume show {personality}"))["parts"].clone();
        let drives: Vec<_> = parts.as_array().unwrap().iter().map(|part| &part["index"]).collect();
        assert_eq!(drives, ["2"]);
        let at = mounted(&cell, personality);
        for number in 0..8 {
            write(at.join(&format!("file{number}")), number, 10_000).unwrap();
            let told = facts(&cell, &format!("stat {personality}:/file{number}"));
            assert_eq!(told["drive"], parts[0]["drive"]);
        }
        unmounted(&cell, at);
        done(&cell, &format!("volume resize {personality} --quota 16M"));
        done(&cell, &format!("volume remove {personality} --with-files --yes"));
    }
    cell.stop();
}

#[test]
fn the_quota_of_a_volume_with_callbacks_is_the_bytes_of_its_files() {
    const MIB: usize = 1 << 20;
    let mut cell = cell();
    done(&cell, "volume create shared --personality afs --quota 8M");
    let at = mounted(&cell, "shared");
    let free = |at: &Mounted| {
        let told = rustix::fs::statvfs(&at.0).unwrap();
        (told.f_blocks * told.f_frsize, told.f_bavail * told.f_frsize)
    };
    assert_eq!(free(&at), (8 << 20, 8 << 20));
    write(at.join("first"), 1, 5 * MIB).unwrap();
    assert_eq!(free(&at).1, 3 << 20);
    let quota = done(&cell, "volume quota shared");
    assert_eq!(quota, "volume shared: 8.0 MiB, room for 3.0 MiB\n");
    let full = write(at.join("second"), 2, 4 * MIB).unwrap_err();
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull, "{full}");
    write(at.join("second"), 2, 3 * MIB).unwrap();
    assert_eq!(free(&at).1, 0);
    let list = facts(&cell, "volume list");
    assert!(list["volumes"][1]["total_bytes"] == 8 << 20, "{list}");
    assert!(list["volumes"][1]["free_bytes"] == 0, "{list}");
    let shown = facts(&cell, "volume show shared");
    assert!(
        shown["quota_bytes"] == 8 << 20 && shown["parts"][0]["quota_bytes"].is_null(),
        "{shown}"
    );

    // What is there can be written over, and removed, also when it may have less than it has.
    done(&cell, "volume quota shared 6M");
    assert_eq!(free(&at), (6 << 20, 0));
    let quota = done(&cell, "volume quota shared");
    assert_eq!(quota, "volume shared: 6.0 MiB, room for 0 B\n");
    fs::OpenOptions::new().write(true).open(at.join("first")).unwrap().write_all(b"new").unwrap();
    let full = write(at.join("third"), 3, 1).unwrap_err();
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull, "{full}");
    fs::remove_file(at.join("first")).unwrap();
    wait_until("it is removed", || free(&at).1 == 3 << 20);
    write(at.join("third"), 3, 3 * MIB).unwrap();
    unmounted(&cell, at);
    cell.stop();
    cell.restart();
    let at = mounted(&cell, "shared");
    wait_until("all is counted", || free(&at) == (6 << 20, 0));
    done(&cell, "volume resize shared --quota none");
    write(at.join("fourth"), 4, 9 * MIB).unwrap();
    done(&cell, "volume resize shared --quota 16M");
    wait_until("all is counted", || free(&at) == (16 << 20, 1 << 20));
    assert!(write(at.join("fifth"), 5, MIB + 1).is_err());
    unmounted(&cell, at);
    cell.stop();
}

/// Bytes that the component drives of a striped cell have in use, all together.
fn used(cell: &TestCell) -> u64 {
    let told = facts(cell, "status");
    let drives = told["drives"].as_array().unwrap();
    let components = drives.iter().flat_map(|drive| drive["components"].as_array()).flatten();
    components.map(|component| component["used_bytes"].as_u64().unwrap()).sum()
}

#[test]
fn each_volume_may_be_spread_otherwise() {
    const LENGTH: usize = 8 << 20;
    let cell = TestCell::start(&CellOptions::striped(3, "raid0 --stripe-unit 64K"));
    for (wrong, word) in [
        ("--stripe raid1 --width 4", "only 3 drives"),
        ("--stripe raid1 --copies 4", "at most as often"),
        ("--stripe raid0 --unit 1000", "multiple"),
        ("--stripe raid0 --copies 2", "raid0 keeps each byte once"),
        ("--stripe none --width 2", "choose --stripe"),
        ("--width 2", "--stripe"),
        ("--personality afs --stripe raid1", "one drive each"),
        ("--personality afs --stripe raid0", "one drive each"),
    ] {
        let said = refused(&cell, &format!("volume create wrong {wrong}"));
        assert!(said.contains(word), "{wrong}: {said}");
        assert!(!done(&cell, "volume list").contains("wrong"), "{wrong}: something was made");
    }
    done(&cell, "volume create safe --stripe raid1 --copies 3 --unit 16K --quota 32M");
    done(&cell, "volume create fast --stripe raid0 --width 2 --unit 16K");
    let (safe, fast) = (mounted(&cell, "safe"), mounted(&cell, "fast"));
    for (at, copies) in [(&safe, 3), (&fast, 1)] {
        let before = used(&cell);
        write(at.join("file"), copies, LENGTH).unwrap();
        let taken = (used(&cell) - before) as f64 / LENGTH as f64;
        assert!((taken - copies as f64).abs() < 0.2, "{taken} for {copies} copies");
    }
    // What a volume holds does not depend on how often it is kept.
    let of_safe = rustix::fs::statvfs(&safe.0).unwrap();
    assert_eq!(of_safe.f_blocks * of_safe.f_frsize, 32 << 20);
    write(safe.join("more"), 7, 20 << 20).unwrap();
    unmounted(&cell, safe);
    // Two of three drives may be away.
    let gone = [1, 2].map(|index| Gone::new(&cell, index));
    (1..3).for_each(|index| wait_for_state(&cell, index, "out"));
    let safe = mounted(&cell, "safe");
    assert!(fs::read(safe.join("file")).unwrap() == noise(3, LENGTH));
    gone.into_iter().for_each(Gone::come_back);
    assert!(fs::read(fast.join("file")).unwrap() == noise(1, LENGTH));
}

#[test]
fn a_full_volume_can_be_emptied_however_it_is_spread() {
    let cell = TestCell::start(&CellOptions::striped(3, "raid0 --stripe-unit 64K"));
    for (name, spread) in [
        ("plain", "--stripe none"),
        ("fast", "--stripe raid0 --unit 64K"),
        ("safe", "--stripe raid1 --unit 64K"),
        ("safest", "--stripe raid1 --copies 3 --unit 16K"),
    ] {
        done(&cell, &format!("volume create {name} {spread} --quota 24M"));
        let at = mounted(&cell, name);
        let file = |number: u64| at.join(&format!("file-{number}"));
        let fill = |length: usize, numbers: std::ops::Range<u64>| {
            let full = numbers.into_iter().find_map(|it| write(file(it), it, length).err());
            assert_eq!(full.unwrap().raw_os_error(), Some(libc::ENOSPC), "{name}");
        };
        // To the last block.
        fill(1 << 20, 0..1000);
        fill(4096, 1000..9000);
        unmounted(&cell, at);
        let at = mounted(&cell, name);
        for entry in fs::read_dir(&at.0).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
        // What was removed makes room for as much.
        let room = || rustix::fs::statvfs(&at.0).unwrap().f_bavail * 4096 > 20 << 20;
        wait_until(&format!("{name} has room again"), room);
        write(at.join("again"), 1, 6 << 20).unwrap();
        assert!(fs::read(at.join("again")).unwrap() == noise(1, 6 << 20), "{name}");
    }
}

#[test]
fn a_cell_without_a_striping_manager_spreads_nothing() {
    let cell = cell();
    let said = refused(&cell, "volume create striped --stripe raid0");
    assert!(said.contains("nasd up DIR --stripe raid0"), "{said}");
    assert!(!done(&cell, "volume list").contains("striped"));
}

#[test]
fn a_quota_is_what_a_volume_holds() {
    let mut cell = cell();
    done(&cell, "volume create small --quota 16M");
    let at = mounted(&cell, "small");
    let df = || {
        let at = rustix::fs::statvfs(&at.0).unwrap();
        (at.f_blocks * at.f_frsize, at.f_bavail * at.f_frsize)
    };
    assert_eq!(df().0, 16 << 20);
    assert!(df().1 > 15 << 20, "{:?}", df());
    let full =
        (0..40).find_map(|index| write(at.join(&format!("file-{index}")), index, 1 << 20).err());
    assert_eq!(full.unwrap().raw_os_error(), Some(libc::ENOSPC));
    // The other volume has room.
    write(cell.path("beside"), 1, 20 << 20).unwrap();
    done(&cell, "volume resize small --quota 64M");
    for index in 40..60 {
        write(at.join(&format!("file-{index}")), index, 1 << 20).unwrap();
    }
    assert_eq!(df().0, 64 << 20);
    let show = facts(&cell, "volume show small");
    assert!(show["quota_bytes"] == 64 << 20 && show["parts"][1]["reachable"] == true, "{show}");
    let quota = facts(&cell, "volume quota small");
    assert!(quota["quota_bytes"] == 64 << 20 && quota["free_bytes"].as_u64() < Some(44 << 20));
    done(&cell, "volume quota small none");
    assert!(facts(&cell, "volume quota small")["quota_bytes"].is_null());
    assert!(!ask(&cell, "volume quota none-such").status.success());
    assert!(df().0 > 300 << 20);
    assert!(facts(&cell, "volume show small")["quota_bytes"].is_null());
    // Of the first volume too.
    done(&cell, "volume resize main --quota 40M");
    let status = rustix::fs::statvfs(cell.mountpoint()).unwrap();
    assert_eq!(status.f_blocks * status.f_frsize, 40 << 20);
    unmounted(&cell, at);
    cell.stop();
}

#[test]
fn keys_of_all_volumes_change_and_survive() {
    let mut cell = cell();
    done(&cell, "volume create scratch");
    let at = mounted(&cell, "scratch");
    fs::write(at.join("before"), "1").unwrap();
    let url = done(&cell, "cap mint scratch:/before --read --for 1h");
    assert_eq!(done(&cell, &format!("cat {}", url.trim())), "1");
    done(&cell, "key rotate --now");
    refused(&cell, &format!("cat {}", url.trim()));
    fs::write(at.join("after"), "2").unwrap();
    // A drive of the cell gets other keys, and loses nothing.
    done(&cell, "key readmit 2");
    fs::write(at.join("last"), "3").unwrap();
    unmounted(&cell, at);
    cell.stop();
    cell.restart();
    assert_eq!(done(&cell, "cat scratch:/before scratch:/after scratch:/last"), "123");
    cell.stop();
}

#[test]
fn what_an_interrupted_command_has_left_can_be_removed() {
    let mut cell = cell();
    done(&cell, "volume create half");
    // As if it had been killed before the last step, with a part on one drive alone.
    let path = cell.cell().join("cell.toml");
    let config = fs::read_to_string(&path).unwrap();
    fs::write(&path, config.replace("name = \"half\"", "name = \"half\"\nunfinished = true"))
        .unwrap();
    cell.stop();
    cell.restart();
    assert!(refused(&cell, "ls half:/").contains("no volume"));
    assert_eq!(facts(&cell, "volume list")["volumes"][1]["state"], "unfinished");
    assert!(refused(&cell, "volume create half").contains("already"));
    done(&cell, "volume remove half --yes");
    assert!(!fs::read_to_string(&path).unwrap().contains("half"));
    done(&cell, "volume create half");
    assert_eq!(done(&cell, "ls half:/"), "");
    cell.stop();
}

/// Room and free room of the volume that a path is in, in bytes.
fn room(path: &Path) -> (u64, u64) {
    let told = rustix::fs::statvfs(path).unwrap();
    (told.f_blocks * told.f_frsize, told.f_bavail * told.f_frsize)
}

fn errno<T: std::fmt::Debug>(outcome: std::io::Result<T>) -> i32 {
    outcome.unwrap_err().raw_os_error().unwrap()
}

/// A cell in whose first volume one with callbacks is seen, and in that one another without.
fn nested() -> TestCell {
    let cell = cell();
    done(&cell, "volume create users --personality afs --quota 8M");
    done(&cell, "volume create scratch --quota 32M");
    assert_eq!(
        done(&cell, "volume attach main:/users users"),
        "main:/users leads to volume users\n"
    );
    done(&cell, "volume attach main:/users/scratch scratch");
    cell
}

#[test]
fn volumes_are_seen_in_others_with_their_own_rules_and_room() {
    let mut cell = nested();
    let (users, scratch) = (cell.path("users"), cell.path("users/scratch"));
    fs::write(users.join("file"), "of users").unwrap();
    write(scratch.join("file"), 1, 1 << 20).unwrap();
    assert_eq!(room(&users).0, 8 << 20);
    assert_eq!(room(&users), room(&users.join("file")));
    assert!(room(&scratch).0 == 32 << 20 && room(&cell.path(".")).0 > 64 << 20);
    let full = write(users.join("full"), 2, 9 << 20).unwrap_err();
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull, "{full}");
    fs::remove_file(users.join("full")).unwrap();
    write(scratch.join("more"), 2, 9 << 20).unwrap();
    assert_eq!(errno(fs::rename(users.join("file"), cell.path("file"))), libc::EXDEV);
    assert_eq!(errno(fs::hard_link(users.join("file"), scratch.join("link"))), libc::EXDEV);
    assert_eq!(errno(fs::remove_dir(&users)), libc::EBUSY);

    // With callbacks, stores are seen at once, also by who has the file open, whatever it is seen in.
    let at = mounted(&cell, "users");
    let mut reader = fs::File::open(users.join("file")).unwrap();
    for round in 10..40 {
        let (writer, other) = if round % 2 == 0 { (&users, &at.0) } else { (&at.0, &users) };
        fs::write(writer.join("file"), format!("round {round}")).unwrap();
        assert_eq!(fs::read_to_string(other.join("file")).unwrap(), format!("round {round}"));
        let mut text = String::new();
        reader.seek(SeekFrom::Start(0)).unwrap();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, format!("round {round}"));
        let name = format!("name-{round}");
        fs::create_dir(writer.join(&name)).unwrap();
        assert!(other.join(&name).exists());
        fs::remove_dir(other.join(&name)).unwrap();
        assert!(!writer.join(&name).exists());
        let names = |at: &Path| fs::read_dir(at).unwrap().count();
        assert_eq!((names(writer), names(other)), (2, 2));
    }
    // The reverse: one without callbacks in one with.
    write(at.join("scratch/via"), 3, 300_000).unwrap();
    assert!(fs::read(scratch.join("via")).unwrap() == noise(3, 300_000));
    assert_eq!(room(&at.join("scratch")), room(&scratch));
    // Nobody forgets that when the file manager is another one, or the cell was stopped.
    cell.kill_and_await("manager");
    assert_eq!(fs::read_to_string(users.join("file")).unwrap(), "round 39");
    drop(reader);
    unmounted(&cell, at);
    cell.stop();
    cell.restart();
    assert_eq!(fs::read_to_string(cell.path("users/file")).unwrap(), "round 39");
    assert!(fs::read(scratch.join("file")).unwrap() == noise(1, 1 << 20));
    assert!(done(&cell, "fsck main").contains("nothing is wrong"));
    cell.stop();
}

#[test]
fn commands_follow_mount_points_and_make_and_remove_them() {
    let mut cell = nested();
    fs::write(cell.path("plain"), "x").unwrap();
    let unknown = refused(&cell, "volume attach main:/nothing nothing");
    assert!(unknown.contains("no volume `nothing`"), "{unknown}");
    for taken in ["main:/plain", "main:/users"] {
        let text = refused(&cell, &format!("volume attach {taken} scratch"));
        assert!(text.contains("is there already"), "{text}");
    }
    let file = refused(&cell, "volume detach main:/plain");
    assert!(file.contains("no mount point") && file.contains("nasd rm"), "{file}");
    assert_eq!(fs::read_to_string(cell.path("plain")).unwrap(), "x");
    refused(&cell, "volume detach main:/nothing");

    let local = cell.directory.path().join("local");
    fs::create_dir(&local).unwrap();
    fs::write(local.join("f"), "from here").unwrap();
    done(&cell, &format!("cp -r {} main:/users/scratch/", local.display()));
    assert_eq!(
        done(&cell, "cat main:/users/scratch/local/f scratch:/local/f"),
        "from here".repeat(2)
    );
    assert_eq!(done(&cell, "ls main:/users/scratch"), "local/\n");
    done(&cell, "mkdir -p main:/users/scratch/a/b");
    assert_eq!(done(&cell, "ls scratch:/a"), "b/\n");
    assert_eq!(done(&cell, "ls main:/users/../"), "plain\nusers#\n");
    assert!(done(&cell, "ls -l main:/").contains("users# -> users:/"));
    let told = facts(&cell, "stat main:/users");
    assert_eq!((&told["type"], &told["volume"]), (&"mount point".into(), &"users".into()));
    assert_eq!(facts(&cell, "stat users:/")["type"], "directory");
    let out = cell.directory.path().join("out");
    let said = cell.nasd(&["cp", "-r", "main:/", out.to_str().unwrap()]);
    assert!(said.status.success() && text(&said).contains("mount points"), "{}", text(&said));
    assert!(out.join("plain").exists() && !out.join("users").exists());
    // What is given lists is the root that is seen there.
    assert!(
        refused(&cell, "acl set main:/users user:1002 none").contains("no access control list")
    );
    let negative = refused(&cell, "acl set main:/users user:1002 write --negative");
    assert!(negative.contains("let somebody in first"), "{negative}");
    done(&cell, "acl set main:/users anyuser read");
    assert!(done(&cell, "acl show users:/").contains("anyuser rl"));
    assert_eq!(done(&cell, "acl show main:/users"), done(&cell, "acl show users:/"));
    done(&cell, "acl remove main:/users");
    // Those that don't follow them say what to say instead.
    let far = refused(&cell, "grep from main:/users/scratch/local/f");
    assert!(far.contains("say scratch:/local/f") || far.contains("say users:/scratch"), "{far}");

    // Of a tree that is removed by a command, nothing goes of what is seen in it.
    done(&cell, "mkdir main:/tree");
    done(&cell, "volume attach main:/tree/users users");
    done(&cell, "rm -r --yes main:/tree");
    assert!(refused(&cell, "stat main:/tree").contains("no file of this name"));
    assert_eq!(done(&cell, "ls users:/"), "scratch#\n");
    assert!(done(&cell, "volume detach main:/users").contains("the volume is as it was"));
    assert_eq!(done(&cell, "cat scratch:/local/f"), "from here");
    wait_until("it is gone", || !cell.path("users").exists());
    cell.stop();
}

#[test]
fn a_volume_that_is_removed_where_it_is_seen_fails_there_alone() {
    let mut cell = nested();
    let (users, scratch) = (cell.path("users"), cell.path("users/scratch"));
    fs::write(users.join("file"), "stays").unwrap();
    let mut open = fs::File::create(scratch.join("file")).unwrap();
    open.write_all(b"lost").unwrap();
    open.sync_all().unwrap();
    done(&cell, "volume remove scratch --with-files --yes");
    let gone = |error: i32| matches!(error, libc::ENODEV | libc::ESTALE | libc::EIO);
    wait_until("it is gone", || match fs::read_dir(&scratch) {
        Ok(_) => false,
        refused => gone(errno(refused)),
    });
    assert!(gone(errno(fs::read(scratch.join("file")))));
    assert_eq!(fs::read_to_string(users.join("file")).unwrap(), "stays");
    assert!(refused(&cell, "ls main:/users/scratch").contains("no volume `scratch`"));
    assert_eq!(facts(&cell, "stat main:/users/scratch")["volume"], "scratch");
    // One that is made anew is another one, and is seen there.
    done(&cell, "volume create scratch");
    wait_until("another is seen", || fs::read_dir(&scratch).is_ok_and(|names| names.count() == 0));
    fs::write(scratch.join("new"), "new").unwrap();
    assert_eq!(done(&cell, "cat scratch:/new"), "new");
    drop(open);
    cell.stop();
}

#[test]
fn the_next_process_of_a_mount_has_the_volumes_that_are_seen_in_it() {
    let mut cell = nested();
    let at = mounted(&cell, "main");
    let deep = at.join("users/scratch");
    let mut files = [at.join("users/file"), deep.join("file")].map(|path| {
        let mut file = fs::File::options().create(true).append(true).read(true).open(path).unwrap();
        file.write_all(b"before").unwrap();
        file
    });
    done(&cell, &format!("mount {} --takeover --detach", at.0.display()));
    for file in &mut files {
        file.write_all(b" and after").unwrap();
        file.sync_all().unwrap();
        let mut text = String::new();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "before and after");
    }
    drop(files);
    assert_eq!(done(&cell, "cat users:/file scratch:/file"), "before and after".repeat(2));
    unmounted(&cell, at);
    cell.stop();
}

/// Keeps on changing a volume by a mount until it is dropped: pairs of files that are stored one after the other, and a
/// directory that moves.
struct Busy {
    stop: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<u64>>,
}

impl Busy {
    fn on(at: &Mounted) -> Busy {
        let stop = Arc::new(AtomicBool::new(false));
        fs::create_dir_all(at.join("here/inside")).unwrap();
        fs::write(at.join("here/inside/file"), "moves").unwrap();
        let pair = |number: u64| {
            let (first, second) =
                (at.join(&format!("{number}.1")), at.join(&format!("{number}.2")));
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                let mut round = 0;
                while !stop.load(Ordering::Relaxed) {
                    round += 1;
                    // Of several blocks, all of which say which round it is.
                    let bytes = vec![(round % 250) as u8; 20_000];
                    store(&first, &bytes);
                    store(&second, &bytes);
                }
                round
            })
        };
        let mut threads: Vec<_> = (0..3).map(pair).collect();
        let (here, there, stopping) = (at.join("here"), at.join("there"), Arc::clone(&stop));
        threads.push(std::thread::spawn(move || {
            let mut round = 0;
            while !stopping.load(Ordering::Relaxed) {
                round += 1;
                fs::rename(&here, &there).unwrap();
                fs::rename(&there, &here).unwrap();
            }
            round
        }));
        Busy { stop, threads }
    }

    /// How often each has done what it does.
    fn end(self) -> Vec<u64> {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    }

    /// What must be so in a volume at any moment.
    fn check(at: &Mounted, whole_stores: bool) {
        for number in 0..3 {
            let read = |which| fs::read(at.join(&format!("{number}.{which}"))).unwrap();
            let (first, second) = (read(1), read(2));
            let rounds = |bytes: &[u8]| {
                let mut rounds = bytes.to_vec();
                rounds.dedup();
                rounds
            };
            println!("pair {number}: {:?} {:?}", rounds(&first), rounds(&second));
            if whole_stores {
                assert!(first.len() == 20_000 && second.len() == 20_000, "half of a store");
                let (first, second) = (rounds(&first), rounds(&second));
                assert!(first.len() == 1 && second.len() == 1, "two stores in one file");
                let ahead = (u16::from(first[0]) + 250 - u16::from(second[0])) % 250;
                assert!(ahead <= 1, "{first:?} was stored before {second:?}");
            }
        }
        let places = ["here", "there"].map(|name| at.join(name).exists());
        assert!(places[0] != places[1], "{places:?}");
        let place = if places[0] { "here" } else { "there" };
        let moved = at.join(&format!("{place}/inside/file"));
        assert_eq!(fs::read_to_string(moved).unwrap(), "moves");
    }
}

/// Writes a file over at one stroke: a volume of the personality `nfs` could be copied between a cut and what is written then.
fn store(path: &PathBuf, bytes: &[u8]) {
    let opened = fs::OpenOptions::new().write(true).create(true).truncate(false).open(path);
    opened.unwrap().write_all(bytes).unwrap();
}

/// Bytes that are in use on all drives.
fn in_use(cell: &TestCell) -> u64 {
    let status = facts(cell, "status");
    let drives = status["drives"].as_array().unwrap().iter();
    drives.map(|drive| drive["used_bytes"].as_u64().unwrap()).sum()
}

fn assert_nothing_is_wrong(cell: &TestCell, volume: &str) {
    let found = ask(cell, &format!("fsck {volume}"));
    assert!(
        found.status.success() && text(&found).contains("nothing is wrong"),
        "{}",
        text(&found)
    );
}

/// The contents of all files under a directory.
fn tree(at: &Mounted) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![at.0.clone()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let short = path.strip_prefix(&at.0).unwrap().to_owned();
            let kind = fs::symlink_metadata(&path).unwrap();
            if kind.is_dir() {
                waiting.push(path);
            } else if kind.is_symlink() {
                let target = fs::read_link(&path).unwrap();
                found.insert(short, target.into_os_string().into_encoded_bytes());
            } else {
                found.insert(short, fs::read(&path).unwrap());
            }
        }
    }
    found
}

/// Makes files of all kinds, 24 MiB of data.
fn fill(at: &Mounted) {
    for number in 0..40 {
        let directory = at.join(&format!("d{}/e{}", number % 7, number % 3));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(format!("f{number}")), noise(number, 300 * number as usize))
            .unwrap();
    }
    write(at.join("large"), 1, 24 << 20).unwrap();
    fs::hard_link(at.join("large"), at.join("d0/also-large")).unwrap();
    std::os::unix::fs::symlink("large", at.join("link")).unwrap();
    let value = noise(9, 3000);
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(at.join("large"), "user.long", &value, flags).unwrap();
}

fn assert_read_only(cell: &TestCell, snapshot: &Mounted) {
    let read_only = |done: std::io::Result<()>| {
        assert_eq!(done.unwrap_err().kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    };
    read_only(fs::write(snapshot.join("large"), "x"));
    read_only(fs::create_dir(snapshot.join("new")));
    read_only(fs::remove_file(snapshot.join("link")));
    read_only(fs::rename(snapshot.join("link"), snapshot.join("other")));
    let refused = refused(cell, "rm monday:/link").to_lowercase();
    assert!(refused.contains("read-only"), "{refused}");
    let list = facts(cell, "volume list");
    let is_read_only = |at: usize| list["volumes"][at]["read_only"].as_bool().unwrap();
    assert!(!is_read_only(0) && !is_read_only(1) && is_read_only(2), "{list}");
    assert!(done(cell, "volume list").contains("read-only"));
    assert!(done(cell, "volume show monday").contains("read-only"));
}

/// Makes a snapshot of a volume that is changed all the time; what it has.
fn snapshot_under_load(cell: &TestCell, at: &Mounted, personality: &str) -> Mounted {
    let removed = fs::File::create_new(at.join("removed")).unwrap();
    fs::remove_file(at.join("removed")).unwrap();
    let busy = Busy::on(at);
    let is_stored = |number| {
        fs::metadata(at.join(&format!("{number}.2"))).is_ok_and(|told| told.len() == 20_000)
    };
    wait_until("pairs are there", || (0..3).all(is_stored));
    // Others store meanwhile, so that what is in use is not the same twice: the large file is more, by far.
    let before = in_use(cell);
    println!("{personality}: {}", done(cell, "volume snapshot work monday"));
    let grown = in_use(cell).saturating_sub(before);
    assert!(grown < 12 << 20, "the snapshot takes {grown} bytes");
    println!("{:?}", busy.end());
    drop(removed);
    let snapshot = mounted(cell, "monday");
    Busy::check(&snapshot, personality == "afs");
    assert!(fs::read(snapshot.join("large")).unwrap() == noise(1, 24 << 20));
    assert_eq!(fs::metadata(snapshot.join("large")).unwrap().nlink(), 2);
    let mut value = vec![0; 4000];
    let length = rustix::fs::getxattr(snapshot.join("large"), "user.long", &mut value).unwrap();
    assert!(value[..length] == noise(9, 3000));
    let times = |at: &Mounted| fs::metadata(at.join("d1/e1/f1")).unwrap().modified().unwrap();
    assert_eq!(times(&snapshot), times(at));
    snapshot
}

fn snapshots_of(personality: &str) {
    let mut cell = cell();
    done(&cell, &format!("volume create work --personality {personality}"));
    let at = mounted(&cell, "work");
    fill(&at);
    let snapshot = snapshot_under_load(&cell, &at, personality);
    let kept = tree(&snapshot);
    assert_read_only(&cell, &snapshot);
    // A clone of the snapshot is a volume of its own.
    done(&cell, "volume clone monday trial");
    let trial = mounted(&cell, "trial");
    assert!(tree(&trial) == kept);
    fs::write(trial.join("large"), "cut").unwrap();
    fs::remove_dir_all(trial.join("d2")).unwrap();
    fs::write(trial.join("d3/new"), noise(77, 100_000)).unwrap();
    // And the volume goes on.
    fs::remove_dir_all(at.join("d0")).unwrap();
    let large = fs::OpenOptions::new().write(true).open(at.join("large")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&large, &noise(5, 100_000), 1 << 20).unwrap();
    drop(large);
    for volume in ["work", "monday", "trial"] {
        assert_nothing_is_wrong(&cell, volume);
    }
    assert!(tree(&snapshot) == kept);
    let of_trial = tree(&trial);
    [snapshot, trial, at].into_iter().for_each(|mount| unmounted(&cell, mount));

    // What is removed leaves the others whole.
    done(&cell, "volume remove work --with-files --yes");
    cell.stop();
    cell.restart();
    let snapshot = mounted(&cell, "monday");
    assert!(tree(&snapshot) == kept);
    unmounted(&cell, snapshot);
    done(&cell, "volume remove monday --with-files --yes");
    let trial = mounted(&cell, "trial");
    assert!(tree(&trial) == of_trial);
    unmounted(&cell, trial);
    assert_nothing_is_wrong(&cell, "trial");
    cell.stop();
    for drive in [1, 2] {
        let image = cell.cell().join(format!("drives/drive-{drive}.img"));
        let checked = cell.nasd(&["check", image.to_str().unwrap()]);
        assert!(checked.status.success(), "{}", text(&checked));
    }
}

#[test]
fn a_snapshot_is_a_volume_at_one_moment() {
    snapshots_of("afs");
}

#[test]
fn a_snapshot_has_all_that_drives_had_answered() {
    snapshots_of("nfs");
}

#[test]
fn what_can_not_be_copied_is_refused_and_leaves_nothing() {
    let cell = TestCell::start(&CellOptions::striped(2, "raid0"));
    assert!(refused(&cell, "volume snapshot main monday").contains("striped"));
    assert!(refused(&cell, "volume snapshot nothing monday").contains("no volume `nothing`"));
    done(&cell, "volume create plain --stripe none");
    assert!(refused(&cell, "volume snapshot plain main").contains("already"));
    assert!(refused(&cell, "volume clone plain a:b").contains("no name of a volume"));
    // Where clients cache, files lie on one drive each, also if those of the first volume do not.
    done(&cell, "volume create cached --personality afs --quota 64M");
    done(&cell, "volume snapshot cached monday");
    done(&cell, "volume quota cached 32M");
    assert!(refused(&cell, "volume quota nothing 1G").contains("no volume `nothing`"));
    done(&cell, "volume remove monday --yes");
    done(&cell, "volume remove cached --yes");
    done(&cell, "volume clone plain other");
    let list = done(&cell, "volume list");
    assert!(list.contains("other") && !list.contains("monday"), "{list}");
}

/// Cell with a drive more than its volumes have.
fn with_a_free_drive() -> TestCell {
    TestCell::start(&CellOptions {
        drives: 3,
        size: "256M",
        cache: "32M",
        ..CellOptions::default()
    })
}

/// The drives that a volume has parts on, by their numbers.
fn drives_of(cell: &TestCell, volume: &str) -> Vec<u64> {
    let told = facts(cell, &format!("volume show {volume}"));
    let parts = told["parts"].as_array().unwrap().iter();
    let mut drives: Vec<u64> =
        parts.map(|part| part["index"].as_str().unwrap().parse().unwrap()).collect();
    drives.sort_unstable();
    drives
}

/// Numbers of files that must not change when what has them is somewhere else.
fn numbers(at: &Mounted) -> Vec<u64> {
    let number = |name: &str| fs::symlink_metadata(at.join(name)).unwrap().ino();
    ["large", "link", "d0", "d1/e1/f1", "d6/e0/f6"].map(number).to_vec()
}

/// Moves one part after the other while two mounts change the volume and read it.
fn moved_in_use(personality: &str) {
    let cell = with_a_free_drive();
    done(&cell, &format!("volume create work --drives 1,2 --personality {personality}"));
    let at = mounted(&cell, "work");
    fill(&at);
    let reader = {
        let at = cell.directory.path().join("reader");
        fs::create_dir_all(&at).unwrap();
        done(&cell, &format!("mount {} --volume work --detach", at.display()));
        Mounted(at)
    };
    let before = numbers(&at);
    let mut open = fs::File::options().read(true).append(true).open(at.join("d1/e1/f1")).unwrap();
    let seen = fs::File::open(reader.join("large")).unwrap();
    let nameless = fs::File::create_new(at.join("nameless")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&nameless, &noise(8, 50_000), 0).unwrap();
    fs::remove_file(at.join("nameless")).unwrap();
    let reserved = fs::File::create_new(at.join("reserved")).unwrap();
    rustix::fs::fallocate(&reserved, rustix::fs::FallocateFlags::KEEP_SIZE, 0, 1 << 20).unwrap();
    let blocks = reserved.metadata().unwrap().blocks();
    let attributes = |name: &str| {
        let told = fs::metadata(at.join(name)).unwrap();
        (told.modified().unwrap(), told.ctime_nsec(), told.mode(), told.len(), told.nlink())
    };
    for name in ["d2/e2/f2", "d3/e1/f10"] {
        // What a client has to keep until it is durable is written anew where the part is, as after a crash.
        fs::File::open(at.join(name)).unwrap().sync_all().unwrap();
    }
    let unchanged = ["large", "d2/e2/f2", "d3/e1/f10"].map(attributes);
    let busy = Busy::on(&at);
    // Onto the free drive, beside another part, and back to where it was made.
    for (from, to, drives) in [(1, 3, [2, 3]), (2, 3, [3, 3]), (3, 1, [1, 1])] {
        let told = done(&cell, &format!("volume move work --from {from} --to {to}"));
        println!("{personality}: {told}");
        assert_eq!(drives_of(&cell, "work"), drives);
        let mut bytes = vec![0; 1 << 20];
        std::os::unix::fs::FileExt::read_exact_at(&seen, &mut bytes, 3 << 20).unwrap();
        assert!(bytes == noise(1, 24 << 20)[3 << 20..4 << 20]);
        open.write_all(b"more").unwrap();
        open.sync_all().unwrap();
        let whole = fs::read(reader.join("d1/e1/f1")).unwrap();
        assert!(whole.ends_with(&b"more".repeat(whole.len().saturating_sub(300) / 4)));
        fs::write(reader.join(&format!("new-{from}-{to}")), noise(from, 30_000)).unwrap();
        assert!(fs::read(at.join(&format!("new-{from}-{to}"))).unwrap() == noise(from, 30_000));
    }
    println!("{:?}", busy.end());
    Busy::check(&reader, personality == "afs");
    assert_eq!(numbers(&at), before);
    assert_eq!(numbers(&reader), before);
    assert_eq!(["large", "d2/e2/f2", "d3/e1/f10"].map(attributes), unchanged);
    assert_eq!(reserved.metadata().unwrap().blocks(), blocks);
    let mut bytes = vec![0; 50_000];
    std::os::unix::fs::FileExt::read_exact_at(&nameless, &mut bytes, 0).unwrap();
    assert!(bytes == noise(8, 50_000));
    drop((open, seen, nameless, reserved));
    let kept = tree(&at);
    assert!(tree(&reader) == kept);
    assert_nothing_is_wrong(&cell, "work");
    [reader, at].into_iter().for_each(|mount| unmounted(&cell, mount));
    stays_after_all(cell, &kept, &before);
}

/// What was moved is there after all has died, can be copied, and leaves nothing where it was.
fn stays_after_all(mut cell: TestCell, kept: &BTreeMap<PathBuf, Vec<u8>>, before: &[u64]) {
    cell.kill_everything();
    cell.restart();
    let at = mounted(&cell, "work");
    assert!(tree(&at) == *kept);
    assert_eq!(numbers(&at), before);
    done(&cell, "volume snapshot work monday");
    done(&cell, "volume clone work trial");
    fs::write(at.join("later"), "later").unwrap();
    for volume in ["monday", "trial"] {
        let copy = mounted(&cell, volume);
        assert!(tree(&copy) == *kept);
        unmounted(&cell, copy);
        assert_nothing_is_wrong(&cell, volume);
    }
    done(&cell, "volume move trial --from 1 --to 2");
    let copy = mounted(&cell, "trial");
    assert!(tree(&copy) == *kept);
    unmounted(&cell, copy);
    unmounted(&cell, at);
    let config = fs::read_to_string(cell.cell().join("cell.toml")).unwrap();
    assert!(!config.contains("leftovers"), "{config}");
    for volume in ["monday", "trial", "work"] {
        done(&cell, &format!("volume remove {volume} --with-files --yes"));
    }
    for drive in 1..=3 {
        let partitions = done(&cell, &format!("partition list {drive} --json"));
        let partitions: serde_json::Value = serde_json::from_str(&partitions).unwrap();
        assert_eq!(partitions["partitions"].as_array().unwrap().len(), 1, "{partitions}");
    }
    cell.stop();
    for drive in 1..=3 {
        let image = cell.cell().join(format!("drives/drive-{drive}.img"));
        let checked = cell.nasd(&["check", image.to_str().unwrap()]);
        assert!(checked.status.success(), "{}", text(&checked));
    }
}

#[test]
fn a_volume_that_clients_cache_is_moved_while_it_is_in_use() {
    moved_in_use("afs");
}

#[test]
fn a_volume_is_moved_while_it_is_in_use() {
    moved_in_use("nfs");
}

#[test]
fn what_can_not_be_moved_is_refused_and_leaves_nothing() {
    let mut cell = with_a_free_drive();
    done(&cell, "volume create work --drives 1");
    assert!(refused(&cell, "volume move main --from 1 --to 2").contains("first volume"));
    assert!(refused(&cell, "volume move nothing --from 1 --to 2").contains("no volume `nothing`"));
    assert!(refused(&cell, "volume move work --from 1 --to 1").contains("where it is"));
    assert!(refused(&cell, "volume move work --from 2 --to 3").contains("nothing on drive 2"));
    assert!(refused(&cell, "volume move work --from 1 --to 9").contains("no drive 9"));
    let at = mounted(&cell, "work");
    write(at.join("large"), 3, 64 << 20).unwrap();
    done(&cell, "volume create full --drives 2");
    let full = mounted(&cell, "full");
    for number in 0.. {
        if write(full.join(&format!("{number}")), number, 32 << 20).is_err() {
            break;
        }
    }
    assert!(refused(&cell, "volume move work --from 1 --to 2").contains("free"));
    unmounted(&cell, full);
    unmounted(&cell, at);
    cell.stop();
    refused(&cell, "volume move work --from 1 --to 3");
    cell.restart();
    assert_eq!(drives_of(&cell, "work"), [1]);
    let config = fs::read_to_string(cell.cell().join("cell.toml")).unwrap();
    assert!(!config.contains("leftovers"), "{config}");
    cell.stop();
}

/// A command that goes on while something else is done.
fn spawn(cell: &TestCell, arguments: &[&str]) -> std::process::Child {
    let mut command = support::nasd();
    command.args(arguments).arg("--cell").arg(cell.cell());
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    command.spawn().unwrap()
}

/// Kills the command after ever longer times, so that it dies in each part of its work.
#[test]
fn a_move_that_is_interrupted_leaves_the_volume_whole_and_can_be_done_again() {
    let mut cell = with_a_free_drive();
    done(&cell, "volume create work --drives 1 --personality afs");
    let at = mounted(&cell, "work");
    fill(&at);
    let busy = Busy::on(&at);
    let (mut from, mut to) = (1, 2);
    let mut wait = std::time::Duration::from_millis(100);
    let mut finished = 0;
    while finished < 1 {
        let (one, other) = (from.to_string(), to.to_string());
        let mut moving = spawn(&cell, &["volume", "move", "work", "--from", &one, "--to", &other]);
        std::thread::sleep(wait);
        wait = wait * 3 / 2;
        let _ = moving.kill();
        let ended = moving.wait().unwrap();
        finished += u32::from(ended.success());
        if drives_of(&cell, "work") == [to] {
            (from, to) = (to, from);
        }
        assert!(fs::read(at.join("large")).unwrap() == noise(1, 24 << 20));
        fs::write(at.join("after"), ended.to_string()).unwrap();
    }
    println!("{:?}, the last after {wait:?}", busy.end());
    Busy::check(&at, true);
    let kept = tree(&at);
    unmounted(&cell, at);
    cell.kill_everything();
    cell.restart();
    let at = mounted(&cell, "work");
    assert!(tree(&at) == kept);
    unmounted(&cell, at);
    assert_nothing_is_wrong(&cell, "work");
    done(&cell, "volume remove work --with-files --yes");
    for drive in 1..=3 {
        let partitions = done(&cell, &format!("partition list {drive} --json"));
        let partitions: serde_json::Value = serde_json::from_str(&partitions).unwrap();
        assert_eq!(partitions["partitions"].as_array().unwrap().len(), 1, "{partitions}");
    }
    cell.stop();
}
