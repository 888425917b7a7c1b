//! Several volumes of one cell, which come and go while the manager serves, with drives behind
//! their sockets.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

#[path = "support/cell.rs"]
#[allow(dead_code, reason = "each test file uses its part")]
mod setup;
mod support;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nasd_capability::SecretKey;
use nasd_client::{Authority, Caller, ClientError, DriveClient, ManagerClient};
use nasd_manager::adopt::adopt_partitions;
use nasd_manager::keys::{KeeperError, KeptKeys, KeyKeeper};
use nasd_manager::{DriveConfig, RootOptions, TableError, VolumeConfig, VolumeTable};
use nasd_protocol::drive::NO_QUOTA;
use nasd_protocol::manager::{
    AttachArguments, ClosedArguments, File, FileHandle, GetcapArguments, GetwcapArguments,
    ManagerStatus, Name, ReturncapArguments, SetFileAttributes, XattrFlags,
};
use nasd_types::{DriveId, Location, PartitionId, Personality};

use setup::{Cell, DRIVE_KEY, PARTITION_KEY};
use support::working_key;

const ADMINISTRATOR: &str = "admin:owner";

/// Forgets everything: good as long as no manager is started after keys have changed, so they change only where a test
/// asks for it.
#[derive(Debug)]
struct Forgetful;

impl KeyKeeper for Forgetful {
    fn keep(&self, _: DriveId, _: &KeptKeys) -> Result<(), KeeperError> {
        Ok(())
    }

    fn partition_keys(&self, _: DriveId) -> Result<Vec<SecretKey>, KeeperError> {
        Ok(vec![SecretKey::new(PARTITION_KEY)])
    }
}

#[derive(Debug, Default)]
struct Table {
    told: Mutex<Option<Vec<VolumeConfig>>>,
}

impl VolumeTable for Table {
    fn volumes(&self) -> Result<Vec<VolumeConfig>, TableError> {
        self.told.lock().unwrap().clone().ok_or_else(|| TableError("torn".to_owned()))
    }

    fn move_part(
        &self,
        volume: &Name,
        drive: DriveId,
        to: Location,
    ) -> Result<DriveConfig, TableError> {
        let mut told = self.told.lock().unwrap();
        let told = told.as_mut().ok_or_else(|| TableError("torn".to_owned()))?;
        let found = told.iter_mut().find(|known| known.name == *volume);
        let parts = found.into_iter().flat_map(|volume| &mut volume.drives);
        let mut parts = parts.filter(|part| part.id == drive);
        let part = parts.next().ok_or_else(|| TableError("nothing was prepared".to_owned()))?;
        part.moved_to = Some(to);
        Ok(part.clone())
    }
}

impl Table {
    fn set(&self, volumes: Vec<VolumeConfig>) {
        *self.told.lock().unwrap() = Some(volumes);
    }
}

fn cell(drives: u64) -> (Cell, Arc<Table>) {
    let table = Arc::new(Table::default());
    table.set(Vec::new());
    let told = Arc::clone(&table);
    let cell = Cell::with(drives, move |config| {
        config.table = Some(told);
        config.keeper = Some(Arc::new(Forgetful));
        config.rotation_interval = None;
        config.short_patience = Duration::from_secs(3);
        config.patience = Duration::from_secs(5);
    });
    (cell, table)
}

/// Partitions of that number on all drives, and the volume that has them.
fn volume(cell: &Cell, called: &str, number: u32, quota: u64, home: u64) -> VolumeConfig {
    volume_by(cell, called, (number, quota, home), |client, by_drive| {
        client.create_partition(by_drive, PartitionId(number)).unwrap();
    })
}

/// The same, with partitions that are made so.
fn volume_by(
    cell: &Cell,
    called: &str,
    (number, quota, home): (u32, u64, u64),
    make: impl Fn(&DriveClient, &Authority),
) -> VolumeConfig {
    let partition = PartitionId(number);
    let mut drives = cell.config.drives.clone();
    for drive in &mut drives {
        let client = cell.drive(drive.id);
        let by_drive = Authority::drive_key(SecretKey::new(DRIVE_KEY), cell.protection());
        make(&client, &by_drive);
        let key = SecretKey::new(PARTITION_KEY);
        client.set_partition_key(&by_drive, partition, &key).unwrap();
        let by_partition = Authority::partition_key(partition, key, cell.protection());
        let key = working_key(drive.id);
        client.set_working_key(&by_partition, partition, 1, &key).unwrap();
        client.resize_partition(&by_drive, partition, quota).unwrap();
        drive.partition = partition;
        drive.keys = KeptKeys::new(1, key);
    }
    VolumeConfig {
        name: name(called),
        home: DriveId(home),
        drives,
        keeper: Some(Arc::new(Forgetful)),
        root: RootOptions::default(),
        personality: Personality::Nfs,
        quota: None,
        read_only: false,
    }
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn root(client: &ManagerClient, volume: &str) -> File {
    client.volume(&Caller::ROOT, volume.as_bytes()).unwrap().root
}

fn status<T: std::fmt::Debug>(told: Result<T, ClientError>) -> ManagerStatus {
    match told.unwrap_err() {
        ClientError::Manager(status) => status,
        error => panic!("{error}"),
    }
}

fn served(cell: &Cell) -> Vec<(String, bool)> {
    let list = cell.client("host:a").volumes(&Caller::ROOT).unwrap();
    list.volumes.iter().map(|volume| (volume.name.to_string(), volume.serving)).collect()
}

#[test]
fn volumes_come_and_go_and_know_nothing_of_each_other() {
    let (cell, table) = cell(2);
    let client = cell.client("host:a");
    let home = root(&client, "home");
    let there = client.create(&Caller::ROOT, home.handle, b"file", 0o600, true).unwrap();
    let scratch = volume(&cell, "scratch", 2, 16 << 20, 2);
    table.set(vec![scratch.clone()]);
    assert_eq!(status(client.reload_volumes()), ManagerStatus::Permission);
    assert_eq!(status(client.volume(&Caller::ROOT, b"scratch")), ManagerStatus::NotFound);
    cell.client(ADMINISTRATOR).reload_volumes().unwrap();
    assert_eq!(served(&cell), [("home".to_owned(), true), ("scratch".to_owned(), true)]);

    let other = root(&client, "scratch");
    assert_eq!((other.handle.drive, other.handle.partition), (DriveId(2), PartitionId(2)));
    let missing = client.lookup(&Caller::ROOT, other.handle, b"file");
    assert_eq!(status(missing), ManagerStatus::NotFound);
    let here = client.create(&Caller::ROOT, other.handle, b"file", 0o600, true).unwrap();
    assert_eq!(here.handle.partition, PartitionId(2));
    // Nothing leads from one to the other.
    let linked = client.link(&Caller::ROOT, there.handle, other.handle, b"link");
    assert_eq!(status(linked), ManagerStatus::Stale);
    // The quota is what it can hold.
    let space = client.space(&Caller::ROOT, b"scratch").unwrap();
    assert!(space.total_bytes == 32 << 20 && space.free_bytes > 31 << 20, "{space:?}");
    assert!(client.space(&Caller::ROOT, b"home").unwrap().total_bytes > 300 << 20);
    let parts = client.volume_parts(&Caller::ROOT, &name("scratch")).unwrap().parts;
    assert!(parts.iter().all(|part| part.reachable && part.quota_bytes == 16 << 20), "{parts:?}");
    let parts = client.volume_parts(&Caller::ROOT, &name("")).unwrap().parts;
    assert!(parts.iter().all(|part| part.quota_bytes == NO_QUOTA), "{parts:?}");

    // What can't be read changes nothing; what is the same goes on.
    *table.told.lock().unwrap() = None;
    assert_eq!(status(cell.client(ADMINISTRATOR).reload_volumes()), ManagerStatus::Io);
    client.getattr(&Caller::ROOT, here.handle).unwrap();
    table.set(vec![scratch]);
    cell.client(ADMINISTRATOR).reload_volumes().unwrap();
    client.getattr(&Caller::ROOT, here.handle).unwrap();
    table.set(Vec::new());
    cell.client(ADMINISTRATOR).reload_volumes().unwrap();
    assert_eq!(status(client.getattr(&Caller::ROOT, here.handle)), ManagerStatus::Stale);
    assert_eq!(status(client.volume(&Caller::ROOT, b"scratch")), ManagerStatus::NotFound);
    client.getattr(&Caller::ROOT, there.handle).unwrap();
}

#[test]
fn a_volume_outlives_its_manager_and_two_can_not_have_one_name() {
    let (mut cell, table) = cell(2);
    let scratch = volume(&cell, "scratch", 7, NO_QUOTA, 1);
    table.set(vec![scratch.clone()]);
    cell.client(ADMINISTRATOR).reload_volumes().unwrap();
    let client = cell.client("host:a");
    let made = root(&client, "scratch").handle;
    client.mkdir(&Caller::ROOT, made, b"there", 0o755).unwrap();
    cell.restart_manager();
    assert_eq!(root(&client, "scratch").handle, made);
    client.lookup(&Caller::ROOT, made, b"there").unwrap();
    for called in ["home", "scratch"] {
        let twin = VolumeConfig { name: name(called), ..scratch.clone() };
        table.set(vec![scratch.clone(), twin]);
        assert_eq!(status(cell.client(ADMINISTRATOR).reload_volumes()), ManagerStatus::Io);
    }
    client.lookup(&Caller::ROOT, made, b"there").unwrap();
}

#[test]
fn capabilities_of_all_volumes_go_with_their_keys() {
    let (cell, table) = cell(1);
    table.set(vec![volume(&cell, "scratch", 2, NO_QUOTA, 1)]);
    cell.client(ADMINISTRATOR).reload_volumes().unwrap();
    let client = cell.client("host:a");
    let file = client
        .create(&Caller::ROOT, root(&client, "scratch").handle, b"file", 0o600, true)
        .unwrap();
    let by = Authority::capability(&file.capability, cell.protection());
    let drive = cell.drive(DriveId(1));
    drive.getattr(&by, file.handle.name()).unwrap();
    let rotated = cell.client(ADMINISTRATOR).rotate(true).unwrap();
    assert!(rotated.drives.len() == 1 && rotated.drives[0].done, "{rotated:?}");
    drive.getattr(&by, file.handle.name()).unwrap_err();
    // Who asks gets a new one.
    let again = client.getattr(&Caller::ROOT, file.handle).unwrap();
    let by = Authority::capability(&again.capability, cell.protection());
    drive.getattr(&by, file.handle.name()).unwrap();
}

#[test]
fn a_volume_whose_home_is_away_waits_and_the_others_do_not() {
    let (mut cell, table) = cell(2);
    let scratch = volume(&cell, "scratch", 2, NO_QUOTA, 2);
    cell.drives[1].stop();
    table.set(vec![scratch]);
    cell.client(ADMINISTRATOR).reload_volumes().unwrap();
    assert_eq!(served(&cell), [("home".to_owned(), true), ("scratch".to_owned(), false)]);
    let client = cell.client("host:a");
    let home = root(&client, "home");
    client.getattr(&Caller::ROOT, home.handle).unwrap();
    cell.drives[1].start();
    let deadline = Instant::now() + Duration::from_secs(60);
    while served(&cell) != [("home".to_owned(), true), ("scratch".to_owned(), true)] {
        assert!(Instant::now() < deadline, "it is not served");
        std::thread::sleep(Duration::from_millis(50));
    }
    root(&client, "scratch");
}

/// A volume of partitions that are copies of another one's.
fn copy_of(cell: &Cell, source: &VolumeConfig, called: &str, number: u32) -> VolumeConfig {
    let home = source.home.0;
    let from = source.drives[0].partition;
    let copy = volume_by(cell, called, (number, NO_QUOTA, home), |client, by_drive| {
        client.copy_partition(by_drive, from, PartitionId(number)).unwrap();
    });
    VolumeConfig { personality: source.personality, ..copy }
}

fn adopt(cell: &Cell, source: &VolumeConfig, copy: &VolumeConfig) {
    let source = source.drives.iter().map(|drive| (drive.id, drive.partition)).collect();
    let adopted = adopt_partitions(&cell.config.of_volume(copy), source, &mut |_| {}).unwrap();
    println!("{adopted:?}");
}

const MOMENT: Duration = Duration::from_secs(30);

/// A chain of directories with many files, and a file with attributes that have an object of their own.
fn furnish(client: &ManagerClient, at: FileHandle) {
    let caller = &Caller::ROOT;
    let mut directory = at;
    for depth in 0..5 {
        directory = client.mkdir(caller, directory, b"deep", 0o755).unwrap().reply.handle;
        for file in 0..40 {
            let name = format!("file-{depth}-{file}");
            client.create(caller, directory, name.as_bytes(), 0o644, true).unwrap();
        }
    }
    let long = client.create(caller, at, b"long", 0o644, true).unwrap().reply.handle;
    client.setxattr(caller, long, b"user.a", &[7; 2000], XattrFlags::NONE).unwrap();
}

/// The same of a copy, whose partition is that.
fn assert_furnished(client: &ManagerClient, at: FileHandle, partition: PartitionId) {
    let caller = &Caller::ROOT;
    let mut directory = at;
    for _ in 0..5 {
        let parent = directory;
        directory = client.lookup(caller, directory, b"deep").unwrap().handle;
        assert_eq!(directory.partition, partition);
        assert_eq!(client.lookup(caller, directory, b"..").unwrap().handle, parent);
        let listed = client.readdir(caller, directory, 0, 1000).unwrap().entries;
        assert!(listed.iter().all(|entry| entry.handle.partition == partition));
        assert!(listed.len() >= 40, "{}", listed.len());
    }
    let long = client.lookup(caller, at, b"long").unwrap().handle;
    assert_eq!(client.getxattr(caller, long, b"user.a").unwrap(), [7; 2000]);
}

fn assert_not_changed(cell: &Cell, client: &ManagerClient, (at, file): (FileHandle, &File)) {
    let caller = &Caller::ROOT;
    let refused = client.create(caller, at, b"new", 0o600, true).map(drop);
    assert_eq!(status(refused), ManagerStatus::ReadOnly);
    let shorter = SetFileAttributes { size: Some(9), ..SetFileAttributes::default() };
    let refused = client.setattr(caller, file.handle, &shorter).map(drop);
    assert_eq!(status(refused), ManagerStatus::ReadOnly);
    let by_capability = Authority::capability(&file.capability, cell.protection());
    let written = cell.drive_of(file).write(&by_capability, file.handle.name(), 0, b"x", true);
    assert!(matches!(written, Err(ClientError::Refused(_))), "{written:?}");
}

#[test]
fn a_copy_at_one_moment_is_a_volume_that_is_not_changed() {
    for personality in [Personality::Nfs, Personality::Afs] {
        let (cell, table) = cell(2);
        let (client, administrator) = (cell.client("host:a"), cell.client(ADMINISTRATOR));
        let source = VolumeConfig { personality, ..volume(&cell, "work", 2, NO_QUOTA, 2) };
        table.set(vec![source.clone()]);
        administrator.reload_volumes().unwrap();
        let (caller, at) = (&Caller::ROOT, root(&client, "work").handle);
        furnish(&client, at);
        let early = client.create(caller, at, b"early", 0o644, true).unwrap().reply;
        let held = administrator.hold_volume(&name("work"), MOMENT).unwrap();
        let copy = copy_of(&cell, &source, "copy", 3);
        administrator.release_volume(&name("work"), held).unwrap();
        let again = administrator.release_volume(&name("work"), held);
        assert_eq!(status(again), ManagerStatus::Stale);
        client.create(caller, at, b"later", 0o644, true).unwrap();
        adopt(&cell, &source, &copy);
        let copy = VolumeConfig { read_only: true, ..copy };
        table.set(vec![source.clone(), copy.clone()]);
        administrator.reload_volumes().unwrap();

        let copied = root(&client, "copy").handle;
        assert_eq!((copied.partition, copied.object), (PartitionId(3), at.object));
        assert_furnished(&client, copied, PartitionId(3));
        assert_eq!(status(client.lookup(caller, copied, b"later")), ManagerStatus::NotFound);
        let file = client.lookup(caller, copied, b"early").unwrap();
        assert_eq!(file.attributes.modify_time, early.attributes.modify_time);
        assert_not_changed(&cell, &client, (copied, &file));
        // Nothing is left of what was made ahead.
        let parts = client.volume_parts(caller, &name("copy")).unwrap().parts;
        let objects: u64 = parts.iter().map(|part| part.objects).sum();
        // 5 directories with 40 files each, two files, the attributes, the root, the journal, and a First Object on each drive.
        assert_eq!(objects, 5 * 41 + 2 + 1 + 1 + 1 + 2);
    }
}

#[test]
fn a_held_volume_stands_still_and_goes_on_by_itself() {
    let (cell, table) = cell(1);
    let (client, administrator) = (cell.client("host:a"), cell.client(ADMINISTRATOR));
    let plain = volume(&cell, "plain", 2, NO_QUOTA, 1);
    let shared =
        VolumeConfig { personality: Personality::Afs, ..volume(&cell, "shared", 3, NO_QUOTA, 1) };
    table.set(vec![plain, shared]);
    administrator.reload_volumes().unwrap();
    let refused = client.hold_volume(&name("plain"), MOMENT);
    assert_eq!(status(refused), ManagerStatus::Permission);
    for volume in ["home", "plain", "shared"] {
        let (caller, at) = (&Caller::ROOT, root(&client, volume));
        let file = client.create(caller, at.handle, b"before", 0o644, true).unwrap().reply;
        let most = Duration::from_millis(1500);
        let held = administrator.hold_volume(&name(volume), most).unwrap();
        let begun = Instant::now();
        if volume != "shared" {
            // No capability of before is good.
            let by = Authority::capability(&file.capability, cell.protection());
            let written = cell.drive_of(&file).write(&by, file.handle.name(), 0, b"x", true);
            assert!(matches!(written, Err(ClientError::Refused(_))), "{volume}: {written:?}");
        } else {
            // Who only looks is not held up.
            client.lookup(caller, at.handle, b"before").unwrap();
            assert!(begun.elapsed() < most);
        }
        // Whoever held it has died.
        client.create(caller, at.handle, b"after", 0o644, true).unwrap();
        assert!(begun.elapsed() >= most - Duration::from_millis(100), "{:?}", begun.elapsed());
        let late = administrator.release_volume(&name(volume), held);
        assert_eq!(status(late), ManagerStatus::Stale);
    }
    // One holds it at a time: another one waits.
    let most = Duration::from_millis(500);
    administrator.hold_volume(&name("plain"), most).unwrap();
    let begun = Instant::now();
    let again = administrator.hold_volume(&name("plain"), MOMENT).unwrap();
    assert!(begun.elapsed() >= most - Duration::from_millis(100), "{:?}", begun.elapsed());
    administrator.release_volume(&name("plain"), again).unwrap();
}

/// How many objects a volume has on its drives.
fn objects_of(client: &ManagerClient, volume: &str) -> u64 {
    let parts = client.volume_parts(&Caller::ROOT, &name(volume)).unwrap().parts;
    parts.iter().map(|part| part.objects).sum()
}

#[test]
fn what_the_manager_does_by_itself_waits_until_a_held_volume_goes_on() {
    for personality in [Personality::Nfs, Personality::Afs] {
        let (cell, table) = cell(1);
        let (client, administrator) = (cell.client("host:a"), cell.client(ADMINISTRATOR));
        let work = VolumeConfig { personality, ..volume(&cell, "work", 2, NO_QUOTA, 1) };
        table.set(vec![work]);
        administrator.reload_volumes().unwrap();
        let (caller, at) = (&Caller::ROOT, root(&client, "work").handle);
        let opener = cell.client("host:b");
        let number = opener.number();
        let attach = AttachArguments { client: number, ..AttachArguments::default() };
        opener.attach(caller, &attach).unwrap();
        // More than were made ahead at first.
        let made = |number: u32| {
            let called = format!("file-{number}");
            client.create(caller, at, called.as_bytes(), 0o644, true).unwrap().reply
        };
        let gone = made(0).handle;
        (1..100).for_each(|number| drop(made(number)));
        client.unlink(caller, at, b"file-0", None).unwrap();
        let held = administrator.hold_volume(&name("work"), Duration::from_secs(20)).unwrap();
        let before = objects_of(&client, "work");
        // Nobody has it open any more.
        opener.closed(caller, &ClosedArguments { client: number, files: vec![gone] }).unwrap();
        std::thread::sleep(Duration::from_millis(1500));
        assert_eq!(objects_of(&client, "work"), before, "{personality}");
        let by_drive = Authority::drive_key(SecretKey::new(DRIVE_KEY), cell.protection());
        let is_there = || cell.drive(DriveId(1)).getattr(&by_drive, within(2, gone)).is_ok();
        assert!(is_there(), "{personality}");
        administrator.release_volume(&name("work"), held).unwrap();
        let begun = Instant::now();
        while is_there() {
            assert!(begun.elapsed() < Duration::from_secs(60), "{personality}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The name of a file's object in a partition of that number.
fn within(number: u32, file: FileHandle) -> nasd_types::ObjectName {
    nasd_types::ObjectName { partition: PartitionId(number), object: file.object }
}

#[test]
fn a_volume_with_callbacks_is_not_held_in_the_middle_of_a_store() {
    let (cell, table) = cell(1);
    let (client, administrator) = (cell.client("host:a"), cell.client(ADMINISTRATOR));
    let shared =
        VolumeConfig { personality: Personality::Afs, ..volume(&cell, "shared", 2, NO_QUOTA, 1) };
    table.set(vec![shared]);
    administrator.reload_volumes().unwrap();
    let number = client.number();
    let attach = AttachArguments { client: number, ..AttachArguments::default() };
    client.attach(&Caller::ROOT, &attach).unwrap();
    let at = root(&client, "shared").handle;
    let make = |called: &str| {
        let made = client.create(&Caller::ROOT, at, called.as_bytes(), 0o644, true);
        made.unwrap().reply.handle
    };
    let (one, other) = (make("one"), make("other"));
    let asked =
        |file| GetwcapArguments { file, client: number, least_end: 9, best_end: 9, cut: None };
    let storing = client.get_write_capability(&Caller::ROOT, &asked(one)).unwrap();
    std::thread::scope(|scope| {
        let holding = scope.spawn(|| administrator.hold_volume(&name("shared"), MOMENT));
        // It waits for the store; who reads another file does not, and nobody begins to store.
        let read = GetcapArguments { file: other, client: number, contents: false };
        client.get_capability(&Caller::ROOT, &read).unwrap();
        assert!(!holding.is_finished());
        let returned = ReturncapArguments { file: one, client: number, version: storing.version };
        client.return_capability(&Caller::ROOT, &returned).unwrap();
        let held = holding.join().unwrap().unwrap();
        let begun = scope.spawn(|| client.get_write_capability(&Caller::ROOT, &asked(other)));
        let drive = cell.drive(DriveId(1));
        let by_drive = Authority::drive_key(SecretKey::new(DRIVE_KEY), cell.protection());
        drive.copy_partition(&by_drive, PartitionId(2), PartitionId(3)).unwrap();
        assert!(!begun.is_finished(), "somebody has begun to store");
        administrator.release_volume(&name("shared"), held).unwrap();
        assert_eq!(begun.join().unwrap().unwrap().version % 2, 1);
        let version = |partition| {
            let object = nasd_types::ObjectName { partition, object: other.object };
            let told = drive.getattr(&by_drive, object).unwrap();
            told.access_control_version
        };
        assert_eq!(version(PartitionId(3)) % 2, 0, "it was copied before");
    });
}
