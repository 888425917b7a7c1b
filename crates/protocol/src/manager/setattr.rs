//! `setattr`: change a file's mode, owner, length or times.

use nasd_types::Timestamp;

use super::{Change, File, FileHandle, Operation, Procedure};
use crate::wire::message;

/// The operation.
#[derive(Debug)]
pub enum Setattr {}

impl Operation for Setattr {
    const PROCEDURE: Procedure = Procedure::Setattr;
    type Arguments = SetFileArguments;
    type Reply = File;
}

impl Change for Setattr {
    fn touches(arguments: &Self::Arguments) -> [Option<FileHandle>; 2] {
        [Some(arguments.file), None]
    }
}

message! {
    /// A part of a file, in bytes (`nasd_file_range`).
    #[derive(Copy)]
    pub struct FileRange {
        /// Its first byte.
        pub offset: u64,
        /// How many.
        pub length: u64,
    }
}

message! {
    /// What to change; `None` leaves one as it is (`nasd_set_file_attributes`).
    #[derive(Copy, Default)]
    pub struct SetFileAttributes {
        /// New permission bits.
        pub mode: Option<u32>,
        /// New owner.
        pub uid: Option<u32>,
        /// New group.
        pub gid: Option<u32>,
        /// New length: cuts, or extends with zeros.
        pub size: Option<u64>,
        /// A part of a regular file, which need not be there yet, that can then be written without
        /// running out of room.
        pub reserve: Option<FileRange>,
        /// New access time.
        pub access_time: Option<Timestamp>,
        /// New modification time.
        pub modify_time: Option<Timestamp>,
        /// Set the access time to the server's clock instead.
        pub access_time_now: bool,
        /// Set the modification time to the server's clock instead.
        pub modify_time_now: bool,
    }
}

message! {
    /// Arguments (`nasd_set_file_arguments`).
    #[derive(Copy)]
    pub struct SetFileArguments {
        /// Which file.
        pub file: FileHandle,
        /// What to change.
        pub changes: SetFileAttributes,
    }
}
