//! `nasd bench`: starts a drive of its own on the disk to be measured, and measures rows on it.

mod filled;

use super::Outcome;
use crate::arguments::BenchArguments;
use crate::supervisor::{MemberSpec, StartError, Supervisor};
use nasd_bench::{Cells, Client, Contents, Cpu, Memory, Part, Row, Target, measure};
use nasd_capability::{Capability, SecretKey, capability_key};
use nasd_cell::session;
use nasd_cell::{Cell, DriveKeys};
use nasd_clerk::Settings;
use nasd_client::{Authority, ConnectOptions, DriveClient};
use nasd_device::{BlockDevice, FileDevice, FileOptions};
use nasd_protocol::manager::IssuedCapability;
use nasd_store::{FormatOptions, PartitionFormat, Store, StoredKey};
use nasd_types::{
    AuditId, ByteRange, CellId, DriveId, ObjectName, PartitionId, Protection, Rights,
    SetAttributes, Timestamp,
};
use std::error::Error;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The measured object is 1 GiB and is overwritten whole; the rest is the metadata region's.
const DEVICE_BYTES: u64 = 4 << 30;
/// The same where rows of the bulk service are named: their file is 4 GiB, and is overwritten while nothing is free yet.
const BULK_DEVICE_BYTES: u64 = 14 << 30;
/// The cache holds the whole object.
const CACHE_BYTES: u64 = 1536 << 20;
const PARTITION: PartitionId = PartitionId(1);
/// USER_HZ, the unit of times in /proc: the same on every Linux that this is built for.
const CLOCK_TICKS_A_SECOND: f64 = 100.0;

/// Measures the rows and prints each beside its limit.
///
/// # Errors
/// An unknown row, a missing program, no room for the device file or the figures, or a failed request.
pub fn bench(arguments: &BenchArguments, json: bool) -> Outcome {
    if let Some(directory) = &arguments.andrew {
        let directory = &std::path::absolute(directory)?;
        return andrew(directory, json);
    }
    if let Some(directory) = &arguments.plot {
        // Rows take minutes.
        std::fs::create_dir_all(directory)
            .map_err(|error| format!("can't make {}: {error}", directory.display()))?;
    }
    let parent = arguments.dir.clone().unwrap_or_else(|| PathBuf::from("/var/tmp"));
    let directory = Scratch::create(&parent)?;
    let is_bulk = arguments.rows.iter().any(|row| row.starts_with("bulk-"));
    let device_bytes = if is_bulk { BULK_DEVICE_BYTES } else { DEVICE_BYTES };
    let target = start_drive(&directory.0, device_bytes, arguments.emulate_disk)?;
    if !json {
        println!(
            "{:<25}{:>10}{:>10}{:>8}{:>10}  {:<6}limit; memory is MiB of the drive beyond its cache, \
             cpu its seconds a GiB",
            "row", "value", "limit", "ratio", "memory", "unit"
        );
    }
    let rows = measure(&target, &arguments.rows, |row| {
        if !json {
            print_row(row);
        }
    })?;
    if json {
        println!("{}", serde_json::json!({ "rows": rows }));
    }
    if let Some(directory) = &arguments.plot {
        for (name, figure) in nasd_bench::figures(&rows) {
            let path = directory.join(name);
            let failed = |error| format!("can't write {}: {error}", path.display());
            std::fs::write(&path, figure).map_err(failed)?;
        }
    }
    Ok(())
}

fn print_row(row: &Row) {
    let Row { name, value, limit, ratio, unit, limit_name, memory, cpu, manager_cpu, parts } = row;
    // Times need their decimals.
    let decimals = if unit.ends_with('s') && !unit.ends_with("/s") { 2 } else { 0 };
    let or_dash = |number: &Option<f64>, decimals: usize| match number {
        Some(number) => format!("{number:.decimals$}"),
        None => "-".to_owned(),
    };
    let (limit, ratio) = (or_dash(limit, decimals), or_dash(ratio, 2));
    let memory = memory.map_or("-".to_owned(), |memory| (memory.beyond_cache() >> 20).to_string());
    let numbers = format!("{value:>10.decimals$}{limit:>10}{ratio:>8}{memory:>10}");
    let cpu = cpu.map_or(String::new(), |Cpu { value, limit }| {
        format!("; cpu {value:.3}, of the limit {limit:.3}")
    });
    let managers = manager_cpu
        .map_or(String::new(), |share| format!("; managers {:.1} % of a processor", 100.0 * share));
    println!("{name:<25}{numbers}  {unit:<6}{limit_name}{cpu}{managers}");
    for Part { name, value, limit } in parts {
        // Parts of a second have parts of milliseconds.
        println!("    {name:<21}{value:>10.4}{limit:>10.4}{:>8.2}", value / limit);
    }
}

/// Runs the Andrew benchmark once, and prints its phases.
fn andrew(directory: &Path, json: bool) -> Outcome {
    let (tree, phases) = nasd_bench::andrew(directory)?;
    if json {
        let (total, warm) = (phases.total(), phases.warm());
        let told =
            serde_json::json!({ "tree": tree, "seconds": phases, "total": total, "warm": warm });
        println!("{told}");
        return Ok(());
    }
    let Contents { directories, files, bytes, .. } = tree;
    println!("{files} files, {directories} directories, {:.1} MB", bytes as f64 / 1e6);
    for (name, seconds) in phases.named() {
        println!("{name:<12}{seconds:>9.4} s");
    }
    println!("{:<12}{:>9.4} s, of phases 1 to 5", "total", phases.total());
    Ok(())
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
fn start_drive(
    directory: &Path,
    device_bytes: u64,
    emulate_disk: bool,
) -> Result<Target, Box<dyn Error>> {
    let drive = BenchDrive::create(directory, "drive", device_bytes, CACHE_BYTES, None)?
        .emulating_disk(emulate_disk);
    let drive = Arc::new(Mutex::new(drive));
    let others_peak = Arc::new(Mutex::new(None));
    let mut started = lock(&drive);
    started.start()?;
    let manager = started.manager();
    let (address, name) = (started.address.clone(), started.name);
    let client = DriveClient::tcp(&address, Some(name), &ConnectOptions::default());
    let created = client.create(&manager, PARTITION, &SetAttributes::default(), true)?;
    let capability = Capability {
        drive: name,
        partition: PARTITION,
        object: created.object,
        region: ByteRange::ALL,
        rights: Rights::READ | Rights::WRITE | Rights::GETATTR | Rights::FLUSH,
        expires: Timestamp::MAX,
        audit_id: AuditId(0),
        minimum_protection: Protection::NONE,
        key_epoch: started.keys.working_key_epoch,
    };
    let version = created.attributes.access_control_version;
    let working = SecretKey::new(started.keys.working_key);
    let issued = move |capability: Capability, version: u64| {
        let key = capability_key(&working, &capability, version);
        IssuedCapability { capability, key, sealed: None }
    };
    let others = issued.clone();
    let issue = move |capability: Capability| issued(capability, version);
    drop(started);
    let timed = drive.clone();
    let (restarted, measured, filled) = (drive.clone(), drive, directory.to_owned());
    let (theirs, peak) = (others_peak.clone(), others_peak);
    Ok(Target {
        address,
        drive: name,
        object: ObjectName { partition: PARTITION, object: created.object },
        capability: issue(capability),
        manager,
        directory: directory.to_owned(),
        restart: Box::new(move || lock(&restarted).restart()),
        peak_memory: Box::new(move || lock(&peak).take().or_else(|| lock(&measured).peak_memory())),
        cpu_seconds: Box::new(move || lock(&timed).cpu_seconds()),
        mint: Box::new(move |audit_id| issue(Capability { audit_id, ..capability })),
        issue: Box::new(move |name, version| {
            let ObjectName { partition, object } = name;
            others(Capability { partition, object, ..capability }, version)
        }),
        open_filled: Box::new(move |objects, times| {
            let (seconds, memory) = filled::open_filled(&filled, objects, times, emulate_disk)
                .map_err(|error| error.to_string())?;
            *lock(&theirs) = memory;
            Ok(seconds)
        }),
        cells: Cells {
            program: std::env::current_exe()?,
            connect: Box::new(connect_to),
            emulate_disk,
        },
    })
}

/// A client of the cell in a directory.
fn connect_to(directory: &Path) -> Result<Client, String> {
    let connected = Cell::open(directory).map_err(|error| error.to_string()).and_then(|cell| {
        let volume = cell.config.volume.clone();
        session::connect(&cell, &volume, Settings::default()).map_err(|error| error.to_string())
    })?;
    Ok(Client { clerk: connected.clerk, caller: connected.caller })
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A drive of a bench and its process.
struct BenchDrive {
    name: DriveId,
    keys: DriveKeys,
    address: String,
    path: PathBuf,
    cache_bytes: u64,
    member: MemberSpec,
    supervisor: Supervisor,
    /// The most memory of processes that are gone.
    peak_bytes: u64,
}

impl BenchDrive {
    /// Formats a device file for a drive that can be started.
    fn create(
        directory: &Path,
        file: &str,
        device_bytes: u64,
        cache_bytes: u64,
        metadata_bytes: Option<u64>,
    ) -> Result<BenchDrive, Box<dyn Error>> {
        let (name, keys) = (DriveId(u64::from_be_bytes(*b"nasdtest")), DriveKeys::generate()?);
        let path = directory.join(format!("{file}.img"));
        let device = FileDevice::create(&path, device_bytes, FileOptions::default())?;
        format(Arc::new(device), name, &keys, metadata_bytes)?;
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let member = MemberSpec {
            name: file.to_owned(),
            arguments: vec![
                "drive".into(),
                "serve".into(),
                path.clone().into(),
                "--listen".into(),
                address.clone().into(),
                "--cache".into(),
                cache_bytes.to_string().into(),
                // So that the cost of protection can be measured against none at all.
                "--minimum-protection".into(),
                "none".into(),
            ],
            log: directory.join(format!("{file}.log")),
            may_end: false,
        };
        let supervisor = Supervisor::default();
        Ok(BenchDrive { name, keys, address, path, cache_bytes, member, supervisor, peak_bytes: 0 })
    }

    /// Whether its device is as slow as a disk, once it is started.
    fn emulating_disk(mut self, does: bool) -> BenchDrive {
        if does {
            self.member.arguments.push("--emulate-disk".into());
        }
        self
    }

    /// May do anything with the partition's objects.
    fn manager(&self) -> Authority {
        let working = SecretKey::new(self.keys.working_key);
        Authority::working_key(PARTITION, working, Protection::INTEGRITY_ARGS)
    }

    fn start(&mut self) -> Result<(), StartError> {
        self.supervisor.start(vec![self.member.clone()])
    }

    fn restart(&mut self) -> Result<(), String> {
        self.note_peak();
        let problems = self.supervisor.stop();
        if !problems.is_empty() {
            return Err(problems.join("; "));
        }
        self.start().map_err(|error| error.to_string())
    }

    /// Ends the process as a power cut would.
    fn kill(&mut self) {
        self.note_peak();
        self.supervisor.kill();
    }

    fn note_peak(&mut self) {
        let peaks = self.supervisor.processes().into_iter().filter_map(peak_bytes);
        self.peak_bytes = peaks.fold(self.peak_bytes, u64::max);
    }

    /// Processor time of the process that runs, in seconds.
    fn cpu_seconds(&self) -> Option<f64> {
        self.supervisor.processes().into_iter().map(cpu_seconds).sum()
    }

    /// The most memory since this was asked last.
    fn peak_memory(&mut self) -> Option<Memory> {
        self.note_peak();
        for process in self.supervisor.processes() {
            // 5 is the peak of memory; where that may not be written, it goes on being the process's.
            let _ = std::fs::write(format!("/proc/{process}/clear_refs"), "5");
        }
        let peak_bytes = std::mem::take(&mut self.peak_bytes);
        (peak_bytes > 0).then_some(Memory { peak_bytes, cache_bytes: self.cache_bytes })
    }
}

/// Processor time of a process and of those of its threads that are gone, from fields 14 and 15 of
/// its `stat` (proc(5)), in clock ticks.
fn cpu_seconds(process: u32) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, field 2, may have blanks and brackets in it.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut times = fields.split_whitespace().skip(11).map(str::parse::<u64>);
    let ticks = times.next()?.ok()? + times.next()?.ok()?;
    Some(ticks as f64 / CLOCK_TICKS_A_SECOND)
}

/// The most memory that a process had, from the line `VmHWM:  1234 kB`.
fn peak_bytes(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib << 10)
}

fn format(
    device: Arc<dyn BlockDevice>,
    drive: DriveId,
    keys: &DriveKeys,
    metadata_bytes: Option<u64>,
) -> Outcome {
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
        metadata_bytes,
        now: Timestamp(0),
    };
    Ok(Store::format(device, &options)?)
}
