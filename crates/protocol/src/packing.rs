//! Answers of extensions that are packed (LZ4) where the network is what takes long: what is asked, and what comes.
//!
//! A caller who can take such answers puts a *wish*, one word, behind the arguments. The data of an answer that is done have a *trailer* then:
//!
//! ```text
//! data, as they are or in blocks
//! unsigned int form                0: as they are; 1: in blocks
//! unsigned int micros              from when the drive had the call until it had the answer
//! unsigned int packing_micros      of these, what packing took
//! ```
//!
//! A block is two words, how many bytes it stands for (1 to 262,144) and how many it has, and those: an LZ4 block, or where both are the
//! same the bytes as they are. All that the blocks stand for together is no more than the caller has asked for.

use nasd_xdr::{Decoder, XdrDecode, XdrError};
use std::time::Duration;
use thiserror::Error;

/// Bytes of a wish.
pub const WISH_BYTES: usize = 4;

/// Bytes of a trailer.
pub const TRAILER_BYTES: usize = 12;

/// Bytes that a block stands for, at most.
const BLOCK_BYTES: usize = 256 << 10;

/// Bytes before those of a block.
const BLOCK_HEAD_BYTES: usize = 8;

/// Bytes of an answer that it is not worth while to try for fewer.
const LEAST_BYTES: usize = 4 << 10;

nasd_xdr::xdr_enum! {
    /// What a caller wants of answers, besides their trailer.
    pub enum Wish {
        /// As they are.
        Plain = 0,
        /// In blocks, if they get much shorter by that.
        Packed = 1,
    }
}

/// How long an answer took the drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Took {
    /// From when it had the call until it had the answer.
    pub all: Duration,
    /// What packing took of that.
    pub packing: Duration,
}

/// An answer without its trailer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unpacked {
    /// What the extension has told.
    pub data: Vec<u8>,
    /// Whether it came in blocks.
    pub was_packed: bool,
    /// How long it took the drive, as that says.
    pub took: Took,
}

/// What has no right trailer, or no right blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a packed answer is not right: {0}")]
pub struct PackingError(&'static str);

/// Arguments of an extension, and the wish behind them, if there is one.
///
/// # Errors
///
/// If they are none, or more comes behind them.
pub fn read_arguments<T: XdrDecode>(bytes: &[u8]) -> Result<(T, Option<Wish>), XdrError> {
    let mut input = Decoder::new(bytes);
    let arguments = T::decode(&mut input)?;
    let wish = match input.position() < bytes.len() {
        true => Some(Wish::decode(&mut input)?),
        false => None,
    };
    input.finish()?;
    Ok((arguments, wish))
}

/// Puts a wish behind arguments.
pub fn put_wish(wish: Wish, arguments: &mut Vec<u8>) {
    arguments.extend(u32::from(wish).to_be_bytes());
}

/// Packs data in their own place, if their beginning gets much shorter by it; tells whether. A trailer is still to be put behind them.
pub fn pack(data: &mut Vec<u8>) -> bool {
    if data.len() < LEAST_BYTES {
        return false;
    }
    let most = lz4_flex::block::get_maximum_output_size(data.len().min(BLOCK_BYTES));
    let mut room = vec![0; most];
    let (mut read, mut written) = (0, 0);
    while read < data.len() {
        let bytes = BLOCK_BYTES.min(data.len() - read);
        let packed = lz4_flex::block::compress_into(&data[read..read + bytes], &mut room);
        // A fifth less, or it's not worth the reader's time.
        let packed = packed.ok().filter(|packed| *packed <= bytes / 5 * 4);
        if read == 0 && packed.is_none() {
            return false;
        }
        // The first one has made room for what others take more.
        let length = packed.unwrap_or(bytes);
        let begin = written + BLOCK_HEAD_BYTES;
        match packed {
            Some(length) => data[begin..begin + length].copy_from_slice(&room[..length]),
            None => data.copy_within(read..read + bytes, begin),
        }
        data[written..written + 4].copy_from_slice(&(bytes as u32).to_be_bytes());
        data[written + 4..begin].copy_from_slice(&(length as u32).to_be_bytes());
        (read, written) = (read + bytes, begin + length);
    }
    data.truncate(written);
    true
}

/// Puts the trailer behind data.
pub fn put_trailer(data: &mut Vec<u8>, is_packed: bool, took: Took) {
    let micros = |time: Duration| u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
    data.reserve_exact(TRAILER_BYTES);
    for word in [u32::from(is_packed), micros(took.all), micros(took.packing)] {
        data.extend(word.to_be_bytes());
    }
}

/// What an answer with a trailer tells, of which at most `most` bytes were asked for. No more than that is made room for, whatever it claims.
///
/// # Errors
///
/// [`PackingError`].
pub fn unpack(mut data: Vec<u8>, most: usize) -> Result<Unpacked, PackingError> {
    let length = data.len().checked_sub(TRAILER_BYTES).ok_or(PackingError("it has no trailer"))?;
    let word = |at: usize| word(&data, length + at);
    let (form, all, packing) = (word(0)?, word(4)?, word(8)?);
    let time = |micros: u32| Duration::from_micros(micros.into());
    let took = Took { all: time(all), packing: time(packing) };
    data.truncate(length);
    match form {
        0 => Ok(Unpacked { data, was_packed: false, took }),
        1 => Ok(Unpacked { data: unpack_blocks(&data, most)?, was_packed: true, took }),
        _ => Err(PackingError("its form is none")),
    }
}

fn unpack_blocks(data: &[u8], most: usize) -> Result<Vec<u8>, PackingError> {
    let mut all: usize = 0;
    for block in Blocks(data) {
        all = all.saturating_add(block?.0);
    }
    if all > most {
        return Err(PackingError("it is longer than was asked for"));
    }
    let (mut plain, mut written) = (vec![0; all], 0);
    for block in Blocks(data) {
        let (bytes, packed) = block?;
        let room = &mut plain[written..written + bytes];
        written += bytes;
        if packed.len() == bytes {
            room.copy_from_slice(packed);
        } else if lz4_flex::block::decompress_into(packed, room).ok() != Some(bytes) {
            return Err(PackingError("a block is none"));
        }
    }
    Ok(plain)
}

/// The blocks of an answer: how many bytes each stands for, and those that it has.
struct Blocks<'a>(&'a [u8]);

impl<'a> Iterator for Blocks<'a> {
    type Item = Result<(usize, &'a [u8]), PackingError>;

    fn next(&mut self) -> Option<Self::Item> {
        let all = std::mem::take(&mut self.0);
        if all.is_empty() {
            return None;
        }
        let read = || {
            let (bytes, length) = (word(all, 0)? as usize, word(all, 4)? as usize);
            let rest = &all[BLOCK_HEAD_BYTES..];
            match rest.split_at_checked(length) {
                Some((packed, rest)) if (1..=BLOCK_BYTES).contains(&bytes) => {
                    Ok((bytes, packed, rest))
                }
                _ => Err(PackingError("a block is too long, or empty")),
            }
        };
        Some(read().map(|(bytes, packed, rest)| {
            self.0 = rest;
            (bytes, packed)
        }))
    }
}

fn word(data: &[u8], at: usize) -> Result<u32, PackingError> {
    let word = data.get(at..).and_then(|rest| rest.first_chunk::<4>());
    word.map(|word| u32::from_be_bytes(*word)).ok_or(PackingError("it is cut"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TOOK: Took = Took { all: Duration::from_micros(7), packing: Duration::from_micros(3) };

    fn packed(plain: &[u8]) -> (Vec<u8>, bool) {
        let mut data = plain.to_vec();
        let is_packed = pack(&mut data);
        put_trailer(&mut data, is_packed, TOOK);
        (data, is_packed)
    }

    /// Bytes that nothing makes shorter.
    fn noise(length: usize) -> Vec<u8> {
        let mut state = 1_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        (0..length).map(|_| next()).collect()
    }

    #[test]
    fn the_bytes_are_these() {
        assert_eq!(packed(b"few").0, b"few\0\0\0\0\0\0\0\x07\0\0\0\x03");
        let (data, is_packed) = packed(&[b'a'; 5000]);
        // An `a`, 4 and 15 and 19 times 255 and 129 of what is one byte before, and the last six.
        let mut block = vec![0x1f, b'a', 1, 0];
        block.extend([255; 19]);
        block.extend([129, 0x60, b'a', b'a', b'a', b'a', b'a', b'a']);
        let mut expected = [0, 0, 0x13, 0x88, 0, 0, 0, block.len() as u8].to_vec();
        expected.extend(&block);
        expected.extend([0, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0, 3]);
        assert!(is_packed);
        assert_eq!(data, expected);
        let mut arguments = vec![0, 0, 0, 9];
        assert_eq!(read_arguments::<u32>(&arguments), Ok((9, None)));
        put_wish(Wish::Packed, &mut arguments);
        assert_eq!(arguments, [0, 0, 0, 9, 0, 0, 0, 1]);
        assert_eq!(read_arguments::<u32>(&arguments), Ok((9, Some(Wish::Packed))));
        arguments.push(0);
        assert!(read_arguments::<u32>(&arguments).is_err());
    }

    #[test]
    fn what_does_not_get_shorter_stays_as_it_is() {
        let plain = noise(600_000);
        let (data, is_packed) = packed(&plain);
        assert!(!is_packed && data.len() == plain.len() + TRAILER_BYTES);
        // Of what begins with something that does, the rest is not made longer by more than the heads of blocks.
        let mixed = [&[b'a'; BLOCK_BYTES][..], &plain].concat();
        let (data, is_packed) = packed(&mixed);
        assert!(is_packed && data.len() < plain.len() + 2000);
        let told = unpack(data, mixed.len()).unwrap();
        assert!(told.data == mixed && told.was_packed && told.took == TOOK);
    }

    #[test]
    fn what_claims_too_much_is_refused() {
        let (data, _) = packed(&[b'a'; 100_000]);
        assert!(unpack(data.clone(), 100_000).is_ok());
        assert!(unpack(data.clone(), 99_999).is_err());
        assert!(unpack(vec![0; 11], 100).is_err());
        // A block of the largest size that there is a number for, and many small ones.
        let trailer = [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        let huge = [&[0xff; 4][..], &[0, 0, 0, 1, 0], &trailer].concat();
        assert!(unpack(huge, usize::MAX).is_err());
        let many = [&[0, 4, 0, 0, 0, 0, 0, 1, 0].repeat(1000)[..], &trailer].concat();
        assert!(unpack(many, 4 << 20).is_err());
        for at in 0..data.len() - TRAILER_BYTES + 4 {
            for flip in [1, 0x80, 0xff] {
                let mut wrong = data.clone();
                wrong[at] ^= flip;
                if let Ok(told) = unpack(wrong, 100_000) {
                    assert!(told.data.len() <= 100_000);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_packed_comes_back(
            parts in prop::collection::vec((any::<u8>(), 0_usize..200_000, any::<bool>()), 0..6)
        ) {
            let part = |(byte, length, is_noise): &(u8, usize, bool)| match is_noise {
                true => noise(*length),
                false => vec![*byte; *length],
            };
            let plain: Vec<u8> = parts.iter().flat_map(part).collect();
            let (data, is_packed) = packed(&plain);
            prop_assert!(data.len() <= plain.len() + TRAILER_BYTES);
            let told = unpack(data, plain.len()).unwrap();
            prop_assert!(told.data == plain && told.was_packed == is_packed);
        }

        #[test]
        fn whatever_comes_is_an_answer_or_none(data in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(told) = unpack(data, 1000) {
                prop_assert!(told.data.len() <= 1000 || !told.was_packed);
            }
        }
    }
}
