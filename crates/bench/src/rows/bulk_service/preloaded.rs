//! A program that knows nothing of the bulk service, with the preload library and without.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{BLOCK, ROUNDS, noise};
use crate::cells::LocalCell;
use crate::sampling::Compared;
use crate::workload::Bench;
use crate::{BenchError, Row};

const PROGRAM: &str = "fio";
const LIBRARY: &str = "libnasd_bulk.so";

/// A file that the drive's cache holds: so the processor is the limit.
const BYTES: usize = 1 << 30;

/// `fio --direct=1 --ioengine=psync` reading a file of a mount, beside the same through FUSE. The drive has all of it in its memory.
pub(in super::super) fn read_by_program(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    let cells = &bench.target.cells;
    let library = cells.program.with_file_name(LIBRARY);
    if !library.exists() {
        let missing = format!("{} is not there: `make` builds it", library.display());
        return Err(BenchError::Cell(missing));
    }
    let directory = bench.target.directory.join(name);
    let mountpoint = bench.target.directory.join(format!("{name}-mount"));
    std::fs::create_dir_all(&mountpoint).map_err(BenchError::io("can't make a mountpoint"))?;
    let mount = mountpoint.to_string_lossy();
    let options = ["--drives", "1", "--size", "3G", "--cache", "2G", "--mount", &mount];
    let cell = LocalCell::start(cells, &directory, &options)?;
    let file = mountpoint.join("file");
    std::fs::write(&file, noise(1, BYTES)).map_err(BenchError::io("can't write a file"))?;
    std::fs::read(&file).map_err(BenchError::io("can't read a file"))?;
    let limit_name = "the same job through FUSE".to_owned();
    let compared = Compared { name, unit: "MB/s", limit_name, rounds: ROUNDS };
    let row = compared.by_turns(|| run(&file, None), || run(&file, Some(&library)));
    drop(cell);
    let _ = std::fs::remove_dir(&mountpoint);
    row
}

fn run(file: &Path, library: Option<&PathBuf>) -> Result<f64, BenchError> {
    let mut command = Command::new(PROGRAM);
    command.arg("--name=job").arg(format!("--filename={}", file.display()));
    command.args(["--rw=read", "--direct=1", "--ioengine=psync", "--loops=3", "--thread=0"]);
    command.arg(format!("--bs={BLOCK}")).arg(format!("--size={BYTES}"));
    command.arg("--output-format=json").stdin(Stdio::null());
    if let Some(library) = library {
        command.env("LD_PRELOAD", library);
    }
    let failed = |reason: String| BenchError::Program { program: PROGRAM, reason };
    let output = command.output().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => BenchError::MissingProgram { program: PROGRAM },
        _ => failed(error.to_string()),
    })?;
    let report: Value = serde_json::from_slice(&output.stdout)
        .map_err(|_| failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))?;
    let bytes = report["jobs"][0]["read"]["bw_bytes"].as_f64();
    bytes.map(|bytes| bytes / 1e6).ok_or_else(|| failed("no result in its report".to_owned()))
}
