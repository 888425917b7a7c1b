//! `rmdir`: remove an empty directory.

use super::{Change, FileHandle, Operation, Procedure, UnlinkArguments};

/// The operation.
#[derive(Debug)]
pub enum Rmdir {}

impl Operation for Rmdir {
    const PROCEDURE: Procedure = Procedure::Rmdir;
    type Arguments = UnlinkArguments;
    type Reply = ();
}

impl Change for Rmdir {
    fn touches(arguments: &Self::Arguments) -> [Option<FileHandle>; 2] {
        [Some(arguments.directory), None]
    }
}
