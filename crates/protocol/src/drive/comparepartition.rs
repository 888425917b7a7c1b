//! `comparepartition`: what a partition has that another one, most often an earlier copy of it, has not or has otherwise.

use nasd_types::{AppendToken, ByteRange, FsSpecific, ObjectId, PartitionId, Timestamp};
use nasd_xdr::{Decoder, Encoder, XdrError};

use super::{Operation, Procedure};
use crate::limits::{MAX_CHANGED_RANGES, MAX_DIFFERENCES, MAX_MADE_APPENDS};
use crate::wire::{Field, message, put_array, take_array};

/// The operation.
#[derive(Debug)]
pub enum Comparepartition {}

impl Operation for Comparepartition {
    const PROCEDURE: Procedure = Procedure::Comparepartition;
    type Arguments = ComparepartitionArguments;
    type Reply = Comparison;
}

message! {
    /// Arguments (`nasd_comparepartition_arguments`).
    #[derive(Copy)]
    pub struct ComparepartitionArguments {
        /// The one whose objects are told.
        pub partition: PartitionId,
        /// The one that it is compared with, on the same drive; `None` is one that has nothing.
        pub base: Option<PartitionId>,
        /// Objects of lower identifiers are passed over.
        pub from: ObjectId,
        /// Of that object, if there is one, bytes in front of this one are passed over.
        pub offset: u64,
    }
}

message! {
    /// Bytes of an object that are not those of the base (`nasd_changed_range`). They begin and end between
    /// blocks, or end where the object does.
    #[derive(Copy)]
    pub struct ChangedRange {
        /// Which bytes.
        pub range: ByteRange,
        /// They were data in the base and are a hole now. If not, they are data, perhaps the same as before.
        pub is_hole: bool,
    }
}

message! {
    /// An append that the drive remembers, so that it is not done twice (`nasd_made_append`).
    #[derive(Copy)]
    pub struct MadeAppend {
        /// By which it is known when it is asked for again.
        pub token: AppendToken,
        /// The byte of the object where it went.
        pub offset: u64,
        /// How many bytes it had.
        pub length: u32,
        /// When it was made, by the drive's clock.
        pub time: Timestamp,
    }
}

/// All that a drive knows of an object besides its contents (`nasd_object_state`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectState {
    /// The attribute of that name, as are those that follow.
    pub access_control_version: u64,
    /// None is `ObjectId(0)`.
    pub nearby_object: ObjectId,
    /// None is `ObjectId(0)`.
    pub copied_object: ObjectId,
    /// In bytes.
    pub logical_size: u64,
    /// What is reserved, in blocks: not what is in use, which the attribute tells too.
    pub blocks_allocated: u64,
    /// By the clock of the drive where the object was made.
    pub create_time: Timestamp,
    /// The data version goes with it.
    pub data_modify_time: Timestamp,
    /// Of the last change of attributes.
    pub attribute_modify_time: Timestamp,
    /// Moved by writes, and settable.
    pub fs_data_modify_time: Timestamp,
    /// Moved by changes of attributes, and settable.
    pub fs_attribute_modify_time: Timestamp,
    /// Not interpreted by the drive.
    pub fs_specific: Box<FsSpecific>,
    /// The appends to it that are remembered, the oldest first; at most [`MAX_MADE_APPENDS`].
    pub appends: Vec<MadeAppend>,
}

impl Field for ObjectState {
    fn put(&self, out: &mut Encoder) {
        out.u64(self.access_control_version);
        self.nearby_object.put(out);
        self.copied_object.put(out);
        out.u64(self.logical_size);
        out.u64(self.blocks_allocated);
        self.create_time.put(out);
        self.data_modify_time.put(out);
        self.attribute_modify_time.put(out);
        self.fs_data_modify_time.put(out);
        self.fs_attribute_modify_time.put(out);
        self.fs_specific.put(out);
        put_array(&self.appends, out);
    }

    fn take(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(ObjectState {
            access_control_version: input.u64()?,
            nearby_object: Field::take(input)?,
            copied_object: Field::take(input)?,
            logical_size: input.u64()?,
            blocks_allocated: input.u64()?,
            create_time: Field::take(input)?,
            data_modify_time: Field::take(input)?,
            attribute_modify_time: Field::take(input)?,
            fs_data_modify_time: Field::take(input)?,
            fs_attribute_modify_time: Field::take(input)?,
            fs_specific: Field::take(input)?,
            appends: take_array(input, MAX_MADE_APPENDS)?,
        })
    }
}

/// An object that is not the same in both partitions (`nasd_difference`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Which one.
    pub object: ObjectId,
    /// What it is in the partition. `None`: the base has it, and the partition does not.
    pub state: Option<ObjectState>,
    /// Which of its bytes are others, in ascending order; at most [`MAX_CHANGED_RANGES`]. Where there are more than
    /// one page has room for, the object comes once more in the next one.
    pub ranges: Vec<ChangedRange>,
}

impl Field for Difference {
    fn put(&self, out: &mut Encoder) {
        self.object.put(out);
        self.state.put(out);
        put_array(&self.ranges, out);
    }

    fn take(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Difference {
            object: Field::take(input)?,
            state: Field::take(input)?,
            ranges: take_array(input, MAX_CHANGED_RANGES)?,
        })
    }
}

/// A page of differences (`nasd_comparison`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// No identifier that the drive has given out is as high, but for those that holders of keys choose.
    pub identifiers_end: ObjectId,
    /// In ascending order of objects; at most [`MAX_DIFFERENCES`], perhaps none though more follow.
    pub differences: Vec<Difference>,
    /// From which object, and which of its bytes, the next page goes on; `None` after the last one.
    pub next: Option<(ObjectId, u64)>,
}

impl Field for Comparison {
    fn put(&self, out: &mut Encoder) {
        self.identifiers_end.put(out);
        put_array(&self.differences, out);
        out.optional_with(self.next.as_ref(), |out, (object, offset)| {
            object.put(out);
            out.u64(*offset);
        });
    }

    fn take(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Comparison {
            identifiers_end: Field::take(input)?,
            differences: take_array(input, MAX_DIFFERENCES)?,
            next: input.optional_with(|input| Ok((Field::take(input)?, input.u64()?)))?,
        })
    }
}

crate::wire::xdr_by_field!(ObjectState, Difference, Comparison);
