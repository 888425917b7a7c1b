//! `nasd extend`: has an extension of the drives that have a file's bytes do something with them (CMU-CS-97-118
//! section 3.4), and prints what each of them told.

use super::{Session, at, parse};
use crate::arguments::{ExtendOptions, FileRange};
use crate::commands::Outcome;
use crate::output::{self, say};
use nasd_cell::Cell;
use nasd_clerk::{ExtendedPart, ExtensionCall, ExtensionOutcome, OpenMode};
use nasd_drive::Checksum;
use nasd_types::{ByteRange, Rights};
use serde_json::{Value, json};

/// Extensions that every drive of this version has, by name.
const KNOWN: [(&str, (u32, u32)); 3] = [
    ("checksum", (Checksum::NUMBER, Checksum::REVISION)),
    ("scan", (nasd_filter::remote::EXTENSION, nasd_filter::remote::REVISION)),
    ("grep", (nasd_grep::remote::EXTENSION, nasd_grep::remote::REVISION)),
];

/// Most bytes that a drive tells at a time.
const MOST: usize = 1 << 20;

/// `nasd extend`.
///
/// # Errors
/// A path that is no file, an extension that the drives lack, or what it says against the arguments or the data.
pub fn extend(
    cell: &Cell,
    text: &str,
    options: &ExtendOptions,
    range: &FileRange,
    as_json: bool,
) -> Outcome {
    let path = parse(text)?;
    let session = Session::open(cell, &path)?;
    let entry = session.resolve(&path)?;
    let rights = options.rights();
    let mode = OpenMode { read: true, write: rights.contains(Rights::WRITE) };
    let opened = session.clerk.open_known(&session.caller, &entry, mode);
    let (file, _) = opened.map_err(|error| at(&path, error))?;
    let size = file.size();
    let rest = size.saturating_sub(range.offset);
    let range = ByteRange::new(range.offset, range.length.map_or(rest, |length| length.min(rest)));
    let call = ExtensionCall {
        extension: number_of(options)?,
        rights,
        most: MOST,
        arguments: options.arguments.0.clone(),
        job: std::process::id().into(),
        bytes_left: range.length,
    };
    let parts = match range.is_empty() {
        true => Vec::new(),
        false => file.extend(range, &call).map_err(|error| at(&path, error))?,
    };
    if let Some(bad) = parts.iter().find(|part| part.outcome != ExtensionOutcome::Done) {
        let (number, text) = (call.extension.0, String::from_utf8_lossy(&bad.data));
        let place = match bad.outcome {
            ExtensionOutcome::Failed => format!("at byte {}: ", bad.position),
            _ => String::new(),
        };
        return Err(
            format!("{path}: extension {number} of drive {}: {place}{text}", bad.drive).into()
        );
    }
    if as_json {
        return output::json(&json!({ "parts": parts.iter().map(facts).collect::<Vec<_>>() }));
    }
    for part in &parts {
        let pieces: Vec<String> =
            looked_at(part).map(|piece| format!("{}+{}", piece.offset, piece.length)).collect();
        say!("drive {}  {}  {}", part.drive, pieces.join(","), hex(&part.data));
    }
    Ok(())
}

fn number_of(options: &ExtendOptions) -> Result<(u32, u32), String> {
    let known = KNOWN.iter().find(|(name, (number, _))| {
        *name == options.extension || options.extension.parse() == Ok(*number)
    });
    match (known, options.extension.parse(), options.revision) {
        (Some((_, (number, _))), _, Some(revision)) => Ok((*number, revision)),
        (Some((_, extension)), _, None) => Ok(*extension),
        (None, Ok(number), Some(revision)) => Ok((number, revision)),
        (None, Ok(number), None) => {
            Err(format!("of extension {number} nothing is known here: add --revision"))
        }
        (None, Err(_), _) => {
            let names = KNOWN.map(|(name, _)| name).join(", ");
            let wanted = &options.extension;
            Err(format!(
                "no extension `{wanted}` is known here: write its number, or one of {names}"
            ))
        }
    }
}

/// The pieces that a part is about: those before its position.
fn looked_at(part: &ExtendedPart) -> impl Iterator<Item = ByteRange> {
    let before = ByteRange::new(0, part.position);
    let pieces = part.pieces.iter().map(move |piece| piece.intersection(&before));
    pieces.filter(|piece| !piece.is_empty())
}

fn facts(part: &ExtendedPart) -> Value {
    let pieces = looked_at(part)
        .map(|piece| json!({ "offset": piece.offset, "length": piece.length }))
        .collect::<Vec<_>>();
    json!({ "drive": part.drive.0, "pieces": pieces, "data": hex(&part.data) })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
