//! The free map: which data blocks are free, and which of them a new run gets. Pure: no I/O.
//!
//! Free blocks are kept as maximal runs, by place and by size. The map is not stored: it is
//! rebuilt when the store opens, from the extents, which are all that is not free.
//!
//! Strategy, in this order:
//!
//! 1. *Where the caller hints.* If the hinted block begins a free run or lies within one, the new
//!    run starts there, whether or not it is long enough: a file that grows stays in one piece.
//! 2. *Next fit for large requests.* From where the last large request ended, the first run that
//!    is long enough, if one of the next few is. Streams lie one after the other, and short runs
//!    are left to small requests.
//! 3. *Best fit* otherwise: the shortest run that is long enough.
//! 4. When no run is long enough, the longest there is, and again for the rest.
//!
//! Lists of small objects stay together: behind a member a *room* is kept for those to come. Others
//! are placed in a room only when little else is left. A member goes
//!
//! 1. right behind the one before it;
//! 2. else to a new room, the closest of a few;
//! 3. else into the next hole that is not far; else as any other request.
//!
//! Rooms are a wish, forgotten when the store closes, or when there are newer ones.
//!
//! A drive that shrinks sets a limit: nothing behind it is free any more, whoever lets go of it.
//!
//! Excluded: defragmentation, and any promise about how many pieces a request is cut into.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Requests of at least this many blocks (256 KiB) are placed by next fit.
const LARGE_BLOCKS: u64 = 64;

/// Runs that next fit looks at before it gives way to best fit.
const NEXT_FIT_STEPS: usize = 32;

/// Blocks of a room (1 MiB).
const ROOM_BLOCKS: u64 = 256;

/// Rooms that are remembered.
const ROOMS_MAX: usize = 32;

/// Free runs that are looked at to find one outside of the rooms, or the closest.
const CHOICES: usize = 16;

/// How far from its list a hole may be (4 MiB): an arm gets there without a long seek.
const NEAR_BLOCKS: u64 = 1024;

/// Data blocks that lie one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Run {
    /// The first.
    pub(crate) start: u64,
    /// How many; never zero.
    pub(crate) blocks: u64,
}

impl Run {
    /// The block behind the last.
    pub(crate) fn end(&self) -> u64 {
        self.start + self.blocks
    }
}

/// Which data blocks are free.
#[derive(Debug)]
pub(crate) struct FreeMap {
    total: u64,
    /// Length of each free run by its first block. No two runs touch.
    by_start: BTreeMap<u64, u64>,
    /// The same runs as (length, first block).
    by_length: BTreeSet<(u64, u64)>,
    free: u64,
    cursor: u64,
    /// Whether there are blocks behind `total` that must not be used.
    behind: bool,
    /// Kept for lists of small objects, the oldest first. They may overlap, and what is in them need
    /// not be free.
    rooms: VecDeque<Run>,
}

impl FreeMap {
    /// All of `total` blocks free.
    #[cfg(test)]
    pub(crate) fn new(total: u64) -> FreeMap {
        let mut map = FreeMap {
            total,
            by_start: BTreeMap::new(),
            by_length: BTreeSet::new(),
            free: 0,
            cursor: 0,
            behind: false,
            rooms: VecDeque::new(),
        };
        if total > 0 {
            map.insert(Run { start: 0, blocks: total });
            map.free = total;
        }
        map
    }

    /// All of `total` blocks free but `used`, which is in order and does not overlap.
    pub(crate) fn without(total: u64, used: impl Iterator<Item = Run>) -> FreeMap {
        let mut free = Vec::new();
        let mut at = 0;
        for run in used.chain([Run { start: total, blocks: 0 }]) {
            if at < run.start {
                free.push((at, run.start - at));
            }
            at = run.end();
        }
        FreeMap {
            total,
            free: free.iter().map(|(_, blocks)| blocks).sum(),
            by_length: free.iter().map(|&(start, blocks)| (blocks, start)).collect(),
            by_start: free.into_iter().collect(),
            cursor: 0,
            behind: false,
            rooms: VecDeque::new(),
        }
    }

    /// How many blocks are free.
    pub(crate) fn free_blocks(&self) -> u64 {
        self.free
    }

    fn insert(&mut self, run: Run) {
        self.by_start.insert(run.start, run.blocks);
        self.by_length.insert((run.blocks, run.start));
    }

    fn remove(&mut self, run: Run) {
        self.by_start.remove(&run.start);
        self.by_length.remove(&(run.blocks, run.start));
    }

    /// The free run that `block` lies in.
    fn run_at(&self, block: u64) -> Option<Run> {
        let (&start, &blocks) = self.by_start.range(..=block).next_back()?;
        let run = Run { start, blocks };
        (block < run.end()).then_some(run)
    }

    /// Takes `taken`, which lies within the free run `run`.
    fn carve(&mut self, run: Run, taken: Run) {
        self.remove(run);
        if run.start < taken.start {
            self.insert(Run { start: run.start, blocks: taken.start - run.start });
        }
        if taken.end() < run.end() {
            self.insert(Run { start: taken.end(), blocks: run.end() - taken.end() });
        }
        self.free -= taken.blocks;
    }

    /// Marks a run as in use; whether all of it was free and on the device.
    #[cfg(test)]
    pub(crate) fn claim(&mut self, run: Run) -> bool {
        match self.run_at(run.start) {
            Some(free) if run.blocks > 0 && run.end() <= free.end() => {
                self.carve(free, run);
                true
            }
            _ => false,
        }
    }

    /// Marks a run as free; whether none of it was.
    pub(crate) fn release(&mut self, run: Run) -> bool {
        let run = match run.end().min(self.total).checked_sub(run.start) {
            _ if !self.behind => run,
            None | Some(0) => return run.blocks > 0,
            Some(blocks) => Run { blocks, ..run },
        };
        if run.blocks == 0 || run.end() > self.total {
            return false;
        }
        let next =
            self.by_start.range(run.start..).next().map(|(&start, &blocks)| Run { start, blocks });
        let previous = self
            .by_start
            .range(..run.start)
            .next_back()
            .map(|(&start, &blocks)| Run { start, blocks });
        if next.is_some_and(|next| next.start < run.end())
            || previous.is_some_and(|previous| previous.end() > run.start)
        {
            return false;
        }
        let mut merged = run;
        if let Some(previous) = previous.filter(|previous| previous.end() == run.start) {
            self.remove(previous);
            merged = Run { start: previous.start, blocks: previous.blocks + merged.blocks };
        }
        if let Some(next) = next.filter(|next| next.start == run.end()) {
            self.remove(next);
            merged.blocks += next.blocks;
        }
        self.insert(merged);
        self.free += run.blocks;
        true
    }

    /// Nothing from block `end` on is free any more.
    pub(crate) fn limit(&mut self, end: u64) {
        if end >= self.total {
            return;
        }
        if let Some(run) = self.run_at(end) {
            self.carve(run, Run { start: end, blocks: run.end() - end });
        }
        while let Some((&start, &blocks)) = self.by_start.range(end..).next_back() {
            let run = Run { start, blocks };
            self.carve(run, run);
        }
        self.total = end;
        self.behind = true;
        self.cursor = self.cursor.min(end);
    }

    /// Takes `blocks` blocks in one run, the shortest that is long enough, if there is one.
    pub(crate) fn allocate_whole(&mut self, blocks: u64) -> Option<Run> {
        let &(length, start) = self.by_length.range((blocks, 0)..).next()?;
        let taken = Run { start, blocks };
        self.carve(Run { start, blocks: length }, taken);
        Some(taken)
    }

    /// Takes `blocks` blocks in as few runs as the strategy gives, or `None` when there are not
    /// that many.
    pub(crate) fn allocate(&mut self, blocks: u64, hint: Option<u64>) -> Option<Vec<Run>> {
        if blocks > self.free {
            return None;
        }
        let mut left = blocks;
        let mut taken = Vec::new();
        let mut hint = hint;
        while left > 0 {
            let (run, start) = self.choose(left, hint.take())?;
            let piece = Run { start, blocks: left.min(run.end() - start) };
            self.carve(run, piece);
            if blocks >= LARGE_BLOCKS {
                self.cursor = piece.end();
            }
            left -= piece.blocks;
            taken.push(piece);
        }
        Some(taken)
    }

    /// A free run for `blocks` blocks, and where in it to begin.
    fn choose(&self, blocks: u64, hint: Option<u64>) -> Option<(Run, u64)> {
        if let Some(hint) = hint
            && let Some(run) = self.run_at(hint)
        {
            return Some((run, hint));
        }
        if blocks >= LARGE_BLOCKS
            && let Some(run) = self.next_fit(blocks)
        {
            return Some((run, run.start));
        }
        if let Some(found) = self.outside_rooms(blocks) {
            return Some(found);
        }
        let best = self.by_length.range((blocks, 0)..).next();
        let &(length, start) = best.or_else(|| self.by_length.last())?;
        Some((Run { start, blocks: length }, start))
    }

    /// The shortest run that is long enough behind the rooms at its start, and where in it to begin.
    fn outside_rooms(&self, blocks: u64) -> Option<(Run, u64)> {
        let candidates = self.by_length.range((blocks, 0)..).take(CHOICES);
        // The longest, too: where most of the drive is free, only that has much outside of rooms.
        let mut candidates = candidates.chain(self.by_length.last());
        candidates.find_map(|&(length, start)| {
            let run = Run { start, blocks: length };
            let start = self.behind_rooms(start);
            (start + blocks <= run.end()).then_some((run, start))
        })
    }

    /// The first block from `block` on that is in no room.
    fn behind_rooms(&self, block: u64) -> u64 {
        let mut block = block;
        while let Some(room) =
            self.rooms.iter().find(|room| (room.start..room.end()).contains(&block))
        {
            block = room.end();
        }
        block
    }

    /// As `allocate`, for an object of a list, which is in front of block `near` if it is anywhere.
    pub(crate) fn allocate_clustered(
        &mut self,
        blocks: u64,
        near: Option<u64>,
    ) -> Option<Vec<Run>> {
        if blocks >= LARGE_BLOCKS || blocks > self.free {
            return self.allocate(blocks, near);
        }
        let behind = near
            .and_then(|near| self.run_at(near).map(|run| (run, near)))
            .filter(|(run, start)| start + blocks <= run.end());
        let chosen = behind.or_else(|| self.new_room(near)).or_else(|| self.hole(blocks, near?));
        let Some((run, start)) = chosen else {
            return self.allocate(blocks, near);
        };
        let taken = Run { start, blocks };
        self.carve(run, taken);
        self.keep_room(taken, run.end());
        Some(vec![taken])
    }

    /// A free run with place for a whole room, and where that begins.
    fn new_room(&self, near: Option<u64>) -> Option<(Run, u64)> {
        let runs = self.by_length.range((ROOM_BLOCKS, 0)..).take(CHOICES);
        let runs = runs.chain(self.by_length.last());
        let rooms = runs.filter_map(|&(length, start)| {
            let run = Run { start, blocks: length };
            let start = self.behind_rooms(start);
            (start + ROOM_BLOCKS <= run.end()).then_some((run, start))
        });
        rooms.min_by_key(|(_, start)| near.map_or(0, |near| near.abs_diff(*start)))
    }

    /// The next hole behind `near` that is long enough and not far, and where to begin.
    fn hole(&self, blocks: u64, near: u64) -> Option<(Run, u64)> {
        let holes = self.by_start.range(near..near.saturating_add(NEAR_BLOCKS)).take(CHOICES);
        let mut holes = holes.map(|(&start, &blocks)| Run { start, blocks });
        holes.find(|run| run.blocks >= blocks).map(|run| (run, run.start))
    }

    /// Keeps the blocks behind `taken` for its list, up to `end`.
    fn keep_room(&mut self, taken: Run, end: u64) {
        let within = |room: &Run| (room.start..room.end()).contains(&taken.start);
        let old = self.rooms.iter().position(within).and_then(|index| self.rooms.remove(index));
        let end = old.map_or(taken.start + ROOM_BLOCKS, |room| room.end()).min(end);
        if end > taken.end() {
            self.rooms.push_back(Run { start: taken.end(), blocks: end - taken.end() });
        }
        if self.rooms.len() > ROOMS_MAX {
            self.rooms.pop_front();
        }
    }

    fn next_fit(&self, blocks: u64) -> Option<Run> {
        let from_cursor = self.by_start.range(self.cursor..);
        let from_start = self.by_start.range(..self.cursor);
        from_cursor
            .chain(from_start)
            .take(NEXT_FIT_STEPS)
            .map(|(&start, &blocks)| Run { start, blocks })
            .find(|run| run.blocks >= blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(start: u64, blocks: u64) -> Run {
        Run { start, blocks }
    }

    #[test]
    fn a_hint_is_followed_even_into_a_short_run() {
        let mut map = FreeMap::new(100);
        assert!(map.claim(run(0, 10)) && map.claim(run(15, 10)));
        assert_eq!(map.allocate(8, Some(10)), Some(vec![run(10, 5), run(25, 3)]));
        assert_eq!(map.allocate(4, Some(50)), Some(vec![run(50, 4)]));
        // Block 5 is in use: no hint at all, so the shortest run (28 to 50) has it.
        assert_eq!(map.allocate(1, Some(5)), Some(vec![run(28, 1)]));
    }

    #[test]
    fn small_requests_fill_the_shortest_hole() {
        let mut map = FreeMap::new(1000);
        assert!(map.claim(run(0, 1000)));
        for hole in [run(10, 5), run(100, 3), run(200, 50)] {
            assert!(map.release(hole));
        }
        assert_eq!(map.allocate(3, None), Some(vec![run(100, 3)]));
        assert_eq!(map.allocate(4, None), Some(vec![run(10, 4)]));
    }

    #[test]
    fn large_requests_go_on_where_the_last_one_ended() {
        let mut map = FreeMap::new(10_000);
        assert_eq!(map.allocate(100, None), Some(vec![run(0, 100)]));
        assert_eq!(map.allocate(100, None), Some(vec![run(100, 100)]));
        assert!(map.release(run(0, 100)));
        assert_eq!(map.allocate(100, None), Some(vec![run(200, 100)]));
    }

    #[test]
    fn a_request_is_cut_only_when_no_run_is_long_enough() {
        let mut map = FreeMap::new(100);
        assert!(map.claim(run(40, 10)));
        assert_eq!(map.allocate(80, None), Some(vec![run(50, 50), run(0, 30)]));
        assert_eq!(map.allocate(11, None), None);
        assert_eq!(map.free_blocks(), 10);
    }

    #[test]
    fn what_is_not_free_is_not_claimed_and_what_is_free_not_released() {
        let mut map = FreeMap::new(100);
        assert!(!map.claim(run(95, 6)) && !map.claim(run(200, 1)));
        assert!(map.claim(run(50, 10)));
        assert!(!map.claim(run(45, 6)) && !map.claim(run(55, 1)) && !map.claim(run(59, 2)));
        assert!(!map.release(run(49, 2)) && !map.release(run(59, 2)) && !map.release(run(99, 2)));
        assert!(map.release(run(55, 5)));
        assert!(!map.release(run(54, 2)));
        assert!(map.release(run(50, 5)));
        assert_eq!(map.by_start.len(), 1);
    }

    #[test]
    fn two_lists_that_grow_by_turns_stay_together_and_others_keep_out() {
        let mut map = FreeMap::new(100_000);
        let mut ends = [None, None];
        let mut pieces = [0, 0];
        for _ in 0..40 {
            for (end, pieces) in ends.iter_mut().zip(&mut pieces) {
                let taken = map.allocate_clustered(5, *end).unwrap();
                *pieces += u64::from(*end != Some(taken[0].start));
                *end = Some(taken[0].end());
                map.allocate(3, None).unwrap();
            }
        }
        // 200 blocks each: within one room.
        assert_eq!(pieces, [1, 1]);
        // With nothing else left, rooms are used.
        let left = map.free_blocks();
        assert!(map.allocate(left, None).is_some());
    }

    #[test]
    fn behind_the_limit_nothing_is_free() {
        let mut map = FreeMap::new(100);
        for used in [run(50, 10), run(70, 20)] {
            assert!(map.claim(used));
        }
        map.limit(65);
        assert_eq!(map.free_blocks(), 55);
        assert!(map.release(run(70, 20)) && map.release(run(58, 2)) && !map.release(run(63, 4)));
        assert_eq!(map.free_blocks(), 57);
        assert_eq!(map.allocate_whole(7), Some(run(58, 7)));
        assert_eq!(map.allocate_whole(8), Some(run(0, 8)));
        assert_eq!(map.allocate_whole(43), None);
        assert_eq!(map.allocate(43, Some(90)), None);
        assert_eq!(map.allocate(42, Some(90)), Some(vec![run(8, 42)]));
        assert_eq!(map.free_blocks(), 0);
    }

    proptest! {
        #[test]
        fn agrees_with_a_bitmap(operations in prop::collection::vec(
            (0..6u8, 1..120u64, prop::option::of(0..300u64)), 1..200,
        )) {
            let mut map = FreeMap::new(300);
            let mut used = [false; 300];
            let mut held: Vec<Run> = Vec::new();
            for (kind, blocks, hint) in operations {
                if kind > 0 && kind < 4 {
                    let free = used.iter().filter(|used| !**used).count() as u64;
                    let taken = match kind {
                        1 | 2 => map.allocate(blocks, hint),
                        _ => map.allocate_clustered(blocks, hint),
                    };
                    prop_assert_eq!(taken.is_some(), blocks <= free);
                    let taken = taken.unwrap_or_default();
                    if !taken.is_empty() {
                        prop_assert_eq!(taken.iter().map(|run| run.blocks).sum::<u64>(), blocks);
                    }
                    for piece in taken {
                        for block in piece.start..piece.end() {
                            prop_assert!(!std::mem::replace(&mut used[block as usize], true));
                        }
                        held.push(piece);
                    }
                } else if !held.is_empty() {
                    let piece = held.swap_remove(blocks as usize % held.len());
                    prop_assert!(map.release(piece));
                    for block in piece.start..piece.end() {
                        used[block as usize] = false;
                    }
                }
                let free = used.iter().filter(|used| !**used).count() as u64;
                prop_assert_eq!(map.free_blocks(), free);
                prop_assert_eq!(map.by_start.len(), map.by_length.len());
                let mut end = None;
                for (&start, &blocks) in &map.by_start {
                    prop_assert!(blocks > 0 && end.is_none_or(|end| start > end));
                    prop_assert!((start..start + blocks).all(|block| !used[block as usize]));
                    end = Some(start + blocks);
                }
            }
        }
    }
}
