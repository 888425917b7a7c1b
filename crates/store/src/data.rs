//! Data on its way in and out: pieces of frames that sockets read and write without a copy.

use std::io::{IoSlice, IoSliceMut};
use std::ops::{Deref, Range};
use std::sync::Arc;

use nasd_device::{FRAME_BYTES, Frame, zeros};
use nasd_types::Timestamp;

/// What `read` found. The segments, in order, are the bytes; they stay as they are whatever is
/// written to the object later, and hold frames of the cache until dropped.
#[derive(Clone, Debug)]
pub struct ReadData {
    /// The bytes, in order; none is empty.
    pub segments: Vec<Segment>,
    /// Length of the object, in bytes, when it was read.
    pub logical_size: u64,
    /// The attribute of that name when it was read.
    pub fs_data_modify_time: Timestamp,
}

impl ReadData {
    /// Bytes in all segments.
    pub fn len(&self) -> usize {
        self.segments.iter().map(|segment| segment.len()).sum()
    }

    /// Whether nothing was read.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// All bytes in one piece, copied.
    pub fn to_vec(&self) -> Vec<u8> {
        self.segments.iter().flat_map(|segment| segment.iter().copied()).collect()
    }
}

/// A run of bytes of one frame, or zeros.
#[derive(Clone)]
pub struct Segment {
    /// `None` is zeros.
    frame: Option<Arc<Frame>>,
    start: u32,
    length: u32,
}

impl Segment {
    /// The bytes `range` of `frame`.
    pub(crate) fn of_frame(frame: Arc<Frame>, range: Range<usize>) -> Segment {
        debug_assert!(range.start < range.end && range.end <= FRAME_BYTES);
        Segment { frame: Some(frame), start: range.start as u32, length: range.len() as u32 }
    }

    /// `length` zeros, at most a frame's worth.
    pub(crate) fn of_zeros(length: usize) -> Segment {
        debug_assert!(0 < length && length <= FRAME_BYTES);
        Segment { frame: None, start: 0, length: length as u32 }
    }
}

impl Deref for Segment {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let bytes: &[u8; FRAME_BYTES] = match &self.frame {
            Some(frame) => frame,
            None => zeros(),
        };
        &bytes[self.start as usize..][..self.length as usize]
    }
}

impl AsRef<[u8]> for Segment {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl std::fmt::Debug for Segment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = if self.frame.is_some() { "frame" } else { "zeros" };
        write!(f, "Segment({kind}, {} bytes)", self.length)
    }
}

/// Empty frames that data for one write is received into. Byte `i` of the data lands where byte
/// `offset + i` of the object belongs in its frame, so that the cache can keep the frames as they
/// are.
#[derive(Debug)]
pub struct IncomingFrames {
    pub(crate) offset: u64,
    pub(crate) length: usize,
    pub(crate) frames: Vec<Frame>,
}

impl IncomingFrames {
    /// Where in the object the data begins, in bytes.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes of data.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there is no data at all.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Where the data goes, in order, for `readv`.
    pub fn io_slices_mut(&mut self) -> Vec<IoSliceMut<'_>> {
        let ranges = ranges(self.offset, self.length);
        self.frames
            .iter_mut()
            .zip(ranges)
            .map(|(frame, range)| IoSliceMut::new(&mut frame[range]))
            .collect()
    }

    /// The data received, in order, for a digest.
    pub fn slices(&self) -> Vec<&[u8]> {
        let ranges = ranges(self.offset, self.length);
        self.frames.iter().zip(ranges).map(|(frame, range)| &frame[range]).collect()
    }

    /// The data received, as `writev` takes it.
    pub fn io_slices(&self) -> Vec<IoSlice<'_>> {
        self.slices().into_iter().map(IoSlice::new).collect()
    }
}

/// The range of each frame that `length` bytes from `offset` on take.
pub(crate) fn ranges(offset: u64, length: usize) -> impl Iterator<Item = Range<usize>> {
    let mut start = (offset % FRAME_BYTES as u64) as usize;
    let mut left = length;
    std::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        let end = FRAME_BYTES.min(start + left);
        let range = start..end;
        left -= range.len();
        start = 0;
        Some(range)
    })
}

/// Data of one write.
#[derive(Debug)]
pub enum WriteData<'a> {
    /// Received in place: kept without a copy where it covers whole blocks. `write` refuses it
    /// when it was laid out for another offset.
    Frames(IncomingFrames),
    /// Copied into the cache.
    Slice(&'a [u8]),
}

impl WriteData<'_> {
    /// Bytes of data.
    pub fn len(&self) -> usize {
        match self {
            WriteData::Frames(incoming) => incoming.len(),
            WriteData::Slice(bytes) => bytes.len(),
        }
    }

    /// Whether there is no data at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What a write tells about the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Length of the object, in bytes, after the write.
    pub logical_size: u64,
    /// The attribute of that name after the write.
    pub fs_data_modify_time: Timestamp,
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "ranges are what is compared")]
mod tests {
    use super::*;
    use nasd_device::FramePool;

    #[test]
    fn data_lies_in_frames_as_in_the_object() {
        assert_eq!(ranges(70_000, 0).count(), 0);
        assert!(ranges(0, 1).eq(std::iter::once(0..1)));
        assert!(ranges(65_535, 2).eq([65_535..65_536, 0..1]));
        assert!(ranges(65_536 + 10, 131_072).eq([10..65_536, 0..65_536, 0..10]));
    }

    #[test]
    fn incoming_slices_are_the_data_and_nothing_else() {
        let pool = FramePool::new(2).unwrap();
        let frames = pool.allocate_many(2).unwrap();
        let mut incoming = IncomingFrames { offset: 65_530, length: 16, frames };
        let mut value = 0;
        for piece in &mut incoming.io_slices_mut() {
            for byte in piece.iter_mut() {
                *byte = value;
                value += 1;
            }
        }
        assert_eq!(value, 16);
        assert_eq!(incoming.slices().concat(), (0..16).collect::<Vec<u8>>());
        assert_eq!(incoming.frames[0][65_530], 0);
        assert_eq!(incoming.frames[1][9], 15);
    }

    #[test]
    fn segments_of_zeros_are_zeros() {
        let segment = Segment::of_zeros(5000);
        assert_eq!(segment.len(), 5000);
        assert!(segment.iter().all(|&byte| byte == 0));
    }
}
