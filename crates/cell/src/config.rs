//! `cell.toml`: identifiers, addresses and devices. Nothing in it is secret.

use super::{CellError, protection_named};
use crate::time::parse_interval;
use nasd_types::{CellId, DriveId, Location, PartitionId, Personality, Protection};
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
    /// The name of its first volume.
    pub volume: String,
    /// What clients protect their requests with: see [`super::protection`].
    protection: String,
    /// The highest number that a partition of a further volume ever had; 0 if there was none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) last_partition: u32,
    /// Its file manager.
    pub manager: ManagerConfig,
    /// Its drives.
    #[serde(rename = "drive", default)]
    pub drives: Vec<DriveConfig>,
    /// Its further volumes.
    #[serde(rename = "other_volume", default, skip_serializing_if = "Vec::is_empty")]
    pub other_volumes: Vec<VolumeConfig>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// A further volume of the cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeConfig {
    /// Its name.
    pub name: String,
    /// How it behaves for those who share files.
    #[serde(with = "personality")]
    personality: Personality,
    /// The drive that its root is on, 16 hexadecimal digits.
    home: String,
    /// Who owns its root directory when it is made.
    uid: u32,
    gid: u32,
    /// How many bytes its files may have altogether, with the personality `afs`. Of other volumes the drives know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_bytes: Option<u64>,
    /// Nobody changes anything in it: it is a snapshot.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// It is being made or removed: nobody serves it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unfinished: bool,
    /// Its partitions.
    #[serde(rename = "partition", default)]
    pub parts: Vec<VolumePart>,
    /// Partitions that are nobody's, and are to be removed: what a part is being moved to, what it is copied from, and where it was.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leftovers: Vec<Leftover>,
}

/// A personality by its name.
mod personality {
    use super::Personality;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
    pub(super) fn serialize<S: Serializer>(it: &Personality, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(it.name())
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Personality, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

/// A volume's partition on one drive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumePart {
    drive: String,
    number: u32,
    /// Where it was made, if it was moved since: by that its files are known for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    made: Option<MadePart>,
}

/// Where a part of a volume was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MadePart {
    drive: String,
    number: u32,
    /// The drive's index, which may be none of the cell's any more.
    index: u32,
}

/// A partition that is to be removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Leftover {
    drive: String,
    number: u32,
    /// It is being removed: nothing becomes of it any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub doomed: bool,
}

impl Leftover {
    /// This partition.
    pub fn new(at: Location) -> Self {
        Leftover { drive: format!("{:016x}", at.drive.0), number: at.partition.0, doomed: false }
    }

    /// Where it is.
    pub fn location(&self) -> Location {
        Location { drive: drive_named(&self.drive), partition: PartitionId(self.number) }
    }
}

/// The drive of that name, in a file that was checked.
fn drive_named(name: &str) -> DriveId {
    DriveId(u64::from_str_radix(name, 16).unwrap_or_default())
}

impl VolumeConfig {
    /// A volume that nothing was made of yet.
    pub fn new(
        name: &str,
        personality: Personality,
        home: DriveId,
        owner: (u32, u32),
        parts: Vec<VolumePart>,
    ) -> Self {
        VolumeConfig {
            name: name.to_owned(),
            personality,
            home: format!("{:016x}", home.0),
            uid: owner.0,
            gid: owner.1,
            quota_bytes: None,
            read_only: false,
            unfinished: true,
            parts,
            leftovers: Vec::new(),
        }
    }

    /// The drive that its root was made on.
    pub fn home_id(&self) -> DriveId {
        DriveId(u64::from_str_radix(&self.home, 16).unwrap_or_default())
    }

    /// How it behaves for those who share files.
    pub const fn personality(&self) -> Personality {
        self.personality
    }

    /// Uid and gid of who owns its root directory when it is made.
    pub fn owner(&self) -> (u32, u32) {
        (self.uid, self.gid)
    }
}

impl VolumePart {
    /// A partition of a drive.
    pub fn new(drive: DriveId, partition: PartitionId) -> Self {
        VolumePart { drive: format!("{:016x}", drive.0), number: partition.0, made: None }
    }

    /// The drive.
    pub fn drive_id(&self) -> DriveId {
        drive_named(&self.drive)
    }

    /// Where it is.
    pub fn location(&self) -> Location {
        Location { drive: self.drive_id(), partition: self.partition_id() }
    }

    /// Where it was made, by which its files are known.
    pub fn made(&self) -> Location {
        let made = |made: &MadePart| Location {
            drive: drive_named(&made.drive),
            partition: PartitionId(made.number),
        };
        self.made.as_ref().map_or_else(|| self.location(), made)
    }

    /// The index of the drive where it was made, if it is another one.
    pub fn made_index(&self) -> Option<u32> {
        self.made.as_ref().map(|made| made.index)
    }

    /// The same part of a copy of the volume: at another partition, and known by the drive where this one was made.
    #[must_use]
    pub fn copied_to(&self, partition: PartitionId, known_as: PartitionId) -> Self {
        let made = self.made.clone().map(|made| MadePart { number: known_as.0, ..made });
        VolumePart { made, ..VolumePart::new(self.drive_id(), partition) }
    }

    /// The same part elsewhere; `index` is that of the drive where it is.
    #[must_use]
    pub fn moved_to(&self, to: Location, index: u32) -> Self {
        let first = || MadePart { drive: self.drive.clone(), number: self.number, index };
        let made = Some(self.made.clone().unwrap_or_else(first));
        VolumePart { made, ..VolumePart::new(to.drive, to.partition) }
    }

    /// The partition.
    pub fn partition_id(&self) -> PartitionId {
        PartitionId(self.number)
    }
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
    /// Whether the cell's first volume has a part on it.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub in_first_volume: bool,
    /// Of a virtual drive: over which others, and how.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stripe: Option<StripeConfig>,
}

fn yes() -> bool {
    true
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_yes(answer: &bool) -> bool {
    *answer
}

/// What a virtual drive is made of, and how its partitions are spread unless they say otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StripeConfig {
    /// The indices of its component drives.
    pub over: Vec<u32>,
    /// Bytes of a stripe unit.
    pub unit: u64,
    /// Drives that a large object lies on; 0 for all.
    pub width: u16,
    /// How often each byte is kept.
    pub copies: u16,
    /// Of its component drives those that have nothing, until another one has been out for long.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spares: Vec<u32>,
    /// Those that give what they have to others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leaving: Vec<u32>,
    /// For how long a component drive is out before a spare takes its place: `10m`, or `never`.
    #[serde(default = "ten_minutes", skip_serializing_if = "is_ten_minutes")]
    pub replace_after: String,
    /// Bytes a second that are looked at, at most, to give drives what they lack; 0 for as many as can be.
    #[serde(default, skip_serializing_if = "is_zero_bytes")]
    pub rebuild_limit: u64,
    /// Which of them have the striping manager's own state.
    #[serde(default, skip_serializing_if = "is_nowhere")]
    pub state: StateCopies,
}

/// Which component drives have current copies of the striping manager's own state. Changed by that alone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StateCopies {
    /// Rises with each change, and with each start of a striping manager.
    pub epoch: u32,
    /// The indices of the drives; none as long as it is in files of this directory.
    #[serde(default)]
    pub copies: Vec<u32>,
}

/// Epochs are far below.
const EPOCH_END: u32 = 1 << 30;

fn is_nowhere(state: &StateCopies) -> bool {
    *state == StateCopies::default()
}

impl StripeConfig {
    /// Over no drives yet.
    pub fn new(unit: u64, width: u16, copies: u16) -> Self {
        StripeConfig {
            over: Vec::new(),
            unit,
            width,
            copies,
            spares: Vec::new(),
            leaving: Vec::new(),
            replace_after: ten_minutes(),
            rebuild_limit: 0,
            state: StateCopies::default(),
        }
    }

    /// For how long a component drive is out before it is replaced; `None` for ever.
    pub fn replace_after(&self) -> Option<Duration> {
        parse_interval(&self.replace_after).unwrap_or_default()
    }

    /// The component drives that have their share, and are to keep it.
    pub fn members(&self) -> impl Iterator<Item = u32> {
        let is_member =
            |index: &&u32| !self.spares.contains(index) && !self.leaving.contains(index);
        self.over.iter().filter(is_member).copied()
    }

    fn check(&self) -> Result<(), String> {
        parse_interval(&self.replace_after)?;
        if self.state.epoch >= EPOCH_END {
            return Err(format!("{} is no epoch", self.state.epoch));
        }
        let named = self.spares.iter().chain(&self.leaving).chain(&self.state.copies);
        match named.into_iter().find(|index| !self.over.contains(index)) {
            Some(index) => Err(format!("drive {index} is no component drive")),
            None => Ok(()),
        }
    }
}

fn ten_minutes() -> String {
    "10m".to_owned()
}

fn is_ten_minutes(text: &str) -> bool {
    text == "10m"
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero_bytes(number: &u64) -> bool {
    *number == 0
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
            last_partition: 0,
            other_volumes: Vec::new(),
        }
    }

    /// The names of all volumes, the first one first.
    pub fn volumes(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.volume.as_str())
            .chain(self.other_volumes.iter().map(|volume| volume.name.as_str()))
    }

    /// The drives that the first volume has parts on.
    pub fn first_volume_drives(&self) -> impl Iterator<Item = &DriveConfig> {
        self.drives.iter().filter(|drive| drive.in_first_volume)
    }

    /// The volume that a partition of a drive belongs to.
    pub fn volume_of(&self, drive: DriveId, partition: PartitionId) -> Option<&str> {
        let is_first =
            |known: &&DriveConfig| known.drive_id() == drive && known.partition_id() == partition;
        if self.first_volume_drives().any(|known| is_first(&known)) {
            return Some(&self.volume);
        }
        let at = Location { drive, partition };
        let is_there = |part: &VolumePart| part.location() == at;
        let found = self.other_volumes.iter().find(|volume| volume.parts.iter().any(is_there));
        found.map(|volume| volume.name.as_str())
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
            drive.stripe.as_ref().map_or(Ok(()), StripeConfig::check)?;
            let components = drive.stripe.iter().flat_map(|stripe| &stripe.over);
            for index in components {
                let is_one = |other: &DriveConfig| other.index == *index && other.stripe.is_none();
                if !self.drives.iter().any(is_one) {
                    return Err(format!(
                        "drive {} is over {index}, which is no drive",
                        drive.index
                    ));
                }
            }
        }
        for (position, name) in self.volumes().enumerate() {
            if self.volumes().take(position).any(|other| other == name) {
                return Err(format!("two volumes are called `{name}`"));
            }
        }
        let drives = self
            .other_volumes
            .iter()
            .flat_map(|volume| volume.parts.iter().map(|part| &part.drive).chain([&volume.home]));
        let made = self.other_volumes.iter().flat_map(|volume| &volume.parts);
        let made = made.filter_map(|part| part.made.as_ref().map(|made| &made.drive));
        let left = self.other_volumes.iter().flat_map(|volume| &volume.leftovers);
        for drive in drives.chain(made).chain(left.map(|left| &left.drive)) {
            u64::from_str_radix(drive, 16).map_err(|_| format!("`{drive}` is no drive"))?;
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

    /// What a client needs of it: not which devices there are on other machines. Volumes the manager
    /// tells.
    pub fn for_clients(&self) -> CellConfig {
        CellConfig {
            drives: Vec::new(),
            other_volumes: Vec::new(),
            last_partition: 0,
            ..self.clone()
        }
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
        let partition = partition.0;
        DriveConfig {
            index,
            id,
            address,
            device,
            partition,
            cache_bytes,
            in_first_volume: true,
            stripe: None,
        }
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

    /// How messages call it: `drive-N`, or `striping-N`.
    pub fn member(&self) -> String {
        let kind = if self.stripe.is_some() { "striping" } else { "drive" };
        format!("{kind}-{}", self.index)
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
