//! What an administrator does with a running drive: partitions, objects, keys, metrics. The real
//! binary on real sockets.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use nasd_capability::SecretKey;
use nasd_client::{Authority, ConnectOptions, DriveClient};
use nasd_types::Protection;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};
use support::{
    CellOptions, TestCell, feed, finish, free_ports, nasd, noise, scratch, signal, text,
    wait_for_exit,
};

fn small_cell() -> TestCell {
    TestCell::start(&CellOptions {
        drives: 1,
        size: "128M",
        cache: "32M",
        ..CellOptions::default()
    })
}

/// What a command that must succeed prints.
fn told(cell: &TestCell, line: &str) -> String {
    let output = asked(cell, line, &[]);
    assert!(output.status.success(), "nasd {line}: {}", text(&output));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn json(cell: &TestCell, line: &str) -> Value {
    let printed = told(cell, &format!("{line} --json"));
    serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{line}: {error}: {printed}"))
}

/// Runs a line of words with bytes on its standard input.
fn asked(cell: &TestCell, line: &str, input: &[u8]) -> Output {
    let mut command = nasd();
    command.args(line.split_whitespace()).arg("--cell").arg(cell.cell());
    feed(command, input)
}

fn write(cell: &TestCell, line: &str, input: &[u8]) {
    let output = asked(cell, line, input);
    assert!(output.status.success(), "nasd {line}: {}", text(&output));
}

fn read(cell: &TestCell, line: &str) -> Vec<u8> {
    let output = asked(cell, line, &[]);
    assert!(output.status.success(), "nasd {line}: {}", text(&output));
    output.stdout
}

fn assert_refused(output: &Output, words: &[&str]) {
    let printed = text(output);
    assert!(!output.status.success(), "it succeeded: {printed}");
    for word in words {
        assert!(printed.contains(word), "no `{word}` in: {printed}");
    }
    assert!(!printed.contains("panicked"), "{printed}");
}

fn refused(cell: &TestCell, line: &str, words: &[&str]) {
    assert_refused(&asked(cell, line, &[]), words);
}

#[test]
fn a_partition_from_its_making_to_its_end() {
    let cell = small_cell();
    let keyring = || fs::read_to_string(cell.cell().join("keyring.toml")).unwrap();
    assert!(!keyring().contains("[[partition]]"));
    told(&cell, "partition create 1 2 --quota 8M");
    assert!(keyring().contains("[[partition]]"), "its keys are kept");
    assert_eq!(fs::metadata(cell.cell().join("keyring.toml")).unwrap().mode() & 0o777, 0o600);
    refused(&cell, "partition create 1 2", &["p2", "already"]);

    let made = |cell: &TestCell| {
        let facts = json(cell, "partition list 1");
        let partitions = facts["partitions"].as_array().unwrap().clone();
        partitions.into_iter().find(|partition| partition["partition"] == "p2")
    };
    let partition = made(&cell).unwrap();
    assert_eq!(partition["keys"], "working");
    assert_eq!(partition["quota_bytes"], 8 << 20);
    assert_eq!(partition["objects"], 1, "its First Object");
    told(&cell, "partition set 1 p2 --compression lz4 --minimum-protection integrity-data");
    told(&cell, "partition resize 1 2 --quota none");
    let partition = made(&cell).unwrap();
    assert_eq!(partition["compression"], "lz4");
    assert_eq!(partition["minimum_protection"], "integrity-data");
    assert_eq!(partition["quota_bytes"], Value::Null);

    // A quota holds, and what is there stays.
    told(&cell, "partition resize 1 2 --quota 1M");
    let object = told(&cell, "object create 1 2");
    let large = noise(1, 2 << 20);
    let output = asked(&cell, &format!("object write 1 2 {object}"), &large);
    assert_refused(&output, &[&object, "raise the quota"]);
    told(&cell, "partition flush 1 2");

    refused(&cell, "partition remove 1 2", &["2 objects", "--yes"]);
    assert!(made(&cell).is_some());
    told(&cell, "partition remove 1 2 --yes");
    assert!(made(&cell).is_none() && !keyring().contains("[[partition]]"));
    refused(&cell, "partition remove 1 2 --yes", &["no partition p2"]);
    refused(&cell, "partition remove 1 1 --yes", &["volume main"]);
    fs::write(cell.path("file"), "the volume is unharmed").unwrap();
}

#[test]
fn objects_are_written_read_and_copied() {
    let cell = small_cell();
    told(&cell, "partition create 1 2");
    let object = told(&cell, "object create 1 2 --durable");
    // More than one request can carry.
    let bytes = noise(3, (9 << 20) + 123);
    write(&cell, &format!("object write 1 2 {object} --durable"), &bytes);
    assert!(read(&cell, &format!("object read 1 2 {object}")) == bytes);
    let tail = read(&cell, &format!("object read 1 2 {object} --offset 9M"));
    assert!(tail == bytes[9 << 20..]);
    let middle = read(&cell, &format!("object read 1 2 {object} --offset 4095 --length 5M"));
    assert!(middle == bytes[4095..4095 + (5 << 20)]);

    let copy = told(&cell, &format!("object copy 1 2 {object}"));
    let stat = json(&cell, &format!("object stat 1 2 {copy}"));
    assert_eq!(
        (&stat["copied_object"], &stat["object"]),
        (&object.as_str().into(), &copy.as_str().into())
    );
    write(&cell, &format!("object write 1 2 {copy} --offset 10"), b"changed");
    assert!(read(&cell, &format!("object read 1 2 {object}")) == bytes, "the original stays");
    let mut changed = bytes.clone();
    changed[10..17].copy_from_slice(b"changed");
    assert!(read(&cell, &format!("object read 1 2 {copy}")) == changed);

    let listed = told(&cell, "object list 1 2");
    assert_eq!(listed.lines().collect::<Vec<_>>(), ["o4", &object, &copy]);
    assert_eq!(json(&cell, "object list 1 2")["objects"][1], object.as_str());
    told(&cell, &format!("object flush 1 2 {object} {copy}"));
    refused(&cell, &format!("object remove 1 2 {copy}"), &[&copy, "--yes"]);
    told(&cell, &format!("object remove 1 2 {copy} --yes --durable"));
    refused(&cell, &format!("object stat 1 2 {copy}"), &[&copy, "no such object"]);
    assert!(read(&cell, &format!("object read 1 2 {object}")) == bytes);
}

#[test]
fn regions_holes_and_what_is_required() {
    let cell = small_cell();
    told(&cell, "partition create 1 2");
    let object = told(&cell, "object create 1 2");
    write(&cell, &format!("object write 1 2 {object}"), &[b'.'; 20]);
    // Three pieces of two bytes, and one of three.
    let regions =
        "--offset 1 --length 2 --stride 5 --count 3 --offset 17 --length 3 --stride 3 --count 1";
    write(&cell, &format!("object write 1 2 {object} {regions}"), b"aabbccddd");
    assert_eq!(read(&cell, &format!("object read 1 2 {object}")), b".aa...bb...cc....ddd");
    assert_eq!(read(&cell, &format!("object read 1 2 {object} {regions}")), b"aabbccddd");
    let output = asked(&cell, &format!("object write 1 2 {object} {regions}"), b"short");
    assert_refused(&output, &["5 bytes", "regions hold 9"]);

    let block = 4096;
    let sparse = told(&cell, "object create 1 2");
    write(&cell, &format!("object write 1 2 {sparse} --offset 1M"), &noise(1, 16 * block));
    let seek = |target: &str, from: &str| {
        told(&cell, &format!("object seek 1 2 {sparse} {target} --offset {from}"))
    };
    assert_eq!((seek("data", "0"), seek("hole", "0")), ("1048576".into(), "0".into()));
    assert_eq!(seek("hole", "1M"), (1_048_576 + 16 * block).to_string());
    assert_eq!(seek("data", "8M"), "none");
    let before = json(&cell, &format!("object stat 1 2 {sparse}"));
    assert_eq!(before["blocks_used"], 16);
    let punched =
        json(&cell, &format!("object punch 1 2 {sparse} --offset 1M --length 16K --durable"));
    assert_eq!(punched["logical_size"], before["logical_size"]);
    // Blocks are counted as free when they are: once the change is durable.
    let after = json(&cell, &format!("object stat 1 2 {sparse}"));
    assert_eq!(after["blocks_used"], 12);
    assert_eq!(seek("data", "0"), (1_048_576 + 4 * block).to_string());
    let zeros = read(&cell, &format!("object read 1 2 {sparse} --offset 1M --length 16K"));
    assert!(zeros == vec![0; 16 << 10]);
    let required = json(&cell, &format!("object required 1 2 {sparse} --length 8K"));
    assert_eq!((&required["estimated"], &required["maximum"]), (&2.into(), &2.into()));
    assert_eq!(seek("data", "0"), (1_048_576 + 4 * block).to_string(), "asking changes nothing");
}

#[test]
fn an_extension_tells_the_checksums_of_an_object() {
    let cell = small_cell();
    told(&cell, "partition create 1 2");
    let object = told(&cell, "object create 1 2");
    let bytes = noise(3, 9_000_000);
    write(&cell, &format!("object write 1 2 {object}"), &bytes);
    let sum = |bytes: &[u8]| format!("{:08x}", crc32c::crc32c(bytes));
    let extend = |rest: &str| told(&cell, &format!("object extend 1 2 {object} {rest}"));
    assert_eq!(extend("checksum --arguments 00000000 --hex"), sum(&bytes));
    let parts: String = bytes.chunks(1 << 20).map(sum).collect();
    assert_eq!(extend("checksum --arguments 00100000 --hex"), parts);
    assert_eq!(extend("1 --arguments 00000000 --hex --offset 8M"), sum(&bytes[8 << 20..]));
    let rows = "--offset 5 --length 7 --stride 100 --count 2";
    let facts = json(&cell, &format!("object extend 1 2 {object} 1 --arguments 00000000 {rows}"));
    let wanted = [5..12, 105..112].map(|row| sum(&bytes[row])).concat();
    assert_eq!((&facts["extension"], &facts["data"]), (&1.into(), &wanted.into()));
    let control = told(&cell, "object control 1");
    assert!(control.contains("extension    1 checksum 1"), "{control}");
}

#[test]
fn every_attribute_is_shown_and_set() {
    let cell = small_cell();
    told(&cell, "partition create 1 2");
    let near = told(&cell, "object create 1 2");
    let object = told(
        &cell,
        &format!(
            "object create 1 2 --access-control-version 5 --nearby-object {near} --logical-size 64K \
             --blocks-allocated 100 --block-size 4096 --fs-data-modify-time 1.5 \
             --fs-attribute-modify-time 2.000000001 --fs-specific 00ff10"
        ),
    );
    let stat = json(&cell, &format!("object stat 1 2 {object}"));
    assert_eq!(stat["access_control_version"], 5);
    assert_eq!(stat["nearby_object"], near.as_str());
    assert_eq!(stat["copied_object"], Value::Null);
    assert_eq!(stat["logical_size"], 64 << 10);
    assert_eq!(stat["blocks_allocated"], 100);
    assert_eq!(stat["blocks_used"], 0);
    assert_eq!(stat["block_size"], 4096);
    assert_eq!(stat["fs_data_modify_time_ns"], 1_500_000_000_u64);
    assert_eq!(stat["fs_attribute_modify_time_ns"], 2_000_000_001_u64);
    let specific = format!("00ff10{}", "00".repeat(253));
    assert_eq!(stat["fs_specific"], specific.as_str());
    for time in ["create_time_ns", "data_modify_time_ns", "attribute_modify_time_ns"] {
        assert!(stat[time].as_u64().unwrap() > 1_600_000_000_000_000_000, "{time}: {stat}");
    }
    let text = told(&cell, &format!("object stat 1 2 {object}"));
    for word in ["65536 bytes", "100 allocated", "00ff10 and 253 zeros", "1970-01-01T00:00:01.5"] {
        assert!(text.contains(word), "no `{word}` in {text}");
    }

    let set =
        json(&cell, &format!("object set 1 2 {object} --nearby-object none --logical-size 7"));
    assert_eq!((&set["nearby_object"], &set["logical_size"]), (&Value::Null, &7.into()));
    assert_eq!(set["access_control_version"], 5, "what is not named stays");
    refused(&cell, &format!("object set 1 2 {object}"), &["no attribute", "--logical-size"]);
    let other = format!("object set 1 2 {object} --block-size 8K");
    refused(&cell, &other, &[&object, "set that attribute"]);
}

#[test]
fn the_well_known_objects_are_decoded() {
    let cell = small_cell();
    told(&cell, "partition create 1 2 --quota 16M");
    let object = told(&cell, "object create 1 2");
    write(&cell, &format!("object write 1 2 {object}"), &noise(1, 1 << 20));
    told(&cell, "partition flush 1 2");
    let drive = json(&cell, "object control 1");
    assert_eq!(drive["block_size"], 4096);
    assert!(drive["requests"].as_u64().unwrap() > 5, "{drive}");
    assert!(drive["key_bytes_written"].as_u64().unwrap() >= 1 << 20, "{drive}");
    assert!(drive["capacity_bytes"].as_u64().unwrap() > 100 << 20, "{drive}");
    assert_eq!(drive["partitions"].as_array().unwrap().len(), 2);
    let partition = json(&cell, "object control 1 2");
    assert_eq!((&partition["objects"], &partition["used_bytes"]), (&2.into(), &(1 << 20).into()));
    assert_eq!(partition["free_bytes"], 15 << 20);
    assert!(told(&cell, "object control 1").contains("suites"));
    assert!(told(&cell, "object control 1 p2").contains("15.0 MiB can still be written"));
    // The list of objects as it comes, 8 bytes each; and the First Object, an ordinary one.
    let number = u64::from_str_radix(&object[1..], 16).unwrap();
    let list = [4_u64.to_be_bytes(), number.to_be_bytes()].concat();
    assert_eq!(read(&cell, "object read 1 2 3"), list);
    write(&cell, "object write 1 2 o4", b"first");
    assert_eq!(read(&cell, "object read 1 2 4"), b"first");
    let output = asked(&cell, "object write 1 2 2", b"x");
    assert_refused(&output, &["p2/o2", "does not allow"]);
}

/// The only drive's address, and its key as the keyring has it.
fn drive_and_key(cell: &TestCell) -> (String, String) {
    let config: toml::Table =
        fs::read_to_string(cell.cell().join("cell.toml")).unwrap().parse().unwrap();
    let keyring: toml::Table =
        fs::read_to_string(cell.cell().join("keyring.toml")).unwrap().parse().unwrap();
    let word = |table: &toml::Table, key: &str| table["drive"][0][key].as_str().unwrap().to_owned();
    (word(&config, "address"), word(&keyring, "drive_key"))
}

#[test]
fn a_drive_of_no_cell_is_asked_by_a_key_file() {
    let cell = small_cell();
    let (address, key) = drive_and_key(&cell);
    let scratch = scratch();
    let nowhere = scratch.path().join("nowhere");
    let run = |words: &[&str], paths: &[&Path]| {
        let mut command = nasd();
        command.args(words).args(paths).arg("--cell").arg(&nowhere);
        finish(command)
    };
    let file = scratch.path().join("key");
    fs::write(&file, &key).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let list = ["partition", "list", &address];
    assert_refused(&run(&list, &[]), &[&address, "--key-file"]);
    let list = ["partition", "list", &address, "--key-file"];
    assert_refused(&run(&list, &[&file]), &["chmod 600"]);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let output = run(&list, &[&file]);
    assert!(output.status.success() && text(&output).contains("p1"), "{}", text(&output));

    let keys = scratch.path().join("partition-keys.toml");
    let create = ["partition", "create", &address, "5", "--key-file"];
    assert_refused(&run(&create, &[&file]), &["--keyring"]);
    let create =
        ["partition", "create", &address, "5", "--key-file", file.to_str().unwrap(), "--keyring"];
    let output = run(&create, &[&keys]);
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(fs::metadata(&keys).unwrap().mode() & 0o777, 0o600);
    assert!(fs::read_to_string(&keys).unwrap().contains("partition = 5"));

    fs::write(&file, "77".repeat(32)).unwrap();
    assert_refused(&run(&list, &[&file]), &["not this drive's drive key", "--key-file"]);
    fs::write(&file, "no key").unwrap();
    assert_refused(&run(&list, &[&file]), &["64 hexadecimal digits"]);
}

#[test]
fn bad_words_are_named() {
    let cell = small_cell();
    for (line, words) in [
        ("partition list 9", &["no drive `9`", "it has 1"][..]),
        ("partition list", &["DRIVE"]),
        ("partition create 1 0", &["`0`", "write a number"]),
        ("partition create 1 two", &["`two`", "write a number"]),
        ("partition create 1 2 --quota lots", &["`lots`", "8G", "`none`"]),
        ("partition set 1 1", &["--compression", "--minimum-protection"]),
        ("partition set 1 1 --compression best", &["best", "zstd"]),
        ("partition set 1 7 --compression lz4", &["p7", "no such partition"]),
        ("partition set 1 1 --minimum-protection total", &["total", "integrity-data"]),
        ("object stat 1 2", &["OBJECT"]),
        ("object stat 1 2 0", &["`0`", "o40"]),
        ("object stat 1 2 xyz", &["`xyz`", "o40"]),
        ("object stat 1 9 4", &["p9/o4", "no such"]),
        ("object create 1 9", &["p9", "no such partition"]),
        ("object create 1 1 --fs-specific 0", &["two hexadecimal digits"]),
        ("object create 1 1 --fs-data-modify-time noon", &["`noon`", "seconds since 1970"]),
        ("object read 1 1 4 --stride 8", &["--count"]),
        ("object read 1 1 4 --offset 1 --offset 2", &["--length"]),
        ("object read 1 1 4 --length 8 --stride 4 --count 2", &["p1/o4", "no meaning"]),
        ("object read 1 1 4 --length 4M --stride 4M --count 2", &["limit", "split it"]),
        ("object punch 1 1 4", &["--length"]),
        ("object seek 1 1 4 gold", &["gold", "hole"]),
        ("object extend 1 1 4 spell", &["`spell`", "checksum"]),
        ("object extend 1 1 4 checksum", &["extension 1", "one unsigned int"]),
        ("object extend 1 1 4 1 --revision 9", &["p1/o4", "no such extension"]),
        ("object extend 1 1 4 checksum --arguments 0", &["two hexadecimal digits"]),
        ("object control 1 77", &["p4d", "no such partition"]),
    ] {
        refused(&cell, line, words);
    }
}

#[test]
fn a_reader_that_goes_ends_the_command_quietly() {
    let cell = small_cell();
    let mut command = nasd();
    command.args(["object", "control", "1", "--cell"]).arg(cell.cell());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    wait_for_exit(&mut child);
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert_eq!(errors, "");
}

#[test]
fn the_master_key_is_kept_apart_and_sets_the_drive_key() {
    let cell = small_cell();
    let path = cell.cell().join("master-keys.toml");
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    let keys: toml::Table = fs::read_to_string(&path).unwrap().parse().unwrap();
    let digits = keys["drive"][0]["master_key"].as_str().unwrap();
    let mut master = [0; 32];
    for (index, byte) in master.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * index..2 * index + 2], 16).unwrap();
    }
    assert!(!fs::read_to_string(cell.cell().join("keyring.toml")).unwrap().contains(digits));
    // Its owner takes it away, and the cell goes on.
    fs::rename(&path, cell.directory.path().join("offline")).unwrap();
    told(&cell, "partition list 1");

    let client = DriveClient::tcp(drive_and_key(&cell).0, None, &ConnectOptions::default());
    let owner = Authority::master_key(SecretKey::new(master), Protection::INTEGRITY_ARGS);
    client.set_drive_key(&owner, &SecretKey::new([9; 32])).unwrap();
    refused(&cell, "partition list 1", &["keyring.toml", "--key-file"]);
    let file = cell.directory.path().join("key");
    fs::write(&file, "09".repeat(32)).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    told(&cell, &format!("partition list 1 --key-file {}", file.display()));
}

/// `nasd drive serve` on the drive of a cell that was made for it.
struct ServedDrive {
    child: Child,
    address: SocketAddr,
    metrics: SocketAddr,
    directory: tempfile::TempDir,
}

impl ServedDrive {
    fn start() -> Self {
        let directory = scratch();
        let cell = directory.path().join("cell");
        let port = free_ports(2).to_string();
        let mut up = nasd();
        up.arg("up").arg(&cell).args(["--drives", "1", "--size", "64M", "--detach"]);
        let output = finish_with(up, &["--base-port", &port]);
        assert!(text(&output).contains("master-keys.toml"), "{}", text(&output));
        let mut down = nasd();
        down.arg("down").arg(&cell);
        assert!(finish(down).status.success());
        let mut serve = nasd();
        serve.args(["drive", "serve"]).arg(cell.join("drives/drive-1.img"));
        serve.args(["--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--cache", "32M"]);
        let mut child = serve.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["ready", address, "metrics", metrics] = words[..] else { panic!("{line}") };
        let (address, metrics) = (address.parse().unwrap(), metrics.parse().unwrap());
        ServedDrive { child, address, metrics, directory }
    }

    fn ask(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.metrics).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// The samples, by name with labels.
    fn samples(&self) -> BTreeMap<String, f64> {
        let answer = self.ask("GET /metrics HTTP/1.1\r\nHost: drive\r\n\r\n");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains("Content-Type: text/plain; version=0.0.4"), "{head}");
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
        let samples = body.lines().filter(|line| !line.starts_with('#'));
        let parse = |line: &str| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            (name.to_owned(), value.parse().unwrap_or_else(|_| panic!("{line}")))
        };
        samples.map(parse).collect()
    }
}

fn finish_with(mut command: std::process::Command, arguments: &[&str]) -> Output {
    command.args(arguments);
    let output = finish(command);
    assert!(output.status.success(), "{}", text(&output));
    output
}

impl Drop for ServedDrive {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn metrics_are_scraped_and_nothing_else_is_served() {
    let mut drive = ServedDrive::start();
    let before = drive.samples();
    assert_eq!(before["nasd_drive_read_only"], 0.0);
    let created = |samples: &BTreeMap<String, f64>| {
        let is_create = |name: &str| name.starts_with("nasd_requests_total{operation=\"create\"");
        let counts = samples.iter().filter(|(name, _)| is_create(name)).map(|(_, count)| count);
        counts.sum::<f64>()
    };
    let keyring = drive.directory.path().join("cell/keyring.toml");
    let keyring: toml::Table = fs::read_to_string(keyring).unwrap().parse().unwrap();
    let file = drive.directory.path().join("key");
    fs::write(&file, keyring["drive"][0]["drive_key"].as_str().unwrap()).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let mut create = nasd();
    create.args(["object", "create", &drive.address.to_string(), "1", "--key-file"]).arg(&file);
    create.arg("--cell").arg(drive.directory.path().join("none"));
    finish_with(create, &[]);
    let after = drive.samples();
    assert_eq!(created(&after), created(&before) + 1.0, "{after:?}");

    assert!(drive.ask("POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
    assert!(drive.ask("GET /etc/passwd HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
    assert!(drive.ask("nonsense\r\n\r\n").starts_with("HTTP/1.1 400"));
    // A client that says nothing keeps neither others nor the stop waiting for long.
    let silent = TcpStream::connect(drive.metrics).unwrap();
    let started = Instant::now();
    drive.samples();
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    signal(drive.child.id(), "TERM");
    assert!(wait_for_exit(&mut drive.child).success());
    drop(silent);
}

#[test]
fn up_passes_metrics_ports_on() {
    let scratch = scratch();
    let cell = scratch.path().join("cell");
    let ports = free_ports(6);
    let (base, metrics) = (ports.to_string(), (ports + 3).to_string());
    let mut up = nasd();
    up.arg("up").arg(&cell).args(["--drives", "2", "--size", "64M", "--base-port", &base]);
    finish_with(up, &["--metrics-base-port", &metrics, "--detach"]);
    for drive in 1..=2 {
        let mut stream = TcpStream::connect(("127.0.0.1", ports + 3 + drive)).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.contains("nasd_drive_info{"), "drive {drive}: {answer}");
    }
    let mut down = nasd();
    down.arg("down").arg(&cell);
    finish_with(down, &[]);
    let mut up = nasd();
    up.arg("up").arg(&cell).args(["--metrics-base-port", "65534"]);
    assert_refused(&finish(up), &["--metrics-base-port 65534", "drive 2"]);
}

#[test]
fn drives_of_a_cell_are_as_slow_as_disks_when_they_are_started_so() {
    let scratch = scratch();
    let cell = scratch.path().join("cell");
    let slow = |drive: u64| {
        let log = fs::read_to_string(cell.join(format!("log/drive-{drive}.log"))).unwrap();
        log.matches("--emulate-disk").count()
    };
    let run = |arguments: &[&str]| {
        let mut command = nasd();
        command.args(arguments).arg(&cell);
        finish_with(command, &[]);
    };
    let base = free_ports(3).to_string();
    let mut up = vec!["up", "--drives", "2", "--size", "64M", "--base-port", &base, "--detach"];
    for options in [&["--emulate-disk"][..], &[]] {
        up.extend(options);
        run(&up);
        up.truncate(8);
        let file = scratch.path().join("file");
        fs::write(&file, noise(7, 100_000)).unwrap();
        let mut cp = nasd();
        cp.arg("cp").arg(&file).args(["main:/file", "--cell"]).arg(&cell);
        finish_with(cp, &[]);
        run(&["down"]);
        assert_eq!((slow(1), slow(2)), (1, 1), "once, by the first start");
    }
}
