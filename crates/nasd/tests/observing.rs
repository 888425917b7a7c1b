//! What a cell tells of its work: metrics of manager, drives and mounts, and `nasd top`.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use support::{
    CellOptions, TestCell, free_ports, nasd, noise, signal, text, wait_for_exit, wait_until,
};

/// A cell that tells its metrics from this port on.
fn told_cell() -> (TestCell, u16) {
    let mut cell = TestCell::start(&CellOptions::default());
    cell.stop();
    let port = free_ports(3);
    cell.restart_by(&["--metrics-base-port", &port.to_string()]);
    (cell, port)
}

/// Samples by their names and labels, as the text has them.
type Samples = BTreeMap<String, f64>;

fn ask(mut stream: impl Read + Write) -> Samples {
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    parse(body)
}

/// Each family comes once, with its help and type before its samples, and no sample comes twice.
fn parse(text: &str) -> Samples {
    let (mut samples, mut families, mut current) = (Samples::new(), Vec::new(), String::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(help.ends_with('.') && !families.contains(&name.to_owned()), "{line}");
            current = name.to_owned();
            families.push(current.clone());
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(name == current && ["counter", "gauge", "histogram"].contains(&kind));
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
        } else {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(name.starts_with(&current), "{line}");
            let earlier = samples.insert(name.to_owned(), value.parse().unwrap());
            assert_eq!(earlier, None, "{line}");
        }
    }
    samples
}

/// The sum over all labels, or over those that have `part` in them.
fn sum(samples: &Samples, name: &str, part: &str) -> f64 {
    let of_name = |sample: &str| sample.split('{').next() == Some(name) && sample.contains(part);
    samples.iter().filter(|(sample, _)| of_name(sample)).map(|(_, value)| value).sum()
}

/// A mount of a process of its own.
struct OtherMount {
    at: PathBuf,
    process: Child,
}

impl OtherMount {
    fn new(cell: &TestCell, options: &str) -> OtherMount {
        let at = cell.directory.path().join("other");
        fs::create_dir_all(&at).unwrap();
        let mut command = nasd();
        command.arg("mount").arg(&at).arg("--cell").arg(cell.cell()).args(["-o", options]);
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let is_there =
            |mounts: String| mounts.lines().any(|line| line.contains(&*at.to_string_lossy()));
        wait_until("the mount", || is_there(fs::read_to_string("/proc/mounts").unwrap()));
        OtherMount { at, process }
    }

    fn unmount(mut self) {
        signal(self.process.id(), "TERM");
        assert!(wait_for_exit(&mut self.process).success());
    }
}

impl Drop for OtherMount {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = Command::new("umount").arg("-l").arg(&self.at).stderr(Stdio::null()).status();
    }
}

fn of_socket(path: &Path) -> Samples {
    wait_until("the socket", || UnixStream::connect(path).is_ok());
    ask(UnixStream::connect(path).unwrap())
}

#[test]
fn manager_and_mount_tell_what_they_do() {
    let (cell, port) = told_cell();
    let socket = cell.directory.path().join("metrics");
    let options = format!("path=manager,metrics={}", socket.display());
    let mount = OtherMount::new(&cell, &options);
    let file = mount.at.join("file");
    fs::write(&file, noise(1, 3 << 20)).unwrap();
    fs::File::open(&file).unwrap().sync_all().unwrap();
    assert!(fs::metadata(mount.at.join("none")).is_err());
    fs::create_dir_all(mount.at.join("full/of")).unwrap();
    assert!(fs::remove_dir(mount.at.join("full")).is_err());
    fs::write(cell.path("near"), noise(2, 1 << 20)).unwrap();
    assert!(fs::read(mount.at.join("near")).unwrap() == noise(2, 1 << 20));

    let told = of_socket(&socket);
    let made = "nasd_mount_request_seconds_count{operation=\"create\"}";
    assert!(told[made] >= 1.0, "{told:?}");
    assert!(sum(&told, "nasd_mount_request_seconds_count", "write") >= 3.0);
    assert!(sum(&told, "nasd_mount_failures_total", "\"rmdir\"") >= 1.0);
    assert_eq!(told["nasd_clerk_written_bytes_total"], f64::from(3 << 20));
    assert_eq!(told["nasd_clerk_sent_bytes_total"], f64::from(3 << 20));
    assert_eq!(told["nasd_clerk_read_bytes_total"], f64::from(1 << 20));
    assert!(told["nasd_clerk_fetched_bytes_total"] >= f64::from(1 << 20));
    assert!(sum(&told, "nasd_clerk_drive_seconds_count", "write") >= 3.0);
    assert!(told["nasd_clerk_manager_seconds_count"] >= 3.0);
    assert_eq!(told["nasd_clerk_undurable_bytes"], 0.0);

    let manager = ask(TcpStream::connect(("127.0.0.1", port)).unwrap());
    let forwarded = |direction| sum(&manager, "nasd_manager_data_bytes_total", direction);
    assert_eq!(forwarded("\"write\""), f64::from(3 << 20));
    assert_eq!(forwarded("\"read\""), told["nasd_clerk_fetched_bytes_total"]);
    let of = |operation: &str| sum(&manager, "nasd_manager_requests_total", operation);
    assert!(of("operation=\"forwardwrite\",status=\"ok\"") >= 3.0, "{manager:?}");
    assert!(of("operation=\"lookup\",status=\"caller\"") >= 1.0);
    assert!(sum(&manager, "nasd_manager_request_seconds_count", "\"forwardwrite\"") >= 3.0);
    assert!(manager["nasd_manager_sessions"] >= 2.0);
    // Memory of an answer is lent until it was sent, and whom it was sent to may be quicker than who sent it.
    let lent =
        || ask(TcpStream::connect(("127.0.0.1", port)).unwrap())["nasd_manager_forward_bytes"];
    wait_until("memory that is given back", || lent() == 0.0);
    assert!(manager["nasd_volume_serving{volume=\"main\"}"] == 1.0);
    let drive = ask(TcpStream::connect(("127.0.0.1", port + 1)).unwrap());
    assert!(sum(&drive, "nasd_requests_total", "\"write\"") >= 1.0);
    mount.unmount();
    assert!(!socket.exists(), "it goes with the mount");
}

/// How often the manager was asked for its state.
fn looks(port: u16) -> f64 {
    let manager = ask(TcpStream::connect(("127.0.0.1", port)).unwrap());
    sum(&manager, "nasd_manager_requests_total", "operation=\"status\"")
}

/// What `nasd top` prints, as JSON, of an interval within which both mounts are written to: drives and
/// manager are not looked at in the same moment, and so nothing is under way when they are.
fn watched(
    cell: &TestCell,
    port: u16,
    [near, far]: [&Path; 2],
    arguments: &[&str],
) -> Vec<serde_json::Value> {
    let stop = AtomicBool::new(false);
    let before = looks(port);
    let mut top = nasd();
    top.args(["top", "--json"]).args(arguments).arg("--cell").arg(cell.cell());
    let top = top.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("the first look", || looks(port) > before);
    thread::scope(|scope| {
        for (number, root) in [near, far].into_iter().enumerate() {
            let stop = &stop;
            scope.spawn(move || {
                let (file, data) = (root.join("busy"), noise(number as u64, 1 << 20));
                while !stop.load(Ordering::Relaxed) {
                    fs::write(&file, &data).unwrap();
                }
            });
        }
        thread::sleep(Duration::from_millis(2500));
        stop.store(true, Ordering::Relaxed);
    });
    let output = top.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let stream = serde_json::Deserializer::from_slice(&output.stdout).into_iter();
    stream.map(Result::unwrap).collect()
}

#[test]
fn top_shows_who_does_what_and_by_which_way() {
    let (cell, port) = told_cell();
    let mount = OtherMount::new(&cell, "path=manager");
    fs::create_dir(mount.at.join("far")).unwrap();
    let base = port.to_string();
    let once = ["--once", "--interval", "10", "--metrics-base-port", &base];
    let places = [&*cell.mountpoint(), &*mount.at.join("far")];
    let told = watched(&cell, port, places, &once);
    let [told] = &told[..] else { panic!("one object: {told:?}") };
    let number = |value: &serde_json::Value| value.as_f64().unwrap();
    assert!(number(&told["seconds"]) >= 10.0);
    let ways = &told["bytes_per_second"];
    assert!(number(&ways["direct"]) > 1e5 && number(&ways["manager"]) > 1e5, "{told}");
    let drives = told["drives"].as_array().unwrap();
    assert_eq!(drives.len(), 2);
    let sum = |of: &str| drives.iter().map(|drive| number(&drive[of])).sum::<f64>();
    let moved = sum("read_bytes_per_second") + sum("written_bytes_per_second");
    let apart = number(&ways["direct"]) + sum("forwarded_bytes_per_second");
    assert!((moved - apart).abs() < 0.02 * moved, "{told}");
    assert!(drives.iter().any(|drive| drive["mean_us"].as_f64().is_some_and(|mean| mean > 0.0)));
    let operations = told["manager"]["operations"].as_array().unwrap();
    let write = operations.iter().find(|each| each["operation"] == "forwardwrite").unwrap();
    assert!(number(&write["requests_per_second"]) > 0.0 && number(&write["mean_us"]) > 1.0);
    let clients = told["clients"].as_array().unwrap();
    let busiest = &clients[0];
    assert!(busiest["client"].as_str().unwrap().starts_with("host:"), "{told}");
    assert!(number(&busiest["manager_requests_per_second"]) > 0.0);
    assert!(number(&busiest["drive_requests_per_second"]) > 0.0);
    assert!(number(&busiest["forwarded_written_bytes_per_second"]) > 1e5);

    let screen = cell.nasd(&["top", "--once", "--interval", "0.2"]);
    let screen = String::from_utf8(screen.stdout).unwrap();
    assert!(screen.starts_with("data direct ") && !screen.contains('\x1b'), "{screen}");
    assert!(screen.lines().any(|line| line.starts_with("drive ")), "{screen}");
    mount.unmount();
}

/// Who has joined, and does not own the cell, is told no more than what anybody may know.
#[test]
fn others_than_the_owner_are_told_sums_alone() {
    let (cell, _) = told_cell();
    fs::remove_file(cell.cell().join("tls/admin.key")).unwrap();
    fs::remove_file(cell.cell().join("keyring.toml")).unwrap();
    let output = cell.nasd(&["top", "--once", "--json", "--interval", "0.3"]);
    assert!(output.status.success(), "{}", text(&output));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["drives"].as_array().unwrap().len(), 2);
    assert_eq!(told["clients"].as_array().unwrap().len(), 0);
    assert_eq!(told["manager"]["operations"].as_array().unwrap().len(), 0);
}

#[test]
fn top_of_a_cell_that_is_down_says_so_soon() {
    let mut cell = TestCell::start(&CellOptions::default());
    cell.stop();
    for arguments in [&["top", "--once"][..], &["top", "--once", "--json"], &["top"]] {
        let before = Instant::now();
        let output = cell.nasd(arguments);
        assert!(
            before.elapsed() < Duration::from_secs(20),
            "{arguments:?}: {:?}",
            before.elapsed()
        );
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("the manager does not answer"), "{arguments:?}: {said}");
        assert!(output.stdout.is_empty() && output.status.code() == Some(1), "{arguments:?}");
    }
}

/// The jobs of all drives, as `nasd top` tells them.
fn jobs(cell: &TestCell) -> Vec<serde_json::Value> {
    let output = cell.nasd(&["top", "--once", "--json", "--interval", "0.1"]);
    assert!(output.status.success(), "{}", text(&output));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let of_drive = |drive: &serde_json::Value| {
        let extensions = &drive["extensions"];
        let jobs = extensions["jobs"].as_array().unwrap().clone();
        let granted = extensions["granted_bytes"].as_u64().unwrap();
        assert!(granted <= extensions["memory_bytes"].as_u64().unwrap());
        jobs
    };
    told["drives"].as_array().unwrap().iter().flat_map(of_drive).collect()
}

#[test]
fn top_lists_what_extensions_do_until_whoever_wants_it_is_gone() {
    let (cell, _) = told_cell();
    // Nothing, but much of it.
    let length = 256 << 30;
    fs::File::create(cell.path("zeros")).unwrap().set_len(length).unwrap();
    let mut command = nasd();
    command.args(["scan", "main:/zeros", "SELECT count(*) FROM zeros WHERE number > 7"]);
    command.args(["--format", "fixed", "--columns", "number:i64,rest:text8"]);
    command.arg("--cell").arg(cell.cell());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut scanning = command.spawn().unwrap();
    let mut told = Vec::new();
    wait_until("a job", || {
        told = jobs(&cell);
        !told.is_empty()
    });
    let job = &told[0];
    assert_eq!(job["extension"], "scan", "{job}");
    assert_eq!(job["object_bytes"].as_u64(), Some(length), "{job}");
    assert!(["running", "waiting"].contains(&job["state"].as_str().unwrap()), "{job}");
    let bytes = |of: &str| job[of].as_u64().unwrap();
    assert!(bytes("bytes_left") > 0 && bytes("running") + bytes("waiting") > 0, "{job}");
    // Once its speed was measured the screen tells how long it takes.
    wait_until("it is estimated", || {
        let screen = text(&cell.nasd(&["top", "--once", "--interval", "0.1"]));
        let mut lines = screen.lines().skip_while(|line| !line.starts_with("drive what "));
        let Some(head) = lines.next() else { return false };
        let end = head.find("takes").unwrap() + "takes".len();
        lines.next().unwrap()[..end].ends_with(" s")
    });
    scanning.kill().unwrap();
    scanning.wait().unwrap();
    wait_until("no job", || jobs(&cell).is_empty());
}
