//! Permission bits that a file is made with.

use nasd_xdr::{Decoder, Encoder, XdrError};

use crate::wire::Field;

/// What a file is made with (`mode` and `umask` of the arguments). The mask counts only where the directory
/// has no default access control list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct NewMode {
    /// Permission bits as the program asked for them.
    pub mode: u32,
    /// Those that its process does not give away.
    pub umask: u32,
}

/// Without a mask, or where it was taken off already.
impl From<u32> for NewMode {
    fn from(mode: u32) -> Self {
        NewMode { mode, umask: 0 }
    }
}

impl NewMode {
    /// What is left when the mask counts.
    pub const fn masked(self) -> u32 {
        self.mode & !(self.umask & 0o777)
    }
}

impl Field for NewMode {
    fn put(&self, out: &mut Encoder) {
        out.u32(self.mode);
        out.u32(self.umask);
    }

    fn take(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(NewMode { mode: input.u32()?, umask: input.u32()? })
    }
}
