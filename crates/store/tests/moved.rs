//! A partition that is brought to another store, round by round, while it changes: each object is there then as it was.

// A helper of a test may fail by panicking.
#![allow(clippy::unwrap_used)]

mod common;
mod world;

use common::*;
use nasd_store::{
    Append, ChangedBytes, ChangedObject, ComparedTo, ObjectImage, Store, StoreError, WriteData,
};
use nasd_types::{
    AppendToken, Attributes, ByteRange, Compression, ObjectId, ObjectName, PartitionId, SeekTarget,
    SetAttributes, Timestamp,
};
use world::assert_clean;

/// The partition in the other store.
const THERE: PartitionId = PartitionId(9);

/// Copies of it that it is compared with, by turns.
const COPIES: [PartitionId; 2] = [PartitionId(7), PartitionId(8)];

const BEGIN: ComparedTo = ComparedTo { object: ObjectId(0), offset: 0 };

/// A partition that changes.
struct Changing<'a> {
    store: &'a Store,
    random: Random,
    objects: Vec<ObjectName>,
    now: u64,
    /// Appends, as they were asked for.
    appends: Vec<(ObjectName, AppendToken, u64)>,
}

impl Changing<'_> {
    fn now(&mut self) -> Timestamp {
        self.now += 7;
        Timestamp(self.now)
    }

    fn create(&mut self) {
        let now = self.now();
        let chosen = match self.random.below(4) {
            0 => Some(ObjectId(ObjectId::FIRST_NAMED.0 + self.now)),
            _ => None,
        };
        let initial = SetAttributes {
            access_control_version: Some(self.random.below(5)),
            ..SetAttributes::default()
        };
        let (object, _) = self.store.create_as(P1, chosen, &initial, now).unwrap();
        self.objects.push(name(P1, object.0));
    }

    fn write(&mut self, object: ObjectName) {
        let most = [100, 3000, 20_000, 300_000][self.random.below(4) as usize];
        let length = 1 + self.random.below(most) as usize;
        let offset = self.random.below(400_000) * self.random.below(2);
        let bytes = self.random.bytes(length);
        let now = self.now();
        self.store.write(object, offset, WriteData::Slice(&bytes), now).unwrap();
    }

    /// Blocks here and there, so that there are many extents.
    fn scatter(&mut self, object: ObjectName) {
        let bytes = self.random.bytes(4096);
        for block in 0..400 {
            let now = self.now();
            self.store.write(object, block * 8192, WriteData::Slice(&bytes), now).unwrap();
        }
    }

    fn append(&mut self, object: ObjectName) {
        let mut token = [0; AppendToken::BYTES];
        token[..8].copy_from_slice(&self.random.next().to_le_bytes());
        let (token, bytes) = (AppendToken(token), self.random.bytes(50));
        let append = Append { bytes: &bytes, token, since: None, within: ByteRange::ALL };
        let now = self.now();
        let done = self.store.append(object, &append, now).unwrap();
        self.appends.push((object, token, done.offset));
    }

    fn set(&mut self, object: ObjectName) {
        let version = self.store.getattr(object).unwrap().access_control_version;
        let mut bytes = [0; 256];
        bytes[..8].copy_from_slice(&self.random.next().to_le_bytes());
        let changes = SetAttributes {
            access_control_version: Some(version + 1),
            logical_size: (self.random.below(2) == 0).then(|| self.random.below(500_000)),
            blocks_allocated: (self.random.below(3) == 0).then(|| self.random.below(40)),
            nearby_object: Some(ObjectId(self.random.below(100))),
            fs_data_modify_time: Some(Timestamp(self.random.next() >> 1)),
            fs_specific: Some(Box::new(bytes)),
            ..SetAttributes::default()
        };
        let now = self.now();
        self.store.setattr(object, &changes, now).unwrap();
    }

    fn step(&mut self) {
        let kind = self.random.below(14);
        let Some(object) = self.random.pick(&self.objects).copied() else { return self.create() };
        match kind {
            0 | 1 => self.create(),
            2..=5 => self.write(object),
            6 => {
                let range = ByteRange::new(self.random.below(300_000), self.random.below(100_000));
                let now = self.now();
                self.store.punch(object, range, now).unwrap();
            }
            7 | 8 => self.set(object),
            9 => {
                let now = self.now();
                let (copy, _) = self.store.fastcopy(object, now).unwrap();
                self.objects.push(name(P1, copy.0));
            }
            10 => self.append(object),
            11 if self.objects.len() > 4 => {
                self.objects.retain(|other| *other != object);
                self.appends.retain(|(other, ..)| *other != object);
                self.store.remove(object).unwrap();
            }
            12 if self.random.below(5) == 0 => self.scatter(object),
            _ => self.store.flush(&[object]).unwrap(),
        }
    }
}

/// What is not the same, by pages of which some end early.
fn compared(
    store: &Store,
    partition: PartitionId,
    base: Option<PartitionId>,
    random: &mut Random,
) -> (ObjectId, Vec<ChangedObject>) {
    let (mut all, mut at) = (Vec::new(), Some(BEGIN));
    let mut end = ObjectId(0);
    while let Some(from) = at {
        let most = 1 + random.below(6) as usize;
        let mut told = 0;
        let mut room = |_: &ChangedObject| {
            told += 1;
            told < most
        };
        let page = store.compare_partition(partition, base, from, &mut room).unwrap();
        assert!(page.objects.len() <= most);
        assert!(
            page.next.is_none_or(|next| (next.object, next.offset) > (from.object, from.offset))
        );
        (end, at) = (page.identifiers_end, page.next);
        all.extend(page.objects);
    }
    (end, all)
}

/// Makes in the other store what has changed; what is copied is read from `from`.
fn bring(from: (&Store, PartitionId), to: &Store, end: ObjectId, changed: &[ChangedObject]) {
    let now = Timestamp(1 << 50);
    for ChangedObject { object, image, changed } in changed {
        let (source, target) = (name(from.1, object.0), name(THERE, object.0));
        let Some(image) = image else {
            to.remove(target).unwrap();
            continue;
        };
        to.put_object(target, end, image, now).unwrap();
        for ChangedBytes { range, is_hole } in changed {
            if *is_hole {
                to.punch(target, *range, now).unwrap();
                continue;
            }
            let mut at = range.offset;
            while at < range.end() {
                let length = (range.end() - at).min(1 << 16);
                let bytes = from.0.read(source, ByteRange::new(at, length)).unwrap().to_vec();
                assert_eq!(bytes.len() as u64, length);
                to.write(target, at, WriteData::Slice(&bytes), now).unwrap();
                at += length;
            }
        }
        to.put_object(target, end, image, now).unwrap();
    }
    to.flush_all().unwrap();
}

/// Where data begin and end.
fn map(store: &Store, name: ObjectName) -> Vec<u64> {
    let (mut at, mut found, mut target) = (0, Vec::new(), SeekTarget::Data);
    while let Some(next) = store.seek(name, at, target).unwrap() {
        found.push(next);
        at = next;
        target = if target == SeekTarget::Data { SeekTarget::Hole } else { SeekTarget::Data };
    }
    found
}

fn assert_same(one: (&Store, PartitionId), other: (&Store, PartitionId)) {
    let list = |(store, partition): (&Store, PartitionId)| {
        store.list(partition, ObjectId(0), usize::MAX).unwrap()
    };
    assert_eq!(list(one), list(other));
    for object in list(one) {
        let names = [name(one.1, object.0), name(other.1, object.0)];
        let plain = |store: &Store, name| {
            let told = store.getattr(name).unwrap();
            // Blocks that others share count elsewhere, and so do those that are reserved and used.
            Attributes { blocks_used: 0, blocks_allocated: 0, ..told }
        };
        assert_eq!(plain(one.0, names[0]), plain(other.0, names[1]), "{object}");
        assert!(
            contents(one.0, names[0]).unwrap() == contents(other.0, names[1]).unwrap(),
            "{object}"
        );
        assert_eq!(map(one.0, names[0]), map(other.0, names[1]), "{object}");
    }
}

fn moved(seed: u64, compression: Compression) {
    let (here_device, here) = faulty_store(400 << 20, &small_cache(200));
    let (there_device, there) = faulty_store(400 << 20, &small_cache(200));
    compress(&here, compression);
    there.create_partition(THERE, Timestamp(1)).unwrap();
    there.resize_partition(THERE, u64::MAX).unwrap();
    let mut changing = Changing {
        store: &here,
        random: Random(seed),
        objects: Vec::new(),
        now: 1000,
        appends: Vec::new(),
    };
    let mut random = Random(!seed);
    let mut base = None;
    for round in 0..6 {
        (0..40).for_each(|_| changing.step());
        let copy = COPIES[round % 2];
        here.copy_partition(P1, copy).unwrap();
        // Others go on meanwhile, which is none of it.
        (0..10).for_each(|_| changing.step());
        let (end, changed) = compared(&here, copy, base, &mut random);
        bring((&here, copy), &there, end, &changed);
        assert_same((&here, copy), (&there, THERE));
        if let Some(old) = base.replace(copy) {
            here.remove_partition(old).unwrap();
            here.wait_for_dirty(std::time::Duration::ZERO);
        }
    }
    let (end, changed) = compared(&here, P1, base, &mut random);
    bring((&here, P1), &there, end, &changed);
    assert_same((&here, P1), (&there, THERE));
    let (_, again) = compared(&here, P1, base, &mut random);
    assert_eq!(again, changed, "nothing was changed by being looked at");
    // Also what is reserved, and which appends are known.
    let images = |store: &Store, partition| {
        let (_, all) = compared(store, partition, None, &mut Random(seed));
        let mut images: Vec<_> = all.into_iter().map(|one| (one.object, one.image)).collect();
        // Of an object of many extents there are several.
        images.dedup_by_key(|(object, _)| *object);
        for image in images.iter_mut().filter_map(|(_, image)| image.as_mut()) {
            image.attributes.blocks_used = 0;
        }
        images
    };
    let (one, other) = (images(&here, P1), images(&there, THERE));
    assert_eq!(one.len(), other.len());
    for (one, other) in one.into_iter().zip(other) {
        assert_eq!(one, other);
    }
    for (object, token, offset) in changing.appends {
        let append =
            Append { bytes: &[0; 50], token, since: Some(Timestamp(1)), within: ByteRange::ALL };
        let again = there.append(name(THERE, object.object.0), &append, Timestamp(1 << 51));
        assert_eq!(again.unwrap().offset, offset, "{object}");
    }
    let (given, _) = here.create(P1, &SetAttributes::default(), Timestamp(5)).unwrap();
    there.flush_all().unwrap();
    there_device.crash();
    drop(there);
    let (there_device, there) = world::reopen(&there_device.survivor(seed), &small_cache(200));
    let (next, _) = there.create(THERE, &SetAttributes::default(), Timestamp(5)).unwrap();
    assert!(next >= given, "{next} was given out as {given} elsewhere");
    here.close().unwrap();
    there.close().unwrap();
    for device in [&here_device, &there_device] {
        device.crash();
        assert_clean(&device.survivor(seed), "after it was brought");
    }
}

#[test]
fn what_is_brought_round_by_round_is_what_it_was() {
    for seed in 1..=12 {
        println!("seed {seed}");
        let compression = [Compression::None, Compression::Lz4][seed as usize % 2];
        moved(seed, compression);
    }
}

#[test]
fn identifiers_are_passed_by_durably() {
    let (device, store) = faulty_store(32 << 20, &small_cache(64));
    let taken = create(&store, P1);
    let image = {
        let (_, changed) = compared(&store, P1, None, &mut Random(1));
        changed.into_iter().find(|one| one.object == taken.object).unwrap().image.unwrap()
    };
    let far = name(P1, 1 << 40);
    store.put_object(far, ObjectId(1 << 41), &image, Timestamp(3)).unwrap();
    device.crash();
    drop(store);
    let image_of_device = device.survivor(3);
    assert_clean(&image_of_device, "after a crash");
    let (_, store) = world::reopen(&image_of_device, &small_cache(64));
    assert!(create(&store, P1).object >= ObjectId(1 << 41));
    refused(&store, &image);
    store.close().unwrap();
}

/// What no object can be.
fn refused(store: &Store, image: &ObjectImage) {
    let put = |object, end, image: &ObjectImage| {
        store.put_object(name(P1, object), ObjectId(end), image, Timestamp(3))
    };
    for object in [0, 1, 2, 3, 5, 63, ObjectId::END.0, u64::MAX] {
        assert!(matches!(put(object, 0, image), Err(StoreError::NotToBeChosen(_))), "{object}");
    }
    let end = ObjectId::FIRST_NAMED.0 + 1;
    assert!(matches!(put(100, end, image), Err(StoreError::NotToBeChosen(_))));
    let mut long = image.clone();
    long.attributes.logical_size = u64::MAX;
    assert!(matches!(put(100, 0, &long), Err(StoreError::TooLarge { .. })));
    let mut reserves = image.clone();
    reserves.attributes.blocks_allocated = u64::MAX;
    assert!(matches!(put(100, 0, &reserves), Err(StoreError::TooLarge { .. })));
    let nowhere = store.put_object(name(PartitionId(77), 100), ObjectId(0), image, Timestamp(3));
    assert!(matches!(nowhere, Err(StoreError::NoSuchPartition(_))));
    for (partition, base) in [(PartitionId(77), None), (P1, Some(PartitionId(77)))] {
        let compared = store.compare_partition(partition, base, BEGIN, &mut |_| true);
        assert!(matches!(compared, Err(StoreError::NoSuchPartition(_))));
    }
    // The last one of all is possible.
    put(ObjectId::END.0 - 1, 0, image).unwrap();
    put(ObjectId::FIRST_OBJECT.0, 0, image).unwrap();
}
