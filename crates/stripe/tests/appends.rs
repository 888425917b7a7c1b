//! Appends whose striping manager dies between any two calls of component drives, whose drives are away or come back
//! then, and that are asked for again: each is there once, whole, and no other is where it has its place.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests may fail as tests do"
)]

#[path = "model/expected.rs"]
mod expected;
mod support;
#[path = "model/world.rs"]
#[allow(dead_code, reason = "the model uses the rest")]
mod world;

use nasd_drive::Elsewhere;
use nasd_protocol::drive::{ReadArguments, SetattrArguments, WriteArguments};
use nasd_protocol::{Region, Status};
use nasd_store::Append;
use nasd_stripe::Components;
use nasd_types::{AppendToken, ByteRange, DriveId, ObjectId, ObjectName, SetAttributes, Timestamp};
use world::{PARTITION, Trouble, UNIT, World};

/// Width and copies.
const SHAPES: [(u16, u16); 7] = [(1, 1), (2, 1), (3, 1), (2, 2), (3, 2), (4, 2), (4, 3)];

const NAME: ObjectName = ObjectName { partition: PARTITION, object: ObjectId::FIRST_OBJECT };

/// Someone who appends, and asks again until he is answered.
struct Writer {
    token: AppendToken,
    bytes: Vec<u8>,
    first: Option<Timestamp>,
}

impl Writer {
    /// One whose bytes are those of no other.
    fn new(number: u8, length: usize) -> Writer {
        let token = AppendToken([number; 16]);
        Writer { token, bytes: vec![number; length], first: None }
    }

    fn ask(&mut self, world: &World) -> Result<u64, Status> {
        let now = world.drives.now();
        let append = Append {
            bytes: &self.bytes,
            token: self.token,
            since: self.first,
            within: ByteRange::new(0, u64::MAX),
        };
        self.first.get_or_insert(now);
        world.whole.append(NAME, &append, now).map(|appended| appended.offset)
    }

    /// Asks until there is an answer, which may take as long as others are waited for.
    fn insist(&mut self, world: &World) -> u64 {
        for _ in 0..12 {
            match self.ask(world) {
                Err(Status::Busy) => world.drives.pass(500_000_000),
                told => return told.unwrap(),
            }
        }
        panic!("an append has no end");
    }
}

fn read(world: &World) -> Vec<u8> {
    let regions = vec![Region::single(0, 1 << 20)];
    world.whole.read(&ReadArguments { name: NAME, order: None, regions }).unwrap().data
}

fn write(world: &World, offset: u64, bytes: &[u8]) {
    let arguments = WriteArguments {
        name: NAME,
        durable: true,
        order: None,
        regions: vec![Region::single(offset, bytes.len() as u64)],
        data_length: bytes.len(),
    };
    world.whole.write(&arguments, &[bytes]).unwrap();
}

fn set_length(world: &World, length: u64) {
    let changes = SetAttributes { logical_size: Some(length), ..SetAttributes::default() };
    world.whole.setattr(&SetattrArguments { name: NAME, durable: true, changes }).unwrap();
}

/// What happens after a striping manager's death.
#[derive(Clone, Copy, Debug)]
struct Then {
    /// It was no death: it only heard nothing.
    lives: bool,
    /// Another writer asks first.
    is_overtaken: bool,
    /// A drive is lost, and comes back at the end.
    lost: Option<DriveId>,
    /// Bytes that are appended.
    length: usize,
}

/// An append during which the striping manager dies when it has made so many calls; whether it did.
fn one(shape: (u16, u16), calls: u64, is_done: bool, then: Then) -> bool {
    let trouble = Trouble { outages: true, ..Trouble::default() };
    let mut world = World::new(shape, 7 + calls, trouble);
    let (mut before, mut late) = (Writer::new(1, 5000), Writer::new(2, then.length));
    let mut other = Writer::new(3, 100);
    world.hear(1);
    assert_eq!(before.insist(&world), 0);
    world.drives.die_after(Some((calls, is_done)));
    let first = late.ask(&world);
    let has_died = world.drives.has_died();
    world.drives.die_after(None);
    assert_eq!(first.is_err(), has_died, "{first:?}");
    if !then.lives {
        world.restart();
    }
    if let Some(lost) = then.lost {
        world.hear(1);
        world.drives.set_away(lost, true);
        world.hear(30);
    }
    if then.is_overtaken {
        other.insist(&world);
    }
    let at = late.insist(&world);
    assert_eq!(late.insist(&world), at, "asked once more");
    other.insist(&world);
    let check = |world: &World| {
        let told = read(world);
        let mut wanted = vec![1; 5000];
        let (first, second) = match at == 5000 {
            true => (&late, &other),
            false => (&other, &late),
        };
        wanted.extend(&first.bytes);
        wanted.extend(&second.bytes);
        assert!(told == wanted, "{} bytes, {}", told.len(), wanted.len());
    };
    check(&world);
    // Also when the drive is back, and when everything is started anew, by whatever copy.
    world.mend();
    world.restart();
    world.hear(1);
    check(&world);
    assert_eq!(late.insist(&world), at);
    for _ in 0..4 {
        world.ask_map(NAME.object, false, 0).unwrap();
        world.drives.pass(200_000_000_000);
        world.whole.tend(world.drives.now());
    }
    world.expect_bytes(NAME.object, &read(&world));
    world.compare_copies();
    has_died
}

fn at_every_call(then: impl Fn((u16, u16)) -> Vec<Then>) {
    for shape in SHAPES {
        for then in then(shape) {
            for is_done in [false, true] {
                let deaths = (0..).take_while(|calls| {
                    let told = std::panic::catch_unwind(|| one(shape, *calls, is_done, then));
                    told.unwrap_or_else(|_| panic!("{shape:?} {then:?} {calls} {is_done}"))
                });
                assert!(deaths.count() > 3, "it was to die");
            }
        }
    }
}

/// Within a unit, over its end, and over several.
const LENGTHS: [usize; 3] = [200, UNIT as usize, 3 * UNIT as usize + 5];

fn with_lengths(then: Then) -> Vec<Then> {
    LENGTHS.map(|length| Then { length, ..then }).to_vec()
}

#[test]
fn an_append_is_made_once_whenever_the_striping_manager_dies() {
    at_every_call(|_| {
        with_lengths(Then { lives: false, is_overtaken: false, lost: None, length: 0 })
    });
}

#[test]
fn an_append_is_made_once_whichever_call_fails() {
    at_every_call(|_| {
        with_lengths(Then { lives: true, is_overtaken: false, lost: None, length: 0 })
    });
}

#[test]
fn nobody_gets_a_place_that_another_may_have() {
    at_every_call(|_| {
        let dead = Then { lives: false, is_overtaken: true, lost: None, length: 0 };
        let alive = Then { lives: true, ..dead };
        [with_lengths(dead), with_lengths(alive)].concat()
    });
}

#[test]
fn an_append_is_made_once_whichever_drive_is_lost_then() {
    at_every_call(|(width, copies)| {
        let drives = 1..if copies > 1 { u64::from(width) + 2 } else { 1 };
        let lost = drives.flat_map(|drive| {
            let lost = Some(DriveId(drive));
            let dead = Then { lives: false, is_overtaken: false, lost, length: 0 };
            [dead, Then { is_overtaken: true, ..dead }, Then { lives: true, ..dead }]
        });
        lost.map(|then| Then { length: 3 * UNIT as usize + 5, ..then }).collect()
    });
}

#[test]
fn what_others_have_done_after_an_append_stays_when_it_is_asked_for_again() {
    for shape in SHAPES {
        let mut world = World::new(shape, 3, Trouble::default());
        let mut writer = Writer::new(1, 9000);
        let mut other = Writer::new(2, 100);
        writer.insist(&world);
        // What somebody has written there, by a striping manager that does not know whether it was answered.
        write(&world, 4000, &[9; 500]);
        world.restart();
        assert_eq!(writer.insist(&world), 0);
        let wanted = [vec![1; 4000], vec![9; 500], vec![1; 4500]].concat();
        assert!(read(&world) == wanted, "{shape:?}");
        // What was cut off does not come back, and its place is free.
        set_length(&world, 10);
        world.restart();
        assert_eq!(writer.insist(&world), 0);
        assert_eq!(read(&world), [1; 10], "{shape:?}");
        assert_eq!(other.ask(&world), Ok(10), "{shape:?}");
    }
}

/// Who appends may not hear that it was done, and a drive may be unable to write when he asks again.
#[test]
fn an_append_that_may_have_been_made_gets_no_other_place_whatever_fails_when_it_is_asked_for_again()
{
    for shape in SHAPES {
        for fault in [Status::DriveFault, Status::MediumError, Status::NoSpace] {
            let mut world = World::new(shape, 3, Trouble::default());
            let (mut writer, mut other) = (Writer::new(1, 200), Writer::new(2, 100));
            writer.insist(&world);
            world.restart();
            let drives = world.drives.drives();
            let set_fault = |fault| {
                drives.iter().for_each(|drive| world.drives.set_write_fault(*drive, fault));
            };
            set_fault(Some(fault));
            writer.ask(&world).unwrap_err();
            set_fault(None);
            assert_eq!(other.insist(&world), 200, "{shape:?} {fault:?}");
            assert_eq!(writer.insist(&world), 0, "{shape:?} {fault:?}");
            assert_eq!(read(&world), [vec![1; 200], vec![2; 100]].concat(), "{shape:?} {fault:?}");
        }
    }
}

/// Where nothing of it is anywhere, its place is the next one's at once; else it stays its own.
#[test]
fn a_new_append_that_some_drives_can_not_write_is_there_once_when_it_is_asked_for_again() {
    for shape in SHAPES {
        for failing in 0..=u64::from(shape.0) + 1 {
            let world = World::new(shape, 3, Trouble::default());
            let mut late = Writer::new(1, 3 * UNIT as usize + 5);
            let mut other = Writer::new(2, 100);
            let all = world.drives.drives();
            let set_fault = |fault| {
                let fails = |drive: &&DriveId| failing == 0 || drive.0 == failing;
                all.iter().filter(fails).for_each(|it| world.drives.set_write_fault(*it, fault));
            };
            set_fault(Some(Status::NoSpace));
            let told = late.ask(&world);
            set_fault(None);
            let is_free = told.is_err() && read(&world).is_empty();
            let first = other.ask(&world);
            assert!(!is_free || first == Ok(0), "{shape:?} {failing}: {first:?}");
            let (first, at) = (other.insist(&world), late.insist(&world));
            let wanted = match first < at {
                true => [&other.bytes[..], &late.bytes].concat(),
                false => [&late.bytes[..], &other.bytes].concat(),
            };
            assert!(read(&world) == wanted, "{shape:?} {failing}: {first} {at}");
        }
    }
}

/// What a striping manager which died had under way may come later than all that fails now.
#[test]
fn a_place_that_one_who_died_may_write_yet_stays_its_own_though_it_can_not_be_written_now() {
    let mut deaths_in_between = 0;
    for calls in 0..12 {
        let mut world = World::new((2, 1), 3, Trouble::default());
        let mut late = Writer::new(1, 200);
        world.drives.die_after(Some((calls, false)));
        let told = late.ask(&world);
        world.drives.die_after(None);
        world.restart();
        let has_place = Writer::new(2, 100).ask(&world) == Err(Status::Busy);
        if told.is_ok() || !has_place || !read(&world).is_empty() {
            continue;
        }
        deaths_in_between += 1;
        let all = world.drives.drives();
        let set_fault =
            |fault| all.iter().for_each(|drive| world.drives.set_write_fault(*drive, fault));
        set_fault(Some(Status::NoSpace));
        late.ask(&world).unwrap_err();
        set_fault(None);
        let other = Writer::new(3, 100).ask(&world);
        assert_eq!(other, Err(Status::Busy), "it has the other's place, after {calls} calls");
    }
    assert!(deaths_in_between > 0, "it was to die between its two writes");
}

/// One that did not answer may write yet, which would be over what another one has written there by then.
#[test]
fn a_place_where_a_drive_may_write_yet_is_no_other_one_s_whoever_else_refuses() {
    let world = World::new((2, 1), 3, Trouble::default());
    assert_eq!(Writer::new(1, 2 * UNIT as usize).insist(&world), 0);
    let bytes = vec![9; 2 * UNIT as usize];
    let try_to_write = || {
        let regions = vec![Region::single(0, bytes.len() as u64)];
        let data_length = bytes.len();
        let arguments =
            WriteArguments { name: NAME, durable: false, order: None, regions, data_length };
        world.whole.write(&arguments, &[&bytes]).map(drop)
    };
    let fails_without = |full: &DriveId| {
        world.drives.set_write_fault(*full, Some(Status::NoSpace));
        let told = try_to_write();
        world.drives.set_write_fault(*full, None);
        told == Err(Status::NoSpace)
    };
    let holders: Vec<DriveId> = world.drives.drives().into_iter().filter(fails_without).collect();
    let [first, second] = holders[..] else { panic!("it is on {holders:?}") };
    for (full, silent) in [(first, second), (second, first)] {
        world.drives.set_write_fault(full, Some(Status::NoSpace));
        world.drives.set_write_lost(Some(silent));
        assert_eq!(try_to_write(), Err(Status::Busy), "{full} is full");
        world.drives.set_write_lost(None);
        world.drives.set_write_fault(full, None);
    }
}

#[test]
fn who_does_not_come_back_is_not_waited_for_for_ever() {
    let mut world = World::new((3, 2), 3, Trouble::default());
    let mut writers: Vec<Writer> = (1..=3).map(|number| Writer::new(number, 5000)).collect();
    writers[0].insist(&world);
    // The home has its place, and nobody has its bytes.
    let died = (0..).find(|calls| {
        let mut tried = World::new((3, 2), 3, Trouble::default());
        Writer::new(1, 5000).insist(&tried);
        tried.drives.die_after(Some((*calls, false)));
        let told = Writer::new(2, 5000).ask(&tried);
        tried.drives.die_after(None);
        tried.restart();
        told.is_err() && Writer::new(3, 10).ask(&tried) == Err(Status::Busy)
    });
    world.drives.die_after(Some((died.unwrap(), false)));
    writers[1].ask(&world).unwrap_err();
    world.drives.die_after(None);
    world.restart();
    let begun = world.drives.now();
    assert_eq!(writers[2].insist(&world), 10_000);
    let waited = world.drives.now().0 - begun.0;
    assert!((3_900_000_000..5_000_000_000).contains(&waited), "{waited}");
    assert_eq!(writers[1].insist(&world), 5000, "its place is its own all the same");
    let wanted = [vec![1; 5000], vec![2; 5000], vec![3; 5000]].concat();
    assert!(read(&world) == wanted);
}

#[test]
fn nobody_but_the_striping_manager_meets_a_journal() {
    let world = World::new((3, 2), 3, Trouble::default());
    Writer::new(1, 5000).insist(&world);
    let listed = world.whole.list(PARTITION, ObjectId::FIRST_OBJECT, 100).unwrap();
    assert_eq!(listed, [ObjectId::FIRST_OBJECT]);
}
