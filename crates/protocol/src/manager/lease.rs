//! `lease`: whether a client may believe what it is told of a directory.

use super::{FileHandle, Operation, Procedure};
use crate::wire::message;

/// The operation.
#[derive(Debug)]
pub enum Lease {}

impl Operation for Lease {
    const PROCEDURE: Procedure = Procedure::Lease;
    type Arguments = LeaseArguments;
    type Reply = Leased;
}

message! {
    /// Arguments (`nasd_lease_arguments`).
    #[derive(Copy)]
    pub struct LeaseArguments {
        /// The client's session.
        pub client: u64,
        /// Which directory.
        pub directory: FileHandle,
    }
}

message! {
    /// The answer (`nasd_leased`).
    #[derive(Copy)]
    pub struct Leased {
        /// Whether what the client is told of the directory from now on stays true until an event says
        /// otherwise, or its session ends. If not, others change the directory.
        pub granted: bool,
    }
}
