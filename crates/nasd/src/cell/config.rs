//! `cell.toml`: identifiers, addresses and devices. Nothing in it is secret.

use super::{CellError, protection_named};
use crate::time::parse_interval;
use nasd_types::{CellId, DriveId, PartitionId, Protection};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The version of the file that this program reads and writes.
const VERSION: u32 = 1;

/// The whole file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellConfig {
    version: u32,
    /// The cell's identifier, 32 hexadecimal digits.
    id: String,
    /// The name of its volume.
    pub volume: String,
    /// What clients protect their requests with: see [`super::protection`].
    protection: String,
    /// Its file manager.
    pub manager: ManagerConfig,
    /// Its drives.
    #[serde(rename = "drive", default)]
    pub drives: Vec<DriveConfig>,
}

/// The file manager.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManagerConfig {
    /// Where it listens.
    pub address: SocketAddr,
    /// How often it changes the drives' working keys: `1d`, `12h`, `30m`, or `never`.
    #[serde(default = "daily")]
    pub rotate_keys_every: String,
}

fn daily() -> String {
    "1d".to_owned()
}

/// One drive.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriveConfig {
    /// Small, stable, unique in the cell; file numbers of the mount are made from it.
    pub index: u32,
    /// The drive's name, 16 hexadecimal digits.
    id: String,
    /// Where it listens.
    pub address: SocketAddr,
    /// Its device; a relative path is in the cell's directory.
    pub device: PathBuf,
    /// The partition that holds the volume's part.
    partition: u32,
    /// Bytes of its data cache.
    pub cache_bytes: u64,
}

impl CellConfig {
    /// A cell with its drives.
    pub fn new(
        id: CellId,
        volume: String,
        protection: &str,
        manager: SocketAddr,
        drives: Vec<DriveConfig>,
    ) -> Self {
        CellConfig {
            version: VERSION,
            id: id.to_string(),
            volume,
            protection: protection.to_owned(),
            manager: ManagerConfig { address: manager, rotate_keys_every: daily() },
            drives,
        }
    }

    /// Reads and checks the file.
    ///
    /// # Errors
    /// `NoCell` where it does not exist, `Damaged` where it makes no sense, `Io` otherwise.
    pub fn load(path: &Path) -> Result<Self, CellError> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(CellError::NoCell(path.parent().unwrap_or(path).to_owned()));
            }
            Err(error) => return Err(CellError::io("read", path)(error)),
        };
        let damaged = |reason: String| CellError::Damaged { path: path.to_owned(), reason };
        Self::parse(&text).map_err(damaged)
    }

    /// From the file's text.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let config: CellConfig = toml::from_str(text).map_err(|error| error.to_string())?;
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), String> {
        if self.version != VERSION {
            return Err(format!("its version is {}, this program knows {VERSION}", self.version));
        }
        self.id.parse::<CellId>()?;
        if protection_named(&self.protection).is_none() {
            return Err(format!("`{}` is no protection option", self.protection));
        }
        parse_interval(&self.manager.rotate_keys_every)?;
        for (position, drive) in self.drives.iter().enumerate() {
            u64::from_str_radix(&drive.id, 16)
                .map_err(|_| format!("`{}` is no drive", drive.id))?;
            if self.drives[..position].iter().any(|other| other.index == drive.index) {
                return Err(format!("two drives have the index {}", drive.index));
            }
        }
        Ok(())
    }

    /// The file's text.
    ///
    /// # Errors
    /// Never for a checked configuration; the serializer's word otherwise.
    pub fn to_text(&self) -> Result<String, String> {
        let body = toml::to_string_pretty(self).map_err(|error| error.to_string())?;
        Ok(format!("# A NASD cell. Made by `nasd up`; its keys are in keyring.toml.\n{body}"))
    }

    /// What a client needs of it: not which devices there are on other machines.
    pub fn for_clients(&self) -> CellConfig {
        CellConfig { drives: Vec::new(), ..self.clone() }
    }

    /// The cell's identifier.
    pub fn cell_id(&self) -> CellId {
        self.id.parse().unwrap_or_default()
    }

    /// What clients protect their requests with.
    pub fn protection(&self) -> Protection {
        protection_named(&self.protection).unwrap_or(Protection::INTEGRITY_ARGS)
    }

    /// How often working keys are changed; `None` is never.
    pub fn rotation_interval(&self) -> Option<Duration> {
        parse_interval(&self.manager.rotate_keys_every).unwrap_or_default()
    }

    /// The name of those options.
    pub fn protection_name(&self) -> &str {
        &self.protection
    }

    /// Index and address for one more drive: the next after those that there are.
    pub fn next_drive(&self) -> (u32, SocketAddr) {
        let highest = self.drives.iter().map(|drive| drive.index).max().unwrap_or(0);
        let manager = self.manager.address;
        let ports = self.drives.iter().map(|drive| drive.address.port());
        let port = ports.chain([manager.port()]).max().unwrap_or(0).saturating_add(1);
        (highest + 1, SocketAddr::new(manager.ip(), port))
    }
}

impl DriveConfig {
    /// A drive of the cell.
    pub fn new(
        index: u32,
        id: DriveId,
        address: SocketAddr,
        device: PathBuf,
        partition: PartitionId,
        cache_bytes: u64,
    ) -> Self {
        let id = format!("{:016x}", id.0);
        DriveConfig { index, id, address, device, partition: partition.0, cache_bytes }
    }

    /// The drive's name.
    pub fn drive_id(&self) -> DriveId {
        DriveId(u64::from_str_radix(&self.id, 16).unwrap_or_default())
    }

    /// The partition that holds the volume's part.
    pub fn partition_id(&self) -> PartitionId {
        PartitionId(self.partition)
    }

    /// The volume's part is in another partition.
    pub(super) fn set_partition(&mut self, partition: PartitionId) {
        self.partition = partition.0;
    }

    /// How messages call it: `drive-N`.
    pub fn member(&self) -> String {
        format!("drive-{}", self.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> CellConfig {
        let address: SocketAddr = "127.0.0.1:7300".parse().unwrap();
        let drive = DriveConfig::new(
            1,
            DriveId(0xfeed),
            address,
            PathBuf::from("drives/drive-1.img"),
            PartitionId(1),
            1 << 20,
        );
        CellConfig::new(CellId([7; 16]), "main".into(), "integrity-args", address, vec![drive])
    }

    #[test]
    fn survives_its_text() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cell.toml");
        std::fs::write(&path, config().to_text().unwrap()).unwrap();
        let loaded = CellConfig::load(&path).unwrap();
        assert_eq!(loaded.cell_id(), CellId([7; 16]));
        assert_eq!(loaded.drives[0].drive_id(), DriveId(0xfeed));
        assert_eq!(loaded.protection(), Protection::INTEGRITY_ARGS);
    }

    #[test]
    fn tells_what_is_wrong() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cell.toml");
        assert!(matches!(CellConfig::load(&path), Err(CellError::NoCell(_))));
        let text = config().to_text().unwrap();
        for (from, to, word) in [
            ("version = 1", "version = 9", "version is 9"),
            ("integrity-args", "hope", "no protection option"),
            ("000000000000feed", "drive one", "no drive"),
        ] {
            std::fs::write(&path, text.replace(from, to)).unwrap();
            let error = CellConfig::load(&path).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
