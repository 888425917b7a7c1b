//! Objects that move from drive to drive, beside whatever else is done at the time.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, mpsc::RecvTimeoutError};
use std::time::Duration;

use nasd_capability::Capability;
use nasd_drive::{Elsewhere, Shown};
use nasd_protocol::drive::{
    Component, CreateArguments, FastcopyArguments, MapArguments, MemberState, ReadArguments,
    WriteArguments,
};
use nasd_protocol::{Region, Status};
use nasd_stripe::{
    Arrangement, Ask, Components, Role, Sign, Told, VirtualDrive, VirtualDriveOptions,
};
use nasd_types::{
    AuditId, ByteRange, DriveId, ObjectId, ObjectName, PartitionId, Protection, Rights,
    SetAttributes,
};

use support::{Hold, MemoryDrives, MemoryKeeper, When, start};

const PARTITION: PartitionId = PartitionId(3);
const COMPONENTS: PartitionId = PartitionId(3 + (1 << 30));
/// Another one, without objects.
const LAST: PartitionId = PartitionId(4);
const COMPONENTS_OF_LAST: PartitionId = PartitionId(4 + (1 << 30));
const UNIT: u64 = 4096;
const SECOND: u64 = 1_000_000_000;

/// Whoever takes longer waits for the drive.
const LONG: Duration = Duration::from_secs(20);

/// Whoever is not to be done before something has been let go gets so long for it.
const SHORT: Duration = Duration::from_millis(200);

struct Cell {
    drives: Arc<MemoryDrives>,
    whole: VirtualDrive,
}

impl Cell {
    /// Three drives, each object on two of them, without copies.
    fn new() -> Cell {
        Cell::with_copies(1)
    }

    /// The same with so many copies.
    fn with_copies(copies: u16) -> Cell {
        let drives = Arc::new(MemoryDrives::new(3, 1));
        let options =
            VirtualDriveOptions { unit: UNIT, width: 2, copies, ..VirtualDriveOptions::default() };
        let whole = start(&drives, &Arc::new(MemoryKeeper::default()), &options, 1);
        whole.create_partition(PARTITION).unwrap();
        let cell = Cell { drives, whole };
        for _ in 0..10 {
            cell.create().unwrap();
        }
        cell
    }

    fn create(&self) -> Result<ObjectName, Status> {
        let initial = SetAttributes::default();
        let create = CreateArguments { partition: PARTITION, object: None, durable: true, initial };
        let created = self.whole.create(&create)?;
        Ok(ObjectName { partition: PARTITION, object: created.object })
    }

    /// Looks at the drives, and does what follows from that, with one of them drained.
    fn drain(&self, drive: DriveId) {
        self.arrange(BTreeMap::from([(drive, Role::Leaving)]));
    }

    /// The same with these roles.
    fn arrange(&self, roles: BTreeMap<DriveId, Role>) {
        self.whole.set_arrangement(Arrangement { roles, ..Arrangement::default() });
        for known in self.drives.drives() {
            self.whole.heard(known, self.drives.sign(known), self.drives.now());
        }
        self.whole.watch(self.drives.now());
        self.whole.arrange(self.drives.now());
    }

    fn move_all(&self) {
        while self.whole.rebuild().is_some() {}
    }

    fn sweep_all(&self) {
        while self.whole.sweep() {}
    }

    /// The drives that have a component of an object.
    fn holders(&self, object: ObjectId) -> Vec<DriveId> {
        let name = ObjectName { partition: COMPONENTS, object };
        let has = |drive: &DriveId| self.drives.component(*drive, name).is_some();
        self.drives.drives().into_iter().filter(has).collect()
    }

    fn capability(&self, object: ObjectId) -> Capability {
        Capability {
            drive: DriveId(99),
            partition: PARTITION,
            object,
            region: ByteRange::new(0, 1 << 30),
            rights: Rights::all(),
            expires: self.drives.now().plus_ns(3600 * SECOND),
            audit_id: AuditId(77),
            minimum_protection: Protection::empty(),
            key_epoch: 9,
        }
    }

    /// The drives that a client may write components on, of those of an object up to an end.
    fn map(&self, object: ObjectId, end: u64) -> Vec<DriveId> {
        let components = self.components(object, Some(end));
        components.iter().map(|component| component.drive).collect()
    }

    /// What a map says of the components of an object, for who writes up to an end, or else reads.
    fn components(&self, object: ObjectId, end: Option<u64>) -> Vec<Component> {
        let capability = self.capability(object);
        let shown = Shown { capability: &capability, sealed: true, now: self.drives.now() };
        let name = ObjectName { partition: PARTITION, object };
        let write = end.is_some();
        let arguments = MapArguments { name, write, end: end.unwrap_or(0), client: 4 };
        self.whole.map(&arguments, &shown).unwrap().components
    }

    /// Writes of a client to a component.
    fn write_component(&self, drive: DriveId, object: ObjectId, offset: u64, data: Vec<u8>) {
        let name = ObjectName { partition: COMPONENTS, object };
        let regions = vec![Region::single(offset, data.len() as u64)];
        let write = Ask::Write { name, order: None, regions, data, durable: false };
        self.drives.ask_one(drive, write).unwrap();
    }

    /// Places that a drive has, and that it is about to have.
    fn places(&self, drive: DriveId) -> (u32, u32) {
        let status = self.whole.component_status();
        let its = status.into_iter().find(|status| status.drive == drive).unwrap();
        (its.places, its.places_coming)
    }
}

fn hears<T>(from: &Receiver<T>) -> T {
    match from.recv_timeout(LONG) {
        Ok(told) => told,
        Err(RecvTimeoutError::Timeout) => panic!("it waits for the drive"),
        Err(RecvTimeoutError::Disconnected) => panic!("it has failed"),
    }
}

#[test]
fn who_asks_how_far_moves_are_or_gives_them_up_waits_for_no_drive() {
    let (from, other) = (DriveId(1), DriveId(2));
    let cell = Cell::new();
    cell.drain(from);
    assert!(cell.places(other).1 > 0, "there is nothing to move");
    cell.drives.set_silent(from, true);
    std::thread::scope(|scope| {
        let (told, heard) = channel();
        scope.spawn(|| cell.whole.rebuild());
        cell.drives.wait_until_somebody_waits();
        scope.spawn(|| {
            let before = cell.places(other);
            // What was on its way there is given up.
            cell.drain(other);
            told.send((before, cell.places(other))).unwrap();
            drop(told);
        });
        let outcome = std::panic::catch_unwind(|| hears(&heard));
        cell.drives.set_silent(from, false);
        let (before, after) = outcome.unwrap();
        assert!(before.1 > 0 && after.1 == 0, "{before:?} {after:?}");
    });
    // What was found out for the moves that were given up is not used for others.
    for _ in 0..4 {
        cell.drain(from);
        cell.move_all();
    }
    assert_eq!(cell.places(from), (0, 0));
}

#[test]
fn a_rebuild_that_is_stopped_says_of_nothing_that_it_is_done() {
    let (from, mib) = (DriveId(1), 1 << 20);
    let cell = Cell::new();
    let object = loop {
        let object = cell.create().unwrap().object;
        if cell.map(object, UNIT)[0] == from {
            break object;
        }
    };
    let members = cell.map(object, 13 * mib);
    // In two of the steps in which it is given.
    for offset in [0, 12 * mib] {
        cell.write_component(from, object, offset, vec![7; UNIT as usize]);
    }
    let taker = cell.drives.drives().into_iter().find(|drive| !members.contains(drive)).unwrap();
    cell.drain(from);
    cell.drives.hold(Hold {
        drive: taker,
        when: When::Before,
        which: |ask| matches!(ask, Ask::Write { .. }),
    });
    std::thread::scope(|scope| {
        scope.spawn(|| cell.move_all());
        cell.drives.wait_until_somebody_waits();
        cell.whole.end_rebuild();
        cell.drives.let_go();
    });
    cell.move_all();
    let (has, is_to_have) = cell.places(taker);
    assert!(cell.places(from).0 > 0 && is_to_have > 0, "{has} {is_to_have}");
}

/// Who takes a drive out waits for what goes on, and another drive may be lost meanwhile whose last copies it has.
#[test]
fn a_drive_that_is_well_again_before_it_could_be_taken_out_stays() {
    let cell = Cell::with_copies(2);
    let source = cell.create().unwrap();
    let members = cell.map(source.object, UNIT);
    let hear = |silent: Option<DriveId>| {
        for drive in cell.drives.drives() {
            let sign = cell.drives.sign(drive).filter(|_| Some(drive) != silent);
            cell.whole.heard(drive, sign, cell.drives.now());
        }
    };
    hear(None);
    // Keys of before are changed first.
    cell.whole.watch(cell.drives.now());
    cell.drives.pass(3 * SECOND);
    hear(Some(members[1]));
    cell.drives.hold(Hold {
        drive: members[0],
        when: When::Before,
        which: |ask| matches!(ask, Ask::Fastcopy(_)),
    });
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let copy = FastcopyArguments { name: source, copy: None };
            // Whether it is made is another matter.
            let _ = cell.whole.fastcopy(&copy);
        });
        cell.drives.wait_until_somebody_waits();
        let watching = scope.spawn(|| cell.whole.watch(cell.drives.now()));
        std::thread::sleep(SHORT);
        assert!(!watching.is_finished(), "nothing was to be waited for");
        hear(None);
        cell.drives.let_go();
    });
    let status = cell.whole.component_status();
    let states: Vec<_> = status.iter().map(|status| status.state).collect();
    assert_eq!(states, [MemberState::Current; 3]);
}

/// A fast copy is made at one drive after the other: who could write the source meanwhile would have the one that decides
/// copy what another one has not.
#[test]
fn nobody_goes_on_writing_what_is_being_copied() {
    let cell = Cell::with_copies(2);
    let source = cell.create().unwrap();
    let members = cell.map(source.object, UNIT);
    let component = ObjectName { partition: COMPONENTS, object: source.object };
    let version = |drive: &DriveId| cell.drives.component(*drive, component).unwrap().version();
    let before: Vec<u64> = members.iter().map(version).collect();
    cell.drives.hold(Hold {
        drive: members[0],
        when: When::Before,
        which: |ask| matches!(ask, Ask::Fastcopy(_)),
    });
    std::thread::scope(|scope| {
        let (told, heard) = channel();
        scope.spawn(|| {
            let copy = FastcopyArguments { name: source, copy: None };
            told.send(cell.whole.fastcopy(&copy)).unwrap();
            drop(told);
        });
        cell.drives.wait_until_somebody_waits();
        // Capabilities of before are good for no version but that of before.
        let since: Vec<u64> = members.iter().map(version).collect();
        cell.drives.let_go();
        hears(&heard).unwrap();
        let are_revoked = before.iter().zip(&since).all(|(before, since)| before < since);
        assert!(are_revoked, "{before:?} {since:?}");
    });
}

/// An object that is made where a drive stands in for another one may be there before it is where it belongs.
#[test]
fn what_is_just_being_made_is_not_taken_for_something_left() {
    let from = DriveId(1);
    for by_copying in [false, true] {
        let cell = Cell::new();
        let mut others = std::iter::repeat_with(|| cell.create().unwrap());
        let source = others.find(|name| cell.holders(name.object) == [from]).unwrap();
        cell.drain(from);
        let which: fn(&Ask) -> bool = match by_copying {
            true => |ask| matches!(ask, Ask::Fastcopy(_)),
            false => |ask| matches!(ask, Ask::Create(_)),
        };
        cell.drives.hold(Hold { drive: from, when: When::Before, which });
        let make = || match by_copying {
            true => {
                let copy = FastcopyArguments { name: source, copy: None };
                cell.whole.fastcopy(&copy).unwrap().object
            }
            // Until one belongs there.
            false => std::iter::repeat_with(|| cell.create().unwrap().object)
                .find(|object| cell.holders(*object).contains(&from))
                .unwrap(),
        };
        let object = std::thread::scope(|scope| {
            let making = scope.spawn(make);
            cell.drives.wait_until_somebody_waits();
            let (told, heard) = channel();
            let cell = &cell;
            scope.spawn(move || {
                cell.move_all();
                // The one who would hear it may have gone on.
                told.send(()).ok();
            });
            // It waits for what is being made, which is not so if it is done before.
            let is_done = heard.recv_timeout(SHORT).is_ok();
            cell.drives.let_go();
            assert!(!is_done, "it does not wait");
            making.join().unwrap()
        });
        cell.move_all();
        cell.sweep_all();
        assert_eq!(cell.holders(object).len(), 1);
        cell.whole.getattr(ObjectName { partition: PARTITION, object }).unwrap();
    }
}

/// What was written while a drive stood in may differ there, and is looked at when nobody writes it any more. If
/// there is one copy of it again by then, clients write that as they like.
#[test]
fn nothing_is_cut_off_of_an_object_whose_move_was_given_up() {
    let (from, end) = (DriveId(1), 4 * UNIT);
    let cell = Cell::new();
    let mut others = std::iter::repeat_with(|| cell.create().unwrap());
    let name = others.find(|name| cell.holders(name.object) == [from]).unwrap();
    cell.drain(from);
    let drives = cell.map(name.object, end);
    cell.write_component(drives[0], name.object, 0, vec![1; UNIT as usize]);
    // The move is given up, and that client is not heard of any more.
    cell.arrange(cell.drives.drives().into_iter().map(|drive| (drive, Role::Leaving)).collect());
    assert_eq!(cell.places(DriveId(2)).1 + cell.places(DriveId(3)).1, 0);
    cell.drives.pass(600 * SECOND);
    let is_length =
        |ask: &Ask| matches!(ask, Ask::Setattr(setattr) if setattr.changes.logical_size.is_some());
    cell.drives.hold(Hold { drive: drives[0], when: When::Before, which: is_length });
    std::thread::scope(|scope| {
        let (told, heard) = channel();
        let cell = &cell;
        scope.spawn(move || {
            let tended = cell.whole.tend(cell.drives.now());
            told.send(tended).ok();
        });
        let _ = heard.recv_timeout(SHORT).map(|tended| assert_eq!(tended.objects, 1));
        assert_eq!(cell.map(name.object, end)[0], drives[0]);
        cell.write_component(drives[0], name.object, 2 * UNIT, vec![2; UNIT as usize]);
        cell.drives.let_go();
    });
    assert_eq!(cell.whole.getattr(name).unwrap().logical_size, 3 * UNIT);
}

/// A drive that gives what it has away once more, while it is looked through for what it has left the last time.
#[test]
fn what_is_left_of_a_move_is_removed_though_it_ends_while_others_are_looked_for() {
    let from = DriveId(1);
    let cell = Cell::new();
    cell.whole.create_partition(LAST).unwrap();
    cell.drain(from);
    cell.move_all();
    cell.arrange(BTreeMap::new());
    cell.move_all();
    assert!(cell.places(from).0 > 0);
    let made: Vec<ObjectName> = (0..20).map(|_| cell.create().unwrap()).collect();
    assert!(made.iter().any(|name| cell.holders(name.object) == [from]));
    cell.drain(from);
    cell.drives.hold(Hold {
        drive: from,
        when: When::After,
        // The others have been looked through then.
        which: |ask| matches!(ask, Ask::List { partition: COMPONENTS_OF_LAST, .. }),
    });
    std::thread::scope(|scope| {
        scope.spawn(|| cell.whole.sweep());
        cell.drives.wait_until_somebody_waits();
        // All is where it belongs as far as that one knows.
        cell.move_all();
        assert_eq!(cell.places(from), (0, 0));
        cell.drives.let_go();
    });
    cell.sweep_all();
    let left = cell.drives.objects(from, COMPONENTS);
    assert!(left.iter().all(|object| *object == ObjectId::FIRST_OBJECT), "{left:?}");
}

/// Who has written an object has it flushed at all its drives, and a drive refuses that of objects it does not know: it
/// would be tried again until the drive has been given all that it is to have.
#[test]
fn who_flushes_is_given_capabilities_for_components_that_there_are() {
    let from = DriveId(1);
    let cell = Cell::with_copies(2);
    let mut others = std::iter::repeat_with(|| cell.create().unwrap());
    let name = others.find(|name| cell.holders(name.object).contains(&from)).unwrap();
    cell.map(name.object, UNIT);
    cell.drain(from);
    let check = |is_wanted: bool| {
        let components = cell.components(name.object, None);
        let is_joining = |component: &&Component| component.state == MemberState::Joining;
        let joining: Vec<&Component> = components.iter().filter(is_joining).collect();
        assert!(!joining.is_empty(), "nothing moves");
        for component in joining {
            let is_there = cell.holders(name.object).contains(&component.drive);
            assert_eq!((component.capability.is_some(), is_there), (is_wanted, is_wanted));
        }
    };
    check(false);
    cell.map(name.object, UNIT);
    check(true);
}

/// However many there are, nobody asks for each of them by itself.
#[test]
fn many_small_objects_are_given_together() {
    const MANY: u64 = 200;
    let (cell, from) = (Cell::with_copies(2), DriveId(1));
    let mut made = Vec::new();
    for number in 0..MANY {
        let name = cell.create().unwrap();
        let data = vec![number as u8; (number % 3 * 1000) as usize];
        if !data.is_empty() {
            let write = WriteArguments::single(name, 0, data.len(), false);
            cell.whole.write(&write, &[&data]).unwrap();
        }
        made.push((name, data));
    }
    // Until nobody counts as writing them.
    for _ in 0..4 {
        cell.drives.pass(100 * SECOND);
        cell.whole.tend(cell.drives.now());
    }
    let before: Vec<_> = made.iter().map(|(name, _)| cell.whole.getattr(*name).unwrap()).collect();
    cell.drain(from);
    let calls = cell.drives.calls();
    cell.move_all();
    let calls = cell.drives.calls() - calls;
    cell.sweep_all();
    for ((name, data), before) in made.iter().zip(before) {
        assert!(!cell.holders(name.object).contains(&from), "it has not moved");
        let regions = vec![Region::single(0, 1 << 20)];
        let read = cell.whole.read(&ReadArguments { name: *name, order: None, regions }).unwrap();
        assert!(read.data == *data, "{name}");
        let after = cell.whole.getattr(*name).unwrap();
        assert_eq!(after.fs_data_modify_time, before.fs_data_modify_time);
        assert_eq!(after.fs_attribute_modify_time, before.fs_attribute_modify_time);
    }
    // Two of three objects are moved, and of these two of three are read and written.
    assert!(calls < 2 * MANY, "{calls} calls");
}

/// Of a long object that somebody has left uneven, nothing is compared again because the rest could not be.
#[test]
fn what_was_made_even_is_not_compared_again() {
    let (cell, mib) = (Cell::with_copies(2), 1 << 20);
    let name = cell.create().unwrap();
    let data = vec![1; mib as usize];
    for offset in (0..12).map(|at| at * mib) {
        cell.whole
            .write(&WriteArguments::single(name, offset, data.len(), false), &[&data])
            .unwrap();
    }
    let members = cell.map(name.object, 12 * mib);
    let modified = cell.whole.getattr(name).unwrap().fs_data_modify_time;
    // By a client that is not heard of any more.
    for offset in [mib, 9 * mib] {
        cell.write_component(members[1], name.object, offset, vec![7; UNIT as usize]);
    }
    cell.drives.pass(600 * SECOND);
    let is_late =
        |ask: &Ask| matches!(ask, Ask::Read { regions, .. } if regions[0].offset >= 8 << 20);
    cell.drives.hold(Hold { drive: members[1], when: When::Before, which: is_late });
    std::thread::scope(|scope| {
        scope.spawn(|| cell.whole.tend(cell.drives.now()));
        cell.drives.wait_until_somebody_waits();
        cell.drives.set_away(members[1], true);
        cell.drives.let_go();
    });
    cell.drives.set_away(members[1], false);
    let component = |drive: DriveId, offset: u64| {
        let name = ObjectName { partition: COMPONENTS, ..name };
        let regions = vec![Region::single(offset, mib)];
        let ask = Ask::Read { name, order: None, regions, length: mib as usize };
        match cell.drives.ask_one(drive, ask) {
            Ok(Told::Read(read)) => read.data,
            other => panic!("{other:?}"),
        }
    };
    let differs = || {
        let differs = |at: &u64| component(members[0], at * mib) != component(members[1], at * mib);
        (0..12).filter(differs).collect::<Vec<u64>>()
    };
    assert_eq!(differs(), [9], "it was to be interrupted");
    let read = cell.drives.bytes_read();
    cell.whole.tend(cell.drives.now());
    let read = cell.drives.bytes_read() - read;
    assert!(differs().is_empty());
    assert_eq!(read, 2 * 4 * mib);
    assert_eq!(cell.whole.getattr(name).unwrap().logical_size, 12 * mib);
    let after = cell.whole.getattr(name).unwrap().fs_data_modify_time;
    assert!(after > modified, "the client has written");
    assert!(after.0 < modified.0 + 600 * SECOND, "nobody has since");
}

/// A new partition has its places by what drives can hold, so that nothing has to move at once.
#[test]
fn a_new_partition_is_spread_by_size() {
    let cell = Cell::with_copies(2);
    let large = DriveId(2);
    for drive in cell.drives.drives() {
        let sign = cell.drives.sign(drive).unwrap();
        let times = if drive == large { 8 } else { 1 };
        let sign = Sign { capacity_bytes: times * sign.capacity_bytes, ..sign };
        cell.whole.heard(drive, Some(sign), cell.drives.now());
    }
    cell.whole.create_partition(LAST).unwrap();
    for _ in 0..60 {
        let initial = SetAttributes::default();
        let create = CreateArguments { partition: LAST, object: None, durable: true, initial };
        let object = cell.whole.create(&create).unwrap().object;
        let name = ObjectName { partition: COMPONENTS_OF_LAST, object };
        assert!(cell.drives.component(large, name).is_some(), "{name} is not on the largest");
    }
}

/// A drive that has told of bad blocks and is away does not keep those of others from being mended.
#[test]
fn bad_blocks_are_mended_while_another_drive_that_has_some_is_away() {
    let cell = Cell::with_copies(2);
    let away = DriveId(1);
    let lies_elsewhere = |name: &ObjectName| !cell.holders(name.object).contains(&away);
    let name = (0..100).map(|_| cell.create().unwrap()).find(lies_elsewhere).unwrap();
    let data = vec![7; UNIT as usize];
    let write = WriteArguments::single(name, 0, data.len(), true);
    cell.whole.write(&write, &[&data]).unwrap();
    let holder = cell.holders(name.object)[0];
    assert!(away < holder, "it would come after the other");
    let component = ObjectName { partition: COMPONENTS, object: name.object };
    assert!(cell.drives.spoil(holder, component, 0));
    cell.drives.scrub(holder);
    cell.whole.heard(holder, cell.drives.sign(holder), cell.drives.now());
    let told = cell.drives.sign(holder);
    cell.whole.heard(away, told, cell.drives.now());
    cell.drives.set_away(away, true);
    for _ in 0..60 {
        cell.drives.pass(SECOND);
        cell.whole.heard(away, None, cell.drives.now());
        cell.whole.watch(cell.drives.now());
    }
    assert!(cell.whole.mend_suspects(), "the other one is looked through");
    let regions = vec![Region::single(0, UNIT)];
    let read = Ask::Read { name: component, order: None, regions, length: UNIT as usize };
    assert!(cell.drives.ask_one(holder, read).is_ok(), "it was written anew");
}

/// A drive is looked through for bad blocks in the end, however often something comes between.
#[test]
fn a_search_for_bad_blocks_goes_on_where_it_was() {
    let (cell, drive) = (Cell::with_copies(2), DriveId(1));
    let mut made = Vec::new();
    for number in 0..100 {
        let name = cell.create().unwrap();
        let data = vec![number as u8; UNIT as usize];
        let write = WriteArguments::single(name, 0, data.len(), true);
        cell.whole.write(&write, &[&data]).unwrap();
        made.push(name);
    }
    let on_drive = |name: &&ObjectName| cell.holders(name.object).contains(&drive);
    let last = made.iter().rfind(on_drive).unwrap();
    let component = ObjectName { partition: COMPONENTS, object: last.object };
    assert!(cell.drives.spoil(drive, component, 0));
    cell.drives.scrub(drive);
    cell.whole.heard(drive, cell.drives.sign(drive), cell.drives.now());
    cell.drives.fail_one_in(20);
    let is_done = (0..200).any(|_| cell.whole.mend_suspects());
    assert!(cell.drives.failed() > 0 && is_done);
    cell.drives.fail_one_in(0);
    let regions = vec![Region::single(0, UNIT)];
    let read = Ask::Read { name: component, order: None, regions, length: UNIT as usize };
    assert!(cell.drives.ask_one(drive, read).is_ok(), "it was written anew");
}
