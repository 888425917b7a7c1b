//! Holes: where they are, and making them.

use nasd_layout::{Column, Strip};
use nasd_protocol::Status;
use nasd_protocol::drive::{
    BlocksRequired, BlocksrequiredArguments, PunchArguments, SeekArguments,
};
use nasd_protocol::limits::MAX_PIECES;
use nasd_types::limits::BLOCK_BYTES;
use nasd_types::{Attributes, ByteRange, ObjectName, SeekTarget};

use crate::attributes::askable;
use crate::components::{Ask, Told};
use crate::data::{columns_of, regions_of};
use crate::place::{Place, Turn};
use crate::version::ComponentVersion;
use crate::virtual_drive::{VirtualDrive, component, unexpected};

impl VirtualDrive {
    pub(crate) fn punch_whole(&self, arguments: &PunchArguments) -> Result<Attributes, Status> {
        let name = arguments.name;
        let _alone = self.lock(name);
        let place = self.place_to_change(name)?;
        let version = self.before_punch(name, &place)?;
        let is_spread = version.is_spread();
        let length = self.whole(name)?.attributes.logical_size;
        for range in arguments.pieces()?.iter() {
            // What lies behind the end has no blocks; regions are of any length.
            let range = range.intersection(&ByteRange::new(0, length));
            if range.is_empty() {
                continue;
            }
            for range in askable_at_once(&place, range) {
                self.punch_range(name, (&place, is_spread), range, arguments.durable)?;
            }
        }
        self.getattr_whole(name)
    }

    /// Punches a range of all copies, those that decide last.
    fn punch_range(
        &self,
        name: ObjectName,
        (place, is_spread): (&Place, bool),
        range: ByteRange,
        durable: bool,
    ) -> Result<(), Status> {
        let columns = match place.is_striped(is_spread) {
            true => columns_of(place, range),
            // The home components have all of it, and the times of all.
            false => {
                let ByteRange { offset, length } = range;
                vec![(Column(0), vec![Strip { offset, length, stride: length, count: 1 }])]
            }
        };
        for turn in Turn::ALL {
            let of_turn = columns.iter().flat_map(|(column, strips)| {
                let drives = place.writers_in(*column, turn).into_iter();
                drives.map(|drive| (drive, regions_of(strips).0))
            });
            let questions = of_turn.map(|(drive, regions)| {
                (drive, Ask::Punch(PunchArguments { name: component(name), durable, regions }))
            });
            for answer in self.components.ask(questions.collect()) {
                answer.map_err(|error| {
                    // Some copies may be zeros, and others not.
                    if place.has_copies() {
                        self.may_differ(name);
                    }
                    error.status()
                })?;
            }
        }
        Ok(())
    }

    /// As before a new length: what others write comes before it at all copies, or after it.
    fn before_punch(&self, name: ObjectName, place: &Place) -> Result<ComponentVersion, Status> {
        let version = self.known_version(name)?;
        let version = self.expect_writers(name, place, version)?;
        self.note_writing(name, place);
        if place.has_copies() && self.writers.has_clients(name) {
            return self.set_version(name, place, version.revoked());
        }
        Ok(version)
    }

    pub(crate) fn blocks_required_whole(
        &self,
        name: ObjectName,
        pieces: &mut dyn Iterator<Item = ByteRange>,
    ) -> Result<BlocksRequired, Status> {
        let place = self.place(name)?;
        let version = self.seen_version(name)?.ok_or(Status::NoSuchObject)?;
        let is_spread = version.is_spread();
        let mut sum = BlocksRequired { estimated: 0, maximum: 0 };
        for range in pieces.flat_map(|range| askable_at_once(&place, range)) {
            let mut questions = Vec::new();
            for (column, strips) in columns_of(&place, range) {
                for drive in place.writers(column) {
                    let is_there = place.holders(is_spread).contains(&drive);
                    if is_there && !self.may_lack(name, &place, drive) {
                        let (regions, _) = regions_of(&strips);
                        let name = component(name);
                        let ask = Ask::Blocksrequired(BlocksrequiredArguments { name, regions });
                        questions.push((drive, ask));
                    } else {
                        // There is no component, so that all is new.
                        let bytes: u64 =
                            strips.iter().map(|strip| strip.length * u64::from(strip.count)).sum();
                        let blocks = bytes.div_ceil(BLOCK_BYTES as u64) + 2;
                        sum.estimated = sum.estimated.saturating_add(blocks);
                        sum.maximum = sum.maximum.saturating_add(blocks);
                    }
                }
            }
            for answer in self.components.ask(questions) {
                match answer.map_err(|error| error.status())? {
                    Told::Blocks(BlocksRequired { estimated, maximum }) => {
                        sum.estimated = sum.estimated.saturating_add(estimated);
                        sum.maximum = sum.maximum.saturating_add(maximum);
                    }
                    other => return Err(unexpected(&other).status()),
                }
            }
        }
        // What is kept several times counts once.
        let copies = u64::from(place.shape.copies());
        let BlocksRequired { estimated, maximum } = sum;
        Ok(BlocksRequired {
            estimated: estimated.div_ceil(copies),
            maximum: maximum.div_ceil(copies),
        })
    }

    pub(crate) fn seek_whole(&self, arguments: &SeekArguments) -> Result<Option<u64>, Status> {
        let SeekArguments { name, offset, target } = *arguments;
        let whole = self.whole(name)?;
        let is_striped = self.place(name)?.is_striped(whole.version.is_spread());
        let length = whole.attributes.logical_size;
        if offset >= length {
            return Ok(None);
        }
        let found = match target {
            SeekTarget::Data => self.next_data(name, offset, is_striped)?,
            SeekTarget::Hole => {
                // Without any hole, which is what most objects are, there is no need to look at each unit.
                let blocks = length.div_ceil(BLOCK_BYTES as u64);
                let is_full = whole.attributes.blocks_used >= blocks;
                match is_full {
                    true => Some(length),
                    false => Some(self.next_hole(name, offset, length, is_striped)?),
                }
            }
        };
        Ok(found.filter(|position| *position < length || target == SeekTarget::Hole))
    }

    /// What any component has next: bytes of other columns are holes of it.
    pub(crate) fn next_data(
        &self,
        name: ObjectName,
        offset: u64,
        is_striped: bool,
    ) -> Result<Option<u64>, Status> {
        let place = self.place(name)?;
        let drives = askable(&place, is_striped);
        let seek = SeekArguments { name: component(name), offset, target: SeekTarget::Data };
        let questions = drives.iter().map(|drive| (*drive, Ask::Seek(seek)));
        let mut first: Option<u64> = None;
        for answer in self.components.ask(questions.collect()) {
            match answer.map_err(|error| error.status())? {
                Told::Position(Some(found)) => {
                    first = Some(first.map_or(found, |it| it.min(found)))
                }
                Told::Position(None) => {}
                other => return Err(unexpected(&other).status()),
            }
        }
        Ok(first)
    }

    /// Goes from unit to unit, each asked where it is.
    fn next_hole(
        &self,
        name: ObjectName,
        offset: u64,
        length: u64,
        is_striped: bool,
    ) -> Result<u64, Status> {
        let place = self.place(name)?;
        let mut at = offset;
        while at < length {
            let column = if is_striped { place.shape.column(at) } else { Column(0) };
            let end = place.shape.unit_end(at).min(length);
            let target = SeekTarget::Hole;
            let seek = SeekArguments { name: component(name), offset: at, target };
            match self.components.ask_one(place.reader(column), Ask::Seek(seek)) {
                // It ends before, or has a hole before, the end of the unit.
                Ok(Told::Position(None)) => return Ok(at),
                Ok(Told::Position(Some(hole))) if hole < end => return Ok(hole),
                // Without other components that is a hole of the whole.
                Ok(Told::Position(Some(hole))) if !is_striped => return Ok(hole.min(length)),
                Ok(Told::Position(Some(_))) => at = end,
                Ok(other) => return Err(unexpected(&other).status()),
                Err(error) => return Err(error.status()),
            }
        }
        Ok(length)
    }
}

/// A range of any length as ranges whose columns can be named in one request each: a request has so many runs.
fn askable_at_once(place: &Place, range: ByteRange) -> impl Iterator<Item = ByteRange> + use<> {
    let stripe = place.shape.unit() * u64::from(place.shape.width());
    // The first and the last run may be cut.
    let most = stripe * (MAX_PIECES as u64 - 2);
    let mut at = range.offset;
    std::iter::from_fn(move || {
        let part = ByteRange::new(at, most.min(range.end() - at));
        at = part.end();
        (!part.is_empty()).then_some(part)
    })
}
