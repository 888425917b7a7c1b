//! `nasd drive`: one drive on one device.

use super::{Outcome, announce_ready};
use crate::arguments::DriveCommand;
use crate::cell::{AddedDrive, Cell, CellLock, add_drive, protection_named};
use crate::shutdown::Shutdown;
use nasd_device::{FileDevice, FileOptions};
use nasd_drive::{Drive, DriveOptions, DriveServer, Environment};
use nasd_store::{Identity, OpenError, OpenOptions, Store};
use nasd_types::{CellId, DriveId};
use std::error::Error;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long requests under way may take when the drive is stopped.
const GRACE: Duration = Duration::from_secs(10);

/// Runs a drive command.
///
/// # Errors
/// The command's own.
pub fn run(cell: &Path, command: DriveCommand, json: bool) -> Outcome {
    match command {
        DriveCommand::Format { device, size, address, cache, yes } => {
            let added = AddedDrive { device, size_bytes: size, address, cache_bytes: cache };
            format(&Cell::open(cell)?, &added, yes)
        }
        DriveCommand::Serve(serve_arguments) => {
            let arguments = serve_arguments;
            let expected = Expected::parse(&arguments.expect_cell, &arguments.expect_drive)?;
            let options = DriveOptions {
                minimum_protection: protection_named(&arguments.minimum_protection)
                    .ok_or("no such protection option")?,
                ..DriveOptions::default()
            };
            serve(&arguments.device, arguments.listen, arguments.cache, options, &expected)
        }
        DriveCommand::Inspect { device } => inspect(&device, json),
    }
}

fn format(cell: &Cell, added: &AddedDrive, yes: bool) -> Outcome {
    let path = added.device.display();
    if added.device.exists() && !yes {
        let text = format!("everything on {path} would be lost: add --yes to agree");
        return Err(text.into());
    }
    if CellLock::holder(&cell.lock_path()).is_some() {
        let text = "the cell is running; stop it with `nasd down`, add the drive, and start it";
        return Err(text.into());
    }
    let drive = add_drive(cell, added)?;
    println!("{path} is now {} of the cell; `nasd up` will start it", drive.member());
    Ok(())
}

/// Which drive it must be.
#[derive(Debug, Default)]
struct Expected {
    cell: Option<CellId>,
    drive: Option<DriveId>,
}

impl Expected {
    fn parse(cell: &Option<String>, drive: &Option<String>) -> Result<Self, Box<dyn Error>> {
        let cell = cell.as_deref().map(str::parse).transpose()?;
        let drive = drive.as_deref().map(|text| u64::from_str_radix(text, 16)).transpose();
        let drive = drive.map_err(|_| "a drive identifier is 16 hexadecimal digits")?;
        Ok(Expected { cell, drive: drive.map(DriveId) })
    }

    fn check(&self, found: Identity, path: &Path) -> Outcome {
        let path = path.display();
        if let Some(cell) = self.cell
            && cell != found.cell
        {
            let found = found.cell;
            let text =
                format!("{path} belongs to another cell ({found}), not to this one ({cell})");
            return Err(text.into());
        }
        if let Some(drive) = self.drive
            && drive != found.drive
        {
            let (found, drive) = (found.drive.0, drive.0);
            let text = format!("{path} holds drive {found:016x} of this cell, not {drive:016x}");
            return Err(text.into());
        }
        Ok(())
    }
}

fn serve(
    path: &Path,
    listen: SocketAddr,
    cache_bytes: u64,
    options: DriveOptions,
    expected: &Expected,
) -> Outcome {
    // Before the device is opened: a signal from here on is a clean stop.
    let mut shutdown = Shutdown::new()?;
    let device = FileDevice::open(path, FileOptions::default())?;
    let identity = Store::read_identity(&device).map_err(|error| open_failed(path, &error))?;
    expected.check(identity, path)?;
    let listener =
        TcpListener::bind(listen).map_err(|error| format!("can't listen on {listen}: {error}"))?;
    let store_options =
        OpenOptions { cache_bytes: usize::try_from(cache_bytes)?, ..OpenOptions::default() };
    let store =
        Store::open(Arc::new(device), &store_options).map_err(|error| open_failed(path, &error))?;
    let drive = Drive::new(store, options, Environment::system())?;
    let server = DriveServer::start(drive, listener)?;
    announce_ready(&server.address().to_string());
    shutdown.wait();
    tracing::info!("stopping");
    server.shut_down(GRACE)?;
    Ok(())
}

fn inspect(path: &Path, json: bool) -> Outcome {
    let device = FileDevice::open(path, FileOptions::default())?;
    let found = Store::read_identity(&device).map_err(|error| open_failed(path, &error))?;
    let (drive, cell) = (format!("{:016x}", found.drive.0), found.cell.to_string());
    if json {
        println!("{}", serde_json::json!({ "drive": drive, "cell": cell }));
    } else {
        println!("{}: drive {drive} of cell {cell}", path.display());
    }
    Ok(())
}

fn open_failed(path: &Path, error: &OpenError) -> String {
    let path = path.display();
    match error {
        OpenError::NotNasd => format!(
            "{path} is not a NASD drive: it was never formatted, or something overwrote it; \
             `nasd drive format` makes it one, and everything on it is lost then"
        ),
        other => format!("can't open {path}: {other}"),
    }
}
