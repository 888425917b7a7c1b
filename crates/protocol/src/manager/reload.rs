//! `reload`: the manager reads its ledger of members and its certificates anew.

use super::{Operation, Procedure, Rotation};
use crate::wire::message;

/// The operation. Only the cell's administrators may ask for it.
#[derive(Debug)]
pub enum Reload {}

impl Operation for Reload {
    const PROCEDURE: Procedure = Procedure::Reload;
    type Arguments = ReloadArguments;
    type Reply = Rotation;
}

message! {
    /// What else is to be done (`nasd_reload_arguments`).
    #[derive(Copy)]
    pub struct ReloadArguments {
        /// Change every working key twice, once who is no member is out: so that capabilities in
        /// the hands of those die too. The answer tells of the drives then, else of none.
        pub revoke: bool,
    }
}
