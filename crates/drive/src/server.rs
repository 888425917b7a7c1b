//! A drive that is being served: its sockets, and its threads in the background.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nasd_store::StoreError;
use nasd_transport::Server;
use thiserror::Error;

use crate::stopping::Stopping;
use crate::{Drive, prefetching, scrub};

/// Pause after a step of writing back failed: what failed will most likely fail again.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);

/// How often the audit trail is made durable: what came since the last time is lost in a power cut.
const AUDIT_EVERY: Duration = Duration::from_secs(1);

/// How long threads of closed connections may take to let go of the drive.
const RELEASE_PATIENCE: Duration = Duration::from_secs(2);

/// A drive that serves. Dropping it stops it without flushing, as a power cut would.
#[derive(Debug)]
pub struct DriveServer {
    drive: Arc<Drive>,
    /// `None` after the stop.
    server: Option<Server>,
    write_back: Option<JoinHandle<()>>,
    settle: Option<JoinHandle<()>>,
    prepare: Option<JoinHandle<()>>,
    scrub: Option<JoinHandle<()>>,
    audit: Option<JoinHandle<()>>,
    prefetch: Option<JoinHandle<()>>,
    stopping: Arc<Stopping>,
    address: SocketAddr,
}

/// What went wrong at a clean stop.
#[derive(Debug, Error)]
pub enum ShutdownError {
    /// Some data could not be made durable.
    #[error("the drive could not write everything to its device: {0}")]
    Store(#[from] StoreError),
}

impl DriveServer {
    /// Serves `drive` on `listener`. Returns at once.
    ///
    /// # Errors
    ///
    /// If the listener can't be used or no thread can be started.
    pub fn start(drive: Drive, listener: TcpListener) -> io::Result<DriveServer> {
        let drive = Arc::new(drive);
        // Before anybody can be refused.
        drive.audit.open(&drive.store, drive.environment.now());
        let options = drive.options.server.clone();
        let server = Server::start(listener, None, Arc::clone(&drive), options)?;
        let stopping = Arc::new(Stopping::default());
        let write_back = start_write_back(Arc::clone(&drive), Arc::clone(&stopping))?;
        let settle = start_settle(Arc::clone(&drive), Arc::clone(&stopping));
        let settle = settle.inspect_err(|_| stopping.stop())?;
        let prepare = start_prepare(Arc::clone(&drive), Arc::clone(&stopping));
        let prepare = prepare.inspect_err(|_| stopping.stop())?;
        let scrub = scrub::start(Arc::clone(&drive), Arc::clone(&stopping));
        let scrub = scrub.inspect_err(|_| stopping.stop())?;
        let audit = start_audit(Arc::clone(&drive), Arc::clone(&stopping));
        let audit = audit.inspect_err(|_| stopping.stop())?;
        let prefetch = prefetching::start(Arc::clone(&drive));
        let prefetch = prefetch.inspect_err(|_| stopping.stop())?;
        let address = server.address();
        let drive_id = drive.identity.drive;
        tracing::info!(drive = %drive_id, %address, "serving");
        Ok(DriveServer {
            drive,
            server: Some(server),
            write_back: Some(write_back),
            settle: Some(settle),
            prepare: Some(prepare),
            scrub,
            audit: Some(audit),
            prefetch: Some(prefetch),
            stopping,
            address,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The drive.
    pub fn drive(&self) -> &Drive {
        &self.drive
    }

    /// Connections that are open now.
    pub fn connections(&self) -> usize {
        self.server.as_ref().map_or(0, Server::connections)
    }

    /// A clean stop: finishes the calls that have been received, within `grace`, makes everything
    /// durable, and closes the store.
    ///
    /// # Errors
    ///
    /// [`ShutdownError::Store`] if data that was not flushed may be lost.
    pub fn shut_down(mut self, grace: Duration) -> Result<(), ShutdownError> {
        if let Some(server) = self.server.take() {
            if !server.shut_down(grace) {
                tracing::warn!("calls were cut off by the stop");
            }
            drop(server);
        }
        self.stop_threads();
        let drive = Arc::clone(&self.drive);
        drop(self);
        drive.audit.close(&drive.store, drive.environment.now());
        if let Err(error) = drive.clock.stop(&drive.store) {
            tracing::warn!(%error, "cannot make the clock's mark durable");
        }
        match sole_owner(drive) {
            Ok(drive) => drive.into_store().close()?,
            // A call is still being executed, so the store can't be closed; but it can be flushed.
            Err(drive) => drive.store.flush_all()?,
        }
        Ok(())
    }

    fn stop_threads(&mut self) {
        self.stopping.stop();
        self.drive.prefetching.stop();
        let threads = [
            (&mut self.write_back, "writes back"),
            (&mut self.settle, "settles"),
            (&mut self.prepare, "prepares the cache"),
            (&mut self.scrub, "scrubs"),
            (&mut self.audit, "keeps the audit trail"),
            (&mut self.prefetch, "fetches what was hinted"),
        ];
        for (thread, does) in threads {
            if let Some(thread) = thread.take()
                && thread.join().is_err()
            {
                tracing::error!("the thread that {does} had panicked");
            }
        }
    }
}

impl Drop for DriveServer {
    fn drop(&mut self) {
        drop(self.server.take());
        self.stop_threads();
    }
}

/// The drive by itself, when the last connection's threads have let go of it.
fn sole_owner(mut drive: Arc<Drive>) -> Result<Drive, Arc<Drive>> {
    let deadline = Instant::now() + RELEASE_PATIENCE;
    loop {
        match Arc::try_unwrap(drive) {
            Ok(drive) => return Ok(drive),
            Err(shared) if Instant::now() >= deadline => return Err(shared),
            Err(shared) => drive = shared,
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Keeps the cache clean behind the clients' backs, so that their flushes find little to do.
fn start_write_back(drive: Arc<Drive>, stopping: Arc<Stopping>) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name("nasd-write-back".to_owned()).spawn(move || {
        let options = &drive.options;
        while !stopping.is_now() {
            drive.keep_clock();
            if drive.store.wait_for_dirty(options.write_back_patience) == 0 {
                continue;
            }
            if let Err(error) = drive.store.write_back(options.write_back_bytes) {
                tracing::error!(%error, "cannot write back");
                thread::sleep(FAILURE_PAUSE);
            }
        }
    })
}

/// Brings what the log has into the store's tree, while flushes go on.
fn start_settle(drive: Arc<Drive>, stopping: Arc<Stopping>) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name("nasd-settle".to_owned()).spawn(move || {
        while !stopping.is_now() {
            if let Err(error) = drive.store.settle_when_due(drive.options.write_back_patience) {
                tracing::error!(%error, "cannot bring the log into the tree");
                thread::sleep(FAILURE_PAUSE);
            }
        }
    })
}

/// Makes the audit trail durable every now and then.
fn start_audit(drive: Arc<Drive>, stopping: Arc<Stopping>) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name("nasd-audit".to_owned()).spawn(move || {
        while !stopping.wait(AUDIT_EVERY) {
            drive.keep_audit_trail();
        }
    })
}

/// Has memory ready before the cache needs it.
fn start_prepare(drive: Arc<Drive>, stopping: Arc<Stopping>) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name("nasd-cache".to_owned()).spawn(move || {
        while !stopping.is_now() {
            drive.store.prepare_cache(drive.options.write_back_patience);
        }
    })
}
