//! One connection: a file that is open at a server.

use std::io::{self, IoSlice, IoSliceMut, Read};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nasd_capability::{CoveredData, DigestKeys, Nonce, NonceSource, Suite, Way};
use nasd_client::Prepared;
use nasd_protocol::Status;
use nasd_protocol::bulk::{Asked, Fields, Kind, Open, PACKET_BYTES, Packet, Seal, shown};
use nasd_transport::connect_expecting;
use nasd_types::{Protection, Timestamp};

use super::error::Failure;
use super::{BulkError, Opening};
use crate::server::{is_passing, receive_into, send_all};

/// How long a connection may be silent while something is asked of it.
const SILENCE: Duration = Duration::from_secs(30);

/// How often what has come of long data is taken, however little it is.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Bytes that a server may send before any of them was taken.
const RECEIVED_AT_ONCE: usize = 2 << 20;

/// How far a server's clock may be from this host's for it to be believed without proof: who could make clients stamp requests
/// with a time to come could keep these, and send them then.
const MOST_OFFSET: Duration = Duration::from_secs(300);

/// How far the time that requests are stamped with may be from what was proved.
const MOST_DRIFT: Duration = Duration::from_secs(5);

/// How often an open is tried again at once because of its nonce.
const MOST_NONCES: u32 = 3;

/// What an open file is, as its server has told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) identity: u64,
    pub(super) size: u64,
    pub(super) instance: u64,
    pub(super) alignment: u64,
    pub(super) most: u64,
}

/// A request that was sent, and is not answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) number: u64,
    nonce: Nonce,
}

/// What was answered.
#[derive(Debug)]
pub(super) enum Answered {
    Done(Fields),
    /// Proved.
    Failed(Status),
    /// By anybody.
    Refused(Status),
}

/// How far a server's clock is ahead of this host's, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    /// As requests are stamped.
    used_ns: i128,
    /// As it was known, or proved.
    known_ns: i128,
}

impl Clock {
    pub(super) fn known(ahead_ns: i128) -> Clock {
        Clock { used_ns: ahead_ns, known_ns: ahead_ns }
    }

    /// Somebody has told it.
    fn take_hint(&mut self, told: Timestamp) {
        let ahead = ahead_of_here(told);
        if (ahead - self.known_ns).unsigned_abs() <= MOST_OFFSET.as_nanos() {
            self.used_ns = ahead;
        }
    }

    /// Only the server can have told it: a little while ago, which is no reason to stamp otherwise.
    fn learn(&mut self, told: Timestamp) {
        self.known_ns = ahead_of_here(told);
        if (self.used_ns - self.known_ns).unsigned_abs() > MOST_DRIFT.as_nanos() {
            self.used_ns = self.known_ns;
        }
    }
}

fn ahead_of_here(told: Timestamp) -> i128 {
    i128::from(told.0) - i128::from(wall_clock().0)
}

/// An open connection.
pub(super) struct Connection {
    stream: TcpStream,
    server: String,
    credential: Vec<u8>,
    /// What requests show besides themselves.
    shown: Vec<u8>,
    protection: Protection,
    keys: DigestKeys,
    nonces: NonceSource,
    clock: Clock,
    number: u64,
    session: u64,
    pub(super) told: Told,
}

impl Connection {
    /// Connects, and opens the file, in the place of an earlier connection of the session.
    pub(super) fn open(
        opening: &Opening,
        (session, mut clock): (u64, Clock),
        timeout: Duration,
    ) -> Result<Connection, Failure> {
        for _ in 0..MOST_NONCES {
            let mut connection = Connection::connect(opening, clock, timeout)?;
            connection.session = session;
            match connection.ask_to_open(opening)? {
                Answered::Done(fields) => {
                    connection.told = Told {
                        identity: fields.length,
                        size: fields.size,
                        instance: fields.instance,
                        alignment: fields.options.max(1),
                        most: fields.most.max(1),
                    };
                    return Ok(connection);
                }
                Answered::Refused(status) if status.needs_fresh_nonce() => {
                    clock = connection.clock;
                }
                Answered::Refused(status) => return Err(connection.refused(status)),
                // What was asked over the connection before may still be done: nothing is asked again until that is over.
                Answered::Failed(Status::Busy) => {
                    let server = opening.address.clone();
                    return Err(Failure::Later(BulkError::Failed { server, status: Status::Busy }));
                }
                Answered::Failed(status) => return Err(connection.failed(status)),
            }
        }
        let error = io::Error::other("its clock could not be found out");
        Err(Failure::Lost(error))
    }

    fn connect(opening: &Opening, clock: Clock, timeout: Duration) -> Result<Connection, Failure> {
        let server = opening.address.clone();
        let Some(Prepared { credential, keys }) = opening.authority.prepare(Suite::available())
        else {
            return Err(BulkError::NoSuite { server }.into());
        };
        let stream = connect(&opening.address, timeout)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE))?;
        stream.set_write_timeout(Some(SILENCE))?;
        // What was not received yet goes with a connection that is given up.
        let linger = rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO));
        linger.map_err(io::Error::from)?;
        Ok(Connection {
            stream,
            server,
            credential: credential.clone(),
            shown: Vec::new(),
            protection: opening.authority.protection(),
            keys: keys.clone(),
            nonces: NonceSource::new(random()),
            clock,
            number: 0,
            session: 0,
            told: Told { identity: 0, size: 0, instance: 0, alignment: 1, most: 1 },
        })
    }

    fn ask_to_open(&mut self, opening: &Opening) -> Result<Answered, Failure> {
        let open = Open { credential: &self.credential, place: &opening.place }.to_bytes();
        self.shown.clone_from(&open);
        let options = opening.options.bits();
        let (session, block) = (self.session, opening.block);
        let fields = Fields { offset: session, length: block, options, ..Fields::default() };
        let sent = self.send_with(Kind::Open, &fields, &[&open], None)?;
        let packet = self.receive_packet()?;
        if packet.number != sent.number {
            return Err(Failure::protocol(&self.server, "an answer to nothing"));
        }
        let answered = self.conclude(&packet, &sent, &mut [])?;
        self.shown = shown(&self.credential, &packet.nonce);
        Ok(answered)
    }

    /// The server's clock, as far as it is known.
    pub(super) fn clock(&self) -> Clock {
        self.clock
    }

    /// Asks for something that brings no data.
    pub(super) fn ask(&mut self, kind: Kind, fields: &Fields) -> Result<Sent, Failure> {
        self.send_with(kind, fields, &[], None)
    }

    /// Asks for these data to be written.
    pub(super) fn ask_to_write(&mut self, fields: &Fields, data: &[u8]) -> Result<Sent, Failure> {
        let nonce = self.nonce();
        if self.protection.contains(Protection::PRIVACY_DATA) {
            let mut sealed = vec![0; data.len()];
            let tag = self.keys.seal_data(Way::Request, &nonce, &[data], &mut sealed);
            let covered = CoveredData { length: data.len() as u64, tag };
            return self.send_with(Kind::Write, fields, &[&sealed], Some((nonce, Some(covered))));
        }
        let covers = self.protection.contains(Protection::INTEGRITY_DATA);
        let covered = covers.then(|| self.keys.data(Way::Request, &nonce, &[data]));
        self.send_with(Kind::Write, fields, &[data], Some((nonce, covered)))
    }

    fn send_with(
        &mut self,
        kind: Kind,
        fields: &Fields,
        payload: &[&[u8]],
        drawn: Option<(Nonce, Option<CoveredData>)>,
    ) -> Result<Sent, Failure> {
        let (nonce, covered) = drawn.unwrap_or_else(|| (self.nonce(), None));
        let number = self.number;
        self.number += 1;
        let length = payload.iter().map(|part| part.len() as u64).sum();
        let mut packet = Packet::request(kind, number, length, fields);
        self.seal().request(&mut packet, nonce, covered);
        let head = packet.to_bytes();
        let mut slices = Vec::with_capacity(1 + payload.len());
        slices.push(IoSlice::new(&head));
        slices
            .extend(payload.iter().filter(|part| !part.is_empty()).map(|part| IoSlice::new(part)));
        send_all(&self.stream, &mut slices)?;
        Ok(Sent { number, nonce })
    }

    fn seal(&self) -> Seal<'_> {
        Seal { shown: &self.shown, protection: self.protection, keys: &self.keys }
    }

    fn nonce(&self) -> Nonce {
        let now = i128::from(wall_clock().0) + self.clock.used_ns;
        self.nonces.draw(Timestamp(u64::try_from(now).unwrap_or(0)))
    }

    /// The next answer's packet. Its data, if it has any, come next.
    pub(super) fn receive_packet(&mut self) -> Result<Packet, Failure> {
        let mut bytes = [0; PACKET_BYTES];
        self.stream.read_exact(&mut bytes)?;
        match Packet::from_bytes(&bytes) {
            Ok(packet) if packet.is_answer => Ok(packet),
            Ok(_) => Err(Failure::protocol(&self.server, "a request where answers are expected")),
            Err(error) => Err(Failure::packet(&self.server, error)),
        }
    }

    /// Checks an answer, and receives its data.
    pub(super) fn conclude(
        &mut self,
        packet: &Packet,
        to: &Sent,
        into: &mut [u8],
    ) -> Result<Answered, Failure> {
        let clear = packet.fields();
        let is_unproved = packet.digest == nasd_capability::Digest::ZERO;
        if let (true, Some(status)) = (is_unproved, clear.failure())
            && status.refusal().is_some()
        {
            if packet.payload != 0 {
                return Err(Failure::protocol(&self.server, "a refusal with data"));
            }
            self.clock.take_hint(packet.nonce.timestamp);
            if status == Status::RefusedReplay {
                self.nonces.change_sender(&to.nonce);
            }
            return Ok(Answered::Refused(status));
        }
        let asked = Asked { nonce: to.nonce };
        let opened = self.seal().open_answer(packet, asked);
        let fields = opened.map_err(|error| Failure::seal(&self.server, error))?;
        if !self.protection.is_empty() {
            self.clock.learn(packet.nonce.timestamp);
        }
        let length = usize::try_from(packet.payload).ok().filter(|length| *length <= into.len());
        let Some(length) = length else {
            return Err(Failure::protocol(&self.server, "more data than were asked for"));
        };
        self.receive_data(packet, &mut into[..length])?;
        match fields.failure() {
            None => Ok(Answered::Done(fields)),
            Some(status) => Ok(Answered::Failed(status)),
        }
    }

    fn receive_data(&mut self, packet: &Packet, into: &mut [u8]) -> Result<(), Failure> {
        receive_patiently(&self.stream, into, (LOOK_EVERY, SILENCE))?;
        let Some(covered) = self.seal().covered_data(packet) else {
            return Ok(());
        };
        let is_right = match self.protection.contains(Protection::PRIVACY_DATA) {
            true => self.keys.open_data(Way::Reply, &packet.nonce, &covered.tag, into).is_ok(),
            false => self.keys.data(Way::Reply, &packet.nonce, &[into]) == covered,
        };
        match is_right {
            true => Ok(()),
            false => Err(BulkError::Forged { server: self.server.clone() }.into()),
        }
    }

    pub(super) fn refused(&self, status: Status) -> Failure {
        BulkError::Refused { server: self.server.clone(), status }.into()
    }

    pub(super) fn failed(&self, status: Status) -> Failure {
        BulkError::Failed { server: self.server.clone(), status }.into()
    }
}

/// Receives all of it, unless nothing comes for as long as `silence`; looks every so often.
fn receive_patiently(
    stream: &TcpStream,
    into: &mut [u8],
    (every, silence): (Duration, Duration),
) -> io::Result<()> {
    let mut since = Instant::now();
    receive_into(stream, &mut [IoSliceMut::new(into)], |much, slices| {
        loop {
            match much.receive(slices, every) {
                Err(error) if is_passing(&error) && since.elapsed() < silence => {}
                Err(error) if is_passing(&error) => return Err(io::ErrorKind::TimedOut.into()),
                outcome => {
                    since = Instant::now();
                    return outcome;
                }
            }
        }
    })
}

fn connect(address: &str, timeout: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
    for address in address.to_socket_addrs()? {
        match connect_expecting(&address, RECEIVED_AT_ONCE, timeout) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn wall_clock() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_parts(since_epoch.as_secs(), since_epoch.subsec_nanos())
}

/// 64 bits that differ from those of other connections.
pub(super) fn random() -> u64 {
    use std::hash::BuildHasher;
    std::hash::RandomState::new().hash_one(wall_clock().0)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    #[test]
    fn a_server_may_be_slow_but_not_silent() {
        const SILENCE: Duration = Duration::from_secs(2);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut there = listener.accept().unwrap().0;
        let patience = (SILENCE / 30, SILENCE);
        let begun = Instant::now();
        thread::scope(|scope| {
            scope.spawn(|| {
                for byte in 0..14 {
                    there.write_all(&[byte]).unwrap();
                    thread::sleep(SILENCE / 10);
                }
                there.write_all(b"half").unwrap();
            });
            let mut slow = [0; 14];
            receive_patiently(&here, &mut slow, patience).unwrap();
            assert!(begun.elapsed() > SILENCE, "it took longer than silence may");
            assert_eq!(slow[13], 13);
            let begun = Instant::now();
            let error = receive_patiently(&here, &mut [0; 8], patience).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            assert!((SILENCE..SILENCE * 20).contains(&begun.elapsed()));
        });
    }
}
