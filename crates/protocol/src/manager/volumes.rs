//! `volumes`, `volumeparts`, `reloadvolumes`: which volumes a cell has, and what each takes on the drives; `holdvolume`,
//! `releasevolume`: a volume in which nothing changes for a moment; `movepart`: a part of it that is elsewhere.

use nasd_types::{DriveId, PartitionId, Personality};
use nasd_xdr::{Decoder, Encoder, XdrDecode, XdrEncode, XdrError};

use super::{Name, Operation, Procedure};
use crate::limits::{MAX_DRIVES, MAX_VOLUMES};
use crate::wire::{message, put_array, take_array};

/// The operation: which volumes there are.
#[derive(Debug)]
pub enum Volumes {}

impl Operation for Volumes {
    const PROCEDURE: Procedure = Procedure::Volumes;
    type Arguments = ();
    type Reply = VolumeList;
}

/// The operation: where a volume lies, by its name; the empty name is that of the cell's first.
#[derive(Debug)]
pub enum VolumeParts {}

impl Operation for VolumeParts {
    const PROCEDURE: Procedure = Procedure::Volumeparts;
    type Arguments = Name;
    type Reply = VolumePartList;
}

/// The operation: reads the cell's table of volumes anew. Only administrators may ask for it.
#[derive(Debug)]
pub enum ReloadVolumes {}

impl Operation for ReloadVolumes {
    const PROCEDURE: Procedure = Procedure::Reloadvolumes;
    type Arguments = ();
    type Reply = VolumeList;
}

message! {
    /// A volume of the cell (`nasd_volume_summary`).
    pub struct VolumeSummary {
        /// Its name.
        pub name: Name,
        /// Whether it is served. One that is not waits for the drive that its root is on.
        pub serving: bool,
        /// Changes and removals that are decided, but wait for a drive, when the manager last looked.
        pub backlog: u64,
        /// How it behaves for those who share its files.
        pub personality: Personality,
        /// Nobody changes anything in it: a snapshot.
        pub read_only: bool,
    }
}

/// The operation: nothing changes in a volume until it is released, or the time is over. All that was answered is durable at the
/// drives, none of them has half of a store, and nobody has a capability by which it could change. Only administrators may ask for it.
#[derive(Debug)]
pub enum HoldVolume {}

impl Operation for HoldVolume {
    const PROCEDURE: Procedure = Procedure::Holdvolume;
    type Arguments = HoldVolumeArguments;
    type Reply = HeldVolume;
}

message! {
    /// Arguments (`nasd_holdvolume_arguments`).
    pub struct HoldVolumeArguments {
        /// Its name; the empty one is that of the cell's first.
        pub volume: Name,
        /// For how long at most, in nanoseconds from the answer on; the manager may make it less.
        pub most_ns: u64,
    }
}

message! {
    /// A volume that is held (`nasd_held_volume`).
    #[derive(Copy)]
    pub struct HeldVolume {
        /// By which it is released.
        pub ticket: u64,
    }
}

/// The operation: a volume that was held goes on. Only administrators may ask for it. [`super::ManagerStatus::Stale`] where it has gone on
/// before: then something may have changed since it was held.
#[derive(Debug)]
pub enum ReleaseVolume {}

impl Operation for ReleaseVolume {
    const PROCEDURE: Procedure = Procedure::Releasevolume;
    type Arguments = ReleaseVolumeArguments;
    type Reply = ();
}

message! {
    /// Arguments (`nasd_releasevolume_arguments`).
    pub struct ReleaseVolumeArguments {
        /// Its name.
        pub volume: Name,
        /// As the answer to `holdvolume` had it.
        pub ticket: u64,
    }
}

/// The operation: a part of a volume that is held is elsewhere from now on: there its partition was copied to since. No capability that was given for
/// where it was is good any more. Only administrators may ask for it. [`super::ManagerStatus::Stale`] where the volume is not held any more.
#[derive(Debug)]
pub enum MovePart {}

impl Operation for MovePart {
    const PROCEDURE: Procedure = Procedure::Movepart;
    type Arguments = MovePartArguments;
    type Reply = ();
}

message! {
    /// Arguments (`nasd_move_part_arguments`).
    pub struct MovePartArguments {
        /// The volume's name.
        pub volume: Name,
        /// As the answer to `holdvolume` had it.
        pub ticket: u64,
        /// The part, by the drive where it was made, as files are known that are in it.
        pub part: DriveId,
        /// The drive where it is from now on.
        pub drive: DriveId,
        /// Its partition there.
        pub partition: PartitionId,
    }
}

/// The answer (`nasd_volume_list`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeList {
    /// The cell's volumes, at most [`MAX_VOLUMES`]; its first one first.
    pub volumes: Vec<VolumeSummary>,
}

impl XdrEncode for VolumeList {
    fn encode(&self, out: &mut Encoder) {
        put_array(&self.volumes, out);
    }
}

impl XdrDecode for VolumeList {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(VolumeList { volumes: take_array(input, MAX_VOLUMES)? })
    }
}

message! {
    /// What a volume has on one drive (`nasd_volume_part`).
    #[derive(Copy)]
    pub struct VolumePart {
        /// The drive.
        pub drive: DriveId,
        /// The volume's partition there.
        pub partition: PartitionId,
        /// The drive where this part was made, by which files are known that are in it; it is the same unless the part was moved.
        pub made_drive: DriveId,
        /// Its partition there.
        pub made_partition: PartitionId,
        /// Whether the drive has answered; the numbers are 0 if not.
        pub reachable: bool,
        /// Bytes that the partition may take; all ones for no limit.
        pub quota_bytes: u64,
        /// Bytes that it takes.
        pub used_bytes: u64,
        /// Bytes that it could take yet: within the quota, and what the drive has.
        pub free_bytes: u64,
        /// Objects in it: files, directories, and two that the manager keeps on the home drive.
        pub objects: u64,
    }
}

/// The answer (`nasd_volume_part_list`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumePartList {
    /// The volume's partitions, at most [`MAX_DRIVES`].
    pub parts: Vec<VolumePart>,
}

impl XdrEncode for VolumePartList {
    fn encode(&self, out: &mut Encoder) {
        put_array(&self.parts, out);
    }
}

impl XdrDecode for VolumePartList {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(VolumePartList { parts: take_array(input, MAX_DRIVES)? })
    }
}
