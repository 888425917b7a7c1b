//! Objects in memory: drives for tests and simulations.
//!
//! What was not made durable is lost by [`MemoryDrives::power_cut`]. A drive can be made to be
//! away, to be full, and its clock stands still until told to go on: nothing here is random.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nasd_protocol::drive::{DriveControl, PartitionControl, PartitionSummary};
use nasd_protocol::manager::FileHandle;
use nasd_types::limits::BLOCK_BYTES;
use nasd_types::{
    Attributes, DriveId, FS_SPECIFIC_BYTES, ObjectId, PartitionId, SetAttributes, Timestamp,
};

use super::{NewObject, ObjectError, ObjectStore, Wait};

/// The one partition of each drive.
pub const PARTITION: PartitionId = PartitionId(1);

#[derive(Clone, Debug)]
struct Object {
    attributes: Attributes,
    data: Vec<u8>,
}

#[derive(Clone, Debug)]
struct Drive {
    objects: BTreeMap<ObjectId, Object>,
    durable: BTreeMap<ObjectId, Object>,
    next: u64,
    away: bool,
    volatile: bool,
    capacity_bytes: u64,
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
        let mut state = State {
            drives: BTreeMap::new(),
            now: Timestamp(1_000_000_000_000),
            volatile: false,
        };
        for number in 1..=count {
            let first = Object {
                attributes: fresh_attributes(state.now),
                data: Vec::new(),
            };
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
                },
            );
        }
        MemoryDrives {
            state: Mutex::new(state),
        }
    }

    /// Drives with contents that there were before.
    pub fn from_snapshot(snapshot: &Snapshot) -> MemoryDrives {
        MemoryDrives {
            state: Mutex::new(snapshot.0.clone()),
        }
    }

    /// The contents now.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot(self.state().clone())
    }

    /// All drives lose what was not made durable, and start anew.
    pub fn power_cut(&self) {
        for drive in self.state().drives.values_mut() {
            drive.objects = drive.durable.clone();
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
        let drive = state.drives.get_mut(&handle.drive);
        let Some(object) = drive.and_then(|drive| drive.objects.get_mut(&handle.object)) else {
            return;
        };
        change(&mut object.data);
        object.attributes.logical_size = object.data.len() as u64;
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
        let drive = state
            .drives
            .get_mut(&drive)
            .ok_or(ObjectError::NoSuchObject)?;
        if drive.away {
            let reason = "told to be".to_owned();
            return Err(ObjectError::Unavailable {
                reason,
                maybe_done: false,
            });
        }
        drive.volatile = volatile;
        run(drive, now)
    }
}

impl Drive {
    fn object(&mut self, id: ObjectId) -> Result<&mut Object, ObjectError> {
        self.objects.get_mut(&id).ok_or(ObjectError::NoSuchObject)
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

    fn used_bytes(&self) -> u64 {
        let blocks = |object: &Object| 1 + (object.data.len().div_ceil(BLOCK_BYTES)) as u64;
        self.objects.values().map(blocks).sum::<u64>() * BLOCK_BYTES as u64
    }

    fn require_space(&self, bytes: u64) -> Result<(), ObjectError> {
        let full = self.used_bytes() + bytes > self.capacity_bytes;
        if full {
            Err(ObjectError::NoSpace)
        } else {
            Ok(())
        }
    }
}

impl ObjectStore for MemoryDrives {
    fn drives(&self) -> Vec<DriveId> {
        self.state().drives.keys().copied().collect()
    }

    fn partition(&self, drive: DriveId) -> Option<PartitionId> {
        self.state()
            .drives
            .contains_key(&drive)
            .then_some(PARTITION)
    }

    fn create(
        &self,
        drive: DriveId,
        initial: &SetAttributes,
        durable: bool,
        _wait: Wait,
    ) -> Result<NewObject, ObjectError> {
        self.on_drive(drive, |state, now| {
            state.require_space(BLOCK_BYTES as u64)?;
            let id = ObjectId(state.next);
            state.next += 1;
            let mut object = Object {
                attributes: fresh_attributes(now),
                data: Vec::new(),
            };
            object.change(initial, now);
            let attributes = object.attributes.clone();
            state.objects.insert(id, object);
            if durable {
                state.make_durable(id);
            }
            Ok(NewObject {
                handle: handle(drive, id),
                attributes,
            })
        })
    }

    fn remove(&self, object: FileHandle, durable: bool, _wait: Wait) -> Result<(), ObjectError> {
        self.on_drive(object.drive, |state, _now| {
            state.object(object.object)?;
            state.objects.remove(&object.object);
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
            let found = state.object(object.object)?;
            found.change(changes, now);
            let attributes = found.attributes.clone();
            state.make_durable(object.object);
            Ok(attributes)
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
            let start = data.len().min(offset as usize);
            let end = data.len().min(start.saturating_add(length as usize));
            Ok(data[start..end].to_vec())
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
            let grows = end.saturating_sub(state.object(object.object)?.data.len());
            if grows > 0 {
                state.require_space(grows as u64)?;
            }
            let found = state.object(object.object)?;
            if found.data.len() < end {
                found.data.resize(end, 0);
            }
            found.data[offset as usize..end].copy_from_slice(data);
            found.touch_data(now);
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
                started: Timestamp(0),
                capacity_bytes: state.capacity_bytes,
                used_bytes: state.used_bytes(),
                cache_bytes: 0,
                block_size: BLOCK_BYTES as u32,
                capability_bytes_read: 0,
                capability_bytes_written: 0,
                key_bytes_read: 0,
                key_bytes_written: 0,
                requests: 0,
                refusals: 0,
                partitions: vec![state.summary()],
            })
        })
    }

    fn partition_control(&self, drive: DriveId) -> Result<PartitionControl, ObjectError> {
        self.on_drive(drive, |state, _now| {
            let free_bytes = state.capacity_bytes.saturating_sub(state.used_bytes());
            Ok(PartitionControl {
                summary: state.summary(),
                free_bytes,
            })
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
        }
    }
}

impl Object {
    fn change(&mut self, changes: &SetAttributes, now: Timestamp) {
        if let Some(size) = changes.logical_size {
            self.data.resize(size as usize, 0);
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
        self.attributes.blocks_used = 1 + self.data.len().div_ceil(BLOCK_BYTES) as u64;
        self.attributes.data_modify_time = now;
        self.attributes.fs_data_modify_time = now;
    }
}

fn handle(drive: DriveId, object: ObjectId) -> FileHandle {
    FileHandle {
        drive,
        partition: PARTITION,
        object,
    }
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
