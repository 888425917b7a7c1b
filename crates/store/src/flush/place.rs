//! Giving dirty blocks their places: free runs, extents, checksums, and the writes to make.
//!
//! All dirty blocks of an object go to the device one after the other, whatever lies between them
//! in the object, so that many small writes leave as one large one.

use std::io::IoSlice;

use nasd_device::WriteRequest;
use nasd_types::limits::BLOCK_BYTES;

use crate::frames::{Captured, FRAME_BLOCKS, block_bytes, runs};
use crate::free_map::Run;
use crate::geometry::Geometry;
use crate::medium::checksum;
use crate::metadata::record::{EXTENT_BLOCKS_MAX, Extent};

/// Most blocks of one write (1 MiB): a device takes a few such faster than one that is larger than
/// its queue.
const WRITE_BLOCKS_MAX: u64 = 256;

/// How many blocks were taken.
pub(crate) fn block_count(frames: &[Captured]) -> u64 {
    frames.iter().map(|frame| u64::from(frame.blocks.count_ones())).sum()
}

/// Assigns `places`, which have as many blocks as `frames`, in order. Returns the extents, in order of
/// blocks within the object and with zeros for checksums, and adds the writes to `requests`.
pub(crate) fn place<'f>(
    frames: &'f [Captured],
    places: &[Run],
    geometry: &Geometry,
    requests: &mut Vec<WriteRequest<'f>>,
) -> Vec<Extent> {
    let mut extents = Vec::new();
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
                        None => return extents,
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
                if let Some(request) = requests.last_mut() {
                    let bytes = &frame.frame[start * BLOCK_BYTES..end * BLOCK_BYTES];
                    request.from.push(IoSlice::new(bytes));
                }
                let logical = frame.number * FRAME_BLOCKS as u64 + start as u64;
                extend(&mut extents, logical, place.start, blocks);
                place = Run { start: place.start + blocks, blocks: place.blocks - blocks };
                start = end;
            }
        }
    }
    extents
}

/// Adds blocks to the last extent where they continue it, and to new ones otherwise.
fn extend(extents: &mut Vec<Extent>, logical: u64, physical: u64, blocks: u64) {
    let mut done = 0;
    while done < blocks {
        let (logical, physical) = (logical + done, physical + done);
        let continued = extents.last_mut().filter(|last| {
            last.end() == logical
                && last.physical + last.blocks() == physical
                && last.checksums.len() < EXTENT_BLOCKS_MAX
        });
        match continued {
            Some(last) => {
                let more = (blocks - done).min(EXTENT_BLOCKS_MAX as u64 - last.blocks());
                last.checksums.resize(last.checksums.len() + more as usize, 0);
                done += more;
            }
            None => {
                let count = (blocks - done).min(EXTENT_BLOCKS_MAX as u64);
                extents.push(Extent { logical, physical, checksums: vec![0; count as usize] });
                done += count;
            }
        }
    }
}

/// Computes the checksums of what `place` placed.
pub(crate) fn fill_checksums(frames: &[Captured], extents: &mut [Extent]) {
    let blocks = frames.iter().flat_map(|frame| {
        runs(frame.blocks).flatten().map(|block| &frame.frame[block_bytes(block)])
    });
    let sums = extents.iter_mut().flat_map(|extent| &mut extent.checksums);
    for (sum, block) in sums.zip(blocks) {
        *sum = checksum(block);
    }
}
