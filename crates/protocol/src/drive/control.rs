//! Contents of the well-known control objects (CMU-CS-97-118, Table 4), which are read with
//! `read` and decoded here.

use nasd_types::{DriveId, PartitionId, Timestamp};
use nasd_xdr::{Decoder, Encoder, XdrError};

use crate::limits::MAX_PARTITIONS;
use crate::wire::{Field, message, put_array, take_array, xdr_by_field};

message! {
    /// One partition's size and use (`nasd_partition_summary`).
    #[derive(Copy)]
    pub struct PartitionSummary {
        /// Which.
        pub partition: PartitionId,
        /// Most bytes that it may hold.
        pub quota_bytes: u64,
        /// Bytes that it holds.
        pub used_bytes: u64,
        /// Objects that it holds.
        pub objects: u64,
    }
}

message! {
    /// Contents of `ObjectId::PARTITION_CONTROL` (`nasd_partition_control`).
    #[derive(Copy)]
    pub struct PartitionControl {
        /// This partition's size and use.
        pub summary: PartitionSummary,
        /// Bytes that a writer could still store.
        pub free_bytes: u64,
    }
}

/// Contents of `ObjectId::DRIVE_CONTROL`, the same in every partition (`nasd_drive_control`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveControl {
    /// The drive's name.
    pub drive: DriveId,
    /// Its clock.
    pub clock: Timestamp,
    /// When it was started.
    pub started: Timestamp,
    /// Bytes that it can store.
    pub capacity_bytes: u64,
    /// Bytes that it stores.
    pub used_bytes: u64,
    /// Size of its cache in bytes.
    pub cache_bytes: u64,
    /// Bytes of a block.
    pub block_size: u32,
    /// Data bytes sent to holders of capabilities since it was started.
    pub capability_bytes_read: u64,
    /// Data bytes received from them.
    pub capability_bytes_written: u64,
    /// Data bytes sent to holders of keys: the managers.
    pub key_bytes_read: u64,
    /// Data bytes received from them.
    pub key_bytes_written: u64,
    /// Requests since it was started.
    pub requests: u64,
    /// How many of them it refused to authorize.
    pub refusals: u64,
    /// Its partitions.
    pub partitions: Vec<PartitionSummary>,
}

impl Field for DriveControl {
    fn put(&self, out: &mut Encoder) {
        self.drive.put(out);
        self.clock.put(out);
        self.started.put(out);
        out.u64(self.capacity_bytes);
        out.u64(self.used_bytes);
        out.u64(self.cache_bytes);
        out.u32(self.block_size);
        out.u64(self.capability_bytes_read);
        out.u64(self.capability_bytes_written);
        out.u64(self.key_bytes_read);
        out.u64(self.key_bytes_written);
        out.u64(self.requests);
        out.u64(self.refusals);
        put_array(&self.partitions, out);
    }

    fn take(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(DriveControl {
            drive: Field::take(input)?,
            clock: Field::take(input)?,
            started: Field::take(input)?,
            capacity_bytes: input.u64()?,
            used_bytes: input.u64()?,
            cache_bytes: input.u64()?,
            block_size: input.u32()?,
            capability_bytes_read: input.u64()?,
            capability_bytes_written: input.u64()?,
            key_bytes_read: input.u64()?,
            key_bytes_written: input.u64()?,
            requests: input.u64()?,
            refusals: input.u64()?,
            partitions: take_array(input, MAX_PARTITIONS)?,
        })
    }
}

xdr_by_field!(DriveControl);
