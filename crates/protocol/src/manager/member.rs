//! `member`: whether a certificate is that of a present member, for servers that members call besides the manager.

use super::{Name, Operation, Procedure};
use crate::wire::message;

/// The operation. By a host's certificate; it has no caller.
#[derive(Debug)]
pub enum Member {}

impl Operation for Member {
    const PROCEDURE: Procedure = Procedure::Member;
    type Arguments = MemberArguments;
    type Reply = Membership;
}

message! {
    /// Which certificate (`nasd_member_arguments`).
    pub struct MemberArguments {
        /// Its serial number in hexadecimal digits.
        pub serial: Name,
        /// Its common name.
        pub identity: Name,
    }
}

message! {
    /// The answer (`nasd_membership`).
    #[derive(Copy)]
    pub struct Membership {
        /// Whether it is that of a member who was not removed.
        pub present: bool,
    }
}
