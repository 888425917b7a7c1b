//! Giving a mount to the next process, and taking it from the one before, while programs use it.
//!
//! The serving process listens on an abstract socket that is named after the mount's device number.
//! A successor connects, is given the connection to the kernel and the files that the kernel knows
//! or has open, opens those again by its own clerk, begins to serve, and says so; then the
//! predecessor ends without unmounting. Until that word it may go on by itself: it has kept
//! everything. Both ends must be root, or the same user.

use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::{Arc, Weak, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use nasd_fuse::{Connection, Measures, Session, handover};

use crate::filesystem::VolumeFilesystem;
use crate::forest::Forest;
use crate::serving::Serving;
use crate::state::MountState;

/// What a successor says first, and last.
const ASK: u8 = b'?';
const DONE: u8 = b'!';

/// How long what was written may take to reach the drives before a mount is handed over.
const FLUSH: Duration = Duration::from_secs(20);

/// How long requests that have begun may take. Those that wait for a drive begin again with the
/// successor.
const REQUESTS: Duration = Duration::from_secs(2);

/// How long a successor may take to open the files again.
const SUCCESSOR: Duration = Duration::from_secs(60);

fn address(device: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("nasd-mount-successor-{device}"))
}

/// Whether the process at the other end may give, or be given, a mount of ours.
fn check_peer(stream: &UnixStream) -> io::Result<()> {
    let peer = rustix::net::sockopt::socket_peercred(stream)?;
    if peer.uid.is_root() || peer.uid == rustix::process::geteuid() {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::PermissionDenied, "the other process is another user's"))
}

/// Waits for successors until it is dropped.
#[derive(Debug)]
pub(crate) struct Listening {
    /// Of the thread that accepts: when it ends, a successor can have the name.
    listener: Weak<UnixListener>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        if let Some(listener) = self.listener.upgrade() {
            // SAFETY: the descriptor is open; this ends the wait for connections.
            unsafe { libc::shutdown(listener.as_raw_fd(), libc::SHUT_RDWR) };
        }
    }
}

/// What a process gives to its successor.
#[derive(Clone)]
pub(crate) struct Estate {
    pub(crate) forest: Arc<Forest>,
    pub(crate) filesystem: Arc<VolumeFilesystem>,
    pub(crate) serving: Arc<Serving>,
    pub(crate) threads: usize,
    pub(crate) measures: Arc<Measures>,
}

/// Listens for successors of the mount with this device number.
pub(crate) fn listen(device: &str, estate: &Estate) -> io::Result<Listening> {
    let listener = Arc::new(UnixListener::bind_addr(&address(device)?)?);
    let listening = Listening { listener: Arc::downgrade(&listener) };
    let estate = estate.clone();
    thread::Builder::new().name("nasd-succession".into()).spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            match estate.give(&stream) {
                Ok(()) => {
                    tracing::info!("the mount is served by another process now");
                    return;
                }
                Err(error) => tracing::warn!(%error, "the mount was not handed over"),
            }
        }
    })?;
    Ok(listening)
}

impl Estate {
    /// Gives the mount to the process at the other end, or goes on serving it.
    fn give(&self, stream: &UnixStream) -> io::Result<()> {
        check_peer(stream)?;
        stream.set_read_timeout(Some(SUCCESSOR))?;
        stream.set_write_timeout(Some(SUCCESSOR))?;
        let mut word = [0];
        (&*stream).read_exact(&mut word)?;
        if word != [ASK] {
            return Err(io::Error::other("that is no successor"));
        }
        // Most of it while programs go on.
        self.flush()?;
        let stopped = self.serving.stop(REQUESTS)?;
        match self.give_stopped(stream, &stopped.connection) {
            Ok(()) => {
                self.serving.handed_over();
                Ok(())
            }
            Err(error) => {
                self.go_on(stopped.connection)?;
                Err(error)
            }
        }
    }

    fn give_stopped(&self, stream: &UnixStream, connection: &Connection) -> io::Result<()> {
        self.forest.pause(Instant::now() + REQUESTS);
        self.flush()?;
        if self.forest.has_locks() {
            return Err(io::Error::other("a program has a lock, which would be lost"));
        }
        handover::give(stream, connection, &self.forest.export().to_bytes())?;
        let mut word = [0];
        (&*stream).read_exact(&mut word)?;
        if word == [DONE] { Ok(()) } else { Err(io::Error::other("the successor failed")) }
    }

    /// The successor knows nothing of what was written and is not with the drives.
    fn flush(&self) -> io::Result<()> {
        let (tell, told) = mpsc::channel();
        let forest = Arc::clone(&self.forest);
        // A thread of its own, because a drive that is away may hold it up for long.
        thread::Builder::new().name("nasd-flush-all".into()).spawn(move || {
            // Nobody waits for an answer that comes too late. Failures are kept for those who wrote.
            let _ = tell.send(forest.sync_all());
        })?;
        match told.recv_timeout(FLUSH) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(io::Error::other(error)),
            Err(_) => Err(io::Error::other("a drive that is away has not got everything written")),
        }
    }

    fn go_on(&self, connection: Connection) -> io::Result<()> {
        let filesystem = Arc::clone(&self.filesystem);
        resend(&connection);
        let session =
            Session::start_counting(connection, filesystem, self.threads, &self.measures)?;
        self.serving.go_on_with(session);
        Ok(())
    }
}

/// Has the kernel send again what the session before has left unanswered. A mount that had none before has
/// nothing to send.
pub(crate) fn resend(connection: &Connection) {
    if let Err(error) = connection.resend() {
        tracing::warn!(%error, "requests that were under way are not sent again");
    }
}

/// Asks the process that serves the mount with this device number for it. `finish` makes it ours.
pub(crate) fn succeed(device: &str) -> io::Result<(UnixStream, Connection, MountState)> {
    let stream = UnixStream::connect_addr(&address(device)?)?;
    check_peer(&stream)?;
    stream.set_read_timeout(Some(SUCCESSOR))?;
    (&stream).write_all(&[ASK])?;
    let (connection, state) = handover::take(&stream)?;
    let state = MountState::from_bytes(&state).map_err(io::Error::other)?;
    Ok((stream, connection, state))
}

/// Tells the predecessor that it is not needed any more.
pub(crate) fn finish(stream: &UnixStream) -> io::Result<()> {
    (&*stream).write_all(&[DONE])
}
