//! Accepting connections, and stopping.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::net::{RecvFlags, recv};
use rustix::process::{Resource, getrlimit};

use super::accounts::Origin;
use super::connection::{Connection, start_thread};
use super::guests::Guests;
use super::lines::{Kind, Lines};
use super::registry::{Closer, Place, Registry};
use super::standing::{Knock, Strangers};
use super::watch::Watch;
use super::{Beside, BesideConnection, BesideSocket, Peer, ServerOptions, Service, Standing};
use crate::threads::Threads;
use crate::tls::TlsWire;
use crate::wire::{Wire, deadline_after, prepare_socket, wait_unless_closed};
use crate::{Identity, ServerTls};

/// Descriptors that connections leave to all else that the process does.
const KEPT_DESCRIPTORS: usize = 128;

/// Pause after a failed accept: the usual reason is that there are no descriptors left, and
/// another try at once would fail as well.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Pause between two looks whether the rest of the first bytes of a connection has come: they come together, as a rule.
const FIRST_BYTES_PAUSE: Duration = Duration::from_millis(1);

/// It becomes longer, up to this, as many may send a part and wait.
const LONGEST_BYTES_PAUSE: Duration = Duration::from_millis(250);

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
    service: Arc<S>,
    stopping: Arc<AtomicBool>,
    registry: Arc<Registry>,
    strangers: Arc<Strangers>,
    max_connections: usize,
    common: Arc<Common>,
}

/// What each connection's first thread needs of the server.
struct Common {
    tls: Option<ServerTls>,
    options: Arc<ServerOptions>,
    guests: Guests,
    watch: Arc<Watch>,
    lines: Arc<Lines>,
    /// Of connections.
    threads: Arc<Threads>,
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
        let name = options.name.clone();
        let besides = service.beside().map_or(0, Beside::descriptors);
        let max_connections = most_connections(&options, besides);
        let acceptor = Acceptor {
            listener: listener.try_clone()?,
            service,
            stopping: Arc::clone(&stopping),
            registry: Arc::clone(&registry),
            strangers: Arc::new(Strangers::new(&options)),
            max_connections,
            common: Arc::new(Common {
                tls,
                options: Arc::new(options),
                guests: guests.clone(),
                watch: Arc::clone(&watch),
                lines: Arc::new(Lines::new()),
                threads: Arc::new(Threads::new(&name)),
            }),
        };
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
                Ok(_) if self.stopping.load(Ordering::Acquire) => break,
                Ok((socket, address)) => self.admit(socket, address),
                Err(_) if self.stopping.load(Ordering::Acquire) => break,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    self.common.lines.write(Kind::System, || {
                        tracing::warn!(%error, "cannot accept a connection");
                    });
                    self.registry.evict();
                    thread::sleep(ACCEPT_PAUSE);
                }
            }
        }
        self.common.lines.finish();
    }

    /// Gives a connection its first thread.
    fn admit(&self, socket: TcpStream, address: SocketAddr) {
        let lines = &self.common.lines;
        let origin = Origin::of(address.ip());
        let (knock, standing) = if self.common.tls.is_none() && !self.service.judges() {
            (Knock::Open, Standing::trusted(&self.strangers, origin))
        } else {
            self.strangers.knock(origin, self.common.tls.is_some())
        };
        if let Knock::Shut = knock {
            return lines.write(Kind::Shut, || {
                tracing::warn!(peer = %address, "refused: too many strangers of its address wait");
            });
        }
        let socket = match Arriving::new(socket, self.common.tls.is_some()) {
            Ok(socket) => socket,
            Err(error) => {
                return lines.write(Kind::System, || {
                    tracing::warn!(peer = %address, %error, "refused: no descriptor for it");
                });
            }
        };
        let Arriving { socket, closer } = socket;
        let Some(place) = self.registry.enter(closer, standing, self.max_connections) else {
            return lines.write(Kind::Full, || {
                tracing::warn!(peer = %address, "refused: too many connections, and none can go");
            });
        };
        let service = Arc::clone(&self.service);
        let common = Arc::clone(&self.common);
        let started = self.common.threads.run(move || {
            serve(socket, address, knock, service, place, &common);
        });
        if let Err(error) = started {
            lines.write(Kind::System, || {
                tracing::warn!(peer = %address, %error, "refused: no thread for it");
            });
        }
    }
}

/// A socket that was accepted.
struct Arriving {
    socket: Accepted,
    closer: Closer,
}

/// The same, for its first thread.
enum Accepted {
    Plain(Arc<Wire>),
    ForTls(TcpStream),
}

impl Arriving {
    fn new(socket: TcpStream, with_tls: bool) -> io::Result<Arriving> {
        if with_tls {
            let closer = Closer::Socket(socket.try_clone()?);
            return Ok(Arriving { socket: Accepted::ForTls(socket), closer });
        }
        let wire = Arc::new(Wire::Tcp(socket));
        let closer = Closer::Wire(Arc::clone(&wire));
        Ok(Arriving { socket: Accepted::Plain(wire), closer })
    }
}

impl Accepted {
    fn socket(&self) -> &TcpStream {
        match self {
            Accepted::Plain(wire) => wire.socket(),
            Accepted::ForTls(socket) => socket,
        }
    }
}

/// The first thread of a connection.
fn serve<S: Service>(
    accepted: Accepted,
    address: SocketAddr,
    knock: Knock,
    service: Arc<S>,
    place: Place,
    common: &Common,
) {
    if let Knock::Wait(patience, door) = knock {
        if !wait_unless_closed(accepted.socket(), patience) {
            return;
        }
        drop(door);
    }
    let Common { options, watch, lines, threads, .. } = common;
    let socket = accepted.socket();
    let prepared = prepare_socket(socket, options.send_buffer_bytes, options.receive_buffer_bytes);
    if let Err(error) = prepared {
        tracing::debug!(peer = %address, %error, "connection lost");
        return;
    }
    if let Some(beside) = service.beside()
        && begins_with(socket, &beside.begins(), options)
    {
        return serve_beside(beside, accepted, address, &place);
    }
    let Some((wire, identity)) = secure(accepted, address, common) else {
        return;
    };
    if matches!(identity, Identity::Certified(_)) {
        place.member.standing.prove();
    }
    if !place.occupy(&wire) {
        return;
    }
    common.guests.add(&identity, &wire);
    let peer = Peer { address, identity };
    let member = Arc::clone(&place.member);
    let (watch, shared) = (Arc::clone(watch), (Arc::clone(lines), Arc::clone(threads)));
    let connection =
        Connection::new(service, Arc::clone(options), peer, wire, member, watch, shared);
    connection.run(Arc::new(place));
}

/// Whether the first bytes that come are these. Whatever they are, they are received later.
fn begins_with(socket: &TcpStream, wanted: &[u8; 8], options: &ServerOptions) -> bool {
    let mut bytes = [0; 8];
    // Whoever is slow to say what he wants is left to those who know how long he may be.
    let deadline = deadline_after(options.stranger_timeout);
    let mut pause = FIRST_BYTES_PAUSE;
    loop {
        // More than what has come is not waited for in `recv`, so that bytes that differ are seen at once.
        let count = match recv(socket, &mut bytes, RecvFlags::PEEK) {
            Ok((count, _)) => count,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR)
                if Instant::now() < deadline =>
            {
                continue;
            }
            Err(_) => return false,
        };
        if count == wanted.len() || count == 0 || bytes[..count] != wanted[..count] {
            return bytes == *wanted;
        }
        if Instant::now() >= deadline {
            return false;
        }
        // What has come does not go away, so that waiting for more needs a clock.
        thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_BYTES_PAUSE);
    }
}

/// A connection of another protocol.
fn serve_beside(beside: &dyn Beside, accepted: Accepted, peer: SocketAddr, place: &Place) {
    let wire = match accepted {
        Accepted::Plain(wire) => wire,
        // The other handle, for a handshake, is closed when this one takes its place.
        Accepted::ForTls(socket) => Arc::new(Wire::Tcp(socket)),
    };
    if place.occupy(&wire) {
        let (standing, idle_ms) = (&place.member.standing, &place.member.idle_ms);
        let socket = &BesideSocket(wire);
        beside.serve(BesideConnection { socket, peer, standing, idle_ms });
    }
}

/// The TLS handshake, if there is to be one.
fn secure(
    accepted: Accepted,
    address: SocketAddr,
    common: &Common,
) -> Option<(Arc<Wire>, Identity)> {
    let (socket, tls) = match (accepted, &common.tls) {
        (Accepted::Plain(wire), _) => return Some((wire, Identity::Plain)),
        // Never: there is TLS where a socket was accepted for it.
        (Accepted::ForTls(_), None) => return None,
        (Accepted::ForTls(socket), Some(tls)) => (socket, tls),
    };
    let deadline = deadline_after(common.options.handshake_timeout);
    match TlsWire::accept(socket, tls, deadline) {
        Ok((wire, identity)) => Some((Arc::new(Wire::Tls(Box::new(wire))), identity)),
        Err(error) => {
            common.lines.write(Kind::Handshake, || {
                tracing::warn!(peer = %address, %error, "refused");
            });
            None
        }
    }
}

/// How many connections there can be, by the process's limit on descriptors, where each may take so many besides its socket.
/// (A TLS handshake takes two for a moment. Where there are none left, connections that have proved nothing make room.)
fn most_connections(options: &ServerOptions, besides: usize) -> usize {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let room = room_for_connections(descriptors, besides);
    if room >= options.max_connections {
        return options.max_connections;
    }
    tracing::warn!(
        descriptors,
        wanted = options.max_connections,
        "few descriptors: fewer connections than wanted (raise the limit on open files)"
    );
    room.max(1)
}

fn room_for_connections(descriptors: u64, besides: usize) -> usize {
    let descriptors = usize::try_from(descriptors).unwrap_or(usize::MAX);
    descriptors.saturating_sub(KEPT_DESCRIPTORS) / (1 + besides)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_for_what_each_has_besides() {
        assert_eq!(room_for_connections(1024, 0), 896);
        assert_eq!(room_for_connections(1024, 1), 448);
        assert_eq!(room_for_connections(100, 1), 0);
        assert_eq!(room_for_connections(u64::MAX, 0), usize::MAX - KEPT_DESCRIPTORS);
    }
}
