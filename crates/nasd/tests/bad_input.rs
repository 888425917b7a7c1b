//! Bad input on purpose: each is a clear error that names the cause, and harms nobody else.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;
use std::time::Duration;
use support::{CellOptions, TestCell, finish, free_ports, nasd, noise, scratch, text};

fn run(arguments: &[&str], paths: &[&Path]) -> Output {
    let mut command = nasd();
    command.args(arguments).args(paths);
    finish(command)
}

fn assert_refused(output: &Output, words: &[&str]) {
    let printed = text(output);
    assert!(!output.status.success(), "it succeeded: {printed}");
    for word in words {
        assert!(printed.contains(word), "no `{word}` in: {printed}");
    }
    assert!(!printed.contains("panicked"), "{printed}");
}

fn create_stopped_cell(directory: &Path) {
    let port = free_ports(2).to_string();
    let size = ["up", "--drives", "1", "--size", "64M", "--base-port", &port, "--detach"];
    let output = run(&size, &[directory]);
    assert!(output.status.success(), "{}", text(&output));
    assert!(run(&["down"], &[directory]).status.success());
}

#[test]
fn what_nobody_takes_changes_no_exit_status() {
    for (arguments, level) in [(["ls", "main:/"], "info"), (["scan", "main:/a"], "trace")] {
        let mut command = nasd();
        command.args(arguments).args(["--cell", "/nowhere"]).env("NASD_LOG", level);
        command.stderr(fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
        assert_eq!(command.status().unwrap().code(), Some(1), "{arguments:?}");
    }
    let directory = scratch();
    create_stopped_cell(directory.path());
    // Events are logged while a drive is away.
    let mut command = nasd();
    command
        .args(["object", "control", "1", "--cell"])
        .arg(directory.path())
        .env("NASD_LOG", "debug");
    command.stderr(fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
    let mut child = command.spawn().unwrap();
    std::thread::sleep(Duration::from_secs(1));
    let ended = child.try_wait().unwrap().map(|status| status.code());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(matches!(ended, None | Some(Some(1))), "{ended:?}");
}

#[test]
fn devices_that_are_not_this_cells_drives() {
    let scratch = scratch();
    let (one, two) = (scratch.path().join("one"), scratch.path().join("two"));
    create_stopped_cell(&one);
    create_stopped_cell(&two);

    let plain = scratch.path().join("plain");
    fs::write(&plain, noise(1, 1 << 20)).unwrap();
    assert_refused(&run(&["drive", "serve"], &[&plain]), &["plain", "not a NASD drive"]);
    assert_refused(&run(&["drive", "serve"], &[Path::new("/nonexistent")]), &["/nonexistent"]);
    assert_refused(&run(&["drive", "inspect"], &[&plain]), &["not a NASD drive"]);

    let device = one.join("drives/drive-1.img");
    let mine = fs::read(&device).unwrap();
    fs::copy(two.join("drives/drive-1.img"), &device).unwrap();
    assert_refused(&run(&["up"], &[&one]), &["drive-1", "belongs to another cell"]);
    fs::write(&device, noise(2, mine.len())).unwrap();
    assert_refused(&run(&["up"], &[&one]), &["drive-1", "not a NASD drive"]);
    fs::remove_file(&device).unwrap();
    assert_refused(&run(&["up"], &[&one]), &["drive-1", "No such file"]);
    fs::write(&device, &mine).unwrap();
    let output = run(&["up", "--detach"], &[&one]);
    assert!(output.status.success(), "the cell itself is unharmed: {}", text(&output));
    assert!(run(&["down"], &[&one]).status.success());
}

#[test]
fn one_process_a_device() {
    let cell = TestCell::start(&CellOptions {
        drives: 1,
        size: "64M",
        cache: "8M",
        ..CellOptions::default()
    });
    let device = cell.cell().join("drives/drive-1.img");
    assert_refused(
        &run(&["drive", "serve", "--listen", "127.0.0.1:0"], &[&device]),
        &["drive-1.img", "in use"],
    );
    fs::write(cell.path("file"), "unharmed").unwrap();
    assert_eq!(fs::read_to_string(cell.path("file")).unwrap(), "unharmed");
}

#[test]
fn directories_that_hold_no_good_cell() {
    let scratch = scratch();
    let other = scratch.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("letter.txt"), "dear").unwrap();
    let port = free_ports(5).to_string();
    let up = ["up", "--base-port", &port];
    assert_refused(&run(&up, &[&other]), &["other", "not empty"]);
    assert_refused(&run(&["status", "--cell"], &[&other]), &["no cell", "nasd up"]);

    let cell = scratch.path().join("cell");
    create_stopped_cell(&cell);
    let keyring = cell.join("keyring.toml");
    fs::set_permissions(&keyring, fs::Permissions::from_mode(0o644)).unwrap();
    assert_refused(&run(&["up"], &[&cell]), &["keyring.toml", "chmod 600"]);
    fs::set_permissions(&keyring, fs::Permissions::from_mode(0o600)).unwrap();
    let config = fs::read_to_string(cell.join("cell.toml")).unwrap();
    fs::write(cell.join("cell.toml"), config.replace("version = 1", "version = 7")).unwrap();
    assert_refused(&run(&["up"], &[&cell]), &["cell.toml", "version is 7"]);
    fs::write(cell.join("cell.toml"), &config[..config.len() / 2]).unwrap();
    assert_refused(&run(&["up"], &[&cell]), &["cell.toml"]);
    // A cell that lost its file is not made anew over the drives that are still there.
    fs::remove_file(cell.join("cell.toml")).unwrap();
    assert_refused(&run(&up, &[&cell]), &["not empty", "cell.toml"]);
    fs::write(cell.join("cell.toml"), &config).unwrap();
    assert!(run(&["up", "--detach"], &[&cell]).status.success());
    assert!(run(&["down"], &[&cell]).status.success());
    let drives = scratch.path().join("mine/drives");
    fs::create_dir_all(&drives).unwrap();
    fs::write(drives.join("thesis.txt"), "years").unwrap();
    assert_refused(&run(&up, &[&scratch.path().join("mine")]), &["not empty"]);
    assert_eq!(fs::read_to_string(drives.join("thesis.txt")).unwrap(), "years");
}

#[test]
fn sizes_and_ports_that_cannot_be() {
    let scratch = scratch();
    let cell = scratch.path().join("cell");
    let free = free_ports(5).to_string();
    let up = ["up", "--base-port", &free, "--size", "900T"];
    assert_refused(&run(&up, &[&cell]), &["no room", "--size"]);
    assert_refused(&run(&["up", "--size", "nonsense"], &[&cell]), &["nonsense"]);
    let up = ["up", "--base-port", &free, "--size", "64K", "--drives", "1"];
    assert_refused(&run(&up, &[&cell]), &["drive-1.img"]);
    let port = free_ports(3);
    let taken = TcpListener::bind(("127.0.0.1", port + 1)).unwrap();
    let port = port.to_string();
    let up = ["up", "--drives", "1", "--size", "64M", "--base-port", &port];
    assert_refused(&run(&up, &[&cell]), &["drive-1", "in use"]);
    // Nothing was made where there was nothing, so that another port is that of a new cell.
    let new = scratch.path().join("new");
    let address = taken.local_addr().unwrap().to_string();
    for detached in [&[][..], &["--detach"]] {
        let output = run(&[&up[..], detached].concat(), &[&new]);
        assert_refused(&output, &["drive-1", &address, "in use", "--base-port"]);
        assert!(!new.exists());
    }
    assert_refused(&run(&["up", "--base-port", "65533"], &[&new]), &["--base-port", "drive 3"]);
    let host = ["up", "--host", "192.0.2.1", "--base-port", &free];
    assert_refused(&run(&host, &[&new]), &["192.0.2.1", "--host"]);
    drop(taken);
    create_stopped_cell(&new);
    // A cell keeps the ports with which it was made.
    let made = fs::read_to_string(new.join("cell.toml")).unwrap();
    let output = run(&["up", "--detach", "--base-port", "8410"], &[&new]);
    assert_refused(&output, &["new", "8410", "leave --base-port away"]);
    assert_eq!(fs::read_to_string(new.join("cell.toml")).unwrap(), made);
    // And is told which of them another program has.
    let address = made.lines().find_map(|line| line.strip_prefix("address = \"")).unwrap();
    let address = address.trim_end_matches('"');
    let _taken = TcpListener::bind(address).unwrap();
    assert_refused(&run(&["up", "--detach"], &[&new]), &["manager", address, "in use"]);
}

#[test]
fn certificates_of_another_cell() {
    let cell = TestCell::start(&CellOptions {
        drives: 1,
        size: "64M",
        cache: "8M",
        ..CellOptions::default()
    });
    let scratch = scratch();
    let other = scratch.path().join("other");
    create_stopped_cell(&other);
    // The other cell's authority vouches for this client, and this client trusts only it.
    let client = scratch.path().join("client");
    fs::create_dir_all(client.join("tls")).unwrap();
    fs::copy(cell.cell().join("cell.toml"), client.join("cell.toml")).unwrap();
    for file in ["ca.pem", "host.pem", "host.key"] {
        fs::copy(other.join("tls").join(file), client.join("tls").join(file)).unwrap();
    }
    assert_refused(&run(&["ls", "main:/", "--cell"], &[&client]), &["certificate"]);
    // It trusts the right manager, but shows a foreign certificate.
    fs::copy(cell.cell().join("tls/ca.pem"), client.join("tls/ca.pem")).unwrap();
    assert_refused(&run(&["ls", "main:/", "--cell"], &[&client]), &["certificate"]);
    // With the right ones it works: a client needs no more than these files.
    for file in ["host.pem", "host.key"] {
        fs::copy(cell.cell().join("tls").join(file), client.join("tls").join(file)).unwrap();
    }
    let output = run(&["ls", "main:/", "--cell"], &[&client]);
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn garbage_on_the_ports() {
    let cell = TestCell::start(&CellOptions {
        drives: 1,
        size: "64M",
        cache: "8M",
        ..CellOptions::default()
    });
    fs::write(cell.path("file"), noise(4, 100_000)).unwrap();
    let config = fs::read_to_string(cell.cell().join("cell.toml")).unwrap();
    let addresses: Vec<&str> = config.split('"').filter(|part| part.starts_with("127.")).collect();
    assert_eq!(addresses.len(), 2, "{config}");
    let frames: Vec<Vec<u8>> = vec![
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0xff; 4096],
        [&0xffff_ffff_u32.to_be_bytes()[..], &noise(1, 2000)].concat(),
        [&0x8000_0010_u32.to_be_bytes()[..], &noise(2, 16)].concat(),
        [&0x8000_1000_u32.to_be_bytes()[..], &noise(3, 100)].concat(),
        [&0x0000_0000_u32.to_be_bytes()[..]; 1000].concat(),
    ];
    for address in addresses {
        for frame in &frames {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            let _ = stream.write_all(frame);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let mut answer = Vec::new();
            let _ = stream.take(1 << 20).read_to_end(&mut answer);
        }
    }
    assert_eq!(fs::read(cell.path("file")).unwrap(), noise(4, 100_000));
    assert_eq!(cell.members().len(), 3, "no member died: {:?}", cell.members());
}

#[test]
fn mountpoints_that_cannot_be() {
    let cell = TestCell::start(&CellOptions {
        drives: 1,
        size: "64M",
        cache: "8M",
        ..CellOptions::default()
    });
    let missing = cell.directory.path().join("missing");
    assert_refused(&cell.nasd(&["mount".as_ref(), missing.as_os_str()]), &["missing"]);
    let file = cell.directory.path().join("file");
    fs::write(&file, "").unwrap();
    assert_refused(&cell.nasd(&["mount".as_ref(), file.as_os_str()]), &["not a directory"]);
    assert_refused(&cell.nasd(&["umount".as_ref(), file.as_os_str()]), &["is not a nasd mount"]);
    let point = cell.directory.path().join("point");
    fs::create_dir(&point).unwrap();
    let output =
        cell.nasd(&["mount".as_ref(), point.as_os_str(), "-o".as_ref(), "no-such-option".as_ref()]);
    assert_refused(&output, &["no-such-option"]);
    // No cell is made for it.
    let other = cell.directory.path().join("other");
    for (mountpoint, why) in [(&missing, "no such directory"), (&file, "not a directory")] {
        let output = run(&["up", "--detach", "--drives", "1", "--mount"], &[mountpoint, &other]);
        assert_refused(&output, &["--mount", why]);
    }
    assert!(!other.exists());
}
