//! `settime`: set when a file was changed last.

use nasd_types::Timestamp;

use super::{DeskPath, FileFacts, Operation, Procedure};
use crate::wire::message;

/// The operation.
#[derive(Debug)]
pub enum Settime {}

impl Operation for Settime {
    const PROCEDURE: Procedure = Procedure::Settime;
    type Arguments = SettimeArguments;
    type Reply = FileFacts;
}

message! {
    /// Arguments (`nasd_desk_time_arguments`).
    pub struct SettimeArguments {
        /// Which file.
        pub path: DeskPath,
        /// The time.
        pub modify_time: Timestamp,
    }
}
