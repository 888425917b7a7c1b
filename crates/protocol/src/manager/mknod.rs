//! `mknod`: make a named pipe, a socket's name, or a device's.

use super::{
    Change, Changed, Device, File, FileHandle, FileType, Name, NewMode, Operation, Procedure,
};
use crate::wire::message;

/// The operation.
#[derive(Debug)]
pub enum Mknod {}

impl Operation for Mknod {
    const PROCEDURE: Procedure = Procedure::Mknod;
    type Arguments = MknodArguments;
    type Reply = Changed<File>;
}

impl Change for Mknod {
    fn touches(arguments: &Self::Arguments) -> [Option<FileHandle>; 2] {
        [Some(arguments.directory), None]
    }
}

message! {
    /// Arguments (`nasd_mknod_arguments`).
    pub struct MknodArguments {
        /// Where.
        pub directory: FileHandle,
        /// Its name.
        pub name: Name,
        /// What it is (`type`): a regular file too, and nothing that has its own call.
        pub file_type: FileType,
        /// Its permission bits.
        pub mode: NewMode,
        /// Of a device, which.
        pub device: Device,
    }
}
