//! Start: find the volume or make it, and finish what an earlier manager has begun.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use nasd_protocol::manager::{FileHandle, FileType};
use nasd_types::limits::MAX_NAME_BYTES;
use nasd_types::{CellId, DriveId, ObjectId, SetAttributes};
use thiserror::Error;

use super::commit::IntentLog;
use super::{Namespace, NamespaceOptions, RootOptions};
use crate::directory::DirectoryCache;
use crate::file_record::{FileRecord, MODE_BITS};
use crate::intent::{self, IntentError, SLOT_BYTES, SLOTS};
use crate::locks::LockTable;
use crate::lru::Lru;
use crate::mint::Mint;
use crate::objects::{ObjectError, ObjectStore, Wait};
use crate::placement::Placement;
use crate::volume::{VOLUME_RECORD_BYTES, VolumeError, VolumeRecord};

/// Why a volume can't be served.
#[derive(Debug, Error)]
pub enum StartError {
    /// The configuration names no drive for the volume record.
    #[error("the volume's home, drive {0}, is not among the configured drives")]
    NoHome(DriveId),
    /// A volume needs a name of 1 to 255 bytes.
    #[error("a volume's name has 1 to {MAX_NAME_BYTES} bytes")]
    BadName,
    /// A drive failed, or did not come in time.
    #[error("could not {what} on drive {drive}: {source}")]
    Drive {
        /// What was tried.
        what: &'static str,
        /// Where.
        drive: DriveId,
        /// How it failed.
        source: ObjectError,
    },
    /// The First Object's contents can't be understood.
    #[error("on drive {drive}: {source}")]
    Volume {
        /// The volume's home.
        drive: DriveId,
        /// What is wrong.
        source: VolumeError,
    },
    /// There is another volume.
    #[error("the drive holds the volume `{found}`, not `{expected}`")]
    OtherVolume {
        /// The volume's name on the drive.
        found: String,
        /// The configured one.
        expected: String,
    },
    /// The volume belongs to another cell.
    #[error("the volume belongs to cell {found}, not to {expected}")]
    OtherCell {
        /// The cell in the volume record.
        found: CellId,
        /// The configured one.
        expected: CellId,
    },
    /// The intent log can't be understood; changes may be half done.
    #[error("slot {slot} of the intent log: {source}")]
    Log {
        /// Which slot.
        slot: usize,
        /// What is wrong.
        source: IntentError,
    },
}

impl Namespace {
    /// Opens the volume, or makes it where there is none yet, and finishes changes that an earlier
    /// manager has left. A change that needs a drive that is away stays pending; what it would
    /// touch is unavailable until then.
    ///
    /// # Errors
    /// `StartError`; nothing was changed but what the name says.
    pub fn open(
        objects: Arc<dyn ObjectStore>,
        options: NamespaceOptions,
    ) -> Result<Namespace, StartError> {
        if options.volume.is_empty() || options.volume.len() > MAX_NAME_BYTES {
            return Err(StartError::BadName);
        }
        let volume = match read_volume(&*objects, &options)? {
            Some(volume) => volume,
            None => make_volume(&*objects, &options)?,
        };
        check_volume(&volume, &options)?;
        let namespace = Namespace {
            locks: LockTable::default(),
            records: Mutex::new(Lru::new(options.record_cache_entries)),
            directories: DirectoryCache::new(options.directory_cache_bytes),
            placement: Placement::new(&objects.drives()),
            controls: Mutex::new(HashMap::new()),
            log: IntentLog::new(),
            doomed: Mutex::new(HashSet::new()),
            mint: Mint::new(options.keys, &options.mint),
            objects,
            volume,
        };
        namespace.read_log()?;
        namespace.keep_house();
        Ok(namespace)
    }

    fn read_log(&self) -> Result<(), StartError> {
        let log = self.volume.log;
        let failed = |source| StartError::Drive { what: "read the log", drive: log.drive, source };
        // What was written but never answered must not vanish once it was acted upon.
        self.objects.flush(log, Wait::Patient).map_err(failed)?;
        let length = (SLOTS * SLOT_BYTES) as u64;
        let data = self.objects.read(log, 0, length, Wait::Patient).map_err(failed)?;
        for (slot, bytes) in data.chunks(SLOT_BYTES).enumerate() {
            let steps = intent::decode(bytes).map_err(|source| StartError::Log { slot, source })?;
            if !steps.is_empty() {
                tracing::info!(slot, steps = steps.len(), "finishing a change left in the log");
                self.log.adopt(slot, steps);
            }
        }
        Ok(())
    }
}

fn read_volume(
    objects: &dyn ObjectStore,
    options: &NamespaceOptions,
) -> Result<Option<VolumeRecord>, StartError> {
    let drive = options.home;
    let first = first_object(objects, drive)?;
    let failed = |source| StartError::Drive { what: "read the volume record", drive, source };
    objects.flush(first, Wait::Patient).map_err(failed)?;
    let length = VOLUME_RECORD_BYTES as u64;
    let data = objects.read(first, 0, length, Wait::Patient).map_err(failed)?;
    if data.is_empty() {
        return Ok(None);
    }
    let volume = VolumeRecord::parse(&data);
    volume.map(Some).map_err(|source| StartError::Volume { drive, source })
}

/// Makes the log, the root, and at last the record that names them.
fn make_volume(
    objects: &dyn ObjectStore,
    options: &NamespaceOptions,
) -> Result<VolumeRecord, StartError> {
    let drive = options.home;
    tracing::info!(%drive, "making the volume");
    let failed = |source| StartError::Drive { what: "make the volume", drive, source };
    let empty = SetAttributes::default();
    let log = objects.create(drive, &empty, false, Wait::Patient).map_err(failed)?.handle;
    let clear: Vec<u8> = (0..SLOTS).flat_map(|_| *intent::encode(&[])).collect();
    objects.write(log, 0, &clear, Wait::Patient).map_err(failed)?;
    let root = make_root(objects, drive, &options.root).map_err(failed)?;
    let volume = VolumeRecord { cell: options.cell, name: options.volume.clone(), root, log };
    let first = first_object(objects, drive)?;
    objects.write(first, 0, &volume.to_bytes(), Wait::Patient).map_err(failed)?;
    Ok(volume)
}

fn make_root(
    objects: &dyn ObjectStore,
    drive: DriveId,
    options: &RootOptions,
) -> Result<FileHandle, ObjectError> {
    let empty = SetAttributes::default();
    let root = objects.create(drive, &empty, false, Wait::Patient)?.handle;
    let owner = (options.uid, options.gid);
    let record = FileRecord {
        access_time: objects.drive_time(drive),
        parent: Some(root),
        ..FileRecord::new(FileType::Directory, options.mode & MODE_BITS, owner)
    };
    let changes = SetAttributes { fs_specific: Some(record.to_bytes()), ..empty };
    objects.setattr(root, &changes, Wait::Patient).map(|_| root)
}

fn first_object(objects: &dyn ObjectStore, drive: DriveId) -> Result<FileHandle, StartError> {
    let partition = objects.partition(drive).ok_or(StartError::NoHome(drive))?;
    Ok(FileHandle { drive, partition, object: ObjectId::FIRST_OBJECT })
}

fn check_volume(volume: &VolumeRecord, options: &NamespaceOptions) -> Result<(), StartError> {
    if volume.cell != options.cell {
        return Err(StartError::OtherCell { found: volume.cell, expected: options.cell });
    }
    if volume.name != options.volume {
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        return Err(StartError::OtherVolume {
            found: text(&volume.name),
            expected: text(&options.volume),
        });
    }
    Ok(())
}
