//! `mkdir`: make a directory.

use super::{DeskPath, FileFacts, Operation, Procedure};
use crate::wire::message;

/// The operation.
#[derive(Debug)]
pub enum Mkdir {}

impl Operation for Mkdir {
    const PROCEDURE: Procedure = Procedure::Mkdir;
    type Arguments = ModeArguments;
    type Reply = FileFacts;
}

message! {
    /// Arguments, also of `setmode` (`nasd_desk_mode_arguments`).
    pub struct ModeArguments {
        /// Which.
        pub path: DeskPath,
        /// Permission bits, 07777; of a new directory the caller's umask is already applied.
        pub mode: u32,
    }
}
