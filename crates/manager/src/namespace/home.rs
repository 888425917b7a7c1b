//! How what is in the journal comes home: to directories, records and symbolic links; and how what nothing
//! names any more is removed.
//!
//! ```text
//! the other area is begun -> contents are copied -> the journal is flushed up to there ->
//!     written, in batches by drive -> flushed, by the same instance -> the old area is free
//! ```
//!
//! No drive gets anything before all of it is durable in the journal: so at whatever point who dies, the
//! journal makes whole what is half done. What a drive that is away should have got is put into the
//! journal again.

use std::collections::{BTreeMap, HashSet};
use std::sync::PoisonError;

use nasd_protocol::drive::BatchOperation;
use nasd_protocol::manager::{FileHandle, ManagerStatus};
use nasd_types::limits::{BLOCK_BYTES, MAX_FLUSH_OBJECTS};
use nasd_types::{DriveId, FsSpecific, ObjectId, SetAttributes};

use super::{Namespace, Outcome, failure};
use crate::directory::overlay::{lay_over_block, numbers, parse_or_new};
use crate::directory::{DirectoryBlock, DirectoryError};
use crate::file_record::FileRecord;
use crate::handle::Shown;
use crate::journal::{Image, JournalError};
use crate::objects::{ObjectError, Wait};

/// Operations of one batch.
pub(super) const BATCH: usize = 512;

/// Most bytes of one write.
const WRITE_BYTES: usize = 256 << 10;

/// How often a drive is written to again that starts anew meanwhile.
const RESTARTS: usize = 8;

/// What one drive is to get.
#[derive(Default)]
struct Load {
    /// In this order: object, offset, bytes.
    writes: Vec<(ObjectId, u64, Vec<u8>)>,
    changes: Vec<(ObjectId, SetAttributes)>,
}

/// What of a directory is to be written.
struct Blocks {
    blocks: Vec<(u32, Box<[u8; BLOCK_BYTES]>)>,
    /// The object's length, if it is known to be no more.
    length: Option<u64>,
}

impl Namespace {
    /// Brings home what is in the journal, and removes what is to be removed. What lies on drives that are
    /// away stays in the journal.
    ///
    /// # Errors
    /// If the journal can't be written, or has no room for what must stay in it.
    pub fn bring_home(&self) -> Outcome<()> {
        let _one = self.going_home.lock().unwrap_or_else(PoisonError::into_inner);
        self.bring_going()?;
        if self.journal.has_changes() {
            self.journal.begin_area().map_err(|error| self.journal_failure(error))?;
            self.bring_going()?;
        }
        self.remove_doomed()
    }

    fn journal_failure(&self, error: JournalError) -> ManagerStatus {
        match error {
            JournalError::Full => {
                tracing::warn!("the journal is full of what can't be brought home");
                ManagerStatus::Unavailable
            }
            JournalError::Drive(error) => failure("write the journal", self.volume.log, &error),
        }
    }

    fn bring_going(&self) -> Outcome<()> {
        let Some(going) = self.journal.going() else {
            return Ok(());
        };
        let drives: HashSet<DriveId> = going.drives().collect();
        let collected = self.on_each(drives, |drive| self.collect(drive, &going));
        // What was copied may be newer than what was to go.
        let sequence = self.journal.sequence();
        self.journal.durable(sequence).map_err(|error| self.journal_failure(error))?;
        let mut failed = Vec::new();
        let mut loads = BTreeMap::new();
        for (drive, load) in collected {
            match load {
                Ok(load) => drop(loads.insert(drive, load)),
                Err(error) => failed.push((drive, error)),
            }
        }
        let drives = loads.keys().copied().collect();
        let written = self.on_each(drives, |drive| match loads.get(&drive) {
            Some(load) => self.write_home(drive, load),
            None => Ok(()),
        });
        let not_written = |(drive, done): (DriveId, Result<(), _>)| done.err().map(|e| (drive, e));
        failed.extend(written.into_iter().filter_map(not_written));
        for (drive, error) in &failed {
            tracing::warn!(%drive, %error, "changes can't be brought home yet");
        }
        let failed: Vec<DriveId> = failed.into_iter().map(|(drive, _)| drive).collect();
        self.journal.came_home(&failed).map_err(|error| self.journal_failure(error))
    }

    /// Does something for several drives at the same time.
    fn on_each<T: Send>(
        &self,
        drives: HashSet<DriveId>,
        run: impl Fn(DriveId) -> Result<T, ObjectError> + Sync,
    ) -> Vec<(DriveId, Result<T, ObjectError>)> {
        if drives.len() < 2 {
            return drives.into_iter().map(|drive| (drive, run(drive))).collect();
        }
        std::thread::scope(|scope| {
            let run = &run;
            let begun: Vec<_> =
                drives.into_iter().map(|drive| (drive, scope.spawn(move || run(drive)))).collect();
            let fault = |_| Err(ObjectError::Fault("a thread has panicked".to_owned()));
            begun
                .into_iter()
                .map(|(drive, done)| (drive, done.join().unwrap_or_else(fault)))
                .collect()
        })
    }

    /// Copies what a drive is to get.
    fn collect(&self, drive: DriveId, going: &Image) -> Result<Load, ObjectError> {
        let mut load = Load::default();
        let mut lengths = BTreeMap::new();
        for (directory, image) in going.directories.iter().filter(|(at, _)| at.drive == drive) {
            let found = match self.blocks_of(*directory, numbers(&image.slots)) {
                Ok(found) => found,
                // It was removed meanwhile.
                Err(ObjectError::NoSuchObject) => continue,
                Err(error) => return Err(error),
            };
            load.add_blocks(directory.object, found.blocks);
            lengths.insert(directory.object, found.length);
        }
        for (object, image) in going.records.iter().filter(|(at, _)| at.drive == drive) {
            let changes = SetAttributes {
                logical_size: lengths.remove(&object.object).flatten(),
                fs_attribute_modify_time: Some(image.changed),
                fs_data_modify_time: image.modified,
                fs_specific: Some(image.record.clone()),
                ..SetAttributes::default()
            };
            load.changes.push((object.object, changes));
        }
        for (object, data) in going.data.iter().filter(|(at, _)| at.drive == drive) {
            load.writes.push((object.object, 0, data.clone()));
        }
        Ok(load)
    }

    /// Blocks of a directory as they shall be now: from memory, or else from the drive, with what is in
    /// the journal over them.
    fn blocks_of(&self, directory: FileHandle, numbers: Vec<u32>) -> Result<Blocks, ObjectError> {
        if let Some(found) = self.blocks_in_memory(directory, &numbers) {
            return Ok(found);
        }
        let mut blocks = Vec::with_capacity(numbers.len());
        for number in numbers {
            let offset = u64::from(number) * BLOCK_BYTES as u64;
            let length = BLOCK_BYTES as u64;
            let data = self.objects.read(directory, offset, length, Wait::Brief)?;
            let block = match <&[u8; BLOCK_BYTES]>::try_from(&data[..]) {
                Ok(bytes) => parse_or_new(directory.object, number, bytes),
                Err(_) => Ok(DirectoryBlock::empty(directory.object, number)),
            };
            blocks.push((number, block));
        }
        let _alone = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        let slots = self.journal.slots(directory);
        let lay_over = |(number, block): (u32, Result<DirectoryBlock, DirectoryError>)| {
            let mut block = block?;
            lay_over_block(&mut block, number, &slots)?;
            Ok((number, Box::new(*block.bytes())))
        };
        let blocks: Result<Vec<_>, DirectoryError> = blocks.into_iter().map(lay_over).collect();
        let blocks = blocks.unwrap_or_else(|error| {
            tracing::error!(directory = %Shown(directory), %error, "bad directory");
            Vec::new()
        });
        Ok(Blocks { blocks, length: None })
    }

    fn blocks_in_memory(&self, directory: FileHandle, numbers: &[u32]) -> Option<Blocks> {
        let _alone = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        let cell = self.directories.peek(directory)?;
        let contents = cell.contents.try_read().ok()?;
        let contents = contents.as_ref()?;
        let copy =
            |number: &u32| contents.block(*number).map(|block| (*number, Box::new(*block.bytes())));
        let blocks = numbers.iter().filter_map(copy).collect();
        Some(Blocks { blocks, length: Some(contents.object_bytes()) })
    }

    /// Writes to one drive, until all that was written was flushed by the instance that has got it.
    fn write_home(&self, drive: DriveId, load: &Load) -> Result<(), ObjectError> {
        for _ in 0..RESTARTS {
            let mut instances = HashSet::new();
            let mut flush: Vec<ObjectId> = Vec::new();
            let partition = self.objects.partition(drive).ok_or(ObjectError::NoSuchObject)?;
            for (object, offset, data) in &load.writes {
                let handle = FileHandle { drive, partition, object: *object };
                match self.objects.write(handle, *offset, data, false, Wait::Brief) {
                    Ok(instance) => {
                        instances.insert(instance);
                        flush.push(*object);
                    }
                    // It was removed meanwhile; what is left is removed with it.
                    Err(ObjectError::NoSuchObject) => {}
                    Err(error) => return Err(error),
                }
            }
            self.change_home(drive, load)?;
            flush.dedup();
            for objects in flush.chunks(MAX_FLUSH_OBJECTS) {
                instances.insert(self.objects.flush(drive, objects, Wait::Brief)?);
            }
            if instances.len() < 2 {
                return Ok(());
            }
            tracing::warn!(%drive, "the drive has started anew: it is written to again");
        }
        let reason = "it starts anew again and again".to_owned();
        Err(ObjectError::Unavailable { reason, maybe_done: true })
    }

    fn change_home(&self, drive: DriveId, load: &Load) -> Result<(), ObjectError> {
        for changes in load.changes.chunks(BATCH) {
            let operation = |(object, set): &(ObjectId, SetAttributes)| {
                BatchOperation::Setattr(*object, set.clone())
            };
            let operations: Vec<BatchOperation> = changes.iter().map(operation).collect();
            for outcome in self.objects.batch(drive, &operations, true, Wait::Brief)? {
                match outcome {
                    Ok(_) | Err(ObjectError::NoSuchObject) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Removes what nothing names, many at a time; what lies on drives that are away stays to be removed.
    ///
    /// # Errors
    /// If the journal can't be written: nothing is removed whose name might come back.
    pub(super) fn remove_doomed(&self) -> Outcome<()> {
        let mut doomed: BTreeMap<DriveId, Vec<FileHandle>> = BTreeMap::new();
        self.journal.ledger(|ledger| {
            for object in &ledger.doomed {
                doomed.entry(object.drive).or_default().push(*object);
            }
        });
        if doomed.is_empty() {
            return Ok(());
        }
        self.commit()?;
        let drives = doomed.keys().copied().collect();
        let removed = self.on_each(drives, |drive| {
            doomed.get(&drive).map_or(Ok(()), |objects| self.remove_all(drive, objects))
        });
        for (drive, error) in removed.into_iter().filter_map(|(at, done)| Some((at, done.err()?))) {
            tracing::warn!(%drive, %error, "objects can't be removed yet");
        }
        Ok(())
    }

    fn remove_all(&self, drive: DriveId, objects: &[FileHandle]) -> Result<(), ObjectError> {
        let Some(_leaving) = self.begin_removal(drive) else {
            // They are counted first.
            return Ok(());
        };
        for objects in objects.chunks(BATCH) {
            self.note_leaving(drive, objects)?;
            let operations: Vec<BatchOperation> =
                objects.iter().map(|object| BatchOperation::Remove(object.object)).collect();
            let batched = self.objects.batch(drive, &operations, true, Wait::Brief)?;
            let is_gone = |outcome: &Result<_, ObjectError>| {
                matches!(outcome, Ok(_) | Err(ObjectError::NoSuchObject))
            };
            let gone = objects.iter().zip(&batched).filter(|(_, end)| is_gone(end));
            let gone: Vec<FileHandle> = gone.map(|(object, _)| *object).collect();
            self.have_left(&gone);
            self.journal.removed(gone);
        }
        Ok(())
    }

    /// Records in a journal that was found at the start give way to newer ones at the drives: what was
    /// changed there at once, by a manager that died before it came to the journal.
    pub(super) fn prefer_newer_records(&self) {
        let Some(going) = self.journal.going() else {
            return;
        };
        let drives: HashSet<DriveId> = going.drives().collect();
        for (drive, found) in self.on_each(drives, |drive| self.newer_records(drive, &going)) {
            match found {
                Ok(newer) => self.journal.leave_out(&newer),
                Err(error) => tracing::warn!(%drive, %error, "could not look at records"),
            }
        }
    }

    /// The files whose records at the drive are newer, and durable there.
    fn newer_records(&self, drive: DriveId, going: &Image) -> Result<Vec<FileHandle>, ObjectError> {
        let revision = |record: &_| FileRecord::parse(record).map_or(0, |record| record.revision);
        let mut here: Vec<(FileHandle, u64)> = going
            .records
            .iter()
            .filter(|(object, _)| object.drive == drive)
            .map(|(object, image)| (*object, revision(&image.record)))
            .collect();
        self.retain_newer(drive, &mut here, revision)?;
        let objects: Vec<ObjectId> = here.iter().map(|(object, _)| object.object).collect();
        for objects in objects.chunks(MAX_FLUSH_OBJECTS) {
            self.objects.flush(drive, objects, Wait::Brief)?;
        }
        // What a drive that has started anew meanwhile still has is durable as well.
        self.retain_newer(drive, &mut here, revision)?;
        Ok(here.into_iter().map(|(object, _)| object).collect())
    }

    /// Leaves those of which the drive has a later revision.
    fn retain_newer(
        &self,
        drive: DriveId,
        records: &mut Vec<(FileHandle, u64)>,
        revision: impl Fn(&FsSpecific) -> u64,
    ) -> Result<(), ObjectError> {
        let mut newer = Vec::new();
        for asked in records.chunks(BATCH) {
            let operations: Vec<BatchOperation> =
                asked.iter().map(|(at, _)| BatchOperation::Getattr(at.object)).collect();
            let batched = self.objects.batch(drive, &operations, false, Wait::Brief)?;
            for (known, outcome) in asked.iter().zip(batched) {
                let found = outcome.ok().and_then(|done| done.attributes);
                if found.is_some_and(|found| revision(&found.fs_specific) > known.1) {
                    newer.push(*known);
                }
            }
        }
        *records = newer;
        Ok(())
    }
}

impl Load {
    /// Adds blocks, neighbours in one write.
    fn add_blocks(&mut self, object: ObjectId, blocks: Vec<(u32, Box<[u8; BLOCK_BYTES]>)>) {
        for (number, bytes) in blocks {
            let offset = u64::from(number) * BLOCK_BYTES as u64;
            match self.writes.last_mut() {
                Some((last, start, data))
                    if *last == object
                        && *start + data.len() as u64 == offset
                        && data.len() < WRITE_BYTES =>
                {
                    data.extend_from_slice(&bytes[..]);
                }
                _ => self.writes.push((object, offset, bytes.to_vec())),
            }
        }
    }
}
