//! `nasd manager serve`: the file manager of the cell's volumes.

use super::{Outcome, announce_end, announce_ready};
use crate::metrics::MetricsListener;
use crate::shutdown::Shutdown;
use nasd_cell::session::manager_tls;
use nasd_cell::{Cell, CellError, CellTable, Ledger, RingKeeper, complete_cell, refresh};
use nasd_manager::membership::Membership;
use nasd_manager::{DriveConfig, ManagerConfig, ManagerServer, RootOptions};
use nasd_protocol::manager::Name;
use std::error::Error;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long requests under way may take when the manager is stopped.
const GRACE: Duration = Duration::from_secs(10);

/// How often certificates that end are looked for.
const REFRESH_INTERVAL: Duration = Duration::from_secs(3600);

/// Serves until a signal ends it.
///
/// # Errors
/// A cell whose files can't be used, an address that can't be listened on, or drives that don't
/// answer.
pub fn serve(cell: &Cell, metrics: Option<SocketAddr>) -> Outcome {
    let mut shutdown = Shutdown::new()?;
    cell.remove_stale();
    complete_cell(cell)?;
    refresh(cell)?;
    let tls = manager_tls(cell)?;
    let ledger = Arc::new(Ledger::open(cell.directory().to_owned(), tls.clone())?);
    let config = configuration(cell, Arc::clone(&ledger))?;
    let address = cell.config.manager.address;
    let listener = TcpListener::bind(address)
        .map_err(|error| format!("can't listen on {address}: {error}"))?;
    let metrics = metrics.map(listen_for_metrics).transpose()?;
    let server = ManagerServer::start(&config, listener, Some(tls))?;
    let stopping = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut detail = address.to_string();
        if let Some(metrics) = &metrics {
            detail = format!("{detail} metrics {}", metrics.address());
            let text = || server.metrics();
            scope.spawn(move || metrics.serve(stopping, &text));
        }
        announce_ready(&detail);
        while !shutdown.wait_for(REFRESH_INTERVAL) {
            refresh_certificates(cell, &ledger);
        }
        stopping.store(true, Ordering::Release);
    });
    announce_end();
    server.shut_down(GRACE);
    Ok(())
}

fn listen_for_metrics(address: SocketAddr) -> Result<MetricsListener, String> {
    MetricsListener::bind(address)
        .map_err(|error| format!("can't listen on {address} for metrics: {error}"))
}

/// A certificate must not end because the manager has run for long.
fn refresh_certificates(cell: &Cell, ledger: &Ledger) {
    let reload = |_| ledger.reload().map_err(|error| error.to_string());
    if let Err(error) = refresh(cell).map_err(|error| error.to_string()).and_then(reload) {
        tracing::error!(error, "the certificates are not looked after");
    }
}

fn configuration(cell: &Cell, ledger: Arc<Ledger>) -> Result<ManagerConfig, Box<dyn Error>> {
    let keyring = cell.keyring()?;
    let mut drives = Vec::new();
    for drive in cell.config.first_volume_drives() {
        let id = drive.drive_id();
        let keys = keyring.working_keys(id);
        let keys = keys.ok_or_else(|| CellError::NoKeys(format!("drive {:016x}", id.0)))?;
        drives.push(DriveConfig {
            id,
            address: drive.address.to_string(),
            index: drive.index,
            partition: drive.partition_id(),
            moved_to: None,
            keys,
        });
    }
    // The drive that the cell was made with first stays its volume's home.
    let home = drives.first().ok_or("the cell has no drives")?.id;
    let volume = Name::new(&cell.config.volume)?;
    let mut config = ManagerConfig::new(cell.config.cell_id(), volume, home, drives);
    config.protection = cell.config.protection();
    config.keeper = Some(Arc::new(RingKeeper::new(cell.keyring_path())));
    config.members = Some(ledger);
    config.table = Some(Arc::new(CellTable::new(cell)));
    config.rotation_interval = cell.config.rotation_interval();
    // Whoever makes a cell owns its volume.
    config.root = RootOptions {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        ..RootOptions::default()
    };
    Ok(config)
}
