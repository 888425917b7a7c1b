//! `nasd bulk play`: several files in step.

use super::places::Place;
use super::reach;
use super::remote::{RemoteFile, RemoteLane};
use crate::arguments::BulkPlayArguments;
use crate::commands::Outcome;
use crate::output::{self, say};
use crate::shutdown::Shutdown;
use indicatif::{ProgressBar, ProgressStyle};
use nasd_bulk_service::client::{Playing, ReadError, Reader, Source};
use nasd_bulk_service::steps::Report;
use serde_json::json;
use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A file that is played.
struct Stream {
    file: Box<dyn RemoteFile>,
    bytes: u64,
}

impl Source for Stream {
    fn length(&self) -> u64 {
        self.bytes
    }

    fn reader(&self) -> Result<Reader<'_>, ReadError> {
        let mut lane: Box<dyn RemoteLane + '_> = self.file.lane()?;
        Ok(Box::new(move |into, offset| Ok(lane.read_at(into, offset)?)))
    }
}

/// Plays files, and tells what came of it.
///
/// # Errors
/// A file that can't be opened or read, or an output that can't be written. Frames that are late or dropped are no errors.
pub fn play(directory: &Path, arguments: &BulkPlayArguments, as_json: bool) -> Outcome {
    let streams = arguments.files.iter().map(|name| open(directory, arguments, name));
    let streams = streams.collect::<Result<Vec<_>, _>>()?;
    let playing = what(arguments, &streams)?;
    let outputs = outputs(arguments, streams.len())?;
    let show = |stream: usize, _frame: u64, bytes: &[u8]| match outputs.get(stream) {
        Some(output) => (&*output).write_all(bytes),
        None => Ok(()),
    };
    let (progress, stop) = (bar(playing.frames), Shutdown::new()?.into_flag());
    let mut looks_on = |report: &Report| {
        progress.set_position(report.shown + report.dropped);
        progress.set_message(format!("{} late, {} dropped", report.late, report.dropped));
        !stop.load(Ordering::Acquire)
    };
    let begun = Instant::now();
    let sources: Vec<&dyn Source> = streams.iter().map(|stream| stream as &dyn Source).collect();
    let played = nasd_bulk_service::client::play(&sources, &playing, &show, &mut looks_on);
    progress.finish_and_clear();
    let told = |error: nasd_bulk_service::client::PlayError| {
        let names = arguments.files.iter().enumerate();
        let names: Vec<String> = names.map(|(stream, name)| format!("{stream}: {name}")).collect();
        format!("{error} (streams are {})", names.join(", "))
    };
    tell(&played.map_err(told)?, (&playing, streams.len()), begun.elapsed(), as_json)
}

fn open(
    directory: &Path,
    arguments: &BulkPlayArguments,
    name: &str,
) -> Result<Stream, Box<dyn Error>> {
    let place = Place::parse(name)?;
    if place.is_here() {
        return Err(format!("{name} is of this machine: what is played comes from servers").into());
    }
    let (remote, path) = reach(directory, &place, (arguments.protection, arguments.patience))?;
    let opened =
        remote.open(&path, arguments.frame).map_err(|error| error.about(&remote.called(&path)))?;
    let (file, facts) = opened;
    if facts.size < arguments.frame {
        let (called, size) = (remote.called(&path), facts.size);
        return Err(format!(
            "{called} has {size} bytes, which is less than a frame: give a shorter --frame"
        )
        .into());
    }
    if !arguments.frame.is_multiple_of(file.alignment()) {
        let (called, alignment) = (remote.called(&path), file.alignment());
        return Err(format!(
            "{called} is read in multiples of {alignment} bytes: give another --frame"
        )
        .into());
    }
    Ok(Stream { file, bytes: facts.size })
}

/// What is played of these.
fn what(arguments: &BulkPlayArguments, streams: &[Stream]) -> Result<Playing, Box<dyn Error>> {
    let period = Duration::from_secs(1) / arguments.rate;
    let shortest = streams.iter().map(|stream| stream.bytes / arguments.frame).min();
    let frames = match arguments.duration {
        Some(duration) => (duration.as_secs_f64() * f64::from(arguments.rate)).round() as u64,
        None => shortest.unwrap_or(0),
    };
    let frame_bytes = usize::try_from(arguments.frame)?;
    Ok(Playing { frame_bytes, period, frames, ahead: arguments.ahead })
}

fn outputs(arguments: &BulkPlayArguments, streams: usize) -> Result<Vec<File>, Box<dyn Error>> {
    let Some(directory) = &arguments.into else { return Ok(Vec::new()) };
    let open = |stream: usize| {
        let path = directory.join(stream.to_string());
        File::create(&path).map_err(|error| format!("{}: {error}", path.display()).into())
    };
    (0..streams).map(open).collect()
}

/// Frames so far, on a terminal; nothing in a pipe.
fn bar(frames: u64) -> ProgressBar {
    let progress = ProgressBar::new(frames);
    if let Ok(style) = ProgressStyle::with_template("{wide_bar} {pos}/{len} frames {msg}") {
        progress.set_style(style);
    }
    progress
}

fn tell(
    report: &Report,
    (playing, streams): (&Playing, usize),
    taken: Duration,
    as_json: bool,
) -> Outcome {
    let Report { shown, late, dropped, latest, skew } = *report;
    let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
    let megabytes = (shown * playing.frame_bytes as u64) as f64 / taken.as_secs_f64() / 1e6;
    if as_json {
        return output::json(&json!({
            "streams": streams,
            "frames": playing.frames,
            "shown": shown,
            "late": late,
            "dropped": dropped,
            "latest_ms": milliseconds(latest),
            "skew_ms": milliseconds(skew),
            "frame_ms": milliseconds(playing.period),
            "megabytes_a_second_each": megabytes,
            "seconds": taken.as_secs_f64(),
        }));
    }
    say!(
        "{shown} of {} frames of {streams} streams were shown, {late} of them late (by {:.1} ms at most); {dropped} were dropped",
        playing.frames,
        milliseconds(latest)
    );
    say!(
        "streams were {:.2} ms apart at most, of {:.2} ms that a frame takes; {megabytes:.1} MB/s each",
        milliseconds(skew),
        milliseconds(playing.period)
    );
    Ok(())
}
