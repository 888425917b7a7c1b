//! `nasd manager serve`: the file manager of the cell's volume.

use super::{Outcome, announce_ready};
use crate::cell::{Cell, CellError, Ledger, RingKeeper, complete_cell};
use crate::session::LoadedCertificate;
use crate::shutdown::Shutdown;
use nasd_manager::{DriveConfig, ManagerConfig, ManagerServer, RootOptions};
use nasd_protocol::manager::Name;
use nasd_transport::ServerTls;
use std::error::Error;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

/// How long requests under way may take when the manager is stopped.
const GRACE: Duration = Duration::from_secs(10);

/// Serves until a signal ends it.
///
/// # Errors
/// A cell whose files can't be used, an address that can't be listened on, or drives that don't
/// answer.
pub fn serve(cell: &Cell) -> Outcome {
    let mut shutdown = Shutdown::new()?;
    complete_cell(cell)?;
    let config = configuration(cell)?;
    let address = cell.config.manager.address;
    let listener = TcpListener::bind(address)
        .map_err(|error| format!("can't listen on {address}: {error}"))?;
    let certificate = LoadedCertificate::load_for_server(&cell.certificate("manager"))?;
    let tls = ServerTls::admitting_strangers(&certificate.pem())?;
    let server = ManagerServer::start(&config, listener, Some(tls))?;
    announce_ready(&address.to_string());
    shutdown.wait();
    tracing::info!("stopping");
    server.shut_down(GRACE);
    Ok(())
}

fn configuration(cell: &Cell) -> Result<ManagerConfig, Box<dyn Error>> {
    let keyring = cell.keyring()?;
    let mut drives = Vec::new();
    for drive in &cell.config.drives {
        let id = drive.drive_id();
        let keys = keyring.working_keys(id);
        let keys = keys.ok_or_else(|| CellError::NoKeys(format!("drive {:016x}", id.0)))?;
        drives.push(DriveConfig {
            id,
            address: drive.address.to_string(),
            index: drive.index,
            partition: drive.partition_id(),
            keys,
        });
    }
    // The drive that the cell was made with first stays its volume's home.
    let home = drives.first().ok_or("the cell has no drives")?.id;
    let volume = Name::new(&cell.config.volume)?;
    let mut config = ManagerConfig::new(cell.config.cell_id(), volume, home, drives);
    config.protection = cell.config.protection();
    config.keeper = Some(Arc::new(RingKeeper::new(cell.keyring_path())));
    config.members = Some(Arc::new(Ledger::open(cell.directory().to_owned())?));
    config.rotation_interval = cell.config.rotation_interval();
    // Whoever makes a cell owns its volume.
    config.root = RootOptions {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        ..RootOptions::default()
    };
    Ok(config)
}
