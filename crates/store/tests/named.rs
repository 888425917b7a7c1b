//! Objects whose numbers are chosen by whoever makes them.

// A helper of a test may fail by panicking.
#![allow(clippy::unwrap_used)]

mod common;
mod world;

use std::sync::atomic::{AtomicUsize, Ordering};

use common::*;
use nasd_store::{Store, StoreError};
use nasd_types::{ObjectId, ObjectName, SetAttributes, Timestamp};
use world::assert_clean;

const FIRST: u64 = ObjectId::FIRST_NAMED.0;

fn named(number: u64) -> ObjectName {
    name(P1, FIRST + number)
}

fn make(store: &Store, name: ObjectName) -> Result<(), StoreError> {
    let initial = SetAttributes { access_control_version: Some(3), ..SetAttributes::default() };
    let (object, attributes) =
        store.create_as(name.partition, Some(name.object), &initial, Timestamp(2))?;
    assert_eq!((object, attributes.access_control_version), (name.object, 3));
    Ok(())
}

fn copy(store: &Store, source: ObjectName, copy: ObjectName) -> Result<(), StoreError> {
    let (object, attributes) = store.fastcopy_as(source, Some(copy.object), Timestamp(4))?;
    assert_eq!((object, attributes.copied_object), (copy.object, source.object));
    Ok(())
}

#[track_caller]
fn assert_exists(outcome: Result<(), StoreError>, name: ObjectName) {
    assert!(
        matches!(outcome, Err(StoreError::ObjectExists(found)) if found == name),
        "{outcome:?}"
    );
}

#[test]
fn chosen_objects_are_like_others_and_outlive_a_crash() {
    let (device, store) = faulty_store(32 << 20, &small_cache(64));
    let given = create(&store, P1);
    let (one, other, last) = (named(0), named(77), name(P1, ObjectId::END.0 - 1));
    for object in [last, one, other] {
        make(&store, object).unwrap();
        write(&store, object, 0, &[9; 70_000]).unwrap();
    }
    // The same number in another partition is another object.
    make(&store, name(P2, FIRST)).unwrap();
    copy(&store, one, named(5)).unwrap();
    let listed = store.list(P1, ObjectId::FIRST_DYNAMIC, usize::MAX).unwrap();
    let expected = [given, one, named(5), other, last].map(|name| name.object);
    assert_eq!(listed, expected);
    store.flush(&[one, other, last, given, name(P2, FIRST)]).unwrap();
    make(&store, named(6)).unwrap();
    device.crash();
    drop(store);
    let image = device.survivor(1);
    assert_clean(&image, "after a crash");
    let (_, store) = world::reopen(&image, &small_cache(64));
    assert_eq!(store.list(P1, ObjectId::FIRST_DYNAMIC, usize::MAX).unwrap(), expected);
    for object in [one, other, last, named(5)] {
        assert!(contents(&store, object).unwrap() == [9; 70_000], "{object}");
        assert_exists(make(&store, object), object);
    }
    // One that was not durable may be made again, and the drive goes on giving out low numbers.
    make(&store, named(6)).unwrap();
    let next = create(&store, P1);
    assert!(next > given && !next.object.is_named(), "{next}");
    store.close().unwrap();
}

#[test]
fn only_some_numbers_may_be_chosen() {
    let (_, store) = memory_store(32 << 20, &small_cache(64));
    let source = create(&store, P1);
    let before = (store.space(), store.partition_space(P1).unwrap());
    for number in [0, 4, 64, source.object.0, FIRST - 1, ObjectId::END.0, u64::MAX] {
        let chosen = name(P1, number);
        for outcome in [make(&store, chosen), copy(&store, source, chosen)] {
            assert!(
                matches!(outcome, Err(StoreError::NotToBeChosen(found)) if found == chosen),
                "{outcome:?}"
            );
        }
    }
    assert_eq!((store.space(), store.partition_space(P1).unwrap()), before);
    let nowhere = store.create_as(
        nasd_types::PartitionId(99),
        Some(ObjectId::FIRST_NAMED),
        &SetAttributes::default(),
        Timestamp(1),
    );
    assert!(matches!(nowhere, Err(StoreError::NoSuchPartition(_))), "{nowhere:?}");
    // What went wrong for another reason has claimed nothing.
    let nothing = copy(&store, name(P1, 0xffff), named(1));
    assert!(matches!(nothing, Err(StoreError::NoSuchObject(_))), "{nothing:?}");
    make(&store, named(1)).unwrap();
}

#[test]
fn an_object_that_exists_is_left_alone() {
    let (_, store) = memory_store(32 << 20, &small_cache(64));
    let (one, source) = (named(1), create(&store, P1));
    make(&store, one).unwrap();
    write(&store, one, 0, b"kept").unwrap();
    let check = |when: &str| {
        let objects = store.partition_space(P1).unwrap().objects;
        assert_exists(make(&store, one), one);
        assert_exists(copy(&store, source, one), one);
        assert_exists(copy(&store, one, one), one);
        assert_eq!(contents(&store, one).unwrap(), b"kept", "{when}");
        assert_eq!(store.partition_space(P1).unwrap().objects, objects, "{when}");
    };
    check("not flushed");
    store.flush(&[one]).unwrap();
    check("in the log");
    store.flush_all().unwrap();
    check("in the tree");
    store.checkpoint().unwrap();
    check("in the tree for good");
    check_space(&store);
}

#[test]
fn a_number_is_free_again_when_the_removal_is_durable() {
    let (device, store) = faulty_store(32 << 20, &small_cache(64));
    let one = named(1);
    make(&store, one).unwrap();
    write(&store, one, 0, &[1; 50_000]).unwrap();
    // It never was durable, so that nothing is left of it.
    store.remove(one).unwrap();
    for round in 2..6 {
        make(&store, one).unwrap();
        assert_eq!(store.getattr(one).unwrap().logical_size, 0);
        write(&store, one, 0, &[round; 9000]).unwrap();
        store.flush(&[one]).unwrap();
        // The log has all of it, the tree nothing.
        assert!(contents(&store, one).unwrap() == [round; 9000]);
        store.remove(one).unwrap();
        assert_exists(make(&store, one), one);
        store.flush(&[one]).unwrap();
        store.settle_when_due(std::time::Duration::from_secs(5)).unwrap();
    }
    make(&store, one).unwrap();
    write(&store, one, 5000, &[8; 100]).unwrap();
    store.flush(&[one]).unwrap();
    device.crash();
    drop(store);
    // One log has it come and go several times.
    let image = device.survivor(3);
    assert_clean(&image, "with the log to be applied");
    let (_, store) = world::reopen(&image, &small_cache(64));
    let found = contents(&store, one).unwrap();
    assert!(found[..5000].iter().all(|&byte| byte == 0) && found[5000..] == [8; 100]);
    check_space(&store);
    store.close().unwrap();
}

#[test]
fn a_number_is_not_free_while_a_family_bears_it() {
    let (device, store) = faulty_store(32 << 20, &small_cache(64));
    let (source, heir, other) = (named(1), named(2), named(3));
    make(&store, source).unwrap();
    write(&store, source, 0, &[1; 50_000]).unwrap();
    copy(&store, source, heir).unwrap();
    store.remove(source).unwrap();
    store.flush_all().unwrap();
    // A copy of a new object of that number would begin the same family again.
    assert_exists(make(&store, source), source);
    assert_exists(copy(&store, heir, source), source);
    copy(&store, heir, other).unwrap();
    store.remove(heir).unwrap();
    store.flush_all().unwrap();
    assert_exists(make(&store, source), source);
    assert!(contents(&store, other).unwrap() == [1; 50_000]);
    store.remove(other).unwrap();
    store.flush_all().unwrap();
    make(&store, source).unwrap();
    write(&store, source, 0, &[2; 50_000]).unwrap();
    copy(&store, source, heir).unwrap();
    store.flush_all().unwrap();
    assert!(contents(&store, heir).unwrap() == [2; 50_000]);
    check_space(&store);
    assert_clean(&device.live(), "with a second family of that number");
}

#[test]
fn of_those_who_choose_one_number_at_a_time_one_gets_it() {
    const THREADS: usize = 6;
    const NUMBERS: u64 = 60;
    let (device, store) = faulty_store(64 << 20, &small_cache(256));
    let source = create(&store, P1);
    write(&store, source, 0, &[5; 20_000]).unwrap();
    store.flush(&[source]).unwrap();
    let made: Vec<AtomicUsize> = (0..NUMBERS).map(|_| AtomicUsize::new(0)).collect();
    let barrier = std::sync::Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (store, made, barrier) = (&store, &made, &barrier);
            scope.spawn(move || {
                for number in 0..NUMBERS {
                    barrier.wait();
                    let chosen = named(number);
                    let outcome = match (thread as u64 + number) % 3 {
                        0 => copy(store, source, chosen),
                        _ => make(store, chosen),
                    };
                    match outcome {
                        Ok(()) => drop(made[number as usize].fetch_add(1, Ordering::Relaxed)),
                        outcome => {
                            assert_exists(outcome, chosen);
                            // It is not told before it is true.
                            store.getattr(chosen).unwrap();
                        }
                    }
                }
            });
        }
    });
    assert!(made.iter().all(|count| count.load(Ordering::Relaxed) == 1), "{made:?}");
    assert_eq!(store.partition_space(P1).unwrap().objects, NUMBERS + 2);
    store.flush_all().unwrap();
    check_space(&store);
    assert_clean(&device.live(), "after creates at a time");
}

#[test]
fn a_number_that_comes_and_goes_while_others_settle_is_one_object_at_a_time() {
    let (device, store) = faulty_store(64 << 20, &small_cache(256));
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let work = scope.spawn(|| {
            for round in 0..400_u32 {
                let (chosen, source) = (named(1), named(2));
                if make(&store, chosen).is_ok() {
                    assert_eq!(store.getattr(chosen).unwrap().logical_size, 0, "{round}");
                    write(&store, chosen, 0, &[round as u8; 9000]).unwrap();
                }
                // Either may still be on its way out.
                drop(make(&store, source));
                drop(write(&store, source, 0, &[7; 20_000]));
                let range = nasd_store::CopyRange {
                    partition: P1,
                    source: source.object,
                    source_offset: 0,
                    target: chosen.object,
                    target_offset: 0,
                    length: 16_384,
                };
                if round % 3 == 0 {
                    drop(store.copy_range(&range, Timestamp(6)));
                }
                store.flush(&[chosen]).unwrap();
                drop(store.remove(chosen));
                if round % 5 == 0 {
                    drop(store.remove(source));
                }
                store.flush(&[chosen, source]).unwrap();
            }
            stop.store(true, Ordering::Relaxed);
        });
        while !stop.load(Ordering::Relaxed) && !work.is_finished() {
            store.settle_when_due(std::time::Duration::from_millis(1)).unwrap();
        }
        work.join().unwrap();
    });
    store.flush_all().unwrap();
    check_space(&store);
    assert_clean(&device.live(), "after all of it");
}
