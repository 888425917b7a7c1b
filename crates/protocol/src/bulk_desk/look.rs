//! `look`: how a file is. Links are followed.

use super::{DeskPath, FileFacts, Operation, Procedure};

/// The operation.
#[derive(Debug)]
pub enum Look {}

impl Operation for Look {
    const PROCEDURE: Procedure = Procedure::Look;
    type Arguments = DeskPath;
    type Reply = FileFacts;
}
