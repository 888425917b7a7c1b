//! The tree on a region: filled to its limit and churned there, grown to several tree regions,
//! and its extent arithmetic against a model.

use std::collections::BTreeMap;
use std::sync::Arc;

use nasd_device::{BlockDevice, MemoryDevice};
use nasd_types::{ObjectId, ObjectName, PartitionId};
use proptest::prelude::*;

use super::record::Extent;
use super::*;

fn name(object: u64) -> ObjectName {
    ObjectName { partition: PartitionId(1), object: ObjectId(object) }
}

fn create(capacity: u64, metadata_bytes: Option<u64>) -> (Arc<MemoryDevice>, Geometry) {
    let device = Arc::new(MemoryDevice::new(capacity).unwrap());
    let geometry = Geometry::plan(capacity, metadata_bytes).unwrap();
    let records = InitialRecords {
        drive_key: &StoredKey::new([1; 32]),
        object_limit: 64,
        partitions: Vec::new(),
        objects: Vec::new(),
    };
    Metadata::create(device.clone(), &geometry, &records).unwrap();
    (device, geometry)
}

fn open(device: &Arc<MemoryDevice>, geometry: &Geometry) -> Metadata {
    let device: Arc<dyn BlockDevice> = device.clone();
    Metadata::open(device, geometry, 8 << 20).unwrap()
}

fn extent(logical: u64, physical: u64, blocks: u64) -> Extent {
    let checksums = (0..blocks).map(|block| (physical + block) as u32).collect();
    Extent { logical, physical, checksums }
}

#[test]
fn regions_of_every_kind_can_be_made_and_opened() {
    for bytes in [2 << 20, (2 << 20) + (256 << 10), 5 << 20, 64 << 20, 4 << 30, (8 << 30) + 4096] {
        let (device, geometry) = create((16 << 30) + bytes, Some(bytes));
        assert_eq!(geometry.metadata_bytes, bytes);
        for _ in 0..3 {
            let metadata = open(&device, &geometry);
            let mut transaction = metadata.begin().unwrap();
            transaction.replace(name(1), vec![extent(0, 0, 256)]).unwrap();
            transaction.commit().unwrap();
            metadata.close().unwrap();
        }
    }
}

/// Adds records until no more may be promised; how many.
fn fill(metadata: &Metadata) -> u64 {
    let mut count = 0;
    loop {
        if !metadata.capacity.promise(16) {
            metadata.measure().unwrap();
            if !metadata.capacity.promise(16) {
                return count;
            }
        }
        let mut transaction = metadata.begin().unwrap();
        // Far apart, so that no two become one.
        let new = (count..count + 16).map(|i| extent(2 * i, i, 1)).collect();
        transaction.replace(name(1), new).unwrap();
        transaction.commit().unwrap();
        metadata.capacity.release(16);
        count += 16;
    }
}

/// Fills regions of several sizes and goes on changing all records in transactions that touch every
/// page, with a few that touch hardly any, after which the tree would like to give space back. It
/// must never run out of pages.
#[test]
fn a_region_filled_to_its_limit_still_takes_any_transaction() {
    for quarters in [8, 11, 15] {
        let (device, geometry) = create(128 << 20, Some(quarters << 18));
        let metadata = open(&device, &geometry);
        let count = fill(&metadata);
        assert!(count > 3000, "a quarter of the pages holds at least that many, not {count}");
        for round in 0..4 {
            for part in 0..2 {
                let mut transaction = metadata.begin().unwrap();
                // A reader keeps the pages of the state before from being released.
                let reader = metadata.extents_table().unwrap();
                let physical = |i| (i + round * 7 + part) % 9999;
                let all = (0..count).map(|i| extent(2 * i, physical(i), 1)).collect();
                assert_eq!(transaction.replace(name(1), all).unwrap(), count);
                let freed = transaction.commit().unwrap();
                assert_eq!(freed.iter().map(|run| run.blocks).sum::<u64>(), count);
                drop(reader);
            }
            for small in 0..round {
                let mut transaction = metadata.begin().unwrap();
                transaction.replace(name(2), vec![extent(small, small, 1)]).unwrap();
                transaction.commit().unwrap();
            }
        }
        let mut transaction = metadata.begin().unwrap();
        assert_eq!(transaction.cut(name(1), 0).unwrap(), count);
        transaction.commit().unwrap();
        metadata.measure().unwrap();
        assert!(metadata.capacity.promise(1000));
        metadata.close().unwrap();
        open(&device, &geometry);
    }
}

#[test]
fn a_region_of_whole_tree_regions_grows_and_shrinks() {
    let (device, geometry) = create(40 << 30, Some(9 << 30));
    assert_eq!(geometry.metadata_bytes, (8 << 30) + 4096);
    for round in 0..3u64 {
        let metadata = open(&device, &geometry);
        for step in 0..20u64 {
            let mut transaction = metadata.begin().unwrap();
            let first = (round * 20 + step) * 512;
            let new = (0..512).map(|i| extent(2 * (first + i), first + i, 1)).collect();
            transaction.replace(name(1), new).unwrap();
            transaction.commit().unwrap();
        }
        let mut transaction = metadata.begin().unwrap();
        transaction.cut(name(1), round * 5000).unwrap();
        transaction.commit().unwrap();
        if round == 1 {
            metadata.close().unwrap();
        }
    }
}

#[derive(Clone, Debug)]
enum Change {
    Replace { logical: u64, blocks: u64, physical: u64 },
    Cut { first: u64 },
    RemoveObject,
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        8 => (0..600u64, 1..=256u64, 0..5000u64).prop_map(|(logical, blocks, physical)| {
            Change::Replace { logical, blocks, physical }
        }),
        2 => (0..900u64).prop_map(|first| Change::Cut { first }),
        1 => Just(Change::RemoveObject),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn extents_agree_with_a_map_of_blocks(
        changes in prop::collection::vec((change(), 0..3u64), 1..60),
    ) {
        let (device, geometry) = create(128 << 20, None);
        let metadata = open(&device, &geometry);
        let mut models: Vec<BTreeMap<u64, u64>> = vec![BTreeMap::new(); 3];
        for (change, object) in changes {
            let model = &mut models[object as usize];
            let mut transaction = metadata.begin().unwrap();
            let before = model.clone();
            match change {
                Change::Replace { logical, blocks, physical } => {
                    let removed =
                        transaction.replace(name(object), vec![extent(logical, physical, blocks)]);
                    let range = logical..logical + blocks;
                    prop_assert_eq!(removed.unwrap() as usize, model.range(range).count());
                    model.extend((0..blocks).map(|block| (logical + block, physical + block)));
                }
                Change::Cut { first } => {
                    let removed = transaction.cut(name(object), first).unwrap();
                    prop_assert_eq!(removed as usize, model.split_off(&first).len());
                }
                Change::RemoveObject => {
                    transaction.remove_object(name(object)).unwrap();
                    model.clear();
                }
            }
            let freed: u64 = transaction.commit().unwrap().iter().map(|run| run.blocks).sum();
            let gone = before.iter().filter(|(block, at)| {
                model.get(block) != Some(at) || matches!(change, Change::Replace { logical, blocks, .. }
                    if (logical..logical + blocks).contains(block))
            });
            prop_assert_eq!(freed as usize, gone.count());
            for (object, model) in models.iter().enumerate() {
                for (from, to) in [(0, 2000), (100, 300), (255, 257), (599, 600)] {
                    let found = metadata.extents(name(object as u64), from, to).unwrap();
                    let blocks: Vec<(u64, u64, u32)> = found.iter().flat_map(|extent| {
                        extent.checksums.iter().enumerate().map(|(i, sum)| {
                            (extent.logical + i as u64, extent.physical + i as u64, *sum)
                        })
                    }).collect();
                    let expected: Vec<(u64, u64, u32)> = model
                        .range(from..to).map(|(&block, &at)| (block, at, at as u32)).collect();
                    prop_assert_eq!(blocks, expected);
                }
            }
        }
    }
}
