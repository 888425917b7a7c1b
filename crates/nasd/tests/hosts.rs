//! A cell whose drives, managers and clients are on hosts of their own, and whose cables can be pulled.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use nasd_hosts::{CellPlan, HostedCell, Link, Route};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use support::workers::component_of;
use support::{scratch, wait_until};

const MBIT: u64 = 1_000_000;

/// So long a client that is not heard of holds others up.
const LEASE: Duration = Duration::from_secs(6);

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

/// A program that looks at something again and again until it sees what is new. It panics if it sees what is old after others were told
/// that the new is stored.
struct Looker {
    looks: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl Looker {
    /// `sees_new` tells nothing where looking has failed.
    fn start(
        what: &'static str,
        is_stored: &Arc<AtomicBool>,
        mut sees_new: impl FnMut() -> std::io::Result<bool> + Send + 'static,
    ) -> Looker {
        let (is_stored, looks) = (Arc::clone(is_stored), Arc::new(AtomicU64::new(0)));
        let counted = Arc::clone(&looks);
        let look = move || {
            loop {
                let was_stored = is_stored.load(Ordering::Acquire);
                match sees_new() {
                    Ok(true) => return,
                    Ok(false) => assert!(!was_stored, "{what}: what is old was seen"),
                    Err(error) => println!("{what}: {error}"),
                }
                counted.fetch_add(1, Ordering::AcqRel);
                std::thread::sleep(Duration::from_millis(2));
            }
        };
        Looker { looks, thread: std::thread::spawn(look) }
    }

    fn looks(&self) -> u64 {
        self.looks.load(Ordering::Acquire)
    }
}

/// Lookers at a file and a directory of a mount, in all ways in which there may be something in a cache.
fn lookers(at: &Path, is_stored: &Arc<AtomicBool>, new: &[u8]) -> Vec<Looker> {
    let (file, folder) = (at.join("file"), at.join("folder"));
    let old = fs::read(&file).unwrap();
    let is_new = {
        let new = new.to_vec();
        move |seen: &[u8]| {
            assert!(seen == old || seen == new, "neither the one nor the other");
            seen == new
        }
    };
    let (by_opening, by_path) = (is_new.clone(), is_new);
    let (open, looked_at) = (fs::File::open(&file).unwrap(), fs::File::open(&file).unwrap());
    let modified = looked_at.metadata().unwrap().modified().unwrap();
    let (stat, path) = (file.clone(), file);
    let (gone, there, listed) = (folder.join("before"), folder.join("after"), folder);
    let mut seen = vec![0; new.len()];
    let is_there = |path: &Path| fs::exists(path);
    vec![
        Looker::start("an open file", is_stored, move || {
            open.read_exact_at(&mut seen, 0).map(|()| by_opening(&seen))
        }),
        Looker::start("attributes of an open file", is_stored, move || {
            Ok(looked_at.metadata()?.modified()? != modified)
        }),
        Looker::start("a file", is_stored, move || fs::read(&path).map(|seen| by_path(&seen))),
        Looker::start("attributes", is_stored, move || {
            Ok(fs::metadata(&stat)?.modified()? != modified)
        }),
        Looker::start("a name", is_stored, move || Ok(!is_there(&gone)?)),
        Looker::start("a name that was not there", is_stored, move || is_there(&there)),
        Looker::start("a listing", is_stored, move || {
            let names: Result<Vec<_>, _> = fs::read_dir(&listed)?.collect();
            Ok(names?.iter().any(|entry| entry.file_name() == "after"))
        }),
    ]
}

#[test]
fn who_is_cut_off_sees_nothing_old_after_his_lease() {
    let directory = scratch();
    let mut cell = start(directory.path(), 1, "none");
    cell.administer(&["volume", "create", "shared", "--personality", "afs"]).unwrap();
    let [(client, reader), (_, writer)] = ["reader", "writer"].map(|name| {
        let (client, at) = (cell.client_host(name).unwrap(), directory.path().join(name));
        cell.mount_volume(&client, &at, Some("shared"), "path=direct,cache=memory").unwrap();
        (client, at)
    });
    // Of the same length, so that nothing but the contents tells.
    let [old, new] = [pattern(40_000), [7; 40_000].to_vec()];
    fs::create_dir(writer.join("folder")).unwrap();
    fs::write(writer.join("folder/before"), "").unwrap();
    fs::write(writer.join("file"), &old).unwrap();
    let is_stored = Arc::new(AtomicBool::new(false));
    let lookers = lookers(&reader, &is_stored, &new);
    let all_look_again = || {
        let before: Vec<u64> = lookers.iter().map(Looker::looks).collect();
        wait_until("all have looked again", || {
            lookers.iter().zip(&before).all(|(looker, before)| looker.looks() > before + 1)
        });
    };
    all_look_again();
    client.cut().unwrap();
    let begun = Instant::now();
    // What is known is seen for the rest of the lease.
    all_look_again();
    fs::write(writer.join("file"), &new).unwrap();
    fs::rename(writer.join("folder/before"), writer.join("folder/after")).unwrap();
    is_stored.store(true, Ordering::Release);
    let held_up = begun.elapsed();
    std::thread::sleep(Duration::from_secs(1));
    assert!(lookers.iter().all(|looker| !looker.thread.is_finished()));
    client.join().unwrap();
    let healed = Instant::now();
    for looker in lookers {
        wait_until("what is new is seen", || looker.thread.is_finished());
        looker.thread.join().unwrap();
    }
    println!("others were held up for {held_up:?}, and {:?} until it was seen", healed.elapsed());
    assert!(held_up < LEASE + Duration::from_secs(4), "{held_up:?}");
    fs::write(reader.join("file"), &old).unwrap();
    assert!(fs::read(writer.join("file")).unwrap() == old);
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
