//! Objects in memory: drives for tests and simulations.
//!
//! What was not made durable is lost by [`MemoryDrives::power_cut`], all of it or every second operation
//! by the number that a test gives, and by [`MemoryDrives::restart`] of one drive. A drive can be made
//! to be away, to be full, and its clock stands still until told to go on: nothing here is random.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nasd_protocol::drive::{
    BatchDone, BatchOperation, DriveControl, ExtensionWork, Medium, PartitionControl,
    PartitionState, PartitionSummary,
};
use nasd_protocol::manager::FileHandle;
use nasd_types::limits::BLOCK_BYTES;
use nasd_types::{
    Attributes, Compression, DriveId, FS_SPECIFIC_BYTES, ObjectId, PartitionId, Protection,
    SetAttributes, Timestamp,
};

use super::contents::Contents;
use super::{NewObject, ObjectError, ObjectStore, Outcomes, Wait};

/// The one partition of each drive.
pub const PARTITION: PartitionId = PartitionId(1);

#[derive(Clone, Debug)]
struct Object {
    attributes: Attributes,
    data: Contents,
}

#[derive(Clone, Debug)]
struct Drive {
    objects: BTreeMap<ObjectId, Object>,
    durable: BTreeMap<ObjectId, Object>,
    /// What was done since, in order, to objects that were not made durable.
    unflushed: Vec<(ObjectId, Undone)>,
    instance: u64,
    next: u64,
    away: bool,
    volatile: bool,
    capacity_bytes: u64,
    /// Of all objects: one for each, and those of its data.
    used_blocks: u64,
}

/// An operation that a power cut may undo.
#[derive(Clone, Debug)]
enum Undone {
    Create(Box<Object>),
    Write(usize, Vec<u8>, Timestamp),
    Set(Box<SetAttributes>, Timestamp),
    Remove,
}

/// Several drives in memory.
#[derive(Debug)]
pub struct MemoryDrives {
    state: Mutex<State>,
}

#[derive(Clone, Debug)]
struct State {
    drives: BTreeMap<DriveId, Drive>,
    now: Timestamp,
    volatile: bool,
}

/// All drives' contents at a time, to go back to.
#[derive(Clone, Debug)]
pub struct Snapshot(State);

impl MemoryDrives {
    /// Drives 1 to `count`, each with an empty First Object.
    pub fn new(count: u64) -> MemoryDrives {
        let mut state =
            State { drives: BTreeMap::new(), now: Timestamp(1_000_000_000_000), volatile: false };
        for number in 1..=count {
            let first =
                Object { attributes: fresh_attributes(state.now), data: Contents::default() };
            let objects = BTreeMap::from([(ObjectId::FIRST_OBJECT, first)]);
            state.drives.insert(
                DriveId(number),
                Drive {
                    durable: objects.clone(),
                    objects,
                    unflushed: Vec::new(),
                    instance: 1,
                    next: ObjectId::FIRST_DYNAMIC.0,
                    away: false,
                    volatile: false,
                    capacity_bytes: 1 << 40,
                    used_blocks: 1,
                },
            );
        }
        MemoryDrives { state: Mutex::new(state) }
    }

    /// Drives with contents that there were before.
    pub fn from_snapshot(snapshot: &Snapshot) -> MemoryDrives {
        MemoryDrives { state: Mutex::new(snapshot.0.clone()) }
    }

    /// The contents now.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot(self.state().clone())
    }

    /// All drives lose what was not made durable, and start anew.
    pub fn power_cut(&self) {
        self.state().drives.values_mut().for_each(|drive| drive.restart(|| false));
    }

    /// All drives start anew, and lose some of what was not made durable: which, the seed says.
    pub fn power_cut_of_some(&self, seed: u64) {
        let mut luck = Luck(seed);
        self.state().drives.values_mut().for_each(|drive| drive.restart(|| luck.next()));
    }

    /// One drive starts anew, and loses some of what was not made durable: which, the seed says.
    pub fn restart(&self, drive: DriveId, seed: u64) {
        let mut luck = Luck(seed);
        if let Some(drive) = self.state().drives.get_mut(&drive) {
            drive.restart(|| luck.next());
        }
    }

    /// Makes a drive go away or come back.
    pub fn set_away(&self, drive: DriveId, away: bool) {
        if let Some(drive) = self.state().drives.get_mut(&drive) {
            drive.away = away;
        }
    }

    /// Changes the drive's size.
    pub fn set_capacity(&self, drive: DriveId, bytes: u64) {
        if let Some(drive) = self.state().drives.get_mut(&drive) {
            drive.capacity_bytes = bytes;
        }
    }

    /// While set, nothing is made durable, whatever is asked: as if every answer were lost that
    /// says so.
    pub fn set_volatile(&self, volatile: bool) {
        self.state().volatile = volatile;
    }

    /// Lets time pass on all drives' clocks.
    pub fn advance(&self, nanoseconds: u64) {
        let mut state = self.state();
        state.now = state.now.plus_ns(nanoseconds);
    }

    /// Changes bytes of an object behind everybody's back.
    pub fn corrupt(&self, handle: FileHandle, change: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.state();
        let Some(drive) = state.drives.get_mut(&handle.drive) else {
            return;
        };
        let _ = drive.change(handle.object, |object| {
            let mut data = object.data.to_bytes();
            change(&mut data);
            object.data = Contents::from_bytes(&data);
            object.attributes.logical_size = data.len() as u64;
        });
        drive.make_durable(handle.object);
    }

    /// Every object that a file manager has made or could have written.
    pub fn objects(&self) -> Vec<FileHandle> {
        let state = self.state();
        let handles = state
            .drives
            .iter()
            .flat_map(|(id, drive)| drive.objects.keys().map(|object| handle(*id, *object)));
        handles.collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn on_drive<T>(
        &self,
        drive: DriveId,
        run: impl FnOnce(&mut Drive, Timestamp) -> Result<T, ObjectError>,
    ) -> Result<T, ObjectError> {
        let mut state = self.state();
        // Every operation is at another instant, so that tests see which came later.
        state.now = state.now.plus_ns(1_000);
        let (now, volatile) = (state.now, state.volatile);
        let drive = state.drives.get_mut(&drive).ok_or(ObjectError::NoSuchObject)?;
        if drive.away {
            let reason = "told to be".to_owned();
            return Err(ObjectError::Unavailable { reason, maybe_done: false });
        }
        drive.volatile = volatile;
        run(drive, now)
    }
}

impl Drive {
    fn object(&self, id: ObjectId) -> Result<&Object, ObjectError> {
        self.objects.get(&id).ok_or(ObjectError::NoSuchObject)
    }

    fn make_durable(&mut self, id: ObjectId) {
        if self.volatile {
            return;
        }
        match self.objects.get(&id) {
            Some(object) => self.durable.insert(id, object.clone()),
            None => self.durable.remove(&id),
        };
        self.unflushed.retain(|(other, _)| *other != id);
    }

    fn make_all_durable(&mut self) {
        if !self.volatile {
            self.durable = self.objects.clone();
            self.unflushed.clear();
        }
    }

    /// Takes note of what was done, durably or not.
    fn done(&mut self, id: ObjectId, what: Undone, durable: bool) {
        match durable {
            true if !self.volatile => self.make_durable(id),
            _ => self.unflushed.push((id, what)),
        }
    }

    /// Goes back to what was durable, and does again what `survives`.
    fn restart(&mut self, mut survives: impl FnMut() -> bool) {
        self.instance += 1;
        self.objects = self.durable.clone();
        for (id, what) in std::mem::take(&mut self.unflushed) {
            if !survives() {
                continue;
            }
            match what {
                Undone::Create(object) => {
                    self.objects.insert(id, *object);
                }
                Undone::Remove => {
                    self.objects.remove(&id);
                }
                Undone::Write(offset, data, now) => {
                    let _ = self.change(id, |object| object.write(offset, &data, now));
                }
                Undone::Set(changes, now) => {
                    let _ = self.change(id, |object| object.change(&changes, now));
                }
            }
        }
        self.durable = self.objects.clone();
        self.used_blocks = self.objects.values().map(Object::used_blocks).sum();
    }

    /// Changes an object, and keeps account of its blocks.
    fn change(&mut self, id: ObjectId, run: impl FnOnce(&mut Object)) -> Result<(), ObjectError> {
        let object = self.objects.get_mut(&id).ok_or(ObjectError::NoSuchObject)?;
        let before = object.used_blocks();
        run(object);
        self.used_blocks = self.used_blocks - before + object.used_blocks();
        Ok(())
    }

    fn used_bytes(&self) -> u64 {
        self.used_blocks * BLOCK_BYTES as u64
    }

    fn require_blocks(&self, blocks: u64) -> Result<(), ObjectError> {
        let wanted = (self.used_blocks + blocks) * BLOCK_BYTES as u64;
        if blocks > 0 && wanted > self.capacity_bytes { Err(ObjectError::NoSpace) } else { Ok(()) }
    }
}

impl ObjectStore for MemoryDrives {
    fn drives(&self) -> Vec<DriveId> {
        self.state().drives.keys().copied().collect()
    }

    fn partition(&self, drive: DriveId) -> Option<PartitionId> {
        self.state().drives.contains_key(&drive).then_some(PARTITION)
    }

    fn create(
        &self,
        drive: DriveId,
        initial: &SetAttributes,
        durable: bool,
        _wait: Wait,
    ) -> Result<NewObject, ObjectError> {
        self.on_drive(drive, |state, now| {
            state.require_blocks(1 + initial.blocks_allocated.unwrap_or(0))?;
            let id = ObjectId(state.next);
            state.next += 1;
            let mut object =
                Object { attributes: fresh_attributes(now), data: Contents::default() };
            object.change(initial, now);
            state.used_blocks += object.used_blocks();
            let undone = Undone::Create(Box::new(object.clone()));
            let attributes = object.attributes.clone();
            state.objects.insert(id, object);
            state.done(id, undone, durable);
            Ok(NewObject { handle: handle(drive, id), attributes })
        })
    }

    fn remove(&self, object: FileHandle, durable: bool, _wait: Wait) -> Result<(), ObjectError> {
        self.on_drive(object.drive, |state, _now| {
            let removed = state.objects.remove(&object.object).ok_or(ObjectError::NoSuchObject)?;
            state.used_blocks -= removed.used_blocks();
            state.done(object.object, Undone::Remove, durable);
            Ok(())
        })
    }

    fn getattr(&self, object: FileHandle, _wait: Wait) -> Result<Attributes, ObjectError> {
        self.on_drive(object.drive, |state, _now| {
            Ok(state.object(object.object)?.attributes.clone())
        })
    }

    fn setattr(
        &self,
        object: FileHandle,
        changes: &SetAttributes,
        durable: bool,
        _wait: Wait,
    ) -> Result<Attributes, ObjectError> {
        self.on_drive(object.drive, |state, now| {
            let present = state.object(object.object)?.attributes.access_control_version;
            if changes.access_control_version.is_some_and(|asked| asked < present) {
                return Err(ObjectError::Refused("the access control version only rises".into()));
            }
            let size = state.object(object.object)?.attributes.logical_size;
            if changes.access_control_version == Some(present)
                && changes.logical_size.is_some_and(|asked| asked != size)
            {
                return Err(ObjectError::Refused("a new length comes with a new version".into()));
            }
            state.change(object.object, |found| found.change(changes, now))?;
            state.done(object.object, Undone::Set(Box::new(changes.clone()), now), durable);
            Ok(state.object(object.object)?.attributes.clone())
        })
    }

    fn blocks_required(
        &self,
        object: FileHandle,
        offset: u64,
        length: u64,
        _wait: Wait,
    ) -> Result<u64, ObjectError> {
        self.on_drive(object.drive, |state, _now| {
            // There are no holes.
            let there = state.object(object.object)?.data.blocks();
            let last = offset.saturating_add(length).div_ceil(BLOCK_BYTES as u64);
            let first = offset / BLOCK_BYTES as u64;
            Ok(last.saturating_sub(first.max(there)))
        })
    }

    fn read(
        &self,
        object: FileHandle,
        offset: u64,
        length: u64,
        _wait: Wait,
    ) -> Result<Vec<u8>, ObjectError> {
        self.on_drive(object.drive, |state, _now| {
            let data = &state.object(object.object)?.data;
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            Ok(data.read(offset as usize, length))
        })
    }

    fn write(
        &self,
        object: FileHandle,
        offset: u64,
        data: &[u8],
        durable: bool,
        _wait: Wait,
    ) -> Result<u64, ObjectError> {
        self.on_drive(object.drive, |state, now| {
            let (id, offset) = (object.object, offset as usize);
            state.require_blocks(state.object(id)?.blocks_beyond(offset + data.len()))?;
            state.change(id, |found| found.write(offset, data, now))?;
            state.done(id, Undone::Write(offset, data.to_vec(), now), durable);
            Ok(state.instance)
        })
    }

    fn flush(&self, drive: DriveId, objects: &[ObjectId], _wait: Wait) -> Result<u64, ObjectError> {
        self.on_drive(drive, |state, _now| {
            for object in objects {
                state.object(*object)?;
            }
            match objects {
                [] => state.make_all_durable(),
                some => some.iter().for_each(|object| state.make_durable(*object)),
            }
            Ok(state.instance)
        })
    }

    fn batch(
        &self,
        drive: DriveId,
        operations: &[BatchOperation],
        durable: bool,
        wait: Wait,
    ) -> Result<Outcomes, ObjectError> {
        self.on_drive(drive, |_state, _now| Ok(()))?;
        let done = |object, attributes| BatchDone { object, attributes };
        let one = |operation: &BatchOperation| match operation {
            BatchOperation::Create(_, initial) => {
                let new = self.create(drive, initial, durable, wait)?;
                Ok(done(new.handle.object, Some(new.attributes)))
            }
            BatchOperation::Remove(object) => {
                self.remove(handle(drive, *object), durable, wait).map(|()| done(*object, None))
            }
            BatchOperation::Setattr(object, changes) => self
                .setattr(handle(drive, *object), changes, durable, wait)
                .map(|_| done(*object, None)),
            BatchOperation::Getattr(object) => self
                .getattr(handle(drive, *object), wait)
                .map(|attributes| done(*object, Some(attributes))),
        };
        Ok(operations.iter().map(one).collect())
    }

    fn objects_from(
        &self,
        drive: DriveId,
        from: ObjectId,
        _wait: Wait,
    ) -> Result<Vec<ObjectId>, ObjectError> {
        self.on_drive(drive, |state, _now| {
            Ok(state.objects.range(from..).map(|(id, _)| *id).collect())
        })
    }

    fn drive_control(&self, drive: DriveId) -> Result<DriveControl, ObjectError> {
        self.on_drive(drive, |state, now| {
            Ok(DriveControl {
                drive,
                clock: now,
                clock_offset: 0,
                skew_past: 0,
                skew_ahead: 0,
                started: Timestamp(0),
                capacity_bytes: state.capacity_bytes,
                used_bytes: state.used_bytes(),
                cache_bytes: 0,
                block_size: BLOCK_BYTES as u32,
                medium: Medium::Memory,
                capability_bytes_read: 0,
                capability_bytes_written: 0,
                key_bytes_read: 0,
                key_bytes_written: 0,
                requests: 0,
                refusals: 0,
                minimum_protection: Protection::NONE,
                read_only: false,
                bad_blocks: 0,
                partitions: vec![state.summary()],
                extensions: Vec::new(),
                components: Vec::new(),
                extension_work: ExtensionWork::default(),
            })
        })
    }

    fn partition_control(&self, drive: DriveId) -> Result<PartitionControl, ObjectError> {
        self.on_drive(drive, |state, _now| {
            let free_bytes = state.capacity_bytes.saturating_sub(state.used_bytes());
            let objects_supported = u64::MAX;
            Ok(PartitionControl { summary: state.summary(), free_bytes, objects_supported })
        })
    }

    fn drive_time(&self, _drive: DriveId) -> Timestamp {
        self.state().now
    }
}

impl Drive {
    fn summary(&self) -> PartitionSummary {
        PartitionSummary {
            partition: PARTITION,
            quota_bytes: self.capacity_bytes,
            used_bytes: self.used_bytes(),
            objects: self.objects.len() as u64,
            state: PartitionState::Ready,
            compression: Compression::None,
            minimum_protection: Protection::NONE,
        }
    }
}

impl Object {
    /// One for itself, and those of its data, or that are reserved for them.
    fn used_blocks(&self) -> u64 {
        1 + self.data.blocks().max(self.attributes.blocks_allocated)
    }

    /// Blocks that it takes more when its data reach there.
    fn blocks_beyond(&self, end: usize) -> u64 {
        let wanted = end.div_ceil(BLOCK_BYTES) as u64;
        wanted.saturating_sub(self.used_blocks() - 1)
    }

    fn change(&mut self, changes: &SetAttributes, now: Timestamp) {
        if let Some(size) = changes.logical_size {
            self.data.resize(size as usize);
            self.touch_data(now);
        }
        let attributes = &mut self.attributes;
        attributes.attribute_modify_time = now;
        attributes.fs_attribute_modify_time = now;
        if let Some(version) = changes.access_control_version {
            attributes.access_control_version = version;
        }
        if let Some(blocks) = changes.blocks_allocated {
            attributes.blocks_allocated = blocks;
        }
        if let Some(near) = changes.nearby_object {
            attributes.nearby_object = near;
        }
        if let Some(time) = changes.fs_data_modify_time {
            attributes.fs_data_modify_time = time;
        }
        if let Some(time) = changes.fs_attribute_modify_time {
            attributes.fs_attribute_modify_time = time;
        }
        if let Some(bytes) = &changes.fs_specific {
            attributes.fs_specific = bytes.clone();
        }
    }

    fn write(&mut self, offset: usize, data: &[u8], now: Timestamp) {
        self.data.write(offset, data);
        self.touch_data(now);
    }

    fn touch_data(&mut self, now: Timestamp) {
        self.attributes.logical_size = self.data.len() as u64;
        self.attributes.blocks_used = self.used_blocks();
        self.attributes.data_modify_time = now;
        self.attributes.data_version = now.0;
        self.attributes.fs_data_modify_time = now;
    }
}

/// Yes or no, as a seed says.
struct Luck(u64);

impl Luck {
    fn next(&mut self) -> bool {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0 >> 40 & 1 == 1
    }
}

fn handle(drive: DriveId, object: ObjectId) -> FileHandle {
    FileHandle { drive, partition: PARTITION, object }
}

fn fresh_attributes(now: Timestamp) -> Attributes {
    Attributes {
        access_control_version: 1,
        nearby_object: ObjectId(0),
        copied_object: ObjectId(0),
        logical_size: 0,
        blocks_allocated: 0,
        blocks_used: 1,
        block_size: BLOCK_BYTES as u32,
        create_time: now,
        data_modify_time: now,
        data_version: now.0,
        attribute_modify_time: now,
        fs_data_modify_time: now,
        fs_attribute_modify_time: now,
        fs_specific: Box::new([0; FS_SPECIFIC_BYTES]),
    }
}
