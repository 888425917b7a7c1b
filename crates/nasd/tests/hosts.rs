//! A cell whose drives, managers and clients are on hosts of their own, and whose cables can be pulled.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use nasd_hosts::{CellPlan, HostedCell, Link, Route};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use support::scratch;
use support::workers::component_of;

const MBIT: u64 = 1_000_000;

fn start(directory: &Path, drives: u32, stripe: &str) -> HostedCell {
    let options = format!("--size 256M --cache 64M --stripe {stripe}");
    let options = options.split_whitespace().map(Into::into).collect();
    let plan = CellPlan { drives, options, drive_options: Vec::new(), link: Link::of(400 * MBIT) };
    HostedCell::start(Path::new(env!("CARGO_BIN_EXE_nasd")), &directory.join("cell"), &plan)
        .unwrap()
}

/// Bytes that tell their place.
fn pattern(length: usize) -> Vec<u8> {
    (0..length as u64 / 8)
        .flat_map(|word| word.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())
        .collect()
}

/// The rate of reading or writing so much, in MB/s.
fn rate(bytes: usize, run: impl FnOnce()) -> f64 {
    let begun = Instant::now();
    run();
    bytes as f64 / begun.elapsed().as_secs_f64() / 1e6
}

#[test]
fn one_client_gets_more_than_the_link_of_a_drive_and_the_manager_gives_no_more_than_its_own() {
    let directory = scratch();
    let mut cell = start(directory.path(), 4, "raid0 --stripe-unit 128K");
    let client = cell.client_host("client").unwrap();
    client.limit(None).unwrap();
    let (direct, forwarded) = (directory.path().join("direct"), directory.path().join("forwarded"));
    cell.mount(&client, &direct, Route::Direct).unwrap();
    let data = pattern(64 << 20);
    let (mut read, mut write) = (0_f64, 0_f64);
    // A machine that has other work as well may hold some of it up.
    for round in 0..5 {
        let file = direct.join(format!("file-{round}"));
        let written = rate(data.len(), || {
            fs::write(&file, &data).unwrap();
            fs::File::open(&file).unwrap().sync_all().unwrap();
        });
        write = write.max(written);
        cell.unmount(&direct).unwrap();
        cell.mount(&client, &direct, Route::Direct).unwrap();
        read = read.max(rate(data.len(), || assert!(fs::read(&file).unwrap() == data)));
        if read > 100.0 && write > 80.0 {
            break;
        }
    }
    cell.mount(&client, &forwarded, Route::Manager).unwrap();
    let file = forwarded.join("file-0");
    let through = rate(data.len(), || assert!(fs::read(file).unwrap() == data));
    println!("write {write:.0}, read {read:.0}, through the manager {through:.0} MB/s");
    // A link of 400 Mbit/s carries 50 MB/s.
    assert!(read > 100.0 && write > 80.0, "read {read}, write {write}");
    assert!(through < 52.0, "{through}");
    cell.stop().unwrap();
}

#[test]
fn a_pulled_cable_is_noticed_and_what_was_missed_is_made_good() {
    let directory = scratch();
    let mut cell = start(directory.path(), 3, "raid1 --stripe-unit 64K");
    let client = cell.client_host("client").unwrap();
    let mounted = directory.path().join("mount");
    cell.mount(&client, &mounted, Route::Direct).unwrap();
    let data = pattern(8 << 20);
    let place = |name: &str| -> PathBuf { mounted.join(name) };
    fs::write(place("before"), &data).unwrap();
    cell.drive_host(1).cut().unwrap();
    let mut longest = Duration::ZERO;
    for number in 0..20 {
        let begun = Instant::now();
        fs::write(place(&format!("during-{number}")), &data[..number << 16]).unwrap();
        assert!(fs::read(place("before")).unwrap() == data);
        longest = longest.max(begun.elapsed());
        std::thread::sleep(Duration::from_millis(100));
    }
    println!("longest wait {longest:?}");
    assert!(longest < Duration::from_secs(20), "{longest:?}");
    wait_for_state(&cell, 2, "out");
    cell.drive_host(1).join().unwrap();
    wait_for_state(&cell, 2, "current");
    // Where there is no other drive to read from it has all.
    cell.drive_host(0).cut().unwrap();
    for number in 0..20 {
        let found = fs::read(place(&format!("during-{number}"))).unwrap();
        assert!(found == data[..number << 16], "{number}");
    }
    cell.drive_host(0).join().unwrap();
    cell.stop().unwrap();
}

#[test]
fn who_has_a_volume_on_one_drive_needs_no_other_and_reads_it_anew_after_a_restart() {
    let directory = scratch();
    let mut cell = start(directory.path(), 2, "none");
    let data = pattern(4 << 20);
    let pairs = ["1", "2"].map(|drive| {
        let volume = format!("pair{drive}");
        let personality = ["--personality", "afs", "--drives", drive];
        cell.administer(&[&["volume", "create", &volume][..], &personality].concat()).unwrap();
        (
            cell.client_host(&format!("client{drive}")).unwrap(),
            directory.path().join(&volume),
            volume,
        )
    });
    let mount = |cell: &mut HostedCell| {
        for (client, at, volume) in &pairs {
            let options = "path=direct,cache=memory";
            cell.mount_volume(client, at, Some(volume.as_str()), options).unwrap();
        }
    };
    let unmount = |cell: &mut HostedCell| {
        pairs.iter().for_each(|(_, at, _)| cell.unmount(at).unwrap());
    };
    mount(&mut cell);
    for (_, at, _) in &pairs {
        fs::write(at.join("file"), &data).unwrap();
    }
    unmount(&mut cell);
    cell.restart(&["--emulate-disk"]).unwrap();
    mount(&mut cell);
    cell.drive_host(1).cut().unwrap();
    let cold = rate(data.len(), || assert!(fs::read(pairs[0].1.join("file")).unwrap() == data));
    fs::write(pairs[0].1.join("other"), &data).unwrap();
    cell.drive_host(1).join().unwrap();
    assert!(fs::read(pairs[1].1.join("file")).unwrap() == data);
    println!("{cold:.0} MB/s from a disk");
    unmount(&mut cell);
    cell.stop().unwrap();
}

/// Waits until status tells that of a drive, the first being 1.
fn wait_for_state(cell: &HostedCell, drive: u64, wanted: &str) {
    let begun = Instant::now();
    loop {
        let told = cell.command(cell.manager_host(), &["status", "--json"]).output().unwrap();
        let told = serde_json::from_slice(&told.stdout).unwrap_or_default();
        if component_of(&told, drive)["state"] == wanted {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "drive {drive}: {told}");
        std::thread::sleep(Duration::from_millis(200));
    }
}
