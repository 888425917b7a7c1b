//! `nasd partition`: the partitions of a running drive.

use super::Outcome;
use super::agree::agree;
use super::status::size;
use crate::arguments::{DriveArguments, PartitionCommand};
use crate::drive_session::DriveSession;
use crate::output::{self, say};
use nasd_capability::SecretKey;
use nasd_cell::{Keyring, PartitionKeys, protection_name_of, protection_named};
use nasd_client::Authority;
use nasd_protocol::drive::{NO_QUOTA, PartitionState, PartitionSummary};
use nasd_types::{Compression, PartitionId};
use serde::Serialize;
use std::error::Error;
use std::path::{Path, PathBuf};

/// The epoch of a new partition's working key.
const FIRST_EPOCH: u32 = 1;

/// From here on partitions have components of virtual drives, and the own state of striping managers.
const STRIPING_MANAGERS: u32 = 1 << 30;

/// Runs a partition command.
///
/// # Errors
/// The command's own.
pub fn run(cell: &Path, command: PartitionCommand, json: bool) -> Outcome {
    let open = |drive: &DriveArguments| DriveSession::open(cell, drive, None);
    let open_for =
        |drive: &DriveArguments, partition| DriveSession::open(cell, drive, Some(partition));
    match command {
        PartitionCommand::List { drive } => list(&open(&drive)?, json),
        PartitionCommand::Create { drive, partition, quota, keyring } => {
            create(&open(&drive)?, partition, quota, keyring, json)
        }
        PartitionCommand::Remove { drive, partition, yes } => {
            remove(&open(&drive)?, partition, yes)
        }
        PartitionCommand::Resize { drive, partition, quota } => {
            let session = open(&drive)?;
            let resized = session.client.resize_partition(&session.authority, partition, quota);
            Ok(resized.map_err(session.failed(format!("resize partition {partition}")))?)
        }
        PartitionCommand::Flush { drive, partition } => {
            let session = open_for(&drive, partition)?;
            let flushed = session.client.flush_partition(&session.authority, partition);
            flushed.map_err(session.failed(format!("flush partition {partition}")))?;
            Ok(())
        }
        PartitionCommand::Set { drive, partition, compression, minimum_protection } => {
            let session = open_for(&drive, partition)?;
            let compression = compression.map(|name| name.codec());
            let minimum = minimum_protection.as_deref().and_then(protection_named);
            let set =
                session.client.set_partition(&session.authority, partition, compression, minimum);
            Ok(set.map_err(session.failed(format!("set partition {partition}")))?)
        }
    }
}

/// One partition, as `--json` tells it.
#[derive(Debug, Serialize)]
pub struct Described {
    partition: String,
    /// `none`, `partition` (no working key yet), or `working`.
    keys: &'static str,
    /// `null` is no limit.
    quota_bytes: Option<u64>,
    used_bytes: u64,
    objects: u64,
    compression: &'static str,
    minimum_protection: String,
}

impl Described {
    /// From what the drive tells.
    pub fn new(summary: &PartitionSummary) -> Self {
        Described {
            partition: summary.partition.to_string(),
            keys: match summary.state {
                PartitionState::WithoutKey => "none",
                PartitionState::WithoutWorkingKey => "partition",
                PartitionState::Ready => "working",
            },
            quota_bytes: (summary.quota_bytes != NO_QUOTA).then_some(summary.quota_bytes),
            used_bytes: summary.used_bytes,
            objects: summary.objects,
            compression: compression_name(summary.compression),
            minimum_protection: protection_name_of(summary.minimum_protection),
        }
    }

    /// The head of a table of partitions.
    pub fn head() -> String {
        format!(
            "{:<10} {:<10} {:>10} {:>10} {:>9} {:<12} {}",
            "partition", "keys", "used", "quota", "objects", "compression", "minimum protection"
        )
    }

    /// Its line in that table.
    pub fn line(&self) -> String {
        let quota = self.quota_bytes.map_or_else(|| "none".to_owned(), size);
        format!(
            "{:<10} {:<10} {:>10} {quota:>10} {:>9} {:<12} {}",
            self.partition,
            self.keys,
            size(self.used_bytes),
            self.objects,
            self.compression,
            self.minimum_protection
        )
    }
}

/// The name of a codec on the command line.
pub fn compression_name(compression: Compression) -> &'static str {
    match compression {
        Compression::None => "none",
        Compression::Lz4 => "lz4",
        Compression::Zstd => "zstd",
    }
}

/// What partitions a drive has, by its drive key.
///
/// # Errors
/// If the drive refuses, or does not answer.
pub fn summaries(session: &DriveSession) -> Result<Vec<PartitionSummary>, Box<dyn Error>> {
    let present = session.client.inquiry().map_err(session.failed("list partitions"))?.partitions;
    // The drive's control object is the same in every partition; without one there is no list.
    let Some(any) = present.first() else { return Ok(Vec::new()) };
    let control = session.client.drive_control(&session.authority, *any);
    Ok(control.map_err(session.failed("list partitions"))?.partitions)
}

fn list(session: &DriveSession, json: bool) -> Outcome {
    let summaries = summaries(session)?;
    let described: Vec<Described> = summaries.iter().map(Described::new).collect();
    if json {
        let facts = serde_json::json!({
            "drive": format!("{:016x}", session.drive.0),
            "partitions": described,
        });
        output::json(&facts)?;
        return Ok(());
    }
    say!("{}", Described::head());
    for (summary, partition) in summaries.iter().zip(&described) {
        let volume = session.volume_of(summary.partition);
        let volume = volume.map_or_else(String::new, |name| format!("  (volume {name})"));
        say!("{}{volume}", partition.line());
    }
    Ok(())
}

fn create(
    session: &DriveSession,
    partition: PartitionId,
    quota: u64,
    keyring: Option<PathBuf>,
    json: bool,
) -> Outcome {
    if let Some(volume) = session.volume_of(partition) {
        let name = &session.name;
        return Err(format!(
            "partition {partition} of drive {name} is for the volume {volume}: `nasd key readmit \
             {name}` makes it again where it is lost"
        )
        .into());
    }
    let keyring = match (keyring, &session.cell) {
        (Some(path), _) => path,
        (None, Some((cell, _))) => cell.keyring_path(),
        (None, None) => {
            let name = &session.name;
            return Err(format!(
                "{name} is no drive of the cell: add --keyring FILE to keep the partition's keys"
            )
            .into());
        }
    };
    if partition.0 >= STRIPING_MANAGERS {
        let text = format!(
            "partitions from {STRIPING_MANAGERS} on are made by striping managers alone: choose a lower number"
        );
        return Err(text.into());
    }
    let keys = PartitionKeys::generate()?;
    let (client, authority) = (&session.client, &session.authority);
    let made = client.create_partition(authority, partition);
    made.map_err(session.failed(format!("create partition {partition}")))?;
    // Before the drive gets them: keys that only the drive has would be of no use to anybody.
    Keyring::update(&keyring, |ring| {
        ring.insert_partition(session.drive, partition, &keys);
        Ok(())
    })
    .map_err(|error| half_made(partition, &error.to_string()))?;
    set_up(session, partition, quota, &keys).map_err(|error| half_made(partition, &error))?;
    if json {
        output::json(&serde_json::json!({ "partition": partition.to_string() }))?;
    } else {
        let (name, keyring) = (&session.name, keyring.display());
        say!("partition {partition} of drive {name}; its keys are in {keyring}");
    }
    Ok(())
}

/// Gives a new partition its keys and room.
///
/// # Errors
/// If the drive refuses, or does not answer.
pub fn set_up(
    session: &DriveSession,
    partition: PartitionId,
    quota: u64,
    keys: &PartitionKeys,
) -> Result<(), String> {
    let (client, authority) = (&session.client, &session.authority);
    let partition_key = SecretKey::new(keys.partition_key);
    client
        .set_partition_key(authority, partition, &partition_key)
        .map_err(session.failed("set the partition key"))?;
    let by_partition = Authority::partition_key(partition, partition_key, authority.protection());
    let working_key = SecretKey::new(keys.working_key);
    client
        .set_working_key(&by_partition, partition, FIRST_EPOCH, &working_key)
        .map_err(session.failed("set the working key"))?;
    client.resize_partition(authority, partition, quota).map_err(session.failed("set the quota"))
}

fn half_made(partition: PartitionId, why: &str) -> String {
    format!(
        "{why}\npartition {partition} is there, but not ready: remove it (`nasd partition remove`) \
         and make it again"
    )
}

fn remove(session: &DriveSession, partition: PartitionId, yes: bool) -> Outcome {
    let name = &session.name;
    if let Some(volume) = session.volume_of(partition) {
        return Err(format!(
            "partition {partition} of drive {name} holds files of the volume {volume}, which would \
             all lose it: it is not removed. `nasd rm` removes files, `nasd volume remove` volumes"
        )
        .into());
    }
    let found = summaries(session)?.into_iter().find(|summary| summary.partition == partition);
    let Some(found) = found else {
        return Err(format!(
            "drive {name} has no partition {partition}: `nasd partition list {name}` shows them"
        )
        .into());
    };
    let used = size(found.used_bytes);
    let objects = if found.objects == 1 { "object" } else { "objects" };
    let objects = format!("{} {objects}", found.objects);
    agree(
        &format!(
            "partition {partition} of drive {name} with {objects} ({used}) and all its keys \
             would be lost"
        ),
        yes,
    )?;
    let removed = session.client.remove_partition(&session.authority, partition);
    removed.map_err(session.failed(format!("remove partition {partition}")))?;
    let Some((cell, _)) = &session.cell else { return Ok(()) };
    // Nothing to write is the usual case for a keyring that the user chose.
    if cell.keyring()?.has_partition(session.drive, partition) {
        let drive = session.drive;
        Keyring::update(&cell.keyring_path(), |ring| {
            ring.remove_partition(drive, partition);
            Ok(())
        })?;
    }
    Ok(())
}
