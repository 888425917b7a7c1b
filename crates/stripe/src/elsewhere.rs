//! What a drive asks whoever has its objects, answered by the virtual drive.

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

use crate::VirtualDrive;
use crate::mend::Lock;

impl Elsewhere for VirtualDrive {
    fn version(&self, name: ObjectName) -> Result<Option<u64>, Status> {
        let _steady = self.steady();
        match self.levelled_version(name) {
            Ok(version) => Ok(version.map(|version| version.virtual_version())),
            Err(Status::NoSuchPartition) => Ok(None),
            Err(status) => Err(status),
        }
    }

    fn create(&self, arguments: &CreateArguments) -> Result<Created, Status> {
        let _steady = self.steady();
        self.create_whole(arguments)
    }

    fn remove(&self, arguments: &RemoveArguments) -> Result<(), Status> {
        let _steady = self.steady();
        self.remove_whole(arguments.name, arguments.durable)
    }

    fn getattr(&self, name: ObjectName) -> Result<Attributes, Status> {
        let _steady = self.steady();
        self.getattr_whole(name)
    }

    fn setattr(&self, arguments: &SetattrArguments) -> Result<Attributes, Status> {
        let _steady = self.steady();
        let SetattrArguments { name, changes, durable } = arguments;
        self.mending(*name, None, Lock::Free, || self.setattr_whole(*name, changes, *durable))
    }

    fn read(&self, arguments: &ReadArguments) -> Result<ReadElsewhere, Status> {
        let _steady = self.steady();
        let range = Some(arguments.pieces()?.span());
        self.mending(arguments.name, range, Lock::Free, || self.read_whole(arguments))
    }

    fn write(&self, arguments: &WriteArguments, data: &[&[u8]]) -> Result<Written, Status> {
        let _steady = self.steady();
        self.write_whole(arguments, data)
    }

    fn append(
        &self,
        name: ObjectName,
        append: &Append<'_>,
        now: Timestamp,
    ) -> Result<Appended, Status> {
        let _steady = self.steady();
        self.append_whole(name, append, now)
    }

    fn flush(&self, partition: PartitionId, objects: &[ObjectId]) -> Result<Flushed, Status> {
        let _steady = self.steady();
        self.flush_whole(partition, objects)
    }

    fn fastcopy(&self, arguments: &FastcopyArguments) -> Result<Created, Status> {
        let _steady = self.steady();
        self.fastcopy_whole(arguments)
    }

    fn blocks_required(
        &self,
        name: ObjectName,
        pieces: &mut dyn Iterator<Item = ByteRange>,
    ) -> Result<BlocksRequired, Status> {
        let _steady = self.steady();
        self.blocks_required_whole(name, pieces)
    }

    fn punch(&self, arguments: &PunchArguments) -> Result<Attributes, Status> {
        let _steady = self.steady();
        self.mending(arguments.name, None, Lock::Free, || self.punch_whole(arguments))
    }

    fn seek(&self, arguments: &SeekArguments) -> Result<Option<u64>, Status> {
        let _steady = self.steady();
        self.seek_whole(arguments)
    }

    fn copy_range(&self, copy: &RangeToCopy) -> Result<Copied, Status> {
        let _steady = self.steady();
        self.copy_whole(copy)
    }

    fn batch(&self, arguments: &BatchArguments) -> Result<Batched, Status> {
        let _steady = self.steady();
        self.batch_whole(arguments)
    }

    fn map(&self, arguments: &MapArguments, shown: &Shown<'_>) -> Result<ObjectMap, Status> {
        let _steady = self.steady();
        self.map_whole(arguments, shown)
    }

    fn end_writes(&self, arguments: &EndwritesArguments, now: Timestamp) -> Result<(), Status> {
        self.is_now(now);
        self.writers.end(arguments.name, (arguments.client, arguments.turn), now);
        Ok(())
    }

    fn list(
        &self,
        partition: PartitionId,
        from: ObjectId,
        most: usize,
    ) -> Result<Vec<ObjectId>, Status> {
        let _steady = self.steady();
        self.list_whole(partition, from, most)
    }

    fn create_partition(&self, partition: PartitionId) -> Result<(), Status> {
        let _steady = self.steady();
        self.create_partition_whole(partition)
    }

    fn remove_partition(&self, partition: PartitionId) -> Result<(), Status> {
        let _steady = self.steady();
        self.remove_partition_whole(partition)
    }

    fn resize_partition(&self, partition: PartitionId, bytes: u64) -> Result<(), Status> {
        let _steady = self.steady();
        self.resize_partition_whole(partition, bytes)
    }

    fn set_striping(&self, arguments: &SetstripingArguments) -> Result<(), Status> {
        let _steady = self.steady();
        self.set_striping_of(arguments)
    }

    fn partition_space(&self, partition: PartitionId) -> Result<PartitionSpace, Status> {
        let _steady = self.steady();
        self.partition_space_whole(partition)
    }

    fn facts(&self, own: Space) -> Result<Facts, Status> {
        let _steady = self.steady();
        self.facts_whole(own)
    }
}
