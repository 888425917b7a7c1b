//! A mount that another process takes over while programs use it. (Here it is the same process with
//! another clerk, which makes no difference to the kernel.)

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::{SocketAddr, UnixStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nasd_clerk::Clerk;
use nasd_clerk::fake::FakeCell;
use nasd_mount::{Mount, MountError, MountOptions};

use crate::world::{World, listed, pattern, settings};

/// Another process's mount takes the world's over.
fn successor(world: &World) -> Result<Mount, MountError> {
    successor_with(world, Arc::new(world.cell.clerk(settings())))
}

fn successor_with(world: &World, clerk: Arc<Clerk>) -> Result<Mount, MountError> {
    Mount::take_over(clerk, MountOptions::new(world.root()))
}

#[test]
fn open_files_and_directories_go_on_with_the_successor() {
    let world = World::new();
    let data = pattern(1, 3 << 20);
    let mut options = File::options();
    options.create(true).truncate(true).read(true).write(true);
    // Nobody but root could open it again.
    let mut file = options.clone().mode(0o000).open(world.path("a")).unwrap();
    file.write_all(&data).unwrap();
    let mut removed = options.open(world.path("removed")).unwrap();
    removed.write_all(b"no name").unwrap();
    fs::remove_file(world.path("removed")).unwrap();
    (0..200).for_each(|at| drop(File::create(world.path(&format!("f{at:03}"))).unwrap()));
    let mut listing = fs::read_dir(world.root()).unwrap();
    let mut seen: Vec<_> = listing.by_ref().take(3).collect();
    let number = fs::metadata(world.path("f007")).unwrap().ino();
    let root = world.root().to_owned();

    let second = successor(&world).unwrap();
    world.wait_handed_over();
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut back = Vec::new();
    file.read_to_end(&mut back).unwrap();
    assert!(back == data);
    file.write_all_at(b"after", 0).unwrap();
    file.sync_all().unwrap();
    let mut text = String::new();
    removed.seek(SeekFrom::Start(0)).unwrap();
    removed.read_to_string(&mut text).unwrap();
    assert_eq!(text, "no name");
    seen.extend(listing);
    assert_eq!(seen.len(), 201);
    assert_eq!(fs::metadata(root.join("f007")).unwrap().ino(), number);
    drop((file, removed, seen));
    fs::write(root.join("new"), "new").unwrap();
    assert_eq!(listed(&root).len(), 202, "the removed file is gone");
    assert!(Command::new("umount").arg(&root).status().unwrap().success());
    second.wait().unwrap();
}

#[test]
fn programs_at_work_notice_nothing() {
    let world = World::new();
    let root = world.root().to_owned();
    let stop = AtomicBool::new(false);
    let rounds = [const { AtomicU64::new(0) }; 4];
    thread::scope(|scope| {
        let workers: Vec<_> = (0..4_u64)
            .zip(&rounds)
            .map(|(worker, rounds)| {
                let (root, stop) = (&root, &stop);
                scope.spawn(move || {
                    let dir = root.join(format!("d{worker}"));
                    fs::create_dir(&dir).unwrap();
                    while !stop.load(Ordering::Relaxed) {
                        let (path, moved) = (dir.join("file"), dir.join("moved"));
                        let round = rounds.load(Ordering::Relaxed);
                        let data = pattern(worker << 32 | round, 100_000);
                        fs::write(&path, &data).unwrap();
                        fs::rename(&path, &moved).unwrap();
                        assert!(fs::read(&moved).unwrap() == data);
                        fs::remove_file(&moved).unwrap();
                        rounds.store(round + 1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let mut mounts = Vec::new();
        for _ in 0..3 {
            thread::sleep(Duration::from_millis(150));
            mounts.push(successor(&world).unwrap());
        }
        thread::sleep(Duration::from_millis(150));
        let worked = || rounds.iter().all(|rounds| rounds.load(Ordering::Relaxed) > 0);
        let end = Instant::now() + Duration::from_secs(20);
        while !worked() && Instant::now() < end {
            thread::sleep(Duration::from_millis(5));
        }
        stop.store(true, Ordering::Relaxed);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        assert!(worked());
        let last = mounts.pop().unwrap();
        mounts.into_iter().for_each(|mount| mount.wait().unwrap());
        world.wait_handed_over();
        assert_eq!(listed(&root), ["d0", "d1", "d2", "d3"]);
        last.stop().unwrap();
    });
}

#[test]
fn a_successor_that_fails_changes_nothing() {
    let world = World::new();
    let mut file = File::create(world.path("a")).unwrap();
    file.write_all(b"one").unwrap();
    // One that dies in the middle.
    let device = fs::metadata(world.root()).unwrap().dev();
    let name = format!("nasd-mount-successor-{}:{}", libc::major(device), libc::minor(device));
    for word in [b"?", b"x"] {
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let mut stream = UnixStream::connect_addr(&address).unwrap();
        stream.write_all(word).unwrap();
        drop(stream);
        file.write_all(b" and").unwrap();
        file.sync_all().unwrap();
    }
    let nothing = tempfile::tempdir().unwrap();
    let clerk = Arc::new(world.cell.clerk(settings()));
    let refused = Mount::take_over(clerk, MountOptions::new(nothing.path())).err().unwrap();
    assert!(matches!(refused, MountError::NotMounted { .. }), "{refused}");
    file.write_all(b" two").unwrap();
    drop(file);
    assert_eq!(fs::read(world.path("a")).unwrap(), b"one and and two");
    world.stop().unwrap();
}

#[test]
fn what_waits_for_a_drive_waits_at_the_successor() {
    let world = World::on(&FakeCell::new(1, Duration::from_secs(60)), |_| {});
    fs::write(world.path("a"), pattern(1, 1 << 20)).unwrap();
    let other = world.beside();
    fs::metadata(other.path("a")).unwrap();
    let clerk = Arc::new(world.cell.clerk(settings()));
    world.cell.drive(0).set_reachable(false);
    let mut cat = Command::new("cat");
    let mut cat = cat.arg(other.path("a")).stdout(Stdio::piped()).spawn().unwrap();
    thread::sleep(Duration::from_millis(300));
    let second = successor_with(&other, clerk).unwrap();
    assert!(cat.try_wait().unwrap().is_none(), "it waits");
    world.cell.drive(0).set_reachable(true);
    let mut back = Vec::new();
    cat.stdout.take().unwrap().read_to_end(&mut back).unwrap();
    assert!(cat.wait().unwrap().success());
    assert!(back == pattern(1, 1 << 20));
    other.wait_handed_over();
    second.stop().unwrap();
}
