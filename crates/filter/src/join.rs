//! The result of a file, or of several, from those of its pieces, which come in the file's order.

use crate::error::MergeError;
use crate::merge::{Merge, Merged, Seams, first_rows};
use crate::plan::{Checked, Plan, Program};
use crate::remote::Part;
use crate::scan::Fed;

/// How many records there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// That were looked at, bad ones too. With a LIMIT some of these lie behind it, or were looked at twice.
    pub records: u64,
    /// That WHERE selected.
    pub selected: u64,
    /// That are none.
    pub bad: u64,
}

impl Counts {
    /// Whatever others claim to have counted.
    fn add(&mut self, (records, selected, bad): (u64, u64, u64)) {
        self.records = self.records.saturating_add(records);
        self.selected = self.selected.saturating_add(selected);
        self.bad = self.bad.saturating_add(bad);
    }
}

/// See the module.
pub struct Join {
    checked: Checked,
    seams: Seams,
    merge: Merge,
    /// Rows that may still be given.
    left: u64,
    counts: Counts,
}

impl Plan {
    /// The most rows that a Select gives, if there is such a bound.
    pub fn limit(&self) -> Option<u64> {
        match &self.program {
            Program::Select(select) => select.limit,
            Program::Aggregate(_) | Program::Top(_) => None,
        }
    }

    /// The same with another LIMIT, if it is a Select.
    #[must_use]
    pub fn with_limit(&self, limit: u64) -> Plan {
        let mut plan = self.clone();
        if let Program::Select(select) = &mut plan.program {
            select.limit = Some(limit);
        }
        plan
    }
}

impl Join {
    /// Of nothing yet.
    pub fn new(checked: &Checked) -> Join {
        Join {
            checked: checked.clone(),
            seams: Seams::new(checked),
            merge: Merge::new(checked),
            left: checked.plan().limit().unwrap_or(u64::MAX),
            counts: Counts::default(),
        }
    }

    /// What it is the result of.
    pub fn checked(&self) -> &Checked {
        &self.checked
    }

    /// Rows that may still be given.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Records so far that are none.
    pub fn bad(&self) -> u64 {
        self.counts.bad.saturating_add(self.seams.counts().2)
    }

    /// Takes what is before the first record of the next piece: gives the row of the record that ends with it. Tells whether
    /// more is needed.
    ///
    /// # Errors
    ///
    /// As [`Seams::head`].
    pub fn head(
        &mut self,
        part: &Part<'_>,
        give: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, MergeError> {
        if self.left == 0 {
            return Ok(false);
        }
        let before = self.seams.counts().1;
        let (joined, fed) = self.seams.head(part.piece, &part.report, part.head)?;
        give(&joined);
        self.count(self.seams.counts().1 - before);
        Ok(fed != Fed::Done && self.left > 0)
    }

    /// Takes the rest of the same piece: gives its rows. Tells whether more is needed.
    ///
    /// # Errors
    ///
    /// As [`Seams::tail`].
    pub fn rest(
        &mut self,
        part: &Part<'_>,
        give: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, MergeError> {
        give(first_rows(&self.checked, part.rows, self.left));
        self.count(part.report.selected);
        self.counts.add((part.report.records, part.report.selected, part.report.bad));
        self.seams.tail(part.piece, part.end, &part.report, part.tail)?;
        Ok(self.left > 0)
    }

    /// Adds a partial result; in any order.
    ///
    /// # Errors
    ///
    /// As [`Merge::add`].
    pub fn add(&mut self, partial: &[u8]) -> Result<(), MergeError> {
        self.merge.add(partial)
    }

    /// The file, which has so many bytes, is at its end: gives the row of a last record that had no end. What comes now is of another
    /// file behind it. Tells whether more is needed.
    ///
    /// # Errors
    ///
    /// As [`Seams::end`] and [`Merge::add`].
    pub fn end_file(
        &mut self,
        bytes: u64,
        give: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, MergeError> {
        let before = self.seams.counts().1;
        if self.left > 0 {
            give(&self.seams.end()?);
        }
        self.count(self.seams.counts().1 - before);
        self.seams.next_file();
        if matches!(self.checked.plan().program, Program::Top(_)) {
            // Where they are is told by the file that they are of.
            self.add_seams()?;
            self.merge.next_file(bytes);
        }
        Ok(self.left > 0)
    }

    /// Adds the records between pieces, and goes on without them.
    fn add_seams(&mut self) -> Result<(), MergeError> {
        let counts = self.seams.counts();
        if counts.0 > 0 {
            self.merge.add(&self.seams.finish()?)?;
            self.counts.add(counts);
            self.seams = Seams::new(&self.checked);
        }
        Ok(())
    }

    /// All is at its end, or more is not needed: gives the row of a last record that had no end, and tells the result.
    ///
    /// # Errors
    ///
    /// As [`Seams::end`] and [`Merge::add`].
    pub fn finish(mut self, give: &mut dyn FnMut(&[u8])) -> Result<(Merged, Counts), MergeError> {
        if self.left > 0 {
            give(&self.seams.end()?);
        }
        if self.checked.plan().limit().is_none() {
            self.merge.add(&self.seams.finish()?)?;
        }
        self.counts.add(self.seams.counts());
        Ok((self.merge.finish(), self.counts))
    }

    /// So many rows were given, of those that a LIMIT allows.
    fn count(&mut self, rows: u64) {
        if self.checked.plan().limit().is_some() {
            self.left = self.left.saturating_sub(rows);
        }
    }
}
