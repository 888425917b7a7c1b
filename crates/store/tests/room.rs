//! Space that runs out: what is refused changes nothing, what is freed can be used, and nothing
//! answered as durable is lost.

// A helper of a test may fail by panicking.
#![allow(clippy::unwrap_used)]

mod common;
mod world;

use common::*;
use nasd_store::{NoSpace, Store, StoreError};
use nasd_types::{ByteRange, ObjectName, Timestamp};
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
        small.iter().for_each(|object| drop(write(&store, *object, 0, &[1; 4096]).unwrap()));
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
