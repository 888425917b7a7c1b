//! Bringing partitions to another store while they are in use: copies are compared with the copies before them, and what has
//! changed is put on the other store; at last what is there is all that the first store has, also after a crash.

// A helper of a test may fail by panicking.
#![allow(clippy::unwrap_used)]

mod common;
mod world;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use common::*;
use nasd_device::FaultyDevice;
use nasd_store::{
    Append, ChangedBytes, ComparedTo, ObjectImage, RememberedAppend, Store, StoreError,
};
use nasd_types::{
    AppendToken, Attributes, ByteRange, Compression, ObjectId, ObjectName, PartitionId, SeekTarget,
    SetAttributes, Timestamp,
};
use world::*;

const CAPACITY: u64 = 64 << 20;

/// Copies of the partitions of the first store: the first, and the one after it.
const COPIES: [[PartitionId; 2]; 2] =
    [[PartitionId(11), PartitionId(12)], [PartitionId(21), PartitionId(22)]];

const START: ComparedTo = ComparedTo { object: ObjectId(0), offset: 0 };

fn mix() -> Mix {
    // Some reserve blocks.
    Mix { largest: 300_000, objects: 24, reserve: true, partitions: false, compare: false }
}

/// A drive with a world on it.
fn started(seed: u64) -> (Arc<FaultyDevice>, Store, World) {
    let (image, histories) = formatted(CAPACITY, &format_options());
    let (device, store) = reopen(&image, &small_cache(64));
    (device, store, World::new(histories, seed, mix()))
}

/// What the model does not know of: attributes of all kinds, reservations, how contents are kept, and contents that grow and
/// shrink about the length up to which the tree has them.
fn tinker(world: &mut World, store: &Store) {
    let Some(name) = world.object() else { return };
    let mut changes = SetAttributes::default();
    match world.random.below(8) {
        0 => changes.nearby_object = Some(ObjectId(world.random.below(100))),
        1 => changes.fs_specific = Some(Box::new([world.random.next() as u8; 256])),
        2 => changes.fs_data_modify_time = Some(Timestamp(world.random.next())),
        3 => changes.fs_attribute_modify_time = Some(Timestamp(world.random.next())),
        4 => changes.blocks_allocated = Some(world.random.below(40)),
        5 => {
            let kinds = [Compression::None, Compression::Lz4, Compression::Zstd];
            compress(store, *world.random.pick(&kinds).unwrap());
            return;
        }
        _ => return small(world, store, name),
    }
    let changed = store.setattr(name, &changes, Timestamp(6));
    world.allowed(changed).unwrap();
}

/// An object becomes a small one, or stays one.
fn small(world: &mut World, store: &Store, name: ObjectName) {
    let (cut, length) = (world.random.below(2200), 1 + world.random.below(900));
    let before = world.histories().now(name).clone();
    let offset = world.random.below(cut + 1);
    let bytes = world.some_bytes(length);
    if world.allowed(set_size(store, name, cut)).unwrap().is_none() {
        return;
    }
    let mut after = before.bytes.to_vec();
    after.resize(cut as usize, 0);
    let cut_off = Content { bytes: Arc::new(after.clone()), ..before.clone() };
    world.histories().change(name, Some(cut_off));
    let written = write(store, name, offset, &bytes);
    if world.allowed(written).unwrap().is_some() {
        after.resize(after.len().max((offset + length) as usize), 0);
        after[offset as usize..][..length as usize].copy_from_slice(&bytes);
        world.histories().change(name, Some(Content { bytes: Arc::new(after), ..before }));
    }
}

fn work(world: &mut World, store: &Store, steps: usize) {
    for _ in 0..steps {
        match world.random.below(5) {
            0 => tinker(world, store),
            _ => world.step(store).unwrap(),
        }
    }
}

/// Brings what has changed to the other store, a few objects a page, and tells how many pages there were.
struct Bringing<'a> {
    source: &'a Store,
    target: &'a Store,
    from: PartitionId,
    to: PartitionId,
}

impl Bringing<'_> {
    fn run(&self, base: Option<PartitionId>, random: &mut Random) -> usize {
        let (mut at, mut pages) = (Some(START), 0);
        while let Some(from) = at {
            let mut left = 1 + random.below(12);
            let mut room = |_: &_| {
                left -= 1;
                left > 0
            };
            let page = self.source.compare_partition(self.from, base, from, &mut room).unwrap();
            for changed in page.objects {
                let name = ObjectName { partition: self.to, object: changed.object };
                match changed.image {
                    None => self.target.remove(name).unwrap(),
                    Some(image) => {
                        self.make(name, page.identifiers_end, (&image, &changed.changed), random);
                    }
                }
            }
            let is_behind =
                |next: &ComparedTo| (next.object, next.offset) > (from.object, from.offset);
            assert!(page.next.as_ref().is_none_or(is_behind), "{from:?}, {:?}", page.next);
            (at, pages) = (page.next, pages + 1);
        }
        self.target.flush_partition(self.to).unwrap();
        pages
    }

    fn make(
        &self,
        name: ObjectName,
        end: ObjectId,
        (image, changed): (&ObjectImage, &[ChangedBytes]),
        random: &mut Random,
    ) {
        let now = Timestamp(1_000_000);
        self.target.put_object(name, end, image, now).unwrap();
        for ChangedBytes { range, is_hole } in changed {
            assert!(!range.is_empty() && range.end() <= image.attributes.logical_size, "{name}");
            if *is_hole {
                self.target.punch(name, *range, now).unwrap();
                continue;
            }
            let from = ObjectName { partition: self.from, ..name };
            let mut done = 0;
            while done < range.length {
                let length = (range.length - done).min(1 + random.below(100_000));
                let piece = ByteRange::new(range.offset + done, length);
                let data = self.source.read(from, piece).unwrap().to_vec();
                assert_eq!(data.len() as u64, length, "{from}");
                write(self.target, name, piece.offset, &data).unwrap();
                done += length;
            }
        }
        if !changed.is_empty() {
            self.target.put_object(name, end, image, now).unwrap();
        }
    }
}

/// All that is told of the objects of a partition, with blocks in use and times of appends left out.
fn images(store: &Store, partition: PartitionId) -> BTreeMap<ObjectId, ObjectImage> {
    let (mut found, mut at) = (BTreeMap::new(), Some(START));
    while let Some(from) = at {
        let page = store.compare_partition(partition, None, from, &mut |_| true).unwrap();
        for changed in page.objects {
            let mut image = changed.image.unwrap();
            image.attributes.blocks_used = 0;
            image.appends.sort_by_key(|append| append.token.0);
            // They are remembered since then by the clock of where they are.
            image.appends.iter_mut().for_each(|append| append.time = Timestamp(0));
            found.insert(changed.object, image);
        }
        at = page.next;
    }
    found
}

/// Where data and holes begin, in turns.
fn holes(store: &Store, name: ObjectName) -> Vec<u64> {
    let (mut found, mut at) = (Vec::new(), 0);
    let targets = [SeekTarget::Data, SeekTarget::Hole].into_iter().cycle();
    for target in targets {
        match store.seek(name, at, target).unwrap() {
            Some(next) => found.push(next),
            None => return found,
        }
        at = found[found.len() - 1];
    }
    found
}

fn attributes(store: &Store, name: ObjectName) -> Attributes {
    let found = store.getattr(name).unwrap();
    Attributes { blocks_used: 0, blocks_allocated: 0, ..found }
}

/// Both stores have the same partition.
fn assert_same(source: &Store, target: &Store, partition: PartitionId) {
    let all = |store: &Store| store.list(partition, ObjectId(0), usize::MAX).unwrap();
    let listed = all(source);
    assert_eq!(listed, all(target));
    for object in listed {
        let name = ObjectName { partition, object };
        assert_eq!(attributes(source, name), attributes(target, name), "{name}");
        assert!(contents(source, name).unwrap() == contents(target, name).unwrap(), "{name}");
        assert_eq!(holes(source, name), holes(target, name), "{name}");
    }
    assert_eq!(images(source, partition), images(target, partition));
}

fn assert_all_same(source: &Store, target: &Store, when: &str) {
    println!("{when}");
    for partition in [P1, P2] {
        assert_same(source, target, partition);
    }
}

/// An identifier that was not given out before.
fn next_given(store: &Store) -> ObjectId {
    let name = create(store, P1);
    store.remove(name).unwrap();
    name.object
}

/// One round: a copy, what it has more than the one before, and the removal of that.
fn round(
    (source, target): (&Store, &Store),
    world: &mut World,
    (number, extra): (usize, usize),
) -> usize {
    let mut pages = 0;
    for (index, partition) in [P1, P2].into_iter().enumerate() {
        let copy = COPIES[number % 2][index];
        source.copy_partition(partition, copy).unwrap();
        // What is done meanwhile is of the next round.
        work(world, source, extra);
        let base = (number > 0).then_some(COPIES[(number + 1) % 2][index]);
        let bringing = Bringing { source, target, from: copy, to: partition };
        pages += bringing.run(base, &mut world.random);
        if let Some(base) = base {
            source.remove_partition(base).unwrap();
            finish_removals(source);
        }
    }
    pages
}

fn bring(seed: u64, rounds: usize) {
    println!("seed {seed}");
    let (source_device, source, mut world) = started(seed);
    let (target_device, target, _) = started(seed);
    work(&mut world, &source, 150);
    for number in 0..rounds {
        round((&source, &target), &mut world, (number, 20));
        work(&mut world, &source, 60);
    }
    let given = next_given(&source);
    for (index, partition) in [P1, P2].into_iter().enumerate() {
        let bringing =
            Bringing { source: &source, target: &target, from: partition, to: partition };
        bringing.run(Some(COPIES[(rounds + 1) % 2][index]), &mut world.random);
    }
    for copy in COPIES[(rounds + 1) % 2] {
        source.remove_partition(copy).unwrap();
    }
    finish_removals(&source);
    assert_eq!(world.refused, [0; 3]);
    world.histories().compare(&source);
    world.histories().compare(&target);
    assert_all_same(&source, &target, "when open");
    source.close().unwrap();
    target.close().unwrap();
    let live = [source_device.live(), target_device.live()];
    live.iter().for_each(|image| assert_clean(image, "at the end"));
    let [(_, source), (device, target)] = live.map(|image| reopen(&image, &small_cache(64)));
    assert_all_same(&source, &target, "after an open");
    // What was appended before is known, but for what went with its object.
    let living = world.histories().living();
    world.histories().appended.retain(|append| living.contains(&append.name));
    world.append_again(&target).unwrap();
    world.histories().all_durable();
    assert_all_same(&source, &target, "with what was appended");
    assert!(next_given(&target) > given, "identifiers are given out twice");
    // And work goes on there.
    work(&mut world, &target, 100);
    world.flush_all(&target).unwrap();
    world.histories().settle_flushed(&target);
    target.close().unwrap();
    assert_clean(&device.live(), "after more work");
}

#[test]
fn what_is_brought_to_another_store_is_what_there_is() {
    let seeds = if long_tests() { 0..200 } else { 0..6 };
    for seed in seeds {
        bring(seed, 1 + (seed % 4) as usize);
    }
}

#[test]
fn objects_of_many_extents_are_brought_in_several_pages() {
    let (_, source, mut world) = started(1);
    let (device, target, _) = started(1);
    let many = create(&source, P1);
    for block in 0..900 {
        write(&source, many, block * 2 * BLOCK, &[block as u8 | 1; 3000]).unwrap();
    }
    set_size(&source, many, 2000 * BLOCK).unwrap();
    let bringing = |from| Bringing { source: &source, target: &target, from, to: P1 };
    let [first, second] = COPIES.map(|copies| copies[0]);
    source.copy_partition(P1, first).unwrap();
    assert!(bringing(first).run(None, &mut world.random) > 3);
    // Data becomes holes, holes become data, and both remain.
    for block in 0..600 {
        match block % 3 {
            0 => write(&source, many, block * 3 * BLOCK, &[7; 5000]).map(drop).unwrap(),
            1 => {
                let range = ByteRange::new(block * 3 * BLOCK, BLOCK);
                source.punch(many, range, Timestamp(5)).unwrap();
            }
            _ => {}
        }
    }
    source.copy_partition(P1, second).unwrap();
    assert!(bringing(second).run(Some(first), &mut world.random) > 2);
    source.remove_partition(first).unwrap();
    set_size(&source, many, 1201 * BLOCK + 5).unwrap();
    let pages = bringing(P1).run(Some(second), &mut world.random);
    assert_same(&source, &target, P1);
    println!("{pages} pages");
    target.close().unwrap();
    assert_clean(&device.live(), "with many extents");
}

#[test]
fn what_was_given_out_is_passed_by_also_where_nothing_has_changed() {
    let (_, source, mut world) = started(1);
    let (device, target, _) = started(1);
    let copy = COPIES[0][0];
    let kept = create(&source, P1);
    write(&source, kept, 0, b"kept").unwrap();
    source.copy_partition(P1, copy).unwrap();
    let bringing = |from| Bringing { source: &source, target: &target, from, to: P1 };
    bringing(copy).run(None, &mut world.random);
    // Far more than a step of the limit.
    let given = (0..9000).map(|_| next_given(&source)).max().unwrap();
    bringing(P1).run(Some(copy), &mut world.random);
    assert_same(&source, &target, P1);
    assert!(next_given(&target) > given);
    device.crash();
    drop(target);
    let (_, target) = reopen(&device.survivor(1), &small_cache(64));
    assert!(next_given(&target) > given);
}

#[test]
fn appends_are_known_where_their_object_is_brought_to_though_it_has_not_changed_since() {
    let (_, source, mut world) = started(1);
    let (device, target, _) = started(1);
    let log = create(&source, P1);
    let token = |number: u8| AppendToken([number; AppendToken::BYTES]);
    let append = |number, since| {
        let within = ByteRange::ALL;
        Append { bytes: b"line\n", token: token(number), since, within }
    };
    source.append(log, &append(1, None), Timestamp(10)).unwrap();
    let copy = COPIES[0][0];
    source.copy_partition(P1, copy).unwrap();
    let bringing = |from| Bringing { source: &source, target: &target, from, to: P1 };
    bringing(copy).run(None, &mut world.random);
    bringing(P1).run(Some(copy), &mut world.random);
    assert_same(&source, &target, P1);
    device.crash();
    drop(target);
    let (_, target) = reopen(&device.survivor(1), &small_cache(64));
    let again = target.append(log, &append(1, Some(Timestamp(10))), Timestamp(20)).unwrap();
    assert_eq!((again.offset, again.attributes.logical_size), (0, 5));
    let more = target.append(log, &append(2, None), Timestamp(20)).unwrap();
    assert_eq!((more.offset, more.attributes.logical_size), (5, 10));
}

fn image_of(size: u64) -> ObjectImage {
    let (_, store) = memory_store(32 << 20, &small_cache(64));
    let attributes = store.getattr(name(P1, 4)).unwrap();
    let attributes = Attributes { logical_size: size, blocks_allocated: 0, ..attributes };
    ObjectImage { attributes, appends: Vec::new() }
}

#[test]
fn an_append_that_was_brought_and_is_forgotten_is_not_done_again() {
    let (_, store) = memory_store(32 << 20, &small_cache(64));
    let token = |number: u64| {
        let mut token = [0; AppendToken::BYTES];
        token[..8].copy_from_slice(&number.to_be_bytes());
        AppendToken(token)
    };
    let log = name(P1, 100);
    // The clock of where they are from is far behind.
    let append = |number: u64| {
        let token = token(number);
        RememberedAppend { token, offset: number, length: 1, time: Timestamp(1) }
    };
    let image = ObjectImage { appends: (0..513).map(append).collect(), ..image_of(513) };
    store.put_object(log, ObjectId(0), &image, Timestamp(1000)).unwrap();
    let again = |number| {
        let (since, within) = (Some(Timestamp(900)), ByteRange::ALL);
        let append = Append { bytes: b"x", token: token(number), since, within };
        store.append(log, &append, Timestamp(1001))
    };
    let refused = again(0);
    assert!(matches!(refused, Err(StoreError::Forgotten)), "{refused:?}");
    assert_eq!(again(512).unwrap().attributes.logical_size, 513);
}

#[test]
fn what_is_removed_and_not_durably_is_no_place_for_another_object() {
    let (_, store) = memory_store(32 << 20, &small_cache(64));
    let known = create(&store, P1);
    store.flush_all().unwrap();
    store.remove(known).unwrap();
    let refused = store.put_object(known, ObjectId(0), &image_of(9), Timestamp(5));
    assert!(matches!(refused, Err(StoreError::ObjectExists(_))), "{refused:?}");
    store.flush_all().unwrap();
    store.put_object(known, ObjectId(0), &image_of(9), Timestamp(5)).unwrap();
    assert_eq!(store.getattr(known).unwrap().logical_size, 9);
}

#[test]
fn what_no_object_can_be_is_refused() {
    let (_, store) = memory_store(32 << 20, &small_cache(64));
    let image = image_of(100);
    let put = |object, end, image: &ObjectImage| {
        store.put_object(name(P1, object), ObjectId(end), image, Timestamp(5))
    };
    let before = (store.space(), store.partition_space(P1).unwrap());
    for (object, end) in [(0, 0), (1, 0), (3, 0), (5, 0), (63, 0), (ObjectId::END.0, 0)] {
        let refused = put(object, end, &image);
        assert!(matches!(refused, Err(StoreError::NotToBeChosen(_))), "{object}: {refused:?}");
    }
    let refused = put(100, ObjectId::FIRST_NAMED.0 + 1, &image);
    assert!(matches!(refused, Err(StoreError::NotToBeChosen(_))), "{refused:?}");
    let limits = [(nasd_types::limits::MAX_OBJECT_BYTES + 1, 0), (0, u64::MAX)];
    for (logical_size, blocks_allocated) in limits {
        let attributes = Attributes { logical_size, blocks_allocated, ..image.attributes.clone() };
        let refused = put(100, 0, &ObjectImage { attributes, ..image.clone() });
        assert!(matches!(refused, Err(StoreError::TooLarge { .. })), "{refused:?}");
    }
    let nowhere = ObjectName { partition: PartitionId(99), object: ObjectId(100) };
    let refused = store.put_object(nowhere, ObjectId(0), &image, Timestamp(5));
    assert!(matches!(refused, Err(StoreError::NoSuchPartition(_))), "{refused:?}");
    assert_eq!((store.space(), store.partition_space(P1).unwrap()), before);
    for (partition, base) in [(PartitionId(99), None), (P1, Some(PartitionId(99)))] {
        let refused = store.compare_partition(partition, base, START, &mut |_| true);
        assert!(matches!(refused, Err(StoreError::NoSuchPartition(_))), "{refused:?}");
    }
    put(ObjectId::END.0 - 1, 0, &image).unwrap();
    check_space(&store);
}

#[test]
fn a_full_partition_takes_no_object_that_reserves_more_and_stays_as_it_was() {
    let (device, store) = faulty_store(32 << 20, &small_cache(64));
    store.resize_partition(P1, 10 * BLOCK).unwrap();
    let known = create(&store, P1);
    write(&store, known, 0, &[1; 9000]).unwrap();
    store.flush_all().unwrap();
    let mut image = image_of(9000);
    image.attributes.blocks_allocated = 11;
    image.attributes.access_control_version = 77;
    let refused = store.put_object(known, ObjectId(0), &image, Timestamp(5));
    assert!(matches!(refused, Err(StoreError::NoSpace(_))), "{refused:?}");
    assert_eq!(store.getattr(known).unwrap().access_control_version, 0);
    image.attributes.blocks_allocated = 10;
    store.put_object(known, ObjectId(0), &image, Timestamp(5)).unwrap();
    assert_eq!(store.getattr(known).unwrap().access_control_version, 77);
    assert!(contents(&store, known).unwrap() == [1; 9000]);
    store.flush_all().unwrap();
    assert_clean(&device.live(), "with a reservation");
}

/// More appends in one flush than an entry of the log has room for.
#[test]
fn many_objects_with_as_many_appends_as_are_remembered_are_flushed() {
    let (device, store) = faulty_store(64 << 20, &small_cache(64));
    let image = |object: u64| {
        let append = |number: u64| {
            let mut token = [0; AppendToken::BYTES];
            token[..8].copy_from_slice(&(object * 1000 + number).to_be_bytes());
            let time = Timestamp(number);
            RememberedAppend { token: AppendToken(token), offset: number, length: 1, time }
        };
        ObjectImage { appends: (0..512).map(append).collect(), ..image_of(512) }
    };
    for object in 100..200 {
        store.put_object(name(P1, object), ObjectId(0), &image(object), Timestamp(5)).unwrap();
    }
    store.flush_all().unwrap();
    assert_clean(&device.live(), "with many appends");
    device.crash();
    drop(store);
    let (_, store) = reopen(&device.survivor(1), &small_cache(64));
    let found = images(&store, P1);
    assert_eq!(found.len(), 101);
    assert_eq!(found[&ObjectId(199)].appends.len(), 512);
}

/// The picture that each crash leaves, with what may be there then.
fn put_and_cut(seed: u64, sample: (u64, u64)) -> Vec<Picture> {
    let (_, source, mut world) = started(seed);
    work(&mut world, &source, 120);
    source.flush_all().unwrap();
    let (image, histories) = formatted(16 << 20, &format_options());
    let histories = Arc::new(Mutex::new(histories));
    let device = Arc::new(Recorder::new(image, histories.clone(), sample, 2));
    let target = Store::open(device.clone(), &small_cache(64)).unwrap();
    let page = source.compare_partition(P1, None, START, &mut |_| true).unwrap();
    assert!(page.next.is_none());
    for changed in page.objects {
        let name = ObjectName { partition: P1, object: changed.object };
        let image = changed.image.unwrap();
        let last = read_object(&source, name).unwrap().unwrap();
        {
            // First of that length and with nothing in it, then with each piece, which are written in order.
            let mut histories = histories.lock().unwrap();
            let mut bytes = vec![0; last.bytes.len()];
            histories
                .change(name, Some(Content { bytes: Arc::new(bytes.clone()), ..last.clone() }));
            for ChangedBytes { range, .. } in &changed.changed {
                let range = range.offset as usize..range.end() as usize;
                bytes[range.clone()].copy_from_slice(&last.bytes[range]);
                let bytes = Arc::new(bytes.clone());
                histories.change(name, Some(Content { bytes, ..last.clone() }));
            }
        }
        let end = page.identifiers_end;
        let now = Timestamp(1_000_000);
        target.put_object(name, end, &image, now).unwrap();
        {
            // From now on none of the other store's is given out.
            let all = world.histories().objects.clone();
            let mut histories = histories.lock().unwrap();
            for known in all.into_keys() {
                histories.objects.entry(known).or_insert_with(|| vec![None]);
            }
        }
        for ChangedBytes { range, .. } in &changed.changed {
            let from = ObjectName { partition: P1, ..name };
            // As one piece, so that there is no state between.
            let data = source.read(from, *range).unwrap().to_vec();
            assert_eq!(data.len() as u64, range.length);
            write(&target, name, range.offset, &data).unwrap();
        }
        target.put_object(name, end, &image, now).unwrap();
        if world.random.below(2) == 0 {
            target.flush(&[name]).unwrap();
            histories.lock().unwrap().durable(name);
        }
    }
    target.flush_partition(P1).unwrap();
    histories.lock().unwrap().all_durable();
    device.picture();
    target.close().unwrap();
    device.picture();
    device.pictures()
}

#[test]
fn a_crash_while_objects_are_put_gives_none_out_twice_and_keeps_what_was_flushed() {
    let (seeds, stride) = if long_tests() { (0..20, 1) } else { (0..2, 5) };
    for seed in seeds {
        let pictures = put_and_cut(seed, (stride, seed));
        println!("seed {seed}: {} crashes", pictures.len());
        for picture in pictures {
            survive(&picture, &small_cache(64), mix());
        }
    }
}
