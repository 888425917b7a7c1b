//! How the result of a scan is shown.

use nasd_filter::sql::Query;
use nasd_filter::{Checked, Format, Merged, Program, Value, delimited_row, first_rows};
use serde_json::json;
use std::error::Error;

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
    fn values<'v>(&self, row: &'v [Value]) -> impl Iterator<Item = &'v Value> {
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

    /// All rows, for scripts: of groups objects, others as the lines that they are.
    pub fn facts(&self, rows: &[u8], merged: &Merged) -> Result<serde_json::Value, Box<dyn Error>> {
        if let Merged::Aggregate(groups) = merged {
            let row = |row: &Vec<Value>| {
                let names = self.query.columns.iter().map(|column| column.name.clone());
                let members = names.zip(self.values(row).map(fact));
                serde_json::Value::Object(members.collect())
            };
            return Ok(groups.iter().map(row).collect());
        }
        if matches!(self.checked.plan().format, Format::Fixed(_)) {
            return Err("rows of fixed records are bytes, not text: leave --json out".into());
        }
        let rows = [rows, &self.merged(merged)].concat();
        let text = String::from_utf8(rows);
        let text = text.map_err(|_| "the rows are not UTF-8: leave --json out")?;
        let mut rest = text.as_bytes();
        let mut found = Vec::new();
        while !rest.is_empty() {
            // A row may have line ends in quotes.
            let row = first_rows(self.checked, rest, 1);
            found.push(json!(String::from_utf8_lossy(row.strip_suffix(b"\n").unwrap_or(row))));
            rest = &rest[row.len()..];
        }
        Ok(found.into())
    }
}

fn fact(value: &Value) -> serde_json::Value {
    match value {
        Value::Null => serde_json::Value::Null,
        Value::Bool(value) => json!(value),
        Value::Int(value) => json!(value),
        // Most readers of JSON have no larger ones.
        Value::HugeInt(value) => match i64::try_from(*value) {
            Ok(value) => json!(value),
            Err(_) => json!(value.to_string()),
        },
        Value::Float(value) if value.is_finite() => json!(value),
        Value::Float(value) => json!(value.to_string()),
        Value::Text(text) => json!(String::from_utf8_lossy(text)),
    }
}
