//! Compressing runs of blocks, and back. Pure.

use nasd_types::Compression;
use nasd_types::limits::BLOCK_BYTES;

/// The level of Zstandard: the quickest of those that compress well.
const ZSTD_LEVEL: i32 = 1;

/// The stream for `contents`, if it takes fewer data blocks than they do.
pub(crate) fn pack(compression: Compression, contents: &[u8]) -> Option<Vec<u8>> {
    let stream = match compression {
        Compression::None => return None,
        Compression::Lz4 => lz4_flex::block::compress(contents),
        Compression::Zstd => zstd::bulk::compress(contents, ZSTD_LEVEL).ok()?,
    };
    (stream.len().div_ceil(BLOCK_BYTES) < contents.len() / BLOCK_BYTES).then_some(stream)
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
            let stream = pack(compression, &text).unwrap();
            assert!(stream.len() < BLOCK_BYTES);
            assert_eq!(unpack(compression, &stream, text.len()), Some(text.clone()));
            assert_eq!(unpack(compression, &stream, text.len() - 1), None);
            assert_eq!(unpack(compression, &stream[1..], text.len()), None);
            assert_eq!(pack(compression, &noise), None);
        }
        assert_eq!(pack(Compression::None, &text), None);
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
