//! Whole cells that rows start on this machine, by the program itself.

use std::ffi::OsString;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use nasd_clerk::{Caller, Clerk};
use nasd_hosts::Process;
use rustix::process::{Pid, Signal, kill_process};

use crate::BenchError;

/// Becomes a client of the first volume of the cell in a directory.
pub type Connect = Box<dyn Fn(&Path) -> Result<Client, String> + Send + Sync>;

/// A client of a cell.
pub struct Client {
    /// The volume.
    pub clerk: Arc<Clerk>,
    /// Who asks.
    pub caller: Arc<Caller>,
}

/// How cells are started and used.
pub struct Cells {
    /// The program `nasd`.
    pub program: PathBuf,
    /// Becomes a client.
    pub connect: Connect,
    /// Whether their drives are as slow as disks.
    pub emulate_disk: bool,
}

impl Cells {
    /// Options of `nasd up`, with those that all cells have.
    pub(crate) fn options<'a>(&self, options: impl IntoIterator<Item = &'a str>) -> Vec<OsString> {
        let disk = self.emulate_disk.then_some("--emulate-disk");
        options.into_iter().chain(disk).map(Into::into).collect()
    }
}

/// Ports that a cell may use, counted from its first.
const PORTS: u16 = 16;

/// A cell that runs until this is dropped, and is gone then.
pub(crate) struct LocalCell {
    directory: PathBuf,
    process: Option<Process>,
}

impl LocalCell {
    /// Makes a cell in a new directory, with further options of `nasd up`, and starts it.
    pub(crate) fn start(
        cells: &Cells,
        directory: &Path,
        options: &[&str],
    ) -> Result<LocalCell, BenchError> {
        std::fs::create_dir(directory).map_err(BenchError::io("can't make a cell's directory"))?;
        let mut cell = LocalCell { directory: directory.to_owned(), process: None };
        let port = free_ports()?.to_string();
        cell.up(cells, &[options, &["--base-port", &port]].concat())?;
        Ok(cell)
    }

    /// Stops it and starts it again, with options that hold for this start: there is nothing in any memory then.
    pub(crate) fn restart(&mut self, cells: &Cells, options: &[&str]) -> Result<(), BenchError> {
        drop(self.process.take());
        self.up(cells, options)
    }

    fn up(&mut self, cells: &Cells, options: &[&str]) -> Result<(), BenchError> {
        let mut up = Command::new(&cells.program);
        up.arg("up").arg(self.path()).args(cells.options(options.iter().copied()));
        self.process = Some(Process::start("the cell", &self.directory.join("log"), up)?);
        Ok(())
    }

    fn path(&self) -> PathBuf {
        self.directory.join("cell")
    }

    /// What a command of the program prints about the cell.
    pub(crate) fn command(
        &self,
        program: &Path,
        arguments: &[&str],
    ) -> Result<Vec<u8>, BenchError> {
        let mut command = Command::new(program);
        command.args(arguments).arg("--cell").arg(self.path());
        let output = command.output().map_err(BenchError::io("can't run the program"))?;
        match output.status.success() {
            true => Ok(output.stdout),
            false => {
                let said = String::from_utf8_lossy(&output.stderr);
                Err(BenchError::Cell(format!("`nasd {}`: {said}", arguments.join(" "))))
            }
        }
    }

    /// Mounts a volume of it, the first one if none is named, until the process is dropped.
    pub(crate) fn mount(
        &self,
        program: &Path,
        volume: Option<&str>,
        at: &Path,
    ) -> Result<Process, BenchError> {
        std::fs::create_dir_all(at).map_err(BenchError::io("can't make a mount point"))?;
        let mut mount = Command::new(program);
        mount.arg("mount").arg(at).arg("--cell").arg(self.path());
        mount.args(volume.iter().flat_map(|volume| ["--volume", volume]));
        Ok(Process::start("the mount", &self.directory.join("mount.log"), mount)?)
    }

    /// The drive that serves a device is killed, and its device is where nobody finds it.
    pub(crate) fn lose(&self, device: &Path) -> Result<(), BenchError> {
        let member = member(device)?;
        std::fs::rename(device, device.with_extension("lost"))
            .map_err(BenchError::io("can't rename a device file"))?;
        kill_process(member, Signal::KILL)
            .map_err(|error| BenchError::Cell(format!("a drive can't be killed: {error}")))
    }

    /// Bytes that the drive which serves a device has had written to it, as the system counts them (proc(5), `io`).
    pub(crate) fn written_bytes(&self, device: &Path) -> Result<u64, BenchError> {
        let path = format!("/proc/{}/io", member(device)?.as_raw_nonzero());
        let told = std::fs::read_to_string(path).map_err(BenchError::io("can't read /proc"))?;
        let line = told.lines().find_map(|line| line.strip_prefix("write_bytes: "));
        line.and_then(|number| number.parse().ok()).ok_or(BenchError::NoProcessorTime)
    }

    /// A new client, which knows nothing yet.
    pub(crate) fn connect(&self, cells: &Cells) -> Result<Client, BenchError> {
        (cells.connect)(&self.path()).map_err(BenchError::Cell)
    }
}

impl Drop for LocalCell {
    fn drop(&mut self) {
        drop(self.process.take());
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// The process that serves a device.
fn member(device: &Path) -> Result<Pid, BenchError> {
    let device = device.as_os_str().as_encoded_bytes();
    let failed = BenchError::io("can't read /proc");
    for entry in std::fs::read_dir("/proc").map_err(&failed)?.flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let Some(pid) = pid.and_then(Pid::from_raw) else { continue };
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let has = |wanted: &[u8]| line.split(|byte| *byte == 0).any(|word| word == wanted);
        // Whoever made the cell has the device among its arguments too.
        if has(b"serve") && has(device) {
            return Ok(pid);
        }
    }
    Err(BenchError::Cell(format!("nobody serves {}", String::from_utf8_lossy(device))))
}

/// The first of some ports that nobody uses now.
fn free_ports() -> Result<u16, BenchError> {
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    // Below those that the system gives to who asks for any.
    let mut firsts = (10_000..32_000).step_by(usize::from(PORTS));
    let first = firsts.find(|first| (*first..*first + PORTS).all(is_free));
    first.ok_or_else(|| BenchError::Cell("there are no free ports".to_owned()))
}
