//! Scans of Parquet files that lie in memory.

use nasd_filter::parquet::{GroupJoin, ParquetError, ParquetFile, ReadAt};
use nasd_filter::{Checked, Counts, MergeError, Merged, Options, Plan, sql};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A file, and how many bytes of it were read.
#[derive(Clone)]
pub struct Memory {
    pub bytes: Arc<Vec<u8>>,
    pub read: Arc<AtomicU64>,
}

impl Memory {
    pub fn new(bytes: Vec<u8>) -> Memory {
        Memory { bytes: Arc::new(bytes), read: Arc::default() }
    }

    pub fn open(&self) -> Result<ParquetFile, ParquetError> {
        ParquetFile::open(self, self.bytes.len() as u64)
    }
}

impl ReadAt for Memory {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), String> {
        let start = usize::try_from(offset).map_err(|error| error.to_string())?;
        let found = self.bytes.get(start..).and_then(|rest| rest.get(..into.len()));
        into.copy_from_slice(found.ok_or("behind the end")?);
        self.read.fetch_add(into.len() as u64, Ordering::Relaxed);
        Ok(())
    }
}

/// What went wrong.
#[derive(Debug)]
#[allow(dead_code, reason = "what it was is for people")]
pub enum Wrong {
    File(ParquetError),
    Query(String),
    Scan(MergeError),
}

/// What a query comes to, and how many groups of rows were looked at.
pub struct Found {
    pub rows: Vec<u8>,
    pub merged: Merged,
    pub counts: Counts,
    pub groups: usize,
}

pub fn checked(file: &ParquetFile, query: &str, options: Options) -> Result<Checked, Wrong> {
    let format = file.format();
    let query = sql::parse(query, &format).map_err(|error| Wrong::Query(error.to_string()))?;
    let plan = Plan { format, program: query.program, options };
    plan.check().map_err(|error| Wrong::Query(error.to_string()))
}

pub fn scan(memory: &Memory, file: &ParquetFile, checked: &Checked) -> Result<Found, Wrong> {
    let mut join = GroupJoin::new(checked);
    let (mut rows, mut groups) = (Vec::new(), 0);
    for group in 0..file.groups() {
        if join.is_over() || !file.may_select(checked, group).map_err(Wrong::File)? {
            continue;
        }
        groups += 1;
        let readers = file.ranges(checked, group).map_err(Wrong::File)?;
        let readers = readers.iter().map(|_| Box::new(memory.clone()) as Box<dyn ReadAt>);
        let mut give = |some| {
            join.rows(&some, &mut |bytes| rows.extend_from_slice(bytes));
            !join.is_over()
        };
        let scan = file.scan_group(checked, group, readers.collect(), &mut give);
        let scan = scan.map_err(Wrong::File)?;
        if !join.is_over() {
            join.rest(&scan).map_err(Wrong::Scan)?;
        }
    }
    let (merged, counts) = join.finish().map_err(Wrong::Scan)?;
    Ok(Found { rows, merged, counts, groups })
}
