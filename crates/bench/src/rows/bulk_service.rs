//! Rows of the bulk service: an object of the drive, read and written by one connection and by several.

use std::time::{Duration, Instant};

use nasd_bulk::client::{BulkError, BulkFile, Opening, Queue};
use nasd_client::Authority;
use nasd_protocol::bulk::Options;
use nasd_protocol::manager::IssuedCapability;
use nasd_types::{ObjectName, Protection, SetAttributes};

use crate::limits::disk::{DiskFile, Shape, Sync};
use crate::limits::tcp::tcp_streams;
use crate::sampling::Compared;
use crate::workload::{Bench, MIB, in_parallel};
use crate::{BenchError, Row};

/// Bytes of a request, as in the paper.
const BLOCK: usize = 3 * MIB / 2;
/// The large file.
const FILE_BYTES: u64 = 4 << 30;
/// How often value and limit are measured, by turns.
const ROUNDS: usize = 3;
/// Requests in flight of `fio`.
const DISK_DEPTH: usize = 8;
/// Writes in flight.
const WRITE_DEPTH: usize = 4;
/// Bytes that are read of files of one length altogether.
const SMALL_BYTES: u64 = 512 << 20;

fn failed(error: BulkError) -> BenchError {
    let source = std::io::Error::other(error);
    BenchError::Io { action: "the bulk service failed a measured request", source }
}

/// An object of a row's own, removed when it is dropped.
struct Made<'b> {
    bench: &'b Bench<'b>,
    name: ObjectName,
    issued: IssuedCapability,
}

impl Drop for Made<'_> {
    fn drop(&mut self) {
        let client = self.bench.connect(1);
        // The drive ends with the run, and so does what is left on it.
        let _ = client.remove(&self.bench.target.manager, self.name, true);
    }
}

fn opening(bench: &Bench<'_>, issued: &IssuedCapability, options: Options) -> Opening {
    Opening {
        address: bench.target.address.clone(),
        authority: Authority::capability(issued, Protection::INTEGRITY_ARGS),
        place: Vec::new(),
        options,
        block: if options.contains(Options::READ) { BLOCK as u64 } else { 0 },
        patience: Duration::from_secs(30),
        clock_ahead_ns: 0,
    }
}

/// An object of that length, whose contents do not compress.
fn made<'b>(bench: &'b Bench<'b>, bytes: u64) -> Result<Made<'b>, BenchError> {
    let client = bench.connect(1);
    let (target, initial) = (bench.target, SetAttributes::default());
    let partition = target.object.partition;
    let created = client.create(&target.manager, partition, &initial, true)?;
    let name = ObjectName { object: created.object, ..target.object };
    let issued = (target.issue)(name, created.attributes.access_control_version);
    let made = Made { bench, name, issued };
    write(bench, &made.issued, bytes)?;
    Ok(made)
}

/// Writes so many bytes, and makes them durable; MB/s.
fn write(bench: &Bench<'_>, issued: &IssuedCapability, bytes: u64) -> Result<f64, BenchError> {
    let buffers = (0..WRITE_DEPTH).map(|number| noise(number as u64, BLOCK)).collect();
    let begun = Instant::now();
    let file = BulkFile::open(opening(bench, issued, Options::WRITE)).map_err(failed)?;
    let mut queue = file.queue::<Vec<u8>>();
    let mut spare: Vec<Vec<u8>> = buffers;
    let mut offset = 0;
    while offset < bytes || queue.under_way() > 0 {
        let wanted = usize::try_from(bytes - offset).unwrap_or(BLOCK).min(BLOCK);
        match spare.pop() {
            Some(mut buffer) if wanted > 0 => {
                buffer.truncate(wanted);
                queue.write(offset, buffer);
                offset += wanted as u64;
            }
            _ => spare.extend(waited_for(&mut queue)?),
        }
    }
    queue.sync().map_err(failed)?;
    Ok(bytes as f64 / begun.elapsed().as_secs_f64() / 1e6)
}

fn waited_for(queue: &mut Queue<'_, Vec<u8>>) -> Result<Option<Vec<u8>>, BenchError> {
    let Some(done) = queue.wait() else { return Ok(None) };
    done.outcome.map_err(failed)?;
    Ok(Some(done.buffer))
}

/// Reads a part from its first byte to its last, one request after the other; from before the open on, in seconds.
fn read(
    bench: &Bench<'_>,
    issued: &IssuedCapability,
    (from, to): (u64, u64),
) -> Result<f64, BenchError> {
    let mut buffer = vec![0; BLOCK];
    let begun = Instant::now();
    let file = BulkFile::open(opening(bench, issued, Options::READ)).map_err(failed)?;
    let mut offset = from;
    while offset < to {
        let wanted = usize::try_from(to - offset).unwrap_or(BLOCK).min(BLOCK);
        let length = file.read_at(&mut buffer[..wanted], offset).map_err(failed)?;
        if length != wanted {
            return Err(failed(BulkError::Protocol {
                server: bench.target.address.clone(),
                why: format!("{length} of {wanted} bytes at {offset}"),
            }));
        }
        offset += length as u64;
    }
    Ok(begun.elapsed().as_secs_f64())
}

fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2) + 1;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    (0..length).map(|_| next()).collect()
}

/// The smaller one of what TCP and the device can do.
fn least(file: &DiskFile, pattern: &'static str) -> Result<f64, BenchError> {
    let sync = if pattern == "write" { Sync::AtEnd } else { Sync::Never };
    let shape = Shape { pattern, block: BLOCK, depth: DISK_DEPTH, sync, seconds: None };
    Ok(tcp_streams(1, 1)?.min(file.measure(&shape)?.megabytes))
}

/// The whole file once, right after a start of the drive.
pub(super) fn cold_read(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    let Made { issued, .. } = &made(bench, FILE_BYTES)?;
    let file = DiskFile::new(&bench.target.directory, FILE_BYTES);
    let limit_name =
        format!("the least of iperf3 and fio, O_DIRECT reads of 1.5 MiB, depth {DISK_DEPTH}");
    Compared { name, unit: "MB/s", limit_name, rounds: ROUNDS }.by_turns(
        || least(&file, "read"),
        || {
            bench.restart()?;
            Ok(FILE_BYTES as f64 / read(bench, issued, (0, FILE_BYTES))? / 1e6)
        },
    )
}

/// The whole file, durable.
pub(super) fn durable_write(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    let Made { issued, .. } = &made(bench, 0)?;
    let file = DiskFile::new(&bench.target.directory, FILE_BYTES);
    let limit_name = format!(
        "the least of iperf3 and fio, O_DIRECT writes of 1.5 MiB, depth {DISK_DEPTH}, one fsync at the end"
    );
    Compared { name, unit: "MB/s", limit_name, rounds: ROUNDS }
        .by_turns(|| least(&file, "write"), || write(bench, issued, FILE_BYTES))
}

/// Clients that read a part of the file each, beside one that reads all of it.
pub(super) fn several(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    let clients: u64 = if name.ends_with("x2") { 2 } else { 3 };
    let Made { issued, .. } = &made(bench, FILE_BYTES)?;
    let part = FILE_BYTES / clients;
    let limit_name = "one client".to_owned();
    Compared { name, unit: "MB/s", limit_name, rounds: ROUNDS }.by_turns(
        || {
            bench.restart()?;
            Ok(FILE_BYTES as f64 / read(bench, issued, (0, FILE_BYTES))? / 1e6)
        },
        || {
            bench.restart()?;
            let begun = Instant::now();
            in_parallel(clients as usize, |client| {
                let from = client as u64 * part;
                read(bench, issued, (from, from + part)).map(drop)
            })?;
            Ok((clients * part) as f64 / begun.elapsed().as_secs_f64() / 1e6)
        },
    )
}

/// Files of a length, each from before its open to its last byte, beside a large one.
pub(super) fn by_size(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    let megabytes: u64 = match name {
        "bulk-3mb" => 3,
        "bulk-6mb" => 6,
        "bulk-12mb" => 12,
        _ => 25,
    };
    let bytes = megabytes * 1_000_000;
    let count = SMALL_BYTES.div_ceil(bytes);
    let files = (0..count).map(|_| made(bench, bytes)).collect::<Result<Vec<_>, _>>()?;
    let large = made(bench, 1 << 30)?;
    let limit_name = "a file of 1 GiB".to_owned();
    Compared { name, unit: "MB/s", limit_name, rounds: ROUNDS }.by_turns(
        || {
            bench.restart()?;
            Ok((1 << 30) as f64 / read(bench, &large.issued, (0, 1 << 30))? / 1e6)
        },
        || {
            bench.restart()?;
            let mut seconds = 0.0;
            for Made { issued, .. } in &files {
                seconds += read(bench, issued, (0, bytes))?;
            }
            Ok((count * bytes) as f64 / seconds / 1e6)
        },
    )
}
