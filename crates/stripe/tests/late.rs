//! What a striping manager that has died still asks of a drive, when another one has done the same and clients have
//! gone on: a request may be on its way for long.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::ScopedJoinHandle;

use nasd_drive::Elsewhere;
use nasd_protocol::drive::{CreateArguments, ReadArguments, SetattrArguments, WriteArguments};
use nasd_protocol::{Region, Status};
use nasd_stripe::{Arrangement, Ask, Components, Role, Told, VirtualDrive, VirtualDriveOptions};
use nasd_types::{DriveId, ObjectName, PartitionId, SetAttributes};

use support::{Hold, MemoryDrives, MemoryKeeper, When, start};

const PARTITION: PartitionId = PartitionId(3);
const COMPONENTS: PartitionId = PartitionId(3 + (1 << 30));
const UNIT: u64 = 4096;
const SECOND: u64 = 1_000_000_000;

struct Cell {
    drives: Arc<MemoryDrives>,
    keeper: Arc<MemoryKeeper>,
    options: VirtualDriveOptions,
}

impl Cell {
    fn new(drives: u64, (width, copies): (u16, u16)) -> Cell {
        let options =
            VirtualDriveOptions { unit: UNIT, width, copies, ..VirtualDriveOptions::default() };
        let drives = Arc::new(MemoryDrives::new(drives, 1));
        Cell { drives, keeper: Arc::default(), options }
    }

    /// The striping manager in one of its lives.
    fn life(&self, number: u64) -> VirtualDrive {
        start(&self.drives, &self.keeper, &self.options, number)
    }

    fn holders(&self, name: ObjectName) -> Vec<DriveId> {
        let component = ObjectName { partition: COMPONENTS, ..name };
        let has = |drive: &DriveId| self.drives.component(*drive, component).is_some();
        self.drives.drives().into_iter().filter(has).collect()
    }

    /// What a drive has of an object.
    fn component(&self, drive: DriveId, name: ObjectName) -> Vec<u8> {
        let name = ObjectName { partition: COMPONENTS, ..name };
        let regions = vec![Region::single(0, 1 << 20)];
        let ask = Ask::Read { name, order: None, regions, length: 1 << 20 };
        match self.drives.ask_one(drive, ask) {
            Ok(Told::Read(read)) => read.data,
            other => panic!("{other:?}"),
        }
    }

    /// What all drives tell of themselves, and what follows from it, with one of them drained.
    fn drain(&self, whole: &VirtualDrive, drive: DriveId) {
        let roles = BTreeMap::from([(drive, Role::Leaving)]);
        whole.set_arrangement(Arrangement { roles, ..Arrangement::default() });
        for known in self.drives.drives() {
            whole.heard(known, self.drives.sign(known), self.drives.now());
        }
        whole.watch(self.drives.now());
        whole.arrange(self.drives.now());
    }
}

fn create(whole: &VirtualDrive) -> ObjectName {
    let initial = SetAttributes::default();
    let create = CreateArguments { partition: PARTITION, object: None, durable: true, initial };
    ObjectName { partition: PARTITION, object: whole.create(&create).unwrap().object }
}

fn write(whole: &VirtualDrive, name: ObjectName, offset: u64, data: &[u8]) {
    let arguments = WriteArguments::single(name, offset, data.len(), true);
    whole.write(&arguments, &[data]).unwrap();
}

fn read(whole: &VirtualDrive, name: ObjectName, length: u64) -> Vec<u8> {
    let regions = vec![Region::single(0, length)];
    whole.read(&ReadArguments { name, order: None, regions }).unwrap().data
}

fn cut(whole: &VirtualDrive, name: ObjectName, length: u64) -> Result<(), Status> {
    let changes = SetAttributes { logical_size: Some(length), ..SetAttributes::default() };
    whole.setattr(&SetattrArguments { name, durable: true, changes }).map(drop)
}

/// What is held up is let go at last, also when a test fails.
struct Held<'a>(&'a MemoryDrives);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.let_go();
    }
}

/// Waits until what a thread asks is held up, or it has ended: whether it is held up.
fn is_held_up<T>(cell: &Cell, thread: &ScopedJoinHandle<'_, T>) -> bool {
    while !thread.is_finished() {
        if cell.drives.makes_somebody_wait() {
            return true;
        }
        std::thread::yield_now();
    }
    false
}

/// Whatever was said for the cut that came late.
#[test]
fn a_cut_that_comes_late_cuts_nothing_that_was_written_since() {
    for (width, copies) in [(1, 1), (3, 1), (2, 2), (4, 2)] {
        for length in [UNIT / 2, 7 * UNIT] {
            let mut held = 0;
            for drive in MemoryDrives::new(4, 1).drives() {
                held += u32::from(cut_late_at(drive, (width, copies), length));
            }
            let spread = length > UNIT && copies < width;
            let holders = if spread { u32::from(width) } else { u32::from(copies) };
            assert_eq!(held, holders, "{width} wide, {copies} copies, {length} bytes");
        }
    }
}

/// Whether that drive has a component.
fn cut_late_at(drive: DriveId, (width, copies): (u16, u16), length: u64) -> bool {
    let cell = Cell::new(4, (width, copies));
    let dying = cell.life(1);
    dying.create_partition(PARTITION).unwrap();
    let name = create(&dying);
    write(&dying, name, 0, &vec![1; length as usize]);
    if !cell.holders(name).contains(&drive) {
        return false;
    }
    let which = |ask: &Ask| matches!(ask, Ask::Setattr(set) if set.changes.logical_size.is_some());
    cell.drives.hold(Hold { drive, when: When::Before, which });
    let mut is_held = false;
    std::thread::scope(|scope| {
        let held = Held(&cell.drives);
        let late = scope.spawn(|| cut(&dying, name, 100));
        is_held = is_held_up(&cell, &late);
        let alive = cell.life(2);
        cut(&alive, name, 100).unwrap();
        write(&alive, name, 0, &vec![2; length as usize]);
        drop(held);
        let _ = late.join().unwrap();
        assert!(read(&alive, name, length) == vec![2; length as usize], "{drive}");
        assert_eq!(alive.getattr(name).unwrap().logical_size, length);
    });
    if (width, copies) == (2, 2) {
        for holder in cell.holders(name) {
            assert!(cell.component(holder, name) == vec![2; length as usize], "{drive}, {holder}");
        }
    }
    is_held
}

/// What the one that died was giving a drive is older than what was written there since.
#[test]
fn what_is_given_late_does_not_replace_what_was_written_since() {
    let (cell, from) = (Cell::new(3, (2, 2)), DriveId(1));
    let dying = cell.life(1);
    dying.create_partition(PARTITION).unwrap();
    let name = loop {
        let name = create(&dying);
        if cell.holders(name).contains(&from) {
            break name;
        }
    };
    write(&dying, name, 0, &[1; 3 * UNIT as usize]);
    let settle = |whole: &VirtualDrive| {
        cell.drives.pass(200 * SECOND);
        whole.tend(cell.drives.now());
    };
    settle(&dying);
    let before = cell.holders(name);
    cell.drain(&dying, from);
    let taker = *cell.drives.drives().iter().find(|drive| !before.contains(drive)).unwrap();
    let which = |ask: &Ask| matches!(ask, Ask::Write { .. });
    cell.drives.hold(Hold { drive: taker, when: When::Before, which });
    std::thread::scope(|scope| {
        let held = Held(&cell.drives);
        let late = scope.spawn(|| while dying.rebuild().is_some() {});
        assert!(is_held_up(&cell, &late), "nothing was given");
        let alive = cell.life(2);
        cell.drain(&alive, from);
        while alive.rebuild().is_some() {}
        while alive.sweep() {}
        assert!(!cell.holders(name).contains(&from), "it has not moved");
        settle(&alive);
        write(&alive, name, 0, &[2; 3 * UNIT as usize]);
        drop(held);
        late.join().unwrap();
    });
    for holder in cell.holders(name) {
        assert!(cell.component(holder, name) == [2; 3 * UNIT as usize], "{holder}");
    }
}
