//! Sums over a file at its drives: how much sooner they are there than all of the file is, and how much sooner with more drives.

use nasd_hosts::{CellPlan, Link};

use super::filter::{Asked, Filtered, LINK, ROUNDS};
use crate::sampling::median;
use crate::workload::Bench;
use crate::{BenchError, Row};

/// Records of 100 bytes, of which all count.
const ASKED: Asked =
    Asked { has_link: true, percent: 100, record_bytes: 100, file_bytes: 1_000_000_000 };
const SUMS: &str = "count(*), sum(number)";
/// How often reading is to take longer.
const TIMES: f64 = 20.0;
/// Drives, and how often one of them is to take longer by itself, where each reads no faster than so many bytes a second.
const DRIVES: u32 = 4;
const DRIVES_TIMES: f64 = 3.5;
const DEVICE_RATE: &str = "200M";

/// Reading through a link of 1 Gbit/s beside sums through the same.
pub(super) fn link(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    let directory = bench.target.directory.join(name);
    let options = ["--cache", "1536M", "--size", "3G"].map(Into::into).to_vec();
    let plan = CellPlan { drives: 1, options, drive_options: Vec::new(), link: Link::of(LINK) };
    let measured = Filtered::start(bench, &directory, &ASKED, &plan).and_then(|mut filtered| {
        let (mut read, mut sums) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            read.push(filtered.read(&ASKED)?);
            sums.push(filtered.scan(SUMS, &ASKED)?);
        }
        filtered.stop()?;
        Ok((median(&mut read), median(&mut sums)))
    });
    let _ = std::fs::remove_dir_all(&directory);
    let (read, sums) = measured?;
    let limit_name = format!(
        "what is to be; {} MB at {} Mbit/s, read in {read:.2} s, summed up in {sums:.3} s",
        ASKED.file_bytes / 1_000_000,
        LINK / 1_000_000
    );
    Ok(Row::new(name, read / sums, "times", TIMES, limit_name))
}

/// One drive beside four, all with slow devices.
pub(super) fn drives(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    let (one, four) = (sums_of(bench, name, 1)?, sums_of(bench, name, DRIVES)?);
    let limit_name = format!(
        "what is to be; {} MB, devices that read {DEVICE_RATE}iB/s, 1 drive {one:.2} s, {DRIVES} {four:.2} s",
        ASKED.file_bytes / 1_000_000
    );
    Ok(Row::new(name, one / four, "times", DRIVES_TIMES, limit_name))
}

/// How long sums take with so many drives; in their caches is next to nothing of the file.
fn sums_of(bench: &Bench<'_>, name: &str, drives: u32) -> Result<f64, BenchError> {
    let directory = bench.target.directory.join(name);
    let asked = Asked { has_link: false, ..ASKED };
    let mut options = ["--cache", "64M", "--size", "3G"].map(Into::into).to_vec();
    if drives > 1 {
        options.extend(["--stripe", "raid0"].map(Into::into));
    }
    let drive_options = ["--device-rate", DEVICE_RATE].map(Into::into).to_vec();
    let plan = CellPlan { drives, options, drive_options, link: Link::of(LINK) };
    let sums = Filtered::start(bench, &directory, &asked, &plan).and_then(|mut filtered| {
        let mut sums = Vec::new();
        for _ in 0..ROUNDS {
            sums.push(filtered.scan(SUMS, &asked)?);
        }
        filtered.stop()?;
        Ok(median(&mut sums))
    });
    let _ = std::fs::remove_dir_all(&directory);
    sums
}
