//! What a server makes its tickets with: the same after each start, so that holders of tickets do not notice one.

use nasd_capability::SecretKey;
use nasd_cell::{Cell, CellError, read_private, write_private};
use nasd_types::DriveId;
use std::error::Error;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

const TICKETS: &str = "nasd bulk serve 2026 secret of tickets";
const IDENTITY: &str = "nasd bulk serve 2026 identity";

/// Bytes of a path's hash that tell one directory from another.
const NAME_BYTES: usize = 8;

/// Who a server is.
pub struct Own {
    /// In its tickets.
    pub identity: DriveId,
    /// What they are made with.
    pub secret: SecretKey,
}

impl Own {
    /// Of the server of a directory, kept in the cell's; made at its first start.
    ///
    /// # Errors
    /// A file that can't be read or written, that others can read, or with something else in it.
    pub fn kept(cell: &Cell, served: &Path) -> Result<Own, Box<dyn Error>> {
        let path = path_of(cell.directory(), served);
        if !path.exists() {
            let mut bytes = Zeroizing::new([0; 32]);
            getrandom::fill(&mut *bytes)?;
            let text = Zeroizing::new(format!("{}\n", blake3::Hash::from_bytes(*bytes).to_hex()));
            write_private(&path, text.as_bytes())?;
        }
        let text = Zeroizing::new(read_private(&path)?);
        let bytes = blake3::Hash::from_hex(text.trim()).map_err(|_| CellError::Damaged {
            path,
            reason: "it has no 64 hexadecimal digits: remove it, and tickets given out before end"
                .to_owned(),
        })?;
        Ok(Own::from_bytes(bytes.as_bytes()))
    }

    /// Of a server whose tickets end with it.
    ///
    /// # Errors
    /// The system's, if it has no randomness.
    pub fn passing() -> Result<Own, Box<dyn Error>> {
        let mut bytes = Zeroizing::new([0; 32]);
        getrandom::fill(&mut *bytes)?;
        Ok(Own::from_bytes(&bytes))
    }

    fn from_bytes(bytes: &[u8; 32]) -> Own {
        let identity = blake3::derive_key(IDENTITY, bytes);
        let number = u64::from_be_bytes(std::array::from_fn(|at| identity[at]));
        let secret = SecretKey::new(blake3::derive_key(TICKETS, bytes));
        Own { identity: DriveId(number), secret }
    }
}

fn path_of(cell: &Path, served: &Path) -> PathBuf {
    let hash = blake3::hash(served.as_os_str().as_bytes()).to_hex();
    cell.join(format!("bulk-secret-{}", &hash[..2 * NAME_BYTES]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_directory_has_its_own() {
        let cell = Path::new("/cell");
        let (a, b) = (path_of(cell, Path::new("/a")), path_of(cell, Path::new("/b")));
        assert!(a != b && a == path_of(cell, Path::new("/a")));
        let (one, other) = (Own::from_bytes(&[1; 32]), Own::from_bytes(&[2; 32]));
        assert!(one.identity != other.identity && one.secret != other.secret);
        assert_eq!(one.secret, Own::from_bytes(&[1; 32]).secret);
    }
}
