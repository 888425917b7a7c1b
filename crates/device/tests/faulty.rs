//! The faulty device: each planned fault happens as planned, and the same way each time.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

use std::collections::BTreeSet;
use std::io::{IoSlice, IoSliceMut};

use nasd_device::{
    AlignedBuffer, BlockDevice, DeviceError, FailedSync, FaultPlan, FaultyDevice, Image,
    SECTOR_BYTES, Tearing, WriteRequest,
};
use proptest::prelude::*;

const SECTOR: u64 = SECTOR_BYTES as u64;

fn write(device: &FaultyDevice, sector: u64, value: u8) -> Result<(), DeviceError> {
    let mut buffer = AlignedBuffer::zeroed(SECTOR_BYTES);
    buffer.fill(value);
    device.write(sector * SECTOR, &[IoSlice::new(&buffer)])
}

fn read(device: &FaultyDevice, sector: u64) -> Result<AlignedBuffer, DeviceError> {
    let mut buffer = AlignedBuffer::zeroed(SECTOR_BYTES);
    device.read(sector * SECTOR, &mut [IoSliceMut::new(&mut buffer)])?;
    Ok(buffer)
}

/// One write of a sector for each value, in one batch from sector 0 on.
fn write_batch(device: &FaultyDevice, values: &[u8]) -> Result<(), DeviceError> {
    let mut memory = AlignedBuffer::zeroed(values.len() * SECTOR_BYTES);
    for (chunk, &value) in memory.chunks_mut(SECTOR_BYTES).zip(values) {
        chunk.fill(value);
    }
    let requests: Vec<WriteRequest<'_>> = memory
        .chunks(SECTOR_BYTES)
        .zip(0..)
        .map(|(chunk, at)| WriteRequest { offset: at * SECTOR, from: vec![IoSlice::new(chunk)] })
        .collect();
    device.write_batch(&requests)
}

fn first_bytes(image: &Image) -> Vec<u8> {
    image.to_vec().chunks(SECTOR_BYTES).map(|sector| sector[0]).collect()
}

fn set_bits(bytes: &[u8]) -> u32 {
    bytes.iter().map(|byte| byte.count_ones()).sum()
}

#[test]
fn every_change_can_be_the_last() {
    let work = |device: &FaultyDevice| {
        write_batch(device, &[1, 2])?;
        device.sync()?;
        write(device, 0, 3)?;
        device.sync()
    };
    let whole = FaultyDevice::zeroed(4 * SECTOR);
    work(&whole).unwrap();
    assert_eq!((whole.changes(), whole.writes(), whole.syncs()), (5, 3, 2));
    // What may be in the first two sectors after a crash at each change.
    let expected: [&[[u8; 2]]; 5] = [
        &[[0, 0], [1, 0], [0, 2], [1, 2]],
        &[[0, 0], [1, 0], [0, 2], [1, 2]],
        &[[0, 0], [1, 0], [0, 2], [1, 2]],
        &[[1, 2], [3, 2]],
        &[[1, 2], [3, 2]],
    ];
    for (change, expected) in expected.into_iter().enumerate() {
        let plan = FaultPlan {
            crash_at_change: Some(change as u64),
            tearing: Tearing::Never,
            ..FaultPlan::default()
        };
        let device = FaultyDevice::over(Image::zeroed(4 * SECTOR), plan);
        work(&device).unwrap_err();
        assert!(device.has_crashed() && read(&device, 0).is_err());
        let seen: BTreeSet<[u8; 2]> = (0..100)
            .map(|seed| {
                let first = first_bytes(&device.survivor(seed));
                [first[0], first[1]]
            })
            .collect();
        assert_eq!(seen, expected.iter().copied().collect(), "change {change}");
    }
}

#[test]
fn a_crash_cuts_a_batch_anywhere() {
    let plan = FaultPlan { crash_at_write: Some(1), ..FaultPlan::default() };
    let device = FaultyDevice::over(Image::zeroed(4 * SECTOR), plan);
    write_batch(&device, &[1, 1, 1, 1]).unwrap_err();
    write_batch(&device, &[2, 2, 2, 2]).unwrap_err();
    let survivors: Vec<Vec<u8>> =
        (0..300).map(|seed| first_bytes(&device.survivor(seed))).collect();
    assert!(survivors.iter().any(|first| first[..] == [0, 0, 0, 1]), "the last one alone");
    assert!(survivors.iter().flatten().all(|&value| value < 2), "nothing after the crash");
}

#[test]
fn an_error_in_a_batch_leaves_any_part_of_it() {
    let mut seen = BTreeSet::new();
    for seed in 0..60 {
        let plan = FaultPlan { failing_writes: vec![1], seed, ..FaultPlan::default() };
        let device = FaultyDevice::over(Image::zeroed(4 * SECTOR), plan);
        write_batch(&device, &[1, 1, 1, 1]).unwrap_err();
        seen.insert(first_bytes(&device.live()));
    }
    let expected: [[u8; 4]; 4] = [[1, 0, 0, 0], [1, 0, 1, 0], [1, 0, 0, 1], [1, 0, 1, 1]];
    assert_eq!(seen, expected.iter().map(|first| first.to_vec()).collect());
}

#[test]
fn a_failing_write_may_write_a_part() {
    let mut sizes = BTreeSet::new();
    for seed in 0..40 {
        let failing_writes = vec![0];
        let plan = FaultPlan { failing_writes, partial_writes: true, seed, ..FaultPlan::default() };
        let device = FaultyDevice::over(Image::zeroed(4 * SECTOR), plan);
        let mut buffer = AlignedBuffer::zeroed(4 * SECTOR_BYTES);
        buffer.fill(1);
        device.write(0, &[IoSlice::new(&buffer)]).unwrap_err();
        let first = first_bytes(&device.live());
        sizes.insert(first.iter().map(|&value| u32::from(value)).sum::<u32>());
    }
    assert_eq!(sizes, (0..=4).collect());
}

#[test]
fn tearing_mixes_versions_by_pieces_of_512_bytes() {
    let image = |tearing| {
        let plan = FaultPlan { tearing, ..FaultPlan::default() };
        let device = FaultyDevice::over(Image::zeroed(SECTOR), plan);
        write(&device, 0, 1).unwrap();
        write(&device, 0, 2).unwrap();
        move |seed| device.surviving_image(seed)
    };
    let (always, never) = (image(Tearing::Always), image(Tearing::Never));
    for seed in 0..50 {
        assert!(never(seed).iter().all(|&byte| byte == never(seed)[0]));
        assert!(always(seed).chunks(512).all(|piece| piece.iter().all(|&byte| byte == piece[0])));
    }
    let all_three = |image: Vec<u8>| (0..3).all(|version| image.contains(&version));
    assert!((0..50).any(|seed| all_three(always(seed))));
}

#[test]
fn a_failed_sync_may_drop_writes_for_good() {
    for failed_sync in [FailedSync::Drops, FailedSync::DropsUnseen] {
        let mut seen = BTreeSet::new();
        for seed in 0..40 {
            let failing_syncs = vec![0];
            let plan = FaultPlan { failing_syncs, failed_sync, seed, ..FaultPlan::default() };
            let device = FaultyDevice::over(Image::zeroed(2 * SECTOR), plan);
            write(&device, 0, 1).unwrap();
            write(&device, 1, 1).unwrap();
            device.sync().unwrap_err();
            let live = first_bytes(&device.live());
            assert_eq!(read(&device, 0).unwrap()[0], live[0]);
            device.sync().unwrap();
            let durable = first_bytes(&device.survivor(0));
            match failed_sync {
                FailedSync::DropsUnseen => assert_eq!(live, [1, 1], "reads notice nothing"),
                _ => assert_eq!(live, durable),
            }
            // What is written again afterwards is written.
            write(&device, 0, 2).unwrap();
            assert_eq!(read(&device, 0).unwrap()[0], 2);
            device.sync().unwrap();
            assert_eq!(first_bytes(&device.survivor(0))[0], 2);
            seen.insert(durable);
        }
        assert_eq!(seen.len(), 4, "each sector is dropped or not by itself: {seen:?}");
    }
}

#[test]
fn reads_fail_by_number_and_by_place_until_rewritten() {
    let device = FaultyDevice::zeroed(8 * SECTOR);
    device.set_plan(FaultPlan {
        failing_reads: vec![1],
        bad_ranges: vec![2 * SECTOR + 100..2 * SECTOR + 101, 4 * SECTOR..6 * SECTOR],
        writing_heals: true,
        ..FaultPlan::default()
    });
    read(&device, 0).unwrap();
    read(&device, 0).unwrap_err();
    let readable = |device: &FaultyDevice| -> Vec<bool> {
        (0..8).map(|sector| read(device, sector).is_ok()).collect()
    };
    assert_eq!(readable(&device), [true, true, false, true, false, false, true, true]);
    write(&device, 2, 7).unwrap();
    write(&device, 5, 7).unwrap();
    assert_eq!(readable(&device), [true, true, true, true, false, true, true, true]);
    let mut buffer = AlignedBuffer::zeroed(2 * SECTOR_BYTES);
    device.read(4 * SECTOR, &mut [IoSliceMut::new(&mut buffer)]).unwrap_err();
    device.read(5 * SECTOR, &mut [IoSliceMut::new(&mut buffer)]).unwrap();
}

#[test]
fn writes_are_lost_and_bits_flipped_silently() {
    let device = FaultyDevice::zeroed(4 * SECTOR);
    device.set_plan(FaultPlan {
        lost_writes: vec![0],
        flipped_writes: vec![1],
        flipped_reads: vec![2],
        seed: 11,
        ..FaultPlan::default()
    });
    write(&device, 0, 0xff).unwrap();
    assert_eq!(set_bits(&read(&device, 0).unwrap()), 0);
    write(&device, 1, 0).unwrap();
    assert_eq!(set_bits(&read(&device, 1).unwrap()), 1, "the medium is wrong");
    assert_eq!(set_bits(&read(&device, 2).unwrap()), 1, "only what was read is wrong");
    assert_eq!(set_bits(&read(&device, 2).unwrap()), 0);
    assert_eq!(set_bits(&device.live_image()), 1);
    // The flipped bit of a longer write is anywhere in it.
    let places: BTreeSet<usize> = (0..60)
        .map(|seed| {
            let plan = FaultPlan { flipped_writes: vec![0], seed, ..FaultPlan::default() };
            let device = FaultyDevice::over(Image::zeroed(4 * SECTOR), plan);
            let buffer = AlignedBuffer::zeroed(4 * SECTOR_BYTES);
            device.write(0, &[IoSlice::new(&buffer)]).unwrap();
            let image = device.live_image();
            assert_eq!(set_bits(&image), 1);
            image.iter().position(|&byte| byte != 0).unwrap() / SECTOR_BYTES
        })
        .collect();
    assert_eq!(places.len(), 4);
}

#[test]
fn a_medium_grows_and_shrinks() {
    let device = FaultyDevice::zeroed(2 * SECTOR);
    write(&device, 1, 5).unwrap();
    let plan = FaultPlan::default;
    let larger = FaultyDevice::with_capacity(device.live(), 3 * SECTOR - 1, plan());
    assert_eq!(larger.capacity(), 3 * SECTOR);
    assert_eq!(first_bytes(&larger.live()), [0, 5, 0]);
    let smaller = FaultyDevice::with_capacity(larger.live_image(), SECTOR, plan());
    let back = FaultyDevice::with_capacity(smaller.live(), 2 * SECTOR, plan());
    assert_eq!(first_bytes(&back.live()), [0, 0], "what was cut off is gone");
}

fn plans() -> impl Strategy<Value = FaultPlan> {
    let numbers = || prop::collection::vec(0u64..30, 0..4);
    let failed = prop_oneof![
        Just(FailedSync::Keeps),
        Just(FailedSync::Drops),
        Just(FailedSync::DropsUnseen)
    ];
    (
        prop::option::of(0u64..40),
        (numbers(), numbers(), numbers(), numbers(), numbers(), numbers()),
        failed,
        any::<(bool, bool, u64)>(),
    )
        .prop_map(|(crash_at_change, numbers, failed_sync, (partial_writes, heals, seed))| {
            FaultPlan {
                crash_at_change,
                failing_reads: numbers.0,
                failing_writes: numbers.1,
                failing_syncs: numbers.2,
                lost_writes: numbers.3,
                flipped_writes: numbers.4,
                flipped_reads: numbers.5,
                failed_sync,
                partial_writes,
                writing_heals: heals,
                bad_ranges: vec![5 * SECTOR..6 * SECTOR, 0..0],
                seed,
                ..FaultPlan::default()
            }
        })
}

/// What the calls on a device answered, and what a crash in the end leaves.
fn run(plan: &FaultPlan, steps: &[(u8, u64)]) -> (Vec<Result<Vec<u8>, String>>, Image) {
    let device = FaultyDevice::over(Image::zeroed(8 * SECTOR), plan.clone());
    let answers = steps.iter().enumerate().map(|(index, &(kind, sector))| {
        let value = index as u8 + 1;
        match kind {
            0 => device.sync().map(|()| vec![]),
            1 => write_batch(&device, &[value; 6]).map(|()| vec![]),
            2 | 3 => write(&device, sector, value).map(|()| vec![]),
            _ => read(&device, sector).map(|buffer| buffer.to_vec()),
        }
        .map_err(|error| error.to_string())
    });
    (answers.collect(), device.survivor(plan.seed))
}

proptest! {
    #[test]
    fn a_plan_and_its_calls_are_one_outcome(
        plan in plans(),
        steps in prop::collection::vec((0u8..6, 0u64..8), 0..40),
    ) {
        prop_assert!(run(&plan, &steps) == run(&plan, &steps));
    }

    /// Whatever fails: what was written before a sync that succeeded, and not after, survives.
    #[test]
    fn what_was_synced_survives(
        failing in prop::collection::vec(0u64..20, 0..6),
        crash in 0u64..60,
        steps in prop::collection::vec(prop_oneof![3 => 1u64..8, 1 => Just(0)], 1..60),
        seed in any::<u64>(),
    ) {
        let plan = FaultPlan {
            failing_syncs: failing,
            crash_at_change: Some(crash),
            tearing: Tearing::Always,
            ..FaultPlan::default()
        };
        let device = FaultyDevice::over(Image::zeroed(8 * SECTOR), plan);
        // The value of each sector at the last sync, and those since.
        let mut model: Vec<Vec<u8>> = vec![vec![0]; 8];
        for (index, &step) in steps.iter().enumerate() {
            let value = index as u8 + 1;
            if step == 0 {
                if device.sync().is_ok() {
                    model.iter_mut().for_each(|values| _ = values.drain(..values.len() - 1));
                }
            } else {
                let crashed = device.has_crashed();
                // Even of the write that power was lost in, a part may be there.
                if write(&device, step, value).is_ok() || !crashed {
                    model[step as usize].push(value);
                }
            }
        }
        let survivor = device.surviving_image(seed);
        for (sector, values) in survivor.chunks(SECTOR_BYTES).zip(&model) {
            prop_assert!(sector.iter().all(|byte| values.contains(byte)));
        }
    }
}
