//! `flushpartition`: everything in a partition is durable; the same as `flush` without objects.

use nasd_types::PartitionId;

use super::{Flushed, Operation, Procedure};
use crate::wire::message;

/// The operation.
#[derive(Debug)]
pub enum Flushpartition {}

impl Operation for Flushpartition {
    const PROCEDURE: Procedure = Procedure::Flushpartition;
    type Arguments = FlushpartitionArguments;
    type Reply = Flushed;
}

message! {
    /// Arguments (`nasd_flushpartition_arguments`).
    #[derive(Copy)]
    pub struct FlushpartitionArguments {
        /// Which.
        pub partition: PartitionId,
    }
}
