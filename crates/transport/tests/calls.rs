//! Both ends together: pipelining, bulk data both ways, order, time-outs, shutdown.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::*;
use nasd_transport::{
    BreakReason, Channel, ChannelError, ClientOptions, Connection, Execution, FrameError, InFlight,
    ReplyError, ResultShape, ServerOptions,
};

#[test]
fn bulk_data_of_every_small_length_and_some_large_ones() {
    let server = start(ServerOptions::default());
    let channel = connect(&server);
    let large = [4095, 4096, 65_536, 65_537, 1 << 20, (4 << 20) - 1, 4 << 20];
    for length in (0..40).chain(1990..2060).chain(large) {
        read(&channel, length).unwrap();
        write(&channel, 7, length).unwrap();
    }
    assert_eq!(server.connections(), 1);
}

#[test]
fn replies_of_many_threads_find_their_callers() {
    let server = start(ServerOptions::default());
    let channel = connect(&server);
    std::thread::scope(|scope| {
        for thread in 0..16 {
            let channel = &channel;
            scope.spawn(move || {
                let mut random = Random(thread);
                for round in 0..200 {
                    match random.index(4) {
                        0 => read(channel, random.index(200_000)).unwrap(),
                        1 => write(channel, thread as u32, random.index(100_000)).unwrap(),
                        2 => {
                            let milliseconds = random.index(3) as u32;
                            sleep(channel, milliseconds).unwrap();
                        }
                        _ => {
                            let text = [thread.to_be_bytes(), u64::to_be_bytes(round)].concat();
                            assert_eq!(echo(channel, &text).unwrap(), text);
                        }
                    }
                }
            });
        }
    });
}

#[test]
fn a_slow_call_does_not_hold_up_a_quick_one() {
    let server = start(ServerOptions::default());
    let channel = connect(&server);
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| sleep(&channel, 6000));
        std::thread::sleep(Duration::from_millis(100));
        let begin = Instant::now();
        echo(&channel, b"quick---").unwrap();
        assert!(begin.elapsed() < Duration::from_millis(4000), "it waited for the slow call");
        slow.join().unwrap().unwrap();
    });
}

/// How often the threads of that name have waited for something.
fn waits_of(name: &str) -> u64 {
    let waits = |task: std::io::Result<std::fs::DirEntry>| {
        let path = task.ok()?.path();
        let is_meant = std::fs::read_to_string(path.join("comm")).ok()?.trim() == name;
        let status = std::fs::read_to_string(path.join("status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        is_meant.then(|| line.trim().parse::<u64>().unwrap())
    };
    std::fs::read_dir("/proc/self/task").unwrap().filter_map(waits).sum()
}

#[test]
fn nobody_looks_all_the_while_a_call_waits_long() {
    const NAME: &str = "nasd-quiet";
    let server = start(ServerOptions { name: NAME.to_owned(), ..ServerOptions::default() });
    let channel = connect(&server);
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| sleep(&channel, 6500));
        std::thread::sleep(Duration::from_millis(500));
        let before = waits_of(NAME);
        assert!(before > 0, "no threads of that name");
        std::thread::sleep(Duration::from_millis(1000));
        let waits = waits_of(NAME) - before;
        assert!(waits < 200, "{waits} waits in a second in which nothing came");
        let begin = Instant::now();
        echo(&channel, b"quick---").unwrap();
        assert!(begin.elapsed() < Duration::from_millis(1300), "it waited for the slow call");
        slow.join().unwrap().unwrap();
    });
}

#[test]
fn outstanding_calls_are_limited_and_all_are_answered() {
    let options = ServerOptions { max_outstanding: 2, ..ServerOptions::default() };
    let server = start(options);
    let client = ClientOptions { max_outstanding: 5, ..ClientOptions::default() };
    let channel = Connection::tcp(server.address(), &client).unwrap();
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| sleep(&channel, 100).unwrap());
        }
    });
    // Two at a time: six rounds of 100 ms.
    assert!(begin.elapsed() >= Duration::from_millis(590), "{:?}", begin.elapsed());
}

/// Slow calls that the server has received.
fn sleepers(channel: &Arc<Connection>, count: usize, milliseconds: u32) -> Vec<InFlight> {
    let call = |_| begin(channel, SLEEP, &milliseconds.to_be_bytes(), &[], Vec::new());
    let calls = (0..count).map(call).collect();
    // What was sent before it was received before it.
    echo(&**channel, b"then----").unwrap();
    calls
}

#[test]
fn a_call_times_out_and_the_others_end() {
    let server = start(ServerOptions::default());
    let channel = Arc::new(connect(&server));
    let finished = AtomicUsize::new(0);
    let calls = sleepers(&channel, 3, 6000);
    std::thread::scope(|scope| {
        for call in calls {
            let finished = &finished;
            scope.spawn(move || {
                call.wait().0.unwrap();
                finished.fetch_add(1, Ordering::Relaxed);
            });
        }
        let begin = Instant::now();
        let arguments = 5000_u32.to_be_bytes();
        let asked =
            Asked { procedure: SLEEP, arguments: &arguments, timeout_ms: 200, ..Asked::default() };
        let error = ask(&*channel, &asked, &mut []).unwrap_err();
        assert!(matches!(error, ChannelError::TimedOut { .. }), "{error}");
        assert_eq!(error.execution(), Execution::Possible);
        assert!(begin.elapsed() < Duration::from_millis(4000), "{:?}", begin.elapsed());
        assert!(!channel.is_open());
        let error = echo(&*channel, b"").unwrap_err();
        assert_eq!(error.execution(), Execution::Never, "{error}");
    });
    assert_eq!(finished.into_inner(), 3);
}

#[test]
fn a_call_may_wait_for_ever() {
    let server = start(ServerOptions::default());
    let options = ClientOptions { peer_timeout: Duration::MAX, ..ClientOptions::default() };
    let channel = Connection::tcp(server.address(), &options).unwrap();
    let asked = Asked { timeout_ms: u64::MAX, ..Asked::default() };
    ask(&channel, &asked, &mut []).unwrap();
}

#[test]
fn a_lone_reader_times_out_on_time() {
    let server = start(ServerOptions::default());
    let arguments = 8000_u32.to_be_bytes();
    let asked =
        Asked { procedure: SLEEP, arguments: &arguments, timeout_ms: 50, ..Asked::default() };
    let most = Duration::from_millis(300);
    let mut quickest = Duration::MAX;
    // A machine that has other work as well may be late once.
    for _ in 0..5 {
        let channel = connect(&server);
        let begin = Instant::now();
        let error = ask(&channel, &asked, &mut []).unwrap_err();
        quickest = quickest.min(begin.elapsed());
        assert!(matches!(error, ChannelError::TimedOut { .. }), "{error}");
        if quickest < most {
            break;
        }
    }
    assert!(quickest < most, "{quickest:?}");
}

#[test]
fn more_data_than_the_callers_buffer_breaks_the_channel() {
    let server = start(ServerOptions::default());
    let channel = connect(&server);
    let mut into = [0; 100];
    let arguments = 101_u32.to_be_bytes();
    let asked = Asked {
        procedure: READ,
        arguments: &arguments,
        results: ResultShape::DataAfter { head_bytes: 4 },
        ..Asked::default()
    };
    let error = ask(&channel, &asked, &mut into).unwrap_err();
    let ChannelError::Broken { reason, execution, .. } = &error else { panic!("{error}") };
    assert_eq!(*execution, Execution::Possible);
    assert!(
        matches!(
            **reason,
            BreakReason::Protocol(FrameError::DataTooLong { announced: 101, room: 100 })
        ),
        "{error}"
    );
    assert_eq!(into, [0; 100]);
}

#[test]
fn rejections_are_told_and_leave_the_channel_open() {
    let server = start(ServerOptions::default());
    let channel = connect(&server);
    let asked = Asked { procedure: 99, ..Asked::default() };
    let error = ask(&channel, &asked, &mut []).unwrap_err();
    assert!(matches!(error, ChannelError::Rejected { reason: ReplyError::Rejected(_), .. }));
    assert_eq!(error.execution(), Execution::Never);
    let error = ask(&channel, &Asked { procedure: PANIC, ..asked }, &mut []).unwrap_err();
    assert_eq!(error.execution(), Execution::Possible, "{error}");
    assert!(error.to_string().contains("server failed"), "{error}");
    assert_eq!(echo(&channel, b"abcd").unwrap(), b"abcd");
}

#[test]
fn data_that_the_service_does_not_want_are_thrown_away() {
    let server = start(ServerOptions::default());
    let channel = connect(&server);
    for length in [0, 1, 5000, 3 << 20] {
        let arguments = write_arguments(1, length);
        let data = pattern(1, length);
        let asked =
            Asked { procedure: DISCARD, arguments: &arguments, data: &data, ..Asked::default() };
        assert_eq!(ask(&channel, &asked, &mut []).unwrap().results(), [0; 4]);
    }
}

#[test]
fn a_call_above_the_limit_is_not_sent() {
    let server = start(ServerOptions::default());
    let channel = connect(&server);
    let data = vec![0; 5 << 20];
    let arguments = write_arguments(0, data.len());
    let asked = Asked { procedure: WRITE, arguments: &arguments, data: &data, ..Asked::default() };
    let error = ask(&channel, &asked, &mut []).unwrap_err();
    assert!(matches!(error, ChannelError::TooLong { .. }), "{error}");
    assert!(channel.is_open());
}

#[test]
fn a_stopped_server_finishes_what_it_has_received() {
    let server = start(ServerOptions::default());
    let channel = Arc::new(connect(&server));
    let calls = sleepers(&channel, 4, 700);
    std::thread::scope(|scope| {
        let wait = |call: InFlight| scope.spawn(move || call.wait().0);
        let calls: Vec<_> = calls.into_iter().map(wait).collect();
        let begin = Instant::now();
        assert!(server.shut_down(Duration::from_secs(10)), "not all calls finished");
        assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
        for call in calls {
            call.join().unwrap().expect("the call was received before the end");
        }
    });
    assert_eq!(server.connections(), 0);
    let error = Connection::tcp(server.address(), &ClientOptions::default()).unwrap_err();
    assert!(matches!(error, ChannelError::Connect { .. }), "{error}");
}

#[test]
fn a_stop_without_grace_fails_pending_calls() {
    let server = start(ServerOptions::default());
    let channel = Arc::new(connect(&server));
    let calls = sleepers(&channel, 4, 3000);
    std::thread::scope(|scope| {
        let wait = |call: InFlight| scope.spawn(move || call.wait().0);
        let calls: Vec<_> = calls.into_iter().map(wait).collect();
        assert!(!server.shut_down(Duration::from_millis(50)));
        for call in calls {
            let error = call.join().unwrap().unwrap_err();
            assert!(matches!(error, ChannelError::Broken { .. }), "{error}");
            assert_eq!(error.execution(), Execution::Possible);
        }
    });
}

#[test]
fn a_connection_whose_peer_waits_for_an_answer_is_not_idle() {
    let options =
        ServerOptions { idle_timeout: Duration::from_millis(4000), ..ServerOptions::default() };
    let server = start(options);
    let channel = connect(&server);
    sleep(&channel, 12_000).unwrap();
    echo(&channel, b"again---").unwrap();
    assert_eq!(server.connections(), 1);
}

#[test]
fn an_idle_connection_that_the_server_closed_is_found_out_before_a_call() {
    let options =
        ServerOptions { idle_timeout: Duration::from_millis(300), ..ServerOptions::default() };
    let server = start(options);
    let channel = connect(&server);
    echo(&channel, b"").unwrap();
    let begin = Instant::now();
    while server.connections() > 0 {
        assert!(begin.elapsed() < Duration::from_secs(20), "it is not closed");
        std::thread::sleep(Duration::from_millis(20));
    }
    let error = echo(&channel, b"").unwrap_err();
    assert_eq!(error.execution(), Execution::Never, "{error}");
}

#[test]
fn connections_of_many_short_lives_leave_nothing_behind() {
    let server = Arc::new(start(ServerOptions::default()));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let channel = connect(&server);
                    echo(&channel, b"hello---").unwrap();
                }
            });
        }
    });
    let begin = Instant::now();
    while server.connections() > 0 && begin.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(server.connections(), 0);
}
