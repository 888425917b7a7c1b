//! What a striping manager keeps: docs/striping.md has the bytes.
//!
//! It is small whatever the number of objects: it is written whole, and seldom.

use std::collections::{BTreeMap, BTreeSet};

use nasd_layout::{DriveWeight, GroupError, GroupId, Groups, MemberState, Move, Shape, ShapeError};
use nasd_types::{DriveId, PartitionId, Timestamp};
use nasd_xdr::{Decoder, Encoder, XdrError};
use thiserror::Error;

/// Says that the bytes are such a state, and of which version.
const MAGIC: &[u8; 8] = b"NASDstr3";

/// Of the versions before: the first knew nothing of drives that are out, the second nothing of moves.
const EARLIER_MAGICS: [&[u8; 8]; 2] = [b"NASDstr1", b"NASDstr2"];

/// The number of the first working key of a component partition.
pub(crate) const FIRST_EPOCH: u32 = 1;

/// How many groups a table has: enough for the load of hundreds of drives to be even.
pub(crate) const GROUPS: usize = 1024;

/// Most partitions, drives, and members that are read.
const MOST: usize = 1 << 20;

/// A partition of the virtual drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartitionRecord {
    pub(crate) shape: Shape,
    pub(crate) groups: Groups,
    /// Members that are about to become other drives, which are being given what these have, in the order of groups.
    pub(crate) moves: Vec<Move>,
    /// The number of the working key of its component partitions, all of which have the same.
    pub(crate) epoch: u32,
}

/// A component drive that lacks something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Absence {
    /// When it is known to have had all the last time, by the virtual drive's clock.
    pub(crate) since: Timestamp,
    /// Whether it is back, and being given what it lacks.
    pub(crate) is_joining: bool,
}

impl Absence {
    /// What the drive is good for where there are other copies.
    pub(crate) fn member_state(&self) -> MemberState {
        if self.is_joining { MemberState::Joining } else { MemberState::Out }
    }
}

/// A secret that is not shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Secret(pub(crate) [u8; 32]);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// All that is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// Rises with every change of which drives have what.
    pub(crate) generation: u64,
    /// From which the keys of component partitions are derived.
    pub(crate) secret: Secret,
    /// Numbers of objects below this may have been given out.
    pub(crate) number_limit: u64,
    /// The drives that are out, or have been and lack something yet.
    pub(crate) absent: BTreeMap<DriveId, Absence>,
    /// Drives that may have components which belong elsewhere by now.
    pub(crate) strays: BTreeSet<DriveId>,
    /// The partitions.
    pub(crate) partitions: BTreeMap<PartitionId, PartitionRecord>,
}

/// Why bytes are no state.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StateError {
    /// They are something else, or of a later version of this program.
    #[error("it is not the state of a striping manager of this version")]
    Magic,
    /// They end early, or have more.
    #[error("the striping manager's state is cut off or damaged: {0}")]
    Damaged(String),
}

impl From<XdrError> for StateError {
    fn from(error: XdrError) -> Self {
        StateError::Damaged(error.to_string())
    }
}

impl From<ShapeError> for StateError {
    fn from(error: ShapeError) -> Self {
        StateError::Damaged(error.to_string())
    }
}

impl From<GroupError> for StateError {
    fn from(error: GroupError) -> Self {
        StateError::Damaged(error.to_string())
    }
}

impl PartitionRecord {
    /// Whether there is more than one copy of each byte.
    pub(crate) fn has_copies(&self) -> bool {
        self.shape.copies() > 1
    }

    /// A partition with a new table, on drives of these weights.
    pub(crate) fn draw(
        shape: Shape,
        drives: &[DriveWeight],
    ) -> Result<PartitionRecord, GroupError> {
        let groups = Groups::draw(GROUPS, shape.width(), drives)?;
        Ok(PartitionRecord { shape, groups, moves: Vec::new(), epoch: FIRST_EPOCH })
    }

    /// Whether clients ask every second whether their maps are the present ones.
    pub(crate) fn is_guarded(&self) -> bool {
        self.has_copies() || !self.moves.is_empty()
    }

    /// The drives that are about to take the places of members of a group.
    pub(crate) fn stand_ins(&self, group: GroupId) -> Vec<(u16, DriveId)> {
        let first = self.moves.partition_point(|step| step.group < group);
        let those = self.moves[first..].iter().take_while(|step| step.group == group);
        those.map(|step| (step.member as u16, step.to)).collect()
    }

    /// Every drive that has components.
    pub(crate) fn drives(&self) -> BTreeSet<DriveId> {
        let members = self.groups.all_members().iter().copied();
        members.chain(self.moves.iter().map(|step| step.to)).collect()
    }

    /// Begins to move members.
    pub(crate) fn add_moves(&mut self, moves: Vec<Move>) {
        self.moves.extend(moves);
        self.moves.sort_by_key(|step| (step.group, step.member));
    }
}

impl State {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut out = Encoder::new();
        out.opaque_fixed(MAGIC);
        out.opaque_fixed(&self.secret.0);
        out.u64(self.generation);
        out.u64(self.number_limit);
        let absent: Vec<_> = self.absent.iter().collect();
        out.array_with(&absent, |out, (drive, absence)| {
            out.u64(drive.0);
            out.u64(absence.since.0);
            out.bool(absence.is_joining);
        });
        let strays: Vec<_> = self.strays.iter().collect();
        out.array_with(&strays, |out, drive| out.u64(drive.0));
        out.u32(self.partitions.len() as u32);
        for (partition, record) in &self.partitions {
            out.u32(partition.0);
            out.u64(record.shape.unit());
            out.u32(record.shape.width().into());
            out.u32(record.shape.copies().into());
            out.u32(record.epoch);
            // Drives are named once, and then by their place in the list.
            let drives: Vec<DriveId> = record.groups.drives().into_keys().collect();
            out.array_with(&drives, |out, drive| out.u64(drive.0));
            let place = |member: &DriveId| drives.binary_search(member).unwrap_or_default() as u32;
            out.array_with(record.groups.all_members(), |out, member| out.u32(place(member)));
            out.array_with(&record.moves, |out, step| {
                out.u32(step.group.0.into());
                out.u32(step.member as u32);
                out.u64(step.to.0);
            });
        }
        out.into_bytes()
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<State, StateError> {
        let mut input = Decoder::new(bytes);
        let magic: [u8; 8] = input.opaque_fixed().map_err(|_| StateError::Magic)?;
        let earlier = EARLIER_MAGICS.iter().position(|known| magic == **known);
        if magic != *MAGIC && earlier.is_none() {
            return Err(StateError::Magic);
        }
        let (is_first, is_last) = (earlier == Some(0), earlier.is_none());
        let secret = Secret(input.opaque_fixed()?);
        let (generation, number_limit) = (input.u64()?, input.u64()?);
        let absent = if is_first { BTreeMap::new() } else { absent_drives(&mut input)? };
        let strays: Vec<u64> = if is_last { input.array(MOST)? } else { Vec::new() };
        let mut partitions = BTreeMap::new();
        for _ in 0..input.u32()? {
            let partition = PartitionId(input.u32()?);
            let unit = input.u64()?;
            let (width, copies) = (narrow(input.u32()?), narrow(input.u32()?));
            let shape = Shape::new(unit, width, copies)?;
            let epoch = if is_first { FIRST_EPOCH } else { input.u32()? };
            let drives: Vec<u64> = input.array(MOST)?;
            let places: Vec<u32> = input.array(MOST)?;
            let member = |place: &u32| drives.get(*place as usize).map(|drive| DriveId(*drive));
            let members: Option<Vec<DriveId>> = places.iter().map(member).collect();
            let members = members.ok_or(StateError::Damaged("a member is no drive".to_owned()))?;
            let groups = Groups::from_members(width, members)?;
            let moves = if is_last { moves_of(&mut input, &groups)? } else { Vec::new() };
            partitions.insert(partition, PartitionRecord { shape, groups, moves, epoch });
        }
        if input.position() != bytes.len() {
            return Err(StateError::Damaged("something follows it".to_owned()));
        }
        let strays = strays.into_iter().map(DriveId).collect();
        Ok(State { generation, secret, number_limit, absent, strays, partitions })
    }
}

fn absent_drives(input: &mut Decoder<'_>) -> Result<BTreeMap<DriveId, Absence>, XdrError> {
    let mut absent = BTreeMap::new();
    for _ in 0..input.u32()? {
        let drive = DriveId(input.u64()?);
        let since = Timestamp(input.u64()?);
        absent.insert(drive, Absence { since, is_joining: input.bool()? });
    }
    Ok(absent)
}

fn moves_of(input: &mut Decoder<'_>, groups: &Groups) -> Result<Vec<Move>, StateError> {
    let mut moves = Vec::new();
    for _ in 0..input.u32()? {
        let group = GroupId(narrow(input.u32()?));
        let member = input.u32()? as usize;
        let to = DriveId(input.u64()?);
        let known = groups.groups().any(|known| known == group);
        let from = groups.members(group).get(member).copied().filter(|_| known);
        let no_member = || StateError::Damaged("what moves is no member".to_owned());
        moves.push(Move { group, member, from: from.ok_or_else(no_member)?, to });
    }
    if moves.is_sorted_by_key(|step| (step.group, step.member)) {
        return Ok(moves);
    }
    Err(StateError::Damaged("moves are in no order".to_owned()))
}

/// What is too large to be right becomes what is refused as too large.
fn narrow(number: u32) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}

/// Where the state is kept.
pub trait Keeper: Send + Sync {
    /// What was kept last; `None` where nothing ever was.
    ///
    /// # Errors
    ///
    /// Why it can't be read.
    fn load(&self) -> Result<Option<Vec<u8>>, String>;

    /// Keeps this instead: durable when it returns, and after a crash it is this or the one before.
    ///
    /// # Errors
    ///
    /// Why it may not be durable.
    fn save(&self, bytes: &[u8]) -> Result<(), String>;

    /// Nothing is to be waited for that is kept on this component drive.
    fn give_up(&self, _drive: DriveId) {}

    /// The component drive is back.
    fn call_again(&self, _drive: DriveId) {}

    /// Whether something is about to be kept on a component drive that is back: before it is, others that keep it
    /// can't be lost.
    fn is_about_to_use(&self, _drive: DriveId) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> State {
        let drives: Vec<_> = (1..=13)
            .map(|number| DriveWeight { drive: DriveId(number << 40), weight: 1 })
            .collect();
        let record = |width, copies| {
            let shape = Shape::new(256 << 10, width, copies).unwrap();
            PartitionRecord::draw(shape, &drives).unwrap()
        };
        let mut moving = record(4, 2);
        let step = |group, member| {
            let from = moving.groups.members(GroupId(group))[member];
            Move { group: GroupId(group), member, from, to: DriveId(99) }
        };
        moving.add_moves(vec![step(700, 3), step(2, 1)]);
        let partitions =
            BTreeMap::from([(PartitionId(1), moving), (PartitionId(9), record(13, 1))]);
        let absent = [(3, false), (9, true)].map(|(number, is_joining)| {
            (DriveId(number << 40), Absence { since: Timestamp(number), is_joining })
        });
        State {
            generation: 7,
            secret: Secret([5; 32]),
            number_limit: 1 << 50,
            absent: BTreeMap::from(absent),
            strays: BTreeSet::from([DriveId(5 << 40)]),
            partitions,
        }
    }

    #[test]
    fn it_survives_its_bytes_and_any_cut_is_told() {
        let state = state();
        let bytes = state.to_bytes();
        assert_eq!(State::from_bytes(&bytes), Ok(state));
        assert_eq!(State::from_bytes(b"NASDstr4"), Err(StateError::Magic));
        for end in (0..bytes.len()).step_by(37).chain(bytes.len() - 8..bytes.len()) {
            assert!(State::from_bytes(&bytes[..end]).is_err(), "{end}");
        }
        assert!(State::from_bytes(&[&bytes[..], &[0; 4]].concat()).is_err());
    }

    #[test]
    fn earlier_versions_are_read_too() {
        for magic in EARLIER_MAGICS {
            read_earlier(magic);
        }
    }

    fn read_earlier(magic: &[u8; 8]) {
        let is_first = magic == b"NASDstr1";
        let mut out = Encoder::new();
        out.opaque_fixed(magic);
        out.opaque_fixed(&[5; 32]);
        out.u64(7);
        out.u64(1 << 50);
        if !is_first {
            // Drive 12 is out.
            out.u32(1);
            [12, 1000].iter().for_each(|number| out.u64(*number));
            out.bool(false);
        }
        out.u32(1);
        // Partition 9: a unit of 64 KiB, two drives, two copies, two groups.
        out.u32(9);
        out.u64(64 << 10);
        [2_u32, 2].iter().for_each(|number| out.u32(*number));
        if !is_first {
            out.u32(FIRST_EPOCH);
        }
        out.array_with(&[11_u64, 12], |out, drive| out.u64(*drive));
        out.array_with(&[0_u32, 1, 1, 0], |out, member| out.u32(*member));
        let state = State::from_bytes(&out.into_bytes()).unwrap();
        assert_eq!((state.generation, state.number_limit), (7, 1 << 50));
        assert_eq!(state.absent.contains_key(&DriveId(12)), !is_first);
        assert!(state.strays.is_empty() && state.partitions[&PartitionId(9)].moves.is_empty());
        let record = &state.partitions[&PartitionId(9)];
        assert_eq!(record.epoch, FIRST_EPOCH);
        assert_eq!(record.shape, Shape::new(64 << 10, 2, 2).unwrap());
        assert_eq!(record.groups.all_members(), [11, 12, 12, 11].map(DriveId));
    }

    #[test]
    fn any_change_of_a_byte_is_read_or_refused() {
        let bytes = state().to_bytes();
        for at in (0..bytes.len()).filter(|at| *at < 400 || at % 101 == 0) {
            for value in [0, 1, 0x7f, 0xff] {
                let mut changed = bytes.clone();
                changed[at] = value;
                let _ = State::from_bytes(&changed);
            }
        }
    }
}
