//! `nasd drive`: one drive on one device.

mod components;
mod inspect;
mod overlay;
mod resize;
mod superblock;

pub use components::list;

use super::{Outcome, announce_end, announce_ready};
use crate::arguments::{DriveArguments, DriveCommand, DriveServeArguments};
use crate::drive_session::DriveSession;
use crate::memory::default_cache_bytes;
use crate::metrics::MetricsListener;
use crate::output::note;
use crate::shutdown::Shutdown;
use nasd_cell::{Added, AddedDrive, Cell, CellLock, add_drive, master_keys_path, protection_named};
use nasd_device::{
    BlockDevice, DeviceError, FileDevice, FileOptions, LimpingDevice, RatedDevice, SeekModel,
    SeekingDevice,
};
use nasd_drive::{Drive, DriveOptions, DriveServer, Environment};
use nasd_store::{Identity, OpenError, OpenOptions, Store};
use nasd_types::{CellId, DriveId};
use std::error::Error;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long requests under way may take when the drive is stopped.
pub const GRACE: Duration = Duration::from_secs(10);

/// Runs a drive command.
///
/// # Errors
/// The command's own.
pub fn run(cell: &Path, command: DriveCommand, json: bool) -> Outcome {
    match command {
        DriveCommand::Format { device, size, address, cache, yes } => {
            let cell = Cell::open(cell)?;
            if cell.config.drives.iter().any(|drive| drive.stripe.is_some()) {
                return Err("files of this cell are spread: `nasd drive add` adds a drive".into());
            }
            let count = cell.config.drives.len() as u64 + 1;
            let cache_bytes = cache.unwrap_or_else(|| default_cache_bytes(count));
            let added = AddedDrive {
                device: Some(device),
                size_bytes: size,
                address,
                cache_bytes,
                role: Added::Volume,
            };
            format(&cell, &added, yes)
        }
        DriveCommand::Add(arguments) => components::add(&Cell::open(cell)?, arguments),
        DriveCommand::Drain(arguments) => components::drain(&Cell::open(cell)?, &arguments),
        DriveCommand::Remove { index } => components::remove(&Cell::open(cell)?, index),
        DriveCommand::Serve(arguments) => serve(&arguments),
        DriveCommand::Set { drive, minimum_protection } => set(cell, &drive, &minimum_protection),
        DriveCommand::Inspect { device } => inspect::inspect(&device, json),
        DriveCommand::Resize { device, size, yes } => resize::resize(&device, size, yes, json),
    }
}

/// The device that a drive serves, as slow as it is to be.
fn slowed(device: FileDevice, arguments: &DriveServeArguments) -> Arc<dyn BlockDevice> {
    let path = &arguments.device;
    if arguments.emulate_disk {
        tracing::warn!("{} is as slow as a disk, as --emulate-disk says", path.display());
        let model = SeekModel::DISK_7200.sleeping();
        return that_may_limp(SeekingDevice::new(device, model), path);
    }
    if let Some(bytes_per_second) = arguments.device_rate {
        return Arc::new(RatedDevice::new(device, bytes_per_second));
    }
    that_may_limp(device, path)
}

/// In a program that is built for tests a device may be made slow while it is used.
fn that_may_limp(device: impl BlockDevice + 'static, path: &Path) -> Arc<dyn BlockDevice> {
    if cfg!(debug_assertions) && std::env::var_os("NASD_TEST_LIMP").is_some() {
        return Arc::new(LimpingDevice::new(device, path.with_extension("limp")));
    }
    Arc::new(device)
}

/// Opens the device of a drive that is not being served.
///
/// # Errors
/// Says what can't be done, and that the drive must be stopped where it is in use.
pub fn open_stopped(path: &Path, action: &str) -> Result<FileDevice, String> {
    let options = FileOptions { allow_buffered: true, ..FileOptions::default() };
    FileDevice::open(path, options).map_err(|error| match error {
        DeviceError::InUse { .. } => format!(
            "can't {action} {}: it is in use by another process; stop the drive that serves it \
             (`nasd down`) first",
            path.display()
        ),
        other => format!("can't {action} {}: {other}", path.display()),
    })
}

fn format(cell: &Cell, added: &AddedDrive, yes: bool) -> Outcome {
    let path = added.device.clone().unwrap_or_default();
    if path.exists() && !yes {
        let path = path.display();
        let text = format!("everything on {path} would be lost: add --yes to agree");
        return Err(text.into());
    }
    if CellLock::holder(&cell.lock_path()).is_some() {
        let text = "the cell is running; stop it with `nasd down`, add the drive, and start it";
        return Err(text.into());
    }
    let drive = add_drive(cell, added)?;
    let path = path.display();
    println!("{path} is now {} of the cell; `nasd up` will start it", drive.member());
    note!("{}", master_keys_note(cell));
    Ok(())
}

/// Sets what a running drive demands of all requests.
fn set(cell: &Path, drive: &DriveArguments, minimum_protection: &str) -> Outcome {
    let minimum = protection_named(minimum_protection)
        .ok_or_else(|| format!("`{minimum_protection}` is no protection"))?;
    let session = DriveSession::open(cell, drive, None)?;
    let set = session.client.set_drive(&session.authority, minimum);
    Ok(set.map_err(session.failed("set its minimum protection"))?)
}

/// Where the owner finds the master keys of new drives, and what to do with them.
pub fn master_keys_note(cell: &Cell) -> String {
    let path = master_keys_path(cell.directory());
    format!(
        "nasd: the master keys of the new drives are in {}: move that file to where no network \
         reaches; the cell never needs it",
        path.display()
    )
}

/// Which drive it must be.
#[derive(Debug, Default)]
pub struct Expected {
    /// Of which cell.
    pub cell: Option<CellId>,
    /// Which of its drives.
    pub drive: Option<DriveId>,
}

impl Expected {
    fn parse(cell: &Option<String>, drive: &Option<String>) -> Result<Self, Box<dyn Error>> {
        let cell = cell.as_deref().map(str::parse).transpose()?;
        let drive = drive.as_deref().map(|text| u64::from_str_radix(text, 16)).transpose();
        let drive = drive.map_err(|_| "a drive identifier is 16 hexadecimal digits")?;
        Ok(Expected { cell, drive: drive.map(DriveId) })
    }

    /// Whether it is that one.
    ///
    /// # Errors
    /// Which one it is instead.
    pub fn check(&self, found: Identity, path: &Path) -> Outcome {
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

/// Keeps the heap from growing far beyond what is in use: threads take turns with as many parts of it
/// as there are processors. By default there are eight for each, and each keeps what it ever had at a
/// time: pages of metadata, which any thread may come to handle. Nothing else has threads yet.
pub fn bound_heap() {
    #[cfg(target_env = "gnu")]
    {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let parts = libc::c_int::try_from(processors).unwrap_or(libc::c_int::MAX);
        // SAFETY: sets a number of the allocator, which may be done at any time.
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, parts);
        }
    }
}

fn serve(arguments: &DriveServeArguments) -> Outcome {
    bound_heap();
    let path = &arguments.device;
    let expected = Expected::parse(&arguments.expect_cell, &arguments.expect_drive)?;
    let options = DriveOptions {
        minimum_protection: protection_named(&arguments.minimum_protection)
            .ok_or("no such protection option")?,
        scrub_bytes_per_second: arguments.scrub_rate,
        ..DriveOptions::default()
    };
    // Before the device is opened: a signal from here on is a clean stop.
    let mut shutdown = Shutdown::new()?;
    let device = FileDevice::open(path, FileOptions::default())?;
    let identity = Store::read_identity(&device).map_err(|error| open_failed(path, &error))?;
    expected.check(identity, path)?;
    let listen = arguments.listen;
    let cant_listen = |address| move |error| format!("can't listen on {address}: {error}");
    let listener = TcpListener::bind(listen).map_err(cant_listen(listen))?;
    let metrics = arguments
        .metrics
        .map(|address| MetricsListener::bind(address).map_err(cant_listen(address)))
        .transpose()?;
    let cache_bytes = usize::try_from(arguments.cache)?;
    let store_options = OpenOptions { cache_bytes, ..OpenOptions::default() };
    let store = Store::open(slowed(device, arguments), &store_options)
        .map_err(|error| open_failed(path, &error))?;
    let drive = Drive::new(store, options, Environment::system())?;
    let server = DriveServer::start(drive, listener)?;
    serve_until_stopped(&server, metrics.as_ref(), &mut shutdown);
    announce_end();
    server.shut_down(GRACE)?;
    Ok(())
}

/// Tells that it serves, and serves the metrics until a signal ends it.
pub fn serve_until_stopped(
    server: &DriveServer,
    metrics: Option<&MetricsListener>,
    shutdown: &mut Shutdown,
) {
    let mut detail = server.address().to_string();
    let stopping = AtomicBool::new(false);
    std::thread::scope(|scope| {
        if let Some(metrics) = metrics {
            detail = format!("{detail} metrics {}", metrics.address());
            let text = || server.drive().metrics();
            let stopping = &stopping;
            scope.spawn(move || metrics.serve(stopping, &text));
        }
        announce_ready(&detail);
        shutdown.wait();
        stopping.store(true, Ordering::Release);
    });
}

/// Why a device is no drive.
pub fn open_failed(path: &Path, error: &OpenError) -> String {
    let path = path.display();
    match error {
        OpenError::NotNasd => format!(
            "{path} is not a NASD drive: it was never formatted, or something overwrote it; \
             `nasd drive format` makes it one, and everything on it is lost then"
        ),
        other => format!("can't open {path}: {other}"),
    }
}
