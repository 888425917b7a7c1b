//! A scan of one group of rows: the columns that are needed, batch by batch.

use super::footer::{ParquetFile, range};
use super::pages::{Budget, Chunk};
use super::values::ColumnValues;
use super::{ParquetError, ReadAt, broken, guarded};
use crate::columnar::{BATCH_RECORDS, ColumnBatch};
use crate::error::ScanError;
use crate::format::Type;
use crate::output::Output;
use crate::plan::Checked;
use crate::scan::{Fed, Piece, Report, Scan};
use std::ops::Range;
use std::sync::Arc;

/// Bytes of texts that a batch should not have more of.
const BATCH_TEXT_BYTES: usize = 16 << 20;

/// Bytes of a column that are read at a time, and of all columns together.
const STEP_BYTES: u64 = 1 << 20;
const STEPS_BYTES: u64 = 64 << 20;
const LEAST_STEP_BYTES: u64 = 64 << 10;

/// Bytes of rows that are given at a time, at least.
const GIVE_BYTES: usize = 1 << 20;

/// Rows of a Select, whole ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    /// They.
    pub bytes: Vec<u8>,
    /// How many they are.
    pub count: u64,
}

/// What the scan of a group of rows came to, besides rows.
#[derive(Clone, Debug)]
pub struct GroupScan {
    /// How many records there were.
    pub report: Report,
    /// The partial result, or why there is none. Rows before that were given.
    pub result: Result<Vec<u8>, ScanError>,
}

impl ParquetFile {
    /// Where the columns of a group lie that a program needs.
    ///
    /// # Errors
    ///
    /// [`ParquetError::Broken`] if there is no such group.
    pub fn ranges(&self, checked: &Checked, group: usize) -> Result<Vec<Range<u64>>, ParquetError> {
        let (metadata, _) = self.group(group)?;
        let columns = checked.needed_columns().into_iter().map(|column| {
            let found = metadata.columns().get(self.reading(column)?.leaf).and_then(range);
            found.map_or_else(|| broken("a column is nowhere"), |(begin, end)| Ok(begin..end))
        });
        columns.collect()
    }

    /// Bytes that the columns of a group which a program needs say to have when they are decoded.
    pub fn decoded_bytes(&self, checked: &Checked, group: usize) -> u64 {
        let Ok((metadata, _)) = self.group(group) else {
            return 0;
        };
        let leaves = checked.needed_columns().into_iter().filter_map(|column| {
            let leaf = self.reading(column).ok()?.leaf;
            u64::try_from(metadata.columns().get(leaf)?.uncompressed_size()).ok()
        });
        leaves.fold(0, u64::saturating_add)
    }

    /// Scans a group of rows: gives rows until they are not taken, then what it came to. `readers` read the ranges of
    /// [`ranges`](Self::ranges), each from its begin to its end.
    ///
    /// # Errors
    ///
    /// [`ParquetError`]; that the program fails is in the result.
    pub fn scan_group(
        &self,
        checked: &Checked,
        group: usize,
        readers: Vec<Box<dyn ReadAt>>,
        give: &mut dyn FnMut(Rows) -> bool,
    ) -> Result<GroupScan, ParquetError> {
        guarded(|| {
            let (metadata, first) = self.group(group)?;
            let mut scan = checked.start();
            scan.begin_piece(Piece { offset: first, starts_record: true, ends_file: false });
            let rows = u64::try_from(metadata.num_rows()).unwrap_or(0);
            let columns = self.columns(checked, group, readers)?;
            let mut work = Work::new(self, checked, columns, scan);
            work.run(rows, group, give)
        })
    }

    fn columns(
        &self,
        checked: &Checked,
        group: usize,
        readers: Vec<Box<dyn ReadAt>>,
    ) -> Result<Vec<ColumnValues>, ParquetError> {
        let (metadata, _) = self.group(group)?;
        let (needed, ranges) = (checked.needed_columns(), self.ranges(checked, group)?);
        if readers.len() != ranges.len() {
            return Err(ParquetError::Read("not every column is read".to_owned()));
        }
        let step = STEPS_BYTES / needed.len().max(1) as u64;
        let step = step.clamp(LEAST_STEP_BYTES, STEP_BYTES);
        let budget = Arc::new(Budget::default());
        let mut columns = Vec::with_capacity(needed.len());
        for ((column, range), reader) in needed.into_iter().zip(ranges).zip(readers) {
            let told = self.reading(column)?;
            let part = &metadata.columns()[told.leaf];
            let chunk = Arc::new(Chunk::new(reader, range, part, step, &budget));
            let rows = usize::try_from(metadata.num_rows()).unwrap_or(0);
            columns.push(ColumnValues::new(column, told, chunk, part, rows)?);
        }
        Ok(columns)
    }

    /// How many records are decoded at a time, so that their texts take no more than they should.
    fn batch_records(&self, checked: &Checked, group: usize) -> usize {
        let rows = self.group(group).map_or(0, |(group, _)| group.num_rows().unsigned_abs());
        let record = self.decoded_bytes(checked, group) / rows.max(1);
        let records = BATCH_TEXT_BYTES as u64 / record.max(1);
        records.clamp(1, BATCH_RECORDS as u64) as usize
    }
}

struct Work<'a> {
    file: &'a ParquetFile,
    checked: &'a Checked,
    columns: Vec<ColumnValues>,
    scan: Scan,
    batch: ColumnBatch,
    room: Vec<u8>,
    length: usize,
    /// Rows that were given.
    given: u64,
    /// Whether more rows are.
    is_wanted: bool,
}

impl<'a> Work<'a> {
    fn new(
        file: &'a ParquetFile,
        checked: &'a Checked,
        columns: Vec<ColumnValues>,
        scan: Scan,
    ) -> Work<'a> {
        let format = &checked.plan().format;
        let kinds = 0..format.column_count();
        let kinds: Vec<Type> = kinds.filter_map(|column| format.column_type(column)).collect();
        let batch = ColumnBatch::new(&kinds, &checked.needed_columns());
        let room = Vec::new();
        Work { file, checked, columns, scan, batch, room, length: 0, given: 0, is_wanted: true }
    }

    fn run(
        &mut self,
        rows: u64,
        group: usize,
        give: &mut dyn FnMut(Rows) -> bool,
    ) -> Result<GroupScan, ParquetError> {
        let most = self.file.batch_records(self.checked, group);
        let (mut left, mut failed) = (rows, None);
        while left > 0 && failed.is_none() {
            let count = most.min(usize::try_from(left).unwrap_or(most));
            for column in &mut self.columns {
                column.read(count)?;
            }
            left -= count as u64;
            match self.feed_all(count, give) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => failed = Some(error),
            }
        }
        let result = match failed {
            Some(error) => Err(error),
            None => self.finish(),
        };
        if self.is_wanted && self.length > 0 {
            self.give(give);
        }
        Ok(GroupScan { report: self.scan.report(), result })
    }

    /// Feeds the records that were read, as many at a time as have not too long texts, and gives what comes of them. Tells
    /// whether more are wanted.
    fn feed_all(
        &mut self,
        count: usize,
        give: &mut dyn FnMut(Rows) -> bool,
    ) -> Result<bool, ScanError> {
        let longest = self.checked.plan().options.longest_record as usize;
        let mut begin = 0;
        while begin < count {
            let (mut end, mut bytes) = (begin, 0);
            while end < count && (end == begin || bytes < BATCH_TEXT_BYTES) {
                // Longer ones are not copied.
                let texts = self.columns.iter().map(|column| column.text_bytes(end));
                bytes += texts.filter(|bytes| *bytes <= longest).sum::<usize>();
                end += 1;
            }
            self.batch.begin(end - begin);
            for column in &mut self.columns {
                column.put(begin..end, longest, &mut self.batch);
            }
            let batch = std::mem::take(&mut self.batch);
            let fed = self.write(|scan, output| scan.feed_columns(&batch, output));
            self.batch = batch;
            if fed? == Fed::Done {
                return Ok(false);
            }
            // One text may be in all records: of some there is as much as of a file.
            if self.length >= GIVE_BYTES {
                self.is_wanted = self.give(give);
                if !self.is_wanted {
                    return Ok(false);
                }
            }
            begin = end;
        }
        Ok(true)
    }

    fn finish(&mut self) -> Result<Vec<u8>, ScanError> {
        self.write(Scan::end_piece)?;
        let rows = self.length;
        self.write(Scan::finish)?;
        let result = self.room[rows..self.length].to_vec();
        self.length = rows;
        Ok(result)
    }

    /// Calls until everything is taken.
    fn write(
        &mut self,
        mut call: impl FnMut(&mut Scan, &mut Output<'_>) -> Result<Fed, ScanError>,
    ) -> Result<Fed, ScanError> {
        loop {
            if self.room.len() - self.length < LEAST_STEP_BYTES as usize {
                self.room.resize(2 * self.room.len() + LEAST_STEP_BYTES as usize, 0);
            }
            let mut output = Output::new(&mut self.room[self.length..]);
            let fed = call(&mut self.scan, &mut output);
            self.length += output.len();
            match fed? {
                Fed::Full { .. } => self.room.resize(2 * self.room.len(), 0),
                fed => return Ok(fed),
            }
        }
    }

    /// Gives the rows that there are; whether more are wanted.
    fn give(&mut self, give: &mut dyn FnMut(Rows) -> bool) -> bool {
        let bytes = self.room[..self.length].to_vec();
        let selected = self.scan.report().selected;
        let count = selected - self.given;
        (self.length, self.given) = (0, selected);
        give(Rows { bytes, count })
    }
}
