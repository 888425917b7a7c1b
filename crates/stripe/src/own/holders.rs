//! What is needed of the drives that hold the striping manager's own state, and of where it is written which of
//! them have current copies. All else of it is written against these two traits.

use std::time::Duration;

use nasd_types::{DriveId, ObjectId};
use thiserror::Error;

/// A part of a copy: an object of its drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The device of the virtual drive's own store.
    Device,
    /// One of the two places for records.
    RecordA,
    /// The other.
    RecordB,
}

impl Part {
    /// All of them.
    pub const ALL: [Part; 3] = [Part::Device, Part::RecordA, Part::RecordB];

    /// The object's number: of those that the holder of a partition's keys chooses.
    pub fn object(self) -> ObjectId {
        ObjectId(ObjectId::FIRST_NAMED.0 + self as u64)
    }

    /// Where the record with that number is.
    pub(crate) fn of_record(sequence: u64) -> Part {
        if sequence.is_multiple_of(2) { Part::RecordA } else { Part::RecordB }
    }
}

/// Bytes for a part of a copy.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    /// Which part.
    pub part: Part,
    /// Where in it they go.
    pub offset: u64,
    /// The bytes.
    pub data: &'a [u8],
}

/// Why a drive did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HolderError {
    /// It could not be reached, or did not answer in time. It may have done it, or may do it yet.
    #[error("it is away: {0}")]
    Away(String),
    /// It does not take the key.
    #[error("it refuses the key: {0}")]
    Refused(String),
    /// Somebody has set a key of a later epoch, or another one of this epoch.
    #[error("a later striping manager has set another key")]
    Overtaken,
    /// It has no copy.
    #[error("it has no copy")]
    Missing,
    /// It answered that it can't.
    #[error("it answered: {0}")]
    Failed(String),
}

/// The drives that may hold copies. Any number of threads may ask at a time. What is asked of several drives is
/// asked of all at once, and the answers are in their order.
pub trait Holders: Send + Sync {
    /// From now on the drives take writes by the key of this epoch and process alone. Where `make` is set, the
    /// place for a copy is made if there is none.
    fn claim(&self, drives: &[DriveId], epoch: u32, make: bool) -> Vec<Result<(), HolderError>>;

    /// Writes all pieces to each drive, by the key of that epoch. They are durable when this returns, in any
    /// sequence. Nothing of an earlier call is done after a later one to the same bytes.
    fn write(
        &self,
        drives: &[DriveId],
        epoch: u32,
        pieces: &[Piece<'_>],
    ) -> Vec<Result<(), HolderError>>;

    /// Whether each drive answers, and takes the key of that epoch.
    fn probe(&self, drives: &[DriveId], epoch: u32) -> Vec<Result<(), HolderError>>;

    /// Reads as much as there is, whatever key of the partition is in force.
    fn read(
        &self,
        drive: DriveId,
        part: Part,
        offset: u64,
        length: usize,
    ) -> Result<Vec<u8>, HolderError>;

    /// Where data of the device begin from an offset on, if there are any.
    fn next_data(&self, drive: DriveId, offset: u64) -> Result<Option<u64>, HolderError>;

    /// Removes a drive's copy.
    fn remove(&self, drive: DriveId) -> Result<(), HolderError>;

    /// Has calls of a drive that are under way come back, and others fail at once.
    fn give_up(&self, drive: DriveId);

    /// From now on the drive is called again.
    fn call_again(&self, drive: DriveId);

    /// Waits.
    fn pause(&self, duration: Duration);

    /// The time since any moment in the past, which is always the same one.
    fn elapsed(&self) -> Duration;
}

/// Which drives have current copies. A copy that could not be written is taken out of it before anybody is told that
/// something was written; one is taken in when it is the same as the others. So each that it names has all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    /// Rises with each change, and with each start of a striping manager: it is the number of the key by which
    /// copies are written, too.
    pub epoch: u32,
    /// The drives, in ascending order; none before there are any copies.
    pub copies: Vec<DriveId>,
}

impl Membership {
    /// The next one.
    pub(crate) fn next(&self, copies: Vec<DriveId>) -> Membership {
        Membership { epoch: self.epoch.saturating_add(1), copies }
    }
}

/// Why the membership is not what it was to become.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RegisterError {
    /// It is another one than was thought.
    #[error("somebody else has changed which drives have the striping manager's state")]
    Changed,
    /// It can't be read or written.
    #[error("{0}")]
    Failed(String),
}

/// Where the membership is kept: not on the drives that it is about.
pub trait Register: Send + Sync {
    /// The present one.
    ///
    /// # Errors
    ///
    /// `Failed`.
    fn read(&self) -> Result<Membership, RegisterError>;

    /// Replaces the one of epoch `before`: durable when this returns, and after a crash it is this or the one
    /// before.
    ///
    /// # Errors
    ///
    /// `Changed` if that is not the present one; `Failed` if it may be either.
    fn replace(&self, before: u32, with: &Membership) -> Result<(), RegisterError>;
}
