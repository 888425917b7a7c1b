//! `createpartition`: a partition without room and without keys, with an empty First Object.

use nasd_types::PartitionId;

use super::{Operation, Procedure};
use crate::wire::message;

/// The operation.
#[derive(Debug)]
pub enum Createpartition {}

impl Operation for Createpartition {
    const PROCEDURE: Procedure = Procedure::Createpartition;
    type Arguments = CreatepartitionArguments;
    type Reply = ();
}

message! {
    /// Arguments (`nasd_createpartition_arguments`).
    #[derive(Copy)]
    pub struct CreatepartitionArguments {
        /// Its number, chosen by the caller.
        pub partition: PartitionId,
    }
}
