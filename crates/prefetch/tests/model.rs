//! Whatever is told, read and asked for: nothing is fetched twice, kept without a reason, or forgotten.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

use std::collections::{BTreeMap, BTreeSet};

use nasd_prefetch::{
    Access, Block, Costs, HintError, Planner, Settings, StreamId, StreamName, Teller,
};
use proptest::collection::vec;
use proptest::prelude::*;

const SETTINGS: Settings = Settings {
    most_streams: 3,
    most_streams_each: 3,
    most_hints: 12,
    most_hints_in_all: 1000,
    quiet_ns: u64::MAX,
    most_held: 9,
    most_under_way: 4,
    first_window: 6,
    first_behind: 2,
    most_behind: 4,
};

fn of(id: StreamId) -> StreamName {
    StreamName { teller: Teller(7), id }
}

#[derive(Clone, Debug)]
enum Step {
    Hint(StreamId, u64, Access<u8>),
    Pass(StreamId, u64, u64),
    Read(Block<u8>),
    Next(Costs),
    /// Of those that are under way, one.
    Came(usize),
    Surrender(usize),
    End(StreamId),
    EndSilent(u64),
}

fn block() -> impl Strategy<Value = Block<u8>> {
    (0..3_u8, 0..10_u64).prop_map(|(object, number)| Block { object, number })
}

fn costs() -> impl Strategy<Value = Costs> {
    (0..3_usize, prop_oneof![Just(0.0), 0.0..1e6_f64])
        .prop_map(|(free, marginal_hits)| Costs { free, marginal_hits })
}

fn step() -> impl Strategy<Value = Step> {
    let access = (0..3_u8, 0..6_u64, 0..5_u64)
        .prop_map(|(object, first, blocks)| Access::of_blocks(object, first, blocks));
    prop_oneof![
        6 => (0..4_u64, 0..30_u64, access).prop_map(|(stream, ordinal, access)| Step::Hint(stream, ordinal, access)),
        1 => (0..4_u64, 0..32_u64, 0..9_u64).prop_map(|(stream, ordinal, skipped)| Step::Pass(stream, ordinal, skipped)),
        4 => block().prop_map(Step::Read),
        8 => costs().prop_map(Step::Next),
        4 => (0..8_usize).prop_map(Step::Came),
        1 => (0..6_usize).prop_map(Step::Surrender),
        1 => (0..4_u64).prop_map(Step::End),
        1 => (0..200_u64).prop_map(Step::EndSilent),
    ]
}

/// What is known outside of the planner.
struct Model {
    planner: Planner<u8>,
    /// Accesses that were told and are not over.
    told: BTreeMap<StreamId, BTreeMap<u64, Access<u8>>>,
    passed: BTreeMap<StreamId, u64>,
    kept: BTreeSet<Block<u8>>,
    under_way: Vec<Block<u8>>,
    now: u64,
}

impl Model {
    fn new() -> Model {
        Model {
            planner: Planner::new(SETTINGS),
            told: BTreeMap::new(),
            passed: BTreeMap::new(),
            kept: BTreeSet::new(),
            under_way: Vec::new(),
            now: 0,
        }
    }

    fn hint(&mut self, stream: StreamId, ordinal: u64, access: Access<u8>) {
        let answer = self.planner.hint(of(stream), ordinal, access, self.now);
        if access.blocks() == 0 {
            assert_eq!(answer, Err(HintError::Empty));
            return;
        }
        let is_new = !self.told.contains_key(&stream);
        if is_new && self.told.len() >= SETTINGS.most_streams {
            assert_eq!(answer, Err(HintError::TooManyStreams(SETTINGS.most_streams)));
            return;
        }
        let passed = self.passed.get(&stream).copied().unwrap_or(0);
        let known = self.told.entry(stream).or_default();
        if ordinal < passed || known.contains_key(&ordinal) {
            assert_eq!(answer, Ok(()));
            return;
        }
        if known.len() >= SETTINGS.most_hints {
            assert_eq!(answer, Err(HintError::TooManyHints(SETTINGS.most_hints)));
            return;
        }
        assert_eq!(answer, Ok(()));
        known.insert(ordinal, access);
    }

    fn forget(&mut self, stream: StreamId) {
        self.told.remove(&stream);
        self.passed.remove(&stream);
    }

    fn next(&mut self, costs: Costs) {
        let Some(block) = self.planner.next(costs, self.now) else { return };
        assert!(self.kept.insert(block), "{block:?} is fetched and was there");
        self.under_way.push(block);
        let has = |access: &Access<u8>| {
            access.object() == block.object
                && (access.first()..access.first() + access.blocks()).contains(&block.number)
        };
        assert!(self.told.values().any(|known| known.values().any(has)), "nobody wants {block:?}");
    }

    fn step(&mut self, step: Step) {
        self.now += 7_000_000;
        match step {
            Step::Hint(stream, ordinal, access) => self.hint(stream, ordinal, access),
            Step::Pass(stream, ordinal, skipped) => {
                let was_known = self.planner.pass(of(stream), ordinal, (skipped, 8), self.now);
                assert_eq!(was_known, self.told.contains_key(&stream));
                if let Some(known) = self.told.get_mut(&stream) {
                    let passed = self.passed.entry(stream).or_default();
                    *passed = ordinal.max(*passed);
                    known.retain(|known, _| *known >= *passed);
                }
            }
            Step::Read(block) => {
                let was_held = self.planner.read(block, self.now);
                // One that is kept may only be under way, and nobody wants it any more.
                let may_be_unwanted = self.under_way.contains(&block);
                assert!(was_held == self.kept.contains(&block) || (may_be_unwanted && !was_held));
            }
            Step::Next(costs) => self.next(costs),
            Step::Came(which) => {
                if which < self.under_way.len() {
                    self.planner.came(self.under_way.swap_remove(which), self.now);
                }
            }
            Step::Surrender(wanted) => {
                let (before, given) = (self.kept.len(), self.planner.surrender(wanted, self.now));
                assert!(given == wanted || self.planner.held() == self.planner.under_way());
                assert!(given <= before);
            }
            Step::End(stream) => {
                self.planner.end(of(stream));
                self.forget(stream);
            }
            Step::EndSilent(steps) => {
                let before = self.planner.streams();
                self.planner.end_silent(self.now.saturating_sub(steps * 7_000_000));
                if self.planner.streams() < before {
                    // Which of them, it does not say: all are ended, to know.
                    (0..4).for_each(|stream| self.planner.end(of(stream)));
                    (0..4).for_each(|stream| self.forget(stream));
                }
            }
        }
        for block in self.planner.released() {
            assert!(self.kept.remove(&block), "{block:?} is let go and was not kept");
            assert!(!self.under_way.contains(&block), "{block:?} is let go and has not come");
        }
        assert_eq!(self.kept.len(), self.planner.held());
        assert_eq!(self.under_way.len(), self.planner.under_way());
        assert!(self.planner.held() <= SETTINGS.most_held, "{}", self.planner.held());
        assert!(self.planner.under_way() <= SETTINGS.most_under_way);
        assert_eq!(self.planner.streams(), self.told.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]
    #[test]
    fn nothing_is_fetched_twice_or_kept_for_ever(steps in vec(step(), 1..120)) {
        let mut model = Model::new();
        for step in steps {
            model.step(step);
        }
        (0..4).for_each(|stream| model.step(Step::End(stream)));
        while !model.under_way.is_empty() {
            model.step(Step::Came(0));
        }
        prop_assert_eq!(model.planner.held(), 0);
        prop_assert!(model.kept.is_empty());
    }

    /// As long as memory is free, all that was told is fetched once, in its order, if it is read as it comes.
    #[test]
    fn all_that_is_read_as_told_is_fetched_in_order(
        accesses in vec((0..3_u8, 0..50_u64, 1..9_u64), 1..12),
        order in Just(()).prop_perturb(|(), mut random| random.random::<u64>()),
    ) {
        let mut planner = Planner::new(SETTINGS);
        // In any order: they come by several connections.
        let mut ordinals: Vec<u64> = (0..accesses.len() as u64).collect();
        ordinals.sort_by_key(|ordinal| (ordinal + 1).wrapping_mul(order | 1) >> 7);
        for ordinal in ordinals {
            let (object, first, blocks) = accesses[ordinal as usize];
            planner.hint(of(1), ordinal, Access::of_blocks(object, first, blocks), 0).unwrap();
        }
        let mut now = 0;
        let mut kept = BTreeSet::new();
        for (object, first, blocks) in &accesses {
            for number in *first..first + blocks {
                now += 1_000_000;
                let wanted = Block { object: *object, number };
                while let Some(block) = planner.next(Costs { free: 1, marginal_hits: 0.0 }, now) {
                    prop_assert!(kept.insert(block));
                    planner.came(block, now);
                }
                prop_assert!(kept.contains(&wanted), "{:?} is not there", wanted);
                prop_assert!(planner.read(wanted, now));
                for block in planner.released() {
                    prop_assert!(kept.remove(&block));
                }
            }
        }
        prop_assert_eq!(planner.held(), 0);
    }
}
