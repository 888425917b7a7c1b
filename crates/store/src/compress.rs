//! Compressing runs of blocks, and back. Pure.

use nasd_types::Compression;
use nasd_types::limits::BLOCK_BYTES;

/// The level of Zstandard: the quickest of those that compress well.
const ZSTD_LEVEL: i32 = 1;

/// A run of blocks is stored compressed only if that saves one data block in so many: less is not
/// worth reading the whole run for each of its blocks.
const GAIN_SHARE: usize = 8;

/// After so many runs in a row that did not compress, ever more of those that follow are not tried.
const PATIENCE: u32 = 8;

/// Most runs that are not tried before the next one is.
const SKIPPED_MAX: u32 = 15;

/// Most data blocks that the stream for so many blocks may take.
fn most_blocks(blocks: usize) -> usize {
    blocks - blocks.div_ceil(GAIN_SHARE)
}

/// Compresses one run after the other, with memory that all of them use. Among contents that do not
/// compress it only tries some.
pub(crate) struct Packer {
    engine: Engine,
    scratch: Vec<u8>,
    /// Runs in a row that were tried and did not compress.
    failures: u32,
    /// Runs that are not tried before the next one is.
    skip: u32,
}

enum Engine {
    Lz4,
    Zstd(zstd::bulk::Compressor<'static>),
}

impl Packer {
    /// `None` if nothing is to be compressed, or nothing can be.
    pub(crate) fn new(compression: Compression) -> Option<Packer> {
        let engine = match compression {
            Compression::None => return None,
            Compression::Lz4 => Engine::Lz4,
            Compression::Zstd => Engine::Zstd(zstd::bulk::Compressor::new(ZSTD_LEVEL).ok()?),
        };
        Some(Packer { engine, scratch: Vec::new(), failures: 0, skip: 0 })
    }

    /// The stream for `contents`, which are whole blocks, if it takes few enough data blocks and
    /// is tried.
    pub(crate) fn pack(&mut self, contents: &[u8]) -> Option<&[u8]> {
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        match self.compress(contents) {
            Some(length) => {
                self.failures = 0;
                Some(&self.scratch[..length])
            }
            None => {
                self.failures += 1;
                self.skip = self.failures.saturating_sub(PATIENCE).min(SKIPPED_MAX);
                None
            }
        }
    }

    /// The length of the stream, which is in the scratch memory.
    fn compress(&mut self, contents: &[u8]) -> Option<usize> {
        let most = most_blocks(contents.len() / BLOCK_BYTES) * BLOCK_BYTES;
        let length = match &mut self.engine {
            Engine::Lz4 => {
                let bound = lz4_flex::block::get_maximum_output_size(contents.len());
                self.scratch.resize(bound.max(self.scratch.len()), 0);
                lz4_flex::block::compress_into(contents, &mut self.scratch).ok()?
            }
            Engine::Zstd(compressor) => {
                // A stream that does not fit ends early.
                self.scratch.resize(most.max(self.scratch.len()), 0);
                compressor.compress_to_buffer(contents, &mut self.scratch[..most]).ok()?
            }
        };
        (length <= most).then_some(length)
    }
}

/// The contents, which are `bytes` bytes, or `None` if the stream is not one of such.
pub(crate) fn unpack(compression: Compression, stream: &[u8], bytes: usize) -> Option<Vec<u8>> {
    let contents = match compression {
        Compression::None => return None,
        Compression::Lz4 => lz4_flex::block::decompress(stream, bytes).ok()?,
        Compression::Zstd => zstd::bulk::decompress(stream, bytes).ok()?,
    };
    (contents.len() == bytes).then_some(contents)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_compresses_comes_back_and_noise_is_left_alone() {
        let text = b"all work and no play ".repeat(3000)[..8 * BLOCK_BYTES].to_vec();
        let mut state = 7u32;
        let noise: Vec<u8> = (0..8 * BLOCK_BYTES)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            })
            .collect();
        for compression in [Compression::Lz4, Compression::Zstd] {
            let mut packer = Packer::new(compression).unwrap();
            let stream = packer.pack(&text).unwrap().to_vec();
            assert!(stream.len() < BLOCK_BYTES);
            assert_eq!(unpack(compression, &stream, text.len()), Some(text.clone()));
            assert_eq!(unpack(compression, &stream, text.len() - 1), None);
            assert_eq!(unpack(compression, &stream[1..], text.len()), None);
            assert_eq!(packer.pack(&noise), None);
            // What did not compress leaves nothing behind.
            assert_eq!(packer.pack(&text), Some(&stream[..]));
            // Two blocks become one, or are left alone.
            assert!(packer.pack(&text[..2 * BLOCK_BYTES]).is_some());
            assert_eq!(packer.pack(&noise[..2 * BLOCK_BYTES]), None);
            assert_eq!(packer.pack(&text[..BLOCK_BYTES]), None);
        }
        assert!(Packer::new(Compression::None).is_none());
    }

    #[test]
    fn noise_is_tried_less_and_less_until_something_compresses() {
        let text = [7; 2 * BLOCK_BYTES];
        let mut state = 9u32;
        let mut byte = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        let noise: Vec<u8> = (0..2 * BLOCK_BYTES).map(|_| byte()).collect();
        let mut packer = Packer::new(Compression::Lz4).unwrap();
        for _ in 0..PATIENCE {
            assert_eq!(packer.pack(&noise), None);
        }
        assert!(packer.pack(&text).is_some(), "short noise costs nothing behind it");
        for _ in 0..1000 {
            assert_eq!(packer.pack(&noise), None);
        }
        assert!(packer.failures < 100, "{} of 1000 were tried", packer.failures);
        let missed = (0..).find(|_| packer.pack(&text).is_some()).unwrap();
        assert!(missed <= SKIPPED_MAX, "{missed}");
        assert!(packer.pack(&text).is_some());
    }

    proptest! {
        #[test]
        fn any_stream_is_unpacked_or_refused(stream in prop::collection::vec(any::<u8>(), 0..300)) {
            for compression in [Compression::Lz4, Compression::Zstd] {
                if let Some(contents) = unpack(compression, &stream, BLOCK_BYTES) {
                    prop_assert_eq!(contents.len(), BLOCK_BYTES);
                }
            }
        }
    }
}
