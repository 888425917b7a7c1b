//! Whole cells that rows start on this machine, by the program itself.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use nasd_clerk::{Caller, Clerk};
use nasd_hosts::Process;

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
        let mut up = Command::new(&cells.program);
        up.arg("up").arg(cell.path()).args(options);
        up.args(["--base-port", &free_ports()?.to_string()]);
        cell.process = Some(Process::start("the cell", &directory.join("log"), up)?);
        Ok(cell)
    }

    fn path(&self) -> PathBuf {
        self.directory.join("cell")
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

/// The first of some ports that nobody uses now.
fn free_ports() -> Result<u16, BenchError> {
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    // Below those that the system gives to who asks for any.
    let mut firsts = (10_000..32_000).step_by(usize::from(PORTS));
    let first = firsts.find(|first| (*first..*first + PORTS).all(is_free));
    first.ok_or_else(|| BenchError::Cell("there are no free ports".to_owned()))
}
