//! `lookup`: find a name in a directory.

use super::{File, FileHandle, Name, Operation, Procedure};
use crate::wire::message;

/// The operation.
#[derive(Debug)]
pub enum Lookup {}

impl Operation for Lookup {
    const PROCEDURE: Procedure = Procedure::Lookup;
    type Arguments = LookupArguments;
    type Reply = File;
}

message! {
    /// Arguments (`nasd_lookup_arguments`).
    pub struct LookupArguments {
        /// Where.
        pub directory: FileHandle,
        /// What.
        pub name: Name,
    }
}
