//! Copying what one partition has that another one, an earlier copy of it, has not, to a partition of another drive.
//!
//! Objects keep their numbers, and get all attributes as they are: each is made first, then its bytes are copied, and then its attributes
//! are set once more, as writing has changed them.

use crate::drive_session::DriveSession;
use nasd_protocol::Region;
use nasd_protocol::drive::{
    ChangedRange, ComparepartitionArguments, Comparison, Difference, ObjectState,
    PutobjectArguments,
};
use nasd_types::{ByteRange, ObjectId, ObjectName, PartitionId};
use std::error::Error;
use std::io::{IsTerminal, Write};
use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Objects that are copied at a time.
const THREADS: usize = 8;

/// How often it is told how far it is.
const TOLD_EVERY: Duration = Duration::from_millis(200);

/// What was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Objects that were made, changed or removed.
    pub objects: u64,
    /// Bytes of data.
    pub bytes: u64,
}

impl AddAssign for Copied {
    fn add_assign(&mut self, more: Copied) {
        self.objects += more.objects;
        self.bytes += more.bytes;
    }
}

/// From where to where.
pub struct Copying<'a> {
    /// The drive that has it.
    pub source: &'a DriveSession,
    /// The drive that gets it.
    pub target: &'a DriveSession,
    /// The partition that is copied.
    pub from: PartitionId,
    /// The partition that gets what is copied.
    pub to: PartitionId,
}

/// A page of differences that several threads work on.
struct Page<'a> {
    differences: &'a [Difference],
    identifiers_end: ObjectId,
    next: AtomicUsize,
    bytes: AtomicU64,
    failed: Mutex<Option<String>>,
}

impl Copying<'_> {
    /// Copies what the partition has and the base has not; with no base, all. It is durable when this returns.
    ///
    /// # Errors
    /// What a drive says, and which.
    pub fn run(&self, base: Option<PartitionId>) -> Result<Copied, Box<dyn Error>> {
        let (mut copied, mut told) = (Copied::default(), Instant::now());
        let shows = std::io::stderr().is_terminal();
        let mut at = Some((ObjectId(0), 0));
        while let Some((from, offset)) = at {
            let asked = ComparepartitionArguments { partition: self.from, base, from, offset };
            let page = self.source.client.compare_partition(&self.source.authority, &asked);
            let page = page.map_err(self.source.failed("tell what has changed"))?;
            copied += self.apply(&page)?;
            at = page.next;
            if shows && told.elapsed() > TOLD_EVERY {
                told = Instant::now();
                let Copied { objects, bytes } = copied;
                // That a terminal does not take it is no failure.
                let _ = write!(std::io::stderr(), "\robjects: {objects}, MiB: {}", bytes >> 20);
            }
        }
        if shows {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
        let flushed = self.target.client.flush_partition(&self.target.authority, self.to);
        flushed.map_err(self.target.failed("make what was copied durable"))?;
        Ok(copied)
    }

    /// Makes the differences of a page.
    fn apply(&self, page: &Comparison) -> Result<Copied, Box<dyn Error>> {
        let work = Page {
            differences: &page.differences,
            identifiers_end: page.identifiers_end,
            next: AtomicUsize::new(0),
            bytes: AtomicU64::new(0),
            failed: Mutex::new(None),
        };
        std::thread::scope(|scope| {
            for _ in 1..THREADS.min(page.differences.len()) {
                // Where there is no thread to be had, the others do it.
                let _ = std::thread::Builder::new().spawn_scoped(scope, || self.work(&work));
            }
            self.work(&work);
        });
        match work.failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error.into()),
            None => Ok(Copied {
                objects: page.differences.len() as u64,
                bytes: work.bytes.into_inner(),
            }),
        }
    }

    fn work(&self, page: &Page<'_>) {
        let mut buffer = Vec::new();
        let is_failed = || page.failed.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        while !is_failed() {
            let next = page.next.fetch_add(1, Ordering::Relaxed);
            let Some(difference) = page.differences.get(next) else { return };
            match self.make(difference, page.identifiers_end, &mut buffer) {
                Ok(bytes) => {
                    page.bytes.fetch_add(bytes, Ordering::Relaxed);
                }
                Err(error) => {
                    *page.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                }
            }
        }
    }

    /// Makes one difference: how many bytes were copied.
    fn make(
        &self,
        difference: &Difference,
        identifiers_end: ObjectId,
        buffer: &mut Vec<u8>,
    ) -> Result<u64, String> {
        let Difference { object, state, ranges } = difference;
        let name = ObjectName { partition: self.to, object: *object };
        let target = self.target;
        let Some(state) = state else {
            let removed = target.client.remove(&target.authority, name, false);
            removed.map_err(target.failed(format!("remove object {object}")))?;
            return Ok(0);
        };
        self.put(*object, identifiers_end, state)?;
        let mut bytes = 0;
        for ChangedRange { range, is_hole } in ranges {
            if *is_hole {
                let region = Region::single(range.offset, range.length);
                let punched = target.client.punch(&target.authority, name, &[region], false);
                punched.map_err(target.failed(format!("make a hole in object {object}")))?;
                continue;
            }
            bytes += self.copy(*object, *range, buffer)?;
        }
        if !ranges.is_empty() {
            self.put(*object, identifiers_end, state)?;
        }
        Ok(bytes)
    }

    fn put(
        &self,
        object: ObjectId,
        identifiers_end: ObjectId,
        state: &ObjectState,
    ) -> Result<(), String> {
        let target = self.target;
        let put = PutobjectArguments {
            partition: self.to,
            object,
            identifiers_end,
            state: state.clone(),
        };
        let done = target.client.put_object(&target.authority, &put);
        done.map_err(target.failed(format!("make object {object}")))
    }

    /// Copies bytes of an object: how many.
    fn copy(
        &self,
        object: ObjectId,
        range: ByteRange,
        buffer: &mut Vec<u8>,
    ) -> Result<u64, String> {
        let (source, target) = (self.source, self.target);
        let from = ObjectName { partition: self.from, object };
        let to = ObjectName { partition: self.to, object };
        let most = source.client.max_transfer().min(target.client.max_transfer()) as u64;
        let mut done = 0;
        while done < range.length {
            let (offset, length) = (range.offset + done, most.min(range.length - done));
            buffer.resize(usize::try_from(length).unwrap_or(usize::MAX), 0);
            let read = source.client.read(&source.authority, from, offset, buffer);
            let read = read.map_err(source.failed(format!("read object {object}")))?;
            let data = buffer.get(..read.length).unwrap_or_default();
            if data.is_empty() {
                return Err(format!(
                    "drive {}: object {object} ended while it was read",
                    source.name
                ));
            }
            let written = target.client.write(&target.authority, to, offset, data, false);
            written.map_err(target.failed(format!("write object {object}")))?;
            done += data.len() as u64;
        }
        Ok(done)
    }
}
