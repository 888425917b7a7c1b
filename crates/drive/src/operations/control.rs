//! Contents of the well-known objects that the drive makes up (CMU-CS-97-118, Table 4).

use nasd_protocol::Pieces;
use nasd_protocol::Status;
use nasd_protocol::drive::{DriveControl, PartitionControl, PartitionSummary};
use nasd_protocol::limits::{MAX_COMPONENTS, MAX_PARTITIONS};
use nasd_store::PartitionSpace;
use nasd_types::limits::BLOCK_BYTES;
use nasd_types::{ObjectId, ObjectName, PartitionId, Timestamp};
use nasd_xdr::to_bytes;

use crate::status::status_of;
use crate::{Drive, Facts};

/// Bytes of an identifier in the list of a partition's objects.
const IDENTIFIER_BYTES: u64 = 8;

/// What the control object holds now.
pub(super) fn contents(drive: &Drive, name: ObjectName, now: Timestamp) -> Result<Vec<u8>, Status> {
    // There is one for the drive, also while there is no partition; only the drive key can name one
    // that there is not.
    if name.object == ObjectId::DRIVE_CONTROL {
        return drive_control(drive, now).map(|control| to_bytes(&control));
    }
    let space = partition_space(drive, name.partition)?;
    Ok(to_bytes(&PartitionControl {
        summary: summary(drive, &space),
        free_bytes: space.free_bytes,
        objects_supported: space.objects.saturating_add(facts(drive)?.space.free_objects),
    }))
}

fn drive_control(drive: &Drive, now: Timestamp) -> Result<DriveControl, Status> {
    let Facts { space, bytes_read, bytes_written, mut components, extension_work } = facts(drive)?;
    components.truncate(MAX_COMPONENTS);
    let counters = &drive.counters;
    let mut partitions = drive.partitions();
    partitions.truncate(MAX_PARTITIONS);
    let partitions = partitions
        .into_iter()
        .map(|partition| partition_space(drive, partition).map(|space| summary(drive, &space)))
        .collect::<Result<_, _>>()?;
    let (skew_past, skew_ahead) = drive.window.skew();
    Ok(DriveControl {
        drive: drive.identity.drive,
        clock: now,
        clock_offset: drive.clock.offset(),
        skew_past,
        skew_ahead,
        started: drive.started,
        capacity_bytes: space.capacity_bytes,
        used_bytes: space.used_bytes,
        cache_bytes: space.cache_bytes,
        block_size: BLOCK_BYTES as u32,
        medium: drive.options.medium,
        capability_bytes_read: counters.read.by_capability().saturating_add(bytes_read),
        capability_bytes_written: counters.written.by_capability().saturating_add(bytes_written),
        key_bytes_read: counters.read.by_key(),
        key_bytes_written: counters.written.by_key(),
        requests: counters.requests(),
        refusals: counters.refusals(),
        minimum_protection: drive.minimum_protection(),
        read_only: drive.store.read_only().is_some(),
        bad_blocks: drive.scrub.bad_blocks(),
        partitions,
        extensions: drive.extensions.list(),
        components,
        extension_work,
    })
}

fn facts(drive: &Drive) -> Result<Facts, Status> {
    let own = drive.store.space();
    match drive.elsewhere() {
        Some(elsewhere) => elsewhere.facts(own),
        None => {
            let extension_work = drive.extensions.workers.work(drive.identity.drive);
            Ok(Facts { space: own, extension_work, ..Facts::default() })
        }
    }
}

fn partition_space(drive: &Drive, partition: PartitionId) -> Result<PartitionSpace, Status> {
    // It says too whether there is such a partition.
    let own = drive.store.partition_space(partition).map_err(|error| status_of(&error))?;
    drive.elsewhere().map_or(Ok(own), |elsewhere| elsewhere.partition_space(partition))
}

fn summary(drive: &Drive, space: &PartitionSpace) -> PartitionSummary {
    let ring = drive.ring.read();
    let settings = ring.settings(space.partition);
    PartitionSummary {
        partition: space.partition,
        quota_bytes: space.quota_bytes,
        used_bytes: space.used_bytes,
        objects: space.objects,
        state: ring.state(space.partition),
        compression: settings.compression,
        minimum_protection: settings.minimum_protection,
    }
}

/// A piece of the list of a partition's objects: from byte `8 * n` on are the identifiers that are
/// not below `n`, in ascending order. So readers that go on behind the last one find every object
/// that exists all the while, once, however many come and go, and the drive keeps nothing about
/// them.
pub(super) fn list(
    drive: &Drive,
    partition: PartitionId,
    pieces: &Pieces<'_>,
) -> Result<Vec<u8>, Status> {
    let range = pieces.contiguous().ok_or(Status::BadArgument)?;
    if range.offset % IDENTIFIER_BYTES != 0 {
        return Err(Status::BadArgument);
    }
    let from = ObjectId(range.offset / IDENTIFIER_BYTES);
    // A read is at most of `MAX_TRANSFER_BYTES`.
    let most = (range.length / IDENTIFIER_BYTES) as usize;
    let objects = match drive.elsewhere() {
        Some(elsewhere) => elsewhere.list(partition, from, most)?,
        None => drive.store.list(partition, from, most).map_err(|error| status_of(&error))?,
    };
    Ok(objects.iter().flat_map(|object| object.0.to_be_bytes()).collect())
}

/// The length of the whole list, in bytes.
pub(super) fn list_bytes(drive: &Drive, partition: PartitionId) -> Result<u64, Status> {
    let space = partition_space(drive, partition)?;
    Ok(space.objects * IDENTIFIER_BYTES)
}
