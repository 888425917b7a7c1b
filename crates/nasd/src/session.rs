//! Becoming a client of a cell: its certificate, who the user is, and a clerk.

use crate::cell::{Cell, CellError, CertificateFiles, MANAGER_NAME};
use nasd_clerk::{Caller, Clerk, ClerkOptions, Name};
use nasd_client::{ConnectOptions, ManagerClient, RetryPolicy};
use nasd_transport::{ClientTls, PemFiles};
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long a command waits for a drive or manager that is away. A mount waits longer.
pub const COMMAND_DEADLINE: Duration = Duration::from_secs(60);

/// Connects to the cell's volume.
///
/// # Errors
/// Missing or wrong certificates, or a manager that does not answer.
pub fn connect(cell: &Cell, deadline: Duration) -> Result<Arc<Clerk>, Box<dyn Error>> {
    let volume = Name::new(&cell.config.volume)?;
    let tls = client_tls(&cell.certificate("host"))?;
    let manager = cell.config.manager.address.to_string();
    let mut options = ClerkOptions::new(manager, tls, volume, caller());
    options.settings.deadline = deadline;
    Ok(Arc::new(Clerk::connect(&options)?))
}

/// The cell's file manager itself.
///
/// # Errors
/// Missing or wrong certificates.
pub fn manager(cell: &Cell) -> Result<ManagerClient, Box<dyn Error>> {
    let tls = client_tls(&cell.certificate("host"))?;
    let options = ConnectOptions {
        retry: RetryPolicy::within(COMMAND_DEADLINE),
        ..ConnectOptions::default()
    };
    Ok(ManagerClient::tls(cell.config.manager.address.to_string(), tls, &options))
}

/// The user of this process.
pub fn caller() -> Arc<Caller> {
    let groups = rustix::process::getgroups().unwrap_or_default();
    Arc::new(Caller {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        groups: groups.into_iter().map(|group| group.as_raw()).collect(),
    })
}

fn client_tls(files: &CertificateFiles) -> Result<ClientTls, Box<dyn Error>> {
    let loaded = LoadedCertificate::load(files)?;
    Ok(ClientTls::new(&loaded.pem(), MANAGER_NAME)?)
}

/// The contents of one member's certificate files.
pub struct LoadedCertificate {
    authority: Vec<u8>,
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl LoadedCertificate {
    /// Reads the files.
    ///
    /// # Errors
    /// `Io` naming the file that can't be read.
    pub fn load(files: &CertificateFiles) -> Result<Self, CellError> {
        let read = |path: &Path| std::fs::read(path).map_err(CellError::io("read", path));
        Ok(LoadedCertificate {
            authority: read(&files.authority)?,
            certificate: read(&files.certificate)?,
            key: read(&files.key)?,
        })
    }

    /// For TLS.
    pub fn pem(&self) -> PemFiles<'_> {
        PemFiles { authority: &self.authority, certificate: &self.certificate, key: &self.key }
    }
}

impl Drop for LoadedCertificate {
    fn drop(&mut self) {
        zeroize::Zeroize::zeroize(&mut self.key);
    }
}
