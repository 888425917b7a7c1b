//! `resizepartition`: how much a partition may hold. A partition is a quota, not a place.

use nasd_types::PartitionId;

use super::{Operation, Procedure};
use crate::wire::message;

/// The operation.
#[derive(Debug)]
pub enum Resizepartition {}

impl Operation for Resizepartition {
    const PROCEDURE: Procedure = Procedure::Resizepartition;
    type Arguments = ResizepartitionArguments;
    type Reply = ();
}

/// The size of a partition that may fill the drive (`NASD_NO_QUOTA`).
pub const NO_QUOTA: u64 = u64::MAX;

message! {
    /// Arguments (`nasd_resizepartition_arguments`).
    #[derive(Copy)]
    pub struct ResizepartitionArguments {
        /// Which.
        pub partition: PartitionId,
        /// Most bytes that its objects may take; [`NO_QUOTA`] for no limit.
        pub bytes: u64,
    }
}
