//! Random operations on a store and on its model.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use nasd_store::{
    ClockState, DriveKeys, NoSpace, PartitionKeys, PartitionSettings, Store, StoreError, StoredKey,
    WorkingKey,
};
use nasd_types::{
    ByteRange, Compression, ObjectId, ObjectName, PartitionId, SeekTarget, SetAttributes, Timestamp,
};

use super::history::{Content, Histories};
use crate::common::*;

/// What random work is made of.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// Most bytes of an object.
    pub largest: u64,
    /// Most objects, about.
    pub objects: usize,
    /// Whether some objects reserve blocks.
    pub reserve: bool,
    /// Whether partitions come and go.
    pub partitions: bool,
    /// Whether every step compares what it changed.
    pub compare: bool,
}

/// A model and a source of randomness.
pub struct World {
    histories: Arc<Mutex<Histories>>,
    pub random: Random,
    pub mix: Mix,
    /// How often each kind of space ran out: quota, data, metadata.
    pub refused: [usize; 3],
    /// Goes up with each change that bears a number.
    number: u64,
    /// The seed of this world: two worlds write different bytes.
    seed: u64,
}

fn refusal(error: &StoreError) -> Option<usize> {
    match error {
        StoreError::NoSpace(NoSpace::Quota(_)) => Some(0),
        StoreError::NoSpace(NoSpace::Data) => Some(1),
        StoreError::NoSpace(NoSpace::Metadata) => Some(2),
        _ => None,
    }
}

impl World {
    pub fn new(histories: Histories, seed: u64, mix: Mix) -> World {
        World::shared(Arc::new(Mutex::new(histories)), seed, mix)
    }

    pub fn shared(histories: Arc<Mutex<Histories>>, seed: u64, mix: Mix) -> World {
        histories.lock().unwrap().reserves = mix.reserve;
        let random = Random(seed ^ 0x77_6f_72_6b);
        World { histories, random, mix, refused: [0; 3], number: 0, seed }
    }

    pub fn histories(&self) -> MutexGuard<'_, Histories> {
        self.histories.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Whether the drive can't tell the state of any object.
    pub fn is_at_a_loss(&self) -> bool {
        let histories = self.histories();
        let living = histories.living();
        !living.is_empty() && living.iter().all(|name| histories.unsure.contains(name))
    }

    pub fn object(&mut self) -> Option<ObjectName> {
        let mut living = self.histories().living();
        living.retain(|name| !self.histories().unsure.contains(name));
        self.random.pick(&living).copied()
    }

    fn partition(&mut self) -> Option<PartitionId> {
        let known = self.histories().known_partitions();
        self.random.pick(&known).copied()
    }

    /// `None` where space ran out, which changes nothing.
    pub fn allowed<T>(&mut self, outcome: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
        match outcome {
            Ok(value) => Ok(Some(value)),
            Err(error) => match refusal(&error) {
                Some(kind) => {
                    self.refused[kind] += 1;
                    Ok(None)
                }
                None => Err(error),
            },
        }
    }

    /// One operation; an error other than a lack of space is handed on.
    pub fn step(&mut self, store: &Store) -> Result<(), StoreError> {
        match self.random.below(100) {
            0..=7 => self.create(store),
            8..=11 => self.remove(store),
            12..=33 => self.write(store),
            34..=37 => self.append(store),
            38..=45 => self.resize(store),
            46..=53 => self.punch(store),
            54..=57 => self.set_version(store),
            58..=61 => self.copy(store),
            62..=64 => self.copy_range(store),
            65..=76 => self.flush(store),
            77..=79 => self.flush_all(store),
            80..=82 => store.write_back(1 + self.random.below(150_000)).map(drop),
            83..=84 => store.checkpoint(),
            85 => {
                store.wait_for_dirty(Duration::ZERO);
                Ok(())
            }
            86 => store.settle_when_due(Duration::from_millis(20)),
            87..=91 => self.look(store),
            92..=93 => self.set_clock(store),
            _ if !self.mix.partitions => self.read(store),
            94 => self.create_partition(store),
            95 => self.copy_partition(store),
            96..=97 => self.change_partition(store),
            98 => self.remove_partition(store),
            _ => self.rare(store),
        }
    }

    /// One of a few numbers that are chosen again and again, or none.
    fn choice(&mut self) -> Option<ObjectId> {
        let chosen = self.random.below(8);
        (self.random.below(4) == 0).then_some(ObjectId(ObjectId::FIRST_NAMED.0 + chosen))
    }

    /// The same as `allowed`, where a number was chosen: there may be such an object already, or still.
    fn allowed_choice<T>(
        &mut self,
        chosen: Option<ObjectName>,
        outcome: Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        let Some(chosen) = chosen else { return self.allowed(outcome) };
        let is_there = self.histories().living().contains(&chosen);
        match self.allowed(outcome) {
            Err(StoreError::ObjectExists(name)) if name == chosen => Ok(None),
            Ok(Some(_)) if is_there => panic!("{chosen} was made twice"),
            outcome => outcome,
        }
    }

    pub fn create(&mut self, store: &Store) -> Result<(), StoreError> {
        let Some(partition) = self.partition() else { return Ok(()) };
        if self.histories().living().len() >= self.mix.objects {
            return self.remove(store);
        }
        let size = self.random.below(3) * 1000;
        let mut initial = SetAttributes { logical_size: Some(size), ..SetAttributes::default() };
        initial.blocks_allocated =
            (self.mix.reserve && self.random.below(8) == 0).then(|| self.random.below(20));
        let chosen = self.choice();
        let made = store.create_as(partition, chosen, &initial, Timestamp(5));
        let chosen = chosen.map(|object| ObjectName { partition, object });
        if let Some((object, _)) = self.allowed_choice(chosen, made)? {
            let name = ObjectName { partition, object };
            let bytes = Arc::new(vec![0; size as usize]);
            let mut histories = self.histories();
            let is_new = !histories.objects.contains_key(&name);
            assert!(chosen.map_or(is_new, |chosen| chosen == name), "{name} was given out before");
            histories.change(name, Some(Content { bytes, ..Content::empty() }));
        }
        Ok(())
    }

    pub fn remove(&mut self, store: &Store) -> Result<(), StoreError> {
        let Some(name) = self.object() else { return Ok(()) };
        if name.object == ObjectId::FIRST_OBJECT {
            return Ok(());
        }
        store.remove(name)?;
        self.histories().change(name, None);
        Ok(())
    }

    pub fn some_bytes(&mut self, length: u64) -> Vec<u8> {
        self.number += 1;
        match self.random.below(4) {
            // Bytes that say whose they are, and can be compressed.
            0 => {
                let tag = self.seed << 32 | self.number;
                let words = (0..length.div_ceil(8)).flat_map(|i| (tag ^ (i / 512)).to_le_bytes());
                words.take(length as usize).collect()
            }
            1 => vec![self.number as u8 | 1; length as usize],
            _ => self.random.bytes(length as usize),
        }
    }

    pub fn write(&mut self, store: &Store) -> Result<(), StoreError> {
        let Some(name) = self.object() else { return Ok(()) };
        let before = self.histories().now(name).clone();
        let largest = self.mix.largest;
        let size = before.bytes.len() as u64;
        let (offset, length) = match self.random.below(8) {
            // What may be kept in the tree.
            0 => (0, 1 + self.random.below(2048)),
            1 => (self.random.below(3000), self.random.below(2000)),
            2 => (size, 1 + self.random.below(5000)),
            3 => (self.random.below(largest) / BLOCK * BLOCK, BLOCK * (1 + self.random.below(8))),
            4 => (self.random.below(largest) / 65536 * 65536, 65536 * (1 + self.random.below(3))),
            5 => (self.random.below(largest), 1 + self.random.below(200_000)),
            _ => (self.random.below(largest), 1 + self.random.below(20_000)),
        };
        let length = length.min(largest.saturating_sub(offset));
        let bytes = self.some_bytes(length);
        let mut after = before.bytes.to_vec();
        if length > 0 {
            after.resize(after.len().max((offset + length) as usize), 0);
            after[offset as usize..][..length as usize].copy_from_slice(&bytes);
        }
        let after = Content { bytes: Arc::new(after), ..before };
        let outcome = if self.random.below(2) == 0 {
            write(store, name, offset, &bytes)
        } else {
            write_frames(store, name, offset, &bytes)
        };
        if let Some(written) = self.allowed(outcome)? {
            assert_eq!(written.logical_size, after.bytes.len() as u64);
            self.histories().change(name, Some(after));
        }
        self.compare(store, name)
    }

    pub fn resize(&mut self, store: &Store) -> Result<(), StoreError> {
        let Some(name) = self.object() else { return Ok(()) };
        let before = self.histories().now(name).clone();
        let size = match self.random.below(5) {
            0 => self.random.below(self.mix.largest) / BLOCK * BLOCK,
            1 => self.random.below(1 + before.bytes.len() as u64),
            2 => self.random.below(4000),
            3 => 0,
            _ => self.random.below(self.mix.largest),
        };
        let mut changes = SetAttributes { logical_size: Some(size), ..SetAttributes::default() };
        changes.blocks_allocated =
            (self.mix.reserve && self.random.below(8) == 0).then(|| self.random.below(30));
        let outcome = store.setattr(name, &changes, Timestamp(6));
        if self.allowed(outcome)?.is_some() {
            let mut bytes = before.bytes.to_vec();
            bytes.resize(size as usize, 0);
            let after = Content { bytes: Arc::new(bytes), ..before };
            self.histories().change(name, Some(after));
        }
        self.compare(store, name)
    }

    pub fn punch(&mut self, store: &Store) -> Result<(), StoreError> {
        let Some(name) = self.object() else { return Ok(()) };
        let before = self.histories().now(name).clone();
        let size = before.bytes.len() as u64;
        let offset = self.random.below(size + 1000);
        let (offset, length) = match self.random.below(4) {
            0 => (offset / BLOCK * BLOCK, BLOCK * self.random.below(20)),
            1 => (offset, self.random.below(3000)),
            2 => (offset, u64::MAX >> 3),
            _ => (offset, self.random.below(100_000)),
        };
        let outcome = store.punch(name, ByteRange::new(offset, length), Timestamp(7));
        if self.allowed(outcome)?.is_some() {
            let mut bytes = before.bytes.to_vec();
            let end = offset.saturating_add(length).min(size);
            if offset < end {
                bytes[offset as usize..end as usize].fill(0);
            }
            let after = Content { bytes: Arc::new(bytes), ..before };
            self.histories().change(name, Some(after));
        }
        self.compare(store, name)
    }

    pub fn set_version(&mut self, store: &Store) -> Result<(), StoreError> {
        let Some(name) = self.object() else { return Ok(()) };
        // It only rises, also over those that another world has set.
        let version = self.histories().now(name).version.max(self.number) + 1;
        self.number = version;
        let changes =
            SetAttributes { access_control_version: Some(version), ..SetAttributes::default() };
        let outcome = store.setattr(name, &changes, Timestamp(6));
        if self.allowed(outcome)?.is_some() {
            let mut histories = self.histories();
            let before = histories.now(name).clone();
            histories.change(name, Some(Content { version, ..before }));
        }
        Ok(())
    }

    pub fn copy(&mut self, store: &Store) -> Result<(), StoreError> {
        let chosen = self.choice();
        self.copy_as(store, chosen)
    }

    pub fn copy_as(&mut self, store: &Store, chosen: Option<ObjectId>) -> Result<(), StoreError> {
        if self.histories().living().len() >= self.mix.objects {
            return self.remove(store);
        }
        let Some(source) = self.object() else { return Ok(()) };
        let copy = {
            let mut histories = self.histories();
            let copy = Content { copied: source.object, ..histories.now(source).clone() };
            histories.copies.push(copy.clone());
            copy
        };
        let made = store.fastcopy_as(source, chosen, Timestamp(8));
        let chosen = chosen.map(|object| ObjectName { object, ..source });
        if let Some((object, attributes)) = self.allowed_choice(chosen, made)? {
            assert_eq!(attributes.logical_size, copy.bytes.len() as u64);
            let name = ObjectName { object, ..source };
            let mut histories = self.histories();
            histories.copies.pop();
            let is_new = !histories.objects.contains_key(&name);
            assert!(chosen.map_or(is_new, |chosen| chosen == name), "{name} was given out before");
            histories.objects.insert(name, vec![Some(copy)]);
            histories.durable(source);
            return Ok(());
        }
        self.histories().copies.pop();
        Ok(())
    }

    pub fn flush(&mut self, store: &Store) -> Result<(), StoreError> {
        let count = 1 + self.random.below(3);
        let names: Vec<ObjectName> = (0..count).filter_map(|_| self.object()).collect();
        store.flush(&names)?;
        let mut histories = self.histories();
        names.into_iter().for_each(|name| histories.durable(name));
        Ok(())
    }

    pub fn flush_all(&mut self, store: &Store) -> Result<(), StoreError> {
        match self.partition().filter(|_| self.random.below(2) == 0) {
            Some(partition) => store.flush_partition(partition)?,
            None => store.flush_all()?,
        }
        self.histories().all_durable();
        Ok(())
    }

    fn set_clock(&mut self, store: &Store) -> Result<(), StoreError> {
        self.number += 1;
        store.set_clock(ClockState {
            offset: -5,
            mark: Timestamp(self.number),
            ..ClockState::default()
        })
    }

    pub fn compare(&mut self, store: &Store, name: ObjectName) -> Result<(), StoreError> {
        if !self.mix.compare || self.random.below(3) > 0 {
            return Ok(());
        }
        let found = super::history::read_object(store, name)?;
        let expected = self.histories().now(name).clone();
        assert!(found.as_ref() == Some(&expected), "{name} is {found:?}, not {expected:?}");
        Ok(())
    }

    pub fn read(&mut self, store: &Store) -> Result<(), StoreError> {
        let Some(name) = self.object() else { return Ok(()) };
        let (offset, length) = (self.random.below(self.mix.largest), self.random.below(150_000));
        let data = store.read(name, ByteRange::new(offset, length))?;
        let now = self.histories().now(name).clone();
        let start = now.bytes.len().min(offset as usize);
        let end = now.bytes.len().min((offset + length) as usize);
        assert_eq!(data.logical_size, now.bytes.len() as u64);
        assert!(data.to_vec() == now.bytes[start..end], "{name} [{offset}, +{length})");
        Ok(())
    }

    /// Looks for holes, of which the model knows where none can be, or at lists.
    fn look(&mut self, store: &Store) -> Result<(), StoreError> {
        let Some(name) = self.object() else { return Ok(()) };
        let now = self.histories().now(name).clone();
        let size = now.bytes.len() as u64;
        let offset = self.random.below(size + 10);
        let hole = store.seek(name, offset, SeekTarget::Hole)?;
        let data = store.seek(name, offset, SeekTarget::Data)?;
        if offset >= size {
            assert_eq!((hole, data), (None, None));
        } else {
            let hole = hole.expect("there is a hole at the end");
            assert!((offset..=size).contains(&hole) && data != Some(hole));
            let empty = offset as usize..data.unwrap_or(size) as usize;
            assert!(now.bytes[empty].iter().all(|&byte| byte == 0), "{name}: data in a hole");
        }
        let range = ByteRange::new(offset, self.random.below(100_000));
        let required = store.blocks_required(name, &mut std::iter::once(range))?;
        assert!(required.estimated <= required.maximum);
        let expected: Vec<ObjectId> = {
            let living = self.histories().living();
            let of = living.into_iter().filter(|other| other.partition == name.partition);
            of.map(|other| other.object).collect()
        };
        let mut listed = store.list(name.partition, ObjectId(0), usize::MAX)?;
        if !self.histories().copies.is_empty() {
            // A copy that failed may be there all the same.
            listed.retain(|object| expected.contains(object));
        }
        assert_eq!(listed, expected);
        self.read(store)
    }

    fn create_partition(&mut self, store: &Store) -> Result<(), StoreError> {
        let id = PartitionId(1 + self.random.below(4) as u32);
        let known = self.histories().partitions.contains_key(&id);
        if known || self.histories().doomed.contains(&id) {
            return Ok(());
        }
        self.make_partition(store, id)
    }

    /// Makes a partition that has what another one has, at one stroke.
    fn copy_partition(&mut self, store: &Store) -> Result<(), StoreError> {
        let target = PartitionId(1 + self.random.below(4) as u32);
        let Some(source) = self.partition() else { return Ok(()) };
        {
            let mut histories = self.histories();
            let is_there = histories.partitions.contains_key(&target);
            let of_source: Vec<ObjectName> =
                histories.living().into_iter().filter(|name| name.partition == source).collect();
            let unsure = of_source.iter().any(|name| histories.unsure.contains(name));
            if is_there || unsure || histories.doomed.contains(&target) {
                return Ok(());
            }
            for name in of_source {
                let content = histories.now(name).clone();
                let copy = ObjectName { partition: target, ..name };
                histories.objects.insert(copy, vec![Some(content)]);
            }
            histories.partitions.insert(target, vec![None, Some((u64::MAX, None))]);
        }
        let made = store.copy_partition(source, target);
        match self.allowed(made) {
            Ok(Some(_)) => {}
            Ok(None) => {
                self.histories().drop_partition(target);
                return Ok(());
            }
            Err(failed) => {
                self.histories().doubt_partition(target);
                return Err(failed);
            }
        }
        let mut histories = self.histories();
        histories.partitions.insert(target, vec![Some((u64::MAX, None))]);
        histories.all_durable();
        Ok(())
    }

    fn set_quota(&mut self, store: &Store, id: PartitionId, quota: u64) -> Result<(), StoreError> {
        self.maybe_partition(id, |settings| settings.0 = quota);
        let set = store.resize_partition(id, quota);
        let done = self.allowed(set)?.is_some();
        self.certain_partition(id, done);
        Ok(())
    }

    /// A change of a partition is under way.
    fn maybe_partition(&mut self, id: PartitionId, change: impl FnOnce(&mut (u64, Option<u32>))) {
        let mut histories = self.histories();
        let states = histories.partitions.get_mut(&id).unwrap();
        let mut after = states.last().unwrap().unwrap();
        change(&mut after);
        states.push(Some(after));
    }

    /// It was made, or not.
    fn certain_partition(&mut self, id: PartitionId, done: bool) {
        let mut histories = self.histories();
        let states = histories.partitions.get_mut(&id).unwrap();
        if !done {
            states.pop();
        }
        states.drain(..states.len() - 1);
    }

    fn change_partition(&mut self, store: &Store) -> Result<(), StoreError> {
        let Some(id) = self.partition() else { return Ok(()) };
        match self.random.below(3) {
            0 => {
                let quotas = [u64::MAX, 3 << 20, 1 << 20, 300_000];
                let quota = quotas[self.random.below(4) as usize];
                self.set_quota(store, id, quota)
            }
            1 => {
                let kinds = [Compression::None, Compression::Lz4, Compression::Zstd];
                let compression = kinds[self.random.below(3) as usize];
                let settings = PartitionSettings { compression, ..PartitionSettings::default() };
                store.set_partition_settings(id, settings)
            }
            _ => {
                self.number += 1;
                let epoch = self.number as u32;
                let current = Some(WorkingKey { epoch, key: StoredKey::new([9; 32]) });
                let keys = PartitionKeys { current, ..PartitionKeys::default() };
                self.maybe_partition(id, |settings| settings.1 = Some(epoch));
                store.set_partition_keys(id, &keys)?;
                self.certain_partition(id, true);
                Ok(())
            }
        }
    }

    fn remove_partition(&mut self, store: &Store) -> Result<(), StoreError> {
        let known = self.histories().known_partitions();
        if known.len() < 2 {
            return Ok(());
        }
        let Some(id) = self.partition() else { return Ok(()) };
        self.histories().partitions.get_mut(&id).unwrap().push(None);
        let removed = store.remove_partition(id);
        if removed.is_ok() {
            let mut histories = self.histories();
            histories.drop_partition(id);
            histories.doomed.insert(id);
            // Its number may be used again only when its objects are gone.
            drop(histories);
            if self.random.below(2) == 0 {
                self.end_removals(store);
            }
        }
        removed
    }

    /// Partitions that were removed may be made anew.
    pub fn end_removals(&mut self, store: &Store) {
        super::finish_removals(store);
        if store.read_only().is_none() {
            let mut histories = self.histories();
            let is_doubted = |id: &PartitionId| {
                histories.partitions.get(id).is_some_and(|states| states.contains(&None))
            };
            let doubted = histories.doomed.iter().copied().filter(is_doubted).collect();
            histories.doomed = doubted;
        }
    }

    fn rare(&mut self, store: &Store) -> Result<(), StoreError> {
        if self.random.below(4) > 0 {
            self.end_removals(store);
            return Ok(());
        }
        self.number += 1;
        let byte = self.number as u8;
        {
            let mut histories = self.histories();
            histories.master.push(Some(byte));
            histories.partitions.values_mut().for_each(|states| states.push(None));
        }
        store.initialize(&StoredKey::new([byte; 32]), ClockState::default())?;
        {
            let mut histories = self.histories();
            histories.master = vec![Some(byte)];
            for id in histories.partitions.keys().copied().collect::<Vec<_>>() {
                histories.drop_partition(id);
            }
        }
        self.end_removals(store);
        for id in [P1, P2] {
            self.make_partition(store, id)?;
        }
        let keys = DriveKeys { drive: Some(StoredKey::new([4; 32])), ..store.drive_keys() };
        store.set_drive_keys(&keys)
    }

    fn make_partition(&mut self, store: &Store, id: PartitionId) -> Result<(), StoreError> {
        self.histories().partitions.insert(id, vec![None, Some((0, None))]);
        let made = store.create_partition(id, Timestamp(9));
        if self.allowed(made)?.is_none() {
            self.histories().partitions.remove(&id);
            return Ok(());
        }
        {
            let mut histories = self.histories();
            histories.partitions.insert(id, vec![Some((0, None))]);
            let first = ObjectName { partition: id, object: ObjectId::FIRST_OBJECT };
            histories.objects.insert(first, vec![Some(Content::empty())]);
        }
        self.set_quota(store, id, u64::MAX)
    }
}
