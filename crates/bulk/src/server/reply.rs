//! Answers on their way: proved, encrypted where that is wanted, and sent in one piece.

use std::io::{self, IoSlice, Write};
use std::net::TcpStream;
use std::sync::{Mutex, PoisonError};

use nasd_capability::{CoveredData, Nonce, Way};
use nasd_protocol::bulk::{Fields, Packet, Seal};
use nasd_types::Protection;

use super::{Permit, Refused};

/// The sending side of a connection, one answer at a time.
pub(super) struct Sender<'a> {
    stream: &'a TcpStream,
    alone: Mutex<()>,
}

impl<'a> Sender<'a> {
    pub(super) fn new(stream: &'a TcpStream) -> Sender<'a> {
        Sender { stream, alone: Mutex::new(()) }
    }

    /// Answers a request that was permitted, with data if there are any.
    pub(super) fn answer<G>(
        &self,
        request: &Packet,
        permit: &Permit<G>,
        nonce: Nonce,
        fields: &Fields,
        data: Option<&[&[u8]]>,
    ) -> io::Result<()> {
        let length = data.into_iter().flatten().map(|slice| slice.len() as u64).sum();
        let mut packet = request.answer(length, fields);
        packet.nonce = nonce;
        let Some(keys) = &permit.keys else {
            return self.send(&packet, data.unwrap_or(&[]));
        };
        let seal = Seal { shown: &[], protection: permit.protection, keys };
        let is_private = permit.protection.contains(Protection::PRIVACY_DATA);
        let sealed = data.filter(|_| is_private).map(|data| {
            let mut sealed = vec![0; data.iter().map(|slice| slice.len()).sum()];
            let tag = keys.seal_data(Way::Reply, &nonce, data, &mut sealed);
            (CoveredData { length, tag }, sealed)
        });
        if let Some((covered, sealed)) = sealed {
            seal.answer(&mut packet, nonce, permit.asked, Some(covered));
            return self.send(&packet, &[&sealed]);
        }
        let covers = permit.protection.contains(Protection::INTEGRITY_DATA);
        let covered = data.filter(|_| covers).map(|data| keys.data(Way::Reply, &nonce, data));
        seal.answer(&mut packet, nonce, permit.asked, covered);
        self.send(&packet, data.unwrap_or(&[]))
    }

    /// Tells whoever asked that he may not, and what time it is here.
    pub(super) fn refuse(&self, request: &Packet, refused: Refused) -> io::Result<()> {
        let fields = Fields { status: u64::from(u32::from(refused.status)), ..Fields::default() };
        let mut packet = request.answer(0, &fields);
        packet.nonce = Nonce { timestamp: refused.clock, unique: 0 };
        self.send(&packet, &[])
    }

    fn send(&self, packet: &Packet, data: &[&[u8]]) -> io::Result<()> {
        let head = packet.to_bytes();
        let mut slices = Vec::with_capacity(1 + data.len());
        slices.push(IoSlice::new(&head));
        slices
            .extend(data.iter().filter(|slice| !slice.is_empty()).map(|slice| IoSlice::new(slice)));
        // Whoever panicked has sent a part of an answer at most, which its receiver can't make sense of.
        let _alone = self.alone.lock().unwrap_or_else(PoisonError::into_inner);
        send_all(self.stream, &mut slices)
    }
}

/// Most slices of one system call (IOV_MAX of Linux).
const MAX_SLICES: usize = 1024;

/// Sends all of it.
pub(crate) fn send_all(mut stream: &TcpStream, mut slices: &mut [IoSlice<'_>]) -> io::Result<()> {
    while !slices.is_empty() {
        let count = slices.len().min(MAX_SLICES);
        match stream.write_vectored(&slices[..count]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(sent) => IoSlice::advance_slices(&mut slices, sent),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
