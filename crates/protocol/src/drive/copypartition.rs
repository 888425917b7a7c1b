//! `copypartition`: a partition that has all objects of another one, and shares their blocks.

use nasd_types::PartitionId;

use super::{Operation, Procedure};
use crate::wire::message;

/// The operation.
#[derive(Debug)]
pub enum Copypartition {}

impl Operation for Copypartition {
    const PROCEDURE: Procedure = Procedure::Copypartition;
    type Arguments = CopypartitionArguments;
    type Reply = ();
}

message! {
    /// Arguments (`nasd_copypartition_arguments`).
    #[derive(Copy)]
    pub struct CopypartitionArguments {
        /// The new one's number, chosen by the caller.
        pub partition: PartitionId,
        /// The one that is copied.
        pub source: PartitionId,
    }
}
