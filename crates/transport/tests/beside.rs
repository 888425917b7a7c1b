//! Another protocol on the port of a service's calls.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::*;
use nasd_transport::{
    Answer, Arriving, Attempt, Beside, BesideConnection, Call, ClientOptions, Connection, Receive,
    Server, ServerOptions, Service, Together,
};

const BEGINS: [u8; 8] = *b"BESIDE!!";

/// The test service, and a protocol whose connections send back what they are sent. One that has sent `P` is proved, and one that
/// has sent `R` rests.
struct Both;

impl Service for Both {
    type Payload = Pieces;
    type Segment = Vec<u8>;

    fn receive(&self, call: &Arriving<'_>) -> Receive<Pieces> {
        TestService.receive(call)
    }

    fn judges(&self) -> bool {
        true
    }

    fn attempt(&self, call: Call<'_, Pieces>) -> Attempt<Pieces, Vec<u8>> {
        call.standing.prove();
        TestService.attempt(call)
    }

    fn execute(&self, call: Call<'_, Pieces>) -> Answer<Vec<u8>> {
        call.standing.prove();
        TestService.execute(call)
    }

    fn beside(&self) -> Option<&dyn Beside> {
        Some(self)
    }

    fn together(&self) -> Box<dyn Together<Pieces, Vec<u8>> + '_> {
        TestService.together()
    }
}

impl Beside for Both {
    fn begins(&self) -> [u8; 8] {
        BEGINS
    }

    fn serve(&self, connection: BesideConnection<'_>) {
        let mut socket: &TcpStream = connection.socket.as_ref();
        let mut byte = [0];
        while matches!(socket.read(&mut byte), Ok(1)) {
            match byte[0] {
                b'P' => connection.standing.prove(),
                b'R' => connection.rests(Duration::from_secs(100)),
                _ => {}
            }
            if socket.write_all(&byte).is_err() {
                return;
            }
        }
    }
}

fn start_both(options: ServerOptions) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    Server::start(listener, None, Arc::new(Both), options).unwrap()
}

/// Whether what was sent comes back.
fn comes_back(socket: &mut TcpStream, bytes: &[u8]) -> bool {
    let mut back = vec![0; bytes.len()];
    socket.write_all(bytes).is_ok() && socket.read_exact(&mut back).is_ok() && back == bytes
}

/// A connection that has proved itself, and more.
fn proved(server: &Server, more: &[u8]) -> TcpStream {
    let mut socket = raw(server.address());
    assert!(comes_back(&mut socket, &[&BEGINS, &b"P"[..], more].concat()));
    socket
}

#[test]
fn connections_are_told_by_how_they_begin() {
    let server = start_both(ServerOptions::default());
    let mut socket = proved(&server, b"and more");
    assert_eq!(echo(&connect(&server), b"a call").unwrap(), b"a call");
    assert!(comes_back(&mut socket, b"still"));
    // The beginning may come in parts.
    for cut in [1, 7] {
        let mut socket = raw(server.address());
        socket.write_all(&BEGINS[..cut]).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        socket.write_all(&BEGINS[cut..]).unwrap();
        socket.write_all(b"x").unwrap();
        let mut back = [0; 9];
        socket.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"BESIDE!!x");
    }
    // What begins alike and is something else is no call either, and is closed.
    let mut other = raw(server.address());
    other.write_all(b"BESIDE!?").unwrap();
    assert!(!matches!(other.read(&mut [0; 1]), Ok(1..)));
}

#[test]
fn whoever_sends_a_part_of_the_beginning_is_not_waited_for_longer_than_a_stranger() {
    let options =
        ServerOptions { stranger_timeout: Duration::from_millis(300), ..ServerOptions::default() };
    let server = start_both(options);
    let begun = Instant::now();
    let mut socket = raw(server.address());
    socket.write_all(&BEGINS[..3]).unwrap();
    assert!(!matches!(socket.read(&mut [0; 1]), Ok(1..)), "it is closed");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[test]
fn those_that_rest_go_where_there_are_too_many_and_others_do_not() {
    let server = start_both(ServerOptions { max_connections: 4, ..ServerOptions::default() });
    let mut busy: Vec<TcpStream> = (0..3).map(|_| proved(&server, b"")).collect();
    let mut resting = proved(&server, b"R");
    let begun = Instant::now();
    loop {
        let connected = Connection::tcp(server.address(), &ClientOptions::default());
        if connected.is_ok_and(|channel| echo(&channel, b"new").is_ok()) {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "no place for a new one");
    }
    assert!(!comes_back(&mut resting, b"gone"));
    for socket in &mut busy {
        assert!(comes_back(socket, b"still"), "one had to go that does not rest");
    }
}
