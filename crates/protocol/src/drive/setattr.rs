//! `setattr`: change some of an object's attributes. A new access control version revokes every
//! capability of the object at once.

use nasd_types::{ObjectName, SetAttributes};

use super::{AttributesReply, Operation, Procedure};
use crate::wire::message;

/// The operation.
#[derive(Debug)]
pub enum Setattr {}

impl Operation for Setattr {
    const PROCEDURE: Procedure = Procedure::Setattr;
    type Arguments = SetattrArguments;
    type Reply = AttributesReply;
}

message! {
    /// Arguments (`nasd_setattr_arguments`).
    pub struct SetattrArguments {
        /// Which object.
        pub name: ObjectName,
        /// Answer only when the change would survive a power cut.
        pub durable: bool,
        /// What to change.
        pub changes: SetAttributes,
    }
}
