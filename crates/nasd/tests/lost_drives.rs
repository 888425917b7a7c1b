//! Drives of striped volumes that die, hang, and come back, while programs read and write: real processes, a
//! real mount.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use std::time::{Duration, Instant};
use support::workers::{Gone, Worker, component_of, wait_for_state, while_working};
use support::{CellOptions, TestCell, make_tree, scratch, shell, signal, text, wait_until};

#[test]
fn each_drive_may_be_lost_in_turn_and_is_given_what_it_lacks() {
    let cell = TestCell::start(&CellOptions::striped(4, "raid1 --stripe-unit 64K"));
    let source = scratch();
    make_tree(source.path(), 100);
    shell("cp -a \"$1\" \"$2\"", &[source.path(), &cell.path("before")]);
    let mut workers: Vec<Worker> = (0..6).map(|number| Worker::new(&cell, number)).collect();
    for index in 1..=4 {
        while_working(&mut workers, || {
            std::thread::sleep(Duration::from_millis(500));
            let gone = Gone::new(&cell, index);
            wait_for_state(&cell, index, "out");
            // Names and small files too are made and removed.
            let (now, before) = (cell.path(&format!("now-{index}")), cell.path("before"));
            shell("cp -a \"$1\" \"$2\"", &[source.path(), &now]);
            shell("rm -r \"$1\"; mv \"$2\" \"$1\"", &[&before, &now]);
            gone.come_back();
        });
        shell("diff -r --no-dereference \"$1\" \"$2\"", &[source.path(), &cell.path("before")]);
    }
}

#[test]
fn a_drive_that_hangs_is_not_waited_for() {
    let cell = TestCell::start(&CellOptions::striped(3, "raid1 --stripe-unit 16K"));
    let mut workers: Vec<Worker> = (0..4).map(|number| Worker::new(&cell, number)).collect();
    while_working(&mut workers, || {
        std::thread::sleep(Duration::from_millis(500));
        let hung = cell.member("drive-2.img");
        signal(hung, "STOP");
        wait_for_state(&cell, 2, "out");
        std::thread::sleep(Duration::from_secs(2));
        signal(hung, "CONT");
        wait_for_state(&cell, 2, "current");
    });
}

#[test]
fn the_striping_manager_may_die_while_a_drive_is_out() {
    let mut cell = TestCell::start(&CellOptions::striped(3, "raid1 --stripe-unit 64K"));
    let mut workers: Vec<Worker> = (0..4).map(|number| Worker::new(&cell, number)).collect();
    while_working(&mut workers, || {
        let gone = Gone::new(&cell, 3);
        wait_for_state(&cell, 3, "out");
        signal(cell.member("striping serve"), "KILL");
        std::thread::sleep(Duration::from_secs(1));
        wait_for_state(&cell, 3, "out");
        gone.come_back();
    });
    // Nor does it matter after a start of everything.
    cell.kill_everything();
    cell.restart();
    workers.iter().for_each(Worker::check_all);
}

#[test]
fn status_tells_which_drive_is_lost_where_there_are_no_copies() {
    let cell = TestCell::start(&CellOptions::striped(3, "raid0"));
    let gone = Gone::new(&cell, 2);
    wait_until("status tells", || {
        let begun = Instant::now();
        let told = cell.nasd(&["status", "--json"]);
        let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
        let others = [1, 3].map(|index| component_of(&told, index));
        component_of(&told, 2)["reachable"] == false
            && others.iter().all(|other| other["reachable"] == true && other["used_bytes"] != 0)
            && begun.elapsed() < Duration::from_secs(3)
    });
    let said = text(&cell.nasd(&["status"]));
    assert!(said.contains("DRIVE_AWAY: drive 2"), "{said}");
    gone.come_back();
}
