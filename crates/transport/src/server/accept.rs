//! Accepting connections, and stopping.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::connection::{Connection, start_thread};
use super::guests::Guests;
use super::registry::{Place, Registry};
use super::watch::Watch;
use super::{Peer, ServerOptions, Service};
use crate::tls::TlsWire;
use crate::wire::{Wire, deadline_after, prepare_socket};
use crate::{Identity, ServerTls};

/// Pause after a failed accept: the usual reason is that there are no descriptors left, and
/// another try at once would fail as well.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A running server. Dropping it stops it without grace.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    listener: TcpListener,
    stopping: Arc<AtomicBool>,
    registry: Arc<Registry>,
    guests: Guests,
    watch: Arc<Watch>,
    watching: Option<JoinHandle<()>>,
    acceptor: Mutex<Option<JoinHandle<()>>>,
}

/// What the accepting thread has.
struct Acceptor<S: Service> {
    listener: TcpListener,
    tls: Option<ServerTls>,
    service: Arc<S>,
    options: Arc<ServerOptions>,
    stopping: Arc<AtomicBool>,
    registry: Arc<Registry>,
    guests: Guests,
    watch: Arc<Watch>,
}

impl Server {
    /// Serves on `listener`, with TLS if `tls` is given. Returns at once.
    ///
    /// # Errors
    ///
    /// If the listener can't be used or no thread can be started.
    pub fn start<S: Service>(
        listener: TcpListener,
        tls: Option<ServerTls>,
        service: Arc<S>,
        options: ServerOptions,
    ) -> io::Result<Server> {
        listener.set_nonblocking(false)?;
        let address = listener.local_addr()?;
        let stopping = Arc::new(AtomicBool::new(false));
        let registry = Arc::new(Registry::default());
        let guests = Guests::default();
        let (watch, watching) = Watch::start(&options.name)?;
        let acceptor = Acceptor {
            listener: listener.try_clone()?,
            tls,
            service,
            options: Arc::new(options),
            stopping: Arc::clone(&stopping),
            registry: Arc::clone(&registry),
            guests: guests.clone(),
            watch: Arc::clone(&watch),
        };
        let name = acceptor.options.name.clone();
        let thread = start_thread(&name, move || acceptor.run());
        let acceptor = Mutex::new(Some(thread.inspect_err(|_| watch.stop())?));
        let watching = Some(watching);
        Ok(Server { address, listener, stopping, registry, guests, watch, watching, acceptor })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connections that are open now.
    pub fn connections(&self) -> usize {
        self.registry.count()
    }

    /// Who is at the other ends.
    pub fn guests(&self) -> Guests {
        self.guests.clone()
    }

    /// Stops accepting, lets calls that have been received finish within `grace`, and closes every
    /// connection. Returns whether all had finished.
    pub fn shut_down(&self, grace: Duration) -> bool {
        self.stop_accepting();
        self.registry.drain();
        let finished = self.registry.wait_empty(deadline_after(grace));
        self.registry.close_all();
        finished
    }

    fn stop_accepting(&self) {
        self.stopping.store(true, Ordering::Release);
        // On Linux this wakes the thread that is blocked in accept. It fails only if done before.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        let thread = self.acceptor.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the accepting thread had panicked");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop_accepting();
        self.registry.drain();
        self.registry.close_all();
        self.watch.stop();
        if let Some(watching) = self.watching.take()
            && watching.join().is_err()
        {
            tracing::error!("the thread that watches connections had panicked");
        }
    }
}

impl<S: Service> Acceptor<S> {
    fn run(self) {
        loop {
            match self.listener.accept() {
                Ok(_) if self.stopping.load(Ordering::Acquire) => return,
                Ok((socket, address)) => self.admit(socket, address),
                Err(_) if self.stopping.load(Ordering::Acquire) => return,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    thread::sleep(ACCEPT_PAUSE);
                }
            }
        }
    }

    /// Gives a connection its first thread.
    fn admit(&self, socket: TcpStream, address: SocketAddr) {
        let Some(place) = self.registry.enter(self.options.max_connections) else {
            tracing::warn!(peer = %address, "refused: too many connections, and none is idle");
            return;
        };
        let service = Arc::clone(&self.service);
        let options = Arc::clone(&self.options);
        let tls = self.tls.clone();
        let all = (Arc::clone(&self.watch), self.guests.clone());
        let started = start_thread(&self.options.name, move || {
            serve(socket, address, tls.as_ref(), service, options, place, all);
        });
        if let Err(error) = started {
            tracing::warn!(peer = %address, %error, "refused: no thread for it");
        }
    }
}

/// The first thread of a connection.
fn serve<S: Service>(
    socket: TcpStream,
    address: SocketAddr,
    tls: Option<&ServerTls>,
    service: Arc<S>,
    options: Arc<ServerOptions>,
    place: Place,
    (watch, guests): (Arc<Watch>, Guests),
) {
    let prepared = prepare_socket(&socket, options.send_buffer_bytes, options.receive_buffer_bytes);
    if let Err(error) = prepared {
        tracing::debug!(peer = %address, %error, "connection lost");
        return;
    }
    let Some((wire, identity)) = secure(socket, address, tls, &options) else {
        return;
    };
    let wire = Arc::new(wire);
    if !place.occupy(&wire) {
        return;
    }
    guests.add(&identity, &wire);
    let peer = Peer { address, identity };
    let idle_ms = Arc::clone(&place.idle_ms);
    let connection = Connection::new(service, options, peer, wire, idle_ms, watch);
    connection.run(Arc::new(place));
}

/// The TLS handshake, if there is to be one.
fn secure(
    socket: TcpStream,
    address: SocketAddr,
    tls: Option<&ServerTls>,
    options: &ServerOptions,
) -> Option<(Wire, Identity)> {
    let Some(tls) = tls else {
        return Some((Wire::Tcp(socket), Identity::Plain));
    };
    let deadline = deadline_after(options.handshake_timeout);
    match TlsWire::accept(socket, tls, deadline) {
        Ok((wire, identity)) => Some((Wire::Tls(Box::new(wire)), identity)),
        Err(error) => {
            tracing::warn!(peer = %address, %error, "refused");
            None
        }
    }
}
