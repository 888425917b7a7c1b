//! What has been moved so far: for people on a terminal, and at the end for scripts.

use crate::commands::Outcome;
use crate::output::{self, note};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Counts a whole command.
pub struct Tally {
    bar: ProgressBar,
    begun: Instant,
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    files: u64,
    directories: u64,
    bytes: u64,
    resumed_bytes: u64,
    left_out: u64,
    without_facts: u64,
    checksums: Vec<(String, blake3::Hash)>,
}

impl Tally {
    /// Nothing was moved yet.
    pub fn begin() -> Tally {
        let bar = ProgressBar::no_length();
        let style = ProgressStyle::with_template(
            "{spinner} {bytes}/{total_bytes} {bytes_per_sec} {eta} {msg}",
        );
        if let Ok(style) = style {
            bar.set_style(style);
        }
        Tally { bar, begun: Instant::now(), counts: Mutex::default() }
    }

    fn count(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// So many bytes are to be moved besides.
    pub fn expect(&self, bytes: u64) {
        self.bar.set_length(self.bar.length().unwrap_or(0).saturating_add(bytes));
    }

    /// Bytes have been moved.
    pub fn moved(&self, bytes: u64) {
        self.bar.inc(bytes);
    }

    /// What is moved now.
    pub fn about(&self, what: &str) {
        self.bar.set_message(what.to_owned());
    }

    /// Bytes were moved by an earlier command.
    pub fn resumed(&self, bytes: u64) {
        self.bar.inc(bytes);
        self.count(|counts| counts.resumed_bytes += bytes);
    }

    /// A file is there.
    pub fn file(&self, name: &str, bytes: u64, checksum: Option<blake3::Hash>) {
        self.count(|counts| {
            counts.files += 1;
            counts.bytes = counts.bytes.saturating_add(bytes);
            counts.checksums.extend(checksum.map(|hash| (name.to_owned(), hash)));
        });
    }

    /// So are directories.
    pub fn directories(&self, number: u64) {
        self.count(|counts| counts.directories += number);
    }

    /// Links, devices and the like were not copied.
    pub fn left_out(&self, number: u64) {
        self.count(|counts| counts.left_out += number);
    }

    /// Mode and time of something could not be set.
    pub fn without_facts(&self) {
        self.count(|counts| counts.without_facts += 1);
    }

    /// The bar is no more to be seen.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }

    /// Tells what was done.
    ///
    /// # Errors
    /// None of ours.
    pub fn tell(self, as_json: bool) -> Outcome {
        let seconds = self.begun.elapsed().as_secs_f64();
        let counts = self.counts.into_inner().unwrap_or_else(PoisonError::into_inner);
        if counts.left_out > 0 {
            note!("nasd: {} links, devices, sockets or FIFOs were left out", counts.left_out);
        }
        if counts.without_facts > 0 {
            note!(
                "nasd: mode and time of {} files or directories are not kept: they belong to another user there",
                counts.without_facts
            );
        }
        if !as_json {
            return Ok(());
        }
        let moved = counts.bytes.saturating_sub(counts.resumed_bytes);
        let checksums = counts.checksums.iter();
        let checksums: Vec<_> = checksums
            .map(|(name, hash)| json!({ "path": name, "blake3": hash.to_hex().to_string() }))
            .collect();
        output::json(&json!({
            "files": counts.files,
            "directories": counts.directories,
            "left_out": counts.left_out,
            "bytes": counts.bytes,
            "resumed_bytes": counts.resumed_bytes,
            "seconds": seconds,
            "bytes_per_second": (moved as f64 / seconds.max(1e-9)).round(),
            "checksums": checksums,
        }))
    }
}
