//! `nasd bench`: starts a drive of its own on the disk to be measured, and measures rows on it.

use super::Outcome;
use crate::arguments::BenchArguments;
use crate::cell::DriveKeys;
use crate::supervisor::{MemberSpec, Supervisor};
use nasd_bench::{Row, Target, measure};
use nasd_capability::{Capability, SecretKey, capability_key};
use nasd_client::{Authority, ConnectOptions, DriveClient};
use nasd_device::{FileDevice, FileOptions};
use nasd_protocol::manager::IssuedCapability;
use nasd_store::{FormatOptions, PartitionFormat, Store, StoredKey};
use nasd_types::{
    AuditId, ByteRange, CellId, DriveId, ObjectName, PartitionId, Protection, Rights,
    SetAttributes, Timestamp,
};
use std::error::Error;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The measured object is 1 GiB and is overwritten whole; the rest is the metadata region's.
const DEVICE_BYTES: u64 = 4 << 30;
/// The cache holds the whole object.
const CACHE: &str = "1536M";
const PARTITION: PartitionId = PartitionId(1);

/// Measures the rows and prints each beside its limit.
///
/// # Errors
/// An unknown row, a missing program, no room for the device file, or a failed request.
pub fn bench(arguments: &BenchArguments, json: bool) -> Outcome {
    let parent = arguments.dir.clone().unwrap_or_else(|| PathBuf::from("/var/tmp"));
    let directory = Scratch::create(&parent)?;
    let target = start_drive(&directory.0)?;
    if !json {
        println!("{:<25}{:>10}{:>10}{:>8}  {:<6}limit", "row", "value", "limit", "ratio", "unit");
    }
    let rows = measure(&target, &arguments.rows, |row| {
        if !json {
            print_row(row);
        }
    })?;
    if json {
        println!("{}", serde_json::json!({ "rows": rows }));
    }
    Ok(())
}

fn print_row(row: &Row) {
    let Row { name, value, limit, ratio, unit, limit_name } = row;
    // Times of a few microseconds need their decimals.
    let decimals = if *unit == "us" { 2 } else { 0 };
    let or_dash = |number: &Option<f64>, decimals: usize| match number {
        Some(number) => format!("{number:.decimals$}"),
        None => "-".to_owned(),
    };
    let (limit, ratio) = (or_dash(limit, decimals), or_dash(ratio, 2));
    println!("{name:<25}{value:>10.decimals$}{limit:>10}{ratio:>8}  {unit:<6}{limit_name}");
}

/// A directory that is removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn create(parent: &Path) -> Result<Self, Box<dyn Error>> {
        let path = parent.join(format!("nasd-bench-{}", std::process::id()));
        std::fs::create_dir(&path)
            .map_err(|error| format!("can't create {}: {error}", path.display()))?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A drive process, stopped when the target is dropped, and an object to work on.
fn start_drive(directory: &Path) -> Result<Target, Box<dyn Error>> {
    let (drive, keys) = (DriveId(u64::from_be_bytes(*b"nasdtest")), DriveKeys::generate()?);
    let path = directory.join("drive.img");
    format(&path, drive, &keys)?;
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    let member = MemberSpec {
        name: "drive".to_owned(),
        arguments: vec![
            "drive".into(),
            "serve".into(),
            path.into(),
            "--listen".into(),
            address.clone().into(),
            "--cache".into(),
            CACHE.into(),
            // So that the cost of protection can be measured against none at all.
            "--minimum-protection".into(),
            "none".into(),
        ],
        log: directory.join("drive.log"),
        may_end: false,
    };
    let mut supervisor = Supervisor::default();
    supervisor.start(vec![member.clone()])?;
    let client = DriveClient::tcp(&address, Some(drive), &ConnectOptions::default());
    let working = SecretKey::new(keys.working_key);
    let manager = Authority::working_key(PARTITION, working.clone(), Protection::INTEGRITY_ARGS);
    let created = client.create(&manager, PARTITION, &SetAttributes::default(), true)?;
    let capability = Capability {
        drive,
        partition: PARTITION,
        object: created.object,
        region: ByteRange::ALL,
        rights: Rights::READ | Rights::WRITE | Rights::GETATTR | Rights::FLUSH,
        expires: Timestamp::MAX,
        audit_id: AuditId(0),
        minimum_protection: Protection::NONE,
        key_epoch: keys.working_key_epoch,
    };
    let version = created.attributes.access_control_version;
    let key = capability_key(&working, &capability, version);
    let supervisor = Mutex::new(supervisor);
    Ok(Target {
        address,
        drive,
        object: ObjectName { partition: PARTITION, object: created.object },
        capability: IssuedCapability { capability, key },
        directory: directory.to_owned(),
        restart: Box::new(move || {
            let mut supervisor = supervisor.lock().unwrap_or_else(PoisonError::into_inner);
            let problems = supervisor.stop();
            if !problems.is_empty() {
                return Err(problems.join("; "));
            }
            supervisor.start(vec![member.clone()]).map_err(|error| error.to_string())
        }),
    })
}

fn format(path: &Path, drive: DriveId, keys: &DriveKeys) -> Outcome {
    let device = FileDevice::create(path, DEVICE_BYTES, FileOptions::default())?;
    let partition = PartitionFormat {
        id: PARTITION,
        quota_bytes: u64::MAX,
        partition_key: StoredKey::new(keys.partition_key),
        working_key: StoredKey::new(keys.working_key),
        key_epoch: keys.working_key_epoch,
    };
    let options = FormatOptions {
        drive,
        cell: CellId::default(),
        master_key: None,
        log_key: 0x6c6f_676b,
        drive_key: StoredKey::new(keys.drive_key),
        partitions: vec![partition],
        metadata_bytes: None,
        now: Timestamp(0),
    };
    Ok(Store::format(Arc::new(device), &options)?)
}
