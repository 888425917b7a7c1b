//! Copies of ranges: component by component where source and target lie alike, else by way of the striping
//! manager.

use nasd_protocol::Status;
use nasd_protocol::drive::{Copied, RangeToCopy};
use nasd_types::{ByteRange, DriveId, SetAttributes};

use crate::components::{Ask, Told};
use crate::data::{columns_of, runs};
use crate::mend::Lock;
use crate::place::Place;
use crate::virtual_drive::{VirtualDrive, component, unexpected};

/// Bytes that one call copies at most.
const MOST: u64 = 64 << 20;

/// Bytes that go through the striping manager at a time.
const CHUNK: u64 = 1 << 20;

impl VirtualDrive {
    pub(crate) fn copy_whole(&self, copy: &RangeToCopy) -> Result<Copied, Status> {
        let (source, target) = (copy.source_name(), copy.name);
        let _alone = self.lock_both(source, target);
        let length = self.whole(source)?.attributes.logical_size;
        let range = ByteRange::new(copy.source_offset, copy.length.min(MOST));
        let range = range.intersection(&ByteRange::new(0, length));
        if !range.is_empty() {
            let (from, to) = (self.place_to_change(source)?, self.place_to_change(target)?);
            if copy.offset.saturating_add(range.length) > to.shape.unit() {
                self.spread_locked(target)?;
            }
            if lies_alike(copy, &from, &to) && self.known_version(source)?.is_spread() {
                let has_writers = self.hold_writers(source, &from)?.has_writers();
                let version = self.known_version(target)?;
                self.expect_writers(target, &to, version)?;
                self.note_writing(target, &to);
                let copy_all = || self.copy_components(copy, range, &to);
                let written = ByteRange::new(copy.offset, range.length);
                let copied = self.mending(target, Some(written), Lock::Held, || {
                    self.mending(source, Some(range), Lock::Held, copy_all)
                });
                self.rebuild.also(target);
                // Some copies may have it, and others not; or the source's copies were not the same.
                if to.has_copies() && (copied.is_err() || has_writers) {
                    self.may_differ(target);
                }
                copied?;
            } else {
                self.copy_through(copy, range)?;
            }
        }
        Ok(Copied { length: range.length, attributes: self.getattr_whole(target)? })
    }

    /// Each drive copies what it has of the range.
    fn copy_components(
        &self,
        copy: &RangeToCopy,
        range: ByteRange,
        place: &Place,
    ) -> Result<(), Status> {
        for (column, strips) in columns_of(place, range) {
            for drive in place.writers(column) {
                for run in runs(&strips) {
                    self.copy_component(copy, run, drive)?;
                }
            }
        }
        let end = copy.offset + range.length;
        let whole = self.whole(copy.name)?;
        if whole.attributes.logical_size < end {
            // What was copied ends with a hole.
            let lengthen = |drive| SetAttributes {
                logical_size: place.is_home(drive).then_some(end),
                ..SetAttributes::default()
            };
            self.raise(copy.name, place, whole.version.revoked(), lengthen)?;
        }
        self.flush_whole(copy.name.partition, &[copy.name.object])?;
        Ok(())
    }

    fn copy_component(
        &self,
        copy: &RangeToCopy,
        run: ByteRange,
        drive: DriveId,
    ) -> Result<(), Status> {
        let mut at = run.offset;
        while at < run.end() {
            let offset = copy.offset + (at - copy.source_offset);
            let ask = RangeToCopy {
                name: component(copy.name),
                offset,
                length: run.end() - at,
                source: copy.source,
                source_offset: at,
            };
            match self.components.ask_one(drive, Ask::Copyrange(ask)) {
                // The rest of the source's component is a hole.
                Ok(Told::Copied(Copied { length: 0, .. })) => {
                    return self.clear(copy, ByteRange::new(offset, run.end() - at), drive);
                }
                Ok(Told::Copied(copied)) => at += copied.length,
                Ok(other) => return Err(unexpected(&other).status()),
                Err(error) => return Err(error.status()),
            }
        }
        Ok(())
    }

    /// Makes a range of the target's component zeros.
    fn clear(&self, copy: &RangeToCopy, range: ByteRange, drive: DriveId) -> Result<(), Status> {
        let punch = nasd_protocol::drive::PunchArguments {
            name: component(copy.name),
            durable: false,
            regions: vec![nasd_protocol::Region::single(range.offset, range.length)],
        };
        let told = self.components.ask_one(drive, Ask::Punch(punch));
        told.map(drop).map_err(|error| error.status())
    }

    /// Reads and writes.
    fn copy_through(&self, copy: &RangeToCopy, range: ByteRange) -> Result<(), Status> {
        let mut at = range.offset;
        while at < range.end() {
            let chunk = ByteRange::new(at, CHUNK.min(range.end() - at));
            let source = copy.source_name();
            let read = || self.read_range(source, chunk);
            let read = self.mending(source, Some(chunk), Lock::Held, read)?;
            if read.data.is_empty() {
                break;
            }
            let offset = copy.offset + (at - copy.source_offset);
            self.write_locked(copy.name, offset, &read.data, false)?;
            at += read.data.len() as u64;
        }
        self.flush_whole(copy.name.partition, &[copy.name.object])?;
        Ok(())
    }
}

/// Whether each byte of the range is on the same drives in both objects, and read at the same ones.
fn lies_alike(copy: &RangeToCopy, from: &Place, to: &Place) -> bool {
    let stripe = from.shape.unit() * u64::from(from.shape.width());
    let is_aligned = copy.offset.abs_diff(copy.source_offset).is_multiple_of(stripe);
    // Of what not all copies have, the same ones are to decide.
    let is_decided_alike = !from.has_doubted() && !to.has_doubted();
    from.shape == to.shape && from.members == to.members && is_aligned && is_decided_alike
}
