//! What protection costs: bandwidth and the drive's processor time, beside the same requests with
//! NO_PROTECTION in the same run.

use std::cell::Cell;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use nasd_client::{Authority, PendingRead};
use nasd_types::{AuditId, Protection};

use crate::row::Cpu;
use crate::sampling::Compared;
use crate::workload::{Bench, MIB, OBJECT_BYTES, Order, Reading, Until};
use crate::{BenchError, Row};

/// How often value and limit are measured, by turns: they are close to one another, and the machine is
/// not as fast in one second as in the next.
const ROUNDS: usize = 25;
/// How long each takes.
const TURN: Duration = Duration::from_millis(250);
/// The same for the processor time of small requests, which is told in steps of 10 ms.
const SMALL_ROUNDS: usize = 5;
const SMALL_TURN: Duration = Duration::from_secs(1);
/// Bytes of a large request.
const REQUEST: usize = MIB / 2;
/// Large requests in flight.
const DEPTH: usize = 4;
/// Small requests in flight: a client is one thread with one connection.
const SMALL_DEPTH: usize = 64;
/// More capabilities than a drive keeps derived keys of.
const CAPABILITIES: u64 = 40_000;

const UNTIL: Until = Until::Elapsed(TURN);

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
    let [of_limit, of_value] = [const { Cell::new(Taken::NOTHING) }; 2];
    let measure = |protection, taken: &Cell<Taken>| {
        let before = bench.cpu_seconds();
        let done = bench.read(&reading(protection), UNTIL)?;
        if let (Some(before), Some(after)) = (before, bench.cpu_seconds()) {
            taken.set(taken.get().and(after - before, done.bytes));
        }
        Ok(done.megabytes_a_second())
    };
    let limit_name = "the same read with NO_PROTECTION".to_owned();
    let mut row = Compared { name, unit: "MB/s", limit_name, rounds: ROUNDS }
        .by_turns(|| measure(Protection::NONE, &of_limit), || measure(protection, &of_value))?;
    let seconds = |taken: &Cell<Taken>| taken.get().seconds_a_gib();
    row.cpu = seconds(&of_value).zip(seconds(&of_limit)).map(|(value, limit)| Cpu { value, limit });
    Ok(row)
}

/// Processor time, and what was read in it: of all turns together, as it is told in steps.
#[derive(Clone, Copy)]
struct Taken {
    seconds: f64,
    bytes: u64,
}

impl Taken {
    const NOTHING: Taken = Taken { seconds: 0.0, bytes: 0 };

    fn and(self, seconds: f64, bytes: u64) -> Taken {
        Taken { seconds: self.seconds + seconds, bytes: self.bytes + bytes }
    }

    fn seconds_a_gib(self) -> Option<f64> {
        (self.bytes > 0).then(|| self.seconds * f64::from(1 << 30) / self.bytes as f64)
    }
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
    let mut row = Compared { name, unit: "us", limit_name: String::new(), rounds: SMALL_ROUNDS }
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
        if requests.is_multiple_of(64) && start.elapsed() >= SMALL_TURN {
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
