//! What a client that died has written at a drive which had just got all, or another one's place, and nowhere else.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use nasd_capability::Capability;
use nasd_drive::{Elsewhere, Shown};
use nasd_layout::Shape;
use nasd_protocol::Region;
use nasd_protocol::drive::{
    Component, CreateArguments, FastcopyArguments, MapArguments, MemberState, RangeToCopy,
    ReadArguments, WriteArguments,
};
use nasd_stripe::{Arrangement, Ask, Components, Role, Told, VirtualDrive, VirtualDriveOptions};
use nasd_types::{
    AuditId, ByteRange, DriveId, ObjectName, PartitionId, Protection, Rights, SetAttributes,
    Timestamp,
};

use support::{MemoryDrives, MemoryKeeper, start};

const PARTITION: PartitionId = PartitionId(3);
const COMPONENTS: PartitionId = PartitionId(3 + (1 << 30));
const UNIT: u64 = 4096;
const SECOND: u64 = 1_000_000_000;

/// Objects whose numbers differ by a multiple of it lie alike.
const GROUPS: u64 = 1024;

/// The columns of the object, each a unit long.
const WIDTH: u16 = 3;
const LENGTH: u64 = UNIT * WIDTH as u64;

struct Cell {
    drives: Arc<MemoryDrives>,
    whole: VirtualDrive,
    /// An object that is spread, of ones.
    name: ObjectName,
    /// The drives that have its columns, in order.
    members: Vec<DriveId>,
    /// When it was written.
    modified: Timestamp,
}

impl Cell {
    /// Four drives, each object on three of them, two copies.
    fn new() -> Cell {
        let drives = Arc::new(MemoryDrives::new(4, 1));
        let options = VirtualDriveOptions {
            unit: UNIT,
            width: WIDTH,
            copies: 2,
            ..VirtualDriveOptions::default()
        };
        let whole = start(&drives, &Arc::new(MemoryKeeper::default()), &options, 1);
        whole.create_partition(PARTITION).unwrap();
        let initial = SetAttributes::default();
        let create = CreateArguments { partition: PARTITION, object: None, durable: true, initial };
        let object = whole.create(&create).unwrap().object;
        let name = ObjectName { partition: PARTITION, object };
        let data = [1; LENGTH as usize];
        whole.write(&WriteArguments::single(name, 0, data.len(), true), &[&data]).unwrap();
        let modified = whole.getattr(name).unwrap().fs_data_modify_time;
        let mut cell = Cell { drives, whole, name, members: Vec::new(), modified };
        cell.members = cell.map(true).iter().map(|component| component.drive).collect();
        cell.settle();
        cell
    }

    /// What a map says of the object's components.
    fn map(&self, write: bool) -> Vec<Component> {
        let now = self.drives.now();
        let capability = Capability {
            drive: DriveId(99),
            partition: PARTITION,
            object: self.name.object,
            region: ByteRange::new(0, 1 << 30),
            rights: Rights::all(),
            expires: now.plus_ns(3600 * SECOND),
            audit_id: AuditId(77),
            minimum_protection: Protection::empty(),
            key_epoch: 9,
        };
        let shown = Shown { capability: &capability, sealed: true, now };
        let arguments = MapArguments { name: self.name, write, end: LENGTH, client: 4 };
        self.whole.map(&arguments, &shown).unwrap().components
    }

    /// How a drive is used for the object.
    fn state_of(&self, drive: DriveId) -> MemberState {
        let components = self.map(false);
        components.iter().find(|component| component.drive == drive).unwrap().state
    }

    /// All drives but one tell of themselves, and what follows from that is done.
    fn hear(&self, silent: Option<DriveId>) {
        for drive in self.drives.drives() {
            let sign = self.drives.sign(drive).filter(|_| Some(drive) != silent);
            self.whole.heard(drive, sign, self.drives.now());
        }
        self.whole.watch(self.drives.now());
    }

    fn is_out(&self, drive: DriveId) -> bool {
        let status = self.whole.component_status().into_iter();
        status.filter(|it| it.drive == drive).all(|it| it.state == MemberState::Out)
    }

    fn take_out(&self, drive: DriveId) {
        self.hear(None);
        for _ in 0..2 {
            self.drives.pass(20 * SECOND);
            self.hear(Some(drive));
        }
        assert!(self.is_out(drive));
    }

    fn take_back(&self, drive: DriveId) {
        for _ in 0..2 {
            self.drives.pass(20 * SECOND);
            self.hear(None);
        }
        assert!(!self.is_out(drive));
    }

    /// One that leaves gives its place to the drive that is none of the members.
    fn drain(&self, drive: DriveId) -> DriveId {
        let roles = BTreeMap::from([(drive, Role::Leaving)]);
        self.whole.set_arrangement(Arrangement { roles, ..Arrangement::default() });
        assert!(self.whole.arrange(self.drives.now()), "nothing moves");
        let taker = self.map(true).last().unwrap().drive;
        assert!(!self.members.contains(&taker));
        taker
    }

    /// A drive is given what it lacks, while a client writes nines there and at no other, and behind the end too.
    fn give_while_written(&self, member: usize, drive: DriveId) {
        let shape = Shape::new(UNIT, WIDTH, 2).unwrap();
        let is_there = |offset: &u64| shape.members(shape.column(*offset)).any(|it| it == member);
        let offsets = (0..2 * LENGTH).step_by(UNIT as usize).filter(is_there);
        let offsets: Vec<u64> = offsets.collect();
        self.map(true);
        while self.whole.rebuild().is_some() {
            // What was asked for the last time before it counted may be done later.
            offsets.iter().for_each(|offset| self.write_component(drive, *offset));
        }
        assert!(self.is_current(drive));
        let has = self.component(drive);
        assert!(offsets.iter().all(|offset| has[*offset as usize] == 9), "it was to be written");
    }

    fn is_current(&self, drive: DriveId) -> bool {
        let status = self.whole.component_status().into_iter();
        status
            .filter(|it| it.drive == drive)
            .all(|it| it.state == MemberState::Current && it.places_coming == 0)
    }

    fn write_component(&self, drive: DriveId, offset: u64) {
        let name = ObjectName { partition: COMPONENTS, ..self.name };
        let data = vec![9; UNIT as usize];
        let regions = vec![Region::single(offset, UNIT)];
        let write = Ask::Write { name, order: None, regions, data, durable: false };
        self.drives.ask_one(drive, write).unwrap();
    }

    /// What a drive has.
    fn component(&self, drive: DriveId) -> Vec<u8> {
        self.component_of(drive, self.name)
    }

    fn component_of(&self, drive: DriveId, name: ObjectName) -> Vec<u8> {
        let name = ObjectName { partition: COMPONENTS, ..name };
        let length = 3 * LENGTH;
        let regions = vec![Region::single(0, length)];
        let ask = Ask::Read { name, order: None, regions, length: length as usize };
        match self.drives.ask_one(drive, ask) {
            Ok(Told::Read(read)) => read.data,
            other => panic!("{other:?}"),
        }
    }

    /// Copies the object to another one that lies on the same drives.
    fn copy_range(&self) -> ObjectName {
        let initial = SetAttributes::default();
        let create = CreateArguments { partition: PARTITION, object: None, durable: true, initial };
        let lies_alike = |name: &ObjectName| name.object.0 % GROUPS == self.name.object.0 % GROUPS;
        let make =
            || ObjectName { object: self.whole.create(&create).unwrap().object, ..self.name };
        let name = std::iter::repeat_with(make).find(lies_alike).unwrap();
        let copy = RangeToCopy {
            name,
            offset: 0,
            length: LENGTH,
            source: self.name.object,
            source_offset: 0,
        };
        assert_eq!(self.whole.copy_range(&copy).unwrap().length, LENGTH);
        name
    }

    /// What a client reads.
    fn read(&self) -> Vec<u8> {
        self.read_of(self.name)
    }

    fn read_of(&self, name: ObjectName) -> Vec<u8> {
        let regions = vec![Region::single(0, 3 * LENGTH)];
        self.whole.read(&ReadArguments { name, order: None, regions }).unwrap().data
    }

    /// Whoever writes has died, and copies are made even.
    fn settle(&self) {
        for _ in 0..3 {
            self.drives.pass(600 * SECOND);
            self.whole.tend(self.drives.now());
        }
    }

    /// What the client wrote is not read as long as nobody else has it; in the end no drive has it.
    fn check(&self, drive: DriveId) {
        let ones = [1; LENGTH as usize];
        assert_eq!(self.read(), ones);
        assert_eq!(self.whole.getattr(self.name).unwrap().logical_size, LENGTH);
        assert_eq!(self.state_of(drive), MemberState::Joining);
        self.settle();
        assert_eq!(self.state_of(drive), MemberState::Current);
        assert_eq!(self.read(), ones);
        assert_eq!(self.whole.getattr(self.name).unwrap().logical_size, LENGTH);
        let has = self.component(drive);
        assert!(has.len() as u64 <= LENGTH && !has.contains(&9));
        assert_eq!(self.modified(self.name), self.modified, "nothing has changed for readers");
    }

    fn modified(&self, name: ObjectName) -> Timestamp {
        self.whole.getattr(name).unwrap().fs_data_modify_time
    }
}

#[test]
fn a_drive_that_is_back_does_not_decide_what_is_just_being_written() {
    for member in 0..usize::from(WIDTH) {
        let cell = Cell::new();
        let back = cell.members[member];
        cell.take_out(back);
        cell.take_back(back);
        cell.give_while_written(member, back);
        cell.check(back);
    }
}

#[test]
fn nor_does_one_that_takes_the_place_of_a_drive_that_is_out() {
    for member in 0..usize::from(WIDTH) {
        let cell = Cell::new();
        let lost = cell.members[member];
        cell.take_out(lost);
        let taker = cell.drain(lost);
        cell.give_while_written(member, taker);
        cell.check(taker);
    }
}

#[test]
fn nor_one_that_takes_the_place_of_a_drive_that_does_not() {
    for member in 0..usize::from(WIDTH) {
        let cell = Cell::new();
        let back = cell.members[member];
        cell.take_out(back);
        cell.take_back(back);
        cell.give_while_written(member, back);
        let taker = cell.drain(back);
        cell.give_while_written(member, taker);
        cell.check(taker);
    }
}

#[test]
fn what_such_a_drive_has_lost_is_written_anew_there() {
    for member in 0..usize::from(WIDTH) {
        let cell = Cell::new();
        let back = cell.members[member];
        cell.take_out(back);
        cell.take_back(back);
        cell.give_while_written(member, back);
        let component = ObjectName { partition: COMPONENTS, ..cell.name };
        assert!(cell.drives.spoil(back, component, 0));
        cell.check(back);
    }
}

#[test]
fn what_others_have_lost_they_are_given_by_such_a_drive() {
    for member in 0..usize::from(WIDTH) {
        for other in (0..usize::from(WIDTH)).filter(|other| *other != member) {
            let cell = Cell::new();
            let back = cell.members[member];
            cell.take_out(back);
            cell.take_back(back);
            cell.map(true);
            while cell.whole.rebuild().is_some() {}
            assert_eq!(cell.state_of(back), MemberState::Joining);
            let component = ObjectName { partition: COMPONENTS, ..cell.name };
            let other = cell.members[other];
            assert!((0..WIDTH).any(|turn| cell.drives.spoil(other, component, turn.into())));
            assert_eq!(cell.read(), [1; LENGTH as usize]);
        }
    }
}

#[test]
fn of_a_copy_the_same_drives_decide() {
    for member in 0..usize::from(WIDTH) {
        for by_range in [false, true] {
            let cell = Cell::new();
            let back = cell.members[member];
            cell.take_out(back);
            cell.take_back(back);
            cell.give_while_written(member, back);
            let copy = match by_range {
                true => cell.copy_range(),
                false => {
                    let copy = FastcopyArguments { name: cell.name, copy: None };
                    let object = cell.whole.fastcopy(&copy).unwrap().object;
                    ObjectName { object, ..cell.name }
                }
            };
            let ones = [1; LENGTH as usize];
            assert_eq!(cell.read_of(copy), ones);
            cell.settle();
            assert_eq!(cell.read_of(copy), ones);
        }
    }
}

/// What copies of the source differ in, those of the target would differ in for good.
#[test]
fn copies_of_what_is_uneven_are_made_even() {
    let cell = Cell::new();
    cell.map(true);
    // Where the second column has its other copy.
    cell.write_component(cell.members[2], UNIT);
    let target = cell.copy_range();
    cell.settle();
    let read = cell.read_of(target);
    for drive in &cell.members {
        // Of what it has nothing of, it has zeros.
        let has = cell.component_of(*drive, target);
        let is_same = |(has, read): (&u8, &u8)| has == read || *has == 0;
        assert!(has.iter().zip(&read).all(is_same), "{drive}");
    }
}
