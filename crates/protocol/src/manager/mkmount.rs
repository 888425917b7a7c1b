//! `mkmount`: make a mount point, a name at which another volume is seen. Removed by `unlink`.

use super::{Change, Changed, File, FileHandle, Name, Operation, Procedure};
use crate::wire::message;

/// The operation.
#[derive(Debug)]
pub enum Mkmount {}

impl Operation for Mkmount {
    const PROCEDURE: Procedure = Procedure::Mkmount;
    type Arguments = MkmountArguments;
    type Reply = Changed<File>;
}

impl Change for Mkmount {
    fn touches(arguments: &Self::Arguments) -> [Option<FileHandle>; 2] {
        [Some(arguments.directory), None]
    }
}

message! {
    /// Arguments (`nasd_mkmount_arguments`).
    pub struct MkmountArguments {
        /// Where.
        pub directory: FileHandle,
        /// Its name.
        pub name: Name,
        /// The volume that is seen there; its name is the mount point's data, read from the drive like any other.
        pub volume: Name,
    }
}
