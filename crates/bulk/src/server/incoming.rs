//! What comes from a client, and how long it is waited for.

use std::io::{self, IoSliceMut, Read};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nasd_protocol::bulk::{Kind, MAX_OPEN_BYTES, PACKET_BYTES, Packet};
use nasd_transport::{BesideConnection, Much};

use super::Ended;

/// How long a client may take to send the rest of what it began, or to take what it asked for.
pub(super) const SILENCE: Duration = Duration::from_secs(60);

/// How often it is looked how long nothing has come.
const LOOK_EVERY: Duration = Duration::from_millis(if cfg!(test) { 50 } else { 5000 });

/// How long a stranger may take to say what he wants to open.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);

/// Who wants to know how a connection is used.
pub trait Watcher: Sync {
    /// It has shown that it is of somebody who has a key.
    fn is_proved(&self);

    /// Nothing was asked for so long, and nothing that was is being done; zero when something is again.
    fn rests(&self, since: Duration);
}

/// Nobody does.
impl Watcher for () {
    fn is_proved(&self) {}

    fn rests(&self, _since: Duration) {}
}

/// The server of the port, where that has other connections too.
impl Watcher for BesideConnection<'_> {
    fn is_proved(&self) {
        self.standing.prove();
    }

    fn rests(&self, since: Duration) {
        BesideConnection::rests(self, since);
    }
}

/// What a client sends.
#[derive(Clone, Copy)]
pub(super) struct Incoming<'a> {
    pub(super) stream: &'a TcpStream,
    pub(super) watcher: &'a dyn Watcher,
    /// Requests that others do meanwhile.
    pub(super) under_way: &'a AtomicUsize,
}

/// How long nothing has come.
struct Silence {
    since: Instant,
    /// When the connection began to rest.
    resting_since: Instant,
    is_told: bool,
}

impl Silence {
    fn begins() -> Silence {
        let now = Instant::now();
        Silence { since: now, resting_since: now, is_told: false }
    }
}

impl Incoming<'_> {
    /// Once more nothing has come for a while.
    fn note_silence(&self, silence: &mut Silence) {
        if self.under_way.load(Ordering::Acquire) > 0 {
            silence.resting_since = Instant::now();
            return self.note_end_of(silence);
        }
        silence.is_told = true;
        self.watcher.rests(silence.resting_since.elapsed());
    }

    /// Something has come, or is done.
    fn note_end_of(&self, silence: &mut Silence) {
        if std::mem::take(&mut silence.is_told) {
            self.watcher.rests(Duration::ZERO);
        }
    }

    /// The first packet and its payload, which have to come soon: whoever sends them is a stranger.
    pub(super) fn open(&self) -> Result<Option<(Packet, Vec<u8>)>, Ended> {
        let deadline = Instant::now() + OPEN_TIMEOUT;
        let mut bytes = [0; PACKET_BYTES];
        if !self.receive_before(&mut bytes, deadline)? {
            return Ok(None);
        }
        let packet = Packet::from_bytes(&bytes)?;
        if packet.is_answer || packet.kind != Kind::Open {
            return Err(Ended::Nonsense("a connection begins with an open"));
        }
        if packet.payload > MAX_OPEN_BYTES as u64 {
            return Err(Ended::Nonsense("an open is not as long"));
        }
        let mut payload = vec![0; packet.payload as usize];
        if !self.receive_before(&mut payload, deadline)? {
            return Err(Ended::Lost(io::ErrorKind::UnexpectedEof.into()));
        }
        self.stream.set_read_timeout(Some(LOOK_EVERY))?;
        Ok(Some((packet, payload)))
    }

    /// Receives all of it before the deadline; `false` if the client has closed the connection instead.
    fn receive_before(&self, bytes: &mut [u8], deadline: Instant) -> Result<bool, Ended> {
        let mut stream = self.stream;
        let mut filled = 0;
        while filled < bytes.len() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Ended::Lost(io::ErrorKind::TimedOut.into()));
            }
            stream.set_read_timeout(Some(left))?;
            match stream.read(&mut bytes[filled..]) {
                Ok(0) => return Ok(false),
                Ok(count) => filled += count,
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    /// The next packet; nothing if the client has closed the connection. A file may be open for as long as its client wishes, as
    /// far as nobody else wants its place.
    pub(super) fn packet(&self) -> Result<Option<Packet>, Ended> {
        let mut stream = self.stream;
        let mut bytes = [0; PACKET_BYTES];
        let mut silence = Silence::begins();
        let filled = loop {
            match stream.read(&mut bytes) {
                Ok(0) => return Ok(None),
                Ok(count) => break count,
                Err(error) if is_passing(&error) => self.note_silence(&mut silence),
                Err(error) => return Err(error.into()),
            }
        };
        self.note_end_of(&mut silence);
        self.read_exact(&mut bytes[filled..])?;
        let packet = Packet::from_bytes(&bytes)?;
        match packet.is_answer {
            true => Err(Ended::Nonsense("an answer where requests are expected")),
            false => Ok(Some(packet)),
        }
    }

    fn read_exact(mut self, bytes: &mut [u8]) -> io::Result<()> {
        Read::read_exact(&mut self, bytes)
    }

    /// Encrypted data, whose length was looked at before.
    pub(super) fn payload(&self, length: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        self.fill(&mut [IoSliceMut::new(&mut bytes)])?;
        Ok(bytes)
    }

    /// Data of a request, all of them.
    pub(super) fn fill(&self, slices: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        receive_into(self.stream, slices, |much, slices| {
            self.patiently(|| much.receive(slices, LOOK_EVERY))
        })
    }

    /// The rest of what was begun, which has to come soon.
    fn patiently(&self, mut receive: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
        let mut silence = Silence::begins();
        loop {
            match receive() {
                Err(error) if is_passing(&error) => {
                    if silence.since.elapsed() >= SILENCE {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    // One that stops within a request makes room for others like one that stops before it.
                    self.note_silence(&mut silence);
                }
                outcome => {
                    self.note_end_of(&mut silence);
                    return outcome;
                }
            }
        }
    }

    /// Throws so many bytes away.
    pub(super) fn skip(self, length: u64) -> io::Result<()> {
        match io::copy(&mut self.take(length), &mut io::sink())? {
            skipped if skipped == length => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// The rest of what was begun.
impl Read for Incoming<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut stream = self.stream;
        self.patiently(|| stream.read(into))
    }
}

/// Whether it is no error that nothing has come.
pub(crate) fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
}

/// Fills all of it, by what `receive` gets of what is to come.
pub(crate) fn receive_into(
    stream: &TcpStream,
    mut slices: &mut [IoSliceMut<'_>],
    mut receive: impl FnMut(&mut Much<'_>, &mut [IoSliceMut<'_>]) -> io::Result<usize>,
) -> io::Result<()> {
    let mut left: usize = slices.iter().map(|slice| slice.len()).sum();
    let mut much = Much::new(stream, left);
    while left > 0 {
        match receive(&mut much, slices) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                left -= count;
                IoSliceMut::advance_slices(&mut slices, count);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
