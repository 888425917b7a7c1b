//! The bytes of a connection under TLS.
//!
//! rustls keeps the state of both directions in one object, so it is behind a lock; but no thread
//! holds that lock while it waits for the socket, so that one thread can send while another waits
//! to receive.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::TcpStream;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustls::{ClientConnection, Connection, ServerConnection};

use super::error::tls_error_within;
use super::identity::certified;
use super::{ClientTls, Identity, ServerTls};
use crate::TlsError;
use crate::wire::{Amount, receive_plain, receive_plain_now, send_bytes};

/// Ciphertext received at a time: a full TLS record and some.
const INCOMING_BYTES: usize = 32 << 10;

/// Plaintext that is encrypted at a time.
const OUTGOING_BYTES: usize = 64 << 10;

/// A socket and its TLS state.
#[derive(Debug)]
pub(crate) struct TlsWire {
    socket: TcpStream,
    tls: Mutex<Connection>,
    incoming: Mutex<Incoming>,
    outgoing: Mutex<Vec<u8>>,
}

/// Ciphertext that was received and not yet decrypted.
#[derive(Debug)]
struct Incoming {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

/// The locked parts stay whole when a thread panics: rustls treats a half-done call as an error.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TlsWire {
    /// The client's side of the handshake.
    pub(crate) fn connect(
        socket: TcpStream,
        tls: &ClientTls,
        deadline: Instant,
    ) -> Result<TlsWire, TlsError> {
        let connection = ClientConnection::new(tls.config.clone(), tls.server_name.clone())
            .map_err(|error| TlsError::from_rustls(&error, "server"))?;
        TlsWire::handshake(socket, connection.into(), deadline, "server")
    }

    /// The server's side of the handshake, and who the client is.
    pub(crate) fn accept(
        socket: TcpStream,
        tls: &ServerTls,
        deadline: Instant,
    ) -> Result<(TlsWire, Identity), TlsError> {
        let connection = ServerConnection::new(tls.config())
            .map_err(|error| TlsError::from_rustls(&error, "client"))?;
        let wire = TlsWire::handshake(socket, connection.into(), deadline, "client")?;
        let identity = identity_of(&lock(&wire.tls))?;
        Ok((wire, identity))
    }

    fn handshake(
        socket: TcpStream,
        mut connection: Connection,
        deadline: Instant,
        peer: &'static str,
    ) -> Result<TlsWire, TlsError> {
        let mut stream = DeadlineStream { socket: &socket, deadline };
        while connection.is_handshaking() || connection.wants_write() {
            if let Err(error) = connection.complete_io(&mut stream) {
                let told = tls_error_within(&error, peer);
                linger(&socket);
                return Err(told.unwrap_or(TlsError::Interrupted { why: error.to_string() }));
            }
        }
        Ok(TlsWire {
            socket,
            tls: Mutex::new(connection),
            incoming: Mutex::new(Incoming {
                bytes: vec![0; INCOMING_BYTES].into_boxed_slice(),
                start: 0,
                end: 0,
            }),
            outgoing: Mutex::new(Vec::new()),
        })
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// As `Wire::receive`; `WouldBlock` also after bytes that make no plaintext yet, so that a peer
    /// that sends them slowly does not keep the caller from looking at the time.
    pub(crate) fn receive(&self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut incoming = lock(&self.incoming);
        if let Some(count) = self.decrypt(&mut incoming, into)? {
            return Ok(count);
        }
        let mut room = [IoSliceMut::new(&mut incoming.bytes[..])];
        let count = receive_plain(&self.socket, &mut room, Amount::Some)?;
        incoming.start = 0;
        incoming.end = count;
        if count == 0 {
            // An end without TLS's own is an attack or a crash; records show which bytes are
            // missing, so that it is treated like any other end.
            return Ok(0);
        }
        match self.decrypt(&mut incoming, into)? {
            Some(count) => Ok(count),
            None => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// As `Wire::receive_now`: `WouldBlock` also when bytes came that make no plaintext yet.
    pub(crate) fn receive_now(&self, into: &mut [u8]) -> io::Result<usize> {
        let mut incoming = lock(&self.incoming);
        let mut into = [IoSliceMut::new(into)];
        if let Some(count) = self.decrypt(&mut incoming, &mut into)? {
            return Ok(count);
        }
        let count = receive_plain_now(&self.socket, &mut incoming.bytes)?;
        (incoming.start, incoming.end) = (0, count);
        if count == 0 {
            return Ok(0);
        }
        self.decrypt(&mut incoming, &mut into)?.ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }

    /// Decrypts what has been received until there is plaintext; `None` if more must be received.
    fn decrypt(
        &self,
        incoming: &mut Incoming,
        into: &mut [IoSliceMut<'_>],
    ) -> io::Result<Option<usize>> {
        let mut tls = lock(&self.tls);
        loop {
            match tls.reader().read_vectored(into) {
                Ok(count) => return Ok(Some(count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            if incoming.start == incoming.end {
                return Ok(None);
            }
            let mut bytes = &incoming.bytes[incoming.start..incoming.end];
            incoming.start += tls.read_tls(&mut bytes)?;
            tls.process_new_packets()
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        }
    }

    /// As `Wire::send_all`.
    pub(crate) fn send_all(&self, slices: &[IoSlice<'_>], deadline: Instant) -> io::Result<()> {
        let mut outgoing = lock(&self.outgoing);
        for slice in slices {
            for chunk in slice.chunks(OUTGOING_BYTES) {
                self.encrypt(chunk, &mut outgoing)?;
                if outgoing.len() >= OUTGOING_BYTES {
                    send_bytes(&self.socket, &outgoing, deadline)?;
                    outgoing.clear();
                }
            }
        }
        send_bytes(&self.socket, &outgoing, deadline)?;
        outgoing.clear();
        Ok(())
    }

    fn encrypt(&self, mut plain: &[u8], outgoing: &mut Vec<u8>) -> io::Result<()> {
        let mut tls = lock(&self.tls);
        while !plain.is_empty() {
            let count = tls.writer().write(plain)?;
            plain = &plain[count..];
            while tls.wants_write() {
                tls.write_tls(outgoing)?;
            }
        }
        Ok(())
    }
}

/// Who the client is. rustls has checked that a certificate is of the cell, and valid now; and
/// has demanded one, unless the server admits strangers.
fn identity_of(connection: &Connection) -> Result<Identity, TlsError> {
    let Some(certificate) = connection.peer_certificates().and_then(|chain| chain.first()) else {
        return Ok(Identity::Anonymous);
    };
    let certified = certified(certificate);
    certified.map(Identity::Certified).map_err(|why| TlsError::NoIdentity { peer: "client", why })
}

/// A blocking stream for the handshake that ends at a deadline, however slowly bytes come.
struct DeadlineStream<'a> {
    socket: &'a TcpStream,
    deadline: Instant,
}

impl DeadlineStream<'_> {
    fn check(&self) -> io::Result<()> {
        if Instant::now() < self.deadline {
            Ok(())
        } else {
            Err(io::Error::new(io::ErrorKind::TimedOut, "the handshake takes too long"))
        }
    }
}

impl Read for DeadlineStream<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            self.check()?;
            match receive_plain(self.socket, &mut [IoSliceMut::new(into)], Amount::Some) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
        }
    }
}

impl Write for DeadlineStream<'_> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        send_bytes(self.socket, from, self.deadline)?;
        Ok(from.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Lets the peer read why it was refused: closing a socket with unread bytes would throw the alert
/// away with the connection.
fn linger(socket: &TcpStream) {
    // Best effort, in every line: the connection is lost anyhow.
    let _ = socket.shutdown(std::net::Shutdown::Write);
    let deadline = Instant::now() + crate::wire::TICK;
    let mut scratch = [0; 4096];
    let mut stream = DeadlineStream { socket, deadline };
    while matches!(stream.read(&mut scratch), Ok(1..)) {}
}
