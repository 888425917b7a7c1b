//! `remove`: an object and its data are gone, and the drive never gives its identifier out again.

use nasd_types::ObjectName;

use super::{Operation, Procedure};
use crate::wire::message;

/// The operation.
#[derive(Debug)]
pub enum Remove {}

impl Operation for Remove {
    const PROCEDURE: Procedure = Procedure::Remove;
    type Arguments = RemoveArguments;
    type Reply = ();
}

message! {
    /// Arguments (`nasd_remove_arguments`).
    #[derive(Copy)]
    pub struct RemoveArguments {
        /// Which object.
        pub name: ObjectName,
        /// Answer only when the removal would survive a power cut.
        pub durable: bool,
    }
}
