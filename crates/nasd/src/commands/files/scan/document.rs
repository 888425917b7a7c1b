//! The result of a scan for scripts: `{"rows": [...], "work": {...}}`, written as the rows come.

use super::super::pieces::{List, begin_line, put};
use super::show::Shown;
use crate::output;
use nasd_filter::{Format, Merged, Program, Value, first_rows};
use serde::{Serialize, Serializer};
use serde_json::json;
use std::collections::BTreeSet;
use std::error::Error;
use std::io::Write;

/// Bytes that are written at a time.
const SOME: usize = 64 << 10;

/// See the module.
pub struct Document<'a, W> {
    shown: Shown<'a>,
    out: W,
    rows: List,
    /// What is not yet written.
    text: Vec<u8>,
}

impl<'a, W: Write> Document<'a, W> {
    /// One of which nothing is written before there is a row.
    ///
    /// # Errors
    /// Rows that JSON can't tell, whatever they are.
    pub fn new(shown: Shown<'a>, out: W) -> Result<Document<'a, W>, String> {
        let plan = shown.checked.plan();
        let is_groups = matches!(plan.program, Program::Aggregate(_));
        if matches!(plan.format, Format::Fixed(_)) && !is_groups {
            return Err("rows of fixed records are bytes, not text: leave --json out".to_owned());
        }
        // Other rows are lines, without names.
        if is_groups {
            let mut names = BTreeSet::new();
            let columns = &shown.query.columns;
            if let Some(column) = columns.iter().find(|column| !names.insert(&column.name)) {
                return Err(format!(
                    "two columns of the result have the name {}, and would be one in JSON: give them different names with AS",
                    column.name
                ));
            }
        }
        Ok(Document { shown, out, rows: List::new(1), text: Vec::new() })
    }

    /// Adds rows that are lines, each as a text.
    ///
    /// # Errors
    /// Rows that are no text.
    pub fn add_lines(&mut self, rows: &[u8]) -> Result<(), Box<dyn Error>> {
        let mut rest = text_of(rows)?;
        while !rest.is_empty() {
            // A row may have line ends in quotes.
            let length = first_rows(self.shown.checked, rest.as_bytes(), 1).len();
            let (row, others) = rest.split_at(length);
            self.add(&row.strip_suffix('\n').unwrap_or(row))?;
            rest = others;
        }
        Ok(())
    }

    /// Adds what there is when all was looked at.
    ///
    /// # Errors
    /// Rows that are no text.
    pub fn add_merged(&mut self, merged: &Merged) -> Result<(), Box<dyn Error>> {
        match merged {
            Merged::Select => {}
            Merged::Aggregate(groups) => {
                // Before any is written.
                for value in groups.iter().flat_map(|row| self.shown.values(row)) {
                    if let Value::Text(text) = value {
                        text_of(text)?;
                    }
                }
                for row in groups {
                    self.add(&Group { shown: self.shown, row })?;
                }
            }
            Merged::Top(rows) => {
                self.add_lines(&rows.iter().flat_map(|top| top.row.clone()).collect::<Vec<u8>>())?;
            }
        }
        Ok(())
    }

    fn add(&mut self, row: &impl Serialize) -> serde_json::Result<()> {
        self.begin();
        self.rows.item(&mut self.text, row)?;
        if self.text.len() >= SOME {
            self.write();
        }
        Ok(())
    }

    /// Writes what stands before the rows, where there were none.
    fn begin(&mut self) {
        if self.rows.is_empty() {
            self.text.extend_from_slice(b"{\n  \"rows\": ");
        }
    }

    fn write(&mut self) {
        output::stop_if_gone(self.out.write_all(&self.text));
        self.text.clear();
    }

    /// Writes the rest of a result that is whole.
    ///
    /// # Errors
    /// None.
    pub fn end(mut self, work: &serde_json::Value) -> serde_json::Result<()> {
        self.begin();
        self.rows.end(&mut self.text);
        self.text.push(b',');
        begin_line(&mut self.text, 1);
        self.text.extend_from_slice(b"\"work\": ");
        put(&mut self.text, work, 1)?;
        self.text.extend_from_slice(b"\n}\n");
        self.write();
        output::stop_if_gone(self.out.flush());
        Ok(())
    }
}

/// Bytes of other encodings would be told apart no more, if they were told at all.
fn text_of(bytes: &[u8]) -> Result<&str, String> {
    str::from_utf8(bytes).map_err(|_| "the rows are not UTF-8: leave --json out".to_owned())
}

/// A row of groups: an object with the columns of the result in their order.
struct Group<'a> {
    shown: Shown<'a>,
    row: &'a [Value],
}

impl Serialize for Group<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let names = self.shown.query.columns.iter().map(|column| &column.name);
        serializer.collect_map(names.zip(self.shown.values(self.row).map(fact)))
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
