//! `setstriping`: how the objects of a virtual drive's partition are spread; while it has none.

use nasd_types::PartitionId;

use super::{Operation, Procedure};
use crate::wire::message;

/// The operation.
#[derive(Debug)]
pub enum Setstriping {}

impl Operation for Setstriping {
    const PROCEDURE: Procedure = Procedure::Setstriping;
    type Arguments = SetstripingArguments;
    type Reply = ();
}

message! {
    /// Arguments (`nasd_setstriping_arguments`).
    #[derive(Copy)]
    pub struct SetstripingArguments {
        /// Which partition.
        pub partition: PartitionId,
        /// Bytes of a stripe unit: a multiple of a block.
        pub unit: u64,
        /// Drives that a large object lies on; 0 for all there are.
        pub width: u32,
        /// How often each byte is kept.
        pub copies: u32,
    }
}
