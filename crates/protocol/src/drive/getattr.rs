//! `getattr`: read an object's attributes.

use nasd_types::ObjectName;

use super::{AttributesReply, Operation, Procedure};
use crate::wire::message;

/// The operation.
#[derive(Debug)]
pub enum Getattr {}

impl Operation for Getattr {
    const PROCEDURE: Procedure = Procedure::Getattr;
    type Arguments = GetattrArguments;
    type Reply = AttributesReply;
}

message! {
    /// Arguments (`nasd_getattr_arguments`).
    #[derive(Copy)]
    pub struct GetattrArguments {
        /// Which object.
        pub name: ObjectName,
    }
}
