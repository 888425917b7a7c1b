//! The checksums of parts of an object, so that copies can be compared without being sent: an example of an extension
//! (`docs/extensions.md`).
//!
//! Arguments: an XDR unsigned int, the bytes of each part; 0 for all of a piece in one, which is refused where that is more than
//! 1 GiB of the object. Data: of each part of each piece, one
//! after the other, its CRC-32C, an XDR unsigned int. Bytes behind the end of the object count as nothing.

use nasd_types::{ByteRange, Rights};
use nasd_xdr::{Decoder, Encoder};

use super::{Description, Extension, ExtensionCall, ExtensionError, Reach, Told};

/// Bytes that are asked for at a time.
const STEP: u64 = 1 << 20;

/// Bytes of a part at most: others wait until one is done.
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
            for part in parts(piece.intersection(&object), part_bytes) {
                let is_full = out.len() + SUM_BYTES > call.most;
                // A part is told as a whole or not at all.
                if is_full || (reach.is_to_end_soon() && !out.is_empty()) {
                    return Ok(Told { position: part.offset, data: out.into_bytes() });
                }
                if part.length > MOST_PART {
                    let refused = "a part has at most 1 GiB: ask for several".to_owned();
                    return Err(ExtensionError::Refused(refused));
                }
                out.u32(checksum(part, reach)?);
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

fn checksum(part: ByteRange, reach: &mut Reach) -> Result<u32, ExtensionError> {
    let (mut at, mut sum) = (part.offset, 0);
    while at < part.end() {
        let chunk = reach.read(ByteRange::new(at, STEP.min(part.end() - at)))?;
        for bytes in chunk.slices() {
            sum = crc32c::crc32c_append(sum, bytes);
        }
        if chunk.is_empty() {
            // It was cut meanwhile.
            break;
        }
        at += chunk.len();
    }
    Ok(sum)
}
