//! `keyring.toml`: the keys that the cell shares with its drives, readable by the owner alone.
//!
//! The keys of partitions that were made by hand (`nasd partition create`) are in it too, apart from
//! those of the drives: no manager knows those partitions.

use super::CellError;
use nasd_types::{DriveId, PartitionId};
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use zeroize::Zeroize;

/// Keys of all drives of the cell.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Keyring {
    #[serde(rename = "drive", default)]
    drives: Vec<StoredKeys>,
    #[serde(rename = "partition", default, skip_serializing_if = "Vec::is_empty")]
    partitions: Vec<StoredPartitionKeys>,
}

/// One drive's keys (CMU-CS-97-118, Table 6) as 64 hexadecimal digits each.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredKeys {
    id: String,
    drive_key: String,
    partition_key: String,
    working_key: String,
    working_key_epoch: u32,
}

impl std::fmt::Debug for StoredKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "keys of drive {}", self.id)
    }
}

impl Drop for StoredKeys {
    fn drop(&mut self) {
        self.drive_key.zeroize();
        self.partition_key.zeroize();
        self.working_key.zeroize();
    }
}

/// Keys of a partition that was made by hand.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredPartitionKeys {
    drive: String,
    partition: u32,
    partition_key: String,
    working_key: String,
    working_key_epoch: u32,
}

impl std::fmt::Debug for StoredPartitionKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "keys of partition {} of drive {}", self.partition, self.drive)
    }
}

impl Drop for StoredPartitionKeys {
    fn drop(&mut self) {
        self.partition_key.zeroize();
        self.working_key.zeroize();
    }
}

/// Keys of one partition.
#[derive(Clone, zeroize::ZeroizeOnDrop)]
pub struct PartitionKeys {
    /// Sets working keys.
    pub partition_key: [u8; 32],
    /// Makes capabilities.
    pub working_key: [u8; 32],
    /// Which working key that is.
    pub working_key_epoch: u32,
}

impl PartitionKeys {
    /// New keys from the system's random numbers.
    ///
    /// # Errors
    /// `Random` where the system gives none.
    pub fn generate() -> Result<Self, CellError> {
        let mut keys =
            PartitionKeys { partition_key: [0; 32], working_key: [0; 32], working_key_epoch: 1 };
        for key in [&mut keys.partition_key, &mut keys.working_key] {
            getrandom::fill(key).map_err(CellError::Random)?;
        }
        Ok(keys)
    }
}

/// One drive's keys.
#[derive(Clone, zeroize::ZeroizeOnDrop)]
pub struct DriveKeys {
    /// Manipulates partitions.
    pub drive_key: [u8; 32],
    /// Sets working keys.
    pub partition_key: [u8; 32],
    /// Makes capabilities.
    pub working_key: [u8; 32],
    /// Which working key that is; a capability names it.
    pub working_key_epoch: u32,
}

impl DriveKeys {
    /// New keys from the system's random numbers.
    ///
    /// # Errors
    /// `Random` where the system gives none.
    pub fn generate() -> Result<Self, CellError> {
        let mut keys = DriveKeys {
            drive_key: [0; 32],
            partition_key: [0; 32],
            working_key: [0; 32],
            working_key_epoch: 1,
        };
        for key in [&mut keys.drive_key, &mut keys.partition_key, &mut keys.working_key] {
            getrandom::fill(key).map_err(CellError::Random)?;
        }
        Ok(keys)
    }
}

impl Keyring {
    /// Reads the file, refusing one that others can read.
    ///
    /// # Errors
    /// `ExposedSecret`, `Damaged` or `Io`.
    pub fn load(path: &Path) -> Result<Self, CellError> {
        let mut text = read_private(path)?;
        let keyring = toml::from_str(&text).map_err(|_| damaged(path, "it is no keyring"));
        text.zeroize();
        keyring
    }

    /// Writes the file whole or not at all, for the owner alone.
    ///
    /// # Errors
    /// `Io` where the file can't be written.
    pub fn save(&self, path: &Path) -> Result<(), CellError> {
        let mut text = toml::to_string(self).map_err(|error| damaged(path, &error.to_string()))?;
        let result = write_private(path, text.as_bytes());
        text.zeroize();
        result
    }

    /// Changes the file, which is made if it is not there, while nobody else does so.
    ///
    /// # Errors
    /// As [`Keyring::load`] and [`Keyring::save`].
    pub fn update(path: &Path, change: impl FnOnce(&mut Keyring)) -> Result<(), CellError> {
        // The directory is locked, not the file: each change makes another file.
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let locked = std::fs::File::open(directory).map_err(CellError::io("open", directory))?;
        rustix::fs::flock(&locked, FlockOperation::LockExclusive)
            .map_err(|errno| CellError::io("lock", directory)(errno.into()))?;
        let mut keyring = if path.exists() { Keyring::load(path)? } else { Keyring::default() };
        change(&mut keyring);
        keyring.save(path)
    }

    /// Adds keys of a partition that was made by hand, replacing those it had.
    pub fn insert_partition(
        &mut self,
        drive: DriveId,
        partition: PartitionId,
        keys: &PartitionKeys,
    ) {
        self.remove_partition(drive, partition);
        self.partitions.push(StoredPartitionKeys {
            drive: format!("{:016x}", drive.0),
            partition: partition.0,
            partition_key: to_hex(&keys.partition_key),
            working_key: to_hex(&keys.working_key),
            working_key_epoch: keys.working_key_epoch,
        });
    }

    /// Forgets the keys of a partition that was made by hand.
    pub fn remove_partition(&mut self, drive: DriveId, partition: PartitionId) {
        let id = format!("{:016x}", drive.0);
        self.partitions.retain(|stored| stored.drive != id || stored.partition != partition.0);
    }

    /// Whether there are keys of that partition, made by hand.
    pub fn has_partition(&self, drive: DriveId, partition: PartitionId) -> bool {
        let id = format!("{:016x}", drive.0);
        self.partitions.iter().any(|stored| stored.drive == id && stored.partition == partition.0)
    }

    /// Adds a drive's keys, replacing those it had.
    pub fn insert(&mut self, drive: DriveId, keys: &DriveKeys) {
        let id = format!("{:016x}", drive.0);
        self.drives.retain(|stored| stored.id != id);
        self.drives.push(StoredKeys {
            id,
            drive_key: to_hex(&keys.drive_key),
            partition_key: to_hex(&keys.partition_key),
            working_key: to_hex(&keys.working_key),
            working_key_epoch: keys.working_key_epoch,
        });
    }

    /// The drive's keys, if they are here and well-formed.
    pub fn get(&self, drive: DriveId) -> Option<DriveKeys> {
        let id = format!("{:016x}", drive.0);
        let stored = self.drives.iter().find(|stored| stored.id == id)?;
        Some(DriveKeys {
            drive_key: from_hex(&stored.drive_key)?,
            partition_key: from_hex(&stored.partition_key)?,
            working_key: from_hex(&stored.working_key)?,
            working_key_epoch: stored.working_key_epoch,
        })
    }
}

/// The text of a file that only its owner may read. Wipe it after use.
fn read_private(path: &Path) -> Result<String, CellError> {
    let metadata = std::fs::metadata(path).map_err(CellError::io("read", path))?;
    if metadata.mode() & 0o077 != 0 {
        return Err(CellError::ExposedSecret(path.to_owned()));
    }
    std::fs::read_to_string(path).map_err(CellError::io("read", path))
}

/// A key in a file of its own, which only its owner may read.
///
/// # Errors
/// `ExposedSecret`, `Damaged` or `Io`.
pub fn read_key_file(path: &Path) -> Result<[u8; 32], CellError> {
    let mut text = read_private(path)?;
    let key = from_hex(text.trim());
    text.zeroize();
    key.ok_or_else(|| damaged(path, "a key is 64 hexadecimal digits"))
}

/// Writes a file that only its owner may read: beside it, synced, then renamed into place.
pub(super) fn write_private(path: &Path, contents: &[u8]) -> Result<(), CellError> {
    write_atomic(path, contents, 0o600)
}

/// Writes a file whole or not at all.
pub(super) fn write_atomic(path: &Path, contents: &[u8], mode: u32) -> Result<(), CellError> {
    let new = path.with_extension("new");
    let write = || -> std::io::Result<()> {
        // An earlier attempt may have left the file; its mode must not be inherited.
        let _ = std::fs::remove_file(&new);
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(mode).open(&new)?;
        file.write_all(contents)?;
        file.sync_all()?;
        std::fs::rename(&new, path)?;
        match path.parent() {
            Some(parent) => std::fs::File::open(parent)?.sync_all(),
            None => Ok(()),
        }
    };
    write().map_err(CellError::io("write", path))
}

fn damaged(path: &Path, reason: &str) -> CellError {
    // The parser's message would quote the line, and with it a key.
    CellError::Damaged { path: path.to_owned(), reason: reason.to_owned() }
}

pub(super) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    let mut key = [0; 32];
    for (index, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn keys_survive_and_stay_private() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keyring.toml");
        let keys = DriveKeys::generate().unwrap();
        let mut keyring = Keyring::default();
        keyring.insert(DriveId(5), &keys);
        keyring.save(&path).unwrap();
        let loaded = Keyring::load(&path).unwrap().get(DriveId(5)).unwrap();
        assert_eq!(loaded.working_key, keys.working_key);
        assert!(Keyring::load(&path).unwrap().get(DriveId(6)).is_none());

        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(Keyring::load(&path), Err(CellError::ExposedSecret(_))));
    }

    #[test]
    fn keys_of_partitions_come_and_go_apart_from_the_drives() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keyring.toml");
        let (drive, partition) = (DriveId(5), PartitionId(7));
        let keys = PartitionKeys::generate().unwrap();
        Keyring::update(&path, |ring| ring.insert(drive, &DriveKeys::generate().unwrap())).unwrap();
        Keyring::update(&path, |ring| ring.insert_partition(drive, partition, &keys)).unwrap();
        let loaded = Keyring::load(&path).unwrap();
        assert!(loaded.has_partition(drive, partition) && loaded.get(drive).is_some());
        assert!(!loaded.has_partition(drive, PartitionId(8)));
        assert!(!format!("{loaded:?}").contains(&to_hex(&keys.working_key)), "keys are not shown");
        Keyring::update(&path, |ring| ring.remove_partition(drive, partition)).unwrap();
        let loaded = Keyring::load(&path).unwrap();
        assert!(!loaded.has_partition(drive, partition) && loaded.get(drive).is_some());
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_key_file_holds_one_key_and_is_private() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        write_private(&path, format!("{}\n", "ab".repeat(32)).as_bytes()).unwrap();
        assert_eq!(read_key_file(&path).unwrap(), [0xab; 32]);
        write_private(&path, b"secret").unwrap();
        let error = read_key_file(&path).unwrap_err().to_string();
        assert!(error.contains("64 hexadecimal") && !error.contains("secret"), "{error}");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(read_key_file(&path), Err(CellError::ExposedSecret(_))));
    }

    #[test]
    fn a_damaged_keyring_is_not_quoted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keyring.toml");
        write_private(&path, b"[[drive]]\nid = 5\nsecret = \"abcd\"\n").unwrap();
        let error = Keyring::load(&path).unwrap_err().to_string();
        assert!(!error.contains("abcd"), "{error}");
    }
}
