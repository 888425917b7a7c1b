//! Making copies of the device equal: what differs is written.

use nasd_device::{AlignedBuffer, BlockDevice};
use nasd_types::limits::BLOCK_BYTES;
use nasd_types::{ByteRange, DriveId};

use super::holders::{HolderError, Holders, Part, Piece};
use super::{OwnError, OwnState, PIECE_BYTES, said};

/// What is copied from.
pub(super) trait Contents {
    /// The bytes of a range.
    fn read(&self, range: ByteRange) -> Result<Vec<u8>, OwnError>;

    /// No data lie between `from` and here; `None` if none follow at all.
    fn next_data(&self, from: u64) -> Result<Option<u64>, OwnError>;
}

/// A copy on a drive.
pub(super) struct CopyOn<'a> {
    pub(super) holders: &'a dyn Holders,
    pub(super) drive: DriveId,
}

impl Contents for CopyOn<'_> {
    fn read(&self, range: ByteRange) -> Result<Vec<u8>, OwnError> {
        let length = range.length as usize;
        let read = self.holders.read(self.drive, Part::Device, range.offset, length);
        let mut data = read.map_err(|error| OwnError::Drive(self.drive, error))?;
        data.resize(length, 0);
        Ok(data)
    }

    fn next_data(&self, from: u64) -> Result<Option<u64>, OwnError> {
        let found = self.holders.next_data(self.drive, from);
        found.map_err(|error| OwnError::Drive(self.drive, error))
    }
}

/// Whichever of these copies can be read.
pub(super) struct AnyCopy<'a> {
    pub(super) own: &'a OwnState,
    pub(super) copies: &'a [DriveId],
}

impl Contents for AnyCopy<'_> {
    fn read(&self, range: ByteRange) -> Result<Vec<u8>, OwnError> {
        let read = |offset: u64, length: usize| self.own.read_any(self.copies, offset, length);
        if let Ok(data) = read(range.offset, range.length as usize) {
            return Ok(data);
        }
        // Each may lack another block of it.
        let mut data = Vec::with_capacity(range.length as usize);
        while (data.len() as u64) < range.length {
            let left = range.length - data.len() as u64;
            let block =
                read(range.offset + data.len() as u64, left.min(BLOCK_BYTES as u64) as usize);
            data.extend(block.map_err(|failed| OwnError::NoCopy(said(&failed)))?);
        }
        Ok(data)
    }

    fn next_data(&self, from: u64) -> Result<Option<u64>, OwnError> {
        let mut failed = Vec::new();
        for drive in self.copies {
            match self.own.holders.next_data(*drive, from) {
                Ok(found) => return Ok(found),
                Err(error) => failed.push((*drive, error)),
            }
        }
        Err(OwnError::NoCopy(said(&failed)))
    }
}

/// A device of this machine.
pub(super) struct LocalDevice<'a>(pub(super) &'a dyn BlockDevice);

impl Contents for LocalDevice<'_> {
    fn read(&self, range: ByteRange) -> Result<Vec<u8>, OwnError> {
        let mut data = AlignedBuffer::zeroed(range.length as usize);
        let read = self.0.read(range.offset, &mut [std::io::IoSliceMut::new(&mut data)]);
        read.map_err(|error| OwnError::Device(error.to_string()))?;
        Ok(data.to_vec())
    }

    fn next_data(&self, from: u64) -> Result<Option<u64>, OwnError> {
        let mut at = from;
        while at < self.0.capacity() {
            let length = PIECE_BYTES.min(self.0.capacity() - at);
            if self.read(ByteRange::new(at, length))?.iter().any(|byte| *byte != 0) {
                return Ok(Some(at));
            }
            at += length;
        }
        Ok(None)
    }
}

/// Gives a drive's copy of the device the contents of this range that something else has; `epoch` is that of the key
/// by which it is written.
pub(super) fn make_equal(
    from: &dyn Contents,
    to: &CopyOn<'_>,
    epoch: u32,
    range: ByteRange,
) -> Result<(), OwnError> {
    let mut at = range.offset;
    let end = range.offset + range.length;
    while let Some(next) = earlier(from.next_data(at)?, to.next_data(at)?).filter(|it| *it < end) {
        at = next.max(at) / PIECE_BYTES * PIECE_BYTES;
        let begin = at.max(range.offset);
        at = (at + PIECE_BYTES).min(end);
        copy_piece(from, to, epoch, ByteRange::new(begin, at - begin))?;
        if at >= end {
            break;
        }
    }
    Ok(())
}

fn earlier(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.into_iter().chain(other).min()
}

fn copy_piece(
    from: &dyn Contents,
    to: &CopyOn<'_>,
    epoch: u32,
    range: ByteRange,
) -> Result<(), OwnError> {
    let wanted = from.read(range)?;
    let present = match to.read(range) {
        Ok(present) => Some(present),
        // What can't be read there is written anew.
        Err(OwnError::Drive(_, HolderError::Failed(_))) => None,
        Err(error) => return Err(error),
    };
    let differs = |at: usize| match &present {
        Some(present) => {
            wanted[at..].iter().take(BLOCK_BYTES).ne(present[at..].iter().take(BLOCK_BYTES))
        }
        None => true,
    };
    let mut pieces: Vec<Piece<'_>> = Vec::new();
    for at in (0..wanted.len()).step_by(BLOCK_BYTES).filter(|at| differs(*at)) {
        let data = &wanted[at..(at + BLOCK_BYTES).min(wanted.len())];
        pieces.push(Piece { part: Part::Device, offset: range.offset + at as u64, data });
    }
    let pieces = joined(&pieces, &wanted, range.offset);
    if pieces.is_empty() {
        return Ok(());
    }
    let written = to.holders.write(&[to.drive], epoch, &pieces);
    let failed = written.into_iter().find_map(Result::err);
    failed.map_or(Ok(()), |error| Err(OwnError::Drive(to.drive, error)))
}

/// Pieces that follow one another as one.
fn joined<'a>(pieces: &[Piece<'a>], all: &'a [u8], offset: u64) -> Vec<Piece<'a>> {
    let mut joined: Vec<Piece<'a>> = Vec::new();
    for piece in pieces {
        match joined.last_mut() {
            Some(last) if last.offset + last.data.len() as u64 == piece.offset => {
                let begin = (last.offset - offset) as usize;
                last.data = &all[begin..begin + last.data.len() + piece.data.len()];
            }
            _ => joined.push(*piece),
        }
    }
    joined
}
