//! Paths within a directory that is served.

use std::fmt;

use nasd_xdr::{Decoder, Encoder, XdrError};

use crate::wire::{Field, xdr_by_field};

/// Longest path, in bytes.
pub const MAX_PATH_BYTES: usize = 4096;

/// A path within a directory that is served (`nasd_desk_path`): any bytes, at most [`MAX_PATH_BYTES`].
/// Which of them mean something is for the desk to say.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeskPath(Box<[u8]>);

/// A path is longer than [`MAX_PATH_BYTES`]. Applications know it as ENAMETOOLONG.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a path of {0} bytes is too long; paths have at most {MAX_PATH_BYTES}")]
pub struct PathTooLong(pub usize);

impl DeskPath {
    /// A path of these bytes.
    ///
    /// # Errors
    ///
    /// [`PathTooLong`].
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Self, PathTooLong> {
        let bytes = bytes.as_ref();
        if bytes.len() > MAX_PATH_BYTES {
            return Err(PathTooLong(bytes.len()));
        }
        Ok(DeskPath(bytes.into()))
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Its components, none of which is empty or has a zero byte; `None` of what is no relative path. The empty path
    /// has none: it is the directory itself.
    pub fn components(&self) -> Option<Vec<&[u8]>> {
        if self.0.is_empty() {
            return Some(Vec::new());
        }
        let components: Vec<&[u8]> = self.0.split(|byte| *byte == b'/').collect();
        let are_names = components.iter().all(|name| !name.is_empty() && !name.contains(&0));
        are_names.then_some(components)
    }
}

impl fmt::Display for DeskPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&String::from_utf8_lossy(&self.0), f)
    }
}

impl fmt::Debug for DeskPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&String::from_utf8_lossy(&self.0), f)
    }
}

impl Field for DeskPath {
    fn put(&self, out: &mut Encoder) {
        out.opaque(&self.0);
    }

    fn take(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(DeskPath(input.opaque(MAX_PATH_BYTES)?.into()))
    }
}

xdr_by_field!(DeskPath);

#[cfg(test)]
mod tests {
    use super::*;
    use nasd_xdr::{from_bytes, to_bytes};

    #[test]
    fn paths_are_bytes_up_to_the_limit() {
        let path = DeskPath::new([0xff; MAX_PATH_BYTES]).unwrap();
        assert_eq!(from_bytes(&to_bytes(&path)), Ok(path));
        assert_eq!(DeskPath::new([b'x'; 4097]), Err(PathTooLong(4097)));
        let long = [&4097_u32.to_be_bytes()[..], &[b'x'; 4100]].concat();
        assert!(from_bytes::<DeskPath>(&long).is_err());
    }

    #[test]
    fn components_are_names() {
        let count = |path: &str| DeskPath::new(path).unwrap().components().map(|all| all.len());
        assert_eq!(count(""), Some(0));
        assert_eq!(count("a/b c/.."), Some(3));
        for path in ["/", "/a", "a/", "a//b", "a\0b"] {
            assert_eq!(count(path), None, "{path:?}");
        }
    }
}
