//! `setdrivekey`: the key that manages partitions (CMU-CS-97-118, Table 6).

use nasd_capability::SealedKey;

use super::{Operation, Procedure};
use crate::wire::message;

/// The operation.
#[derive(Debug)]
pub enum Setdrivekey {}

impl Operation for Setdrivekey {
    const PROCEDURE: Procedure = Procedure::Setdrivekey;
    type Arguments = SetdrivekeyArguments;
    type Reply = ();
}

message! {
    /// Arguments (`nasd_setdrivekey_arguments`).
    #[derive(Copy)]
    pub struct SetdrivekeyArguments {
        /// The key, sealed under the master key.
        pub value: SealedKey,
    }
}
