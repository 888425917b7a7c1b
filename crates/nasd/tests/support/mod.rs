//! A whole cell for a test: the real binary, real processes, real sockets, a real mount.

#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, reason = "a test that can not set itself up has failed")]

pub mod beside;
pub mod lines;
pub mod shared;
pub mod workers;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Longest wait for anything: a hang must fail a test, not stop the suite.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The binary under test.
pub fn nasd() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nasd"));
    command.env_remove("NASD_CELL").stdin(Stdio::null());
    command
}

/// Where cargo has put `libsmas.so` and `libnasd_bulk.so`, which it builds with these tests.
pub fn library_directory() -> std::path::PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_nasd"));
    let target = program.parent().unwrap();
    let places = [target.join("deps"), target.to_owned()];
    let found = places.into_iter().find(|place| place.join("libsmas.so").exists());
    found.expect("libsmas.so is built with the tests")
}

/// A new directory on the disk that the build uses: device files need room and O_DIRECT. Where other users can't get there, as in
/// root's home, it is elsewhere: tests act for some.
pub fn scratch() -> tempfile::TempDir {
    let beside = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let is_open = |place: &Path| fs::metadata(place).is_ok_and(|told| told.mode() & 0o001 != 0);
    let is_reached = beside.ancestors().all(is_open);
    tempfile::tempdir_in(if is_reached { beside } else { Path::new("/var/tmp") }).unwrap()
}

/// A cell in a directory of its own; stopped and removed at the end.
pub struct TestCell {
    pub directory: tempfile::TempDir,
    up: Option<Child>,
    environment: Vec<(String, PathBuf)>,
}

/// How a test's cell differs from the usual one.
pub struct CellOptions {
    pub drives: u32,
    pub size: &'static str,
    pub cache: &'static str,
    /// How files are spread, with further arguments.
    pub stripe: Vec<String>,
}

impl Default for CellOptions {
    /// Not spread, unless the environment says otherwise: so any test can be tried on a virtual drive
    /// (`NASD_TEST_STRIPE="raid1 --stripe-unit 64K"`).
    fn default() -> Self {
        let stripe = std::env::var("NASD_TEST_STRIPE").unwrap_or_default();
        let stripe = stripe.split_whitespace().map(str::to_owned).collect();
        CellOptions { drives: 2, size: "512M", cache: "32M", stripe }
    }
}

impl CellOptions {
    /// With files that are spread.
    pub fn striped(drives: u32, stripe: &str) -> Self {
        let stripe = stripe.split_whitespace().map(str::to_owned).collect();
        CellOptions { drives, stripe, ..CellOptions::default() }
    }
}

impl TestCell {
    /// Creates, starts and mounts a cell.
    pub fn start(options: &CellOptions) -> Self {
        let mut cell = TestCell { directory: scratch(), up: None, environment: Vec::new() };
        std::fs::create_dir(cell.mountpoint()).unwrap();
        // One more for a virtual drive.
        let drives = if options.stripe.is_empty() { options.drives } else { options.drives.max(2) };
        let (drives, port) = (drives.to_string(), free_ports(drives + 2));
        let port = port.to_string();
        let mut arguments = vec![
            "--drives",
            &drives,
            "--size",
            options.size,
            "--cache",
            options.cache,
            "--base-port",
            &port,
        ];
        if !options.stripe.is_empty() {
            arguments.push("--stripe");
            arguments.extend(options.stripe.iter().map(String::as_str));
        }
        cell.up(&arguments);
        cell
    }

    /// Whoever is not root can reach the mount, and write to it.
    pub fn let_everybody_in(&self) {
        for (path, mode) in [(self.directory.path(), 0o755), (&*self.mountpoint(), 0o777)] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
    }

    /// Starts the cell again after it was stopped or killed.
    pub fn restart(&mut self) {
        self.up(&[]);
    }

    /// The same, with more arguments of `nasd up`.
    pub fn restart_by(&mut self, arguments: &[&str]) {
        self.up(arguments);
    }

    /// The same, with something in the environment of all its processes.
    pub fn restart_with(&mut self, name: &str, value: &Path) {
        self.environment.push((name.to_owned(), value.to_owned()));
        self.up(&[]);
    }

    fn up(&mut self, arguments: &[&str]) {
        assert!(self.up.is_none(), "the cell runs already");
        let mut command = nasd();
        command.arg("up").arg(self.cell()).args(arguments).arg("--mount").arg(self.mountpoint());
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        if !line.starts_with("ready") {
            let mut errors = String::new();
            child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
            let _ = child.wait();
            panic!("the cell did not start:\n{errors}");
        }
        self.up = Some(child);
    }

    /// The cell's directory.
    pub fn cell(&self) -> PathBuf {
        self.directory.path().join("cell")
    }

    /// Where it is mounted.
    pub fn mountpoint(&self) -> PathBuf {
        self.directory.path().join("mnt")
    }

    /// A path on the mount.
    pub fn path(&self, name: &str) -> PathBuf {
        self.mountpoint().join(name)
    }

    /// `nasd` with this cell.
    pub fn nasd<I: AsRef<OsStr>>(&self, arguments: &[I]) -> Output {
        let mut command = nasd();
        command.args(arguments).arg("--cell").arg(self.cell());
        finish(command)
    }

    /// Stops it as a user would, and checks that it ends well.
    pub fn stop(&mut self) {
        let Some(mut up) = self.up.take() else { return };
        signal(up.id(), "TERM");
        let status = wait_for_exit(&mut up);
        let mut errors = String::new();
        let _ = up.stderr.take().unwrap().read_to_string(&mut errors);
        assert!(status.success(), "stopping the cell: {status}\n{errors}");
    }

    /// Kills every process of the cell at once, so that none can do anything first, and waits until all have let go of
    /// what they had open.
    pub fn kill_everything(&mut self) {
        let mut up = self.up.take().expect("a running cell");
        // Stopped, the supervisor can't restart what dies, nor does any of them hear of another's death before its own.
        signal(up.id(), "STOP");
        let members: Vec<u32> = self.members_of(up.id()).into_iter().map(|(pid, _)| pid).collect();
        kill_at_once(&members);
        wait_until("all members are dead", || members.iter().all(|pid| is_dead(*pid)));
        signal(up.id(), "KILL");
        wait_for_exit(&mut up);
    }

    /// Process numbers and command lines of the cell's members.
    pub fn members(&self) -> Vec<(u32, String)> {
        self.members_of(self.up.as_ref().expect("a running cell").id())
    }

    /// The process whose command line has `part` in it.
    pub fn member(&self, part: &str) -> u32 {
        let members = self.members();
        let found = members.iter().find(|(_, line)| line.contains(part));
        found.unwrap_or_else(|| panic!("no member {part} in {members:?}")).0
    }

    /// Kills the process whose command line has `part` in it, once there is one; its number.
    pub fn kill(&self, part: &str) -> u32 {
        let mut found = None;
        wait_until(&format!("there is {part}"), || {
            found = self.members().into_iter().find(|(_, line)| line.contains(part));
            found.is_some()
        });
        let (member, _) = found.expect("it was waited for");
        signal(member, "KILL");
        member
    }

    /// Kills a process as [`kill`](Self::kill) does, and waits for another in its place.
    pub fn kill_and_await(&self, part: &str) {
        let killed = self.kill(part);
        let is_another = |(pid, line): &(u32, String)| line.contains(part) && *pid != killed;
        wait_until("it is back", || self.members().iter().any(is_another));
    }

    fn members_of(&self, parent: u32) -> Vec<(u32, String)> {
        let mut members = Vec::new();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let name = entry.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
                continue;
            };
            let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            let after_name = stat.rsplit(") ").next().unwrap_or_default();
            if after_name.split(' ').nth(1) == Some(&parent.to_string()) {
                let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
                let line = String::from_utf8_lossy(&line).replace('\0', " ");
                members.push((pid, line));
            }
        }
        members
    }
}

impl Drop for TestCell {
    fn drop(&mut self) {
        if let Some(mut up) = self.up.take() {
            if std::thread::panicking() {
                self.print_logs();
            }
            signal(up.id(), "TERM");
            let deadline = Instant::now() + Duration::from_secs(20);
            while up.try_wait().unwrap().is_none() {
                if Instant::now() > deadline {
                    let _ = up.kill();
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        // A mount that a killed process left would keep the directory.
        let _ =
            Command::new("umount").arg("-l").arg(self.mountpoint()).stderr(Stdio::null()).status();
    }
}

impl TestCell {
    fn print_logs(&self) {
        for entry in std::fs::read_dir(self.cell().join("log")).into_iter().flatten().flatten() {
            let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            let tail = &lines[lines.len().saturating_sub(20)..];
            eprintln!("--- {}\n{}", entry.path().display(), tail.join("\n"));
        }
    }
}

/// A first port so that `count` ports from it are free now, and stay free until they are used.
///
/// They are below those that the kernel gives to connections (32768 and up), or else any
/// connection could take one while a cell is stopped; and no two tests get the same, of whatever processes of this tree.
pub fn free_ports(count: u32) -> u16 {
    const FIRST: u32 = 10_000;
    const BLOCK: u32 = 16;
    const BLOCKS: u32 = (32_768 - FIRST) / BLOCK;
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    static HELD: Mutex<Vec<File>> = Mutex::new(Vec::new());

    assert!(count <= BLOCK);
    loop {
        // Processes that run side by side begin at different places.
        let block = (std::process::id() * 101 + TAKEN.fetch_add(1, Ordering::Relaxed)) % BLOCKS;
        // It is held until this process ends, as its cells are stopped and started.
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("ports-{block}"));
        let held = File::create(path).unwrap();
        if held.try_lock().is_err() {
            continue;
        }
        HELD.lock().unwrap_or_else(PoisonError::into_inner).push(held);
        let first = (FIRST + block * BLOCK) as u16;
        let mut ports = first..first + count as u16;
        if ports.all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok()) {
            return first;
        }
    }
}

/// Sends a signal to a process that the test started.
pub fn signal(pid: u32, name: &str) {
    let _ = Command::new("kill").args(["-s", name, &pid.to_string()]).status();
}

/// Has processes die with nothing between them: all are stopped first. One process does both, as nobody could begin another one
/// while a mount is stopped: what this process has open there is closed at that.
fn kill_at_once(pids: &[u32]) {
    let both = r#"kill -s STOP "$@"; kill -s KILL "$@""#;
    let pids = pids.iter().map(u32::to_string);
    let _ = Command::new("sh").args(["-c", both, "sh"]).args(pids).status();
}

/// Whether all threads of a process have ended: its files are closed then, whether or not anybody has waited for it.
fn is_dead(pid: u32) -> bool {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let Ok(stat) = std::fs::read_to_string(process.join("stat")) else { return true };
    let is_zombie = stat.rsplit(") ").next().is_some_and(|told| told.starts_with('Z'));
    let threads = std::fs::read_dir(process.join("task")).map_or(0, Iterator::count);
    is_zombie && threads <= 1
}

/// Waits for a child, but not for ever.
pub fn wait_for_exit(child: &mut Child) -> std::process::ExitStatus {
    let exited = exit_within(child, PATIENCE);
    exited.unwrap_or_else(|| panic!("process {} does not end", child.id()))
}

fn exit_within(child: &mut Child, patience: Duration) -> Option<std::process::ExitStatus> {
    let deadline = Instant::now() + patience;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    None
}

/// Waits until something is true, but not for ever.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited too long until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Runs a command to its end, but not for ever.
pub fn finish(command: Command) -> Output {
    finish_within(PATIENCE, command)
}

/// The same for what takes longer. What does not end in time is killed, and what it has told until then is shown.
pub fn finish_within(patience: Duration, mut command: Command) -> Output {
    // In a group of its own, so that its children end with it.
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().unwrap();
    let (output, errors) =
        (collect(child.stdout.take().unwrap()), collect(child.stderr.take().unwrap()));
    let in_time = exit_within(&mut child, patience);
    let status = in_time.unwrap_or_else(|| {
        let group = format!("-{}", child.id());
        let _ = Command::new("kill").args(["-s", "KILL", "--", &group]).status();
        child.wait().unwrap()
    });
    let output = Output { status, stdout: output.join().unwrap(), stderr: errors.join().unwrap() };
    assert!(in_time.is_some(), "it does not end in {patience:?}: {}", text(&output));
    output
}

fn collect(mut from: impl Read + Send + 'static) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).unwrap();
        bytes
    })
}

/// Runs a command to its end with `input` on its standard input.
pub fn feed(mut command: Command, input: &[u8]) -> Output {
    // A file, so that nobody has to write while somebody reads.
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(input).unwrap();
    file.rewind().unwrap();
    command.stdin(file);
    finish(command)
}

/// Runs a command that must succeed, and gives what it printed.
pub fn run(program: &str, arguments: &[&OsStr]) -> String {
    run_within(PATIENCE, program, arguments)
}

fn run_within(patience: Duration, program: &str, arguments: &[&OsStr]) -> String {
    let mut command = Command::new(program);
    command.args(arguments);
    let output = finish_within(patience, command);
    assert!(output.status.success(), "{program} {arguments:?}: {}", text(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A shell line that must succeed; `$1`, `$2` and so on are the paths.
pub fn shell(line: &str, paths: &[&Path]) -> String {
    shell_within(PATIENCE, line, paths)
}

/// The same for what takes longer.
pub fn shell_within(patience: Duration, line: &str, paths: &[&Path]) -> String {
    let mut arguments: Vec<&OsStr> = vec!["-ec".as_ref(), line.as_ref(), "sh".as_ref()];
    arguments.extend(paths.iter().map(|path| path.as_os_str()));
    run_within(patience, "sh", &arguments)
}

/// Makes a tree durable: each file and directory of it.
pub fn sync_tree(path: &Path) {
    shell("find \"$1\" ! -type l -exec sync {} +", &[path]);
}

/// Everything that a command printed.
pub fn text(output: &Output) -> String {
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    format!("{} {out}{err}", output.status)
}

/// Bytes that no compression or zero detection makes special; the same for the same seed.
pub fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// A tree of many small files of many shapes.
pub fn make_tree(root: &Path, files: usize) {
    for index in 0..files {
        let folder = root.join(format!("d{}", index % 40)).join(format!("e{}", index % 7));
        std::fs::create_dir_all(&folder).unwrap();
        let length = [0, 1, 100, 4095, 4096, 4097, 20_000, 70_000][index % 8] + index % 3;
        let file = folder.join(format!("file-{index}"));
        std::fs::write(&file, noise(index as u64, length)).unwrap();
        if index % 50 == 0 {
            std::os::unix::fs::symlink(format!("file-{index}"), folder.join(format!("l{index}")))
                .unwrap();
        }
        if index % 97 == 0 {
            std::fs::hard_link(&file, folder.join(format!("h{index}"))).unwrap();
        }
    }
}
