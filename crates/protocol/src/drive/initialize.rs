//! `initialize`: a new master key and clock, and nothing else left: no key, no partition.

use nasd_capability::SealedKey;
use nasd_types::Timestamp;

use super::{Operation, Procedure};
use crate::wire::message;

/// The operation.
#[derive(Debug)]
pub enum Initialize {}

impl Operation for Initialize {
    const PROCEDURE: Procedure = Procedure::Initialize;
    type Arguments = InitializeArguments;
    type Reply = ();
}

message! {
    /// Arguments (`nasd_initialize_arguments`).
    #[derive(Copy)]
    pub struct InitializeArguments {
        /// The new master key, sealed under the present one, from which it must differ.
        pub master: SealedKey,
        /// What the drive's clock shows from now on.
        pub clock: Timestamp,
        /// Nanoseconds that a nonce may be older than the drive's clock.
        pub skew_past: u64,
        /// Nanoseconds that a nonce may be newer than the drive's clock.
        pub skew_ahead: u64,
    }
}
