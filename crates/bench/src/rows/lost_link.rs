//! A drive whose cable is pulled for good, where drives and managers have a link of a set speed each: its share is made
//! anew on a spare, beside what the spare's link carries.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use nasd_hosts::{CellPlan, HostedCell, Link, Route};
use serde_json::Value;

use crate::workload::{Bench, MIB};
use crate::{BenchError, Row};

/// Drives, each with a link of so many bits a second each way, and the one that is lost.
const DRIVES: u32 = 4;
const LINK: u64 = 400_000_000;
const LOST: usize = 1;
/// Bytes of all files; each drive has one half of them, as there are two copies.
const ALL_BYTES: usize = 2 << 30;
/// How many files these are; a row whose name ends so has one.
const FILES: usize = 8;
const ONE: &str = "-one";
/// How long anything may take, and how often it is looked.
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(200);

pub(super) fn rebuild(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    let directory = bench.target.directory.join(name);
    let files = if name.ends_with(ONE) { 1 } else { FILES };
    let rate = give(bench, &directory, files);
    let _ = std::fs::remove_dir_all(&directory);
    let limit_name = format!("the spare's link of {} Mbit/s; files: {files}", LINK / 1_000_000);
    Ok(Row::new(name, rate?, "MB/s", LINK as f64 / 8e6, limit_name))
}

/// What the spare gets a second of so many files, in MB.
fn give(bench: &Bench<'_>, directory: &Path, files: usize) -> Result<f64, BenchError> {
    std::fs::create_dir(directory).map_err(BenchError::io("can't make a cell's directory"))?;
    let options = ["--stripe", "raid1", "--cache", "128M", "--size", "2G"];
    let options = bench.target.cells.options(options);
    let plan =
        CellPlan { drives: DRIVES, options, drive_options: Vec::new(), link: Link::of(LINK) };
    let mut cell = HostedCell::start(&bench.target.cells.program, &directory.join("cell"), &plan)?;
    fill(bench, &mut cell, &directory.join("mount"), files)?;
    command(&cell, &["striping", "set", "--replace-after", "1s"])?;
    cell.add_spare(&["--cache", "128M", "--size", "2G"])?;
    wait(&cell, |spare| spare["reachable"] == true)?;
    cell.drive_host(LOST).cut()?;
    wait(&cell, |spare| spare["places_coming"] != 0)?;
    let begun = Instant::now();
    let spare = wait(&cell, |spare| spare["places_coming"] == 0 && spare["places"] != 0)?;
    let seconds = begun.elapsed().as_secs_f64();
    cell.drive_host(LOST).join()?;
    cell.stop()?;
    Ok(spare["used_bytes"].as_f64().unwrap_or(0.0) / seconds / 1e6)
}

/// Writes the files through a mount on a host whose link has no limit.
fn fill(
    bench: &Bench<'_>,
    cell: &mut HostedCell,
    at: &Path,
    files: usize,
) -> Result<(), BenchError> {
    let failed = BenchError::io("can't write a file of the measured cell");
    let client = cell.client_host("client")?;
    client.limit(None)?;
    cell.mount(&client, at, Route::Direct)?;
    for number in 0..files {
        let mut file = File::create(at.join(format!("file{number}"))).map_err(&failed)?;
        for offset in (0..ALL_BYTES / files).step_by(MIB) {
            file.write_all(bench.expected(offset as u64, MIB)).map_err(&failed)?;
        }
        file.sync_all().map_err(&failed)?;
    }
    Ok(cell.unmount(at)?)
}

/// What a command prints, on the managers' host.
fn command(cell: &HostedCell, arguments: &[&str]) -> Result<Vec<u8>, BenchError> {
    let output = cell.command(cell.manager_host(), arguments).output();
    let output = output.map_err(BenchError::io("can't run the program"))?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(BenchError::Cell(format!("`nasd {}`: {said}", arguments.join(" "))))
        }
    }
}

/// Waits until it is so of what `nasd status` tells of the spare, the last one of the component drives.
fn wait(cell: &HostedCell, is_so: impl Fn(&Value) -> bool) -> Result<Value, BenchError> {
    let begun = Instant::now();
    loop {
        let told: Value =
            serde_json::from_slice(&command(cell, &["status", "--json"])?).unwrap_or_default();
        let drives = told["drives"].as_array().into_iter().flatten();
        let components = drives.flat_map(|drive| drive["components"].as_array()).flatten();
        let spare = components.max_by_key(|component| component["index"].as_u64());
        if let Some(spare) = spare.filter(|spare| is_so(spare)) {
            return Ok(spare.clone());
        }
        if begun.elapsed() > PATIENCE {
            return Err(BenchError::Cell(format!("the spare is not given its share: {told}")));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}
