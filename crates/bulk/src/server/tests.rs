//! Connections over a back end that does as it is told.

use std::io::{self, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use nasd_capability::{Capability, Nonce, SecretKey};
use nasd_client::Authority;
use nasd_protocol::bulk::{Asked, Fields, Kind, Open, Options, Packet};
use nasd_protocol::{CredentialKey, Status};
use nasd_types::{
    AuditId, ByteRange, DriveId, ObjectId, PartitionId, Protection, Rights, Timestamp,
};

use super::*;
use crate::client::{BulkError, BulkFile, Opening, StripedFile};

/// Bytes of the file, each of which is the number of its block.
const SIZE: u64 = 1 << 20;
const BLOCK: u64 = 4096;

/// Reads and writes from here on hang as long as the back end is told to.
const HANGS: u64 = SIZE / 2;

/// Long enough to see what does not happen.
const A_WHILE: Duration = Duration::from_millis(400);

#[derive(Default)]
struct Fake {
    hangs: Mutex<bool>,
    changed: Condvar,
    /// Transfers that are made now, and most that were at a time.
    under_way: AtomicUsize,
    most_under_way: AtomicUsize,
    opens: AtomicUsize,
    /// Where reads were begun, in their order.
    reads: Mutex<Vec<u64>>,
    /// What was expected, each of which hangs as long as the back end is told to.
    expected: Mutex<Vec<ByteRange>>,
    /// How long each transfer takes.
    takes: Duration,
    /// So many requests are not done, as there is too much to do.
    busy: AtomicUsize,
    /// How often it has started anew.
    starts: AtomicU64,
    /// Whether each write was to be durable.
    durable: Mutex<Vec<bool>>,
}

impl Fake {
    /// Whether there is too much to do for one more request.
    fn is_free(&self) -> Result<(), Status> {
        let less = |busy: usize| busy.checked_sub(1);
        match self.busy.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less) {
            Ok(_) => Err(Status::Busy),
            Err(_) => Ok(()),
        }
    }

    fn hang(&self, hangs: bool) {
        *self.hangs.lock().unwrap() = hangs;
        self.changed.notify_all();
    }

    fn wait_while_it_hangs(&self) {
        let hangs = self.hangs.lock().unwrap();
        drop(self.changed.wait_while(hangs, |hangs| *hangs).unwrap());
    }

    fn transfer(&self, range: ByteRange) {
        let under_way = self.under_way.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_under_way.fetch_max(under_way, Ordering::SeqCst);
        if range.offset >= HANGS {
            self.wait_while_it_hangs();
        }
        thread::sleep(self.takes);
        self.under_way.fetch_sub(1, Ordering::SeqCst);
    }

    fn facts() -> Facts {
        Facts { size: SIZE, time: Timestamp(1), alignment: 1 }
    }
}

struct Bytes(Vec<u8>);

impl Block for Bytes {
    fn slices(&self) -> Vec<&[u8]> {
        vec![&self.0]
    }

    fn facts(&self) -> Facts {
        Fake::facts()
    }
}

impl Room for Bytes {
    fn slices(&mut self) -> Vec<IoSliceMut<'_>> {
        vec![IoSliceMut::new(&mut self.0)]
    }
}

fn contents(range: ByteRange) -> Vec<u8> {
    let end = range.offset.saturating_add(range.length).min(SIZE);
    (range.offset.min(end)..end).map(|at| (at / BLOCK) as u8).collect()
}

impl Backend for Fake {
    type File = ();
    type Grant = ();
    type Block = Bytes;
    type Room = Bytes;

    fn traits(&self) -> Traits {
        let instance = 7 + self.starts.load(Ordering::SeqCst);
        Traits { instance, most: SIZE, ahead_bytes: 16 * BLOCK }
    }

    fn open(
        &self,
        request: &Request<'_>,
        _open: &Open<'_>,
    ) -> Result<(Permit<()>, Result<(), Status>), Refused> {
        self.opens.fetch_add(1, Ordering::SeqCst);
        Ok((self.permit(&(), request)?, Ok(())))
    }

    fn permit(&self, _file: &(), request: &Request<'_>) -> Result<Permit<()>, Refused> {
        Ok(Permit {
            fields: request.packet.fields(),
            asked: Asked { nonce: request.packet.nonce },
            protection: Protection::NONE,
            keys: None,
            grant: (),
        })
    }

    fn permit_again(
        &self,
        _file: &(),
        _permit: &Permit<()>,
        _request: &Request<'_>,
    ) -> Result<(), Refused> {
        Ok(())
    }

    fn nonce(&self) -> Nonce {
        Nonce { timestamp: Timestamp(1), unique: 1 }
    }

    fn note(&self, _permit: &Permit<()>, _outcome: Result<u64, Status>) {}

    fn stat(&self, _file: &()) -> Result<Facts, Status> {
        self.is_free()?;
        Ok(Fake::facts())
    }

    fn identity(&self, _file: &()) -> u64 {
        1
    }

    fn resize(&self, _file: &(), _grant: &(), _size: u64) -> Result<Facts, Status> {
        self.is_free()?;
        Ok(Fake::facts())
    }

    fn read(&self, _file: &(), range: ByteRange) -> Result<Bytes, Status> {
        self.is_free()?;
        self.reads.lock().unwrap().push(range.offset);
        self.transfer(range);
        Ok(Bytes(contents(range)))
    }

    fn expect(&self, _file: &(), range: ByteRange) {
        self.expected.lock().unwrap().push(range);
        self.wait_while_it_hangs();
    }

    fn is_current(&self, _file: &(), _block: &Bytes) -> bool {
        true
    }

    fn room(&self, _file: &(), range: ByteRange) -> Result<Bytes, Status> {
        Ok(Bytes(vec![0; range.length as usize]))
    }

    fn write(
        &self,
        _file: &(),
        _grant: &(),
        range: ByteRange,
        (room, durable): (Bytes, bool),
    ) -> Result<Facts, Status> {
        self.transfer(range);
        self.durable.lock().unwrap().push(durable);
        assert!(room.0 == contents(range), "what is written is what is there");
        Ok(Fake::facts())
    }

    fn sync(&self, _file: &(), _grant: &()) -> Result<Facts, Status> {
        self.is_free()?;
        Ok(Fake::facts())
    }
}

/// What a watcher was told.
#[derive(Default)]
struct Watched(Mutex<Vec<Duration>>);

impl Watcher for Watched {
    fn is_proved(&self) {}

    fn rests(&self, since: Duration) {
        self.0.lock().unwrap().push(since);
    }
}

impl Watched {
    /// What it is told during something, and what that comes to.
    fn during<T>(&self, work: impl FnOnce() -> T) -> (Vec<Duration>, T) {
        self.0.lock().unwrap().clear();
        let done = work();
        (self.0.lock().unwrap().clone(), done)
    }
}

/// What a server of such connections has.
struct Rig {
    watched: Arc<Watched>,
    fake: Arc<Fake>,
    sessions: Arc<Sessions>,
    address: SocketAddr,
    /// The server's ends of the connections.
    sockets: Arc<Mutex<Vec<Arc<TcpStream>>>>,
}

impl Rig {
    fn new(fake: Fake, sessions: Sessions) -> Rig {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (fake, sessions, sockets) = (Arc::new(fake), Arc::new(sessions), Arc::default());
        let watched = Arc::new(Watched::default());
        let rig = Rig {
            watched: Arc::clone(&watched),
            fake: Arc::clone(&fake),
            sessions: Arc::clone(&sessions),
            address,
            sockets: Arc::clone(&sockets),
        };
        thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = Arc::new(stream.unwrap());
                sockets.lock().unwrap().push(Arc::clone(&stream));
                let (fake, sessions) = (Arc::clone(&fake), Arc::clone(&sessions));
                let watched = Arc::clone(&watched);
                thread::spawn(move || {
                    serve(&*fake, &sessions, &stream, &*watched).ok();
                    stream.shutdown(Shutdown::Both).ok();
                });
            }
        });
        rig
    }

    /// A connection that has asked to be a session's.
    fn asks(&self, session: u64) -> Client {
        self.asks_to_read_blocks(session, 0)
    }

    /// One that says besides how long its reads will be.
    fn asks_to_read_blocks(&self, session: u64, length: u64) -> Client {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let payload = Open { credential: &[], place: &[] }.to_bytes();
        let options = (Options::READ | Options::WRITE).bits();
        let fields = Fields { offset: session, length, options, ..Fields::default() };
        let packet = Packet::request(Kind::Open, 0, payload.len() as u64, &fields);
        let mut client = Client(stream);
        client.send(&[&packet.to_bytes()[..], &payload].concat());
        client
    }

    /// One that is.
    fn opened(&self, session: u64) -> Client {
        let mut client = self.asks(session);
        assert_eq!(client.answer().unwrap().0.fields().failure(), None);
        client
    }

    fn opening(&self, patience: Duration) -> Opening {
        let capability = Capability {
            drive: DriveId(1),
            partition: PartitionId(1),
            object: ObjectId(1),
            region: ByteRange::new(0, u64::MAX),
            rights: Rights::all(),
            expires: Timestamp(u64::MAX),
            audit_id: AuditId(0),
            minimum_protection: Protection::NONE,
            key_epoch: 1,
        };
        let key = CredentialKey::Capability(capability);
        Opening {
            address: self.address.to_string(),
            authority: Authority::new(key, SecretKey::new([1; 32]), Protection::NONE),
            place: Vec::new(),
            options: Options::READ | Options::RANDOM,
            block: 0,
            durable: false,
            patience,
            clock_ahead_ns: 0,
        }
    }

    /// Ends all connections that there are, as a network may.
    fn cut(&self) {
        for socket in self.sockets.lock().unwrap().drain(..) {
            socket.shutdown(Shutdown::Both).ok();
        }
    }
}

struct Client(TcpStream);

fn read_at(number: u64, offset: u64) -> Vec<u8> {
    let fields = Fields { offset, length: BLOCK, ..Fields::default() };
    Packet::request(Kind::Read, number, 0, &fields).to_bytes().to_vec()
}

fn write_at(number: u64, offset: u64) -> Vec<u8> {
    write_of(number, ByteRange::new(offset, BLOCK))
}

fn write_of(number: u64, range: ByteRange) -> Vec<u8> {
    let ByteRange { offset, length } = range;
    let fields = Fields { offset, length, ..Fields::default() };
    let packet = Packet::request(Kind::Write, number, length, &fields);
    [&packet.to_bytes()[..], &contents(range)].concat()
}

fn stat(number: u64) -> Vec<u8> {
    Packet::request(Kind::Stat, number, 0, &Fields::default()).to_bytes().to_vec()
}

impl Client {
    fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    /// The next answer, and its data; fails if the connection is closed instead.
    fn answer(&mut self) -> io::Result<(Packet, Vec<u8>)> {
        let mut bytes = [0; 160];
        self.0.read_exact(&mut bytes)?;
        let packet = Packet::from_bytes(&bytes).unwrap();
        let mut data = vec![0; packet.payload as usize];
        self.0.read_exact(&mut data)?;
        Ok((packet, data))
    }
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn who_takes_the_place_of_one_that_hangs_does_not_wait_for_ever() {
    let rig = Rig::new(Fake::default(), Sessions::with_patience(A_WHILE));
    let mut first = rig.opened(5);
    rig.fake.hang(true);
    first.send(&read_at(1, HANGS));
    wait_until("it hangs", || rig.fake.under_way.load(Ordering::SeqCst) == 1);
    let begun = Instant::now();
    let mut second = rig.asks(5);
    let (answer, _) = second.answer().unwrap();
    assert_eq!(answer.fields().failure(), Some(Status::Busy));
    assert!(begun.elapsed() >= A_WHILE);
    assert!(second.answer().is_err(), "it is closed");
    // Others have nothing to do with that.
    rig.opened(6);
    rig.opened(0);
    // The place is free as soon as nothing is done any more.
    rig.fake.hang(false);
    rig.opened(5);
    assert!(first.answer().is_err(), "what was asked by the first is not answered");
}

#[test]
fn what_will_be_read_next_is_read_before_and_once() {
    let rig = Rig::new(Fake::default(), Sessions::default());
    let mut client = rig.opened(0);
    let times =
        |offset: u64| rig.fake.reads.lock().unwrap().iter().filter(|at| **at == offset).count();
    for number in 0..8 {
        let offset = number * BLOCK;
        client.send(&read_at(number + 1, offset));
        let (_, data) = client.answer().unwrap();
        assert!(data == contents(ByteRange::new(offset, BLOCK)));
        wait_until("the next one is not asked for yet", || times(offset + BLOCK) == 1);
    }
    assert!((0..8).all(|number| times(number * BLOCK) == 1), "what was read before is used");
    // Nobody who reads elsewhere is told something else.
    client.send(&read_at(9, HANGS));
    assert!(client.answer().unwrap().1 == contents(ByteRange::new(HANGS, BLOCK)));
    assert_eq!(times(HANGS), 1);
}

/// Also where that comes only when the write is under way.
#[test]
fn while_a_long_write_is_made_the_next_request_is_received() {
    let rig = Rig::new(Fake::default(), Sessions::default());
    let mut client = rig.opened(0);
    rig.fake.hang(true);
    client.send(&write_of(1, ByteRange::new(HANGS, 256 << 10)));
    wait_until("it hangs", || rig.fake.under_way.load(Ordering::SeqCst) == 1);
    client.send(&stat(2));
    client.0.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    assert_eq!(client.answer().unwrap().0.number, 2);
    rig.fake.hang(false);
    assert_eq!(client.answer().unwrap().0.number, 1);
}

#[test]
fn of_several_that_wait_for_a_place_only_the_newest_does() {
    let rig = Rig::new(Fake::default(), Sessions::default());
    let mut first = rig.opened(5);
    rig.fake.hang(true);
    first.send(&read_at(1, HANGS));
    wait_until("it hangs", || rig.fake.under_way.load(Ordering::SeqCst) == 1);
    let mut waiting: Vec<Client> = Vec::new();
    for number in 0..4 {
        waiting.push(rig.asks(5));
        wait_until("it waits", || rig.fake.opens.load(Ordering::SeqCst) == number + 2);
        thread::sleep(Duration::from_millis(50));
    }
    let mut newest = waiting.pop().unwrap();
    for client in &mut waiting {
        let error = client.answer().unwrap_err();
        assert!(!super::incoming::is_passing(&error), "it is closed: {error}");
    }
    rig.fake.hang(false);
    assert_eq!(newest.answer().unwrap().0.fields().failure(), None);
    newest.send(&stat(1));
    assert_eq!(newest.answer().unwrap().0.fields().failure(), None);
}

#[test]
fn a_client_goes_on_when_the_place_is_free_as_long_as_it_has_patience() {
    let rig = Rig::new(Fake::default(), Sessions::with_patience(Duration::from_millis(200)));
    let file = BulkFile::open(rig.opening(Duration::from_secs(60))).unwrap();
    rig.fake.hang(true);
    thread::scope(|scope| {
        let mut buffer = vec![0; BLOCK as usize];
        let reading = scope.spawn(|| file.read_at(&mut buffer, HANGS).map(|count| (count, buffer)));
        wait_until("it hangs", || rig.fake.under_way.load(Ordering::SeqCst) == 1);
        rig.cut();
        wait_until("it was told to wait", || rig.fake.opens.load(Ordering::SeqCst) >= 4);
        rig.fake.hang(false);
        let (count, buffer) = reading.join().unwrap().unwrap();
        assert_eq!(count as u64, BLOCK);
        assert!(buffer == contents(ByteRange::new(HANGS, BLOCK)));
    });
    // And no longer.
    let file = BulkFile::open(rig.opening(Duration::from_secs(1))).unwrap();
    rig.fake.hang(true);
    thread::scope(|scope| {
        let reading = scope.spawn(|| file.read_at(&mut vec![0; BLOCK as usize], HANGS));
        wait_until("it hangs", || rig.fake.under_way.load(Ordering::SeqCst) == 1);
        rig.cut();
        let error = reading.join().unwrap().unwrap_err();
        assert!(matches!(error, BulkError::Failed { status: Status::Busy, .. }), "{error}");
    });
    rig.fake.hang(false);
}

/// Something that is asked of a file.
type Ask = fn(&BulkFile) -> Result<(), BulkError>;

#[test]
fn who_has_too_much_to_do_is_asked_again_as_long_as_there_is_patience() {
    let rig = Rig::new(Fake::default(), Sessions::default());
    let asks: [(&str, Ask); 4] = [
        ("stat", |file| file.size().map(drop)),
        ("resize", |file| file.set_size(SIZE)),
        ("sync", BulkFile::sync_all),
        ("read", |file| file.read_at(&mut [0; BLOCK as usize], 0).map(drop)),
    ];
    let opened = |patience: Duration| {
        let options = Options::READ | Options::WRITE | Options::RANDOM;
        BulkFile::open(Opening { options, ..rig.opening(patience) }).unwrap()
    };
    let (patient, hasty) = (opened(Duration::from_secs(60)), opened(A_WHILE));
    for (what, ask) in asks {
        rig.fake.busy.store(3, Ordering::SeqCst);
        ask(&patient).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(rig.fake.busy.load(Ordering::SeqCst), 0, "{what}");
        rig.fake.busy.store(usize::MAX, Ordering::SeqCst);
        let begun = Instant::now();
        let error = ask(&hasty).unwrap_err();
        assert!(matches!(error, BulkError::Failed { status: Status::Busy, .. }), "{what}: {error}");
        assert!(begun.elapsed() >= A_WHILE / 4, "{what}: {:?}", begun.elapsed());
        rig.fake.busy.store(0, Ordering::SeqCst);
        ask(&hasty).unwrap();
    }
    // It was not lost for that.
    assert_eq!(rig.fake.opens.load(Ordering::SeqCst), 2);
}

#[test]
fn what_is_durable_when_it_is_answered_is_not_lost_with_the_server() {
    let rig = Rig::new(Fake::default(), Sessions::default());
    let start_anew = || {
        rig.fake.starts.fetch_add(1, Ordering::SeqCst);
        rig.cut();
    };
    let is_lost = |synced| matches!(synced, Err(BulkError::MayBeLost { .. }));
    for durable in [true, false] {
        let options = Options::READ | Options::WRITE | Options::RANDOM;
        let opening = Opening { options, durable, ..rig.opening(Duration::from_secs(60)) };
        let file = BulkFile::open(opening).unwrap();
        let write: Ask = |file| file.write_at(&contents(ByteRange::new(0, BLOCK)), 0);
        for (number, change) in [write, |file| file.set_size(SIZE)].into_iter().enumerate() {
            change(&file).unwrap();
            start_anew();
            assert_eq!(is_lost(file.sync()), !durable, "{number}");
        }
        let mut queue = file.queue();
        queue.write(0, contents(ByteRange::new(0, BLOCK)));
        queue.wait().unwrap().outcome.unwrap();
        start_anew();
        assert_eq!(is_lost(queue.sync()), !durable);
        let asked: Vec<bool> = rig.fake.durable.lock().unwrap().drain(..).collect();
        assert_eq!(asked, [durable; 2]);
    }
}

/// Asks for more at a time than there are threads for, and checks all that is answered.
fn ask_for_much(client: &mut Client, from: u64) {
    const COUNT: u64 = 40;
    let offset = |number: u64| (from + number * 7) % (SIZE / BLOCK) * BLOCK;
    let asked: Vec<u8> = (1..=COUNT)
        .flat_map(|number| match number % 4 {
            0 => write_at(number, offset(number)),
            1 => stat(number),
            _ => read_at(number, offset(number)),
        })
        .collect();
    client.send(&asked);
    let mut answered = Vec::new();
    for _ in 0..COUNT {
        let (packet, data) = client.answer().unwrap();
        assert_eq!(packet.fields().failure(), None);
        answered.push(packet.number);
        match packet.kind {
            Kind::Read => {
                assert!(data == contents(ByteRange::new(offset(packet.number), BLOCK)));
            }
            _ => assert!(data.is_empty()),
        }
    }
    answered.sort_unstable();
    assert_eq!(answered, (1..=COUNT).collect::<Vec<u64>>());
}

#[test]
fn who_says_how_long_blocks_are_is_read_ahead_for_at_once() {
    const BLOCKS: u64 = 20;
    let takes = Duration::from_millis(20);
    let rig = Rig::new(Fake { takes, ..Fake::default() }, Sessions::default());
    let begun = |offset| rig.fake.reads.lock().unwrap().iter().filter(|at| **at == offset).count();
    let opening =
        Opening { options: Options::READ, block: BLOCK, ..rig.opening(Duration::from_secs(20)) };
    let file = BulkFile::open(opening).unwrap();
    wait_until("it is read ahead", || begun(0) == 1);
    let mut into = vec![0; (BLOCKS * BLOCK) as usize];
    assert_eq!(file.read_at(&mut into, 0).unwrap(), into.len());
    assert!(into == contents(ByteRange::new(0, BLOCKS * BLOCK)));
    assert!((0..BLOCKS).all(|block| begun(block * BLOCK) == 1), "each once, as a block");
    // Whoever reads beside that begins elsewhere.
    let (_first, mut second) = (file.queue::<Vec<u8>>(), file.queue());
    second.read(HANGS, vec![0; BLOCK as usize]);
    assert_eq!(second.wait().unwrap().outcome.unwrap() as u64, BLOCK);
    assert_eq!((rig.fake.opens.load(Ordering::SeqCst), begun(0)), (2, 1));
}

#[test]
fn who_says_how_long_blocks_are_reads_in_those_and_writes_as_much_as_can_be_at_a_time() {
    const BLOCKS: u64 = 40;
    let rig = Rig::new(Fake::default(), Sessions::default());
    let options = Options::READ | Options::WRITE | Options::RANDOM;
    let opening = Opening { options, block: BLOCK, ..rig.opening(Duration::from_secs(20)) };
    let file = StripedFile::open(vec![opening], BLOCK).unwrap();
    let mut into = vec![0; (BLOCKS * BLOCK) as usize];
    for number in 1..=2 {
        let read = match number {
            1 => file.read_at(&mut into, 0),
            _ => file.lane().read_at(&mut into, 0),
        };
        assert_eq!(read.unwrap(), into.len());
        assert!(into == contents(ByteRange::new(0, BLOCKS * BLOCK)));
        let begun = rig.fake.reads.lock().unwrap();
        let times = |block| begun.iter().filter(|at| **at == block * BLOCK).count();
        assert!((0..BLOCKS).all(|block| times(block) == number), "each block once a read");
    }
    file.write_at(&into, 0).unwrap();
    file.lane().write_at(&into, 0).unwrap();
    assert_eq!(rig.fake.durable.lock().unwrap().len(), 2, "each write is one request");
}

/// Also the last of them, behind which nothing has come.
#[test]
fn while_a_request_is_done_for_who_asks_for_several_the_next_is_received() {
    let rig = Rig::new(Fake::default(), Sessions::default());
    let mut client = rig.opened(0);
    let ranges = [7, 2, 40].map(|block| ByteRange::new(HANGS + block * BLOCK, BLOCK));
    let [first, second, third] = ranges.map(|range| read_at(range.offset, range.offset));
    let are_under_way = |count| {
        wait_until("it is being read", || rig.fake.under_way.load(Ordering::SeqCst) == count);
    };
    rig.fake.hang(true);
    client.send(&[first, second].concat());
    are_under_way(2);
    client.send(&third);
    are_under_way(3);
    rig.fake.hang(false);
    for _ in ranges {
        let (packet, data) = client.answer().unwrap();
        let range = ranges.iter().find(|range| range.offset == packet.number).unwrap();
        assert!(data == contents(*range));
    }
}

#[test]
fn what_is_expected_keeps_no_request_waiting() {
    let rig = Rig::new(Fake::default(), Sessions::default());
    rig.fake.hang(true);
    let mut client = rig.asks_to_read_blocks(0, BLOCK);
    assert_eq!(client.answer().unwrap().0.fields().failure(), None);
    wait_until("it expects", || !rig.fake.expected.lock().unwrap().is_empty());
    for block in 0..20 {
        client.send(&read_at(block, block * BLOCK));
        assert!(client.answer().unwrap().1 == contents(ByteRange::new(block * BLOCK, BLOCK)));
    }
    let expected = rig.fake.expected.lock().unwrap().clone();
    assert!(matches!(expected[..], [ByteRange { offset: BLOCK, .. }]), "{expected:?}");
    rig.fake.hang(false);
}

#[test]
fn nothing_is_read_ahead_for_who_has_gone() {
    let fake = Fake { takes: Duration::from_millis(200), ..Fake::default() };
    let rig = Rig::new(fake, Sessions::with_hands(1));
    let client = rig.asks_to_read_blocks(0, BLOCK);
    let begun = || rig.fake.reads.lock().unwrap().len();
    wait_until("it reads ahead", || begun() > 0);
    assert!(rig.sessions.reads().load().0 > 0);
    drop(client);
    wait_until("it ends", || rig.sessions.hands().count() == 0);
    assert!(begun() < crate::guess::MOST_READS, "{} reads", begun());
    assert_eq!(rig.sessions.reads().load(), (0, 0));
}

#[test]
fn all_connections_together_have_so_many_threads_and_go_on_without() {
    const CONNECTIONS: usize = 6;
    for most in [0, 2, 1000] {
        let takes = Duration::from_millis(5);
        let rig = Rig::new(Fake { takes, ..Fake::default() }, Sessions::with_hands(most));
        let clients: Vec<Client> = thread::scope(|scope| {
            let asking: Vec<_> = (0..CONNECTIONS as u64)
                .map(|number| {
                    let mut client = rig.opened(number + 1);
                    scope.spawn(move || {
                        ask_for_much(&mut client, number * 31);
                        // In order, so that they are guessed.
                        for block in 0..20 {
                            client.send(&read_at(block, block * BLOCK));
                            let (_, data) = client.answer().unwrap();
                            assert!(data == contents(ByteRange::new(block * BLOCK, BLOCK)));
                        }
                        client
                    })
                })
                .collect();
            asking.into_iter().map(|client| client.join().unwrap()).collect()
        });
        let at_a_time = rig.fake.most_under_way.load(Ordering::SeqCst);
        assert!(at_a_time <= CONNECTIONS + most, "{at_a_time} of {most}");
        let is_much = at_a_time > CONNECTIONS;
        assert!(is_much || most < 1000, "{at_a_time}: none had others do anything");
        // Who has nothing to do leaves them to others, while its connection is there.
        wait_until("threads end", || rig.sessions.hands().count() == 0);
        assert_eq!(rig.sessions.reads().load(), (0, 0));
        drop(clients);
    }
}

/// Whether a watcher was told at last that a connection rests, longer and longer.
fn rests(told: &[Duration]) -> bool {
    let is_longer = told.windows(2).all(|pair| pair[0] <= pair[1]);
    let first = told.first().is_some_and(|first| *first > Duration::ZERO);
    first && is_longer && told.last().is_some_and(|last| *last >= A_WHILE / 2)
}

#[test]
fn a_connection_rests_where_nothing_is_asked_and_nowhere_else() {
    let rig = Rig::new(Fake::default(), Sessions::default());
    let mut client = rig.opened(0);
    let pause = || thread::sleep(A_WHILE);
    // Nothing, the beginning of a packet, and a packet with some of its data.
    let asked = [stat(1), stat(2), write_at(3, 0)];
    for (asked, sent) in asked.iter().zip([0, 70, 1000]) {
        client.send(&asked[..sent]);
        pause();
        let (told, ()) = rig.watched.during(pause);
        assert!(rests(&told), "{sent}: {told:?}");
        let (told, answer) = rig.watched.during(|| {
            client.send(&asked[sent..]);
            client.answer()
        });
        assert_eq!(answer.unwrap().0.fields().failure(), None);
        assert!(told.contains(&Duration::ZERO), "{sent}: {told:?}");
    }
    // While a request is done, by the thread that receives, or by another one while that has answered what came next.
    for also in [vec![], stat(5)] {
        rig.fake.hang(true);
        client.send(&[read_at(4, HANGS), also.clone()].concat());
        wait_until("it hangs", || rig.fake.under_way.load(Ordering::SeqCst) == 1);
        if !also.is_empty() {
            assert_eq!(client.answer().unwrap().0.number, 5);
        }
        let (told, ()) = rig.watched.during(pause);
        assert!(told.iter().all(Duration::is_zero), "{told:?}");
        rig.fake.hang(false);
        assert_eq!(client.answer().unwrap().0.number, 4);
        let (told, ()) = rig.watched.during(pause);
        assert!(rests(&told), "{told:?}");
    }
}
