//! `endwrites`: a client has ended its writes of an object of a virtual drive.

use nasd_types::ObjectName;

use super::{Operation, Procedure};
use crate::wire::message;

/// The operation.
#[derive(Debug)]
pub enum Endwrites {}

impl Operation for Endwrites {
    const PROCEDURE: Procedure = Procedure::Endwrites;
    type Arguments = EndwritesArguments;
    type Reply = ();
}

message! {
    /// Arguments (`nasd_endwrites_arguments`).
    #[derive(Copy)]
    pub struct EndwritesArguments {
        /// Which object.
        pub name: ObjectName,
        /// Who, as it was said when a map was asked for.
        pub client: u64,
        /// [`ObjectMap::turn`](super::ObjectMap::turn) of the last map by which it may have written. If it was given a
        /// later one, that is not ended.
        pub turn: u64,
    }
}
