//! An object of a drive in memory, with what a drive's store does to one (`nasd_store`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use nasd_protocol::Status;
use nasd_types::limits::{BLOCK_BYTES, MAX_OBJECT_BYTES};
use nasd_types::{
    Attributes, ByteRange, FS_SPECIFIC_BYTES, ObjectId, SeekTarget, SetAttributes, Timestamp,
    WriteOrder,
};

pub const BLOCK: u64 = BLOCK_BYTES as u64;

/// Attributes and blocks; a block that is not there is a hole.
#[derive(Clone, Debug)]
pub struct Object {
    attributes: Attributes,
    blocks: BTreeMap<u64, Arc<[u8; BLOCK_BYTES]>>,
    /// Blocks that can't be read.
    bad: BTreeSet<u64>,
    /// The latest order of each range, since the drive was started.
    pub orders: Vec<(ByteRange, WriteOrder)>,
}

impl Object {
    pub fn new(initial: &SetAttributes, now: Timestamp) -> Result<Object, Status> {
        check(initial)?;
        let attributes = Attributes {
            access_control_version: initial.access_control_version.unwrap_or_default(),
            nearby_object: initial.nearby_object.unwrap_or_default(),
            copied_object: ObjectId(0),
            logical_size: initial.logical_size.unwrap_or_default(),
            blocks_allocated: initial.blocks_allocated.unwrap_or_default(),
            blocks_used: 0,
            block_size: BLOCK_BYTES as u32,
            create_time: now,
            data_modify_time: now,
            data_version: now.0,
            attribute_modify_time: now,
            fs_data_modify_time: initial.fs_data_modify_time.unwrap_or(now),
            fs_attribute_modify_time: initial.fs_attribute_modify_time.unwrap_or(now),
            fs_specific: initial
                .fs_specific
                .clone()
                .unwrap_or_else(|| Box::new([0; FS_SPECIFIC_BYTES])),
        };
        Ok(Object { attributes, blocks: BTreeMap::new(), bad: BTreeSet::new(), orders: Vec::new() })
    }

    /// A copy of it that was made now.
    pub fn copied(&self, source: ObjectId, now: Timestamp) -> Object {
        let attributes = Attributes {
            copied_object: source,
            blocks_allocated: 0,
            create_time: now,
            data_modify_time: now,
            attribute_modify_time: now,
            ..self.attributes.clone()
        };
        let (blocks, bad) = (self.blocks.clone(), self.bad.clone());
        Object { attributes, blocks, bad, orders: Vec::new() }
    }

    pub fn attributes(&self) -> Attributes {
        Attributes {
            blocks_used: self.blocks.len() as u64,
            data_version: self.attributes.data_modify_time.0,
            ..self.attributes.clone()
        }
    }

    pub fn size(&self) -> u64 {
        self.attributes.logical_size
    }

    pub fn version(&self) -> u64 {
        self.attributes.access_control_version
    }

    pub fn modified(&self) -> Timestamp {
        self.attributes.fs_data_modify_time
    }

    fn touched(&mut self, now: Timestamp) {
        self.attributes.data_modify_time = now;
        self.attributes.fs_data_modify_time = now;
    }

    /// Some block that there is becomes one that can't be read; whether there is any.
    pub fn spoil(&mut self, turn: usize) -> bool {
        let count = self.blocks.len().max(1);
        let found = self.blocks.keys().nth(turn % count).copied();
        self.bad.extend(found);
        found.is_some()
    }

    /// Whether there are blocks that can't be read.
    pub fn is_spoilt(&self) -> bool {
        !self.bad.is_empty()
    }

    /// Whether what a range has in common with the object can be read.
    pub fn is_readable(&self, range: ByteRange) -> Result<(), Status> {
        let range = range.intersection(&ByteRange::new(0, self.size()));
        let blocks = range.offset / BLOCK..range.end().div_ceil(BLOCK);
        match !range.is_empty() && self.bad.range(blocks).next().is_some() {
            true => Err(Status::Corrupt),
            false => Ok(()),
        }
    }

    /// Whether nothing has to be read to write a range: what lies behind the end is zeros.
    pub fn is_writable(&self, range: ByteRange) -> Result<(), Status> {
        let (first, last) = (range.offset / BLOCK, range.end() / BLOCK);
        let is_kept = |block: u64| {
            let keeps_head = block == first && !range.offset.is_multiple_of(BLOCK);
            let keeps_tail = block == last && range.end() < self.size();
            keeps_head || keeps_tail
        };
        let ends = [first, last].into_iter().filter(|block| block * BLOCK < range.end());
        match ends.into_iter().any(|block| self.bad.contains(&block) && is_kept(block)) {
            true => Err(Status::Corrupt),
            false => Ok(()),
        }
    }

    pub fn read(&self, range: ByteRange) -> Vec<u8> {
        let range = range.intersection(&ByteRange::new(0, self.size()));
        let mut data = vec![0; range.length as usize];
        self.each_block(range, |object, block, within, at| {
            if let Some(bytes) = object.blocks.get(&block) {
                data[at..at + within.len()].copy_from_slice(&bytes[within]);
            }
        });
        data
    }

    fn each_block(
        &self,
        range: ByteRange,
        mut with: impl FnMut(&Object, u64, std::ops::Range<usize>, usize),
    ) {
        let mut at = range.offset;
        while at < range.end() {
            let end = ((at / BLOCK + 1) * BLOCK).min(range.end());
            let within = (at % BLOCK) as usize..(at % BLOCK + end - at) as usize;
            with(self, at / BLOCK, within, (at - range.offset) as usize);
            at = end;
        }
    }

    pub fn write(&mut self, offset: u64, data: &[u8], now: Timestamp) {
        let mut at = 0;
        while at < data.len() {
            let (block, within) =
                ((offset + at as u64) / BLOCK, ((offset + at as u64) % BLOCK) as usize);
            let length = (data.len() - at).min(BLOCK_BYTES - within);
            let bytes = self.blocks.entry(block).or_insert_with(|| Arc::new([0; BLOCK_BYTES]));
            self.bad.remove(&block);
            Arc::make_mut(bytes)[within..within + length].copy_from_slice(&data[at..at + length]);
            at += length;
        }
        self.attributes.logical_size = self.size().max(offset + data.len() as u64);
        self.touched(now);
    }

    pub fn setattr(&mut self, changes: &SetAttributes, now: Timestamp) -> Result<(), Status> {
        check(changes)?;
        if changes.access_control_version.is_some_and(|asked| asked < self.version()) {
            return Err(Status::BadArgument);
        }
        let old_size = self.size();
        let size = changes.logical_size.unwrap_or(old_size);
        if changes.access_control_version == Some(self.version()) && size != old_size {
            return Err(Status::BadArgument);
        }
        if size < old_size {
            if !size.is_multiple_of(BLOCK) && self.bad.contains(&(size / BLOCK)) {
                return Err(Status::Corrupt);
            }
            self.cut(size);
        }
        let present = &mut self.attributes;
        present.logical_size = size;
        if let Some(blocks) = changes.blocks_allocated {
            present.blocks_allocated = blocks;
        } else if size < old_size {
            present.blocks_allocated = present.blocks_allocated.min(size.div_ceil(BLOCK));
        }
        if size != old_size {
            present.data_modify_time = now;
            present.fs_data_modify_time = now;
        }
        present.attribute_modify_time = now;
        present.fs_attribute_modify_time = changes.fs_attribute_modify_time.unwrap_or(now);
        if let Some(time) = changes.fs_data_modify_time {
            present.fs_data_modify_time = time;
        }
        if let Some(version) = changes.access_control_version {
            present.access_control_version = version;
        }
        if let Some(nearby) = changes.nearby_object {
            present.nearby_object = nearby;
        }
        if let Some(bytes) = &changes.fs_specific {
            present.fs_specific = bytes.clone();
        }
        Ok(())
    }

    fn cut(&mut self, size: u64) {
        self.blocks.retain(|block, _| *block < size.div_ceil(BLOCK));
        self.bad.retain(|block| *block < size.div_ceil(BLOCK));
        self.zero(size, size.next_multiple_of(BLOCK));
    }

    /// Zeros within one block, if it is there.
    fn zero(&mut self, from: u64, to: u64) {
        if from < to
            && let Some(bytes) = self.blocks.get_mut(&(from / BLOCK))
        {
            let within = (from % BLOCK) as usize;
            Arc::make_mut(bytes)[within..within + (to - from) as usize].fill(0);
        }
    }

    pub fn punch(&mut self, range: ByteRange, now: Timestamp) {
        let range = range.intersection(&ByteRange::new(0, self.size()));
        if range.is_empty() {
            return;
        }
        let ends = range.end() == self.size();
        let end = if ends { range.end().next_multiple_of(BLOCK) } else { range.end() };
        let (from, to) = (range.offset.div_ceil(BLOCK), end / BLOCK);
        if from > to {
            self.zero(range.offset, end);
        } else {
            self.blocks.retain(|block, _| *block < from || *block >= to);
            self.bad.retain(|block| *block < from || *block >= to);
            self.zero(range.offset, from * BLOCK);
            self.zero(to * BLOCK, end);
        }
        self.touched(now);
    }

    pub fn seek(&self, offset: u64, target: SeekTarget) -> Option<u64> {
        if offset >= self.size() {
            return None;
        }
        let mut block = offset / BLOCK;
        match target {
            SeekTarget::Data => {
                let found = self.blocks.range(block..).next()?.0 * BLOCK;
                Some(found.max(offset)).filter(|found| *found < self.size())
            }
            SeekTarget::Hole => {
                while self.blocks.contains_key(&block) {
                    block += 1;
                }
                Some((block * BLOCK).max(offset).min(self.size()))
            }
        }
    }

    /// Blocks of a range that are not there.
    pub fn blocks_required(&self, range: ByteRange) -> u64 {
        let blocks = range.offset / BLOCK..range.end().div_ceil(BLOCK);
        let count = blocks.end - blocks.start;
        count - self.blocks.range(blocks).count() as u64
    }

    /// One piece of a copy from `source`: how many bytes.
    pub fn copy_piece(
        &mut self,
        source: &Object,
        (from, to): (u64, u64),
        length: u64,
        now: Timestamp,
    ) -> u64 {
        let length = length.min((from / BLOCK + 1) * BLOCK - from);
        if source.blocks.contains_key(&(from / BLOCK)) {
            let data = source.read(ByteRange::new(from, length));
            self.write(to, &data, now);
            return length;
        }
        // A hole stays one.
        if to < self.size() {
            let length = length.min(self.size() - to);
            self.punch(ByteRange::new(to, length), now);
            return length;
        }
        self.write(to + length - 1, &[0], now);
        length
    }
}

fn check(changes: &SetAttributes) -> Result<(), Status> {
    if changes.block_size.is_some_and(|bytes| bytes as usize != BLOCK_BYTES) {
        return Err(Status::NotAdjustable);
    }
    match changes.logical_size.is_some_and(|size| size > MAX_OBJECT_BYTES) {
        true => Err(Status::TooLarge),
        false => Ok(()),
    }
}
