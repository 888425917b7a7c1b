//! Streams in step, as of the paper's power wall.

use std::time::Duration;

use nasd_bulk_service::client::{Playing, Source, StripedFile, play as play_files};
use nasd_protocol::bulk::Options;

use super::homes::{Home, Made};
use super::{LARGE_BYTES, check, failed, made};
use crate::workload::Bench;
use crate::{BenchError, Row};

const STREAMS: usize = 4;
/// Of each stream.
const BYTES_A_SECOND: u64 = 60_000_000;
const FRAMES_A_SECOND: u64 = 40;
/// Of a frame: sectors, which a directory's server asks for.
const FRAME_BYTES: u64 = (BYTES_A_SECOND / FRAMES_A_SECOND).next_multiple_of(512);
const SECONDS: u64 = 60;
const AHEAD: u64 = 4;

/// The most time between the first and the last stream that showed one frame, beside a frame's time: four streams for a minute.
pub(in super::super) fn play(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    let home = Home::of(bench, name)?;
    let files: Vec<Made<'_>> =
        (0..STREAMS).map(|number| made(&home, number, LARGE_BYTES)).collect::<Result<_, _>>()?;
    home.forget()?;
    let opened: Vec<StripedFile> = files
        .iter()
        .map(|file| {
            let opening = file.opening(Options::READ, FRAME_BYTES)?;
            StripedFile::open(vec![opening], 0).map_err(failed)
        })
        .collect::<Result<_, _>>()?;
    let sources: Vec<&dyn Source> = opened.iter().map(|file| file as &dyn Source).collect();
    let period = Duration::from_nanos(1_000_000_000 / FRAMES_A_SECOND);
    let playing = Playing {
        frame_bytes: FRAME_BYTES as usize,
        period,
        frames: SECONDS * FRAMES_A_SECOND,
        ahead: AHEAD,
    };
    let show = |_, frame: u64, bytes: &[u8]| {
        // At the end of a file it goes on from the first frame.
        let offset = frame % (LARGE_BYTES / FRAME_BYTES) * FRAME_BYTES;
        check(bytes, offset).map_err(std::io::Error::other)
    };
    let told = play_files(&sources, &playing, &show, &mut |_| true);
    let report = told.map_err(|error| BenchError::Cell(error.to_string()))?;
    let limit_name = format!(
        "a frame's time; of {} frames of {STREAMS} streams of {} MB/s {} were dropped and {} late, by {:.1} ms at most",
        playing.frames,
        BYTES_A_SECOND / 1_000_000,
        report.dropped,
        report.late,
        report.latest.as_secs_f64() * 1e3
    );
    // A frame that was dropped is as bad as being that far apart: such a run misses the bar.
    let apart = report.skew + period * u32::try_from(report.dropped).unwrap_or(u32::MAX);
    let (apart, period) = (apart.as_secs_f64() * 1e3, period.as_secs_f64() * 1e3);
    Ok(Row::new(name, apart, "ms", period, limit_name))
}
