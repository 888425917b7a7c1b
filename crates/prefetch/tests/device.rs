//! A program that reads what it has told, a cache, and a device that takes its time, all simulated: how much of the
//! waiting the planner takes away, for how much memory.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

use std::collections::{BTreeMap, BTreeSet};

use nasd_prefetch::{Access, Block, Costs, Planner, Settings, StreamId, StreamName, Teller};

const MICROSECOND: u64 = 1000;
const MILLISECOND: u64 = 1000 * MICROSECOND;

fn of(id: StreamId) -> StreamName {
    StreamName { teller: Teller(7), id }
}

/// A device that reads so many blocks at a time, each in so long, in the order in which they were asked for.
struct Device {
    latency: u64,
    /// When each of its arms is free.
    arms: Vec<u64>,
    /// What comes when.
    coming: BTreeMap<(u64, u64), Block<u8>>,
    begun: u64,
}

impl Device {
    fn new(arms: usize, latency: u64) -> Device {
        Device { latency, arms: vec![0; arms], coming: BTreeMap::new(), begun: 0 }
    }

    fn begin(&mut self, block: Block<u8>, now: u64) -> u64 {
        let arm = self.arms.iter_mut().min().unwrap();
        *arm = now.max(*arm) + self.latency;
        self.begun += 1;
        self.coming.insert((*arm, self.begun), block);
        *arm
    }
}

/// All of it.
struct World {
    planner: Planner<u8>,
    device: Device,
    costs: Costs,
    now: u64,
    here: BTreeSet<Block<u8>>,
    most_held: usize,
    fetched_ahead: usize,
    found: usize,
}

impl World {
    fn new(settings: Settings, device: Device, costs: Costs) -> World {
        World {
            planner: Planner::new(settings),
            device,
            costs,
            now: 0,
            here: BTreeSet::new(),
            most_held: 0,
            fetched_ahead: 0,
            found: 0,
        }
    }

    fn fetch_ahead(&mut self) {
        while let Some(block) = self.planner.next(self.costs, self.now) {
            self.fetched_ahead += 1;
            self.device.begin(block, self.now);
        }
        self.most_held = self.most_held.max(self.planner.held());
    }

    /// Lets time go by.
    fn go_to(&mut self, time: u64) {
        self.fetch_ahead();
        while let Some(((when, number), block)) = self.device.coming.pop_first() {
            if when > time {
                self.device.coming.insert((when, number), block);
                break;
            }
            self.now = when;
            self.here.insert(block);
            self.planner.came(block, when);
            self.fetch_ahead();
        }
        self.now = time;
    }

    /// A program reads a block, and computes for a while.
    fn read(&mut self, block: Block<u8>, computing: u64) {
        self.planner.read(block, self.now);
        self.go_to(self.now);
        if self.here.contains(&block) {
            self.found += 1;
        } else {
            let coming = self.device.coming.iter().find(|(_, coming)| **coming == block);
            let when = match coming {
                Some(((when, _), _)) => *when,
                None => self.device.begin(block, self.now),
            };
            self.go_to(when);
        }
        // What is read once and let go is forgotten.
        self.here.remove(&block);
        for block in self.planner.released() {
            self.here.remove(&block);
        }
        self.go_to(self.now + computing);
    }
}

/// Scattered blocks, none twice.
fn scattered(number: u64) -> Block<u8> {
    Block { object: (number % 7) as u8, number: number.wrapping_mul(7919) % 100_003 }
}

fn hint_all(world: &mut World, blocks: u64, which: impl Fn(u64) -> Block<u8>) {
    for ordinal in 0..blocks {
        let Block { object, number } = which(ordinal);
        let access = Access::of_blocks(object, number, 1);
        world.planner.hint(of(1), ordinal, access, world.now).unwrap();
    }
}

const READS: u64 = 4000;

/// How long reading takes if the device is never waited for in vain.
fn ideal(device: (usize, u64), computing: u64) -> u64 {
    READS * computing.max(device.1 / device.0 as u64) + device.1
}

#[test]
fn whoever_tells_what_he_reads_waits_only_for_what_the_device_can_not_do() {
    let free = Costs { free: 1, marginal_hits: 0.0 };
    for (arms, latency) in
        [(1, 5 * MILLISECOND), (1, 100 * MICROSECOND), (8, 5 * MILLISECOND), (32, MILLISECOND)]
    {
        for computing in [0, 50 * MICROSECOND, MILLISECOND, 20 * MILLISECOND] {
            let device = Device::new(arms, latency);
            let mut world = World::new(Settings::default(), device, free);
            hint_all(&mut world, READS, scattered);
            (0..READS).for_each(|number| world.read(scattered(number), computing));
            let (took, ideal) = (world.now, ideal((arms, latency), computing));
            assert!(took as f64 <= 1.05 * ideal as f64, "{arms} {latency} {computing}: {took}");
            assert_eq!(world.device.begun, READS, "once each");
            assert!(world.fetched_ahead as u64 >= READS - 1, "{}", world.fetched_ahead);
        }
    }
}

#[test]
fn where_others_need_the_memory_no_more_is_taken_than_hides_the_device() {
    // What others have found lately is worth something.
    let costs = Costs { free: 0, marginal_hits: 0.05 };
    for (arms, latency, computing) in [
        (8, 5 * MILLISECOND, MILLISECOND),
        (32, MILLISECOND, 200 * MICROSECOND),
        (4, MILLISECOND, 20 * MILLISECOND),
        (128, 20 * MILLISECOND, 200 * MICROSECOND),
    ] {
        let device = Device::new(arms, latency);
        let settings = Settings { first_window: 1024, most_under_way: 256, ..Settings::default() };
        let mut world = World::new(settings, device, costs);
        hint_all(&mut world, READS, scattered);
        // Until it is known how quickly it is read, the depth is a guess.
        (0..READS / 4).for_each(|number| world.read(scattered(number), computing));
        world.most_held = 0;
        let begun = world.now;
        (READS / 4..READS).for_each(|number| world.read(scattered(number), computing));
        let (took, ideal) = (world.now - begun, ideal((arms, latency), computing) * 3 / 4);
        assert!(took as f64 <= 1.1 * ideal as f64, "{arms} {latency} {computing}: {took}");
        let needed = latency.div_ceil(computing) as usize;
        assert!(world.most_held <= 2 * needed + 6, "{} for {needed}", world.most_held);
    }
}

#[test]
fn where_memory_is_worth_more_than_waiting_nothing_is_fetched_ahead() {
    let dear = Costs { free: 0, marginal_hits: 1e6 };
    let device = Device::new(8, MILLISECOND);
    let mut world = World::new(Settings::default(), device, dear);
    hint_all(&mut world, READS, scattered);
    (0..READS).for_each(|number| world.read(scattered(number), MILLISECOND));
    assert_eq!(world.fetched_ahead, 0);
}

#[test]
fn wrong_hints_cost_their_first_window() {
    let free = Costs { free: 1, marginal_hits: 0.0 };
    let settings = Settings::default();
    let mut world = World::new(settings, Device::new(1, MILLISECOND), free);
    hint_all(&mut world, READS, |number| Block { object: 100, number });
    (0..READS).for_each(|number| world.read(scattered(number), 100 * MICROSECOND));
    assert_eq!(world.found, 0);
    assert_eq!(world.fetched_ahead, settings.first_window);
    let without = READS * (MILLISECOND + 100 * MICROSECOND);
    let window = settings.first_window as u64 * MILLISECOND;
    assert!(world.now <= without + window, "{} of {without}", world.now);
}

#[test]
fn hints_that_are_right_half_of_the_time_are_worth_something() {
    let costs = Costs { free: 0, marginal_hits: 1.0 };
    let mut world = World::new(Settings::default(), Device::new(8, 5 * MILLISECOND), costs);
    hint_all(&mut world, READS, scattered);
    for number in (0..READS).step_by(2) {
        world.read(scattered(number), MILLISECOND);
    }
    let without = READS / 2 * 6 * MILLISECOND;
    assert!(world.now < without / 2, "{} of {without}", world.now);
}

#[test]
fn what_was_answered_from_elsewhere_is_passed() {
    let free = Costs { free: 1, marginal_hits: 0.0 };
    let mut world = World::new(Settings::default(), Device::new(4, MILLISECOND), free);
    hint_all(&mut world, READS, scattered);
    for number in 0..READS {
        // Three of four the reader has himself, and tells it now and then.
        if number % 4 == 0 {
            world.read(scattered(number), 0);
        } else {
            world.go_to(world.now + MILLISECOND);
        }
        if number % 16 == 15 {
            world.planner.pass(of(1), number + 1, (0, 1), world.now);
            for block in world.planner.released() {
                world.here.remove(&block);
            }
        }
    }
    assert_eq!(world.planner.held(), 0);
    assert!(world.found as u64 > READS / 4 * 9 / 10, "{} found", world.found);
}

#[test]
fn two_who_tell_share_the_device() {
    let free = Costs { free: 1, marginal_hits: 0.0 };
    let mut world = World::new(Settings::default(), Device::new(8, 5 * MILLISECOND), free);
    for ordinal in 0..READS {
        for stream in [1, 2] {
            let Block { object, number } = scattered(ordinal);
            let access = Access::of_blocks(object + 10 * stream as u8, number, 1);
            world.planner.hint(of(stream), ordinal, access, 0).unwrap();
        }
    }
    let mut found = [0, 0];
    for ordinal in 0..READS {
        for stream in [1, 2] {
            let Block { object, number } = scattered(ordinal);
            let before = world.found;
            world.read(Block { object: object + 10 * stream as u8, number }, MILLISECOND);
            found[stream - 1] += world.found - before;
        }
    }
    assert!(found.iter().all(|found| *found as u64 > READS * 9 / 10), "{found:?}");
}

#[test]
fn memory_that_is_needed_is_given_up_and_taken_again() {
    let free = Costs { free: 1, marginal_hits: 0.0 };
    let settings = Settings { first_window: 512, ..Settings::default() };
    let mut world = World::new(settings, Device::new(8, MILLISECOND), free);
    hint_all(&mut world, READS, scattered);
    for number in 0..READS {
        world.read(scattered(number), MILLISECOND);
        if number % 500 == 499 && number < READS - 1 {
            let held = world.planner.held();
            assert_eq!(world.planner.surrender(held / 2, world.now), held / 2);
            for block in world.planner.released() {
                world.here.remove(&block);
            }
            // The next ones are still there.
            let found = world.found;
            world.read(scattered(number + 1), 0);
            assert_eq!(world.found, found + 1);
        }
    }
    assert!(world.found as u64 > READS * 95 / 100, "{} found", world.found);
}

/// The order in which several read what was told, each a batch at a time, all equally quickly.
fn by_workers(workers: u64, batch: u64) -> impl Iterator<Item = u64> {
    let round = workers * batch;
    (0..4 * round).map(move |step| {
        let (round_of, step) = (step / round, step % round);
        round_of * round + (step % workers) * batch + step / workers
    })
}

#[test]
fn several_who_share_the_reading_find_what_was_told() {
    let free = Costs { free: 1, marginal_hits: 0.0 };
    for (workers, batch) in [(4, 64), (8, 128), (16, 256), (8, 256)] {
        let settings = Settings {
            most_hints: 1 << 16,
            most_hints_in_all: 1 << 20,
            most_held: 1 << 14,
            ..Settings::default()
        };
        let mut world = World::new(settings, Device::new(32, MILLISECOND), free);
        let reads = 4 * workers * batch;
        hint_all(&mut world, reads, scattered);
        by_workers(workers, batch)
            .for_each(|number| world.read(scattered(number), 100 * MICROSECOND));
        assert!(world.device.begun <= reads + 300, "{} of {reads}", world.device.begun);
        assert!(world.found as u64 > reads * 8 / 10, "{workers} {batch}: {}", world.found);
    }
}

#[test]
fn whoever_leaves_most_out_after_several_shared_the_reading_is_found_out() {
    let free = Costs { free: 1, marginal_hits: 0.0 };
    let settings = Settings {
        most_hints: 1 << 16,
        most_hints_in_all: 1 << 20,
        most_held: 2000,
        ..Settings::default()
    };
    let fetched = |is_shared: bool| {
        let mut world = World::new(settings, Device::new(32, MILLISECOND), free);
        hint_all(&mut world, 50_000, scattered);
        let shared = 4 * 8 * 128;
        let order: Vec<u64> =
            if is_shared { by_workers(8, 128).collect() } else { (0..shared).collect() };
        order.into_iter().for_each(|number| world.read(scattered(number), 100 * MICROSECOND));
        let before = world.fetched_ahead;
        // From here on all that is read is in order, and little of what was told.
        for number in (shared..shared + 40_000).step_by(32) {
            world.read(scattered(number), 100 * MICROSECOND);
        }
        assert!(world.most_held <= 2000);
        (world.fetched_ahead - before, world.planner.held())
    };
    let (alone, shared) = (fetched(false), fetched(true));
    assert!(shared.0 <= alone.0 + settings.most_held, "{shared:?} {alone:?}");
    assert!(shared.1 <= alone.1 + settings.first_behind, "{shared:?} {alone:?}");
}
