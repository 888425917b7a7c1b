//! Handing a connection to another process, over a Unix socket.
//!
//! One message: `NASDFUSE`, version u32, number of descriptors u32, minor number of the protocol
//! u32, largest write u32, flags u64, length of the state u64 (all little-endian), with the
//! descriptors beside it; then the state, whose meaning is the file system's affair.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::{Connection, InitFlags, Negotiated};

const MAGIC: &[u8; 8] = b"NASDFUSE";
const VERSION: u32 = 1;
const HEAD_BYTES: usize = 40;

/// Descriptors of a connection at most; the system passes no more than 253 at once.
const MAX_DESCRIPTORS: usize = 64;

/// Longest state, in bytes.
const MAX_STATE_BYTES: u64 = 8 << 30;

fn head(connection: &Connection, state: &[u8]) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    let Negotiated { minor, flags, max_write } = connection.negotiated;
    head[..8].copy_from_slice(MAGIC);
    head[8..12].copy_from_slice(&VERSION.to_le_bytes());
    head[12..16].copy_from_slice(&(connection.devices.len() as u32).to_le_bytes());
    head[16..20].copy_from_slice(&minor.to_le_bytes());
    head[20..24].copy_from_slice(&max_write.to_le_bytes());
    head[24..32].copy_from_slice(&flags.bits().to_le_bytes());
    head[32..].copy_from_slice(&(state.len() as u64).to_le_bytes());
    head
}

/// Gives a connection, and the state that goes with it, to the process at the other end.
///
/// # Errors
///
/// What the system says. The connection is still this process's then.
pub fn give(socket: &UnixStream, connection: &Connection, state: &[u8]) -> io::Result<()> {
    if connection.devices.len() > MAX_DESCRIPTORS {
        return Err(io::Error::other("too many descriptors"));
    }
    let descriptors: Vec<BorrowedFd<'_>> = connection.devices.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::other("the descriptors do not fit"));
    }
    let head = head(connection, state);
    let sent = sendmsg(socket, &[IoSlice::new(&head)], &mut control, SendFlags::NOSIGNAL)?;
    (&*socket).write_all(&head[sent..])?;
    (&*socket).write_all(state)
}

fn garbled(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

/// Takes a connection, and its state, from the process at the other end.
///
/// # Errors
///
/// `UnexpectedEof` if the other end gives nothing, `InvalidData` for what is not such a message or
/// of another version, and what the system says.
pub fn take(socket: &UnixStream) -> io::Result<(Connection, Vec<u8>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut head = [0; HEAD_BYTES];
    let received = loop {
        let mut parts = [IoSliceMut::new(&mut head)];
        match recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            outcome => break outcome?,
        }
    };
    let mut devices: Vec<OwnedFd> = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            devices.extend(rights);
        }
    }
    (&*socket).read_exact(head.get_mut(received.bytes..).unwrap_or_default())?;
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(garbled(
            "some of the descriptors were lost: the limit of open files is too low",
        ));
    }
    let (negotiated, count, length) = parse_head(&head)?;
    if devices.len() != count || count == 0 {
        return Err(garbled("the descriptors are not as many as announced"));
    }
    let mut state = Vec::new();
    let read = socket.take(length).read_to_end(&mut state)?;
    if read as u64 != length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok((Connection { devices, negotiated }, state))
}

fn parse_head(head: &[u8; HEAD_BYTES]) -> io::Result<(Negotiated, usize, u64)> {
    let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| head[at + byte]));
    let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| head[at + byte]));
    if &head[..8] != MAGIC {
        return Err(garbled("that is no connection that is handed over"));
    }
    if word(8) != VERSION {
        return Err(garbled("the connection is handed over in another version"));
    }
    let (count, length) = (word(12) as usize, long(32));
    if length > MAX_STATE_BYTES || word(20) > 1 << 30 {
        return Err(garbled("impossible lengths"));
    }
    let flags = InitFlags::from_bits_retain(long(24));
    Ok((Negotiated { minor: word(16), max_write: word(20), flags }, count, length))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::thread;

    use super::*;

    fn connection(count: usize) -> (Connection, UnixStream) {
        let (ours, kernel) = UnixStream::pair().unwrap();
        let device: OwnedFd = ours.into();
        let flags = InitFlags::HAS_RESEND | InitFlags::BIG_WRITES;
        let negotiated = Negotiated { minor: 40, flags, max_write: 1 << 20 };
        let devices = (0..count).map(|_| device.try_clone().unwrap()).collect();
        (Connection { devices, negotiated }, kernel)
    }

    #[test]
    fn a_connection_arrives_with_its_state() {
        for count in [1, 9, MAX_DESCRIPTORS] {
            let (connection, mut kernel) = connection(count);
            let (here, there) = UnixStream::pair().unwrap();
            let state: Vec<u8> = (0..3_000_000_u32).map(|at| at as u8).collect();
            let sent = state.clone();
            let giving = thread::spawn(move || {
                give(&here, &connection, &sent).unwrap();
                connection.negotiated
            });
            let (taken, told) = take(&there).unwrap();
            assert_eq!(taken.negotiated, giving.join().unwrap());
            assert_eq!(taken.devices.len(), count);
            assert!(told == state);
            let mut last = UnixStream::from(taken.devices.into_iter().next_back().unwrap());
            last.write_all(b"x").unwrap();
            kernel.read_exact(&mut [0]).unwrap();
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let take_bytes = |bytes: &[u8]| {
            let (mut here, there) = UnixStream::pair().unwrap();
            here.write_all(bytes).unwrap();
            drop(here);
            take(&there).unwrap_err().kind()
        };
        assert_eq!(take_bytes(b""), io::ErrorKind::UnexpectedEof);
        assert_eq!(take_bytes(&[1; 40]), io::ErrorKind::InvalidData);
        let (connection, _kernel) = connection(1);
        let good = head(&connection, b"");
        assert_eq!(take_bytes(&good), io::ErrorKind::InvalidData, "without descriptors");
        let mut other = good;
        other[8] = 9;
        assert_eq!(take_bytes(&other), io::ErrorKind::InvalidData);
        let mut endless = good;
        endless[39] = 0xff;
        assert_eq!(take_bytes(&endless), io::ErrorKind::InvalidData);
        assert_eq!(take_bytes(&good[..20]), io::ErrorKind::UnexpectedEof);
    }
}
