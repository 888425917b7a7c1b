//! A service, calls to it, and raw bytes of calls, for the tests of this crate.
#![allow(dead_code)] // Each test binary uses its own part.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

#[path = "../../../types/tests/random/mod.rs"]
mod random;

use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nasd_transport::{
    AcceptStatus, Answer, Arriving, Attempt, Call, CallHead, Channel, ChannelError, ClientOptions,
    Connection, InFlight, OpaqueAuth, OutgoingCall, Payload, Receive, Reply, ReplyVerifier,
    ResultShape, Server, ServerOptions, Service, Together, Waits,
};
use nasd_xdr::{Encoder, to_bytes, xdr_pad};
pub use random::Random;

pub const PROGRAM: u32 = 0x2000_4242;
/// Results are the arguments.
pub const ECHO: u32 = 1;
/// Arguments: a length. Results: that length, and as many bytes of `pattern`.
pub const READ: u32 = 2;
/// Arguments: a seed, a length, data. Results: whether the data are `pattern(seed, length)`.
pub const WRITE: u32 = 3;
/// Arguments: milliseconds. Blocks so long; results are the arguments.
pub const SLEEP: u32 = 4;
pub const PANIC: u32 = 5;
/// As `WRITE`, but the data are thrown away.
pub const DISCARD: u32 = 6;
/// Results: the peer's identity as text.
pub const WHO: u32 = 7;
/// As `SLEEP`, but many are under way at once. Results: the arguments, and how many there were when
/// it was begun.
pub const NAP: u32 = 8;
/// Waits alone, though for nothing. Results: the thread that executes it, as text.
pub const WHERE: u32 = 9;
/// A nap that panics when it is begun, and one that does when it should end.
pub const NO_BEGIN: u32 = 77_001;
pub const NO_END: u32 = 77_002;

pub fn pattern(seed: u32, length: usize) -> Vec<u8> {
    (0..length as u32).map(|index| (index.wrapping_mul(2_654_435_761) ^ seed) as u8).collect()
}

fn word(arguments: &[u8], index: usize) -> Option<u32> {
    let bytes = arguments.get(4 * index..4 * index + 4)?;
    Some(u32::from_be_bytes(bytes.try_into().unwrap()))
}

/// Received data, in pieces of odd sizes.
pub struct Pieces(Vec<Vec<u8>>);

impl Pieces {
    fn new(length: usize) -> Pieces {
        let mut left = length;
        let mut pieces = vec![Vec::new()];
        for size in [1, 1000, 4097, 70_000].into_iter().cycle() {
            if left == 0 {
                break;
            }
            let size = size.min(left);
            pieces.push(vec![0; size]);
            left -= size;
        }
        Pieces(pieces)
    }
}

impl Payload for Pieces {
    fn buffers(&mut self) -> Vec<IoSliceMut<'_>> {
        self.0.iter_mut().map(|piece| IoSliceMut::new(piece)).collect()
    }
}

pub struct TestService;

impl Service for TestService {
    type Payload = Pieces;
    type Segment = Vec<u8>;

    fn receive(&self, call: &Arriving<'_>) -> Receive<Pieces> {
        match call.head.procedure {
            WRITE | DISCARD => {}
            _ => return Receive::Whole,
        }
        match (word(call.arguments, 1), call.head.procedure) {
            (None, _) => Receive::More { at_least: 8 },
            (Some(length), WRITE) if length <= 8 << 20 => {
                Receive::Data { head_bytes: 8, payload: Pieces::new(length as usize) }
            }
            (Some(_), _) => Receive::Discard { head_bytes: 8 },
        }
    }

    fn attempt(&self, call: Call<'_, Pieces>) -> Attempt<Pieces, Vec<u8>> {
        match call.head.procedure {
            SLEEP | WHERE => Attempt::Waits(Waits::Alone, call.payload),
            NAP => Attempt::Waits(Waits::Together, call.payload),
            _ => Attempt::Answered(self.execute(call)),
        }
    }

    fn execute(&self, call: Call<'_, Pieces>) -> Answer<Vec<u8>> {
        let mut data = Vec::new();
        let results = match call.head.procedure {
            ECHO => call.arguments.to_vec(),
            READ => {
                let length = word(call.arguments, 0).unwrap();
                let whole = pattern(length, length as usize);
                data = whole.chunks(5000).map(<[u8]>::to_vec).collect();
                length.to_be_bytes().to_vec()
            }
            WRITE => {
                let Some(payload) = call.payload else {
                    return Answer::Rejected(AcceptStatus::GarbageArguments);
                };
                let seed = word(call.arguments, 0).unwrap();
                let length = word(call.arguments, 1).unwrap() as usize;
                let same = payload.0.concat() == pattern(seed, length);
                u32::from(same).to_be_bytes().to_vec()
            }
            SLEEP => {
                let milliseconds = u64::from(word(call.arguments, 0).unwrap());
                std::thread::sleep(Duration::from_millis(milliseconds));
                call.arguments.to_vec()
            }
            PANIC => panic!("as asked for"),
            DISCARD => vec![u8::from(call.payload.is_some()); 4],
            WHO => to_bytes_of_text(&call.peer.identity.to_string()),
            WHERE => to_bytes_of_text(&format!("{:?}", std::thread::current().id())),
            _ => return Answer::Rejected(AcceptStatus::ProcedureUnavailable),
        };
        let verifier = ReplyVerifier::new(call.head.verifier.flavor, call.head.verifier.body);
        Answer::Results { verifier, results, data }
    }

    fn together(&self) -> Box<dyn Together<Pieces, Vec<u8>> + '_> {
        Box::new(Naps(Vec::new()))
    }
}

struct Nap {
    tag: usize,
    end: Instant,
    answer: Answer<Vec<u8>>,
    milliseconds: u32,
}

/// Naps, each until its own time is over.
struct Naps(Vec<Nap>);

impl Together<Pieces, Vec<u8>> for Naps {
    fn begin(&mut self, tag: usize, call: Call<'_, Pieces>) {
        assert_eq!(call.head.procedure, NAP);
        let milliseconds = word(call.arguments, 0).unwrap();
        assert!(milliseconds != NO_BEGIN, "as asked for");
        let end = Instant::now() + Duration::from_millis(u64::from(milliseconds % 77_000));
        let verifier = ReplyVerifier::new(call.head.verifier.flavor, call.head.verifier.body);
        let number = self.0.len() as u32 + 1;
        let results = [call.arguments, &number.to_be_bytes()].concat();
        let answer = Answer::Results { verifier, results, data: Vec::new() };
        self.0.push(Nap { tag, end, answer, milliseconds });
    }

    fn answered(&mut self, least: usize) -> Vec<(usize, Answer<Vec<u8>>)> {
        assert!(least <= self.0.len(), "there are no more");
        self.0.sort_by_key(|nap| nap.end);
        if let Some(last) = least.checked_sub(1).map(|index| &self.0[index]) {
            std::thread::sleep(last.end.saturating_duration_since(Instant::now()));
        }
        let now = Instant::now();
        let ended = self.0.partition_point(|nap| nap.end <= now);
        let ended = self.0.drain(..ended);
        ended
            .map(|nap| {
                assert!(nap.milliseconds != NO_END, "as asked for");
                (nap.tag, nap.answer)
            })
            .collect()
    }
}

fn to_bytes_of_text(text: &str) -> Vec<u8> {
    let mut out = Encoder::new();
    out.string(text);
    out.into_bytes()
}

pub fn quick_options() -> ServerOptions {
    ServerOptions { peer_timeout: Duration::from_millis(600), ..ServerOptions::default() }
}

pub fn start(options: ServerOptions) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    Server::start(listener, None, Arc::new(TestService), options).unwrap()
}

pub fn connect(server: &Server) -> Connection {
    Connection::tcp(server.address(), &ClientOptions::default()).unwrap()
}

pub struct Asked<'a> {
    pub procedure: u32,
    pub arguments: &'a [u8],
    pub data: &'a [u8],
    pub results: ResultShape,
    pub timeout_ms: u64,
}

impl Default for Asked<'_> {
    fn default() -> Self {
        Asked {
            procedure: ECHO,
            arguments: &[],
            data: &[],
            results: ResultShape::Plain,
            timeout_ms: 20_000,
        }
    }
}

pub fn ask(
    channel: &dyn Channel,
    asked: &Asked<'_>,
    into: &mut [u8],
) -> Result<Reply, ChannelError> {
    let middle = asked.data.len() / 3;
    let call = OutgoingCall {
        program: PROGRAM,
        version: 1,
        procedure: asked.procedure,
        credential: OpaqueAuth::NONE,
        verifier: OpaqueAuth { flavor: 9, body: b"proof" },
        arguments: asked.arguments,
        data: &[IoSlice::new(&asked.data[..middle]), IoSlice::new(&asked.data[middle..])],
        results: asked.results,
        timeout: Duration::from_millis(asked.timeout_ms),
    };
    channel.call(&call, into)
}

/// Begins a call, which is sent with the next one.
pub fn begin(
    channel: &Arc<Connection>,
    procedure: u32,
    arguments: &[u8],
    data: &[u8],
    into: Vec<u8>,
) -> InFlight {
    let results = match procedure {
        READ => ResultShape::DataAfter { head_bytes: 4 },
        _ => ResultShape::Plain,
    };
    let call = OutgoingCall {
        program: PROGRAM,
        version: 1,
        procedure,
        credential: OpaqueAuth::NONE,
        verifier: OpaqueAuth { flavor: 9, body: b"proof" },
        arguments,
        data: &[IoSlice::new(data)],
        results,
        timeout: Duration::from_secs(20),
    };
    Arc::clone(channel).begin(&call, into).map_err(|(error, _)| error).unwrap()
}

pub fn echo(channel: &dyn Channel, text: &[u8]) -> Result<Vec<u8>, ChannelError> {
    let asked = Asked { arguments: text, ..Asked::default() };
    ask(channel, &asked, &mut []).map(|reply| reply.results().to_vec())
}

pub fn sleep(channel: &dyn Channel, milliseconds: u32) -> Result<Vec<u8>, ChannelError> {
    let arguments = milliseconds.to_be_bytes();
    let asked = Asked { procedure: SLEEP, arguments: &arguments, ..Asked::default() };
    ask(channel, &asked, &mut []).map(|reply| reply.results().to_vec())
}

/// Reads and checks.
pub fn read(channel: &dyn Channel, length: usize) -> Result<(), ChannelError> {
    let arguments = (length as u32).to_be_bytes();
    let mut into = vec![0xee; length + 10];
    let asked = Asked {
        procedure: READ,
        arguments: &arguments,
        results: ResultShape::DataAfter { head_bytes: 4 },
        ..Asked::default()
    };
    let reply = ask(channel, &asked, &mut into)?;
    assert_eq!(reply.results(), arguments);
    assert_eq!(reply.data_length(), length);
    assert_eq!(reply.verifier(), OpaqueAuth { flavor: 9, body: b"proof" });
    assert!(into[..length] == pattern(length as u32, length), "data of {length} bytes differ");
    assert_eq!(into[length..], [0xee; 10], "written behind the data");
    Ok(())
}

pub fn write_arguments(seed: u32, length: usize) -> Vec<u8> {
    [seed.to_be_bytes(), (length as u32).to_be_bytes()].concat()
}

/// Writes, and checks that the server saw the same.
pub fn write(channel: &dyn Channel, seed: u32, length: usize) -> Result<(), ChannelError> {
    let asked = Asked {
        procedure: WRITE,
        arguments: &write_arguments(seed, length),
        data: &pattern(seed, length),
        ..Asked::default()
    };
    let reply = ask(channel, &asked, &mut [])?;
    assert_eq!(reply.results(), [0, 0, 0, 1], "data of {length} bytes arrived changed");
    Ok(())
}

/// The bytes of a call's message, without record marks.
pub fn message(xid: u32, procedure: u32, arguments: &[u8], data: &[u8]) -> Vec<u8> {
    let head = CallHead {
        xid,
        program: PROGRAM,
        version: 1,
        procedure,
        credential: OpaqueAuth::NONE,
        verifier: OpaqueAuth { flavor: 9, body: b"proof" },
    };
    let mut bytes = to_bytes(&head);
    bytes.extend_from_slice(arguments);
    bytes.extend_from_slice(data);
    bytes.extend_from_slice(&[0; 3][..xdr_pad(data.len())]);
    bytes
}

/// A record of fragments of at most `fragment` bytes.
pub fn record(message: &[u8], fragment: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut chunks = message.chunks(fragment).peekable();
    while let Some(chunk) = chunks.next() {
        let last = if chunks.peek().is_none() { 1 << 31 } else { 0 };
        bytes.extend_from_slice(&(chunk.len() as u32 | last).to_be_bytes());
        bytes.extend_from_slice(chunk);
    }
    bytes
}

/// Receives one record of one fragment.
pub fn receive_record(socket: &mut TcpStream) -> Option<Vec<u8>> {
    let mut mark = [0; 4];
    socket.read_exact(&mut mark).ok()?;
    let mark = u32::from_be_bytes(mark);
    assert!(mark >> 31 == 1, "servers send one fragment");
    let mut bytes = vec![0; (mark & !(1 << 31)) as usize];
    socket.read_exact(&mut bytes).ok()?;
    Some(bytes)
}

pub fn raw(address: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(address).unwrap();
    socket.set_nodelay(true).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    socket
}

/// Whether the server has closed the connection; waits for it.
pub fn is_closed(socket: &mut TcpStream) -> bool {
    match socket.read(&mut [0; 16]) {
        Ok(0) => true,
        Ok(_) => false,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

/// Accepts one connection and runs `body` on it: a server that does as a test wants.
pub fn fake_server(
    body: impl FnOnce(TcpStream) + Send + 'static,
) -> (SocketAddr, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let thread = std::thread::spawn(move || {
        let (socket, _) = listener.accept().unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        body(socket);
    });
    (address, thread)
}

/// The xid of a message.
pub fn xid_of(message: &[u8]) -> u32 {
    u32::from_be_bytes(message[..4].try_into().unwrap())
}

/// A successful reply's message.
pub fn reply_message(xid: u32, results: &[u8]) -> Vec<u8> {
    let words = [xid, 1, 0, 9, 5, u32::from_be_bytes(*b"proo"), 0x6600_0000, 0];
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    bytes.extend_from_slice(results);
    bytes
}

/// Sends in pieces of random sizes.
pub fn send_split(socket: &mut TcpStream, bytes: &[u8], random: &mut Random) {
    let mut rest = bytes;
    while !rest.is_empty() {
        let most = if random.index(4) == 0 { 9000 } else { 40 };
        let count = (1 + random.index(most)).min(rest.len());
        socket.write_all(&rest[..count]).unwrap();
        rest = &rest[count..];
        if random.index(8) == 0 {
            std::thread::yield_now();
        }
    }
}
