//! The tree on a region: filled to its limit and churned there, grown to several tree regions,
//! and its extent arithmetic against a model.

use std::collections::BTreeMap;
use std::sync::Arc;

use nasd_device::{BlockDevice, FaultPlan, FaultyDevice, MemoryDevice};
use nasd_types::{ObjectId, ObjectName, PartitionId};
use proptest::prelude::*;
use redb::ReadableTableMetadata;

use super::record::{Codec, Extent, LOGICAL_BLOCKS_MAX, PartitionRecord};
use super::*;
use crate::log::Change;
use crate::object::initial_record;
use crate::{PartitionKeys, PartitionSettings};

const P: PartitionId = PartitionId(1);

fn name(object: u64) -> ObjectName {
    ObjectName { partition: P, object: ObjectId(object) }
}

fn create(capacity: u64, metadata_bytes: Option<u64>) -> (Arc<MemoryDevice>, Geometry) {
    let device = Arc::new(MemoryDevice::new(capacity).unwrap());
    let geometry = Geometry::plan(capacity, metadata_bytes).unwrap();
    let partition = PartitionRecord {
        quota_bytes: u64::MAX,
        keys: PartitionKeys::default(),
        settings: PartitionSettings::default(),
        removing: false,
        objects: 0,
        charged_blocks: 0,
    };
    let records = InitialRecords {
        keys: DriveKeys::default(),
        counters: Counters::default(),
        partitions: vec![(P, partition)],
        objects: Vec::new(),
    };
    Metadata::create(device.clone(), &geometry, &records).unwrap();
    (device, geometry)
}

fn open(device: &Arc<MemoryDevice>, geometry: &Geometry) -> Metadata {
    let device: Arc<dyn BlockDevice> = device.clone();
    Metadata::open(device, geometry, 8 << 20).unwrap()
}

/// Sums are the numbers of their blocks.
fn map(object: u64, logical: u64, physical: u64, blocks: u64) -> Change {
    let extent = Extent { logical, blocks, physical, codec: Codec::Plain };
    let sums = (0..blocks).map(|block| (physical + block) as u32).collect();
    Change::Map { name: name(object), extent, sums, contents: None }
}

fn put(object: u64) -> Change {
    let record = initial_record(&nasd_types::SetAttributes::default(), nasd_types::Timestamp(1));
    Change::PutObject(name(object), Box::new(record))
}

fn clear(object: u64, from: u64) -> Change {
    Change::Clear { name: name(object), from, to: LOGICAL_BLOCKS_MAX }
}

/// Applies changes; durably every now and then. How many blocks were freed.
fn apply(metadata: &Metadata, changes: &[Change], durable: bool) -> u64 {
    let mut transaction = metadata.begin().unwrap();
    let effects = transaction.apply(changes.iter(), LogMark::default()).unwrap();
    if durable {
        transaction.checkpoint(LogMark::default()).unwrap();
    } else {
        transaction.commit().unwrap();
    }
    effects.freed.iter().map(|run| run.blocks).sum()
}

#[test]
fn regions_of_every_kind_can_be_made_and_opened() {
    for bytes in [3 << 20, (3 << 20) + (256 << 10), 5 << 20, 64 << 20, 4 << 30, (8 << 30) + 4096] {
        let (device, geometry) = create((64 << 20) + 2 * bytes, Some(bytes));
        assert_eq!(geometry.metadata_bytes, bytes);
        for _ in 0..3 {
            let metadata = open(&device, &geometry);
            apply(&metadata, &[put(1), map(1, 0, 0, 256)], true);
            metadata.close().unwrap();
        }
    }
}

/// Adds records until no more may be promised; how many.
fn fill(metadata: &Metadata) -> u64 {
    apply(metadata, &[put(1), put(2)], true);
    let mut count = 0;
    loop {
        if !metadata.capacity.promise(16) {
            metadata.measure().unwrap();
            if !metadata.capacity.promise(16) {
                return count;
            }
        }
        // Far apart, so that no two become one.
        let new: Vec<Change> = (count..count + 16).map(|i| map(1, 2 * i, i, 1)).collect();
        apply(metadata, &new, count % 160 == 0);
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
                // A reader keeps the pages of the state before from being released.
                let reader = metadata.database.begin_read().unwrap();
                let physical = |i| (i + round * 7 + part) % 9999;
                let all: Vec<Change> = (0..count).map(|i| map(1, 2 * i, physical(i), 1)).collect();
                assert_eq!(apply(&metadata, &all, part == 1), count);
                drop(reader);
            }
            for small in 0..round {
                apply(&metadata, &[map(2, small, small, 1)], small % 2 == 0);
            }
        }
        assert_eq!(apply(&metadata, &[clear(1, 0)], true), count);
        metadata.measure().unwrap();
        assert!(metadata.capacity.promise(400));
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
        apply(&metadata, &[put(1)], false);
        for step in 0..20u64 {
            let first = (round * 20 + step) * 512;
            let new: Vec<Change> =
                (0..512).map(|i| map(1, 2 * (first + i), first + i, 1)).collect();
            apply(&metadata, &new, step % 3 == 0);
        }
        apply(&metadata, &[clear(1, round * 5000)], true);
        if round == 1 {
            metadata.close().unwrap();
        }
    }
}

/// A tree whose leaves are so many that threads verify them.
fn large() -> (Arc<MemoryDevice>, Geometry) {
    let (device, geometry) = create(256 << 20, Some(96 << 20));
    let metadata = open(&device, &geometry);
    for batch in 0..15u64 {
        let objects = 1000 * batch..1000 * (batch + 1);
        let changes: Vec<Change> =
            objects.flat_map(|i| [put(i + 1), map(i + 1, 0, 2 * i, 1)]).collect();
        apply(&metadata, &changes, batch % 4 == 3);
    }
    apply(&metadata, &[put(1)], true);
    (device, geometry)
}

#[test]
fn an_open_counts_the_pages_that_it_verifies_and_keeps_those_of_extents() {
    let (device, geometry) = large();
    let metadata = open(&device, &geometry);
    let at_open = format!("{:?}", metadata.capacity);
    metadata.measure().unwrap();
    assert_eq!(format!("{:?}", metadata.capacity), at_open);
    let reader: Arc<dyn BlockDevice> = device.clone();
    let verified = verify::verify(&Region::existing(reader, &geometry)).unwrap().unwrap();
    assert!(verified.counted > 1500, "{} pages", verified.counted);
    let read = metadata.database.begin_read().unwrap();
    let extents = pages_of(&read.open_table(EXTENTS).unwrap()).unwrap();
    let objects = read.open_table(OBJECTS).unwrap().stats().unwrap();
    let kept = verified.kept.len() as u64;
    assert!(kept >= extents + objects.branch_pages(), "{kept} pages");
    assert!(kept < extents + objects.leaf_pages() / 2, "{kept} pages");
    drop(read);
    // What is kept gives way to what is written.
    let changes: Vec<Change> = (0..15_000u64).map(|i| map(i + 1, 0, 2 * i + 1, 1)).collect();
    apply(&metadata, &changes, true);
    let mut next = 0;
    let mut check = |name: ObjectName, extent: &Extent| {
        assert_eq!((name.object.0, extent.physical), (next + 1, 2 * next + 1));
        next += 1;
        Ok(())
    };
    metadata.scan_extents(&mut check).unwrap();
    assert_eq!(next, 15_000);
    metadata.opened();
}

#[test]
fn a_page_that_rotted_is_named_when_the_tree_is_opened() {
    let (device, geometry) = large();
    let reader: Arc<dyn BlockDevice> = device.clone();
    let region = Region::existing(reader, &geometry);
    let kept = verify::verify(&region).unwrap().unwrap().kept;
    let mut pages: Vec<u64> = kept.into_keys().collect();
    pages.sort_unstable();
    // Which of them is told depends on their levels.
    let rotten = [pages[pages.len() / 2], pages[pages.len() - 1]];
    for page in rotten {
        let at = region.offset() + page * 4096;
        let byte = device.peek(at + 50, 1)[0];
        device.poke(at + 50, &[byte ^ 4]);
    }
    let reader: Arc<dyn BlockDevice> = device.clone();
    let error = Metadata::open(reader, &geometry, 8 << 20).err().unwrap();
    let told = rotten.map(|page| format!("byte {} of the metadata", region.offset() + page * 4096));
    assert!(told.iter().any(|told| error.to_string().contains(told)), "{error}");
}

/// Without the mark of a commit in two phases the tree repairs itself, and the next open need not.
#[test]
fn a_tree_that_repairs_itself_does_so_once() {
    let (device, geometry) = large();
    let flags = geometry.metadata_offset + 9;
    let byte = device.peek(flags, 1)[0];
    device.poke(flags, &[byte & !4]);
    let reader: Arc<dyn BlockDevice> = device.clone();
    assert!(verify::verify(&Region::existing(reader, &geometry)).unwrap().is_none());
    drop(open(&device, &geometry));
    let faulty = Arc::new(FaultyDevice::new(device.image(), FaultPlan::default()));
    let metadata = Metadata::open(faulty.clone(), &geometry, 8 << 20).unwrap();
    // A page is read once, in large pieces; the tree's own walk takes thousands of reads.
    assert!(faulty.reads() < 500, "{} reads", faulty.reads());
    assert!(metadata.object(name(15_000)).unwrap().is_some());
}

#[derive(Clone, Debug)]
enum Step {
    Map { logical: u64, blocks: u64 },
    Clear { from: u64, to: u64 },
    Remove,
    Clone { source: u64 },
    Move { blocks: u64, nth: usize },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..600u64, 1..=256u64).prop_map(|(logical, blocks)| Step::Map { logical, blocks }),
        3 => (0..900u64, 0..300u64).prop_map(|(from, blocks)| Step::Clear { from, to: from + blocks }),
        1 => Just(Step::Remove),
        3 => (1..5u64).prop_map(|source| Step::Clone { source }),
        2 => (1..40u64, any::<prop::sample::Index>())
            .prop_map(|(blocks, nth)| Step::Move { blocks, nth: nth.index(1000) }),
    ]
}

/// Objects as maps of blocks; blocks are taken from below.
#[derive(Default)]
struct Model {
    objects: BTreeMap<u64, BTreeMap<u64, u64>>,
    next: u64,
    /// Numbers are never given out again.
    renamed: BTreeMap<u64, u64>,
}

impl Model {
    fn uses(&self) -> BTreeMap<u64, u64> {
        let mut uses = BTreeMap::new();
        for at in self.objects.values().flat_map(BTreeMap::values) {
            *uses.entry(*at).or_default() += 1;
        }
        uses
    }
}

/// Does a step to the tree and to the model; how many blocks it freed.
fn run_step(metadata: &Metadata, model: &mut Model, object: u64, step: &Step) -> u64 {
    let now = |model: &Model, object| model.renamed.get(&object).copied().unwrap_or(object);
    let (index, object) = (object, now(model, object));
    match *step {
        Step::Map { logical, blocks } => {
            let physical = model.next;
            model.next += blocks;
            let blocks_of = model.objects.entry(object).or_default();
            blocks_of.extend((0..blocks).map(|block| (logical + block, physical + block)));
            apply(metadata, &[put(object), map(object, logical, physical, blocks)], false)
        }
        Step::Clear { from, to } => {
            model.objects.entry(object).or_default().retain(|block, _| !(from..to).contains(block));
            let clear = Change::Clear { name: name(object), from, to };
            apply(metadata, &[put(object), clear], false)
        }
        Step::Remove => {
            model.objects.remove(&object);
            model.next += 1;
            model.renamed.insert(index, 100_000 + model.next);
            apply(metadata, &[Change::RemoveObject(name(object))], false)
        }
        Step::Clone { source } => {
            let source = now(model, source);
            let Some(blocks) = model.objects.get(&source).cloned() else { return 0 };
            let target = 100 + model.next;
            model.next += 1;
            model.objects.insert(target, blocks);
            let Change::PutObject(_, record) = put(target) else { return 0 };
            let clone = Change::Clone { source: ObjectId(source), name: name(target), record };
            apply(metadata, &[clone], false)
        }
        Step::Move { blocks, nth } => {
            let used: Vec<u64> = model.uses().into_keys().collect();
            let Some(&start) = used.get(nth % used.len().max(1)) else { return 0 };
            let blocks =
                (0..blocks).take_while(|i| used.binary_search(&(start + i)).is_ok()).count();
            let blocks = blocks as u64;
            let to = model.next;
            model.next += blocks;
            for at in model.objects.values_mut().flat_map(BTreeMap::values_mut) {
                if (start..start + blocks).contains(at) {
                    *at = to + (*at - start);
                }
            }
            let from = Run { start, blocks };
            apply(metadata, &[Change::Move { from, to }], false);
            0
        }
    }
}

fn check_model(metadata: &Metadata, model: &Model) {
    let uses = model.uses();
    let mut total = 0;
    let mut families = std::collections::BTreeSet::new();
    for (object, blocks) in &model.objects {
        for (from, to) in [(0, 2000), (100, 300), (255, 257), (599, 600), (100, 101), (130, 250)] {
            let found = metadata.pieces(name(*object), from, to).unwrap();
            let found: Vec<(u64, u64)> = found
                .iter()
                .flat_map(|piece| {
                    let Extent { logical, physical, blocks, .. } = piece.extent;
                    assert_eq!(piece.sums.len() as u64, blocks);
                    let passing = metadata.pieces_in_passing(name(*object), logical, logical + 1);
                    assert_eq!(passing.unwrap()[0].extent.physical, physical);
                    (0..blocks).map(move |block| (logical + block, physical + block))
                })
                .collect();
            let expected: Vec<(u64, u64)> =
                blocks.range(from..to).map(|(&block, &at)| (block, at)).collect();
            assert_eq!(found, expected, "object {object}");
        }
        let record = metadata.object(name(*object)).unwrap().unwrap();
        total += record.blocks_used;
        families.insert(record.family);
        let alone = blocks.values().filter(|at| uses[at] == 1).count() as u64;
        assert!(record.blocks_used <= alone, "object {object} counts shared blocks as its own");
    }
    families.remove(&ObjectId(0));
    for family in families {
        let of = ObjectName { partition: P, object: family };
        let (record, head) = metadata.family(of).unwrap().unwrap();
        assert!(model.objects.contains_key(&head.0) && record.members > 0);
        total += record.shared_blocks;
    }
    assert_eq!(total, uses.len() as u64, "every block counts once");
    let partition = &metadata.drive().unwrap().partitions[0].1;
    assert_eq!(partition.objects, model.objects.len() as u64);
    assert_eq!(partition.charged_blocks, total);
    for (&at, &count) in &uses {
        let shares = metadata.shares(Run { start: at, blocks: 1 }).unwrap();
        match &shares[..] {
            [] => assert_eq!(count, 1),
            [share] => assert_eq!(share.count(), count, "block {at}"),
            _ => panic!("share records overlap at {at}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn objects_agree_with_maps_of_blocks(steps in prop::collection::vec((step(), 1..4u64), 1..50)) {
        let (device, geometry) = create(128 << 20, None);
        let metadata = open(&device, &geometry);
        let mut model = Model::default();
        for (step, object) in steps {
            let before = model.uses();
            let freed = run_step(&metadata, &mut model, object, &step);
            if !matches!(step, Step::Move { .. }) {
                let after = model.uses();
                let gone = before.keys().filter(|at| !after.contains_key(at)).count();
                prop_assert_eq!(freed as usize, gone, "{:?}", step);
            }
            check_model(&metadata, &model);
        }
    }
}

/// While one thread changes an object, others look its blocks up: what they find is never older than
/// the last change that had ended when they began, and always has its own checksums.
#[test]
fn nothing_that_is_found_is_older_than_the_tree() {
    let (device, geometry) = create(128 << 20, None);
    let metadata = open(&device, &geometry);
    let versions = std::sync::atomic::AtomicU64::new(0);
    let order = std::sync::atomic::Ordering::SeqCst;
    // Stretches of two objects in different shards, and of two in the same.
    let places = [(1, 5), (1, 700), (2, 5), (17, 5)];
    apply(&metadata, &[put(1), put(2), put(17)], true);
    std::thread::scope(|scope| {
        for reader in 0..3 {
            let (metadata, versions) = (&metadata, &versions);
            scope.spawn(move || {
                for round in 0.. {
                    let (object, block) = places[(round + reader) % places.len()];
                    let before = versions.load(order);
                    let found = metadata.pieces(name(object), block, block + 1).unwrap();
                    if before == u64::MAX {
                        return;
                    }
                    let at = found.first().map_or(0, |piece| piece.extent.physical);
                    assert!(at >= before, "block {at} where {before} has been");
                    assert!(found.iter().all(|piece| piece.sums == [at as u32]));
                }
            });
        }
        for version in 1..1500 {
            let all: Vec<Change> =
                places.iter().map(|&(object, block)| map(object, block, version * 4, 1)).collect();
            apply(&metadata, &all, version % 50 == 0);
            versions.store(version * 4, order);
        }
        versions.store(u64::MAX, order);
    });
}
