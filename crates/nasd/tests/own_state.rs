//! What the striping manager keeps for itself, on component drives: it is there whoever dies, and wherever a striping
//! manager is started. Real processes, a real mount.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;
use support::workers::{Gone, Worker, component, wait_for_state, while_working};
use support::{CellOptions, TestCell, free_ports, nasd, noise, scratch, signal, text, wait_until};

/// The drives that `nasd status` names as those with the state.
fn state_on(cell: &TestCell) -> Vec<u64> {
    let told = cell.nasd(&["status", "--json"]);
    let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap_or_default();
    let drives = told["drives"].as_array().cloned().unwrap_or_default();
    let lists = drives.iter().filter_map(|drive| drive["state_on"].as_array());
    lists.flatten().filter_map(serde_json::Value::as_u64).collect()
}

fn wait_for_copies(cell: &TestCell, wanted: &[u64]) {
    wait_until(&format!("copies are on {wanted:?}"), || state_on(cell) == wanted);
}

fn codes(cell: &TestCell) -> Vec<String> {
    let told = cell.nasd(&["status", "--json"]);
    let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap_or_default();
    let health = told["health"].as_array().cloned().unwrap_or_default();
    health.iter().filter_map(|found| Some(found["code"].as_str()?.to_owned())).collect()
}

/// Starts a process of the cell by hand, and waits until it serves.
fn serve(arguments: &[&str], log: &Path) -> Child {
    let told = fs::File::create(log).unwrap();
    let mut command = nasd();
    let mut child = command.args(arguments).stdout(Stdio::piped()).stderr(told).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let told = fs::read_to_string(log).unwrap();
    assert!(line.starts_with("ready"), "{arguments:?}: {line}{told}");
    child
}

fn end(mut child: Child) {
    signal(child.id(), "TERM");
    support::wait_for_exit(&mut child);
}

fn cell_file(directory: &Path) -> toml::Table {
    fs::read_to_string(directory.join("cell.toml")).unwrap().parse().unwrap()
}

fn drive_of(file: &mut toml::Table, index: i64) -> &mut toml::Table {
    let drives = file["drive"].as_array_mut().unwrap().iter_mut();
    let mut drives = drives.filter_map(toml::Value::as_table_mut);
    drives.find(|drive| drive["index"].as_integer() == Some(index)).unwrap()
}

fn log_of(cell: &TestCell, name: &str) -> String {
    fs::read_to_string(cell.cell().join("log").join(name)).unwrap_or_default()
}

#[test]
fn nothing_of_it_is_on_the_machine_and_status_tells_where_it_is() {
    for (drives, stripe, on) in
        [(2, "raid0", &[1, 2][..]), (4, "raid1 --stripe-width 2", &[1, 2, 3])]
    {
        let mut cell = TestCell::start(&CellOptions::striped(drives, stripe));
        fs::write(cell.path("f"), noise(1, 300_000)).unwrap();
        fs::File::open(cell.path("f")).unwrap().sync_all().unwrap();
        wait_for_copies(&cell, on);
        for index in 1..=u64::from(drives) {
            let told = || component(&cell, index)["has_state"] == on.contains(&index);
            wait_until("that is told of each drive", told);
        }
        let image = cell.directory.path().join("own.img");
        let exported = cell.nasd(&["striping".as_ref(), "export".as_ref(), image.as_os_str()]);
        assert!(exported.status.success(), "{}", text(&exported));
        let checked = cell.nasd(&["check".as_ref(), image.as_os_str()]);
        assert!(checked.status.success(), "{}", text(&checked));
        let again = cell.nasd(&["striping".as_ref(), "export".as_ref(), image.as_os_str()]);
        assert!(!again.status.success(), "what is there is not written over");
        let left: Vec<_> = fs::read_dir(cell.cell().join("drives")).unwrap().collect();
        assert_eq!(left.len(), drives as usize, "{left:?}");
        cell.kill_everything();
        cell.restart();
        assert!(fs::read(cell.path("f")).unwrap() == noise(1, 300_000));
        assert_eq!(state_on(&cell), on);
    }
}

#[test]
fn the_striping_manager_and_a_drive_with_its_state_may_die_at_once() {
    let cell = TestCell::start(&CellOptions::striped(3, "raid1 --stripe-unit 64K"));
    let mut workers: Vec<Worker> = (0..4).map(|number| Worker::new(&cell, number)).collect();
    while_working(&mut workers, || {
        for index in [1, 3] {
            std::thread::sleep(Duration::from_millis(500));
            let striping = cell.member("striping serve");
            let gone = Gone::new(&cell, index);
            signal(striping, "KILL");
            wait_for_state(&cell, index, "out");
            assert!(!state_on(&cell).contains(&index));
            gone.come_back();
            wait_for_copies(&cell, &[1, 2, 3]);
        }
    });
}

#[test]
fn a_drive_with_a_copy_that_hangs_or_is_lost_is_done_without() {
    let cell = TestCell::start(&CellOptions::striped(2, "raid0"));
    wait_until("all is well at first", || codes(&cell).is_empty());
    let hung = cell.member("drive-2.img");
    signal(hung, "STOP");
    wait_for_copies(&cell, &[1]);
    wait_until("that is told", || codes(&cell).contains(&"STATE_ON_ONE_DRIVE".to_owned()));
    signal(hung, "CONT");
    wait_for_copies(&cell, &[1, 2]);
    wait_until("all is well", || codes(&cell).is_empty());
    let gone = Gone::new(&cell, 1);
    wait_for_copies(&cell, &[2]);
    gone.come_back();
    wait_for_copies(&cell, &[1, 2]);
}

#[test]
fn after_the_death_of_all_any_drive_with_a_copy_is_enough() {
    let mut cell = TestCell::start(&CellOptions::striped(3, "raid1 --stripe-unit 64K"));
    let mut worker = [Worker::new(&cell, 1)];
    for there in 1..=3_i64 {
        while_working(&mut worker, || std::thread::sleep(Duration::from_millis(500)));
        wait_for_copies(&cell, &[1, 2, 3]);
        cell.kill_everything();
        let _ = std::process::Command::new("umount").arg("-l").arg(cell.mountpoint()).status();
        let mut file = cell_file(&cell.cell());
        let address = drive_of(&mut file, there)["address"].as_str().unwrap().to_owned();
        let image = cell.cell().join("drives").join(format!("drive-{there}.img"));
        let logs = scratch();
        let serve_drive =
            ["drive", "serve", image.to_str().unwrap(), "--listen", &address, "--cache", "32M"];
        let drive = serve(&serve_drive, &logs.path().join("drive"));
        let directory = cell.cell();
        let serve_striping = ["striping", "serve", "4", "--cell", directory.to_str().unwrap()];
        let striping = serve(&serve_striping, &logs.path().join("striping"));
        let mut file = cell_file(&directory);
        let state = &drive_of(&mut file, 4)["stripe"]["state"];
        assert_eq!(state["copies"], toml::Value::from(vec![there]));
        // It is killed as well, without a word.
        signal(striping.id(), "KILL");
        end(striping);
        end(drive);
        cell.restart();
        worker.iter().for_each(Worker::check_all);
    }
}

#[test]
fn who_is_drained_gives_its_copy_to_another() {
    let cell =
        TestCell::start(&CellOptions::striped(4, "raid1 --stripe-width 2 --stripe-unit 64K"));
    let mut workers: Vec<Worker> = (0..2).map(|number| Worker::new(&cell, number)).collect();
    while_working(&mut workers, || {
        wait_for_copies(&cell, &[1, 2, 3]);
        let drained = cell.nasd(&["drive", "drain", "2", "--wait"]);
        assert!(drained.status.success(), "{}", text(&drained));
        assert_eq!(state_on(&cell), [1, 3, 4]);
        for (drive, has_any) in [("1", true), ("2", false)] {
            let listed = text(&cell.nasd(&["partition", "list", drive]));
            assert_eq!(listed.contains("p80000005"), has_any, "drive {drive}: {listed}");
        }
        let removed = cell.nasd(&["drive", "remove", "2"]);
        assert!(removed.status.success(), "{}", text(&removed));
        signal(cell.member("striping serve"), "KILL");
    });
}

#[test]
fn a_striping_manager_that_is_started_elsewhere_fences_the_one_before() {
    let cell = TestCell::start(&CellOptions::striped(3, "raid1 --stripe-unit 64K"));
    fs::write(cell.path("f"), noise(7, 500_000)).unwrap();
    fs::File::open(cell.path("f")).unwrap().sync_all().unwrap();
    // Another machine, which has what is secret, and no more.
    let elsewhere = scratch();
    for name in ["cell.toml", "keyring.toml"] {
        fs::copy(cell.cell().join(name), elsewhere.path().join(name)).unwrap();
    }
    let mut file = cell_file(elsewhere.path());
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_ports(1)));
    drive_of(&mut file, 4).insert("address".to_owned(), address.to_string().into());
    fs::write(elsewhere.path().join("cell.toml"), file.to_string()).unwrap();
    let logs = scratch();
    let directory = elsewhere.path().to_str().unwrap();
    let other =
        serve(&["striping", "serve", "4", "--cell", directory], &logs.path().join("striping"));
    wait_until("the older one ends", || {
        log_of(&cell, "striping-4.log").contains("another striping manager has taken over")
    });
    // It can't come back with what its cell.toml says, and takes nothing from the other one by trying.
    wait_until("it is refused", || {
        log_of(&cell, "striping-4.log").contains("cell.toml is an old one")
    });
    std::thread::sleep(Duration::from_secs(2));
    signal(other.id(), "STOP");
    let mut newer = cell_file(elsewhere.path());
    let state = drive_of(&mut newer, 4)["stripe"]["state"].clone();
    assert_eq!(state["copies"].as_array().unwrap().len(), 3, "it has lost no copy");
    signal(other.id(), "CONT");
    end(other);
    // With what the other one has left, it goes on.
    let mut file = cell_file(&cell.cell());
    let state = drive_of(&mut cell_file(elsewhere.path()), 4)["stripe"]["state"].clone();
    drive_of(&mut file, 4)["stripe"].as_table_mut().unwrap().insert("state".to_owned(), state);
    let new = cell.cell().join("cell.toml.test");
    fs::write(&new, file.to_string()).unwrap();
    fs::rename(&new, cell.cell().join("cell.toml")).unwrap();
    assert!(fs::read(cell.path("f")).unwrap() == noise(7, 500_000));
    wait_for_copies(&cell, &[1, 2, 3]);
}
