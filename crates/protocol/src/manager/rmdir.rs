//! `rmdir`: remove an empty directory.

use super::{Change, Changed, FileHandle, Operation, Procedure, UnlinkArguments};

/// The operation.
#[derive(Debug)]
pub enum Rmdir {}

impl Operation for Rmdir {
    const PROCEDURE: Procedure = Procedure::Rmdir;
    type Arguments = UnlinkArguments;
    type Reply = Changed<()>;
}

impl Change for Rmdir {
    fn touches(arguments: &Self::Arguments) -> [Option<FileHandle>; 2] {
        [Some(arguments.directory), None]
    }
}
