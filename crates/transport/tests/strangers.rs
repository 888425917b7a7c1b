//! A server among strangers: whoever has proved nothing locks nobody out, and costs little.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod common;

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::*;
use nasd_transport::{
    AcceptStatus, Answer, Arriving, Attempt, Call, ClientOptions, Connection, Receive, Server,
    ServerOptions, Service, Together,
};

/// A call that proves nothing.
const REFUSE: u32 = 99;

/// The test service, to which connections are strangers' until a call other than `REFUSE` comes.
#[derive(Default)]
struct Judge {
    /// Calls that were refused.
    refused: AtomicUsize,
    /// How often it was to find out whether a call waits, for which it may have to look something up.
    looks: AtomicUsize,
}

impl Service for Judge {
    type Payload = Pieces;
    type Segment = Vec<u8>;

    fn receive(&self, call: &Arriving<'_>) -> Receive<Pieces> {
        TestService.receive(call)
    }

    fn judges(&self) -> bool {
        true
    }

    fn attempt(&self, call: Call<'_, Pieces>) -> Attempt<Pieces, Vec<u8>> {
        self.looks.fetch_add(1, Ordering::Relaxed);
        match call.head.procedure {
            SLEEP | NAP => TestService.attempt(call),
            _ => Attempt::Answered(self.execute(call)),
        }
    }

    fn execute(&self, call: Call<'_, Pieces>) -> Answer<Vec<u8>> {
        if call.head.procedure == REFUSE {
            self.refused.fetch_add(1, Ordering::Relaxed);
            call.standing.note_unproved();
            return Answer::Rejected(AcceptStatus::SystemError);
        }
        call.standing.prove();
        TestService.execute(call)
    }

    fn together(&self) -> Box<dyn Together<Pieces, Vec<u8>> + '_> {
        TestService.together()
    }
}

fn judging(options: ServerOptions) -> (Server, Arc<Judge>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let judge = Arc::new(Judge::default());
    (Server::start(listener, None, Arc::clone(&judge), options).unwrap(), judge)
}

/// How long a new client takes to be served, trying again as clients do.
fn time_to_be_served(server: &Server) -> Duration {
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(30) {
        let connected = Connection::tcp(server.address(), &ClientOptions::default());
        if connected.is_ok_and(|channel| echo(&channel, b"fine").is_ok()) {
            return begin.elapsed();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("no new client is served");
}

/// What strangers may send that makes no call: nothing, and parts of a call.
fn beginnings() -> [Vec<u8>; 3] {
    let call = record(&message(1, WRITE, &write_arguments(0, 100_000), &[7; 100_000]), usize::MAX);
    [Vec::new(), call[..2].to_vec(), call[..60].to_vec()]
}

#[test]
fn strangers_who_fill_every_place_lock_nobody_out() {
    for beginning in beginnings() {
        let options = ServerOptions { max_connections: 40, ..ServerOptions::default() };
        let (server, _) = judging(options);
        let friends: Vec<_> = (0..20).map(|_| connect(&server)).collect();
        for friend in &friends {
            echo(friend, b"").unwrap();
        }
        let mut strangers = Vec::new();
        for round in 0..4 {
            for _ in 0..60 {
                let mut socket = raw(server.address());
                // It may have had to make room already.
                let _ = socket.write_all(&beginning);
                strangers.push(socket);
            }
            let time = time_to_be_served(&server);
            assert!(time < Duration::from_secs(3), "{} {round}: {time:?}", beginning.len());
            assert!(server.connections() <= 40);
        }
        for friend in &friends {
            assert_eq!(echo(friend, b"still").unwrap(), b"still", "a friend had to go");
        }
    }
}

#[test]
fn a_stranger_who_proves_nothing_is_closed_and_a_friend_is_not() {
    let options = ServerOptions { unproved_per_second: u32::MAX, ..ServerOptions::default() };
    let (server, judge) = judging(options);
    let refused = &judge.refused;
    let refuse = record(&message(1, REFUSE, &[], &[]), usize::MAX);
    let mut stranger = raw(server.address());
    let many: Vec<u8> = refuse.repeat(1000);
    let _ = stranger.write_all(&many);
    while receive_record(&mut stranger).is_some() {}
    assert_eq!(refused.swap(0, Ordering::Relaxed), 64);
    assert_eq!(judge.looks.load(Ordering::Relaxed), 0, "nothing is looked up for a stranger");
    let friend = connect(&server);
    for round in 0..10 {
        echo(&friend, b"").unwrap();
        let asked = Asked { procedure: REFUSE, ..Asked::default() };
        for _ in 0..(if round < 9 { 900 } else { 0 }) {
            assert!(ask(&friend, &asked, &mut []).is_err());
        }
    }
    assert_eq!(refused.load(Ordering::Relaxed), 8100, "a friend's calls are answered");
}

/// Sends refused calls as fast as it can, and comes again when it is closed.
fn pester(server: &Server, until: &AtomicBool) {
    let refuse = record(&message(1, REFUSE, &[], &[]), usize::MAX).repeat(16);
    while !until.load(Ordering::Relaxed) {
        let Ok(mut socket) = TcpStream::connect(server.address()) else {
            continue;
        };
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        while !until.load(Ordering::Relaxed) && socket.write_all(&refuse).is_ok() {
            let answered = (0..16).all(|_| receive_record(&mut socket).is_some());
            if !answered {
                break;
            }
        }
    }
}

#[test]
fn work_for_strangers_is_limited_and_honest_neighbours_wait_little() {
    let options =
        ServerOptions { unproved_per_second: 200, unproved_burst: 400, ..ServerOptions::default() };
    let (server, judge) = judging(options);
    let friend = connect(&server);
    echo(&friend, b"").unwrap();
    let stop = AtomicBool::new(false);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| pester(&server, &stop));
        }
        std::thread::sleep(Duration::from_millis(500));
        // They all come from one address. Who has proved himself notices nothing.
        let times = (0..200).map(|_| {
            let asked = Instant::now();
            echo(&friend, b"").unwrap();
            asked.elapsed()
        });
        let slow: Vec<_> = times.filter(|time| *time >= Duration::from_millis(500)).collect();
        // A few where this machine stops a thread for so long.
        assert!(slow.len() <= 3, "{slow:?}");
        // Who has not, waits once.
        for _ in 0..3 {
            let time = time_to_be_served(&server);
            assert!(time < Duration::from_millis(2500), "{time:?}");
        }
        stop.store(true, Ordering::Relaxed);
    });
    let (seconds, calls) =
        (begin.elapsed().as_secs_f64(), judge.refused.load(Ordering::Relaxed) as f64);
    // The burst, the rate, and each connection's first calls.
    assert!(calls < 500.0 + 250.0 * seconds, "{calls} calls in {seconds} s");
    assert!(calls > 100.0, "nobody pestered the server");
}

#[test]
fn the_slow_are_given_up_by_their_rate_and_not_by_their_size() {
    let options = ServerOptions {
        peer_timeout: Duration::from_millis(2000),
        stranger_timeout: Duration::from_millis(1500),
        least_bytes_per_second: 100_000,
        ..ServerOptions::default()
    };
    let (server, _) = judging(options);
    let echo = record(&message(1, ECHO, &[], &[]), usize::MAX);
    let write =
        record(&message(2, WRITE, &write_arguments(2, 400_000), &pattern(2, 400_000)), usize::MAX);
    // Twice as fast as it must be: that takes two seconds.
    let send_slowly = |socket: &mut TcpStream, bytes_per_step: usize| {
        let begin = Instant::now();
        for (step, chunk) in write.chunks(bytes_per_step).enumerate() {
            if socket.write_all(chunk).is_err() {
                return false;
            }
            let due = Duration::from_millis(20 * (step as u64 + 1));
            std::thread::sleep(due.saturating_sub(begin.elapsed()));
        }
        receive_record(socket).is_some_and(|reply| xid_of(&reply) == 2)
    };
    let mut friend = raw(server.address());
    friend.write_all(&echo).unwrap();
    receive_record(&mut friend).unwrap();
    assert!(send_slowly(&mut friend, 4000), "a slow friend is given up");
    assert!(send_slowly(&mut raw(server.address()), 4000), "a slow stranger is given up");
    assert!(!send_slowly(&mut friend, 1000), "half the rate is accepted");
    let mut stranger = raw(server.address());
    stranger.write_all(&write[..10]).unwrap();
    let begin = Instant::now();
    assert!(is_closed(&mut stranger));
    assert!(begin.elapsed() < Duration::from_secs(8));
}

#[test]
fn a_stranger_who_says_nothing_is_closed_before_a_friend_is() {
    let options = ServerOptions {
        stranger_idle_timeout: Duration::from_millis(3000),
        idle_timeout: Duration::from_secs(60),
        ..ServerOptions::default()
    };
    let (server, _) = judging(options);
    let friend = connect(&server);
    echo(&friend, b"").unwrap();
    assert!(is_closed(&mut raw(server.address())));
    assert_eq!(echo(&friend, b"still").unwrap(), b"still");
}

#[test]
fn a_flood_of_connections_is_let_in_slowly() {
    let options =
        ServerOptions { unproved_per_second: 100, unproved_burst: 100, ..ServerOptions::default() };
    let (server, _) = judging(options);
    // The first 25 are let in at once, 256 wait at the door for a second, the others are sent away.
    let begin = Instant::now();
    let flood: Vec<_> = (0..1500).map(|_| raw(server.address())).collect();
    std::thread::sleep(Duration::from_millis(100));
    let connections = server.connections();
    let let_in = 25.0 + 260.0 * (1.0 + begin.elapsed().as_secs_f64());
    assert!((connections as f64) < let_in, "{connections} of {let_in}");
    drop(flood);
    let time = time_to_be_served(&server);
    assert!(time < Duration::from_secs(5), "{time:?}");
}
