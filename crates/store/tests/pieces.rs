//! Reads of many pieces: what they find, and that many at once do not wait for each other in a small cache.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod common;

use std::time::{Duration, Instant};

use common::*;
use nasd_store::{OpenOptions, Store};
use nasd_types::{ByteRange, ObjectName};

const CAPACITY: u64 = 64 << 20;

/// What the pieces have in common with the bytes, up to the first one that goes beyond them.
fn expected(bytes: &[u8], pieces: &[ByteRange]) -> Vec<u8> {
    let mut all = Vec::new();
    for piece in pieces {
        let end = bytes.len().min(piece.end() as usize);
        all.extend(&bytes[end.min(piece.offset as usize)..end]);
        if piece.end() > bytes.len() as u64 {
            break;
        }
    }
    all
}

/// Starts the store anew, with nothing in its cache.
fn anew(device: &std::sync::Arc<nasd_device::MemoryDevice>, store: Store, frames: usize) -> Store {
    store.close().unwrap();
    open(device.clone(), &small_cache(frames))
}

#[test]
fn pieces_are_what_single_reads_find_wherever_they_are() {
    let (device, mut store) = memory_store(CAPACITY, &small_cache(256));
    let mut random = Random(7);
    let object = create(&store, P1);
    let mut bytes = random.bytes(3_000_001);
    // With a hole.
    bytes[1_000_000..1_400_000].fill(0);
    write(&store, object, 0, &bytes[..1_000_000]).unwrap();
    write(&store, object, 1_400_000, &bytes[1_400_000..]).unwrap();
    for round in 0..60 {
        if round % 5 == 0 {
            store = anew(&device, store, 64 + round);
        }
        let count = 1 + random.below(40);
        let pieces: Vec<ByteRange> = (0..count)
            .map(|_| ByteRange::new(random.below(3_010_000), random.below(9_000)))
            .collect();
        let read = store.read_pieces(object, &pieces).unwrap();
        assert!(read.segments.iter().all(|segment| !segment.is_empty()));
        assert!(read.to_vec() == expected(&bytes, &pieces), "{round}: {pieces:?}");
    }
}

#[test]
fn readers_of_many_pieces_do_not_starve_each_other() {
    const READERS: usize = 16;
    let (device, store) = memory_store(CAPACITY, &small_cache(256));
    let bytes = Random(3).bytes(512 << 10);
    let objects: Vec<ObjectName> = (0..READERS).map(|_| create(&store, P1)).collect();
    for object in &objects {
        write(&store, *object, 0, &bytes).unwrap();
    }
    // Memory for half of what all of them read.
    let store = anew(&device, store, 72);
    let pieces: Vec<ByteRange> = (0..64).map(|piece| ByteRange::new(piece << 13, 4096)).collect();
    let wanted = expected(&bytes, &pieces);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for reader in 0..READERS {
            let (store, objects, pieces, wanted) = (&store, &objects, &pieces, &wanted);
            scope.spawn(move || {
                for turn in 0..50 {
                    let object = objects[(reader + turn) % READERS];
                    let read = store.read_pieces(object, pieces).unwrap();
                    assert!(read.to_vec() == *wanted);
                }
            });
        }
    });
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
}

/// Who finds blocks beforehand reads for himself what others need not read then, and nothing comes of it otherwise.
#[test]
fn blocks_that_were_found_are_read_by_fewer_requests() {
    const MIB: u64 = 1 << 20;
    const METADATA: usize = 32 << 10;
    let (device, store) = faulty_store(128 * MIB, &small_cache(256));
    let object = create(&store, P1);
    for index in 0..48 {
        write(&store, object, index * MIB, &vec![index as u8 + 1; MIB as usize]).unwrap();
    }
    store.flush_all().unwrap();
    store.checkpoint().unwrap();
    store.close().unwrap();
    let requests = |finds: bool| {
        let options = OpenOptions { metadata_cache_bytes: METADATA, ..small_cache(256) };
        let store = open(device.clone(), &options);
        let located = store.locate(object).unwrap().unwrap();
        if finds {
            store.find_blocks(&located, ByteRange::new(MIB, 8 * MIB));
        }
        let before = device.reads();
        for index in 1..9 {
            let (read, _) = store.read_past(&located, ByteRange::new(index * MIB, MIB)).unwrap();
            assert!(read.to_vec().iter().all(|byte| u64::from(*byte) == index + 1));
        }
        let requests = device.reads() - before;
        // Not durable: the next one has it again.
        store.remove(object).unwrap();
        store.find_blocks(&located, ByteRange::new(0, MIB));
        requests
    };
    let (cold, found) = (requests(false), requests(true));
    assert!(found < cold, "{found} {cold}");
}
