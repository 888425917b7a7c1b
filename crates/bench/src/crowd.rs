//! A crowd of peers that a drive must bear: connections without calls, and such as send what they
//! should not, as fast as they are let.
//!
//! They run in threads of this process, at the lowest priority, so that what they take of a machine
//! that they share with the drive is what others leave; how much that was is told.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nasd_capability::{DataTag, Digest, Nonce, Suite};
use nasd_client::{ConnectOptions, DriveClient};
use nasd_protocol::drive::{PROGRAM, Procedure, ReadArguments, VERSION, WriteArguments};
use nasd_protocol::manager::IssuedCapability;
use nasd_protocol::{AUTH_FLAVOR, Credential, CredentialKey, Verifier};
use nasd_rpc::{CallHead, OpaqueAuth};
use nasd_types::{ObjectName, Protection, Timestamp};
use nasd_xdr::to_bytes;
use rustix::time::{ClockId, clock_gettime};

use crate::BenchError;

/// The least that a thread can be preferred.
const LOWEST_PRIORITY: i32 = 19;

/// How long a peer waits for an answer before it looks whether it is to stop.
const PATIENCE: Duration = Duration::from_millis(200);

/// Calls that are sent together.
const BATCH: u32 = 16;

/// Bytes of garbage that are sent at a time.
const GARBAGE_BYTES: usize = 4096;

/// Between two bytes of a peer that sends slowly.
const DRIP: Duration = Duration::from_millis(20);

/// How many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrowdSize {
    /// Connections on which nothing comes.
    pub idle: usize,
    /// Hostile peers, a fifth of each kind: garbage, slow bytes, half calls, huge lengths, and wrong
    /// digests.
    pub hostile: usize,
}

/// What a crowd did.
#[derive(Clone, Copy, Debug, Default)]
pub struct CrowdReport {
    /// Connections that hostile peers made.
    pub connections: u64,
    /// Calls with a wrong digest that were answered.
    pub refused: u64,
    /// Processor time that hostile peers took, in seconds.
    pub processor_seconds: f64,
    /// For how long the crowd was there, in seconds.
    pub seconds: f64,
}

/// A crowd at work; it goes on until [`Crowd::stop`].
#[derive(Debug)]
pub struct Crowd {
    idle: Vec<TcpStream>,
    peers: Vec<JoinHandle<CrowdReport>>,
    stopping: Arc<AtomicBool>,
    began: Instant,
}

/// What a peer does.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Garbage,
    SlowBytes,
    HalfCalls,
    HugeLengths,
    WrongDigests,
}

const KINDS: [Kind; 5] =
    [Kind::Garbage, Kind::SlowBytes, Kind::HalfCalls, Kind::HugeLengths, Kind::WrongDigests];

/// What hostile peers know: everything but keys.
#[derive(Clone, Copy)]
struct Victim {
    address: SocketAddr,
    object: ObjectName,
    capability: nasd_capability::Capability,
    /// The drive's clock when `asked`.
    clock: Timestamp,
    asked: Instant,
}

impl Crowd {
    /// Starts a crowd against the drive at `address`. Of the capability only the public half is used.
    ///
    /// # Errors
    ///
    /// If the drive does not tell its clock, the process may not open so many connections, or not start
    /// so many threads.
    pub fn start(
        address: &str,
        object: ObjectName,
        capability: &IssuedCapability,
        size: CrowdSize,
    ) -> Result<Crowd, BenchError> {
        let client = DriveClient::tcp(address, None, &ConnectOptions::default());
        let clock = client.inquiry()?.clock;
        let address = address
            .parse()
            .map_err(|_| BenchError::Crowd(format!("{address} is not a numeric address")))?;
        let capability = capability.capability;
        let victim = Victim { address, object, capability, clock, asked: Instant::now() };
        let failed = |error: io::Error| BenchError::Crowd(error.to_string());
        let idle = (0..size.idle).map(|_| TcpStream::connect(address));
        let idle = idle.collect::<Result<Vec<_>, _>>().map_err(failed)?;
        let stopping = Arc::new(AtomicBool::new(false));
        let mut crowd = Crowd { idle, peers: Vec::new(), stopping, began: Instant::now() };
        for (number, kind) in KINDS.into_iter().cycle().take(size.hostile).enumerate() {
            let stopping = Arc::clone(&crowd.stopping);
            let peer = Peer { kind, victim, stopping, random: number as u64, done: <_>::default() };
            let thread = thread::Builder::new().name("hostile".to_owned()).spawn(|| peer.run());
            crowd.peers.push(thread.map_err(failed)?);
        }
        Ok(crowd)
    }

    /// How many of the idle connections the drive still has.
    pub fn idle_left(&self) -> usize {
        let is_open = |socket: &&TcpStream| {
            let peeked = socket.set_nonblocking(true).and_then(|()| socket.peek(&mut [0]));
            peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
        };
        self.idle.iter().filter(is_open).count()
    }

    /// Ends it, and tells what it did.
    pub fn stop(mut self) -> CrowdReport {
        self.stopping.store(true, Ordering::Relaxed);
        let mut all =
            CrowdReport { seconds: self.began.elapsed().as_secs_f64(), ..CrowdReport::default() };
        for peer in self.peers.drain(..) {
            // One that panicked did nothing more.
            let done = peer.join().unwrap_or_default();
            all.connections += done.connections;
            all.refused += done.refused;
            all.processor_seconds += done.processor_seconds;
        }
        all
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
    }
}

/// A hostile peer.
struct Peer {
    kind: Kind,
    victim: Victim,
    stopping: Arc<AtomicBool>,
    random: u64,
    done: CrowdReport,
}

impl Peer {
    fn run(mut self) -> CrowdReport {
        // Of the calling thread alone, on Linux. Where that fails the crowd is only worse.
        let _ = rustix::process::setpriority_process(None, LOWEST_PRIORITY);
        while !self.is_over() {
            // Whatever the drive does to the connection, another one is made.
            let _ = self.attack();
        }
        let taken = clock_gettime(ClockId::ThreadCPUTime);
        self.done.processor_seconds = taken.tv_sec as f64 + taken.tv_nsec as f64 / 1e9;
        self.done
    }

    fn is_over(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    fn attack(&mut self) -> io::Result<()> {
        let mut socket = TcpStream::connect(self.victim.address)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        self.done.connections += 1;
        match self.kind {
            Kind::Garbage => {
                let garbage: Vec<u8> = (0..GARBAGE_BYTES).map(|_| self.next() as u8).collect();
                socket.write_all(&garbage)?;
                self.wait_for_end(&mut socket)
            }
            Kind::SlowBytes => {
                let call = self.read_call(1);
                for byte in call {
                    if self.is_over() {
                        break;
                    }
                    socket.write_all(&[byte])?;
                    thread::sleep(DRIP);
                }
                self.wait_for_end(&mut socket)
            }
            Kind::HalfCalls => {
                let call = self.read_call(1);
                socket.write_all(&call[..call.len() / 2])?;
                self.wait_for_end(&mut socket)
            }
            Kind::HugeLengths => {
                let call = if self.next().is_multiple_of(2) {
                    [&[0xff; 4][..], &[0; 64]].concat()
                } else {
                    self.huge_write()
                };
                socket.write_all(&call)?;
                self.wait_for_end(&mut socket)
            }
            Kind::WrongDigests => self.pester(&mut socket),
        }
    }

    /// Waits until the drive has closed the connection.
    fn wait_for_end(&self, socket: &mut TcpStream) -> io::Result<()> {
        let mut into = [0; 4096];
        while !self.is_over() {
            match socket.read(&mut into) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Calls that are refused for nothing but their digest, as fast as they are answered.
    fn pester(&mut self, socket: &mut TcpStream) -> io::Result<()> {
        let mut reply = Vec::new();
        while !self.is_over() {
            let calls: Vec<u8> = (0..BATCH).flat_map(|xid| self.read_call(xid)).collect();
            socket.write_all(&calls)?;
            for _ in 0..BATCH {
                let mut mark = [0; 4];
                self.read_all(socket, &mut mark)?;
                reply.resize((u32::from_be_bytes(mark) & !(1 << 31)) as usize, 0);
                self.read_all(socket, &mut reply)?;
                self.done.refused += 1;
            }
        }
        Ok(())
    }

    fn read_all(&self, socket: &mut TcpStream, mut into: &mut [u8]) -> io::Result<()> {
        while !into.is_empty() {
            match socket.read(into) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => into = &mut into[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && !self.is_over() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// A read by a capability that there is, in a record, with a wrong digest.
    fn read_call(&mut self, xid: u32) -> Vec<u8> {
        let arguments = to_bytes(&ReadArguments::single(self.victim.object, 0, 4096));
        let protection = Protection::INTEGRITY_ARGS;
        self.record(xid, Procedure::Read, protection, &arguments, arguments.len())
    }

    /// The beginning of a write of as much as a call can carry, whose data never come.
    fn huge_write(&mut self) -> Vec<u8> {
        let length = 4 << 20;
        let arguments = to_bytes(&WriteArguments::single(self.victim.object, 0, length, false));
        let protection = Protection::INTEGRITY_ARGS | Protection::INTEGRITY_DATA;
        self.record(1, Procedure::Write, protection, &arguments, arguments.len() + length)
    }

    fn record(
        &mut self,
        xid: u32,
        procedure: Procedure,
        protection: Protection,
        arguments: &[u8],
        announced: usize,
    ) -> Vec<u8> {
        let key = CredentialKey::Capability(self.victim.capability);
        let credential = Credential::new(key, Suite::preferred(), protection).to_body();
        let elapsed = u64::try_from(self.victim.asked.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let nonce = Nonce { timestamp: self.victim.clock.plus_ns(elapsed), unique: self.next() };
        let digest = Digest([self.next() as u8; 16]);
        let data_tag = protection.contains(Protection::INTEGRITY_DATA).then_some(DataTag(digest.0));
        let verifier = Verifier { nonce, digest, data_tag }.to_body();
        let head = CallHead {
            xid,
            program: PROGRAM,
            version: VERSION,
            procedure: procedure.into(),
            credential: OpaqueAuth { flavor: AUTH_FLAVOR, body: &credential },
            verifier: OpaqueAuth { flavor: AUTH_FLAVOR, body: &verifier },
        };
        let head = to_bytes(&head);
        let mark = ((head.len() + announced) as u32 | 1 << 31).to_be_bytes();
        [&mark[..], &head, arguments].concat()
    }

    /// A linear congruential sequence: these numbers need only differ.
    fn next(&mut self) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.random ^ (self.random >> 32)
    }
}
