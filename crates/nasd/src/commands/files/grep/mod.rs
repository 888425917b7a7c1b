//! `nasd grep`: has the drives search files for lines, and prints what they tell.

mod search;
mod show;

use super::pieces::List;
use crate::arguments::{GrepArguments, MatchingArguments, ShowingArguments};
use crate::commands::Outcome;
use crate::output::{self, note};
use nasd_cell::{Cell, CellError};
use nasd_clerk::{GrepPlan, ScanOptions, Work};
use nasd_grep::{Give, MAX_CONTEXT, Pattern, Wanted};
use search::{Searched, search};
use show::{Show, What};
use std::error::Error;
use std::io::Write;
use std::time::Instant;

/// The exit status where no line is selected; this and the next as those of grep.
const NOT_FOUND: i32 = 1;
/// The exit status where something could not be searched.
const FAILED: i32 = 2;

/// `nasd grep`. Ends the process with the statuses of grep: where nothing is found, and where something is wrong.
///
/// # Errors
/// None that it doesn't tell itself.
pub fn grep(
    open: impl Fn() -> Result<Cell, CellError>,
    arguments: &GrepArguments,
    as_json: bool,
) -> Outcome {
    let status = open().map_err(Into::into).and_then(|cell| run(&cell, arguments, as_json));
    match status {
        Ok(0) => Ok(()),
        Ok(status) => std::process::exit(status),
        Err(error) => {
            note!("nasd: {error}");
            std::process::exit(FAILED);
        }
    }
}

/// Does it: the exit status. Files that can't be searched are told of, and others are searched.
fn run(cell: &Cell, arguments: &GrepArguments, as_json: bool) -> Result<i32, Box<dyn Error>> {
    let (patterns, paths) = operands(arguments)?;
    let show = show(arguments, paths.len(), as_json);
    let plan = plan(&patterns, &arguments.matching, &arguments.showing, show.what)?;
    let options = ScanOptions { here: arguments.here };
    let begun = Instant::now();
    let mut printed = Printed::new(show);
    search(cell, paths, arguments.recursive, &plan, options, show, &mut |searched| {
        printed.take(searched);
        !(printed.has_found && show.what == What::Nothing)
    })?;
    if arguments.stats {
        let Work { drive_bytes, told_bytes, read_bytes } = printed.work;
        let seconds = begun.elapsed().as_secs_f64();
        note!(
            "drives looked at {drive_bytes} bytes and told {told_bytes}, {read_bytes} were read; in {seconds:.4} s"
        );
    }
    if as_json {
        printed.end_document();
    }
    Ok(match (printed.has_failed, printed.has_found) {
        (false, true) => 0,
        (true, true) if show.what == What::Nothing => 0,
        (true, _) => FAILED,
        (false, false) => NOT_FOUND,
    })
}

/// Patterns, and paths.
fn operands(arguments: &GrepArguments) -> Result<(Vec<String>, &[String]), String> {
    let (patterns, paths) = match arguments.operands.split_first() {
        Some((pattern, paths)) if arguments.patterns.is_empty() => {
            (std::slice::from_ref(pattern), paths)
        }
        _ => (&arguments.patterns[..], &arguments.operands[..]),
    };
    if paths.is_empty() {
        return Err("nothing is to be searched: write VOLUME:/path behind the pattern".into());
    }
    Ok((patterns.iter().flat_map(|text| text.split('\n')).map(str::to_owned).collect(), paths))
}

fn show(arguments: &GrepArguments, paths: usize, as_json: bool) -> Show {
    let showing = arguments.showing;
    let what = match showing {
        _ if showing.quiet => What::Nothing,
        _ if showing.count => What::Counts,
        _ if showing.files_with_matches => What::Names,
        _ if showing.files_without_match => What::OtherNames,
        _ => What::Lines,
    };
    let has_several = paths > 1 || arguments.recursive;
    Show {
        what,
        as_json,
        names: (has_several || showing.with_filename) && !showing.no_filename,
        numbers: showing.line_number,
        has_context: what == What::Lines && context(&showing) != (0, 0) && !showing.only_matching,
        is_text: showing.text,
    }
}

/// Lines before and after.
fn context(showing: &ShowingArguments) -> (u32, u32) {
    let both = showing.context.unwrap_or(0);
    (showing.before_context.unwrap_or(both), showing.after_context.unwrap_or(both))
}

fn plan(
    patterns: &[String],
    matching: &MatchingArguments,
    showing: &ShowingArguments,
    what: What,
) -> Result<GrepPlan, Box<dyn Error>> {
    let pattern = Pattern {
        texts: patterns.to_vec(),
        is_fixed: matching.fixed_strings,
        ignores_case: matching.ignore_case,
        is_word: matching.word_regexp,
        is_whole_line: matching.line_regexp,
    };
    let (before, after) = context(showing);
    if before.max(after) > MAX_CONTEXT {
        return Err(format!("at most {MAX_CONTEXT} lines of context can be given").into());
    }
    let (give, most) = match what {
        What::Lines if showing.only_matching => (Give::Matches, matching.max_count),
        What::Lines => (Give::Lines, matching.max_count),
        What::Counts => (Give::Count, matching.max_count),
        // One is enough.
        What::Names | What::OtherNames | What::Nothing => (Give::Count, Some(1)),
    };
    let most = if matching.max_count == Some(0) { Some(0) } else { most };
    let is_inverted = matching.invert_match;
    let numbers = showing.line_number;
    let wanted = Wanted { give, is_inverted, before, after, numbers, most };
    GrepPlan::new(pattern, wanted).map_err(|error| format!("the pattern: {error}").into())
}

/// What was printed.
struct Printed {
    show: Show,
    work: Work,
    /// The files, for scripts.
    files: List,
    has_found: bool,
    has_failed: bool,
    /// Whether lines of a file are there, and those of another are to be told from them.
    has_lines: bool,
    /// Whether what is printed is of the file of which was printed last.
    is_same: bool,
}

impl Printed {
    fn new(show: Show) -> Printed {
        Printed {
            show,
            work: Work::default(),
            files: List::new(0),
            has_found: false,
            has_failed: false,
            has_lines: false,
            is_same: false,
        }
    }

    fn take(&mut self, searched: Searched) {
        match searched {
            Searched::Some(text) => {
                let mut before = Vec::new();
                if !self.is_same && self.show.as_json {
                    self.files.begin_item(&mut before);
                } else if !self.is_same && self.show.has_context && self.has_lines {
                    before.extend_from_slice(b"--\n");
                }
                print(&before);
                print(&text);
                (self.has_lines, self.is_same) = (true, true);
            }
            Searched::Done { work, is_found } => {
                self.work.drive_bytes += work.drive_bytes;
                self.work.told_bytes += work.told_bytes;
                self.work.read_bytes += work.read_bytes;
                self.has_found |= is_found;
                self.is_same = false;
            }
            Searched::Failed(text) => {
                note!("nasd: {text}");
                self.has_failed = true;
                self.is_same = false;
            }
        }
    }

    /// Prints the end of the list of files.
    fn end_document(&self) {
        let mut end = Vec::new();
        self.files.end(&mut end);
        end.push(b'\n');
        print(&end);
    }
}

/// Prints to the standard output, if somebody takes it.
fn print(text: &[u8]) {
    output::stop_if_gone_with(std::io::stdout().write_all(text), FAILED);
}
