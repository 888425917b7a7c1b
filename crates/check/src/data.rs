//! The contents of data blocks: every block in use is read once, in order of place, and compared.

use std::collections::BTreeSet;
use std::io::IoSliceMut;
use std::sync::Arc;

use nasd_device::{AlignedBuffer, BlockDevice, ReadRequest};

use crate::bytes::{BLOCK, BLOCK_LENGTH, all_zero, read_blocks, read_bytes};
use crate::finding::{Code, Subject};
use crate::record::{EXTENT_MAX, Extent, GROUP, Record, Sums, extent_key};
use crate::replay::Homeless;
use crate::report::{Progress, Stage};
use crate::sink::Sink;
use crate::state::{State, Use};
use crate::superblock::Superblock;
use crate::tree::{Snapshot, TreeError};

/// Blocks that are read in one batch.
const WINDOW: u64 = 1024;

/// What the contents call for.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    /// Blocks of objects whose contents are lost: partition, object, first and last but one.
    pub(crate) lost: BTreeSet<(u32, u64, u64, u64)>,
    /// Last blocks with bytes behind the object's size: partition, object, block of the object,
    /// data block, bytes that count.
    pub(crate) tails: Vec<(u32, u64, u64, u64, u16)>,
}

/// The pass over the blocks.
pub(crate) struct DataCheck<'a> {
    pub(crate) device: &'a Arc<dyn BlockDevice>,
    pub(crate) superblock: &'a Superblock,
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) state: &'a State,
    pub(crate) homeless: &'a Homeless,
    pub(crate) sink: &'a mut Sink,
    pub(crate) progress: &'a mut dyn FnMut(Progress),
    pub(crate) wanted: Wanted,
    pub(crate) verified: u64,
    sums: Option<(u64, Option<Sums>)>,
    window: Window,
    /// Blocks of the window that are not what they should be.
    bad: BTreeSet<u64>,
}

/// Blocks in memory.
struct Window {
    /// Runs of data blocks: first, number.
    runs: Vec<(u64, u64)>,
    blocks: u64,
    buffer: AlignedBuffer,
}

impl Window {
    fn position(&self, block: u64) -> Option<usize> {
        let mut before = 0;
        for &(first, count) in &self.runs {
            if (first..first + count).contains(&block) {
                return Some((before + block - first) as usize * BLOCK_LENGTH);
            }
            before += count;
        }
        None
    }
}

impl<'a> DataCheck<'a> {
    #[allow(clippy::too_many_arguments, reason = "each is one thing that the pass looks at")]
    pub(crate) fn new(
        device: &'a Arc<dyn BlockDevice>,
        superblock: &'a Superblock,
        snapshot: &'a Snapshot,
        state: &'a State,
        homeless: &'a Homeless,
        sink: &'a mut Sink,
        progress: &'a mut dyn FnMut(Progress),
    ) -> DataCheck<'a> {
        let buffer = AlignedBuffer::zeroed(WINDOW as usize * BLOCK_LENGTH);
        DataCheck {
            device,
            superblock,
            snapshot,
            state,
            homeless,
            sink,
            progress,
            wanted: Wanted::default(),
            verified: 0,
            sums: None,
            window: Window { runs: Vec::new(), blocks: 0, buffer },
            bad: BTreeSet::new(),
        }
    }

    /// Reads everything.
    pub(crate) fn run(&mut self) -> Result<(), TreeError> {
        let total = self.state.blocks_in_use();
        let mut covered = 0;
        let mut pending: Vec<usize> = Vec::new();
        for (index, used) in self.state.uses.iter().enumerate() {
            let mut at = used.physical.max(covered);
            covered = covered.max(used.end());
            pending.push(index);
            while at < used.end() {
                let blocks = (used.end() - at).min(WINDOW - self.window.blocks);
                match self.window.runs.last_mut() {
                    Some((first, count)) if *first + *count == at => *count += blocks,
                    _ => self.window.runs.push((at, blocks)),
                }
                self.window.blocks += blocks;
                at += blocks;
                if self.window.blocks == WINDOW {
                    self.look(&mut pending, at, total)?;
                }
            }
        }
        self.look(&mut pending, covered, total)
    }

    /// Reads and judges the window, and the extents that end in it.
    fn look(&mut self, pending: &mut Vec<usize>, end: u64, total: u64) -> Result<(), TreeError> {
        self.read();
        for (first, count) in self.window.runs.clone() {
            for block in first..first + count {
                self.block(block)?;
            }
        }
        for index in pending.extract_if(.., |index| self.state.uses[*index].end() <= end) {
            let used = self.state.uses[index];
            if used.is_compressed() {
                self.compressed(&used)?;
            } else if used.tail != 0 {
                self.tail(&used);
            }
        }
        self.verified += self.window.blocks;
        self.window.runs.clear();
        self.window.blocks = 0;
        self.bad.clear();
        (self.progress)(Progress { stage: Stage::Data, done: self.verified, total });
        Ok(())
    }

    /// Fills the window. What can't be read in one go is read block by block.
    fn read(&mut self) {
        let superblock = self.superblock;
        let mut requests = Vec::new();
        let mut rest: &mut [u8] = &mut self.window.buffer;
        for &(first, count) in &self.window.runs {
            let (now, later) = rest.split_at_mut(count as usize * BLOCK_LENGTH);
            let into = vec![IoSliceMut::new(now)];
            requests.push(ReadRequest { offset: superblock.byte_of(first), into });
            rest = later;
        }
        if self.device.read_batch(&mut requests).is_ok() {
            return;
        }
        drop(requests);
        for (first, count) in self.window.runs.clone() {
            for block in first..first + count {
                let Some(at) = self.window.position(block) else { continue };
                if self.homeless.contains_key(&block) {
                    continue;
                }
                match read_blocks(&**self.device, superblock.byte_of(block), BLOCK_LENGTH) {
                    Ok(bytes) => {
                        self.window.buffer[at..at + BLOCK_LENGTH].copy_from_slice(&bytes);
                    }
                    Err(error) => {
                        self.bad.insert(block);
                        self.lost(block, Code::BlockUnreadable, &error.to_string());
                    }
                }
            }
        }
    }

    fn block(&mut self, block: u64) -> Result<(), TreeError> {
        if self.bad.contains(&block) {
            return Ok(());
        }
        let Some(at) = self.window.position(block) else { return Ok(()) };
        if let Some(place) = self.homeless.get(&block) {
            match read_bytes(&**self.device, *place, BLOCK_LENGTH) {
                Ok(bytes) => self.window.buffer[at..at + BLOCK_LENGTH].copy_from_slice(&bytes),
                Err(error) => {
                    self.bad.insert(block);
                    self.lost(block, Code::BlockUnreadable, &error.to_string());
                    return Ok(());
                }
            }
        }
        // A group without a valid record has been reported with the tables.
        let Some(wanted) = self.sum_of(block)? else { return Ok(()) };
        let found = crc32c::crc32c(&self.window.buffer[at..at + BLOCK_LENGTH]);
        if found != wanted {
            self.bad.insert(block);
            let detail = format!("checksum {found:08x} where {wanted:08x} should be");
            self.lost(block, Code::BlockDamaged, &detail);
        }
        Ok(())
    }

    fn sum_of(&mut self, block: u64) -> Result<Option<u32>, TreeError> {
        let group = block / GROUP;
        if self.sums.as_ref().is_none_or(|(at, _)| *at != group) {
            let value = self.snapshot.sums.get(group)?;
            let decoded = value.and_then(|v| Sums::decode(&group.to_be_bytes(), v.value()).ok());
            self.sums = Some((group, decoded.map(|(sums, _)| sums)));
        }
        let sums = self.sums.as_ref().and_then(|(_, sums)| sums.as_ref());
        Ok(sums.map(|sums| sums.0[(block % GROUP) as usize]))
    }

    /// Reports a block to every object that has it.
    fn lost(&mut self, block: u64, code: Code, detail: &str) {
        let uses = &self.state.uses;
        let behind = uses.partition_point(|used| used.physical <= block);
        let reach = u64::from(EXTENT_MAX);
        let near = uses[..behind].partition_point(|used| used.physical + reach <= block);
        for used in uses[near..behind].iter().filter(|used| used.end() > block) {
            let subject = Subject::at(used.partition, used.object, used.offset_of(block));
            self.sink.add(code, subject, format!("data block {block}: {detail}"));
            if !self.sink.wants_fixes() {
                continue;
            }
            let first = used.offset_of(block) / BLOCK;
            // Any block of a compressed extent stands for the whole, which a cut drops.
            self.wanted.lost.insert((used.partition, used.object, first, first + 1));
        }
    }

    /// A block's contents, if they are at hand and right as far as is known.
    fn contents(&self, block: u64) -> Option<Vec<u8>> {
        if self.bad.contains(&block) {
            return None;
        }
        if let Some(at) = self.window.position(block) {
            return Some(self.window.buffer[at..at + BLOCK_LENGTH].to_vec());
        }
        let place = self.homeless.get(&block).copied();
        let place = place.unwrap_or_else(|| self.superblock.byte_of(block));
        read_bytes(&**self.device, place, BLOCK_LENGTH).ok()
    }

    fn tail(&mut self, used: &Use) {
        let block = used.end() - 1;
        let Some(bytes) = self.contents(block) else { return };
        let rest = &bytes[usize::from(used.tail)..];
        if all_zero(rest) {
            return;
        }
        let logical = used.logical + used.stored() - 1;
        self.tail_found(used, logical, rest.len(), block);
        if self.sink.wants_fixes() {
            let tail = (used.partition, used.object, logical, block, used.tail);
            self.wanted.tails.push(tail);
        }
    }

    fn tail_found(&mut self, used: &Use, logical: u64, length: usize, block: u64) {
        let offset = logical * BLOCK + u64::from(used.tail);
        let subject = Subject::at(used.partition, used.object, offset);
        let detail = format!("{length} bytes of data block {block} are not all zero");
        self.sink.add(Code::TailNotZero, subject, detail);
    }

    fn compressed(&mut self, used: &Use) -> Result<(), TreeError> {
        let key = extent_key(used.partition, used.object, used.logical);
        let Some(value) = self.snapshot.extents.get(&key)? else { return Ok(()) };
        let Ok((extent, _)) = Extent::decode(&key, value.value()) else { return Ok(()) };
        let mut stream = Vec::new();
        for block in used.physical..used.end() {
            let mut bytes = self.contents(block);
            // Read again outside of the window, the block was judged there already.
            if self.window.position(block).is_none() && bytes.is_some() {
                let right = self.sum_of(block)?;
                bytes = bytes.filter(|b| right.is_none_or(|sum| sum == crc32c::crc32c(b)));
            }
            let Some(bytes) = bytes else { return Ok(()) };
            stream.extend_from_slice(&bytes);
        }
        let subject = Subject::at(used.partition, used.object, used.logical * BLOCK);
        let length = (extent.length as usize).min(stream.len());
        let size = extent.blocks as usize * BLOCK_LENGTH;
        match decompress(extent.codec, &stream[..length], size) {
            Ok(bytes) => {
                if !all_zero(&stream[length..]) {
                    let detail = format!("behind {length} bytes of compressed contents");
                    self.sink.add(Code::StreamPaddingNotZero, subject, detail);
                }
                let last = size - BLOCK_LENGTH + usize::from(used.tail);
                let rest = if used.tail == 0 { &[][..] } else { &bytes[last..] };
                if !all_zero(rest) {
                    let logical = used.logical + u64::from(extent.blocks) - 1;
                    self.tail_found(used, logical, rest.len(), used.physical);
                }
            }
            Err(reason) => {
                self.sink.add(Code::StreamDamaged, subject, reason);
                if self.sink.wants_fixes() {
                    let end = used.logical + u64::from(extent.blocks);
                    let lost = (used.partition, used.object, used.logical, end);
                    self.wanted.lost.insert(lost);
                }
            }
        }
        Ok(())
    }
}

/// Decompresses a stream of exactly `size` bytes.
fn decompress(codec: u8, stream: &[u8], size: usize) -> Result<Vec<u8>, String> {
    let bytes = match codec {
        1 => lz4_flex::block::decompress(stream, size).map_err(|error| error.to_string())?,
        2 => zstd::bulk::decompress(stream, size).map_err(|error| error.to_string())?,
        _ => return Err(format!("codec {codec} is not known")),
    };
    if bytes.len() == size {
        return Ok(bytes);
    }
    Err(format!("it has {} bytes where {size} should be", bytes.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn streams_must_have_the_right_length() {
        let plain = vec![7; 8192];
        let lz4 = lz4_flex::block::compress(&plain);
        assert_eq!(decompress(1, &lz4, 8192), Ok(plain.clone()));
        assert!(decompress(1, &lz4, 4096).is_err());
        assert!(decompress(1, &lz4, 16384).is_err());
        let zstd = zstd::bulk::compress(&plain, 1).unwrap();
        assert_eq!(decompress(2, &zstd, 8192), Ok(plain));
        assert!(decompress(2, &zstd, 16384).is_err());
        assert!(decompress(2, &zstd[..zstd.len() - 1], 8192).is_err());
    }

    proptest! {
        #[test]
        fn any_stream_is_refused_or_taken_without_a_panic(
            stream in prop::collection::vec(any::<u8>(), 0..4096), codec in 0u8..4,
        ) {
            let _ = decompress(codec, &stream, 65536);
        }
    }
}
