//! Random operations on a virtual drive, compared with what they should do: with drives that are well, with
//! calls that fail, and with drives that lose what was not flushed.
//!
//! `NASD_MODEL_SECONDS` says for how long; without it, each test takes some seconds. `NASD_MODEL_SEED` says with
//! which seed to begin.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "model/expected.rs"]
mod expected;
mod support;
#[path = "model/world.rs"]
mod world;

use std::time::{Duration, Instant};

use nasd_drive::Elsewhere;
use nasd_protocol::Status;
use nasd_store::Append;
use nasd_types::{AppendToken, ByteRange, ObjectId, ObjectName};

use world::{Trouble, World};

/// Width and copies.
const SHAPES: [(u16, u16); 9] =
    [(1, 1), (2, 1), (3, 1), (4, 1), (2, 2), (3, 2), (4, 2), (4, 3), (5, 5)];

const NONE: Trouble =
    Trouble { fail_one_in: 0, restarts: false, outages: false, moves: false, rot: false };

/// Seed after seed until the time is over, each shape twice at least.
fn run(first_seed: u64, trouble: Trouble, steps: usize) {
    let seconds = std::env::var("NASD_MODEL_SECONDS").ok();
    let patience = seconds.map_or(3, |text| text.parse().unwrap());
    let started = Instant::now();
    let mut seed =
        std::env::var("NASD_MODEL_SEED").map_or(first_seed, |seed| seed.parse().unwrap());
    while seed < first_seed + 2 * SHAPES.len() as u64
        || started.elapsed() < Duration::from_secs(patience)
    {
        let shape = SHAPES[(seed % SHAPES.len() as u64) as usize];
        let told = std::panic::catch_unwind(|| live(shape, seed, trouble, steps));
        assert!(told.is_ok(), "seed {seed}, {shape:?}, {trouble:?}");
        seed += 1;
    }
}

fn live(shape: (u16, u16), seed: u64, trouble: Trouble, steps: usize) {
    let mut world = World::new(shape, seed, trouble);
    for _ in 0..steps {
        world.step();
    }
    world.look_at_all();
    world.settle();
    world.look_at_all();
    world.compare_copies();
    world.restart();
    world.look_at_all();
    world.settle();
    world.look_at_all();
    world.compare_copies();
}

#[test]
fn whatever_is_done_the_whole_is_as_one_drive_would_have_it() {
    run(1 << 20, Trouble::default(), 300);
}

#[test]
fn what_failed_was_done_or_not_and_stays_so() {
    run(2 << 20, Trouble { fail_one_in: 20, ..NONE }, 300);
}

#[test]
fn drives_that_are_started_anew_lose_what_was_not_flushed_and_nothing_else() {
    run(3 << 20, Trouble { restarts: true, ..NONE }, 300);
}

#[test]
fn drives_that_are_started_anew_may_fail_too() {
    run(4 << 20, Trouble { fail_one_in: 40, restarts: true, ..NONE }, 300);
}

#[test]
fn drives_that_were_away_are_given_what_they_lack() {
    run(5 << 20, Trouble { outages: true, ..NONE }, 400);
}

#[test]
fn drives_that_were_away_are_given_what_they_lack_whatever_fails() {
    run(6 << 20, Trouble { fail_one_in: 40, outages: true, ..NONE }, 400);
}

#[test]
fn objects_move_to_other_drives_while_they_are_used() {
    run(7 << 20, Trouble { moves: true, ..NONE }, 400);
}

#[test]
fn objects_move_to_other_drives_whatever_fails() {
    run(8 << 20, Trouble { fail_one_in: 40, moves: true, ..NONE }, 400);
}

#[test]
fn objects_move_while_drives_are_started_anew() {
    run(9 << 20, Trouble { restarts: true, moves: true, ..NONE }, 400);
}

#[test]
fn objects_move_while_drives_are_lost() {
    run(10 << 20, Trouble { outages: true, moves: true, ..NONE }, 400);
}

#[test]
fn objects_move_while_drives_are_lost_whatever_fails() {
    run(11 << 20, Trouble { fail_one_in: 40, outages: true, moves: true, ..NONE }, 400);
}

#[test]
fn what_a_drive_can_not_read_is_given_to_it_anew() {
    run(12 << 20, Trouble { rot: true, ..NONE }, 400);
}

#[test]
fn what_a_drive_can_not_read_is_given_to_it_anew_whatever_fails() {
    run(13 << 20, Trouble { fail_one_in: 40, rot: true, ..NONE }, 400);
}

#[test]
fn an_append_that_was_made_is_not_refused_for_where_it_would_go_now() {
    let world = World::new((2, 1), 5, Trouble::default());
    let name = ObjectName { partition: world::PARTITION, object: ObjectId::FIRST_OBJECT };
    let first = Append {
        bytes: &[1; 2000],
        token: AppendToken([7; 16]),
        since: None,
        within: ByteRange::new(0, 3000),
    };
    let now = world.drives.now();
    assert_eq!(world.whole.append(name, &first, now).unwrap().offset, 0);
    let again = Append { since: Some(now), ..first };
    let told = world.whole.append(name, &again, world.drives.now()).map(|appended| appended.offset);
    assert!(matches!(told, Ok(0) | Err(Status::Forgotten)), "{told:?}");
    let other = Append { token: AppendToken([8; 16]), ..first };
    let told = world.whole.append(name, &other, now).map(|appended| appended.offset);
    assert_eq!(told, Err(Status::RefusedRegion));
}
