//! What a clerk counts: how often it asked drives and the manager and how long it waited for them, how much
//! data moved, and what it knew already.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nasd_bulk_service::client::Way;
use nasd_metrics::{Counter, Histogram, Page};
use nasd_types::{AppendToken, Attributes, ByteRange, DriveId, Timestamp};

use crate::ClerkError;
use crate::backend::{Grant, Objects};
use crate::extending::{ExtendedPart, ExtensionCall};
use crate::open_file::OpenMode;
use crate::wire::{Appended, Copied, RangeToCopy, ReadOutcome, SeekTarget, Volume, Written};

/// Calls of one kind.
#[derive(Debug, Default)]
struct Calls {
    failed: Counter,
    times: Histogram,
}

impl Calls {
    fn measure<T>(&self, call: impl FnOnce() -> Result<T, ClerkError>) -> Result<T, ClerkError> {
        let begun = Instant::now();
        let result = call();
        self.times.count(begun.elapsed());
        if result.is_err() {
            self.failed.add(1);
        }
        result
    }
}

/// The counters of a clerk.
#[derive(Debug, Default)]
pub(crate) struct Measures {
    reads: Calls,
    writes: Calls,
    appends: Calls,
    flushes: Calls,
    getattrs: Calls,
    punches: Calls,
    copies: Calls,
    seeks: Calls,
    extensions: Calls,
    manager: Calls,
    /// Data that came from drives, and went there.
    fetched: Counter,
    sent: Counter,
    /// Data that drives have copied from file to file.
    copied: Counter,
    /// Data that applications got, and gave.
    pub(crate) read: Counter,
    pub(crate) written: Counter,
    /// Of what they got, what had been fetched ahead.
    pub(crate) ahead: Counter,
    /// Names that were known by a lease.
    pub(crate) names_known: Counter,
    /// Attributes that were known, and that had to be asked for.
    pub(crate) attributes_known: Counter,
    pub(crate) attributes_asked: Counter,
}

impl Measures {
    /// Measures a call to the manager, and the waits between its tries.
    pub(crate) fn of_manager<T>(
        &self,
        call: impl FnOnce() -> Result<T, ClerkError>,
    ) -> Result<T, ClerkError> {
        self.manager.measure(call)
    }

    /// Puts the families of samples into a page.
    pub(crate) fn put(&self, page: &mut Page) {
        let calls = [
            ("read", &self.reads),
            ("write", &self.writes),
            ("append", &self.appends),
            ("flush", &self.flushes),
            ("getattr", &self.getattrs),
            ("punch", &self.punches),
            ("copyrange", &self.copies),
            ("seek", &self.seeks),
            ("extend", &self.extensions),
        ];
        let name = "nasd_clerk_drive_seconds";
        let help = "Time that calls to drives took, with the waits for drives that were away.";
        page.family(name, "histogram", help);
        for (operation, calls) in calls {
            page.histogram(name, &[("operation", &operation)], &calls.times);
        }
        let name = "nasd_clerk_drive_failures_total";
        page.family(name, "counter", "Calls to drives that failed.");
        for (operation, calls) in calls {
            page.sample(name, &[("operation", &operation)], calls.failed.get());
        }
        let name = "nasd_clerk_manager_seconds";
        let help = "Time that questions to the manager took, with the waits for it.";
        page.family(name, "histogram", help);
        page.histogram(name, &[], &self.manager.times);
        let counters = [
            ("manager_failures", "Questions that the manager did not grant.", &self.manager.failed),
            ("fetched_bytes", "Data bytes read from drives.", &self.fetched),
            ("sent_bytes", "Data bytes written to drives.", &self.sent),
            ("copied_bytes", "Data bytes copied from file to file at drives.", &self.copied),
            ("read_bytes", "Data bytes that programs have read.", &self.read),
            ("written_bytes", "Data bytes that programs have written.", &self.written),
            ("ahead_bytes", "Of these reads, what had been fetched ahead.", &self.ahead),
            ("name_hits", "Names that were known by a lease.", &self.names_known),
            ("attribute_hits", "Attributes that were known.", &self.attributes_known),
            ("attribute_misses", "Attributes that were asked for.", &self.attributes_asked),
        ];
        for (name, help, counter) in counters {
            page.single(&format!("nasd_clerk_{name}_total"), "counter", help, counter.get());
        }
    }
}

/// Drives whose calls are measured.
pub(crate) struct MeasuredObjects {
    objects: Arc<dyn Objects>,
    measures: Arc<Measures>,
}

impl MeasuredObjects {
    pub(crate) fn new(objects: Arc<dyn Objects>, measures: Arc<Measures>) -> Self {
        MeasuredObjects { objects, measures }
    }
}

impl Objects for MeasuredObjects {
    fn read(&self, grant: &Grant, offset: u64, into: &mut [u8]) -> Result<ReadOutcome, ClerkError> {
        let outcome = self.measures.reads.measure(|| self.objects.read(grant, offset, into))?;
        self.measures.fetched.add(outcome.length as u64);
        Ok(outcome)
    }

    fn write(
        &self,
        grant: &Grant,
        offset: u64,
        data: &[u8],
        durable: bool,
    ) -> Result<Written, ClerkError> {
        let write = || self.objects.write(grant, offset, data, durable);
        let written = self.measures.writes.measure(write)?;
        self.measures.sent.add(data.len() as u64);
        Ok(written)
    }

    fn append(
        &self,
        grant: &Grant,
        identity: (AppendToken, Duration),
        data: &[u8],
    ) -> Result<Appended, ClerkError> {
        let append = || self.objects.append(grant, identity, data);
        let appended = self.measures.appends.measure(append)?;
        self.measures.sent.add(data.len() as u64);
        Ok(appended)
    }

    fn flush(&self, grant: &Grant) -> Result<u64, ClerkError> {
        self.measures.flushes.measure(|| self.objects.flush(grant))
    }

    fn getattr(&self, grant: &Grant) -> Result<Attributes, ClerkError> {
        self.measures.getattrs.measure(|| self.objects.getattr(grant))
    }

    fn punch(&self, grant: &Grant, range: ByteRange) -> Result<(), ClerkError> {
        self.measures.punches.measure(|| self.objects.punch(grant, range))
    }

    fn copy_range(
        &self,
        target: &Grant,
        source: &Grant,
        copy: &RangeToCopy,
    ) -> Result<Copied, ClerkError> {
        let copied =
            self.measures.copies.measure(|| self.objects.copy_range(target, source, copy))?;
        self.measures.copied.add(copied.length);
        Ok(copied)
    }

    fn seek(
        &self,
        grant: &Grant,
        offset: u64,
        target: SeekTarget,
    ) -> Result<Option<u64>, ClerkError> {
        self.measures.seeks.measure(|| self.objects.seek(grant, offset, target))
    }

    fn read_pieces(
        &self,
        grant: &Grant,
        pieces: &[ByteRange],
    ) -> Result<(ReadOutcome, Vec<u8>), ClerkError> {
        let read = || self.objects.read_pieces(grant, pieces);
        let (outcome, bytes) = self.measures.reads.measure(read)?;
        self.measures.fetched.add(outcome.length as u64);
        Ok((outcome, bytes))
    }

    fn extend(
        &self,
        grant: &Grant,
        ranges: &[ByteRange],
        call: &ExtensionCall,
    ) -> Result<Vec<ExtendedPart>, ClerkError> {
        self.measures.extensions.measure(|| self.objects.extend(grant, ranges, call))
    }

    fn drive_time(&self, grant: &Grant) -> Timestamp {
        self.objects.drive_time(grant)
    }

    fn set_volume(&self, volume: &Volume) {
        self.objects.set_volume(volume);
    }

    fn breadth(&self, drive: DriveId) -> u32 {
        self.objects.breadth(drive)
    }

    fn bulk_way(
        &self,
        grant: &Grant,
        mode: OpenMode,
        is_anew: bool,
    ) -> Result<Option<Way>, ClerkError> {
        self.objects.bulk_way(grant, mode, is_anew)
    }

    fn restarts(&self) -> Option<u64> {
        self.objects.restarts()
    }
}
