//! `getattr`: read a file's attributes. Also renews a capability.

use super::{File, FileHandle, Operation, Procedure};

/// The operation.
#[derive(Debug)]
pub enum Getattr {}

impl Operation for Getattr {
    const PROCEDURE: Procedure = Procedure::Getattr;
    type Arguments = FileHandle;
    type Reply = File;
}
