//! What is chosen, and for what reason: one reason at a time.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

use std::collections::BTreeSet;

use nasd_prefetch::{Access, Block, Costs, Planner, Settings, StreamId, StreamName, Teller};

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1000 * MILLISECOND;
const FREE: Costs = Costs { free: 1, marginal_hits: 0.0 };

fn of(id: StreamId) -> StreamName {
    StreamName { teller: Teller(7), id }
}

fn settings() -> Settings {
    Settings { most_hints: 1 << 16, most_hints_in_all: 1 << 20, ..Settings::default() }
}

fn block(stream: StreamId, number: u64) -> Block<u64> {
    Block { object: stream, number }
}

fn hint(planner: &mut Planner<u64>, stream: StreamId, blocks: u64) {
    for number in 0..blocks {
        let access = Access::of_blocks(stream, number, 1);
        planner.hint(of(stream), number, access, 0).unwrap();
    }
}

/// Fetches all that is worth it, in so long each; what it is.
fn fetch(planner: &mut Planner<u64>, costs: Costs, now: u64, latency: u64) -> Vec<Block<u64>> {
    let mut fetched = Vec::new();
    while let Some(block) = planner.next(costs, now) {
        planner.came(block, now + latency);
        fetched.push(block);
    }
    fetched
}

#[test]
fn trust_grows_with_what_is_read_and_falls_with_what_is_not() {
    let settings = Settings { first_window: 16, first_behind: 4, most_behind: 4, ..settings() };
    let mut planner = Planner::new(settings);
    hint(&mut planner, 1, 10_000);
    assert_eq!(fetch(&mut planner, FREE, 0, 0).len(), 16);
    for number in 0..100 {
        assert!(planner.read(block(1, number), number * MILLISECOND));
        fetch(&mut planner, FREE, number * MILLISECOND, 0);
    }
    assert_eq!(planner.held(), 16 + 100);
    // From here on one in eight: so few are held at last that none of them is the next.
    for number in (100..8000).step_by(8) {
        planner.read(block(1, number), number * MILLISECOND);
        fetch(&mut planner, FREE, number * MILLISECOND, 0);
    }
    assert!(planner.held() <= 8 + settings.most_behind, "{}", planner.held());
}

#[test]
fn who_says_that_he_skips_is_trusted_less() {
    let held_after = |skipped| {
        let mut planner = Planner::new(settings());
        hint(&mut planner, 1, 10_000);
        for number in (16..2000).step_by(16) {
            fetch(&mut planner, FREE, number * MILLISECOND, 0);
            planner.pass(of(1), number, (skipped, 16), number * MILLISECOND);
        }
        fetch(&mut planner, FREE, 2 * SECOND, 0);
        planner.held()
    };
    assert_eq!(held_after(0), settings().first_window);
    assert_eq!(held_after(16), settings().first_window / 8);
}

#[test]
fn what_another_has_fetched_takes_no_memory() {
    let settings = Settings { most_held: 4, ..settings() };
    let mut planner = Planner::new(settings);
    hint(&mut planner, 1, 6);
    assert_eq!(fetch(&mut planner, FREE, 0, 0).len(), 4);
    for number in 0..6 {
        let access = Access::of_blocks(1, number, 1);
        planner.hint(of(2), number, access, 0).unwrap();
    }
    assert_eq!(fetch(&mut planner, FREE, 0, 0), []);
    planner.end(of(1));
    assert_eq!((planner.released().len(), planner.held()), (0, 4));
    assert!(planner.read(block(1, 0), MILLISECOND));
    assert_eq!(planner.released(), [block(1, 0)]);
    assert_eq!(fetch(&mut planner, FREE, MILLISECOND, 0), [block(1, 4)]);
}

/// Two streams of which one is read ten times as quickly; what is held at last.
fn quick_and_slow(planner: &mut Planner<u64>) -> BTreeSet<Block<u64>> {
    let (mut quick, mut slow) = (0, 0);
    let mut held = BTreeSet::new();
    hint(planner, 1, 4000);
    hint(planner, 2, 4000);
    for tick in 0..1000 {
        let now = tick * MILLISECOND;
        held.extend(fetch(planner, FREE, now, 0));
        planner.read(block(1, quick), now);
        quick += 1;
        if tick % 10 == 0 {
            planner.read(block(2, slow), now);
            slow += 1;
        }
    }
    planner.released().iter().for_each(|block| assert!(held.remove(block)));
    held
}

fn of_each(held: &BTreeSet<Block<u64>>) -> [usize; 2] {
    [1, 2].map(|stream| held.iter().filter(|block| block.object == stream).count())
}

#[test]
fn memory_is_taken_from_who_needs_it_later() {
    let mut planner = Planner::new(Settings { most_held: 400, ..settings() });
    let mut held = quick_and_slow(&mut planner);
    // The last blocks of both are worth the same if the depths are as the roots of the rates.
    for wanted in [0, 100, 200] {
        assert_eq!(planner.surrender(wanted, SECOND), wanted);
        planner.released().iter().for_each(|block| assert!(held.remove(block)));
        let [quick, slow] = of_each(&held);
        assert!((25..40).contains(&(10 * quick / slow)), "{quick} {slow}");
    }
}

#[test]
fn what_is_given_up_is_fetched_again_when_its_turn_has_come() {
    let mut planner = Planner::new(Settings { first_window: 8, ..settings() });
    hint(&mut planner, 1, 100);
    fetch(&mut planner, FREE, 0, 0);
    assert_eq!(planner.surrender(6, 0), 6);
    assert_eq!(planner.released(), (2..8).rev().map(|number| block(1, number)).collect::<Vec<_>>());
    // Not at once.
    assert_eq!(fetch(&mut planner, FREE, 0, 0), []);
    for number in 0..50 {
        fetch(&mut planner, FREE, number * MILLISECOND, 0);
        assert!(planner.read(block(1, number), number * MILLISECOND), "{number}");
    }
}

#[test]
fn a_part_of_a_long_access_is_given_up_and_fetched_again() {
    let mut planner = Planner::new(Settings { first_window: 8, ..settings() });
    planner.hint(of(1), 0, Access::of_blocks(1, 0, 1 << 40), 0).unwrap();
    for number in 0..500 {
        if number % 50 == 10 {
            let wanted = planner.held() / 2;
            planner.surrender(wanted, number * MILLISECOND);
        }
        fetch(&mut planner, FREE, number * MILLISECOND, 0);
        assert!(planner.read(block(1, number), number * MILLISECOND), "{number}");
    }
}

#[test]
fn what_is_left_out_does_not_stand_in_the_way() {
    let mut planner = Planner::new(Settings { first_window: 8, ..settings() });
    hint(&mut planner, 1, 1000);
    for number in (0..1000).step_by(3) {
        fetch(&mut planner, FREE, number * MILLISECOND, 0);
        assert!(planner.read(block(1, number), number * MILLISECOND), "{number}");
    }
}

#[test]
fn how_quickly_a_stream_passes_counts_as_if_it_were_read() {
    let costs = Costs { free: 0, marginal_hits: 1.0 };
    let held_after = |pass_each| {
        let mut planner = Planner::new(settings());
        hint(&mut planner, 1, 20_000);
        for tick in 1..=1000 {
            let now = tick * MILLISECOND;
            if tick % pass_each == 0 {
                planner.pass(of(1), tick * 10, (0, 1), now);
            }
            fetch(&mut planner, costs, now, 5 * MILLISECOND);
        }
        planner.held()
    };
    assert_eq!(held_after(1), settings().first_window);
    // Of this one nothing is heard after its first tick.
    let silent = held_after(1001);
    assert!(silent < 40, "{silent}");
}

#[test]
fn hints_that_are_seldom_right_get_less_memory() {
    let costs = Costs { free: 0, marginal_hits: 0.5 };
    let held_after = |step: usize| {
        let settings = Settings {
            first_window: 500,
            most_held: 500,
            first_behind: 4,
            most_behind: 4,
            ..settings()
        };
        let mut planner = Planner::new(settings);
        hint(&mut planner, 1, 8000);
        for number in (0..2000).step_by(step) {
            fetch(&mut planner, costs, number * MILLISECOND, 200 * MILLISECOND);
            planner.read(block(1, number), number * MILLISECOND);
        }
        planner.held()
    };
    let (always, seldom) = (held_after(1), held_after(8));
    assert!(always > 40 && seldom < always / 2, "{always} {seldom}");
}

#[test]
fn what_is_told_too_late_takes_no_more_than_what_is_left_out() {
    let settings = Settings { first_window: 8, first_behind: 5, most_behind: 5, ..settings() };
    let mut planner = Planner::new(settings);
    let access = |number| Access::of_blocks(1, number, 1);
    for number in 100..120 {
        planner.hint(of(1), number, access(number), 0).unwrap();
    }
    fetch(&mut planner, FREE, 0, 0);
    assert!(planner.read(block(1, 107), 0));
    // Seven were left out, and two of them go.
    assert_eq!(planner.released().len(), 1 + 2);
    for number in 0..90 {
        planner.hint(of(1), number, access(number), 0).unwrap();
    }
    // The window has room for eight, and nothing of what is late comes in their place.
    let fetched = fetch(&mut planner, FREE, 0, 0);
    assert_eq!(fetched, (108..116).map(|number| block(1, number)).collect::<Vec<_>>());
    assert!(planner.held() <= 8 + settings.most_behind, "{}", planner.held());
}

#[test]
fn the_longest_accesses_are_nothing_special() {
    let mut planner = Planner::new(settings());
    for ordinal in 0..10 {
        let access = Access::of_blocks(ordinal, 0, u64::MAX);
        planner.hint(of(1), ordinal, access, 0).unwrap();
    }
    planner.pass(of(1), 9, (0, 1), SECOND);
    fetch(&mut planner, FREE, SECOND, 0);
    assert_eq!(planner.held(), settings().first_window);
    planner.pass(of(1), u64::MAX, (0, 1), 2 * SECOND);
    assert_eq!(planner.held(), 0);
}

#[test]
fn who_is_ahead_of_all_that_is_held_is_caught_up_with() {
    // As hints of single blocks, and as one of a whole file.
    for access_blocks in [1, 1 << 40] {
        let mut planner = Planner::new(settings());
        for ordinal in 0..8000 / access_blocks.min(8000) {
            let access = Access::of_blocks(1, ordinal, access_blocks);
            planner.hint(of(1), ordinal, access, 0).unwrap();
        }
        assert_eq!(fetch(&mut planner, FREE, 0, 0).len(), 64);
        // 64 are left out, and the reader is as quick as the fetching for a while.
        for number in 64..100 {
            assert!(!planner.read(block(1, number), number * MILLISECOND), "{number}");
        }
        let mut found = 0;
        for number in 100..1100 {
            let now = number * MILLISECOND;
            fetch(&mut planner, FREE, now, 0);
            found += usize::from(planner.read(block(1, number), now));
        }
        assert!(found > 990, "{found}");
        planner.end_silent(SECOND);
        assert_eq!(planner.streams(), 1, "it is read");
    }
}

#[test]
fn streams_that_nobody_reads_do_not_keep_others_out() {
    let mut planner = Planner::new(settings());
    for stream in 1..=16 {
        hint(&mut planner, stream, 100);
    }
    assert_eq!(fetch(&mut planner, FREE, 0, 0).len(), settings().most_held);
    hint(&mut planner, 17, 2000);
    let mut found = 0;
    for number in 0..2000 {
        let now = SECOND + number * MILLISECOND;
        fetch(&mut planner, FREE, now, 0);
        found += usize::from(planner.read(block(17, number), now));
        assert!(planner.held() <= settings().most_held);
    }
    assert_eq!(found, 2000);
}

#[test]
fn what_is_left_out_by_many_does_not_keep_them_out() {
    let mut planner = Planner::new(settings());
    for stream in 1..=16 {
        hint(&mut planner, stream, 4000);
    }
    let mut found = 0;
    for number in (0..4000).step_by(2) {
        let now = number * MILLISECOND;
        fetch(&mut planner, FREE, now, 0);
        for stream in 1..=16 {
            found += usize::from(planner.read(block(stream, number), now));
        }
    }
    assert_eq!(found, 16 * 2000);
}

#[test]
fn accesses_that_are_skipped_count_by_their_blocks() {
    let mut planner = Planner::new(settings());
    for ordinal in 0..100 {
        let access = Access::of_blocks(ordinal, 0, 64);
        planner.hint(of(1), ordinal, access, 0).unwrap();
    }
    for ordinal in 1..4 {
        fetch(&mut planner, FREE, ordinal * MILLISECOND, 0);
        planner.pass(of(1), ordinal, (1, 1), ordinal * MILLISECOND);
    }
    fetch(&mut planner, FREE, SECOND, 0);
    assert!(planner.held() <= 64 - 3 * 14, "{}", planner.held());
}

#[test]
fn what_was_left_out_is_given_up_first_and_for_good() {
    let mut planner = Planner::new(Settings { first_window: 8, ..settings() });
    hint(&mut planner, 1, 8);
    hint(&mut planner, 2, 100);
    fetch(&mut planner, FREE, 0, 0);
    planner.read(block(1, 7), 0);
    planner.released();
    assert_eq!(planner.surrender(3, 0), 3);
    assert_eq!(planner.released(), [0, 1, 2].map(|number| block(1, number)));
    assert_eq!(fetch(&mut planner, FREE, 0, 0), []);
}

#[test]
fn what_nobody_reads_is_not_fetched_again_and_again() {
    let mut planner = Planner::new(settings());
    hint(&mut planner, 1, 10_000);
    let mut fetched = 0;
    for round in 0..100 {
        // Others need memory now and then.
        let now = round * SECOND / 5;
        fetched += fetch(&mut planner, FREE, now, 0).len();
        planner.reconsider(Costs { free: 0, marginal_hits: 1e6 }, now);
    }
    assert_eq!((fetched, planner.held()), (settings().first_window, 0));
    // Whoever reads it after all is believed.
    let mut found = 0;
    for number in 0..200 {
        let now = 20 * SECOND + number * MILLISECOND;
        found += usize::from(planner.read(block(1, number), now));
        fetch(&mut planner, FREE, now, 0);
    }
    assert!(found > 190, "{found}");
}

#[test]
fn a_window_is_not_widened_by_giving_up() {
    let mut planner = Planner::new(Settings { first_window: 64, ..settings() });
    hint(&mut planner, 1, 1000);
    fetch(&mut planner, FREE, 0, 0);
    planner.read(block(1, 40), 0);
    fetch(&mut planner, FREE, 0, 0);
    // 40 that were left out, then half of those ahead.
    assert_eq!(planner.surrender(40 + 32, 0), 40 + 32);
    fetch(&mut planner, FREE, 0, 0);
    assert!(planner.held() <= 65 - 32, "{}", planner.held());
}

#[test]
fn what_is_under_way_counts_until_it_has_come() {
    let settings = Settings { most_under_way: 4, ..settings() };
    let mut planner = Planner::new(settings);
    hint(&mut planner, 1, 100);
    let asked: Vec<_> = std::iter::from_fn(|| planner.next(FREE, 0)).collect();
    assert_eq!(asked.len(), 4);
    planner.pass(of(1), 2, (0, 1), 0);
    assert!(planner.read(block(1, 2), 0));
    assert_eq!((planner.under_way(), planner.next(FREE, 0)), (4, None));
    assert_eq!(planner.released(), []);
    // Who wants one of them anew waits for the same.
    let again = Access::of_blocks(1, 0, 1);
    planner.hint(of(2), 0, again, 0).unwrap();
    planner.came(asked[3], MILLISECOND);
    assert_eq!(planner.next(FREE, MILLISECOND), Some(block(1, 4)));
    planner.came(asked[0], MILLISECOND);
    planner.came(asked[1], MILLISECOND);
    planner.came(asked[2], MILLISECOND);
    assert_eq!(planner.released(), [block(1, 1), block(1, 2)]);
    planner.end(of(1));
    planner.end(of(2));
    assert_eq!(planner.under_way(), 1);
    planner.came(block(1, 4), MILLISECOND);
    assert_eq!((planner.held(), planner.under_way()), (0, 0));
}

#[test]
fn trust_has_an_upper_limit() {
    let mut planner =
        Planner::new(Settings { most_held: 128, first_behind: 4, most_behind: 4, ..settings() });
    hint(&mut planner, 1, 60_000);
    for number in 0..30_000 {
        fetch(&mut planner, FREE, number * MILLISECOND, 0);
        planner.read(block(1, number), number * MILLISECOND);
    }
    let mut fetched = 0;
    for number in (30_000..34_000).step_by(8) {
        fetched += fetch(&mut planner, FREE, number * MILLISECOND, 0).len();
        planner.read(block(1, number), number * MILLISECOND);
    }
    assert!(planner.held() <= 20, "{} after {fetched}", planner.held());
}

#[test]
fn what_is_over_before_it_is_told_is_not_fetched() {
    let mut planner = Planner::new(settings());
    hint(&mut planner, 1, 1);
    assert!(planner.pass(of(1), 10, (0, 1), 0));
    hint(&mut planner, 1, 12);
    assert_eq!(fetch(&mut planner, FREE, 0, 0), [block(1, 10), block(1, 11)]);
}

#[test]
fn what_is_over_of_a_stream_without_hints_begins_none() {
    let mut planner = Planner::<u64>::new(settings());
    for id in 0..1000 {
        assert!(!planner.pass(of(id), 10, (0, 1), 0));
    }
    assert_eq!(planner.streams(), 0);
}

const OTHER: Teller = Teller(8);

fn of_other(id: StreamId) -> StreamName {
    StreamName { teller: OTHER, id }
}

#[test]
fn nobody_tells_anything_of_anothers_stream() {
    let mut planner = Planner::new(settings());
    hint(&mut planner, 1, 10);
    assert_eq!(fetch(&mut planner, FREE, 0, 0).len(), 10);
    assert!(!planner.pass(of_other(1), u64::MAX, (0, 1), 0));
    planner.end(of_other(1));
    assert_eq!((planner.streams(), planner.held()), (1, 10));
    planner.hint(of_other(1), 5, Access::of_blocks(1, 5, 1), 0).unwrap();
    planner.pass(of_other(1), u64::MAX, (1, 1), 0);
    planner.end(of_other(1));
    assert_eq!((planner.streams(), planner.held()), (1, 10));
}

#[test]
fn who_has_many_streams_keeps_nobody_from_telling() {
    let settings = settings();
    let mut planner = Planner::new(settings);
    let access = Access::of_blocks(1, 0, 1);
    let mut refused = 0;
    for teller in 0..10 {
        for id in 0..100 {
            let stream = StreamName { teller: Teller(100 + teller), id };
            refused += usize::from(planner.hint(stream, 0, access, 0).is_err());
        }
    }
    assert!(refused > 0);
    assert!(planner.streams() <= settings.most_streams, "{}", planner.streams());
    // Many as they are, another has his fair share.
    for id in 0..8 {
        planner.hint(of_other(id), 0, access, 1).unwrap();
        assert!(planner.streams() <= settings.most_streams);
    }
    assert!((0..8).all(|id| planner.pass(of_other(id), 0, (0, 1), 1)));
}

#[test]
fn a_new_stream_takes_the_place_of_ones_own_that_is_silent() {
    let settings = Settings { most_streams_each: 2, ..settings() };
    let mut planner = Planner::new(settings);
    let access = Access::of_blocks(1, 0, 1);
    planner.hint(of(1), 0, access, 0).unwrap();
    planner.hint(of(2), 0, access, SECOND).unwrap();
    planner.hint(of_other(1), 0, access, 0).unwrap();
    planner.hint(of(3), 0, access, settings.quiet_ns - 1).unwrap_err();
    planner.hint(of(3), 0, access, settings.quiet_ns).unwrap();
    let are_known = [of(1), of(2), of(3), of_other(1)]
        .map(|stream| planner.pass(stream, 0, (0, 1), settings.quiet_ns));
    assert_eq!(are_known, [false, true, true, true]);
}

#[test]
fn tellers_share_what_may_be_known_in_all() {
    let settings = Settings { most_hints: 100, most_hints_in_all: 800, most_held: 1, ..settings() };
    let mut planner = Planner::new(settings);
    let told = |planner: &mut Planner<u64>, stream| {
        let hint = |number: &u64| {
            planner.hint(stream, *number, Access::of_blocks(1, *number, 1), 0).is_ok()
        };
        (0..1000).take_while(hint).count()
    };
    assert_eq!(told(&mut planner, of(1)), 100);
    assert_eq!(told(&mut planner, of(2)), 0);
    assert_eq!(told(&mut planner, of_other(1)), 100);
    planner.pass(of(1), 30, (0, 1), 0);
    assert_eq!(told(&mut planner, of(2)), 30);
    planner.end(of(1));
    assert_eq!(told(&mut planner, of(3)), 70);
}

#[test]
fn who_has_told_as_much_as_he_may_ends_nobodys_stream() {
    let settings =
        Settings { most_hints: 100, most_hints_in_all: 800, most_streams: 2, ..settings() };
    let mut planner = Planner::new(settings);
    let access = |number| Access::of_blocks(1, number, 1);
    (0..100).for_each(|number| planner.hint(of(1), number, access(number), 0).unwrap());
    planner.hint(of_other(1), 0, access(0), 0).unwrap();
    // That of the other is silent by now.
    let later = 100 * SECOND;
    planner.hint(of(1), 0, access(0), later).unwrap();
    planner.hint(of(2), 0, access(0), later).unwrap_err();
    assert_eq!(planner.streams(), 2);
    assert!(planner.pass(of_other(1), 1, (0, 1), later), "it is there");
}

#[test]
fn all_tellers_together_tell_no_more_than_may_be_known() {
    let settings = Settings { most_hints_in_all: 80, most_hints: 80, ..settings() };
    let mut planner = Planner::new(settings);
    let mut told = 0;
    for teller in 0..64 {
        let stream = StreamName { teller: Teller(teller), id: 1 };
        let hint = |number: &u64| {
            planner.hint(stream, *number, Access::of_blocks(1, *number, 1), 0).is_ok()
        };
        let own = (0..100).take_while(hint).count();
        assert!(own <= 10);
        told += own;
    }
    assert!((40..=80).contains(&told), "{told}");
}

#[test]
fn whoever_holds_less_than_his_part_gets_it_from_who_holds_more() {
    let mut planner = Planner::new(Settings { most_held: 100, first_window: 100, ..settings() });
    let told = |planner: &mut Planner<u64>, stream, object| {
        (0..200).for_each(|number| {
            planner.hint(stream, number, Access::of_blocks(object, number, 1), 0).unwrap();
        });
    };
    told(&mut planner, of(1), 1);
    fetch(&mut planner, FREE, 0, 0);
    assert_eq!(planner.held(), 100);
    // It is read very quickly.
    for number in 0..50 {
        planner.read(block(1, number), number * 1000);
    }
    fetch(&mut planner, FREE, 50_000, 0);
    told(&mut planner, of_other(1), 2);
    let fetched = fetch(&mut planner, FREE, 60_000, 0);
    assert_eq!(fetched, (0..50).map(|number| block(2, number)).collect::<Vec<_>>());
    assert_eq!(planner.held(), 100);
}

/// One teller reads so many streams, two blocks of each in a millisecond, and another one 64 blocks at a time, five times a second;
/// how many of his reads were there, of 896, and how many blocks are held for him at last.
fn slow_beside_quick(streams: StreamId) -> (usize, usize) {
    const SLOW: StreamId = 1000;
    let mut planner = Planner::new(settings());
    for stream in 0..streams {
        planner.hint(of(stream), 0, Access::of_blocks(stream, 0, 1 << 20), 0).unwrap();
    }
    for number in 0..4000 {
        planner.hint(of_other(1), number, Access::of_blocks(SLOW, number, 1), 0).unwrap();
    }
    let mut found = 0;
    for tick in 0..2800 {
        let now = tick * MILLISECOND;
        fetch(&mut planner, FREE, now, 0);
        for stream in 0..streams {
            planner.read(block(stream, 2 * tick), now);
            planner.read(block(stream, 2 * tick + 1), now);
        }
        if tick % 200 == 199 {
            let first = tick / 200 * 64;
            let reads = first..first + 64;
            found += reads.filter(|number| planner.read(block(SLOW, *number), now)).count();
        }
    }
    let now = 2800 * MILLISECOND;
    fetch(&mut planner, FREE, now, 0);
    assert_eq!(planner.held(), settings().most_held);
    let held = planner.held();
    planner.end(of_other(1));
    (found, held - planner.held())
}

#[test]
fn whoever_reads_slowly_has_his_part_beside_who_reads_many_streams_quickly() {
    for streams in [1, 8, 32] {
        let (found, held) = slow_beside_quick(streams);
        assert_eq!(found, 896, "beside {streams} streams");
        assert!(held >= 500, "{held} beside {streams} streams");
    }
}

#[test]
fn who_has_no_room_for_one_stream_may_share_what_is_there_by_another() {
    let mut planner = Planner::new(Settings { most_held: 1, ..settings() });
    hint(&mut planner, 1, 1);
    assert_eq!(fetch(&mut planner, FREE, 0, 0), [block(1, 0)]);
    planner.hint(of(2), 0, Access::of_blocks(1, 0, 1), 0).unwrap();
    // It is chosen first of two that are worth the same.
    hint(&mut planner, 3, 1);
    assert_eq!(fetch(&mut planner, FREE, 0, 0), []);
    planner.end(of(1));
    assert_eq!((planner.released(), planner.held()), (Vec::new(), 1));
}

#[test]
fn nobody_is_passed_over_while_what_makes_room_for_him_is_under_way() {
    let settings = Settings { most_held: 4, first_window: 4, ..settings() };
    let mut planner = Planner::new(settings);
    hint(&mut planner, 1, 100);
    let under_way: Vec<_> = std::iter::from_fn(|| planner.next(FREE, 0)).collect();
    assert_eq!(under_way.len(), 4);
    for teller in [8_u64, 9] {
        let stream = StreamName { teller: Teller(teller.into()), id: 1 };
        planner.hint(stream, 0, Access::of_blocks(teller, 0, 1), 0).unwrap();
    }
    assert_eq!(planner.next(FREE, 0), None);
    // One was given up, and not one for each of the others.
    under_way.iter().for_each(|block| planner.came(*block, 0));
    assert_eq!(planner.released(), [block(1, 3)]);
}

#[test]
fn a_stream_that_is_silent_for_long_is_ended() {
    let mut planner = Planner::new(Settings { most_streams: 2, quiet_ns: u64::MAX, ..settings() });
    hint(&mut planner, 1, 10);
    hint(&mut planner, 2, 10);
    let access = Access::of_blocks(3, 0, 1);
    planner.hint(of(3), 0, access, 0).unwrap_err();
    fetch(&mut planner, FREE, 0, 0);
    planner.read(block(2, 0), 5 * SECOND);
    planner.end_silent(5 * SECOND);
    assert_eq!((planner.streams(), planner.held()), (1, 9));
    planner.hint(of(3), 0, access, 0).unwrap();
}
