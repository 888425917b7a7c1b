//! Contents of the well-known control objects (CMU-CS-97-118, Table 4), which are read with
//! `read` and decoded here.

use nasd_types::{Compression, DriveId, PartitionId, Protection, Rights, Timestamp};
use nasd_xdr::{Decoder, Encoder, XdrError, xdr_enum};

use super::{ExtensionWork, MemberState};
use crate::limits::{
    MAX_ADDRESS_BYTES, MAX_COMPONENTS, MAX_EXTENSIONS, MAX_PARAMETERS_BYTES, MAX_PARTITIONS,
    MAX_TEXT_BYTES,
};
use crate::wire::{Field, field_by_xdr, message, put_array, take_array, xdr_by_field};

xdr_enum! {
    /// Which keys a partition has (`nasd_partition_state`).
    pub enum PartitionState {
        /// None: the drive key can set its partition key.
        WithoutKey = 0,
        /// A partition key, which can set working keys.
        WithoutWorkingKey = 1,
        /// A working key: capabilities can be made.
        Ready = 2,
    }
}

xdr_enum! {
    /// What a drive stores data on (`nasd_medium`).
    pub enum Medium {
        /// Nobody said.
        Unknown = 0,
        /// Disks that turn.
        Magnetic = 1,
        /// Flash and the like.
        SolidState = 2,
        /// Memory: lost with the power.
        Memory = 3,
    }
}

field_by_xdr!(PartitionState, Medium);

/// What a drive can do beyond this protocol (`nasd_extension`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extension {
    /// By which it is called.
    pub number: u32,
    /// At most [`MAX_TEXT_BYTES`] bytes.
    pub name: String,
    /// Its version.
    pub revision: u32,
    /// Without which nobody can have it do anything.
    pub rights: Rights,
    /// Its arguments, for people; at most [`MAX_PARAMETERS_BYTES`] bytes.
    pub parameters: String,
}

impl Field for Extension {
    fn put(&self, out: &mut Encoder) {
        out.u32(self.number);
        out.string(&self.name);
        out.u32(self.revision);
        self.rights.put(out);
        out.string(&self.parameters);
    }

    fn take(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Extension {
            number: input.u32()?,
            name: input.string(MAX_TEXT_BYTES)?.to_owned(),
            revision: input.u32()?,
            rights: Rights::take(input)?,
            parameters: input.string(MAX_PARAMETERS_BYTES)?.to_owned(),
        })
    }
}

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
        /// Which keys it has.
        pub state: PartitionState,
        /// Of data written from now on.
        pub compression: Compression,
        /// The weakest protection of capabilities and requests for its objects.
        pub minimum_protection: Protection,
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
        /// About how many objects it can hold, those that there are among them.
        pub objects_supported: u64,
    }
}

/// A component drive of a virtual one (`nasd_component_status`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComponentStatus {
    /// Which.
    pub drive: DriveId,
    /// Where it is, `HOST:PORT`; at most [`MAX_ADDRESS_BYTES`] bytes.
    pub address: String,
    /// Whether it has answered lately.
    pub reachable: bool,
    /// What it is good for where there are other copies.
    pub state: MemberState,
    /// Since when it lacks something, by the virtual drive's clock; 0 if it has all.
    pub since: Timestamp,
    /// Bytes that it can store.
    pub capacity_bytes: u64,
    /// Bytes that it stores.
    pub used_bytes: u64,
    /// Objects that are looked at to give it what it lacks, as far as is known.
    pub objects: u64,
    /// Of these so many were.
    pub objects_done: u64,
    /// Bytes that were written for that.
    pub bytes_done: u64,
    /// In so many seconds it will have all, as it seems now; 0 if nothing is given to it, or that is not known.
    pub seconds_left: u32,
    /// What it is for.
    pub role: ComponentRole,
    /// In how many places of groups it is, of all partitions,
    pub places: u32,
    /// in how many it is about to be,
    pub places_coming: u32,
    /// and in how many of the first it is about to be no more.
    pub places_going: u32,
    /// How many drives the widest of these groups has; 0 if it is in none.
    pub width: u32,
    /// What there is to be said against it though it answers.
    pub complaint: ComponentComplaint,
}

xdr_enum! {
    /// What there is to be said against a component drive that answers (`nasd_component_complaint`).
    pub enum ComponentComplaint {
        /// Nothing.
        None = 0,
        /// What it is to make durable takes far longer than at others.
        Slow = 1,
        /// Its medium refuses what it is to make durable.
        Refuses = 2,
    }
}

field_by_xdr!(ComponentComplaint);

xdr_enum! {
    /// What a component drive is for (`nasd_component_role`).
    pub enum ComponentRole {
        /// It has its share.
        Member = 0,
        /// It has nothing, until another one has been out for long.
        Spare = 1,
        /// It gives what it has to others.
        Leaving = 2,
    }
}

field_by_xdr!(ComponentRole);

impl Field for ComponentStatus {
    fn put(&self, out: &mut Encoder) {
        self.drive.put(out);
        out.string(&self.address);
        out.bool(self.reachable);
        self.state.put(out);
        self.since.put(out);
        out.u64(self.capacity_bytes);
        out.u64(self.used_bytes);
        out.u64(self.objects);
        out.u64(self.objects_done);
        out.u64(self.bytes_done);
        out.u32(self.seconds_left);
        self.role.put(out);
        out.u32(self.places);
        out.u32(self.places_coming);
        out.u32(self.places_going);
        out.u32(self.width);
        self.complaint.put(out);
    }

    fn take(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(ComponentStatus {
            drive: Field::take(input)?,
            address: input.string(MAX_ADDRESS_BYTES)?.to_owned(),
            reachable: input.bool()?,
            state: Field::take(input)?,
            since: Field::take(input)?,
            capacity_bytes: input.u64()?,
            used_bytes: input.u64()?,
            objects: input.u64()?,
            objects_done: input.u64()?,
            bytes_done: input.u64()?,
            seconds_left: input.u32()?,
            role: Field::take(input)?,
            places: input.u32()?,
            places_coming: input.u32()?,
            places_going: input.u32()?,
            width: input.u32()?,
            complaint: Field::take(input)?,
        })
    }
}

/// Contents of `ObjectId::DRIVE_CONTROL`, the same in every partition (`nasd_drive_control`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveControl {
    /// The drive's name.
    pub drive: DriveId,
    /// Its clock.
    pub clock: Timestamp,
    /// How far that is ahead of the machine's clock, in nanoseconds.
    pub clock_offset: i64,
    /// How much older than its clock a nonce may be, in nanoseconds.
    pub skew_past: u64,
    /// How much newer.
    pub skew_ahead: u64,
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
    /// What it stores data on.
    pub medium: Medium,
    /// Data bytes sent to holders of capabilities since it was started.
    pub capability_bytes_read: u64,
    /// Data bytes received from them.
    pub capability_bytes_written: u64,
    /// Data bytes sent to holders of keys: the managers.
    pub key_bytes_read: u64,
    /// Data bytes received from them.
    pub key_bytes_written: u64,
    /// Requests that it has answered since it was started.
    pub requests: u64,
    /// How many of them it refused to authorize.
    pub refusals: u64,
    /// The weakest protection of capabilities and requests for all of it.
    pub minimum_protection: Protection,
    /// It takes no more changes, because its device failed.
    pub read_only: bool,
    /// Blocks that its scrub has found bad since it was started.
    pub bad_blocks: u64,
    /// Its partitions.
    pub partitions: Vec<PartitionSummary>,
    /// What it can do beyond this protocol.
    pub extensions: Vec<Extension>,
    /// The drives that have its objects, if it is a virtual one.
    pub components: Vec<ComponentStatus>,
    /// What its extensions do; those of its components, if it is a virtual one.
    pub extension_work: ExtensionWork,
}

impl Field for DriveControl {
    fn put(&self, out: &mut Encoder) {
        self.drive.put(out);
        self.clock.put(out);
        out.i64(self.clock_offset);
        out.u64(self.skew_past);
        out.u64(self.skew_ahead);
        self.started.put(out);
        out.u64(self.capacity_bytes);
        out.u64(self.used_bytes);
        out.u64(self.cache_bytes);
        out.u32(self.block_size);
        self.medium.put(out);
        out.u64(self.capability_bytes_read);
        out.u64(self.capability_bytes_written);
        out.u64(self.key_bytes_read);
        out.u64(self.key_bytes_written);
        out.u64(self.requests);
        out.u64(self.refusals);
        self.minimum_protection.put(out);
        out.bool(self.read_only);
        out.u64(self.bad_blocks);
        put_array(&self.partitions, out);
        put_array(&self.extensions, out);
        put_array(&self.components, out);
        self.extension_work.put(out);
    }

    fn take(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(DriveControl {
            drive: Field::take(input)?,
            clock: Field::take(input)?,
            clock_offset: input.i64()?,
            skew_past: input.u64()?,
            skew_ahead: input.u64()?,
            started: Field::take(input)?,
            capacity_bytes: input.u64()?,
            used_bytes: input.u64()?,
            cache_bytes: input.u64()?,
            block_size: input.u32()?,
            medium: Field::take(input)?,
            capability_bytes_read: input.u64()?,
            capability_bytes_written: input.u64()?,
            key_bytes_read: input.u64()?,
            key_bytes_written: input.u64()?,
            requests: input.u64()?,
            refusals: input.u64()?,
            minimum_protection: Field::take(input)?,
            read_only: input.bool()?,
            bad_blocks: input.u64()?,
            partitions: take_array(input, MAX_PARTITIONS)?,
            extensions: take_array(input, MAX_EXTENSIONS)?,
            components: take_array(input, MAX_COMPONENTS)?,
            extension_work: Field::take(input)?,
        })
    }
}

xdr_by_field!(DriveControl);
