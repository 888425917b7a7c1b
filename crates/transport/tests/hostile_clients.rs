//! A server against clients that send garbage, stop in the middle, or never read.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod common;

use std::io::Write;
use std::time::{Duration, Instant};

use common::*;
use nasd_transport::{ClientOptions, Connection, ServerOptions};

#[test]
fn any_fragments_and_any_splits_make_the_same_calls() {
    let server = start(ServerOptions::default());
    for seed in 0..60 {
        let mut random = Random(seed);
        let mut socket = raw(server.address());
        let mut bytes = Vec::new();
        let mut expected = Vec::new();
        for xid in 0..8 {
            let (call, results) = if random.index(2) == 0 {
                let text = vec![seed as u8; 4 * random.index(2000)];
                (message(xid, ECHO, &text, &[]), text)
            } else {
                let length = random.index(30_000);
                let arguments = write_arguments(xid, length);
                let call = message(xid, WRITE, &arguments, &pattern(xid, length));
                (call, vec![0, 0, 0, 1])
            };
            let fragment = [1, 7, 100, 1000, 9000, usize::MAX][random.index(6)];
            bytes.extend(record(&call, fragment));
            expected.push(reply_message(xid, &results));
        }
        let writer = socket.try_clone().unwrap();
        let sender = std::thread::spawn(move || {
            let mut writer = writer;
            send_split(&mut writer, &bytes, &mut random);
        });
        for expected in expected {
            let reply = receive_record(&mut socket).expect("the server closed the connection");
            assert!(reply == expected, "seed {seed}: xid {}", xid_of(&expected));
        }
        sender.join().unwrap();
    }
}

/// Sends `bytes`, and checks that the server closes this connection and serves another.
fn assert_refused(bytes: &[u8], what: &str) {
    let server = start(quick_options());
    let mut socket = raw(server.address());
    // The server may close before everything is out.
    let _ = socket.write_all(bytes);
    let begin = Instant::now();
    assert!(is_closed(&mut socket), "{what}: answered");
    assert!(begin.elapsed() < Duration::from_secs(4), "{what}: {:?}", begin.elapsed());
    assert_eq!(echo(&connect(&server), b"fine").unwrap(), b"fine", "{what}");
}

#[test]
fn records_that_make_no_sense_close_their_connection_alone() {
    assert_refused(&0xffff_ffff_u32.to_be_bytes(), "a record of 2 GiB");
    assert_refused(&0x8050_0000_u32.to_be_bytes(), "a record of 5 MiB");
    assert_refused(&[0, 0, 0, 0], "an empty fragment");
    let five: Vec<u8> = [0, 1 << 20, 0].iter().flat_map(|part: &u32| part.to_be_bytes()).collect();
    assert_refused(&five, "an empty fragment before one");
    assert_refused(&record(&[0x55; 300], usize::MAX), "garbage");
    assert_refused(&record(&reply_message(1, &[0; 8]), usize::MAX), "a reply");
    assert_refused(&record(&message(1, ECHO, &[0; 70_000], &[]), usize::MAX), "a long head");
    assert_refused(&record(&message(1, ECHO, &[0; 70_000], &[]), 3000), "a long head in pieces");
    assert_refused(&0x8000_0000_u32.to_be_bytes(), "an empty record");
    // The limit spans fragments.
    let mut fragments = Vec::new();
    let call = message(1, WRITE, &write_arguments(0, 4 << 20), &[]);
    fragments.extend_from_slice(&(call.len() as u32).to_be_bytes());
    fragments.extend_from_slice(&call);
    fragments.extend_from_slice(&0x8041_0000_u32.to_be_bytes());
    assert_refused(&fragments, "fragments above the limit together");
}

#[test]
fn random_bytes_never_stop_the_server() {
    let server = start(quick_options());
    for seed in 0..300 {
        let mut random = Random(seed);
        let mut bytes: Vec<u8> = (0..random.index(400)).map(|_| random.next() as u8).collect();
        if random.index(2) == 0 {
            // A good call with a few bytes changed gets farther.
            bytes = record(&message(3, WRITE, &write_arguments(0, 64), &[7; 64]), usize::MAX);
            for _ in 0..1 + random.index(3) {
                let index = random.index(bytes.len());
                bytes[index] = random.next() as u8;
            }
        }
        let mut socket = raw(server.address());
        socket.write_all(&bytes).unwrap();
        socket.shutdown(std::net::Shutdown::Write).unwrap();
        while receive_record(&mut socket).is_some() {}
    }
    assert_eq!(echo(&connect(&server), b"fine").unwrap(), b"fine");
}

#[test]
fn errors_that_have_an_answer_get_it_and_the_connection_goes_on() {
    let server = start(ServerOptions::default());
    let mut socket = raw(server.address());
    let good = message(1, ECHO, b"abcd", &[]);
    let mut version = good.clone();
    version[11] = 3;
    let mut credential = good.clone();
    credential[30] = 2; // 512 bytes
    for (call, expected) in [
        (version, vec![1, 1, 1, 0, 2, 2]), // denied, RPC_MISMATCH, 2 to 2
        (credential, vec![1, 1, 1, 1, 1]), // denied, AUTH_ERROR, AUTH_BADCRED
        (good, vec![1, 1, 0, 9, 5]),
    ] {
        socket.write_all(&record(&call, usize::MAX)).unwrap();
        let reply = receive_record(&mut socket).unwrap();
        let words: Vec<u8> = reply.chunks(4).map(|word| word[3]).take(expected.len()).collect();
        assert_eq!(words, expected);
    }
}

#[test]
fn a_length_word_that_contradicts_the_record_is_garbage_arguments() {
    let server = start(ServerOptions::default());
    let mut socket = raw(server.address());
    for fragment in [usize::MAX, 1000] {
        for (announced, present) in [(10, 0), (10, 8), (10, 16), (0, 4), (4000, 8000), (8000, 4000)]
        {
            let arguments = write_arguments(0, announced);
            let call = message(5, WRITE, &arguments, &pattern(0, present));
            socket.write_all(&record(&call, fragment)).unwrap();
            let reply = receive_record(&mut socket).unwrap();
            let words: Vec<u8> = reply.chunks(4).map(|word| word[3]).collect();
            assert_eq!(words, [5, 1, 0, 0, 0, 4], "{announced} {present}");
        }
    }
}

#[test]
fn a_client_that_stops_inside_a_record_is_cut_off_and_holds_up_nobody() {
    let whole = record(&message(1, WRITE, &write_arguments(0, 100_000), &[7; 100_000]), usize::MAX);
    let check = |cut: usize| {
        let options =
            ServerOptions { peer_timeout: Duration::from_secs(3), ..ServerOptions::default() };
        let server = start(options);
        let mut slow = raw(server.address());
        slow.write_all(&whole[..cut]).unwrap();
        let begin = Instant::now();
        assert_eq!(echo(&connect(&server), b"fine").unwrap(), b"fine");
        assert!(begin.elapsed() < Duration::from_millis(2500));
        assert!(is_closed(&mut slow), "cut at {cut}");
        assert!(begin.elapsed() < Duration::from_secs(12), "{:?}", begin.elapsed());
    };
    std::thread::scope(|scope| {
        for cut in [2, 4, 20, 60, 5000] {
            let check = &check;
            scope.spawn(move || check(cut));
        }
    });
}

#[test]
fn a_client_that_drips_is_cut_off_too() {
    let server = start(quick_options());
    let whole = record(&message(1, ECHO, &[0; 400], &[]), usize::MAX);
    let mut slow = raw(server.address());
    let begin = Instant::now();
    for byte in &whole {
        std::thread::sleep(Duration::from_millis(50));
        if slow.write_all(&[*byte]).is_err() {
            break;
        }
    }
    assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
}

#[test]
fn a_client_that_does_not_read_is_cut_off_and_holds_up_nobody() {
    let server = start(quick_options());
    let mut deaf = raw(server.address());
    let call = record(&message(1, READ, &(4_000_000_u32).to_be_bytes(), &[]), usize::MAX);
    for _ in 0..20 {
        deaf.write_all(&call).unwrap();
    }
    let channel = connect(&server);
    // Both have been accepted when the second is served.
    echo(&channel, b"fine").unwrap();
    let begin = Instant::now();
    while server.connections() > 1 && begin.elapsed() < Duration::from_secs(10) {
        echo(&channel, b"fine").unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(server.connections(), 1);
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
}

#[test]
fn a_truncated_connection_is_only_that() {
    let server = start(ServerOptions::default());
    let whole = record(&message(1, WRITE, &write_arguments(0, 9000), &[7; 9000]), usize::MAX);
    for cut in (0..200).chain([5000, whole.len() - 1]) {
        let mut socket = raw(server.address());
        socket.write_all(&whole[..cut]).unwrap();
        socket.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(is_closed(&mut socket), "cut at {cut}");
    }
    assert_eq!(echo(&connect(&server), b"fine").unwrap(), b"fine");
}

#[test]
fn a_half_closed_connection_gets_its_replies() {
    let server = start(ServerOptions::default());
    let mut socket = raw(server.address());
    for xid in 0..3 {
        let call = message(xid, SLEEP, &100_u32.to_be_bytes(), &[]);
        socket.write_all(&record(&call, usize::MAX)).unwrap();
    }
    socket.shutdown(std::net::Shutdown::Write).unwrap();
    let mut xids: Vec<u32> =
        std::iter::from_fn(|| receive_record(&mut socket)).map(|reply| xid_of(&reply)).collect();
    xids.sort_unstable();
    assert_eq!(xids, [0, 1, 2]);
}

#[test]
fn idle_connections_make_room_and_busy_ones_do_not() {
    // Where the machine was so slow that the busy ones may have been idle too, another time tells.
    let is_told = (0..10).any(|_| idle_ones_made_room_before_busy_ones_were_idle());
    assert!(is_told, "this machine is too slow for this test");
}

/// Whether it was done before any busy one could have been idle for a second.
fn idle_ones_made_room_before_busy_ones_were_idle() -> bool {
    let options = ServerOptions { max_connections: 3, ..ServerOptions::default() };
    let server = start(options);
    let mut idle = raw(server.address());
    std::thread::sleep(Duration::from_millis(1800));
    let busy: Vec<_> = (0..2).map(|_| connect(&server)).collect();
    let begin = Instant::now();
    for channel in &busy {
        echo(channel, b"").unwrap();
    }
    // The fourth takes the place of the idle one.
    let fourth = connect(&server);
    assert_eq!(echo(&fourth, b"four").unwrap(), b"four");
    assert!(is_closed(&mut idle));
    // Nobody has been idle for long now.
    let fifth = Connection::tcp(server.address(), &ClientOptions::default()).unwrap();
    let is_refused = echo(&fifth, b"").is_err();
    if begin.elapsed() >= Duration::from_millis(900) {
        return false;
    }
    assert!(is_refused);
    for channel in &busy {
        echo(channel, b"").unwrap();
    }
    true
}
