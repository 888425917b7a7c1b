//! Working keys that change while the volume is in use, over sockets, with drives behind theirs.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

#[path = "support/cell.rs"]
#[allow(dead_code, reason = "each test file uses its part")]
mod setup;
mod support;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nasd_capability::SecretKey;
use nasd_clerk::{Clerk, ClerkOptions, OpenFile, OpenMode, RenameFlags};
use nasd_client::{Authority, Caller, ClientError, ConnectOptions, ManagerClient, RetryPolicy};
use nasd_manager::keys::{KeeperError, KeptKeys, KeyKeeper};
use nasd_protocol::manager::{
    AttachArguments, File, GetcapArguments, ManagerStatus, Name, Rotation,
};
use nasd_types::{DriveId, Personality};

use setup::{Cell, PARTITION_KEY};

const ADMINISTRATOR: &str = "admin:owner";

/// Keeps keys in memory, as a keyring does on a disk: they outlive managers.
#[derive(Debug, Default)]
struct Ring {
    kept: Mutex<BTreeMap<DriveId, KeptKeys>>,
    /// At which call from now on it fails, and whether it has kept the keys then.
    dies: Mutex<Option<(u32, bool)>>,
}

impl KeyKeeper for Ring {
    fn keep(&self, drive: DriveId, keys: &KeptKeys) -> Result<(), KeeperError> {
        let mut dies = self.dies.lock().unwrap();
        let (dead, keeps) = match &mut *dies {
            Some((0, _)) => (true, false),
            Some((left, keeps)) => {
                *left -= 1;
                (*left == 0, *left > 0 || *keeps)
            }
            None => (false, true),
        };
        if keeps {
            self.kept.lock().unwrap().insert(drive, keys.clone());
        }
        if dead { Err(KeeperError("dead".to_owned())) } else { Ok(()) }
    }

    fn partition_keys(&self, _: DriveId) -> Result<Vec<SecretKey>, KeeperError> {
        // As while one replaces another that the drive never got.
        Ok(vec![SecretKey::new([0x5a; 32]), SecretKey::new(PARTITION_KEY)])
    }
}

impl Ring {
    fn epoch(&self, drive: u64) -> u32 {
        self.kept.lock().unwrap().get(&DriveId(drive)).map_or(1, |kept| kept.current.epoch)
    }
}

/// How long a manager waits for a drive where all are there.
const NONE_AWAY: Duration = Duration::from_secs(20);
/// And where one is to be found to be away, or the manager is killed.
const SOME_AWAY: Duration = Duration::from_secs(2);
/// Longer than any test.
const LONG: Duration = Duration::from_secs(3600);

/// A cell whose manager changes keys: when it is asked, or in this interval.
fn cell(drives: u64, interval: Option<Duration>, patience: Duration) -> (Cell, Arc<Ring>) {
    let ring = Arc::new(Ring::default());
    let keeper = Arc::clone(&ring);
    let cell = Cell::with(drives, move |config| {
        config.keeper = Some(keeper);
        config.rotation_interval = interval;
        config.short_patience = patience;
        config.root.mode = 0o777;
    });
    (cell, ring)
}

/// Kills the manager; the next one has the keys that were kept.
fn restart(cell: &mut Cell, ring: &Ring) {
    *ring.dies.lock().unwrap() = None;
    for drive in &mut cell.config.drives {
        if let Some(kept) = ring.kept.lock().unwrap().get(&drive.id) {
            drive.keys = kept.clone();
        }
    }
    cell.restart_manager();
}

fn clerk(cell: &Cell, uid: u32) -> (Arc<Clerk>, Arc<Caller>) {
    let caller = Arc::new(Caller { uid, gid: uid, groups: vec![] });
    let address = cell.manager_address.to_string();
    let (tls, volume) = (cell.client_tls("host:a"), name("home"));
    let options = ClerkOptions::new(address, tls, volume, Arc::clone(&caller));
    (Arc::new(Clerk::connect(&options).unwrap()), caller)
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// A new file of a clerk, open for reading and writing.
fn new_file(clerk: &Clerk, caller: &Arc<Caller>, called: &str) -> OpenFile {
    let made = clerk.create(caller, clerk.root(), &name(called), 0o600, true).unwrap();
    clerk.open(caller, made.handle, OpenMode::READ_WRITE).unwrap().0
}

fn rotate(cell: &Cell, at_once: bool) -> Rotation {
    cell.client(ADMINISTRATOR).rotate(at_once).unwrap()
}

/// A file of root with some bytes in it, on some drive.
fn file(cell: &Cell, called: &str) -> File {
    let client = cell.client("host:a");
    let root = client.volume(&Caller::ROOT, b"home").unwrap().root.handle;
    client.create(&Caller::ROOT, root, called.as_bytes(), 0o600, true).unwrap().reply
}

fn getattr_by(cell: &Cell, file: &File) -> Result<(), ClientError> {
    let authority = Authority::capability(&file.capability, cell.protection());
    cell.drive_of(file).getattr(&authority, file.handle.name()).map(|_| ())
}

fn is_dead(cell: &Cell, file: &File) -> bool {
    matches!(getattr_by(cell, file), Err(ClientError::Refused(status)) if status.needs_new_capability())
}

/// What one user does for as long as `goes_on`, which is told how often he did it: every byte and name must come out
/// right.
fn work(cell: &Cell, uid: u32, goes_on: impl Fn(usize) -> bool) {
    let (clerk, caller) = clerk(cell, uid);
    let root = clerk.root();
    let long = new_file(&clerk, &caller, &format!("long-{uid}"));
    let mut rounds = 0;
    while goes_on(rounds) {
        let old = format!("{uid}-{rounds}");
        let bytes = vec![rounds as u8; 5000 + rounds];
        for file in [&long, &new_file(&clerk, &caller, &old)] {
            file.write(0, &bytes).unwrap();
            file.sync().unwrap();
            let mut back = vec![0; bytes.len()];
            assert_eq!(file.read(0, &mut back).unwrap(), bytes.len());
            assert_eq!(back, bytes);
        }
        let (old, new) = (name(&old), name(&format!("{old}-moved")));
        clerk.rename(&caller, (root, &old), (root, &new), RenameFlags::default(), None).unwrap();
        clerk.unlink(&caller, root, &new, None).unwrap();
        rounds += 1;
    }
    long.close().unwrap();
}

#[test]
fn nobody_notices_that_keys_change_every_few_milliseconds() {
    let (cell, ring) = cell(2, Some(Duration::from_millis(4)), NONE_AWAY);
    let began = Instant::now();
    // Four seconds, and longer where the machine is slow: it is not its speed that is asked for.
    let goes_on = |rounds: usize| {
        let changes = [1, 2].map(|drive| ring.epoch(drive));
        let told = || format!("{rounds} rounds, {changes:?} changes");
        assert!(began.elapsed() < Duration::from_secs(20), "{}", told());
        let is_little = rounds <= 3 || changes.iter().any(|changes| *changes <= 50);
        is_little || began.elapsed() < Duration::from_secs(4)
    };
    std::thread::scope(|scope| {
        for uid in 1..=4 {
            let cell = &cell;
            scope.spawn(move || work(cell, uid, goes_on));
        }
    });
}

#[test]
fn keys_are_not_changed_before_their_time() {
    let (cell, ring) = cell(1, Some(Duration::from_secs(3600)), NONE_AWAY);
    // Nothing is known of the first key's age.
    wait_until("the first change", || ring.epoch(1) == 2);
    std::thread::sleep(Duration::from_millis(600));
    assert_eq!(ring.epoch(1), 2);
    file(&cell, "a");
}

#[test]
fn one_change_leaves_capabilities_good_and_two_at_once_none() {
    let (cell, _) = cell(2, None, NONE_AWAY);
    let (clerk, caller) = clerk(&cell, 0);
    let open = new_file(&clerk, &caller, "open");
    open.write(0, b"before").unwrap();
    open.sync().unwrap();

    let stolen = file(&cell, "stolen");
    let told = rotate(&cell, false);
    assert!(told.drives.len() == 2 && told.drives.iter().all(|each| each.done && each.epoch == 2));
    getattr_by(&cell, &stolen).unwrap();
    let told = rotate(&cell, true);
    assert!(told.drives.iter().all(|each| each.done && each.epoch == 4), "{told:?}");
    assert!(is_dead(&cell, &stolen));

    // From one key to the fourth: the present one's two predecessors' capabilities are gone.
    let recent = file(&cell, "recent");
    rotate(&cell, true);
    assert!(is_dead(&cell, &recent));
    // Who may still have one gets one, and has noticed nothing.
    open.write(0, b"after!").unwrap();
    open.sync().unwrap();
    let mut back = [0; 6];
    open.read(0, &mut back).unwrap();
    assert_eq!(&back, b"after!");
}

#[test]
fn a_manager_killed_at_any_point_of_a_change_starts_and_serves() {
    let (mut cell, ring) = cell(2, None, SOME_AWAY);
    for (call, keeps) in (1..=6).flat_map(|call| [(call, false), (call, true)]) {
        // Nobody else changes keys while the calls are counted.
        let often = std::mem::replace(&mut cell.config.housekeeping_interval, LONG);
        restart(&mut cell, &ring);
        let name = format!("{call}-{keeps}");
        let before = file(&cell, &name);
        *ring.dies.lock().unwrap() = Some((call, keeps));
        let failed = cell.client(ADMINISTRATOR).rotate(true);
        // Two calls note the debt; then the drives' threads take turns as they like.
        assert_eq!(failed.is_err(), call <= 2, "{call}: {failed:?}");
        cell.config.housekeeping_interval = often;
        restart(&mut cell, &ring);
        let client = cell.client("host:a");
        let found = client.getattr(&Caller::ROOT, before.handle).unwrap();
        getattr_by(&cell, &found).unwrap();
        file(&cell, &format!("{name}-after"));
        if call > 2 || (call == 2 && keeps) {
            // The debt was durable, so that it is paid, whoever is the manager then.
            wait_until("the old capability dies", || is_dead(&cell, &before));
        }
        rotate(&cell, false);
    }
}

#[test]
fn a_drive_that_is_away_gets_its_key_later_while_others_go_on() {
    let (mut cell, ring) = cell(2, None, SOME_AWAY);
    let files: Vec<File> = (0..8).map(|index| file(&cell, &index.to_string())).collect();
    let stolen =
        |drive: u64| files.iter().find(|file| file.handle.drive == DriveId(drive)).unwrap();
    cell.drives[1].stop();
    let told = rotate(&cell, true);
    let done: Vec<bool> = told.drives.iter().map(|each| each.done).collect();
    assert_eq!(done, [true, false], "{told:?}");
    assert!(is_dead(&cell, stolen(1)));
    file_on_first(&cell);
    // Also if the manager that was asked is gone.
    restart(&mut cell, &ring);
    cell.drives[1].start();
    wait_until("the second drive has its key", || ring.epoch(2) == 3);
    assert!(is_dead(&cell, stolen(2)));
    let fresh = cell.client("host:a").getattr(&Caller::ROOT, stolen(2).handle).unwrap();
    getattr_by(&cell, &fresh).unwrap();
}

/// Some new file must come to the drive that is there.
fn file_on_first(cell: &Cell) {
    let made = file(cell, "while-away");
    assert_eq!(made.handle.drive, DriveId(1));
}

#[test]
fn a_manager_that_can_not_write_down_that_it_keeps_out_the_one_before_promises_nothing() {
    let ring = Arc::new(Ring::default());
    let keeper = Arc::clone(&ring);
    *ring.dies.lock().unwrap() = Some((0, false));
    let cell = Cell::with(2, move |config| {
        config.keeper = Some(keeper);
        config.personality = Personality::Afs;
        config.sessions.lease = LONG;
    });
    // It does not ask again for long.
    let retry = RetryPolicy::within(Duration::from_secs(1));
    let options = ConnectOptions { retry, ..ConnectOptions::default() };
    let address = cell.manager_address.to_string();
    let client = ManagerClient::tls(address, cell.client_tls("host:a"), &options);
    let number = client.number();
    client
        .attach(&Caller::ROOT, &AttachArguments { client: number, ..Default::default() })
        .unwrap();
    let root = client.volume(&Caller::ROOT, b"home").unwrap().root.handle;
    let asked = GetcapArguments { file: root, client: number, contents: false };
    let ask = || client.get_capability(&Caller::ROOT, &asked);
    let told = ask();
    assert!(matches!(told, Err(ClientError::Manager(ManagerStatus::Unavailable))), "{told:?}");
    // There is room on the disk again.
    *ring.dies.lock().unwrap() = None;
    wait_until("the keys are changed", || ask().is_ok());
    // Twice at least: who changes keys that are due may have come between.
    assert!(ring.epoch(1) >= 3 && ring.epoch(2) >= 3);
}

#[test]
fn only_administrators_change_keys_and_they_have_no_files() {
    let (cell, ring) = cell(1, None, NONE_AWAY);
    for name in ["host:a", "user:0", "user:1000"] {
        let refused = cell.client(name).rotate(true).unwrap_err();
        assert_eq!(refused.manager_status(), Some(ManagerStatus::Permission), "{name}");
    }
    assert_eq!(ring.epoch(1), 1);
    let administrator = cell.client(ADMINISTRATOR);
    administrator.rotate(false).unwrap();
    assert_eq!(ring.epoch(1), 2);
    assert!(administrator.volume(&Caller::ROOT, b"home").is_err());
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < deadline, "waited too long until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
