//! The connection to the kernel: its descriptors, and what was agreed on at its start.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use crate::device::{Device, Received};
use crate::notify::resend;
use crate::reply::{failure, finish};
use crate::request::{Init, Operation, Request};
use crate::wire::Writer;
use crate::{Errno, InitFlags};

/// The protocol's major number, which has not changed since 2005.
const MAJOR: u32 = 7;

/// The newest minor number that this crate knows.
const MINOR: u32 = 45;

/// The oldest kernel that will do is Linux 5.4's.
const OLDEST_MINOR: u32 = 31;

/// The kernel wants to find room for this much when it is read from.
const LEAST_ROOM: usize = 8192;

/// The kernel counts a request's data in these.
const PAGE_BYTES: u32 = 4096;

/// What a file system wants of the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// What is used where the kernel can do it.
    pub flags: InitFlags,
    /// Largest write, and read, in bytes.
    pub max_write: u32,
    /// Requests that no program waits for in person, at the same time.
    pub max_background: u16,
}

/// What kernel and file system have agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// Minor number of the protocol.
    pub minor: u32,
    /// What both can do.
    pub flags: InitFlags,
    /// Largest write, in bytes.
    pub max_write: u32,
}

/// A connection to the kernel that nobody serves yet.
#[derive(Debug)]
pub struct Connection {
    /// The first is the mount's own; what was read from one must be answered through it.
    pub(crate) devices: Vec<OwnedFd>,
    pub(crate) negotiated: Negotiated,
}

impl Connection {
    /// Agrees with the kernel on how they talk, over the descriptor of a new mount.
    ///
    /// # Errors
    ///
    /// `Unsupported` for a kernel that is too old, `NotConnected` if the mount has gone meanwhile,
    /// and what the system says.
    pub fn agree(descriptor: OwnedFd, wanted: &Wanted) -> io::Result<Self> {
        let device = Device::new(descriptor, Arc::default());
        let mut room = vec![0; LEAST_ROOM];
        loop {
            let length = match device.receive(&mut room)? {
                Received::Request(length) => length,
                Received::Nothing => continue,
                Received::Unmounted => return Err(io::ErrorKind::NotConnected.into()),
            };
            let request = Request::parse(&room[..length]).map_err(io::Error::other)?;
            let unique = request.header.unique;
            let Operation::Init(init) = request.operation else {
                device.send_one(failure(unique, Errno::EIO).as_bytes())?;
                continue;
            };
            if init.major < MAJOR || init.major == MAJOR && init.minor < OLDEST_MINOR {
                device.send_one(failure(unique, Errno::EPROTO).as_bytes())?;
                return Err(too_old(&init));
            }
            let (message, negotiated) = answer(unique, &init, wanted);
            device.send_one(message.as_bytes())?;
            // Of a newer major number the kernel now asks again, with ours.
            if init.major == MAJOR {
                let devices = vec![device.duplicate()?];
                return Ok(Connection { devices, negotiated });
            }
        }
    }

    /// What was agreed on.
    pub fn negotiated(&self) -> Negotiated {
        self.negotiated
    }

    /// Everything that was read and not answered is to come again. For who has taken the connection over, before
    /// he serves it: else what he has just read comes twice.
    ///
    /// # Errors
    ///
    /// What the kernel says; EINVAL from those before Linux 6.9.
    pub fn resend(&self) -> io::Result<()> {
        let first = self.devices.first().ok_or(io::ErrorKind::NotConnected)?;
        match rustix::io::write(first, resend().as_bytes()) {
            Ok(_) | Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Descriptors for so many threads, as far as the kernel gives them. Whoever holds all of them
    /// keeps the mount alive, and the requests that were read through them.
    ///
    /// # Errors
    ///
    /// What the system says when not even one can be had.
    pub fn widen(&mut self, count: usize) -> io::Result<()> {
        while self.devices.len() < count {
            let first = self.devices.first().ok_or(io::ErrorKind::NotConnected)?;
            match Device::clone_of(first.as_fd()) {
                Ok(clone) => self.devices.push(clone),
                Err(error) => {
                    // Threads share what there is.
                    tracing::debug!(%error, "no further descriptor of the mount");
                    break;
                }
            }
        }
        Ok(())
    }

    /// The same connection once more, for whoever keeps it while another serves it.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn duplicate(&self) -> io::Result<Self> {
        let devices = self.devices.iter().map(OwnedFd::try_clone).collect::<io::Result<_>>()?;
        Ok(Connection { devices, negotiated: self.negotiated })
    }
}

fn too_old(init: &Init) -> io::Error {
    let (major, minor) = (init.major, init.minor);
    let text = format!("the kernel's FUSE is {major}.{minor}, older than {MAJOR}.{OLDEST_MINOR}");
    io::Error::new(io::ErrorKind::Unsupported, text)
}

/// INIT's answer: major u32, minor u32, read-ahead u32, flags u32, requests in the background u16,
/// when they are many u16, largest write u32, granularity of times u32, pages of a request u16,
/// alignment u16, flags from bit 32 on u32, 28 bytes of zeros.
fn answer(unique: u64, init: &Init, wanted: &Wanted) -> (Writer, Negotiated) {
    let flags = InitFlags::from_bits_retain(init.flags) & wanted.flags;
    let max_write = wanted.max_write.max(PAGE_BYTES);
    let minor = init.minor.min(MINOR);
    let mut writer = Writer::new();
    writer.u32(0);
    writer.i32(0);
    writer.u64(unique);
    writer.u32(MAJOR);
    writer.u32(minor);
    writer.u32(init.max_read_ahead);
    writer.u32(flags.bits() as u32);
    writer.u16(wanted.max_background);
    writer.u16(wanted.max_background / 4 * 3);
    writer.u32(max_write);
    // Nanoseconds.
    writer.u32(1);
    writer.u16(u16::try_from(max_write.div_ceil(PAGE_BYTES)).unwrap_or(u16::MAX));
    writer.u16(0);
    writer.u32((flags.bits() >> 32) as u32);
    writer.zeros(28);
    (finish(writer, 0), Negotiated { minor, flags, max_write })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixDatagram;
    use std::os::unix::net::UnixStream;
    use std::thread;

    use super::*;

    fn init(unique: u64, major: u32, minor: u32, flags: u64) -> Vec<u8> {
        let words: [u32; 26] = std::array::from_fn(|at| match at {
            0 => 104,
            1 => 26,
            2 => unique as u32,
            10 => major,
            11 => minor,
            12 => 131_072,
            13 => flags as u32,
            14 => (flags >> 32) as u32,
            _ => 0,
        });
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    const WANTED: Wanted =
        Wanted { flags: InitFlags::all(), max_write: 1 << 20, max_background: 100 };

    #[test]
    #[cfg(target_endian = "little")]
    fn both_agree_on_what_both_can() {
        let (ours, mut kernel) = UnixStream::pair().unwrap();
        let agreeing = thread::spawn(move || Connection::agree(ours.into(), &WANTED));
        // First a version that we don't know: the kernel falls back to ours.
        kernel.write_all(&init(1, 8, 0, 0)).unwrap();
        let mut answer = [0; 80];
        kernel.read_exact(&mut answer).unwrap();
        assert_eq!(answer[..4], 80_u32.to_le_bytes());
        assert_eq!(answer[16..20], 7_u32.to_le_bytes());
        let flags = InitFlags::INIT_EXT | InitFlags::HAS_RESEND | InitFlags::BIG_WRITES;
        kernel.write_all(&init(2, 7, 38, flags.bits() | 1 << 60)).unwrap();
        kernel.read_exact(&mut answer).unwrap();
        assert_eq!(answer[8..16], 2_u64.to_le_bytes());
        assert_eq!(answer[20..24], 38_u32.to_le_bytes());
        assert_eq!(answer[28..32], (flags.bits() as u32).to_le_bytes());
        assert_eq!(answer[32..34], 100_u16.to_le_bytes());
        assert_eq!(answer[36..40], (1_u32 << 20).to_le_bytes());
        assert_eq!(answer[44..46], 256_u16.to_le_bytes());
        assert_eq!(answer[48..52], ((flags.bits() >> 32) as u32).to_le_bytes());
        let negotiated = agreeing.join().unwrap().unwrap().negotiated();
        assert_eq!(negotiated, Negotiated { minor: 38, flags, max_write: 1 << 20 });
    }

    #[test]
    fn a_kernel_that_is_too_old_is_told_so() {
        let (ours, kernel) = UnixDatagram::pair().unwrap();
        kernel.send(&init(1, 7, 30, 0)).unwrap();
        let error = Connection::agree(ours.into(), &WANTED).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        let mut answer = [0; 80];
        assert_eq!(kernel.recv(&mut answer).unwrap(), 16);
    }
}
