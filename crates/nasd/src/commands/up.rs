//! `nasd up` and `nasd down`: a whole cell on this machine.

use super::drive::master_keys_note;
use super::spreading::{Asked, Spreading};
use super::{Outcome, announce_end, announce_ready};
use crate::arguments::UpArguments;
use crate::detach::run_detached;
use crate::memory::default_cache_bytes;
use crate::output::note;
use crate::shutdown::Shutdown;
use crate::supervisor::{MemberSpec, Supervisor};
use nasd_cell::{
    Cell, CellError, CellLock, DriveConfig, NewCell, StripeConfig, WatchedCell, complete_cell,
    create_cell,
};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How often dead members are looked for.
const TEND_INTERVAL: Duration = Duration::from_millis(20);
/// The manager's port in a new cell, if none is asked for.
const BASE_PORT: u16 = 7300;
/// How long `down` waits: the sum of what the members may take.
const DOWN_TIMEOUT: Duration = Duration::from_secs(300);

/// Creates the cell at first use, starts it, and runs it until a signal ends it.
///
/// # Errors
/// A cell that can't be made or a member that does not start, with the cause.
pub fn up(directory: &Path, arguments: &UpArguments) -> Outcome {
    // Before anything slow: a signal during the start must stop what was started.
    let shutdown = Shutdown::new()?;
    if let Some(mountpoint) = &arguments.mount {
        check_mountpoint(mountpoint)?;
    }
    let cell = open_or_create(directory, arguments)?;
    if arguments.detach {
        if let Some(pid) = CellLock::holder(&cell.lock_path()) {
            let directory = cell.directory().to_owned();
            return Err(CellError::Running { directory, pid: Some(pid) }.into());
        }
        let mut detached: Vec<OsString> = vec!["up".into(), cell.directory().into()];
        if let Some(mountpoint) = &arguments.mount {
            detached.extend(["--mount".into(), std::path::absolute(mountpoint)?.into()]);
        }
        if let Some(port) = arguments.metrics_base_port {
            detached.extend(["--metrics-base-port".into(), port.to_string().into()]);
        }
        if arguments.emulate_disk {
            detached.push("--emulate-disk".into());
        }
        println!("{}", run_detached(&detached, &cell.log_path("up"))?);
        return Ok(());
    }
    let lock = CellLock::acquire(&cell.lock_path())?;
    let stop = shutdown.into_flag();

    let mut supervisor = Supervisor::default();
    supervisor.start(drive_members(&cell, arguments, false)?)?;
    supervisor.start(drive_members(&cell, arguments, true)?)?;
    supervisor.start(vec![manager_member(&cell, arguments.metrics_base_port)])?;
    if let Some(mountpoint) = &arguments.mount {
        let mountpoint = std::path::absolute(mountpoint)?;
        supervisor.start(vec![mount_member(&cell, &mountpoint)])?;
    }
    if !stop.load(Ordering::Acquire) {
        announce_ready("");
    }
    let mut watched = WatchedCell::new(&cell);
    while !stop.load(Ordering::Acquire) {
        supervisor.tend();
        match watched.changed() {
            Ok(Some(cell)) => follow(&mut supervisor, &cell, arguments),
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "the cell's drives can't be told"),
        }
        std::thread::sleep(TEND_INTERVAL);
    }
    announce_end();
    let problems = supervisor.stop();
    drop(lock);
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n").into()) }
}

/// Starts the drives that were added, and stops those that were removed.
fn follow(supervisor: &mut Supervisor, cell: &Cell, arguments: &UpArguments) {
    let wanted = match drive_members(cell, arguments, false) {
        Ok(wanted) => wanted,
        Err(error) => return tracing::error!("{error}"),
    };
    let running: BTreeSet<String> =
        supervisor.names().filter(|name| name.starts_with("drive-")).map(str::to_owned).collect();
    for name in &running {
        if wanted.iter().all(|spec| spec.name != *name)
            && let Some(problem) = supervisor.remove(name)
        {
            tracing::warn!("{problem}");
        }
    }
    wanted
        .into_iter()
        .filter(|spec| !running.contains(&spec.name))
        .for_each(|spec| supervisor.add(spec));
}

/// Stops the cell that runs in the background.
///
/// # Errors
/// If it does not run, or does not stop.
pub fn down(directory: &Path) -> Outcome {
    let cell = Cell::open(directory)?;
    let lock = cell.lock_path();
    let Some(pid) = CellLock::holder(&lock) else {
        return Err(format!("the cell in {} is not running", directory.display()).into());
    };
    let pid = rustix::process::Pid::from_raw(pid as i32).ok_or("its lock names no process")?;
    rustix::process::kill_process(pid, rustix::process::Signal::TERM)
        .map_err(|errno| format!("can't stop process {pid:?}: {errno}"))?;
    if CellLock::wait_released(&lock, DOWN_TIMEOUT) {
        return Ok(());
    }
    let log = cell.log_path("up");
    Err(format!("the cell is still stopping; its log is {}", log.display()).into())
}

fn open_or_create(
    directory: &Path,
    arguments: &UpArguments,
) -> Result<Cell, Box<dyn std::error::Error>> {
    if Cell::exists(directory) {
        let cell = Cell::open(directory)?;
        keeps_ports(&cell, arguments.base_port)?;
        complete_cell(&cell)?;
        return Ok(cell);
    }
    if !arguments.devices.is_empty() && !arguments.yes {
        let devices: Vec<String> =
            arguments.devices.iter().map(|path| format!("  {}", path.display())).collect();
        let devices = devices.join("\n");
        return Err(format!(
            "everything on these devices would be lost:\n{devices}\nadd --yes to agree"
        )
        .into());
    }
    let given = arguments.devices.len() as u64;
    let count = if given == 0 { u64::from(arguments.drives) } else { given };
    let cache_bytes = arguments.cache.unwrap_or_else(|| default_cache_bytes(count));
    let new = NewCell {
        drives: arguments.drives,
        devices: arguments.devices.clone(),
        size_bytes: arguments.size,
        cache_bytes,
        host: arguments.host,
        base_port: arguments.base_port.unwrap_or(BASE_PORT),
        protection: arguments.protection.clone(),
        volume: "main".to_owned(),
        rotate_keys_every: arguments.rotate_keys_every.clone(),
        stripe: stripe_of(arguments, count)?,
    };
    check_addresses(&new, count)?;
    let cell = create_cell(directory, &new)?;
    note!("{}", master_keys_note(&cell));
    Ok(cell)
}

/// Ports of a cell stay what they were when it was made.
fn keeps_ports(cell: &Cell, asked: Option<u16>) -> Result<(), String> {
    let port = cell.config.manager.address.port();
    match asked {
        Some(asked) if asked != port => Err(format!(
            "the cell in {} was made with --base-port {port}, and can't get {asked}: leave --base-port away, or name \
             another directory for a new cell",
            cell.directory().display()
        )),
        _ => Ok(()),
    }
}

/// Who can't listen is told before a cell is made.
fn check_addresses(new: &NewCell, drives: u64) -> Result<(), String> {
    let base = new.base_port;
    for index in 0..=drives + u64::from(new.stripe.is_some()) {
        let port = u16::try_from(u64::from(base) + index).map_err(|_| {
            format!("--base-port {base} leaves no port for drive {index}: lower it")
        })?;
        let address = SocketAddr::new(new.host, port);
        let Err(error) = TcpListener::bind(address) else { continue };
        let name = match index {
            0 => "manager".to_owned(),
            _ if index > drives => format!("striping-{index}"),
            _ => format!("drive-{index}"),
        };
        let hint = match error.kind() {
            io::ErrorKind::AddrNotAvailable => "--host is to be an address of this machine",
            _ => "choose another --base-port: the manager gets that port, drive N that plus N",
        };
        return Err(format!("{name} can't listen on {address}: {error}\n{hint}"));
    }
    Ok(())
}

/// How files of a new cell of so many drives are spread.
fn stripe_of(arguments: &UpArguments, drives: u64) -> Result<Option<StripeConfig>, String> {
    let UpArguments { stripe, stripe_width, stripe_unit, copies, .. } = *arguments;
    let asked = Asked { stripe, width: stripe_width, unit: stripe_unit, copies };
    let spreading = asked.over(drives)?;
    Ok(spreading.map(|Spreading { unit, width, copies }| StripeConfig::new(unit, width, copies)))
}

/// The drives, or the virtual ones, which need the others to be there.
fn drive_members(
    cell: &Cell,
    arguments: &UpArguments,
    are_virtual: bool,
) -> Result<Vec<MemberSpec>, String> {
    let member = |drive: &DriveConfig| {
        let mut member = match are_virtual {
            true => striping_member(cell, drive),
            false => drive_member(cell, drive),
        };
        if arguments.emulate_disk && !are_virtual {
            member.arguments.push("--emulate-disk".into());
        }
        if let Some(base) = arguments.metrics_base_port {
            let index = drive.index;
            let port = u16::try_from(u32::from(base) + index).map_err(|_| {
                format!("--metrics-base-port {base} leaves no port for drive {index}: lower it")
            })?;
            let address = SocketAddr::new(drive.address.ip(), port);
            member.arguments.extend(["--metrics".into(), address.to_string().into()]);
        }
        Ok(member)
    };
    let wanted = cell.config.drives.iter().filter(|drive| drive.stripe.is_some() == are_virtual);
    wanted.map(member).collect()
}

fn striping_member(cell: &Cell, drive: &DriveConfig) -> MemberSpec {
    let name = drive.member();
    let index = drive.index.to_string();
    let arguments: Vec<OsString> = vec![
        "striping".into(),
        "serve".into(),
        index.into(),
        "--cell".into(),
        cell.directory().into(),
    ];
    MemberSpec { log: cell.log_path(&name), name, arguments, may_end: false }
}

fn drive_member(cell: &Cell, drive: &DriveConfig) -> MemberSpec {
    let name = drive.member();
    let arguments: Vec<OsString> = vec![
        "drive".into(),
        "serve".into(),
        cell.device_path(drive).into(),
        "--listen".into(),
        drive.address.to_string().into(),
        "--cache".into(),
        drive.cache_bytes.to_string().into(),
        "--minimum-protection".into(),
        cell.config.protection_name().into(),
        "--expect-cell".into(),
        cell.config.cell_id().to_string().into(),
        "--expect-drive".into(),
        format!("{:016x}", drive.drive_id().0).into(),
    ];
    MemberSpec { log: cell.log_path(&name), name, arguments, may_end: false }
}

fn manager_member(cell: &Cell, metrics_base_port: Option<u16>) -> MemberSpec {
    let mut arguments: Vec<OsString> =
        vec!["manager".into(), "serve".into(), "--cell".into(), cell.directory().into()];
    if let Some(port) = metrics_base_port {
        let address = SocketAddr::new(cell.config.manager.address.ip(), port);
        arguments.extend(["--metrics".into(), address.to_string().into()]);
    }
    MemberSpec { name: "manager".into(), arguments, log: cell.log_path("manager"), may_end: false }
}

/// What can't be mounted at all is said before a cell is made for it. What is left there of a mount that has died looks like an
/// error, and is none.
fn check_mountpoint(mountpoint: &Path) -> Outcome {
    let why = match std::fs::metadata(mountpoint) {
        Ok(metadata) if !metadata.is_dir() => "that is not a directory",
        Err(error) if error.kind() == io::ErrorKind::NotFound => "there is no such directory",
        _ => return Ok(()),
    };
    Err(format!("--mount {}: {why}", mountpoint.display()).into())
}

fn mount_member(cell: &Cell, mountpoint: &Path) -> MemberSpec {
    let arguments: Vec<OsString> =
        vec!["mount".into(), mountpoint.into(), "--cell".into(), cell.directory().into()];
    MemberSpec { name: "mount".into(), arguments, log: cell.log_path("mount"), may_end: true }
}
