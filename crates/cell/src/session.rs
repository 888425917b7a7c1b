//! Becoming a client of a cell: its certificate, who the user is, and a clerk.

use crate::renew::renew_if_due;
use crate::{Cell, CellError, CertificateFiles, MANAGER_NAME, complete, read_private};
use nasd_clerk::{Caller, Clerk, ClerkError, ClerkOptions, ManagerStatus, Name, Route, Settings};
use nasd_client::{ConnectOptions, ManagerClient, RetryPolicy};
use nasd_transport::{ClientTls, PeerIdentity, PemFiles, ServerTls};
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long a command waits for a drive or manager that is away. A mount waits longer.
pub const COMMAND_DEADLINE: Duration = Duration::from_secs(60);

/// How long the manager is waited for where no cell seems to run: it may have been started by itself.
pub const STOPPED_PATIENCE: Duration = Duration::from_secs(3);

/// How a command's clerk behaves. It needs no session: it takes no locks, and is soon over.
pub fn for_command() -> Settings {
    Settings { deadline: COMMAND_DEADLINE, session: false, ..Settings::default() }
}

/// A client of a volume.
pub struct Connected {
    /// The volume.
    pub clerk: Arc<Clerk>,
    /// Who asks.
    pub caller: Arc<Caller>,
}

/// Connects to a volume of the cell.
///
/// # Errors
/// Missing or wrong certificates, a volume that there is not, or a manager that does not answer.
pub fn connect(cell: &Cell, volume: &str, settings: Settings) -> Result<Connected, Box<dyn Error>> {
    connect_by(cell, volume, Route::Direct, settings)
}

/// The same, for data that go that way.
///
/// # Errors
/// As [`connect`].
pub fn connect_by(
    cell: &Cell,
    volume: &str,
    route: Route,
    settings: Settings,
) -> Result<Connected, Box<dyn Error>> {
    let options = options(cell, volume, route, settings)?;
    let clerk = Clerk::connect(&options).map_err(|error| match error {
        ClerkError::Manager(ManagerStatus::NotFound) => {
            format!(
                "the cell has no volume `{volume}`: `nasd volume list` shows those that there are"
            )
        }
        error => error.to_string(),
    })?;
    Ok(Connected { clerk: Arc::new(clerk), caller: options.caller })
}

/// A clerk for a volume of the cell; `None` if the cell has none of that name.
///
/// # Errors
/// As [`connect`], in words.
pub fn connect_if_there(
    cell: &Cell,
    volume: &str,
    route: Route,
    settings: Settings,
) -> Result<Option<Arc<Clerk>>, String> {
    let options = options(cell, volume, route, settings).map_err(|error| error.to_string())?;
    match Clerk::connect(&options) {
        Ok(clerk) => Ok(Some(Arc::new(clerk))),
        Err(ClerkError::Manager(ManagerStatus::NotFound)) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

fn options(
    cell: &Cell,
    volume: &str,
    route: Route,
    settings: Settings,
) -> Result<ClerkOptions, Box<dyn Error>> {
    renew_if_due(cell);
    let name = Name::new(volume)?;
    let tls = client_tls(&cell.certificate(own_member(cell)))?;
    let caller = caller(&tls);
    let manager = cell.config.manager.address.to_string();
    let options = ClerkOptions::new(manager, tls, name, caller);
    Ok(ClerkOptions { settings, route, ..options })
}

/// The file manager, asked by the cell's administrator: only where the cell's own directory is.
///
/// # Errors
/// Missing or wrong certificates.
pub fn administrator(cell: &Cell) -> Result<ManagerClient, Box<dyn Error>> {
    administrator_within(cell, COMMAND_DEADLINE)
}

/// The same, waiting no longer for a manager that is away.
///
/// # Errors
/// As [`administrator`].
pub fn administrator_within(
    cell: &Cell,
    patience: Duration,
) -> Result<ManagerClient, Box<dyn Error>> {
    let files = cell.certificate("admin");
    if !files.key.exists() {
        let directory = cell.directory().display();
        return Err(format!(
            "{directory} is not the cell's own directory (it has no tls/admin.key): give the \
             command on the manager's machine"
        )
        .into());
    }
    manager_client(cell, &files, patience)
}

/// The file manager, asked as whoever the directory's certificate names.
///
/// # Errors
/// Missing or wrong certificates.
pub fn member_client(cell: &Cell) -> Result<ManagerClient, Box<dyn Error>> {
    manager_client(cell, &cell.certificate(own_member(cell)), COMMAND_DEADLINE)
}

fn manager_client(
    cell: &Cell,
    files: &CertificateFiles,
    patience: Duration,
) -> Result<ManagerClient, Box<dyn Error>> {
    let options = ConnectOptions {
        connections: 1,
        retry: RetryPolicy::within(patience),
        ..ConnectOptions::default()
    };
    let manager = cell.config.manager.address.to_string();
    Ok(ManagerClient::tls(manager, client_tls(files)?, &options))
}

/// What the manager of a cell shows, and demands of others.
///
/// # Errors
/// Missing or wrong certificates.
pub fn manager_tls(cell: &Cell) -> Result<ServerTls, Box<dyn Error>> {
    let files = cell.certificate("manager");
    complete(&files)?;
    let certificate = LoadedCertificate::load_for_server(&files)?;
    Ok(ServerTls::admitting_strangers(&certificate.pem())?)
}

/// What a server besides the manager shows to members of the cell: this machine's certificate. It is renewed first if it is time.
///
/// # Errors
/// A directory that is not a machine's, or certificates that are missing or wrong.
pub fn host_tls(cell: &Cell) -> Result<ServerTls, Box<dyn Error>> {
    renew_if_due(cell);
    let files = cell.certificate("host");
    if !files.key.exists() {
        let directory = cell.directory().display();
        return Err(format!(
            "{directory} has no certificate of a machine (tls/host.key): join the cell by a token of `nasd host add`"
        )
        .into());
    }
    complete(&files)?;
    Ok(ServerTls::new(&LoadedCertificate::load(&files)?.pem())?)
}

/// What is shown to a server that is a machine of the cell, of that name or any, and who asks.
///
/// # Errors
/// Missing or wrong certificates.
pub fn tls_to_host(
    cell: &Cell,
    name: Option<&str>,
) -> Result<(ClientTls, Arc<Caller>), Box<dyn Error>> {
    renew_if_due(cell);
    let files = cell.certificate(own_member(cell));
    complete(&files)?;
    let tls = ClientTls::to_host(&LoadedCertificate::load(&files)?.pem(), name)?;
    let caller = caller(&tls);
    Ok((tls, caller))
}

/// The file manager, asked by this machine.
///
/// # Errors
/// Missing or wrong certificates.
pub fn host_client(cell: &Cell, patience: Duration) -> Result<ManagerClient, Box<dyn Error>> {
    manager_client(cell, &cell.certificate("host"), patience)
}

/// Whose certificate a directory has: a user's, where one was handed to a person; else the host's.
pub fn own_member(cell: &Cell) -> &'static str {
    if cell.certificate("user").key.exists() { "user" } else { "host" }
}

/// Who asks: whom a user's certificate names, whatever number that person has on this machine; with
/// a host's, the user of this process.
fn caller(tls: &ClientTls) -> Arc<Caller> {
    match tls.identity() {
        Some(PeerIdentity::User(uid)) => {
            Arc::new(Caller { uid: *uid, gid: *uid, groups: Vec::new() })
        }
        _ => process_user(),
    }
}

/// The cell's file manager itself, and on whose behalf it is asked.
///
/// # Errors
/// Missing or wrong certificates.
pub fn manager(cell: &Cell) -> Result<(ManagerClient, Arc<Caller>), Box<dyn Error>> {
    manager_within(cell, COMMAND_DEADLINE)
}

/// The same, waiting no longer for a manager that is away.
///
/// # Errors
/// As [`manager`].
pub fn manager_within(
    cell: &Cell,
    patience: Duration,
) -> Result<(ManagerClient, Arc<Caller>), Box<dyn Error>> {
    renew_if_due(cell);
    let tls = client_tls(&cell.certificate(own_member(cell)))?;
    let caller = caller(&tls);
    let options =
        ConnectOptions { retry: RetryPolicy::within(patience), ..ConnectOptions::default() };
    let address = cell.config.manager.address.to_string();
    Ok((ManagerClient::tls(address, tls, &options), caller))
}

/// The user of this process.
fn process_user() -> Arc<Caller> {
    let groups = rustix::process::getgroups().unwrap_or_default();
    Arc::new(Caller {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        groups: groups.into_iter().map(|group| group.as_raw()).collect(),
    })
}

fn client_tls(files: &CertificateFiles) -> Result<ClientTls, Box<dyn Error>> {
    complete(files)?;
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
    /// `ExposedSecret` for a key that others can read; `Io` naming the file that can't be read.
    pub fn load(files: &CertificateFiles) -> Result<Self, CellError> {
        let read = |path: &Path| std::fs::read(path).map_err(CellError::io("read", path));
        Ok(LoadedCertificate {
            authority: read(&files.authority)?,
            certificate: read(&files.certificate)?,
            key: read_private(&files.key)?.into_bytes(),
        })
    }

    /// The same for a server, which also sends the authority: who joins knows that by its hash alone.
    ///
    /// # Errors
    /// As [`LoadedCertificate::load`].
    pub fn load_for_server(files: &CertificateFiles) -> Result<Self, CellError> {
        let mut loaded = Self::load(files)?;
        let authority = loaded.authority.clone();
        loaded.certificate.extend_from_slice(&authority);
        Ok(loaded)
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
