//! Start: find the volume or make it, and finish what an earlier manager has begun.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, RwLock};

use nasd_protocol::manager::{FileHandle, FileType};
use nasd_types::limits::{BLOCK_BYTES, MAX_NAME_BYTES};
use nasd_types::{CellId, DriveId, ObjectId, Personality, SetAttributes};
use thiserror::Error;

use super::ahead::Pool;
use super::once::Running;
use super::quota::Quota;
use super::told::Told;
use super::{Namespace, NamespaceOptions, RootOptions};
use crate::directory::DirectoryCache;
use crate::file_record::{FileRecord, MODE_BITS};
use crate::journal::{AREAS, Journal, MAX_AREA_BYTES, MIN_AREA_BYTES, OpenError, empty_journal};
use crate::locks::LockTable;
use crate::lru::Lru;
use crate::mint::Mint;
use crate::objects::{ObjectError, ObjectStore, Wait};
use crate::placement::Placement;
use crate::volume::{VOLUME_RECORD_BYTES, VolumeError, VolumeRecord};

/// An area of a new journal takes this part of the room that there is, at most.
const ROOM_OF_AN_AREA: u64 = 256;

/// How many times as much room as a journal takes there must be for one that was made without any to be given it.
const PLENTY: u64 = 4;

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
    /// The journal can't be read: changes may be half done.
    #[error("the journal of the volume, on drive {drive}: {source}")]
    Journal {
        /// The volume's home.
        drive: DriveId,
        /// What is wrong.
        source: OpenError,
    },
    /// Areas of a journal that could not hold a change.
    #[error("an area of a journal has {MIN_AREA_BYTES} bytes at least, not {0}")]
    AreaTooSmall(usize),
}

impl Namespace {
    /// Opens the volume, or makes it where there is none yet, and brings home what an earlier manager has
    /// left in the journal. What drives that are away should get stays there.
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
        if options.journal_area_bytes < MIN_AREA_BYTES {
            return Err(StartError::AreaTooSmall(options.journal_area_bytes));
        }
        let volume = match read_volume(&*objects, &options)? {
            Some(volume) => volume,
            None => make_volume(&*objects, &options)?,
        };
        check_volume(&volume, &options)?;
        if !options.read_only {
            reserve_journal(&*objects, &volume);
        }
        let journal = Journal::open(Arc::clone(&objects), volume.log, volume.journal_area_bytes)
            .map_err(|source| StartError::Journal { drive: volume.log.drive, source })?;
        let quota = options.quota.filter(|_| options.personality == Personality::Afs);
        let namespace = Namespace {
            quota: Quota::new(quota, objects.drives()),
            locks: LockTable::default(),
            records: Mutex::new(Lru::new(options.record_cache_entries)),
            told: Told::default(),
            directories: DirectoryCache::new(options.directory_cache_bytes),
            placement: Placement::new(&objects.drives()),
            controls: Mutex::new(HashMap::new()),
            journal,
            gate: RwLock::new(()),
            going_home: Mutex::new(()),
            pool: Pool::default(),
            running: Running::default(),
            orphaned: Mutex::new(Vec::new()),
            mint: Mint::new(Arc::clone(&options.keys), &options.mint),
            personality: options.personality,
            read_only: options.read_only,
            door: Arc::default(),
            keys: options.keys,
            made: Mutex::default(),
            giving_lists: Mutex::default(),
            tends_lists: AtomicBool::new(false),
            settled: Mutex::default(),
            objects,
            volume,
        };
        namespace.adopt_orphans();
        namespace.prefer_newer_records();
        namespace.disown_ahead();
        namespace.keep_house();
        Ok(namespace)
    }
}

fn read_volume(
    objects: &dyn ObjectStore,
    options: &NamespaceOptions,
) -> Result<Option<VolumeRecord>, StartError> {
    let drive = options.home;
    let first = first_object(objects, drive)?;
    let failed = |source| StartError::Drive { what: "read the volume record", drive, source };
    objects.flush(drive, &[first.object], Wait::Patient).map_err(failed)?;
    let length = VOLUME_RECORD_BYTES as u64;
    let data = objects.read(first, 0, length, Wait::Patient).map_err(failed)?;
    if data.is_empty() {
        return Ok(None);
    }
    let volume = VolumeRecord::parse(&data);
    volume.map(Some).map_err(|source| StartError::Volume { drive, source })
}

/// Makes the journal, the root, and at last the record that names them.
fn make_volume(
    objects: &dyn ObjectStore,
    options: &NamespaceOptions,
) -> Result<VolumeRecord, StartError> {
    let drive = options.home;
    tracing::info!(%drive, "making the volume");
    let failed = |source| StartError::Drive { what: "make the volume", drive, source };
    let room = objects.partition_control(drive).map_err(failed)?.free_bytes;
    let area = area_bytes(room, options.journal_area_bytes);
    let initial = SetAttributes::default();
    let log = objects.create(drive, &initial, false, Wait::Patient).map_err(failed)?.handle;
    objects.write(log, 0, &empty_journal(), true, Wait::Patient).map_err(failed)?;
    let root = make_root(objects, drive, &options.root).map_err(failed)?;
    let volume = VolumeRecord {
        cell: options.cell,
        name: options.volume.clone(),
        root,
        log,
        journal_area_bytes: area,
    };
    let first = first_object(objects, drive)?;
    objects.write(first, 0, &volume.to_bytes(), true, Wait::Patient).map_err(failed)?;
    Ok(volume)
}

/// Bytes of an area of the journal of a volume with so much room on its home drive, at most as many as asked for.
fn area_bytes(room: u64, most: usize) -> usize {
    let part = usize::try_from(room / ROOM_OF_AN_AREA).unwrap_or(usize::MAX);
    part.clamp(MIN_AREA_BYTES, MAX_AREA_BYTES).next_multiple_of(BLOCK_BYTES).min(most)
}

/// Has the journal own the room that it will take: names can be removed from a volume that is full. A volume that was
/// made before this was done is given it where there is plenty.
fn reserve_journal(objects: &dyn ObjectStore, volume: &VolumeRecord) {
    let log = volume.log;
    let blocks = (AREAS * volume.journal_area_bytes).div_ceil(BLOCK_BYTES) as u64;
    let reserve = || {
        if objects.getattr(log, Wait::Patient)?.blocks_allocated >= blocks {
            return Ok(true);
        }
        let room = objects.partition_control(log.drive)?.free_bytes / BLOCK_BYTES as u64;
        if room < blocks.saturating_mul(PLENTY) {
            return Ok(false);
        }
        let blocks_allocated = Some(blocks);
        let changes = SetAttributes { blocks_allocated, ..SetAttributes::default() };
        objects.setattr(log, &changes, true, Wait::Patient).map(|_| true)
    };
    match reserve() {
        Ok(true) => {}
        Ok(false) => tracing::debug!("there is too little room to reserve some for the journal"),
        Err(error) => tracing::warn!(%error, "no room can be reserved for the journal"),
    }
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
    objects.setattr(root, &changes, true, Wait::Patient).map(|_| root)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_journal_of_a_small_volume_is_small() {
        let most = 4 << 20;
        assert_eq!(area_bytes(1 << 40, most), most);
        assert_eq!(area_bytes(1 << 30, most), most);
        assert_eq!(area_bytes(64 << 20, most), 256 << 10);
        let least = area_bytes(0, most);
        assert!((MIN_AREA_BYTES..MIN_AREA_BYTES + BLOCK_BYTES).contains(&least), "{least}");
        assert_eq!(area_bytes(u64::MAX, MIN_AREA_BYTES), MIN_AREA_BYTES);
    }
}
