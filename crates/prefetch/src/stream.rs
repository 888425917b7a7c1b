//! A stream of hints: what is still to be fetched of it, and what it holds.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::Settings;
use crate::estimate::{Mean, Rate};

/// A part of an object that will be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Access<O> {
    /// The object.
    pub object: O,
    /// Its first block.
    pub first: u64,
    /// How many blocks, one at least.
    pub blocks: u64,
}

/// What the cache has memory for as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Block<O> {
    /// Whose it is.
    pub object: O,
    /// Which of its blocks.
    pub number: u64,
}

/// The place of a block in a stream: the ordinal of its access, and which of the access's blocks it is.
pub(crate) type Place = (u64, u64);

/// By how much a use widens a window, and one block that nobody wanted narrows it: as long as one in four is wanted,
/// what is not waited for is worth what is fetched in vain.
const GROWTH: usize = 3;
const LOSS: usize = 1;
const STEPS_OF_A_BLOCK: usize = 3;

/// Of one access that is over, so many blocks count as read that were not fetched: it may have been a hint of all of a
/// long file of which little was read.
const MOST_PASSED: u64 = 64;

#[derive(Debug)]
struct Hinted<O> {
    access: Access<O>,
    /// Which of its blocks are not fetched yet.
    todo: Range<u64>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Stream<O> {
    hints: BTreeMap<u64, Hinted<O>>,
    /// Ordinals of those of which something is to be fetched.
    todo: BTreeSet<u64>,
    /// What was asked for or has come, and was neither read nor passed.
    held: BTreeMap<Place, Block<O>>,
    /// Behind the last of its places that was read.
    front: Place,
    /// How many of those that are held come before that: whoever reads has left them out, or comes to them late.
    behind: usize,
    most_behind: usize,
    /// All before it is over.
    passed: u64,
    /// How much may be held: what was told is trusted as far as it was right.
    window_steps: usize,
    least_window_steps: usize,
    /// Which part of what was held was read.
    pub(crate) accuracy: Mean,
    /// Blocks a second that are read or passed.
    pub(crate) rate: Rate,
    pub(crate) last_heard: u64,
}

impl<O: Copy + Ord> Stream<O> {
    pub(crate) fn new(settings: &Settings, now: u64) -> Stream<O> {
        let first_window = settings.first_window.max(1);
        Stream {
            hints: BTreeMap::new(),
            todo: BTreeSet::new(),
            held: BTreeMap::new(),
            front: (0, 0),
            behind: 0,
            most_behind: settings.most_behind,
            passed: 0,
            window_steps: first_window * STEPS_OF_A_BLOCK,
            least_window_steps: (first_window / 8).max(1) * STEPS_OF_A_BLOCK,
            accuracy: Mean::starting_at(0.5),
            rate: Rate::new(now),
            last_heard: now,
        }
    }

    /// Accesses that are known and not over.
    pub(crate) fn hints(&self) -> usize {
        self.hints.len()
    }

    /// Blocks that are held.
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    /// Blocks that are held ahead of whoever reads.
    pub(crate) fn depth(&self) -> usize {
        self.held.len() - self.behind
    }

    /// Blocks that may be held.
    pub(crate) fn window(&self) -> usize {
        self.window_steps / STEPS_OF_A_BLOCK
    }

    /// Adds a hint; one that is over or known already changes nothing.
    pub(crate) fn hint(&mut self, ordinal: u64, access: Access<O>) {
        if ordinal >= self.passed && !self.hints.contains_key(&ordinal) {
            self.hints.insert(ordinal, Hinted { access, todo: 0..access.blocks });
            self.todo.insert(ordinal);
        }
    }

    /// The next block that is not fetched; one that whoever reads is beyond only as long as few such are held.
    pub(crate) fn next(&self) -> Option<(Place, Block<O>)> {
        let from = if self.behind < self.most_behind { (0, 0) } else { self.front };
        let next = |ordinal: &u64| {
            let hinted = self.hints.get(ordinal)?;
            let place = (*ordinal, hinted.todo.start);
            (place >= from).then(|| (place, hinted.block(hinted.todo.start)))
        };
        self.todo.range(from.0..).take(2).find_map(next)
    }

    /// That one is held from now on.
    pub(crate) fn hold(&mut self, place: Place, block: Block<O>) {
        self.held.insert(place, block);
        self.behind += usize::from(place < self.front);
        self.note_fetched(place);
    }

    fn note_fetched(&mut self, (ordinal, index): Place) {
        if let Some(hinted) = self.hints.get_mut(&ordinal)
            && hinted.todo.start == index
        {
            hinted.todo.start += 1;
            if hinted.todo.is_empty() {
                self.todo.remove(&ordinal);
            }
        }
    }

    /// Lets the last block go that is held: it is fetched later, when there is more reason to.
    pub(crate) fn give_up_last(&mut self) -> Option<(Place, Block<O>)> {
        let (place, block) = self.held.pop_last()?;
        self.behind = self.behind.min(self.held.len());
        self.window_steps = (self.held.len() * STEPS_OF_A_BLOCK).max(self.least_window_steps);
        let (ordinal, index) = place;
        if let Some(hinted) = self.hints.get_mut(&ordinal) {
            if hinted.todo.is_empty() {
                hinted.todo = index..index + 1;
            } else if hinted.todo.start == index + 1 {
                hinted.todo.start = index;
            }
            self.todo.insert(ordinal);
        }
        Some((place, block))
    }

    /// A block that is held was read; the places of those that are passed by that.
    pub(crate) fn read(&mut self, place: Place) -> Vec<(Place, Block<O>)> {
        if self.held.remove(&place).is_none() {
            return Vec::new();
        }
        self.accuracy.note(1.0);
        self.window_steps += GROWTH;
        if place < self.front {
            self.behind -= 1;
            return Vec::new();
        }
        self.behind += self.held.range(self.front..place).count();
        self.front = (place.0, place.1 + 1);
        let over = self.behind.saturating_sub(self.most_behind);
        let passed: Vec<_> = (0..over).filter_map(|_| self.held.pop_first()).collect();
        self.behind -= passed.len();
        self.note_unused(passed.len());
        passed
    }

    /// All accesses before an ordinal are over, so many of which were never read; what was held of them, and how many
    /// blocks that nobody had read here went by.
    pub(crate) fn pass(&mut self, ordinal: u64, skipped: u64) -> (Vec<(Place, Block<O>)>, u64) {
        if ordinal <= self.passed {
            return (Vec::new(), 0);
        }
        self.passed = ordinal;
        let later = self.hints.split_off(&ordinal);
        let over = std::mem::replace(&mut self.hints, later);
        self.todo = self.todo.split_off(&ordinal);
        let later = self.held.split_off(&(ordinal, 0));
        let unread: Vec<_> = std::mem::replace(&mut self.held, later).into_iter().collect();
        self.behind = self.held.range(..self.front).count();
        self.note_unused(unread.len().min(usize::try_from(skipped).unwrap_or(usize::MAX)));
        let unfetched = |hinted: &Hinted<O>| (hinted.todo.end - hinted.todo.start).min(MOST_PASSED);
        let unfetched: u64 = over.values().map(unfetched).sum();
        let blocks = unfetched + unread.len() as u64;
        (unread, blocks)
    }

    fn note_unused(&mut self, blocks: usize) {
        (0..blocks.min(64)).for_each(|_| self.accuracy.note(0.0));
        let left = self.window_steps.saturating_sub(LOSS * blocks);
        self.window_steps = left.max(self.least_window_steps);
    }

    /// All that is held, at the end.
    pub(crate) fn into_held(self) -> BTreeMap<Place, Block<O>> {
        self.held
    }
}

impl<O: Copy> Hinted<O> {
    fn block(&self, index: u64) -> Block<O> {
        Block { object: self.access.object, number: self.access.first + index }
    }
}
