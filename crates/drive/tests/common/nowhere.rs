//! A virtual drive whose objects nobody has: every operation on one is refused for a while.

use nasd_drive::{Elsewhere, Facts, ReadElsewhere, Shown};
use nasd_protocol::Status;
use nasd_protocol::drive::{
    Appended, BatchArguments, Batched, BlocksRequired, Copied, CreateArguments, Created,
    EndwritesArguments, FastcopyArguments, Flushed, MapArguments, ObjectMap, PunchArguments,
    RangeToCopy, ReadArguments, RemoveArguments, SeekArguments, SetattrArguments,
    SetstripingArguments, WriteArguments, Written,
};
use nasd_store::{Append, PartitionSpace, Space};
use nasd_types::{Attributes, ByteRange, ObjectId, ObjectName, PartitionId, Timestamp};

/// Who has nothing.
pub struct Nowhere;

/// Methods that say so.
macro_rules! busy {
    ($($name:ident($($argument:ty),*) -> $answer:ty;)*) => {
        $(fn $name(&self, $(_: $argument),*) -> Result<$answer, Status> {
            Err(Status::Busy)
        })*
    };
}

impl Elsewhere for Nowhere {
    busy! {
        version(ObjectName) -> Option<u64>;
        create(&CreateArguments) -> Created;
        remove(&RemoveArguments) -> ();
        getattr(ObjectName) -> Attributes;
        setattr(&SetattrArguments) -> Attributes;
        read(&ReadArguments) -> ReadElsewhere;
        write(&WriteArguments, &[&[u8]]) -> Written;
        append(ObjectName, &Append<'_>, Timestamp) -> Appended;
        flush(PartitionId, &[ObjectId]) -> Flushed;
        fastcopy(&FastcopyArguments) -> Created;
        blocks_required(ObjectName, &mut dyn Iterator<Item = ByteRange>) -> BlocksRequired;
        punch(&PunchArguments) -> Attributes;
        seek(&SeekArguments) -> Option<u64>;
        copy_range(&RangeToCopy) -> Copied;
        batch(&BatchArguments) -> Batched;
        map(&MapArguments, &Shown<'_>) -> ObjectMap;
        end_writes(&EndwritesArguments, Timestamp) -> ();
        list(PartitionId, ObjectId, usize) -> Vec<ObjectId>;
        create_partition(PartitionId) -> ();
        remove_partition(PartitionId) -> ();
        resize_partition(PartitionId, u64) -> ();
        set_striping(&SetstripingArguments) -> ();
        partition_space(PartitionId) -> PartitionSpace;
        facts(Space) -> Facts;
    }
}
