//! `putobject`: an object of a given identifier with exactly these attributes, for who brings it from another drive.

use nasd_types::{ObjectId, PartitionId};

use super::{ObjectState, Operation, Procedure};
use crate::wire::message;

/// The operation.
#[derive(Debug)]
pub enum Putobject {}

impl Operation for Putobject {
    const PROCEDURE: Procedure = Procedure::Putobject;
    type Arguments = PutobjectArguments;
    type Reply = ();
}

message! {
    /// Arguments (`nasd_putobject_arguments`).
    pub struct PutobjectArguments {
        /// Where.
        pub partition: PartitionId,
        /// Which one, made if it is not there.
        pub object: ObjectId,
        /// The drive gives out no identifier below this one from now on; at most [`ObjectId::FIRST_NAMED`].
        pub identifiers_end: ObjectId,
        /// What it is from now on. Its data stays, as far as the length goes.
        pub state: ObjectState,
    }
}
