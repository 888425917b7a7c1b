//! Extents and checksums that were found in the tree, kept for the next look-up: finding a block in
//! memory costs a hundredth of finding it in the tree.
//!
//! Extents are kept by stretches of an object, checksums by groups of data blocks, as the tree has
//! them. Both are bounded, and have two generations: what is found in the old one moves to the young
//! one; when that is full, it becomes the old one, and what was not used meanwhile is dropped.
//!
//! # Nothing that is kept is older than the tree
//!
//! A transaction says what its changes touch ([`Touched`]), and commits between [`Recent::change`] and
//! the drop of what that returns. Before the commit, what is touched is forgotten; until after it,
//! nothing is kept (`epoch` is odd). Who looks something up takes the epoch first, and keeps what he
//! found in the tree only if the epoch is still that one, which is asked with the shard locked:
//! either he keeps it before it is forgotten, or not at all. What is found here therefore is as the
//! tree has it, before the commit and after. The epoch is even again only when nobody finds the
//! tree's old state any more.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nasd_types::ObjectName;

use super::record::{self, Extent, GROUP_BLOCKS, LOGICAL_BLOCKS_MAX};
use crate::free_map::Run;
use crate::log::Change;

/// Separately locked parts.
const SHARDS: usize = 16;

/// Blocks of an object whose extents are kept together: whole frames, so that no compressed extent
/// reaches beyond.
pub(crate) const STRETCH_BLOCKS: u64 = 128;

/// About what a map needs for an entry beside the value.
const ENTRY_BYTES: usize = 96;

/// One part in this many of the memory is for extents, of which there usually are few.
const EXTENTS_SHARE: usize = 4;

/// What a change touches.
#[derive(Clone, Copy, Debug)]
pub(super) enum Touched {
    /// Extents of an object that have one of the blocks `[from, to)`.
    Blocks { name: ObjectName, from: u64, to: u64 },
    /// Checksums of data blocks.
    Sums(Run),
    /// Any.
    All,
}

/// What changes touch.
pub(super) fn touched<'c>(
    changes: impl Iterator<Item = &'c Change>,
) -> impl Iterator<Item = Touched> {
    let whole = |name: ObjectName| Touched::Blocks { name, from: 0, to: LOGICAL_BLOCKS_MAX };
    changes
        .flat_map(move |change| match change {
            Change::RemoveObject(name) | Change::Clone { name, .. } => [Some(whole(*name)), None],
            Change::Clear { name, from, to } => {
                [Some(Touched::Blocks { name: *name, from: *from, to: *to }), None]
            }
            Change::Share(share) => {
                let (name, from, to) = (share.name, share.to, share.end());
                [Some(Touched::Blocks { name, from, to }), None]
            }
            Change::Map { name, extent, .. } => {
                let blocks =
                    Touched::Blocks { name: *name, from: extent.logical, to: extent.end() };
                [Some(blocks), Some(Touched::Sums(extent.run()))]
            }
            // There may have been another partition of that number.
            Change::Move { .. } | Change::CopyPartition { .. } => [Some(Touched::All), None],
            Change::PutObject(..)
            | Change::PutSmall(..)
            | Change::DropSmall(_)
            | Change::PutPartition(..)
            | Change::RemovePartition(_)
            | Change::PutDriveKeys(_)
            | Change::PutCounters(_)
            | Change::Appended(_) => [None, None],
        })
        .flatten()
}

/// A stretch of an object, or a group of data blocks.
trait Place: Copy + Ord {
    /// The same for all stretches of an object.
    fn shard(self) -> usize;
}

impl Place for (ObjectName, u64) {
    fn shard(self) -> usize {
        (self.0.object.0 ^ u64::from(self.0.partition.0)) as usize % SHARDS
    }
}

impl Place for u64 {
    fn shard(self) -> usize {
        self as usize % SHARDS
    }
}

struct Shard<K, V: ?Sized> {
    young: BTreeMap<K, Arc<V>>,
    old: BTreeMap<K, Arc<V>>,
    young_bytes: usize,
}

/// One of the two maps.
struct Kept<K, V: ?Sized> {
    shards: [Mutex<Shard<K, V>>; SHARDS],
    /// What a generation of a shard may have.
    generation_bytes: usize,
}

impl<K: Place, V: ?Sized> Kept<K, V> {
    fn new(bytes: usize) -> Self {
        let shard = || Shard { young: BTreeMap::new(), old: BTreeMap::new(), young_bytes: 0 };
        Kept {
            shards: std::array::from_fn(|_| Mutex::new(shard())),
            generation_bytes: bytes / SHARDS / 2,
        }
    }

    fn shard(&self, place: K) -> MutexGuard<'_, Shard<K, V>> {
        // Each statement leaves the maps whole.
        self.shards[place.shard()].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, place: K) -> Option<Arc<V>> {
        let mut shard = self.shard(place);
        if let Some(value) = shard.young.get(&place) {
            return Some(value.clone());
        }
        let value = shard.old.remove(&place)?;
        shard.put(place, value.clone(), self.generation_bytes);
        Some(value)
    }

    /// Keeps a value if `still`, asked with the shard locked.
    fn keep(&self, place: K, value: Arc<V>, still: impl FnOnce() -> bool) {
        let mut shard = self.shard(place);
        if still() {
            shard.put(place, value, self.generation_bytes);
        }
    }

    /// Forgets the places from `first` to `last`, which are in one shard.
    fn forget(&self, first: K, last: K) {
        let mut shard = self.shard(first);
        let Shard { young, old, young_bytes } = &mut *shard;
        for (_, value) in young.extract_if(first..=last, |_, _| true) {
            *young_bytes -= bytes_of(&*value);
        }
        old.extract_if(first..=last, |_, _| true).for_each(drop);
    }

    fn forget_all(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.old.clear();
            shard.young.clear();
            shard.young_bytes = 0;
        }
    }
}

impl<K: Place, V: ?Sized> Shard<K, V> {
    fn put(&mut self, place: K, value: Arc<V>, most: usize) {
        let bytes = bytes_of(&*value);
        if self.young_bytes + bytes > most {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        if bytes > most {
            return;
        }
        self.young_bytes += bytes;
        if let Some(before) = self.young.insert(place, value) {
            self.young_bytes -= bytes_of(&*before);
        }
    }
}

fn bytes_of<V: ?Sized>(value: &V) -> usize {
    size_of_val(value) + ENTRY_BYTES
}

/// The checksums of a group.
type Group = [u32; GROUP_BLOCKS as usize];

/// See the module.
pub(super) struct Recent {
    extents: Kept<(ObjectName, u64), [Extent]>,
    sums: Kept<u64, Group>,
    epoch: AtomicU64,
}

/// Permission to keep what is found in the tree, if that does not change meanwhile.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket(u64);

/// While this is there, nothing is kept.
#[must_use = "the tree changes while it is there"]
pub(super) struct Changing<'a>(&'a AtomicU64);

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Recent {
    /// For about so many bytes.
    pub(super) fn new(bytes: usize) -> Recent {
        let extents = bytes / EXTENTS_SHARE;
        Recent {
            extents: Kept::new(extents),
            sums: Kept::new(bytes - extents),
            epoch: AtomicU64::new(0),
        }
    }

    /// To be had before the tree is.
    pub(super) fn ticket(&self) -> Ticket {
        Ticket(self.epoch.load(Ordering::SeqCst))
    }

    fn is_good(&self, Ticket(epoch): Ticket) -> bool {
        epoch.is_multiple_of(2) && self.epoch.load(Ordering::SeqCst) == epoch
    }

    /// The extents of a stretch of the object, cut where that begins and ends.
    pub(super) fn extents(&self, name: ObjectName, stretch: u64) -> Option<Arc<[Extent]>> {
        self.extents.find((name, stretch))
    }

    pub(super) fn keep_extents(
        &self,
        (name, stretch): (ObjectName, u64),
        extents: Arc<[Extent]>,
        ticket: Ticket,
    ) {
        self.extents.keep((name, stretch), extents, || self.is_good(ticket));
    }

    /// The checksums of a group.
    pub(super) fn sums(&self, group: u64) -> Option<Arc<Group>> {
        self.sums.find(group)
    }

    pub(super) fn keep_sums(&self, group: u64, sums: Arc<Group>, ticket: Ticket) {
        self.sums.keep(group, sums, || self.is_good(ticket));
    }

    /// To be called before a transaction that touches this commits; what is returned, to be dropped
    /// when nobody finds the state before it any more. There is one transaction at a time.
    pub(super) fn change(&self, touched: &[Touched]) -> Changing<'_> {
        self.epoch.fetch_add(1, Ordering::SeqCst);
        let changing = Changing(&self.epoch);
        for touched in touched {
            match *touched {
                Touched::Blocks { name, from, to } if from < to => {
                    let stretch = |block| (name, block / STRETCH_BLOCKS);
                    self.extents.forget(stretch(from), stretch(to - 1));
                }
                Touched::Blocks { .. } => {}
                Touched::Sums(run) => {
                    record::groups(run).for_each(|(group, ..)| self.sums.forget(group, group));
                }
                Touched::All => {
                    self.extents.forget_all();
                    self.sums.forget_all();
                }
            }
        }
        changing
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.extents.bytes() + self.sums.bytes()
    }
}

#[cfg(test)]
impl<K: Place, V: ?Sized> Kept<K, V> {
    fn bytes(&self) -> usize {
        let of = |shard: &Mutex<Shard<K, V>>| -> usize {
            let shard = shard.lock().unwrap();
            let young: usize = shard.young.values().map(|value| bytes_of(&**value)).sum();
            assert_eq!(young, shard.young_bytes);
            young + shard.old.values().map(|value| bytes_of(&**value)).sum::<usize>()
        };
        self.shards.iter().map(of).sum()
    }
}

#[cfg(test)]
mod tests {
    use nasd_types::{ObjectId, PartitionId};

    use super::*;
    use crate::metadata::record::Codec;

    fn name(object: u64) -> ObjectName {
        ObjectName { partition: PartitionId(1), object: ObjectId(object) }
    }

    fn extents(logical: u64) -> Arc<[Extent]> {
        [Extent { logical, blocks: 1, physical: 7, codec: Codec::Plain }].into()
    }

    fn keep(recent: &Recent, object: u64, stretch: u64) {
        recent.keep_extents((name(object), stretch), extents(stretch), recent.ticket());
    }

    #[test]
    fn what_is_touched_is_forgotten_and_nothing_else() {
        let recent = Recent::new(1 << 20);
        for stretch in 0..5 {
            keep(&recent, 1, stretch);
            // In the same shard.
            keep(&recent, 17, stretch);
        }
        recent.keep_sums(3, Arc::new([3; 128]), recent.ticket());
        recent.keep_sums(4, Arc::new([4; 128]), recent.ticket());
        let blocks = Touched::Blocks { name: name(1), from: 2 * STRETCH_BLOCKS - 1, to: 257 };
        let sums = Touched::Sums(Run { start: 3 * GROUP_BLOCKS + 127, blocks: 1 });
        drop(recent.change(&[blocks, sums]));
        let left: Vec<u64> = (0..5).filter(|at| recent.extents(name(1), *at).is_some()).collect();
        assert_eq!(left, [0, 3, 4]);
        assert!((0..5).all(|stretch| recent.extents(name(17), stretch).is_some()));
        assert!(recent.sums(3).is_none() && recent.sums(4).is_some());
        drop(recent.change(&[Touched::All]));
        assert_eq!(recent.bytes(), 0);
    }

    #[test]
    fn what_was_found_before_a_change_or_while_it_went_on_is_not_kept() {
        let recent = Recent::new(1 << 20);
        let before = recent.ticket();
        let changing = recent.change(&[]);
        let meanwhile = recent.ticket();
        for ticket in [before, meanwhile] {
            recent.keep_extents((name(1), 0), extents(0), ticket);
            recent.keep_sums(0, Arc::new([0; 128]), ticket);
        }
        drop(changing);
        for ticket in [before, meanwhile] {
            recent.keep_extents((name(1), 0), extents(0), ticket);
        }
        assert_eq!(recent.bytes(), 0);
        recent.keep_extents((name(1), 0), extents(0), recent.ticket());
        assert!(recent.extents(name(1), 0).is_some());
    }

    #[test]
    fn memory_is_bounded_and_what_is_used_stays() {
        let recent = Recent::new(256 << 10);
        keep(&recent, 1, 0);
        for number in 0..10_000 {
            keep(&recent, number % 50, number);
            recent.keep_sums(number, Arc::new([0; 128]), recent.ticket());
            assert!(recent.extents(name(1), 0).is_some(), "lost after {number}");
        }
        assert!(recent.bytes() <= 256 << 10, "{}", recent.bytes());
        assert!(recent.bytes() >= 64 << 10, "{}", recent.bytes());
        // More than a generation has room for.
        let many: Arc<[Extent]> = vec![extents(0)[0]; 10_000].into();
        recent.keep_extents((name(1), 0), many, recent.ticket());
        assert!(recent.bytes() <= 256 << 10, "{}", recent.bytes());
    }
}
