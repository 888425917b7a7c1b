//! Drives that are added, drained and removed, and spares that take the places of lost ones, while programs read and
//! write: real processes, a real mount.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use std::fs;
use std::process::Output;
use std::time::Duration;
use support::workers::{Gone, Worker, component, wait_for_state, while_working};
use support::{
    CellOptions, TestCell, free_ports, make_tree, scratch, shell, signal, sync_tree, text,
    wait_until,
};

/// Adds a drive; its number.
fn add(cell: &TestCell, more: &[&str]) -> u64 {
    let address = format!("127.0.0.1:{}", free_ports(1));
    let mut arguments =
        vec!["drive", "add", "--size", "512M", "--cache", "32M", "--address", &address];
    arguments.extend(more);
    let told = done(&cell.nasd(&arguments));
    let number = told.strip_prefix("drive ").and_then(|rest| rest.split(' ').next());
    number.unwrap().parse().unwrap()
}

fn done(output: &Output) -> String {
    assert!(output.status.success(), "{}", text(output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn refused(cell: &TestCell, arguments: &[&str], word: &str) {
    let output = cell.nasd(arguments);
    assert!(!output.status.success() && text(&output).contains(word), "{}", text(&output));
}

fn places(cell: &TestCell, index: u64) -> u64 {
    component(cell, index)["places"].as_u64().unwrap_or(0)
}

/// Drives come and go; `first` of them have all at the start.
fn come_and_go(stripe: &str, first: u64) {
    let mut cell = TestCell::start(&CellOptions::striped(first as u32, stripe));
    let source = scratch();
    make_tree(source.path(), 150);
    shell("cp -a \"$1\" \"$2\"", &[source.path(), &cell.path("before")]);
    let mut workers: Vec<Worker> = (0..6).map(|number| Worker::new(&cell, number)).collect();
    while_working(&mut workers, || {
        let added = add(&cell, &["--wait"]);
        assert!(places(&cell, added) > 0);
        for index in [1, 2] {
            let number = index.to_string();
            refused(&cell, &["drive", "remove", &number], "drain");
            done(&cell.nasd(&["drive", "drain", &number, "--wait"]));
            assert_eq!(places(&cell, index), 0);
            done(&cell.nasd(&["drive", "remove", &number]));
            // Nothing of it is needed any more.
            let image = cell.cell().join("drives").join(format!("drive-{index}.img"));
            wait_until("the drive is stopped", || {
                fs::remove_file(&image).is_ok() || !image.exists()
            });
            refused(&cell, &["drive", "drain", &number], "is none of those");
            add(&cell, &["--wait"]);
        }
        shell("cp -a \"$1\" \"$2\"", &[source.path(), &cell.path("after")]);
    });
    for tree in ["before", "after"] {
        shell("diff -r --no-dereference \"$1\" \"$2\"", &[source.path(), &cell.path(tree)]);
        // What is not synced may be lost when all die at once.
        sync_tree(&cell.path(tree));
    }
    cell.kill_everything();
    cell.restart();
    workers.iter().for_each(Worker::check_all);
    let status = cell.nasd(&["status", "--check"]);
    assert!(status.status.success(), "{}", text(&status));
    for tree in ["before", "after"] {
        shell("diff -r --no-dereference \"$1\" \"$2\"", &[source.path(), &cell.path(tree)]);
    }
}

#[test]
fn drives_of_mirrored_volumes_come_and_go() {
    come_and_go("raid1 --stripe-width 3 --stripe-unit 64K", 4);
}

#[test]
fn drives_of_volumes_without_copies_come_and_go() {
    come_and_go("raid0 --stripe-width 2 --stripe-unit 16K", 3);
}

#[test]
fn a_spare_takes_the_place_of_a_drive_that_is_lost() {
    let cell = TestCell::start(&CellOptions::striped(3, "raid1 --stripe-unit 64K"));
    done(&cell.nasd(&["striping", "set", "--replace-after", "2s", "--rebuild-limit", "256M"]));
    let spare = add(&cell, &["--spare"]);
    let mut workers: Vec<Worker> = (0..4).map(|number| Worker::new(&cell, number)).collect();
    while_working(&mut workers, || {
        std::thread::sleep(Duration::from_millis(500));
        wait_until("the spare is known", || component(&cell, spare)["reachable"] == true);
        assert_eq!(places(&cell, spare), 0);
        Gone::new(&cell, 2);
        wait_for_state(&cell, 2, "out");
        wait_until("the spare has all", || places(&cell, 2) == 0 && places(&cell, spare) > 0);
        done(&cell.nasd(&["drive", "remove", "2"]));
        wait_until("the spare is one no more", || component(&cell, spare)["role"] == "member");
        // It can be relied on.
        let gone = Gone::new(&cell, 1);
        wait_for_state(&cell, 1, "out");
        gone.come_back();
    });
    assert!(component(&cell, 2).is_null());
}

#[test]
fn the_striping_manager_may_die_while_something_moves() {
    let cell =
        TestCell::start(&CellOptions::striped(3, "raid1 --stripe-width 2 --stripe-unit 64K"));
    let mut workers: Vec<Worker> = (0..4).map(|number| Worker::new(&cell, number)).collect();
    while_working(&mut workers, || {
        std::thread::sleep(Duration::from_millis(500));
        // So slowly that it is not done before.
        done(&cell.nasd(&["striping", "set", "--rebuild-limit", "1M"]));
        let added = add(&cell, &[]);
        wait_until("it moves", || {
            component(&cell, added)["places_coming"].as_u64().is_some_and(|coming| coming > 0)
        });
        signal(cell.member("striping serve"), "KILL");
        std::thread::sleep(Duration::from_secs(1));
        signal(cell.member("drive-1.img"), "KILL");
        done(&cell.nasd(&["striping", "set", "--rebuild-limit", "0"]));
        wait_until("it has its share", || {
            component(&cell, added)["places_coming"] == 0 && places(&cell, added) > 0
        });
        let number = added.to_string();
        let drain = ["drive", "drain", &number];
        // Who thinks better of it has it as it was.
        let had = places(&cell, added);
        done(&cell.nasd(&["striping", "set", "--rebuild-limit", "1M"]));
        done(&cell.nasd(&drain));
        wait_until("it gives", || component(&cell, added)["role"] == "leaving");
        done(&cell.nasd(&["striping", "set", "--rebuild-limit", "0"]));
        done(&cell.nasd(&[&drain[..], &["--cancel", "--wait"]].concat()));
        wait_until("it has its share again", || {
            component(&cell, added)["role"] == "member" && places(&cell, added) == had
        });
        done(&cell.nasd(&[&drain[..], &["--wait"]].concat()));
        done(&cell.nasd(&["drive", "remove", &number]));
    });
}

#[test]
fn what_can_not_be_is_refused() {
    let cell = TestCell::start(&CellOptions::striped(2, "raid1"));
    refused(
        &cell,
        &["drive", "drain", "1"],
        "files lie on 2 drives, and only 1 others have a share",
    );
    refused(&cell, &["drive", "drain", "3"], "none of those that striping-3 is over: 1, 2");
    refused(&cell, &["drive", "remove", "1"], "nasd drive drain 1");
    refused(&cell, &["drive", "remove", "9"], "none of those");
    refused(&cell, &["striping", "set"], "required");
    refused(&cell, &["striping", "set", "--replace-after", "soon"], "soon");
    let device = cell.cell().join("drives/drive-1.img");
    let device = device.to_str().unwrap();
    refused(&cell, &["drive", "add", device], "add --yes");
    refused(&cell, &["drive", "add", device, "--yes"], "can't format");
    refused(&cell, &["drive", "format", "/nowhere", "--size", "1G"], "nasd drive add");
    assert!(component(&cell, 4).is_null());
    let plain = TestCell::start(&CellOptions { stripe: Vec::new(), ..CellOptions::default() });
    for arguments in [&["drive", "add"][..], &["drive", "drain", "1"], &["drive", "remove", "1"]] {
        refused(&plain, arguments, "lie on one drive each");
    }
}
