//! What the striping manager needs of the component drives. All of it is written against this trait.

use nasd_protocol::Region;
use nasd_protocol::Status;
use nasd_protocol::drive::{
    BatchArguments, Batched, BlocksRequired, BlocksrequiredArguments, Copied, CreateArguments,
    Created, DriveControl, FastcopyArguments, GetattrArguments, PartitionControl, PunchArguments,
    RangeToCopy, RemoveArguments, SeekArguments, SetattrArguments, Written,
};
use nasd_types::{
    Attributes, DriveId, ObjectId, ObjectName, PartitionId, Protection, Timestamp, WriteOrder,
};
use std::collections::BTreeMap;
use std::time::Duration;
use thiserror::Error;

/// Why a component drive did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ComponentError {
    /// It answered so, and has not done it.
    #[error("a component drive answered: {0}")]
    Answered(Status),
    /// It could not be reached, or did not answer.
    #[error("a component drive is away: {reason}")]
    Away {
        /// What was seen of that.
        reason: String,
        /// Whether it may have done it, or may do it yet.
        maybe_done: bool,
    },
    /// It refused the striping manager, or is not the one that was meant.
    #[error("a component drive refused: {0}")]
    Refused(String),
}

impl ComponentError {
    /// What those are told who asked the virtual drive.
    pub fn status(&self) -> Status {
        match self {
            ComponentError::Answered(status) => *status,
            ComponentError::Away { .. } => Status::Busy,
            ComponentError::Refused(_) => Status::DriveFault,
        }
    }

    /// Whether there is no such object.
    pub fn is_missing(&self) -> bool {
        matches!(self, ComponentError::Answered(Status::NoSuchObject))
    }
}

/// Something that one component drive is to do. Names are those of the component.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "each is the operation of its name, with its arguments")]
pub enum Ask {
    Create(CreateArguments),
    Remove(RemoveArguments),
    Getattr(GetattrArguments),
    Setattr(SetattrArguments),
    Batch(BatchArguments),
    Flush {
        partition: PartitionId,
        objects: Vec<ObjectId>,
    },
    Fastcopy(FastcopyArguments),
    Blocksrequired(BlocksrequiredArguments),
    Punch(PunchArguments),
    Seek(SeekArguments),
    Copyrange(RangeToCopy),
    Read {
        name: ObjectName,
        order: Option<WriteOrder>,
        regions: Vec<Region>,
        length: usize,
    },
    Write {
        name: ObjectName,
        order: Option<WriteOrder>,
        regions: Vec<Region>,
        data: Vec<u8>,
        durable: bool,
    },
    /// Objects of a partition from a number on, in ascending order.
    List {
        partition: PartitionId,
        from: ObjectId,
        most: usize,
    },
    PartitionControl(PartitionId),
}

/// Data of a component, and what a read tells besides.
#[derive(Clone, Debug, Default)]
pub struct ReadComponent {
    /// As many bytes as there are; nothing follows a piece that runs into the component's end.
    pub data: Vec<u8>,
    /// The length of the component.
    pub logical_size: u64,
    /// The attribute of that name.
    pub fs_data_modify_time: Timestamp,
}

/// What a component drive answers.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "each is what the operation of its name answers")]
pub enum Told {
    Created(Created),
    Done,
    Attributes(Attributes),
    Batched(Batched),
    /// Which instance of the drive has made it durable.
    Flushed(u64),
    Blocks(BlocksRequired),
    Position(Option<u64>),
    Copied(Copied),
    Read(ReadComponent),
    Written(Written),
    Objects(Vec<ObjectId>),
    Control(PartitionControl),
}

/// What a question about one drive came to.
pub type Answer = Result<Told, ComponentError>;

/// How the partition of a component drive is to be.
#[derive(Clone, Copy, Debug)]
pub struct ComponentPartition {
    /// Its number on the component drive.
    pub partition: PartitionId,
    /// Bytes that its objects may take, if that is to be set.
    pub bytes: Option<u64>,
}

/// The component drives. Any number of threads may ask at a time.
pub trait Components: Send + Sync {
    /// The drives, in no order.
    fn drives(&self) -> Vec<DriveId>;

    /// Where a drive is, `HOST:PORT`.
    fn address(&self, drive: DriveId) -> String;

    /// Asks several drives at once, or one of them several things, which it does in any order. The answers
    /// are in the order of the questions.
    fn ask(&self, questions: Vec<(DriveId, Ask)>) -> Vec<Answer>;

    /// Asks one.
    fn ask_one(&self, drive: DriveId, ask: Ask) -> Answer {
        let mut answers = self.ask(vec![(drive, ask)]);
        answers.pop().unwrap_or_else(|| Err(ComponentError::Refused("no answer".to_owned())))
    }

    /// What a drive tells about itself.
    fn drive_control(&self, drive: DriveId) -> Result<DriveControl, ComponentError>;

    /// Makes a partition, with keys of the striping manager's, if there is none; sets its size.
    fn make_partition(
        &self,
        drive: DriveId,
        wanted: &ComponentPartition,
    ) -> Result<(), ComponentError>;

    /// Removes a partition, if there is one.
    fn remove_partition(
        &self,
        drive: DriveId,
        partition: PartitionId,
    ) -> Result<(), ComponentError>;

    /// The time on a drive's clock, as well as it is known without asking.
    fn drive_time(&self, drive: DriveId) -> Timestamp;

    /// The weakest protection that a drive accepts, as far as it is known without asking.
    fn minimum_protection(&self, drive: DriveId) -> Protection;

    /// The numbers of the working keys that the striping manager uses from now on, by partitions of component
    /// drives; 1 where there is none.
    fn set_epochs(&self, epochs: &BTreeMap<PartitionId, u32>);

    /// Gives a drive the present working key of a partition; no other is good there afterwards.
    fn change_key(&self, drive: DriveId, partition: PartitionId) -> Result<(), ComponentError>;

    /// Has calls of a drive that are under way come back, and others fail at once.
    fn give_up(&self, drive: DriveId);

    /// From now on the drive is called again.
    fn call_again(&self, drive: DriveId);

    /// Waits.
    fn pause(&self, duration: Duration);

    /// Whether threads take turns here: see [`nasd_client::Host::takes_turns`].
    fn takes_turns(&self) -> bool {
        false
    }

    /// What capabilities for a partition's objects are made with: the number of a working key, and the key.
    fn working_key(
        &self,
        drive: DriveId,
        partition: PartitionId,
    ) -> (u32, nasd_capability::SecretKey);
}
