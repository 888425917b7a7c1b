//! Copying a partition: all its records under another number, and its blocks held by both.

use std::ops::Bound;

use nasd_types::{ObjectId, PartitionId};
use redb::{ReadableTable, Table};

use super::sharing::Part;
use super::{Applier, CopiedPartition, damaged};
use crate::PartitionKeys;
use crate::free_map::Run;
use crate::metadata::record::{
    self, Extent, FamilyRecord, Holder, ObjectRecord, PartitionRecord, SHARE_BLOCKS_MAX, Share,
};
use crate::metadata::{TreeError, capacity};

/// Rows that are in memory at a time.
const ROWS: usize = 4096;

/// What a row's value becomes, from its key, value and new key.
type CopyRow<'a, const N: usize> =
    &'a mut dyn FnMut(&[u8; N], &[u8], &[u8; N]) -> Result<Vec<u8>, TreeError>;

/// Puts every row of a partition into the same table under another partition's number, as `copy` makes it from key, value and
/// new key. How many.
fn copy_rows<const N: usize>(
    table: &mut Table<'_, &'static [u8; N], &'static [u8]>,
    (source, target): (PartitionId, PartitionId),
    copy: CopyRow<'_, N>,
) -> Result<u64, TreeError> {
    let renamed = |key: &[u8; N], partition: PartitionId| {
        let mut key = *key;
        key[..4].copy_from_slice(&partition.0.to_be_bytes());
        key
    };
    let last = renamed(&[0xff; N], source);
    let mut from = Bound::Included(renamed(&[0; N], source));
    let mut copied = 0;
    loop {
        let mut rows = Vec::with_capacity(ROWS);
        let bounds = (from.as_ref(), Bound::Included(&last));
        for entry in table.range::<&[u8; N]>(bounds)?.take(ROWS) {
            let (key, value) = entry?;
            rows.push((*key.value(), value.value().to_vec()));
        }
        let Some((end, _)) = rows.last() else {
            return Ok(copied);
        };
        from = Bound::Excluded(*end);
        for (key, value) in &rows {
            let new = renamed(key, target);
            table.insert(&new, &copy(key, value, &new)?[..])?;
        }
        copied += rows.len() as u64;
    }
}

/// Runs in order, those that touch or overlap as one, none longer than a share record can tell.
fn joined(mut runs: Vec<Run>) -> Vec<Run> {
    runs.sort_unstable_by_key(|run| run.start);
    let mut found: Vec<Run> = Vec::new();
    for run in runs {
        let (mut start, end) = (run.start, run.end());
        if let Some(last) = found.last_mut()
            && start <= last.end()
        {
            last.blocks = end.max(last.end()).min(last.start + SHARE_BLOCKS_MAX) - last.start;
            start = last.end().max(start);
        }
        // The rest of what is as long as can be.
        while start < end {
            let blocks = (end - start).min(SHARE_BLOCKS_MAX);
            found.push(Run { start, blocks });
            start += blocks;
        }
    }
    found
}

impl Applier<'_> {
    /// Makes a partition, without keys and limit, that has all that another one has and shares all its blocks. Nothing is reserved
    /// for its objects.
    pub(super) fn copy_partition(
        &mut self,
        source: PartitionId,
        target: PartitionId,
    ) -> Result<(), TreeError> {
        self.settle()?;
        self.settle_families()?;
        let settings = self.partition(source)?.settings;
        let exists = self.partitions.contains_key(&target)
            || self.tables.partitions()?.get(target.0)?.is_some();
        if exists || source == target {
            return damaged(format!("partition {target} is to be a copy, and is there"));
        }
        let (objects, charged) = self.copy_objects((source, target))?;
        let shared = self.copy_families((source, target))?;
        let runs = self.copy_extents((source, target))?;
        for run in joined(runs) {
            self.hold_too(run, source, target)?;
        }
        let record = PartitionRecord {
            quota_bytes: u64::MAX,
            keys: PartitionKeys::default(),
            settings,
            removing: false,
            objects,
            charged_blocks: charged + shared,
        };
        self.effects.added += capacity::RECORD;
        self.partitions.insert(target, record.clone());
        self.effects.copied.push(CopiedPartition { target, record });
        Ok(())
    }

    /// Objects and small contents: how many, and the blocks that these are charged for.
    fn copy_objects(&mut self, of: (PartitionId, PartitionId)) -> Result<(u64, u64), TreeError> {
        let mut charged = 0;
        let objects = copy_rows(self.tables.objects()?, of, &mut |key, value, new| {
            let found = ObjectRecord::parse(key, value)?;
            let record = ObjectRecord { blocks_reserved: 0, ..found };
            charged += record.charge();
            Ok(record.encode(new).to_vec())
        })?;
        let small = copy_rows(self.tables.small()?, of, &mut |key, value, new| {
            Ok(record::encode_small(new, record::parse_small(key, value)?))
        })?;
        self.effects.added += objects * capacity::OBJECT + small * capacity::SMALL;
        Ok((objects, charged))
    }

    /// Families and their members: the blocks that they are charged for.
    fn copy_families(&mut self, of: (PartitionId, PartitionId)) -> Result<u64, TreeError> {
        let mut shared = 0;
        let families = copy_rows(self.tables.families()?, of, &mut |key, value, new| {
            let family = FamilyRecord::parse(key, value)?;
            shared += family.shared_blocks;
            Ok(family.encode(new).to_vec())
        })?;
        let members = copy_rows(self.tables.members()?, of, &mut |_, value, _| Ok(value.to_vec()))?;
        self.effects.added += (families + members) * capacity::RECORD;
        Ok(shared)
    }

    /// Extents: what they name.
    fn copy_extents(&mut self, of: (PartitionId, PartitionId)) -> Result<Vec<Run>, TreeError> {
        let data_blocks = self.data_blocks;
        let mut runs: Vec<Run> = Vec::new();
        let extents = copy_rows(self.tables.extents()?, of, &mut |key, value, new| {
            let extent = Extent::parse(key, value, data_blocks)?;
            let run = extent.run();
            match runs.last_mut() {
                Some(last)
                    if last.end() == run.start && last.blocks + run.blocks <= SHARE_BLOCKS_MAX =>
                {
                    last.blocks += run.blocks;
                }
                _ => runs.push(run),
            }
            Ok(extent.encode(new).to_vec())
        })?;
        self.effects.added += extents * capacity::RECORD;
        Ok(runs)
    }

    /// What a partition holds of these blocks another one holds as well.
    fn hold_too(
        &mut self,
        run: Run,
        source: PartitionId,
        target: PartitionId,
    ) -> Result<(), TreeError> {
        for Part { run, share } in self.parts(run)? {
            let Some(share) = share else {
                let alone = |partition| Holder { partition, count: 1, family: ObjectId(0) };
                let one = Share { run, holders: vec![alone(source)] };
                let holders = one.with(alone(target));
                self.put_share(&Share { run, holders })?;
                self.note_holders(1, 2, run.blocks);
                continue;
            };
            let Some(holder) = share.of(source) else {
                return damaged(format!("partition {source} does not hold blocks that it names"));
            };
            let holders = share.with(Holder { partition: target, ..holder });
            self.recount(run, &share, holders)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_become_one_where_they_touch() {
        let run = |start, blocks| Run { start, blocks };
        assert_eq!(
            joined(vec![run(9, 1), run(0, 5), run(3, 2), run(5, 2)]),
            [run(0, 7), run(9, 1)]
        );
        assert_eq!(joined(vec![run(0, 5), run(1, 2)]), [run(0, 5)]);
        let most = SHARE_BLOCKS_MAX;
        assert_eq!(joined(vec![run(0, most), run(most, 2)]), [run(0, most), run(most, 2)]);
        assert_eq!(joined(vec![run(0, most), run(most - 1, 2)]), [run(0, most), run(most, 1)]);
        let long = vec![run(0, 2 * most + 5), run(2 * most + 3, 4)];
        assert_eq!(joined(long), [run(0, most), run(most, most), run(2 * most, 7)]);
        assert_eq!(
            joined(vec![run(1, 3), run(2, most)]),
            [run(1, most), run(most + 1, 1)],
            "what is joined is divided as well"
        );
    }
}
