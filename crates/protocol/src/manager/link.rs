//! `link`: give a file another name.

use super::{Change, Changed, File, FileHandle, Name, Operation, Procedure};
use crate::wire::message;

/// The operation.
#[derive(Debug)]
pub enum Link {}

impl Operation for Link {
    const PROCEDURE: Procedure = Procedure::Link;
    type Arguments = LinkArguments;
    type Reply = Changed<File>;
}

impl Change for Link {
    fn touches(arguments: &Self::Arguments) -> [Option<FileHandle>; 2] {
        [Some(arguments.directory), Some(arguments.file)]
    }
}

message! {
    /// Arguments (`nasd_link_arguments`).
    pub struct LinkArguments {
        /// Which file.
        pub file: FileHandle,
        /// Where its new name goes.
        pub directory: FileHandle,
        /// The new name.
        pub name: Name,
    }
}
