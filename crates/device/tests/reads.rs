//! Queues of reads: the same as plain calls, in any order, whatever happens on the way.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::time::Duration;

use nasd_device::{
    AlignedBuffer, BlockDevice, DeviceError, FRAME_BYTES, FaultPlan, FaultyDevice, FileDevice,
    FileOptions, Frame, FramePool, FrameRead, MemoryDevice, Queue, RatedDevice, ReadPart,
    SECTOR_BYTES, SeekModel, SeekingDevice,
};
use proptest::prelude::*;

const SECTOR: u64 = SECTOR_BYTES as u64;
const FRAME_SECTORS: usize = FRAME_BYTES / SECTOR_BYTES;
const SECTORS: u64 = 4096;

/// A disk on which little time passes, but really.
const QUICK: SeekModel = SeekModel {
    revolution: Duration::from_micros(4),
    shortest_seek: Duration::from_micros(1),
    longest_seek: Duration::from_micros(10),
    bytes_per_second: 20_000_000_000,
    overhead: Duration::from_micros(1),
    ..SeekModel::DISK_7200.sleeping()
};

/// Devices with a queue of their own, where the kernel has rings, and without one, that hold the same.
fn devices(folder: &tempfile::TempDir) -> Vec<Box<dyn BlockDevice>> {
    let open = |name: &str, queue| {
        let options = FileOptions { allow_buffered: true, queue };
        let path = folder.path().join(name);
        FileDevice::create(path, SECTORS * SECTOR, options).unwrap()
    };
    let devices: Vec<Box<dyn BlockDevice>> = vec![
        Box::new(open("auto", Queue::Auto)),
        Box::new(open("plain", Queue::Plain)),
        Box::new(MemoryDevice::new(SECTORS * SECTOR).unwrap()),
        Box::new(SeekingDevice::new(open("counted", Queue::Auto), SeekModel::DISK_7200)),
        Box::new(SeekingDevice::new(open("slept", Queue::Auto), QUICK)),
        Box::new(RatedDevice::new(open("rated", Queue::Auto), 20_000_000_000)),
    ];
    let mut contents = AlignedBuffer::zeroed((SECTORS * SECTOR) as usize);
    for (sector, bytes) in (0..).zip(contents.chunks_mut(SECTOR_BYTES)) {
        bytes.chunks_mut(8).for_each(|word| word.copy_from_slice(&u64::to_le_bytes(sector)));
    }
    for device in &devices {
        device.write(0, &[IoSlice::new(&contents)]).unwrap();
    }
    devices
}

/// Parts of a frame: (sectors of the frame that are left out, sectors that are read, from where).
type Shape = Vec<(usize, usize, u64)>;

fn parts(shape: &Shape) -> Vec<ReadPart> {
    let mut at = 0;
    let mut parts = Vec::new();
    for &(gap, sectors, from) in shape {
        let start = at + gap;
        at = start + sectors;
        if at > FRAME_SECTORS {
            break;
        }
        let range = start * SECTOR_BYTES..at * SECTOR_BYTES;
        parts.push(ReadPart { offset: from * SECTOR, range });
    }
    parts
}

/// Every byte that was to be read is what the device has there, and no other was touched.
fn check(frame: &Frame, parts: &[ReadPart]) {
    let mut expected = vec![0xee; FRAME_BYTES];
    for ReadPart { offset, range } in parts {
        for (sector, bytes) in (offset / SECTOR..).zip(expected[range.clone()].chunks_mut(4096)) {
            bytes.chunks_mut(8).for_each(|word| word.copy_from_slice(&sector.to_le_bytes()));
        }
    }
    assert!(frame[..] == expected[..]);
}

fn frame(pool: &FramePool) -> Frame {
    let mut frame = pool.allocate().unwrap();
    frame.fill(0xee);
    frame
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn every_part_is_read_once_to_its_place(
        shapes in prop::collection::vec(
            prop::collection::vec((0usize..4, 1usize..9, 0..SECTORS - 8), 0..6), 1..150),
        leasts in prop::collection::vec(0usize..9, 1..40),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let pool = FramePool::new(shapes.len()).unwrap();
        for device in devices(&folder) {
            let mut queue = device.read_queue();
            let mut expected = BTreeMap::new();
            let (mut next, mut leasts) = (shapes.iter().enumerate(), leasts.iter().cycle());
            loop {
                let least = *leasts.next().unwrap();
                for (tag, shape) in next.by_ref().take(3 * least + 1) {
                    let parts = parts(shape);
                    expected.insert(tag, parts.clone());
                    queue.begin(FrameRead { tag, frame: frame(&pool), parts });
                }
                prop_assert_eq!(queue.under_way(), expected.len());
                // Where there is no ring, nothing ends that nobody waits for.
                let least = if next.len() == 0 { least.max(1) } else { least };
                let ended = queue.ended(least);
                prop_assert!(ended.len() >= least.min(expected.len()));
                for end in ended {
                    end.outcome.unwrap();
                    check(&end.frame, &expected.remove(&end.tag).unwrap());
                }
                if next.len() == 0 && expected.is_empty() {
                    break;
                }
            }
        }
    }
}

#[test]
fn what_is_under_way_when_a_queue_is_dropped_has_landed() {
    let folder = tempfile::tempdir().unwrap();
    let pool = FramePool::new(100).unwrap();
    for device in devices(&folder) {
        for round in 0..30_u64 {
            let mut queue = device.read_queue();
            for tag in 0..100 {
                let parts = vec![ReadPart { offset: round * SECTOR, range: 0..FRAME_BYTES }];
                queue.begin(FrameRead { tag, frame: frame(&pool), parts });
                if tag as u64 == 3 * round {
                    // Some are in the kernel, some are not.
                    drop(queue.ended(0));
                }
            }
            drop(queue);
            // All frames are back, and what they hold now stays.
            let mut frames = pool.allocate_many(100).unwrap();
            frames.iter_mut().for_each(|frame| frame.fill(round as u8));
            std::thread::yield_now();
            assert!(frames.iter().all(|frame| frame.iter().all(|byte| *byte == round as u8)));
        }
    }
}

#[test]
fn more_queues_than_rings_read_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let pool = FramePool::new(200).unwrap();
    for device in devices(&folder) {
        let mut queues: Vec<_> = (0..100).map(|_| device.read_queue()).collect();
        let part = |tag: u64| ReadPart { offset: tag * SECTOR, range: 4096..3 * 4096 };
        for (tag, queue) in queues.iter_mut().enumerate() {
            queue.begin(FrameRead { tag, frame: frame(&pool), parts: vec![part(tag as u64)] });
        }
        for (number, queue) in queues.iter_mut().enumerate() {
            let [end] = &queue.ended(1)[..] else { panic!("one was begun") };
            assert!(end.tag == number && end.outcome.is_ok());
            check(&end.frame, &[part(number as u64)]);
        }
    }
}

#[test]
fn a_read_that_fails_fails_alone() {
    let folder = tempfile::tempdir().unwrap();
    let pool = FramePool::new(8).unwrap();
    let mut devices = devices(&folder);
    // The file is cut short behind the devices' back.
    for name in ["auto", "plain", "counted", "slept", "rated"] {
        let file = std::fs::File::options().write(true).open(folder.path().join(name)).unwrap();
        file.set_len(100 * SECTOR).unwrap();
    }
    let faulty = FaultyDevice::zeroed(SECTORS * SECTOR);
    faulty
        .set_plan(FaultPlan { unreadable: 100 * SECTOR..SECTORS * SECTOR, ..FaultPlan::default() });
    devices[2] = Box::new(faulty);
    for device in devices {
        let mut queue = device.read_queue();
        let part = |from: u64, range| ReadPart { offset: from * SECTOR, range };
        // Half of the second lies beyond the end.
        let all = [
            vec![part(4, 0..8192)],
            vec![part(5, 0..4096), part(99, 8192..16_384)],
            vec![part(99, 0..4096)],
            vec![part(200, 0..65_536), part(6, 0..0)],
        ];
        for (tag, parts) in all.into_iter().enumerate() {
            queue.begin(FrameRead { tag, frame: frame(&pool), parts });
        }
        let mut outcomes = BTreeMap::new();
        while queue.under_way() > 0 {
            outcomes.extend(queue.ended(1).into_iter().map(|end| (end.tag, end.outcome)));
        }
        assert!(outcomes[&0].is_ok() && outcomes[&2].is_ok(), "{outcomes:?}");
        for bad in [1, 3] {
            let error = outcomes[&bad].as_ref().unwrap_err();
            assert!(matches!(error, DeviceError::Medium { operation: "read", .. }), "{error}");
        }
    }
}

#[test]
fn a_wrong_read_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let pool = FramePool::new(8).unwrap();
    for device in devices(&folder) {
        let mut queue = device.read_queue();
        for (tag, (offset, range)) in
            [(SECTORS * SECTOR, 0..4096), (u64::MAX - 4095, 0..4096), (17, 0..4096), (0, 5..4101)]
                .into_iter()
                .enumerate()
        {
            let parts = vec![ReadPart { offset, range }];
            queue.begin(FrameRead { tag, frame: frame(&pool), parts });
            let [end] = &queue.ended(1)[..] else { panic!("one was begun") };
            let error = end.outcome.as_ref().unwrap_err();
            let refused =
                matches!(error, DeviceError::OutOfBounds { .. } | DeviceError::Unaligned { .. });
            assert!(refused, "{error}");
        }
    }
}
