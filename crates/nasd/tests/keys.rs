//! Keys, as an administrator has them changed, and as they change by themselves. The real binary
//! on real sockets.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use support::{CellOptions, TestCell, free_ports, noise, signal, text, wait_until};

fn cell(drives: u32) -> TestCell {
    TestCell::start(&CellOptions { drives, size: "128M", cache: "32M", ..CellOptions::default() })
}

fn told(cell: &TestCell, line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let output = cell.nasd(&words);
    assert!(output.status.success(), "nasd {line}: {}", text(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn refused(cell: &TestCell, line: &str, expected: &[&str]) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let output = cell.nasd(&words);
    let printed = text(&output);
    assert!(!output.status.success(), "nasd {line} succeeded: {printed}");
    for word in expected {
        assert!(printed.contains(word), "no `{word}` in: {printed}");
    }
}

fn json(cell: &TestCell, line: &str) -> Value {
    serde_json::from_str(&told(cell, &format!("{line} --json"))).unwrap()
}

fn epochs(cell: &TestCell) -> Vec<u64> {
    let facts = json(cell, "key show");
    let drives = facts["drives"].as_array().unwrap();
    drives.iter().map(|drive| drive["working_key_epoch"].as_u64().unwrap()).collect()
}

/// Changes how often the manager changes keys; the cell must be stopped.
fn rotate_every(cell: &TestCell, interval: &str) {
    let path = cell.cell().join("cell.toml");
    let config = fs::read_to_string(&path).unwrap();
    let changed = config
        .replace("rotate_keys_every = \"1d\"", &format!("rotate_keys_every = \"{interval}\""));
    assert_ne!(config, changed);
    fs::write(&path, changed).unwrap();
}

fn write_key(path: &Path, digits: &str) {
    fs::write(path, digits).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// So long the users of a cell may take for what takes a few seconds.
const SLOWEST: Duration = Duration::from_secs(30);

#[test]
fn nobody_notices_that_keys_change_all_the_time() {
    let mut cell = cell(2);
    cell.stop();
    rotate_every(&cell, "20ms");
    cell.restart();
    let before = epochs(&cell);
    let have_changed = || {
        let changed = epochs(&cell);
        before.iter().zip(&changed).all(|(before, changed)| *changed > before + 20)
    };
    // Five seconds, and longer where the machine is slow: it is not its speed that is asked for.
    let (begun, is_over) = (Instant::now(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for user in 0..3_u64 {
            let (cell, is_over) = (&cell, &is_over);
            scope.spawn(move || {
                let mut round = 0;
                let goes_on = |round| !is_over.load(Ordering::Relaxed) || round <= 3;
                while goes_on(round) && begun.elapsed() < SLOWEST {
                    let (path, bytes) =
                        (cell.path(&format!("{user}-{round}")), noise(user, 300_000));
                    fs::write(&path, &bytes).unwrap();
                    fs::File::open(&path).unwrap().sync_all().unwrap();
                    assert!(fs::read(&path).unwrap() == bytes);
                    fs::rename(&path, cell.path(&format!("{user}-moved"))).unwrap();
                    round += 1;
                }
                assert!(round > 3, "{round}");
            });
        }
        std::thread::sleep(Duration::from_secs(5));
        while !have_changed() && begun.elapsed() < SLOWEST {
            std::thread::sleep(Duration::from_millis(100));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let after = epochs(&cell);
    for (before, after) in before.iter().zip(&after) {
        assert!(after > &(before + 20), "{before} {after}");
    }
    // A manager that is killed goes on with a key that its drives know.
    for _ in 0..5 {
        signal(cell.member("manager serve"), "KILL");
        fs::write(cell.path("after-kill"), "x").unwrap();
        fs::remove_file(cell.path("after-kill")).unwrap();
    }
    cell.stop();
}

#[test]
fn keys_are_shown_and_changed_on_demand() {
    let cell = cell(2);
    fs::write(cell.path("file"), noise(1, 100_000)).unwrap();
    assert_eq!(epochs(&cell), [1, 1]);
    let facts = json(&cell, "key show");
    assert_eq!(facts["rotate_keys_every"], "1d");
    let drive = &facts["drives"][0];
    assert!(drive["working_key_age"].as_u64().unwrap() < 100, "{drive}");
    assert!((86_000..=86_400).contains(&drive["next_rotation"].as_u64().unwrap()), "{drive}");
    assert_eq!(drive["master_key_here"], true);
    assert!(told(&cell, "key show").contains("master-keys.toml"));

    told(&cell, "key rotate");
    assert_eq!(epochs(&cell), [2, 2]);
    let facts = json(&cell, "key rotate --now");
    assert_eq!(facts["drives"][1]["done"], true);
    assert_eq!(epochs(&cell), [4, 4]);
    assert!(fs::read(cell.path("file")).unwrap() == noise(1, 100_000), "the mount goes on");

    // No secret is ever shown.
    let shown = told(&cell, "key show --json") + &told(&cell, "key show");
    let keyring = fs::read_to_string(cell.cell().join("keyring.toml")).unwrap();
    let secrets: Vec<&str> = keyring.split('"').filter(|word| word.len() == 64).collect();
    assert!(secrets.len() >= 6);
    assert!(secrets.iter().all(|secret| !shown.contains(secret)));
}

#[test]
fn a_drive_that_is_away_gets_its_key_when_it_is_back() {
    let cell = cell(2);
    // Stopped, it neither answers nor is started again.
    let second = cell.member("drive-2.img");
    signal(second, "STOP");
    let facts = json(&cell, "key rotate --now");
    let done = |index: usize| facts["drives"][index]["done"].as_bool().unwrap();
    assert!(done(0) != done(1), "{facts}");
    assert_eq!(epochs(&cell).iter().filter(|epoch| **epoch == 3).count(), 1);
    let owing = json(&cell, "key show");
    let drives = owing["drives"].as_array().unwrap();
    assert!(drives.iter().any(|drive| drive["next_rotation"] == 0), "{owing}");
    signal(second, "CONT");
    wait_until("the second drive has its key", || epochs(&cell).iter().all(|epoch| *epoch >= 3));
    fs::write(cell.path("file"), "x").unwrap();
}

#[test]
fn each_step_of_the_hierarchy_is_done_by_hand() {
    let cell = cell(1);
    told(&cell, "partition create 1 2");
    let object = told(&cell, "object create 1 2");
    let stat = format!("object stat 1 2 {}", object.trim());

    // Each key has authority over the one below, and each way to ask works before and after.
    told(&cell, "key set-drive 1");
    told(&cell, &stat);
    told(&cell, "key set-partition 1 2");
    told(&cell, &format!("{stat} --key-kind partition"));
    assert!(told(&cell, "key set-working 1 2").contains("epoch 2"));
    assert!(told(&cell, "key set-working 1 2").contains("epoch 3"));
    told(&cell, &format!("{stat} --key-kind working"));
    assert_eq!(json(&cell, "key show")["partitions"][0]["working_key_epoch"], 3);

    // The volume's own partition key too: the manager goes on with the new one.
    told(&cell, "key set-partition 1 1");
    told(&cell, "key rotate");
    fs::write(cell.path("file"), "x").unwrap();
    refused(&cell, "key set-working 1 1", &["nasd key rotate"]);
    refused(&cell, "key set-working 1 9", &["p9"]);
    refused(&cell, &format!("{stat} --key-kind master"), &["master"]);
    refused(&cell, "partition list 1 --key-kind working", &["--key-kind"]);
    refused(&cell, "partition resize 1 2 --quota 1M --key-kind partition", &["--key-kind"]);

    // A key that is the wrong one, or open to others.
    let file = cell.directory.path().join("key");
    write_key(&file, &"7".repeat(64));
    let by_file = format!("--key-file {}", file.display());
    refused(&cell, &format!("key set-drive 1 {by_file}"), &["master key"]);
    told(&cell, "partition list 1");
    fs::set_permissions(cell.cell().join("master-keys.toml"), fs::Permissions::from_mode(0o644))
        .unwrap();
    refused(&cell, "key set-drive 1", &["chmod 600"]);
    fs::rename(cell.cell().join("master-keys.toml"), cell.directory.path().join("away")).unwrap();
    refused(&cell, "key set-drive 1", &["master-keys.toml", "--key-file"]);
}

/// Has the manager change all working keys, which it must be able to.
fn rotated(cell: &TestCell) {
    let facts = json(cell, "key rotate");
    let drives = facts["drives"].as_array().unwrap();
    assert!(drives.iter().all(|drive| drive["done"] == true), "{facts}");
    wait_until("all keys are changed", || {
        let shown = json(cell, "key show");
        shown["drives"].as_array().unwrap().iter().all(|drive| drive["next_rotation"] != 0)
    });
}

/// Whether the keyring has a key that a drive may not have taken yet.
fn is_between_keys(cell: &TestCell) -> bool {
    fs::read_to_string(cell.cell().join("keyring.toml")).unwrap().contains("next_")
}

/// Of what is asked in the clear nothing is taken there but the question itself.
#[test]
fn keys_are_set_on_a_drive_that_demands_private_arguments() {
    let cell = cell(1);
    told(&cell, "partition create 1 2");
    told(&cell, "drive set 1 --minimum-protection privacy-args");
    for line in ["set-partition 1 1", "set-partition 1 2", "set-working 1 2", "set-drive 1"] {
        told(&cell, &format!("key {line}"));
    }
    assert!(!is_between_keys(&cell));
    rotated(&cell);
    told(&cell, "key readmit 1");
}

#[test]
fn keys_of_ones_own_are_in_the_keyring_too() {
    let cell = cell(1);
    let (file, other) = (cell.directory.path().join("key"), cell.directory.path().join("other"));
    write_key(&file, &"5a".repeat(32));
    write_key(&other, &"5b".repeat(32));
    let own = format!("--new-key-file {}", file.display());
    told(&cell, "partition create 1 2");
    let object = told(&cell, "object create 1 2");
    let stat = format!("object stat 1 2 {}", object.trim());

    told(&cell, &format!("key set-drive 1 {own}"));
    told(&cell, &stat);
    // The manager's: it goes on changing working keys by it, and after a restart.
    told(&cell, &format!("key set-partition 1 1 {own}"));
    rotated(&cell);
    assert_eq!(epochs(&cell), [2]);
    signal(cell.member("manager serve"), "KILL");
    told(&cell, "key rotate --now");
    fs::write(cell.path("file"), "x").unwrap();
    // Those of a partition made by hand, with a number of one's own.
    told(&cell, &format!("key set-partition 1 2 {own}"));
    told(&cell, &format!("{stat} --key-kind partition"));
    refused(&cell, &format!("key set-working 1 2 {own}"), &["--epoch"]);
    told(&cell, &format!("key set-working 1 2 {own} --epoch 40"));
    told(&cell, &format!("{stat} --key-kind working"));
    assert!(told(&cell, "key set-working 1 2").contains("epoch 41"));
    assert!(!is_between_keys(&cell));

    // What the drive refuses changes nothing, and is no key on its way.
    let wrong = format!("--key-file {}", other.display());
    for line in ["key set-drive 1", "key set-partition 1 1", "key set-partition 1 2"] {
        refused(&cell, &format!("{line} {own} {wrong}"), &["the drive refused"]);
        refused(&cell, &format!("{line} {wrong}"), &["the drive refused"]);
        assert!(!is_between_keys(&cell), "{line}");
    }
    refused(&cell, &format!("key set-working 1 2 {own} --epoch 40"), &["the drive answered"]);
    assert!(!is_between_keys(&cell));
    told(&cell, &stat);
    rotated(&cell);
    assert_eq!(epochs(&cell), [5]);
}

/// Gives a command, kills it after a while, and tells whether that was before its end.
fn kill_after(cell: &TestCell, line: &str, milliseconds: u64) -> bool {
    let mut command = support::nasd();
    command.args(line.split_whitespace()).arg("--cell").arg(cell.cell());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    std::thread::sleep(Duration::from_millis(milliseconds));
    let was_running = child.try_wait().unwrap().is_none();
    let _ = child.kill();
    child.wait().unwrap();
    was_running
}

/// Whether a drive has connections whose other end is gone and which it has not closed: it serves what came by them.
fn has_left_connections(cell: &TestCell) -> bool {
    const CLOSE_WAIT: &str = "08";
    let config: toml::Table =
        toml::from_str(&fs::read_to_string(cell.cell().join("cell.toml")).unwrap()).unwrap();
    let drives = config["drive"].as_array().unwrap().iter();
    let port = |drive: &toml::Value| {
        drive["address"].as_str().unwrap().rsplit(':').next().unwrap().parse::<u16>().unwrap()
    };
    let ports: Vec<String> = drives.map(|drive| format!(":{:04X}", port(drive))).collect();
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    table.lines().skip(1).any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let (local, state) = (fields.next().unwrap(), fields.nth(1).unwrap());
        state == CLOSE_WAIT && ports.iter().any(|port| local.ends_with(port))
    })
}

/// Whether all threads of a process wait for something now.
fn is_at_rest(process: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap().flatten();
    let mut told = threads.map(|thread| fs::read_to_string(thread.path().join("stat")));
    told.all(|told| told.is_ok_and(|told| told.rsplit(") ").next().unwrap().starts_with('S')))
}

/// Gives a command, and kills it when the new key is in the keyring and the drive's answers are lost.
fn kill_between_keys(cell: &TestCell, line: &str) {
    let path = cell.cell().join("cell.toml");
    let honest = fs::read_to_string(&path).unwrap();
    move_drive(cell, 0, |drive| one_way(drive, LOSES_ALL));
    let mut command = support::nasd();
    command.args(line.split_whitespace()).arg("--cell").arg(cell.cell());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until("the key is begun", || is_between_keys(cell));
    assert!(child.try_wait().unwrap().is_none());
    child.kill().unwrap();
    child.wait().unwrap();
    fs::write(&path, honest).unwrap();
    assert!(is_between_keys(cell), "{line}");
}

#[test]
fn setting_keys_is_killed_anywhere_and_nobody_is_locked_out() {
    let cell = cell(1);
    // For certain between two keys: the drive's answers are lost.
    for line in ["key set-partition 1 1", "key set-drive 1"] {
        kill_between_keys(&cell, line);
        rotated(&cell);
        told(&cell, "partition list 1");
        told(&cell, line);
        assert!(!is_between_keys(&cell), "{line}");
    }
    for step in 0..30 {
        let line = ["key set-partition 1 1", "key set-drive 1"][step % 2];
        kill_after(&cell, line, step as u64 / 2);
        // The manager and whoever asks by the drive key go on, whichever the drive has.
        rotated(&cell);
        told(&cell, "partition list 1");
        if step % 3 == 0 {
            told(&cell, line);
        }
    }
    // What they were writing, secrets too, goes with the next writing there.
    let left = |directory: &Path| {
        let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().ends_with(".new")).count()
    };
    write_key(&cell.cell().join("keyring.toml.99999999-0.new"), "drive_key = \"5a\"");
    write_key(&cell.cell().join("mine.new"), "not of the cell");
    told(&cell, "key set-drive 1");
    told(&cell, "key set-partition 1 1");
    assert!(!is_between_keys(&cell));
    assert_eq!(left(&cell.cell()), 1);
    assert!(cell.cell().join("mine.new").exists());
    rotated(&cell);
    write_key(&cell.cell().join("tls/admin.key.99999999-0.new"), "a key");
    signal(cell.member("manager serve"), "KILL");
    rotated(&cell);
    assert_eq!(left(&cell.cell().join("tls")), 0);
}

#[test]
fn a_key_on_its_way_is_not_replaced_by_another() {
    let cell = cell(1);
    let path = cell.cell().join("keyring.toml");
    let begun = "5a".repeat(32);
    let begin = |field: &str| {
        let mut ring: toml::Table = fs::read_to_string(&path).unwrap().parse().unwrap();
        let drive = ring["drive"].as_array_mut().unwrap()[0].as_table_mut().unwrap();
        drive.insert(field.to_owned(), begun.clone().into());
        write_key(&path, &ring.to_string());
    };
    let (same, other) = (cell.directory.path().join("same"), cell.directory.path().join("other"));
    write_key(&same, &begun);
    write_key(&other, &"5b".repeat(32));
    for (field, line) in
        [("next_drive_key", "key set-drive 1"), ("next_partition_key", "key set-partition 1 1")]
    {
        begin(field);
        let between = fs::read_to_string(&path).unwrap();
        let with = |file: &Path| format!("{line} --new-key-file {}", file.display());
        refused(&cell, &with(&other), &["was begun"]);
        // Refused by a wrong key above it, it may be the drive's all the same.
        refused(&cell, &format!("{line} --key-file {}", other.display()), &["the drive refused"]);
        assert!(is_between_keys(&cell));
        // The drive has not got it yet.
        told(&cell, "partition list 1");
        told(&cell, &with(&same));
        assert!(!is_between_keys(&cell));
        // The drive has it, and the keyring was not told.
        write_key(&path, &between);
        told(&cell, "partition list 1");
        rotated(&cell);
        told(&cell, line);
        assert!(!is_between_keys(&cell));
        told(&cell, "partition list 1");
        rotated(&cell);
    }
}

/// The procedure that asks a drive who it is.
const INQUIRY: u32 = 1;

/// What somebody on the way to a drive makes of its answers, once something else is asked than who it
/// is.
#[derive(Clone, Copy)]
struct OnTheWay {
    /// Each becomes a refusal, as anybody can make one; else none comes.
    forges: bool,
    /// Only the first.
    once: bool,
}

const LOSES_ALL: OnTheWay = OnTheWay { forges: false, once: false };
const REFUSES_ALL: OnTheWay = OnTheWay { forges: true, once: false };

/// Whether something else was asked, and whether that is over.
const HONEST: u32 = 0;
const BROKEN: u32 = 1;
const OVER: u32 = 2;

/// Listens in the drive's place.
fn one_way(drive: SocketAddr, does: OnTheWay) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let state = Arc::new(AtomicU32::new(HONEST));
    std::thread::spawn(move || {
        for client in listener.incoming() {
            pass_on(client.unwrap(), TcpStream::connect(drive).unwrap(), &state, does);
        }
    });
    address
}

fn pass_on(mut client: TcpStream, mut server: TcpStream, state: &Arc<AtomicU32>, does: OnTheWay) {
    let ends = (client.try_clone().unwrap(), server.try_clone().unwrap(), Arc::clone(state));
    std::thread::spawn(move || {
        let (mut client, mut server, state) = ends;
        let mut bytes = [0; 65536];
        while let Ok(read @ 1..) = client.read(&mut bytes) {
            // Behind the record's mark, the number, the kind and three versions of a call.
            let procedure = bytes[..read].get(24..28);
            if procedure.is_some_and(|number| number != INQUIRY.to_be_bytes()) {
                let _ = state.compare_exchange(HONEST, BROKEN, Ordering::AcqRel, Ordering::Acquire);
            }
            server.write_all(&bytes[..read]).unwrap();
        }
        let _ = server.shutdown(Shutdown::Both);
    });
    let state = Arc::clone(state);
    std::thread::spawn(move || {
        let mut bytes = [0; 65536];
        while let Ok(read @ 1..) = server.read(&mut bytes) {
            let after = if does.once { OVER } else { BROKEN };
            let order = (Ordering::AcqRel, Ordering::Acquire);
            let is_broken = state.compare_exchange(BROKEN, after, order.0, order.1).is_ok();
            let told = match (is_broken, does.forges) {
                (false, _) => bytes[..read].to_vec(),
                (true, true) => forged_refusal(&bytes[..read]),
                (true, false) => break,
            };
            if client.write_all(&told).is_err() {
                break;
            }
        }
        let _ = client.shutdown(Shutdown::Both);
    });
}

/// A refusal in the place of a drive's answer, with nothing in it that only the drive could know.
fn forged_refusal(answer: &[u8]) -> Vec<u8> {
    use nasd_capability::{Digest, NonceSource};
    use nasd_protocol::{AUTH_FLAVOR, Status, Verifier};
    let nonce = NonceSource::new(7).draw(nasd_types::Timestamp(1));
    let verifier = Verifier::plain(nonce, Digest::ZERO).to_body();
    let verifier: &[u8] = &verifier;
    // The call's number, and that it is an accepted reply.
    let mut reply = answer[4..16].to_vec();
    for word in [AUTH_FLAVOR, verifier.len() as u32] {
        reply.extend(word.to_be_bytes());
    }
    reply.extend(verifier);
    for word in [0, u32::from(Status::RefusedDigest)] {
        reply.extend(word.to_be_bytes());
    }
    let mark = 1 << 31 | reply.len() as u32;
    [&mark.to_be_bytes(), &reply[..]].concat()
}

#[test]
fn a_forged_refusal_loses_no_key_that_the_drive_has_taken() {
    let cell = cell(1);
    let config = cell.cell().join("cell.toml");
    let (honest, path) = (fs::read_to_string(&config).unwrap(), cell.cell().join("keyring.toml"));
    told(&cell, "partition create 1 2");
    let object = told(&cell, "object create 1 2");
    let stat = format!("object stat 1 2 {}", object.trim());
    for line in
        ["key set-drive 1", "key set-partition 1 1", "key set-partition 1 2", "key set-working 1 2"]
    {
        move_drive(&cell, 0, |drive| one_way(drive, REFUSES_ALL));
        refused(&cell, line, &["may have the new key or the one before"]);
        fs::write(&config, &honest).unwrap();
        assert!(is_between_keys(&cell), "{line}");
        // Whoever asks by any of them goes on, and the command is given again.
        rotated(&cell);
        told(&cell, "partition list 1");
        for kind in ["partition", "working"] {
            told(&cell, &format!("{stat} --key-kind {kind}"));
        }
        told(&cell, line);
        assert!(!is_between_keys(&cell), "{line}: {}", path.display());
        told(&cell, "partition list 1");
        for kind in ["partition", "working"] {
            told(&cell, &format!("{stat} --key-kind {kind}"));
        }
        rotated(&cell);
    }
    // By a wrong key from the beginning, nothing is begun.
    let other = cell.directory.path().join("other");
    write_key(&other, &"5b".repeat(32));
    refused(&cell, &format!("key set-drive 1 --key-file {}", other.display()), &["drive refused"]);
    assert!(!is_between_keys(&cell));
}

/// The address of the second drive in a cell's configuration.
fn address(config: &str) -> String {
    let config: toml::Table = config.parse().unwrap();
    config["drive"].as_array().unwrap()[1]["address"].as_str().unwrap().to_owned()
}

#[test]
fn a_drive_that_has_begun_anew_is_known_by_its_new_key() {
    let mut cell = cell(2);
    let config = cell.cell().join("cell.toml");
    let honest = fs::read_to_string(&config).unwrap();
    // The answer is lost, or forged; the drive does not know the old key any more.
    for forges in [false, true] {
        move_drive(&cell, 1, |drive| one_way(drive, OnTheWay { forges, once: true }));
        told(&cell, "key init 2 --yes");
        // The number of the partition is in the same file.
        let proxied = fs::read_to_string(&config).unwrap();
        fs::write(&config, proxied.replace(&address(&proxied), &address(&honest))).unwrap();
        assert_eq!(json(&cell, "partition list 2")["partitions"][0]["keys"], "working");
    }
    cell.stop();
    cell.restart();
    fill_both_drives(&cell);
}

/// Has commands find drive `index` of the cell at another address, and tells the one from before.
fn move_drive(cell: &TestCell, index: usize, to: impl Fn(SocketAddr) -> SocketAddr) {
    let path = cell.cell().join("cell.toml");
    let mut config: toml::Table = fs::read_to_string(&path).unwrap().parse().unwrap();
    let drive = config["drive"].as_array_mut().unwrap()[index].as_table_mut().unwrap();
    let before: SocketAddr = drive["address"].as_str().unwrap().parse().unwrap();
    drive.insert("address".to_owned(), to(before).to_string().into());
    fs::write(&path, config.to_string()).unwrap();
}

#[test]
fn a_drive_that_does_not_answer_is_not_one_that_refuses() {
    let cell = cell(2);
    let config = fs::read_to_string(cell.cell().join("cell.toml")).unwrap();
    move_drive(&cell, 0, |drive| one_way(drive, LOSES_ALL));
    let nobody = SocketAddr::from(([127, 0, 0, 1], free_ports(1)));
    move_drive(&cell, 1, |_| nobody);
    let (unanswered, away) = std::thread::scope(|scope| {
        let line = |drive| ["key", "set-partition", drive, "1"];
        let cell = &cell;
        let given = |drive| scope.spawn(move || text(&cell.nasd(&line(drive))));
        let (first, second) = (given("1"), given("2"));
        (first.join().unwrap(), second.join().unwrap())
    });
    assert!(unanswered.contains("may have the new key or the one before"), "{unanswered}");
    assert!(away.contains("can't reach") && !away.contains("may have"), "{away}");
    let ring = fs::read_to_string(cell.cell().join("keyring.toml")).unwrap();
    assert_eq!(ring.matches("next_partition_key").count(), 1, "of the one that may have it");
    // The manager goes on meanwhile, and the command when it is given again.
    rotated(&cell);
    fs::write(cell.cell().join("cell.toml"), config).unwrap();
    told(&cell, "key set-partition 1 1");
    told(&cell, "key set-partition 2 1");
    assert!(!is_between_keys(&cell));
    rotated(&cell);
}

#[test]
fn a_drive_begins_anew() {
    let mut cell = cell(2);
    told(&cell, "partition create 2 5");
    refused(&cell, "partition create 2 1", &["volume", "readmit"]);
    refused(&cell, "key init 2", &["everything", "files of main", "--yes"]);
    let said = told(&cell, "key init 2 --yes");
    assert!(said.contains("of the cell") && said.contains("nasd down"), "{said}");
    // The new master key is in the place of the old one.
    let masters = fs::read_to_string(cell.cell().join("master-keys.toml")).unwrap();
    assert_eq!(masters.matches("[[drive]]").count(), 2);
    let partitions = json(&cell, "partition list 2");
    let partitions = partitions["partitions"].as_array().unwrap();
    assert_eq!(partitions.len(), 1);
    assert_eq!(partitions[0]["keys"], "working");
    // A manager that has not heard of it yet does no harm.
    let facts = json(&cell, "key rotate");
    let done = facts["drives"].as_array().unwrap().iter().filter(|drive| drive["done"] == true);
    assert_eq!(done.count(), 1);
    cell.stop();
    cell.restart();
    fill_both_drives(&cell);
    told(&cell, "key rotate --now");
    // Without its master key here, too; and what a command before it has left is taken up.
    let away = cell.directory.path().join("new");
    write_key(&away, &"5a".repeat(32));
    told(&cell, &format!("key init 2 --yes --new-key-file {}", away.display()));
    refused(&cell, "key readmit 2", &["the drive refused"]);
    told(&cell, &format!("key readmit 2 --key-file {}", away.display()));
    cell.stop();
    cell.restart();
    fill_both_drives(&cell);
    // Names of what was lost lead nowhere, and never to what came later.
    let names = fs::read_dir(cell.mountpoint()).unwrap().map(|entry| entry.unwrap().path());
    let (there, lost): (Vec<_>, Vec<_>) = names.partition(|name| fs::metadata(name).is_ok());
    assert!(!there.is_empty() && !lost.is_empty());
    for name in there.iter().filter_map(|path| path.file_name()?.to_str()) {
        let index = name.rsplit('-').next().unwrap().parse().unwrap();
        assert!(fs::read(cell.path(name)).unwrap() == noise(index, 10_000), "{name}");
    }
    for name in lost.iter().filter_map(|path| path.file_name()?.to_str()) {
        told(&cell, &format!("rm main:/{name}"));
    }
    assert_eq!(fs::read_dir(cell.mountpoint()).unwrap().count(), there.len());
}

/// A drive, asked by the drive key.
fn by_drive_key(
    cell: &TestCell,
    drive: &toml::Value,
) -> (nasd_client::DriveClient, nasd_client::Authority) {
    let ring: toml::Table =
        fs::read_to_string(cell.cell().join("keyring.toml")).unwrap().parse().unwrap();
    let of = |keys: &&toml::Value| keys["id"] == drive["id"];
    let keys = ring["drive"].as_array().unwrap().iter().find(of).unwrap();
    let digits = keys["drive_key"].as_str().unwrap();
    let byte = |index: usize| u8::from_str_radix(&digits[2 * index..2 * index + 2], 16).unwrap();
    let key = nasd_capability::SecretKey::new(std::array::from_fn(byte));
    let address = drive["address"].as_str().unwrap();
    let options = nasd_client::ConnectOptions::default();
    let client = nasd_client::DriveClient::tcp(address, None, &options);
    let protection = nasd_types::Protection::SUPPORTED;
    (client, nasd_client::Authority::drive_key(key, protection))
}

#[test]
fn a_partition_that_was_made_and_nothing_else_is_taken_up() {
    let mut cell = cell(2);
    let config: toml::Table =
        fs::read_to_string(cell.cell().join("cell.toml")).unwrap().parse().unwrap();
    let drive = &config["drive"].as_array().unwrap()[1];
    let partition = nasd_types::PartitionId(drive["partition"].as_integer().unwrap() as u32);
    let (client, owner) = by_drive_key(&cell, drive);
    client.remove_partition(&owner, partition).unwrap();
    // A drive removes the objects behind the answer, and the number is taken until then.
    wait_until("it is gone", || client.create_partition(&owner, partition).is_ok());
    told(&cell, "key readmit 2");
    cell.stop();
    cell.restart();
    fill_both_drives(&cell);
}

#[test]
fn the_volumes_new_partition_is_none_that_somebody_has() {
    let cell = cell(2);
    let config: toml::Table =
        fs::read_to_string(cell.cell().join("cell.toml")).unwrap().parse().unwrap();
    let drive = &config["drive"].as_array().unwrap()[1];
    let number = |number: i64| nasd_types::PartitionId(number as u32);
    let partition = drive["partition"].as_integer().unwrap();
    let (client, owner) = by_drive_key(&cell, drive);
    // Somebody's, whose keys are elsewhere, has the number after it.
    client.create_partition(&owner, number(partition + 1)).unwrap();
    client.remove_partition(&owner, number(partition)).unwrap();
    told(&cell, "key readmit 2");
    let list = json(&cell, "partition list 2");
    let of = |at: i64| {
        let all = list["partitions"].as_array().unwrap();
        all.iter()
            .find(|each| each["partition"] == format!("p{at}"))
            .map(|each| each["keys"].clone())
    };
    assert_eq!(of(partition + 1), Some("none".into()), "{list}");
    assert_eq!(of(partition + 2), Some("working".into()), "{list}");
}

/// Makes files until both drives of the cell have some.
fn fill_both_drives(cell: &TestCell) {
    let already = fs::read_dir(cell.mountpoint()).unwrap().count();
    let mut drives = std::collections::BTreeSet::new();
    for index in 0..32 {
        let name = format!("file-{already}-{index}");
        fs::write(cell.path(&name), noise(index, 10_000)).unwrap();
        fs::File::open(cell.path(&name)).unwrap().sync_all().unwrap();
        assert!(fs::read(cell.path(&name)).unwrap() == noise(index, 10_000));
        let drive = json(cell, &format!("stat main:/{name}"))["drive"].as_str().unwrap().to_owned();
        drives.insert(drive);
    }
    assert_eq!(drives.len(), 2);
}

#[test]
fn the_drive_with_the_root_begins_anew() {
    let mut cell = cell(2);
    fill_both_drives(&cell);
    refused(&cell, "key init 1", &["names of all files", "--yes"]);
    told(&cell, "key init 1 --yes");
    told(&cell, "key rotate");
    cell.stop();
    cell.restart();
    assert_eq!(fs::read_dir(cell.mountpoint()).unwrap().count(), 0);
    fs::write(cell.path("file"), "x").unwrap();
    told(&cell, "key rotate --now");
    assert_eq!(fs::read_to_string(cell.path("file")).unwrap(), "x");
}

#[test]
fn a_drive_that_is_readmitted_loses_nothing() {
    let cell = cell(2);
    fs::write(cell.path("file"), noise(1, 100_000)).unwrap();
    fill_both_drives(&cell);
    for step in 0..12 {
        kill_after(&cell, "key readmit 2", step * 3);
        rotated(&cell);
    }
    told(&cell, "key readmit 2");
    told(&cell, "key readmit 1");
    assert!(fs::read(cell.path("file")).unwrap() == noise(1, 100_000));
    fill_both_drives(&cell);
}

#[test]
fn beginning_anew_is_killed_anywhere_and_goes_on() {
    let mut cell = cell(2);
    for step in 0..8 {
        kill_after(&cell, "key init 2 --yes", step * 6);
        // What it has sent may be done after its end: not after what comes next, which it would undo.
        wait_until("what was sent is done", || !has_left_connections(&cell));
        // A connection with answers that nobody has read is gone at once, and what came by it is not.
        let (drive, mut looks) = (cell.member("drive-2.img"), 0);
        wait_until("the drive has done all", || {
            looks = if is_at_rest(drive) { looks + 1 } else { 0 };
            looks >= 10
        });
        told(&cell, "key readmit 2");
        told(&cell, "key rotate");
    }
    cell.stop();
    cell.restart();
    fill_both_drives(&cell);
}

/// Runs a command of the cell with something in its environment.
fn with_environment(cell: &TestCell, line: &str, name: &str, value: &Path) -> std::process::Output {
    let mut command = support::nasd();
    command.args(line.split_whitespace()).arg("--cell").arg(cell.cell()).env(name, value);
    support::finish(command)
}

/// Seals the keyring, runs the cell with it, and opens it again.
fn seal_and_use(line: &str, name: &'static str, secret: &Path, wrong: &Path, sealed_by: &str) {
    let mut cell = cell(1);
    refused(&cell, line, &["running"]);
    cell.stop();
    let asked = |line: &str, value: &Path| with_environment(&cell, line, name, value);
    let sealed = asked(line, secret);
    assert!(sealed.status.success(), "{}", text(&sealed));
    let path = cell.cell().join("keyring.toml");
    let keyring = || fs::read_to_string(&path).unwrap();
    assert!(!keyring().contains("drive_key") && keyring().contains("sealed"));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    refused(&cell, "key show", &["sealed"]);
    assert!(text(&asked("key show", wrong)).contains("wrong one"));
    assert!(text(&asked("key show --json", secret)).contains(sealed_by));
    assert!(text(&asked(line, secret)).contains("unseal it first"));

    // The manager has the secret, and goes on changing keys.
    rotate_every(&cell, "200ms");
    let before = keyring();
    cell.restart_with(name, secret);
    fs::write(cell.path("file"), "x").unwrap();
    wait_until("keys are changed", || keyring() != before);
    assert!(!keyring().contains("drive_key"));
    fs::write(cell.path("file"), "y").unwrap();
    cell.stop();

    let unsealed = with_environment(&cell, "key unseal", name, secret);
    assert!(unsealed.status.success(), "{}", text(&unsealed));
    assert!(fs::read_to_string(&path).unwrap().contains("drive_key"));
    assert!(epochs(&cell)[0] >= 2);
}

#[test]
fn a_keyring_sealed_by_a_passphrase_goes_on_changing() {
    let scratch = support::scratch();
    let (right, wrong) = (scratch.path().join("right"), scratch.path().join("wrong"));
    write_key(&right, "correct horse battery staple\n");
    write_key(&wrong, "another\n");
    seal_and_use("key seal", "NASD_PASSPHRASE_FILE", &right, &wrong, "passphrase");
}

/// A directory as systemd makes it for a service: nobody writes there, the files are read-only; with an
/// access control list for a service that is not root's, `mode` shows its mask where a group's bits are.
fn credentials(directory: &Path, name: &str, secret: &[u8], mode: u32) {
    fs::create_dir(directory).unwrap();
    fs::write(directory.join(name), secret).unwrap();
    fs::set_permissions(directory.join(name), fs::Permissions::from_mode(mode)).unwrap();
    fs::set_permissions(directory, fs::Permissions::from_mode(0o500)).unwrap();
}

#[test]
fn a_keyring_sealed_by_a_credential_goes_on_changing() {
    let scratch = support::scratch();
    let (right, wrong) = (scratch.path().join("right"), scratch.path().join("wrong"));
    // No text, as `systemd-creds encrypt` takes any bytes.
    credentials(&right, "nasd", b"\xff\x00 a secret of\nsystemd's\n", 0o400);
    credentials(&wrong, "nasd", b"\xff\x00 a secret of\nsystemd's", 0o440);
    let line = "key seal --credential nasd";
    seal_and_use(line, "CREDENTIALS_DIRECTORY", &right, &wrong, "credential");
    for directory in [&right, &wrong] {
        fs::set_permissions(directory, fs::Permissions::from_mode(0o700)).unwrap();
    }
}

#[test]
fn a_credential_that_is_none_seals_and_opens_nothing() {
    let mut cell = cell(1);
    cell.stop();
    let scratch = support::scratch();
    let (good, brief) = (scratch.path().join("good"), scratch.path().join("brief"));
    credentials(&good, "nasd", b"sixteen bytes or more", 0o440);
    credentials(&brief, "nasd", b"fifteen bytes..", 0o400);
    let keyring = || fs::read(cell.cell().join("keyring.toml")).unwrap();
    let open = keyring();
    let asked = |line: &str, directory: &Path| {
        let output = with_environment(&cell, line, "CREDENTIALS_DIRECTORY", directory);
        (output.status.success(), text(&output))
    };
    for (name, directory, why) in [
        ("nasd", &brief, "shorter than 16 bytes"),
        ("other", &good, "can't read"),
        ("../good/nasd", &good, "no name of a credential"),
        (".", &good, "no name of a credential"),
        ("nasd", &std::path::PathBuf::new(), "LoadCredentialEncrypted=nasd"),
        ("nasd", &scratch.path().join("none"), "can't read"),
    ] {
        let (done, said) = asked(&format!("key seal --credential {name}"), directory);
        assert!(!done && said.contains(why), "{name}: {said}");
        assert!(keyring() == open, "{name}");
    }
    assert!(asked("key seal --credential nasd", &good).0);
    let sealed = keyring();
    let (done, said) = asked("key show", &brief);
    assert!(!done && said.contains("shorter"), "{said}");
    refused(&cell, "key show", &["systemd credential `nasd`", "CREDENTIALS_DIRECTORY"]);
    assert!(keyring() == sealed && asked("key show", &good).0);
    // The cell does not start without it, and says why.
    let mut up = support::nasd();
    up.arg("up").arg(cell.cell());
    let up = support::finish(up);
    assert!(!up.status.success() && text(&up).contains("systemd credential"), "{}", text(&up));
    for directory in [&good, &brief] {
        fs::set_permissions(directory, fs::Permissions::from_mode(0o700)).unwrap();
    }
}
