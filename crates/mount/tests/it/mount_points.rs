//! Volumes that are seen in others at mount points. Each volume is a cell in memory of its own.

use std::collections::HashMap;
use std::error::Error;
use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirEntryExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use nasd_clerk::fake::FakeCell;
use nasd_clerk::{Caller, Clerk, FileHandle, Name};
use nasd_mount::{Mount, MountOptions, OtherVolumes};
use nasd_types::PartitionId;

use crate::world::{DEADLINE, World, as_user, eventually, listed, pattern, same_file, settings};

/// Volumes by their names.
#[derive(Default)]
struct Volumes(Mutex<HashMap<String, Arc<FakeCell>>>);

impl Volumes {
    fn add(&self, name: &str) -> Arc<FakeCell> {
        let mut volumes = self.0.lock().unwrap();
        let partition = PartitionId(10 + volumes.len() as u32);
        let volume = FakeCell::with_partition(1, DEADLINE, partition);
        volumes.insert(name.to_owned(), Arc::clone(&volume));
        volume
    }

    fn remove(&self, name: &str) {
        self.0.lock().unwrap().remove(name);
    }
}

impl OtherVolumes for Volumes {
    fn connect(&self, volume: &Name) -> Result<Option<Arc<Clerk>>, Box<dyn Error + Send + Sync>> {
        let found = self.0.lock().unwrap().get(&volume.to_string()).cloned();
        Ok(found.map(|volume| Arc::new(volume.clerk(settings()))))
    }
}

struct Forest {
    volumes: Arc<Volumes>,
    world: World,
}

impl Forest {
    /// A mount, in which nothing is seen yet.
    fn new(adjust: impl FnOnce(&mut MountOptions)) -> Forest {
        let volumes = Arc::new(Volumes::default());
        let main = volumes.add("main");
        let others: Arc<dyn OtherVolumes> = Arc::clone(&volumes) as _;
        Forest { volumes, world: World::among(&main, Some(others), adjust) }
    }

    fn attach(&self, volume: &str) {
        attach(&self.world.clerk, self.world.clerk.root(), volume, volume);
    }

    fn seen(&self) -> u64 {
        let text = self.world.mount().metrics().text();
        let line = text.lines().find_map(|line| line.strip_prefix("nasd_mount_inner_volumes "));
        line.unwrap().parse().unwrap()
    }
}

fn attach(clerk: &Clerk, dir: FileHandle, name: &str, volume: &str) {
    let (name, volume) = (Name::new(name).unwrap(), Name::new(volume).unwrap());
    clerk.mkmount(&Arc::new(Caller::default()), dir, &name, &volume).unwrap();
}

/// What a shell prints in a directory.
fn shell(dir: &Path, script: &str) -> String {
    let output = Command::new("sh").args(["-c", script]).current_dir(dir).output().unwrap();
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).trim_end().to_owned()
}

fn errno<T: std::fmt::Debug>(outcome: io::Result<T>) -> i32 {
    outcome.unwrap_err().raw_os_error().unwrap()
}

#[test]
fn another_volume_is_seen_below_a_mount_point_with_its_own_files() {
    let forest = Forest::new(|_| {});
    let other = forest.volumes.add("other");
    forest.attach("other");
    let (world, below) = (&forest.world, forest.world.path("other"));
    fs::write(world.path("file"), "of main").unwrap();
    fs::write(below.join("file"), "of other").unwrap();
    fs::create_dir(below.join("dir")).unwrap();
    fs::write(below.join("dir/deep"), pattern(1, 300_000)).unwrap();
    assert_eq!(fs::read_to_string(world.path("file")).unwrap(), "of main");
    assert_eq!(fs::read_to_string(below.join("file")).unwrap(), "of other");
    assert!(fs::read(below.join("dir/deep")).unwrap() == pattern(1, 300_000));
    assert_eq!(listed(world.root()), ["file", "other"]);
    assert_eq!(listed(&below), ["dir", "file"]);
    assert_eq!(forest.seen(), 1);
    // Another mount, of that volume alone, has the same files.
    let alone = World::on(&other, |_| {});
    assert_eq!(listed(alone.root()), ["dir", "file"]);
    fs::write(alone.path("back"), "from there").unwrap();
    assert_eq!(fs::read_to_string(below.join("back")).unwrap(), "from there");

    // What one may do is up to that volume.
    fs::set_permissions(&below, Permissions::from_mode(0o700)).unwrap();
    let refused = as_user(1000, 1000, || fs::read_dir(&below).map(drop));
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::PermissionDenied);
    assert!(as_user(1000, 1000, || fs::read_dir(world.root()).is_ok()));
    fs::set_permissions(&below, Permissions::from_mode(0o777)).unwrap();
    as_user(1000, 1000, || fs::write(below.join("of a user"), "")).unwrap();
    assert_eq!(fs::metadata(alone.path("of a user")).unwrap().uid(), 1000);

    // Names don't go from one to the other.
    let there = below.join("moved");
    assert_eq!(errno(fs::rename(world.path("file"), &there)), libc::EXDEV);
    assert_eq!(errno(fs::hard_link(world.path("file"), &there)), libc::EXDEV);
    assert_eq!(errno(fs::rename(below.join("file"), world.path("up"))), libc::EXDEV);
    assert_eq!(fs::copy(world.path("file"), &there).unwrap(), 7);
    assert_eq!(fs::read_to_string(&there).unwrap(), "of main");
    // Nor is a mount point removed by who takes it for a directory, full or not.
    assert_eq!(errno(fs::remove_dir(&below)), libc::EBUSY);
    assert_eq!(errno(fs::remove_file(&below)), libc::EISDIR);
    let kept = shell(world.root(), "rm -r other 2>&1");
    assert!(kept.contains("busy"), "{kept}");
    assert_eq!(listed(&below), [""; 0], "as with AFS, what is in it is removed by who says -r");
    // It can be given another name, of the same volume.
    fs::create_dir(world.path("elsewhere")).unwrap();
    fs::write(below.join("file"), "again").unwrap();
    let renamed = world.path("elsewhere/renamed");
    fs::rename(&below, &renamed).unwrap();
    assert_eq!(fs::read_to_string(renamed.join("file")).unwrap(), "again");
    assert_eq!(shell(&renamed.join("."), "pwd -P"), renamed.display().to_string());
    alone.stop().unwrap();
    forest.world.stop().unwrap();
}

#[test]
fn numbers_are_unlike_those_of_the_other_volume_and_the_way_up_is_the_place() {
    let forest = Forest::new(|_| {});
    forest.volumes.add("other");
    let world = &forest.world;
    fs::create_dir(world.path("a")).unwrap();
    attach(&world.clerk, world.handle("a"), "x", "other");
    attach(&world.clerk, world.clerk.root(), "y", "other");
    let (first, second) = (world.path("a/x"), world.path("y"));
    fs::create_dir_all(first.join("dir/sub")).unwrap();
    for at in [world.path("f"), first.join("f")] {
        fs::write(at, "").unwrap();
    }
    let number = |path: &Path| fs::metadata(path).unwrap().ino();
    let paths = ["a", "f", "a/x", "a/x/f", "a/x/dir", "a/x/dir/sub"];
    let mut all: Vec<u64> = paths.map(|path| number(&world.path(path))).to_vec();
    all.push(number(world.root()));
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), count);
    // Programs see that the same volume is seen at both places; the kernel keeps them apart.
    assert!(same_file(&first, &second) && same_file(&first.join("f"), &second.join("f")));
    for entry in fs::read_dir(&first).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.ino(), number(&entry.path()));
    }
    let listing = shell(&first, "ls -ai . | sort -k2");
    for (name, path) in [(".", &first), ("..", &world.path("a"))] {
        let shown = listing.lines().find(|line| line.split_whitespace().nth(1) == Some(name));
        let shown: u64 = shown.unwrap().split_whitespace().next().unwrap().parse().unwrap();
        assert_eq!(shown, number(path), "{name}");
    }
    let up = |dir: &Path| shell(dir, "cd dir/sub && cd -P ../.. && pwd -P && cd -P .. && pwd -P");
    let both = |place: &Path| format!("{}\n{}", place.display(), place.parent().unwrap().display());
    assert_eq!(up(&first), both(&first));
    assert_eq!(up(&second), both(&second));
    assert_eq!(up(&first), both(&first), "though it was seen elsewhere meanwhile");
    // What is written at one place is there at the other.
    fs::write(first.join("f"), "one").unwrap();
    assert_eq!(fs::read_to_string(second.join("f")).unwrap(), "one");
    fs::write(second.join("f"), "another").unwrap();
    assert_eq!(fs::read_to_string(first.join("f")).unwrap(), "another");
    // The numbers are the same in another mount.
    let others: Arc<dyn OtherVolumes> = Arc::clone(&forest.volumes) as _;
    let again = World::among(&world.cell, Some(others), |_| {});
    assert_eq!(number(&again.path("y/f")), number(&second.join("f")));
    again.stop().unwrap();
    forest.world.stop().unwrap();
}

#[test]
fn volumes_in_each_other_end_somewhere() {
    let forest = Forest::new(|_| {});
    let other = forest.volumes.add("other");
    forest.attach("other");
    attach(&other.clerk(settings()), other.clerk(settings()).root(), "main", "main");
    let root = forest.world.root();
    fs::write(root.join("file"), "x").unwrap();
    assert_eq!(fs::read_to_string(root.join("other/main/other/main/file")).unwrap(), "x");
    assert!(same_file(root, &root.join("other/main")));
    // Who walks down the tree sees that he was there before.
    let found = shell(root, "find . 2>&1");
    assert!(found.contains("loop"), "{found}");
    assert!(found.lines().count() < 20, "{found}");
    let deep = root.join("other/main/".repeat(9));
    assert_eq!(errno(fs::metadata(deep)), libc::ELOOP);
    forest.world.stop().unwrap();
}

#[test]
fn what_was_opened_below_goes_on_when_the_mount_point_is_gone() {
    let forest = Forest::new(|_| {});
    forest.volumes.add("other");
    forest.attach("other");
    let (world, below) = (&forest.world, forest.world.path("other"));
    let mut file =
        File::options().create_new(true).read(true).write(true).open(below.join("f")).unwrap();
    file.write_all(b"before").unwrap();
    let detach = || {
        let (caller, name) = (Arc::new(Caller::default()), Name::new("other").unwrap());
        world.clerk.unlink(&caller, world.clerk.root(), &name, None).unwrap();
        eventually("the name goes", || !below.exists());
    };
    detach();
    file.write_all(b" and after").unwrap();
    file.sync_all().unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "before and after");
    assert_eq!(forest.seen(), 1);
    drop(file);
    // Something else may have the name.
    fs::write(&below, "a file").unwrap();
    fs::remove_file(&below).unwrap();
    forest.attach("other");
    assert_eq!(fs::read_to_string(below.join("f")).unwrap(), "before and after");
    // What nobody has open ends when the kernel has forgotten it.
    let before = forest.seen();
    detach();
    eventually("it is seen nowhere", || forest.seen() == before - 1);
    // A plain link is one, whatever it says.
    symlink("#other", world.path("link")).unwrap();
    assert_eq!(fs::read_link(world.path("link")).unwrap(), Path::new("#other"));
    assert_eq!(fs::metadata(world.path("link")).unwrap_err().kind(), ErrorKind::NotFound);
    forest.world.stop().unwrap();
}

#[test]
fn a_volume_that_is_away_or_gone_fails_alone() {
    let forest = Forest::new(|options| options.patience = Some(Duration::from_secs(1)));
    let other = forest.volumes.add("other");
    forest.attach("other");
    forest.attach("never");
    let (world, below) = (&forest.world, forest.world.path("other"));
    assert_eq!(errno(fs::metadata(world.path("never"))), libc::ENODEV);
    fs::write(below.join("f"), "x").unwrap();
    fs::create_dir(world.path("dir")).unwrap();
    other.set_manager_runs(false);
    thread::scope(|scope| {
        // More than there are threads for requests; the first are answered when patience is at its end.
        let walk = || loop {
            match fs::metadata(&below) {
                Ok(_) => thread::sleep(Duration::from_millis(20)),
                refused => return errno(refused),
            }
        };
        let walkers: Vec<_> = (0..24).map(|_| scope.spawn(walk)).collect();
        let end = Instant::now() + Duration::from_secs(2);
        let mut rounds = 0;
        while Instant::now() < end {
            let begun = Instant::now();
            let path = world.path(&format!("dir/{rounds}"));
            fs::write(&path, "here").unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), "here");
            assert!(begun.elapsed() < Duration::from_millis(900), "it has waited");
            rounds += 1;
        }
        assert!(rounds > 10, "only {rounds}");
        assert!(walkers.into_iter().all(|walker| walker.join().unwrap() == libc::EIO));
        let begun = Instant::now();
        assert_eq!(errno(fs::metadata(&below)), libc::EIO);
        assert!(begun.elapsed() < Duration::from_millis(900), "nobody waits for it any more");
    });
    other.set_manager_runs(true);
    eventually("it is back", || below.join("f").exists());
    // One that is gone is not found by who has not been there.
    forest.volumes.remove("other");
    let others: Arc<dyn OtherVolumes> = Arc::clone(&forest.volumes) as _;
    let second = World::among(&world.cell, Some(others), |_| {});
    assert_eq!(errno(fs::metadata(second.path("other"))), libc::ENODEV);
    assert_eq!(listed(second.root()), ["dir", "never", "other"]);
    second.stop().unwrap();
    // Nor by anybody where no others are seen.
    let alone = world.beside();
    assert_eq!(errno(fs::metadata(alone.path("other"))), libc::ENODEV);
    alone.stop().unwrap();
    forest.world.stop().unwrap();
}

#[test]
fn the_next_process_of_a_mount_has_what_is_open_below_mount_points() {
    let forest = Forest::new(|_| {});
    let (other, inner) = (forest.volumes.add("other"), forest.volumes.add("inner"));
    forest.attach("other");
    let clerk = other.clerk(settings());
    attach(&clerk, clerk.root(), "inner", "inner");
    let root = forest.world.root().to_owned();
    let deep = root.join("other/inner");
    let data = pattern(3, 2 << 20);
    let mut options = File::options();
    options.create(true).truncate(true).read(true).write(true);
    let mut file = options.open(deep.join("file")).unwrap();
    file.write_all(&data).unwrap();
    let mut removed = options.open(root.join("other/removed")).unwrap();
    removed.write_all(b"no name").unwrap();
    fs::remove_file(root.join("other/removed")).unwrap();
    (0..100).for_each(|at| drop(File::create(deep.join(format!("f{at:03}"))).unwrap()));
    let mut listing = fs::read_dir(&deep).unwrap();
    let mut seen: Vec<_> = listing.by_ref().take(3).collect();
    let number = fs::metadata(deep.join("f007")).unwrap().ino();

    let (volumes, clerk) = (Arc::clone(&forest.volumes), forest.world.cell.clerk(settings()));
    let successor =
        Mount::take_over_among(Arc::new(clerk), Some(volumes), MountOptions::new(&root)).unwrap();
    forest.world.wait_handed_over();
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut back = Vec::new();
    file.read_to_end(&mut back).unwrap();
    assert!(back == data);
    file.write_all(b"more").unwrap();
    file.sync_all().unwrap();
    let mut text = String::new();
    removed.seek(SeekFrom::Start(0)).unwrap();
    removed.read_to_string(&mut text).unwrap();
    assert_eq!(text, "no name");
    seen.extend(listing);
    assert_eq!(seen.len(), 101);
    assert_eq!(fs::metadata(deep.join("f007")).unwrap().ino(), number);
    assert_eq!(shell(&deep, "cd -P .. && pwd -P"), root.join("other").display().to_string());
    drop((file, removed, seen));
    let alone = World::on(&inner, |_| {});
    assert_eq!(fs::metadata(alone.path("file")).unwrap().len(), (2 << 20) + 4);
    alone.stop().unwrap();
    successor.stop().unwrap();
    fs::remove_dir(&root).unwrap();
}

#[test]
fn a_volume_that_is_gone_is_not_taken_over_but_all_else_is() {
    let forest = Forest::new(|_| {});
    forest.volumes.add("other");
    forest.volumes.add("third");
    forest.attach("other");
    forest.attach("third");
    let root = forest.world.root().to_owned();
    let opened = ["other", "third"].map(|name| {
        fs::write(root.join(name).join("file"), name).unwrap();
        File::open(root.join(name).join("file")).unwrap()
    });
    forest.volumes.remove("other");
    let (volumes, clerk) = (Arc::clone(&forest.volumes), forest.world.cell.clerk(settings()));
    let successor =
        Mount::take_over_among(Arc::new(clerk), Some(volumes), MountOptions::new(&root)).unwrap();
    forest.world.wait_handed_over();
    let [mut other, mut third] = opened;
    let mut text = String::new();
    assert_eq!(errno(other.metadata()), libc::ESTALE);
    third.read_to_string(&mut text).unwrap();
    assert_eq!(text, "third");
    assert!(other.read_to_string(&mut text).is_err());
    assert_eq!(errno(fs::metadata(root.join("other"))), libc::ENODEV);
    fs::write(root.join("third/new"), "").unwrap();
    assert_eq!(listed(&root.join("third")), ["file", "new"]);
    drop((other, third));
    successor.stop().unwrap();
    fs::remove_dir(&root).unwrap();
}
