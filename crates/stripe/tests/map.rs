//! Maps: what component capabilities allow is never more than what was shown; and partitions that are spread
//! another way.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::sync::Arc;

use nasd_capability::{Capability, capability_key};
use nasd_drive::{Elsewhere, Shown};
use nasd_protocol::drive::{
    BatchArguments, BatchOperation, CreateArguments, FastcopyArguments, MapArguments, ObjectMap,
    PunchArguments, SetattrArguments, SetstripingArguments, WriteArguments,
};
use nasd_protocol::{Region, Status};
use nasd_stripe::{Ask, Components, VirtualDrive, VirtualDriveOptions};
use nasd_types::{
    AuditId, ByteRange, DriveId, ObjectId, ObjectName, PartitionId, Protection, Rights,
    SetAttributes, Timestamp,
};

use support::{Hold, MemoryDrives, MemoryKeeper, When, start};

const PARTITION: PartitionId = PartitionId(3);
const COMPONENTS: PartitionId = PartitionId(3 + (1 << 30));
const UNIT: u64 = 4096;
const HOUR: u64 = 3600 * 1_000_000_000;
const ALL: Rights = Rights::all();

struct Cell {
    drives: Arc<MemoryDrives>,
    keeper: Arc<MemoryKeeper>,
    options: VirtualDriveOptions,
    whole: VirtualDrive,
    object: ObjectId,
}

impl Cell {
    fn new(width: u16, copies: u16) -> Cell {
        let drives = Arc::new(MemoryDrives::new(5, 1));
        let options =
            VirtualDriveOptions { unit: UNIT, width, copies, ..VirtualDriveOptions::default() };
        let keeper = Arc::new(MemoryKeeper::default());
        let whole = start(&drives, &keeper, &options, 1);
        whole.create_partition(PARTITION).unwrap();
        let initial = SetAttributes::default();
        let create = CreateArguments { partition: PARTITION, object: None, durable: true, initial };
        let object = whole.create(&create).unwrap().object;
        Cell { drives, keeper, options, whole, object }
    }

    /// After the striping manager has died.
    fn another_life(self) -> Cell {
        let whole = start(&self.drives, &self.keeper, &self.options, 2);
        Cell { whole, ..self }
    }

    fn name(&self) -> ObjectName {
        ObjectName { partition: PARTITION, object: self.object }
    }

    fn shown(&self, rights: Rights) -> Capability {
        Capability {
            drive: DriveId(99),
            partition: PARTITION,
            object: self.object,
            region: ByteRange::new(10, 1 << 20),
            rights,
            expires: self.drives.now().plus_ns(HOUR / 2),
            audit_id: AuditId(77),
            minimum_protection: Protection::INTEGRITY_ARGS,
            key_epoch: 9,
        }
    }

    fn map_of(&self, capability: &Capability, write: bool, end: u64) -> ObjectMap {
        let shown = Shown { capability, sealed: true, now: self.drives.now() };
        let arguments = MapArguments { name: self.name(), write, end, client: 4 };
        self.whole.map(&arguments, &shown).unwrap()
    }

    fn component_version(&self, drive: DriveId) -> Option<u64> {
        let name = ObjectName { partition: COMPONENTS, object: self.object };
        self.drives.component(drive, name).map(|component| component.version())
    }

    /// Whether every capability of a map is good at its drive, and there is one for each component.
    fn is_good(&self, map: &ObjectMap) -> bool {
        map.components.iter().all(|component| {
            let version = self.component_version(component.drive);
            let Some(issued) = &component.capability else { return version.is_none() };
            let (_, key) = self.drives.working_key(component.drive, COMPONENTS);
            version.is_some_and(|version| {
                capability_key(&key, &issued.capability, version).expose() == issued.key.expose()
            })
        })
    }

    fn write(&self, object: ObjectId, offset: u64, data: &[u8]) {
        let name = ObjectName { object, ..self.name() };
        let arguments = WriteArguments::single(name, offset, data.len(), true);
        self.whole.write(&arguments, &[data]).unwrap();
    }

    fn setattr(&self, changes: SetAttributes) -> Result<(), Status> {
        let arguments = SetattrArguments { name: self.name(), durable: true, changes };
        self.whole.setattr(&arguments).map(drop)
    }
}

#[test]
fn component_capabilities_allow_no_more_than_was_shown() {
    for (width, copies) in [(1, 1), (4, 1), (2, 2), (4, 2)] {
        let cell = Cell::new(width, copies);
        for bits in 0..=ALL.bits() {
            let rights = Rights::from_bits_retain(bits) & ALL;
            for (write, end) in [(false, 0), (true, UNIT), (true, 5 * UNIT)] {
                let shown = cell.shown(rights);
                let map = cell.map_of(&shown, write, end);
                assert!(cell.is_good(&map));
                assert_eq!(map.components.len(), usize::from(width));
                for component in &map.components {
                    let Some(issued) = &component.capability else { continue };
                    let given = issued.capability;
                    assert!(rights.contains(given.rights));
                    let own = Rights::SETATTR | Rights::REMOVE | Rights::CREATE;
                    assert!((given.rights & own).is_empty());
                    assert_eq!(given.rights.contains(Rights::WRITE), {
                        write && rights.contains(Rights::WRITE)
                    });
                    assert!(given.region == shown.region && given.audit_id == shown.audit_id);
                    assert!(given.expires <= shown.expires);
                    assert!(given.minimum_protection.contains(shown.minimum_protection));
                    let own = cell.drives.minimum_protection(component.drive);
                    assert!(given.minimum_protection.contains(own));
                    assert_eq!(given.drive, component.drive);
                    assert_eq!((given.partition, given.object), (COMPONENTS, cell.object));
                    assert!(issued.sealed.is_some());
                }
            }
        }
    }
}

/// It dies at each of the calls that setting a length or a version takes, while that one is done or is not.
#[test]
fn what_a_striping_manager_that_died_has_raised_at_some_components_only_locks_nobody_out() {
    let length = SetAttributes { logical_size: Some(3 * UNIT), ..SetAttributes::default() };
    let version = SetAttributes { access_control_version: Some(2), ..SetAttributes::default() };
    let mut differed = 0;
    for (width, copies) in [(3, 1), (2, 2), (4, 2)] {
        for (changes, is_spread) in [(&length, true), (&version, true), (&version, false)] {
            for (calls, is_done) in (0..).flat_map(|calls| [(calls, false), (calls, true)]) {
                let cell = Cell::new(width, copies);
                let length = if is_spread { 5 * UNIT } else { UNIT };
                cell.write(cell.object, 0, &vec![7; length as usize]);
                let shown = cell.shown(ALL);
                cell.drives.die_after(Some((calls, is_done)));
                let told = cell.setattr(changes.clone());
                let has_died = cell.drives.has_died();
                cell.drives.die_after(None);
                if !has_died {
                    told.unwrap();
                    break;
                }
                let drives = (1..=5).map(DriveId);
                let versions: Vec<_> =
                    drives.filter_map(|drive| cell.component_version(drive)).collect();
                differed += usize::from(versions.iter().any(|version| *version != versions[0]));
                let cell = cell.another_life();
                let map = cell.map_of(&shown, false, 0);
                assert!(cell.is_good(&map), "{width}, {copies}, {changes:?}, {calls}, {is_done}");
            }
        }
    }
    assert!(differed > 5, "of {differed} components had different versions");
}

#[test]
fn a_capability_that_has_ended_gives_none_that_has_not() {
    let cell = Cell::new(3, 1);
    for left in [0, 1, 999_999_999, 1_000_000_000, 7_500_000_000, 2 * HOUR, u64::MAX] {
        let expires = Timestamp(cell.drives.now().0.saturating_add(left));
        let shown = Capability { expires, ..cell.shown(Rights::READ) };
        let map = cell.map_of(&shown, false, 0);
        for issued in map.components.iter().filter_map(|it| it.capability.as_ref()) {
            assert!(issued.capability.expires <= expires);
            // Not longer than it is to be good, by much.
            assert!(issued.capability.expires.0 <= cell.drives.now().0 + HOUR + HOUR / 8);
        }
    }
}

#[test]
fn who_may_write_behind_the_first_unit_finds_all_components_and_nobody_goes_on_without() {
    for (width, copies) in [(2, 1), (4, 1), (3, 2), (4, 3)] {
        let cell = Cell::new(width, copies);
        let shown = cell.shown(Rights::READ | Rights::WRITE);
        let small = cell.map_of(&shown, true, UNIT);
        let components =
            |map: &ObjectMap| map.components.iter().filter(|it| it.capability.is_some()).count();
        assert!(!small.is_spread && components(&small) == usize::from(copies));
        // Neither who only reads nor who may write no further has it spread.
        assert!(!cell.map_of(&shown, false, 9 * UNIT).is_spread);
        let within = Capability { region: ByteRange::new(0, UNIT), ..shown };
        assert!(!cell.map_of(&within, true, 9 * UNIT).is_spread);
        let reader = Capability { rights: Rights::READ, ..shown };
        assert!(!cell.map_of(&reader, true, 9 * UNIT).is_spread);
        assert!(cell.is_good(&small));
        let large = cell.map_of(&shown, true, UNIT + 1);
        assert!(large.is_spread && components(&large) == usize::from(width));
        assert!(cell.is_good(&large) && !cell.is_good(&small));
        assert_eq!(cell.whole.version(cell.name()), Ok(Some(1)), "the whole's is the same");
    }
}

#[test]
fn a_version_that_is_raised_makes_all_maps_stale() {
    for (width, copies) in [(1, 1), (4, 1), (2, 2), (4, 2)] {
        let cell = Cell::new(width, copies);
        let shown = cell.shown(Rights::READ | Rights::WRITE);
        let before = cell.map_of(&shown, true, 9 * UNIT);
        let raise = |to| SetAttributes { access_control_version: Some(to), ..Default::default() };
        cell.setattr(raise(1)).unwrap();
        assert!(cell.is_good(&before), "it is what it was");
        cell.setattr(raise(2)).unwrap();
        let version = cell.component_version(before.components[0].drive);
        for component in &before.components {
            assert_eq!(cell.component_version(component.drive), version);
        }
        assert!(!cell.is_good(&before) && cell.is_good(&cell.map_of(&shown, true, UNIT)));
        assert_eq!(cell.setattr(raise(1)), Err(Status::BadArgument));
    }
}

#[test]
fn a_raise_that_failed_is_done_everywhere_when_it_is_repeated() {
    for (width, copies) in [(4, 1), (2, 2), (4, 2)] {
        let cell = Cell::new(width, copies);
        let shown = cell.shown(Rights::READ | Rights::WRITE);
        let map = cell.map_of(&shown, true, 9 * UNIT);
        for (at, component) in map.components.iter().enumerate() {
            let changes = SetAttributes {
                access_control_version: Some(2 + at as u64),
                ..SetAttributes::default()
            };
            cell.drives.set_away(component.drive, true);
            assert_eq!(cell.setattr(changes.clone()), Err(Status::Busy));
            cell.drives.set_away(component.drive, false);
            cell.setattr(changes).unwrap();
            let versions = map.components.iter().map(|it| cell.component_version(it.drive));
            let mut versions: Vec<_> = versions.collect();
            versions.dedup();
            assert_eq!(versions.len(), 1, "one that was passed over accepts what is revoked");
        }
    }
}

#[test]
fn copies_are_even_only_as_long_as_nobody_may_write() {
    let cell = Cell::new(4, 2);
    cell.write(cell.object, 0, &[5; 3 * UNIT as usize]);
    let shown = cell.shown(Rights::READ | Rights::WRITE);
    assert!(!cell.map_of(&shown, false, 0).is_even, "it was made just now");
    cell.drives.pass(10_000_000_000);
    cell.whole.tend(cell.drives.now());
    let even = cell.map_of(&shown, false, 0);
    assert!(even.is_even && cell.is_good(&even));
    let written = cell.map_of(&shown, true, UNIT);
    assert!(!written.is_even && cell.is_good(&written));
    assert!(!cell.is_good(&even), "who reads any copy has to ask");
}

/// What the one that died may still ask of a drive, for the version that there was, is of no use to it then.
#[test]
fn whoever_writes_first_in_another_life_gets_a_new_version() {
    let cell = Cell::new(2, 2);
    cell.write(cell.object, 0, &[5; UNIT as usize]);
    let shown = cell.shown(Rights::READ | Rights::WRITE);
    let before = cell.map_of(&shown, true, UNIT);
    let cell = cell.another_life();
    assert!(cell.is_good(&cell.map_of(&shown, false, UNIT)) && cell.is_good(&before));
    let first = cell.map_of(&shown, true, UNIT);
    assert!(cell.is_good(&first) && !cell.is_good(&before));
    assert!(cell.is_good(&cell.map_of(&shown, true, UNIT)) && cell.is_good(&first));
}

#[test]
fn a_partition_that_has_nothing_can_be_spread_another_way_and_back() {
    let cell = Cell::new(4, 1);
    cell.whole
        .remove(&nasd_protocol::drive::RemoveArguments { name: cell.name(), durable: true })
        .unwrap();
    for (width, copies) in [(3, 2), (4, 1), (5, 5), (1, 1), (2, 2)] {
        let wanted = SetstripingArguments { partition: PARTITION, unit: UNIT, width, copies };
        cell.whole.set_striping(&wanted).unwrap_or_else(|status| {
            panic!("{width} wide, {copies} copies: {status:?}");
        });
        let first = ObjectName { object: ObjectId::FIRST_OBJECT, ..cell.name() };
        assert_eq!(cell.whole.getattr(first).unwrap().logical_size, 0);
    }
}

#[test]
fn what_the_first_object_has_is_not_lost_when_a_partition_is_spread_another_way() {
    let cell = Cell::new(4, 1);
    cell.whole
        .remove(&nasd_protocol::drive::RemoveArguments { name: cell.name(), durable: true })
        .unwrap();
    cell.write(ObjectId::FIRST_OBJECT, 0, b"a file system's own");
    let wanted = SetstripingArguments { partition: PARTITION, unit: UNIT, width: 2, copies: 1 };
    assert_eq!(cell.whole.set_striping(&wanted), Err(Status::NotPermitted));
}

#[test]
fn a_hole_of_any_length_can_be_punched() {
    let cell = Cell::new(4, 1);
    let size = 1 << 30;
    cell.write(cell.object, size - 5, b"there");
    let whole = nasd_protocol::Region::single(0, size - 1);
    let arguments = PunchArguments { name: cell.name(), durable: false, regions: vec![whole] };
    assert_eq!(cell.whole.punch(&arguments).unwrap().logical_size, size);
    let mut pieces = std::iter::once(ByteRange::new(0, size));
    assert!(cell.whole.blocks_required(cell.name(), &mut pieces).is_ok());
}

/// A client writes a component.
fn written_by_a_client(cell: &Cell, drive: DriveId, offset: u64, data: &[u8]) {
    let name = ObjectName { partition: COMPONENTS, object: cell.object };
    let regions = vec![Region::single(offset, data.len() as u64)];
    let write = Ask::Write { name, order: None, regions, data: data.to_vec(), durable: true };
    cell.drives.ask_one(drive, write).unwrap();
}

/// A file manager's journal is written so.
#[test]
fn writes_through_the_virtual_drive_ask_no_other_component_where_nobody_else_writes() {
    for copies in [1, 2] {
        let cell = Cell::new(4, copies);
        let write = |cell: &Cell, offset: u64| {
            let before = cell.drives.calls();
            let arguments = WriteArguments::single(cell.name(), offset, 10, false);
            let written = cell.whole.write(&arguments, &[&[7; 10]]).unwrap();
            (written.logical_size, cell.drives.calls() - before)
        };
        write(&cell, 9 * UNIT);
        let costs: Vec<u64> = (0..40).map(|at| write(&cell, 10 * at).1).collect();
        assert_eq!(costs[39], u64::from(copies), "{costs:?}");
        // In another life as well, though capabilities of this one may be in use.
        let map = cell.map_of(&cell.shown(ALL), true, 9 * UNIT);
        let cell = cell.another_life();
        assert!(cell.is_good(&map));
        let costs: Vec<u64> = (0..40).map(|at| write(&cell, 10 * at).1).collect();
        assert_eq!(costs[39], u64::from(copies), "{costs:?}");
        assert!(!cell.is_good(&map), "they are good no more");
        assert_eq!(write(&cell, 0).0, 9 * UNIT + 10);

        // Whoever has a map writes behind that, and is neither overlooked nor shut out.
        let map = cell.map_of(&cell.shown(ALL), true, 9 * UNIT);
        for round in 0..40 {
            let end = (20 + round) * UNIT;
            for component in map.components.iter().filter(|it| it.capability.is_some()) {
                written_by_a_client(&cell, component.drive, end - 10, &[8; 10]);
            }
            assert_eq!(write(&cell, 0).0, end);
        }
        assert!(cell.is_good(&map));
    }
}

#[test]
fn what_is_known_of_an_object_that_nobody_else_writes_is_not_what_was() {
    let cell = Cell::new(4, 1);
    let name = ObjectName { object: ObjectId::FIRST_OBJECT, ..cell.name() };
    let write = |offset: u64| {
        let arguments = WriteArguments::single(name, offset, 10, false);
        cell.whole.write(&arguments, &[&[7; 10]]).unwrap().logical_size
    };
    let write_often = || (0..40).for_each(|_| assert_eq!(write(0), 9 * UNIT + 10));
    write(9 * UNIT);
    write_often();
    let changes = SetAttributes { logical_size: Some(3 * UNIT), ..SetAttributes::default() };
    cell.whole.setattr(&SetattrArguments { name, durable: true, changes }).unwrap();
    assert_eq!(write(0), 3 * UNIT);
    write(9 * UNIT);
    write_often();
    cell.whole.remove_partition(PARTITION).unwrap();
    cell.whole.create_partition(PARTITION).unwrap();
    assert_eq!(write(2 * UNIT), 2 * UNIT + 10);
}

#[test]
fn a_batch_does_what_is_right_of_an_object_that_is_spread_before_its_turn() {
    let raised = SetAttributes { access_control_version: Some(2), ..SetAttributes::default() };
    let operations: [fn(ObjectId, &SetAttributes) -> BatchOperation; 2] = [
        |object, _| BatchOperation::Remove(object),
        |object, raised| BatchOperation::Setattr(object, raised.clone()),
    ];
    for operation in operations {
        let cell = Cell::new(4, 1);
        cell.write(cell.object, 0, &[1]);
        let shown = cell.shown(ALL);
        let map = cell.map_of(&shown, false, 0);
        let drives: Vec<DriveId> = map.components.iter().map(|part| part.drive).collect();
        let (drive, when) = (drives[1], When::After);
        cell.drives.hold(Hold { drive, when, which: |ask| matches!(ask, Ask::Create(_)) });
        let arguments = BatchArguments {
            partition: PARTITION,
            durable: true,
            with_attributes: false,
            operations: vec![operation(cell.object, &raised)],
        };
        std::thread::scope(|scope| {
            scope.spawn(|| cell.map_of(&shown, true, 5 * UNIT));
            cell.drives.wait_until_somebody_waits();
            let batch = scope.spawn(|| cell.whole.batch(&arguments).unwrap());
            // It is to have decided what to do, and to wait for the object.
            std::thread::sleep(std::time::Duration::from_millis(200));
            cell.drives.let_go();
            assert!(batch.join().unwrap().outcomes[0].is_ok());
        });
        let versions: Vec<_> = drives.iter().map(|drive| cell.component_version(*drive)).collect();
        let is_removal = matches!(arguments.operations[0], BatchOperation::Remove(_));
        assert_eq!(versions[0].is_none(), is_removal);
        assert!(versions.iter().all(|version| *version == versions[0]), "{versions:?}");
    }
}

#[test]
fn nothing_is_left_of_a_copy_that_one_drive_has_no_room_for() {
    for copies in [1, 2] {
        let cell = Cell::new(4, copies);
        let map = cell.map_of(&cell.shown(ALL), true, 5 * UNIT);
        let drives: Vec<DriveId> = map.components.iter().map(|part| part.drive).collect();
        let objects = |drive: &DriveId| cell.drives.objects(*drive, COMPONENTS);
        let before: Vec<_> = drives.iter().map(objects).collect();
        let copy = FastcopyArguments { name: cell.name(), copy: None };
        for full in &drives {
            cell.drives.set_write_fault(*full, Some(Status::NoSpace));
            assert_eq!(cell.whole.fastcopy(&copy).map(drop), Err(Status::NoSpace));
            cell.drives.set_write_fault(*full, None);
            assert_eq!(drives.iter().map(objects).collect::<Vec<_>>(), before, "{full}");
        }
        assert!(cell.whole.fastcopy(&copy).is_ok());
    }
}
