//! `nasd fsck` on a real cell: defects planted at the drives, found, and repaired while the volume is
//! mounted.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use nasd_capability::SecretKey;
use nasd_client::{Authority, ConnectOptions, DriveClient};
use nasd_manager::directory::{Change, Directory, Entry};
use nasd_manager::file_record::FileRecord;
use nasd_protocol::manager::{FileHandle, FileType};
use nasd_types::{DriveId, ObjectId, ObjectName, PartitionId, Protection, SetAttributes};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};
use support::{CellOptions, TestCell, signal, text, wait_until};

fn cell() -> TestCell {
    TestCell::start(&CellOptions {
        drives: 2,
        size: "128M",
        cache: "32M",
        ..CellOptions::default()
    })
}

/// Tells those who work meanwhile to stop, however the scope ends.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What is found, and whether the command succeeded.
fn found(cell: &TestCell, more: &[&str]) -> (bool, Vec<String>) {
    let output = cell.nasd(&[&["fsck", "main", "--json"], more].concat());
    let facts: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output)));
    let findings = facts["findings"].as_array().unwrap().iter();
    let findings: Vec<String> =
        findings.map(|one| one["finding"].as_str().unwrap().to_owned()).collect();
    if !findings.is_empty() {
        // For who reads why a test has failed.
        println!("{facts:#}");
    }
    (output.status.success(), findings)
}

fn repaired(cell: &TestCell) -> String {
    let output = cell.nasd(&["fsck", "main", "--repair", "--yes"]);
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(found(cell, &[]), (true, vec![]));
    text(&output)
}

/// The object that a path leads to.
fn handle(cell: &TestCell, path: &str) -> FileHandle {
    let output = cell.nasd(&["stat", &format!("main:{path}"), "--json"]);
    let facts: Value = serde_json::from_slice(&output.stdout).unwrap();
    let drive = u64::from_str_radix(facts["drive"].as_str().unwrap(), 16).unwrap();
    FileHandle {
        drive: DriveId(drive),
        partition: PartitionId(u32::try_from(facts["partition"].as_u64().unwrap()).unwrap()),
        object: ObjectId(facts["object"].as_u64().unwrap()),
    }
}

/// A drive, and the key by which the manager asks it.
struct Planter {
    client: DriveClient,
    authority: Authority,
}

impl Planter {
    fn of(cell: &TestCell, drive: DriveId) -> Planter {
        let read = |name: &str| -> toml::Table {
            fs::read_to_string(cell.cell().join(name)).unwrap().parse().unwrap()
        };
        let id = format!("{:016x}", drive.0);
        let (config, ring) = (read("cell.toml"), read("keyring.toml"));
        let find = |table: &toml::Table| {
            let drives = table["drive"].as_array().unwrap().clone();
            drives.into_iter().find(|one| one["id"].as_str() == Some(&id)).unwrap()
        };
        let digits = find(&ring)["working_key"].as_str().unwrap().to_owned();
        let mut key = [0; 32];
        for (index, byte) in key.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&digits[2 * index..2 * index + 2], 16).unwrap();
        }
        let address = find(&config)["address"].as_str().unwrap().to_owned();
        let partition = PartitionId(1);
        Planter {
            client: DriveClient::tcp(address, Some(drive), &ConnectOptions::default()),
            authority: Authority::working_key(
                partition,
                SecretKey::new(key),
                Protection::INTEGRITY_ARGS,
            ),
        }
    }

    fn change_record(&self, file: FileHandle, change: impl FnOnce(&mut FileRecord)) {
        let attributes = self.client.getattr(&self.authority, file.name()).unwrap();
        let mut record = FileRecord::parse(&attributes.fs_specific).unwrap();
        change(&mut record);
        self.set_record(file, *record.to_bytes());
    }

    fn set_record(&self, file: FileHandle, bytes: [u8; 256]) {
        let set = SetAttributes { fs_specific: Some(Box::new(bytes)), ..SetAttributes::default() };
        self.client.setattr(&self.authority, file.name(), &set, true).unwrap();
    }

    /// Changes the contents of a directory by one block.
    fn change_directory(
        &self,
        directory: FileHandle,
        plan: impl FnOnce(&Directory) -> Option<Change>,
    ) {
        let mut data = vec![0; 64 << 10];
        let name = directory.name();
        let length = self.client.read(&self.authority, name, 0, &mut data).unwrap().length;
        let parsed = Directory::parse(directory.object, &data[..length]).unwrap();
        match plan(&parsed).unwrap() {
            Change::Write { number, block, .. } => {
                let at = u64::from(number) * 4096;
                self.client.write(&self.authority, name, at, block.bytes(), true).unwrap();
            }
            Change::Shrink { .. } => {
                let set = SetAttributes { logical_size: Some(0), ..SetAttributes::default() };
                self.client.setattr(&self.authority, name, &set, true).unwrap();
            }
        }
    }
}

/// Has the manager bring home to the drives what is in its journal: what is planted there counts then.
fn settle(cell: &mut TestCell) {
    cell.stop();
    cell.restart();
}

/// Has the manager forget what it has in memory.
fn forget(cell: &TestCell) {
    signal(cell.member("manager serve"), "KILL");
}

fn tree(cell: &mut TestCell) {
    fs::create_dir_all(cell.path("d/e")).unwrap();
    for name in ["a", "b", "d/f", "d/e/g"] {
        fs::write(cell.path(name), name).unwrap();
    }
    fs::hard_link(cell.path("a"), cell.path("d/a2")).unwrap();
    settle(cell);
}

#[test]
fn dangling_names_and_wrong_counts_are_repaired() {
    let mut cell = cell();
    tree(&mut cell);
    assert_eq!(found(&cell, &[]), (true, vec![]));
    let gone = handle(&cell, "/d/f");
    let planter = Planter::of(&cell, gone.drive);
    planter.client.remove(&planter.authority, gone.name(), true).unwrap();
    let counted = handle(&cell, "/a");
    Planter::of(&cell, counted.drive).change_record(counted, |record| record.links = 7);
    forget(&cell);
    let (good, kinds) = found(&cell, &[]);
    assert_eq!((good, kinds), (false, vec!["dangling-name".into(), "wrong-links".to_owned()]));
    // Without --yes nobody has agreed.
    let asked = cell.nasd(&["fsck", "main", "--repair"]);
    assert!(!asked.status.success() && text(&asked).contains("--yes"), "{}", text(&asked));
    let said = repaired(&cell);
    assert!(said.contains("remove the name /d/f") && said.contains("to 2"), "{said}");
    assert!(!cell.path("d/f").exists());
    assert_eq!(fs::metadata(cell.path("a")).unwrap().nlink(), 2);
    cell.stop();
}

#[test]
fn orphans_find_a_home_or_go() {
    let mut cell = cell();
    tree(&mut cell);
    let directory = handle(&cell, "/d");
    let (file, below) = (handle(&cell, "/d/f"), handle(&cell, "/d/e"));
    let planter = Planter::of(&cell, directory.drive);
    for name in ["f", "e"] {
        planter.change_directory(directory, |contents| contents.plan_remove(name.as_bytes()));
    }
    let partition = directory.partition;
    let bare = SetAttributes::default();
    planter.client.create(&planter.authority, partition, &bare, true).unwrap();
    // What extended attributes are kept in belongs to a file's record, and is no orphan.
    let kept = planter.client.create(&planter.authority, partition, &bare, true).unwrap();
    let kept = ObjectName { partition, object: kept.object };
    planter.client.write(&planter.authority, kept, 0, b"NXAT\x01\0\0\0", true).unwrap();
    forget(&cell);
    assert_eq!(found(&cell, &[]), (false, vec!["orphan".to_owned(); 3]));
    // What is of no known kind is left alone.
    assert!(!found(&cell, &["--repair", "--yes"]).0);
    assert_eq!(found(&cell, &[]), (false, vec!["orphan".to_owned()]));
    let lost_and_found = cell.path("lost+found");
    let lost = |handle: FileHandle| {
        lost_and_found.join(format!("{:016x}-{:x}", handle.drive.0, handle.object.0))
    };
    assert_eq!(fs::read_to_string(lost(file)).unwrap(), "d/f");
    assert_eq!(fs::read_to_string(lost(below).join("g")).unwrap(), "d/e/g");
    assert_eq!(fs::metadata(cell.path("lost+found")).unwrap().mode() & 0o777, 0o700);

    settle(&mut cell);
    let of_file = Planter::of(&cell, file.drive);
    let home = handle(&cell, "/lost+found");
    let name = lost(file).file_name().unwrap().as_encoded_bytes().to_vec();
    Planter::of(&cell, home.drive).change_directory(home, |contents| contents.plan_remove(&name));
    forget(&cell);
    let gone = found(&cell, &["--repair", "--yes", "--remove-orphans"]);
    assert_eq!(gone, (true, vec!["orphan".to_owned(); 2]));
    planter.client.getattr(&planter.authority, kept).unwrap();
    // Removed is what nothing names, a little later.
    wait_until("the orphan is gone", || {
        of_file.client.getattr(&of_file.authority, file.name()).is_err()
    });
    cell.stop();
}

#[test]
fn directories_get_one_name_and_their_own_parent() {
    let mut cell = cell();
    tree(&mut cell);
    let (outer, inner) = (handle(&cell, "/d"), handle(&cell, "/d/e"));
    let root = handle(&cell, "/");
    Planter::of(&cell, inner.drive).change_record(inner, |record| record.parent = Some(root));
    forget(&cell);
    assert_eq!(found(&cell, &[]), (false, vec!["wrong-parent".to_owned()]));
    repaired(&cell);
    settle(&mut cell);
    let again = Entry { name: b"again", handle: inner, file_type: FileType::Directory };
    Planter::of(&cell, root.drive).change_directory(root, |contents| contents.plan_insert(&again));
    forget(&cell);
    assert_eq!(found(&cell, &[]), (false, vec!["second-name".to_owned()]));
    repaired(&cell);
    assert!(!cell.path("again").exists());
    assert_eq!(fs::read_to_string(cell.path("d/e/g")).unwrap(), "d/e/g");
    assert_eq!(handle(&cell, "/d/e").object, inner.object);
    assert_ne!(outer, inner);
    cell.stop();
}

#[test]
fn what_can_not_be_read_is_told_and_left_alone() {
    let mut cell = cell();
    tree(&mut cell);
    let file = handle(&cell, "/b");
    let mut damaged = [0; 256];
    damaged[..4].copy_from_slice(b"NFSR");
    damaged[4] = 1;
    damaged[6] = 99;
    Planter::of(&cell, file.drive).set_record(file, damaged);
    forget(&cell);
    assert_eq!(found(&cell, &[]), (false, vec!["unreadable-record".to_owned()]));
    let output = cell.nasd(&["fsck", "main", "--repair", "--yes"]);
    let said = text(&output);
    assert!(!output.status.success() && said.contains("1 findings are left"), "{said}");
    let name = ObjectName { partition: file.partition, object: file.object };
    assert_eq!(file.name(), name);
    cell.stop();
}

#[test]
fn a_volume_in_use_is_not_accused() {
    let mut cell = cell();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for worker in 0..2 {
            let (cell, stop) = (&cell, &stop);
            scope.spawn(move || {
                let place = |name: &str| cell.path(&format!("w{worker}-{name}"));
                fs::create_dir(place("d")).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    fs::write(place("a"), "x").unwrap();
                    fs::hard_link(place("a"), place("b")).unwrap();
                    fs::rename(place("b"), place("d").join("c")).unwrap();
                    fs::remove_file(place("d").join("c")).unwrap();
                    fs::remove_file(place("a")).unwrap();
                }
            });
        }
        let _stops = Stops(&stop);
        for _ in 0..5 {
            assert_eq!(found(&cell, &[]), (true, vec![]));
        }
    });
    assert_eq!(found(&cell, &[]), (true, vec![]));
    cell.stop();
}
