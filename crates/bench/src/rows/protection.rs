//! What protection costs: bandwidth and the drive's processor time, beside the same requests with
//! NO_PROTECTION in the same run.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use nasd_client::{Authority, PendingRead};
use nasd_types::{AuditId, Protection};

use crate::row::Cpu;
use crate::sampling::{Compared, median};
use crate::workload::{Bench, MIB, OBJECT_BYTES, Order, Reading, Until};
use crate::{BenchError, Row};

/// How often value and limit are measured, by turns.
const ROUNDS: usize = 5;
/// How long each takes.
const SECONDS: u64 = 1;
/// Bytes of a large request.
const REQUEST: usize = MIB / 2;
/// Large requests in flight.
const DEPTH: usize = 4;
/// Small requests in flight: a client is one thread with one connection.
const SMALL_DEPTH: usize = 64;
/// More capabilities than a drive keeps derived keys of.
const CAPABILITIES: u64 = 40_000;

const UNTIL: Until = Until::Elapsed(Duration::from_secs(SECONDS));

pub(super) fn integrity_args(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    protected_read(bench, name, Protection::INTEGRITY_ARGS)
}

pub(super) fn integrity_data(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    protected_read(bench, name, Protection::INTEGRITY_ARGS | Protection::INTEGRITY_DATA)
}

pub(super) fn privacy_data(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    let integrity = Protection::INTEGRITY_ARGS | Protection::INTEGRITY_DATA;
    protected_read(bench, name, integrity | Protection::PRIVACY_DATA)
}

/// Large cached reads, with the processor time that the drive takes for a GiB of them.
fn protected_read(
    bench: &Bench<'_>,
    name: &str,
    protection: Protection,
) -> Result<Row, BenchError> {
    let order = Order::Sequential { from: 0, span: OBJECT_BYTES };
    let reading =
        |protection| Reading { protection, request: REQUEST, depth: DEPTH, connections: 1, order };
    bench.check(&reading(protection), OBJECT_BYTES)?;
    let [of_limit, of_value] = [const { RefCell::new(Vec::new()) }; 2];
    let measure = |protection, cpu: &RefCell<Vec<f64>>| {
        let before = bench.cpu_seconds();
        let done = bench.read(&reading(protection), UNTIL)?;
        if let (Some(before), Some(after)) = (before, bench.cpu_seconds()) {
            cpu.borrow_mut().push((after - before) * f64::from(1 << 30) / done.bytes as f64);
        }
        Ok(done.megabytes_a_second())
    };
    let limit_name = "the same read with NO_PROTECTION".to_owned();
    let mut row = Compared { name, unit: "MB/s", limit_name, rounds: ROUNDS }
        .by_turns(|| measure(Protection::NONE, &of_limit), || measure(protection, &of_value))?;
    let (mut of_value, mut of_limit) = (of_value.into_inner(), of_limit.into_inner());
    row.cpu = (!of_value.is_empty())
        .then(|| Cpu { value: median(&mut of_value), limit: median(&mut of_limit) });
    Ok(row)
}

/// The drive's processor time for a read of one byte whose capability it has met before.
pub(super) fn authorize_cached(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    authorized_read(bench, name, 1)
}

/// The same with another capability each time, so that its key has to be derived.
pub(super) fn authorize_uncached(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    authorized_read(bench, name, CAPABILITIES)
}

fn authorized_read(bench: &Bench<'_>, name: &str, capabilities: u64) -> Result<Row, BenchError> {
    let authorities = |protection| -> Vec<Authority> {
        (0..capabilities)
            .map(|number| {
                Authority::capability(&(bench.target.mint)(AuditId(number + 1)), protection)
            })
            .collect()
    };
    let (bare, protected) =
        (authorities(Protection::NONE), authorities(Protection::INTEGRITY_ARGS));
    let what = if capabilities == 1 { "one capability" } else { "a new capability each" };
    let mut row = Compared { name, unit: "us", limit_name: String::new(), rounds: ROUNDS }
        .by_turns(|| cpu_of_small_reads(bench, &bare), || cpu_of_small_reads(bench, &protected))?;
    let added = row.value - row.limit.unwrap_or_default();
    row.limit_name =
        format!("processor time of the drive with NO_PROTECTION; {added:.2} us more, {what}");
    Ok(row)
}

/// Microseconds of the drive's processor time for a read of one byte; the authorities take turns.
fn cpu_of_small_reads(bench: &Bench<'_>, authorities: &[Authority]) -> Result<f64, BenchError> {
    let client = bench.connect(1);
    let object = bench.target.object;
    // Also makes the connection, and what the client derives from each key, once for all rounds.
    for authority in authorities.iter().take(1) {
        client.read(authority, object, 0, &mut [0])?;
    }
    let mut under_way: VecDeque<PendingRead<'_>> = VecDeque::with_capacity(SMALL_DEPTH);
    let before = bench.cpu_seconds().ok_or(BenchError::NoProcessorTime)?;
    let start = Instant::now();
    let mut requests = 0_u64;
    for authority in authorities.iter().cycle() {
        if requests.is_multiple_of(64) && start.elapsed() >= Duration::from_secs(SECONDS) {
            break;
        }
        if under_way.len() == SMALL_DEPTH
            && let Some(oldest) = under_way.pop_front()
        {
            oldest.wait().0?;
        }
        under_way.push_back(client.begin_read(authority, object, 0, vec![0]));
        requests += 1;
    }
    for read in under_way {
        read.wait().0?;
    }
    let after = bench.cpu_seconds().ok_or(BenchError::NoProcessorTime)?;
    Ok((after - before) * 1e6 / requests as f64)
}
