//! `tmpfile`: make a regular file without a name, which is there while somebody has it open, or until it
//! gets a name by `link`.

use super::{Change, Changed, File, FileHandle, NewMode, Operation, Procedure};
use crate::wire::message;

/// The operation.
#[derive(Debug)]
pub enum Tmpfile {}

impl Operation for Tmpfile {
    const PROCEDURE: Procedure = Procedure::Tmpfile;
    type Arguments = TmpfileArguments;
    type Reply = Changed<File>;
}

impl Change for Tmpfile {
    fn touches(_: &Self::Arguments) -> [Option<FileHandle>; 2] {
        [None, None]
    }
}

message! {
    /// Arguments (`nasd_tmpfile_arguments`).
    pub struct TmpfileArguments {
        /// As whose file it is made: that decides who may, its group, and its access control list.
        pub directory: FileHandle,
        /// Its permission bits.
        pub mode: NewMode,
    }
}
