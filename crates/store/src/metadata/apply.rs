//! Applying changes to the tree: the one function by which both a flush and the replay of the log
//! change it (docs/on-disk-format.md, section 4).

mod partition;
mod sharing;

use std::collections::BTreeMap;
use std::sync::Arc;

use nasd_types::{ObjectId, ObjectName, PartitionId};
use redb::{ReadableTable, WriteTransaction};

use super::record::{
    self, Appended, Appends, Codec, DRIVE_APPENDS, DRIVE_COUNTERS, DRIVE_KEYS, EXTENT_BLOCKS_MAX,
    Extent, ExtentKey, FamilyRecord, GROUP_BLOCKS, LOG_MARK, LOGICAL_BLOCKS_MAX, LogMark,
    ObjectRecord, PartitionRecord, Sums,
};
use super::tables::Tables;
use super::{TreeError, capacity, overlapping};
use crate::free_map::Run;
use crate::log::Change;
use sharing::ByPlace;

/// What an object is after changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settled {
    /// Data blocks that it alone holds.
    pub(crate) blocks_used: u64,
    /// Its family; 0 is none.
    pub(crate) family: ObjectId,
}

/// What changes did besides changing the tree.
#[derive(Clone, Debug, Default)]
pub(crate) struct Effects {
    /// Data blocks that extents name from now on.
    pub(crate) claimed: Vec<Run>,
    /// Data blocks that no extent names any more.
    pub(crate) freed: Vec<Run>,
    /// Contents of data blocks that are not at their places yet.
    pub(crate) inlined: Vec<(Run, Arc<Vec<u8>>)>,
    /// What became of the objects that were changed; `None` is removed.
    pub(crate) objects: BTreeMap<ObjectName, Option<Settled>>,
    /// By how much the blocks that families share have changed.
    pub(crate) shared: BTreeMap<PartitionId, i64>,
    /// Partitions that were copied.
    pub(crate) copied: Vec<CopiedPartition>,
    /// Blocks of which one partition more is charged, or one less that was not the last.
    pub(crate) joined: u64,
    pub(crate) parted: u64,
    /// Room that new records take, and that of removed ones, in the units of `capacity`.
    pub(super) added: u64,
    pub(super) removed: u64,
}

/// A partition that shares the blocks of another one.
#[derive(Clone, Debug)]
pub(crate) struct CopiedPartition {
    pub(crate) target: PartitionId,
    pub(crate) record: PartitionRecord,
}

/// The object whose record is being changed.
struct Current {
    name: ObjectName,
    record: ObjectRecord,
    /// What it was charged for before; `None` while it has no record in the tree.
    charged: Option<u64>,
}

/// Changes a transaction's tables.
pub(super) struct Applier<'t> {
    tables: Tables<'t>,
    data_blocks: u64,
    current: Option<Current>,
    partitions: BTreeMap<PartitionId, PartitionRecord>,
    families: BTreeMap<ObjectName, FamilyRecord>,
    /// To be written at the end, once there is one to remember.
    appends: Option<Appends>,
    /// Kept from one move to the next.
    by_place: Option<ByPlace>,
    /// Whether there are share records, once somebody has looked.
    has_shares: Option<bool>,
    effects: Effects,
}

fn damaged<T>(what: String) -> Result<T, TreeError> {
    Err(TreeError::Damaged(what))
}

/// Applies changes in their order, and notes up to where the log is in the tree. Tells `note` before
/// each how many are applied.
pub(super) fn apply<'c>(
    transaction: &WriteTransaction,
    data_blocks: u64,
    changes: impl IntoIterator<Item = &'c Change>,
    mark: LogMark,
    note: &mut dyn FnMut(usize),
) -> Result<Effects, TreeError> {
    let mut applier = Applier {
        tables: Tables::new(transaction),
        data_blocks,
        current: None,
        partitions: BTreeMap::new(),
        families: BTreeMap::new(),
        appends: None,
        by_place: None,
        has_shares: None,
        effects: Effects::default(),
    };
    for (applied, change) in changes.into_iter().enumerate() {
        note(applied);
        if !matches!(change, Change::Move { .. }) {
            applier.by_place = None;
        }
        applier.change(change)?;
    }
    applier.finish(mark)
}

impl Applier<'_> {
    fn change(&mut self, change: &Change) -> Result<(), TreeError> {
        match change {
            Change::PutObject(name, record) => self.put_object(*name, record),
            Change::RemoveObject(name) => self.remove_object(*name),
            Change::Clear { name, from, to } => {
                self.object(*name)?;
                self.clear(*from, *to)
            }
            Change::Map { name, extent, sums, contents } => {
                self.object(*name)?;
                self.map(extent, sums)?;
                if let Some(contents) = contents {
                    self.effects.inlined.push((extent.run(), contents.clone()));
                }
                Ok(())
            }
            Change::PutSmall(name, bytes) => self.put_small(*name, bytes),
            Change::DropSmall(name) => self.drop_small(*name),
            Change::Clone { source, name, record } => self.clone_object(*source, *name, record),
            Change::Share(share) => self.share_range(share),
            Change::PutPartition(partition, record) => self.put_partition(*partition, record),
            Change::RemovePartition(partition) => self.remove_partition(*partition),
            Change::CopyPartition { source, target } => self.copy_partition(*source, *target),
            Change::PutDriveKeys(keys) => {
                let bytes = record::encode_drive_keys(keys);
                self.tables.drive()?.insert(DRIVE_KEYS, &bytes[..])?;
                Ok(())
            }
            Change::PutCounters(counters) => {
                self.tables.drive()?.insert(DRIVE_COUNTERS, &counters.encode()[..])?;
                Ok(())
            }
            Change::Move { from, to } => self.move_blocks(*from, *to),
            Change::Appended(appended) => self.remember(*appended),
        }
    }

    /// Makes `name` the current object.
    fn object(&mut self, name: ObjectName) -> Result<&mut ObjectRecord, TreeError> {
        if self.current.as_ref().is_none_or(|current| current.name != name) {
            self.settle()?;
            let Some(record) = self.load(name)? else {
                return damaged(format!("a change of object {name}, which does not exist"));
            };
            let charged = Some(record.charge());
            self.current = Some(Current { name, record, charged });
        }
        match &mut self.current {
            Some(current) => Ok(&mut current.record),
            None => damaged(format!("object {name} is gone")),
        }
    }

    fn load(&mut self, name: ObjectName) -> Result<Option<ObjectRecord>, TreeError> {
        let key = record::object_key(name);
        match self.tables.objects()?.get(&key)? {
            Some(guard) => Ok(Some(ObjectRecord::parse(&key, guard.value())?)),
            None => Ok(None),
        }
    }

    /// Writes the current object's record, and there is none any more.
    fn settle(&mut self) -> Result<(), TreeError> {
        let Some(Current { name, record, charged }) = self.current.take() else {
            return Ok(());
        };
        let key = record::object_key(name);
        self.tables.objects()?.insert(&key, &record.encode(&key)[..])?;
        self.recharge(name.partition, charged, record.charge())?;
        let settled = Settled { blocks_used: record.blocks_used, family: record.family };
        self.effects.objects.insert(name, Some(settled));
        Ok(())
    }

    /// An object was charged for so many blocks, or is new, and is charged for another number now.
    fn recharge(
        &mut self,
        partition: PartitionId,
        before: Option<u64>,
        after: u64,
    ) -> Result<(), TreeError> {
        if before == Some(after) {
            return Ok(());
        }
        if before.is_none() {
            self.effects.added += capacity::OBJECT;
        }
        let record = self.partition(partition)?;
        record.objects += u64::from(before.is_none());
        match record.charged_blocks.checked_sub(before.unwrap_or(0)) {
            Some(rest) => record.charged_blocks = rest + after,
            None => return damaged(format!("partition {partition} is charged too little")),
        }
        Ok(())
    }

    fn put_object(&mut self, name: ObjectName, new: &ObjectRecord) -> Result<(), TreeError> {
        let is_current = self.current.as_ref().is_some_and(|current| current.name == name);
        if !is_current {
            self.settle()?;
            let old = self.load(name)?;
            let charged = old.as_ref().map(ObjectRecord::charge);
            let absent = || ObjectRecord {
                blocks_used: 0,
                family: ObjectId(0),
                small: false,
                ..new.clone()
            };
            self.current = Some(Current { name, record: old.unwrap_or_else(absent), charged });
        }
        if let Some(current) = &mut self.current {
            let ObjectRecord { blocks_used, family, small, .. } = current.record;
            current.record = ObjectRecord { blocks_used, family, small, ..new.clone() };
        }
        Ok(())
    }

    /// Removes an object with everything it has. It need not exist.
    fn remove_object(&mut self, name: ObjectName) -> Result<(), TreeError> {
        self.settle()?;
        let Some(record) = self.load(name)? else {
            self.effects.objects.insert(name, None);
            return Ok(());
        };
        let charged = record.charge();
        let family = record.family;
        self.current = Some(Current { name, record, charged: Some(charged) });
        self.clear(0, LOGICAL_BLOCKS_MAX)?;
        self.drop_small(name)?;
        self.current = None;
        if family != ObjectId(0) {
            self.leave_family(name, family)?;
        }
        self.tables.objects()?.remove(&record::object_key(name))?;
        self.effects.removed += capacity::OBJECT;
        let partition = self.partition(name.partition)?;
        let rest =
            partition.objects.checked_sub(1).zip(partition.charged_blocks.checked_sub(charged));
        let Some((objects, charged)) = rest else {
            return damaged(format!("partition {} counts too little", name.partition));
        };
        (partition.objects, partition.charged_blocks) = (objects, charged);
        self.effects.objects.insert(name, None);
        Ok(())
    }

    /// Drops the current object's blocks `[from, to)`.
    fn clear(&mut self, from: u64, to: u64) -> Result<(), TreeError> {
        self.clear_but(from, to, None).map(drop)
    }

    /// The same, but for the record of the extent that begins with block `but`, if there is one and
    /// nothing of it stays: whether there is, for whoever replaces it.
    fn clear_but(&mut self, from: u64, to: u64, but: Option<u64>) -> Result<bool, TreeError> {
        let mut kept = false;
        let Some(name) = self.current.as_ref().map(|current| current.name) else {
            return Ok(kept);
        };
        let found = overlapping(self.tables.extents()?, name, from, to, self.data_blocks)?;
        for old in found {
            let Some(gone) = old.clip(from, to) else {
                continue;
            };
            let left = if gone.is_packed() { None } else { old.clip(old.logical, from) };
            // A left part takes the place of the old record under the same key.
            if left.is_none() && but == Some(old.logical) {
                kept = true;
            } else if left.is_none() {
                self.remove_extent(name, old.logical)?;
            }
            let right = if gone.is_packed() { None } else { old.clip(to, old.end()) };
            for part in [left, right].into_iter().flatten() {
                self.put_extent(name, &part)?;
            }
            self.release(gone.run())?;
        }
        Ok(kept)
    }

    fn remove_extent(&mut self, name: ObjectName, logical: u64) -> Result<(), TreeError> {
        self.tables.extents()?.remove(&record::extent_key(name, logical))?;
        self.effects.removed += capacity::RECORD;
        Ok(())
    }

    fn put_extent(&mut self, name: ObjectName, extent: &Extent) -> Result<(), TreeError> {
        let key = record::extent_key(name, extent.logical);
        if self.tables.extents()?.insert(&key, &extent.encode(&key)[..])?.is_none() {
            self.effects.added += capacity::RECORD;
        }
        Ok(())
    }

    /// Puts an extent of new blocks in place of whatever the current object has there.
    fn map(&mut self, extent: &Extent, sums: &[u32]) -> Result<(), TreeError> {
        let run = extent.run();
        let fits = run.start.checked_add(run.blocks).is_some_and(|end| end <= self.data_blocks);
        if !fits || sums.len() as u64 != run.blocks {
            return damaged("an extent of a change reaches behind the device".to_owned());
        }
        let kept = self.clear_but(extent.logical, extent.end(), Some(extent.logical))?;
        self.put_sums(run, sums)?;
        self.effects.claimed.push(run);
        let Some(current) = &mut self.current else {
            return Ok(());
        };
        current.record.blocks_used += run.blocks;
        let name = current.name;
        let joined = self.joined(name, extent)?;
        if kept && joined.logical != extent.logical {
            self.remove_extent(name, extent.logical)?;
        }
        self.put_extent(name, &joined)
    }

    /// The extent together with the one before it, if it continues that on the device too: so small
    /// appends do not leave a record each.
    fn joined(&mut self, name: ObjectName, extent: &Extent) -> Result<Extent, TreeError> {
        let (first, end) = (record::extent_key(name, 0), record::extent_key(name, extent.logical));
        let before = match self.tables.extents()?.range::<&ExtentKey>(&first..&end)?.next_back() {
            Some(entry) => {
                let (key, value) = entry?;
                Extent::parse(key.value(), value.value(), self.data_blocks)?
            }
            None => return Ok(*extent),
        };
        let continues = extent.codec == Codec::Plain
            && before.codec == Codec::Plain
            && before.end() == extent.logical
            && before.physical + before.blocks == extent.physical
            && before.blocks + extent.blocks <= EXTENT_BLOCKS_MAX;
        Ok(if continues {
            Extent { blocks: before.blocks + extent.blocks, ..before }
        } else {
            *extent
        })
    }

    fn put_sums(&mut self, run: Run, sums: &[u32]) -> Result<(), TreeError> {
        let mut rest = sums;
        for (group, within, blocks) in record::groups(run) {
            let (now, later) = rest.split_at(blocks);
            rest = later;
            let table = self.tables.sums()?;
            let mut found = match table.get(group)? {
                Some(guard) => Sums::parse(group, guard.value())?,
                None => Sums([0; GROUP_BLOCKS as usize]),
            };
            found.0[within..within + blocks].copy_from_slice(now);
            table.insert(group, &found.encode(group)[..])?;
        }
        Ok(())
    }

    fn sums(&mut self, run: Run) -> Result<Vec<u32>, TreeError> {
        let mut found = Vec::with_capacity(run.blocks as usize);
        for (group, within, blocks) in record::groups(run) {
            let Some(guard) = self.tables.sums()?.get(group)? else {
                return damaged(format!("the checksums of blocks {run:?} are missing"));
            };
            found.extend_from_slice(&Sums::parse(group, guard.value())?.0[within..within + blocks]);
        }
        Ok(found)
    }

    fn put_small(&mut self, name: ObjectName, bytes: &[u8]) -> Result<(), TreeError> {
        self.object(name)?.small = true;
        let key = record::object_key(name);
        let old = self.tables.small()?.insert(&key, &record::encode_small(&key, bytes)[..])?;
        if old.is_none() {
            drop(old);
            self.effects.added += capacity::SMALL;
        }
        Ok(())
    }

    fn drop_small(&mut self, name: ObjectName) -> Result<(), TreeError> {
        if !std::mem::take(&mut self.object(name)?.small) {
            return Ok(());
        }
        self.tables.small()?.remove(&record::object_key(name))?;
        self.effects.removed += capacity::SMALL;
        Ok(())
    }

    /// A partition's record, to be written at the end.
    fn partition(&mut self, partition: PartitionId) -> Result<&mut PartitionRecord, TreeError> {
        if !self.partitions.contains_key(&partition) {
            let record = match self.tables.partitions()?.get(partition.0)? {
                Some(guard) => PartitionRecord::parse(partition, guard.value())?,
                None => {
                    return damaged(format!(
                        "a change in partition {partition}, which does not exist"
                    ));
                }
            };
            self.partitions.insert(partition, record);
        }
        match self.partitions.get_mut(&partition) {
            Some(record) => Ok(record),
            None => damaged(format!("partition {partition} is gone")),
        }
    }

    fn put_partition(
        &mut self,
        partition: PartitionId,
        new: &PartitionRecord,
    ) -> Result<(), TreeError> {
        self.settle()?;
        let known = self.partitions.contains_key(&partition)
            || self.tables.partitions()?.get(partition.0)?.is_some();
        let (objects, charged_blocks) = if known {
            let old = self.partition(partition)?;
            (old.objects, old.charged_blocks)
        } else {
            self.effects.added += capacity::RECORD;
            (0, 0)
        };
        self.partitions
            .insert(partition, PartitionRecord { objects, charged_blocks, ..new.clone() });
        Ok(())
    }

    fn remove_partition(&mut self, partition: PartitionId) -> Result<(), TreeError> {
        self.settle()?;
        if self.partition(partition)?.objects > 0 {
            return damaged(format!("partition {partition} is removed and has objects"));
        }
        self.partitions.remove(&partition);
        self.tables.partitions()?.remove(partition.0)?;
        self.effects.removed += capacity::RECORD;
        Ok(())
    }

    fn remember(&mut self, appended: Appended) -> Result<(), TreeError> {
        let mut appends = match self.appends.take() {
            Some(appends) => appends,
            None => match self.tables.drive()?.get(DRIVE_APPENDS)? {
                Some(guard) => Appends::parse(guard.value())?,
                None => Appends::default(),
            },
        };
        appends.push(appended);
        self.appends = Some(appends);
        Ok(())
    }

    fn finish(mut self, mark: LogMark) -> Result<Effects, TreeError> {
        self.settle()?;
        self.settle_families()?;
        for (partition, record) in std::mem::take(&mut self.partitions) {
            self.tables.partitions()?.insert(partition.0, &record.encode(partition)[..])?;
        }
        if let Some(appends) = self.appends.take() {
            self.tables.drive()?.insert(DRIVE_APPENDS, &appends.encode()[..])?;
        }
        self.tables.drive()?.insert(LOG_MARK, &mark.encode()[..])?;
        Ok(self.effects)
    }
}
