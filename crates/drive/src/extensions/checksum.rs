//! The checksums of parts of an object, so that copies can be compared without being sent: an example of an extension
//! (`docs/extensions.md`).
//!
//! Arguments: an XDR unsigned int, the bytes of each part; 0 for all of a piece in one, which is refused where that is more than
//! 1 GiB of the object. Data: of each part of each piece, one
//! after the other, its CRC-32C, an XDR unsigned int. Bytes behind the end of the object count as nothing.

use nasd_types::{ByteRange, Rights};
use nasd_xdr::{Decoder, Encoder};

use super::{Chunk, Description, Extension, ExtensionCall, ExtensionError, Reach, Told};

/// Bytes that are asked for at a time.
const STEP: u64 = 1 << 20;

/// Bytes of a part at most: others wait until the first one of a call is done.
const MOST_PART: u64 = 1 << 30;

/// Bytes of a checksum.
const SUM_BYTES: usize = 4;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Checksum;

impl Checksum {
    /// By which number it is asked for.
    pub const NUMBER: u32 = 1;

    /// What its arguments mean is what this revision says.
    pub const REVISION: u32 = 1;

    /// Its arguments, for parts of so many bytes.
    pub fn arguments(part_bytes: u32) -> Vec<u8> {
        let mut out = Encoder::new();
        out.u32(part_bytes);
        out.into_bytes()
    }

    fn part_bytes(call: &ExtensionCall) -> Result<u64, ExtensionError> {
        let mut input = Decoder::new(&call.arguments);
        let told = input.u32().ok().filter(|_| input.position() == call.arguments.len());
        let refused = || ExtensionError::Refused("its arguments are one unsigned int".to_owned());
        match told.ok_or_else(refused)? {
            0 => Ok(u64::MAX),
            bytes => Ok(bytes.into()),
        }
    }
}

impl Extension for Checksum {
    fn description(&self) -> Description {
        Description {
            number: Self::NUMBER,
            name: "checksum",
            revision: Self::REVISION,
            rights: Rights::READ,
            parameters: "bytes of each part, an unsigned int; 0: all of a piece",
        }
    }

    fn check(&self, call: &ExtensionCall) -> Result<usize, ExtensionError> {
        Self::part_bytes(call)?;
        match call.most {
            0..SUM_BYTES => Err(ExtensionError::Refused("a checksum has 4 bytes".to_owned())),
            most => Ok(most),
        }
    }

    fn run(&self, call: &ExtensionCall, reach: &mut Reach) -> Result<Told, ExtensionError> {
        let part_bytes = Self::part_bytes(call)?;
        let object = ByteRange::new(0, reach.object_bytes());
        let mut out = Encoder::new();
        for piece in &call.pieces {
            let piece = piece.intersection(&object);
            let mut bytes = Cursor::new(piece, reach);
            for part in parts(piece, part_bytes) {
                let is_full = out.len() + SUM_BYTES > call.most;
                if is_full {
                    return Ok(Told { position: part.offset, data: out.into_bytes() });
                }
                if part.length > MOST_PART {
                    let refused = "a part has at most 1 GiB: ask for several".to_owned();
                    return Err(ExtensionError::Refused(refused));
                }
                // A part is told as a whole or not at all, and one of them in any case.
                match checksum(part, &mut bytes, !out.is_empty())? {
                    Some(sum) => out.u32(sum),
                    None => return Ok(Told { position: part.offset, data: out.into_bytes() }),
                }
            }
        }
        Ok(Told { position: call.end(), data: out.into_bytes() })
    }
}

fn parts(piece: ByteRange, part_bytes: u64) -> impl Iterator<Item = ByteRange> {
    let mut at = piece.offset;
    std::iter::from_fn(move || {
        let part = ByteRange::new(at, part_bytes.min(piece.end().saturating_sub(at)));
        at = part.end();
        (!part.is_empty()).then_some(part)
    })
}

/// The bytes of a piece, one after the other: parts may be far shorter than what is asked for at a time.
struct Cursor<'a> {
    reach: &'a mut Reach,
    /// What has not been asked for.
    rest: ByteRange,
    chunk: Chunk,
    /// The slice of it that comes next, and how many of its bytes were taken.
    next: (usize, usize),
}

impl Cursor<'_> {
    fn new(piece: ByteRange, reach: &mut Reach) -> Cursor<'_> {
        Cursor { reach, rest: piece, chunk: Chunk::default(), next: (0, 0) }
    }

    /// Some bytes, at most so many; none where the object ends.
    fn take(&mut self, most: u64) -> Result<&[u8], ExtensionError> {
        if self.chunk.slice(self.next.0).is_none() && !self.rest.is_empty() {
            let asked = ByteRange::new(self.rest.offset, STEP.min(self.rest.length));
            self.chunk = self.reach.read(asked)?;
            self.next = (0, 0);
            // It may have been cut meanwhile: there is nothing behind that.
            let at = asked.offset + self.chunk.len();
            let is_cut = self.chunk.is_empty();
            let left = if is_cut { 0 } else { self.rest.end() - at };
            self.rest = ByteRange::new(at, left);
        }
        let (slice, taken) = self.next;
        let bytes = self.chunk.slice(slice).unwrap_or_default();
        let left = &bytes[taken.min(bytes.len())..];
        let now = left.len().min(usize::try_from(most).unwrap_or(usize::MAX));
        self.next = if now == left.len() { (slice + 1, 0) } else { (slice, taken + now) };
        Ok(&left[..now])
    }
}

/// That of a part; `None` if the call is to end soon, and may without it.
fn checksum(
    part: ByteRange,
    bytes: &mut Cursor<'_>,
    may_end: bool,
) -> Result<Option<u32>, ExtensionError> {
    let (mut left, mut sum) = (part.length, 0);
    while left > 0 {
        if may_end && bytes.reach.is_to_end_soon() {
            return Ok(None);
        }
        let bytes = bytes.take(left)?;
        if bytes.is_empty() {
            break;
        }
        sum = crc32c::crc32c_append(sum, bytes);
        left -= bytes.len() as u64;
    }
    Ok(Some(sum))
}

#[cfg(test)]
mod tests {
    use super::super::an_object::object_of;
    use super::super::reach::{Bytes, End, Look, pair};
    use super::*;
    use std::cell::Cell;
    use std::time::Duration;

    /// What is told of two parts of 4 MiB, if the call is to end soon when a byte is read.
    fn told_if_it_is_to_end(at: u64) -> Told {
        let (store, name) = object_of(&[], 8 << 20);
        let pieces = vec![ByteRange::new(0, 8 << 20)];
        let (mut reach, server) = pair(&pieces, 8 << 20);
        let arguments = Checksum::arguments(4 << 20);
        let call = ExtensionCall { pieces, most: 100, arguments, since: None };
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let told = Checksum.run(&call, &mut reach).unwrap();
                reach.end(End::Told(told, None));
            });
            let read = |range: ByteRange| {
                if range.contains(&ByteRange::new(at, 1)) {
                    server.signals.end_soon();
                }
                Ok(Bytes(store.read_pieces(name, &[range]).unwrap().segments))
            };
            let Some(End::Told(told, _)) =
                server.serve(Duration::from_secs(20), read, || Look::GoOn)
            else {
                panic!("it tells nothing");
            };
            told
        })
    }

    #[test]
    fn a_part_is_not_finished_for_a_call_that_is_to_end_but_the_first_one() {
        let sum = crc32c::crc32c(&vec![0; 4 << 20]).to_be_bytes().to_vec();
        let first = Told { position: 4 << 20, data: sum };
        assert_eq!(told_if_it_is_to_end(0), first);
        assert_eq!(told_if_it_is_to_end(5 << 20), first);
    }

    #[test]
    fn what_was_cut_meanwhile_is_not_asked_for_again_and_again() {
        let pieces = vec![ByteRange::new(0, 1000)];
        let (mut reach, server) = pair(&pieces, 1000);
        let arguments = Checksum::arguments(1);
        let call = ExtensionCall { pieces, most: 10_000, arguments, since: None };
        let reads = Cell::new(0);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let told = Checksum.run(&call, &mut reach).unwrap();
                assert_eq!(told, Told { position: 1000, data: vec![0; 4000] });
                reach.end(End::Told(told, None));
            });
            let read = |_| {
                reads.set(reads.get() + 1);
                Ok(Bytes::default())
            };
            server.serve(Duration::from_secs(20), read, || Look::GoOn);
        });
        assert_eq!(reads.get(), 1);
    }
}
