//! `space`: how much a volume holds and could still hold.

use super::{Name, Operation, Procedure};
use crate::wire::message;

/// The operation.
#[derive(Debug)]
pub enum Space {}

impl Operation for Space {
    const PROCEDURE: Procedure = Procedure::Space;
    type Arguments = Name;
    type Reply = SpaceInformation;
}

message! {
    /// The answer (`nasd_space`).
    #[derive(Copy)]
    pub struct SpaceInformation {
        /// Bytes that the volume can hold.
        pub total_bytes: u64,
        /// Bytes that it could still take.
        pub free_bytes: u64,
        /// Files in it.
        pub files: u64,
        /// About how many more there is room for.
        pub free_files: u64,
    }
}
