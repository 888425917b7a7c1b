//! `setdrive`: what of a drive can be set besides its keys and clock.

use nasd_types::Protection;

use super::{Operation, Procedure};
use crate::wire::message;

/// The operation.
#[derive(Debug)]
pub enum Setdrive {}

impl Operation for Setdrive {
    const PROCEDURE: Procedure = Procedure::Setdrive;
    type Arguments = SetdriveArguments;
    type Reply = ();
}

message! {
    /// Arguments (`nasd_setdrive_arguments`).
    #[derive(Copy)]
    pub struct SetdriveArguments {
        /// The weakest protection of capabilities and requests, for all of the drive; `None` leaves
        /// it. Raising it revokes what is weaker.
        pub minimum_protection: Option<Protection>,
    }
}
