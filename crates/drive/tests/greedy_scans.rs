//! Extensions that take all the time that they are given: plain reads of others go before them, and short calls before long ones.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::*;
use nasd_drive::{Description, Extension, ExtensionCall, ExtensionError, Reach, Told};
use nasd_protocol::Region;
use nasd_protocol::drive::{
    DriveControl, ExtendArguments, Extended, ExtensionWork, Procedure, ReadArguments,
    SetattrArguments,
};
use nasd_transport::{ClientOptions, Connection};
use nasd_types::{ObjectId, ObjectName, Rights, SetAttributes};
use nasd_xdr::from_bytes;

const NUMBER: u32 = 4002;
const GREEDY: usize = 8;
const READS: usize = 300;
const PATIENCE: Duration = Duration::from_secs(20);

/// Who is broken off sooner has not only run for as long as any call may.
const LESS_THAN_LONGEST: Duration = Duration::from_millis(700);

/// Looks at each byte of its object again and again, for as long as it may, and then says how far it has come: a byte more for each
/// look at all of them. One that is told so ends when it has come to the end.
#[derive(Default)]
struct Greedy {
    is_over: AtomicBool,
    /// Calls that were broken off for others.
    broken_off: AtomicUsize,
}

impl Extension for Greedy {
    fn description(&self) -> Description {
        Description {
            number: NUMBER,
            name: "greedy",
            revision: 1,
            rights: Rights::READ,
            parameters: "",
        }
    }

    fn check(&self, _: &ExtensionCall) -> Result<usize, ExtensionError> {
        Ok(1 << 20)
    }

    fn run(&self, call: &ExtensionCall, reach: &mut Reach) -> Result<Told, ExtensionError> {
        let begun = Instant::now();
        let (piece, is_short) = (call.pieces[0], call.arguments == b"short");
        let mut sum = 0_u64;
        let mut position = piece.offset;
        while !self.is_over.load(Ordering::Relaxed) {
            let chunk = reach.read(piece)?;
            for byte in chunk.slices().flatten() {
                sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
            }
            reach.go_on()?;
            position = (position + 1).min(piece.end());
            if is_short {
                position = piece.end();
                break;
            }
            if reach.is_to_end_soon() {
                let is_for_others = begun.elapsed() < LESS_THAN_LONGEST;
                self.broken_off.fetch_add(usize::from(is_for_others), Ordering::Relaxed);
                break;
            }
        }
        Ok(Told { position, data: sum.to_be_bytes().to_vec() })
    }
}

fn asked(name: ObjectName, job: u64, bytes_left: u64, arguments: &[u8]) -> ExtendArguments {
    ExtendArguments {
        name,
        regions: vec![Region::single(0, 1 << 20)],
        rights: Rights::READ,
        extension: NUMBER,
        revision: 1,
        job,
        bytes_left,
        most: 1000,
        arguments: arguments.to_vec(),
    }
}

/// An object whose first bytes are looked at; so much follows that its jobs are long ones.
fn long_object(drive: &TestDrive) -> ObjectName {
    let name = drive.object_with(&pattern(1, 1 << 20));
    let changes = SetAttributes { logical_size: Some(1 << 40), ..SetAttributes::default() };
    let set = SetattrArguments { name, durable: false, changes };
    assert_eq!(drive.by(Signer::working(), Procedure::Setattr, &set).status, None);
    name
}

fn work(drive: &TestDrive) -> ExtensionWork {
    let name = ObjectName { partition: PARTITION, object: ObjectId::DRIVE_CONTROL };
    let control = ReadArguments::single(name, 0, 1 << 16);
    let told = drive.by(Signer::drive(), Procedure::Read, &control).data;
    from_bytes::<DriveControl>(&told).unwrap().extension_work
}

/// Whether all greedy scans are there, and as many run as there are processors for; one that has just been broken off comes
/// again, and a processor's thread may have only begun.
fn all_are_there(drive: &TestDrive) -> bool {
    let begun = Instant::now();
    let most = std::thread::available_parallelism().map_or(1, usize::from).min(GREEDY);
    while begun.elapsed() < PATIENCE {
        let jobs = work(drive).jobs;
        let running: u32 = jobs.iter().map(|job| job.running).sum();
        if jobs.len() == GREEDY && running as usize == most {
            return true;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    false
}

/// How long half of the plain reads take, one after the other.
fn read(drive: &TestDrive, name: ObjectName) -> Duration {
    let arguments = ReadArguments::single(name, 0, 256 << 10);
    let begun = Instant::now();
    for _ in 0..READS / 2 {
        assert_eq!(drive.by(Signer::working(), Procedure::Read, &arguments).status, None);
    }
    begun.elapsed()
}

/// With clients that ask for as much as they can get, each of a job of its own, does something when they all are there.
fn beside_greedy<T>(
    greedy: &Greedy,
    drive: &TestDrive,
    name: ObjectName,
    work_of: impl FnOnce() -> T,
) -> T {
    std::thread::scope(|scope| {
        for number in 0..GREEDY as u64 {
            scope.spawn(move || {
                let channel =
                    Connection::tcp(drive.server().address(), &ClientOptions::default()).unwrap();
                while !greedy.is_over.load(Ordering::Relaxed) {
                    let arguments = asked(name, 100 + number, 1 << 40, b"");
                    let request = Request::new(Procedure::Extend, &arguments, Signer::working());
                    let answered = drive.ask_over(&channel, &request).unwrap();
                    assert_eq!(answered.status, None);
                }
            });
        }
        assert!(all_are_there(drive));
        let done = work_of();
        greedy.is_over.store(true, Ordering::Relaxed);
        done
    })
}

#[test]
fn eight_greedy_scans_do_not_stop_plain_reads() {
    let greedy = Arc::new(Greedy::default());
    let drive = TestDrive::extended(vec![Arc::clone(&greedy) as Arc<dyn Extension>]);
    let name = long_object(&drive);
    // Before and after, as the machine may do more or less by then.
    let before = read(&drive, name);
    let (beside, were_there) = beside_greedy(&greedy, &drive, name, || {
        let beside = read(&drive, name) + read(&drive, name);
        (beside, all_are_there(&drive))
    });
    let alone = before + read(&drive, name);
    assert!(were_there, "they were there all the while");
    // On a machine that does other things, too, no more can be said for sure.
    assert!(beside < 10 * alone + Duration::from_secs(2), "{beside:?} beside {alone:?}");
}

#[test]
fn a_short_call_waits_little_behind_greedy_ones() {
    let greedy = Arc::new(Greedy::default());
    let drive = TestDrive::extended(vec![Arc::clone(&greedy) as Arc<dyn Extension>]);
    let name = long_object(&drive);
    let took = beside_greedy(&greedy, &drive, name, || {
        let begun = Instant::now();
        let arguments = asked(name, 1, 1 << 20, b"short");
        let answered = drive.by(Signer::working(), Procedure::Extend, &arguments);
        let extended: Extended = answered.take();
        assert_eq!(extended.position, 1 << 20);
        begun.elapsed()
    });
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert!(greedy.broken_off.load(Ordering::Relaxed) > 0, "one made room for it");
}
