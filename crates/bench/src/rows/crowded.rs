//! What honest clients keep when others misbehave.

use std::thread;
use std::time::Duration;

use nasd_types::Protection;

use crate::sampling::{Compared, median};
use crate::workload::{Bench, MIB, OBJECT_BYTES, Order, Reading, Until};
use crate::{BenchError, Crowd, CrowdReport, CrowdSize, Row};

const SIZE: CrowdSize = CrowdSize { idle: 1000, hostile: 100 };
/// How often value and limit are measured, by turns.
const ROUNDS: usize = 3;
/// How long the crowd has to come to itself before anything is measured.
const SETTLE: Duration = Duration::from_secs(2);
const DURATION: Duration = Duration::from_secs(3);

/// Cached reads of 512 KiB by one client, which is there before the crowd is and comes anew in the midst
/// of it, beside the same without a crowd.
pub(super) fn honest(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    let order = Order::Sequential { from: 0, span: OBJECT_BYTES };
    let protection = Protection::INTEGRITY_ARGS;
    let reading = Reading { protection, request: MIB / 2, depth: 4, connections: 1, order };
    bench.check(&reading, OBJECT_BYTES)?;
    let read = || Ok(bench.read(&reading, Until::Elapsed(DURATION))?.megabytes_a_second());
    let peak = || (bench.target.peak_memory)().map(|memory| memory.peak_bytes);
    let (mut grown, mut reports) = (Vec::new(), Vec::new());
    let mut undisturbed = None;
    let mut row = Compared { name, unit: "MB/s", limit_name: String::new(), rounds: ROUNDS }
        .by_turns(
            || {
                peak();
                let value = read();
                undisturbed = peak();
                value
            },
            || {
                let Bench { target, .. } = bench;
                let crowd = Crowd::start(&target.address, target.object, &target.capability, SIZE)?;
                thread::sleep(SETTLE);
                let value = read();
                let idle_left = crowd.idle_left();
                reports.push((idle_left, crowd.stop()));
                value
            },
        )?;
    if let (Some(before), Some(during)) = (undisturbed, peak()) {
        grown.push((during.cast_signed() - before.cast_signed()) as f64 / MIB as f64);
    }
    row.limit_name = limit_name(&reports, median(&mut grown));
    Ok(row)
}

/// The limit, and what the crowd was like.
fn limit_name(reports: &[(usize, CrowdReport)], grown_mib: f64) -> String {
    let mean = |of: fn(&CrowdReport) -> f64| {
        reports.iter().map(|(_, report)| of(report)).sum::<f64>() / reports.len().max(1) as f64
    };
    let idle = reports.iter().map(|(idle, _)| *idle).min().unwrap_or_default();
    format!(
        "the same undisturbed; beside {idle} idle connections and {} hostile peers, which took {:.2} \
         processors, made {:.0} connections and had {:.0} calls refused a second; the drive's memory \
         {grown_mib:+.0} MiB",
        SIZE.hostile,
        mean(|report| report.processor_seconds / report.seconds),
        mean(|report| report.connections as f64 / report.seconds),
        mean(|report| report.refused as f64 / report.seconds),
    )
}
