//! Objects that are not in the drive's own store: what makes a drive a virtual one.
//!
//! Such a drive keeps its keys, its partitions' settings, its clock and its audit trail in its store like
//! any other, and makes every check of a request by the same code. Only what a request that passed does to
//! objects is done by an [`Elsewhere`] (CMU-CS-97-118 section 3.3).

use nasd_capability::Capability;
use nasd_protocol::Status;
use nasd_protocol::drive::{
    Appended, BatchArguments, Batched, BlocksRequired, ComponentStatus, Copied, CreateArguments,
    Created, EndwritesArguments, ExtensionWork, FastcopyArguments, Flushed, MapArguments,
    ObjectMap, PunchArguments, RangeToCopy, ReadArguments, RemoveArguments, SeekArguments,
    SetattrArguments, SetstripingArguments, WriteArguments, Written,
};
use nasd_store::{Append, PartitionSpace, Space};
use nasd_types::{Attributes, ByteRange, ObjectId, ObjectName, PartitionId, Timestamp};

/// Data that were read, and what a read tells besides.
#[derive(Clone, Debug, Default)]
pub struct ReadElsewhere {
    /// The bytes, those of each piece that was asked for behind those of the one before; fewer where a piece
    /// runs into the end of the object, and then nothing follows.
    pub data: Vec<u8>,
    /// The length of the object, in bytes.
    pub logical_size: u64,
    /// The attribute of that name.
    pub fs_data_modify_time: Timestamp,
}

/// What the drives tell that have the objects, together.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// What there is of room.
    pub space: Space,
    /// Data bytes that they have sent to holders of capabilities since their start.
    pub bytes_read: u64,
    /// Data bytes that they have received from them.
    pub bytes_written: u64,
    /// Each of them.
    pub components: Vec<ComponentStatus>,
    /// What their extensions do, together.
    pub extension_work: ExtensionWork,
}

/// A capability that was shown, and whose every check has passed.
#[derive(Debug)]
pub struct Shown<'a> {
    /// As it is after all narrowings.
    pub capability: &'a Capability,
    /// Whether whoever shows it wants component capabilities to be sealed.
    pub sealed: bool,
    /// The time on the virtual drive's clock, by which the capability expires.
    pub now: Timestamp,
}

/// Who has the objects of a virtual drive. Every method may be called by any number of threads at a time,
/// and answers what the operation of its name answers at any drive. All names are of ordinary objects, and
/// all that can be told from arguments alone has been checked.
pub trait Elsewhere: Send + Sync {
    /// The access control version of an object; `None` if there is no such object. Asked for each request
    /// by a capability, before its digest is checked.
    fn version(&self, name: ObjectName) -> Result<Option<u64>, Status>;
    /// Makes an object.
    fn create(&self, arguments: &CreateArguments) -> Result<Created, Status>;
    /// Removes an object.
    fn remove(&self, arguments: &RemoveArguments) -> Result<(), Status>;
    /// Reads attributes.
    fn getattr(&self, name: ObjectName) -> Result<Attributes, Status>;
    /// Changes attributes.
    fn setattr(&self, arguments: &SetattrArguments) -> Result<Attributes, Status>;
    /// Reads data.
    fn read(&self, arguments: &ReadArguments) -> Result<ReadElsewhere, Status>;
    /// Writes the data, joined.
    fn write(&self, arguments: &WriteArguments, data: &[&[u8]]) -> Result<Written, Status>;
    /// Writes data where the object ends. It is `now` on the virtual drive's clock.
    fn append(
        &self,
        name: ObjectName,
        append: &Append<'_>,
        now: Timestamp,
    ) -> Result<Appended, Status>;
    /// Makes objects durable; the whole partition if none is named.
    fn flush(&self, partition: PartitionId, objects: &[ObjectId]) -> Result<Flushed, Status>;
    /// Copies an object.
    fn fastcopy(&self, arguments: &FastcopyArguments) -> Result<Created, Status>;
    /// How many blocks more an object would take.
    fn blocks_required(
        &self,
        name: ObjectName,
        pieces: &mut dyn Iterator<Item = ByteRange>,
    ) -> Result<BlocksRequired, Status>;
    /// Makes bytes read as zeros.
    fn punch(&self, arguments: &PunchArguments) -> Result<Attributes, Status>;
    /// Where data, or a hole, begins next.
    fn seek(&self, arguments: &SeekArguments) -> Result<Option<u64>, Status>;
    /// Copies bytes of one object into another.
    fn copy_range(&self, copy: &RangeToCopy) -> Result<Copied, Status>;
    /// Does several operations.
    fn batch(&self, arguments: &BatchArguments) -> Result<Batched, Status>;
    /// Where the components of an object are, for the holder of this capability, or of a narrower one
    /// of which this is all that is left.
    fn map(&self, arguments: &MapArguments, shown: &Shown<'_>) -> Result<ObjectMap, Status>;
    /// A client has ended its writes of an object.
    fn end_writes(&self, arguments: &EndwritesArguments, now: Timestamp) -> Result<(), Status>;
    /// Up to so many objects of a partition from a number on, in ascending order.
    fn list(
        &self,
        partition: PartitionId,
        from: ObjectId,
        most: usize,
    ) -> Result<Vec<ObjectId>, Status>;
    /// Makes room for a partition, which the drive has in its store already.
    fn create_partition(&self, partition: PartitionId) -> Result<(), Status>;
    /// Removes a partition with all its objects. The drive's store has it until then.
    fn remove_partition(&self, partition: PartitionId) -> Result<(), Status>;
    /// Sets how much a partition may hold.
    fn resize_partition(&self, partition: PartitionId, bytes: u64) -> Result<(), Status>;
    /// Sets how the objects of a partition are spread.
    fn set_striping(&self, arguments: &SetstripingArguments) -> Result<(), Status>;
    /// What a partition may hold and holds.
    fn partition_space(&self, partition: PartitionId) -> Result<PartitionSpace, Status>;
    /// What the drives tell that have the objects; of `own`, the store of the virtual drive itself, everything
    /// else is told.
    fn facts(&self, own: Space) -> Result<Facts, Status>;
}
