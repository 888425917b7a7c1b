//! Which blocks are held, and by whose hints: a block that several want is fetched and kept once.

use std::collections::BTreeMap;

use crate::StreamId;
use crate::stream::{Block, Place};

/// Who wants a block.
pub(crate) type User = (StreamId, Place);

/// A block that is held.
#[derive(Debug)]
struct Held {
    /// When it was asked for, until it has come.
    asked: Option<u64>,
    users: Vec<User>,
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

    /// Blocks that were asked for and have not come.
    pub(crate) fn under_way(&self) -> usize {
        self.under_way
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

    /// A block has come, or will not; how long it took.
    pub(crate) fn came(&mut self, block: Block<O>, now: u64) -> Option<u64> {
        let asked = self.blocks.get_mut(&block)?.asked.take()?;
        self.under_way -= 1;
        Some(now.saturating_sub(asked))
    }

    /// Of those who want a block, the one whose turn is first.
    pub(crate) fn first_user(&self, block: Block<O>) -> Option<User> {
        let users = &self.blocks.get(&block)?.users;
        users.iter().min_by_key(|(stream, place)| (*place, *stream)).copied()
    }

    /// One wants a block no more; whether nobody does.
    pub(crate) fn remove(&mut self, block: Block<O>, user: User) -> bool {
        let Some(held) = self.blocks.get_mut(&block) else { return false };
        held.users.retain(|known| *known != user);
        if !held.users.is_empty() {
            return false;
        }
        self.under_way -= usize::from(held.asked.is_some());
        self.blocks.remove(&block);
        true
    }
}
