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
use nasd_client::{Authority, Caller, ClientError, ManagerClient};
use nasd_manager::keys::{KeeperError, KeptKeys, KeyKeeper};
use nasd_manager::{RootOptions, TableError, VolumeConfig, VolumeTable};
use nasd_protocol::drive::NO_QUOTA;
use nasd_protocol::manager::{File, ManagerStatus, Name};
use nasd_types::{DriveId, PartitionId, Personality};

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
    let partition = PartitionId(number);
    let mut drives = cell.config.drives.clone();
    for drive in &mut drives {
        let client = cell.drive(drive.id);
        let by_drive = Authority::drive_key(SecretKey::new(DRIVE_KEY), cell.protection());
        client.create_partition(&by_drive, partition).unwrap();
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
