//! `nasd cache`: what clients keep on this machine's disk, shown and emptied. Nothing is asked of the cell.

use super::Outcome;
use super::agree::agree;
use super::status::size;
use crate::arguments::{CacheArguments, CacheCommand};
use crate::output::{self, note, say};
use nasd_cache::{Emptied, Inspection};
use nasd_cell::Cell;
use serde_json::{Value, json};
use std::error::Error;
use std::path::{Path, PathBuf};

/// Runs a cache command; of one cell's caches, if one is named.
///
/// # Errors
/// The command's own.
pub fn run(cell: Option<&Path>, arguments: CacheArguments, as_json: bool) -> Outcome {
    let show = CacheCommand::Show { directory: arguments.directory };
    match arguments.command.unwrap_or(show) {
        CacheCommand::Show { directory } => show_all(&chosen(cell, directory)?, as_json),
        CacheCommand::Empty { yes, directory } => empty(&chosen(cell, directory)?, yes, as_json),
    }
}

/// The one that was named, or all that are meant.
fn chosen(cell: Option<&Path>, named: Option<PathBuf>) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    if let Some(directory) = named {
        return Ok(vec![directory]);
    }
    let root = nasd_cache::default_root();
    let mut found = nasd_cache::find(&root)?;
    if let Some(cell) = cell {
        let cell = Cell::open(cell)?;
        found.retain(|directory| {
            directory.starts_with(root.join(cell.config.cell_id().to_string()))
        });
    }
    Ok(found)
}

fn show_all(directories: &[PathBuf], as_json: bool) -> Outcome {
    // One that is damaged keeps nobody from seeing the others.
    let (mut found, mut failed) = (Vec::<Inspection>::new(), Vec::new());
    for directory in directories {
        match nasd_cache::inspect(directory) {
            Ok(cache) => found.push(cache),
            Err(error) => failed.push(error.to_string()),
        }
    }
    let outcome = if failed.is_empty() { Ok(()) } else { Err(failed.join("; ").into()) };
    if as_json {
        let caches: Vec<Value> = found.iter().map(facts).collect();
        output::json(&json!({ "caches": caches }))?;
        return outcome;
    }
    if found.is_empty() && outcome.is_ok() {
        note!("nasd: there is no cache in {}", nasd_cache::default_root().display());
    }
    for cache in &found {
        say!("{}", cache.directory.display());
        say!("  {}", cache.identity);
        let in_use = match (cache.in_use, cache.process) {
            (false, _) => "not in use".to_owned(),
            (true, None) => "in use".to_owned(),
            (true, Some(process)) => format!("in use by process {process}"),
        };
        say!("  {}, {}, {in_use}", files(cache.files), size(cache.bytes));
    }
    outcome
}

fn files(count: u64) -> String {
    if count == 1 { "1 file".to_owned() } else { format!("{count} files") }
}

fn facts(cache: &Inspection) -> Value {
    json!({
        "directory": cache.directory.display().to_string(),
        "cell": cache.identity.cell.to_string(),
        "volume": cache.identity.volume,
        "files": cache.files,
        "bytes": cache.bytes,
        "in_use": cache.in_use,
        "process": cache.process,
    })
}

fn empty(directories: &[PathBuf], yes: bool, as_json: bool) -> Outcome {
    let mut plan = Vec::new();
    let (mut known, mut failed) = (Vec::new(), Vec::new());
    for directory in directories {
        // One that is damaged keeps nobody from emptying the others.
        let found = match nasd_cache::inspect(directory) {
            Ok(found) => found,
            Err(error) => {
                failed.push(error.to_string());
                continue;
            }
        };
        known.push(directory);
        plan.push(format!(
            "{} of {} ({})",
            files(found.files),
            directory.display(),
            size(found.bytes)
        ));
    }
    if !plan.is_empty() {
        agree(&format!("{} would be removed from this machine", plan.join(", ")), yes)?;
    }
    let mut emptied: Vec<(&PathBuf, Emptied)> = Vec::new();
    for directory in known {
        // One that is in use keeps nobody from emptying the others.
        match nasd_cache::empty(directory) {
            Ok(what) => emptied.push((directory, what)),
            Err(error) => failed.push(error.to_string()),
        }
    }
    if as_json {
        let caches = emptied.iter().map(|(directory, what)| {
            json!({
                "directory": directory.display().to_string(),
                "files": what.files,
                "bytes": what.bytes,
            })
        });
        output::json(&json!({ "emptied": caches.collect::<Vec<_>>() }))?;
    } else {
        for (directory, what) in &emptied {
            let place = directory.display();
            say!("removed {} ({}) from {place}", files(what.files), size(what.bytes));
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ").into()) }
}
