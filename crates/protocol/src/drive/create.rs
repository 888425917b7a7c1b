//! `create`: make an object in a partition, with the attributes given.

use nasd_types::{Attributes, ObjectId, PartitionId, SetAttributes};

use super::{Operation, Procedure};
use crate::wire::message;

/// The operation.
#[derive(Debug)]
pub enum Create {}

impl Operation for Create {
    const PROCEDURE: Procedure = Procedure::Create;
    type Arguments = CreateArguments;
    type Reply = Created;
}

message! {
    /// Arguments (`nasd_create_arguments`).
    pub struct CreateArguments {
        /// Where.
        pub partition: PartitionId,
        /// Its identifier, from [`ObjectId::FIRST_NAMED`] on, by a key of the partition alone. It must never
        /// be chosen again. `None`: the drive gives one.
        pub object: Option<ObjectId>,
        /// Answer only when the object would survive a power cut.
        pub durable: bool,
        /// Attributes to begin with.
        pub initial: SetAttributes,
    }
}

message! {
    /// The answer (`nasd_created`).
    pub struct Created {
        /// The new object's identifier.
        pub object: ObjectId,
        /// Its attributes.
        pub attributes: Attributes,
    }
}
