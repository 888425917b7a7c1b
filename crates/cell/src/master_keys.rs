//! `master-keys.toml`: the drives' master keys (CMU-CS-97-118, Table 6), readable by the owner alone.
//!
//! A master key sets a new drive key, or wipes the drive; nothing else ever asks for it. So nothing
//! of a running cell reads this file, and its owner moves it to where no network reaches.

use super::CellError;
use super::files::{lock_directory, read_private, write_private};
use super::keyring::{from_hex, to_hex};
use nasd_types::DriveId;
use serde::Deserialize;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use zeroize::{Zeroize, Zeroizing};

/// Where new master keys go.
pub fn master_keys_path(directory: &Path) -> PathBuf {
    directory.join("master-keys.toml")
}

const HEAD: &str = "\
# Master keys of the cell's drives. Whoever has one can take the drive over or wipe it, and nothing
# of a running cell needs this file: move it to where no network reaches, and keep it.
";

/// An entry's text is shorter.
const ENTRY_BYTES: usize = 160;

/// The file as TOML has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    #[serde(rename = "drive", default)]
    drives: Vec<StoredMaster>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredMaster {
    id: String,
    master_key: String,
}

impl Drop for StoredMaster {
    fn drop(&mut self) {
        self.master_key.zeroize();
    }
}

/// The master keys of the file. A drive has several while one replaces another.
#[derive(Default)]
pub struct MasterKeys {
    keys: Vec<(DriveId, Zeroizing<[u8; 32]>)>,
}

impl MasterKeys {
    /// Begins a new file.
    pub fn new() -> Self {
        MasterKeys::default()
    }

    /// What the file has; nothing if its owner has moved it away.
    ///
    /// # Errors
    /// `ExposedSecret`, `Damaged` or `Io`.
    pub fn load(directory: &Path) -> Result<Self, CellError> {
        let path = master_keys_path(directory);
        if !path.exists() {
            return Ok(MasterKeys::new());
        }
        let text = Zeroizing::new(read_private(&path)?);
        let damaged = || CellError::Damaged {
            path: path.clone(),
            // The parser's message would quote the line, and with it a key.
            reason: "it is no list of master keys".to_owned(),
        };
        let stored: Stored = toml::from_str(&text).map_err(|_| damaged())?;
        let entry = |stored: &StoredMaster| {
            let drive = u64::from_str_radix(&stored.id, 16).ok()?;
            Some((DriveId(drive), Zeroizing::new(from_hex(&stored.master_key)?)))
        };
        let keys: Option<Vec<_>> = stored.drives.iter().map(entry).collect();
        Ok(MasterKeys { keys: keys.ok_or_else(damaged)? })
    }

    /// Changes the file, which is made if it is not there, while nobody else does so: whoever else
    /// adds a key meanwhile would lose it otherwise, and a drive's master key has no other copy.
    ///
    /// # Errors
    /// As [`MasterKeys::load`] and [`MasterKeys::save`], or what the change itself says; then nothing
    /// is changed.
    pub fn update<T>(
        directory: &Path,
        change: impl FnOnce(&mut MasterKeys) -> Result<T, CellError>,
    ) -> Result<T, CellError> {
        let _locked = lock_directory(directory)?;
        let mut keys = MasterKeys::load(directory)?;
        let told = change(&mut keys)?;
        keys.save(directory)?;
        Ok(told)
    }

    /// Draws a drive's master key, beside those that it has.
    ///
    /// # Errors
    /// `Random` where the system gives no random numbers.
    pub fn draw(&mut self, drive: DriveId) -> Result<[u8; 32], CellError> {
        let mut key = [0; 32];
        getrandom::fill(&mut key).map_err(CellError::Random)?;
        self.keys.push((drive, Zeroizing::new(key)));
        Ok(key)
    }

    /// The keys that the drive may have, the latest first.
    pub fn of(&self, drive: DriveId) -> Vec<[u8; 32]> {
        let of_drive = self.keys.iter().rev().filter(|(of, _)| *of == drive);
        of_drive.map(|(_, key)| **key).collect()
    }

    /// Forgets all keys of the drive but the latest, which the drive is known to have.
    pub fn forget_older(&mut self, drive: DriveId) {
        if let Some(latest) = self.keys.iter().rposition(|(of, _)| *of == drive) {
            let mut index = 0;
            self.keys.retain(|(of, _)| {
                index += 1;
                *of != drive || index - 1 == latest
            });
        }
    }

    /// Forgets all keys of the drive, which has none of them.
    pub fn forget(&mut self, drive: DriveId) {
        self.keys.retain(|(of, _)| *of != drive);
    }

    /// Writes the file whole or not at all, for the owner alone.
    ///
    /// # Errors
    /// `Io` where it can't be written.
    pub fn save(&self, directory: &Path) -> Result<(), CellError> {
        // Growing the text in place would leave copies of the keys behind.
        let bytes = HEAD.len() + self.keys.len() * ENTRY_BYTES;
        let mut text = Zeroizing::new(String::with_capacity(bytes));
        text.push_str(HEAD);
        for (drive, key) in &self.keys {
            let digits = Zeroizing::new(to_hex(&key[..]));
            let (id, digits) = (drive.0, digits.as_str());
            // Writing to a string can't fail.
            let _ = write!(text, "\n[[drive]]\nid = \"{id:016x}\"\nmaster_key = \"{digits}\"\n");
        }
        write_private(&master_keys_path(directory), text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

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

    #[test]
    fn keys_that_are_drawn_at_the_same_time_are_all_kept() {
        let directory = tempfile::tempdir().unwrap();
        let drawn: Vec<_> = std::thread::scope(|scope| {
            let draw = |drive| {
                let directory = directory.path();
                let update = move || MasterKeys::update(directory, |keys| keys.draw(drive));
                scope.spawn(move || (drive, update().unwrap()))
            };
            let threads: Vec<_> = (0..16).map(|drive| draw(DriveId(drive))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let keys = MasterKeys::load(directory.path()).unwrap();
        for (drive, key) in drawn {
            assert_eq!(keys.of(drive), [key], "{drive:?}");
        }
        MasterKeys::update(directory.path(), |keys| {
            keys.forget(DriveId(3));
            Ok(())
        })
        .unwrap();
        assert!(MasterKeys::load(directory.path()).unwrap().of(DriveId(3)).is_empty());
    }

    #[test]
    fn a_new_key_stands_beside_the_old_until_the_drive_has_it() {
        let directory = tempfile::tempdir().unwrap();
        let mut keys = MasterKeys::new();
        let (old, other) = (keys.draw(DriveId(1)).unwrap(), keys.draw(DriveId(2)).unwrap());
        let new = keys.draw(DriveId(1)).unwrap();
        keys.save(directory.path()).unwrap();
        let mut keys = MasterKeys::load(directory.path()).unwrap();
        assert_eq!(keys.of(DriveId(1)), [new, old]);
        keys.forget_older(DriveId(1));
        assert_eq!((keys.of(DriveId(1)), keys.of(DriveId(2))), (vec![new], vec![other]));
        assert!(keys.of(DriveId(3)).is_empty());
    }

    #[test]
    fn a_file_that_others_can_read_is_refused_and_a_damaged_one_not_quoted() {
        let directory = tempfile::tempdir().unwrap();
        let mut keys = MasterKeys::new();
        keys.draw(DriveId(1)).unwrap();
        keys.save(directory.path()).unwrap();
        let path = master_keys_path(directory.path());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let error = MasterKeys::load(directory.path()).err();
        assert!(matches!(error, Some(CellError::ExposedSecret(_))), "{error:?}");
        write_private(&path, b"[[drive]]\nid = \"1\"\nmaster_key = \"abcd\"\n").unwrap();
        let error = MasterKeys::load(directory.path()).err().unwrap().to_string();
        assert!(!error.contains("abcd"), "{error}");
    }
}
