//! What is scanned: files whose bytes are records, or files of columns.

use super::bounds;
use super::columns::{self, Beginnings, Found};
use super::files::Named;
use super::parquet::Parquet;
use crate::arguments::{RecordFormat, ScanArguments};
use nasd_clerk::{FileScan, FileScanError, OpenFile, ScanOptions, Scanned};
use nasd_filter::sql::{self, Query, SqlError};
use nasd_filter::{Checked, Columns, Delimited, Format, JsonLines};
use std::error::Error;
use std::sync::Arc;

/// Files whose records are looked at before their turn comes, so that the drives of several are at work.
const AHEAD: usize = 4;

/// Columns that are named where there is none of some name.
const MOST_NAMES: usize = 20;

/// Some files, at least one, and what the records of all are.
pub struct Source<'a> {
    arguments: &'a ScanArguments,
    files: Vec<Named>,
    /// The first ones, as far as they were opened to find out what all are.
    opened: Vec<Arc<OpenFile>>,
    kind: RecordFormat,
    found: What,
}

enum What {
    Records(Found),
    /// The first file, which tells of its columns.
    Columns(Parquet),
}

/// How many groups of rows there are, and how many of them were looked at.
#[derive(Clone, Copy, Default)]
pub struct Groups {
    pub all: usize,
    pub looked: usize,
}

impl<'a> Source<'a> {
    /// # Errors
    /// What can't be opened, and of which nobody knows what its records are.
    pub fn open(
        files: Vec<Named>,
        arguments: &'a ScanArguments,
    ) -> Result<Source<'a>, Box<dyn Error>> {
        let first = files[0].open()?;
        let mut beginnings = Beginnings::new(&files, Arc::clone(&first), &arguments.format)?;
        let kind = beginnings.kind;
        let found = match kind {
            RecordFormat::Parquet => What::Columns(parquet(&files[0], first, arguments)?),
            _ => What::Records(columns::format_of(&mut beginnings, &arguments.format)?),
        };
        let opened = beginnings.into_opened();
        Ok(Source { arguments, files, opened, kind, found })
    }

    /// The path of one of several files.
    pub fn path_of_several(&self, index: usize) -> Option<&str> {
        let named = self.files.get(index).filter(|_| self.files.len() > 1);
        named.map(|named| named.path.as_str())
    }

    /// The program of a query, and what the records are.
    pub fn query(&self, text: &str) -> Result<(Query, Format), Box<dyn Error>> {
        match &self.found {
            What::Records(found) => {
                let query = parse(text, &found.format, |name| {
                    let why = found.why_not(name)?;
                    Some(format!("there is no column {name}: {why}"))
                })?;
                Ok((query, found.format.clone()))
            }
            What::Columns(parquet) => {
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

    /// Scans all, until rows are refused.
    pub fn scan(
        &self,
        checked: &Checked,
        take: &mut Take<'_>,
    ) -> Result<(Scanned, Option<Groups>), Box<dyn Error>> {
        match &self.found {
            What::Records(found) => Ok((self.scan_records(found, checked, take)?, None)),
            What::Columns(first) => {
                let mut others = self.files.iter().skip(1);
                let mut next = || {
                    let Some(named) = others.next() else { return Ok(None) };
                    let file = named.open()?;
                    columns::check_kind(self.kind, named, &file, &self.arguments.format)?;
                    let other = parquet(named, file, self.arguments)?;
                    match other.format() == first.format() {
                        true => Ok(Some((named, other))),
                        false => Err(named.failed(&columns::OTHER_COLUMNS)),
                    }
                };
                let of_first = (&self.files[0], first);
                let scanned = Parquet::scan(of_first, &mut next, checked, self.arguments, take)?;
                Ok((scanned.0, Some(scanned.1)))
            }
        }
    }

    fn scan_records(
        &self,
        found: &Found,
        checked: &Checked,
        take: &mut Take<'_>,
    ) -> Result<Scanned, Box<dyn Error>> {
        let told = |error| match error {
            FileScanError::Filter(error) => bounds::of_result(&error, self.arguments),
            other => other.to_string(),
        };
        let mut scan = FileScan::of_none(checked, ScanOptions { here: self.arguments.here });
        let (mut taker, mut next, mut failed) = (Taker::new(take), 0, None);
        loop {
            while scan.under_way() < AHEAD
                && !scan.is_over()
                && failed.is_none()
                && next < self.files.len()
            {
                let added = self.records_of(next, found).and_then(|file| {
                    scan.add(file).map_err(|error| self.files[next].failed(&told(error)))
                });
                // What is wrong with a file ahead is told when it is its turn, if that comes.
                failed = added.err();
                next += 1;
            }
            if scan.under_way() == 0
                && let Some(error) = failed.take()
            {
                return Err(error);
            }
            let named = &self.files[scan.passed().min(self.files.len() - 1)];
            let more = scan.next_rows(&mut |rows| taker.take(rows));
            let more = more.map_err(|error| named.failed(&told(error)))?;
            taker.check()?;
            let are_all = next == self.files.len() && failed.is_none();
            if !more && (scan.is_over() || are_all) {
                break;
            }
        }
        let scanned = scan.finish(&mut |rows| taker.take(rows)).map_err(told)?;
        taker.check()?;
        Ok(scanned)
    }

    /// A file that has the same records as the others.
    fn records_of(&self, index: usize, found: &Found) -> Result<Arc<OpenFile>, Box<dyn Error>> {
        if let Some(file) = self.opened.get(index) {
            return Ok(Arc::clone(file));
        }
        let named = &self.files[index];
        let file = named.open()?;
        columns::check_kind(self.kind, named, &file, &self.arguments.format)?;
        found.check_other(named, &file)?;
        Ok(file)
    }
}

fn parquet(
    named: &Named,
    file: Arc<OpenFile>,
    arguments: &ScanArguments,
) -> Result<Parquet, Box<dyn Error>> {
    let told = &arguments.format;
    if told.columns.is_some() || told.delimiter.is_some() || told.no_header {
        return Err("a Parquet file says itself what its columns are: leave --columns, --delimiter and --no-header out".into());
    }
    Parquet::open(file).map_err(|error| named.failed(&error))
}

/// A query; `why_not` tells of a name why it is no column, if more is known of it.
fn parse(
    text: &str,
    format: &Format,
    why_not: impl Fn(&str) -> Option<String>,
) -> Result<Query, String> {
    sql::parse(text, format).map_err(|error| match &error {
        SqlError::NoSuchColumn(name) => {
            why_not(name).unwrap_or_else(|| format!("{error}: there are {}", names(format)))
        }
        error => error.to_string(),
    })
}

/// The columns that there are, the first ones if they are many.
fn names(format: &Format) -> String {
    let names: Vec<&str> = match format {
        Format::Fixed(fixed) => fixed.fields.iter().map(|field| field.name.as_str()).collect(),
        Format::Delimited(Delimited { columns, .. })
        | Format::JsonLines(JsonLines { columns })
        | Format::Columns(Columns { columns }) => {
            columns.iter().map(|column| column.name.as_str()).collect()
        }
    };
    let more = if names.len() > MOST_NAMES { " and others" } else { "" };
    format!("{}{more}", names[..names.len().min(MOST_NAMES)].join(", "))
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
