//! `create`: make a regular file.

use super::{Change, Changed, File, FileHandle, Name, NewMode, Operation, Procedure};
use crate::wire::message;

/// The operation.
#[derive(Debug)]
pub enum Create {}

impl Operation for Create {
    const PROCEDURE: Procedure = Procedure::Create;
    type Arguments = CreateFileArguments;
    type Reply = Changed<File>;
}

impl Change for Create {
    fn touches(arguments: &Self::Arguments) -> [Option<FileHandle>; 2] {
        [Some(arguments.directory), None]
    }
}

message! {
    /// Arguments (`nasd_create_file_arguments`).
    pub struct CreateFileArguments {
        /// Where.
        pub directory: FileHandle,
        /// Its name.
        pub name: Name,
        /// Its permission bits.
        pub mode: NewMode,
        /// Fail if the name exists; else answer what is there.
        pub exclusive: bool,
        /// The client wants to store the file at once, where the volume has callbacks, and knows what [`Begun`](super::Begun) is.
        pub stores: bool,
    }
}
