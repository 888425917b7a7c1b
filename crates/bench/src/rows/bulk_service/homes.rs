//! Where the files of the rows are: objects of the measured drive, or files of a directory that a process of its own serves.

use std::fs::{File, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use nasd_bulk_service::client::Opening;
use nasd_bulk_service::desk::DeskClient;
use nasd_client::Authority;
use nasd_hosts::Process;
use nasd_protocol::bulk::Options;
use nasd_protocol::bulk_desk::Wanted;
use nasd_protocol::manager::IssuedCapability;
use nasd_types::{ObjectName, Protection, SetAttributes};
use rustix::fs::{Mode, OFlags};

use crate::BenchError;
use crate::workload::Bench;

/// How the names of rows begin whose files are those of a directory.
pub(in super::super) const OF_A_DIRECTORY: &str = "bulk-directory-";

/// Within a second after its start a drive refuses the first request of each sender, which asks again (`NonceWindow` in `nasd-capability`):
/// each open would be made twice, and what is to be told is how long one takes.
const AFTER_START: Duration = Duration::from_millis(1200);

/// Where files are.
pub(super) enum Home<'b> {
    Drive(&'b Bench<'b>),
    Directory(Served<'b>),
}

/// A directory that is served until this is dropped, and is gone then.
pub(super) struct Served<'b> {
    bench: &'b Bench<'b>,
    path: PathBuf,
    desk: DeskClient,
    process: Option<Process>,
}

/// A file of a row's own, removed when it is dropped.
pub(super) struct Made<'b> {
    home: &'b Home<'b>,
    place: Place,
}

enum Place {
    Object(ObjectName, Box<IssuedCapability>),
    File(String),
}

impl<'b> Home<'b> {
    /// Of a row, by its name.
    pub(super) fn of(bench: &'b Bench<'b>, row: &str) -> Result<Home<'b>, BenchError> {
        match row.starts_with(OF_A_DIRECTORY) {
            true => Ok(Home::Directory(Served::start(bench)?)),
            false => Ok(Home::Drive(bench)),
        }
    }

    /// What is read next is in no memory.
    pub(super) fn forget(&self) -> Result<(), BenchError> {
        match self {
            Home::Drive(bench) => {
                bench.restart()?;
                thread::sleep(AFTER_START);
                Ok(())
            }
            // Its server passes the system's cache by, which `Served::start` makes sure of.
            Home::Directory(_) => Ok(()),
        }
    }

    /// An empty file.
    pub(super) fn make(&'b self, number: usize) -> Result<Made<'b>, BenchError> {
        let place = match self {
            Home::Drive(bench) => {
                let (target, initial) = (bench.target, SetAttributes::default());
                let partition = target.object.partition;
                let created =
                    bench.connect(1).create(&target.manager, partition, &initial, true)?;
                let name = ObjectName { object: created.object, ..target.object };
                let version = created.attributes.access_control_version;
                Place::Object(name, Box::new((target.issue)(name, version)))
            }
            Home::Directory(served) => {
                let name = number.to_string();
                // Whoever writes to it is nobody.
                let for_all = || Permissions::from_mode(0o666);
                let made = File::create(served.path.join(&name));
                let made = made.and_then(|made| made.set_permissions(for_all()));
                made.map_err(BenchError::io("can't make a file to be served"))?;
                Place::File(name)
            }
        };
        Ok(Made { home: self, place })
    }
}

impl Made<'_> {
    /// Where it can be opened: whoever asks may have to ask the server's desk.
    pub(super) fn opening(&self, options: Options, block: u64) -> Result<Opening, BenchError> {
        let is_read = options.contains(Options::READ);
        let mut opening = match (self.home, &self.place) {
            (Home::Drive(bench), Place::Object(_, issued)) => Opening {
                address: bench.target.address.clone(),
                authority: Authority::capability(issued, Protection::INTEGRITY_ARGS),
                place: Vec::new(),
                options,
                block: 0,
                durable: true,
                patience: Duration::from_secs(30),
                clock_ahead_ns: 0,
            },
            (Home::Directory(served), Place::File(name)) => {
                let wanted = if is_read { Wanted::READ } else { Wanted::WRITE };
                let ticket = served.desk.ticket(name.as_bytes(), wanted, 0, None);
                let ticket = ticket.map_err(|error| BenchError::Cell(error.to_string()))?;
                ticket.opening(Protection::INTEGRITY_ARGS)
            }
            _ => return Err(BenchError::Cell("a file is not where it was made".to_owned())),
        };
        opening.block = if is_read { block } else { 0 };
        Ok(opening)
    }
}

impl Drop for Made<'_> {
    fn drop(&mut self) {
        match (self.home, &self.place) {
            (Home::Drive(bench), Place::Object(name, _)) => {
                // The drive ends with the run, and so does what is left on it.
                let _ = bench.connect(1).remove(&bench.target.manager, *name, true);
            }
            (Home::Directory(served), Place::File(name)) => {
                let _ = std::fs::remove_file(served.path.join(name));
            }
            _ => {}
        }
    }
}

impl<'b> Served<'b> {
    fn start(bench: &'b Bench<'b>) -> Result<Served<'b>, BenchError> {
        let path = bench.target.directory.join("served");
        std::fs::create_dir_all(&path).map_err(BenchError::io("can't make a directory"))?;
        let trial = path.join("trial");
        let how = OFlags::CREATE | OFlags::WRONLY | OFlags::DIRECT;
        let direct = rustix::fs::open(&trial, how, Mode::RUSR | Mode::WUSR);
        // Where it can't be opened so, it may have been made nevertheless.
        let _ = std::fs::remove_file(trial);
        let direct = direct.map_err(std::io::Error::from);
        direct.map_err(BenchError::io("files of this directory can't be read past the cache"))?;
        let address = free_address()?;
        let mut serve = Command::new(&bench.target.cells.program);
        serve.args(["bulk", "serve", "--anyone", "--listen", &address]).arg(&path);
        let desk = DeskClient::plain(address);
        let mut served = Served { bench, path, desk, process: None };
        let log = served.bench.target.directory.join("served.log");
        served.process = Some(Process::start("the bulk server", &log, serve)?);
        Ok(served)
    }
}

impl Drop for Served<'_> {
    fn drop(&mut self) {
        drop(self.process.take());
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

fn free_address() -> Result<String, BenchError> {
    let io = BenchError::io("can't find a free port");
    let listener = TcpListener::bind("127.0.0.1:0").map_err(&io)?;
    Ok(listener.local_addr().map_err(&io)?.to_string())
}
