//! Names of files and volumes.

use std::fmt;

use nasd_xdr::{Decoder, Encoder, XdrError};

use crate::limits::MAX_NAME_BYTES;
use crate::wire::{Field, xdr_by_field};

/// A name in a directory, or of a volume (`nasd_name`): any bytes, at most [`MAX_NAME_BYTES`].
/// Which bytes a name may have is for the file manager to say.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Box<[u8]>);

/// A name is longer than [`MAX_NAME_BYTES`]. Applications know it as ENAMETOOLONG.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a name of {0} bytes is too long; names have at most {MAX_NAME_BYTES}")]
pub struct NameTooLong(pub usize);

impl Name {
    /// A name of these bytes.
    ///
    /// # Errors
    ///
    /// [`NameTooLong`].
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Self, NameTooLong> {
        let bytes = bytes.as_ref();
        if bytes.len() > MAX_NAME_BYTES {
            return Err(NameTooLong(bytes.len()));
        }
        Ok(Name(bytes.into()))
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The text, if it is UTF-8.
    pub fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }
}

impl AsRef<[u8]> for Name {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&String::from_utf8_lossy(&self.0), f)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&String::from_utf8_lossy(&self.0), f)
    }
}

impl Field for Name {
    fn put(&self, out: &mut Encoder) {
        out.opaque(&self.0);
    }

    fn take(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Name(input.opaque(MAX_NAME_BYTES)?.into()))
    }
}

xdr_by_field!(Name);

#[cfg(test)]
mod tests {
    use super::*;
    use nasd_xdr::{from_bytes, to_bytes};

    #[test]
    fn names_are_bytes_up_to_the_limit() {
        let name = Name::new([0xff; MAX_NAME_BYTES]).unwrap();
        assert_eq!(from_bytes(&to_bytes(&name)), Ok(name));
        assert_eq!(Name::new([b'x'; 256]), Err(NameTooLong(256)));
        assert_eq!(Name::new("caf\u{e9}").unwrap().as_str(), Some("caf\u{e9}"));
    }
}
