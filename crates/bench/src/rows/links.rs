//! One client whose own link is faster than those of four drives together: whether it gets all of them.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use nasd_hosts::{CellPlan, HostedCell, Link, Route};

use crate::sampling::median;
use crate::workload::{Bench, MIB};
use crate::{BenchError, Row};

/// Drives, each with a link of so many bits a second each way.
const DRIVES: u32 = 4;
const LINK: u64 = 400_000_000;
/// Bytes of the file.
const FILE_BYTES: usize = 512 << 20;
/// How often it is measured.
const ROUNDS: usize = 3;

/// Reading or writing, without copies or with two of each byte.
pub(super) fn measure(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    let directory = bench.target.directory.join(name);
    let is_mirrored = name.contains("mirror");
    let rates = Linked::start(bench, &directory, is_mirrored).and_then(|mut linked| {
        let mut rates = Vec::new();
        for _ in 0..ROUNDS {
            let (write, read) = (linked.write(bench)?, linked.read(bench)?);
            rates.push(if name.contains("write") { write } else { read });
        }
        linked.cell.stop()?;
        Ok(rates)
    });
    let _ = std::fs::remove_dir_all(&directory);
    let links = f64::from(DRIVES) * LINK as f64 / 8e6;
    let (limit, which) = match is_mirrored && name.contains("write") {
        true => (links / 2.0, "half of"),
        false => (links, "all of"),
    };
    let limit_name = format!("{which} {DRIVES} links of {} Mbit/s", LINK / 1_000_000);
    Ok(Row::new(name, median(&mut rates?), "MB/s", limit, limit_name))
}

struct Linked {
    cell: HostedCell,
    client: nasd_hosts::Host,
    mount: PathBuf,
}

impl Linked {
    fn start(bench: &Bench<'_>, directory: &Path, is_mirrored: bool) -> Result<Linked, BenchError> {
        std::fs::create_dir(directory).map_err(BenchError::io("can't make a cell's directory"))?;
        let stripe = if is_mirrored { "raid1" } else { "raid0" };
        let options = ["--stripe", stripe, "--cache", "512M", "--size", "1536M"];
        let options = bench.target.cells.options(options);
        let plan =
            CellPlan { drives: DRIVES, options, drive_options: Vec::new(), link: Link::of(LINK) };
        let program = &bench.target.cells.program;
        let mut cell = HostedCell::start(program, &directory.join("cell"), &plan)?;
        let client = cell.client_host("client")?;
        client.limit(None)?;
        Ok(Linked { cell, client, mount: directory.join("mount") })
    }

    /// With nothing in the client's memory; MB/s.
    fn mounted(
        &mut self,
        work: impl FnOnce(&Path) -> Result<(), BenchError>,
    ) -> Result<f64, BenchError> {
        self.cell.mount(&self.client, &self.mount, Route::Direct)?;
        let begun = Instant::now();
        let done = work(&self.mount.join("file"));
        let seconds = begun.elapsed().as_secs_f64();
        self.cell.unmount(&self.mount)?;
        done.map(|()| FILE_BYTES as f64 / seconds / 1e6)
    }

    /// In order, and durable.
    fn write(&mut self, bench: &Bench<'_>) -> Result<f64, BenchError> {
        let failed = BenchError::io("can't write a file of the measured cell");
        self.mounted(|path| {
            let mut options = OpenOptions::new();
            let file = options.write(true).create(true).truncate(false).open(path);
            let mut file = file.map_err(&failed)?;
            for offset in (0..FILE_BYTES).step_by(MIB) {
                file.write_all(bench.expected(offset as u64, MIB)).map_err(&failed)?;
            }
            file.sync_all().map_err(&failed)
        })
    }

    fn read(&mut self, bench: &Bench<'_>) -> Result<f64, BenchError> {
        let failed = BenchError::io("can't read a file of the measured cell");
        self.mounted(|path| {
            let mut file = File::open(path).map_err(&failed)?;
            let mut buffer = vec![0; MIB];
            for offset in (0..FILE_BYTES as u64).step_by(MIB) {
                file.read_exact(&mut buffer).map_err(&failed)?;
                if buffer != bench.expected(offset, MIB) {
                    return Err(BenchError::WrongData { offset });
                }
            }
            Ok(())
        })
    }
}
