//! Blocks that several objects share: clones, families, and letting go of blocks. And moving blocks,
//! which concerns all who share them.

use std::collections::BTreeMap;

use nasd_types::limits::BLOCK_BYTES;
use nasd_types::{ObjectId, ObjectName, PartitionId};
use redb::{ReadableTable, ReadableTableMetadata};

use super::{Applier, Current, damaged};
use crate::free_map::Run;
use crate::log::change;
use crate::metadata::record::{
    self, EXTENT_BLOCKS_MAX, Extent, ExtentKey, FamilyRecord, Holder, LOGICAL_BLOCKS_MAX,
    ObjectRecord, Share,
};
use crate::metadata::{TreeError, capacity};

/// Extents by the data blocks that they name, from one block on: so that many moves in a row, as a
/// drive makes that shrinks, look at all extents once.
pub(super) struct ByPlace {
    /// Those that end in front of this block are not here.
    from: u64,
    /// By first data block, object, and block of the object.
    extents: BTreeMap<(u64, ObjectName, u64), Extent>,
}

impl ByPlace {
    fn insert(&mut self, name: ObjectName, extent: Extent) {
        if extent.run().end() > self.from {
            self.extents.insert((extent.physical, name, extent.logical), extent);
        }
    }

    /// Takes out those that name one of these blocks.
    fn take(&mut self, run: Run) -> Vec<(ObjectName, Extent)> {
        let none = ObjectName { partition: PartitionId(0), object: ObjectId(0) };
        let first = (run.start.saturating_sub(EXTENT_BLOCKS_MAX), none, 0);
        let found: Vec<_> = self
            .extents
            .range(first..(run.end(), none, 0))
            .filter(|(_, extent)| extent.run().end() > run.start)
            .map(|(key, extent)| (*key, *extent))
            .collect();
        for (key, _) in &found {
            self.extents.remove(key);
        }
        found.into_iter().map(|((_, name, _), extent)| (name, extent)).collect()
    }
}

/// A part of a run of data blocks, and the share record that it lies in, if it does.
pub(super) struct Part {
    pub(super) run: Run,
    pub(super) share: Option<Share>,
}

/// What of `[from, to)` is a run, if anything is.
fn run_between(from: u64, to: u64) -> Option<Run> {
    (from < to).then(|| Run { start: from, blocks: to - from })
}

impl Applier<'_> {
    /// Cuts a run where share records begin and end.
    pub(super) fn parts(&mut self, run: Run) -> Result<Vec<Part>, TreeError> {
        let data_blocks = self.data_blocks;
        let shares = self.tables.shares()?;
        let mut found = Vec::new();
        if let Some(entry) = shares.range(..run.start)?.next_back() {
            let (key, value) = entry?;
            found.push(Share::parse(key.value(), value.value(), data_blocks)?);
        }
        for entry in shares.range(run.start..run.end())? {
            let (key, value) = entry?;
            found.push(Share::parse(key.value(), value.value(), data_blocks)?);
        }
        let mut parts = Vec::new();
        let mut at = run.start;
        for share in found {
            let (from, to) = (share.run.start.max(at), share.run.end().min(run.end()));
            if from >= to {
                continue;
            }
            parts.extend(run_between(at, from).map(|run| Part { run, share: None }));
            parts.extend(run_between(from, to).map(|run| Part { run, share: Some(share.clone()) }));
            at = to;
        }
        parts.extend(run_between(at, run.end()).map(|run| Part { run, share: None }));
        Ok(parts)
    }

    /// Whether there is any share record.
    fn has_shares(&mut self) -> Result<bool, TreeError> {
        match self.has_shares {
            Some(known) => Ok(known),
            None => {
                let found = !self.tables.shares()?.is_empty()?;
                Ok(*self.has_shares.insert(found))
            }
        }
    }

    pub(super) fn put_share(&mut self, share: &Share) -> Result<(), TreeError> {
        if share.run.blocks > record::SHARE_BLOCKS_MAX {
            return damaged(format!("{} blocks are to have one share record", share.run.blocks));
        }
        let bytes = share.encode();
        let old = self.tables.shares()?.insert(share.run.start, &bytes[..])?;
        let before = old.as_ref().map(|old| old.value().len());
        drop(old);
        // Further holders take room, too; that of a record that gets shorter is taken for granted.
        let grown = bytes.len().saturating_sub(before.unwrap_or(0)).div_ceil(record::SHARE_UNIT);
        self.effects.added += capacity::RECORD * grown as u64;
        self.has_shares = Some(true);
        Ok(())
    }

    /// Gives `part` of a share record other holders, and leaves the rest of it as it was.
    pub(super) fn recount(
        &mut self,
        part: Run,
        old: &Share,
        holders: Vec<Holder>,
    ) -> Result<(), TreeError> {
        let before = run_between(old.run.start, part.start);
        let behind = run_between(part.end(), old.run.end());
        let is_needed = Share::is_needed(&holders);
        if before.is_none() && !is_needed {
            self.tables.shares()?.remove(old.run.start)?;
            self.effects.removed += capacity::RECORD;
        }
        for run in [before, behind].into_iter().flatten() {
            self.put_share(&Share { run, holders: old.holders.clone() })?;
        }
        self.note_holders(old.holders.len(), holders.len(), part.blocks);
        if is_needed {
            self.put_share(&Share { run: part, holders })?;
        }
        Ok(())
    }

    /// So many partitions are charged for blocks, and another number was.
    pub(super) fn note_holders(&mut self, before: usize, after: usize, blocks: u64) {
        let twice = |holders: usize| holders.saturating_sub(1) as u64 * blocks;
        let (before, after) = (twice(before), twice(after));
        self.effects.joined += after.saturating_sub(before);
        self.effects.parted += before.saturating_sub(after);
    }

    /// The current object names these data blocks no more.
    pub(super) fn release(&mut self, run: Run) -> Result<(), TreeError> {
        let Some((name, family)) = self.current.as_ref().map(|c| (c.name, c.record.family)) else {
            return Ok(());
        };
        let parts = match family != ObjectId(0) || self.has_shares()? {
            true => self.parts(run)?,
            false => vec![Part { run, share: None }],
        };
        let mut alone = 0;
        for Part { run, share } in parts {
            let Some(share) = share else {
                alone += run.blocks;
                self.effects.freed.push(run);
                continue;
            };
            let Some(holder) = share.of(name.partition) else {
                return damaged(format!(
                    "object {name} has blocks that its partition does not hold"
                ));
            };
            let left = share.with(Holder { count: holder.count - 1, ..holder });
            let is_free = left.is_empty();
            self.recount(run, &share, left)?;
            if holder.family == ObjectId(0) {
                alone += run.blocks;
            } else if holder.count == 1 {
                let of = ObjectName { object: holder.family, ..name };
                self.count_shared(of, run.blocks, false)?;
            }
            if is_free {
                self.effects.freed.push(run);
            }
        }
        let Some(current) = &mut self.current else {
            return Ok(());
        };
        match current.record.blocks_used.checked_sub(alone) {
            Some(rest) => current.record.blocks_used = rest,
            None => return damaged(format!("object {name} has more blocks than it should")),
        }
        Ok(())
    }

    /// A family's record, to be written at the end.
    fn family(&mut self, name: ObjectName) -> Result<&mut FamilyRecord, TreeError> {
        if !self.families.contains_key(&name) {
            let key = record::object_key(name);
            let record = match self.tables.families()?.get(&key)? {
                Some(guard) => FamilyRecord::parse(&key, guard.value())?,
                None => return damaged(format!("the family {name} is missing")),
            };
            self.families.insert(name, record);
        }
        match self.families.get_mut(&name) {
            Some(record) => Ok(record),
            None => damaged(format!("the family {name} is gone")),
        }
    }

    /// Blocks are, or are no more, shared within a family; its partition is charged for them.
    fn count_shared(
        &mut self,
        family: ObjectName,
        blocks: u64,
        more: bool,
    ) -> Result<(), TreeError> {
        let change = |count: u64| {
            if more { count.checked_add(blocks) } else { count.checked_sub(blocks) }
        };
        let record = self.family(family)?;
        let Some(shared) = change(record.shared_blocks) else {
            return damaged(format!("the family {family} counts too little"));
        };
        record.shared_blocks = shared;
        let partition = self.partition(family.partition)?;
        let Some(charged) = change(partition.charged_blocks) else {
            return damaged(format!("partition {} is charged too little", family.partition));
        };
        partition.charged_blocks = charged;
        let delta = if more { blocks as i64 } else { -(blocks as i64) };
        *self.effects.shared.entry(family.partition).or_default() += delta;
        Ok(())
    }

    fn join_family(&mut self, name: ObjectName, family: ObjectId) -> Result<(), TreeError> {
        let of = ObjectName { object: family, ..name };
        self.family(of)?.members += 1;
        self.tables.members()?.insert(&record::extent_key(of, name.object.0), &[][..])?;
        self.effects.added += capacity::RECORD;
        Ok(())
    }

    /// A removed object is no member any more.
    pub(super) fn leave_family(
        &mut self,
        name: ObjectName,
        family: ObjectId,
    ) -> Result<(), TreeError> {
        let of = ObjectName { object: family, ..name };
        let record = self.family(of)?;
        match record.members.checked_sub(1) {
            Some(members) => record.members = members,
            None => return damaged(format!("the family {of} counts too little")),
        }
        self.tables.members()?.remove(&record::extent_key(of, name.object.0))?;
        self.effects.removed += capacity::RECORD;
        Ok(())
    }

    /// Writes the families' records; those without members go.
    pub(super) fn settle_families(&mut self) -> Result<(), TreeError> {
        for (name, family) in std::mem::take(&mut self.families) {
            let key = record::object_key(name);
            if family.members > 0 {
                self.tables.families()?.insert(&key, &family.encode(&key)[..])?;
            } else if family.shared_blocks > 0 {
                return damaged(format!("the family {name} has blocks and no members"));
            } else {
                self.tables.families()?.remove(&key)?;
                self.effects.removed += capacity::RECORD;
            }
        }
        Ok(())
    }

    /// Makes an object that shares everything that the source has.
    pub(super) fn clone_object(
        &mut self,
        source: ObjectId,
        name: ObjectName,
        new: &ObjectRecord,
    ) -> Result<(), TreeError> {
        let from = ObjectName { object: source, ..name };
        let (small, mut family) = {
            let record = self.object(from)?;
            (record.small, record.family)
        };
        let key = record::object_key(from);
        let contents = match small {
            true => match self.tables.small()?.get(&key)? {
                Some(guard) => Some(record::parse_small(&key, guard.value())?.to_vec()),
                None => return damaged(format!("the small contents of object {from} are missing")),
            },
            false => None,
        };
        let data_blocks = self.data_blocks;
        let extents =
            super::overlapping(self.tables.extents()?, from, 0, LOGICAL_BLOCKS_MAX, data_blocks)?;
        if !extents.is_empty() && family == ObjectId(0) {
            family = source;
            let of = ObjectName { object: family, ..name };
            self.families.insert(of, FamilyRecord::default());
            self.effects.added += capacity::RECORD;
            self.join_family(from, family)?;
            self.object(from)?.family = family;
        }
        for extent in &extents {
            self.share(from, family, extent.run())?;
        }
        self.settle()?;
        let family = if extents.is_empty() { ObjectId(0) } else { family };
        let record = ObjectRecord { blocks_used: 0, family, small: false, ..new.clone() };
        self.current = Some(Current { name, record, charged: None });
        for extent in &extents {
            self.put_extent(name, extent)?;
        }
        if !extents.is_empty() {
            self.join_family(name, family)?;
        }
        match contents {
            Some(bytes) => self.put_small(name, &bytes),
            None => Ok(()),
        }
    }

    /// Puts blocks of the source in place of what the object has, as holders of both. A hole stays one.
    pub(super) fn share_range(&mut self, share: &change::Share) -> Result<(), TreeError> {
        let (name, from) = (share.name, ObjectName { object: share.source, ..share.name });
        let (first, behind) = (share.from, share.from + share.blocks);
        let record = self.object(name)?;
        let small = record.small;
        record.logical_size = record.logical_size.max(share.end() * BLOCK_BYTES as u64);
        (record.data_modify_time, record.fs_data_modify_time) = (share.time, share.time);
        let joined = record.family;
        self.clear(share.to, share.end())?;
        let data_blocks = self.data_blocks;
        let found = super::overlapping(self.tables.extents()?, from, first, behind, data_blocks)?;
        let extents: Vec<Extent> =
            found.iter().filter_map(|extent| extent.clip(first, behind)).collect();
        let whole = |extent: &Extent| extent.logical >= first && extent.end() <= behind;
        if small || !extents.iter().all(whole) {
            return damaged(format!("blocks of object {from} can't be shared"));
        }
        if extents.is_empty() {
            return Ok(());
        }
        let family = self.common_family(from, name, joined)?;
        for extent in &extents {
            self.share(from, family, extent.run())?;
        }
        self.object(name)?.family = family;
        for extent in extents {
            let logical = share.to + (extent.logical - first);
            self.put_extent(name, &Extent { logical, ..extent })?;
        }
        Ok(())
    }

    /// The family of two objects, of which the second is in family `joined`; whoever has none joins
    /// the other's.
    fn common_family(
        &mut self,
        source: ObjectName,
        target: ObjectName,
        joined: ObjectId,
    ) -> Result<ObjectId, TreeError> {
        let of_source = self.object(source)?.family;
        let family = match (of_source, joined) {
            (ObjectId(0), ObjectId(0)) => {
                let of = source;
                self.families.insert(of, FamilyRecord::default());
                self.effects.added += capacity::RECORD;
                source.object
            }
            (ObjectId(0), family) | (family, ObjectId(0)) => family,
            (one, other) if one == other => one,
            _ => return damaged(format!("objects {source} and {target} are of two families")),
        };
        if of_source == ObjectId(0) {
            self.join_family(source, family)?;
            self.object(source)?.family = family;
        }
        if joined == ObjectId(0) {
            self.join_family(target, family)?;
        }
        Ok(family)
    }

    /// One more extent names a run of the current object's blocks.
    fn share(&mut self, from: ObjectName, family: ObjectId, run: Run) -> Result<(), TreeError> {
        let partition = from.partition;
        for Part { run, share } in self.parts(run)? {
            match share {
                Some(share) => {
                    let Some(holder) = share.of(partition) else {
                        return damaged(format!("object {from} has blocks of another partition"));
                    };
                    let Some(count) = holder.count.checked_add(1) else {
                        return damaged("blocks are shared too often".to_owned());
                    };
                    self.recount(run, &share, share.with(Holder { partition, count, family }))?;
                    if holder.family != ObjectId(0) {
                        continue;
                    }
                }
                None => {
                    let holders = vec![Holder { partition, count: 2, family }];
                    self.put_share(&Share { run, holders })?;
                }
            }
            // The family is charged for what the object alone had.
            self.count_shared(ObjectName { object: family, ..from }, run.blocks, true)?;
            let record = self.object(from)?;
            let Some(rest) = record.blocks_used.checked_sub(run.blocks) else {
                return damaged(format!("object {from} has more blocks than it should"));
            };
            record.blocks_used = rest;
        }
        Ok(())
    }

    /// Lets every extent that names blocks of `from` name those of `to` on.
    pub(super) fn move_blocks(&mut self, from: Run, to: u64) -> Result<(), TreeError> {
        self.settle()?;
        let fits =
            |start: u64| start.checked_add(from.blocks).is_some_and(|end| end <= self.data_blocks);
        if from.blocks == 0 || !fits(from.start) || !fits(to) {
            return damaged("a move of blocks that are not there".to_owned());
        }
        let sums = self.sums(from)?;
        self.put_sums(Run { start: to, blocks: from.blocks }, &sums)?;
        for (name, extent) in self.naming(from)? {
            self.move_extent(name, extent, from, to)?;
        }
        for Part { run, share } in self.parts(from)? {
            if let Some(share) = share {
                self.recount(run, &share, Vec::new())?;
                let run = Run { start: to + (run.start - from.start), blocks: run.blocks };
                self.note_holders(0, share.holders.len(), run.blocks);
                self.put_share(&Share { run, ..share })?;
            }
        }
        self.effects.claimed.push(Run { start: to, blocks: from.blocks });
        self.effects.freed.push(from);
        Ok(())
    }

    /// Every extent that names one of these blocks. Whatever becomes of them is for the caller to put
    /// back.
    fn naming(&mut self, run: Run) -> Result<Vec<(ObjectName, Extent)>, TreeError> {
        if let Some(known) = self.by_place.as_mut().filter(|known| known.from <= run.start) {
            return Ok(known.take(run));
        }
        let data_blocks = self.data_blocks;
        let mut known = ByPlace { from: run.start, extents: BTreeMap::new() };
        for entry in self.tables.extents()?.iter()? {
            let (key, value) = entry?;
            let key: &ExtentKey = key.value();
            let extent = Extent::parse(key, value.value(), data_blocks)?;
            known.insert(record::parse_extent_key(key).0, extent);
        }
        let found = known.take(run);
        self.by_place = Some(known);
        Ok(found)
    }

    fn put_moved(&mut self, name: ObjectName, extent: &Extent) -> Result<(), TreeError> {
        if let Some(known) = &mut self.by_place {
            known.insert(name, *extent);
        }
        self.put_extent(name, extent)
    }

    fn move_extent(
        &mut self,
        name: ObjectName,
        extent: Extent,
        from: Run,
        to: u64,
    ) -> Result<(), TreeError> {
        let of = extent.run();
        if extent.is_packed() {
            if of.start < from.start || of.end() > from.end() {
                return damaged(format!("a move cuts a compressed extent of object {name}"));
            }
            let physical = to + (of.start - from.start);
            return self.put_moved(name, &Extent { physical, ..extent });
        }
        let (start, end) = (of.start.max(from.start), of.end().min(from.end()));
        let logical = extent.logical + (start - of.start);
        let behind = extent.logical + (end - of.start);
        let parts = [
            extent.clip(extent.logical, logical),
            extent
                .clip(logical, behind)
                .map(|moved| Extent { physical: to + (start - from.start), ..moved }),
            extent.clip(behind, extent.end()),
        ];
        parts.into_iter().flatten().try_for_each(|part| self.put_moved(name, &part))
    }
}
