//! `batch`: creates, removes, setattrs and getattrs of objects of one partition in one call, made
//! durable together. Only holders of keys may ask for it: the file manager, which has many objects to
//! change at a time.
//!
//! Operations are done in order, each for itself, with an outcome of its own. A client cuts what it
//! wants into batches by [`BatchArguments::fitting`], as arguments and answer must go into the head of a message.

use nasd_types::{Attributes, FS_SPECIFIC_BYTES, ObjectId, PartitionId, SetAttributes};
use nasd_xdr::{Decoder, Encoder, XdrDecode, XdrEncode, XdrError, to_bytes, xdr_enum};

use super::{Operation, Procedure};
use crate::limits::{MAX_BATCH, MAX_BATCH_BYTES};
use crate::wire::{Field, field_by_xdr, message, put_array, take_array};
use crate::{Status, decode_result, encode_result};

/// The operation.
#[derive(Debug)]
pub enum Batch {}

impl Operation for Batch {
    const PROCEDURE: Procedure = Procedure::Batch;
    type Arguments = BatchArguments;
    type Reply = Batched;
}

xdr_enum! {
    /// What one operation of a batch does (`nasd_batch_kind`).
    pub enum BatchKind {
        /// As `create`.
        Create = 0,
        /// As `remove`.
        Remove = 1,
        /// As `setattr`.
        Setattr = 2,
        /// As `getattr`.
        Getattr = 3,
    }
}

field_by_xdr!(BatchKind);

/// One operation of a batch (`nasd_batch_operation`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BatchOperation {
    /// Make an object with these attributes, and with this identifier if one is chosen, as
    /// [`CreateArguments`](super::CreateArguments) has it.
    Create(Option<ObjectId>, SetAttributes),
    /// Remove this object.
    Remove(ObjectId),
    /// Change these attributes of an object.
    Setattr(ObjectId, SetAttributes),
    /// Tell this object's attributes, as they are after what comes before in the batch.
    Getattr(ObjectId),
}

/// Arguments (`nasd_batch_arguments`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchArguments {
    /// The partition of all of them.
    pub partition: PartitionId,
    /// Answer only when all that was done would survive a power cut.
    pub durable: bool,
    /// Tell the attributes of what was made and changed.
    pub with_attributes: bool,
    /// What to do, at most [`MAX_BATCH`], whose answers take at most [`MAX_BATCH_BYTES`].
    pub operations: Vec<BatchOperation>,
}

message! {
    /// What an operation that was done answers (`nasd_batch_done`).
    pub struct BatchDone {
        /// The object that was named, or made.
        pub object: ObjectId,
        /// Its attributes, where they were asked for.
        pub attributes: Option<Attributes>,
    }
}

/// How one operation ended (`nasd_batch_outcome`).
pub type BatchOutcome = Result<BatchDone, Status>;

/// The answer (`nasd_batched`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batched {
    /// The drive's instance, which changes at each start.
    pub instance: u64,
    /// One for each operation, in their order.
    pub outcomes: Vec<BatchOutcome>,
}

impl BatchOperation {
    /// Which kind it is.
    pub fn kind(&self) -> BatchKind {
        match self {
            BatchOperation::Create(..) => BatchKind::Create,
            BatchOperation::Remove(_) => BatchKind::Remove,
            BatchOperation::Setattr(..) => BatchKind::Setattr,
            BatchOperation::Getattr(_) => BatchKind::Getattr,
        }
    }

    /// The object that it names, or makes under a chosen identifier.
    pub fn object(&self) -> Option<ObjectId> {
        match self {
            BatchOperation::Create(chosen, _) => *chosen,
            BatchOperation::Remove(object)
            | BatchOperation::Setattr(object, _)
            | BatchOperation::Getattr(object) => Some(*object),
        }
    }

    /// Whether it is answered with attributes.
    pub fn tells_attributes(&self, with_attributes: bool) -> bool {
        match self.kind() {
            BatchKind::Create | BatchKind::Setattr => with_attributes,
            BatchKind::Getattr => true,
            BatchKind::Remove => false,
        }
    }

    fn argument_bytes(&self) -> usize {
        let changes = |changes| to_bytes(&Changes(changes)).len();
        match self {
            BatchOperation::Create(chosen, initial) => {
                4 + 4 + chosen.map_or(0, |_| 8) + changes(initial)
            }
            BatchOperation::Setattr(_, set) => 4 + 8 + changes(set),
            BatchOperation::Remove(_) | BatchOperation::Getattr(_) => 4 + 8,
        }
    }

    /// Status and object, and attributes or that there are none.
    fn answer_bytes(&self, with_attributes: bool) -> usize {
        let attributes = if self.tells_attributes(with_attributes) { ATTRIBUTE_BYTES } else { 0 };
        4 + 8 + 4 + attributes
    }
}

/// Bytes of an object's attributes on the wire.
const ATTRIBUTE_BYTES: usize = 12 * 8 + 4 + FS_SPECIFIC_BYTES;
/// Partition, two flags and a count.
const ARGUMENT_HEAD_BYTES: usize = 4 + 4 + 4 + 4;
/// Status, instance and a count.
const ANSWER_HEAD_BYTES: usize = 4 + 8 + 4;

impl BatchArguments {
    /// How long the results are at most, in bytes, status included.
    pub fn answer_bytes(&self) -> usize {
        let each = self.operations.iter().map(|each| each.answer_bytes(self.with_attributes));
        ANSWER_HEAD_BYTES + each.sum::<usize>()
    }

    /// How many of these operations, from the first on, go into one batch: all, or at least one.
    pub fn fitting(operations: &[BatchOperation], with_attributes: bool) -> usize {
        let (mut arguments, mut answer) = (ARGUMENT_HEAD_BYTES, ANSWER_HEAD_BYTES);
        let fits = |operation: &&BatchOperation| {
            arguments += operation.argument_bytes();
            answer += operation.answer_bytes(with_attributes);
            arguments.max(answer) <= MAX_BATCH_BYTES
        };
        operations.iter().take(MAX_BATCH).take_while(fits).count()
    }
}

/// Attributes to set, as a message of their own.
struct Changes<'a>(&'a SetAttributes);

impl XdrEncode for Changes<'_> {
    fn encode(&self, out: &mut Encoder) {
        self.0.put(out);
    }
}

impl Field for BatchOperation {
    fn put(&self, out: &mut Encoder) {
        self.kind().put(out);
        match self {
            BatchOperation::Create(chosen, initial) => {
                chosen.put(out);
                initial.put(out);
            }
            BatchOperation::Setattr(object, changes) => {
                object.put(out);
                changes.put(out);
            }
            BatchOperation::Remove(object) | BatchOperation::Getattr(object) => object.put(out),
        }
    }

    fn take(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(match BatchKind::take(input)? {
            BatchKind::Create => {
                let chosen = Field::take(input)?;
                BatchOperation::Create(chosen, Field::take(input)?)
            }
            BatchKind::Remove => BatchOperation::Remove(Field::take(input)?),
            BatchKind::Setattr => {
                let object = Field::take(input)?;
                BatchOperation::Setattr(object, Field::take(input)?)
            }
            BatchKind::Getattr => BatchOperation::Getattr(Field::take(input)?),
        })
    }
}

impl Field for BatchOutcome {
    fn put(&self, out: &mut Encoder) {
        encode_result(self, out);
    }

    fn take(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        decode_result(input)
    }
}

impl XdrEncode for BatchArguments {
    fn encode(&self, out: &mut Encoder) {
        self.partition.put(out);
        out.bool(self.durable);
        out.bool(self.with_attributes);
        put_array(&self.operations, out);
    }
}

impl XdrDecode for BatchArguments {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(BatchArguments {
            partition: Field::take(input)?,
            durable: input.bool()?,
            with_attributes: input.bool()?,
            operations: take_array(input, MAX_BATCH)?,
        })
    }
}

impl XdrEncode for Batched {
    fn encode(&self, out: &mut Encoder) {
        out.u64(self.instance);
        put_array(&self.outcomes, out);
    }
}

impl XdrDecode for Batched {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Batched { instance: input.u64()?, outcomes: take_array(input, MAX_BATCH)? })
    }
}

#[cfg(test)]
mod tests {
    use nasd_xdr::from_bytes;

    use super::*;
    use crate::drive::AttributesReply;

    fn set(all: bool) -> SetAttributes {
        SetAttributes {
            logical_size: Some(1),
            fs_specific: all.then(|| Box::new([1; 256])),
            ..SetAttributes::default()
        }
    }

    fn arguments(operations: Vec<BatchOperation>, with_attributes: bool) -> BatchArguments {
        BatchArguments { partition: PartitionId(1), durable: true, with_attributes, operations }
    }

    /// The answer to them, if all are done.
    fn answered(operations: &[BatchOperation], with_attributes: bool) -> Batched {
        let AttributesReply { attributes } = from_bytes(&[1; 356]).expect("their length");
        let outcomes = operations.iter().map(|operation| {
            let attributes =
                operation.tells_attributes(with_attributes).then(|| attributes.clone());
            Ok(BatchDone { object: ObjectId(4), attributes })
        });
        Batched { instance: 1, outcomes: outcomes.collect() }
    }

    /// As many as fit are within the limits, and one more is not, of any mixture.
    #[test]
    fn as_many_as_fit_are_within_the_limits() {
        for mixture in 0..256_u32 {
            let with_attributes = mixture & 1 == 1;
            let operations: Vec<BatchOperation> = (0..MAX_BATCH + 5)
                .map(|number| match mixture >> (2 * (number % 4)) & 3 {
                    0 => BatchOperation::Create(
                        (number % 3 == 0).then_some(ObjectId::FIRST_NAMED),
                        set(number % 2 == 0),
                    ),
                    1 => BatchOperation::Setattr(ObjectId(4), set(number % 3 == 0)),
                    2 => BatchOperation::Remove(ObjectId(4)),
                    _ => BatchOperation::Getattr(ObjectId(4)),
                })
                .collect();
            let count = BatchArguments::fitting(&operations, with_attributes);
            assert!((1..=MAX_BATCH).contains(&count), "{mixture}");
            let bytes = |count: usize| {
                let arguments = arguments(operations[..count].to_vec(), with_attributes);
                let mut out = Encoder::new();
                let answered = answered(&arguments.operations, with_attributes);
                encode_result::<_, Status>(&Ok(answered), &mut out);
                let answer = out.into_bytes().len();
                assert_eq!(answer, arguments.answer_bytes(), "{mixture}");
                answer.max(to_bytes(&arguments).len())
            };
            assert!(bytes(count) <= MAX_BATCH_BYTES, "{mixture}");
            assert!(count == MAX_BATCH || bytes(count + 1) > MAX_BATCH_BYTES, "{mixture}");
        }
        assert_eq!(BatchArguments::fitting(&[], true), 0);
    }

    #[test]
    fn more_than_the_most_are_no_batch() {
        let of =
            |count| to_bytes(&arguments(vec![BatchOperation::Remove(ObjectId(4)); count], false));
        assert!(from_bytes::<BatchArguments>(&of(MAX_BATCH)).is_ok());
        assert!(from_bytes::<BatchArguments>(&of(MAX_BATCH + 1)).is_err());
        let mut unknown = of(1);
        unknown[19] = 4;
        assert!(from_bytes::<BatchArguments>(&unknown).is_err());
    }
}
