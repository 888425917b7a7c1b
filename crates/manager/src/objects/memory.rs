//! Objects in memory: drives for tests and simulations.
//!
//! What was not made durable is lost by [`MemoryDrives::power_cut`]. A drive can be made to be
//! away, to be full, and its clock stands still until told to go on: nothing here is random.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nasd_protocol::drive::{
    DriveControl, Medium, PartitionControl, PartitionState, PartitionSummary,
};
use nasd_protocol::manager::FileHandle;
use nasd_types::limits::BLOCK_BYTES;
use nasd_types::{
    Attributes, Compression, DriveId, FS_SPECIFIC_BYTES, ObjectId, PartitionId, Protection,
    SetAttributes, Timestamp,
};

use super::contents::Contents;
use super::{NewObject, ObjectError, ObjectStore, Wait};

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
    next: u64,
    away: bool,
    volatile: bool,
    capacity_bytes: u64,
    /// Of all objects: one for each, and those of its data.
    used_blocks: u64,
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
        for drive in self.state().drives.values_mut() {
            drive.objects = drive.durable.clone();
            drive.used_blocks = drive.objects.values().map(Object::used_blocks).sum();
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
            state.require_blocks(1)?;
            state.used_blocks += 1;
            let id = ObjectId(state.next);
            state.next += 1;
            let mut object =
                Object { attributes: fresh_attributes(now), data: Contents::default() };
            object.change(initial, now);
            let attributes = object.attributes.clone();
            state.objects.insert(id, object);
            if durable {
                state.make_durable(id);
            }
            Ok(NewObject { handle: handle(drive, id), attributes })
        })
    }

    fn remove(&self, object: FileHandle, durable: bool, _wait: Wait) -> Result<(), ObjectError> {
        self.on_drive(object.drive, |state, _now| {
            let removed = state.objects.remove(&object.object).ok_or(ObjectError::NoSuchObject)?;
            state.used_blocks -= removed.used_blocks();
            if durable {
                state.make_durable(object.object);
            }
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
        _wait: Wait,
    ) -> Result<Attributes, ObjectError> {
        self.on_drive(object.drive, |state, now| {
            let present = state.object(object.object)?.attributes.access_control_version;
            if changes.access_control_version.is_some_and(|asked| asked < present) {
                return Err(ObjectError::Refused("the access control version only rises".into()));
            }
            state.change(object.object, |found| found.change(changes, now))?;
            state.make_durable(object.object);
            Ok(state.object(object.object)?.attributes.clone())
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
        _wait: Wait,
    ) -> Result<(), ObjectError> {
        self.on_drive(object.drive, |state, now| {
            let end = offset as usize + data.len();
            state.require_blocks(state.object(object.object)?.data.blocks_beyond(end))?;
            state.change(object.object, |found| {
                found.data.write(offset as usize, data);
                found.touch_data(now);
            })?;
            state.make_durable(object.object);
            Ok(())
        })
    }

    fn flush(&self, object: FileHandle, _wait: Wait) -> Result<(), ObjectError> {
        self.on_drive(object.drive, |state, _now| {
            state.object(object.object)?;
            state.make_durable(object.object);
            Ok(())
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
    /// One for itself, and those of its data.
    fn used_blocks(&self) -> u64 {
        1 + self.data.blocks()
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

    fn touch_data(&mut self, now: Timestamp) {
        self.attributes.logical_size = self.data.len() as u64;
        self.attributes.blocks_used = self.used_blocks();
        self.attributes.data_modify_time = now;
        self.attributes.fs_data_modify_time = now;
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
        attribute_modify_time: now,
        fs_data_modify_time: now,
        fs_attribute_modify_time: now,
        fs_specific: Box::new([0; FS_SPECIFIC_BYTES]),
    }
}
