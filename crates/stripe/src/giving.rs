//! Giving a drive the bytes of a range that the other copies have.
//!
//! Of what nobody is writing one piece after the other is given, and each is read while the one before is written: the
//! drives that have it, and the one that gets it, are busy at the same time, also where there is but one large object.

use std::ops::Range;

use nasd_layout::{Column, Strip};
use nasd_protocol::limits::MAX_REGIONS;
use nasd_protocol::{Region, Status};
use nasd_types::limits::BLOCK_BYTES;
use nasd_types::{ByteRange, DriveId, ObjectName, WriteOrder};

use crate::components::{Answer, Ask, ComponentError, Told};
use crate::data::{regions_of, runs};
use crate::mend::{Lock, columns_held, is_damage, steps};
use crate::place::Place;
use crate::virtual_drive::{VirtualDrive, component, unexpected};

/// Bytes of the whole that are read while others are written.
const PIECE: u64 = 1 << 20;

/// How often a copy is made that comes behind what others write.
const MOST_ATTEMPTS: u32 = 64;

/// What of a range is written to a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    /// What is not zeros: the drive had nothing of it.
    Data,
    /// What differs.
    Differing,
    /// All.
    All,
}

/// A part of a range that is given to a drive.
pub(crate) struct Piece {
    name: ObjectName,
    drive: DriveId,
    order: Option<WriteOrder>,
    /// Whether others may be writing it.
    is_written: bool,
    write: Write,
    columns: Vec<(Column, Vec<Strip>)>,
}

impl Piece {
    /// Of an object that is spread or not, and that nobody else writes.
    pub(crate) fn new(
        (name, drive): (ObjectName, DriveId),
        (place, is_spread): (&Place, bool),
        range: ByteRange,
        write: Write,
        order: Option<WriteOrder>,
    ) -> Piece {
        let columns = columns_held(place, is_spread, drive, range);
        Piece { name, drive, order, is_written: false, write, columns }
    }

    /// What is asked for it: each column of one that has it; then, if only what differs is written, of the drive.
    pub(crate) fn reads(&self, place: &Place) -> Vec<(DriveId, Ask)> {
        let read = |order, strips: &[Strip]| read_of(self.name, order, strips);
        let order = self.order.filter(|_| self.is_written);
        let copies = self
            .columns
            .iter()
            .map(|(column, strips)| (place.reader(*column), read(order, strips)));
        let is_compared = self.write == Write::Differing;
        let own = self.columns.iter().filter(|_| is_compared);
        let own = own.map(|(_, strips)| (self.drive, read(None, strips)));
        copies.chain(own).collect()
    }

    /// What is written to the drive, by the answers to that.
    pub(crate) fn writes(&self, mut answers: Vec<Answer>) -> Result<Vec<Ask>, Status> {
        let own = answers.split_off(self.columns.len());
        let mut own = own.into_iter();
        let mut writes = Vec::new();
        for ((_, strips), copy) in self.columns.iter().zip(answers) {
            let length = regions_of(strips).1;
            let copy = padded(copy, length)?;
            let differing = match self.write {
                // Nothing is there but what clients have written since, which comes later by its order.
                Write::Data => differing(strips, |place| is_zeros(&copy[place])),
                Write::Differing => match own.next().map(|there| padded(there, length)) {
                    Some(Ok(there)) => {
                        differing(strips, |place| copy[place.clone()] == there[place.clone()])
                    }
                    Some(Err(status)) if !is_damage(status) => return Err(status),
                    Some(Err(_)) | None => differing(strips, |_| false),
                },
                Write::All => differing(strips, |_| false),
            };
            writes.extend(writes_of(self.name, self.order, &differing, copy));
        }
        Ok(writes)
    }
}

impl VirtualDrive {
    /// Makes a drive's component of a range what the other copies are.
    pub(crate) fn give_range(
        &self,
        name: ObjectName,
        drive: DriveId,
        write: Write,
        range: ByteRange,
        lock: Lock,
    ) -> Result<u64, Status> {
        let mut attempt = 0;
        loop {
            let before = self.orders.latest();
            match self.try_to_give(name, drive, write, range, lock) {
                Err(Status::OutOfOrder) if attempt < MOST_ATTEMPTS => {
                    self.orders.leap(before, attempt);
                }
                Err(Status::NoSuchObject) => {
                    // It was removed just now; if not, the drive has lost it, and is given it once more.
                    let is_there = self.seen_version(name)?.is_some();
                    return if is_there { Err(Status::Busy) } else { Ok(0) };
                }
                told => return told,
            }
            attempt += 1;
        }
    }

    fn try_to_give(
        &self,
        name: ObjectName,
        drive: DriveId,
        write: Write,
        range: ByteRange,
        lock: Lock,
    ) -> Result<u64, Status> {
        // Else the object might be cut, or punched, between what is read and what is written.
        let _alone = (lock == Lock::Free).then(|| self.lock(name));
        let version = self.known_version(name)?;
        // Who is given something does not say what it should be.
        let place = self.place(name)?.doubting(drive);
        // It may have been cut since somebody without the lock thought of this; what is behind its end is not to be made.
        let range = match write {
            Write::All if lock == Lock::Free => {
                let length = self.whole(name)?.attributes.logical_size;
                range.intersection(&ByteRange::new(0, length))
            }
            _ => range,
        };
        if range.is_empty() {
            return Ok(0);
        }
        // Where clients write, orders do what a lock can't; and what is written here may come late, when they do.
        let order = self.draw_order(&place);
        let is_written = version.has_writers();
        let is_spread = version.is_spread();
        // Who is being written all the time is read and written at once: what clients write between two pieces would come
        // after the order of both, so that all had to be done again.
        let size = if is_written { u64::MAX } else { PIECE };
        let pieces = steps(range, size).map(|range| {
            let piece = Piece::new((name, drive), (&place, is_spread), range, write, order);
            Piece { is_written, ..piece }
        });
        self.give_pieces(drive, &place, pieces)
    }

    /// Gives one piece after the other: while one is written the next one is read. How many bytes these are.
    fn give_pieces(
        &self,
        drive: DriveId,
        place: &Place,
        pieces: impl Iterator<Item = Piece>,
    ) -> Result<u64, Status> {
        let mut bytes = 0;
        let mut writes: Vec<Ask> = Vec::new();
        for piece in pieces.map(Some).chain([None]) {
            // What is read is asked for first: it takes a while to send what is written.
            let mut questions = piece.as_ref().map_or(Vec::new(), |piece| piece.reads(place));
            let reads = questions.len();
            questions.extend(writes.drain(..).map(|write| (drive, write)));
            let mut answers = self.components.ask(questions);
            for answer in answers.split_off(reads) {
                match answer.map_err(|error| error.status())? {
                    Told::Written(written) => {
                        self.saw(drive, written.instance);
                        bytes += written.length;
                    }
                    other => return Err(unexpected(&other).status()),
                }
            }
            if let Some(piece) = piece {
                writes = piece.writes(answers)?;
            }
        }
        Ok(bytes)
    }

    /// What columns hold by those of their copies that decide, all asked at once.
    pub(crate) fn read_columns(
        &self,
        name: ObjectName,
        place: &Place,
        columns: &[(Column, Vec<Strip>)],
        order: Option<WriteOrder>,
    ) -> Result<Vec<Vec<u8>>, Status> {
        let questions = columns
            .iter()
            .map(|(column, strips)| (place.reader(*column), read_of(name, order, strips)));
        let answers = self.components.ask(questions.collect());
        let whole = |(answer, (_, strips)): (Answer, &(Column, Vec<Strip>))| {
            padded(answer, regions_of(strips).1)
        };
        answers.into_iter().zip(columns).map(whole).collect()
    }
}

/// The question for what a component has of some strips.
fn read_of(name: ObjectName, order: Option<WriteOrder>, strips: &[Strip]) -> Ask {
    let (regions, length) = regions_of(strips);
    Ask::Read { name: component(name), order, regions, length }
}

/// Writes of runs of a copy, each with its place there.
fn writes_of(
    name: ObjectName,
    order: Option<WriteOrder>,
    differing: &[(u64, Range<usize>)],
    mut copy: Vec<u8>,
) -> Vec<Ask> {
    let mut writes = Vec::new();
    for some in differing.chunks(MAX_REGIONS) {
        let region =
            |(offset, place): &(u64, Range<usize>)| Region::single(*offset, place.len() as u64);
        let regions = some.iter().map(region).collect();
        let length: usize = some.iter().map(|(_, place)| place.len()).sum();
        let data = match length == copy.len() {
            // All of it, in order: nothing has to be put together.
            true => std::mem::take(&mut copy),
            false => {
                let mut data = Vec::with_capacity(length);
                some.iter().for_each(|(_, place)| data.extend_from_slice(&copy[place.clone()]));
                data
            }
        };
        let name = component(name);
        writes.push(Ask::Write { name, order, regions, data, durable: false });
    }
    writes
}

/// What was read, with zeros where the component has ended before.
fn padded(answer: Answer, length: usize) -> Result<Vec<u8>, Status> {
    match answer.map_err(|error: ComponentError| error.status())? {
        Told::Read(mut read) => {
            read.data.resize(length, 0);
            Ok(read.data)
        }
        other => Err(unexpected(&other).status()),
    }
}

/// The runs of blocks of some strips that are not the same at two copies, each with its place in what was read of a
/// copy; `is_same` tells whether a place of that is.
fn differing(
    strips: &[Strip],
    mut is_same: impl FnMut(Range<usize>) -> bool,
) -> Vec<(u64, Range<usize>)> {
    let mut found: Vec<(u64, Range<usize>)> = Vec::new();
    let mut at = 0;
    for run in runs(strips) {
        let mut begin: Option<usize> = None;
        let mut done = 0;
        while done < run.length as usize {
            let block = (BLOCK_BYTES - (run.offset as usize + done) % BLOCK_BYTES)
                .min(run.length as usize - done);
            let from = at + done;
            match (begin, is_same(from..from + block)) {
                (None, false) => begin = Some(done),
                (Some(first), true) => {
                    found.push((run.offset + first as u64, at + first..from));
                    begin = None;
                }
                _ => {}
            }
            done += block;
        }
        if let Some(first) = begin {
            found.push((run.offset + first as u64, at + first..at + done));
        }
        at += done;
    }
    found
}

/// Whether bytes of at most a block are all zero.
fn is_zeros(bytes: &[u8]) -> bool {
    const ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];
    bytes == &ZEROS[..bytes.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_that_differ_are_found_run_by_run() {
        let strip = Strip { offset: 6000, length: 10_000, stride: 40_000, count: 2 };
        let copy = vec![1; 20_000];
        let mut there = copy.clone();
        let lengths = |there: &[u8]| {
            let found = differing(&[strip], |place| copy[place.clone()] == there[place]);
            found.into_iter().map(|(at, place)| (at, place.len())).collect::<Vec<_>>()
        };
        assert!(lengths(&there).is_empty());
        there[0] = 2;
        there[9_999] = 2;
        there[10_000] = 2;
        assert_eq!(lengths(&there), [(6000, 2192), (12_288, 3712), (46_000, 3152)]);
        assert_eq!(lengths(&[0; 20_000]), [(6000, 10_000), (46_000, 10_000)]);
        assert_eq!(differing(&[strip], |place| is_zeros(&copy[place])).len(), 2);
        assert!(differing(&[strip], |place| is_zeros(&[0; 20_000][place])).is_empty());
    }
}
