//! `rename`: move a name within the directory, over what has the new one.

use super::{DeskPath, Operation, Procedure};
use crate::wire::message;

/// The operation.
#[derive(Debug)]
pub enum Rename {}

impl Operation for Rename {
    const PROCEDURE: Procedure = Procedure::Rename;
    type Arguments = RenameArguments;
    type Reply = ();
}

message! {
    /// Arguments (`nasd_desk_rename_arguments`).
    pub struct RenameArguments {
        /// Which name.
        pub from: DeskPath,
        /// The new name.
        pub to: DeskPath,
    }
}
