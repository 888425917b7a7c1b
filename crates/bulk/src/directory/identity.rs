//! Which file something is, whatever it is called, and what a ticket's place says of that.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, Statx, StatxFlags, statx};

/// Bytes of an identity.
const IDENTITY_BYTES: usize = 28;

/// A file, by what no other one has: numbers of files are used again, but not for a file that was made at the same moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileIdentity {
    device: (u32, u32),
    number: u64,
    /// Zeros where the file system does not keep it.
    made: (i64, u32),
}

/// What is in a place: a path, and which file must be there, if that matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) identity: Option<FileIdentity>,
    pub(super) path: Vec<u8>,
}

impl FileIdentity {
    /// Of an open file; a path only (`O_PATH`) will do.
    pub(crate) fn of(file: impl AsFd) -> io::Result<FileIdentity> {
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        Ok(FileIdentity::told(&statx(file, "", AtFlags::EMPTY_PATH, wanted)?))
    }

    /// Of what was told with the time when it was made.
    pub(crate) fn told(told: &Statx) -> FileIdentity {
        let has_time = told.stx_mask & StatxFlags::BTIME.bits() != 0;
        let made = (told.stx_btime.tv_sec, told.stx_btime.tv_nsec);
        FileIdentity {
            device: (told.stx_dev_major, told.stx_dev_minor),
            number: told.stx_ino,
            made: if has_time { made } else { (0, 0) },
        }
    }

    /// As a number, which two files of one path hardly ever share (FNV-1a).
    pub(super) fn as_number(self) -> u64 {
        let put = |all: u64, byte: u8| (all ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        self.to_bytes().into_iter().fold(0xcbf2_9ce4_8422_2325, put)
    }

    fn to_bytes(self) -> [u8; IDENTITY_BYTES] {
        let mut bytes = [0; IDENTITY_BYTES];
        bytes[..4].copy_from_slice(&self.device.0.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.device.1.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.number.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.made.0.to_be_bytes());
        bytes[24..].copy_from_slice(&self.made.1.to_be_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8; IDENTITY_BYTES]) -> FileIdentity {
        let word = |at: usize| u32::from_be_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        let long = |at: usize| u64::from(word(at)) << 32 | u64::from(word(at + 4));
        FileIdentity {
            device: (word(0), word(4)),
            number: long(8),
            made: (long(16).cast_signed(), word(24)),
        }
    }
}

impl Named {
    /// What is encrypted: 0, or 1 and the identity; then the path.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        match self.identity {
            None => [&[0], &self.path[..]].concat(),
            Some(identity) => [&[1], &identity.to_bytes()[..], &self.path].concat(),
        }
    }

    /// `None` of what is not so.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Named> {
        match bytes.split_first()? {
            (0, path) => Some(Named { identity: None, path: path.to_vec() }),
            (1, rest) => {
                let (identity, path) = rest.split_first_chunk()?;
                let identity = Some(FileIdentity::from_bytes(identity));
                Some(Named { identity, path: path.to_vec() })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_place_says_survives() {
        let made = (-7, 999_999_999);
        let identity = FileIdentity { device: (8, 1), number: u64::MAX - 1, made };
        for identity in [None, Some(identity)] {
            for path in [&b""[..], b"a/b"] {
                let named = Named { identity, path: path.to_vec() };
                assert_eq!(Named::from_bytes(&named.to_bytes()), Some(named));
            }
        }
        for bytes in [&[][..], &[2], &[1, 0, 0]] {
            assert_eq!(Named::from_bytes(bytes), None);
        }
    }

    #[test]
    fn files_have_identities_and_links_share_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("a"), b"").unwrap();
        std::fs::write(path("b"), b"").unwrap();
        std::fs::hard_link(path("a"), path("c")).unwrap();
        let of = |name: &str| FileIdentity::of(std::fs::File::open(path(name)).unwrap()).unwrap();
        assert_eq!(of("a"), of("c"));
        assert_ne!(of("a"), of("b"));
    }
}
