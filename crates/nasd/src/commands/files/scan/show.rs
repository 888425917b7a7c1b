//! How the result of a scan is shown.

use nasd_filter::sql::Query;
use nasd_filter::{Checked, Format, Merged, Program, Value, delimited_row};

/// What was asked, which says how the answer is to be read.
#[derive(Clone, Copy)]
pub struct Shown<'a> {
    pub checked: &'a Checked,
    pub query: &'a Query,
}

impl Shown<'_> {
    /// The delimiter and the quote of lines.
    fn delimiters(&self) -> (u8, u8) {
        match &self.checked.plan().format {
            Format::Delimited(format) => (format.delimiter, format.quote.unwrap_or(b'"')),
            Format::Fixed(_) | Format::JsonLines(_) | Format::Columns(_) => (b',', b'"'),
        }
    }

    /// Names of columns, as a line, where rows are lines of fields; of a file that has no such line there is none.
    pub fn header(&self) -> Vec<u8> {
        let plan = self.checked.plan();
        let is_named = match (&plan.format, &plan.program) {
            (_, Program::Aggregate(_)) | (Format::Columns(_), _) => true,
            (Format::Delimited(format), _) => format.header,
            (Format::JsonLines(_), program) => program.projection().is_some(),
            (Format::Fixed(_), _) => false,
        };
        if !is_named {
            return Vec::new();
        }
        let names = self.query.columns.iter().map(|column| Value::Text(column.name.clone().into()));
        let names: Vec<Value> = names.collect();
        self.line(names.iter())
    }

    fn line<'v>(&self, values: impl Iterator<Item = &'v Value>) -> Vec<u8> {
        let (delimiter, quote) = self.delimiters();
        delimited_row(values, delimiter, quote)
    }

    /// The values of a row of groups, in the order of the query.
    pub fn values<'v>(&self, row: &'v [Value]) -> impl Iterator<Item = &'v Value> {
        self.query.columns.iter().filter_map(|column| row.get(column.place))
    }

    /// A result that is no rows of the file's order.
    pub fn merged(&self, merged: &Merged) -> Vec<u8> {
        match merged {
            Merged::Select => Vec::new(),
            Merged::Aggregate(rows) => {
                rows.iter().flat_map(|row| self.line(self.values(row))).collect()
            }
            Merged::Top(rows) => rows.iter().flat_map(|top| top.row.clone()).collect(),
        }
    }
}
