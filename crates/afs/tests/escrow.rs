//! Files that are extended, settled and cut, beside what is accounted for.

use nasd_afs::escrow::{Escrow, Given, Wanted};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum What {
    Ask {
        least: u64,
        more: u64,
    },
    GiveUp,
    /// Writes up to a part of what is allowed.
    Write {
        part: u64,
    },
    Settle,
    Resize {
        to: u64,
    },
}

const FILES: usize = 5;
const LIMIT: u64 = 1000;

fn what() -> impl Strategy<Value = (usize, What)> {
    let what = prop_oneof![
        4 => (0..400_u64, 0..400_u64).prop_map(|(least, more)| What::Ask { least, more }),
        1 => Just(What::GiveUp),
        4 => (0..=100_u64).prop_map(|part| What::Write { part }),
        2 => Just(What::Settle),
        1 => (0..50_u64).prop_map(|to| What::Resize { to }),
    ];
    (0..FILES, what)
}

/// What is there, beside what is accounted for.
struct World {
    escrow: Escrow<usize>,
    lengths: [u64; FILES],
    /// As was last told.
    counted: [u64; FILES],
    /// Where each capability ends.
    ends: [Option<u64>; FILES],
    wanted: [Option<Wanted>; FILES],
}

impl World {
    fn take(&mut self, answers: Vec<(usize, Given)>) {
        for (file, given) in answers {
            self.is_given(file, given);
        }
    }

    fn is_given(&mut self, file: usize, given: Given) {
        let wanted = self.wanted[file].take().expect("an answer to who has asked");
        match given {
            Given::Until(end) => {
                assert!(end >= wanted.least_end);
                assert!(end <= wanted.best_end.max(self.ends[file].unwrap_or(self.lengths[file])));
                self.ends[file] = Some(end);
            }
            Given::Full => {
                // Without him, and with all that others have set aside.
                let room = LIMIT - (self.escrow.used() - self.counted[file]);
                assert!(wanted.least_end > room, "refused while there is room");
            }
        }
    }

    fn check(&self) {
        let there: u64 = self.lengths.iter().sum();
        let (used, escrowed) = (self.escrow.used(), self.escrow.escrowed());
        assert!(there <= used + escrowed, "{there} of {used} and {escrowed}");
        assert!(used + escrowed <= LIMIT, "{used} and {escrowed}");
        let waiting = self.wanted.iter().flatten().count();
        assert_eq!(waiting, self.escrow.waiting());
        assert!(waiting == 0 || escrowed > 0, "who waits waits for somebody");
        assert!(waiting == 0 || !self.escrow.to_recall().is_empty());
    }
}

proptest! {
    #[test]
    fn nobody_gets_beyond_the_limit_or_is_refused_what_is_there(steps in prop::collection::vec(what(), 1..300)) {
        let (lengths, ends, wanted) = ([0; FILES], [None; FILES], [None; FILES]);
        let mut world = World { escrow: Escrow::new(LIMIT, 0), lengths, counted: lengths, ends, wanted };
        for (file, what) in steps {
            match what {
                What::Ask { least, more } => {
                    let length = world.lengths[file];
                    let wanted = Wanted { length, least_end: length + least, best_end: length + least + more };
                    world.wanted[file] = Some(wanted);
                    let answers = world.escrow.ask(file, wanted);
                    world.take(answers);
                }
                What::GiveUp => {
                    world.wanted[file] = None;
                    let answers = world.escrow.give_up(file);
                    world.take(answers);
                }
                What::Write { part } => {
                    if let Some(end) = world.ends[file] {
                        let length = world.lengths[file];
                        world.lengths[file] = length.max(length + end.saturating_sub(length) * part / 100);
                    }
                }
                What::Settle => {
                    world.ends[file] = None;
                    world.counted[file] = world.lengths[file];
                    let answers = world.escrow.settle(file, world.lengths[file]);
                    world.take(answers);
                }
                What::Resize { to } => {
                    let from = world.lengths[file];
                    let to = to.min(from);
                    world.lengths[file] = to;
                    world.counted[file] = to;
                    let answers = world.escrow.resized(file, from, to);
                    world.take(answers);
                }
            }
            world.check();
        }
        // Each that is answered may have something then that the next one waits for.
        for file in (0..=FILES).flat_map(|_| 0..FILES) {
            world.ends[file] = None;
            world.counted[file] = world.lengths[file];
            let answers = world.escrow.settle(file, world.lengths[file]);
            world.take(answers);
        }
        prop_assert_eq!(world.escrow.waiting(), 0);
        prop_assert_eq!(world.escrow.used(), world.lengths.iter().sum::<u64>());
        prop_assert_eq!(world.escrow.escrowed(), 0);
    }
}

fn wanted(length: u64, least_end: u64, best_end: u64) -> Wanted {
    Wanted { length, least_end, best_end }
}

#[test]
fn who_waits_is_served_in_his_turn_and_keeps_it_when_he_asks_again() {
    let mut escrow = Escrow::new(100, 0);
    assert_eq!(escrow.ask(1, wanted(0, 90, 90)), [(1, Given::Until(90))]);
    assert_eq!(escrow.ask(2, wanted(0, 50, 50)), []);
    assert_eq!(escrow.ask(3, wanted(0, 10, 10)), [], "there is room, but somebody was before him");
    assert_eq!(escrow.ask(2, wanted(0, 60, 60)), []);
    assert_eq!(escrow.to_recall(), [1]);
    assert_eq!(escrow.settle(1, 20), [(2, Given::Until(60)), (3, Given::Until(10))]);
    assert_eq!((escrow.used(), escrow.escrowed(), escrow.free()), (20, 70, 10));
    // One before him does not wait any more.
    assert_eq!(escrow.ask(4, wanted(0, 20, 20)), []);
    assert_eq!(escrow.ask(5, wanted(0, 10, 10)), []);
    assert_eq!(escrow.ask(4, wanted(0, 81, 81)), [(4, Given::Full), (5, Given::Until(10))]);
}

#[test]
fn who_has_room_already_waits_for_nobody_and_what_is_cut_may_be_written_again() {
    let mut escrow = Escrow::new(100, 100);
    assert_eq!(escrow.ask(1, wanted(60, 50, 60)), [(1, Given::Until(60))], "within its length");
    assert_eq!(escrow.resized(1, 60, 0), []);
    assert_eq!((escrow.used(), escrow.escrowed(), escrow.free()), (40, 60, 0));
    assert_eq!(escrow.settle(1, 60), []);
    assert_eq!((escrow.used(), escrow.escrowed(), escrow.free()), (100, 0, 0));
}

#[test]
fn a_limit_below_what_is_used_refuses_what_would_not_fit_whatever_comes_back() {
    let mut escrow = Escrow::new(100, 50);
    assert_eq!(escrow.ask(1, wanted(0, 40, 40)), [(1, Given::Until(40))]);
    assert_eq!(escrow.ask(2, wanted(0, 20, 20)), []);
    assert_eq!(escrow.set_limit(80), [], "what 1 has may come back");
    assert_eq!(escrow.set_limit(60), [(2, Given::Full)]);
    assert_eq!(escrow.ask(1, wanted(0, 30, 30)), [(1, Given::Until(40))], "what was given is his");
}
