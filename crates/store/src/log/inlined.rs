//! Data blocks that the log has and their places do not have yet.
//!
//! A small flush writes its blocks only to the log. Until they are brought home, whoever reads those
//! data blocks from the medium gets them from here. Blocks that are freed before leave for good.

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nasd_device::{AlignedBuffer, BlockDevice, DeviceError, WriteRequest};
use nasd_types::limits::BLOCK_BYTES;

use crate::free_map::Run;
use crate::geometry::Geometry;

/// Most blocks of one write.
const WRITE_BLOCKS_MAX: usize = 256;

/// A block within contents that came in one piece.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    contents: Arc<Vec<u8>>,
    start: usize,
}

impl Block {
    /// The block's bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.contents[self.start..self.start + BLOCK_BYTES]
    }
}

/// The blocks, by data block.
#[derive(Debug, Default)]
pub(crate) struct Inlined {
    blocks: Mutex<BTreeMap<u64, Block>>,
    count: AtomicUsize,
}

impl Inlined {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Block>> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, blocks: &BTreeMap<u64, Block>) {
        self.count.store(blocks.len(), Ordering::Release);
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Takes the contents of a run of data blocks.
    pub(crate) fn insert(&self, run: Run, contents: &Arc<Vec<u8>>) {
        let mut blocks = self.lock();
        for index in 0..run.blocks {
            let start = index as usize * BLOCK_BYTES;
            blocks.insert(run.start + index, Block { contents: contents.clone(), start });
        }
        self.publish(&blocks);
    }

    /// Drops blocks that nobody names any more.
    pub(crate) fn forget(&self, runs: &[Run]) {
        if self.count() == 0 {
            return;
        }
        let mut blocks = self.lock();
        for run in runs {
            let gone: Vec<u64> = blocks.range(run.start..run.end()).map(|(&at, _)| at).collect();
            for at in gone {
                blocks.remove(&at);
            }
        }
        self.publish(&blocks);
    }

    /// What there is of a run of data blocks.
    pub(crate) fn within(&self, run: Run) -> Vec<(u64, Block)> {
        if self.count() == 0 {
            return Vec::new();
        }
        let blocks = self.lock();
        blocks.range(run.start..run.end()).map(|(&at, block)| (at, block.clone())).collect()
    }

    /// Writes every block to its place; durable with the next sync. Nobody may allocate, or add
    /// blocks, from now until they are dropped.
    pub(crate) fn bring_home(
        &self,
        device: &dyn BlockDevice,
        geometry: &Geometry,
    ) -> Result<(), DeviceError> {
        let blocks: Vec<(u64, Block)> = self.within(Run { start: 0, blocks: geometry.data_blocks });
        if blocks.is_empty() {
            return Ok(());
        }
        let mut pieces: Vec<(u64, usize)> = Vec::new();
        for (at, _) in &blocks {
            match pieces.last_mut() {
                Some((start, length))
                    if *start + *length as u64 == *at && *length < WRITE_BLOCKS_MAX =>
                {
                    *length += 1;
                }
                _ => pieces.push((*at, 1)),
            }
        }
        let mut buffer = AlignedBuffer::zeroed(blocks.len() * BLOCK_BYTES);
        for (to, (_, block)) in buffer.chunks_exact_mut(BLOCK_BYTES).zip(&blocks) {
            to.copy_from_slice(block.bytes());
        }
        let mut rest: &[u8] = &buffer;
        let mut requests = Vec::with_capacity(pieces.len());
        for (start, length) in pieces {
            let (piece, tail) = rest.split_at(length * BLOCK_BYTES);
            rest = tail;
            let from = vec![IoSlice::new(piece)];
            requests.push(WriteRequest { offset: geometry.byte_of(start), from });
        }
        device.write_batch(&requests)
    }

    /// Drops every block: they are at their places, durably. Only then, since a sync that fails may
    /// take back what was written.
    pub(crate) fn clear(&self) {
        let mut blocks = self.lock();
        blocks.clear();
        self.publish(&blocks);
    }
}
