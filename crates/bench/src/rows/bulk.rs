//! Rows that move a lot in large requests.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nasd_types::Protection;

use super::WRITE_DEPTH;
use crate::limits::disk::{DiskFile, Shape, Sync};
use crate::limits::tcp::tcp_streams;
use crate::sampling::Compared;
use crate::workload::{Bench, MIB, OBJECT_BYTES, Order, Reading, Until, in_parallel};
use crate::{BenchError, Row};

/// How often value and limit are measured, by turns.
const ROUNDS: usize = 5;
/// The same where each moves the whole object from or to the medium.
const DISK_ROUNDS: usize = 3;
/// How long each takes, where it can be chosen; whole seconds, as `iperf3` knows no others.
const SECONDS: u32 = 1;
/// Large requests in flight from one client.
const DEPTH: usize = 4;
/// The same from or to the medium, as of `fio`.
const DISK_DEPTH: usize = 8;
/// Clients of the row with several, and requests in flight of each.
const CLIENTS: usize = 8;
const CLIENT_DEPTH: usize = 2;

const DURATION: Until = Until::Elapsed(Duration::from_secs(SECONDS as u64));

/// A client with one connection goes through the whole object, round and round.
fn reading(request: usize, protection: Protection) -> Reading {
    let order = Order::Sequential { from: 0, span: OBJECT_BYTES };
    Reading { protection, request, depth: DEPTH, connections: 1, order }
}

pub(super) fn flushed_write(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    let file = DiskFile::new(&bench.target.directory, OBJECT_BYTES);
    let shape =
        Shape { pattern: "write", block: MIB, depth: DISK_DEPTH, sync: Sync::AtEnd, seconds: None };
    let limit_name =
        format!("fio, 1 GiB of O_DIRECT writes of 1 MiB, depth {DISK_DEPTH}, one fsync at the end");
    Compared { name, unit: "MB/s", limit_name, rounds: DISK_ROUNDS }.by_turns(
        || Ok(file.measure(&shape)?.megabytes),
        || bench.write_object(Protection::INTEGRITY_ARGS, WRITE_DEPTH),
    )
}

pub(super) fn cached_read_1m(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    cached_read(bench, name, MIB)
}

pub(super) fn cached_read_512k(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    cached_read(bench, name, MIB / 2)
}

fn cached_read(bench: &Bench<'_>, name: &str, request: usize) -> Result<Row, BenchError> {
    let reading = reading(request, Protection::INTEGRITY_ARGS);
    bench.check(&reading, OBJECT_BYTES)?;
    let limit_name = "iperf3 on loopback, one stream".to_owned();
    Compared { name, unit: "MB/s", limit_name, rounds: ROUNDS }.by_turns(
        || tcp_streams(1, SECONDS),
        || Ok(bench.read(&reading, DURATION)?.megabytes_a_second()),
    )
}

/// Each client has a thread, a connection and an eighth of the object of its own.
pub(super) fn cached_read_512k_x8(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    let part = OBJECT_BYTES / CLIENTS as u64;
    let reading_of = |client: usize| Reading {
        depth: CLIENT_DEPTH,
        order: Order::Sequential { from: client as u64 * part, span: part },
        ..reading(MIB / 2, Protection::INTEGRITY_ARGS)
    };
    in_parallel(CLIENTS, |client| bench.check(&reading_of(client), part))?;
    let limit_name = format!("iperf3 on loopback, {CLIENTS} streams");
    Compared { name, unit: "MB/s", limit_name, rounds: ROUNDS }.by_turns(
        || tcp_streams(CLIENTS, SECONDS),
        || {
            let bytes = AtomicU64::new(0);
            let start = Instant::now();
            in_parallel(CLIENTS, |client| {
                let done = bench.read(&reading_of(client), DURATION)?;
                bytes.fetch_add(done.bytes, Ordering::Relaxed);
                Ok(())
            })?;
            Ok(bytes.into_inner() as f64 / start.elapsed().as_secs_f64() / 1e6)
        },
    )
}

/// The whole object once, right after a start of the drive.
pub(super) fn cold_read(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    let reading = Reading { depth: DISK_DEPTH, ..reading(MIB, Protection::INTEGRITY_ARGS) };
    let file = DiskFile::new(&bench.target.directory, OBJECT_BYTES);
    let shape =
        Shape { pattern: "read", block: MIB, depth: DISK_DEPTH, sync: Sync::Never, seconds: None };
    bench.restart()?;
    bench.check(&reading, OBJECT_BYTES)?;
    let limit_name = format!("fio, 1 GiB of O_DIRECT reads of 1 MiB, depth {DISK_DEPTH}");
    Compared { name, unit: "MB/s", limit_name, rounds: DISK_ROUNDS }.by_turns(
        || Ok(file.measure(&shape)?.megabytes),
        || {
            bench.restart()?;
            Ok(bench.read(&reading, Until::Bytes(OBJECT_BYTES))?.megabytes_a_second())
        },
    )
}
