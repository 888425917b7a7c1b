//! Programs that wait for something that is away, and don't want to any more.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nasd_clerk::fake::FakeCell;

use crate::world::{World, eventually, pattern};

/// Nothing here is waited for as long, but where a test fails.
const FOREVER: Duration = Duration::from_secs(60);

/// How soon an interrupted program has ended.
const SOON: Duration = Duration::from_secs(5);

/// Programs end by the signals of a keyboard, also where the tests run in the background of a shell, which has those
/// ignored: children inherit it.
fn let_keyboard_interrupt() {
    for signal in [libc::SIGINT, libc::SIGQUIT] {
        // SAFETY: nobody else here sets what these do.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

fn start(program: &str, arguments: &[&Path]) -> Child {
    let_keyboard_interrupt();
    let mut command = Command::new(program);
    command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

/// It waits, until it gets the signal, and then ends soon.
fn waits_until(mut child: Child, signal: i32) {
    std::thread::sleep(Duration::from_millis(300));
    assert!(child.try_wait().unwrap().is_none(), "it waits");
    let begun = Instant::now();
    // SAFETY: the process is a child that was not waited for.
    unsafe { libc::kill(child.id() as i32, signal) };
    while child.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < SOON, "it is not to be interrupted");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn programs_that_wait_for_a_drive_or_the_manager_can_be_interrupted() {
    let world = World::on(&FakeCell::new(1, FOREVER), |_| {});
    fs::write(world.path("a"), pattern(1, 1 << 20)).unwrap();
    let other = world.beside();
    let (file, made) = (other.path("a"), other.path("made"));
    fs::metadata(&file).unwrap();
    world.cell.drive(0).set_reachable(false);
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGKILL] {
        waits_until(start("cat", &[&file]), signal);
    }
    world.cell.drive(0).set_reachable(true);
    world.cell.set_manager_runs(false);
    for signal in [libc::SIGINT, libc::SIGKILL] {
        waits_until(start("mkdir", &[&made]), signal);
    }
    world.cell.set_manager_runs(true);
    eventually("the manager is asked again", || fs::create_dir(&made).is_ok());
    assert!(fs::read(&file).unwrap() == pattern(1, 1 << 20));
}

/// Runs a system call on a thread that gets a signal once it waits, and gives its error. (Most
/// functions of the standard library begin again after an interrupt.)
fn interrupted(call: impl FnOnce() -> i32 + Send) -> Option<i32> {
    extern "C" fn nothing(_: i32) {}
    let handler: extern "C" fn(i32) = nothing;
    // SAFETY: all zeros are a valid `sigaction`; the handler does nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as libc::sighandler_t;
        libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut());
    }
    std::thread::scope(|scope| {
        let (tell, told) = std::sync::mpsc::channel();
        let waiting = scope.spawn(move || {
            // SAFETY: has no preconditions.
            tell.send(unsafe { libc::pthread_self() }).unwrap();
            match call() {
                0 => None,
                _ => std::io::Error::last_os_error().raw_os_error(),
            }
        });
        let thread = told.recv().unwrap();
        std::thread::sleep(Duration::from_millis(300));
        assert!(!waiting.is_finished(), "it waits");
        let begun = Instant::now();
        while !waiting.is_finished() {
            assert!(begun.elapsed() < SOON, "it is not to be interrupted");
            // SAFETY: the thread was not joined.
            unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
            std::thread::sleep(Duration::from_millis(50));
        }
        waiting.join().unwrap()
    })
}

#[test]
fn an_interrupted_fsync_loses_nothing() {
    let world = World::on(&FakeCell::new(1, FOREVER), |_| {});
    let mut file = File::create(world.path("a")).unwrap();
    let data = pattern(3, 3 << 20);
    file.write_all(&data).unwrap();
    world.cell.drive(0).set_reachable(false);
    file.seek(SeekFrom::Start(0)).unwrap();
    file.write_all(&data[..100]).unwrap();
    let number = file.as_raw_fd();
    // SAFETY: the descriptor is open, here and below.
    assert_eq!(interrupted(|| unsafe { libc::fsync(number) }), Some(libc::EINTR));
    // SAFETY: as above.
    assert_eq!(interrupted(|| unsafe { libc::ftruncate(number, 10) }), Some(libc::EINTR));
    world.cell.drive(0).set_reachable(true);
    file.sync_all().unwrap();
    assert!(world.durable("a") == data);
}
