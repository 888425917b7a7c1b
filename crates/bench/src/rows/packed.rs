//! Filters at a drive behind a link of 1 Gbit/s, of text that gets shorter when it is packed: how much sooner than reading all of it, and
//! than the link could carry what is selected as it is.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use super::filter::{Filtered, one_drive};
use crate::sampling::median;
use crate::workload::{Bench, MIB};
use crate::{BenchError, Row};

/// Lines of the file.
const LINES: u64 = 4_000_000;
/// How often each is measured.
const ROUNDS: usize = 3;

/// How often reading takes longer than scanning for half of the lines; the limit is how often it would if nothing but what came over the
/// link took time, or nothing but looking at all of them.
pub(super) fn measure(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    let directory = bench.target.directory.join(name);
    let measured = measure_in(bench, &directory, name);
    let _ = std::fs::remove_dir_all(&directory);
    measured
}

fn measure_in(bench: &Bench<'_>, directory: &Path, name: &str) -> Result<Row, BenchError> {
    let mut filtered = Filtered::empty(bench, directory, &one_drive(bench))?;
    let bytes = write(&mut filtered)?;
    filtered.limit()?;
    let (mut read, mut scan, mut look, mut told) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for _ in 0..ROUNDS {
        read.push(read_all(&mut filtered)?);
        let (seconds, said) = ask(&filtered, "*")?;
        scan.push(seconds);
        told = told_bytes(&said).ok_or(BenchError::Cell(said))?;
        look.push(ask(&filtered, "count(*)")?.0);
    }
    filtered.cell.stop()?;
    let (read, scan, look) = (median(&mut read), median(&mut scan), median(&mut look));
    let limit = (bytes as f64 / told as f64).min(read / look);
    let limit_name = format!(
        "50 % of {} MB of lines, told in {} MB; read {read:.2} s, looked at in {look:.2} s",
        bytes / 1_000_000,
        told / 1_000_000
    );
    Ok(Row::new(name, read / scan, "times", limit, limit_name))
}

/// Lines like those of a server's log, of which half have a number below 50; how many bytes they have.
fn write(filtered: &mut Filtered) -> Result<u64, BenchError> {
    let failed = BenchError::io("can't write a file of the measured cell");
    let (mut all, mut selected) = (0, 0);
    filtered.mounted(|path| {
        let mut file = File::create(path).map_err(&failed)?;
        let mut block = String::from("time,host,number,path,status,bytes\n");
        for line in 0..LINES {
            // Neighbours are unlike each other.
            let random = line.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
            let number = random % 100;
            selected += u64::from(number < 50);
            let (host, item, bytes) = (random % 17, random / 100 % 5000, random / 7 % 100_000);
            let (minute, second) = (line / 6000 % 60, line / 100 % 60);
            let _ = writeln!(
                block,
                "2026-03-01 12:{minute:02}:{second:02},web-{host},{number},/shop/items/{item}/view,200,{bytes}"
            );
            if block.len() >= MIB || line + 1 == LINES {
                all += block.len() as u64;
                file.write_all(block.as_bytes()).map_err(&failed)?;
                block.clear();
            }
        }
        file.sync_all().map_err(&failed)
    })?;
    filtered.selected = selected;
    Ok(all)
}

/// Reads all of it through the mount and looks at the number of each line; in seconds.
fn read_all(filtered: &mut Filtered) -> Result<f64, BenchError> {
    let failed = BenchError::io("can't read a file of the measured cell");
    let (mut found, wanted) = (0, filtered.selected);
    filtered.mounted(|path| {
        let mut file = File::open(path).map_err(&failed)?;
        let (mut block, mut kept) = (vec![0; 4 * MIB], 0);
        loop {
            let length = file.read(&mut block[kept..]).map_err(&failed)?;
            let have = kept + length;
            let end = block[..have].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let lines = block[..end].split(|byte| *byte == b'\n');
            found += lines.filter(|line| is_selected(line)).count() as u64;
            block.copy_within(end..have, 0);
            kept = have - end;
            if length == 0 {
                break;
            }
        }
        match found == wanted {
            true => Ok(()),
            false => Err(BenchError::WrongData { offset: 0 }),
        }
    })
}

fn is_selected(line: &[u8]) -> bool {
    let number = line.split(|byte| *byte == b',').nth(2);
    matches!(number, Some([b'0'..=b'9']) | Some([b'0'..=b'4', b'0'..=b'9']))
}

fn ask(filtered: &Filtered, what: &str) -> Result<(f64, String), BenchError> {
    let query = format!("SELECT {what} FROM file WHERE number < 50");
    filtered.run(&["scan", "main:/file", &query, "--format", "csv", "--stats"])
}

/// Bytes that came of what drives have looked at.
fn told_bytes(said: &str) -> Option<u64> {
    said.split_once(" and told ")?.1.split_once(',')?.0.parse().ok()
}
