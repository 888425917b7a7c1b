//! `nasd demo`: the whole story once, on real files, in a cell that is removed at the end.

mod files;
mod report;

use super::Outcome;
use crate::arguments::DemoArguments;
use crate::output::note;
use crate::supervisor::log_tail;
use files::{Copied, Tree};
use report::{Report, Step};
use std::error::Error;
use std::ffi::OsStr;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Drives of the demonstration's cell.
const DRIVES: u32 = 4;
/// Each drive has room for all files and this much more.
const SPARE_BYTES: u64 = 1 << 30;

/// Starts a cell, copies a tree and a generated file in through a mount, reads them back through a
/// new mount, compares checksums, and prints what happened beside what the machine can do.
///
/// # Errors
/// Whatever failed; the cell is stopped and removed all the same.
pub fn demo(arguments: &DemoArguments) -> Outcome {
    let source = match &arguments.from {
        Some(directory) => directory.clone(),
        None => default_tree(),
    };
    let tree = Tree::list(&source)?;
    println!("Copying {} ({} files) and a generated file.", source.display(), tree.files());
    let cell = DemoCell::start(arguments, tree.bytes() + arguments.big_file)?;
    let steps = copy_and_compare(&cell, &tree, arguments.big_file)?;
    let status = cell.status()?;
    cell.stop()?;
    println!("The cell is stopped. Measuring what this machine can do ...");
    let report = Report { tree: &tree, steps, status, limits: Limits::measure(&cell.directory) };
    let text = report.text();
    drop(cell);
    println!("\n{text}");
    report.check()?;
    println!("{}", NEXT_STEPS);
    Ok(())
}

const NEXT_STEPS: &str = "\
Keep a cell for real (in DIR, mounted on PATH):
    nasd up DIR --drives 4 --size 8G --mount PATH --detach
    nasd status --cell DIR
    nasd down DIR";

/// What the machine can do, in MB/s, or why it is not known.
pub(crate) struct Limits {
    tcp: Result<f64, String>,
    disk_write: Result<f64, String>,
    disk_read: Result<f64, String>,
}

impl Limits {
    fn measure(directory: &Path) -> Self {
        let text =
            |result: Result<f64, nasd_bench::BenchError>| result.map_err(|error| error.to_string());
        Limits {
            tcp: text(nasd_bench::tcp_loopback()),
            disk_write: text(nasd_bench::disk_write(directory)),
            disk_read: text(nasd_bench::disk_read(directory)),
        }
    }
}

fn copy_and_compare(
    cell: &DemoCell,
    tree: &Tree,
    big_bytes: u64,
) -> Result<Vec<Step>, Box<dyn Error>> {
    let (copy, big) = (cell.mountpoint.join("tree"), cell.mountpoint.join("big"));
    let mut steps = Vec::new();
    let mut timed = |name: &'static str,
                     work: &mut dyn FnMut() -> Result<Copied, Box<dyn Error>>| {
        println!("{name} ...");
        let started = Instant::now();
        let copied = work()?;
        steps.push(Step { name, copied, seconds: started.elapsed().as_secs_f64() });
        Ok::<(), Box<dyn Error>>(())
    };
    timed("copy the tree in (cp -a)", &mut || {
        run(Command::new("cp").arg("-a").arg(tree.root()).arg(&copy))?;
        Ok(Copied { files: tree.files(), bytes: tree.bytes() })
    })?;
    let mut written = None;
    timed("write the generated file", &mut || {
        written = Some(files::generate(&big, big_bytes)?);
        Ok(Copied { files: 1, bytes: big_bytes })
    })?;
    println!("unmount, and mount again ...");
    cell.remount()?;
    timed("read the tree and compare", &mut || tree.compare(&copy))?;
    timed("read the generated file and compare", &mut || {
        if Some(files::checksum(&big)?) != written {
            return Err("the generated file came back different".into());
        }
        Ok(Copied { files: 1, bytes: big_bytes })
    })?;
    Ok(steps)
}

/// The Rust library's sources where they are installed, else the system's headers.
fn default_tree() -> PathBuf {
    let output = Command::new("rustc").args(["--print", "sysroot"]).output();
    let sysroot = output.ok().map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let library = sysroot.map(|path| Path::new(path.trim()).join("lib/rustlib/src/rust/library"));
    match library {
        Some(library) if library.is_dir() => library,
        _ => PathBuf::from("/usr/include"),
    }
}

/// The cell of one demonstration.
struct DemoCell {
    directory: PathBuf,
    mountpoint: PathBuf,
}

impl DemoCell {
    fn start(arguments: &DemoArguments, bytes: u64) -> Result<Self, Box<dyn Error>> {
        let parent = arguments.dir.clone().unwrap_or_else(|| PathBuf::from("/var/tmp"));
        let directory = parent.join(format!("nasd-demo-{}", std::process::id()));
        let mountpoint = directory.join("mnt");
        std::fs::create_dir_all(&mountpoint)
            .map_err(|error| format!("can't create {}: {error}", mountpoint.display()))?;
        let cell = DemoCell { directory, mountpoint };
        println!("Starting a cell of {DRIVES} drives in {} ...", cell.directory.display());
        let size = bytes + SPARE_BYTES;
        run(Command::new(std::env::current_exe()?)
            .arg("up")
            .arg(cell.cell())
            .args(["--drives", &DRIVES.to_string(), "--size", &size.to_string()])
            .args(["--base-port", &free_ports(DRIVES + 1)?.to_string(), "--detach"]))?;
        cell.mount()?;
        Ok(cell)
    }

    fn cell(&self) -> PathBuf {
        self.directory.join("cell")
    }

    fn nasd<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Result<Vec<u8>, Box<dyn Error>> {
        let mut command = Command::new(std::env::current_exe()?);
        run(command.args(arguments).arg("--cell").arg(self.cell()))
    }

    fn mount(&self) -> Outcome {
        self.nasd(&["mount".as_ref(), self.mountpoint.as_os_str(), "--detach".as_ref()])?;
        Ok(())
    }

    fn remount(&self) -> Outcome {
        self.nasd(&["umount".as_ref(), self.mountpoint.as_os_str()])?;
        self.mount()
    }

    fn status(&self) -> Result<serde_json::Value, Box<dyn Error>> {
        Ok(serde_json::from_slice(&self.nasd(&["status", "--json"])?)?)
    }

    fn stop(&self) -> Outcome {
        self.nasd(&["umount".as_ref(), self.mountpoint.as_os_str()])?;
        let mut command = Command::new(std::env::current_exe()?);
        run(command.arg("down").arg(self.cell()))?;
        Ok(())
    }
}

impl Drop for DemoCell {
    /// After an error the cell still runs: it is stopped as well as can be, and removed.
    fn drop(&mut self) {
        if nasd_cell::CellLock::holder(&self.cell().join("run/up.lock")).is_some()
            && let Err(error) = self.stop()
        {
            note!("stopping the cell: {error}\n{}", log_tail(&self.cell().join("log/up.log")));
            let mut command = Command::new(std::env::current_exe().unwrap_or_default());
            let _ = run(command.arg("down").arg(self.cell()));
        }
        if let Err(error) = std::fs::remove_dir_all(&self.directory) {
            note!("can't remove {}: {error}", self.directory.display());
        }
    }
}

/// Runs a command to its end; what it printed, or its errors.
fn run(command: &mut Command) -> Result<Vec<u8>, Box<dyn Error>> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("can't run {program}: {error}"))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(format!("{program} failed ({}):\n{}", output.status, errors.trim()).into())
}

/// A first port so that `count` ports from it are free now.
fn free_ports(count: u32) -> Result<u16, Box<dyn Error>> {
    for base in (20_000..60_000_u16).step_by(count as usize + 1) {
        let mut ports = base..base + count as u16;
        if ports.all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok()) {
            return Ok(base);
        }
    }
    Err("no free ports on this machine".into())
}
