//! A volume of its own out of partitions that are copies of another volume's.
//!
//! A copy has the same objects under the same numbers. What says in which partition an object lies is the other volume's still: the
//! entries of directories, the parents in their records, and the volume record. They are written anew here, before anybody is
//! served; and what nothing leads to is removed: objects that were made ahead, and files without a name that somebody had open. The
//! journal, of which nothing is needed since all was home when it was copied, begins anew.
//!
//! The volume record is written last, when all else is durable. Whatever goes wrong before that, it can be done again.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use nasd_protocol::drive::BatchOperation;
use nasd_protocol::manager::{FileHandle, FileType};
use nasd_types::limits::{BLOCK_BYTES, MAX_NAME_BYTES};
use nasd_types::{CellId, DriveId, ObjectId, PartitionId, SetAttributes, Timestamp};
use thiserror::Error;

use crate::config::ManagerConfig;
use crate::directory::overlay::parse_or_new;
use crate::directory::{DirectoryBlock, DirectoryError};
use crate::file_record::FileRecord;
use crate::handle::Shown;
use crate::journal::empty_journal;
use crate::keys::WorkingKeys;
use crate::objects::remote::RemoteDrives;
use crate::objects::{ObjectError, ObjectStore, Wait};
use crate::volume::{VOLUME_RECORD_BYTES, VolumeError, VolumeRecord};

/// Operations of one batch.
const BATCH: usize = 512;

/// Most bytes of a directory that are read, or written, at a time.
const TRANSFER_BYTES: usize = 256 << 10;

/// What the volume is to be.
#[derive(Clone, Debug)]
pub struct Adoption {
    /// The cell that it belongs to.
    pub cell: CellId,
    /// Its name, 1 to 255 bytes.
    pub name: Vec<u8>,
    /// The drive whose partition's First Object holds the volume record.
    pub home: DriveId,
    /// The partitions that its own are copies of.
    pub source: BTreeMap<DriveId, PartitionId>,
}

/// What it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Adopted {
    /// Directories.
    pub directories: u64,
    /// Other files.
    pub files: u64,
    /// Objects that nothing led to, which were removed.
    pub removed: u64,
}

/// Why it is no volume yet.
#[derive(Debug, Error)]
pub enum AdoptError {
    /// A volume needs a name of 1 to 255 bytes.
    #[error("a volume's name has 1 to {MAX_NAME_BYTES} bytes")]
    BadName,
    /// A drive failed, or did not come in time.
    #[error("could not {what} {object}: {source}")]
    Drive {
        /// What was tried.
        what: &'static str,
        /// Of what.
        object: String,
        /// How it failed.
        source: ObjectError,
    },
    /// The First Object's contents can't be understood.
    #[error("the copy holds no volume: {0}")]
    Volume(#[from] VolumeError),
    /// A directory's can't.
    #[error(
        "the directory {object} is damaged: {source}; `nasd fsck` tells more of the volume that was copied"
    )]
    Directory {
        /// Which one.
        object: String,
        /// What is wrong.
        source: DirectoryError,
    },
    /// There is none.
    #[error("the volume's root {0} is no directory")]
    NoRoot(String),
    /// A drive was started anew, and may have lost something.
    #[error("drive {0} has started anew meanwhile")]
    Restarted(DriveId),
}

fn failed(what: &'static str, object: FileHandle) -> impl Fn(ObjectError) -> AdoptError {
    move |source| AdoptError::Drive { what, object: Shown(object).to_string(), source }
}

/// A directory as it was copied.
struct Found {
    record: FileRecord,
    length: u64,
    changed: Timestamp,
    modified: Timestamp,
}

/// The work.
struct Adopter<'a> {
    objects: &'a dyn ObjectStore,
    adoption: &'a Adoption,
    /// All objects, those of files and others.
    all: HashSet<FileHandle>,
    directories: HashMap<FileHandle, Found>,
    /// Objects of extended attributes, by their files.
    attributes: HashMap<FileHandle, FileHandle>,
    /// What something leads to.
    reached: HashSet<FileHandle>,
    /// Which start of each drive has got what was written.
    instances: HashMap<DriveId, u64>,
    adopted: Adopted,
}

/// Makes a volume of copied partitions; `objects` are theirs. Tells `progress` how many directories are done.
///
/// # Errors
/// [`AdoptError`]. It may be done again, unless the copy is damaged.
pub fn adopt(
    objects: &dyn ObjectStore,
    adoption: &Adoption,
    progress: &mut dyn FnMut(u64),
) -> Result<Adopted, AdoptError> {
    if adoption.name.is_empty() || adoption.name.len() > MAX_NAME_BYTES {
        return Err(AdoptError::BadName);
    }
    let mut adopter = Adopter {
        objects,
        adoption,
        all: HashSet::new(),
        directories: HashMap::new(),
        attributes: HashMap::new(),
        reached: HashSet::new(),
        instances: HashMap::new(),
        adopted: Adopted::default(),
    };
    let first = adopter.first_object()?;
    let data = objects
        .read(first, 0, VOLUME_RECORD_BYTES as u64, Wait::Patient)
        .map_err(failed("read the volume record", first))?;
    let before = VolumeRecord::parse(&data)?;
    let record = VolumeRecord {
        cell: adoption.cell,
        name: adoption.name.clone(),
        root: adopter.renamed(before.root),
        log: adopter.renamed(before.log),
        journal_area_bytes: before.journal_area_bytes,
    };
    for drive in objects.drives() {
        adopter.survey(drive)?;
    }
    adopter.walk(record.root, progress)?;
    adopter.begin_journal(record.log)?;
    adopter.reached.insert(record.log);
    adopter.sweep()?;
    adopter.flush()?;
    objects
        .write(first, 0, &record.to_bytes(), true, Wait::Patient)
        .map_err(failed("write the volume record", first))?;
    Ok(adopter.adopted)
}

/// The same over the drives of a configuration, by their working keys.
///
/// # Errors
/// [`AdoptError`].
pub fn adopt_partitions(
    config: &ManagerConfig,
    source: BTreeMap<DriveId, PartitionId>,
    progress: &mut dyn FnMut(u64),
) -> Result<Adopted, AdoptError> {
    let keys = config.drives.iter().map(|drive| (drive.id, drive.keys.clone()));
    let keys = Arc::new(WorkingKeys::new(keys, None));
    let drives = RemoteDrives::new(config, keys);
    let (cell, name, home) = (config.cell, config.volume.as_bytes().to_vec(), config.home);
    adopt(&drives, &Adoption { cell, name, home, source }, progress)
}

impl Adopter<'_> {
    fn first_object(&self) -> Result<FileHandle, AdoptError> {
        let drive = self.adoption.home;
        let partition = self.objects.partition(drive).unwrap_or(PartitionId(0));
        let first = FileHandle { drive, partition, object: ObjectId::FIRST_OBJECT };
        match partition {
            PartitionId(0) => Err(failed("find", first)(ObjectError::NoSuchObject)),
            _ => Ok(first),
        }
    }

    /// What a handle of the other volume is here. One of a drive that has no part of it leads nowhere, as it did.
    fn renamed(&self, handle: FileHandle) -> FileHandle {
        match self.objects.partition(handle.drive) {
            Some(partition)
                if self.adoption.source.get(&handle.drive) == Some(&handle.partition) =>
            {
                FileHandle { partition, ..handle }
            }
            _ => handle,
        }
    }

    /// Which objects there are on a drive, and what of them leads to others.
    fn survey(&mut self, drive: DriveId) -> Result<(), AdoptError> {
        let Some(partition) = self.objects.partition(drive) else { return Ok(()) };
        let mut from = ObjectId::FIRST_DYNAMIC;
        loop {
            let at = FileHandle { drive, partition, object: from };
            let listed = self.objects.objects_from(drive, from, Wait::Patient);
            let listed = listed.map_err(failed("list objects from", at))?;
            let Some(last) = listed.last() else { return Ok(()) };
            from = ObjectId(last.0 + 1);
            for asked in listed.chunks(BATCH) {
                self.look_at(drive, partition, asked)?;
            }
        }
    }

    fn look_at(
        &mut self,
        drive: DriveId,
        partition: PartitionId,
        asked: &[ObjectId],
    ) -> Result<(), AdoptError> {
        let operations: Vec<BatchOperation> =
            asked.iter().map(|object| BatchOperation::Getattr(*object)).collect();
        let at = FileHandle { drive, partition, object: asked[0] };
        let outcomes = self.objects.batch(drive, &operations, false, Wait::Patient);
        let outcomes = outcomes.map_err(failed("read the attributes from", at))?;
        for (object, outcome) in asked.iter().zip(outcomes) {
            let handle = FileHandle { drive, partition, object: *object };
            let done = outcome.map_err(failed("read the attributes of", handle))?;
            self.all.insert(handle);
            let Some(attributes) = done.attributes else { continue };
            let Ok(record) = FileRecord::parse(&attributes.fs_specific) else { continue };
            if let Some(extended) = record.attribute_handle(handle) {
                self.attributes.insert(handle, extended);
            }
            if record.is_directory() {
                let found = Found {
                    record,
                    length: attributes.logical_size,
                    changed: attributes.fs_attribute_modify_time,
                    modified: attributes.fs_data_modify_time,
                };
                self.directories.insert(handle, found);
            }
        }
        Ok(())
    }

    /// Writes all directories anew, from the root on.
    fn walk(&mut self, root: FileHandle, progress: &mut dyn FnMut(u64)) -> Result<(), AdoptError> {
        if !self.directories.contains_key(&root) {
            return Err(AdoptError::NoRoot(Shown(root).to_string()));
        }
        let mut waiting = VecDeque::from([root]);
        let mut records: BTreeMap<DriveId, Vec<(ObjectId, SetAttributes)>> = BTreeMap::new();
        self.reach(root);
        while let Some(directory) = waiting.pop_front() {
            let Some(found) = self.directories.get(&directory) else { continue };
            let parent = found.record.parent.map(|parent| self.renamed(parent));
            let record = FileRecord { parent, ..found.record };
            // The times are those of the other one's, whatever is written.
            let set = SetAttributes {
                fs_specific: Some(record.to_bytes()),
                fs_attribute_modify_time: Some(found.changed),
                fs_data_modify_time: Some(found.modified),
                ..SetAttributes::default()
            };
            for (entry, file_type) in self.rewrite(directory, found.length)? {
                // A directory has one name; a damaged volume must not lead round in circles.
                let is_new = self.reach(entry);
                if file_type == FileType::Directory && is_new {
                    waiting.push_back(entry);
                }
                self.adopted.files += u64::from(is_new && file_type != FileType::Directory);
            }
            let of_drive = records.entry(directory.drive).or_default();
            of_drive.push((directory.object, set));
            if of_drive.len() >= BATCH {
                let done = std::mem::take(of_drive);
                self.set(directory.drive, &done)?;
            }
            self.adopted.directories += 1;
            progress(self.adopted.directories);
        }
        records.iter().try_for_each(|(drive, records)| self.set(*drive, records))
    }

    /// Something leads there; whether that is news.
    fn reach(&mut self, file: FileHandle) -> bool {
        if let Some(extended) = self.attributes.get(&file) {
            self.reached.insert(*extended);
        }
        self.reached.insert(file)
    }

    /// Writes a directory's blocks anew; what they lead to.
    fn rewrite(
        &mut self,
        directory: FileHandle,
        length: u64,
    ) -> Result<Vec<(FileHandle, FileType)>, AdoptError> {
        let mut entries = Vec::new();
        let mut offset = 0;
        while offset < length {
            let bytes = (length - offset).min(TRANSFER_BYTES as u64);
            let read = self.objects.read(directory, offset, bytes, Wait::Patient);
            let mut data = read.map_err(failed("read the directory", directory))?;
            let mut is_changed = false;
            for (at, bytes) in data.as_chunks_mut::<BLOCK_BYTES>().0.iter_mut().enumerate() {
                let number = (offset / BLOCK_BYTES as u64) as u32 + at as u32;
                let block = parse_or_new(directory.object, number, bytes);
                let mut block = block.map_err(|source| AdoptError::Directory {
                    object: Shown(directory).to_string(),
                    source,
                })?;
                if self.rename_entries(&mut block, &mut entries) {
                    block.advance_revision();
                    bytes.copy_from_slice(&block.bytes()[..]);
                    is_changed = true;
                }
            }
            if is_changed {
                self.write(directory, offset, &data)?;
            }
            offset += bytes;
        }
        Ok(entries)
    }

    /// Lets the entries of a block lead to what is here; whether one of them did not.
    fn rename_entries(
        &self,
        block: &mut DirectoryBlock,
        entries: &mut Vec<(FileHandle, FileType)>,
    ) -> bool {
        let mut changes = Vec::new();
        for (slot, entry) in block.entries() {
            let handle = self.renamed(entry.handle);
            entries.push((handle, entry.file_type));
            if handle != entry.handle {
                changes.push((slot, handle, entry.file_type));
            }
        }
        for (slot, handle, file_type) in &changes {
            block.replace(*slot, *handle, *file_type);
        }
        !changes.is_empty()
    }

    fn write(&mut self, object: FileHandle, offset: u64, data: &[u8]) -> Result<(), AdoptError> {
        let written = self.objects.write(object, offset, data, false, Wait::Patient);
        let instance = written.map_err(failed("write", object))?;
        match self.instances.insert(object.drive, instance) {
            Some(before) if before != instance => Err(AdoptError::Restarted(object.drive)),
            _ => Ok(()),
        }
    }

    fn set(&self, drive: DriveId, records: &[(ObjectId, SetAttributes)]) -> Result<(), AdoptError> {
        let set = |(object, set): &(ObjectId, SetAttributes)| {
            BatchOperation::Setattr(*object, set.clone())
        };
        self.batch(drive, records.iter().map(set).collect())
    }

    /// Does something with many objects, durably.
    fn batch(&self, drive: DriveId, operations: Vec<BatchOperation>) -> Result<(), AdoptError> {
        let partition = self.objects.partition(drive).unwrap_or(PartitionId(0));
        let at = FileHandle { drive, partition, object: ObjectId::FIRST_OBJECT };
        for operations in operations.chunks(BATCH) {
            let outcomes = self.objects.batch(drive, operations, true, Wait::Patient);
            for outcome in outcomes.map_err(failed("change objects beside", at))? {
                match outcome {
                    Ok(_) | Err(ObjectError::NoSuchObject) => {}
                    Err(error) => return Err(failed("change an object beside", at)(error)),
                }
            }
        }
        Ok(())
    }

    fn begin_journal(&mut self, log: FileHandle) -> Result<(), AdoptError> {
        let empty = SetAttributes { logical_size: Some(0), ..SetAttributes::default() };
        let cut = self.objects.setattr(log, &empty, false, Wait::Patient);
        cut.map_err(failed("empty the journal", log))?;
        self.write(log, 0, &empty_journal())
    }

    /// Removes what nothing leads to.
    fn sweep(&mut self) -> Result<(), AdoptError> {
        let mut lost: BTreeMap<DriveId, Vec<BatchOperation>> = BTreeMap::new();
        for object in self.all.difference(&self.reached) {
            lost.entry(object.drive).or_default().push(BatchOperation::Remove(object.object));
        }
        for (drive, operations) in lost {
            self.adopted.removed += operations.len() as u64;
            self.batch(drive, operations)?;
        }
        Ok(())
    }

    /// Makes all of it durable.
    fn flush(&self) -> Result<(), AdoptError> {
        for drive in self.objects.drives() {
            let partition = self.objects.partition(drive).unwrap_or(PartitionId(0));
            let at = FileHandle { drive, partition, object: ObjectId::FIRST_OBJECT };
            let flushed = self.objects.flush(drive, &[], Wait::Patient);
            let instance = flushed.map_err(failed("make durable all beside", at))?;
            if self.instances.get(&drive).is_some_and(|before| *before != instance) {
                return Err(AdoptError::Restarted(drive));
            }
        }
        Ok(())
    }
}
