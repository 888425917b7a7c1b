//! A connection: one open file from its first packet to its last.

use std::io::{self, Read};
use std::net::{Shutdown, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use nasd_capability::{CoveredData, Nonce, Way};
use nasd_protocol::Status;
use nasd_protocol::bulk::{Fields, Kind, Open, Options, PACKET_BYTES, Packet, PacketError, shown};
use nasd_transport::ThreadScope;
use nasd_types::{ByteRange, Protection};
use thiserror::Error;

use super::ahead::Ahead;
use super::hands::Hands;
use super::incoming::{Incoming, SILENCE, Watcher};
use super::reply::Sender;
use super::sessions::{Begun, Sessions};
use super::{Backend, Block, Facts, Permit, Refused, Request, Room, Traits};
use crate::guess::{Guess, within};

/// Requests in a row that may be refused: rights are taken away while many are under way.
const MOST_REFUSALS: u32 = 1024;

/// From so many bytes on a write is done by another thread, whoever waits: while a medium takes it the next
/// one can be received.
const LONG_WRITE_BYTES: u64 = 256 << 10;

/// So much of a file is told to be read soon at its open, while the first of it is read.
const EXPECTED_BYTES: u64 = 4 << 20;

/// Why a connection has ended, other than by its client's wish.
#[derive(Debug, Error)]
pub enum Ended {
    /// The connection was lost.
    #[error("the connection was lost: {0}")]
    Lost(#[from] io::Error),
    /// What came is not of the protocol.
    #[error("the client does not keep to the protocol: {0}")]
    Protocol(#[from] PacketError),
    /// The same, in words.
    #[error("the client does not keep to the protocol: {0}")]
    Nonsense(&'static str),
    /// Its client has made another one while this one waited to begin.
    #[error("another connection of its session has come in its place")]
    Replaced,
}

/// Serves a connection until its client has closed it. `watcher` is told how it is used. Of `socket` a clone is kept meanwhile,
/// which is to be no other descriptor.
///
/// # Errors
///
/// [`Ended`], to be logged: the client sees a closed connection.
pub fn serve<B: Backend, S: AsRef<TcpStream> + Clone + Send + 'static>(
    backend: &B,
    sessions: &Sessions,
    socket: &S,
    watcher: &dyn Watcher,
) -> Result<(), Ended> {
    let stream = socket.as_ref();
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(SILENCE))?;
    let under_way = AtomicUsize::new(0);
    let incoming = Incoming { stream, watcher, under_way: &under_way };
    let Some((packet, payload)) = incoming.open()? else {
        return Ok(());
    };
    let Ok(open) = Open::from_bytes(&payload) else {
        return Err(Ended::Nonsense("lengths in an open do not fit"));
    };
    let sender = Sender::new(stream);
    let request = Request { packet: &packet, shown: &payload };
    let (permit, opened) = match backend.open(&request, &open) {
        Ok(opened) => opened,
        Err(refused) => return Ok(sender.refuse(&packet, refused)?),
    };
    if permit.keys.is_some() {
        watcher.is_proved();
    }
    let options = Options::from_bits(permit.fields.options);
    let traits = backend.traits();
    let mut found = match options {
        Some(_) => opened.and_then(|file| Ok((backend.stat(&file)?, file))),
        None => Err(Status::BadArgument),
    };
    let identity = found.as_ref().map_or(0, |(_, file)| backend.identity(file));
    // Until nothing is done any more for the connection that this one takes the place of.
    let name = if found.is_ok() { permit.fields.offset } else { 0 };
    let _session = match sessions.begin((name, identity), Box::new(socket.clone())) {
        Begun::Now(session) => session,
        Begun::TooSoon => {
            found = Err(Status::Busy);
            None
        }
        Begun::Never => return Err(Ended::Replaced),
    };
    let nonce = backend.nonce();
    let told = found.as_ref().map(|(facts, _)| *facts).map_err(|status| *status);
    let answer = |sender: &Sender<'_>| {
        answer_open((backend, sender), (&packet, &permit), (nonce, identity), told)
    };
    let (Ok((facts, file)), Some(options)) = (found, options) else {
        return Ok(answer(&sender)?);
    };
    let connection = Connection {
        backend,
        incoming,
        shown: shown(open.credential, &nonce),
        file,
        traits,
        options,
        sender,
        ahead: Ahead::new(sessions.reads()),
        hands: Hands::new(sessions.hands()),
    };
    let (guessing, first) = Guessing::at_open((traits, options), permit.fields.length, facts);
    connection.run(guessing, &first, answer)
}

/// Tells how the file is, or why it can't be opened.
fn answer_open<B: Backend>(
    (backend, sender): (&B, &Sender<'_>),
    (packet, permit): (&Packet, &Permit<B::Grant>),
    (nonce, identity): (Nonce, u64),
    told: Result<Facts, Status>,
) -> io::Result<()> {
    backend.note(permit, told.map(|_| 0));
    let Traits { instance, most, .. } = backend.traits();
    let mut fields = fields(permit, instance, told, identity);
    if let Ok(facts) = told {
        fields.options = facts.alignment;
        fields.most = most;
    }
    sender.answer(packet, permit, nonce, &fields, None)
}

/// What an answer says.
fn fields<G>(permit: &Permit<G>, instance: u64, told: Result<Facts, Status>, done: u64) -> Fields {
    let fields = Fields { offset: permit.fields.offset, instance, ..Fields::default() };
    match told {
        Ok(Facts { size, time, .. }) => Fields { length: done, size, time: time.0, ..fields },
        Err(status) => Fields { status: u64::from(u32::from(status)), ..fields },
    }
}

/// What is guessed of the reads of a connection.
struct Guessing {
    guess: Guess,
    /// The client has said that there is nothing to guess.
    is_random: bool,
    /// The file's length, as far as is known.
    size: u64,
}

impl Guessing {
    /// Of a file of that size, and what will be read first, in blocks of which the client has told the length.
    fn at_open(
        (traits, options): (Traits, Options),
        block: u64,
        Facts { size, alignment, .. }: Facts,
    ) -> (Guessing, Vec<ByteRange>) {
        let mut guess = Guess::new(traits.ahead_bytes);
        let is_random = options.contains(Options::RANDOM);
        let will_read = options.contains(Options::READ) && !is_random;
        let is_possible = block <= traits.most && block.is_multiple_of(alignment.max(1));
        let first = match will_read && is_possible {
            true => guess.at_open(block, size),
            false => Vec::new(),
        };
        (Guessing { guess, is_random, size }, first)
    }

    fn after(&mut self, read: ByteRange) -> Vec<ByteRange> {
        if self.is_random { Vec::new() } else { self.guess.after(read, self.size) }
    }
}

/// What all threads of a connection share.
struct Connection<'a, B: Backend> {
    backend: &'a B,
    incoming: Incoming<'a>,
    /// What requests show besides themselves.
    shown: Vec<u8>,
    file: B::File,
    traits: Traits,
    /// How it was opened.
    options: Options,
    sender: Sender<'a>,
    ahead: Ahead<'a, B::Block>,
    hands: Hands<'a, Job<B>>,
}

/// What the receiving thread leaves to others.
enum Job<B: Backend> {
    /// To read ahead what is wanted next.
    Ahead,
    /// To have the back end expect that this will be read.
    Expect(ByteRange),
    Read(Asked<B>),
    Write(Asked<B>, B::Room),
}

impl<B: Backend> Job<B> {
    /// Whether handing it over is little beside doing it.
    fn takes_long(&self) -> bool {
        matches!(self, Job::Write(asked, _) if asked.permit.fields.length >= LONG_WRITE_BYTES)
    }
}

/// Nothing more is read ahead from when this is dropped on, also by a panic.
struct Ending<'a, D>(&'a Ahead<'a, D>);

impl<D> Drop for Ending<'_, D> {
    fn drop(&mut self) {
        self.0.plan(&[]);
    }
}

/// A request that was permitted.
struct Asked<B: Backend> {
    packet: Packet,
    permit: Permit<B::Grant>,
}

impl<B: Backend> Asked<B> {
    fn range(&self) -> ByteRange {
        ByteRange::new(self.permit.fields.offset, self.permit.fields.length)
    }
}

/// Whether a block has all that a range has in common with the file: it was cut where that was thought to end.
fn has_all(block: &impl Block, range: ByteRange) -> bool {
    let there = within(range, block.facts().size).map_or(0, |there| there.length);
    block.slices().iter().map(|slice| slice.len() as u64).sum::<u64>() == there
}

impl<B: Backend> Connection<'_, B> {
    /// Begins to read ahead what will be read first, answers the open, and serves all requests.
    fn run(
        &self,
        mut guessing: Guessing,
        first: &[ByteRange],
        answer: impl FnOnce(&Sender<'_>) -> io::Result<()>,
    ) -> Result<(), Ended> {
        self.hands.threads().scope(|scope| {
            let _ending = Ending(&self.ahead);
            let is_begun = self.plan(scope, first);
            answer(&self.sender)?;
            if let ([_, second, ..], true) = (first, is_begun) {
                let soon = ByteRange::new(second.offset, EXPECTED_BYTES);
                // Where there is nobody for it each block is found when it is read.
                drop(self.give(scope, Job::Expect(soon)));
            }
            self.receive_all(scope, &mut guessing)
        })
    }

    fn receive_all<'s, 'e>(
        &'s self,
        scope: &'s ThreadScope<'s, 'e>,
        guessing: &mut Guessing,
    ) -> Result<(), Ended> {
        let mut refused_in_a_row = 0;
        while let Some(packet) = self.incoming.packet()? {
            let request = Request { packet: &packet, shown: &self.shown };
            let permit = match self.backend.permit(&self.file, &request) {
                Ok(permit) => permit,
                Err(refused) => {
                    refused_in_a_row += 1;
                    if refused_in_a_row > MOST_REFUSALS {
                        return Err(Ended::Nonsense("too many requests in a row were refused"));
                    }
                    self.skip(&packet)?;
                    self.sender.refuse(&packet, refused)?;
                    continue;
                }
            };
            refused_in_a_row = 0;
            let asked = Asked { packet, permit };
            if !self.is_open_for(asked.packet.kind) {
                self.skip(&asked.packet)?;
                self.fail(&asked, Status::BadArgument)?;
                continue;
            }
            match asked.packet.kind {
                Kind::Open => return Err(Ended::Nonsense("a connection is one open file")),
                Kind::Read => self.take_read(scope, guessing, asked)?,
                Kind::Write => self.take_write(scope, asked)?,
                Kind::Stat | Kind::Resize | Kind::Sync => self.do_plain(guessing, &asked)?,
            }
        }
        Ok(())
    }

    /// Whether the file was opened for that.
    fn is_open_for(&self, kind: Kind) -> bool {
        match kind {
            Kind::Read => self.options.contains(Options::READ),
            Kind::Write | Kind::Resize => self.options.contains(Options::WRITE),
            Kind::Open | Kind::Stat | Kind::Sync => true,
        }
    }

    /// Throws away the data of a request that is not done.
    fn skip(&self, packet: &Packet) -> Result<(), Ended> {
        if packet.payload > self.traits.most {
            return Err(Ended::Nonsense("more data than one write may have"));
        }
        Ok(self.incoming.skip(packet.payload)?)
    }

    /// Has these read ahead, and no others, by as many as can do something; whether anybody began to.
    fn plan<'s, 'e>(&'s self, scope: &'s ThreadScope<'s, 'e>, wanted: &[ByteRange]) -> bool {
        // What nobody reads ahead is read when it is asked for.
        let may_begin = 0..self.ahead.plan(wanted);
        may_begin.take_while(|_| self.give(scope, Job::Ahead).is_none()).count() > 0
    }

    /// Has a job done by another thread, at once; gives it back where there is none for it.
    fn give<'s, 'e>(&'s self, scope: &'s ThreadScope<'s, 'e>, job: Job<B>) -> Option<Job<B>> {
        let Some(hand) = self.hands.one_more() else {
            return Some(job);
        };
        self.hands.begin(job);
        let work = || self.hands.work(hand, |job| self.do_job(job));
        match scope.run(work) {
            Ok(()) => None,
            Err(error) => {
                tracing::debug!(%error, "no thread beside the one that receives");
                self.hands.take_back()
            }
        }
    }

    /// The same if the client has others done meanwhile, or the next one has come already or is likely to before this one is
    /// done; otherwise does it here.
    fn give_or_do<'s, 'e>(
        &'s self,
        scope: &'s ThreadScope<'s, 'e>,
        job: Job<B>,
    ) -> Result<(), Ended> {
        let waiting = || rustix::io::ioctl_fionread(self.incoming.stream).unwrap_or(0);
        let under_way = self.incoming.under_way;
        // Before anybody could be done with it.
        let is_one_of_several = under_way.fetch_add(1, Ordering::AcqRel) > 0;
        let is_next_near = || is_one_of_several || waiting() >= PACKET_BYTES as u64;
        let left = match job.takes_long() || is_next_near() {
            true => self.give(scope, job),
            false => Some(job),
        };
        let Some(job) = left else { return Ok(()) };
        under_way.fetch_sub(1, Ordering::AcqRel);
        Ok(self.try_job(job)?)
    }

    fn do_job(&self, job: Job<B>) {
        let is_asked = matches!(job, Job::Read(_) | Job::Write(..));
        let done = catch_unwind(AssertUnwindSafe(|| self.try_job(job)));
        if is_asked {
            self.incoming.under_way.fetch_sub(1, Ordering::AcqRel);
        }
        // What can't be answered ends the connection: the client asks again on another.
        if !matches!(done, Ok(Ok(()))) {
            self.incoming.stream.shutdown(Shutdown::Both).ok();
        }
    }

    fn try_job(&self, job: Job<B>) -> io::Result<()> {
        match job {
            Job::Ahead => {
                self.read_ahead();
                Ok(())
            }
            Job::Expect(range) => {
                self.backend.expect(&self.file, range);
                Ok(())
            }
            Job::Read(asked) => self.read(&asked),
            Job::Write(asked, room) => self.write(&asked, room),
        }
    }

    fn read_ahead(&self) {
        while let Some(begun) = self.ahead.begin() {
            let read = || self.backend.ahead(&self.file, begun.range);
            // Who waits for it must hear of it in any case.
            let read = catch_unwind(AssertUnwindSafe(read));
            self.ahead.finish(begun, read.unwrap_or(None));
        }
    }

    fn take_read<'s, 'e>(
        &'s self,
        scope: &'s ThreadScope<'s, 'e>,
        guessing: &mut Guessing,
        asked: Asked<B>,
    ) -> Result<(), Ended> {
        let range = asked.range();
        if asked.packet.payload != 0 {
            return Err(Ended::Nonsense("data where there are none to be"));
        }
        if range.length > self.traits.most {
            return Ok(self.fail(&asked, Status::TooLarge)?);
        }
        // Whoever asks for more than there is, or for the rest, asks for the same.
        let known = within(range, guessing.size).unwrap_or(range);
        let there = self.ahead.take(&known);
        self.plan(scope, &guessing.after(range));
        let there = there.filter(|block| has_all(block, range));
        let there = there.filter(|block| self.backend.is_current(&self.file, block));
        if let Some(block) = there {
            guessing.size = block.facts().size;
            return Ok(self.answer_read(&asked, Ok(block))?);
        }
        self.give_or_do(scope, Job::Read(asked))
    }

    fn read(&self, asked: &Asked<B>) -> io::Result<()> {
        let read = self.backend.read(&self.file, asked.range());
        self.answer_read(asked, read)
    }

    fn answer_read(&self, asked: &Asked<B>, read: Result<B::Block, Status>) -> io::Result<()> {
        if let Err(refused) = self.permit_again(asked) {
            return self.sender.refuse(&asked.packet, refused);
        }
        let Asked { packet, permit } = asked;
        let block = match read {
            Ok(block) => block,
            Err(status) => return self.fail(asked, status),
        };
        let slices = block.slices();
        let length = slices.iter().map(|slice| slice.len() as u64).sum();
        self.backend.note(permit, Ok(length));
        let fields = self.fields(permit, Ok(block.facts()), length);
        self.sender.answer(packet, permit, self.backend.nonce(), &fields, Some(&slices))
    }

    fn permit_again(&self, asked: &Asked<B>) -> Result<(), Refused> {
        let request = Request { packet: &asked.packet, shown: &self.shown };
        self.backend.permit_again(&self.file, &asked.permit, &request)
    }

    fn take_write<'s, 'e>(
        &'s self,
        scope: &'s ThreadScope<'s, 'e>,
        asked: Asked<B>,
    ) -> Result<(), Ended> {
        let range = asked.range();
        if range.length != asked.packet.payload {
            return Err(Ended::Nonsense("a write brings as many bytes as it says"));
        }
        if range.length > self.traits.most {
            return Err(Ended::Nonsense("more data than one write may have"));
        }
        let mut room = match self.backend.room(&self.file, range) {
            Ok(room) => room,
            Err(status) => {
                self.skip(&asked.packet)?;
                return Ok(self.fail(&asked, status)?);
            }
        };
        if !self.receive_data(&asked, &mut room)? {
            return Err(Ended::Nonsense("data are not those that were announced"));
        }
        self.give_or_do(scope, Job::Write(asked, room))
    }

    /// Receives the data of a write, and decrypts them; whether they are what the digest covers.
    fn receive_data(&self, asked: &Asked<B>, room: &mut B::Room) -> io::Result<bool> {
        let Asked { packet, permit } = asked;
        let covers = permit.protection.contains(Protection::INTEGRITY_DATA);
        let is_private = permit.protection.contains(Protection::PRIVACY_DATA);
        let keys = match &permit.keys {
            Some(keys) if is_private => {
                let mut sealed = self.incoming.payload(packet.payload)?;
                if keys.open_data(Way::Request, &packet.nonce, &packet.tag, &mut sealed).is_err() {
                    return Ok(false);
                }
                let mut rest = &sealed[..];
                for mut slice in room.slices() {
                    rest.read_exact(&mut slice)?;
                }
                return Ok(true);
            }
            keys => keys.as_ref().filter(|_| covers),
        };
        self.incoming.fill(&mut room.slices())?;
        let Some(keys) = keys else {
            return Ok(true);
        };
        let slices = room.slices();
        let slices: Vec<&[u8]> = slices.iter().map(|slice| &**slice).collect();
        let CoveredData { tag, .. } = keys.data(Way::Request, &packet.nonce, &slices);
        Ok(tag == packet.tag)
    }

    fn write(&self, asked: &Asked<B>, room: B::Room) -> io::Result<()> {
        if let Err(refused) = self.permit_again(asked) {
            return self.sender.refuse(&asked.packet, refused);
        }
        let Asked { packet, permit } = asked;
        let range = asked.range();
        let options = Options::from_bits_retain(permit.fields.options);
        let how = (room, options.contains(Options::DURABLE));
        let told = self.backend.write(&self.file, &permit.grant, range, how);
        self.backend.note(permit, told.map(|_| range.length));
        let fields = self.fields(permit, told, range.length);
        self.sender.answer(packet, permit, self.backend.nonce(), &fields, None)
    }

    /// What brings no data, in either direction.
    fn do_plain(&self, guessing: &mut Guessing, asked: &Asked<B>) -> Result<(), Ended> {
        let Asked { packet, permit } = asked;
        if packet.payload != 0 {
            return Err(Ended::Nonsense("data where there are none to be"));
        }
        let told = match packet.kind {
            Kind::Resize => self.backend.resize(&self.file, &permit.grant, permit.fields.length),
            Kind::Sync => self.backend.sync(&self.file, &permit.grant),
            _ => self.backend.stat(&self.file),
        };
        if let Ok(facts) = told {
            guessing.size = facts.size;
        }
        self.backend.note(permit, told.map(|_| 0));
        let fields = self.fields(permit, told, 0);
        Ok(self.sender.answer(packet, permit, self.backend.nonce(), &fields, None)?)
    }

    fn fail(&self, asked: &Asked<B>, status: Status) -> io::Result<()> {
        let Asked { packet, permit } = asked;
        self.backend.note(permit, Err(status));
        let fields = self.fields(permit, Err(status), 0);
        self.sender.answer(packet, permit, self.backend.nonce(), &fields, None)
    }

    fn fields(&self, permit: &Permit<B::Grant>, told: Result<Facts, Status>, done: u64) -> Fields {
        fields(permit, self.traits.instance, told, done)
    }
}

#[cfg(test)]
mod tests {
    use nasd_types::Timestamp;

    use super::*;

    #[test]
    fn blocks_that_can_not_be_read_are_not_read_ahead() {
        const MOST: u64 = 1 << 20;
        let traits = Traits { instance: 1, most: MOST, ahead_bytes: 4 * MOST };
        let facts = Facts { size: 8 * MOST, time: Timestamp(1), alignment: 512 };
        let first = |options, block| Guessing::at_open((traits, options), block, facts).1;
        for (options, block, is_read) in [
            (Options::READ, 4096, true),
            (Options::READ, MOST, true),
            (Options::READ, 0, false),
            (Options::READ, 4096 + 1, false),
            (Options::READ, 256, false),
            (Options::READ, MOST + 512, false),
            (Options::READ | Options::RANDOM, 4096, false),
            (Options::WRITE, 4096, false),
        ] {
            let ranges = first(options, block);
            assert_eq!(!ranges.is_empty(), is_read, "{options:?} {block}");
            let is_right =
                |(number, range): (u64, ByteRange)| range == ByteRange::new(number * block, block);
            assert!((0..).zip(ranges).all(is_right), "{options:?} {block}");
        }
    }
}
