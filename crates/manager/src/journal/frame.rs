//! Frames: what is written to the journal at a time, one behind the other within an area.
//!
//! ```text
//!  0  "NJNL"            4  version (u16)       6  kind (u16)
//!  8  generation (u64): of the area's contents, counted from 1
//! 16  sequence (u64): number of the frame in its generation, from 0
//! 24  length of the body (u32)                28  zero (u32)
//! 32  checksum (16 bytes): the first of BLAKE3 of the checksum of the frame before (zeros for
//!     the first), of bytes 0 to 31, and of the body
//! 48  the body: steps
//! ```
//!
//! Numbers are little-endian. A frame continues the one before if its generation is the same, its
//! sequence the next, and its checksum right; since that covers the checksum of the one before, what
//! an earlier manager has left behind the end of what survived never continues what is written there
//! now. The journal ends before the first frame that does not continue it.

use thiserror::Error;

use super::step::{Step, StepError};
use crate::bytes::{put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};

/// Bytes before a frame's body.
pub const FRAME_HEAD_BYTES: usize = 48;

/// Version of the format.
pub const VERSION: u16 = 1;

const MAGIC: [u8; 4] = *b"NJNL";
const CHECKSUM_BYTES: usize = 16;
const AT_CHECKSUM: usize = 32;

/// What a frame is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Part of what an area begins with; more follows, without which the area says nothing.
    Opening = 1,
    /// The last part of that.
    Opened = 2,
    /// Changes.
    Changes = 3,
}

impl Kind {
    fn from_number(number: u16) -> Option<Kind> {
        [Kind::Opening, Kind::Opened, Kind::Changes].into_iter().find(|kind| *kind as u16 == number)
    }
}

/// Where the next frame of a generation goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Of the area's contents.
    pub generation: u64,
    /// Number of the next frame.
    pub sequence: u64,
    checksum: [u8; CHECKSUM_BYTES],
}

impl Chain {
    /// Before the first frame of a generation.
    pub fn new(generation: u64) -> Chain {
        Chain { generation, sequence: 0, checksum: [0; CHECKSUM_BYTES] }
    }

    /// The next frame's bytes.
    pub fn frame(&mut self, kind: Kind, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(FRAME_HEAD_BYTES + body.len());
        bytes.resize(FRAME_HEAD_BYTES, 0);
        bytes[..4].copy_from_slice(&MAGIC);
        put_u16(&mut bytes, 4, VERSION);
        put_u16(&mut bytes, 6, kind as u16);
        put_u64(&mut bytes, 8, self.generation);
        put_u64(&mut bytes, 16, self.sequence);
        put_u32(&mut bytes, 24, body.len() as u32);
        let checksum = self.checksum_of(&bytes[..AT_CHECKSUM], body);
        bytes[AT_CHECKSUM..FRAME_HEAD_BYTES].copy_from_slice(&checksum);
        bytes.extend_from_slice(body);
        (self.checksum, self.sequence) = (checksum, self.sequence + 1);
        bytes
    }

    fn checksum_of(&self, head: &[u8], body: &[u8]) -> [u8; CHECKSUM_BYTES] {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.checksum).update(head).update(body);
        let mut checksum = [0; CHECKSUM_BYTES];
        checksum.copy_from_slice(&hasher.finalize().as_bytes()[..CHECKSUM_BYTES]);
        checksum
    }

    /// The kind and the body of the frame at the start of `bytes`, if it continues the chain.
    fn follow<'a>(&mut self, bytes: &'a [u8]) -> Option<(Kind, &'a [u8])> {
        let head = bytes.get(..FRAME_HEAD_BYTES)?;
        let continues = head[..4] == MAGIC
            && u16_at(head, 4) == VERSION
            && u64_at(head, 8) == self.generation
            && u64_at(head, 16) == self.sequence;
        let kind = Kind::from_number(u16_at(head, 6)).filter(|_| continues)?;
        let length = usize::try_from(u32_at(head, 24)).ok()?;
        let body = bytes[FRAME_HEAD_BYTES..].get(..length)?;
        let checksum = self.checksum_of(&head[..AT_CHECKSUM], body);
        if head[AT_CHECKSUM..] != checksum {
            return None;
        }
        (self.checksum, self.sequence) = (checksum, self.sequence + 1);
        Some((kind, body))
    }
}

/// An area that can't be understood although its checksums are right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// A later program wrote it.
    #[error("the journal has version {0}, this program knows {VERSION}")]
    UnknownVersion(u16),
    /// Frames in an order that nobody writes.
    #[error("frame {sequence} of the journal is out of place")]
    OutOfPlace {
        /// Its number.
        sequence: u64,
    },
    /// A step in it.
    #[error("frame {sequence} of the journal: {source}")]
    Step {
        /// Its number.
        sequence: u64,
        /// What is wrong.
        source: StepError,
    },
}

/// What an area holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Area {
    /// What it begins with: all that is not in objects, at the time when the area was begun.
    pub opening: Vec<Step>,
    /// The changes since, in their order.
    pub changes: Vec<Step>,
    /// Where to go on.
    pub chain: Chain,
    /// Bytes of all that.
    pub length: usize,
}

/// Reads an area up to the end of the journal in it; `None` if it holds nothing whole.
///
/// # Errors
/// What was certainly written so, but can't be understood.
pub fn scan(bytes: &[u8]) -> Result<Option<Area>, FrameError> {
    if bytes.len() < FRAME_HEAD_BYTES || bytes[..4] != MAGIC {
        return Ok(None);
    }
    let version = u16_at(bytes, 4);
    if version > VERSION {
        return Err(FrameError::UnknownVersion(version));
    }
    let chain = Chain::new(u64_at(bytes, 8));
    let mut area = Area { opening: Vec::new(), changes: Vec::new(), chain, length: 0 };
    let mut is_open = false;
    while let Some((kind, body)) = area.chain.follow(&bytes[area.length..]) {
        let sequence = area.chain.sequence - 1;
        if is_open != (kind == Kind::Changes) {
            return Err(FrameError::OutOfPlace { sequence });
        }
        let steps =
            Step::decode_all(body).map_err(|source| FrameError::Step { sequence, source })?;
        if is_open { &mut area.changes } else { &mut area.opening }.extend(steps);
        is_open |= kind == Kind::Opened;
        area.length += FRAME_HEAD_BYTES + body.len();
    }
    Ok(is_open.then_some(area))
}

#[cfg(test)]
mod tests {
    use super::super::step::tests::{all_steps, handle};
    use super::*;

    fn frames(generation: u64, kinds: &[Kind]) -> Vec<Vec<u8>> {
        let mut chain = Chain::new(generation);
        let frame = |(number, kind): (usize, &Kind)| {
            let body = Step::encode_all([&Step::Take { object: handle(number as u64) }]);
            chain.frame(*kind, &body)
        };
        kinds.iter().enumerate().map(frame).collect()
    }

    const SOME: [Kind; 5] =
        [Kind::Opening, Kind::Opened, Kind::Changes, Kind::Changes, Kind::Changes];

    fn taken(steps: &[Step]) -> Vec<u64> {
        steps
            .iter()
            .map(|step| match step {
                Step::Take { object } => object.object.0,
                _ => 0,
            })
            .collect()
    }

    #[test]
    fn an_area_is_read_up_to_its_end() {
        let written = frames(7, &SOME);
        let mut bytes = written.concat();
        let length = bytes.len();
        bytes.resize(length + 8192, 0);
        let area = scan(&bytes).unwrap().unwrap();
        assert_eq!((taken(&area.opening), taken(&area.changes)), (vec![0, 1], vec![2, 3, 4]));
        assert_eq!((area.length, area.chain.generation), (length, 7));
        // What is written next continues it.
        let mut chain = area.chain;
        let next = chain.frame(Kind::Changes, &Step::encode_all(&all_steps()));
        bytes[length..length + next.len()].copy_from_slice(&next);
        let area = scan(&bytes).unwrap().unwrap();
        assert_eq!(area.changes[3..], all_steps());
    }

    #[test]
    fn a_lost_frame_ends_it_whatever_comes_behind() {
        let written = frames(1, &SOME);
        for lost in 0..written.len() {
            let mut bytes = Vec::new();
            for (number, frame) in written.iter().enumerate() {
                match number == lost {
                    true => bytes.resize(bytes.len() + frame.len(), 0),
                    false => bytes.extend_from_slice(frame),
                }
            }
            let area = scan(&bytes).unwrap();
            assert_eq!(area.is_some(), lost > 1, "without its opening it says nothing");
            if let Some(area) = area {
                assert_eq!(area.changes.len(), lost - 2);
                // What is written in the lost one's place is not continued by what was there.
                let mut chain = area.chain;
                let body = Step::encode_all([&Step::Take { object: handle(99) }]);
                let other = chain.frame(Kind::Changes, &body);
                bytes[area.length..area.length + other.len()].copy_from_slice(&other);
                let area = scan(&bytes).unwrap().unwrap();
                assert_eq!(taken(&area.changes).last(), Some(&99));
                assert_eq!(area.changes.len(), lost - 1);
            }
        }
    }

    #[test]
    fn an_older_generation_behind_the_end_is_left_out() {
        let old = frames(1, &SOME).concat();
        let new = frames(3, &SOME[..2]).concat();
        let mut bytes = old.clone();
        bytes[..new.len()].copy_from_slice(&new);
        let area = scan(&bytes).unwrap().unwrap();
        assert_eq!((area.chain.generation, area.changes.len()), (3, 0));
    }

    #[test]
    fn every_damage_is_seen() {
        let good = frames(1, &SOME).concat();
        let whole = scan(&good).unwrap().unwrap();
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bytes = good.clone();
                bytes[at] ^= 1 << bit;
                if let Ok(Some(area)) = scan(&bytes) {
                    assert!(area.length < whole.length, "byte {at}, bit {bit}");
                }
            }
            let cut = scan(&good[..at]).unwrap();
            assert!(cut.is_none_or(|area| area.length <= at && area.length < whole.length));
        }
        let mut later = good;
        later[4] = 2;
        assert_eq!(scan(&later), Err(FrameError::UnknownVersion(2)));
    }

    #[test]
    fn what_nobody_writes_is_an_error() {
        for kinds in [[Kind::Changes, Kind::Opened], [Kind::Opened, Kind::Opening]] {
            assert!(matches!(
                scan(&frames(1, &kinds).concat()),
                Err(FrameError::OutOfPlace { .. })
            ));
        }
        let bytes = Chain::new(1).frame(Kind::Opened, &[77]);
        let unknown = FrameError::Step { sequence: 0, source: StepError::Unknown(77) };
        assert_eq!(scan(&bytes), Err(unknown));
    }

    #[test]
    fn the_bytes_are_those_of_the_document() {
        let mut chain = Chain::new(1);
        let bytes =
            chain.frame(Kind::Opened, &Step::encode_all([&Step::Remove { object: handle(0x41) }]));
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(crate::document::shows(&hex), "{hex}");
    }
}
