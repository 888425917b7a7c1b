//! `revoke`: every capability of a file, whoever holds it, is refused from the answer on.

use super::{FileHandle, Operation, Procedure};

/// The operation.
#[derive(Debug)]
pub enum Revoke {}

impl Operation for Revoke {
    const PROCEDURE: Procedure = Procedure::Revoke;
    type Arguments = FileHandle;
    type Reply = ();
}
