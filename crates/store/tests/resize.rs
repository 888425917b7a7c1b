//! Growing and shrinking: nothing is lost, whatever is cut off, and what does not fit is refused.

// A helper of a test may fail by panicking.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::*;
use nasd_device::{BlockDevice, FaultPlan, FaultyDevice, Image};
use nasd_store::{NoSpace, ResizeError, Resized, ScrubCursor, Store, StoreError};
use nasd_types::{ObjectName, SetAttributes, Timestamp};

const MIB: u64 = 1 << 20;

fn resize(device: &Arc<FaultyDevice>, bytes: u64) -> Result<Resized, ResizeError> {
    let device: Arc<dyn BlockDevice> = device.clone();
    Store::resize(&device, &small_cache(64), bytes)
}

fn device(image: &Image, plan: FaultPlan) -> Arc<FaultyDevice> {
    Arc::new(FaultyDevice::over(image.clone(), plan))
}

/// A drive of 24 MiB with holes all over, copies that share blocks, and something near its end.
fn fragmented() -> (Image, BTreeMap<ObjectName, Vec<u8>>) {
    filled(24 * MIB, 60)
}

fn filled(bytes: u64, objects: u64) -> (Image, BTreeMap<ObjectName, Vec<u8>>) {
    let (device, store) = faulty_store(bytes, &small_cache(64));
    let count = objects;
    let mut random = Random(5);
    let mut objects = Vec::new();
    for index in 0..count {
        let object = create(&store, if index % 4 == 0 { P2 } else { P1 });
        let length = 1 + random.below(500_000);
        let bytes = random.bytes(length as usize);
        write(&store, object, random.below(3) * BLOCK, &bytes).unwrap();
        objects.push(object);
        if index % 7 == 3 {
            store.flush_all().unwrap();
            store.fastcopy(object, Timestamp(7)).unwrap();
        }
    }
    store.flush_all().unwrap();
    for (index, object) in objects.iter().enumerate() {
        match index % 3 {
            0 => store.remove(*object).unwrap(),
            1 => {
                for _ in 0..4 {
                    write(&store, *object, random.below(60) * BLOCK, &random.bytes(4096)).unwrap();
                }
            }
            _ => {}
        }
    }
    store.flush_all().unwrap();
    let all = everything(&store);
    store.close().unwrap();
    (device.live(), all)
}

/// Opens the drive, compares everything, and reads every block.
fn check(device: Arc<FaultyDevice>, expected: &BTreeMap<ObjectName, Vec<u8>>) -> u64 {
    let store = open(device, &small_cache(64));
    assert!(everything(&store) == *expected, "contents differ");
    let step = store.scrub(&mut ScrubCursor::default(), u64::MAX).unwrap();
    assert!(step.finished && step.findings.is_empty(), "{:?}", step.findings);
    let capacity = store.space().capacity_bytes;
    store.close().unwrap();
    capacity
}

#[test]
fn a_drive_that_shrinks_keeps_everything_and_needs_its_old_end_no_more() {
    let (image, all) = fragmented();
    let device = device(&image, FaultPlan::default());
    let before = check(device.clone(), &all);
    let resized = resize(&device, 18 * MIB + 5).unwrap();
    assert_eq!((resized.before_bytes, resized.after_bytes), (24 * MIB, 18 * MIB));
    assert!(resized.moved_bytes > MIB, "{resized:?}");
    let cut = FaultyDevice::with_capacity(device.live(), 18 * MIB, FaultPlan::default());
    let cut = Arc::new(cut);
    assert!(check(cut.clone(), &all) < before);
    // Again and again, down to what it needs.
    let Err(ResizeError::DoesNotFit { needed, .. }) = resize(&cut, 5 * MIB) else {
        panic!("5 MiB are not enough");
    };
    assert!(needed < 18 * MIB);
    assert!(matches!(resize(&cut, needed - 1), Err(ResizeError::DoesNotFit { .. })));
    resize(&cut, needed).unwrap();
    let cut = FaultyDevice::with_capacity(cut.live(), needed, FaultPlan::default());
    let cut = Arc::new(cut);
    check(cut.clone(), &all);
    // It is full, and can be used.
    let store = open(cut, &small_cache(64));
    let object = create(&store, P1);
    let error = write(&store, object, 0, &vec![1; 1 << 17]).unwrap_err();
    assert!(matches!(error, StoreError::NoSpace(NoSpace::Data)), "{error}");
    // Overwriting needs no more room, but for blocks that are shared.
    let mut large = all.iter().filter(|(_, bytes)| bytes.len() > 100_000).map(|(name, _)| *name);
    let alone = large.find(|name| write(&store, *name, 0, &[9; 100_000]).is_ok()).unwrap();
    store.remove(alone).unwrap();
    store.flush_all().unwrap();
    write(&store, object, 0, &vec![1; 1 << 16]).unwrap();
    store.close().unwrap();
}

#[test]
fn a_drive_that_grows_has_more_room() {
    let (image, all) = fragmented();
    let grown = FaultyDevice::with_capacity(image, 40 * MIB, FaultPlan::default());
    let grown = Arc::new(grown);
    let before = check(grown.clone(), &all);
    let resized = resize(&grown, 40 * MIB).unwrap();
    assert_eq!((resized.after_bytes, resized.moved_bytes), (40 * MIB, 0));
    assert!(check(grown.clone(), &all) > before + 14 * MIB);
    let store = open(grown.clone(), &small_cache(64));
    let object = create(&store, P1);
    for index in 0..20 {
        write(&store, object, index << 19, &vec![1 + index as u8; 1 << 19]).unwrap();
    }
    store.close().unwrap();
    // And back, onto fewer blocks than it ever had.
    let mut all = all;
    all.insert(object, (0..20).flat_map(|index| vec![1 + index; 1 << 19]).collect());
    let Err(ResizeError::DoesNotFit { needed, .. }) = resize(&grown, 6 * MIB) else {
        panic!("6 MiB are not enough");
    };
    assert!(resize(&grown, needed).unwrap().moved_bytes > 0);
    check(grown, &all);
}

#[test]
fn what_is_not_possible_is_refused_and_changes_nothing() {
    let (image, all) = fragmented();
    let device = device(&image, FaultPlan::default());
    let error = resize(&device, 25 * MIB).unwrap_err();
    assert!(matches!(error, ResizeError::DeviceTooSmall { capacity, .. } if capacity == 24 * MIB));
    let vast = FaultyDevice::with_capacity(image.clone(), 4096 * MIB, FaultPlan::default());
    let vast = Arc::new(vast);
    let Err(ResizeError::MetadataTooSmall { most, .. }) = resize(&vast, 4096 * MIB) else {
        panic!("the metadata region is too small for that");
    };
    assert!(most > 24 * MIB);
    resize(&vast, most).unwrap();
    check(vast, &all);
    // What is reserved counts as what is used.
    let store = open(device.clone(), &small_cache(64));
    let reserve = SetAttributes { blocks_allocated: Some(1500), ..SetAttributes::default() };
    let (object, _) = store.create(P1, &reserve, Timestamp(9)).unwrap();
    store.close().unwrap();
    assert!(matches!(resize(&device, 18 * MIB), Err(ResizeError::DoesNotFit { .. })));
    let store = open(device.clone(), &small_cache(64));
    store.remove(ObjectName { partition: P1, object }).unwrap();
    store.close().unwrap();
    resize(&device, 18 * MIB).unwrap();
    check(device, &all);
}

#[test]
fn corrupt_blocks_are_not_moved_under_another_name() {
    let (image, _) = fragmented();
    let device = device(&image, FaultPlan::default());
    // Everything behind the new end rots.
    for at in (18 * MIB..24 * MIB).step_by(4096) {
        device.flip_bit(at, 3);
    }
    let error = resize(&device, 18 * MIB).unwrap_err();
    assert!(matches!(error, ResizeError::Store(StoreError::Corrupt { .. })), "{error}");
    let store = open(device, &small_cache(64));
    assert!(store.space().capacity_bytes > 18 * MIB);
}

/// Cuts power at every `step`th change of the device while it gets `bytes`.
fn crashes(image: &Image, bytes: u64, step: usize, all: &BTreeMap<ObjectName, Vec<u8>>) {
    let whole = device(image, FaultPlan::default());
    let old = check(whole.clone(), all);
    let start = device(image, FaultPlan::default());
    resize(&start, bytes).unwrap();
    let changes = start.changes();
    let new = check(start, all);
    let (mut olds, mut news) = (0, 0);
    for at in (0..=changes).step_by(step) {
        let plan = FaultPlan { crash_at_change: Some(at), ..FaultPlan::default() };
        let cut = device(image, plan);
        let outcome = resize(&cut, bytes);
        assert_eq!(outcome.is_err(), at < changes, "change {at} of {changes}: {outcome:?}");
        cut.crash();
        let survivor = device(&cut.survivor(at), FaultPlan::default());
        match check(survivor.clone(), all) {
            found if found == new => news += 1,
            found => {
                assert_eq!(found, old, "change {at} of {changes}");
                olds += 1;
            }
        }
        resize(&survivor, bytes).unwrap();
        assert_eq!(check(survivor, all), new);
    }
    println!("{changes} changes: {olds} times the old size, {news} times the new one");
    assert!(olds > 2 && news > 0);
}

#[test]
fn a_crash_while_it_shrinks_leaves_everything() {
    let (image, all) = filled(10 * MIB, 17);
    let moved = resize(&device(&image, FaultPlan::default()), 7 * MIB).unwrap().moved_bytes;
    assert!(moved > 64 << 10, "{moved}");
    crashes(&image, 7 * MIB, 1, &all);
}

#[test]
fn a_crash_while_it_grows_leaves_everything() {
    let (mut image, all) = filled(10 * MIB, 17);
    image.resize(12 * MIB);
    crashes(&image, 12 * MIB, 1, &all);
}
