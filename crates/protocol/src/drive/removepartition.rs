//! `removepartition`: a partition is gone with all its objects and keys.

use nasd_types::PartitionId;

use super::{Operation, Procedure};
use crate::wire::message;

/// The operation.
#[derive(Debug)]
pub enum Removepartition {}

impl Operation for Removepartition {
    const PROCEDURE: Procedure = Procedure::Removepartition;
    type Arguments = RemovepartitionArguments;
    type Reply = ();
}

message! {
    /// Arguments (`nasd_removepartition_arguments`).
    #[derive(Copy)]
    pub struct RemovepartitionArguments {
        /// Which.
        pub partition: PartitionId,
    }
}
