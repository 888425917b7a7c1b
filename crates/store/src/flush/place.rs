//! Giving dirty blocks their places: free runs, extents, checksums, and the writes to make.
//!
//! All dirty blocks of an object go to the device one after the other, whatever lies between them
//! in the object, so that many small writes leave as one large one. Where the partition wants it, runs
//! of them are compressed before: how many free blocks they take has to be known.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

use nasd_device::{AlignedBuffer, Frame, WriteRequest};
use nasd_types::Compression;
use nasd_types::limits::BLOCK_BYTES;

use crate::compress::Packer;
use crate::frames::{BlockSet, Captured, Claim, FRAME_BLOCKS, block_bytes, runs, set};
use crate::free_map::Run;
use crate::geometry::Geometry;
use crate::medium::checksum;
use crate::metadata::record::{Codec, EXTENT_BLOCKS_MAX, Extent};

/// Most blocks of one write (1 MiB): a device takes a few such faster than one that is larger than
/// its queue.
const WRITE_BLOCKS_MAX: usize = 256;

/// Pieces, of a frame at most, that are done between two steps: 100 microseconds of checksums.
const PIECES_PER_STEP: usize = 16;

/// How many blocks were taken.
pub(crate) fn block_count(claims: &[Claim]) -> u64 {
    claims.iter().map(|claim| u64::from(claim.blocks.count_ones())).sum()
}

/// Blocks of a frame that are stored in one piece, if there is such a piece for them.
#[derive(Debug)]
pub(crate) struct Part {
    number: u64,
    frame: Arc<Frame>,
    /// Within the frame.
    blocks: Range<usize>,
    /// What is stored instead of them.
    stream: Option<Stream>,
}

/// Compressed blocks.
#[derive(Debug)]
struct Stream {
    compression: Compression,
    length: u32,
    /// The stream in whole blocks, with zeros behind it.
    stored: AlignedBuffer,
}

impl Part {
    /// Data blocks that it takes.
    fn data_blocks(&self) -> u64 {
        match &self.stream {
            Some(stream) => (stream.stored.len() / BLOCK_BYTES) as u64,
            None => self.blocks.len() as u64,
        }
    }

    /// Of blocks that are stored compressed: their frame, and those that have no data block to
    /// themselves, if one counts them from the first.
    pub(crate) fn shrunk(&self) -> Option<(u64, BlockSet)> {
        self.stream.as_ref()?;
        let first = self.blocks.start + self.data_blocks() as usize;
        Some((self.number, set(first..self.blocks.end)))
    }
}

/// Data blocks that parts take.
pub(crate) fn data_blocks(parts: &[Part]) -> u64 {
    parts.iter().map(Part::data_blocks).sum()
}

/// Cuts dirty blocks into parts, and compresses those that become smaller.
pub(crate) fn parts(frames: &[Captured], compression: Compression) -> Vec<Part> {
    let mut packer = Packer::new(compression);
    let mut found = Vec::with_capacity(frames.len());
    for Captured { claim: Claim { number, blocks, .. }, frame } in frames {
        for blocks in runs(*blocks) {
            let contents = &frame[blocks.start * BLOCK_BYTES..blocks.end * BLOCK_BYTES];
            let packed = packer
                .as_mut()
                .filter(|_| blocks.len() > 1)
                .and_then(|packer| packer.pack(contents));
            let stream = packed.map(|bytes| {
                let mut stored = AlignedBuffer::zeroed(bytes.len().next_multiple_of(BLOCK_BYTES));
                stored[..bytes.len()].copy_from_slice(bytes);
                Stream { compression, length: bytes.len() as u32, stored }
            });
            found.push(Part { number: *number, frame: frame.clone(), blocks, stream });
        }
    }
    found
}

/// A part, or some of its blocks, and its place.
#[derive(Debug)]
pub(crate) struct Piece {
    part: usize,
    /// Blocks of the part from its first on. All of them if it is compressed.
    blocks: Range<usize>,
    physical: u64,
}

impl Piece {
    /// What is stored.
    fn bytes<'p>(&self, parts: &'p [Part]) -> &'p [u8] {
        let part = &parts[self.part];
        match &part.stream {
            Some(stream) => &stream.stored,
            None => {
                let start = part.blocks.start;
                let blocks = start + self.blocks.start..start + self.blocks.end;
                &part.frame[blocks.start * BLOCK_BYTES..blocks.end * BLOCK_BYTES]
            }
        }
    }

    fn extent(&self, parts: &[Part]) -> Extent {
        let part = &parts[self.part];
        let first = part.number * FRAME_BLOCKS as u64 + part.blocks.start as u64;
        let codec = match &part.stream {
            None => Codec::Plain,
            Some(Stream { compression, length, .. }) => Codec::Packed {
                compression: *compression,
                stored: part.data_blocks() as u32,
                length: *length,
            },
        };
        Extent {
            logical: first + self.blocks.start as u64,
            blocks: self.blocks.len() as u64,
            physical: self.physical,
            codec,
        }
    }
}

/// Deals places out to parts. A compressed part needs one piece; free space may be in pieces that
/// are all too short.
#[derive(Debug, Default)]
pub(crate) struct Dealer {
    places: VecDeque<Run>,
    /// What was left of places in front of a part that did not fit.
    scraps: Vec<Run>,
    /// Parts for which there was no place.
    unplaced: Vec<usize>,
    pieces: Vec<Piece>,
}

impl Dealer {
    /// Deals as many data blocks as the parts take out to them, in order. The parts that find no
    /// place are not compressed any more; returns how many blocks more they take now.
    pub(crate) fn deal(&mut self, parts: &mut [Part], places: &[Run]) -> u64 {
        self.places.extend(places);
        let mut lacking = 0;
        for (index, part) in parts.iter_mut().enumerate() {
            let blocks = part.data_blocks();
            if part.stream.is_none() {
                self.put(index, part.blocks.len());
            } else if let Some(physical) = self.whole(blocks) {
                let blocks = 0..part.blocks.len();
                self.pieces.push(Piece { part: index, blocks, physical });
            } else {
                part.stream = None;
                lacking += part.data_blocks() - blocks;
                self.unplaced.push(index);
            }
        }
        lacking
    }

    /// Deals what is left, and what was lacking, out to the parts that found no place.
    pub(crate) fn finish(mut self, parts: &[Part], more: &[Run]) -> Vec<Piece> {
        self.places.extend(more);
        for index in std::mem::take(&mut self.unplaced) {
            self.put(index, parts[index].blocks.len());
        }
        self.pieces
    }

    /// A run of so many blocks.
    fn whole(&mut self, blocks: u64) -> Option<u64> {
        loop {
            let place = self.places.front_mut()?;
            if place.blocks >= blocks {
                let start = place.start;
                *place = Run { start: start + blocks, blocks: place.blocks - blocks };
                return Some(start);
            }
            self.scraps.extend(self.places.pop_front().filter(|scrap| scrap.blocks > 0));
        }
    }

    /// Deals places out to a part that may be cut.
    fn put(&mut self, part: usize, blocks: usize) {
        let mut done = 0;
        while done < blocks {
            let Some(place) = self.places.pop_front().or_else(|| self.scraps.pop()) else {
                return;
            };
            let now = ((blocks - done) as u64).min(place.blocks);
            let piece = Piece { part, blocks: done..done + now as usize, physical: place.start };
            if now > 0 {
                self.pieces.push(piece);
            }
            if now < place.blocks {
                let rest = Run { start: place.start + now, blocks: place.blocks - now };
                self.places.push_front(rest);
            }
            done += now as usize;
        }
    }
}

/// The writes that put dirty blocks to their places.
pub(crate) fn requests<'p>(
    parts: &'p [Part],
    pieces: &[Piece],
    geometry: &Geometry,
) -> Vec<WriteRequest<'p>> {
    let mut requests: Vec<WriteRequest<'p>> = Vec::new();
    let (mut next, mut room) = (u64::MAX, 0);
    for piece in pieces {
        let mut rest = piece.bytes(parts);
        let mut physical = piece.physical;
        while !rest.is_empty() {
            if next != physical || room == 0 {
                let offset = geometry.byte_of(physical);
                requests.push(WriteRequest { offset, from: Vec::new() });
                room = WRITE_BLOCKS_MAX;
            }
            let now = room.min(rest.len() / BLOCK_BYTES);
            let (bytes, later) = rest.split_at(now * BLOCK_BYTES);
            if let Some(request) = requests.last_mut() {
                request.from.push(IoSlice::new(bytes));
            }
            rest = later;
            room -= now;
            physical += now as u64;
            next = physical;
        }
    }
    requests
}

/// An extent of new blocks.
pub(crate) struct Placed {
    pub(crate) extent: Extent,
    pub(crate) sums: Vec<u32>,
    /// The data blocks' contents, if they are wanted.
    pub(crate) contents: Option<Arc<Vec<u8>>>,
}

/// The extents that dirty blocks become, with their checksums, and contents if they go to the log.
/// Calls `step` now and then.
pub(crate) fn extents(
    parts: &[Part],
    pieces: &[Piece],
    inline: bool,
    step: &mut dyn FnMut(),
) -> Vec<Placed> {
    let mut found: Vec<(Extent, Vec<u32>, Vec<u8>)> = Vec::new();
    for (number, piece) in pieces.iter().enumerate() {
        if number % PIECES_PER_STEP == 0 {
            step();
        }
        let extent = piece.extent(parts);
        match found.last_mut() {
            Some((last, ..)) if continues(last, &extent) => last.blocks += extent.blocks,
            _ => found.push((extent, Vec::new(), Vec::new())),
        }
        let Some((_, sums, contents)) = found.last_mut() else {
            continue;
        };
        let bytes = piece.bytes(parts);
        sums.extend(bytes.chunks_exact(BLOCK_BYTES).map(checksum));
        if inline {
            contents.extend_from_slice(bytes);
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

/// Whether two extents are one.
fn continues(last: &Extent, extent: &Extent) -> bool {
    !last.is_packed()
        && !extent.is_packed()
        && last.end() == extent.logical
        && last.physical + last.blocks == extent.physical
        && last.blocks + extent.blocks <= EXTENT_BLOCKS_MAX
}

/// Contents that are kept in the tree: of the first block, without the zeros at the end.
pub(crate) fn small_contents(frames: &[Captured], size: u64) -> Option<Vec<u8>> {
    let [Captured { claim: Claim { number: 0, blocks: 1, .. }, frame }] = frames else {
        return None;
    };
    let bytes = &frame[block_bytes(0)][..size as usize];
    let length = bytes.iter().rposition(|&byte| byte != 0).map_or(1, |last| last + 1);
    Some(bytes[..length].to_vec())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use nasd_device::FramePool;

    use super::*;
    use crate::metadata::record::GROUP_BLOCKS;

    /// So many whole frames, of which every other one compresses.
    fn frames(count: u64) -> Vec<Captured> {
        let pool = FramePool::new(count as usize).unwrap();
        let mut state = 1u32;
        (0..count)
            .map(|number| {
                let mut frame = pool.allocate_many(1).unwrap().remove(0);
                for byte in frame.iter_mut() {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    // Two bits of noise a byte, so that a stream takes several blocks.
                    *byte = if number % 2 == 0 { (state >> 30) as u8 } else { (state >> 24) as u8 };
                }
                let claim = Claim::whole(number);
                Captured { claim, frame: Arc::new(frame) }
            })
            .collect()
    }

    /// Deals `places` out, of as many blocks as wanted, and others if more are lacking.
    fn placed(places: impl Fn(u64) -> Vec<Run>) -> (Vec<Part>, Vec<Piece>, u64) {
        let mut parts = parts(&frames(8), Compression::Zstd);
        let mut dealer = Dealer::default();
        let places = places(data_blocks(&parts));
        let lacking = dealer.deal(&mut parts, &places);
        let more = Run { start: 1 << 20, blocks: lacking };
        let pieces = dealer.finish(&parts, &[more]);
        (parts, pieces, lacking)
    }

    /// Every block is in one extent, and no data block in two.
    fn check(parts: &[Part], pieces: &[Piece]) -> Vec<Extent> {
        let placed = extents(parts, pieces, true, &mut || ());
        let (mut logical, mut physical) = (BTreeSet::new(), BTreeSet::new());
        for Placed { extent, sums, contents } in &placed {
            assert!((extent.logical..extent.end()).all(|block| logical.insert(block)));
            let run = extent.run();
            assert!((run.start..run.end()).all(|block| physical.insert(block)));
            assert_eq!(sums.len() as u64, run.blocks);
            assert_eq!(contents.as_ref().unwrap().len() as u64, run.blocks * BLOCK_BYTES as u64);
        }
        assert!(logical.into_iter().eq(0..8 * FRAME_BLOCKS as u64));
        assert_eq!(physical.len() as u64, data_blocks(parts));
        placed.into_iter().map(|placed| placed.extent).collect()
    }

    #[test]
    fn what_compresses_takes_fewer_blocks_in_one_piece() {
        let (parts, pieces, lacking) = placed(|blocks| vec![Run { start: 10, blocks }]);
        assert_eq!(lacking, 0);
        let extents = check(&parts, &pieces);
        assert_eq!(extents.iter().filter(|extent| extent.is_packed()).count(), 4);
        assert!(data_blocks(&parts) < 4 * 16 + 4 * 8);
        let shrunk: u32 = parts.iter().filter_map(Part::shrunk).map(|s| s.1.count_ones()).sum();
        assert_eq!(u64::from(shrunk), 8 * 16 - data_blocks(&parts));
        let geometry = Geometry::plan(64 << 20, None).unwrap();
        let written: usize = requests(&parts, &pieces, &geometry)
            .iter()
            .flat_map(|request| request.from.iter().map(|from| from.len()))
            .sum();
        assert_eq!(written as u64, data_blocks(&parts) * BLOCK_BYTES as u64);
    }

    #[test]
    fn what_finds_no_piece_is_stored_as_it_is() {
        let single = |blocks| (0..blocks).map(|at| Run { start: 2 * at, blocks: 1 }).collect();
        let (parts, pieces, lacking) = placed(single);
        assert!(lacking > 0);
        assert!(check(&parts, &pieces).iter().all(|extent| !extent.is_packed()));
        // Some find one: the first in a long run, and nobody in what is left.
        let (parts, pieces, lacking) = placed(|blocks| {
            let mut places = vec![Run { start: 1 << 10, blocks: 31 }];
            places.extend((0..blocks - 31).map(|at| Run { start: 2 * at, blocks: 1 }));
            places
        });
        assert!(lacking > 0);
        let packed = check(&parts, &pieces).into_iter().filter(Extent::is_packed).count();
        assert!((1..4).contains(&packed), "{packed} found one");
        assert!(data_blocks(&parts) < GROUP_BLOCKS);
    }
}
