//! Object attributes (CMU-CS-97-118, Table 5).

use crate::{ObjectId, Timestamp};

/// Size of the attribute that the drive does not interpret.
pub const FS_SPECIFIC_BYTES: usize = 256;

/// 256 bytes for the file system's own book keeping.
pub type FsSpecific = [u8; FS_SPECIFIC_BYTES];

/// Everything that `getattr` tells about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Changing it revokes every capability of the object.
    pub access_control_version: u64,
    /// Locate this object near that one; `ObjectId(0)` is none.
    pub nearby_object: ObjectId,
    /// This object was made as a fast copy of that one; `ObjectId(0)` is none.
    pub copied_object: ObjectId,
    /// Length in bytes: the largest offset written, or as set.
    pub logical_size: u64,
    /// Blocks reserved for this object.
    pub blocks_allocated: u64,
    /// Blocks that hold this object's data.
    pub blocks_used: u64,
    /// Bytes per block.
    pub block_size: u32,
    /// Drive time of creation.
    pub create_time: Timestamp,
    /// Drive time of the last change of data.
    pub data_modify_time: Timestamp,
    /// Another one after each change of data, whatever the clocks of the drives say that have some of it: the times of all that are asked
    /// added up, beyond 64 bits from 0 again. Where copies come and go it may be another one without a change.
    pub data_version: u64,
    /// Drive time of the last change of attributes.
    pub attribute_modify_time: Timestamp,
    /// Moved by writes, and settable.
    pub fs_data_modify_time: Timestamp,
    /// Moved by changes of attributes, and settable.
    pub fs_attribute_modify_time: Timestamp,
    /// Not interpreted by the drive.
    pub fs_specific: Box<FsSpecific>,
}

/// The attributes that `create` and `setattr` may set; `None` leaves one as it is.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct SetAttributes {
    /// New access control version.
    pub access_control_version: Option<u64>,
    /// New neighbour.
    pub nearby_object: Option<ObjectId>,
    /// New length: cuts, or extends with zeros.
    pub logical_size: Option<u64>,
    /// New reservation, in blocks.
    pub blocks_allocated: Option<u64>,
    /// New block size in bytes. Drives whose block size is not adjustable refuse all but theirs.
    pub block_size: Option<u32>,
    /// New file system data time.
    pub fs_data_modify_time: Option<Timestamp>,
    /// New file system attribute time.
    pub fs_attribute_modify_time: Option<Timestamp>,
    /// New file system bytes.
    pub fs_specific: Option<Box<FsSpecific>>,
}
