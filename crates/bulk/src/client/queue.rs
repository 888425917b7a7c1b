//! Many transfers under way on one connection.

use std::collections::VecDeque;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use nasd_protocol::Status;
use nasd_protocol::bulk::{Fields, Kind, Options, Packet};

use super::connection::{Answered, Clock, Connection, Sent, Told, random};
use super::error::Failure;
use super::{BulkError, Opening};

/// Most transfers under way: their requests fit into what a socket holds, so that nobody waits to send them while the
/// other end waits to be received from.
const MOST_UNDER_WAY: usize = 64;

/// How often one request is sent again at once because of its nonce.
const MOST_NONCES: u32 = 4;

/// Pause before a lost connection is tried again: at first, and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// Longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A transfer that has ended.
#[derive(Debug)]
pub struct Completed<B> {
    /// Where in the file.
    pub offset: u64,
    /// What it was done with.
    pub buffer: B,
    /// How many bytes were read or written; of a read, fewer than there is room for only at the end of the file.
    pub outcome: Result<usize, BulkError>,
}

/// Transfers of one open file, any number of which may be under way. They may be done in any order: who needs an order waits
/// for one before he begins the next. Dropping it drops those that are under way.
pub struct Queue<'f, B> {
    opening: &'f Opening,
    connection: Option<Connection>,
    /// That of the connection, and of those that take its place.
    session: u64,
    /// The server's, as far as it was known when the last connection was lost.
    clock: Clock,
    under_way: VecDeque<Transfer<B>>,
    completed: VecDeque<Completed<B>>,
    /// Something was written since the last sync that is not known to be durable, while the server ran as this instance.
    written_to: Option<u64>,
    told: Option<Told>,
}

/// A session, and its connection unless that was lost: who goes on in it needs not fear what was sent on that.
pub(super) struct Seat {
    session: u64,
    connection: Option<Connection>,
}

impl Seat {
    pub(super) fn new() -> Seat {
        Seat { session: random().max(1), connection: None }
    }
}

struct Transfer<B> {
    kind: Kind,
    offset: u64,
    buffer: B,
    length: usize,
    /// The last time that it was asked for.
    sent: Option<Sent>,
    nonces: u32,
}

/// How long it is tried.
struct Tries {
    begun: Instant,
    pause: Duration,
}

impl Tries {
    fn new() -> Tries {
        Tries { begun: Instant::now(), pause: PAUSES.0 }
    }

    /// Waits until it is time for another try; false if patience is over before.
    fn wait(&mut self, patience: Duration) -> bool {
        if self.begun.elapsed() + self.pause >= patience {
            return false;
        }
        thread::sleep(self.pause);
        self.pause = (2 * self.pause).min(PAUSES.1);
        true
    }
}

impl<'f, B: AsRef<[u8]> + AsMut<[u8]>> Queue<'f, B> {
    pub(super) fn new(opening: &'f Opening) -> Queue<'f, B> {
        Queue {
            opening,
            connection: None,
            session: random().max(1),
            clock: Clock::known(opening.clock_ahead_ns),
            under_way: VecDeque::new(),
            completed: VecDeque::new(),
            written_to: None,
            told: None,
        }
    }

    /// In a seat that is there, for a file that is known.
    pub(super) fn with(opening: &'f Opening, told: Told, seat: Seat) -> Queue<'f, B> {
        let Seat { session, connection } = seat;
        Queue { connection, session, told: Some(told), ..Queue::new(opening) }
    }

    /// The seat, for others, when nothing more is asked for here.
    pub(super) fn take_seat(&mut self) -> Seat {
        let connection = self.connection.take().filter(|_| self.under_way.is_empty());
        Seat { session: self.session, connection }
    }

    /// As which instance the server ran when something was written that is not known to be durable.
    pub(super) fn written_to(&self) -> Option<u64> {
        self.written_to
    }

    /// Transfers that are under way.
    pub fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// Begins to read into all of a buffer.
    pub fn read(&mut self, offset: u64, buffer: B) {
        self.begin(Kind::Read, offset, buffer);
    }

    /// Begins to write all of a buffer.
    pub fn write(&mut self, offset: u64, buffer: B) {
        // Who sends a lot while he is sent a lot may wait for whoever waits for him.
        self.settle(0, Kind::Read);
        self.begin(Kind::Write, offset, buffer);
    }

    fn begin(&mut self, kind: Kind, offset: u64, buffer: B) {
        self.settle(MOST_UNDER_WAY - 1, kind);
        let length = buffer.as_ref().len();
        let transfer = Transfer { kind, offset, buffer, length, sent: None, nonces: 0 };
        self.under_way.push_back(transfer);
        // If that fails it is found out by whoever waits.
        self.send_unsent().ok();
    }

    /// Waits until no more than so many are under way, or of reads none.
    fn settle(&mut self, most: usize, kind: Kind) {
        let are_too_many = |queue: &Self| match (most, kind) {
            (0, kind) => queue.under_way.iter().any(|transfer| transfer.kind == kind),
            (most, _) => queue.under_way.len() > most,
        };
        while are_too_many(self) {
            let Some(completed) = self.complete() else { return };
            self.completed.push_back(completed);
        }
    }

    /// Waits for the next transfer that ends; nothing if none is under way.
    pub fn wait(&mut self) -> Option<Completed<B>> {
        self.completed.pop_front().or_else(|| self.complete())
    }

    /// Waits for one.
    fn complete(&mut self) -> Option<Completed<B>> {
        let mut tries = Tries::new();
        loop {
            if self.under_way.is_empty() {
                return None;
            }
            let failure = match self.send_unsent().and_then(|()| self.receive(&tries)) {
                Ok(Some(completed)) => return Some(completed),
                Ok(None) => continue,
                Err(failure) => failure,
            };
            let error = match self.go_on_after(failure, &mut tries) {
                Ok(()) => continue,
                Err(error) => error,
            };
            // What the others fail with they find out themselves.
            let Transfer { offset, buffer, .. } = self.under_way.pop_front()?;
            return Some(Completed { offset, buffer, outcome: Err(error) });
        }
    }

    /// Sends what was not sent on this connection, which is made if there is none.
    fn send_unsent(&mut self) -> Result<(), Failure> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            None => {
                let timeout = self.opening.patience.min(CONNECT_TIMEOUT);
                let connection =
                    Connection::open(self.opening, (self.session, self.clock), timeout)?;
                let before = self.told.replace(connection.told);
                if before.is_some_and(|before| before.identity != connection.told.identity) {
                    self.told = before;
                    return Err(BulkError::Replaced { server: self.opening.address.clone() }.into());
                }
                self.connection.insert(connection)
            }
        };
        for transfer in self.under_way.iter_mut().filter(|transfer| transfer.sent.is_none()) {
            let length = transfer.length as u64;
            let mut fields = Fields { offset: transfer.offset, length, ..Fields::default() };
            let sent = match transfer.kind {
                Kind::Write => {
                    let durable = self.opening.durable.then_some(Options::DURABLE);
                    fields.options = durable.unwrap_or_default().bits();
                    connection.ask_to_write(&fields, transfer.buffer.as_ref())?
                }
                kind => connection.ask(kind, &fields)?,
            };
            transfer.sent = Some(sent);
        }
        Ok(())
    }

    /// Receives an answer; nothing if what it is to has to be asked for again.
    fn receive(&mut self, tries: &Tries) -> Result<Option<Completed<B>>, Failure> {
        let server = &self.opening.address;
        let Some(connection) = &mut self.connection else {
            return Err(Failure::Lost(io::ErrorKind::NotConnected.into()));
        };
        let packet = connection.receive_packet()?;
        let is_it = |transfer: &Transfer<B>| {
            transfer.kind == packet.kind
                && transfer.sent.is_some_and(|sent| sent.number == packet.number)
        };
        let Some(at) = self.under_way.iter().position(is_it) else {
            return Err(Failure::protocol(server, "an answer to nothing"));
        };
        let transfer = &mut self.under_way[at];
        let Some(sent) = transfer.sent else {
            return Err(Failure::protocol(server, "an answer to nothing"));
        };
        let into = match transfer.kind {
            Kind::Read => transfer.buffer.as_mut(),
            _ => &mut [],
        };
        let answered = connection.conclude(&packet, &sent, into)?;
        let outcome = match answered {
            Answered::Refused(status) if transfer.may_try_again(status) => {
                // Anybody may have refused a write that the server is yet to get: on another connection it does not.
                return match transfer.kind {
                    Kind::Write => Err(Failure::Lost(io::Error::other(status))),
                    _ => Ok(None),
                };
            }
            // The pause is short, as answers to others wait meanwhile.
            Answered::Failed(Status::Busy) if tries.begun.elapsed() < self.opening.patience => {
                transfer.sent = None;
                thread::sleep(PAUSES.0);
                return Ok(None);
            }
            Answered::Refused(status) => Err(BulkError::Refused { server: server.clone(), status }),
            Answered::Failed(status) => Err(BulkError::Failed { server: server.clone(), status }),
            Answered::Done(fields) => match transfer.length_of(&packet, &fields) {
                Some(length) => Ok((length, fields)),
                None => return Err(Failure::protocol(server, "an answer that is too short")),
            },
        };
        let may_be_lost = transfer.kind == Kind::Write && !self.opening.durable;
        if let (true, Ok((_, fields))) = (may_be_lost, &outcome) {
            self.written_to.get_or_insert(fields.instance);
        }
        if let (Some(told), Ok((_, fields))) = (&mut self.told, &outcome) {
            told.size = fields.size;
        }
        let transfer = self.under_way.remove(at);
        let done = |Transfer { offset, buffer, .. }| Completed {
            offset,
            buffer,
            outcome: outcome.map(|(length, _)| length),
        };
        Ok(transfer.map(done))
    }

    fn drop_connection(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.clock = connection.clock();
        }
    }

    /// After a failed try: whether there is another one, on another connection.
    fn go_on_after(&mut self, failure: Failure, tries: &mut Tries) -> Result<(), BulkError> {
        self.drop_connection();
        self.under_way.iter_mut().for_each(|transfer| transfer.sent = None);
        let server = self.opening.address.clone();
        tracing::debug!(server, ?failure, "a connection came to nothing");
        let taken = tries.begun.elapsed();
        let error = match failure {
            Failure::Final(error) => return Err(error),
            Failure::Lost(last) => BulkError::Unreachable { server, taken, last },
            Failure::Later(error) => error,
        };
        if tries.wait(self.opening.patience) { Ok(()) } else { Err(error) }
    }

    /// What is known of the file: it is opened for that if need be.
    pub(super) fn told(&mut self) -> Result<Told, BulkError> {
        let mut tries = Tries::new();
        loop {
            if let Some(told) = self.told {
                return Ok(told);
            }
            match self.send_unsent() {
                Ok(()) => {}
                Err(failure) => self.go_on_after(failure, &mut tries)?,
            }
        }
    }

    /// Asks for something besides data, when nothing is under way.
    pub(super) fn ask(&mut self, kind: Kind, fields: &Fields) -> Result<Fields, BulkError> {
        debug_assert!(self.under_way.is_empty(), "callers wait for what is under way");
        let (mut tries, mut nonces) = (Tries::new(), 0);
        loop {
            let failure = match self.try_to_ask(kind, fields) {
                Ok(Answered::Done(fields)) => return Ok(fields),
                Ok(Answered::Refused(status))
                    if status.needs_fresh_nonce() && nonces < MOST_NONCES =>
                {
                    nonces += 1;
                    // As of writes.
                    if kind == Kind::Resize {
                        self.drop_connection();
                    }
                    continue;
                }
                Ok(Answered::Refused(status)) => {
                    return Err(BulkError::Refused {
                        server: self.opening.address.clone(),
                        status,
                    });
                }
                Ok(Answered::Failed(Status::Busy)) if tries.wait(self.opening.patience) => continue,
                Ok(Answered::Failed(status)) => {
                    return Err(BulkError::Failed { server: self.opening.address.clone(), status });
                }
                Err(failure) => failure,
            };
            self.go_on_after(failure, &mut tries)?;
        }
    }

    fn try_to_ask(&mut self, kind: Kind, fields: &Fields) -> Result<Answered, Failure> {
        self.send_unsent()?;
        let Some(connection) = &mut self.connection else {
            return Err(Failure::Lost(io::ErrorKind::NotConnected.into()));
        };
        let sent = connection.ask(kind, fields)?;
        let packet = connection.receive_packet()?;
        match packet.number == sent.number && packet.kind == kind {
            true => connection.conclude(&packet, &sent, &mut []),
            false => Err(Failure::protocol(&self.opening.address, "an answer to nothing")),
        }
    }

    /// Makes durable what was written. Where it was durable when it was answered, nothing is asked.
    ///
    /// # Errors
    ///
    /// [`BulkError::MayBeLost`] if the server has started anew since something was written that was not durable. This is told
    /// once: all of it was written by who has this queue.
    pub fn sync(&mut self) -> Result<(), BulkError> {
        self.settle(0, Kind::Write);
        self.settle(0, Kind::Read);
        let Some(instance) = self.written_to.take() else {
            return Ok(());
        };
        let told = self.ask(Kind::Sync, &Fields::default());
        match told {
            Ok(fields) if fields.instance == instance => Ok(()),
            Ok(_) => Err(BulkError::MayBeLost { server: self.opening.address.clone() }),
            Err(error) => {
                self.written_to = Some(instance);
                Err(error)
            }
        }
    }
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> Transfer<B> {
    /// Whether it is to be asked for again, with a nonce that will do.
    fn may_try_again(&mut self, status: Status) -> bool {
        let may = status.needs_fresh_nonce() && self.nonces < MOST_NONCES;
        if may {
            self.nonces += 1;
            self.sent = None;
        }
        may
    }

    /// How many bytes were read or written, if that can be: a read is short only at the end of the file.
    fn length_of(&self, packet: &Packet, fields: &Fields) -> Option<usize> {
        let length = usize::try_from(fields.length).ok().filter(|length| *length <= self.length)?;
        let is_whole = match self.kind {
            Kind::Read => {
                packet.payload == fields.length
                    && (length == self.length || self.offset + fields.length >= fields.size)
            }
            _ => length == self.length,
        };
        is_whole.then_some(length)
    }
}
