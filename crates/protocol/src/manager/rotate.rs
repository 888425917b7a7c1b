//! `rotate`: new working keys at the volume's drives.

use nasd_types::DriveId;
use nasd_xdr::{Decoder, Encoder, XdrDecode, XdrEncode, XdrError};

use super::{Operation, Procedure};
use crate::limits::MAX_DRIVES;
use crate::wire::{message, put_array, take_array};

/// The operation. Only the cell's administrators may ask for it.
#[derive(Debug)]
pub enum Rotate {}

impl Operation for Rotate {
    const PROCEDURE: Procedure = Procedure::Rotate;
    type Arguments = RotateArguments;
    type Reply = Rotation;
}

message! {
    /// How (`nasd_rotate_arguments`).
    #[derive(Copy)]
    pub struct RotateArguments {
        /// Change each key twice, so that no capability given out before is good any more.
        /// Otherwise once, which no holder of a capability notices.
        pub at_once: bool,
    }
}

message! {
    /// One drive's working key after the rotation (`nasd_working_key_state`).
    #[derive(Copy)]
    pub struct WorkingKeyState {
        /// The drive.
        pub drive: DriveId,
        /// The number of the key that capabilities are made with.
        pub epoch: u32,
        /// Whether all was done. A drive that is away gets its key when it is back.
        pub done: bool,
    }
}

/// The answer (`nasd_rotation`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// The volume's drives, at most [`MAX_DRIVES`].
    pub drives: Vec<WorkingKeyState>,
}

impl XdrEncode for Rotation {
    fn encode(&self, out: &mut Encoder) {
        put_array(&self.drives, out);
    }
}

impl XdrDecode for Rotation {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Rotation { drives: take_array(input, MAX_DRIVES)? })
    }
}
