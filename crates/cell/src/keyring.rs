//! `keyring.toml`: the keys that the cell shares with its drives, readable by the owner alone.
//!
//! The keys of other partitions are in it too, apart from those of the drives: of the cell's further
//! volumes, whose working keys the manager changes as well, and of partitions that were made by hand
//! (`nasd partition create`), which no manager knows.

use super::files::{lock_directory, read_private, write_private};
use super::sealed::{self, Seal};
use super::{CellError, now};
use nasd_capability::SecretKey;
use nasd_manager::keys::{KeptKeys, WorkingKey};
use nasd_types::{DriveId, PartitionId, Timestamp};
use serde::{Deserialize, Serialize};
use std::path::Path;
use zeroize::{Zeroize, Zeroizing};

/// Keys of all drives of the cell.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Keyring {
    #[serde(rename = "drive", default)]
    drives: Vec<StoredKeys>,
    #[serde(rename = "partition", default, skip_serializing_if = "Vec::is_empty")]
    partitions: Vec<StoredPartitionKeys>,
    /// With what the file is sealed, if it is.
    #[serde(skip)]
    seal: Option<Seal>,
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
    /// Seconds since 1970; 0 if that is not known.
    #[serde(default)]
    working_key_changed: u64,
    /// A successor that the drive may have already, and its epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pending_working_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pending_working_key_epoch: Option<u32>,
    /// Changes that must come, whatever the key's age.
    #[serde(default, skip_serializing_if = "is_zero")]
    owed_changes: u32,
    /// Keys set by hand, on their way to the drive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next_drive_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next_partition_key: Option<String>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero_long(number: &u64) -> bool {
    *number == 0
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
        self.pending_working_key.zeroize();
        self.next_drive_key.zeroize();
        self.next_partition_key.zeroize();
    }
}

/// Keys of a partition of a further volume, or of one that was made by hand.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredPartitionKeys {
    drive: String,
    partition: u32,
    partition_key: String,
    working_key: String,
    working_key_epoch: u32,
    /// Of a volume's key: seconds since 1970, and changes that must come. 0 by hand.
    #[serde(default, skip_serializing_if = "is_zero_long")]
    working_key_changed: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    owed_changes: u32,
    /// Keys on their way to the drive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next_partition_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next_working_key: Option<String>,
    /// Of that key; if it is not here, the number after the present one's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next_working_key_epoch: Option<u32>,
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
        self.next_partition_key.zeroize();
        self.next_working_key.zeroize();
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
        let mut text = Zeroizing::new(read_private(path)?);
        let mut seal = None;
        if sealed::is_sealed(&text) {
            let (opened, by) = sealed::unseal(&text)?;
            (text, seal) = (opened, Some(by));
        }
        let keyring: Keyring =
            toml::from_str(&text).map_err(|_| damaged(path, "it is no keyring"))?;
        Ok(Keyring { seal, ..keyring })
    }

    /// Writes the file whole or not at all, for the owner alone.
    ///
    /// # Errors
    /// `Io` where the file can't be written.
    pub fn save(&self, path: &Path) -> Result<(), CellError> {
        let text = toml::to_string(self).map_err(|error| damaged(path, &error.to_string()))?;
        let mut text = Zeroizing::new(text);
        if let Some(seal) = &self.seal {
            text = sealed::seal(&text, seal)?;
        }
        write_private(path, text.as_bytes())
    }

    /// With what the file is sealed, if it is.
    pub fn seal(&self) -> Option<&Seal> {
        self.seal.as_ref()
    }

    /// Seals the file from the next writing on, or with `None` no more.
    ///
    /// # Errors
    /// `Sealed` where the passphrase or credential is not to be had.
    pub fn set_seal(&mut self, seal: Option<Seal>) -> Result<(), CellError> {
        if let Some(seal) = &seal {
            seal.prepare()?;
        }
        self.seal = seal;
        Ok(())
    }

    /// Changes the file, which is made if it is not there, while nobody else does so.
    ///
    /// # Errors
    /// As [`Keyring::load`] and [`Keyring::save`].
    pub fn update<T>(
        path: &Path,
        change: impl FnOnce(&mut Keyring) -> Result<T, CellError>,
    ) -> Result<T, CellError> {
        // The directory is locked, not the file: each change makes another file.
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let _locked = lock_directory(directory)?;
        let mut keyring = if path.exists() { Keyring::load(path)? } else { Keyring::default() };
        let told = change(&mut keyring)?;
        keyring.save(path)?;
        Ok(told)
    }

    /// Adds keys of a partition that is not of the first volume, replacing those it had.
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
            working_key_changed: 0,
            owed_changes: 0,
            next_partition_key: None,
            next_working_key: None,
            next_working_key_epoch: None,
        });
    }

    /// Forgets the keys of such a partition.
    pub fn remove_partition(&mut self, drive: DriveId, partition: PartitionId) {
        let id = format!("{:016x}", drive.0);
        self.partitions.retain(|stored| stored.drive != id || stored.partition != partition.0);
    }

    /// Whether there are keys of that partition.
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
            working_key_changed: now().seconds(),
            pending_working_key: None,
            pending_working_key_epoch: None,
            owed_changes: 0,
            next_drive_key: None,
            next_partition_key: None,
        });
    }

    /// Forgets the keys of a drive that is none of the cell's any more.
    pub fn remove(&mut self, drive: DriveId) {
        self.drives.retain(|stored| !stored.is_of(drive));
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

impl Keyring {
    /// The working keys of a drive's volume partition, with all that is known of their change.
    pub fn working_keys(&self, drive: DriveId) -> Option<KeptKeys> {
        let stored = self.drives.iter().find(|stored| stored.is_of(drive))?;
        let key = |digits: &str, epoch| {
            from_hex(digits).map(|key| WorkingKey { epoch, key: SecretKey::new(key) })
        };
        let pending = match (&stored.pending_working_key, stored.pending_working_key_epoch) {
            (Some(digits), Some(epoch)) => Some(key(digits, epoch)?),
            _ => None,
        };
        Some(KeptKeys {
            current: key(&stored.working_key, stored.working_key_epoch)?,
            pending,
            changed: Timestamp::from_parts(stored.working_key_changed, 0),
            owed: stored.owed_changes,
        })
    }

    /// Puts them in place of what was there; `false` for a drive without keys.
    pub fn set_working_keys(&mut self, drive: DriveId, keys: &KeptKeys) -> bool {
        let Some(stored) = self.drives.iter_mut().find(|stored| stored.is_of(drive)) else {
            return false;
        };
        let digits = |key: &WorkingKey| to_hex(key.key.expose());
        replace(&mut stored.working_key, digits(&keys.current));
        stored.working_key_epoch = keys.current.epoch;
        stored.pending_working_key.zeroize();
        stored.pending_working_key = keys.pending.as_ref().map(digits);
        stored.pending_working_key_epoch = keys.pending.as_ref().map(|key| key.epoch);
        stored.working_key_changed = keys.changed.seconds();
        stored.owed_changes = keys.owed;
        true
    }

    /// The same of a partition of a further volume.
    pub fn volume_keys(&self, drive: DriveId, partition: PartitionId) -> Option<KeptKeys> {
        let stored = self.partitions.iter().find(|stored| stored.is_of(drive, partition))?;
        let key = |digits: &str, epoch| {
            from_hex(digits).map(|key| WorkingKey { epoch, key: SecretKey::new(key) })
        };
        let pending = match (&stored.next_working_key, stored.next_working_key_epoch) {
            (Some(digits), Some(epoch)) => Some(key(digits, epoch)?),
            _ => None,
        };
        Some(KeptKeys {
            current: key(&stored.working_key, stored.working_key_epoch)?,
            pending,
            changed: Timestamp::from_parts(stored.working_key_changed, 0),
            owed: stored.owed_changes,
        })
    }

    /// Puts them in place of what was there; `false` for a partition without keys.
    pub fn set_volume_keys(
        &mut self,
        drive: DriveId,
        partition: PartitionId,
        keys: &KeptKeys,
    ) -> bool {
        let mut all = self.partitions.iter_mut();
        let Some(stored) = all.find(|stored| stored.is_of(drive, partition)) else {
            return false;
        };
        let digits = |key: &WorkingKey| to_hex(key.key.expose());
        replace(&mut stored.working_key, digits(&keys.current));
        stored.working_key_epoch = keys.current.epoch;
        stored.next_working_key.zeroize();
        stored.next_working_key = keys.pending.as_ref().map(digits);
        stored.next_working_key_epoch = keys.pending.as_ref().map(|key| key.epoch);
        stored.working_key_changed = keys.changed.seconds();
        stored.owed_changes = keys.owed;
        true
    }

    /// The drives that there are keys of.
    pub fn drives(&self) -> Vec<DriveId> {
        let id = |stored: &StoredKeys| u64::from_str_radix(&stored.id, 16).ok().map(DriveId);
        self.drives.iter().filter_map(id).collect()
    }

    /// The partitions that are not of the first volume, and the epochs of their working keys.
    pub fn partitions(&self) -> Vec<(DriveId, PartitionId, u32)> {
        let each = |stored: &StoredPartitionKeys| {
            let drive = DriveId(u64::from_str_radix(&stored.drive, 16).ok()?);
            Some((drive, PartitionId(stored.partition), stored.working_key_epoch))
        };
        self.partitions.iter().filter_map(each).collect()
    }

    /// A new key for a place, remembered beside the present one: the wanted one, or one that is
    /// drawn; the same as before if an earlier change of the place was begun and not finished.
    ///
    /// # Errors
    /// `Random`; `NoKeys` where the keyring knows nothing of the place; `Begun` where a change to
    /// another key was begun, which the drive may have.
    pub fn begin(
        &mut self,
        place: KeyPlace,
        wanted: Option<&[u8; 32]>,
    ) -> Result<BegunKey, CellError> {
        let (next, _) = self.place(place)?;
        if let Some(key) = next.as_deref().and_then(from_hex) {
            return match wanted {
                Some(wanted) if *wanted != key => Err(CellError::Begun(place.to_string())),
                _ => Ok(BegunKey { key, is_new: false }),
            };
        }
        let mut key = [0; 32];
        match wanted {
            Some(wanted) => key = *wanted,
            None => getrandom::fill(&mut key).map_err(CellError::Random)?,
        }
        *next = Some(to_hex(&key));
        Ok(BegunKey { key, is_new: true })
    }

    /// The same for the working key of a partition that was made by hand, and its number: `epoch`, or
    /// the one after the present.
    ///
    /// # Errors
    /// As [`Keyring::begin`].
    pub fn begin_working(
        &mut self,
        drive: DriveId,
        partition: PartitionId,
        wanted: Option<(&[u8; 32], u32)>,
    ) -> Result<(BegunKey, u32), CellError> {
        let place = KeyPlace::Working(drive, partition);
        let begun = self.begin(place, wanted.map(|(key, _)| key))?;
        let stored = self.partitions.iter_mut().find(|stored| stored.is_of(drive, partition));
        let stored = stored.ok_or_else(|| CellError::NoKeys(place.to_string()))?;
        let after = stored.working_key_epoch.saturating_add(1);
        if begun.is_new {
            stored.next_working_key_epoch = Some(wanted.map_or(after, |(_, epoch)| epoch));
        }
        let epoch = stored.next_working_key_epoch.unwrap_or(after);
        match wanted {
            Some((_, other)) if other != epoch => Err(CellError::Begun(place.to_string())),
            _ => Ok((begun, epoch)),
        }
    }

    /// The drive has this key in a place, whatever else was begun meanwhile: the one before is
    /// forgotten. `epoch` is that of a working key.
    ///
    /// # Errors
    /// `NoKeys` where the keyring knows nothing of the place.
    pub fn finish(&mut self, place: KeyPlace, key: &[u8; 32], epoch: u32) -> Result<(), CellError> {
        self.forget_next(place, key)?;
        replace(self.place(place)?.1, to_hex(key));
        if let KeyPlace::Working(drive, partition) = place {
            let stored = self.partitions.iter_mut().find(|stored| stored.is_of(drive, partition));
            stored.into_iter().for_each(|stored| stored.working_key_epoch = epoch);
        }
        Ok(())
    }

    /// The drive has certainly not got this key of a place, and will not: it is forgotten, if it is the
    /// one on its way.
    ///
    /// # Errors
    /// `NoKeys` where the keyring knows nothing of the place.
    pub fn cancel(&mut self, place: KeyPlace, key: &[u8; 32]) -> Result<(), CellError> {
        self.forget_next(place, key)
    }

    /// Forgets the key on its way to a place, if it is this one.
    fn forget_next(&mut self, place: KeyPlace, key: &[u8; 32]) -> Result<(), CellError> {
        let (next, _) = self.place(place)?;
        if next.as_deref().and_then(from_hex) != Some(*key) {
            return Ok(());
        }
        next.zeroize();
        if let KeyPlace::Working(drive, partition) = place {
            let stored = self.partitions.iter_mut().find(|stored| stored.is_of(drive, partition));
            stored.into_iter().for_each(|stored| stored.next_working_key_epoch = None);
        }
        Ok(())
    }

    /// The keys that the drive may have in a place: the present one, and the next one if there is
    /// one on its way.
    ///
    /// # Errors
    /// `NoKeys` where the keyring knows nothing of the place.
    pub fn candidates(&mut self, place: KeyPlace) -> Result<Vec<SecretKey>, CellError> {
        let (next, present) = self.place(place)?;
        let keys = [Some(&*present), next.as_ref()].into_iter().flatten();
        let keys: Vec<_> = keys.filter_map(|key| from_hex(key)).map(SecretKey::new).collect();
        if keys.is_empty() { Err(CellError::NoKeys(place.to_string())) } else { Ok(keys) }
    }

    /// Draws a first working key for a drive's volume partition that has none, under the number of
    /// the one that is kept: whoever knows that one goes on with the number after it.
    ///
    /// # Errors
    /// `Random`, or `NoKeys` where there are no keys of the drive.
    pub fn redraw_working_key(&mut self, drive: DriveId) -> Result<WorkingKey, CellError> {
        let stored = self.drives.iter_mut().find(|stored| stored.is_of(drive));
        let stored = stored.ok_or_else(|| CellError::NoKeys(format!("drive {:016x}", drive.0)))?;
        let mut key = Zeroizing::new([0; 32]);
        getrandom::fill(&mut *key).map_err(CellError::Random)?;
        replace(&mut stored.working_key, to_hex(&*key));
        stored.working_key_changed = now().seconds();
        Ok(WorkingKey { epoch: stored.working_key_epoch, key: SecretKey::new(*key) })
    }

    /// The next key of a place, and the present one.
    fn place(&mut self, place: KeyPlace) -> Result<(&mut Option<String>, &mut String), CellError> {
        let Keyring { drives, partitions, .. } = self;
        let unknown = || CellError::NoKeys(place.to_string());
        match place {
            KeyPlace::Drive(drive) | KeyPlace::VolumePartition(drive) => {
                let stored = drives.iter_mut().find(|stored| stored.is_of(drive));
                let stored = stored.ok_or_else(unknown)?;
                Ok(match place {
                    KeyPlace::Drive(_) => (&mut stored.next_drive_key, &mut stored.drive_key),
                    _ => (&mut stored.next_partition_key, &mut stored.partition_key),
                })
            }
            KeyPlace::Partition(drive, partition) | KeyPlace::Working(drive, partition) => {
                let stored = partitions.iter_mut().find(|stored| stored.is_of(drive, partition));
                let stored = stored.ok_or_else(unknown)?;
                Ok(match place {
                    KeyPlace::Partition(..) => {
                        (&mut stored.next_partition_key, &mut stored.partition_key)
                    }
                    _ => (&mut stored.next_working_key, &mut stored.working_key),
                })
            }
        }
    }
}

/// A new key on its way to a drive.
#[derive(zeroize::ZeroizeOnDrop)]
pub struct BegunKey {
    /// The key.
    pub key: [u8; 32],
    /// Whether this call has begun the change: then no drive has the key.
    pub is_new: bool,
}

/// A key of the keyring that can be set by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyPlace {
    /// A drive's drive key.
    Drive(DriveId),
    /// The key of the drive's partition that holds the volume.
    VolumePartition(DriveId),
    /// The key of a partition that was made by hand.
    Partition(DriveId, PartitionId),
    /// The working key of such a partition.
    Working(DriveId, PartitionId),
}

impl std::fmt::Display for KeyPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            KeyPlace::Drive(drive) | KeyPlace::VolumePartition(drive) => {
                write!(f, "drive {:016x}", drive.0)
            }
            KeyPlace::Partition(drive, partition) | KeyPlace::Working(drive, partition) => {
                write!(f, "partition {partition} of drive {:016x}", drive.0)
            }
        }
    }
}

impl StoredKeys {
    fn is_of(&self, drive: DriveId) -> bool {
        self.id == format!("{:016x}", drive.0)
    }
}

impl StoredPartitionKeys {
    fn is_of(&self, drive: DriveId, partition: PartitionId) -> bool {
        self.drive == format!("{:016x}", drive.0) && self.partition == partition.0
    }
}

/// Puts a secret in the place of another, which is wiped.
fn replace(place: &mut String, new: String) {
    place.zeroize();
    *place = new;
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

fn damaged(path: &Path, reason: &str) -> CellError {
    // The parser's message would quote the line, and with it a key.
    CellError::Damaged { path: path.to_owned(), reason: reason.to_owned() }
}

pub(super) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn from_hex(text: &str) -> Option<[u8; 32]> {
    // `from_str_radix` would take a sign.
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
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
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    /// The keys of a partition that was made by hand.
    fn by_hand(ring: &Keyring, drive: DriveId, partition: PartitionId) -> Option<PartitionKeys> {
        let stored = ring.partitions.iter().find(|stored| stored.is_of(drive, partition))?;
        Some(PartitionKeys {
            partition_key: from_hex(&stored.partition_key)?,
            working_key: from_hex(&stored.working_key)?,
            working_key_epoch: stored.working_key_epoch,
        })
    }

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
        let change = |ring: &mut Keyring| {
            ring.insert(drive, &DriveKeys::generate().unwrap());
            Ok(())
        };
        Keyring::update(&path, change).unwrap();
        Keyring::update(&path, |ring| {
            ring.insert_partition(drive, partition, &keys);
            Ok(())
        })
        .unwrap();
        let loaded = Keyring::load(&path).unwrap();
        assert!(loaded.has_partition(drive, partition) && loaded.get(drive).is_some());
        assert!(!loaded.has_partition(drive, PartitionId(8)));
        assert!(!format!("{loaded:?}").contains(&to_hex(&keys.working_key)), "keys are not shown");
        Keyring::update(&path, |ring| {
            ring.remove_partition(drive, partition);
            Ok(())
        })
        .unwrap();
        let loaded = Keyring::load(&path).unwrap();
        assert!(!loaded.has_partition(drive, partition) && loaded.get(drive).is_some());
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn working_keys_come_back_as_they_were_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keyring.toml");
        let drive = DriveId(5);
        let mut keyring = Keyring::default();
        keyring.insert(drive, &DriveKeys::generate().unwrap());
        let first = keyring.working_keys(drive).unwrap();
        assert!(first.current.epoch == 1 && first.pending.is_none() && first.changed.0 > 0);
        let pending = Some(WorkingKey { epoch: 9, key: SecretKey::new([3; 32]) });
        let changed = Timestamp::from_parts(77, 0);
        let kept = KeptKeys { pending, owed: 2, changed, ..first.clone() };
        assert!(keyring.set_working_keys(drive, &kept));
        keyring.save(&path).unwrap();
        let mut keyring = Keyring::load(&path).unwrap();
        assert_eq!(keyring.working_keys(drive).unwrap(), kept);
        assert!(keyring.set_working_keys(drive, &first));
        assert_eq!(keyring.working_keys(drive).unwrap(), first);
        assert!(!keyring.set_working_keys(DriveId(6), &first));
    }

    #[test]
    fn a_key_set_by_hand_is_the_same_until_the_drive_has_it() {
        let (drive, partition) = (DriveId(5), PartitionId(7));
        let mut keyring = Keyring::default();
        keyring.insert(drive, &DriveKeys::generate().unwrap());
        keyring.insert_partition(drive, partition, &PartitionKeys::generate().unwrap());
        for place in [
            KeyPlace::Drive(drive),
            KeyPlace::VolumePartition(drive),
            KeyPlace::Partition(drive, partition),
            KeyPlace::Working(drive, partition),
        ] {
            let before =
                (keyring.get(drive).unwrap(), by_hand(&keyring, drive, partition).unwrap());
            let begun = keyring.begin(place, None).unwrap();
            let new = begun.key;
            assert!(begun.is_new && !keyring.begin(place, None).unwrap().is_new);
            assert_eq!(keyring.begin(place, Some(&new)).unwrap().key, new);
            let other = keyring.begin(place, Some(&[7; 32])).err();
            assert!(matches!(other, Some(CellError::Begun(_))), "{other:?}");
            assert_eq!(keyring.get(drive).unwrap().drive_key, before.0.drive_key);
            let may_have = keyring.candidates(place).unwrap();
            assert!(may_have.len() == 2 && may_have[1].expose() == &new);
            let epoch = before.1.working_key_epoch + 1;
            keyring.finish(place, &new, epoch).unwrap();
            let of_drive = keyring.get(drive).unwrap();
            let of_partition = by_hand(&keyring, drive, partition).unwrap();
            let found = match place {
                KeyPlace::Drive(_) => of_drive.drive_key,
                KeyPlace::VolumePartition(_) => of_drive.partition_key,
                KeyPlace::Partition(..) => of_partition.partition_key,
                KeyPlace::Working(..) => of_partition.working_key,
            };
            assert_eq!(found, new);
            let is_working = matches!(place, KeyPlace::Working(..));
            assert_eq!(
                of_partition.working_key_epoch - before.1.working_key_epoch,
                is_working as u32
            );
        }
        assert!(keyring.begin(KeyPlace::Drive(DriveId(6)), None).is_err());
    }

    #[test]
    fn what_a_drive_refused_is_forgotten() {
        let (drive, partition) = (DriveId(5), PartitionId(7));
        let mut keyring = Keyring::default();
        keyring.insert(drive, &DriveKeys::generate().unwrap());
        keyring.insert_partition(drive, partition, &PartitionKeys::generate().unwrap());
        for place in [KeyPlace::Drive(drive), KeyPlace::Working(drive, partition)] {
            let before = keyring.candidates(place).unwrap();
            keyring.begin(place, Some(&[7; 32])).unwrap();
            // Another's, which is on its way no more.
            keyring.cancel(place, &[9; 32]).unwrap();
            assert_eq!(keyring.candidates(place).unwrap().len(), 2);
            keyring.cancel(place, &[7; 32]).unwrap();
            assert!(keyring.candidates(place).unwrap() == before);
            assert_eq!(keyring.begin(place, Some(&[8; 32])).unwrap().key, [8; 32]);
        }
    }

    #[test]
    fn what_a_drive_has_is_kept_whatever_is_on_its_way() {
        let (drive, partition) = (DriveId(5), PartitionId(7));
        let mut keyring = Keyring::default();
        keyring.insert(drive, &DriveKeys::generate().unwrap());
        keyring.insert_partition(drive, partition, &PartitionKeys::generate().unwrap());
        for place in [KeyPlace::Drive(drive), KeyPlace::Working(drive, partition)] {
            // Nothing any more, as somebody else took it for refused; and another since.
            for other in [None, Some([8; 32])] {
                keyring.begin(place, Some(&[7; 32])).unwrap();
                keyring.cancel(place, &[7; 32]).unwrap();
                other.iter().for_each(|other| drop(keyring.begin(place, Some(other)).unwrap()));
                keyring.finish(place, &[7; 32], 40).unwrap();
                let kept: Vec<_> = keyring.candidates(place).unwrap();
                let kept: Vec<_> = kept.iter().map(|key| *key.expose()).collect();
                let expected: Vec<_> = [[7; 32]].into_iter().chain(other).collect();
                assert_eq!(kept, expected);
            }
        }
        assert_eq!(by_hand(&keyring, drive, partition).unwrap().working_key_epoch, 40);
    }

    #[test]
    fn a_working_key_of_ones_own_keeps_its_number() {
        let (drive, partition) = (DriveId(5), PartitionId(7));
        let mut keyring = Keyring::default();
        keyring.insert_partition(drive, partition, &PartitionKeys::generate().unwrap());
        let (begun, epoch) = keyring.begin_working(drive, partition, Some((&[7; 32], 40))).unwrap();
        assert!(begun.is_new && epoch == 40);
        // As it is given again without the file, or with another number.
        let (begun, epoch) = keyring.begin_working(drive, partition, None).unwrap();
        assert!(!begun.is_new && begun.key == [7; 32] && epoch == 40);
        let other = keyring.begin_working(drive, partition, Some((&[7; 32], 41))).err();
        assert!(matches!(other, Some(CellError::Begun(_))), "{other:?}");
        keyring.finish(KeyPlace::Working(drive, partition), &[7; 32], epoch).unwrap();
        assert_eq!(by_hand(&keyring, drive, partition).unwrap().working_key_epoch, 40);
        let (_, epoch) = keyring.begin_working(drive, partition, None).unwrap();
        assert_eq!(epoch, 41);
    }

    #[test]
    fn a_key_file_holds_one_key_and_is_private() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        write_private(&path, format!("{}\n", "ab".repeat(32)).as_bytes()).unwrap();
        assert_eq!(read_key_file(&path).unwrap(), [0xab; 32]);
        write_private(&path, "+1".repeat(32).as_bytes()).unwrap();
        assert!(read_key_file(&path).is_err(), "a sign is no digit");
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
