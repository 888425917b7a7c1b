//! `nasd scan`: has the drives select from a structured file, or sum it up, and prints what they tell.

mod columns;
#[cfg_attr(not(feature = "parquet"), path = "no_parquet.rs")]
mod parquet;
mod show;
mod source;

use super::{Session, at, parse};
use crate::arguments::ScanArguments;
use crate::commands::Outcome;
use crate::output;
use nasd_cell::Cell;
use nasd_clerk::{OpenMode, ScanOptions, Scanned};
use nasd_filter::sql::Query;
use nasd_filter::{Checked, Format, Options, Plan, Program};
use serde_json::{Value, json};
use show::Shown;
use source::{Groups, Source};
use std::error::Error;
use std::io::Write;
use std::time::Instant;

/// `nasd scan`.
///
/// # Errors
/// A path that is no file, a query or a format without a meaning, or records that can't be evaluated.
pub fn scan(cell: &Cell, arguments: &ScanArguments, as_json: bool) -> Outcome {
    let path = parse(&arguments.path)?;
    let session = Session::open(cell, &path)?;
    let entry = session.resolve(&path)?;
    let opened = session.clerk.open_known(&session.caller, &entry, OpenMode::READ);
    let (file, _) = opened.map_err(|error| at(&path, error))?;
    let source = Source::open(&path, file, arguments)?;
    let (query, format) = source.query(&arguments.query)?;
    let checked = plan(arguments, format, &query)?;
    let options = ScanOptions { here: arguments.here };
    let begun = Instant::now();
    let shown = Shown { checked: &checked, query: &query };
    let mut kept = Vec::new();
    let mut out = std::io::stdout().lock();
    if !as_json {
        output::stop_if_gone(out.write_all(&shown.header()));
    }
    let mut give = |rows: &[u8]| match as_json {
        true => kept.extend_from_slice(rows),
        false => output::stop_if_gone(out.write_all(rows)),
    };
    let scanned = source.scan(&checked, options, &mut give);
    let (mut scanned, groups) = scanned.map_err(|error| format!("{path}: {error}"))?;
    query.arrangement.arrange(&mut scanned.merged);
    let seconds = begun.elapsed().as_secs_f64();
    tell(arguments, &scanned, groups, seconds);
    if as_json {
        let rows = shown.facts(&kept, &scanned.merged)?;
        return output::json(&json!({ "rows": rows, "work": work(&scanned, groups, seconds) }));
    }
    output::stop_if_gone(out.write_all(&shown.merged(&scanned.merged)).and_then(|()| out.flush()));
    Ok(())
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
    Ok(Plan { format, program, options }.check()?)
}

/// What people should know, on the standard error.
fn tell(arguments: &ScanArguments, scanned: &Scanned, groups: Option<Groups>, seconds: f64) {
    let counts = scanned.counts;
    if counts.bad > 0 {
        let why = match groups {
            Some(_) => "values that are needed of them are beyond what can be told, or too long",
            None => {
                "they are not of the form that was said, or guessed from the first lines: see --columns"
            }
        };
        eprintln!("nasd: records passed over: {}; {why}", counts.bad);
    }
    if arguments.stats {
        let work = scanned.work;
        if let Some(Groups { all, looked }) = groups {
            eprintln!("{looked} of {all} groups of rows were looked at");
        }
        eprintln!(
            "{} records, {} selected; drives looked at {} bytes and told {}, {} were read; in {seconds:.4} s",
            counts.records, counts.selected, work.drive_bytes, work.told_bytes, work.read_bytes
        );
    }
}

fn work(scanned: &Scanned, groups: Option<Groups>, seconds: f64) -> Value {
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
