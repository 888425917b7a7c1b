//! Reading the log of a device that is being opened.

use std::io::IoSliceMut;
use std::ops::Range;

use nasd_device::{AlignedBuffer, BlockDevice, DeviceError};
use nasd_types::limits::BLOCK_BYTES;

use super::change::Change;
use super::entry::{self, Header};
use super::padded;
use crate::geometry::Geometry;
use crate::metadata::record::LogMark;

/// Bytes that are read at a time.
const READ_BYTES: usize = 1 << 20;

/// Why a log can't be replayed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReplayError<E> {
    /// What it should have is not there, or makes no sense.
    #[error("{0}")]
    Damaged(String),
    /// The device failed a read.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Whoever applies the changes failed.
    #[error("{0}")]
    Apply(E),
}

/// The log's bytes, and which of its blocks could not be read.
struct Image {
    bytes: AlignedBuffer,
    unreadable: Vec<(u64, DeviceError)>,
}

impl Image {
    fn read(device: &dyn BlockDevice, geometry: &Geometry) -> Image {
        let length = geometry.log_bytes as usize;
        let mut image = Image { bytes: AlignedBuffer::zeroed(length), unreadable: Vec::new() };
        for start in (0..length).step_by(READ_BYTES) {
            let end = length.min(start + READ_BYTES);
            let offset = geometry.log_offset + start as u64;
            let into = &mut image.bytes[start..end];
            if device.read(offset, &mut [IoSliceMut::new(into)]).is_ok() {
                continue;
            }
            for block in (start..end).step_by(BLOCK_BYTES) {
                let into = &mut image.bytes[block..block + BLOCK_BYTES];
                let offset = geometry.log_offset + block as u64;
                if let Err(error) = device.read(offset, &mut [IoSliceMut::new(into)]) {
                    into.fill(0);
                    image.unreadable.push((block as u64, error));
                }
            }
        }
        image
    }

    /// The whole entry at `offset`, if there is one.
    fn entry(&self, key: u64, offset: u64) -> Option<(Header, &[u8])> {
        let bytes = self.bytes.get(usize::try_from(offset).ok()?..)?;
        let header = entry::parse_header(key, bytes)?;
        let entry = bytes.get(..header.bytes)?;
        entry::is_whole(entry).then_some((header, entry))
    }

    /// What the entry with this sequence number takes if it is at `offset`, whole or not: its first block
    /// at least, by which it would be known.
    fn claimed(&self, key: u64, offset: u64, sequence: u64) -> Range<u64> {
        let bytes = usize::try_from(offset).ok().and_then(|start| self.bytes.get(start..));
        let header = bytes.and_then(|bytes| entry::parse_header(key, bytes));
        let length = match header {
            Some(header) if header.sequence == sequence => padded(header.bytes),
            _ => BLOCK_BYTES as u64,
        };
        offset..offset.saturating_add(length)
    }

    /// The entry with this sequence number, where it may be, and its offset.
    fn find(&self, key: u64, offset: u64, sequence: u64) -> Option<(u64, usize, &[u8])> {
        [offset, 0].into_iter().find_map(|offset| {
            let (header, entry) = self.entry(key, offset)?;
            (header.sequence == sequence).then_some((offset, header.bytes, entry))
        })
    }

    /// Whether there is an entry that came after the one with this sequence number.
    fn has_later(&self, key: u64, sequence: u64) -> bool {
        (0..self.bytes.len() as u64).step_by(BLOCK_BYTES).any(|offset| {
            self.entry(key, offset).is_some_and(|(header, _)| header.sequence > sequence)
        })
    }
}

/// Gives every entry behind `mark` to `apply`, in order, with the mark behind it; returns the last
/// mark.
pub(crate) fn replay<E>(
    device: &dyn BlockDevice,
    geometry: &Geometry,
    key: u64,
    mark: LogMark,
    mut apply: impl FnMut(Vec<Change>, LogMark) -> Result<(), E>,
) -> Result<LogMark, ReplayError<E>> {
    if mark.next_offset > geometry.log_bytes || !mark.next_offset.is_multiple_of(BLOCK_BYTES as u64)
    {
        return Err(ReplayError::Damaged("the log mark makes no sense".to_owned()));
    }
    let mut image = Image::read(device, geometry);
    let mut mark = mark;
    loop {
        let sequence = mark.applied.saturating_add(1);
        let Some((offset, bytes, entry)) = image.find(key, mark.next_offset, sequence) else {
            break;
        };
        let changes = entry::decode(entry)
            .map_err(|error| ReplayError::Damaged(format!("log entry {sequence}: {error}")))?;
        mark = LogMark { applied: sequence, next_offset: offset + padded(bytes) };
        apply(changes, mark).map_err(ReplayError::Apply)?;
    }
    let next = mark.applied.saturating_add(1);
    if image.has_later(key, next) {
        return Err(ReplayError::Damaged(format!("log entry {next} was durable and is damaged")));
    }
    // An entry that can't be read may have been the next one.
    let wanted = [mark.next_offset, 0].map(|offset| image.claimed(key, offset, next));
    let is_wanted = |offset: &u64| wanted.iter().any(|claimed| claimed.contains(offset));
    match image.unreadable.iter().position(|(offset, _)| is_wanted(offset)) {
        Some(index) => Err(ReplayError::Device(image.unreadable.swap_remove(index).1)),
        None => Ok(mark),
    }
}
