//! Files that are spread over four drives, by one client, beside one drive without a file system.

use std::time::Instant;

use nasd_clerk::{Name, OpenFile, OpenMode};
use nasd_types::Protection;

use super::WRITE_DEPTH;
use crate::cells::{Client, LocalCell};
use crate::sampling::Compared;
use crate::workload::{Bench, MIB, OBJECT_BYTES, Order, Reading, Until};
use crate::{BenchError, Row};

/// How often value and limit are measured, by turns.
const READ_ROUNDS: usize = 5;
const WRITE_ROUNDS: usize = 5;

/// How often the file is written before anything is measured. Drives prepare the memory of their caches in the
/// first seconds, and write what is new to places of their device files that the file system has never seen.
const WARM_UP: usize = 12;

/// Each drive holds all of its part in its cache, also of two copies.
const DRIVES: [&str; 6] = ["--drives", "4", "--size", "3G", "--cache", "768M"];
const STRIPED: [&str; 2] = ["--stripe", "raid0"];
const MIRRORED: [&str; 2] = ["--stripe", "raid1"];

/// A cell of four drives, and a client with one file.
struct Striped {
    // Before the cell: what the client holds is written when it goes.
    file: OpenFile,
    client: Client,
    _cell: LocalCell,
}

impl Striped {
    fn start(bench: &Bench<'_>, stripe: &[&str]) -> Result<Striped, BenchError> {
        let cells = &bench.target.cells;
        let directory = bench.target.directory.join(stripe[1]);
        let cell = LocalCell::start(cells, &directory, &[&DRIVES, stripe].concat())?;
        let client = cell.connect(cells)?;
        let root = client.clerk.root();
        let name = Name::new("file").map_err(|error| BenchError::Cell(error.to_string()))?;
        let made = client.clerk.create(&client.caller, root, &name, 0o600, true)?;
        let (file, _) = client.clerk.open_known(&client.caller, &made, OpenMode::READ_WRITE)?;
        let striped = Striped { file, client, _cell: cell };
        for _ in 0..WARM_UP {
            striped.write(bench)?;
        }
        Ok(striped)
    }

    /// Writes the whole file, one MiB after the other, and makes it durable; MB/s.
    fn write(&self, bench: &Bench<'_>) -> Result<f64, BenchError> {
        let start = Instant::now();
        for offset in (0..OBJECT_BYTES).step_by(MIB) {
            self.file.write(offset, bench.expected(offset, MIB))?;
        }
        self.file.sync()?;
        Ok(OBJECT_BYTES as f64 / start.elapsed().as_secs_f64() / 1e6)
    }

    /// Reads the whole file with one thread, one MiB after the other, giving each to `each`; MB/s.
    fn read(
        &self,
        mut each: impl FnMut(u64, &[u8]) -> Result<(), BenchError>,
    ) -> Result<f64, BenchError> {
        let (clerk, caller) = (&self.client.clerk, &self.client.caller);
        let (file, _) = clerk.open(caller, self.file.handle(), OpenMode::READ)?;
        let mut scratch = Vec::new();
        let start = Instant::now();
        for offset in (0..OBJECT_BYTES).step_by(MIB) {
            file.read_with(offset, MIB, &mut scratch, |data| {
                if data.len() < MIB {
                    return Err(BenchError::WrongData { offset: offset + data.len() as u64 });
                }
                each(offset, data)
            })??;
        }
        Ok(OBJECT_BYTES as f64 / start.elapsed().as_secs_f64() / 1e6)
    }
}

/// A file that the drives have in memory, read in order.
pub(super) fn read(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    let striped = Striped::start(bench, &STRIPED)?;
    striped.read(|offset, data| match data == bench.expected(offset, data.len()) {
        true => Ok(()),
        false => Err(BenchError::WrongData { offset }),
    })?;
    let order = Order::Sequential { from: 0, span: OBJECT_BYTES };
    let protection = Protection::INTEGRITY_ARGS;
    let single = Reading { protection, request: MIB, depth: 4, connections: 1, order };
    let limit_name = "the same bytes of one drive, in memory, without a file system".to_owned();
    Compared { name, unit: "MB/s", limit_name, rounds: READ_ROUNDS }.by_turns(
        || Ok(bench.read(&single, Until::Bytes(OBJECT_BYTES))?.megabytes_a_second()),
        || striped.read(|_, _| Ok(())),
    )
}

/// A file that is written in order and made durable.
pub(super) fn write(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    let striped = Striped::start(bench, &STRIPED)?;
    let limit_name =
        "the same bytes to one drive on the same disk, without a file system".to_owned();
    Compared { name, unit: "MB/s", limit_name, rounds: WRITE_ROUNDS }.by_turns(
        || bench.write_object(Protection::INTEGRITY_ARGS, WRITE_DEPTH),
        || striped.write(bench),
    )
}

/// The same with two copies.
pub(super) fn mirror_write(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    let striped = Striped::start(bench, &STRIPED)?;
    let mirrored = Striped::start(bench, &MIRRORED)?;
    let limit_name = "the same file without a second copy".to_owned();
    Compared { name, unit: "MB/s", limit_name, rounds: WRITE_ROUNDS }
        .by_turns(|| striped.write(bench), || mirrored.write(bench))
}
