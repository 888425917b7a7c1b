//! The rows of this version, each with its workload and its limit.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use nasd_client::{Authority, ConnectOptions, DriveClient};
use nasd_protocol::manager::IssuedCapability;
use nasd_types::{DriveId, ObjectName, Protection};

use crate::{BenchError, Limits, Row};

/// Length of the object that rows read and write, in bytes.
const OBJECT_BYTES: u64 = 1 << 30;
/// Threads of the one client: its requests in flight.
const IN_FLIGHT: u64 = 4;
const MIB: usize = 1 << 20;

/// The drive that is measured, and an object of it that the capability allows to read and write.
pub struct Target {
    /// `HOST:PORT`.
    pub address: String,
    /// Which drive it must be.
    pub drive: DriveId,
    /// The object; what it holds is lost.
    pub object: ObjectName,
    /// Allows reading, writing and flushing it with any protection.
    pub capability: IssuedCapability,
    /// A directory on the disk that holds the drive's device.
    pub directory: PathBuf,
}

type Measure = fn(&Bench<'_>) -> Result<Row, BenchError>;

/// Name and workload of each row.
const ROWS: &[(&str, Measure)] = &[
    ("flushed-write-1m", flushed_write),
    ("cached-read-1m", cached_read_1m),
    ("cached-read-512k", cached_read_512k),
    ("integrity-args", integrity_args),
    ("integrity-data", integrity_data),
];

/// The rows of this version, in the order in which they are measured.
pub const ROW_NAMES: [&str; 5] = {
    let mut names = [""; 5];
    let mut index = 0;
    while index < ROWS.len() {
        names[index] = ROWS[index].0;
        index += 1;
    }
    names
};

/// Measures the named rows, or all, giving each to `report` when it is done.
///
/// # Errors
///
/// An unknown name, a missing program, or a failed request.
pub fn measure(
    target: &Target,
    names: &[String],
    mut report: impl FnMut(&Row),
) -> Result<Vec<Row>, BenchError> {
    let unknown = names.iter().find(|name| !ROW_NAMES.contains(&name.as_str()));
    if let Some(name) = unknown {
        return Err(BenchError::NoSuchRow { name: name.clone(), known: ROW_NAMES.join(" ") });
    }
    let bench = Bench { target, limits: Limits::default(), client: connect(target) };
    // The object exists in full, and in the cache, whichever rows are asked for.
    bench.write_object(Protection::INTEGRITY_ARGS)?;
    let mut rows = Vec::new();
    for (name, row) in ROWS {
        if names.is_empty() || names.iter().any(|wanted| wanted == name) {
            let row = row(&bench)?;
            report(&row);
            rows.push(row);
        }
    }
    Ok(rows)
}

fn connect(target: &Target) -> DriveClient {
    DriveClient::tcp(&target.address, Some(target.drive), &ConnectOptions::default())
}

struct Bench<'a> {
    target: &'a Target,
    limits: Limits,
    client: DriveClient,
}

fn flushed_write(bench: &Bench<'_>) -> Result<Row, BenchError> {
    let limit = bench.limits.disk_write(&bench.target.directory)?;
    let value = bench.write_object(Protection::INTEGRITY_ARGS)?;
    let limit_name = "fio, O_DIRECT writes of 1 MiB and fdatasync";
    Ok(Row::new("flushed-write-1m", value, "MB/s", limit, limit_name))
}

fn cached_read_1m(bench: &Bench<'_>) -> Result<Row, BenchError> {
    cached_read(bench, "cached-read-1m", MIB)
}

fn cached_read_512k(bench: &Bench<'_>) -> Result<Row, BenchError> {
    cached_read(bench, "cached-read-512k", MIB / 2)
}

fn cached_read(bench: &Bench<'_>, name: &str, request: usize) -> Result<Row, BenchError> {
    let limit = bench.limits.tcp()?;
    let value = bench.read_object(Protection::INTEGRITY_ARGS, request)?;
    Ok(Row::new(name, value, "MB/s", limit, "iperf3 on loopback"))
}

fn integrity_args(bench: &Bench<'_>) -> Result<Row, BenchError> {
    protected_read(bench, "integrity-args", Protection::INTEGRITY_ARGS)
}

fn integrity_data(bench: &Bench<'_>) -> Result<Row, BenchError> {
    let protection = Protection::INTEGRITY_ARGS | Protection::INTEGRITY_DATA;
    protected_read(bench, "integrity-data", protection)
}

fn protected_read(
    bench: &Bench<'_>,
    name: &str,
    protection: Protection,
) -> Result<Row, BenchError> {
    let limit = bench.read_object(Protection::NONE, MIB)?;
    let value = bench.read_object(protection, MIB)?;
    Ok(Row::new(name, value, "MB/s", limit, "the same read with NO_PROTECTION"))
}

impl Bench<'_> {
    fn authority(&self, protection: Protection) -> Authority {
        Authority::capability(&self.target.capability, protection)
    }

    /// Writes the object in requests of 1 MiB and flushes it; MB/s.
    fn write_object(&self, protection: Protection) -> Result<f64, BenchError> {
        let authority = self.authority(protection);
        let pattern = pattern();
        let started = Instant::now();
        self.in_parallel(MIB, |offset, _| {
            let data = &pattern[(offset / MIB as u64) as usize % PHASES..][..MIB];
            self.client.write(&authority, self.target.object, offset, data, false)?;
            Ok(())
        })?;
        let ObjectName { partition, object } = self.target.object;
        self.client.flush(&authority, partition, &[object])?;
        Ok(rate(started))
    }

    /// Reads the object twice, to warm up and to measure, and checks what came; MB/s.
    fn read_object(&self, protection: Protection, request: usize) -> Result<f64, BenchError> {
        let authority = self.authority(protection);
        let pattern = pattern();
        let read = |check: bool| {
            self.in_parallel(request, |offset, buffer| {
                let read = self.client.read(&authority, self.target.object, offset, buffer)?;
                if check {
                    let within = (offset % MIB as u64) as usize;
                    let phase = (offset / MIB as u64) as usize % PHASES;
                    let expected = &pattern[phase + within..][..request];
                    if read.length != request || buffer != expected {
                        return Err(BenchError::WrongData { offset });
                    }
                }
                Ok(())
            })
        };
        read(true)?;
        let started = Instant::now();
        read(false)?;
        Ok(rate(started))
    }

    /// Calls `work` for each part of the object, `IN_FLIGHT` at a time.
    fn in_parallel(
        &self,
        request: usize,
        work: impl Fn(u64, &mut [u8]) -> Result<(), BenchError> + Sync,
    ) -> Result<(), BenchError> {
        let next = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let worker = || -> Result<(), BenchError> {
                let mut buffer = vec![0; request];
                loop {
                    let offset = next.fetch_add(request as u64, Ordering::Relaxed);
                    if offset >= OBJECT_BYTES {
                        return Ok(());
                    }
                    work(offset, &mut buffer)?;
                }
            };
            let workers: Vec<_> = (0..IN_FLIGHT).map(|_| scope.spawn(worker)).collect();
            workers.into_iter().try_for_each(|worker| match worker.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            })
        })
    }
}

/// Different requests start at different places of the pattern, so that a mix-up shows.
const PHASES: usize = 251;

fn pattern() -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    (0..MIB + PHASES)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .collect()
}

fn rate(started: Instant) -> f64 {
    OBJECT_BYTES as f64 / started.elapsed().as_secs_f64() / 1e6
}
