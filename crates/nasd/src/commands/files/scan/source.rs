//! What is scanned: a file whose bytes are records, or one of columns.

use super::bounds;
use super::columns::{self, Found};
use super::parquet::Parquet;
use crate::arguments::{RecordFormat, ScanArguments};
use nasd_cell::CellPath;
use nasd_clerk::{FileScan, FileScanError, OpenFile, ScanOptions, Scanned};
use nasd_filter::sql::{self, Query, SqlError};
use nasd_filter::{Checked, Format};
use std::error::Error;
use std::sync::Arc;

/// A file and what its records are.
pub enum Source {
    Records { file: Arc<OpenFile>, found: Found },
    Columns(Parquet),
}

/// How many groups of rows there are, and how many of them were looked at.
#[derive(Clone, Copy)]
pub struct Groups {
    pub all: usize,
    pub looked: usize,
}

impl Source {
    pub fn open(
        path: &CellPath,
        file: OpenFile,
        arguments: &ScanArguments,
    ) -> Result<Source, Box<dyn Error>> {
        let told = &arguments.format;
        let kind = columns::kind_of(path, &file, told)?;
        let file = Arc::new(file);
        if kind != RecordFormat::Parquet {
            let found = columns::format_of(path, &file, kind, told)?;
            return Ok(Source::Records { file, found });
        }
        if told.columns.is_some() || told.delimiter.is_some() || told.no_header {
            return Err("a Parquet file says itself what its columns are: leave --columns, --delimiter and --no-header out".into());
        }
        let parquet = Parquet::open(file).map_err(|error| format!("{path}: {error}"))?;
        Ok(Source::Columns(parquet))
    }

    /// The program of a query, and what the records are.
    pub fn query(&self, text: &str) -> Result<(Query, Format), Box<dyn Error>> {
        match self {
            Source::Records { found, .. } => {
                let query = parse(text, &found.format, |name| {
                    let why = found.why_not(name)?;
                    Some(format!("there is no column {name}: {why}"))
                })?;
                Ok((query, found.format.clone()))
            }
            Source::Columns(parquet) => {
                let format = parquet.format();
                let query = parse(text, &format, |name| {
                    let why = parquet.why_not(name)?;
                    Some(format!("column {name} can't be read: {why}"))
                })?;
                match parquet.unreadable().first().filter(|_| query.is_all) {
                    Some((name, why)) => {
                        Err(format!("column {name} can't be read: {why}: name the others").into())
                    }
                    None => Ok((query, format)),
                }
            }
        }
    }

    /// Scans it, until rows are refused.
    pub fn scan(
        &self,
        checked: &Checked,
        arguments: &ScanArguments,
        take: &mut Take<'_>,
    ) -> Result<(Scanned, Option<Groups>), Box<dyn Error>> {
        let file = match self {
            Source::Records { file, .. } => file,
            Source::Columns(parquet) => {
                let (scanned, groups) = parquet.scan(checked, arguments, take)?;
                return Ok((scanned, Some(groups)));
            }
        };
        let told = |error| match error {
            FileScanError::Filter(error) => bounds::of_result(&error, arguments),
            other => other.to_string(),
        };
        let options = ScanOptions { here: arguments.here };
        let mut taker = Taker::new(take);
        let mut scan = FileScan::start(Arc::clone(file), checked, options).map_err(told)?;
        while scan.next_rows(&mut |rows| taker.take(rows)).map_err(told)? {
            taker.check()?;
        }
        let scanned = scan.finish(&mut |rows| taker.take(rows)).map_err(told)?;
        taker.check()?;
        Ok((scanned, None))
    }
}

/// A query; `why_not` tells of a name why it is no column, if more is known of it.
fn parse(
    text: &str,
    format: &Format,
    why_not: impl Fn(&str) -> Option<String>,
) -> Result<Query, String> {
    sql::parse(text, format).map_err(|error| match &error {
        SqlError::NoSuchColumn(name) => why_not(name).unwrap_or_else(|| error.to_string()),
        error => error.to_string(),
    })
}

/// What is done with rows, which may be refused.
pub type Take<'a> = dyn FnMut(&[u8]) -> Result<(), Box<dyn Error>> + 'a;

/// Who takes rows, none behind those that are refused.
pub struct Taker<'t, 'a> {
    take: &'t mut Take<'a>,
    refused: Result<(), Box<dyn Error>>,
}

impl<'t, 'a> Taker<'t, 'a> {
    pub fn new(take: &'t mut Take<'a>) -> Taker<'t, 'a> {
        Taker { take, refused: Ok(()) }
    }

    pub fn take(&mut self, rows: &[u8]) {
        if self.refused.is_ok() {
            self.refused = (self.take)(rows);
        }
    }

    /// Why rows were refused, if some were.
    pub fn check(&mut self) -> Result<(), Box<dyn Error>> {
        std::mem::replace(&mut self.refused, Ok(()))
    }
}
