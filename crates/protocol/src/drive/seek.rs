//! `seek`: where data, or a hole, begins next.

use nasd_types::{ObjectName, SeekTarget};

use super::{Operation, Procedure};
use crate::wire::message;

/// The operation.
#[derive(Debug)]
pub enum Seek {}

impl Operation for Seek {
    const PROCEDURE: Procedure = Procedure::Seek;
    type Arguments = SeekArguments;
    type Reply = Sought;
}

message! {
    /// Arguments (`nasd_seek_arguments`).
    #[derive(Copy)]
    pub struct SeekArguments {
        /// Which object.
        pub name: ObjectName,
        /// From which byte on.
        pub offset: u64,
        /// What to look for.
        pub target: SeekTarget,
    }
}

message! {
    /// The answer (`nasd_sought`).
    #[derive(Copy)]
    pub struct Sought {
        /// The first byte of what was looked for. `None` if `offset` is not before the end of the
        /// object, there is none, or it is not in the region of the capability.
        pub position: Option<u64>,
    }
}
