//! `nasd extend`: has an extension of the drives that have files' bytes do something with them (CMU-CS-97-118
//! section 3.4), and prints what each of them told.

use super::{CellPath, Session, at, parse};
use crate::arguments::{ExtendOptions, FileRanges};
use crate::commands::Outcome;
use crate::output::{self, say};
use nasd_cell::Cell;
use nasd_clerk::{
    Clerk, ClerkError, ExtendedPart, ExtensionCall, ExtensionOutcome, OpenFile, OpenMode, new_job,
};
use nasd_types::{ByteRange, DriveId, Rights};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;

/// Most bytes that a drive tells at a time.
const MOST: usize = 1 << 20;

/// By the volume; of one that can't be reached, why.
type Sessions = BTreeMap<String, Result<Session, String>>;

/// A file, and what of it is meant.
struct Target {
    path: CellPath,
    file: OpenFile,
    range: ByteRange,
}

/// One that is there, or why it can't be asked about.
type Opened = Result<Target, String>;

/// `nasd extend`. What is told of some files is printed, also where others fail.
///
/// # Errors
/// A path that is no file, an extension that the drives lack, or what it says against the arguments or the data.
pub fn extend(
    cell: &Cell,
    paths: &[String],
    options: &ExtendOptions,
    ranges: &FileRanges,
    as_json: bool,
) -> Outcome {
    let (sessions, opened) = open(cell, paths, options.rights(), ranges)?;
    let targets: Vec<&Target> = opened.iter().flatten().collect();
    let failed = || opened.iter().filter_map(|opened| opened.as_ref().err().cloned());
    if targets.is_empty() && !opened.is_empty() {
        return Err(lines(failed()).into());
    }
    let extension = find_extension(&sessions, &targets, options);
    let extension =
        extension.map_err(|error| lines(failed().chain(std::iter::once(error.to_string()))))?;
    let call = ExtensionCall {
        extension,
        rights: options.rights(),
        most: MOST,
        arguments: options.arguments.0.clone(),
        job: new_job(),
        bytes_left: targets.iter().map(|target| target.range.length).sum(),
        spare: std::sync::Arc::default(),
    };
    let asked: Vec<_> = targets.iter().map(|target| (&target.file, target.range)).collect();
    let mut answers = Clerk::extend(&asked, &call).into_iter();
    let (mut told, mut failures) = (Vec::new(), Vec::new());
    // In the order of the paths, with those that could not be opened and were not asked about.
    for opened in &opened {
        let parts = opened.as_ref().map_err(String::clone).and_then(|target| {
            let answer = answers.next().ok_or_else(|| format!("{}: no answer", target.path))?;
            Ok((&target.path, done(target, answer, call.extension.0)?))
        });
        match parts {
            Ok((path, parts)) => told.extend(parts.into_iter().map(|part| (path, part))),
            Err(failure) => failures.push(failure),
        }
    }
    if failures.is_empty() || !told.is_empty() {
        show(&told, paths.len() > 1, as_json)?;
    }
    if failures.is_empty() { Ok(()) } else { Err(lines(failures.into_iter()).into()) }
}

/// Failures, one a line: what is the same for many files, as their volume can't be reached, once.
fn lines(failures: impl Iterator<Item = String>) -> String {
    let mut told: Vec<String> = Vec::new();
    for failure in failures {
        if !told.contains(&failure) {
            told.push(failure);
        }
    }
    told.join("\n")
}

/// Opens all files that can be; the sessions with their volumes too.
///
/// # Errors
/// What makes no sense, whatever files there are.
fn open(
    cell: &Cell,
    paths: &[String],
    rights: Rights,
    ranges: &FileRanges,
) -> Result<(Sessions, Vec<Opened>), Box<dyn Error>> {
    let ranges = ranges.of(paths.len())?;
    let parsed: Vec<CellPath> = paths.iter().map(|text| parse(text)).collect::<Result<_, _>>()?;
    let mut sessions = Sessions::new();
    let opened = parsed.into_iter().zip(ranges).map(|(path, range)| {
        // A volume that is away is waited for once, however many of the files are there.
        let session = sessions
            .entry(path.volume().to_owned())
            .or_insert_with(|| Session::open(cell, &path).map_err(|error| error.to_string()));
        let session = session.as_ref().map_err(String::clone)?;
        open_one(session, path, rights, range).map_err(|error| error.to_string())
    });
    let opened = opened.collect();
    Ok((sessions, opened))
}

fn open_one(
    session: &Session,
    path: CellPath,
    rights: Rights,
    (offset, length): (u64, Option<u64>),
) -> Result<Target, Box<dyn Error>> {
    let entry = session.resolve(&path)?;
    let mode = OpenMode { read: true, write: rights.contains(Rights::WRITE) };
    let opened = session.clerk.open_known(&session.caller, &entry, mode);
    let (file, _) = opened.map_err(|error| at(&path, error))?;
    let rest = file.size().saturating_sub(offset);
    let range = ByteRange::new(offset, length.map_or(rest, |length| length.min(rest)));
    Ok(Target { path, file, range })
}

/// The extension that is meant: by its number and revision, or as the drives of all files list it.
fn find_extension(
    sessions: &Sessions,
    targets: &[&Target],
    options: &ExtendOptions,
) -> Result<(u32, u32), Box<dyn Error>> {
    if let Some(numbers) = options.numbers() {
        return Ok(numbers);
    }
    let mut found = BTreeSet::new();
    for (volume, session) in sessions {
        let Ok(session) = session else { continue };
        let of_volume = targets.iter().filter(|target| target.path.volume() == volume);
        let drives: BTreeSet<DriveId> =
            of_volume.map(|target| target.file.handle().drive).collect();
        let status = session.clerk.status(&session.caller);
        let status = status.map_err(|error| format!("can't ask what drives can do: {error}"))?;
        for drive in drives {
            let told = status.drives.iter().find(|told| told.drive == drive);
            let control = told.and_then(|told| told.control.as_ref());
            let control = control.ok_or_else(|| {
                format!(
                    "drive {drive} does not tell what it can do: write the extension's number, and add --revision"
                )
            })?;
            found.insert(options.among(&control.extensions, &drive)?);
        }
    }
    let mut found = found.into_iter();
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(one),
        _ => Err("the files' drives have other extensions of that name: write its number, and add --revision".into()),
    }
}

/// All that drives told of a file, or why that is not all.
fn done(
    target: &Target,
    answer: Result<Vec<ExtendedPart>, ClerkError>,
    number: u32,
) -> Result<Vec<ExtendedPart>, String> {
    let path = &target.path;
    let parts = answer.map_err(|error| at(path, error).to_string())?;
    let Some(bad) = parts.iter().find(|part| part.outcome != ExtensionOutcome::Done) else {
        return Ok(parts);
    };
    let text = String::from_utf8_lossy(&bad.data);
    let place = match bad.outcome {
        ExtensionOutcome::Failed => format!("at byte {}: ", bad.position),
        _ => String::new(),
    };
    Err(format!("{path}: extension {number} of drive {}: {place}{text}", bad.drive))
}

/// Prints what was told; with `names`, of which file.
fn show(told: &[(&CellPath, ExtendedPart)], names: bool, as_json: bool) -> Outcome {
    if as_json {
        let parts: Vec<Value> = told.iter().map(|(path, part)| facts(path, part)).collect();
        return output::json(&json!({ "parts": parts }));
    }
    for (path, part) in told {
        let pieces: Vec<String> =
            looked_at(part).map(|piece| format!("{}+{}", piece.offset, piece.length)).collect();
        let name = if names { format!("{path}  ") } else { String::new() };
        say!("{name}drive {}  {}  {}", part.drive, pieces.join(","), hex(&part.data));
    }
    Ok(())
}

/// The pieces that a part is about: those before its position.
fn looked_at(part: &ExtendedPart) -> impl Iterator<Item = ByteRange> {
    let before = ByteRange::new(0, part.position);
    let pieces = part.pieces.iter().map(move |piece| piece.intersection(&before));
    pieces.filter(|piece| !piece.is_empty())
}

fn facts(path: &CellPath, part: &ExtendedPart) -> Value {
    let pieces = looked_at(part)
        .map(|piece| json!({ "offset": piece.offset, "length": piece.length }))
        .collect::<Vec<_>>();
    let (path, drive, data) = (path.to_string(), part.drive.to_string(), hex(&part.data));
    json!({ "path": path, "drive": drive, "pieces": pieces, "data": data })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
