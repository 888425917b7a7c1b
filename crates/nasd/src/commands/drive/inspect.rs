//! `nasd drive inspect`: what the device of a stopped drive holds. Nothing on it changes: it is read
//! by the checker, and opened as a drive over an overlay in memory.

use super::overlay::Overlay;
use super::superblock::{OFFSETS, Superblock};
use super::{open_failed, open_stopped};
use crate::commands::Outcome;
use crate::commands::check::Bar;
use crate::commands::partition::Described;
use crate::commands::status::size;
use crate::output::{self, say};
use nasd_cell::time::utc;
use nasd_check::{Code, Options, Report};
use nasd_device::BlockDevice;
use nasd_protocol::drive::{PartitionState, PartitionSummary};
use nasd_store::{OpenOptions, PartitionKeys, Store, StoreError};
use nasd_types::PartitionId;
use serde::Serialize;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;

/// Memory for data of the opened drive: nothing is read from it.
const CACHE_BYTES: usize = 17 << 20;

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Inspection {
    drive: String,
    cell: String,
    superblocks: [Copy; 2],
    geometry: Superblock,
    device_bytes: u64,
    /// Entries of the log that are not in the metadata yet; opening the drive applies them.
    log_entries: u64,
    /// Broken rules that a check without data finds, notes among them.
    findings: u64,
    /// `null` where the drive can't be opened; `error` says why.
    contents: Option<Contents>,
    error: Option<String>,
}

/// One copy of the superblock.
#[derive(Debug, Serialize)]
struct Copy {
    name: &'static str,
    offset: u64,
    state: &'static str,
    version: u32,
    sequence: u64,
}

/// What is seen once the drive is opened.
#[derive(Debug, Serialize)]
struct Contents {
    capacity_bytes: u64,
    used_bytes: u64,
    free_bytes: u64,
    objects: u64,
    /// How far the drive's clock is ahead of the machine's, in nanoseconds.
    clock_offset_ns: i64,
    drive_keys: DriveKeys,
    partitions: Vec<Partition>,
}

/// Which keys of the drive there are.
#[derive(Debug, Serialize)]
struct DriveKeys {
    master: bool,
    drive: bool,
}

#[derive(Debug, Serialize)]
struct Partition {
    #[serde(flatten)]
    summary: Described,
    partition_key: bool,
    /// Epochs of the working keys that there are.
    current_epoch: Option<u32>,
    previous_epoch: Option<u32>,
}

/// Shows what a device holds.
///
/// # Errors
/// A device that can't be opened, is in use, or is no drive.
pub fn inspect(path: &Path, json: bool) -> Outcome {
    let device: Arc<dyn BlockDevice> = Arc::new(open_stopped(path, "inspect")?);
    // Says what is no drive, or one that can't be understood.
    let identity = Store::read_identity(&*device).map_err(|error| open_failed(path, &error))?;
    let bar = Bar::new();
    let options = Options::default().with_data(false).with_findings_per_code(1);
    let report = nasd_check::check(&device, &options, &mut |step| bar.show(step));
    bar.clear();
    let copies = [Superblock::read(&*device, OFFSETS[0])?, Superblock::read(&*device, OFFSETS[1])?];
    let states = states(&report);
    let counts = if states[0] == "valid" { 0 } else { 1 };
    let opened = contents(&device);
    let superblocks = [0, 1].map(|at| Copy {
        name: ["A", "B"][at],
        offset: OFFSETS[at],
        state: states[at],
        version: copies[at].version,
        sequence: copies[at].sequence,
    });
    let inspection = Inspection {
        drive: format!("{:016x}", identity.drive.0),
        cell: identity.cell.to_string(),
        superblocks,
        geometry: copies[counts].clone(),
        device_bytes: device.capacity(),
        log_entries: report.statistics.log_entries,
        findings: report.counts.values().sum(),
        error: opened.as_ref().err().map(|error| error.to_string()),
        contents: opened.ok(),
    };
    if json {
        output::json(&inspection)?;
    } else {
        print(path, &inspection);
    }
    Ok(())
}

/// What the checker says about the two copies. One of them is valid: the drive has an identity.
fn states(report: &Report) -> [&'static str; 2] {
    let state = |damaged, older| {
        if report.has_code(damaged) {
            "damaged"
        } else if report.has_code(older) {
            "older"
        } else {
            "valid"
        }
    };
    [
        state(Code::SuperblockADamaged, Code::SuperblockAOlder),
        state(Code::SuperblockBDamaged, Code::SuperblockBOlder),
    ]
}

fn contents(device: &Arc<dyn BlockDevice>) -> Result<Contents, Box<dyn Error>> {
    let overlay = Arc::new(Overlay::new(Arc::clone(device)));
    let options = OpenOptions { cache_bytes: CACHE_BYTES, ..OpenOptions::default() };
    let store = Store::open(overlay, &options)?;
    let space = store.space();
    let mut objects = 0;
    let mut partitions = Vec::new();
    for partition in store.partitions() {
        let keys = store.keys(partition)?;
        let summary = summary(&store, partition, &keys)?;
        objects += summary.objects;
        partitions.push(Partition {
            summary: Described::new(&summary),
            partition_key: keys.partition.is_some(),
            current_epoch: keys.current.as_ref().map(|key| key.epoch),
            previous_epoch: keys.previous.as_ref().map(|key| key.epoch),
        });
    }
    let keys = store.drive_keys();
    Ok(Contents {
        capacity_bytes: space.capacity_bytes,
        used_bytes: space.used_bytes,
        free_bytes: space.free_bytes,
        objects,
        clock_offset_ns: store.clock().offset,
        drive_keys: DriveKeys { master: keys.master.is_some(), drive: keys.drive.is_some() },
        partitions,
    })
}

fn summary(
    store: &Store,
    partition: PartitionId,
    keys: &PartitionKeys,
) -> Result<PartitionSummary, StoreError> {
    let space = store.partition_space(partition)?;
    let settings = store.partition_settings(partition)?;
    Ok(PartitionSummary {
        partition,
        quota_bytes: space.quota_bytes,
        used_bytes: space.used_bytes,
        objects: space.objects,
        state: match (&keys.partition, &keys.current) {
            (_, Some(_)) => PartitionState::Ready,
            (Some(_), None) => PartitionState::WithoutWorkingKey,
            (None, None) => PartitionState::WithoutKey,
        },
        compression: settings.compression,
        minimum_protection: settings.minimum_protection,
    })
}

fn print(path: &Path, found: &Inspection) {
    let geometry = &found.geometry;
    say!("{}: drive {} of cell {}", path.display(), found.drive, found.cell);
    say!("formatted   {}", utc(geometry.formatted()));
    for copy in &found.superblocks {
        let Copy { name, offset, state, version, sequence } = copy;
        say!(
            "superblock  {name} at byte {offset}: {state}, version {version}, sequence {sequence}"
        );
    }
    let (used, whole) = (size(geometry.device_bytes), size(found.device_bytes));
    say!("device      {used} used of {whole}, in blocks of {} bytes", geometry.block_bytes);
    let (log, at, entries) = (size(geometry.log_bytes), geometry.log_offset, found.log_entries);
    say!("log         {log} at byte {at}; {entries} entries are not in the metadata yet");
    let (metadata, at) = (size(geometry.metadata_bytes), geometry.metadata_offset);
    say!("metadata    {metadata} at byte {at}");
    say!("data        {} blocks at byte {}", geometry.data_blocks, geometry.data_offset);
    if found.findings > 0 {
        let path = path.display();
        say!("findings    {}: `nasd check {path}` tells them", found.findings);
    }
    match &found.contents {
        Some(contents) => print_contents(contents),
        None => {
            let why = found.error.as_deref().unwrap_or_default();
            say!("contents    can't be shown: {why}");
        }
    }
}

fn print_contents(contents: &Contents) {
    let there = |is_there: bool| if is_there { "there" } else { "not there" };
    let Contents { capacity_bytes, used_bytes, free_bytes, objects, .. } = contents;
    let (capacity, used, free) = (size(*capacity_bytes), size(*used_bytes), size(*free_bytes));
    say!("space       {used} of {capacity} used by {objects} objects, {free} free");
    let DriveKeys { master, drive } = contents.drive_keys;
    say!("keys        master key {}, drive key {}", there(master), there(drive));
    say!("\n{}  working keys", Described::head());
    for partition in &contents.partitions {
        let epoch = |name: &str, epoch: Option<u32>| {
            epoch.map_or_else(String::new, |epoch| format!("{name} epoch {epoch}"))
        };
        let current = epoch("current", partition.current_epoch);
        let previous = epoch(", previous", partition.previous_epoch);
        let working = format!("{current}{previous}");
        let working = if working.is_empty() { "none".to_owned() } else { working };
        say!("{:<84}  {working}", partition.summary.line());
    }
}
