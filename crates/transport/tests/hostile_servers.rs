//! A client against servers that die, stall, or answer nonsense.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod common;

use std::io::Write;
use std::net::TcpStream;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use common::*;
use nasd_transport::{
    BreakReason, Channel, ChannelError, ClientOptions, Connection, Execution, FrameError,
    ResultShape,
};

fn quick() -> ClientOptions {
    ClientOptions { peer_timeout: Duration::from_millis(500), ..ClientOptions::default() }
}

/// Reads 1000 bytes from a server that answers with what `answer` makes of the xid.
fn read_answer(answer: impl FnOnce(u32) -> Vec<u8> + Send + 'static) -> Result<(), ChannelError> {
    let (address, server) = fake_server(move |mut socket| {
        let call = receive_record(&mut socket).unwrap();
        socket.write_all(&answer(xid_of(&call))).unwrap();
        // Open until the client has judged.
        is_closed(&mut socket);
    });
    let channel = Connection::tcp(address, &quick()).unwrap();
    let result = read(&channel, 1000);
    drop(channel);
    server.join().unwrap();
    result
}

fn reason_of(result: Result<(), ChannelError>) -> String {
    let error = result.unwrap_err();
    assert_eq!(error.execution(), Execution::Possible, "{error}");
    match error {
        ChannelError::Broken { reason, .. } => match &*reason {
            BreakReason::Protocol(error) => format!("{error:?}"),
            other => format!("{other:?}"),
        },
        other => panic!("{other}"),
    }
}

fn good_results() -> Vec<u8> {
    [&1000_u32.to_be_bytes()[..], &pattern(1000, 1000)].concat()
}

#[test]
fn replies_in_any_fragments_are_received() {
    for fragment in [1, 3, 10, 33, 500, usize::MAX] {
        read_answer(move |xid| record(&reply_message(xid, &good_results()), fragment)).unwrap();
    }
}

#[test]
fn nonsense_breaks_the_channel_with_its_reason() {
    let unknown = read_answer(|xid| record(&reply_message(xid ^ 1, &good_results()), 2000));
    assert!(reason_of(unknown).starts_with("UnknownCall"));

    let long = read_answer(|_| 0xffff_ffff_u32.to_be_bytes().to_vec());
    assert!(reason_of(long).contains("TooLong"));

    let garbage = read_answer(|_| record(&[0x77; 100], 2000));
    assert!(reason_of(garbage).starts_with("Reply"));

    let call = read_answer(|xid| record(&message(xid, ECHO, &[], &[]), 2000));
    assert!(reason_of(call).starts_with("Reply"));

    for (announced, present) in [(1000_u32, 996), (996, 1000), (0, 4), (1000, 2000)] {
        for fragment in [300, usize::MAX] {
            let wrong = read_answer(move |xid| {
                let results = [&announced.to_be_bytes()[..], &vec![0; present]].concat();
                record(&reply_message(xid, &results), fragment)
            });
            let reason = reason_of(wrong);
            let known = ["DataLength", "Truncated"].iter().any(|name| reason.contains(name));
            assert!(known, "{announced} {present}: {reason}");
        }
    }

    let above = read_answer(|xid| {
        let results = [&2000_u32.to_be_bytes()[..], &[0; 2000]].concat();
        record(&reply_message(xid, &results), usize::MAX)
    });
    assert!(reason_of(above).starts_with("DataTooLong"));
}

#[test]
fn plain_results_are_limited() {
    let (address, server) = fake_server(|mut socket| {
        let call = receive_record(&mut socket).unwrap();
        let reply = reply_message(xid_of(&call), &[0; 70_000]);
        socket.write_all(&record(&reply, usize::MAX)).unwrap();
        is_closed(&mut socket);
    });
    let channel = Connection::tcp(address, &quick()).unwrap();
    let error = echo(&channel, b"").unwrap_err();
    let ChannelError::Broken { reason, .. } = &error else { panic!("{error}") };
    assert!(matches!(**reason, BreakReason::Protocol(FrameError::HeadTooLong { .. })), "{error}");
    drop(channel);
    server.join().unwrap();
}

#[test]
fn a_server_that_dies_fails_every_pending_call() {
    let (address, server) = fake_server(|mut socket| {
        for _ in 0..8 {
            receive_record(&mut socket).unwrap();
        }
    });
    let channel = Connection::tcp(address, &quick()).unwrap();
    std::thread::scope(|scope| {
        let calls: Vec<_> = (0..8).map(|_| scope.spawn(|| read(&channel, 5000))).collect();
        for call in calls {
            let error = call.join().unwrap().unwrap_err();
            assert!(matches!(error, ChannelError::Broken { .. }), "{error}");
            assert_eq!(error.execution(), Execution::Possible);
        }
    });
    server.join().unwrap();
    assert!(!channel.is_open());
    assert_eq!(echo(&channel, b"").unwrap_err().execution(), Execution::Never);
    let error = Connection::tcp(address, &quick()).unwrap_err();
    assert_eq!(error.execution(), Execution::Never, "{error}");
}

#[test]
fn a_server_that_dies_inside_a_reply_fails_its_call() {
    let reply = |xid| record(&reply_message(xid, &good_results()), usize::MAX);
    for cut in [1, 4, 10, 40, 41, 500, 1030] {
        let (address, server) = fake_server(move |mut socket| {
            let call = receive_record(&mut socket).unwrap();
            socket.write_all(&reply(xid_of(&call))[..cut]).unwrap();
        });
        let channel = Connection::tcp(address, &quick()).unwrap();
        assert!(reason_of(read(&channel, 1000)).contains("Truncated"), "cut at {cut}");
        server.join().unwrap();
    }
}

#[test]
fn a_server_that_stalls_inside_a_reply_is_given_up() {
    let (address, server) = fake_server(|mut socket| {
        let call = receive_record(&mut socket).unwrap();
        let reply = record(&reply_message(xid_of(&call), &good_results()), usize::MAX);
        socket.write_all(&reply[..300]).unwrap();
        is_closed(&mut socket);
    });
    let channel = Connection::tcp(address, &quick()).unwrap();
    let begin = Instant::now();
    assert_eq!(reason_of(read(&channel, 1000)), "Stalled");
    assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
    server.join().unwrap();
}

#[test]
fn a_server_that_does_not_receive_times_a_write_out() {
    let (over, is_over) = channel::<()>();
    let (address, server) = fake_server(move |socket: TcpStream| {
        // Until the other end is dropped.
        let _ = is_over.recv();
        drop(socket);
    });
    let channel = Connection::tcp(address, &quick()).unwrap();
    let data = vec![0; 4 << 20];
    let begin = Instant::now();
    let mut last = None;
    // The system's buffers take the first few.
    for _ in 0..8 {
        let arguments = write_arguments(0, data.len());
        let asked = Asked {
            procedure: WRITE,
            arguments: &arguments,
            data: &data,
            timeout_ms: 300,
            ..Asked::default()
        };
        last = Some(ask(&channel, &asked, &mut []).unwrap_err());
        if !channel.is_open() {
            break;
        }
    }
    assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
    assert!(matches!(last, Some(ChannelError::TimedOut { .. })), "{last:?}");
    drop(over);
    server.join().unwrap();
}

#[test]
fn late_replies_are_thrown_away_while_others_wait() {
    let (came, has_come) = channel();
    let (late, is_late) = channel();
    let (address, server) = fake_server(move |mut socket| {
        let first = xid_of(&receive_record(&mut socket).unwrap());
        came.send(()).unwrap();
        let second = xid_of(&receive_record(&mut socket).unwrap());
        is_late.recv().unwrap();
        for xid in [first, second] {
            let reply = record(&reply_message(xid, &good_results()), usize::MAX);
            socket.write_all(&reply).unwrap();
        }
        is_closed(&mut socket);
    });
    let channel = Connection::tcp(address, &quick()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let asked = Asked {
                procedure: READ,
                timeout_ms: 5000,
                results: ResultShape::DataAfter { head_bytes: 4 },
                ..Asked::default()
            };
            let error = ask(&channel, &asked, &mut [0; 2000]).unwrap_err();
            assert!(matches!(error, ChannelError::TimedOut { .. }), "{error}");
            late.send(()).unwrap();
        });
        has_come.recv().unwrap();
        read(&channel, 1000).unwrap();
    });
    drop(channel);
    server.join().unwrap();
}
