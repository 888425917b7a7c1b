//! A connected socket, plain or under TLS: the only place with system calls for bytes.
//!
//! Receiving blocks for at most [`TICK`] and then says `WouldBlock`, so that callers can look at
//! their deadlines and at whether they should stop, without a system call more for each receive.
//! One thread receives and one thread sends at a time; both at once is fine.

use std::cell::OnceCell;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, recv, recvmsg, send, sendmsg,
};

use crate::tls::TlsWire;

/// Longest time that a receive or a send blocks before deadlines are looked at.
pub(crate) const TICK: Duration = Duration::from_millis(500);

/// Most slices of one system call (IOV_MAX of Linux).
pub(crate) const MAX_SLICES: usize = 1024;

/// Whether a receive may come back with less than there is room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Amount {
    /// What is there, at least one byte.
    Some,
    /// Everything, if it comes within a tick: fewer system calls for bulk data.
    All,
}

/// The bytes of one connection.
#[derive(Debug)]
pub(crate) enum Wire {
    /// Plain TCP.
    Tcp(TcpStream),
    /// TLS over TCP.
    Tls(Box<TlsWire>),
}

impl Wire {
    pub(crate) fn socket(&self) -> &TcpStream {
        match self {
            Wire::Tcp(socket) => socket,
            Wire::Tls(tls) => tls.socket(),
        }
    }

    /// Receives into `into`, in order. 0 is the end of the connection; `WouldBlock` a tick without
    /// a byte.
    pub(crate) fn receive(&self, into: &mut [IoSliceMut<'_>], amount: Amount) -> io::Result<usize> {
        match self {
            Wire::Tcp(socket) => receive_plain(socket, into, amount),
            Wire::Tls(tls) => tls.receive(into),
        }
    }

    /// Receives what has come, without waiting; `WouldBlock` if that is nothing. After that, nothing is
    /// left that `has_event` would not tell of when more comes.
    pub(crate) fn receive_now(&self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Wire::Tcp(socket) => receive_plain_now(socket, into),
            Wire::Tls(tls) => tls.receive_now(into),
        }
    }

    /// Sends all of `slices`. `TimedOut` when the peer has not taken them in time; how much went out
    /// is not known after an error.
    pub(crate) fn send_all(
        &self,
        slices: &mut [IoSlice<'_>],
        patience: &Patience,
    ) -> io::Result<()> {
        match self {
            Wire::Tcp(socket) => send_plain(socket, slices, patience),
            Wire::Tls(tls) => tls.send_all(slices, patience.deadline()),
        }
    }

    /// Whether it is TCP without TLS: only then can a send be tried.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self, Wire::Tcp(_))
    }

    /// Sends what the system takes at once, which may be nothing. Not for TLS.
    pub(crate) fn send_some(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let count = slices.len().min(MAX_SLICES);
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let mut control = SendAncillaryBuffer::default();
        match sendmsg(self.socket(), &slices[..count], &mut control, flags) {
            Ok(sent) => Ok(sent),
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => Ok(0),
            Err(other) => Err(other.into()),
        }
    }

    /// Waits a tick until something can be received, which is what `true` means, or sent.
    pub(crate) fn wait_to_send_or_receive(&self) -> io::Result<bool> {
        let ready = self.wait_for(PollFlags::IN | PollFlags::OUT, TICK)?;
        Ok(ready.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR))
    }

    /// Waits until something can be sent.
    pub(crate) fn wait_to_send(&self, patience: Duration) -> io::Result<()> {
        self.wait_for(PollFlags::OUT, patience).map(drop)
    }

    fn wait_for(&self, events: PollFlags, patience: Duration) -> io::Result<PollFlags> {
        let mut sockets = [PollFd::new(self.socket(), events)];
        let patience = Timespec::try_from(patience).map_err(io::Error::other)?;
        match poll(&mut sockets, Some(&patience)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(sockets[0].revents()),
            Err(other) => Err(other.into()),
        }
    }

    /// Lets what has arrived be received, and then nothing more.
    pub(crate) fn stop_receiving(&self) {
        // Fails only where the connection is gone, which is what is wanted.
        let _ = self.socket().shutdown(Shutdown::Read);
    }

    /// Ends both directions; blocked calls return.
    pub(crate) fn close(&self) {
        // As above.
        let _ = self.socket().shutdown(Shutdown::Both);
    }

    /// How long a receive may block.
    pub(crate) fn set_receive_tick(&self, tick: Duration) -> io::Result<()> {
        self.socket().set_read_timeout(Some(tick))
    }

    /// Whether the peer has closed an idle connection, or sent something on it unasked. Does not
    /// block.
    pub(crate) fn has_event(&self) -> bool {
        let mut byte = [0_u8; 1];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        !matches!(recv(self.socket(), &mut byte, flags), Err(rustix::io::Errno::AGAIN))
    }

    /// Whether the connection is gone; with `by_end` also whether its peer will send nothing any more, or this end
    /// receives nothing. What has come does not matter. Does not block.
    pub(crate) fn is_left(&self, by_end: bool) -> bool {
        // That it is hung up, or has failed, is always told.
        let wanted = if by_end { PollFlags::RDHUP } else { PollFlags::empty() };
        let left = wanted | PollFlags::HUP | PollFlags::ERR;
        self.wait_for(wanted, Duration::ZERO).is_ok_and(|told| told.intersects(left))
    }
}

/// Waits, unless the connection is closed meanwhile by this end, or broken; whether it is whole.
pub(crate) fn wait_unless_closed(socket: &TcpStream, patience: Duration) -> bool {
    let deadline = deadline_after(patience);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        // That it is hung up, or has failed, is always told.
        let mut sockets = [PollFd::new(socket, PollFlags::empty())];
        let told = Timespec::try_from(left).map(|left| poll(&mut sockets, Some(&left)));
        match told {
            Ok(Ok(0)) => return true,
            Ok(Err(rustix::io::Errno::INTR)) => {}
            // What else fails here fails for good.
            Ok(Ok(_) | Err(_)) | Err(_) => return false,
        }
    }
}

/// The end of a time-out that begins now; one too long to count ends when nobody is waiting.
pub(crate) fn deadline_after(timeout: Duration) -> Instant {
    const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
    let now = Instant::now();
    now.checked_add(timeout).unwrap_or_else(|| now + FOR_EVER)
}

/// How long something may take, counted from when that was first asked: most things are done
/// before anybody looks at the clock.
#[derive(Debug)]
pub(crate) struct Patience {
    timeout: Duration,
    until: OnceCell<Instant>,
}

impl Patience {
    /// Counted from the first use.
    pub(crate) fn from_first_use(timeout: Duration) -> Patience {
        Patience { timeout, until: OnceCell::new() }
    }

    /// Counted from now.
    pub(crate) fn from_now(timeout: Duration) -> Patience {
        let patience = Patience::from_first_use(timeout);
        patience.deadline();
        patience
    }

    /// When it ends.
    pub(crate) fn deadline(&self) -> Instant {
        *self.until.get_or_init(|| deadline_after(self.timeout))
    }
}

/// Options that every connection has, on both ends.
pub(crate) fn prepare_socket(
    socket: &TcpStream,
    send_buffer_bytes: Option<usize>,
    receive_buffer_bytes: Option<usize>,
) -> io::Result<()> {
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(TICK))?;
    socket.set_write_timeout(Some(TICK))?;
    if let Some(bytes) = send_buffer_bytes {
        rustix::net::sockopt::set_socket_send_buffer_size(socket, bytes)?;
    }
    if let Some(bytes) = receive_buffer_bytes {
        rustix::net::sockopt::set_socket_recv_buffer_size(socket, bytes)?;
    }
    // A peer that vanished without a word is found out by the system, not only by time-outs.
    rustix::net::sockopt::set_socket_keepalive(socket, true)?;
    Ok(())
}

/// Connects, and lets the other end send so many bytes at once from the beginning on, as far as the system's limit allows.
///
/// The system begins with room for 64 KiB, and makes more as they are taken, which takes several rounds of both ends. It
/// goes on making more: a size that is set stays as it is otherwise, and a long way needs more than one can set. Where the
/// system can't be told so (older Linux) all is left as it was.
///
/// # Errors
///
/// What the system says; [`io::ErrorKind::TimedOut`] if it takes longer than `timeout`.
pub fn connect_expecting(
    address: &SocketAddr,
    bytes: usize,
    timeout: Duration,
) -> io::Result<TcpStream> {
    let socket = new_socket(address)?;
    // Before it connects: how far the window may grow is decided then.
    if unlock_buffers(&socket).is_ok() {
        // Twice as many as are of use, as the system counts its own part too.
        let now = rustix::net::sockopt::socket_recv_buffer_size(&socket)?;
        if now < 2 * bytes.min(most_receive_buffer_bytes()) {
            rustix::net::sockopt::set_socket_recv_buffer_size(&socket, bytes)?;
        }
        unlock_buffers(&socket)?;
    }
    socket.set_nonblocking(true)?;
    match rustix::net::connect(&socket, address) {
        Ok(()) => {}
        Err(Errno::INPROGRESS) => wait_until_connected(&socket, timeout)?,
        Err(error) => return Err(error.into()),
    }
    socket.set_nonblocking(false)?;
    Ok(socket)
}

/// Most that may be asked for, as the system is set up; more of it than there is anyway, as a rule.
fn most_receive_buffer_bytes() -> usize {
    static MOST: OnceLock<usize> = OnceLock::new();
    let told = || std::fs::read_to_string("/proc/sys/net/core/rmem_max").ok()?.trim().parse().ok();
    *MOST.get_or_init(|| told().unwrap_or(usize::MAX >> 1))
}

/// A socket by the C library's `socket`, as std makes them: a program that has put something before that, as the preload library
/// has, is to know of every one.
fn new_socket(address: &SocketAddr) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: it takes no memory.
    let socket = unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was just made, and nobody else has it.
    Ok(TcpStream::from(unsafe { OwnedFd::from_raw_fd(socket) }))
}

fn wait_until_connected(socket: &TcpStream, timeout: Duration) -> io::Result<()> {
    let deadline = deadline_after(timeout);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let patience = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(socket, PollFlags::OUT)], Some(&patience)) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => return socket.take_error()?.map_or(Ok(()), Err),
            // A signal of the program's.
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Leaves it to the system how long a socket's buffers are.
fn unlock_buffers(socket: &TcpStream) -> io::Result<()> {
    let none: libc::c_int = 0;
    let length = size_of_val(&none) as libc::socklen_t;
    let value = (&raw const none).cast();
    // SAFETY: the value is there for the call, and as long as is said.
    let set = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_BUF_LOCK, value, length)
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Connects and sets the options.
pub(crate) fn connect_socket(
    address: SocketAddr,
    timeout: Duration,
    send_buffer_bytes: Option<usize>,
    receive_buffer_bytes: Option<usize>,
) -> io::Result<TcpStream> {
    let socket = TcpStream::connect_timeout(&address, timeout)?;
    prepare_socket(&socket, send_buffer_bytes, receive_buffer_bytes)?;
    // What was not received yet goes with the connection that is given up, or whose process is killed: the system would
    // go on sending it, and a request would come after the same one had been made again, and answered.
    rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::ZERO))?;
    Ok(socket)
}

/// `recv` or `recvmsg`, again after a signal.
pub(crate) fn receive_plain(
    socket: &TcpStream,
    into: &mut [IoSliceMut<'_>],
    amount: Amount,
) -> io::Result<usize> {
    let flags = match amount {
        Amount::Some => RecvFlags::empty(),
        Amount::All => RecvFlags::WAITALL,
    };
    let count = into.len().min(MAX_SLICES);
    loop {
        let received = match &mut into[..count] {
            [single] => recv(socket, &mut **single, flags).map(|(bytes, _)| bytes),
            several => {
                let mut control = RecvAncillaryBuffer::default();
                recvmsg(socket, several, &mut control, flags).map(|message| message.bytes)
            }
        };
        match received {
            Err(rustix::io::Errno::INTR) => {}
            other => return Ok(other?),
        }
    }
}

/// `recv` of what has come, without waiting.
pub(crate) fn receive_plain_now(socket: &TcpStream, into: &mut [u8]) -> io::Result<usize> {
    match recv(socket, into, RecvFlags::DONTWAIT) {
        Ok((bytes, _)) => Ok(bytes),
        Err(rustix::io::Errno::INTR) => Err(io::ErrorKind::WouldBlock.into()),
        Err(error) => Err(error.into()),
    }
}

/// `sendmsg` until everything is out.
fn send_plain(
    socket: &TcpStream,
    mut slices: &mut [IoSlice<'_>],
    patience: &Patience,
) -> io::Result<()> {
    IoSlice::advance_slices(&mut slices, 0); // drops empty slices in front
    while !slices.is_empty() {
        let count = slices.len().min(MAX_SLICES);
        let mut flags = SendFlags::NOSIGNAL;
        if count < slices.len() {
            flags |= SendFlags::MORE;
        }
        let mut control = SendAncillaryBuffer::default();
        match sendmsg(socket, &slices[..count], &mut control, flags) {
            Ok(sent) => IoSlice::advance_slices(&mut slices, sent),
            Err(error) => retry_send(error, patience.deadline())?,
        }
        if !slices.is_empty() {
            check_deadline(patience.deadline())?;
        }
    }
    Ok(())
}

/// `send` of one buffer until everything is out.
pub(crate) fn send_bytes(
    socket: &TcpStream,
    mut bytes: &[u8],
    deadline: Instant,
) -> io::Result<()> {
    while !bytes.is_empty() {
        match send(socket, bytes, SendFlags::NOSIGNAL) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(error) => retry_send(error, deadline)?,
        }
        if !bytes.is_empty() {
            check_deadline(deadline)?;
        }
    }
    Ok(())
}

fn retry_send(error: rustix::io::Errno, deadline: Instant) -> io::Result<()> {
    match error {
        rustix::io::Errno::INTR => Ok(()),
        rustix::io::Errno::AGAIN => check_deadline(deadline),
        other => Err(other.into()),
    }
}

/// A send that only ever moves a few bytes must end too, so this is asked after each partial one.
fn check_deadline(deadline: Instant) -> io::Result<()> {
    if Instant::now() < deadline {
        Ok(())
    } else {
        Err(io::Error::new(io::ErrorKind::TimedOut, "the peer does not take what is sent to it"))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn who_expects_much_has_room_for_more_than_the_system_begins_with() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let sent = |expects: bool| {
            let _socket = match expects {
                true => connect_expecting(&address, 2 << 20, TICK).unwrap(),
                false => TcpStream::connect(address).unwrap(),
            };
            let (mut other, _) = listener.accept().unwrap();
            other.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
            let piece = [0; 32 << 10];
            // Until both ends are full.
            std::iter::from_fn(|| io::Write::write(&mut other, &piece).ok()).sum::<usize>()
        };
        let (usual, more) = (sent(false), sent(true));
        if unlock_buffers(&TcpStream::connect(address).unwrap()).is_err() {
            return eprintln!("this system can't be told so");
        }
        assert!(more > usual + (100 << 10), "{usual} {more}");
    }

    /// Else the system would send the rest, however much later.
    #[test]
    fn what_was_not_sent_goes_with_a_connection_that_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let client = connect_socket(address, TICK, None, None).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let wire = Wire::Tcp(client);
        let request = vec![7; 1 << 20];
        // Until nobody takes any more.
        let mut sent = 0;
        loop {
            match wire.send_some(&[IoSlice::new(&request)]).unwrap() {
                0 => break,
                more => sent += more,
            }
        }
        wire.close();
        drop(wire);
        let mut received = Vec::new();
        let end = server.read_to_end(&mut received);
        assert_eq!(end.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        assert!(received.len() < sent, "all {sent} bytes came");
    }
}
