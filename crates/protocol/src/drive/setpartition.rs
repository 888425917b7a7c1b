//! `setpartition`: what of a partition can be set besides its size and keys.

use nasd_types::{Compression, PartitionId, Protection};

use super::{Operation, Procedure};
use crate::wire::message;

/// The operation.
#[derive(Debug)]
pub enum Setpartition {}

impl Operation for Setpartition {
    const PROCEDURE: Procedure = Procedure::Setpartition;
    type Arguments = SetpartitionArguments;
    type Reply = ();
}

message! {
    /// Arguments (`nasd_setpartition_arguments`).
    #[derive(Copy)]
    pub struct SetpartitionArguments {
        /// Which.
        pub partition: PartitionId,
        /// Of data written from now on; `None` leaves it as it is.
        pub compression: Option<Compression>,
        /// The weakest protection of capabilities and requests for its objects; `None` leaves it. Raising
        /// it revokes what is weaker.
        pub minimum_protection: Option<Protection>,
    }
}
