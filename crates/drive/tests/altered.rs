//! Bits that are flipped on the way, one at a time: of requests, the drive does nothing that they ask;
//! of replies, the client believes nothing that they say. Under every set of protection options and
//! with every suite.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod common;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::*;
use nasd_capability::{SecretKey, Suite};
use nasd_client::{
    Authority, ClientError, ConnectOptions, Connector, DriveClient, RetryPolicy, SystemHost,
    TransportError,
};
use nasd_drive::{Drive, DriveOptions, DriveServer, Environment};
use nasd_protocol::drive::{Procedure, ReadArguments, WriteArguments};
use nasd_store::{OpenOptions, Store};
use nasd_transport::{
    Channel, ChannelError, ClientOptions, Connection, OpaqueAuth, OutgoingCall, Reply,
};
use nasd_types::{ObjectName, Protection};

/// Of so many bits of each part of a message, at most, each is flipped.
const BITS: usize = 96;

/// Every set of options that has a digest, with every suite.
fn all() -> impl Iterator<Item = (Protection, Suite)> {
    let sets = Protection::all_understood().filter(|set| !set.is_empty());
    sets.flat_map(|set| Suite::available().iter().map(move |suite| (set, *suite)))
}

/// The same, and those that only a sealed capability can have.
fn all_by_capability() -> impl Iterator<Item = (Protection, Suite)> {
    let sealed = |set| set | Protection::PRIVACY_CAPABILITY;
    all().flat_map(move |(set, suite)| [(set, suite), (sealed(set), suite)])
}

/// The bits to flip of so many: all, or some that a seed chooses, first and last among them.
fn bits(count: usize, seed: &mut u64) -> Vec<usize> {
    if count <= BITS {
        return (0..count).collect();
    }
    let mut bits = vec![0, count - 1];
    while bits.len() < BITS {
        *seed =
            seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bits.push((*seed >> 33) as usize % count);
    }
    bits
}

fn flip(bytes: &mut [u8], bit: usize) {
    bytes[bit / 8] ^= 1 << (bit % 8);
}

/// Which part of a request is altered.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    Credential,
    Verifier,
    Arguments,
    Data,
}

fn length_of(part: Part, request: &Request<'_>) -> usize {
    let length = AtomicUsize::new(0);
    let measure = |bytes: &mut Vec<u8>| length.store(bytes.len(), Ordering::Relaxed);
    // Sealing it is enough.
    altered(part, request, &measure).seal_only();
    length.into_inner()
}

fn altered<'a>(
    part: Part,
    request: &Request<'a>,
    tamper: &'a (dyn Fn(&mut Vec<u8>) + Sync),
) -> Request<'a> {
    let request = request.clone();
    match part {
        Part::Credential => Request { tamper_credential: Some(tamper), ..request },
        Part::Verifier => Request { tamper_verifier: Some(tamper), ..request },
        Part::Arguments => Request { tamper_arguments: Some(tamper), ..request },
        Part::Data => Request { tamper_data: Some(tamper), ..request },
    }
}

#[test]
fn a_request_with_any_bit_flipped_does_nothing() {
    let drive = TestDrive::new();
    let (mut seed, mut asked) = (7, 0);
    for (set, suite) in all_by_capability() {
        let (old, new) = (pattern(1, 300), pattern(2, 300));
        let name = drive.object_with(&old);
        let capability = drive.capability(name);
        let signer = match set.contains(Protection::PRIVACY_CAPABILITY) {
            true => Signer::sealed(&capability, &[]),
            false => Signer::capability(&capability),
        };
        let write = WriteArguments::single(name, 0, new.len(), false);
        let read = ReadArguments::single(name, 0, 300);
        let requests = [
            Request { data: &new, ..Request::new(Procedure::Write, &write, signer.clone()) },
            Request::new(Procedure::Read, &read, signer),
        ];
        for request in requests {
            let request = Request { protection: set, suite, ..request };
            let mut parts = vec![Part::Credential, Part::Verifier, Part::Arguments];
            let covers_data = set.contains(Protection::INTEGRITY_DATA);
            if covers_data && request.procedure == Procedure::Write {
                parts.push(Part::Data);
            }
            for part in parts {
                for bit in bits(8 * length_of(part, &request), &mut seed) {
                    let tamper = move |bytes: &mut Vec<u8>| flip(bytes, bit);
                    let answered = drive.ask(&altered(part, &request, &tamper));
                    let what = format!("{set:?} {suite:?} {:?} {part:?} {bit}", request.procedure);
                    match answered {
                        Ok(answered) => {
                            let status = answered.status.unwrap_or_else(|| panic!("{what}"));
                            assert!(status.refusal().is_some() && !answered.proved, "{what}");
                        }
                        // The word that says how long something is; or the form of something.
                        Err(ChannelError::Rejected { .. }) => {}
                        Err(error) => panic!("{what}: {error}"),
                    }
                    asked += 1;
                }
            }
        }
        let found =
            drive.by(Signer::working(), Procedure::Read, &ReadArguments::single(name, 0, 400));
        assert!(found.data == old, "{set:?} {suite:?}");
    }
    assert!(asked > 5000, "{asked}");
}

/// Where in a reply a bit is flipped.
#[derive(Default)]
struct Fault {
    /// Counted over verifier, results and data, joined; `None` flips none.
    bit: Mutex<Option<usize>>,
    /// The lengths of the three in the last reply.
    lengths: Mutex<[usize; 3]>,
    hit: AtomicBool,
}

struct FaultyChannel {
    inner: Connection,
    fault: Arc<Fault>,
}

impl Channel for FaultyChannel {
    fn call(&self, call: &OutgoingCall<'_>, into: &mut [u8]) -> Result<Reply, ChannelError> {
        let reply = self.inner.call(call, into)?;
        let opaque = reply.verifier();
        let (flavor, mut verifier) = (opaque.flavor, opaque.body.to_vec());
        let mut results = reply.results().to_vec();
        let data_length = reply.data_length();
        *self.fault.lengths.lock().unwrap() = [verifier.len(), results.len(), data_length];
        if let Some(bit) = *self.fault.bit.lock().unwrap() {
            let mut rest = bit;
            for part in [&mut verifier[..], &mut results[..], &mut into[..data_length]] {
                if rest < 8 * part.len() {
                    flip(part, rest);
                    self.fault.hit.store(true, Ordering::Relaxed);
                    break;
                }
                rest -= 8 * part.len();
            }
        }
        let verifier = OpaqueAuth { flavor, body: &verifier };
        Ok(Reply::new(verifier, &results, data_length))
    }

    fn is_open(&self) -> bool {
        self.inner.is_open()
    }
}

struct FaultyConnector(SocketAddr, Arc<Fault>);

impl Connector for FaultyConnector {
    fn address(&self) -> &str {
        "the drive under test"
    }

    fn connect(&self, _timeout: Duration) -> Result<Arc<dyn Channel>, TransportError> {
        let inner = Connection::tcp(self.0, &ClientOptions::default())?;
        Ok(Arc::new(FaultyChannel { inner, fault: Arc::clone(&self.1) }))
    }
}

fn serve() -> DriveServer {
    let store = Store::open(new_device(), &OpenOptions::default()).unwrap();
    let drive = Drive::new(store, DriveOptions::default(), Environment::system()).unwrap();
    DriveServer::start(drive, std::net::TcpListener::bind("127.0.0.1:0").unwrap()).unwrap()
}

#[test]
fn a_reply_with_any_bit_flipped_is_not_believed() {
    let server = serve();
    let fault = Arc::new(Fault::default());
    let options = ConnectOptions {
        retry: RetryPolicy::within(Duration::from_secs(20)),
        ..ConnectOptions::default()
    };
    let connector = FaultyConnector(server.address(), Arc::clone(&fault));
    let host = Arc::new(SystemHost::new());
    let client = DriveClient::over(Arc::new(connector), host, Some(DRIVE), &options);
    let name = ObjectName { partition: PARTITION, object: nasd_types::ObjectId::FIRST_OBJECT };
    let mut seed = 11;
    for (set, suite) in all() {
        let key = SecretKey::new(key_of(WORKING_KEY));
        let authority = Authority::working_key(PARTITION, key, set).with_suite(suite);
        let data = pattern(3, 300);
        client.write(&authority, name, 0, &data, false).unwrap();
        for of_read in [true, false] {
            let ask = || -> Result<Vec<u8>, ClientError> {
                let mut into = vec![0; 300];
                if of_read {
                    client.read(&authority, name, 0, &mut into)?;
                } else {
                    client.write(&authority, name, 0, &data, false)?;
                }
                Ok(into)
            };
            ask().unwrap();
            let [verifier, results, data_length] = *fault.lengths.lock().unwrap();
            let covers_data = set.contains(Protection::INTEGRITY_DATA);
            let covered = verifier + results + if covers_data { data_length } else { 0 };
            assert_eq!(data_length, if of_read { 300 } else { 0 });
            let mut chosen = bits(8 * verifier, &mut seed);
            let rest = bits(8 * (covered - verifier), &mut seed);
            chosen.extend(rest.into_iter().map(|bit| bit + 8 * verifier));
            for bit in chosen {
                fault.hit.store(false, Ordering::Relaxed);
                *fault.bit.lock().unwrap() = Some(bit);
                let result = ask();
                *fault.bit.lock().unwrap() = None;
                let what = format!("{set:?} {suite:?} read {of_read} bit {bit}");
                assert!(fault.hit.load(Ordering::Relaxed), "{what} was not flipped");
                let error = result.expect_err(&what);
                let found_out = matches!(
                    error,
                    ClientError::BadReplyDigest { .. } | ClientError::Protocol { .. }
                );
                assert!(found_out, "{what}: {error}");
            }
            if of_read && !covers_data {
                *fault.bit.lock().unwrap() = Some(8 * covered);
                assert!(ask().unwrap() != data, "nobody asked for integrity of data");
                *fault.bit.lock().unwrap() = None;
            }
        }
    }
}
