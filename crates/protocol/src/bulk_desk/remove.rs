//! `remove`: take away the name of a file, or an empty directory. Links are not followed.

use super::{DeskPath, Operation, Procedure};

/// The operation.
#[derive(Debug)]
pub enum Remove {}

impl Operation for Remove {
    const PROCEDURE: Procedure = Procedure::Remove;
    type Arguments = DeskPath;
    type Reply = ();
}
