//! A stream of hints: what is still to be fetched of it, and what it holds.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::Settings;
use crate::estimate::{Mean, Rate};

/// A part of an object that will be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Access<O> {
    object: O,
    first: u64,
    blocks: u64,
    /// Its bytes; none where it counts by blocks.
    bytes: Option<(u64, u64)>,
}

impl<O: Copy> Access<O> {
    /// So many blocks from one on.
    pub fn of_blocks(object: O, first: u64, blocks: u64) -> Access<O> {
        Access { object, first, blocks, bytes: None }
    }

    /// The blocks, of so many bytes each, that have some bytes of the object. It may be empty, and then it is no hint.
    pub fn of_bytes(object: O, bytes: Range<u64>, block_bytes: u64) -> Access<O> {
        let first = bytes.start / block_bytes.max(1);
        let blocks = bytes.end.div_ceil(block_bytes.max(1)).saturating_sub(first);
        let blocks = if bytes.is_empty() { 0 } else { blocks };
        Access { object, first, blocks, bytes: Some((bytes.start, bytes.end)) }
    }

    /// Whose part it is.
    pub fn object(&self) -> O {
        self.object
    }

    /// Its first block.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// How many blocks it has.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }
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

/// By how much one that is read late widens what may be behind, and one that never is narrows it.
const LATE_GROWTH: usize = 4;
const LATE_LOSS: usize = 2;

/// Of so many blocks that accesses begin at, before one that is read, it is looked at whether it is of one of those.
const MOST_LOOKED_AT: usize = 16;

/// So many accesses of one block are looked at for what of it is wanted; of one that is told more often, all is.
const MOST_PARTS: usize = 64;

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
    /// The first blocks and the ordinals of the accesses of each object.
    by_object: BTreeMap<O, BTreeSet<(u64, u64)>>,
    /// Ordinals of those of which something is to be fetched.
    todo: BTreeSet<u64>,
    /// What was asked for or has come, and was neither read nor passed.
    held: BTreeMap<Place, Block<O>>,
    /// Behind the last of its places that was read.
    front: Place,
    /// How many of those that are held come before that: whoever reads has left them out, or comes to them late.
    behind: usize,
    /// How many may: more than at first where several share the reading, as is seen by what is read late.
    may_be_behind: usize,
    first_behind: usize,
    most_behind: usize,
    /// All before it is over.
    passed: u64,
    /// How much may be held: what was told is trusted as far as it was right.
    window_steps: usize,
    least_window_steps: usize,
    most_window_steps: usize,
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
            by_object: BTreeMap::new(),
            todo: BTreeSet::new(),
            held: BTreeMap::new(),
            front: (0, 0),
            behind: 0,
            may_be_behind: settings.first_behind,
            first_behind: settings.first_behind,
            most_behind: settings.most_behind.min(settings.most_held / 2),
            passed: 0,
            window_steps: first_window * STEPS_OF_A_BLOCK,
            least_window_steps: (first_window / 8).max(1) * STEPS_OF_A_BLOCK,
            most_window_steps: settings.most_held.max(first_window) * STEPS_OF_A_BLOCK,
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

    /// Whether accesses of an object are known.
    pub(crate) fn knows_of(&self, object: O) -> bool {
        self.by_object.contains_key(&object)
    }

    /// Whether an access is over or known already.
    pub(crate) fn knows(&self, ordinal: u64) -> bool {
        ordinal < self.passed || self.hints.contains_key(&ordinal)
    }

    /// Adds a hint that is not known.
    pub(crate) fn hint(&mut self, ordinal: u64, access: Access<O>) {
        self.hints.insert(ordinal, Hinted { access, todo: 0..access.blocks });
        self.by_object.entry(access.object).or_default().insert((access.first, ordinal));
        self.todo.insert(ordinal);
    }

    /// The next block that is not fetched; one that whoever reads is beyond only as long as few such are held.
    pub(crate) fn next(&self) -> Option<(Place, Block<O>)> {
        let from = if self.behind < self.may_be_behind { (0, 0) } else { self.front };
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

    /// All blocks of an access up to that one are fetched, or need not be.
    fn note_fetched(&mut self, (ordinal, index): Place) {
        if let Some(hinted) = self.hints.get_mut(&ordinal)
            && hinted.todo.start <= index
        {
            hinted.todo.start = index + 1;
            if hinted.todo.is_empty() {
                self.todo.remove(&ordinal);
            }
        }
    }

    /// Whether the first that it would give up is one that whoever reads has left out. Where several share the reading
    /// it comes to be read sooner than the last.
    pub(crate) fn has_left_out(&self) -> bool {
        let is_shared = self.may_be_behind > self.first_behind;
        self.behind > 0 && (!is_shared || self.depth() == 0)
    }

    /// Lets a block go that is held: one that was left out, or else the last, which is fetched later, when there is
    /// more reason to.
    pub(crate) fn give_up(&mut self) -> Option<(Place, Block<O>)> {
        if self.has_left_out() {
            self.behind -= 1;
            return self.held.pop_first();
        }
        let (place, block) = self.held.pop_last()?;
        // Even none, until something is read: what nobody reads is not to be fetched anew whenever memory is free for a while.
        self.window_steps = self.window_steps.min(self.depth() * STEPS_OF_A_BLOCK);
        let (ordinal, index) = place;
        if let Some(hinted) = self.hints.get_mut(&ordinal) {
            let end = if hinted.todo.is_empty() { index + 1 } else { hinted.todo.end };
            hinted.todo = index..end;
            self.todo.insert(ordinal);
        }
        Some((place, block))
    }

    /// A block that is held was read; those that are passed by that.
    pub(crate) fn read(&mut self, place: Place) -> Vec<(Place, Block<O>)> {
        if self.held.remove(&place).is_none() {
            return Vec::new();
        }
        self.note_right();
        if place < self.front {
            self.behind -= 1;
            self.note_late();
            return Vec::new();
        }
        self.advance(place)
    }

    /// Which bytes of an object the accesses that have a block of it are of, if all of them are known by their bytes.
    pub(crate) fn parts(&self, block: Block<O>) -> Option<Vec<Range<u64>>> {
        let Some(starts) = self.by_object.get(&block.object) else { return Some(Vec::new()) };
        let accesses = |first| starts.range((first, 0)..=(first, u64::MAX));
        let mut parts = Vec::new();
        for (looked_at, (first, ordinal)) in self.firsts(block).flat_map(accesses).enumerate() {
            if looked_at > MOST_PARTS {
                return None;
            }
            let access = self.hints.get(ordinal)?.access;
            if block.number - first < access.blocks {
                let (start, end) = access.bytes?;
                parts.push(start..end);
            }
        }
        Some(parts)
    }

    /// Where accesses begin, at the block or before it, the nearest ones first.
    fn firsts(&self, block: Block<O>) -> impl Iterator<Item = u64> {
        let starts = self.by_object.get(&block.object);
        let last =
            move |until: (u64, u64)| starts?.range(..=until).next_back().map(|(first, _)| *first);
        let before = move |first: &u64| last((first.checked_sub(1)?, u64::MAX));
        std::iter::successors(last((block.number, u64::MAX)), before).take(MOST_LOOKED_AT)
    }

    /// Where a block that is not held is to be read next, if that is known.
    pub(crate) fn place_of(&self, block: Block<O>) -> Option<Place> {
        let starts = self.by_object.get(&block.object)?;
        let place = |first: u64| {
            let (_, ordinal) = *starts.range((first, self.front.0)..=(first, u64::MAX)).next()?;
            let place = (ordinal, block.number - first);
            let blocks = self.hints.get(&ordinal)?.access.blocks;
            (place.1 < blocks && place >= self.front).then_some(place)
        };
        self.firsts(block).filter_map(place).min()
    }

    /// Where a block that was not fetched should have been read, if whoever reads is beyond that.
    pub(crate) fn late_place_of(&self, block: Block<O>) -> Option<Place> {
        let starts = self.by_object.get(&block.object)?;
        let places = |first: u64| {
            let ordinals = starts.range((first, 0)..=(first, self.front.0));
            ordinals.map(move |(_, ordinal)| (*ordinal, block.number - first))
        };
        let places = self.firsts(block).flat_map(places).take(MOST_LOOKED_AT);
        places.filter(|place| *place < self.front && self.is_to_be_fetched(*place)).min()
    }

    fn is_to_be_fetched(&self, (ordinal, index): Place) -> bool {
        self.hints.get(&ordinal).is_some_and(|hinted| hinted.todo.contains(&index))
    }

    /// A block was read that was not fetched in time; those that are passed by that.
    pub(crate) fn read_elsewhere(&mut self, place: Place) -> Vec<(Place, Block<O>)> {
        self.note_right();
        self.note_fetched(place);
        if place < self.front {
            self.note_late();
            return Vec::new();
        }
        self.advance(place)
    }

    /// Several share the reading.
    fn note_late(&mut self) {
        let most = self.most_behind.max(self.first_behind);
        self.may_be_behind = (self.may_be_behind + LATE_GROWTH).min(most);
    }

    fn note_right(&mut self) {
        self.accuracy.note(1.0);
        self.window_steps = (self.window_steps + GROWTH).min(self.most_window_steps);
    }

    /// Whoever reads is at a place; what is held before it beyond what may be is passed.
    fn advance(&mut self, place: Place) -> Vec<(Place, Block<O>)> {
        self.behind += self.held.range(self.front..place).count();
        self.front = (place.0, place.1 + 1);
        let over = self.behind.saturating_sub(self.may_be_behind);
        let passed: Vec<_> = (0..over).filter_map(|_| self.held.pop_first()).collect();
        self.behind -= passed.len();
        let left = self.may_be_behind.saturating_sub(LATE_LOSS * passed.len());
        self.may_be_behind = left.max(self.first_behind);
        self.note_unused(passed.len());
        passed
    }

    /// All accesses before an ordinal are over, so many of so many of which were never read; what was held of them, and
    /// how many blocks that nobody had read here went by.
    pub(crate) fn pass(
        &mut self,
        ordinal: u64,
        skipped: (u64, u64),
    ) -> (Vec<(Place, Block<O>)>, u64) {
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
        for (ordinal, hinted) in &over {
            if let Some(starts) = self.by_object.get_mut(&hinted.access.object) {
                starts.remove(&(hinted.access.first, *ordinal));
                if starts.is_empty() {
                    self.by_object.remove(&hinted.access.object);
                }
            }
        }
        // Which of them were skipped is not said: as large a part of what was held for them as of the accesses.
        let (skipped, of) = skipped;
        let unused =
            (unread.len() as u128 * u128::from(skipped.min(of))).div_ceil(u128::from(of.max(1)));
        self.note_unused(usize::try_from(unused).unwrap_or(usize::MAX));
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
