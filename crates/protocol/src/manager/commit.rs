//! `commit`: make durable what was changed in a volume. What is answered is safe from the death of the
//! manager, and from a power cut within a second; for `fsync` that is not enough.

use super::{FileHandle, Operation, Procedure};

/// The operation; its argument is any file of the volume.
#[derive(Debug)]
pub enum Commit {}

impl Operation for Commit {
    const PROCEDURE: Procedure = Procedure::Commit;
    type Arguments = FileHandle;
    type Reply = ();
}
