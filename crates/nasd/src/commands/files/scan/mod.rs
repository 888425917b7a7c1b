//! `nasd scan`: has the drives select from a structured file, or sum it up, and prints what they tell.

mod bounds;
mod columns;
mod document;
mod files;
mod members;
mod operands;
#[cfg_attr(not(feature = "parquet"), path = "no_parquet.rs")]
mod parquet;
mod show;
mod source;

use crate::arguments::ScanArguments;
use crate::commands::Outcome;
use crate::output::{self, note};
use document::Document;
use nasd_cell::Cell;
use nasd_clerk::Scanned;
use nasd_filter::sql::Query;
use nasd_filter::{Checked, Format, Options, Plan, Program};
use serde_json::{Value, json};
use show::Shown;
use source::{Groups, Source, Take};
use std::error::Error;
use std::io::Write;
use std::time::Instant;

/// `nasd scan`.
///
/// # Errors
/// Paths that are no files, a query or a format without a meaning, or records that can't be evaluated.
pub fn scan(cell: &Cell, arguments: &ScanArguments, as_json: bool) -> Outcome {
    let (paths, query) = operands::operands(arguments)?;
    let source = Source::open(files::find(cell, paths, arguments.recursive)?, arguments)?;
    let (query, format) = source.query(&query)?;
    let checked = plan(arguments, format, &query)?;
    let shown = Shown { checked: &checked, query: &query };
    let asked = Asked { source: &source, shown, arguments };
    match as_json {
        true => asked.print_document(),
        false => asked.print_lines(),
    }
}

/// What is to be scanned, and for what.
struct Asked<'a> {
    source: &'a Source<'a>,
    shown: Shown<'a>,
    arguments: &'a ScanArguments,
}

/// What a scan has come to, besides rows.
struct Ended {
    scanned: Scanned,
    groups: Option<Groups>,
    seconds: f64,
}

impl Asked<'_> {
    fn print_lines(&self) -> Outcome {
        let mut out = std::io::stdout().lock();
        output::stop_if_gone(out.write_all(&self.shown.header()));
        let ended = self.scan(&mut |rows| {
            output::stop_if_gone(out.write_all(rows));
            Ok(())
        })?;
        let merged = self.shown.merged(&ended.scanned.merged);
        output::stop_if_gone(out.write_all(&merged).and_then(|()| out.flush()));
        Ok(())
    }

    fn print_document(&self) -> Outcome {
        let mut document = Document::new(self.shown, std::io::stdout().lock())?;
        let ended = self.scan(&mut |rows| document.add_lines(rows))?;
        document.add_merged(&ended.scanned.merged)?;
        document.end(&work(&ended))?;
        Ok(())
    }

    /// Scans it, and tells people what they should know besides.
    fn scan(&self, take: &mut Take<'_>) -> Result<Ended, Box<dyn Error>> {
        let Asked { source, shown, arguments } = self;
        let begun = Instant::now();
        let (mut scanned, groups) = source.scan(shown.checked, take)?;
        shown.query.arrangement.arrange(&mut scanned.merged);
        let ended = Ended { scanned, groups, seconds: begun.elapsed().as_secs_f64() };
        tell(arguments, &ended, source);
        Ok(ended)
    }
}

fn plan(
    arguments: &ScanArguments,
    format: Format,
    query: &Query,
) -> Result<Checked, Box<dyn Error>> {
    let bytes = |option: &str, bytes: u64| {
        u32::try_from(bytes).map_err(|_| format!("--{option}: at most 1 GiB"))
    };
    let mut longest = bytes("longest-record", arguments.longest_record)?;
    if let Format::Fixed(fixed) = &format {
        longest = longest.max(u32::try_from(fixed.record_bytes()).unwrap_or(u32::MAX));
    }
    let options = Options {
        longest_record: longest,
        strict: arguments.strict,
        groups: arguments.groups,
        state_bytes: bytes("memory", arguments.memory)?,
    };
    let program: Program = query.program.clone();
    Ok(Plan { format, program, options }.check().map_err(|error| bounds::of_plan(&error))?)
}

/// What people should know, on the standard error.
fn tell(arguments: &ScanArguments, ended: &Ended, source: &Source<'_>) {
    let Ended { scanned, groups, seconds } = ended;
    let counts = scanned.counts;
    if counts.bad > 0 {
        let why = match groups {
            Some(_) => "values that are needed of them are beyond what can be told, or too long",
            None => {
                "they are not of the form that was said, or guessed from the first lines: see --columns"
            }
        };
        let first = scanned.first_bad.and_then(|index| source.path_of_several(index));
        let first = first.map_or(String::new(), |path| format!(", the first in {path}"));
        note!("nasd: records passed over: {}{first}; {why}", counts.bad);
    }
    if arguments.stats {
        let work = scanned.work;
        if let Some(Groups { all, looked }) = groups {
            note!("{looked} of {all} groups of rows were looked at");
        }
        note!(
            "{} records, {} selected; drives looked at {} bytes and told {}, {} were read; in {seconds:.4} s",
            counts.records,
            counts.selected,
            work.drive_bytes,
            work.told_bytes,
            work.read_bytes
        );
    }
}

fn work(ended: &Ended) -> Value {
    let Ended { scanned, groups, seconds } = ended;
    let (counts, work) = (scanned.counts, scanned.work);
    let mut told = json!({
        "records": counts.records,
        "selected": counts.selected,
        "bad": counts.bad,
        "drive_bytes": work.drive_bytes,
        "told_bytes": work.told_bytes,
        "read_bytes": work.read_bytes,
        "seconds": seconds,
    });
    if let Some(Groups { all, looked }) = groups {
        told["row_groups"] = json!({ "all": all, "looked_at": looked });
    }
    told
}
