//! `fastcopy`: a new object that shares the blocks of another until either is written to.

use nasd_types::{ObjectId, ObjectName};

use super::{Created, Operation, Procedure};
use crate::wire::message;

/// The operation.
#[derive(Debug)]
pub enum Fastcopy {}

impl Operation for Fastcopy {
    const PROCEDURE: Procedure = Procedure::Fastcopy;
    type Arguments = FastcopyArguments;
    type Reply = Created;
}

message! {
    /// Arguments (`nasd_fastcopy_arguments`).
    #[derive(Copy)]
    pub struct FastcopyArguments {
        /// The object to copy. The copy comes into its partition, and is durable when it is answered.
        pub name: ObjectName,
        /// The identifier of the copy, chosen as that of a new object may be.
        pub copy: Option<ObjectId>,
    }
}
