//! Giving dirty blocks their places: free runs, extents, checksums, and the writes to make.
//!
//! All dirty blocks of an object go to the device one after the other, whatever lies between them
//! in the object, so that many small writes leave as one large one.

use std::io::IoSlice;
use std::sync::Arc;

use nasd_device::WriteRequest;
use nasd_types::limits::BLOCK_BYTES;

use crate::frames::{Captured, FRAME_BLOCKS, block_bytes, runs};
use crate::free_map::Run;
use crate::geometry::Geometry;
use crate::medium::checksum;
use crate::metadata::record::{Codec, EXTENT_BLOCKS_MAX, Extent};

/// Most blocks of one write (1 MiB): a device takes a few such faster than one that is larger than
/// its queue.
const WRITE_BLOCKS_MAX: u64 = 256;

/// How many blocks were taken.
pub(crate) fn block_count(frames: &[Captured]) -> u64 {
    frames.iter().map(|frame| u64::from(frame.blocks.count_ones())).sum()
}

/// Blocks of a frame that get places one after the other.
struct Piece<'f> {
    frame: &'f Captured,
    /// The first, within the frame.
    start: usize,
    blocks: u64,
    physical: u64,
}

impl Piece<'_> {
    fn logical(&self) -> u64 {
        self.frame.number * FRAME_BLOCKS as u64 + self.start as u64
    }

    fn bytes(&self) -> &[u8] {
        let end = self.start + self.blocks as usize;
        &self.frame.frame[self.start * BLOCK_BYTES..end * BLOCK_BYTES]
    }
}

/// Deals `places`, which have as many blocks as `frames`, out to them in order.
fn deal<'f>(frames: &'f [Captured], places: &[Run]) -> Vec<Piece<'f>> {
    let mut pieces = Vec::with_capacity(frames.len());
    let mut places = places.iter().copied();
    let mut place = Run { start: 0, blocks: 0 };
    for frame in frames {
        for run in runs(frame.blocks) {
            let mut start = run.start;
            while start < run.end {
                if place.blocks == 0 {
                    match places.next() {
                        Some(next) => place = next,
                        None => return pieces,
                    }
                }
                let blocks = ((run.end - start) as u64).min(place.blocks);
                pieces.push(Piece { frame, start, blocks, physical: place.start });
                place = Run { start: place.start + blocks, blocks: place.blocks - blocks };
                start += blocks as usize;
            }
        }
    }
    pieces
}

/// The writes that put dirty blocks to their places.
pub(crate) fn requests<'f>(
    frames: &'f [Captured],
    places: &[Run],
    geometry: &Geometry,
) -> Vec<WriteRequest<'f>> {
    let mut requests: Vec<WriteRequest<'f>> = Vec::new();
    let (mut next, mut room) = (u64::MAX, 0);
    for piece in deal(frames, places) {
        let Piece { frame, start, blocks, physical } = piece;
        let mut done = 0;
        while done < blocks {
            if next != physical + done || room == 0 {
                let offset = geometry.byte_of(physical + done);
                requests.push(WriteRequest { offset, from: Vec::new() });
                room = WRITE_BLOCKS_MAX;
            }
            let now = room.min(blocks - done);
            let from = (start as u64 + done) as usize;
            if let Some(request) = requests.last_mut() {
                let bytes = from * BLOCK_BYTES..(from + now as usize) * BLOCK_BYTES;
                request.from.push(IoSlice::new(&frame.frame[bytes]));
            }
            room -= now;
            done += now;
            next = physical + done;
        }
    }
    requests
}

/// An extent of new blocks.
pub(crate) struct Placed {
    pub(crate) extent: Extent,
    pub(crate) sums: Vec<u32>,
    /// The blocks' contents, if they are wanted.
    pub(crate) contents: Option<Arc<Vec<u8>>>,
}

/// The extents that dirty blocks become, with their checksums, and contents if they go to the log.
pub(crate) fn extents(frames: &[Captured], places: &[Run], inline: bool) -> Vec<Placed> {
    let mut found: Vec<(Extent, Vec<u32>, Vec<u8>)> = Vec::new();
    for piece in deal(frames, places) {
        let (logical, physical, blocks) = (piece.logical(), piece.physical, piece.blocks);
        let continues = found.last().is_some_and(|(last, ..)| {
            last.end() == logical
                && last.physical + last.blocks == physical
                && last.blocks + blocks <= EXTENT_BLOCKS_MAX
        });
        if !continues {
            let extent = Extent { logical, blocks: 0, physical, codec: Codec::Plain };
            found.push((extent, Vec::new(), Vec::new()));
        }
        let Some((extent, sums, contents)) = found.last_mut() else {
            continue;
        };
        extent.blocks += blocks;
        sums.extend(piece.bytes().chunks_exact(BLOCK_BYTES).map(checksum));
        if inline {
            contents.extend_from_slice(piece.bytes());
        }
    }
    found
        .into_iter()
        .map(|(extent, sums, contents)| {
            let contents = inline.then(|| Arc::new(contents));
            Placed { extent, sums, contents }
        })
        .collect()
}

/// Contents that are kept in the tree: of the first block, without the zeros at the end.
pub(crate) fn small_contents(frames: &[Captured], size: u64) -> Option<Vec<u8>> {
    let [Captured { number: 0, frame, blocks: 1, .. }] = frames else {
        return None;
    };
    let bytes = &frame[block_bytes(0)][..size as usize];
    let length = bytes.iter().rposition(|&byte| byte != 0).map_or(1, |last| last + 1);
    Some(bytes[..length].to_vec())
}
