//! Contents of a medium whose copies share what they have in common.
//!
//! A crash test makes a copy of its medium for every crash; with an [`Image`] each costs what
//! differs, not what the medium holds.

use std::fmt;
use std::sync::Arc;

use crate::SECTOR_BYTES;

/// Bytes that copies share or not; a whole number of sectors.
const CHUNK_BYTES: usize = 64 << 10;
const _: () = assert!(CHUNK_BYTES.is_multiple_of(SECTOR_BYTES));

/// `None` is a chunk of zeros.
type Chunk = Option<Arc<[u8]>>;

/// Bytes of a medium, a whole number of sectors. To clone it is cheap: the bytes are copied, a
/// chunk at a time, only when one of the clones writes to them.
#[derive(Clone)]
pub struct Image {
    chunks: Vec<Chunk>,
    bytes: u64,
}

impl Image {
    /// `bytes` zero bytes, rounded up to whole sectors.
    pub fn zeroed(bytes: u64) -> Image {
        let mut image = Image { chunks: Vec::new(), bytes: 0 };
        image.resize(bytes);
        image
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Cuts the end off or adds zeros, up to `bytes` rounded up to whole sectors.
    pub fn resize(&mut self, bytes: u64) {
        let bytes = bytes.next_multiple_of(SECTOR_BYTES as u64);
        if bytes < self.bytes {
            // What is cut off must not come back when the image grows again.
            let end = bytes.next_multiple_of(CHUNK_BYTES as u64).min(self.bytes);
            self.fill_zero(bytes, end);
        }
        self.chunks.resize(bytes.div_ceil(CHUNK_BYTES as u64) as usize, None);
        self.bytes = bytes;
    }

    fn fill_zero(&mut self, start: u64, end: u64) {
        for at in (start..end).step_by(SECTOR_BYTES) {
            self.write(at, &[0; SECTOR_BYTES]);
        }
    }

    /// Fills `into` with the bytes at `offset`, aligned or not.
    ///
    /// # Panics
    /// When the range leaves the image.
    pub fn read(&self, offset: u64, into: &mut [u8]) {
        self.check(offset, into.len());
        for (index, within, piece) in pieces(offset, into.len()) {
            let target = &mut into[piece];
            match &self.chunks[index] {
                Some(chunk) => target.copy_from_slice(&chunk[within..within + target.len()]),
                None => target.fill(0),
            }
        }
    }

    /// Overwrites the bytes at `offset`, aligned or not.
    ///
    /// # Panics
    /// When the range leaves the image.
    pub fn write(&mut self, offset: u64, from: &[u8]) {
        self.check(offset, from.len());
        for (index, within, piece) in pieces(offset, from.len()) {
            let from = &from[piece];
            let slot = &mut self.chunks[index];
            if slot.is_none() && from.iter().all(|&byte| byte == 0) {
                continue;
            }
            let chunk = slot.get_or_insert_with(|| Arc::from([0; CHUNK_BYTES].as_slice()));
            Arc::make_mut(chunk)[within..within + from.len()].copy_from_slice(from);
        }
    }

    /// Flips one bit: bit `bit` (0-7) of the byte at `offset`.
    ///
    /// # Panics
    /// When the byte is outside the image.
    pub fn flip_bit(&mut self, offset: u64, bit: u32) {
        let mut byte = [0];
        self.read(offset, &mut byte);
        self.write(offset, &[byte[0] ^ (1 << bit)]);
    }

    /// A copy of all bytes in one piece.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.bytes as usize];
        for (chunk, target) in self.chunks.iter().zip(bytes.chunks_mut(CHUNK_BYTES)) {
            if let Some(chunk) = chunk {
                target.copy_from_slice(&chunk[..target.len()]);
            }
        }
        bytes
    }

    fn check(&self, offset: u64, length: usize) {
        let fits = offset.checked_add(length as u64).is_some_and(|end| end <= self.bytes);
        assert!(fits, "{length} bytes at {offset} leave an image of {} bytes", self.bytes);
    }
}

/// Cuts a range at chunks: chunk, where in it, and which of the range's bytes.
fn pieces(
    offset: u64,
    length: usize,
) -> impl Iterator<Item = (usize, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let (index, within) = (at / CHUNK_BYTES as u64, (at % CHUNK_BYTES as u64) as usize);
        let now = (CHUNK_BYTES - within).min(length - done);
        let piece = done..done + now;
        done += now;
        (now > 0).then_some((index as usize, within, piece))
    })
}

impl From<&[u8]> for Image {
    fn from(bytes: &[u8]) -> Image {
        let mut image = Image::zeroed(bytes.len() as u64);
        image.write(0, bytes);
        image
    }
}

impl From<Vec<u8>> for Image {
    fn from(bytes: Vec<u8>) -> Image {
        Image::from(&bytes[..])
    }
}

impl PartialEq for Image {
    fn eq(&self, other: &Image) -> bool {
        let same = |(one, two): (&Chunk, &Chunk)| match (one, two) {
            (None, None) => true,
            (Some(one), Some(two)) => Arc::ptr_eq(one, two) || one == two,
            (Some(one), None) | (None, Some(one)) => one.iter().all(|&byte| byte == 0),
        };
        self.bytes == other.bytes && self.chunks.iter().zip(&other.chunks).all(same)
    }
}

impl Eq for Image {}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Image({} bytes)", self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Write(u64, usize, u8),
        Resize(u64),
        Flip(u64, u32),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let write = (any::<u64>(), 0usize..200_000, any::<u8>());
        let step = prop_oneof![
            4 => write.prop_map(|(at, length, value)| Step::Write(at, length, value)),
            1 => (0u64..400_000).prop_map(Step::Resize),
            1 => (any::<u64>(), 0u32..8).prop_map(|(at, bit)| Step::Flip(at, bit)),
        ];
        prop::collection::vec(step, 0..20)
    }

    proptest! {
        /// An image is a vector of bytes, and its clones stay what they were.
        #[test]
        fn is_a_vector(start in prop::collection::vec(0u8..2, 0..150_000), steps in steps()) {
            let mut model = start.clone();
            model.resize(start.len().next_multiple_of(SECTOR_BYTES), 0);
            let mut image = Image::from(start);
            let (before, was) = (image.clone(), model.clone());
            for step in steps {
                match step {
                    Step::Write(at, length, value) => {
                        let at = at as usize % (model.len() + 1);
                        let length = length.min(model.len() - at);
                        model[at..at + length].fill(value);
                        image.write(at as u64, &vec![value; length]);
                        let mut back = vec![!value; length];
                        image.read(at as u64, &mut back);
                        prop_assert!(back.iter().all(|&byte| byte == value));
                    }
                    Step::Resize(bytes) => {
                        model.resize((bytes as usize).next_multiple_of(SECTOR_BYTES), 0);
                        image.resize(bytes);
                    }
                    Step::Flip(at, bit) if !model.is_empty() => {
                        let at = at as usize % model.len();
                        model[at] ^= 1 << bit;
                        image.flip_bit(at as u64, bit);
                    }
                    Step::Flip(..) => {}
                }
                prop_assert_eq!(image.bytes(), model.len() as u64);
                prop_assert!(image.to_vec() == model);
                prop_assert!(image == Image::from(&model[..]));
            }
            prop_assert!(before.to_vec() == was);
            prop_assert_eq!(image == before, model == was);
        }
    }
}
