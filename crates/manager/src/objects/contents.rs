//! Data of an object in memory, in blocks that copies share: making an object durable copies it,
//! and must not cost more the larger it is.

use std::sync::Arc;

use nasd_types::limits::BLOCK_BYTES;

type Block = [u8; BLOCK_BYTES];

/// The data. Bytes behind the end of the last block are zero.
#[derive(Clone, Debug, Default)]
pub(super) struct Contents {
    length: usize,
    blocks: Vec<Arc<Block>>,
}

impl Contents {
    pub(super) fn from_bytes(bytes: &[u8]) -> Contents {
        let mut contents = Contents::default();
        contents.write(0, bytes);
        contents
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        self.read(0, self.length)
    }

    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// Blocks that it takes.
    pub(super) fn blocks(&self) -> u64 {
        self.blocks.len() as u64
    }

    pub(super) fn resize(&mut self, length: usize) {
        self.blocks.resize_with(length.div_ceil(BLOCK_BYTES), || Arc::new([0; BLOCK_BYTES]));
        if length < self.length
            && let Some(last) = self.blocks.last_mut()
            && !length.is_multiple_of(BLOCK_BYTES)
        {
            Arc::make_mut(last)[length % BLOCK_BYTES..].fill(0);
        }
        self.length = length;
    }

    pub(super) fn read(&self, offset: usize, length: usize) -> Vec<u8> {
        let end = offset.saturating_add(length).min(self.length);
        let mut data = Vec::with_capacity(end.saturating_sub(offset));
        let mut at = offset;
        while at < end {
            let (block, from) = (at / BLOCK_BYTES, at % BLOCK_BYTES);
            let until = BLOCK_BYTES.min(from + end - at);
            data.extend_from_slice(&self.blocks[block][from..until]);
            at += until - from;
        }
        data
    }

    pub(super) fn write(&mut self, offset: usize, data: &[u8]) {
        if offset + data.len() > self.length {
            self.resize(offset + data.len());
        }
        let (mut at, mut rest) = (offset, data);
        while !rest.is_empty() {
            let (block, from) = (at / BLOCK_BYTES, at % BLOCK_BYTES);
            let (now, later) = rest.split_at(rest.len().min(BLOCK_BYTES - from));
            let bytes = Arc::make_mut(&mut self.blocks[block]);
            bytes[from..from + now.len()].copy_from_slice(now);
            (at, rest) = (at + now.len(), later);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_vector_of_bytes() {
        let (mut contents, mut vector) = (Contents::default(), Vec::new());
        let mut random = 7u64;
        for turn in 0..500u32 {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let (offset, length) =
                ((random >> 40) as usize % 20_000, (random >> 20) as usize % 9000);
            if turn % 3 == 0 {
                contents.resize(offset);
                vector.resize(offset, 0);
            } else {
                let data = vec![turn as u8; length];
                contents.write(offset, &data);
                vector.resize(vector.len().max(offset + length), 0);
                vector[offset..offset + length].copy_from_slice(&data);
            }
            assert_eq!(contents.to_bytes(), vector);
            let start = offset.min(vector.len());
            let end = (start + length).min(vector.len());
            assert_eq!(contents.read(offset, length), vector[start..end]);
            assert_eq!(Contents::from_bytes(&vector).to_bytes(), vector);
        }
    }
}
