//! Which blocks are held, and by whose hints: a block that several want is fetched and kept once.

use std::collections::BTreeMap;

use crate::StreamName;
use crate::stream::{Block, Place};

/// Who wants a block.
pub(crate) type User = (StreamName, Place);

/// A block that is held: that somebody wants, or that was asked for and has not come.
#[derive(Debug)]
struct Held {
    /// When it was asked for, until it has come.
    asked: Option<u64>,
    users: Vec<User>,
}

/// What becomes of a block that one wants no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// Others want it.
    Wanted,
    /// Nobody does, and it has not come.
    UnderWay,
    /// Nobody does.
    Free,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Holdings<O> {
    blocks: BTreeMap<Block<O>, Held>,
    under_way: usize,
}

impl<O: Copy + Ord> Holdings<O> {
    pub(crate) fn new() -> Holdings<O> {
        Holdings { blocks: BTreeMap::new(), under_way: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// All of them.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = Block<O>> {
        self.blocks.keys().copied()
    }

    /// Blocks that were asked for and have not come.
    pub(crate) fn under_way(&self) -> usize {
        self.under_way
    }

    pub(crate) fn is_under_way(&self, block: Block<O>) -> bool {
        self.blocks.get(&block).is_some_and(|held| held.asked.is_some())
    }

    pub(crate) fn has(&self, block: Block<O>) -> bool {
        self.blocks.contains_key(&block)
    }

    /// One more wants a block; whether it has to be fetched.
    pub(crate) fn add(&mut self, block: Block<O>, user: User, now: u64) -> bool {
        let mut is_new = false;
        let held = self.blocks.entry(block).or_insert_with(|| {
            is_new = true;
            Held { asked: Some(now), users: Vec::new() }
        });
        held.users.push(user);
        self.under_way += usize::from(is_new);
        is_new
    }

    /// A block has come, or will not; how long it took, and whether nobody wants it any more.
    pub(crate) fn came(&mut self, block: Block<O>, now: u64) -> Option<(u64, bool)> {
        let held = self.blocks.get_mut(&block)?;
        let asked = held.asked.take()?;
        self.under_way -= 1;
        let is_unwanted = held.users.is_empty();
        if is_unwanted {
            self.blocks.remove(&block);
        }
        Some((now.saturating_sub(asked), is_unwanted))
    }

    /// Of those who want a block, the one whose turn is first.
    pub(crate) fn first_user(&self, block: Block<O>) -> Option<User> {
        let users = &self.blocks.get(&block)?.users;
        users.iter().min_by_key(|(stream, place)| (*place, *stream)).copied()
    }

    /// One wants a block no more. What is under way is held until it has come, whoever wants it.
    pub(crate) fn remove(&mut self, block: Block<O>, user: User) -> Left {
        let Some(held) = self.blocks.get_mut(&block) else { return Left::Wanted };
        held.users.retain(|known| *known != user);
        match (held.users.is_empty(), held.asked) {
            (false, _) => Left::Wanted,
            (true, Some(_)) => Left::UnderWay,
            (true, None) => {
                self.blocks.remove(&block);
                Left::Free
            }
        }
    }
}
