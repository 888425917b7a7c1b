//! `mkdir`: make a directory.

use super::{Change, Changed, File, FileHandle, Name, NewMode, Operation, Procedure};
use crate::wire::message;

/// The operation.
#[derive(Debug)]
pub enum Mkdir {}

impl Operation for Mkdir {
    const PROCEDURE: Procedure = Procedure::Mkdir;
    type Arguments = MkdirArguments;
    type Reply = Changed<File>;
}

impl Change for Mkdir {
    fn touches(arguments: &Self::Arguments) -> [Option<FileHandle>; 2] {
        [Some(arguments.directory), None]
    }
}

message! {
    /// Arguments (`nasd_mkdir_arguments`).
    pub struct MkdirArguments {
        /// Where.
        pub directory: FileHandle,
        /// Its name.
        pub name: Name,
        /// Its permission bits.
        pub mode: NewMode,
    }
}
