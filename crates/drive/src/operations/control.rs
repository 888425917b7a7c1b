//! Contents of the well-known objects that the drive makes up (CMU-CS-97-118, Table 4).

use nasd_protocol::Status;
use nasd_protocol::drive::{DriveControl, PartitionControl, PartitionSummary};
use nasd_protocol::limits::MAX_PARTITIONS;
use nasd_store::PartitionSpace;
use nasd_types::limits::BLOCK_BYTES;
use nasd_types::{ObjectId, ObjectName, Timestamp};
use nasd_xdr::to_bytes;

use crate::Drive;
use crate::status::status_of;

/// What the object holds now. The list of a partition's objects has no format in this version.
pub(super) fn contents(drive: &Drive, name: ObjectName, now: Timestamp) -> Result<Vec<u8>, Status> {
    let space = drive.store.partition_space(name.partition).map_err(|error| status_of(&error))?;
    match name.object {
        ObjectId::DRIVE_CONTROL => drive_control(drive, now).map(|control| to_bytes(&control)),
        ObjectId::PARTITION_CONTROL => Ok(to_bytes(&PartitionControl {
            summary: summary(&space),
            free_bytes: space.free_bytes,
        })),
        _ => Err(Status::NotPermitted),
    }
}

fn drive_control(drive: &Drive, now: Timestamp) -> Result<DriveControl, Status> {
    let space = drive.store.space();
    let counters = &drive.counters;
    let mut partitions = drive.store.partitions();
    partitions.truncate(MAX_PARTITIONS);
    let partitions = partitions
        .into_iter()
        .map(|partition| drive.store.partition_space(partition).map(|space| summary(&space)))
        .collect::<Result<_, _>>()
        .map_err(|error| status_of(&error))?;
    Ok(DriveControl {
        drive: drive.identity.drive,
        clock: now,
        started: drive.started,
        capacity_bytes: space.capacity_bytes,
        used_bytes: space.used_bytes,
        cache_bytes: space.cache_bytes,
        block_size: BLOCK_BYTES as u32,
        capability_bytes_read: counters.read.by_capability(),
        capability_bytes_written: counters.written.by_capability(),
        key_bytes_read: counters.read.by_key(),
        key_bytes_written: counters.written.by_key(),
        requests: counters.requests(),
        refusals: counters.refusals(),
        partitions,
    })
}

fn summary(space: &PartitionSpace) -> PartitionSummary {
    PartitionSummary {
        partition: space.partition,
        quota_bytes: space.quota_bytes,
        used_bytes: space.used_bytes,
        objects: space.objects,
    }
}
