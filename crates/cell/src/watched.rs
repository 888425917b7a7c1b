//! Noticing that `cell.toml` has changed, for those who serve the cell.

use super::{Cell, CellError};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often the file is looked at.
const EVERY: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug)]
pub struct WatchedCell {
    directory: PathBuf,
    seen: Option<Stamp>,
    next: Instant,
}

/// What is different after a change: the file is replaced as a whole.
type Stamp = (u64, i64, i64, u64);

fn stamp(path: &Path) -> Option<Stamp> {
    let told = std::fs::metadata(path).ok()?;
    Some((told.ino(), told.mtime(), told.mtime_nsec(), told.len()))
}

impl WatchedCell {
    /// Of a cell whose file may have changed already.
    pub fn new(cell: &Cell) -> Self {
        WatchedCell { directory: cell.directory().to_owned(), seen: None, next: Instant::now() }
    }

    /// The cell as it is now, if it has changed since this was asked last.
    ///
    /// # Errors
    /// As [`Cell::open`]; it is tried again.
    pub fn changed(&mut self) -> Result<Option<Cell>, CellError> {
        if Instant::now() < self.next {
            return Ok(None);
        }
        self.next = Instant::now() + EVERY;
        let now = stamp(&self.directory.join("cell.toml"));
        if now == self.seen {
            return Ok(None);
        }
        let cell = Cell::open(&self.directory)?;
        self.seen = now;
        Ok(Some(cell))
    }
}
