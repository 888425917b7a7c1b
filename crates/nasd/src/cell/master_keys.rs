//! `master-keys.toml`: the drives' master keys (CMU-CS-97-118, Table 6), readable by the owner alone.
//!
//! A master key sets a new drive key, or wipes the drive; nothing else ever asks for it. So nothing
//! of a running cell reads this file, and its owner moves it to where no network reaches.

use super::CellError;
use super::keyring::{to_hex, write_private};
use nasd_types::DriveId;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use zeroize::Zeroize;

/// Where new master keys go.
pub fn master_keys_path(directory: &Path) -> PathBuf {
    directory.join("master-keys.toml")
}

const HEAD: &str = "\
# Master keys of the cell's drives. Whoever has one can take the drive over or wipe it, and nothing
# of a running cell needs this file: move it to where no network reaches, and keep it.
";

/// More than an entry takes.
const ENTRY_BYTES: usize = 160;

/// New master keys on their way to the file.
pub struct MasterKeys {
    text: String,
}

impl MasterKeys {
    /// Begins a new file.
    pub fn new() -> Self {
        MasterKeys { text: HEAD.to_owned() }
    }

    /// Begins with what the file has; it is not there if its owner has moved it away.
    ///
    /// # Errors
    /// `Io` where the file can't be read.
    pub fn load(directory: &Path) -> Result<Self, CellError> {
        let path = master_keys_path(directory);
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok(MasterKeys { text }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::new()),
            Err(error) => Err(CellError::io("read", &path)(error)),
        }
    }

    /// Draws a drive's master key.
    ///
    /// # Errors
    /// `Random` where the system gives no random numbers.
    pub fn draw(&mut self, drive: DriveId) -> Result<[u8; 32], CellError> {
        let mut key = [0; 32];
        getrandom::fill(&mut key).map_err(CellError::Random)?;
        let mut digits = to_hex(&key);
        // Growing it in place would leave a copy of the keys behind.
        let mut text = String::with_capacity(self.text.len() + ENTRY_BYTES);
        let id = drive.0;
        // Writing to a string can't fail.
        let _ = write!(
            text,
            "{}\n[[drive]]\nid = \"{id:016x}\"\nmaster_key = \"{digits}\"\n",
            self.text
        );
        digits.zeroize();
        self.text.zeroize();
        self.text = text;
        Ok(key)
    }

    /// Writes the file whole or not at all, for the owner alone.
    ///
    /// # Errors
    /// `Io` where it can't be written.
    pub fn save(&self, directory: &Path) -> Result<(), CellError> {
        write_private(&master_keys_path(directory), self.text.as_bytes())
    }
}

impl Drop for MasterKeys {
    fn drop(&mut self) {
        self.text.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn keys_add_up_in_a_private_file() {
        let directory = tempfile::tempdir().unwrap();
        for drive in [DriveId(1), DriveId(2)] {
            let mut keys = MasterKeys::load(directory.path()).unwrap();
            keys.draw(drive).unwrap();
            keys.save(directory.path()).unwrap();
        }
        let path = master_keys_path(directory.path());
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let parsed: toml::Table = std::fs::read_to_string(&path).unwrap().parse().unwrap();
        let drives = parsed["drive"].as_array().unwrap();
        assert_eq!(drives.len(), 2);
        assert_eq!(drives[1]["id"].as_str(), Some("0000000000000002"));
        assert_ne!(drives[0]["master_key"], drives[1]["master_key"]);
    }
}
