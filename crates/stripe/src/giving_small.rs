//! Giving drives many small objects at a time.
//!
//! What is small costs what it takes to ask for it. So of objects that nobody writes, and that have home components
//! alone, many are looked up, made, read and written together: each step is one for all of them. Whatever is not as
//! simple as that is given by itself.

use std::collections::BTreeMap;

use nasd_layout::MemberState;
use nasd_protocol::Status;
use nasd_protocol::drive::{BatchOperation, BatchOutcome};
use nasd_types::{
    Attributes, ByteRange, DriveId, ObjectId, ObjectName, PartitionId, SetAttributes, Timestamp,
};

use crate::attributes::{Whole, askable, merged};
use crate::components::Told;
use crate::giving::{Piece, Write};
use crate::place::Place;
use crate::version::ComponentVersion;
use crate::virtual_drive::VirtualDrive;

/// Objects that are given together.
pub(crate) const MOST: usize = 64;

/// The longest of them, in bytes.
const LONGEST: u64 = 64 << 10;

/// What came of looking at some objects of a partition.
#[derive(Debug, Default)]
pub(crate) struct Given {
    /// Those of which nothing is lacking any more.
    pub(crate) whole: Vec<ObjectId>,
    /// Bytes that were written for that.
    pub(crate) bytes: u64,
    /// Bytes that were read.
    pub(crate) looked_at: u64,
}

/// One that a drive has nothing of.
struct Small {
    object: ObjectId,
    place: Place,
    /// Who is to have it.
    drive: DriveId,
    attributes: Attributes,
    initial: SetAttributes,
}

impl VirtualDrive {
    /// Gives drives what they lack of those of some objects that are small; each drive with since when it lacks what was
    /// written.
    pub(crate) fn give_small(
        &self,
        partition: PartitionId,
        objects: &[ObjectId],
        drives: &BTreeMap<DriveId, Timestamp>,
    ) -> Given {
        let _steady = self.steady();
        let name = |object: &ObjectId| ObjectName { partition, object: *object };
        let _alone = self.lock_all(objects.iter().map(name));
        let candidates = objects.iter().filter_map(|object| {
            let (place, drive) = self.lacks_simply(name(object), drives)?;
            Some((*object, place, drive))
        });
        let mut given = Given::default();
        let lacking = self.look_up_small(partition, candidates.collect(), drives, &mut given);
        let made = self.make_small(partition, lacking);
        let (mut written, empty): (Vec<Small>, Vec<Small>) =
            made.into_iter().partition(|small| small.attributes.logical_size > 0);
        given.whole.extend(empty.iter().map(|small| small.object));
        given.looked_at = written.iter().map(|small| small.attributes.logical_size).sum();
        given.bytes = self.write_small(partition, &mut written);
        let timed = self.set_times_of_small(partition, written);
        given.whole.extend(timed);
        given
    }

    /// Where an object lies, and the drive that may lack it, if that is the only one.
    fn lacks_simply(
        &self,
        name: ObjectName,
        drives: &BTreeMap<DriveId, Timestamp>,
    ) -> Option<(Place, DriveId)> {
        let is_known = name.object != ObjectId::FIRST_OBJECT
            && !self.has_joined(name)
            && !self.versions.is_doubtful(name);
        let place = self.place(name).ok().filter(|_| is_known)?;
        let mut joining = place.joining();
        let drive = joining.next().filter(|drive| drives.contains_key(drive))?;
        let is_alone = joining.next().is_none();
        drop(joining);
        is_alone.then_some((place, drive))
    }

    /// Of these, those that the drives have nothing of, and that are small. What they have all of, or are to have nothing
    /// of, is whole already.
    fn look_up_small(
        &self,
        partition: PartitionId,
        candidates: Vec<(ObjectId, Place, DriveId)>,
        drives: &BTreeMap<DriveId, Timestamp>,
        given: &mut Given,
    ) -> Vec<Small> {
        let questions = candidates.iter().enumerate().flat_map(|(at, (object, place, drive))| {
            let asked = askable(place, false).into_iter().chain([*drive]);
            let ask = BatchOperation::Getattr(*object);
            asked.map(move |asked| (asked, (at, ask.clone()))).collect::<Vec<_>>()
        });
        let mut told = self.ask_each(partition, questions, false);
        let mut attributes = |at: usize, drive: DriveId| match told.remove(&(at, drive)) {
            Some(Ok(done)) => Ok(done.attributes),
            Some(Err(status)) => Err(status),
            None => Err(Status::Busy),
        };
        let mut lacking = Vec::new();
        for (at, (object, place, drive)) in candidates.into_iter().enumerate() {
            let had = attributes(at, drive);
            let asked = askable(&place, false).into_iter();
            let parts: Result<Vec<_>, _> = asked.map(|other| attributes(at, other)).collect();
            let Some(parts) = parts.ok().and_then(|parts| parts.into_iter().collect()) else {
                continue;
            };
            let Some(whole) = simple_whole(parts, &place) else { continue };
            let name = ObjectName { partition, object };
            self.versions.put(name, whole.version);
            match had {
                Ok(Some(had))
                    if place.is_home(drive)
                        && self.has_all(&place, (drive, drives), &whole, &had) =>
                {
                    given.whole.push(object);
                }
                Err(Status::NoSuchObject) if !place.is_home(drive) => given.whole.push(object),
                Err(Status::NoSuchObject) if whole.attributes.logical_size <= LONGEST => {
                    let initial = Self::attributes_at(&place, (&whole, whole.version), drive);
                    let attributes = whole.attributes;
                    lacking.push(Small { object, place, drive, attributes, initial });
                }
                _ => {}
            }
        }
        lacking
    }

    /// Makes the components; those that are.
    fn make_small(&self, partition: PartitionId, lacking: Vec<Small>) -> Vec<Small> {
        let create = |(at, small): (usize, &Small)| {
            let create = BatchOperation::Create(Some(small.object), small.initial.clone());
            (small.drive, (at, create))
        };
        // Everybody counts on it, before it is heard that the drive was started anew too.
        let told = self.ask_each(partition, lacking.iter().enumerate().map(create), true);
        let is_made =
            |(at, small): &(usize, Small)| told.get(&(*at, small.drive)).is_some_and(Result::is_ok);
        let made = lacking.into_iter().enumerate().filter(is_made);
        made.map(|(_, small)| small)
            .inspect(|small| self.note_joined(ObjectName { partition, object: small.object }))
            .collect()
    }

    /// Reads and writes what they hold, and keeps those of which all is; how many bytes these had.
    fn write_small(&self, partition: PartitionId, smalls: &mut Vec<Small>) -> u64 {
        let (mut pieces, mut questions) = (Vec::with_capacity(smalls.len()), Vec::new());
        for small in &*smalls {
            let name = ObjectName { partition, object: small.object };
            // Who is given something does not say what it should be.
            let place = small.place.clone().doubting(small.drive);
            let order = self.draw_order(&place);
            let range = ByteRange::new(0, small.attributes.logical_size);
            let piece = Piece::new((name, small.drive), (&place, false), range, Write::Data, order);
            let reads = piece.reads(&place);
            pieces.push((piece, reads.len()));
            questions.extend(reads);
        }
        let mut answers = self.components.ask(questions).into_iter();
        let mut writes = Vec::new();
        let mut is_whole = vec![true; smalls.len()];
        for (at, (piece, reads)) in pieces.into_iter().enumerate() {
            match piece.writes(answers.by_ref().take(reads).collect()) {
                Ok(some) => writes.extend(some.into_iter().map(|write| (at, write))),
                Err(_) => is_whole[at] = false,
            }
        }
        let (owners, writes): (Vec<usize>, Vec<_>) = writes.into_iter().unzip();
        let questions = owners.iter().zip(writes).map(|(at, write)| (smalls[*at].drive, write));
        let answers = self.components.ask(questions.collect());
        let mut bytes = 0;
        for (at, answer) in owners.into_iter().zip(answers) {
            match answer {
                Ok(Told::Written(written)) => {
                    self.saw(smalls[at].drive, written.instance);
                    bytes += written.length;
                }
                _ => is_whole[at] = false,
            }
        }
        let mut is_whole = is_whole.into_iter();
        smalls.retain(|_| is_whole.next().unwrap_or(false));
        bytes
    }

    /// For who uses the files nothing has changed: see [`VirtualDrive::set_times`]. Those of which that is done.
    fn set_times_of_small(&self, partition: PartitionId, smalls: Vec<Small>) -> Vec<ObjectId> {
        let set = |(at, small): (usize, &Small)| {
            let changes = SetAttributes {
                fs_data_modify_time: Some(small.attributes.fs_data_modify_time),
                fs_attribute_modify_time: Some(small.attributes.fs_attribute_modify_time),
                ..SetAttributes::default()
            };
            (small.drive, (at, BatchOperation::Setattr(small.object, changes)))
        };
        let told = self.ask_each(partition, smalls.iter().enumerate().map(set), false);
        let is_set = |(at, small): &(usize, &Small)| {
            told.get(&(*at, small.drive)).is_some_and(Result::is_ok)
        };
        let set = smalls.iter().enumerate().filter(is_set);
        set.map(|(_, small)| small.object).collect()
    }

    /// Asks drives for one operation each, of this place in the caller's list: what came of it.
    fn ask_each(
        &self,
        partition: PartitionId,
        questions: impl Iterator<Item = (DriveId, (usize, BatchOperation))>,
        durable: bool,
    ) -> BTreeMap<(usize, DriveId), BatchOutcome> {
        let mut by_drive: BTreeMap<DriveId, Vec<(usize, BatchOperation)>> = BTreeMap::new();
        for (drive, question) in questions {
            by_drive.entry(drive).or_default().push(question);
        }
        self.ask_batches((partition, durable), by_drive)
    }
}

/// The whole of an object that nobody writes and that is not spread, by components which agree about that.
fn simple_whole(parts: Vec<Attributes>, place: &Place) -> Option<Whole> {
    let version = ComponentVersion(parts.first()?.access_control_version);
    let is_level = parts.iter().all(|part| part.access_control_version == version.0);
    let is_current = place.state_of(place.home()) == MemberState::Current;
    let is_settled = is_level && is_current && !version.is_spread() && !version.has_writers();
    is_settled.then(|| Whole {
        attributes: merged(parts, place, false),
        version,
        lengths: Vec::new(),
    })
}
