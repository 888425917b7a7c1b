//! Calls that are begun, and waited for later: any order, any number, dropped ones, no deadlock.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod common;

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::*;
use nasd_transport::{
    Channel, ChannelError, ClientOptions, Connection, Execution, InFlight, ServerOptions,
};

fn begin_echo(channel: &Arc<Connection>, text: &[u8]) -> InFlight {
    begin(channel, ECHO, text, &[], Vec::new())
}

fn begin_read(channel: &Arc<Connection>, length: usize) -> InFlight {
    begin(channel, READ, &(length as u32).to_be_bytes(), &[], vec![0xee; length + 10])
}

fn check_read(call: InFlight, length: usize) {
    let (reply, data) = call.wait();
    assert_eq!(reply.unwrap().data_length(), length);
    assert!(data[..length] == pattern(length as u32, length), "data of {length} bytes differ");
    assert_eq!(data[length..], [0xee; 10], "written behind the data");
}

#[test]
fn calls_are_waited_for_in_any_order() {
    let server = start(ServerOptions::default());
    let channel = Arc::new(connect(&server));
    let mut random = Random(1);
    for _ in 0..20 {
        let mut calls: Vec<_> = (0..120_u32)
            .map(|number| (number, begin_echo(&channel, &number.to_be_bytes())))
            .collect();
        while !calls.is_empty() {
            let (number, call) = calls.swap_remove(random.index(calls.len()));
            assert_eq!(call.wait().0.unwrap().results(), number.to_be_bytes());
        }
    }
}

#[test]
fn calls_that_may_wait_together_do_and_no_other_is_lost_between_them() {
    let server = start(ServerOptions::default());
    let channel = Arc::new(connect(&server));
    let nap =
        |milliseconds: u32| begin(&channel, NAP, &milliseconds.to_be_bytes(), &[], Vec::new());
    let began = Instant::now();
    let mut naps = Vec::new();
    let mut others = Vec::new();
    for number in 0..200_u32 {
        naps.push(nap(200));
        if number % 7 == 0 {
            others.push((ECHO, begin_echo(&channel, &200_u32.to_be_bytes())));
        }
        if number % 50 == 49 {
            let arguments = 200_u32.to_be_bytes();
            others.push((SLEEP, begin(&channel, SLEEP, &arguments, &[], Vec::new())));
        }
    }
    let mut largest = 0;
    for call in naps {
        let reply = call.wait().0.unwrap();
        let (arguments, number) = reply.results().split_at(4);
        assert_eq!(arguments, 200_u32.to_be_bytes());
        largest = largest.max(u32::from_be_bytes(number.try_into().unwrap()));
    }
    for (procedure, call) in others {
        assert_eq!(call.wait().0.unwrap().results(), 200_u32.to_be_bytes(), "{procedure}");
    }
    assert!((9..=64).contains(&largest), "{largest} at once");
    // One by one, on eight threads, they would take five seconds.
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    assert_eq!(echo(&*channel, b"still there").unwrap(), b"still there");
}

fn begin_nap(channel: &Arc<Connection>, milliseconds: u32) -> InFlight {
    begin(channel, NAP, &milliseconds.to_be_bytes(), &[], Vec::new())
}

#[test]
fn each_of_those_that_wait_together_is_answered_when_it_is_done() {
    let check = |others: u32| {
        let server = start(ServerOptions::default());
        let channel = Arc::new(connect(&server));
        let began = Instant::now();
        let mut slow = begin_nap(&channel, 3000);
        let quick: Vec<_> = (0..=others).map(|_| begin_nap(&channel, 5)).collect();
        for call in quick {
            assert_eq!(call.wait().0.unwrap().results()[..4], 5_u32.to_be_bytes());
        }
        assert!(began.elapsed() < Duration::from_millis(1800), "{others}: {:?}", began.elapsed());
        assert!(!slow.is_done());
        // Whole calls that need no waiting, and one that comes in two parts.
        assert_eq!(echo(&*channel, b"quick").unwrap(), b"quick");
        write(&*channel, 3, 3 << 20).unwrap();
        assert!(began.elapsed() < Duration::from_millis(2700), "{others}: {:?}", began.elapsed());
        slow.wait().0.unwrap();
    };
    std::thread::scope(|scope| {
        for others in [0, 3, 40, 200] {
            scope.spawn(move || check(others));
        }
    });
}

#[test]
fn neither_a_stream_of_others_nor_one_that_waits_alone_holds_up_those_that_wait_together() {
    let server = start(ServerOptions::default());
    let channel = Arc::new(connect(&server));
    for count in [1, 5] {
        let over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut calls = std::collections::VecDeque::new();
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    calls.push_back(begin_echo(&channel, &[7; 150]));
                    if calls.len() >= 200 {
                        calls.pop_front().unwrap().wait().0.unwrap();
                    }
                }
                calls.into_iter().for_each(|call| drop(call.wait().0.unwrap()));
            });
            std::thread::sleep(Duration::from_millis(50));
            let most = Duration::from_millis(400);
            let mut quickest = Duration::MAX;
            // A machine that has other work as well may hold up one of them.
            for _ in 0..5 {
                let began = Instant::now();
                let naps: Vec<_> = (0..count).map(|_| begin_nap(&channel, 30)).collect();
                naps.into_iter().for_each(|nap| drop(nap.wait().0.unwrap()));
                quickest = quickest.min(began.elapsed());
                if quickest < most {
                    break;
                }
            }
            over.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(quickest < most, "{count}: {quickest:?}");
        });
    }
    // Nor does either of these wait for the other.
    let check = |nap_ms: u32, sleep_ms: u32| {
        let channel = Arc::new(connect(&server));
        let began = Instant::now();
        let naps = [nap_ms; 3].map(|time| begin_nap(&channel, time));
        let arguments = sleep_ms.to_be_bytes();
        let alone = begin(&channel, SLEEP, &arguments, &[], Vec::new());
        let naps_first = nap_ms < sleep_ms;
        let mut naps = Vec::from(naps);
        if naps_first {
            naps.drain(..).for_each(|nap| drop(nap.wait().0.unwrap()));
        } else {
            alone.wait().0.unwrap();
        }
        assert!(began.elapsed() < Duration::from_millis(2000), "{nap_ms}: {:?}", began.elapsed());
        naps.into_iter().for_each(|nap| drop(nap.wait().0.unwrap()));
    };
    std::thread::scope(|scope| {
        for (nap_ms, sleep_ms) in [(3000, 20), (20, 3000)] {
            let check = &check;
            scope.spawn(move || check(nap_ms, sleep_ms));
        }
    });
}

#[test]
fn who_waits_for_some_call_gets_those_first_that_end_first() {
    let server = start(ServerOptions::default());
    let channel = Arc::new(connect(&server));
    let mut calls: Vec<_> =
        [5000, 180, 540, 360].map(|time| (time, begin_nap(&channel, time))).into();
    // The longest is the one that is waited with, and those that have ended are seen before it has.
    calls[0].1.wait_for_some();
    assert!(!calls[0].1.is_done());
    calls.sort_by_key(|&(time, _)| time);
    while let Some((_, longest)) = calls.last_mut() {
        longest.wait_for_some();
        // Looked at from the longest on, so that what ends meanwhile is one that was looked at.
        let done: Vec<bool> = calls.iter_mut().rev().map(|(_, call)| call.is_done()).collect();
        let ended = done.iter().filter(|is_done| **is_done).count();
        assert!(ended > 0, "it returned and nothing had ended");
        assert!(done.iter().rev().take(ended).all(|is_done| *is_done), "{done:?}");
        for (time, call) in calls.drain(..ended) {
            assert_eq!(call.wait().0.unwrap().results()[..4], u32::to_be_bytes(time));
        }
    }
    // Where another thread receives, nobody waits for ever.
    let mut one = begin_nap(&channel, 50);
    std::thread::scope(|scope| {
        scope.spawn(|| sleep(&*channel, 200).unwrap());
        std::thread::sleep(Duration::from_millis(5));
        while !one.is_done() {
            one.wait_for_some();
        }
    });
    one.wait().0.unwrap();
    // The end of the connection is the end of the calls.
    let mut lost = begin_nap(&channel, 900);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            server.shut_down(Duration::ZERO);
        });
        lost.wait_for_some();
    });
    assert!(lost.is_done());
}

#[test]
fn a_panic_among_those_that_wait_together_is_the_end_of_none_but_them() {
    let server = start(ServerOptions::default());
    let channel = Arc::new(connect(&server));
    for bad in [NO_BEGIN, NO_END] {
        let calls = [700, bad, 700].map(|time| begin_nap(&channel, time));
        let failed = calls.map(|call| call.wait().0.is_err());
        // Those that had not come before the panic are not touched by it.
        assert!(failed[1], "{bad}: {failed:?}");
        assert_eq!(echo(&*channel, b"still there").unwrap(), b"still there");
        begin_nap(&channel, 1).wait().0.unwrap();
    }
}

#[test]
fn what_was_begun_is_answered_when_the_peer_has_no_more_to_say() {
    let server = start(ServerOptions::default());
    for tail in
        [Vec::new(), vec![0x80, 0, 0], record(&message(9, ECHO, b"cut", &[]), 900)[..30].into()]
    {
        let mut socket = raw(server.address());
        let naps: Vec<u8> = (1..=3)
            .flat_map(|xid: u32| record(&message(xid, NAP, &(40 * xid).to_be_bytes(), &[]), 900))
            .collect();
        socket.write_all(&naps).unwrap();
        socket.write_all(&tail).unwrap();
        socket.shutdown(std::net::Shutdown::Write).unwrap();
        let answered = [1, 2, 3].map(|_| xid_of(&receive_record(&mut socket).unwrap()));
        assert_eq!(answered, [1, 2, 3], "{tail:?}");
        assert!(is_closed(&mut socket));
    }
}

#[test]
fn a_call_that_comes_while_another_waits_is_served() {
    let check = |procedure: u32, pause: u64| {
        let server = start(ServerOptions::default());
        let channel = Arc::new(connect(&server));
        let slow = begin(&channel, procedure, &6000_u32.to_be_bytes(), &[], Vec::new());
        // So that it is sent, and nothing else has come when the server begins to wait.
        let sender = std::thread::spawn(move || slow.wait().0.unwrap());
        std::thread::sleep(Duration::from_millis(pause));
        let began = Instant::now();
        assert_eq!(echo(&*channel, b"quick").unwrap(), b"quick");
        assert!(began.elapsed() < Duration::from_millis(1500), "{:?}", began.elapsed());
        sender.join().unwrap();
    };
    std::thread::scope(|scope| {
        for procedure in [SLEEP, NAP] {
            for pause in [5, 50, 350] {
                scope.spawn(move || check(procedure, pause));
            }
        }
    });
}

#[test]
fn replies_of_all_sizes_find_their_buffers() {
    let server = start(ServerOptions::default());
    let channel = Arc::new(connect(&server));
    let mut random = Random(2);
    let mut calls = std::collections::VecDeque::new();
    for _ in 0..2000 {
        let length = [0, 1, 3, 4000, 4096, 9000, 20_000, 100_000][random.index(8)];
        calls.push_back((length, begin_read(&channel, length)));
        if calls.len() > 40 {
            let (length, call) = calls.pop_front().unwrap();
            check_read(call, length);
        }
    }
    for (length, call) in calls {
        check_read(call, length);
    }
}

#[test]
fn more_calls_than_may_be_outstanding_can_be_begun() {
    let server = start(ServerOptions::default());
    let options = ClientOptions { max_outstanding: 5, ..ClientOptions::default() };
    let channel = Arc::new(Connection::tcp(server.address(), &options).unwrap());
    let begun = Instant::now();
    let calls: Vec<_> = (0..500).map(|_| begin_read(&channel, 4096)).collect();
    for call in calls {
        check_read(call, 4096);
    }
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[test]
fn calls_that_are_dropped_disturb_nobody() {
    let server = start(ServerOptions::default());
    let channel = Arc::new(connect(&server));
    let mut random = Random(3);
    for round in 0..300_u32 {
        let kept = begin_echo(&channel, &round.to_be_bytes());
        for _ in 0..random.index(6) {
            drop(begin_read(&channel, [10, 4096, 70_000][random.index(3)]));
        }
        assert_eq!(kept.wait().0.unwrap().results(), round.to_be_bytes());
    }
    assert_eq!(echo(&*channel, b"fine").unwrap(), b"fine");
    assert_eq!(server.connections(), 1);
}

/// More replies than the sockets' buffers hold, and then more data than the server takes before it
/// has got rid of them.
#[test]
fn sending_goes_on_while_replies_pile_up() {
    let server = start(ServerOptions::default());
    let channel = Arc::new(connect(&server));
    let begun = Instant::now();
    let reads: Vec<_> = (0..60).map(|_| begin_read(&channel, 1 << 20)).collect();
    let data = pattern(9, 3 << 20);
    let arguments = write_arguments(9, data.len());
    let writes: Vec<_> =
        (0..8).map(|_| begin(&channel, WRITE, &arguments, &data, Vec::new())).collect();
    for call in writes {
        assert_eq!(call.wait().0.unwrap().results(), [0, 0, 0, 1]);
    }
    for call in reads {
        check_read(call, 1 << 20);
    }
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
}

#[test]
fn threads_that_begin_and_threads_that_call_share_a_connection() {
    let server = start(ServerOptions::default());
    let options = ClientOptions { max_outstanding: 16, ..ClientOptions::default() };
    let channel = Arc::new(Connection::tcp(server.address(), &options).unwrap());
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let channel = &channel;
            scope.spawn(move || {
                let mut random = Random(thread);
                for _ in 0..100 {
                    let lengths: Vec<usize> =
                        (0..random.index(30)).map(|_| random.index(20_000)).collect();
                    let calls: Vec<_> =
                        lengths.iter().map(|length| begin_read(channel, *length)).collect();
                    if random.index(2) == 0 {
                        write(&**channel, thread as u32, random.index(300_000)).unwrap();
                    }
                    for (call, length) in calls.into_iter().zip(lengths) {
                        check_read(call, length);
                    }
                }
            });
            scope.spawn(move || {
                let mut random = Random(100 + thread);
                for _ in 0..300 {
                    read(&**channel, random.index(100_000)).unwrap();
                }
            });
        }
    });
}

#[test]
fn a_call_moves_to_another_thread() {
    let server = start(ServerOptions::default());
    let channel = Arc::new(connect(&server));
    let calls: Vec<_> = (0..8).map(|_| begin_read(&channel, 50_000)).collect();
    std::thread::scope(|scope| {
        for call in calls {
            scope.spawn(|| check_read(call, 50_000));
        }
    });
}

#[test]
fn a_lost_connection_fails_what_was_begun() {
    let (address, server) = fake_server(|mut socket| {
        // Takes something, and is gone.
        let _ = std::io::Read::read(&mut socket, &mut [0; 100]);
    });
    let channel = Arc::new(Connection::tcp(address, &ClientOptions::default()).unwrap());
    let calls: Vec<_> = (0..10).map(|_| begin_echo(&channel, b"text")).collect();
    for call in calls {
        let error = call.wait().0.unwrap_err();
        assert!(matches!(error, ChannelError::Broken { .. }), "{error}");
        assert_eq!(error.execution(), Execution::Possible);
    }
    assert!(!channel.is_open());
    server.join().unwrap();
}

/// Whoever begins calls at several channels is not to have each wait for the one before.
#[test]
fn what_was_begun_is_sent_before_somebody_waits_if_that_is_asked_for() {
    let (told, heard) = std::sync::mpsc::channel();
    let (address, server) = fake_server(move |mut socket| {
        let taken = std::io::Read::read(&mut socket, &mut [0; 100]);
        // The one who would hear it may have gone on.
        told.send(taken.unwrap_or(0)).ok();
    });
    let channel = Arc::new(Connection::tcp(address, &ClientOptions::default()).unwrap());
    let call = begin_echo(&channel, b"text");
    channel.send_begun(Duration::from_secs(10));
    assert!(heard.recv_timeout(Duration::from_secs(10)).unwrap() > 0);
    drop(call);
    server.join().unwrap();
}
