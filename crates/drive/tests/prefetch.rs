//! Informed prefetching: what was hinted is in the cache when it is read, whoever may not read may not hint, and
//! hints that are wrong, absurd or many harm nobody.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod common;

use std::time::{Duration, Instant};

use common::*;
use nasd_capability::Capability;
use nasd_prefetch::notice::{self, Notice, decode_taken};
use nasd_protocol::drive::{
    ExtendArguments, Extended, ExtensionOutcome, Procedure, ReadArguments, RemoveArguments,
};
use nasd_protocol::{Region, Status};
use nasd_types::{AuditId, ByteRange, ObjectName, Rights};

const BYTES: usize = 2 << 20;

/// Long enough for whatever happens at all.
const PATIENCE: Duration = Duration::from_secs(60);

fn telling(name: ObjectName, regions: Vec<Region>, notice: Notice) -> ExtendArguments {
    ExtendArguments {
        name,
        regions,
        rights: Rights::READ,
        extension: notice::NUMBER,
        revision: notice::REVISION,
        job: 0,
        bytes_left: 0,
        most: 64,
        arguments: notice.encode(),
    }
}

fn hinting(name: ObjectName, range: ByteRange, ordinal: u64) -> ExtendArguments {
    let notice = Notice { stream: 5, ordinal, is_hint: true, ..Notice::default() };
    telling(name, vec![Region::single(range.offset, range.length)], notice)
}

/// How many pieces were taken.
fn tell(drive: &TestDrive, signer: Signer, arguments: &ExtendArguments) -> u32 {
    let answered = drive.by(signer, Procedure::Extend, arguments);
    assert!(answered.proved, "{:?}", answered.status);
    let data = answered.data.clone();
    let extended: Extended = answered.take();
    assert_eq!(extended.outcome, ExtensionOutcome::Done, "{}", String::from_utf8_lossy(&data));
    decode_taken(&data).unwrap()
}

fn missed(drive: &TestDrive) -> u64 {
    drive.server().drive().store().statistics().cache_miss_bytes
}

/// Waits until so many bytes have been read from the medium since then.
fn wait_for_fetched(drive: &TestDrive, since: u64, bytes: u64) {
    let begun = Instant::now();
    while missed(drive) - since < bytes {
        assert!(begun.elapsed() < PATIENCE, "{} of {bytes} bytes", missed(drive) - since);
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn read(drive: &TestDrive, name: ObjectName, range: ByteRange) -> Vec<u8> {
    let arguments = ReadArguments::single(name, range.offset, range.length);
    drive.by(Signer::working(), Procedure::Read, &arguments).data
}

#[test]
fn what_was_hinted_is_there_when_it_is_read() {
    let (drive, objects) = cold(new_device(), &[BYTES, BYTES, BYTES]);
    let before = missed(&drive);
    let whole = ByteRange::new(0, BYTES as u64);
    for (ordinal, (name, _)) in objects.iter().enumerate().skip(1) {
        let capability = Signer::capability(&drive.capability(*name));
        assert_eq!(tell(&drive, capability, &hinting(*name, whole, ordinal as u64)), 1);
    }
    wait_for_fetched(&drive, before, 2 * BYTES as u64);
    let fetched = missed(&drive);
    for (name, bytes) in &objects[1..] {
        assert!(read(&drive, *name, whole) == *bytes);
    }
    assert_eq!(missed(&drive), fetched, "it was there");
    assert!(read(&drive, objects[0].0, whole) == objects[0].1);
    assert_eq!(missed(&drive), fetched + BYTES as u64, "nobody had hinted that");
}

#[test]
fn of_rows_of_pieces_only_these_are_fetched_and_all_of_them() {
    let (drive, objects) = cold(new_device(), &[BYTES]);
    let (name, bytes) = &objects[0];
    let before = missed(&drive);
    let rows = Region { offset: 100, length: 1000, stride: 128 << 10, count: 16 };
    let notice = Notice { stream: 9, is_hint: true, ..Notice::default() };
    assert_eq!(tell(&drive, Signer::working(), &telling(*name, vec![rows], notice)), 16);
    wait_for_fetched(&drive, before, 16 * 4096);
    for row in 0..16 {
        let range = ByteRange::new(100 + row * (128 << 10), 1000);
        let expected = &bytes[range.offset as usize..range.end() as usize];
        assert!(read(&drive, *name, range) == *expected);
    }
    assert_eq!(missed(&drive), before + 16 * 4096);
}

#[test]
fn who_may_not_read_may_not_hint() {
    let (drive, objects) = cold(new_device(), &[BYTES, BYTES]);
    let (name, other) = (objects[0].0, objects[1].0);
    let status = |capability: &Capability, arguments: &ExtendArguments| {
        drive.by(Signer::capability(capability), Procedure::Extend, arguments).status
    };
    let before = missed(&drive);
    let range = ByteRange::new(0, 8192);
    let part = Capability { region: ByteRange::new(0, 4096), ..drive.capability(name) };
    assert_eq!(status(&part, &hinting(name, range, 0)), Some(Status::RefusedRegion));
    let writer = Capability { rights: Rights::WRITE, ..drive.capability(name) };
    assert_eq!(status(&writer, &hinting(name, range, 0)), Some(Status::RefusedRights));
    let nothing = ExtendArguments { rights: Rights::empty(), ..hinting(name, range, 0) };
    assert_eq!(status(&drive.capability(name), &nothing), Some(Status::NotPermitted));
    assert!(status(&drive.capability(name), &hinting(other, range, 0)).is_some());
    let newer = ExtendArguments { revision: notice::REVISION + 1, ..hinting(name, range, 0) };
    assert_eq!(status(&drive.capability(name), &newer), Some(Status::NoSuchExtension));
    assert_eq!(missed(&drive), before);
}

#[test]
fn nonsense_is_refused_with_a_reason_and_does_no_harm() {
    let (drive, objects) = cold(new_device(), &[BYTES]);
    let (name, bytes) = &objects[0];
    let range = ByteRange::new(0, 8192);
    for arguments in [vec![], vec![1; 20], vec![0xff; 48], vec![0; 52]] {
        let call = ExtendArguments { arguments, ..hinting(*name, range, 0) };
        let answered = drive.by(Signer::working(), Procedure::Extend, &call);
        let data = answered.data.clone();
        let extended: Extended = answered.take();
        assert_eq!(extended.outcome, ExtensionOutcome::Refused);
        assert!(String::from_utf8_lossy(&data).contains("no notice"));
    }
    let backwards = vec![Region::single(8192, 100), Region::single(0, 100)];
    let call = ExtendArguments { regions: backwards, ..hinting(*name, range, 0) };
    let answered = drive.by(Signer::working(), Procedure::Extend, &call);
    assert_eq!(answered.status, Some(Status::BadArgument));
    // Hints of what is behind the end, and of all that could be.
    for ordinal in [0, 1, u64::MAX] {
        let beyond = ByteRange::new(1 << 40, 1 << 40);
        assert_eq!(tell(&drive, Signer::working(), &hinting(*name, beyond, ordinal)), 1);
    }
    assert!(read(&drive, *name, range) == bytes[..8192]);
    // An object that is gone is not waited for.
    assert_eq!(tell(&drive, Signer::working(), &hinting(*name, range, 3)), 1);
    let remove = RemoveArguments { name: *name, durable: false };
    assert!(drive.by(Signer::working(), Procedure::Remove, &remove).status.is_none());
    let answered = drive.by(Signer::working(), Procedure::Extend, &hinting(*name, range, 4));
    assert_eq!(answered.status, Some(Status::NoSuchObject));
}

#[test]
fn what_is_hinted_in_excess_leaves_room_for_others() {
    let (drive, objects) = cold(new_device(), &[BYTES; 12]);
    let whole = ByteRange::new(0, BYTES as u64);
    let before = missed(&drive);
    for (ordinal, (name, _)) in objects.iter().enumerate() {
        tell(&drive, Signer::working(), &hinting(*name, whole, ordinal as u64));
    }
    // At first a stream is trusted with 64 frames.
    wait_for_fetched(&drive, before, 4 << 20);
    for _ in 0..3 {
        for (name, bytes) in objects.iter().rev() {
            assert!(read(&drive, *name, whole) == *bytes);
        }
    }
    let over = Notice { stream: 5, is_over: true, ..Notice::default() };
    let (name, bytes) = &objects[0];
    tell(&drive, Signer::working(), &telling(*name, vec![Region::single(0, 1)], over));
    assert!(read(&drive, *name, whole) == *bytes);
}

#[test]
fn another_ends_nobodys_stream_and_keeps_nobody_from_hinting() {
    let (drive, objects) = cold(new_device(), &[BYTES, BYTES]);
    let (name, bytes) = &objects[0];
    let half = BYTES as u64 / 2;
    let of = |who| Capability { audit_id: AuditId(who), ..drive.capability(*name) };
    let signer = |who| Signer::capability(&of(who));
    let before = missed(&drive);
    assert_eq!(tell(&drive, signer(1), &hinting(*name, ByteRange::new(0, half), 0)), 1);
    wait_for_fetched(&drive, before, half);
    // Of the same number, as far on as can be, and as many as he gets.
    for stream in 0..200 {
        let notice = Notice { stream, is_hint: true, passed: 1 << 40, ..Notice::default() };
        let piece = vec![Region::single(0, 4096)];
        assert!(tell(&drive, signer(2), &telling(*name, piece, notice)) <= 1);
    }
    // His stream goes on where it was.
    assert_eq!(tell(&drive, signer(1), &hinting(*name, ByteRange::new(half, half), 1)), 1);
    wait_for_fetched(&drive, before, 2 * half);
    let notice = Notice { stream: 1000, is_hint: true, ..Notice::default() };
    let third = telling(*name, vec![Region::single(0, half)], notice);
    assert_eq!(tell(&drive, signer(3), &third), 1);
    assert!(read(&drive, *name, ByteRange::new(0, 2 * half)) == *bytes);
    assert_eq!(missed(&drive), before + 2 * half);
}
