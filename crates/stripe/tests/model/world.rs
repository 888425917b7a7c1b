//! A virtual drive over drives in memory, and beside it what it should be.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use nasd_capability::Capability;
use nasd_drive::{Elsewhere, Shown};
use nasd_protocol::drive::{
    BatchArguments, BatchOperation, ComponentStatus, CreateArguments, FastcopyArguments,
    MapArguments, MemberState, ObjectMap, PunchArguments, RangeToCopy, ReadArguments,
    RemoveArguments, SeekArguments, SetattrArguments, WriteArguments,
};
use nasd_protocol::{Region, Status};
use nasd_store::Append;
use nasd_stripe::{Arrangement, Role, VirtualDrive, VirtualDriveOptions};
use nasd_types::{
    AppendToken, Attributes, AuditId, ByteRange, DriveId, FS_SPECIFIC_BYTES, ObjectId, ObjectName,
    PartitionId, Protection, Rights, SeekTarget, SetAttributes, Timestamp,
};

use crate::expected::{Expected, VALUES};
use crate::support::{BLOCK, MemoryDrives, MemoryKeeper, Random, start};

pub const UNIT: u64 = 4096;
pub const PARTITION: PartitionId = PartitionId(7);
/// The partition of the component drives.
const COMPONENTS: PartitionId = PartitionId(7 + (1 << 30));
const OBJECTS: usize = 6;
const REACH: u64 = 200 << 10;

/// How much goes wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trouble {
    /// One call of so many fails.
    pub fail_one_in: u64,
    /// Drives are started anew now and then.
    pub restarts: bool,
    /// Drives are away for a while now and then, as many as there are copies to spare.
    pub outages: bool,
    /// Drives are added and drained now and then.
    pub moves: bool,
    /// Blocks of one drive can't be read any more now and then.
    pub rot: bool,
}

/// The drive of which blocks can't be read any more.
const ROTTEN: DriveId = DriveId(2);

/// Drives that there are; the last two have nothing at the start.
const DRIVES: u64 = 7;

pub struct World {
    pub drives: Arc<MemoryDrives>,
    keeper: Arc<MemoryKeeper>,
    options: VirtualDriveOptions,
    arrangement: Arrangement,
    pub whole: VirtualDrive,
    pub objects: BTreeMap<ObjectId, Expected>,
    random: Random,
    trouble: Trouble,
    /// Objects that nobody knows may be left by operations that failed.
    may_leak: bool,
    removed: BTreeSet<ObjectId>,
    tokens: u64,
    lives: u64,
}

fn is_out(status: &ComponentStatus) -> bool {
    status.state == MemberState::Out
}

fn named(object: ObjectId) -> ObjectName {
    ObjectName { partition: PARTITION, object }
}

impl World {
    pub fn new((width, copies): (u16, u16), seed: u64, trouble: Trouble) -> World {
        let drives = Arc::new(MemoryDrives::new(DRIVES, seed));
        let keeper = Arc::new(MemoryKeeper::default());
        let options =
            VirtualDriveOptions { unit: UNIT, width, copies, ..VirtualDriveOptions::default() };
        let arrangement = Arrangement {
            roles: BTreeMap::from([6, 7].map(|number| (DriveId(number), Role::Spare))),
            ..Arrangement::default()
        };
        let whole = start(&drives, &keeper, &options, seed);
        whole.set_arrangement(arrangement.clone());
        whole.create_partition(PARTITION).unwrap();
        whole.resize_partition(PARTITION, u64::MAX >> 8).unwrap();
        let objects = BTreeMap::from([(ObjectId::FIRST_OBJECT, Expected::new(1, 0, 0))]);
        drives.fail_one_in(trouble.fail_one_in);
        World {
            drives,
            keeper,
            options,
            arrangement,
            whole,
            objects,
            random: Random(seed),
            trouble,
            may_leak: false,
            removed: BTreeSet::new(),
            tokens: 0,
            lives: 1,
        }
    }

    /// Starts the striping manager anew.
    pub fn restart(&mut self) {
        self.lives += 1;
        self.whole = start(&self.drives, &self.keeper, &self.options, self.lives << 32);
        self.whole.set_arrangement(self.arrangement.clone());
        if self.trouble.outages || self.trouble.moves {
            // Nobody knows any more which drives were not to decide yet.
            self.objects.values_mut().for_each(Expected::decided_anew);
        }
    }

    fn some_object(&mut self) -> ObjectId {
        let usable = self.objects.iter().filter(|(_, object)| !object.may_be_gone);
        let usable: Vec<ObjectId> = usable.map(|(id, _)| *id).collect();
        usable[self.random.index(usable.len())]
    }

    fn expect(&mut self, object: ObjectId) -> &mut Expected {
        self.objects.get_mut(&object).unwrap()
    }

    /// Whether an operation was done; if not it may have been, and only where calls fail.
    fn outcome<T>(&mut self, what: &str, outcome: Result<T, Status>) -> Option<T> {
        match outcome {
            Ok(told) => Some(told),
            Err(Status::Busy) if self.trouble.fail_one_in > 0 => None,
            Err(status) => panic!("{what}: {status:?}"),
        }
    }

    /// Does one thing, again if it fails and the drives are well, and looks at the object.
    pub fn step(&mut self) {
        self.drives.pass(self.random.below(1_000_000_000));
        let kind = self.random.below(100);
        let object = self.some_object();
        let seed = self.random.next();
        let before = self.objects.len();
        if !self.one(kind, object, seed) {
            assert!(self.trouble.fail_one_in > 0);
            if self.random.below(2) == 0 {
                self.drives.fail_one_in(0);
                // An attempt that finds a later version at a drive which is joining leaves the rest to the next one.
                let coming = self.whole.component_status();
                let coming = coming.iter().filter(|status| status.places_coming > 0).count();
                let attempts = 1 + self.absent().count() + coming;
                let is_done = (0..attempts).any(|_| self.one(kind, object, seed));
                assert!(is_done, "{kind} again, without trouble, {attempts} times");
                self.drives.fail_one_in(self.trouble.fail_one_in);
            }
        }
        assert!(self.objects.len() <= before + 8);
        if self.objects.get(&object).is_some_and(|it| !it.may_be_gone) && self.random.below(3) == 0
        {
            self.look(object);
        }
        self.trouble_step();
    }

    fn trouble_step(&mut self) {
        if self.trouble.restarts && self.random.below(12) == 0 {
            let drive = self.some_drive();
            self.drives.restart(drive);
            self.objects.values_mut().for_each(Expected::restarted);
        }
        if self.trouble.outages && self.options.copies > 1 {
            self.outage_step();
        }
        if self.trouble.moves {
            self.move_step();
        }
        if self.trouble.rot {
            // Another copy decides where one can't be read.
            self.objects.values_mut().for_each(Expected::decided_anew);
        }
        if self.trouble.rot && self.options.copies > 1 && self.random.below(3) == 0 {
            let object = ObjectName { partition: COMPONENTS, object: self.some_object() };
            let turn = self.random.index(64);
            self.drives.spoil(ROTTEN, object, turn);
        }
        if self.random.below(16) == 0 {
            self.drives.pass(3_000_000_000);
            self.whole.tend(self.drives.now());
        }
        if self.random.below(64) == 0 {
            self.restart();
        }
    }

    /// Takes a drive away, or brings one back, or gives it some of what it lacks.
    fn outage_step(&mut self) {
        let absent: Vec<DriveId> = self.absent().map(|status| status.drive).collect();
        let away: Vec<DriveId> = self.absent().filter(is_out).map(|it| it.drive).collect();
        match self.random.below(24) {
            0 if absent.len() + 1 < usize::from(self.options.copies) => {
                if self.random.below(2) == 0 {
                    // What was written before is not looked at again.
                    self.drives.pass(600_000_000_000);
                }
                self.hear(1);
                let drive = self.some_drive();
                if !absent.contains(&drive) {
                    self.drives.set_away(drive, true);
                    self.hear(8);
                    let status = self.whole.component_status();
                    let status = status.into_iter().find(|it| it.drive == drive).unwrap();
                    let is_used = status.places > 0;
                    assert_eq!(is_out(&status), is_used, "{drive} is not taken out");
                    assert_eq!(status.places_coming, 0, "{status:?}");
                    if !is_used {
                        self.drives.set_away(drive, false);
                    }
                }
            }
            1 if !away.is_empty() => {
                let drive = away[self.random.index(away.len())];
                if self.random.below(2) == 0 {
                    self.drives.restart(drive);
                }
                self.drives.set_away(drive, false);
                let troubled = self.drives.fail_one_in(0);
                self.hear(5);
                self.drives.fail_one_in(troubled);
                assert!(
                    self.absent().any(|it| it.drive == drive && it.state == MemberState::Joining),
                    "{drive}"
                );
            }
            2 if absent.len() > away.len() => {
                // One that has got a part of what it lacked loses it.
                let joining = absent[self.random.index(absent.len())];
                if !away.contains(&joining) {
                    self.drives.restart(joining);
                    self.hear(1);
                }
            }
            3..=8 => {
                for _ in 0..self.random.below(12) {
                    self.whole.rebuild();
                }
                self.objects.values_mut().for_each(Expected::decided_anew);
            }
            _ => {}
        }
    }

    fn some_drive(&mut self) -> DriveId {
        let all = if self.trouble.moves { DRIVES } else { 5 };
        DriveId(1 + self.random.below(all))
    }

    /// Has a drive become something else, or moves a little.
    fn move_step(&mut self) {
        match self.random.below(24) {
            0 => {
                let drive = self.some_drive();
                let roles = [Role::Member, Role::Spare, Role::Leaving];
                let role = roles[self.random.index(3)];
                let mut arrangement = self.arrangement.clone();
                arrangement.roles.insert(drive, role);
                arrangement.replace_after_ns = self.random.below(3) * 600_000_000_000;
                let members = (1..=DRIVES).filter(|number| {
                    let role = arrangement.roles.get(&DriveId(*number));
                    role.copied().unwrap_or_default() == Role::Member
                });
                if members.count() >= usize::from(self.options.width) {
                    self.whole.set_arrangement(arrangement.clone());
                    self.arrangement = arrangement;
                }
            }
            1..=2 => self.hear(1),
            3..=8 => {
                for _ in 0..self.random.below(8) {
                    self.whole.rebuild();
                }
                self.objects.values_mut().for_each(Expected::decided_anew);
            }
            9 => drop(self.whole.sweep()),
            _ => {}
        }
    }

    /// The drive finds its bad blocks, and is given what they held.
    fn mend_all(&mut self) {
        self.objects.values_mut().for_each(Expected::decided_anew);
        self.drives.scrub(ROTTEN);
        self.hear(1);
        let told = self.whole.mend_suspects();
        assert!(told && !self.whole.mend_suspects());
        let kept = self.objects.iter().filter(|(_, expected)| !expected.may_be_gone);
        for (object, _) in kept {
            let name = ObjectName { partition: COMPONENTS, object: *object };
            let component = self.drives.component(ROTTEN, name);
            assert!(!component.is_some_and(|it| it.is_spoilt()), "{object} has a bad block");
        }
    }

    /// All moves are made, and nothing is left where it was.
    pub fn finish_moves(&mut self) {
        for _ in 0..10_000 {
            self.hear(1);
            let most = (0..10_000).take_while(|_| self.whole.rebuild().is_some()).count();
            assert!(most < 10_000, "an object can't be moved: {:?}", self.whole.component_status());
            self.objects.values_mut().for_each(Expected::decided_anew);
            let status = self.whole.component_status();
            let is_moving = status.iter().any(|it| it.places_coming + it.places_going > 0);
            if is_moving || self.whole.sweep() {
                continue;
            }
            for it in status {
                let has_none = it.places == 0;
                let role = self.arrangement.roles.get(&it.drive).copied().unwrap_or_default();
                assert_eq!(has_none, role != Role::Member, "{it:?}");
            }
            return;
        }
        panic!("moving has no end: {:?}", self.whole.component_status());
    }

    /// No drive has components that belong elsewhere.
    fn check_places(&self) {
        for drive in (1..=DRIVES).map(DriveId) {
            for object in self.drives.objects(drive, COMPONENTS) {
                let is_known = self.objects.get(&object).is_some_and(|it| !it.may_be_gone);
                if !is_known || object == ObjectId::FIRST_OBJECT {
                    continue;
                }
                let map = self.ask_map(object, false, 0).unwrap();
                assert!(map.stand_ins.is_empty());
                let belongs = map.components.iter().any(|component| component.drive == drive);
                assert!(belongs, "{object} has a component on {drive}");
            }
        }
    }

    fn absent(&self) -> impl Iterator<Item = ComponentStatus> + use<> {
        self.whole
            .component_status()
            .into_iter()
            .filter(|status| status.state != MemberState::Current)
    }

    /// Half a second passes, so many times.
    pub fn hear(&mut self, times: usize) {
        self.objects.values_mut().for_each(Expected::decided_anew);
        for _ in 0..times {
            self.drives.pass(500_000_000);
            for drive in (1..=DRIVES).map(DriveId) {
                self.whole.heard(drive, self.drives.sign(drive), self.drives.now());
            }
            self.whole.watch(self.drives.now());
            if self.trouble.moves {
                self.whole.arrange(self.drives.now());
            }
        }
    }

    /// Everybody is back, and has all.
    pub fn mend(&mut self) {
        for status in self.absent().collect::<Vec<_>>() {
            self.drives.set_away(status.drive, false);
        }
        self.hear(5);
        for _ in 0..10_000 {
            if self.absent().next().is_none() {
                return;
            }
            self.whole.rebuild();
            if self.absent().next().is_none() {
                self.objects.values_mut().for_each(Expected::decided_anew);
            }
        }
        panic!("it has no end: {:?}", self.whole.component_status());
    }

    /// Whether it was done.
    fn one(&mut self, kind: u64, object: ObjectId, seed: u64) -> bool {
        let mut random = Random(seed);
        match kind {
            0..=7 => self.create(&mut random),
            8..=32 => self.write(object, &mut random),
            33..=42 => self.read(object, &mut random),
            43..=52 => self.setattr(object, &mut random),
            53..=59 => self.punch(object, &mut random),
            60..=64 => self.seek(object, &mut random),
            65..=68 => self.fastcopy(object),
            69..=76 => self.copy_range(object, &mut random),
            77..=82 => self.append(object, &mut random),
            83..=85 => self.flush(object, &mut random),
            86..=89 => self.remove(object),
            90..=96 => self.batch(object, &mut random),
            97 => self.blocks_required(object, &mut random),
            98 => self.list(&mut random),
            _ => self.map(object, &mut random),
        }
    }

    fn initial(&self, random: &mut Random) -> (SetAttributes, Expected) {
        let version = (random.below(2) == 0).then(|| random.below(5));
        let size = (random.below(3) == 0).then(|| random.below(20_000));
        let label = (random.below(2) == 0).then(|| random.below(200) as u8);
        let initial = SetAttributes {
            access_control_version: version,
            logical_size: size,
            fs_specific: label.map(|label| Box::new([label; FS_SPECIFIC_BYTES])),
            ..SetAttributes::default()
        };
        let expected = Expected::new(
            version.unwrap_or(1),
            size.unwrap_or_default(),
            label.unwrap_or_default(),
        );
        (initial, expected)
    }

    fn create(&mut self, random: &mut Random) -> bool {
        if self.objects.len() >= OBJECTS {
            return true;
        }
        let (initial, expected) = self.initial(random);
        // What a drive may forget is made durable, as drives are started anew.
        let durable = self.trouble.restarts || random.below(2) == 0;
        let arguments = CreateArguments { partition: PARTITION, object: None, durable, initial };
        let told = self.whole.create(&arguments);
        self.created(told.map(|created| (created.object, created.attributes)), expected)
    }

    fn created(
        &mut self,
        told: Result<(ObjectId, Attributes), Status>,
        expected: Expected,
    ) -> bool {
        let Some((object, attributes)) = self.outcome("create", told) else {
            self.may_leak = true;
            return false;
        };
        assert!(object.is_named() && !self.removed.contains(&object));
        assert!(self.objects.insert(object, expected).is_none(), "a number is given out twice");
        self.saw_attributes(object, &attributes);
        true
    }

    fn saw_attributes(&mut self, object: ObjectId, told: &Attributes) {
        let shape = (self.options.width, self.options.copies);
        let expected = self.objects.get_mut(&object).unwrap();
        let seen = expected
            .saw_size(told.logical_size)
            .and_then(|()| expected.saw_version(told.access_control_version))
            .and_then(|()| expected.saw_label(told.fs_specific[0]));
        seen.unwrap_or_else(|error| panic!("{object} of {shape:?}: {error}"));
        let most = told.logical_size.div_ceil(BLOCK);
        if self.trouble == Trouble::default() {
            assert!(told.blocks_used <= most, "{object} {shape:?}: {told:?}");
            assert!(told.blocks_used >= expected.blocks_with_data(), "{object} {shape:?}");
        }
    }

    /// Compares all of an object.
    pub fn look(&mut self, object: ObjectId) {
        let troubled = self.drives.fail_one_in(0);
        let told = self.whole.getattr(named(object)).unwrap();
        self.saw_attributes(object, &told);
        let read = self.whole.read(&ReadArguments::single(named(object), 0, 1 << 20)).unwrap();
        assert_eq!(read.data.len() as u64, told.logical_size);
        assert_eq!(read.logical_size, told.logical_size);
        if self.trouble.fail_one_in == 0 {
            assert_eq!(read.fs_data_modify_time, told.fs_data_modify_time);
        }
        let shape = (self.options.width, self.options.copies);
        let seen = self.expect(object).saw(ByteRange::new(0, told.logical_size), &read.data);
        seen.unwrap_or_else(|error| panic!("{object} of {shape:?}: {error}"));
        let version = self.whole.version(named(object)).unwrap().unwrap();
        let seen = self.expect(object).saw_version(version);
        seen.unwrap_or_else(|error| panic!("{object} of {shape:?}: {error}"));
        self.drives.fail_one_in(troubled);
    }

    pub fn look_at_all(&mut self) {
        let objects: Vec<ObjectId> = self.objects.keys().copied().collect();
        for object in objects {
            if !self.objects[&object].may_be_gone {
                self.look(object);
            }
        }
    }

    fn regions(&self, random: &mut Random, most: u64) -> Vec<Region> {
        let count = 1 + random.below(4) / 3;
        let region = |_| match random.below(4) {
            0 => {
                let length = 1 + random.below(3000);
                let stride = length + random.below(9000);
                let count = 1 + random.below(6) as u32;
                Region { offset: random.below(REACH), length, stride, count }
            }
            1 => Region::single(random.below(3 * UNIT), 1 + random.below(UNIT)),
            2 => Region::single(random.below(REACH / UNIT) * UNIT, UNIT * (1 + random.below(9))),
            _ => Region::single(random.below(REACH), 1 + random.below(most)),
        };
        (0..count).map(region).collect()
    }

    fn write(&mut self, object: ObjectId, random: &mut Random) -> bool {
        let regions = self.regions(random, 40 << 10);
        let total = nasd_protocol::region::expand(&regions).unwrap().total_bytes();
        let data: Vec<u8> = (0..total).map(|_| random.below(VALUES) as u8).collect();
        let arguments = WriteArguments {
            name: named(object),
            durable: random.below(2) == 0,
            order: None,
            regions,
            data_length: total,
        };
        let begun = self.drives.now();
        let (one, other) = data.split_at(random.index(total));
        let told = self.whole.write(&arguments, &[one, other]);
        let told = self.outcome("write", told);
        let values: Vec<u64> = data.iter().map(|byte| 1 << byte).collect();
        let mut rest = &values[..];
        for piece in arguments.pieces().unwrap().iter() {
            let (now, later) = rest.split_at(piece.length as usize);
            self.expect(object).write(piece.offset, now, told.is_some());
            rest = later;
        }
        let Some(written) = told else { return false };
        assert_eq!(written.length, total as u64);
        self.expect(object).saw_size(written.logical_size).unwrap();
        assert!(written.fs_data_modify_time >= begun);
        if self.trouble.fail_one_in == 0 {
            let attributes = self.whole.getattr(named(object)).unwrap();
            assert_eq!(attributes.fs_data_modify_time, written.fs_data_modify_time);
        }
        true
    }

    fn read(&mut self, object: ObjectId, random: &mut Random) -> bool {
        let regions = self.regions(random, 60 << 10);
        let arguments = ReadArguments { name: named(object), order: None, regions };
        let told = self.whole.read(&arguments);
        let Some(read) = self.outcome("read", told) else { return false };
        let expected = self.expect(object);
        expected.saw_size(read.logical_size).unwrap();
        let mut rest = &read.data[..];
        for piece in arguments.pieces().unwrap().iter() {
            let there = piece.intersection(&ByteRange::new(0, read.logical_size));
            let (now, later) = rest.split_at(there.length as usize);
            expected.saw(there, now).unwrap();
            rest = later;
            if there.length < piece.length {
                break;
            }
        }
        assert!(rest.is_empty(), "nothing follows the end");
        true
    }

    fn changes(&self, object: ObjectId, random: &mut Random) -> SetAttributes {
        let version =
            self.objects.get(&object).map_or(1, |object| *object.versions.iter().max().unwrap());
        let most = REACH >> random.below(8);
        let mut some = |one_in: u64| random.below(one_in) == 0;
        let (resize, raise, label, time) = (some(2), some(3), some(3), some(4));
        SetAttributes {
            logical_size: resize.then(|| random.below(most)),
            access_control_version: raise.then(|| version + random.below(2)),
            fs_specific: label.then(|| Box::new([random.below(250) as u8; FS_SPECIFIC_BYTES])),
            fs_data_modify_time: time.then(|| Timestamp(random.below(1_000_000))),
            ..SetAttributes::default()
        }
    }

    fn setattr(&mut self, object: ObjectId, random: &mut Random) -> bool {
        let changes = self.changes(object, random);
        let durable = self.trouble.restarts || random.below(2) == 0;
        let arguments = SetattrArguments { name: named(object), durable, changes: changes.clone() };
        let told = self.whole.setattr(&arguments);
        self.changed(object, &changes, told)
    }

    fn changed(
        &mut self,
        object: ObjectId,
        changes: &SetAttributes,
        told: Result<Attributes, Status>,
    ) -> bool {
        let told = self.outcome("setattr", told);
        let certain = told.is_some();
        let expected = self.expect(object);
        if let Some(size) = changes.logical_size {
            expected.resize(size, certain);
        }
        if let Some(bytes) = &changes.fs_specific {
            expected.set_label(bytes[0], certain);
        }
        if certain {
            if let Some(version) = changes.access_control_version {
                // What an attempt has set at some components may yet be seen.
                expected.versions.retain(|other| *other > version);
                expected.versions.push(version);
            }
        } else {
            expected.versions.extend(changes.access_control_version);
        }
        let Some(told) = told else { return false };
        self.saw_attributes(object, &told);
        if let Some(time) = changes.fs_data_modify_time {
            assert_eq!(told.fs_data_modify_time, time);
        }
        true
    }

    fn punch(&mut self, object: ObjectId, random: &mut Random) -> bool {
        let regions = self.regions(random, 100 << 10);
        let arguments = PunchArguments { name: named(object), durable: false, regions };
        let told = self.whole.punch(&arguments);
        let told = self.outcome("punch", told);
        for piece in arguments.pieces().unwrap().iter() {
            self.expect(object).punch(piece, told.is_some());
        }
        let Some(told) = told else { return false };
        self.saw_attributes(object, &told);
        true
    }

    fn seek(&mut self, object: ObjectId, random: &mut Random) -> bool {
        let offset = random.below(self.objects[&object].largest() + 100);
        let target = [SeekTarget::Data, SeekTarget::Hole][random.index(2)];
        let told = self.whole.seek(&SeekArguments { name: named(object), offset, target });
        let Some(found) = self.outcome("seek", told) else { return false };
        let expected = &self.objects[&object];
        let Some(size) = expected.known_size() else { return true };
        match found {
            None if offset >= size => {}
            None => {
                assert_eq!(target, SeekTarget::Data, "there is a hole at the end");
                assert!(expected.may_be_hole(offset, size), "no data");
            }
            Some(found) => {
                assert!(offset <= found && offset < size && found <= size);
                match target {
                    SeekTarget::Data => {
                        assert!(found < size && expected.may_be_hole(offset, found))
                    }
                    SeekTarget::Hole => {
                        let end = (found + 1).next_multiple_of(BLOCK).min(size);
                        assert!(expected.may_be_hole(found, end), "a hole from {found}");
                    }
                }
            }
        }
        true
    }

    fn fastcopy(&mut self, object: ObjectId) -> bool {
        if self.objects.len() >= OBJECTS {
            return true;
        }
        let told = self.whole.fastcopy(&FastcopyArguments { name: named(object), copy: None });
        let Some(created) = self.outcome("fastcopy", told) else {
            self.may_leak = true;
            return false;
        };
        let mut expected = self.objects[&object].clone();
        expected.flushed();
        assert!(self.objects.insert(created.object, expected).is_none());
        assert_eq!(created.attributes.copied_object, object);
        self.saw_attributes(created.object, &created.attributes);
        true
    }

    fn copy_range(&mut self, object: ObjectId, random: &mut Random) -> bool {
        let usable = self.objects.iter().filter(|(_, object)| !object.may_be_gone);
        let usable: Vec<ObjectId> = usable.map(|(id, _)| *id).collect();
        let source = usable[random.index(usable.len())];
        let stripe = UNIT * u64::from(self.options.width);
        let offset = random.below(REACH);
        // Now and then such that both lie alike.
        let source_offset = match random.below(2) {
            0 => (offset % stripe) + stripe * random.below(REACH / stripe / 2),
            _ => random.below(REACH),
        };
        let length = 1 + random.below(60 << 10);
        if source == object && source_offset.abs_diff(offset) < length {
            return true;
        }
        let copy = RangeToCopy { name: named(object), offset, length, source, source_offset };
        let before = self.objects[&source].clone();
        let told = self.whole.copy_range(&copy);
        let told = self.outcome("copy_range", told);
        let range = ByteRange::new(source_offset, length);
        let values = before.values(range);
        match &told {
            Some(copied) => {
                let most = before.largest().saturating_sub(source_offset).min(length);
                let least = before.least().saturating_sub(source_offset).min(length);
                assert!((least..=most).contains(&copied.length), "{} copied", copied.length);
                if copied.length > 0 {
                    let values = &values[..copied.length as usize];
                    let late = before.late(ByteRange::new(source_offset, copied.length));
                    self.expect(object).write(offset, values, true);
                    self.expect(object).may_become(offset, &late);
                }
                self.saw_attributes(object, &copied.attributes);
            }
            None => {
                // A part may have been cleared before it was written.
                self.expect(object).write(offset, &values, false);
                self.expect(object).punch(ByteRange::new(offset, values.len() as u64), false);
            }
        }
        told.is_some()
    }

    fn append(&mut self, object: ObjectId, random: &mut Random) -> bool {
        let most = if random.below(2) == 0 { 2000 } else { 20_000 };
        let length = 1 + random.below(most);
        let data: Vec<u8> = (0..length).map(|_| random.below(VALUES) as u8).collect();
        let values: Vec<u64> = data.iter().map(|byte| 1 << byte).collect();
        self.tokens += 1;
        let token = AppendToken(u128::from(self.tokens).to_be_bytes());
        let append =
            Append { bytes: &data, token, since: None, within: ByteRange::new(0, u64::MAX) };
        // Where it ends is to be known before.
        let mut ends = vec![self.look_at_end(object)];
        let begun = self.drives.now();
        let mut asked = 0;
        loop {
            let since = (asked > 0).then_some(begun);
            let now = self.drives.now();
            let told = self.whole.append(named(object), &Append { since, ..append }, now);
            asked += 1;
            assert!(asked < 100, "an append has no end: {told:?}");
            match told {
                Ok(appended) => {
                    // Nobody else has asked, nor waits for an answer.
                    assert!(ends.contains(&appended.offset), "{appended:?} {ends:?}");
                    self.expect(object).write(appended.offset, &values, true);
                    self.saw_attributes(object, &appended.attributes);
                    if self.random.below(3) > 0 {
                        break;
                    }
                }
                // One that was begun before is waited for, for a while, by a striping manager that knows no more.
                Err(Status::Busy) if self.trouble.fail_one_in > 0 || self.lives > 1 => {
                    self.drives.pass(500_000_000);
                    for end in &ends {
                        self.expect(object).write(*end, &values, false);
                    }
                }
                told => panic!("{told:?}"),
            }
            self.drives.fail_one_in(if asked > 3 { 0 } else { self.trouble.fail_one_in });
            if asked < 8 && self.random.below(3) == 0 {
                self.restart();
            }
            self.trouble_between();
            // A drive may be gone that alone had what was behind it, of a write that failed.
            ends.push(self.look_at_end(object));
        }
        self.drives.fail_one_in(self.trouble.fail_one_in);
        true
    }

    /// Where an object ends now.
    fn look_at_end(&mut self, object: ObjectId) -> u64 {
        let troubled = self.drives.fail_one_in(0);
        let told = self.whole.getattr(named(object));
        self.drives.fail_one_in(troubled);
        let size = told.unwrap().logical_size;
        self.expect(object).saw_size(size).unwrap();
        size
    }

    /// What may happen before something is asked for again.
    fn trouble_between(&mut self) {
        if self.trouble.outages && self.options.copies > 1 {
            self.outage_step();
        }
        if self.trouble.moves {
            self.move_step();
        }
    }

    fn flush(&mut self, object: ObjectId, random: &mut Random) -> bool {
        let all = random.below(2) == 0;
        let objects = if all { vec![] } else { vec![object] };
        let told = self.whole.flush(PARTITION, &objects);
        if self.outcome("flush", told).is_none() {
            return false;
        }
        let flushed = self.objects.iter_mut().filter(|(id, _)| all || **id == object);
        flushed.for_each(|(_, expected)| expected.flushed());
        true
    }

    fn remove(&mut self, object: ObjectId) -> bool {
        if object == ObjectId::FIRST_OBJECT {
            return true;
        }
        let durable = self.trouble.restarts;
        let told = self.whole.remove(&RemoveArguments { name: named(object), durable });
        self.gone(object, told)
    }

    fn gone(&mut self, object: ObjectId, told: Result<(), Status>) -> bool {
        let repeated = self.objects.get(&object).is_some_and(|object| object.may_be_gone);
        let done = match told {
            Err(Status::NoSuchObject) if repeated => true,
            told => self.outcome("remove", told).is_some(),
        };
        if !done {
            self.expect(object).may_be_gone = true;
            return false;
        }
        self.objects.remove(&object);
        self.removed.insert(object);
        assert_eq!(self.whole.version(named(object)).unwrap_or(None), None);
        true
    }

    fn list(&mut self, random: &mut Random) -> bool {
        let most = 1 + random.index(4);
        let (mut from, mut found) = (ObjectId::FIRST_OBJECT, BTreeSet::new());
        loop {
            let told = self.whole.list(PARTITION, from, most);
            let Some(page) = self.outcome("list", told) else { return false };
            assert!(page.is_sorted() && page.len() <= most);
            from = match page.last() {
                Some(last) => ObjectId(last.0 + 1),
                None => break,
            };
            assert!(page.iter().all(|object| found.insert(*object)), "twice");
        }
        for (object, expected) in &self.objects {
            assert!(expected.may_be_gone || found.contains(object), "{object} is lacking");
        }
        let unknown = found.iter().filter(|object| !self.objects.contains_key(object));
        for object in unknown {
            assert!(self.may_leak && !self.removed.contains(object), "{object} is listed");
        }
        true
    }

    fn blocks_required(&mut self, object: ObjectId, random: &mut Random) -> bool {
        let regions = self.regions(random, 100 << 10);
        let pieces = nasd_protocol::region::expand(&regions).unwrap();
        let told = self.whole.blocks_required(named(object), &mut pieces.iter());
        let Some(told) = self.outcome("blocks_required", told) else { return false };
        let all: u64 = pieces.iter().map(|piece| piece.length.div_ceil(BLOCK) + 6).sum();
        let copies = u64::from(self.options.copies);
        assert!(told.maximum >= told.estimated && told.maximum <= 4 * copies * all, "{told:?}");
        true
    }

    fn batch(&mut self, object: ObjectId, random: &mut Random) -> bool {
        let mut operations = Vec::new();
        let mut made = Vec::new();
        for _ in 0..1 + random.below(6) {
            let target = if random.below(3) == 0 { object } else { self.some_object() };
            operations.push(match random.below(8) {
                0 if self.objects.len() + made.len() < OBJECTS => {
                    let (initial, expected) = self.initial(random);
                    made.push(expected);
                    BatchOperation::Create(None, initial)
                }
                1 if target != ObjectId::FIRST_OBJECT => BatchOperation::Remove(target),
                2 | 3 => BatchOperation::Getattr(target),
                _ => BatchOperation::Setattr(target, self.changes(target, random)),
            });
        }
        let durable = self.trouble.restarts || random.below(2) == 0;
        let arguments =
            BatchArguments { partition: PARTITION, durable, with_attributes: true, operations };
        let batched = self.whole.batch(&arguments).unwrap();
        let mut made = made.into_iter();
        let mut all = true;
        for (operation, outcome) in arguments.operations.iter().zip(batched.outcomes) {
            all &= self.batched(operation, outcome, &mut made);
        }
        // Of several things some may have been done; each is tried again by others.
        all || self.trouble.fail_one_in > 0
    }

    fn batched(
        &mut self,
        operation: &BatchOperation,
        outcome: nasd_protocol::drive::BatchOutcome,
        made: &mut impl Iterator<Item = Expected>,
    ) -> bool {
        let is_gone = |world: &World, object: ObjectId| match world.objects.get(&object) {
            None => true,
            Some(expected) => expected.may_be_gone,
        };
        let told = outcome.map(|done| (done.object, done.attributes));
        match operation {
            BatchOperation::Create(..) => {
                let told = told.map(|(object, attributes)| (object, attributes.unwrap()));
                self.created(told, made.next().unwrap())
            }
            BatchOperation::Remove(object)
            | BatchOperation::Getattr(object)
            | BatchOperation::Setattr(object, _)
                if is_gone(self, *object) =>
            {
                let may_be = self.objects.contains_key(object);
                assert!(told.is_err() || may_be, "{operation:?} of what is gone: {told:?}");
                true
            }
            BatchOperation::Remove(object) => self.gone(*object, told.map(drop)),
            BatchOperation::Setattr(object, changes) => {
                // A version that an operation before it in the batch has raised does not fall.
                let falls = changes
                    .access_control_version
                    .is_some_and(|asked| self.objects[object].versions.iter().any(|v| *v > asked));
                if falls && matches!(told, Err(Status::BadArgument)) {
                    return true;
                }
                self.changed(*object, changes, told.map(|told| told.1.unwrap()))
            }
            BatchOperation::Getattr(object) => {
                let Some((_, told)) = self.outcome("getattr", told) else { return false };
                self.saw_attributes(*object, &told.unwrap());
                true
            }
        }
    }

    pub fn ask_map(&self, object: ObjectId, write: bool, end: u64) -> Result<ObjectMap, Status> {
        let capability = Capability {
            drive: DriveId(99),
            partition: PARTITION,
            object,
            region: ByteRange::new(0, u64::MAX),
            rights: Rights::READ | Rights::WRITE | Rights::GETATTR,
            expires: self.drives.now().plus_ns(7_200_000_000_000),
            audit_id: AuditId(3),
            minimum_protection: Protection::NONE,
            key_epoch: 1,
        };
        let now = self.drives.now();
        let shown = Shown { capability: &capability, sealed: false, now };
        self.whole.map(&MapArguments { name: named(object), write, end, client: 5 }, &shown)
    }

    fn map(&mut self, object: ObjectId, random: &mut Random) -> bool {
        let (write, end) = (random.below(2) == 0, random.below(2 * UNIT));
        let before = self.whole.getattr(named(object));
        let told = self.ask_map(object, write, end);
        if self.outcome("map", told).is_none() {
            return false;
        }
        if let (Ok(before), 0) = (before, self.trouble.fail_one_in) {
            let after = self.whole.getattr(named(object)).unwrap();
            let step = after.fs_data_modify_time.0.abs_diff(before.fs_data_modify_time.0);
            assert!(step < 1_000_000, "who may write has not written yet");
        }
        true
    }

    /// Lets all copies become the same, and removes what could not be removed.
    pub fn settle(&mut self) {
        self.drives.fail_one_in(0);
        if self.trouble.outages && self.options.copies > 1 {
            self.mend();
        }
        if self.trouble.moves {
            self.finish_moves();
            self.check_places();
        }
        if self.trouble.rot {
            self.mend_all();
        }
        let objects: Vec<ObjectId> = self.objects.keys().copied().collect();
        for object in objects {
            if self.objects[&object].may_be_gone {
                assert!(self.remove(object));
            } else {
                // Who was let write before a start is found when somebody asks.
                self.ask_map(object, false, 0).unwrap();
            }
        }
        for _ in 0..4 {
            self.drives.pass(200_000_000_000);
            self.whole.tend(self.drives.now());
        }
    }

    /// An object is known to have these bytes.
    #[allow(dead_code, reason = "the tests of appends use it")]
    pub fn expect_bytes(&mut self, object: ObjectId, bytes: &[u8]) {
        let values: Vec<u64> = bytes.iter().map(|byte| 1 << byte).collect();
        self.expect(object).write(0, &values, true);
    }

    /// Every byte is the same wherever it is, and every component of an object has one version.
    pub fn compare_copies(&mut self) {
        let objects: Vec<ObjectId> = self.objects.keys().copied().collect();
        for object in objects {
            let size = self.whole.getattr(named(object)).unwrap().logical_size;
            let map = self.ask_map(object, false, 0).unwrap();
            let holders: Vec<_> = map
                .components
                .iter()
                .map(|component| {
                    let there = component.capability.is_some();
                    there.then(|| {
                        let name = ObjectName { partition: COMPONENTS, object };
                        self.drives
                            .component(component.drive, name)
                            .unwrap_or_else(|| panic!("{object}"))
                    })
                })
                .collect();
            let versions: BTreeSet<u64> = holders.iter().flatten().map(|c| c.version()).collect();
            let shape = (self.options.width, self.options.copies);
            assert_eq!(versions.len(), 1, "{object} of {shape:?}: {versions:x?}");
            for unit in 0..size.div_ceil(UNIT) {
                let range = ByteRange::new(unit * UNIT, UNIT.min(size - unit * UNIT));
                let members = (0..u64::from(map.copies))
                    .map(|copy| ((unit + copy) % holders.len() as u64) as usize);
                let mut copies = members.filter_map(|member| holders[member].as_ref()).map(|it| {
                    let mut data = it.read(range);
                    data.resize(range.length as usize, 0);
                    data
                });
                let Some(first) = copies.next() else { continue };
                assert!(copies.all(|copy| copy == first), "unit {unit} of {object} {shape:?}");
            }
        }
    }
}
