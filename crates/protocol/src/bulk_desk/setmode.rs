//! `setmode`: set a file's permission bits.

use super::{FileFacts, ModeArguments, Operation, Procedure};

/// The operation.
#[derive(Debug)]
pub enum Setmode {}

impl Operation for Setmode {
    const PROCEDURE: Procedure = Procedure::Setmode;
    type Arguments = ModeArguments;
    type Reply = FileFacts;
}
