//! The result of a file, or of several, from those of its groups of rows, which come in the file's order.

use super::{GroupScan, Rows};
use crate::error::MergeError;
use crate::join::Counts;
use crate::merge::{Merge, Merged, first_rows};
use crate::output::Output;
use crate::plan::{Checked, Program};

/// See the module.
pub struct GroupJoin {
    checked: Checked,
    merge: Merge,
    /// Rows that may still be given.
    left: u64,
    counts: Counts,
}

impl GroupJoin {
    /// Of nothing yet.
    pub fn new(checked: &Checked) -> GroupJoin {
        let left = checked.plan().limit().unwrap_or(u64::MAX);
        let (checked, merge) = (checked.clone(), Merge::new(checked));
        GroupJoin { checked, merge, left, counts: Counts::default() }
    }

    /// Whether the LIMIT is reached.
    pub fn is_over(&self) -> bool {
        self.left == 0
    }

    /// Takes rows of the next group: gives those that are within the LIMIT.
    pub fn rows(&mut self, rows: &Rows, give: &mut dyn FnMut(&[u8])) {
        give(first_rows(&self.checked, &rows.bytes, self.left));
        if self.checked.plan().limit().is_some() {
            self.left = self.left.saturating_sub(rows.count);
        }
    }

    /// Takes the rest of that group; where the LIMIT is reached it is of no interest.
    ///
    /// # Errors
    ///
    /// [`MergeError`].
    pub fn rest(&mut self, scan: &GroupScan) -> Result<(), MergeError> {
        let (report, counts) = (&scan.report, &mut self.counts);
        counts.records += report.records;
        counts.selected += report.selected;
        counts.bad += report.bad;
        match &scan.result {
            Ok(partial) => self.merge.add(partial),
            Err(error) => Err((*error).into()),
        }
    }

    /// The file, which has so many records, is at its end: what comes now is of another one behind it.
    pub fn end_file(&mut self, records: u64) {
        self.merge.next_file(records);
    }

    /// The result.
    ///
    /// # Errors
    ///
    /// [`MergeError`].
    pub fn finish(mut self) -> Result<(Merged, Counts), MergeError> {
        if !matches!(self.checked.plan().program, Program::Select(_)) {
            // There may have been no group at all.
            let mut scan = self.checked.start();
            let mut room = vec![0; scan.result_bytes()];
            let mut output = Output::new(&mut room);
            scan.finish(&mut output)?;
            self.merge.add(output.written())?;
        }
        Ok((self.merge.finish(), self.counts))
    }
}
