//! Rows of many small requests, or of one at a time.

use std::time::{Duration, Instant};

use nasd_capability::Suite;
use nasd_protocol::drive::{READ_RESULT_HEAD_BYTES, ReadArguments};
use nasd_protocol::{Credential, CredentialKey, Verifier};
use nasd_rpc::{CallHead, OpaqueAuth, RECORD_MARK_BYTES, ReplyHead};
use nasd_types::Protection;
use nasd_types::limits::BLOCK_BYTES;
use nasd_xdr::to_bytes;

use crate::limits::disk::{DiskFile, Shape, Sync};
use crate::limits::echo::Echo;
use crate::limits::redis::Redis;
use crate::sampling::{Compared, median};
use crate::workload::{Bench, Order, Reading, Until};
use crate::{BenchError, Row};

/// How often value and limit are measured, by turns.
const ROUNDS: usize = 5;
/// How long each takes.
const SECONDS: f64 = 1.0;
/// Small reads in flight on the one connection.
const DEPTH: usize = 128;
/// The cached small reads go round within as much as the server of the limit holds in values.
const VALUES: usize = 1024;
/// GETs of one run of the limit: about a second.
const GETS: usize = 300_000;
/// Connections of `redis-benchmark`, its default.
const REDIS_CONNECTIONS: usize = 50;
/// Round trips of one round.
const ROUND_TRIPS: usize = 10_000;
/// How long scattered reads are measured, by turns with the limit: in the first moments after a start
/// the system is busy giving the drive the memory of its cache.
const COLD_SECONDS: f64 = 3.0;
/// Scattered reads in flight.
const COLD_DEPTH: usize = 32;
/// Enough: of one connection, a drive has up to 64 small reads under way at a time.
const COLD_CONNECTIONS: usize = 1;
/// Bytes that small durable writes are scattered over.
const WRITE_SPAN: u64 = 256 << 20;
/// Clients of the row with many.
const WRITERS: usize = 16;

fn duration() -> Duration {
    Duration::from_secs_f64(SECONDS)
}

/// Small cached reads, as many in flight as said.
fn small_reading(depth: usize) -> Reading {
    let order = Order::Sequential { from: 0, span: (VALUES * BLOCK_BYTES) as u64 };
    let protection = Protection::INTEGRITY_ARGS;
    Reading { protection, request: BLOCK_BYTES, depth, connections: 1, order }
}

pub(super) fn pipelined(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    let reading = small_reading(DEPTH);
    bench.check(&reading, (VALUES * BLOCK_BYTES) as u64)?;
    let redis = match Redis::start(&bench.target.directory, VALUES, BLOCK_BYTES) {
        Ok(redis) => Some(redis),
        Err(BenchError::MissingProgram { .. }) => None,
        Err(error) => return Err(error),
    };
    let gets = |connections| match &redis {
        Some(redis) => redis.gets(connections, GETS),
        None => Err(BenchError::MissingProgram { program: "redis-server" }),
    };
    let mut alone = Vec::new();
    let mut row = Compared { name, unit: "1/s", limit_name: String::new(), rounds: ROUNDS }
        .by_turns(
            || {
                alone.push(gets(1)?);
                gets(REDIS_CONNECTIONS)
            },
            || Ok(bench.read(&reading, Until::Elapsed(duration()))?.requests_a_second()),
        )?;
    if row.limit.is_some() {
        row.limit_name = format!(
            "redis GET of 4 KiB, -P 16, -c {REDIS_CONNECTIONS} (-c 1: {:.0}); here one \
             connection, {DEPTH} in flight",
            median(&mut alone)
        );
    }
    Ok(row)
}

/// Request and reply of a read, in bytes with their record marks.
fn message_bytes(bench: &Bench<'_>) -> (usize, usize) {
    let key = CredentialKey::Capability(bench.target.capability.capability);
    let credential = Credential::new(key, Suite::preferred(), Protection::INTEGRITY_ARGS).to_body();
    let opaque = |body| OpaqueAuth { flavor: nasd_protocol::AUTH_FLAVOR, body };
    let verifier = Verifier::NONE.to_body();
    let head = CallHead {
        xid: 0,
        program: nasd_protocol::drive::PROGRAM,
        version: nasd_protocol::drive::VERSION,
        procedure: nasd_protocol::drive::Procedure::Read.into(),
        credential: opaque(&credential),
        verifier: opaque(&verifier),
    };
    let arguments = ReadArguments::single(bench.target.object, 0, BLOCK_BYTES as u64);
    let request = RECORD_MARK_BYTES + to_bytes(&head).len() + to_bytes(&arguments).len();
    let accepted: ReplyHead<'_> = head.accepted(opaque(&verifier), nasd_rpc::AcceptStatus::Success);
    let reply =
        RECORD_MARK_BYTES + to_bytes(&accepted).len() + READ_RESULT_HEAD_BYTES + BLOCK_BYTES;
    (request, reply)
}

pub(super) fn latency(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    bench.check(&small_reading(1), (VALUES * BLOCK_BYTES) as u64)?;
    let (request, reply) = message_bytes(bench);
    let client = bench.connect(1);
    let authority = bench.authority(Protection::INTEGRITY_ARGS);
    let mut into = vec![0; BLOCK_BYTES];
    let mut read = |number: usize| {
        let offset = (number % VALUES * BLOCK_BYTES) as u64;
        let begun = Instant::now();
        client.read(&authority, bench.target.object, offset, &mut into)?;
        Ok(begun.elapsed().as_secs_f64() * 1e6)
    };
    let mut echo = Echo::start(request, reply)?;
    let limit_name = format!("a bare TCP echo, {request} bytes there and {reply} back; medians");
    Compared { name, unit: "us", limit_name, rounds: ROUNDS }
        .by_turns(|| median_of(|_| echo.round_trip()), || median_of(&mut read))
}

fn median_of(mut sample: impl FnMut(usize) -> Result<f64, BenchError>) -> Result<f64, BenchError> {
    let mut samples = (0..ROUND_TRIPS).map(&mut sample).collect::<Result<Vec<_>, _>>()?;
    Ok(median(&mut samples))
}

/// Blocks of the whole object, none twice, right after a start of the drive.
pub(super) fn cold_scattered(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    let reading = Reading {
        protection: Protection::INTEGRITY_ARGS,
        request: BLOCK_BYTES,
        depth: COLD_DEPTH,
        connections: COLD_CONNECTIONS,
        order: Order::Scattered,
    };
    bench.restart()?;
    bench.check(&reading, 1000 * BLOCK_BYTES as u64)?;
    let file = DiskFile::new(&bench.target.directory, crate::workload::OBJECT_BYTES);
    let shape = Shape {
        pattern: "randread",
        block: BLOCK_BYTES,
        depth: COLD_DEPTH,
        sync: Sync::Never,
        seconds: Some(COLD_SECONDS),
    };
    let limit_name = format!("fio, O_DIRECT random reads of 4 KiB, depth {COLD_DEPTH}");
    Compared { name, unit: "1/s", limit_name, rounds: ROUNDS }.by_turns(
        || Ok(file.measure(&shape)?.requests),
        || {
            bench.restart()?;
            Ok(bench
                .read(&reading, Until::Elapsed(Duration::from_secs_f64(COLD_SECONDS)))?
                .requests_a_second())
        },
    )
}

/// A write, and then a flush, of one client.
pub(super) fn write_flush(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    small_durable(bench, name, false)
}

/// The same in one call: a write that is to be durable.
pub(super) fn write_durable(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    small_durable(bench, name, true)
}

fn small_durable(bench: &Bench<'_>, name: &str, in_one_call: bool) -> Result<Row, BenchError> {
    let file = DiskFile::new(&bench.target.directory, WRITE_SPAN);
    let shape = Shape {
        pattern: "randwrite",
        block: BLOCK_BYTES,
        depth: 1,
        sync: Sync::Each,
        seconds: Some(SECONDS),
    };
    let calls = if in_one_call { "one call" } else { "two calls" };
    let limit_name = format!("fio, O_DIRECT random writes of 4 KiB, fdatasync each; here {calls}");
    Compared { name, unit: "1/s", limit_name, rounds: ROUNDS }.by_turns(
        || Ok(file.measure(&shape)?.requests),
        || bench.write_durably(1, WRITE_SPAN, in_one_call, duration()),
    )
}

/// Many clients, each with a connection of its own, against one.
pub(super) fn write_flush_x16(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    let measure = |clients| bench.write_durably(clients, WRITE_SPAN, false, duration());
    let limit_name = "the same with one client".to_owned();
    Compared { name, unit: "1/s", limit_name, rounds: ROUNDS }
        .by_turns(|| measure(1), || measure(WRITERS))
}
