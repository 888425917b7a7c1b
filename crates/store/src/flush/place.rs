//! Giving dirty blocks their places: free runs, extents with checksums, and the writes to make.
//!
//! All dirty blocks of an object go to the device one after the other, whatever lies between them
//! in the object, so that many small writes leave as one large one.

use std::io::IoSlice;

use nasd_device::WriteRequest;
use nasd_types::limits::BLOCK_BYTES;

use crate::frames::{Captured, FRAME_BLOCKS, runs};
use crate::free_map::Run;
use crate::geometry::Geometry;
use crate::medium::checksum;
use crate::metadata::record::{EXTENT_BLOCKS_MAX, Extent};

/// Most blocks of one write (1 MiB): a device takes a few such faster than one that is larger than
/// its queue.
const WRITE_BLOCKS_MAX: u64 = 256;

/// Where the dirty blocks of one object go.
#[derive(Debug, Default)]
pub(crate) struct Placement {
    /// In order of blocks within the object.
    pub(crate) extents: Vec<Extent>,
}

/// How many blocks were taken.
pub(crate) fn block_count(frames: &[Captured]) -> u64 {
    frames.iter().map(|frame| u64::from(frame.blocks.count_ones())).sum()
}

/// Assigns `places`, which have as many blocks as `frames`, in order. Adds the writes to `requests`.
pub(crate) fn place<'f>(
    frames: &'f [Captured],
    places: &[Run],
    geometry: &Geometry,
    requests: &mut Vec<WriteRequest<'f>>,
) -> Placement {
    let mut placement = Placement::default();
    let mut places = places.iter().copied();
    let mut place = Run { start: 0, blocks: 0 };
    let mut room = 0;
    for frame in frames {
        for run in runs(frame.blocks) {
            let mut start = run.start;
            while start < run.end {
                if place.blocks == 0 {
                    match places.next() {
                        Some(next) => place = next,
                        None => return placement,
                    }
                    room = 0;
                }
                if room == 0 {
                    let offset = geometry.byte_of(place.start);
                    requests.push(WriteRequest { offset, from: Vec::new() });
                    room = WRITE_BLOCKS_MAX;
                }
                let blocks = ((run.end - start) as u64).min(place.blocks).min(room);
                room -= blocks;
                let end = start + blocks as usize;
                let bytes = &frame.frame[start * BLOCK_BYTES..end * BLOCK_BYTES];
                let logical = frame.number * FRAME_BLOCKS as u64 + start as u64;
                placement.add(logical, place.start, bytes);
                if let Some(request) = requests.last_mut() {
                    request.from.push(IoSlice::new(bytes));
                }
                place = Run { start: place.start + blocks, blocks: place.blocks - blocks };
                start = end;
            }
        }
    }
    placement
}

impl Placement {
    /// Adds blocks, which go into the last extent where they continue it.
    fn add(&mut self, logical: u64, physical: u64, bytes: &[u8]) {
        for (index, block) in (0..).zip(bytes.chunks_exact(BLOCK_BYTES)) {
            let (logical, physical) = (logical + index, physical + index);
            let sum = checksum(block);
            match self.extents.last_mut() {
                Some(last)
                    if last.end() == logical
                        && last.physical + last.blocks() == physical
                        && last.checksums.len() < EXTENT_BLOCKS_MAX =>
                {
                    last.checksums.push(sum);
                }
                _ => {
                    let mut checksums = Vec::with_capacity(EXTENT_BLOCKS_MAX);
                    checksums.push(sum);
                    self.extents.push(Extent { logical, physical, checksums });
                }
            }
        }
    }
}
