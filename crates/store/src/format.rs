//! Making an empty store.
//!
//! The superblocks go last, each with its own sync: until the first of them is durable the device
//! is not a NASD drive, and from then on everything else is there.

use std::collections::BTreeSet;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

use nasd_device::{AlignedBuffer, BlockDevice, DeviceError};
use nasd_types::limits::BLOCK_BYTES;
use nasd_types::{ObjectId, ObjectName, PartitionId, SetAttributes};

use crate::geometry::Geometry;
use crate::metadata::record::{Counters, PartitionRecord};
use crate::metadata::{InitialRecords, Metadata};
use crate::object::initial_record;
use crate::partitions::PARTITIONS_MAX;
use crate::superblock::{SUPERBLOCK_OFFSETS, Superblock, write_place};
use crate::{
    DriveKeys, FormatError, FormatOptions, PartitionFormat, PartitionKeys, PartitionSettings,
    Store, WorkingKey,
};

/// Bytes that are wiped by one write, at most.
const WIPED_BYTES: usize = 4 << 20;

impl Store {
    /// Makes an empty store on `device`; whatever was there is lost.
    pub fn format(
        device: Arc<dyn BlockDevice>,
        options: &FormatOptions,
    ) -> Result<(), FormatError> {
        check_partitions(&options.partitions)?;
        let geometry = Geometry::plan(device.capacity(), options.metadata_bytes)?;
        wipe(&*device, &geometry)?;
        let partitions = options.partitions.iter().map(|p| (p.id, partition_record(p))).collect();
        let first = initial_record(&SetAttributes::default(), options.now);
        let objects = options.partitions.iter().map(|p| (first_object(p.id), first.clone()));
        let keys = DriveKeys {
            master: options.master_key.clone(),
            drive: Some(options.drive_key.clone()),
        };
        let counters = Counters { object_limit: ObjectId::FIRST_DYNAMIC.0, ..Counters::default() };
        let objects = objects.collect();
        let records = InitialRecords { keys, counters, partitions, objects };
        Metadata::create(device.clone(), &geometry, &records)
            .map_err(|error| FormatError::Metadata(error.to_string()))?;
        let superblock = Superblock {
            sequence: 1,
            drive: options.drive,
            cell: options.cell,
            formatted: options.now,
            geometry,
            log_key: options.log_key,
        };
        let block = superblock.encode();
        (0..SUPERBLOCK_OFFSETS.len()).try_for_each(|place| write_place(&*device, place, &block))?;
        Ok(())
    }
}

fn first_object(partition: PartitionId) -> ObjectName {
    ObjectName { partition, object: ObjectId::FIRST_OBJECT }
}

fn check_partitions(partitions: &[PartitionFormat]) -> Result<(), FormatError> {
    if partitions.len() > PARTITIONS_MAX {
        return Err(FormatError::Options(format!("more than {PARTITIONS_MAX} partitions")));
    }
    let distinct: BTreeSet<PartitionId> = partitions.iter().map(|p| p.id).collect();
    if distinct.len() < partitions.len() {
        return Err(FormatError::Options("two partitions have the same number".to_owned()));
    }
    Ok(())
}

fn partition_record(partition: &PartitionFormat) -> PartitionRecord {
    let current = WorkingKey { epoch: partition.key_epoch, key: partition.working_key.clone() };
    let keys = PartitionKeys {
        partition: Some(partition.partition_key.clone()),
        current: Some(current),
        previous: None,
    };
    PartitionRecord {
        quota_bytes: partition.quota_bytes,
        keys,
        settings: PartitionSettings::default(),
        removing: false,
        objects: 1,
        charged_blocks: 0,
    }
}

/// Makes the device durably not a NASD drive, and the log and the start of the metadata region empty.
///
/// All of the log is written: where the device is a file, its file system has then noted that these
/// blocks hold something, and need not do so at every sync of the log's first round. On ext4 such a
/// sync takes twice as long.
fn wipe(device: &dyn BlockDevice, geometry: &Geometry) -> Result<(), DeviceError> {
    let zeros = AlignedBuffer::zeroed(WIPED_BYTES.min(geometry.log_bytes as usize));
    let wipe = |range: Range<u64>| {
        range.clone().step_by(zeros.len()).try_for_each(|offset| {
            let bytes = zeros.len().min((range.end - offset) as usize);
            device.write(offset, &[IoSlice::new(&zeros[..bytes])])
        })
    };
    let block = |offset: u64| offset..offset + BLOCK_BYTES as u64;
    SUPERBLOCK_OFFSETS.into_iter().map(block).try_for_each(wipe)?;
    wipe(geometry.log_offset..geometry.log_offset + geometry.log_bytes)?;
    wipe(block(geometry.metadata_offset))?;
    device.sync()
}
