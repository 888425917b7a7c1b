//! `setpartitionkey`: one of a partition's keys (CMU-CS-97-118, Table 6).

use nasd_capability::SealedKey;
use nasd_types::PartitionId;
use nasd_xdr::xdr_enum;

use super::{Operation, Procedure};
use crate::wire::{field_by_xdr, message};

/// The operation.
#[derive(Debug)]
pub enum Setpartitionkey {}

impl Operation for Setpartitionkey {
    const PROCEDURE: Procedure = Procedure::Setpartitionkey;
    type Arguments = SetpartitionkeyArguments;
    type Reply = ();
}

xdr_enum! {
    /// Which key (`nasd_partition_key`).
    pub enum PartitionKey {
        /// The partition key, which the drive key sets.
        Key = 0,
        /// The working key that capabilities are made with; the one before becomes the previous.
        Current = 1,
        /// The working key that still checks capabilities. The partition key sets this and the
        /// current one.
        Previous = 2,
    }
}

field_by_xdr!(PartitionKey);

message! {
    /// Arguments (`nasd_setpartitionkey_arguments`).
    #[derive(Copy)]
    pub struct SetpartitionkeyArguments {
        /// Which.
        pub partition: PartitionId,
        /// Which of its keys.
        pub which: PartitionKey,
        /// A working key's number: above that of the one that it follows. 0 for the partition key.
        pub epoch: u32,
        /// The key, sealed under the key of the request.
        pub value: SealedKey,
    }
}
