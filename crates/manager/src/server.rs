//! A manager that is being served: its drives, its sockets, and its threads for housekeeping and for
//! the drives' keys.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nasd_transport::{Server, ServerOptions, ServerTls};
use nasd_types::limits::{MAX_MANAGER_HEAD_BYTES, MAX_TRANSFER_BYTES};
use thiserror::Error;

use crate::config::{ConfigError, ManagerConfig, TableError};
use crate::namespace::{Namespace, StartError};
use crate::objects::ObjectStore;
use crate::service::ManagerService;
use crate::sessions::hub::SessionHub;
use crate::volumes::Volumes;

/// Calls of one connection under way at a time. Those that wait for a drive that is away take one
/// each; the others must find one free.
const MAX_OUTSTANDING: usize = 128;

/// How often, within a lease, it is looked for sessions that have ended.
const CHECKS_A_LEASE: u32 = 8;

/// Why a manager could not be started.
#[derive(Debug, Error)]
pub enum ServerError {
    /// The configuration makes no sense.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The cell's first volume can't be served.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The table of further volumes can't be read.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The listener can't be used, or a thread not started.
    #[error("cannot serve: {0}")]
    Io(#[from] io::Error),
}

/// How often what was answered is made durable, and looked whether the journal fills.
const JOURNAL_PAUSE: Duration = Duration::from_millis(500);

/// How often is looked whether files are to be counted.
const COUNT_PAUSE: Duration = Duration::from_millis(100);

/// How often is looked whether objects should be made ahead.
const AHEAD_PAUSE: Duration = Duration::from_millis(20);

/// What a manager does by itself, in threads of its own: it looks for sessions that have ended, makes journals durable, and so on. Dropping it
/// ends them, and waits until they have.
pub struct Chores {
    sessions: Arc<SessionHub>,
    stop: Arc<(Mutex<bool>, Condvar)>,
    threads: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for Chores {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Chores").field("threads", &self.threads.len()).finish_non_exhaustive()
    }
}

/// A running manager. Dropping it stops it without grace; nothing is lost by that, since all that
/// it has answered is in the journal.
pub struct ManagerServer {
    /// They end before connections do, whose calls wait for what they do.
    chores: Chores,
    volumes: Arc<Volumes>,
    service: Arc<ManagerService>,
    server: Server,
    address: SocketAddr,
}

impl std::fmt::Debug for ManagerServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ManagerServer").field("address", &self.address).finish_non_exhaustive()
    }
}

impl ManagerServer {
    /// Opens the volume, making it at the first start, and serves it on `listener`. Waits for the
    /// volume's home up to the configured patience. Returns when it serves.
    ///
    /// Without `tls`, whoever reaches the listener is believed to be whom it says it is, and reads
    /// the keys of capabilities off the wire: for tests and for networks without strangers.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn start(
        config: &ManagerConfig,
        listener: TcpListener,
        tls: Option<ServerTls>,
    ) -> Result<ManagerServer, ServerError> {
        ManagerServer::serve(ManagerService::open(config)?, config, listener, tls)
    }

    /// The same over any objects, whose working keys never change.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn over(
        objects: Arc<dyn ObjectStore>,
        config: &ManagerConfig,
        listener: TcpListener,
        tls: Option<ServerTls>,
    ) -> Result<ManagerServer, ServerError> {
        ManagerServer::serve(ManagerService::over(objects, config)?, config, listener, tls)
    }

    fn serve(
        service: ManagerService,
        config: &ManagerConfig,
        listener: TcpListener,
        tls: Option<ServerTls>,
    ) -> Result<ManagerServer, ServerError> {
        if tls.is_none() {
            tracing::warn!("serving without TLS: callers are believed whatever they say");
        }
        let service = Arc::new(service);
        let options = ServerOptions {
            name: "nasd-manager".to_owned(),
            max_outstanding: MAX_OUTSTANDING,
            max_record_bytes: MAX_MANAGER_HEAD_BYTES + MAX_TRANSFER_BYTES,
            max_head_bytes: MAX_MANAGER_HEAD_BYTES,
            ..ServerOptions::default()
        };
        let server = Server::start(listener, tls, Arc::clone(&service), options)?;
        service.administration().attend(server.guests());
        let (address, volumes) = (server.address(), Arc::clone(service.volumes()));
        let chores = Chores::start(&service, config)?;
        let manager = ManagerServer { chores, volumes, service, server, address };
        tracing::info!(%address, volume = %config.volume, "serving");
        Ok(manager)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The name space of the cell's first volume.
    pub fn namespace(&self) -> &Namespace {
        self.volumes.first()
    }

    /// What the manager counts, as text for Prometheus.
    pub fn metrics(&self) -> String {
        let mut page = nasd_metrics::Page::default();
        let help = "Connections that are open.";
        page.single("nasd_manager_connections", "gauge", help, self.connections());
        self.service.metrics() + &page.into_text()
    }

    /// Connections that are open now.
    pub fn connections(&self) -> usize {
        self.server.connections()
    }

    /// Stops: accepts nothing more, and lets calls that have been received finish within `grace`.
    /// Whether all had finished.
    pub fn shut_down(mut self, grace: Duration) -> bool {
        self.service.sessions().close();
        let finished = self.server.shut_down(grace);
        self.chores.end();
        // The next manager has less to do, and waits for nobody who has said goodbye; what can't be done now is
        // left to it.
        self.service.tend_sessions();
        self.volumes.settle();
        finished
    }
}

impl Chores {
    /// Begins them.
    ///
    /// # Errors
    /// If there is no thread for one.
    pub fn start(service: &Arc<ManagerService>, config: &ManagerConfig) -> io::Result<Chores> {
        let volumes = service.volumes();
        let sessions = Arc::clone(service.sessions());
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let mut chores = Chores { sessions, stop, threads: Vec::new() };
        let own = Arc::clone(service);
        let pause = config.sessions.lease / CHECKS_A_LEASE;
        chores.begin("nasd-sessions", pause, move || own.tend_sessions())?;
        let interval = config.housekeeping_interval;
        let own = Arc::clone(volumes);
        chores.begin("nasd-house", interval, move || own.keep_house())?;
        let own = Arc::clone(volumes);
        chores.begin("nasd-journal", JOURNAL_PAUSE, move || own.tend_journals())?;
        let own = Arc::clone(volumes);
        chores.begin("nasd-ahead", AHEAD_PAUSE, move || own.make_ahead())?;
        let own = Arc::clone(volumes);
        chores.begin("nasd-count", COUNT_PAUSE, move || own.count_files())?;
        if config.keeper.is_some() {
            let pause = config.rotation_interval.map_or(interval, |age| age.min(interval));
            let own = Arc::clone(volumes);
            chores.begin("nasd-keys", pause, move || own.tend_keys())?;
        }
        Ok(chores)
    }

    /// Does something again and again, with pauses.
    fn begin(
        &mut self,
        name: &str,
        pause: Duration,
        work: impl Fn() + Send + 'static,
    ) -> io::Result<()> {
        self.threads.push(start_repeating(name, &self.stop, pause, work)?);
        Ok(())
    }

    fn end(&mut self) {
        self.sessions.close();
        let (stopping, changed) = &*self.stop;
        *stopping.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_all();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a background thread had panicked");
            }
        }
    }
}

impl Drop for Chores {
    fn drop(&mut self) {
        self.end();
    }
}

/// Does something again and again, with pauses, until it is stopped.
fn start_repeating(
    name: &str,
    stop: &Arc<(Mutex<bool>, Condvar)>,
    pause: Duration,
    work: impl Fn() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let stop = Arc::clone(stop);
    thread::Builder::new().name(name.to_owned()).spawn(move || {
        let (stopping, changed) = &*stop;
        loop {
            let stopped = stopping.lock().unwrap_or_else(PoisonError::into_inner);
            let (stopped, _) = changed
                .wait_timeout_while(stopped, pause, |stopped| !*stopped)
                .unwrap_or_else(PoisonError::into_inner);
            if *stopped {
                return;
            }
            drop(stopped);
            work();
        }
    })
}
