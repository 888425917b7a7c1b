//! Filters at the drive beside reading through a mount and filtering at the client (SMAS, Figure 2): how much sooner all selected
//! records are there.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use nasd_hosts::{CellPlan, Host, HostedCell, Link, Route};

use crate::sampling::median;
use crate::workload::{Bench, MIB};
use crate::{BenchError, Row};

/// Bits a second of the drive's link, where it has one.
pub(super) const LINK: u64 = 1_000_000_000;
/// How often each is measured.
pub(super) const ROUNDS: usize = 3;
/// Records are selected by a number below this, of which each is as frequent.
const NUMBERS: u32 = 100;

/// What a row's name says: `filter-select-25`, `filter-local-25`, with `-small` or `-large` records.
pub(super) struct Asked {
    pub(super) has_link: bool,
    pub(super) percent: u32,
    pub(super) record_bytes: usize,
    pub(super) file_bytes: usize,
}

impl Asked {
    fn of(name: &str) -> Asked {
        let words: Vec<&str> = name.split('-').collect();
        let (record_bytes, file_bytes) = match words.get(3) {
            Some(&"small") => (20, 100_000_000),
            Some(&"large") => (1000, 100_000_000),
            _ => (100, 1_000_000_000),
        };
        let percent = words.get(2).and_then(|word| word.parse().ok()).unwrap_or(100);
        Asked { has_link: words.get(1) == Some(&"select"), percent, record_bytes, file_bytes }
    }
}

/// How often reading takes longer than scanning; the limit is how often it would if nothing but selected bytes took time, or nothing but
/// looking at all of them.
pub(super) fn measure(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    let directory = bench.target.directory.join(name);
    let asked = Asked::of(name);
    let measured = measure_in(bench, &directory, &asked);
    let _ = std::fs::remove_dir_all(&directory);
    let Measured { read, scan, look } = measured?;
    let by_bytes = 100.0 / f64::from(asked.percent);
    let limit = by_bytes.min(read / look);
    let limit_name = format!(
        "{} % of {} MB, records of {} bytes; read {read:.2} s, looked at in {look:.2} s",
        asked.percent,
        asked.file_bytes / 1_000_000,
        asked.record_bytes
    );
    Ok(Row::new(name, read / scan, "times", limit, limit_name))
}

/// Text that does not get smaller by packing: what is told is as long as what is selected.
struct Noise {
    text: Vec<u8>,
    at: usize,
}

impl Noise {
    fn new() -> Noise {
        // More than is looked back at in packing.
        const BYTES: usize = 1 << 20;
        let mut state = 1_u64;
        let letters = (0..BYTES).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            b'0' + (state >> 58) as u8
        });
        Noise { text: letters.collect(), at: 0 }
    }

    fn put(&mut self, into: &mut Vec<u8>, bytes: usize) {
        if self.at + bytes > self.text.len() {
            self.at = 0;
        }
        into.extend_from_slice(&self.text[self.at..self.at + bytes]);
        self.at += bytes;
    }
}

/// Medians, in seconds.
struct Measured {
    /// Reading all of it through the mount and looking at each record.
    read: f64,
    /// Scanning for the records.
    scan: f64,
    /// Scanning for how many there are.
    look: f64,
}

fn measure_in(bench: &Bench<'_>, directory: &Path, asked: &Asked) -> Result<Measured, BenchError> {
    let mut filtered = Filtered::start(bench, directory, asked, &one_drive(bench))?;
    let (mut read, mut scan, mut look) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        read.push(filtered.read(asked)?);
        scan.push(filtered.scan("*", asked)?);
        look.push(filtered.scan("count(*)", asked)?);
    }
    filtered.stop()?;
    Ok(Measured { read: median(&mut read), scan: median(&mut scan), look: median(&mut look) })
}

/// A cell of one drive, which has all of a file in its memory.
pub(super) fn one_drive(bench: &Bench<'_>) -> CellPlan {
    let options = bench.target.cells.options(["--cache", "1536M", "--size", "3G"]);
    CellPlan { drives: 1, options, drive_options: Vec::new(), link: Link::of(LINK) }
}

/// A cell with a file in it, and a client.
pub(super) struct Filtered {
    pub(super) cell: HostedCell,
    client: Host,
    mount: PathBuf,
    pub(super) selected: u64,
}

impl Filtered {
    /// Makes the cell in a new directory, and the file.
    pub(super) fn start(
        bench: &Bench<'_>,
        directory: &Path,
        asked: &Asked,
        plan: &CellPlan,
    ) -> Result<Filtered, BenchError> {
        let mut filtered = Filtered::empty(bench, directory, plan)?;
        filtered.write(asked)?;
        if asked.has_link {
            filtered.limit()?;
        }
        Ok(filtered)
    }

    /// One without a file, whose drives have links without a limit.
    pub(super) fn empty(
        bench: &Bench<'_>,
        directory: &Path,
        plan: &CellPlan,
    ) -> Result<Filtered, BenchError> {
        std::fs::create_dir(directory).map_err(BenchError::io("can't make a cell's directory"))?;
        let program = &bench.target.cells.program;
        let mut cell = HostedCell::start(program, &directory.join("cell"), plan)?;
        let client = cell.client_host("client")?;
        client.limit(None)?;
        for drive in 0..plan.drives as usize {
            cell.drive_host(drive).limit(None)?;
        }
        let mount = directory.join("mount");
        Ok(Filtered { cell, client, mount, selected: 0 })
    }

    pub(super) fn limit(&self) -> Result<(), BenchError> {
        Ok(self.cell.drive_host(0).limit(Some(LINK))?)
    }

    pub(super) fn stop(self) -> Result<(), BenchError> {
        Ok(self.cell.stop()?)
    }

    /// Does something with the file by way of a mount, in whose memory there is nothing of it; in seconds.
    pub(super) fn mounted(
        &mut self,
        work: impl FnOnce(&Path) -> Result<(), BenchError>,
    ) -> Result<f64, BenchError> {
        self.cell.mount(&self.client, &self.mount, Route::Direct)?;
        let begun = Instant::now();
        let done = work(&self.mount.join("file"));
        let seconds = begun.elapsed().as_secs_f64();
        self.cell.unmount(&self.mount)?;
        done.map(|()| seconds)
    }

    fn write(&mut self, asked: &Asked) -> Result<(), BenchError> {
        let failed = BenchError::io("can't write a file of the measured cell");
        let count = asked.file_bytes / asked.record_bytes;
        let mut selected = 0;
        self.mounted(|path| {
            let mut file = File::create(path).map_err(&failed)?;
            let (mut block, mut rest) = (Vec::new(), Noise::new());
            for index in 0..count {
                // Neighbours are unlike each other.
                let number = (index as u32).wrapping_mul(2_654_435_761) >> 8;
                let number = number % NUMBERS;
                selected += u64::from(number < asked.percent);
                block.extend(number.to_le_bytes());
                rest.put(&mut block, asked.record_bytes - 4);
                if block.len() >= MIB || index + 1 == count {
                    file.write_all(&block).map_err(&failed)?;
                    block.clear();
                }
            }
            file.sync_all().map_err(&failed)
        })?;
        self.selected = selected;
        Ok(())
    }

    pub(super) fn read(&mut self, asked: &Asked) -> Result<f64, BenchError> {
        let failed = BenchError::io("can't read a file of the measured cell");
        let (mut found, wanted) = (0, self.selected);
        let block_bytes = MIB / asked.record_bytes * asked.record_bytes;
        self.mounted(|path| {
            let mut file = File::open(path).map_err(&failed)?;
            let (mut block, mut left) = (vec![0; block_bytes], asked.file_bytes);
            while left >= asked.record_bytes {
                let now = block.len().min(left / asked.record_bytes * asked.record_bytes);
                file.read_exact(&mut block[..now]).map_err(&failed)?;
                let records = block[..now].chunks_exact(asked.record_bytes);
                let numbers = records
                    .map(|record| u32::from_le_bytes([record[0], record[1], record[2], record[3]]));
                found += numbers.filter(|number| *number < asked.percent).count() as u64;
                left -= now;
            }
            match found == wanted {
                true => Ok(()),
                false => Err(BenchError::WrongData { offset: 0 }),
            }
        })
    }

    /// What the command says it has taken, its start left out, as a program's that has the file open.
    pub(super) fn scan(&mut self, what: &str, asked: &Asked) -> Result<f64, BenchError> {
        let query = format!("SELECT {what} FROM file WHERE number < {}", asked.percent);
        let columns = format!("number:u32,rest:text{}", asked.record_bytes - 4);
        let fixed = ["--format", "fixed", "--columns", &columns, "--stats"];
        let arguments = [&["scan", "main:/file", &query], &fixed[..]].concat();
        Ok(self.run(&arguments)?.0)
    }

    /// What the command says it has taken, its start left out, as a program's that has the file open; and all that it says.
    pub(super) fn run(&self, arguments: &[&str]) -> Result<(f64, String), BenchError> {
        let mut command: Command = self.cell.command(&self.client, arguments);
        let output = command.stdout(Stdio::null()).stderr(Stdio::piped()).output();
        let output = output.map_err(BenchError::io("can't run the program"))?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let failed = || BenchError::Cell(format!("`nasd scan`: {said}"));
        if !output.status.success() || !said.contains(&format!(" {} selected", self.selected)) {
            return Err(failed());
        }
        let seconds = said.rsplit_once(" in ").and_then(|(_, rest)| rest.split_once(" s"));
        let seconds = seconds.and_then(|(seconds, _)| seconds.parse().ok()).ok_or_else(failed)?;
        Ok((seconds, said))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_of_selections_has_a_link_or_none_by_its_name() {
        let (mut linked, mut local) = (0, 0);
        for name in crate::rows::ROW_NAMES.iter().filter(|name| !name.ends_with("compressed")) {
            let asked = Asked::of(name);
            linked += usize::from(name.starts_with("filter-select-") && asked.has_link);
            local += usize::from(name.starts_with("filter-local-") && !asked.has_link);
        }
        assert_eq!((linked, local), (18, 18));
    }

    #[test]
    fn a_name_says_whether_there_is_a_link_and_what_is_selected() {
        for (name, has_link, percent, record_bytes, file_bytes) in [
            ("filter-select-25", true, 25, 100, 1_000_000_000),
            ("filter-select-1-small", true, 1, 20, 100_000_000),
            ("filter-local-100-large", false, 100, 1000, 100_000_000),
        ] {
            let asked = Asked::of(name);
            assert_eq!((asked.has_link, asked.percent), (has_link, percent), "{name}");
            assert_eq!(
                (asked.record_bytes, asked.file_bytes),
                (record_bytes, file_bytes),
                "{name}"
            );
        }
    }
}
