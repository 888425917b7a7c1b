//! `rmdir`: remove an empty directory.

use super::{Change, Changed, FileHandle, Name, Operation, Procedure};
use crate::wire::message;

/// The operation.
#[derive(Debug)]
pub enum Rmdir {}

impl Operation for Rmdir {
    const PROCEDURE: Procedure = Procedure::Rmdir;
    type Arguments = RmdirArguments;
    type Reply = Changed<()>;
}

impl Change for Rmdir {
    fn touches(arguments: &Self::Arguments) -> [Option<FileHandle>; 2] {
        [Some(arguments.directory), None]
    }

    fn names(arguments: &Self::Arguments) -> [Option<(FileHandle, &Name)>; 2] {
        [Some((arguments.directory, &arguments.name)), None]
    }
}

message! {
    /// Arguments (`nasd_rmdir_arguments`).
    pub struct RmdirArguments {
        /// Where.
        pub directory: FileHandle,
        /// What.
        pub name: Name,
    }
}
