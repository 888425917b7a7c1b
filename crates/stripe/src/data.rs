//! Data that go through the striping manager: what a file manager keeps in objects, and what those send who
//! don't ask for a map.

use nasd_drive::ReadElsewhere;
use nasd_layout::{Column, MemberState, Strip};
use nasd_protocol::drive::{Flushed, ReadArguments, WriteArguments, Written};
use nasd_protocol::{Region, Status};
use nasd_types::{ByteRange, DriveId, ObjectId, ObjectName, PartitionId, Timestamp, WriteOrder};
use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::alone::{Known, Next};
use crate::components::{Answer, Ask, ComponentError, ReadComponent, Told};
use crate::mend::Lock;
use crate::place::{Place, Turn};
use crate::virtual_drive::{VirtualDrive, component, component_partition, unexpected};

/// How often a write is made that comes behind those of others.
const MOST_ATTEMPTS: u32 = 64;

/// What components told of a write.
pub(crate) struct Made {
    /// The home component; of an object that is not spread it is the whole.
    written: Written,
    /// When those were changed last that tell of the whole.
    latest: Timestamp,
}

impl VirtualDrive {
    pub(crate) fn read_whole(&self, arguments: &ReadArguments) -> Result<ReadElsewhere, Status> {
        let name = arguments.name;
        let mut whole = ReadElsewhere::default();
        for range in arguments.pieces()?.iter() {
            let read = self.read_range(name, range)?;
            let is_short = (read.data.len() as u64) < range.length;
            whole.data.extend_from_slice(&read.data);
            whole.logical_size = read.logical_size;
            whole.fs_data_modify_time = read.fs_data_modify_time;
            if is_short {
                break;
            }
        }
        Ok(whole)
    }

    /// What a range has in common with the object.
    pub(crate) fn read_range(
        &self,
        name: ObjectName,
        range: ByteRange,
    ) -> Result<ReadElsewhere, Status> {
        let place = self.place(name)?;
        let version = self.seen_version(name)?.ok_or(Status::NoSuchObject)?;
        if !place.is_striped(version.is_spread()) {
            let read = self.read_component(place.home(), name, range)?;
            // It may have been spread meanwhile.
            if self.seen_version(name)? == Some(version) {
                let ReadComponent { data, logical_size, fs_data_modify_time } = read;
                return Ok(ReadElsewhere { data, logical_size, fs_data_modify_time });
            }
        }
        let whole = self.whole(name)?.attributes;
        let range = range.intersection(&ByteRange::new(0, whole.logical_size));
        let columns = columns_of(&place, range);
        let questions = columns.iter().map(|(column, strips)| {
            let (regions, length) = regions_of(strips);
            let ask = Ask::Read { name: component(name), order: None, regions, length };
            (place.reader(*column), ask)
        });
        let answers = self.components.ask(questions.collect());
        // A component may end before the whole: what it lacks is zeros.
        let mut data = vec![0; range.length as usize];
        for ((_, strips), answer) in columns.iter().zip(answers) {
            let read = read(answer)?;
            let mut rest = &read.data[..];
            for run in runs(strips) {
                let at = (run.offset - range.offset) as usize;
                let here = rest.len().min(run.length as usize);
                let (now, later) = rest.split_at(here);
                data[at..at + here].copy_from_slice(now);
                rest = later;
            }
        }
        Ok(ReadElsewhere {
            data,
            logical_size: whole.logical_size,
            fs_data_modify_time: whole.fs_data_modify_time,
        })
    }

    fn read_component(
        &self,
        drive: DriveId,
        name: ObjectName,
        range: ByteRange,
    ) -> Result<ReadComponent, Status> {
        let regions = vec![Region::single(range.offset, range.length)];
        let length = range.length as usize;
        let ask = Ask::Read { name: component(name), order: None, regions, length };
        read(self.components.ask_one(drive, ask))
    }

    pub(crate) fn write_whole(
        &self,
        arguments: &WriteArguments,
        data: &[&[u8]],
    ) -> Result<Written, Status> {
        let name = arguments.name;
        let _alone = self.lock_to_write(name);
        let data = data.concat();
        loop {
            let own = self.instances.own();
            let written = self.write_pieces(arguments, &data);
            let written = written.inspect_err(|_| self.alone.changes(name))?;
            let is_spread = self.known_version(name)?.is_spread();
            if !arguments.durable || !self.place(name)?.is_striped(is_spread) {
                return Ok(written);
            }
            // Components that were not written may have what is not durable. A drive that was started anew before it
            // was flushed may have lost what it was given.
            let Flushed { instance } = self.flush_whole(name.partition, &[name.object])?;
            if instance == own {
                return Ok(written);
            }
        }
    }

    /// Writes all pieces, for who has the object's lock; durably where one component is all there is.
    fn write_pieces(&self, arguments: &WriteArguments, data: &[u8]) -> Result<Written, Status> {
        let name = arguments.name;
        let place = self.place(name)?;
        let mut rest = data;
        let mut last = None;
        for range in arguments.pieces()?.iter() {
            let (now, later) = rest.split_at(rest.len().min(range.length as usize));
            let is_spread = self.known_version(name)?.is_spread();
            let is_striped = place.is_striped(is_spread) || range.end() > place.shape.unit();
            let durable = arguments.durable && !is_striped;
            last = Some(self.write_locked(name, range.offset, now, durable)?);
            rest = later;
        }
        let last = last.ok_or(Status::BadArgument)?;
        Ok(Written { length: data.len() as u64, ..last })
    }

    /// Writes a range, for who has the object's lock.
    pub(crate) fn write_locked(
        &self,
        name: ObjectName,
        offset: u64,
        data: &[u8],
        durable: bool,
    ) -> Result<Written, Status> {
        let own = self.instances.own();
        let range = ByteRange::new(offset, data.len() as u64);
        let make = |_: &Place, _| Ok(Cow::Borrowed(data));
        let Made { written, latest } = self.write_made(name, range, durable, make)?;
        let place = self.place(name)?;
        let Written { mut logical_size, mut fs_data_modify_time, .. } = written;
        if place.is_striped(self.known_version(name)?.is_spread()) {
            let (generation, length) = (place.generation, range.end());
            let written = Known { instance: own, generation, length, modified: latest };
            let known = self.whole_after_write(name, &place, written)?;
            (logical_size, fs_data_modify_time) = (known.length, known.modified);
        }
        Ok(Written { instance: own, length: range.length, logical_size, fs_data_modify_time })
    }

    /// What an object that is spread is after a write, as components that were not written may be longer, or have a later
    /// time; for who has the object's lock.
    fn whole_after_write(
        &self,
        name: ObjectName,
        place: &Place,
        written: Known,
    ) -> Result<Known, Status> {
        match self.alone.wrote(name, written) {
            Next::Known(known) => return Ok(known),
            Next::Ask => {}
            Next::Claim => {
                let version = self.known_version(name)?.revoked();
                // Where that fails, the next writes ask as this one does.
                if self.set_version(name, place, version).is_ok() {
                    self.alone.claimed(name);
                }
            }
        }
        let whole = self.whole(name)?.attributes;
        let (length, modified) = (whole.logical_size, whole.fs_data_modify_time);
        let known = Known { length, modified, ..written };
        self.alone.learned(name, written, known);
        Ok(known)
    }

    /// Writes what `make` tells of a range, for who has the object's lock. It may look at what is there, where with
    /// copies nobody writes afterwards what has an earlier order than the given one; and is asked again where others
    /// have a later one. What is told is of components.
    pub(crate) fn write_made<'a>(
        &self,
        name: ObjectName,
        range: ByteRange,
        durable: bool,
        make: impl Fn(&Place, Option<WriteOrder>) -> Result<Cow<'a, [u8]>, Status>,
    ) -> Result<Made, Status> {
        let place = self.place_to_change(name)?;
        let mut version = self.known_version(name)?;
        if range.end() > place.shape.unit() {
            version = self.spread_locked(name)?;
        }
        self.expect_writers(name, &place, version)?;
        self.note_writing(name, &place);
        let mut attempt = 0;
        let mut before = self.orders.latest();
        let write = || {
            let order = self.draw_order(&place);
            let data = make(&place, order)?;
            self.write_copies(&place, &Bytes { name, range, data: &data, durable, order })
        };
        let told = loop {
            match self.mending(name, Some(range), Lock::Held, write) {
                // A client has written the same bytes, or a drive does not know what came before its start.
                Err(Status::OutOfOrder) if attempt < MOST_ATTEMPTS => {
                    self.orders.leap(before, attempt);
                }
                told => break told,
            }
            before = self.orders.latest();
            attempt += 1;
        };
        told.inspect_err(|_| {
            // Some copies may have it, and others not.
            if place.has_copies() {
                self.may_differ(name);
            }
        })
    }

    /// Writes all copies of a range, those that decide last.
    fn write_copies(&self, place: &Place, what: &Bytes<'_>) -> Result<Made, Status> {
        let (mut told, mut latest) = (Vec::new(), Timestamp(0));
        for turn in Turn::ALL {
            let questions = writes(place, what, turn);
            let drives: Vec<DriveId> = questions.iter().map(|(drive, _)| *drive).collect();
            let answers = self.components.ask(questions);
            // Who did not answer may write yet: whoever hears of another's failure instead counts on that nobody does.
            let is_away = |answer: &&Answer| matches!(answer, Err(ComponentError::Away { .. }));
            if let Some(Err(away)) = answers.iter().find(is_away) {
                return Err(away.status());
            }
            for (drive, answer) in drives.iter().zip(answers) {
                let written = match answer.map_err(|error| error.status())? {
                    Told::Written(written) => written,
                    other => return Err(unexpected(&other).status()),
                };
                self.saw(*drive, written.instance);
                if place.state_of(*drive) == MemberState::Current {
                    latest = latest.max(written.fs_data_modify_time);
                }
                told.push((*drive == place.home(), written));
            }
        }
        // One that is not spread is what its home component is.
        told.into_iter()
            .max_by_key(|(is_home, written)| {
                (*is_home, written.logical_size, written.fs_data_modify_time)
            })
            .map(|(_, written)| Made { written, latest })
            .ok_or(Status::BadArgument)
    }

    /// Makes objects durable on all drives that have components of theirs.
    pub(crate) fn flush_whole(
        &self,
        partition: PartitionId,
        objects: &[ObjectId],
    ) -> Result<Flushed, Status> {
        let mut by_drive: BTreeMap<DriveId, Vec<ObjectId>> = BTreeMap::new();
        if objects.is_empty() {
            by_drive.extend(self.drives_of(partition).into_iter().map(|drive| (drive, Vec::new())));
        } else if objects.len() > 1 {
            self.learn_versions(partition, objects);
        }
        for object in objects {
            let name = ObjectName { partition, object: *object };
            let version = self.seen_version(name)?.ok_or(Status::NoSuchObject)?;
            let place = self.place(name)?;
            for drive in place.holders(version.is_spread()) {
                if !self.may_lack(name, &place, *drive) {
                    by_drive.entry(*drive).or_default().push(*object);
                }
            }
        }
        let partition = component_partition(partition);
        let questions = by_drive
            .iter()
            .map(|(drive, objects)| (*drive, Ask::Flush { partition, objects: objects.clone() }));
        let answers = self.components.ask(questions.collect());
        for (drive, answer) in by_drive.keys().zip(answers) {
            match answer.map_err(|error| error.status())? {
                Told::Flushed(instance) => self.saw(*drive, instance),
                other => return Err(unexpected(&other).status()),
            }
        }
        Ok(Flushed { instance: self.instances.own() })
    }
}

/// What is to be written.
struct Bytes<'a> {
    name: ObjectName,
    range: ByteRange,
    data: &'a [u8],
    durable: bool,
    order: Option<WriteOrder>,
}

/// The columns that a range touches, and what of it is in each.
pub(crate) fn columns_of(place: &Place, range: ByteRange) -> Vec<(Column, Vec<Strip>)> {
    let columns = (0..place.shape.width()).map(Column);
    let strips = columns.map(|column| (column, place.shape.strips(range, column)));
    strips.filter(|(_, strips)| !strips.is_empty()).collect()
}

/// Strips as a drive's requests name them, and their bytes.
pub(crate) fn regions_of(strips: &[Strip]) -> (Vec<Region>, usize) {
    let region = |strip: &Strip| Region {
        offset: strip.offset,
        length: strip.length,
        stride: strip.stride,
        count: strip.count,
    };
    let bytes = strips.iter().map(|strip| strip.length * u64::from(strip.count)).sum::<u64>();
    (strips.iter().map(region).collect(), bytes as usize)
}

/// Each run of some strips, in order.
pub(crate) fn runs(strips: &[Strip]) -> impl Iterator<Item = ByteRange> + '_ {
    strips.iter().flat_map(|strip| {
        (0..u64::from(strip.count))
            .map(|run| ByteRange::new(strip.offset + run * strip.stride, strip.length))
    })
}

/// The writes to the copies whose turn it is.
fn writes(place: &Place, what: &Bytes<'_>, turn: Turn) -> Vec<(DriveId, Ask)> {
    let Bytes { name, range, data, durable, order } = *what;
    let mut asks = Vec::new();
    for (column, strips) in columns_of(place, range) {
        let drives = place.writers_in(column, turn);
        if drives.is_empty() {
            continue;
        }
        let (regions, length) = regions_of(&strips);
        let mut part = Vec::with_capacity(length);
        for run in runs(&strips) {
            let at = (run.offset - range.offset) as usize;
            part.extend_from_slice(&data[at..at + run.length as usize]);
        }
        let ask = Ask::Write { name: component(name), order, regions, data: part, durable };
        asks.extend(drives.into_iter().map(|drive| (drive, ask.clone())));
    }
    asks
}

fn read(answer: crate::components::Answer) -> Result<ReadComponent, Status> {
    match answer.map_err(|error| error.status())? {
        Told::Read(read) => Ok(read),
        other => Err(unexpected(&other).status()),
    }
}
