//! A directory that is served, and what comes between it and its clients.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nasd_bulk_service::client::Opening;
use nasd_bulk_service::directory::{Directory, DirectoryOptions, Surroundings, Ticket};
use nasd_bulk_service::server::{Sessions, serve};
use nasd_capability::{Chain, SecretKey};
use nasd_client::Authority;
use nasd_protocol::bulk::Options;
use nasd_protocol::manager::IssuedCapability;
use nasd_types::{DriveId, Protection, Rights, Timestamp};

pub const READS: Rights = Rights::READ.union(Rights::GETATTR);
pub const ALL: Rights = READS.union(Rights::WRITE).union(Rights::SETATTR).union(Rights::FLUSH);

/// A directory on a real file system, and its server, which can be killed and started anew.
pub struct Rig {
    pub root: tempfile::TempDir,
    pub served: Arc<RwLock<Arc<Directory>>>,
    pub address: SocketAddr,
    options: DirectoryOptions,
    connections: Arc<Mutex<Vec<Arc<TcpStream>>>>,
    pub opens: Arc<AtomicUsize>,
    /// How far the server's clock is from this machine's, in nanoseconds.
    pub skew_ns: Arc<AtomicI64>,
}

pub fn now() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Timestamp::from_parts(since_epoch.as_secs(), since_epoch.subsec_nanos())
}

pub fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2) + 1;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    (0..length).map(|_| next()).collect()
}

impl Rig {
    pub fn new(options: DirectoryOptions) -> Rig {
        let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let skew_ns = Arc::new(AtomicI64::new(0));
        let directory = directory(&root, &options, 1, &skew_ns);
        let served = Arc::new(RwLock::new(Arc::new(directory)));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::default();
        let opens = Arc::default();
        let rig = Rig { root, served, address, options, connections, opens, skew_ns };
        rig.accept(listener);
        rig
    }

    fn accept(&self, listener: TcpListener) {
        let (served, connections) = (Arc::clone(&self.served), Arc::clone(&self.connections));
        let opens = Arc::clone(&self.opens);
        let sessions = Arc::new(Sessions::default());
        thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = Arc::new(stream.unwrap());
                opens.fetch_add(1, Ordering::Relaxed);
                connections.lock().unwrap().push(Arc::clone(&stream));
                let (directory, sessions) =
                    (Arc::clone(&served.read().unwrap()), Arc::clone(&sessions));
                thread::spawn(move || {
                    serve(&*directory, &sessions, &stream, &()).ok();
                    stream.shutdown(Shutdown::Both).ok();
                });
            }
        });
    }

    /// Ends the server, and starts it anew.
    pub fn restart(&self, instance: u64) {
        let anew = directory(&self.root, &self.options, instance, &self.skew_ns);
        *self.served.write().unwrap() = Arc::new(anew);
        for stream in self.connections.lock().unwrap().drain(..) {
            stream.shutdown(Shutdown::Both).ok();
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    pub fn put(&self, name: &str, contents: &[u8]) {
        fs::write(self.path(name), contents).unwrap();
    }

    pub fn ticket(&self, path: &str, rights: Rights) -> Ticket {
        let expires = now().plus_ns(3600 * Timestamp::SECOND_NS);
        self.served.read().unwrap().ticket(path.as_bytes(), rights, expires)
    }

    pub fn opening(&self, path: &str, options: Options) -> Opening {
        self.opening_by(&self.ticket(path, ALL), options, Protection::NONE)
    }

    /// With a ticket, and requests that are protected at least so.
    pub fn opening_by(&self, ticket: &Ticket, options: Options, more: Protection) -> Opening {
        let Ticket { capability, sealed, key, place } = ticket.clone();
        let issued = IssuedCapability { capability, key, sealed: Some(sealed) };
        Opening {
            address: self.address.to_string(),
            authority: Authority::delegated(&issued, Chain::default(), more),
            place,
            options,
            block: 0,
            durable: false,
            patience: Duration::from_secs(10),
            clock_ahead_ns: 0,
        }
    }
}

fn directory(
    root: &tempfile::TempDir,
    options: &DirectoryOptions,
    instance: u64,
    skew_ns: &Arc<AtomicI64>,
) -> Directory {
    let skew_ns = Arc::clone(skew_ns);
    let clock = move || {
        let skewed = i128::from(now().0) + i128::from(skew_ns.load(Ordering::Relaxed));
        Timestamp(u64::try_from(skewed).unwrap())
    };
    let surroundings = Surroundings {
        identity: DriveId(7),
        secret: SecretKey::new([3; 32]),
        clock: Box::new(clock),
        random: [instance, instance + 1, instance + 2],
    };
    Directory::new(root.path(), surroundings, options.clone()).unwrap()
}

/// Something between client and server that cuts each connection after so many bytes from the server, as long as
/// there are any left to cut.
pub fn cutting(server: SocketAddr, after: Vec<u64>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let mut cuts = after.into_iter();
        for client in listener.incoming() {
            let (client, server) = (client.unwrap(), TcpStream::connect(server).unwrap());
            let most = cuts.next().unwrap_or(u64::MAX);
            pass_on(client.try_clone().unwrap(), server.try_clone().unwrap(), u64::MAX);
            pass_on(server, client, most);
        }
    });
    address
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, most: u64) {
    thread::spawn(move || {
        let (mut left, mut bytes) = (most, vec![0; 64 << 10]);
        while left > 0 {
            let room = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let count = from.read(&mut bytes[..room]).unwrap_or(0);
            if count == 0 || to.write_all(&bytes[..count]).is_err() {
                break;
            }
            left -= count as u64;
        }
        from.shutdown(Shutdown::Both).ok();
        to.shutdown(Shutdown::Both).ok();
    });
}
