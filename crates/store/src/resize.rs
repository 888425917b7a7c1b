//! Growing and shrinking a drive that nobody has open.
//!
//! Only the number of data blocks changes: superblocks, log and metadata region keep their places and
//! sizes. The new size counts when the first of the two superblocks that say so is durable; whatever a
//! crash cuts off before, the drive has its old size, and is whole.
//!
//! *Growing* has nothing else to do. *Shrinking* first moves what lies behind the new end: contents are
//! read, compared with their checksums, written to free blocks and synced; then one entry of the log
//! lets everything that named the old blocks name the new ones. A compressed extent moves as a whole.
//! What was moved stays moved if the rest fails. Checksums behind the end stay in their table, where
//! those of free blocks have no meaning.

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

use nasd_device::{AlignedBuffer, BlockDevice, DeviceError, ReadRequest, WriteRequest};
use nasd_types::limits::BLOCK_BYTES;

use crate::flush::Request;
use crate::free_map::Run;
use crate::geometry::{DATA_BLOCKS_MIN, Geometry};
use crate::log::Change;
use crate::medium::checksum;
use crate::space::Space;
use crate::superblock::{self, SUPERBLOCK_OFFSETS, Superblock, write_place};
use crate::{FormatError, NoSpace, OpenError, OpenOptions, Store, StoreError};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Blocks that are moved at a time (16 MiB).
const BATCH_BLOCKS: u64 = 4096;

/// Most moves of one entry of the log.
const MOVES_MAX: usize = 4096;

/// More than a move takes in an entry of the log, in bytes.
const MOVE_BYTES: usize = 64;

/// What a change of size did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resized {
    /// Bytes of the device that were used before.
    pub before_bytes: u64,
    /// Bytes of the device that are used now.
    pub after_bytes: u64,
    /// Bytes of data that were moved.
    pub moved_bytes: u64,
}

/// Why a drive could not be given another size. Unless it says otherwise, the drive has its old one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResizeError {
    /// The caller's: the device itself has to grow first.
    #[error("the device has {capacity} bytes, and the drive can't have {bytes}")]
    DeviceTooSmall {
        /// What was asked for.
        bytes: u64,
        /// What the device has.
        capacity: u64,
    },
    /// The caller's: what the drive holds, or has reserved, does not fit.
    #[error("the drive needs at least {needed} bytes for what it holds, and can't have {bytes}")]
    DoesNotFit {
        /// What was asked for.
        bytes: u64,
        /// What is needed.
        needed: u64,
    },
    /// The caller's: the metadata region keeps its size, and is too small for more data blocks.
    #[error("the drive's metadata region can serve at most {most} bytes, and not {bytes}")]
    MetadataTooSmall {
        /// What was asked for.
        bytes: u64,
        /// What is possible.
        most: u64,
    },
    /// Nobody's: a compressed extent must stay in one piece, and no free run in front of the new end
    /// is long enough.
    #[error("no {blocks} free blocks in front of the new end lie one after the other")]
    Fragmented {
        /// How many blocks it has.
        blocks: u64,
    },
    /// The drive can't be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Moving data failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The medium's: writing a superblock failed; the drive has its old size or the new one.
    #[error("cannot write the superblock: {0}")]
    Superblock(DeviceError),
}

/// Data blocks behind the new end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Stray {
    run: Run,
    /// Whether they must stay in one piece.
    whole: bool,
    /// Extents that name some of them.
    names: u64,
}

/// Moves that are made together.
#[derive(Debug, Default)]
struct Batch {
    moves: Vec<(Run, u64)>,
    blocks: u64,
    /// Most records that they may add.
    records: u64,
}

impl Store {
    /// Lets the drive on `device`, which nobody has open as a store, use `bytes` bytes of it, less
    /// what is no whole block. To grow, let the device grow first; when it has shrunk, what is behind
    /// is no more used.
    ///
    /// # Errors
    ///
    /// See [`ResizeError`]. A crash at any moment, too, leaves a drive of the old or of the new size
    /// with everything it had.
    pub fn resize(
        device: &Arc<dyn BlockDevice>,
        options: &OpenOptions,
        bytes: u64,
    ) -> Result<Resized, ResizeError> {
        let capacity = device.capacity();
        if bytes > capacity {
            return Err(ResizeError::DeviceTooSmall { bytes, capacity });
        }
        let store = Store::open(device.clone(), options)?;
        let before = store.geometry;
        let after = store.resized_geometry(bytes)?;
        let moved_blocks = if after.data_blocks < before.data_blocks {
            store.vacate(after.data_blocks)?
        } else {
            0
        };
        store.close()?;
        if after != before {
            write_geometry(&**device, after)?;
        }
        Ok(Resized {
            before_bytes: before.device_bytes,
            after_bytes: after.device_bytes,
            moved_bytes: moved_blocks * BLOCK,
        })
    }

    /// The parts of a drive of `bytes` bytes, if it can be one.
    fn resized_geometry(&self, bytes: u64) -> Result<Geometry, ResizeError> {
        let before = self.geometry;
        let charged = self.accounts().charged();
        let least = Space::data_blocks_for(charged).max(DATA_BLOCKS_MIN);
        let needed = before.data_offset + least * BLOCK;
        let after = match before.resized(bytes) {
            Ok(after) => after,
            Err(FormatError::TooSmall { needed: empty, .. }) => {
                return Err(ResizeError::DoesNotFit { bytes, needed: needed.max(empty) });
            }
            Err(error) => return Err(OpenError::Damaged(error.to_string()).into()),
        };
        if after.data_blocks < before.data_blocks && after.data_blocks < least {
            return Err(ResizeError::DoesNotFit { bytes, needed });
        }
        if after.data_blocks > before.data_blocks {
            let most = self.metadata.data_blocks_max().map_err(StoreError::from)?;
            if after.data_blocks > most {
                let most = before.data_offset + most.max(before.data_blocks) * BLOCK;
                return Err(ResizeError::MetadataTooSmall { bytes, most });
            }
        }
        Ok(after)
    }

    /// Moves everything from block `end` on; how many blocks.
    fn vacate(&self, end: u64) -> Result<u64, ResizeError> {
        // No block is in the log alone from here on.
        self.checkpoint()?;
        self.accounts().limit(end);
        let (strays, plain): (Vec<Stray>, Vec<Stray>) =
            self.strays(end)?.into_iter().partition(|stray| stray.whole);
        let mut moved = 0;
        // Those that must stay whole go first, while long runs are left.
        for strays in [strays, plain] {
            let mut batch = Batch::default();
            for stray in strays {
                moved += stray.run.blocks;
                self.vacate_stray(stray, &mut batch)?;
            }
            self.move_batch(&mut batch)?;
        }
        self.checkpoint()?;
        if !self.strays(end)?.is_empty() {
            let what = "blocks behind the new end are still in use".to_owned();
            return Err(StoreError::Damaged(what).into());
        }
        Ok(moved)
    }

    /// What lies behind block `end`, in order, none twice.
    fn strays(&self, end: u64) -> Result<Vec<Stray>, StoreError> {
        let mut found = Vec::new();
        self.metadata.scan_extents(&mut |_, extent| {
            let (run, whole) = (extent.run(), extent.is_packed());
            if run.end() > end {
                let start = if whole { run.start } else { run.start.max(end) };
                let run = Run { start, blocks: run.end() - start };
                found.push(Stray { run, whole, names: 1 });
            }
            Ok(())
        })?;
        found.sort_unstable();
        let mut joined: Vec<Stray> = Vec::with_capacity(found.len());
        for stray in found {
            match joined.last_mut() {
                Some(last) if last.whole && last.run == stray.run => last.names += 1,
                Some(last) if !last.whole && !stray.whole && stray.run.start <= last.run.end() => {
                    let end = last.run.end().max(stray.run.end());
                    last.run.blocks = end - last.run.start;
                    last.names += 1;
                }
                _ => joined.push(stray),
            }
        }
        Ok(joined)
    }

    /// Finds places for a run, and moves what is waiting when that is enough.
    fn vacate_stray(&self, stray: Stray, batch: &mut Batch) -> Result<(), ResizeError> {
        let moves_max = MOVES_MAX.min(self.log.entry_bytes_max() / MOVE_BYTES);
        let mut rest = stray.run;
        while rest.blocks > 0 {
            let room = (moves_max - batch.moves.len()) as u64;
            let now = if stray.whole {
                rest.blocks
            } else {
                rest.blocks.min(room).min(BATCH_BLOCKS - batch.blocks)
            };
            let Some(places) = self.accounts().allocate_for_move(now, stray.whole) else {
                return Err(match stray.whole {
                    true => ResizeError::Fragmented { blocks: now },
                    false => StoreError::NoSpace(NoSpace::Data).into(),
                });
            };
            for place in places {
                batch.moves.push((Run { start: rest.start, blocks: place.blocks }, place.start));
                batch.records += 2 * stray.names + 2;
                rest = Run { start: rest.start + place.blocks, blocks: rest.blocks - place.blocks };
            }
            batch.blocks += now;
            if batch.blocks >= BATCH_BLOCKS || batch.moves.len() >= moves_max {
                self.move_batch(batch)?;
            }
        }
        Ok(())
    }

    fn move_batch(&self, batch: &mut Batch) -> Result<(), StoreError> {
        let Batch { moves, records, .. } = std::mem::take(batch);
        if moves.is_empty() {
            return Ok(());
        }
        if !self.metadata.capacity.promise(records) {
            self.metadata.measure()?;
            if !self.metadata.capacity.promise(records) {
                return Err(StoreError::NoSpace(NoSpace::Metadata));
            }
        }
        let outcome = self.copy_blocks(&moves).and_then(|()| {
            let changes = moves.iter().map(|&(from, to)| Change::Move { from, to }).collect();
            self.run_flush(Request { changes, settle: true, ..Request::default() })
        });
        self.metadata.capacity.release(records);
        outcome
    }

    /// Copies data blocks to free ones, durably. Those that do not match their checksums are not.
    fn copy_blocks(&self, moves: &[(Run, u64)]) -> Result<(), StoreError> {
        let blocks: u64 = moves.iter().map(|(from, _)| from.blocks).sum();
        let mut buffer = AlignedBuffer::zeroed(blocks as usize * BLOCK_BYTES);
        let mut rest: &mut [u8] = &mut buffer;
        let mut reads = Vec::with_capacity(moves.len());
        for (from, _) in moves {
            let (piece, tail) = rest.split_at_mut(from.blocks as usize * BLOCK_BYTES);
            rest = tail;
            let offset = self.geometry.byte_of(from.start);
            reads.push(ReadRequest { offset, into: vec![IoSliceMut::new(piece)] });
        }
        self.device.read_batch(&mut reads)?;
        drop(reads);
        let mut rest: &[u8] = &buffer;
        let mut writes = Vec::with_capacity(moves.len());
        for &(from, to) in moves {
            let (piece, tail) = rest.split_at(from.blocks as usize * BLOCK_BYTES);
            rest = tail;
            let sums = self.metadata.sums(from)?;
            let mut blocks = piece.chunks_exact(BLOCK_BYTES).zip(sums);
            if let Some(bad) = blocks.position(|(block, sum)| checksum(block) != sum) {
                return Err(self.corrupt_block(from.start + bad as u64)?);
            }
            let offset = self.geometry.byte_of(to);
            writes.push(WriteRequest { offset, from: vec![IoSlice::new(piece)] });
        }
        self.device.write_batch(&writes)?;
        Ok(self.device.sync()?)
    }

    /// What to answer when a data block is not what was written.
    fn corrupt_block(&self, at: u64) -> Result<StoreError, StoreError> {
        let Some((object, extent)) = self.metadata.owner(at)? else {
            return Ok(StoreError::Damaged(format!("data block {at} is corrupt and nobody's")));
        };
        let within = if extent.is_packed() { 0 } else { at - extent.physical };
        Ok(StoreError::Corrupt { object, block: extent.logical + within })
    }
}

/// Writes both superblocks anew, one after the other, each durable before the next.
fn write_geometry(device: &dyn BlockDevice, geometry: Geometry) -> Result<(), ResizeError> {
    let found = superblock::find(device)?.superblock;
    let sequence = found.sequence + 1;
    let block = Superblock { sequence, geometry, ..found }.encode();
    (0..SUPERBLOCK_OFFSETS.len())
        .try_for_each(|place| write_place(device, place, &block))
        .map_err(ResizeError::Superblock)
}

#[cfg(test)]
mod tests {
    use nasd_device::{FaultPlan, FaultyDevice};
    use nasd_types::{ByteRange, Compression, ObjectName, SetAttributes, Timestamp};

    use super::*;
    use crate::compress::Packer;
    use crate::metadata::record::{Codec, Extent};
    use crate::testing::{PARTITION, formatted, open};
    use crate::{ScrubCursor, ScrubFault};

    const BLOCKS: usize = 16;

    /// Half noise and half zeros.
    fn contents() -> Vec<u8> {
        let mut state = 1u64;
        let mut noise = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        let half = BLOCKS * BLOCK_BYTES / 2;
        (0..2 * half).map(|at| if at < half { noise() } else { 0 }).collect()
    }

    /// An object that is one compressed extent at the very end of the drive, and a copy that shares it.
    fn packed(device: &Arc<FaultyDevice>) -> [ObjectName; 2] {
        let store = open(device);
        let size = Some((BLOCKS * BLOCK_BYTES) as u64);
        let initial = SetAttributes { logical_size: size, ..SetAttributes::default() };
        let (object, _) = store.create(PARTITION, &initial, Timestamp(2)).unwrap();
        let name = ObjectName { partition: PARTITION, object };
        store.flush_all().unwrap();
        let mut packer = Packer::new(Compression::Lz4).unwrap();
        let mut stream = packer.pack(&contents()).unwrap().to_vec();
        let length = stream.len() as u32;
        stream.resize(stream.len().next_multiple_of(BLOCK_BYTES), 0);
        let stored = (stream.len() / BLOCK_BYTES) as u32;
        assert!(stored > 2);
        let physical = store.geometry.data_blocks - u64::from(stored);
        let mut buffer = AlignedBuffer::zeroed(stream.len());
        buffer.copy_from_slice(&stream);
        let offset = store.geometry.byte_of(physical);
        store.device.write(offset, &[IoSlice::new(&buffer)]).unwrap();
        let codec = Codec::Packed { compression: Compression::Lz4, stored, length };
        let extent = Extent { logical: 0, blocks: BLOCKS as u64, physical, codec };
        let sums = stream.chunks(BLOCK_BYTES).map(checksum).collect();
        let changes = vec![Change::Map { name, extent, sums, contents: None }];
        store.run_flush(Request { changes, settle: true, ..Request::default() }).unwrap();
        store.checkpoint().unwrap();
        drop(store);
        let store = open(device);
        let (copy, _) = store.fastcopy(name, Timestamp(3)).unwrap();
        store.close().unwrap();
        [name, ObjectName { object: copy, ..name }]
    }

    #[test]
    fn a_compressed_extent_on_the_new_end_moves_as_a_whole_for_all_who_share_it() {
        let device = formatted();
        let objects = packed(&device);
        let options = OpenOptions { cache_bytes: 4 << 20, ..OpenOptions::default() };
        let as_device: Arc<dyn BlockDevice> = device.clone();
        let resized = Store::resize(&as_device, &options, (16 << 20) - BLOCK).unwrap();
        assert!(resized.moved_bytes > BLOCK, "{resized:?}");
        let end = resized.after_bytes;
        let device = FaultyDevice::with_capacity(device.live(), end, FaultPlan::default());
        let device = Arc::new(device);
        let store = open(&device);
        for name in objects {
            let data = store.read(name, ByteRange::new(0, 1 << 20)).unwrap();
            assert!(data.to_vec() == contents());
        }
        let step = store.scrub(&mut ScrubCursor::default(), u64::MAX).unwrap();
        assert!(step.finished && step.findings.is_empty());
        assert_eq!(step.read_bytes, 2 * resized.moved_bytes);
        // Rot in it costs both objects all that is compressed together.
        let extent = store.metadata.last_extent(objects[0]).unwrap().unwrap();
        device.flip_bit(store.geometry.byte_of(extent.physical + 1), 0);
        let step = store.scrub(&mut ScrubCursor::default(), u64::MAX).unwrap();
        assert_eq!(step.findings.len(), 1);
        assert_eq!(step.findings[0].fault, ScrubFault::Checksum);
        let lost = step.findings[0].holders.iter().map(|h| (h.object, h.offset, h.bytes));
        let whole = (BLOCKS * BLOCK_BYTES) as u64;
        assert_eq!(lost.collect::<Vec<_>>(), objects.map(|name| (name, 0, whole)));
    }
}
