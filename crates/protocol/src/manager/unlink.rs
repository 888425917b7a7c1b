//! `unlink`: remove a name that is not a directory's.

use super::{Change, Changed, FileHandle, Name, Operation, Procedure};
use crate::wire::message;

/// The operation.
#[derive(Debug)]
pub enum Unlink {}

impl Operation for Unlink {
    const PROCEDURE: Procedure = Procedure::Unlink;
    type Arguments = UnlinkArguments;
    type Reply = Changed<()>;
}

impl Change for Unlink {
    fn touches(arguments: &Self::Arguments) -> [Option<FileHandle>; 2] {
        [Some(arguments.directory), None]
    }

    fn names(arguments: &Self::Arguments) -> [Option<(FileHandle, &Name)>; 2] {
        [Some((arguments.directory, &arguments.name)), None]
    }

    fn keeps(arguments: &Self::Arguments) -> Option<FileHandle> {
        arguments.open
    }
}

message! {
    /// Arguments (`nasd_unlink_arguments`).
    pub struct UnlinkArguments {
        /// Where.
        pub directory: FileHandle,
        /// What.
        pub name: Name,
        /// The file of that name, if the client has it open: it stays until it is closed.
        pub open: Option<FileHandle>,
    }
}
