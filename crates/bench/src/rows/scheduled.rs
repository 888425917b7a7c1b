//! Scans of many clients at one drive: what they leave to plain reads, and how long a short one waits behind long ones.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nasd_client::{Authority, DriveClient};
use nasd_filter::remote::{self, Request};
use nasd_filter::{
    Aggregate, Comparison, Expression, Field, FieldKind, Fixed, Format, Function, Item, Literal,
    Options, Plan, Program,
};
use nasd_protocol::Region;
use nasd_protocol::drive::{ExtendArguments, ExtensionOutcome};
use nasd_types::{Protection, Rights};

use crate::sampling::{Compared, median};
use crate::workload::{Bench, MIB, OBJECT_BYTES, Order, Reading, Until};
use crate::{BenchError, Row};

/// Scans that run while plain reads are measured.
const SCANS: usize = 8;
/// Scans that run while a short one waits, at least.
const LONG: usize = 7;
/// The share of their speed that plain reads are to keep.
const KEPT: f64 = 0.5;
/// How long a short scan may wait: so often what it takes by itself, and so long besides.
const OWN_TIMES: f64 = 1.5;
const BESIDES: f64 = 0.05;
/// Seconds of waiting that count in any case.
const LEAST: f64 = 0.001;
/// Bytes that a short scan looks at.
const SHORT_BYTES: u64 = 64 << 20;
/// How long the others have run before anything is measured.
const SETTLE: Duration = Duration::from_millis(500);
const DURATION: Duration = Duration::from_secs(3);
/// How often each is measured.
const ROUNDS: usize = 5;
/// Bytes of an answer.
const ANSWER: usize = 4 << 20;

/// Plain cached reads of one client beside scans of others, and the same without these.
pub(super) fn beside_reads(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    let order = Order::Sequential { from: 0, span: OBJECT_BYTES };
    let protection = Protection::INTEGRITY_ARGS;
    let reading = Reading { protection, request: MIB / 2, depth: 4, connections: 1, order };
    bench.check(&reading, OBJECT_BYTES)?;
    let read = || Ok(bench.read(&reading, Until::Elapsed(DURATION))?.megabytes_a_second());
    let scanned = AtomicU64::new(0);
    let compared = Compared { name, unit: "MB/s", limit_name: String::new(), rounds: ROUNDS };
    let row = compared.by_turns(read, || {
        beside(SCANS, bench, &scanned, || {
            thread::sleep(SETTLE);
            read()
        })
    })?;
    let (alone, beside) = (row.limit.unwrap_or(f64::MAX), row.value);
    let seconds = (SETTLE + DURATION).as_secs_f64() * ROUNDS as f64;
    let limit_name = format!(
        "of their speed alone, {alone:.0} MB/s; {SCANS} scans looked at {:.0} MB/s meanwhile",
        scanned.into_inner() as f64 / 1e6 / seconds
    );
    Ok(Row::new(name, beside / alone, "times", KEPT, limit_name))
}

/// How many scans a short one waits behind, if the drive has a thread for each processor: none is to be left for it.
fn long_scans(processors: usize) -> usize {
    LONG.max(processors + 1)
}

/// A short scan that is begun behind long ones, and by itself. The ratio is that of what it may wait to what it does.
pub(super) fn short_job(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    let long = long_scans(thread::available_parallelism().map_or(1, usize::from));
    let (mut own, mut waited) = (Vec::new(), Vec::new());
    let scanned = AtomicU64::new(0);
    let short = || {
        let begun = Instant::now();
        let scan = Scan::new(bench, SHORT_BYTES);
        // A client that has its connection.
        scan.client.getattr(&scan.authority, bench.target.object)?;
        let connected = begun.elapsed();
        scan.run(&AtomicBool::new(false), &scanned)?;
        Ok::<f64, BenchError>((begun.elapsed() - connected).as_secs_f64())
    };
    for _ in 0..ROUNDS {
        own.push(short()?);
        let took = beside(long, bench, &scanned, || {
            thread::sleep(SETTLE);
            short()
        })?;
        waited.push(took);
    }
    let own = median(&mut own);
    let waits: Vec<f64> = waited.iter().map(|took| (took - own).max(0.0)).collect();
    let longest = waits.iter().copied().fold(0.0, f64::max);
    let most = OWN_TIMES * own + BESIDES;
    let limit_name = format!(
        "{OWN_TIMES} of its own {:.1} ms and 50 ms; behind {long}, the longest of {ROUNDS}; {:.1} in the middle",
        1e3 * own,
        1e3 * median(&mut waits.clone())
    );
    let row = Row::new(name, 1e3 * longest, "ms", 1e3 * most, limit_name);
    // What is less can't be told from what it takes now and then by itself.
    Ok(Row { ratio: Some(most / longest.max(LEAST)), ..row })
}

/// Does something while so many clients scan all of the object, again and again.
fn beside<T>(
    scans: usize,
    bench: &Bench<'_>,
    scanned: &AtomicU64,
    work: impl FnOnce() -> Result<T, BenchError>,
) -> Result<T, BenchError> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let is_over = &is_over;
        let scan = || {
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    Scan::new(bench, OBJECT_BYTES).run(is_over, scanned)?;
                }
                Ok::<(), BenchError>(())
            })
        };
        let threads: Vec<_> = (0..scans).map(|_| scan()).collect();
        let done = work();
        is_over.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        done
    })
}

/// A client's count of records of 16 bytes by a number of theirs.
struct Scan {
    client: DriveClient,
    authority: Authority,
    arguments: ExtendArguments,
    end: u64,
}

impl Scan {
    /// Of the first bytes of the object.
    fn new(bench: &Bench<'_>, bytes: u64) -> Scan {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let arguments = ExtendArguments {
            name: bench.target.object,
            regions: vec![Region::single(0, bytes)],
            rights: Rights::READ,
            extension: remote::EXTENSION,
            revision: remote::REVISION,
            job: NEXT.fetch_add(1, Ordering::Relaxed),
            bytes_left: bytes,
            most: ANSWER as u32,
            arguments: nasd_xdr::to_bytes(&Request { file_bytes: bytes, plan: plan() }),
        };
        Scan {
            client: bench.connect(1),
            authority: bench.authority(Protection::INTEGRITY_ARGS),
            arguments,
            end: bytes,
        }
    }

    /// Asks until it is told all, or it is over.
    fn run(&self, is_over: &AtomicBool, scanned: &AtomicU64) -> Result<(), BenchError> {
        let (mut at, mut answer) = (0, vec![0; ANSWER]);
        while at < self.end && !is_over.load(Ordering::Relaxed) {
            let left = self.end - at;
            let regions = vec![Region::single(at, left)];
            let asked = ExtendArguments { regions, bytes_left: left, ..self.arguments.clone() };
            let told = self.client.extend(&self.authority, &asked, &mut answer)?;
            if told.outcome != ExtensionOutcome::Done || told.position <= at {
                let said = String::from_utf8_lossy(&answer[..told.data_length]).into_owned();
                return Err(BenchError::Cell(format!("a scan: {said}")));
            }
            scanned.fetch_add(told.position.min(self.end) - at, Ordering::Relaxed);
            at = told.position;
        }
        Ok(())
    }
}

fn plan() -> Plan {
    let integer = FieldKind::Integer { bytes: 4, signed: true, big_endian: false };
    let number = Field { name: "number".into(), kind: integer };
    let rest = Field { name: "rest".into(), kind: FieldKind::Text { bytes: 12 } };
    let format = Format::Fixed(Fixed { fields: vec![number, rest] });
    let bound = Expression::Literal(Literal::Int(1 << 20));
    let below = Expression::Compare(Comparison::Less, Expression::Column(0).into(), bound.into());
    let count = Item { function: Function::Count, argument: None };
    let program = Aggregate { filter: Some(below), keys: Vec::new(), items: vec![count] };
    Plan { format, program: Program::Aggregate(program), options: Options::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_scan_finds_no_thread_free() {
        for processors in 1..200 {
            assert!(long_scans(processors) > processors && long_scans(processors) >= LONG);
        }
    }
}
