//! Everything that eight clients send with one capability, over many connections and under every kind of
//! protection, is recorded on the way and sent once more, byte by byte: to the same drive, and after it
//! was started anew.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::*;
use nasd_capability::{NonceSource, SealingKeys, SecretKey, capability_key};
use nasd_client::{Authority, ConnectOptions, DriveClient};
use nasd_drive::DriveOptions;
use nasd_protocol::drive::{FlushpartitionArguments, Procedure, ReadArguments};
use nasd_protocol::manager::IssuedCapability;
use nasd_transport::ServerOptions;
use nasd_types::{ObjectName, Protection};

const CLIENTS: usize = 8;
/// Connections of each, one after the other.
const CONNECTIONS: usize = 3;
/// Requests of each kind over each.
const REQUESTS: usize = 15;
const BLOCK: usize = 4096;

/// What was sent over each connection.
type Streams = Arc<Mutex<Vec<Vec<u8>>>>;

/// Passes connections on to a drive, and keeps what is sent to it.
fn record(drive: SocketAddr) -> (SocketAddr, Streams) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let streams = Streams::default();
    let kept = Arc::clone(&streams);
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, mut drive) = (client.unwrap(), TcpStream::connect(drive).unwrap());
            let (mut replies, mut back) = (drive.try_clone().unwrap(), client.try_clone().unwrap());
            let kept = Arc::clone(&kept);
            let number = {
                let mut kept = kept.lock().unwrap();
                kept.push(Vec::new());
                kept.len() - 1
            };
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut replies, &mut back);
                let _ = back.shutdown(Shutdown::Both);
            });
            std::thread::spawn(move || {
                let mut bytes = vec![0; 64 << 10];
                while let Ok(count @ 1..) = client.read(&mut bytes) {
                    kept.lock().unwrap()[number].extend_from_slice(&bytes[..count]);
                    if drive.write_all(&bytes[..count]).is_err() {
                        break;
                    }
                }
                let _ = drive.shutdown(Shutdown::Write);
            });
        }
    });
    (address, streams)
}

/// The records of a stream, without their marks.
fn records(mut stream: &[u8]) -> Vec<&[u8]> {
    let mut records = Vec::new();
    while let Some((mark, rest)) = stream.split_first_chunk() {
        let length = (u32::from_be_bytes(*mark) & !(1 << 31)) as usize;
        let (record, rest) = rest.split_at(length.min(rest.len()));
        records.push(record);
        stream = rest;
    }
    records
}

fn word(record: &[u8], index: usize) -> u32 {
    u32::from_be_bytes(record[4 * index..4 * index + 4].try_into().unwrap())
}

/// Sends a stream once more; how many of its requests were refused, all but those that anybody may make.
fn replay(drive: &TestDrive, stream: &[u8]) -> usize {
    let mut socket = TcpStream::connect(drive.server().address()).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut sender = socket.try_clone().unwrap();
    let mut replies = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            sender.write_all(stream).unwrap();
            sender.shutdown(Shutdown::Write).unwrap();
        });
        socket.read_to_end(&mut replies).unwrap();
    });
    let (requests, replies) = (records(stream), records(&replies));
    assert_eq!(requests.len(), replies.len(), "each is answered");
    let mut refused = 0;
    for reply in replies {
        let request = requests.iter().find(|request| word(request, 0) == word(reply, 0)).unwrap();
        if [Procedure::Null, Procedure::Inquiry].map(u32::from).contains(&word(request, 5)) {
            continue;
        }
        // Accepted by RPC, and behind a verifier of 32 bytes its status and the operation's.
        assert_eq!((word(reply, 1), word(reply, 2), word(reply, 4)), (1, 0, 32));
        assert!([101, 102].contains(&word(reply, 14)), "status {}", word(reply, 14));
        refused += 1;
    }
    refused
}

/// How a client's requests are protected: in private, and with a sealed capability, as well as not.
fn protection_of(client: usize) -> Protection {
    let both = Protection::INTEGRITY_ARGS | Protection::INTEGRITY_DATA;
    [
        both,
        Protection::INTEGRITY_ARGS | Protection::PRIVACY_ARGS,
        Protection::SUPPORTED,
        Protection::UNDERSTOOD,
    ][client % 4]
}

/// All clients at work; none is refused anything.
fn work(address: SocketAddr, name: ObjectName, issued: &IssuedCapability) {
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let authority = Authority::capability(issued, protection_of(client));
            scope.spawn(move || {
                let authority = &authority;
                for connection in 0..CONNECTIONS {
                    let options = ConnectOptions { connections: 1, ..ConnectOptions::default() };
                    let drive = DriveClient::tcp(address.to_string(), Some(DRIVE), &options);
                    for number in 0..REQUESTS {
                        let offset = ((client * 100 + connection * 20 + number) * BLOCK) as u64;
                        let data = vec![client as u8 + 1; BLOCK];
                        drive.write(authority, name, offset, &data, false).unwrap();
                        let mut back = vec![0; BLOCK];
                        drive.read(authority, name, offset, &mut back).unwrap();
                        assert!(back == data);
                        drive.getattr(authority, name).unwrap();
                    }
                }
            });
        }
    });
}

/// What the object holds, whatever the drive's clock shows.
fn contents(drive: &TestDrive, name: ObjectName) -> Vec<u8> {
    let arguments = ReadArguments::single(name, 0, 1000 * BLOCK as u64);
    let read = Request::new(Procedure::Read, &arguments, Signer::working());
    let first = drive.ask(&read).unwrap();
    match first.status {
        None => first.data,
        Some(_) => {
            let nonce = NonceSource::new(99).draw(first.verifier.nonce.timestamp);
            let again = drive.ask(&Request { nonce: Some(nonce), ..read }).unwrap();
            assert_eq!(again.status, None);
            again.data
        }
    }
}

#[test]
fn nothing_that_was_recorded_passes_again() {
    let server = ServerOptions {
        unproved_in_a_row: 1 << 20,
        unproved_per_second: u32::MAX,
        ..DriveOptions::default().server
    };
    let options = DriveOptions { server, ..DriveOptions::default() };
    let device = new_device();
    let mut drive = TestDrive::on(Arc::clone(&device), options.clone(), START);
    let name = drive.new_object();
    let capability = drive.capability(name);
    let working = SecretKey::new(key_of(WORKING_KEY));
    let key = capability_key(&working, &capability, 5);
    let sealed = Some(SealingKeys::new(&working).seal(&capability));
    let (address, streams) = record(drive.server().address());
    work(address, name, &IssuedCapability { capability, key, sealed });
    // If anything passed once more, this would not stay.
    let overwritten = vec![0xee; 1000 * BLOCK];
    drive.write(name, 0, &overwritten);
    let flush = FlushpartitionArguments { partition: PARTITION };
    assert!(drive.by(Signer::working(), Procedure::Flushpartition, &flush).status.is_none());
    let streams = streams.lock().unwrap().clone();
    let private = streams.iter().flat_map(|stream| records(stream));
    let private = private.filter(|record| word(record, 5) == u32::from(Procedure::Private)).count();
    assert_eq!(private, CLIENTS * CONNECTIONS * REQUESTS * 3 * 3 / 4, "three clients of four");
    for round in 0..3 {
        let refused: usize = streams.iter().map(|stream| replay(&drive, stream)).sum();
        assert!(refused >= CLIENTS * CONNECTIONS * REQUESTS * 3, "{refused} in round {round}");
        assert!(contents(&drive, name) == overwritten, "written again, in round {round}");
        if round == 2 {
            break;
        }
        let now = drive.now().0;
        match round {
            0 => drive.server.take().unwrap().shut_down(Duration::from_secs(5)).unwrap(),
            // As a power cut would.
            _ => drop(drive.server.take()),
        }
        drive = TestDrive::on(Arc::clone(&device), options.clone(), now - 100 * SECOND);
    }
}
