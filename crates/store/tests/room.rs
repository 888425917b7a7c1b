//! Space that runs out: what is refused changes nothing, what is freed can be used, and nothing
//! answered as durable is lost.

// A helper of a test may fail by panicking.
#![allow(clippy::unwrap_used)]

mod common;
mod world;

use std::sync::Arc;

use common::*;
use nasd_device::FaultyDevice;
use nasd_store::{FormatError, NoSpace, Store, StoreError};
use nasd_types::{ByteRange, ObjectId, ObjectName, SetAttributes, Timestamp};
use world::*;

const CAPACITY: u64 = 5 << 20;

fn is_full(error: &StoreError) -> bool {
    matches!(error, StoreError::NoSpace(NoSpace::Data))
}

/// A drive on which one object after the other was filled, a block at a time in the end.
fn fill(store: &Store) -> Vec<ObjectName> {
    let mut objects = Vec::new();
    for length in [100_000, 4096] {
        loop {
            let object = create(store, P1);
            objects.push(object);
            if let Err(error) = write(store, object, 0, &vec![objects.len() as u8; length]) {
                assert!(is_full(&error), "{error:?}");
                break;
            }
        }
    }
    objects
}

/// What is refused for want of space did not happen, not even in part.
#[test]
fn a_punch_that_finds_no_room_changes_nothing() {
    for spare in 0..6 {
        let options = small_cache(96);
        let (device, store) = faulty_store(CAPACITY, &options);
        let source = create(&store, P1);
        write(&store, source, 0, &vec![9; 80_000]).unwrap();
        let (copy, _) = store.fastcopy(source, Timestamp(5)).unwrap();
        let copy = ObjectName { object: copy, ..source };
        let small: Vec<ObjectName> = (0..6).map(|_| create(&store, P1)).collect();
        for object in &small {
            write(&store, *object, 0, &[1; 4096]).unwrap();
        }
        fill(&store);
        store.flush_all().unwrap();
        // Whoever writes what is shared takes new blocks.
        small[..spare].iter().for_each(|object| store.remove(*object).unwrap());
        store.flush_all().unwrap();
        let before = contents(&store, copy).unwrap();
        let punched = store.punch(copy, ByteRange::new(100, 50_000), Timestamp(6));
        let after = contents(&store, copy).unwrap();
        match punched {
            Ok(_) => assert!(after[100..50_100].iter().all(|&byte| byte == 0)),
            Err(error) => {
                assert!(is_full(&error), "{error:?}");
                assert!(after == before, "{spare} spare blocks: half a punch");
            }
        }
        store.flush_all().unwrap();
        check_space(&store);
        assert!(contents(&store, source).unwrap() == vec![9; 80_000]);
        assert_clean(&device.live(), "a full drive");
        assert_eq!(after != before, spare >= 2, "{spare} spare blocks");
    }
}

/// Whatever only frees is never refused, and what it frees can be used.
#[test]
fn a_full_drive_can_be_emptied_and_filled_again() {
    let options = small_cache(96);
    let (device, store) = faulty_store(CAPACITY, &options);
    let mut filled = Vec::new();
    for round in 0..6 {
        let objects = fill(&store);
        filled.push(store.space().used_bytes);
        let copied = store.fastcopy(objects[0], Timestamp(5));
        if let Ok((copy, _)) = copied {
            let copy = ObjectName { object: copy, ..objects[0] };
            // Its blocks are the source's, so that there is none for this.
            let written = write(&store, copy, 0, &vec![8; 100_000]);
            assert!(written.is_err_and(|error| is_full(&error)));
            assert!(contents(&store, copy).unwrap() == contents(&store, objects[0]).unwrap());
            store.remove(copy).unwrap();
        }
        for (index, &object) in objects.iter().enumerate() {
            let size = store.getattr(object).unwrap().logical_size;
            match (index + round) % 4 {
                0 => set_size(&store, object, size / 2 / BLOCK * BLOCK).unwrap(),
                1 => {
                    let range = ByteRange::new(0, u64::MAX >> 2);
                    drop(store.punch(object, range, Timestamp(6)).unwrap());
                }
                2 => set_size(&store, object, size / 3).unwrap(),
                _ => {}
            }
        }
        for object in objects {
            store.remove(object).unwrap();
        }
        store.flush_all().unwrap();
        check_space(&store);
        assert_eq!(store.space().used_bytes, 0, "round {round}");
        assert_clean(&device.live(), "an emptied drive");
    }
    assert!(filled.iter().all(|used| *used == filled[0]), "{filled:?}");
    assert_eq!(store.read_only(), None);
}

/// The metadata region runs out instead: objects are refused, nothing else suffers.
#[test]
fn full_metadata_refuses_objects_and_lets_them_go() {
    let mut format = format_options();
    format.metadata_bytes = Some(2 << 20);
    let (image, _) = formatted(24 << 20, &format);
    let (device, store) = reopen(&image, &small_cache(64));
    let mut counts = Vec::new();
    for round in 0..3 {
        let mut objects = Vec::new();
        let initial = SetAttributes::default();
        loop {
            match store.create(P1, &initial, Timestamp(2)) {
                Ok((object, _)) => objects.push(name(P1, object.0)),
                Err(StoreError::NoSpace(NoSpace::Metadata)) => break,
                Err(error) => panic!("{error}"),
            }
            let last = *objects.last().unwrap();
            match write(&store, last, 0, &[4; 1500]) {
                Ok(_) | Err(StoreError::NoSpace(NoSpace::Metadata)) => {}
                Err(error) => panic!("{error}"),
            }
        }
        println!("round {round}: {} objects", objects.len());
        counts.push(objects.len());
        store.flush_all().unwrap();
        let copied = store.fastcopy(objects[0], Timestamp(5));
        let is_refused = matches!(copied, Err(StoreError::NoSpace(NoSpace::Metadata)));
        assert!(is_refused || copied.is_ok(), "{copied:?}");
        assert_clean(&device.live(), "full metadata");
        for object in store.list(P1, ObjectId::FIRST_DYNAMIC, usize::MAX).unwrap() {
            store.remove(name(P1, object.0)).unwrap();
        }
        store.flush_all().unwrap();
        check_space(&store);
        assert_clean(&device.live(), "emptied metadata");
    }
    assert!(counts[0] > 100, "{counts:?}");
    assert!(counts.iter().all(|count| *count >= counts[0] / 2), "{counts:?}");
    assert_eq!(store.read_only(), None);
    store.close().unwrap();
}

/// The smallest drives there are do everything that larger ones do.
#[test]
fn the_smallest_drives_work() {
    let tiny = Arc::new(FaultyDevice::zeroed(1 << 20));
    let refused = Store::format(tiny, &format_options()).unwrap_err();
    let FormatError::TooSmall { needed, .. } = refused else { panic!("{refused}") };
    for blocks in 0..3 {
        let capacity = needed + blocks * 70 * BLOCK;
        let (image, histories) = formatted(capacity, &format_options());
        let (device, store) = reopen(&image, &small_cache(64));
        let mix = Mix {
            largest: 400_000,
            objects: 12,
            reserve: blocks == 1,
            partitions: true,
            compare: true,
        };
        let mut world = World::new(histories, 70 + blocks, mix);
        for _ in 0..400 {
            world.step(&store).unwrap();
        }
        store.flush_all().unwrap();
        world.histories().all_durable();
        world.histories().settle_flushed(&store);
        assert_clean(&device.live(), "a small drive");
        println!("{capacity} bytes, refused {:?}", world.refused);
    }
}
