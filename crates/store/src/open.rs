//! Opening a formatted device: finding its superblock and its tree, replaying the log, and from the
//! extents what is free.
//!
//! The free map is not stored; a scan of all extents makes it (about 0.1 us an extent), and checks on
//! the way that blocks belong to one extent, or are shared.

use std::sync::Arc;

use nasd_device::BlockDevice;
use nasd_types::ObjectName;

use crate::cache::Cache;
use crate::free_map::{FreeMap, Run};
use crate::geometry::Geometry;
use crate::log::{Inlined, ReplayError, replay};
use crate::metadata::record::Extent;
use crate::metadata::{DriveRecords, Metadata, TreeError};
use crate::packing::PackedIn;
use crate::space::{Account, Space};
use crate::store::Parts;
use crate::superblock::{self, Found, Superblock};
use crate::{Identity, OpenError, OpenOptions, Store};

/// The smallest cache that can work at all.
const CACHE_BYTES_MIN: usize = 1 << 20;

impl Store {
    /// Reads who the drive is without opening it.
    pub fn read_identity(device: &dyn BlockDevice) -> Result<Identity, OpenError> {
        let superblock = superblock::find(device)?.superblock;
        Ok(Identity { drive: superblock.drive, cell: superblock.cell })
    }

    /// Opens a formatted device. The device's own lock keeps other processes out.
    pub fn open(device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Store, OpenError> {
        if options.cache_bytes < CACHE_BYTES_MIN {
            let least = format!("cache_bytes must be at least {CACHE_BYTES_MIN}");
            return Err(OpenError::Options(least));
        }
        let found = superblock::find(&*device)?;
        repair_superblock(&*device, &found)?;
        let Superblock { drive, cell, geometry, log_key, .. } = found.superblock;
        let identity = Identity { drive, cell };
        let cache = options.metadata_cache_bytes;
        let metadata = Metadata::open(device.clone(), &geometry, cache)?;
        recover(&device, &geometry, log_key, &metadata)?;
        let records = metadata.drive()?;
        check_identifiers(&metadata, &records)?;
        let packed_in = PackedIn::default();
        let accounts = accounts(&metadata, &geometry, &records, &packed_in)?;
        metadata.opened();
        Ok(Store::assemble(Parts {
            device,
            geometry,
            identity,
            log_key,
            metadata,
            records,
            accounts,
            packed_in,
            cache: Cache::new(options.cache_bytes)?,
            options: options.clone(),
        }))
    }
}

/// Applies what the log has and the tree does not, and makes a checkpoint.
fn recover(
    device: &Arc<dyn BlockDevice>,
    geometry: &Geometry,
    log_key: u64,
    metadata: &Metadata,
) -> Result<(), OpenError> {
    let before = metadata.drive()?.mark;
    let inlined = Inlined::default();
    let replayed = replay(&**device, geometry, log_key, before, |changes, mark| {
        metadata.replay(&changes, mark, &mut |effects| {
            for (run, contents) in &effects.inlined {
                inlined.insert(*run, contents);
            }
            inlined.forget(&effects.freed);
        })
    });
    let mark = match replayed {
        Ok(mark) => mark,
        Err(error) => {
            metadata.sever("the log could not be replayed");
            return Err(match error {
                ReplayError::Damaged(what) => OpenError::Damaged(what),
                ReplayError::Device(error) => OpenError::Device(error),
                ReplayError::Apply(error) => error.into(),
            });
        }
    };
    if mark == before {
        return Ok(());
    }
    tracing::info!(entries = mark.applied - before.applied, "the log was replayed");
    inlined.bring_home(&**device, geometry)?;
    Ok(metadata.begin()?.checkpoint(mark)?)
}

impl From<TreeError> for OpenError {
    fn from(error: TreeError) -> Self {
        OpenError::Damaged(error.to_string())
    }
}

/// Writes the superblock that is missing, damaged or old anew from the good one.
fn repair_superblock(device: &dyn BlockDevice, found: &Found) -> Result<(), OpenError> {
    let Some(place) = found.stale else {
        return Ok(());
    };
    tracing::warn!(place, "one superblock was damaged; it is written anew from the other");
    superblock::write_place(device, place, &found.superblock.encode())?;
    Ok(())
}

fn check_identifiers(metadata: &Metadata, records: &DriveRecords) -> Result<(), OpenError> {
    for (partition, _) in &records.partitions {
        let highest = metadata.highest_given(*partition)?;
        if highest.is_some_and(|highest| highest.0 >= records.counters.object_limit) {
            let what = "an object's identifier is above those given out".to_owned();
            return Err(OpenError::Damaged(what));
        }
    }
    Ok(())
}

/// The accounts: what is free, from the extents, and what partitions are charged for.
fn accounts(
    metadata: &Metadata,
    geometry: &Geometry,
    records: &DriveRecords,
    packed_in: &PackedIn,
) -> Result<Space, OpenError> {
    let used = used_runs(metadata, packed_in)?;
    let free = FreeMap::without(geometry.data_blocks, used.into_iter());
    let mut accounts = Space::new(free, geometry.data_blocks);
    for (partition, record) in &records.partitions {
        accounts.add_partition(*partition, Account::of(record));
    }
    accounts.count_common(metadata.common_blocks()?, 0);
    Ok(accounts)
}

/// The runs of data blocks that extents name, in order, none twice. Notes who has compressed ones.
fn used_runs(metadata: &Metadata, packed_in: &PackedIn) -> Result<Vec<Run>, TreeError> {
    let mut runs: Vec<Run> = Vec::new();
    let mut last: Option<(ObjectName, u64)> = None;
    metadata.scan_extents(&mut |name: ObjectName, extent: &Extent| {
        if last.is_some_and(|(last, end)| last == name && extent.logical < end) {
            return Err(TreeError::Damaged(format!("two extents of object {name} overlap")));
        }
        last = Some((name, extent.end()));
        if extent.is_packed() {
            packed_in.add(name.partition);
        }
        let run = extent.run();
        match runs.last_mut() {
            Some(before) if before.end() == run.start => before.blocks += run.blocks,
            _ => runs.push(run),
        }
        Ok(())
    })?;
    runs.sort_unstable();
    let mut joined: Vec<Run> = Vec::with_capacity(runs.len());
    for run in runs {
        match joined.last_mut() {
            Some(before) if run.start <= before.end() => {
                if run.start < before.end() {
                    let blocks = run.end().min(before.end()) - run.start;
                    check_shared(metadata, Run { start: run.start, blocks })?;
                }
                before.blocks = before.blocks.max(run.end() - before.start);
            }
            _ => joined.push(run),
        }
    }
    Ok(joined)
}

/// Makes sure that blocks that two extents name are known to be shared.
fn check_shared(metadata: &Metadata, run: Run) -> Result<(), TreeError> {
    let mut at = run.start;
    for share in metadata.shares(run)? {
        if share.run.start > at || share.count() < 2 {
            break;
        }
        at = share.run.end();
    }
    if at < run.end() {
        return Err(TreeError::Damaged(format!("data block {at} belongs to two extents")));
    }
    Ok(())
}
