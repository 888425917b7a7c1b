//! What a partition has that another one has not, and objects that are put as they are elsewhere: over the network.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod common;

use std::sync::Arc;

use common::nowhere::Nowhere;
use common::*;
use nasd_protocol::Status;
use nasd_protocol::drive::{
    ComparepartitionArguments, Comparison, CopypartitionArguments, CreateArguments, Created,
    CreatepartitionArguments, MadeAppend, ObjectState, Procedure, PutobjectArguments,
    ReadArguments, RemoveArguments,
};
use nasd_protocol::limits::{MAX_COMPARISON_BYTES, MAX_MADE_APPENDS};
use nasd_store::{Append, WriteData};
use nasd_types::limits::{BLOCK_BYTES, MAX_OBJECT_BYTES};
use nasd_types::{
    AppendToken, ByteRange, ObjectId, ObjectName, PartitionId, SetAttributes, Timestamp,
};

/// One that is not there at first.
const COPY: PartitionId = PartitionId(7);

const BLOCK: u64 = BLOCK_BYTES as u64;

fn copy(drive: &TestDrive) {
    let arguments = CopypartitionArguments { partition: COPY, source: PARTITION };
    assert_eq!(drive.by(Signer::drive(), Procedure::Copypartition, &arguments).status, None);
}

fn asked(base: Option<PartitionId>) -> ComparepartitionArguments {
    let (from, offset) = (ObjectId(0), 0);
    ComparepartitionArguments { partition: PARTITION, base, from, offset }
}

fn compare(drive: &TestDrive, arguments: &ComparepartitionArguments) -> Answered {
    drive.by(Signer::drive(), Procedure::Comparepartition, arguments)
}

fn put(drive: &TestDrive, arguments: &PutobjectArguments) -> Answered {
    drive.by(Signer::drive(), Procedure::Putobject, arguments)
}

/// All pages, each of which has to be within the limit.
fn pages(drive: &TestDrive, base: Option<PartitionId>) -> Vec<Comparison> {
    let (mut found, mut next) = (Vec::<Comparison>::new(), Some((ObjectId(0), 0)));
    while let Some((from, offset)) = next {
        let answered = compare(drive, &ComparepartitionArguments { from, offset, ..asked(base) });
        let size = answered.results.len();
        assert!(size <= MAX_COMPARISON_BYTES, "{size} bytes");
        let page: Comparison = answered.take();
        next = page.next;
        found.push(page);
    }
    found
}

#[test]
fn what_has_changed_since_a_copy_is_told() {
    let drive = TestDrive::new();
    let [changed, kept, removed] = [1, 2, 3].map(|seed| drive.object_with(&pattern(seed, 9000)));
    copy(&drive);
    drive.write(changed, 5000, b"changed");
    let arguments = RemoveArguments { name: removed, durable: false };
    assert_eq!(drive.by(Signer::drive(), Procedure::Remove, &arguments).status, None);
    let new = drive.object_with(b"new");
    let [page] = &pages(&drive, Some(COPY))[..] else { panic!("it is one page") };
    let told: Vec<ObjectId> = page.differences.iter().map(|one| one.object).collect();
    // The first object is always told.
    assert_eq!(told, [ObjectId::FIRST_OBJECT, changed.object, removed.object, new.object]);
    assert!(page.identifiers_end > new.object);
    let ranges = |at: usize| {
        let ranges = page.differences[at].ranges.iter();
        ranges.map(|one| (one.range, one.is_hole)).collect::<Vec<_>>()
    };
    assert_eq!(ranges(1), [(ByteRange::new(BLOCK, BLOCK), false)]);
    assert!(page.differences[2].state.is_none() && ranges(2).is_empty());
    assert_eq!(ranges(3), [(ByteRange::new(0, 3), false)]);
    // Compared with nothing, all of it is told.
    let all = pages(&drive, None);
    let told: Vec<ObjectId> =
        all.iter().flat_map(|page| &page.differences).map(|one| one.object).collect();
    assert_eq!(told, [ObjectId::FIRST_OBJECT, changed.object, kept.object, new.object]);
}

#[test]
fn comparing_takes_partitions_that_there_are() {
    let drive = TestDrive::new();
    drive.object_with(b"contents");
    let nowhere = PartitionId(99);
    let unknown = ComparepartitionArguments { partition: nowhere, ..asked(None) };
    assert_eq!(compare(&drive, &unknown).failed(), Status::NoSuchPartition);
    for base in [nowhere, PartitionId::AUDIT] {
        assert_eq!(compare(&drive, &asked(Some(base))).failed(), Status::NoSuchPartition);
    }
    // From where there is nothing there is nothing to be told.
    for (from, offset) in [(ObjectId(u64::MAX), u64::MAX), (ObjectId(70), 0)] {
        let asked = ComparepartitionArguments { from, offset, ..asked(None) };
        let page: Comparison = compare(&drive, &asked).take();
        assert_eq!((page.differences.len(), page.next), (0, None));
    }
    // Behind the end of an object are no bytes of it.
    let asked = ComparepartitionArguments { offset: u64::MAX, from: ObjectId(64), ..asked(None) };
    let page: Comparison = compare(&drive, &asked).take();
    assert!(page.differences.iter().all(|one| one.ranges.is_empty()) && page.next.is_none());
}

#[test]
fn an_object_that_is_put_is_what_it_is_told_to_be() {
    let drive = TestDrive::new();
    let name = ObjectName { partition: PARTITION, object: ObjectId(9000) };
    let mut wanted = put_of(name);
    wanted.identifiers_end = ObjectId(20_000);
    let append = wanted.state.appends[0];
    // As many appends as a drive remembers.
    wanted.state.appends = (0..MAX_MADE_APPENDS as u64)
        .map(|number| {
            let mut token = [9; AppendToken::BYTES];
            token[..8].copy_from_slice(&number.to_be_bytes());
            MadeAppend { token: AppendToken(token), ..append }
        })
        .collect();
    for _ in 0..2 {
        assert_eq!(put(&drive, &wanted).status, None);
        let all = pages(&drive, None);
        let mut differences = all.iter().flat_map(|page| &page.differences);
        let found = differences.find(|one| one.object == name.object).unwrap();
        let mut state = found.state.clone().unwrap();
        // By the clock of this drive, appends were made when they were put here.
        for made in &mut state.appends {
            assert!(made.time > append.time);
            made.time = append.time;
        }
        assert_eq!(state, wanted.state);
        assert!(found.ranges.is_empty());
    }
    let read = ReadArguments::single(name, 0, 5000);
    assert!(drive.by(Signer::drive(), Procedure::Read, &read).data == [0; 5000]);
    assert!(drive.new_object().object >= ObjectId(20_000));
    // What is there stays as far as the length goes, and all else is as it is told now.
    drive.write(name, 100, &[6; 4900]);
    let state = ObjectState { logical_size: 200, appends: Vec::new(), ..wanted.state };
    let state = ObjectState { access_control_version: 1, ..state };
    let wanted = PutobjectArguments { state, ..wanted };
    assert_eq!(put(&drive, &wanted).status, None);
    let data = drive.by(Signer::drive(), Procedure::Read, &read).data;
    assert!(data[..100] == [0; 100] && data[100..] == [6; 100]);
}

#[test]
fn what_no_object_can_be_is_not_put() {
    let drive = TestDrive::new();
    let of = |object| put_of(ObjectName { partition: PARTITION, object });
    let first_named = ObjectId::FIRST_NAMED;
    for object in [0, 1, 2, 3, 5, 63, ObjectId::END.0, u64::MAX].map(ObjectId) {
        assert_eq!(put(&drive, &of(object)).failed(), Status::BadArgument, "{object}");
    }
    let end = ObjectId(first_named.0 + 1);
    let above = PutobjectArguments { identifiers_end: end, ..of(ObjectId(70)) };
    assert_eq!(put(&drive, &above).failed(), Status::BadArgument);
    let base = of(ObjectId(70)).state;
    for state in [
        ObjectState { logical_size: MAX_OBJECT_BYTES + 1, ..base.clone() },
        ObjectState { blocks_allocated: MAX_OBJECT_BYTES / BLOCK + 1, ..base.clone() },
        ObjectState { blocks_allocated: u64::MAX, ..base },
    ] {
        let large = PutobjectArguments { state, ..of(ObjectId(70)) };
        assert_eq!(put(&drive, &large).failed(), Status::TooLarge);
    }
    for partition in [PartitionId(99), COPY] {
        let nowhere = put_of(ObjectName { partition, object: ObjectId(70) });
        assert_eq!(put(&drive, &nowhere).failed(), Status::NoSuchPartition);
    }
    // Nothing was made of all that, and identifiers go on where they were.
    let told: Vec<ObjectId> = pages(&drive, None)
        .iter()
        .flat_map(|page| &page.differences)
        .map(|one| one.object)
        .collect();
    assert_eq!(told, [ObjectId::FIRST_OBJECT]);
    assert!(drive.new_object().object < ObjectId(1 << 40));
    // The last of those that may be chosen is fine, and so is one that a drive gives out.
    for object in [first_named, ObjectId(ObjectId::END.0 - 1), ObjectId(1 << 40)] {
        assert_eq!(put(&drive, &of(object)).status, None, "{object}");
    }
    assert!(drive.new_object().object > ObjectId(1 << 40));
}

/// A new partition, as who moves one to another drive makes it: nobody but the drive's owner puts anything there.
#[test]
fn a_partition_without_keys_takes_objects_by_the_drive_key_alone() {
    let drive = TestDrive::new();
    let made = CreatepartitionArguments { partition: COPY };
    assert_eq!(drive.by(Signer::drive(), Procedure::Createpartition, &made).status, None);
    let name = ObjectName { partition: COPY, object: ObjectId::FIRST_OBJECT };
    let capability = drive.capability(name);
    for signer in [Signer::capability(&capability), Signer::working(), Signer::partition()] {
        let request = Request::new(Procedure::Putobject, &put_of(name), signer);
        assert_eq!(drive.refused(&request), Status::RefusedKey);
    }
    assert_eq!(put(&drive, &put_of(name)).status, None);
    let initial = SetAttributes::default();
    let create = CreateArguments { partition: COPY, object: None, durable: true, initial };
    let _: Created = drive.by(Signer::drive(), Procedure::Create, &create).take();
}

#[test]
fn a_virtual_drive_has_nothing_to_compare_and_takes_no_object() {
    let drive = TestDrive::furnished(|drive| drive.with_objects_elsewhere(Arc::new(Nowhere)));
    for base in [None, Some(OTHER_PARTITION)] {
        assert_eq!(compare(&drive, &asked(base)).failed(), Status::NotPermitted);
    }
    let name = ObjectName { partition: PARTITION, object: ObjectId::FIRST_OBJECT };
    assert_eq!(put(&drive, &put_of(name)).failed(), Status::NotPermitted);
}

/// The largest answer that can be: it was nearly full before an object with as many ranges and appends as one can have.
#[test]
fn answers_are_within_their_limit_whatever_objects_have() {
    let drive = TestDrive::new();
    let store = drive.server().drive().store();
    let write = |name, block: u64| {
        store.write(name, block * BLOCK, WriteData::Slice(&[3; BLOCK_BYTES]), drive.now()).unwrap();
    };
    let few: Vec<ObjectName> = (0..50).map(|_| drive.new_object()).collect();
    let [many, other] = [0, 0].map(|_| drive.new_object());
    for name in [many, other] {
        // Single blocks, with three that are holes between two.
        (0..700).for_each(|part| write(name, part * 4));
    }
    copy(&drive);
    for name in [many, other] {
        // Data where a hole was and a hole where data were: each is a range of its own.
        for part in 0..700 {
            let range = ByteRange::new(part * 4 * BLOCK, BLOCK);
            store.punch(name, range, drive.now()).unwrap();
            write(name, part * 4 + 2);
        }
    }
    for number in 0..MAX_MADE_APPENDS as u64 {
        let mut token = [1; AppendToken::BYTES];
        token[..8].copy_from_slice(&number.to_be_bytes());
        let (token, within) = (AppendToken(token), ByteRange::ALL);
        let append = Append { bytes: b"line", token, since: None, within };
        store.append(many, &append, Timestamp(START)).unwrap();
    }
    for name in &few {
        drive.write(*name, 0, b"little");
    }
    let all = pages(&drive, Some(COPY));
    let told = all.iter().flat_map(|page| &page.differences);
    let of = |name: ObjectName| told.clone().filter(move |one| one.object == name.object);
    for name in [many, other] {
        let ranges: Vec<_> = of(name).flat_map(|one| &one.ranges).collect();
        assert!(ranges.len() >= 1400, "{} ranges", ranges.len());
        assert!(ranges.is_sorted_by(|one, next| one.range.end() <= next.range.offset));
        assert!(of(name).count() > 1, "it goes over several pages");
    }
    assert!(few.iter().all(|name| of(*name).count() == 1));
    let appends = of(many).map(|one| one.state.as_ref().unwrap().appends.len());
    assert!(appends.into_iter().all(|count| count == MAX_MADE_APPENDS));
}
