//! What the changes of the log do to the tables.

use std::collections::BTreeMap;

use redb::{Key, ReadableTable, WriteTransaction};

use crate::appends::{APPENDS, Appended, Appends};
use crate::log::{Action, Change, Shared};
use crate::record::{
    EXTENT_MAX, Extent, ExtentKey, Family, GROUP, Holder, OBJECT_BLOCKS_MAX, Object, ObjectKey,
    Partition, Record, Share, Small, Sums, extent_key, held_by, is_shared, object_key,
    split_extent, split_object, with_holder,
};
use crate::tree::{
    DRIVE, EXTENTS, FAMILIES, MEMBERS, OBJECTS, PARTITIONS, SHARES, SMALL, SUMS, TreeError,
};

/// Why a change is not made.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// It does not fit the state.
    Senseless(String),
    /// The tree failed.
    Tree(TreeError),
}

impl<E: Into<TreeError>> From<E> for Trouble {
    fn from(error: E) -> Trouble {
        Trouble::Tree(error.into())
    }
}

fn senseless<T>(reason: impl Into<String>) -> Result<T, Trouble> {
    Err(Trouble::Senseless(reason.into()))
}

type Open<'t, K> = redb::Table<'t, K, &'static [u8]>;

/// Where the contents of blocks are that are in the log alone: data block, byte on the device.
pub(crate) type Homeless = BTreeMap<u64, u64>;

/// The tables that changes change, open for writing.
pub(crate) struct Editor<'t> {
    objects: Open<'t, &'static ObjectKey>,
    small: Open<'t, &'static ObjectKey>,
    extents: Open<'t, &'static ExtentKey>,
    sums: Open<'t, u64>,
    shares: Open<'t, u64>,
    families: Open<'t, &'static ObjectKey>,
    members: Open<'t, &'static ExtentKey>,
    partitions: Open<'t, u32>,
    drive: Open<'t, u32>,
    data_blocks: u64,
}

/// Part of a run of data blocks, with the share record that it lies in.
struct Piece {
    start: u64,
    blocks: u64,
    share: Option<(u64, Share)>,
}

fn get<T: Record, K: Key + 'static>(
    table: &Open<'_, K>,
    key: K::SelfType<'_>,
    bytes: &[u8],
) -> Result<Option<T>, Trouble> {
    match table.get(key)? {
        None => Ok(None),
        Some(value) => match T::decode(bytes, value.value()) {
            Ok((record, _)) => Ok(Some(record)),
            Err(flaw) => senseless(format!("a record that it changes is damaged: {flaw}")),
        },
    }
}

/// A record that is copied, which has to be one.
fn decoded<T: Record>(key: &[u8], value: &[u8]) -> Result<T, Trouble> {
    match T::decode(key, value) {
        Ok((record, _)) => Ok(record),
        Err(flaw) => senseless(format!("a record that it copies is damaged: {flaw}")),
    }
}

/// What a partition holds of shared blocks that it names.
fn own(share: &Share, partition: u32) -> Result<Holder, Trouble> {
    match held_by(&share.holders, partition) {
        Some(holder) => Ok(holder),
        None => senseless(format!("partition p{partition:x} does not hold what it names")),
    }
}

type Rows<const N: usize> = Vec<([u8; N], Vec<u8>)>;

/// The rows of a table from one key to another.
fn rows_between<const N: usize>(
    table: &Open<'_, &'static [u8; N]>,
    first: &[u8; N],
    last: &[u8; N],
) -> Result<Rows<N>, Trouble> {
    let mut rows = Vec::new();
    for row in table.range::<&[u8; N]>(first..=last)? {
        let (key, value) = row?;
        rows.push((*key.value(), value.value().to_vec()));
    }
    Ok(rows)
}

impl<'t> Editor<'t> {
    pub(crate) fn new(
        transaction: &'t WriteTransaction,
        data_blocks: u64,
    ) -> Result<Editor<'t>, TreeError> {
        Ok(Editor {
            objects: transaction.open_table(OBJECTS)?,
            small: transaction.open_table(SMALL)?,
            extents: transaction.open_table(EXTENTS)?,
            sums: transaction.open_table(SUMS)?,
            shares: transaction.open_table(SHARES)?,
            families: transaction.open_table(FAMILIES)?,
            members: transaction.open_table(MEMBERS)?,
            partitions: transaction.open_table(PARTITIONS)?,
            drive: transaction.open_table(DRIVE)?,
            data_blocks,
        })
    }

    /// Makes one change. `entry_at` is where its entry begins on the device.
    pub(crate) fn apply(
        &mut self,
        change: &Change,
        entry_at: u64,
        homeless: &mut Homeless,
    ) -> Result<(), Trouble> {
        let (partition, object) = (change.partition, change.object);
        match &change.action {
            Action::PutObject(record) => self.put_object(partition, object, record),
            Action::RemoveObject => self.remove_object(partition, object),
            Action::Clear { from, to } => self.edit(partition, object, |editor, record| {
                editor.clear(partition, object, record, *from, *to)
            }),
            Action::Map { logical, extent, sums, inline } => {
                self.map(partition, object, *logical, *extent, sums)?;
                for index in 0..u64::from(extent.stored) {
                    let block = extent.physical + index;
                    match inline {
                        Some(at) => homeless.insert(block, entry_at + at + index * 4096),
                        None => homeless.remove(&block),
                    };
                }
                Ok(())
            }
            Action::PutSmall(bytes) => self.put_small(partition, object, bytes),
            Action::DropSmall => self.drop_small(partition, object),
            Action::Clone { source, record } => {
                self.clone_object(partition, *source, object, record)
            }
            Action::PutPartition(record) => self.put_partition(partition, record),
            Action::RemovePartition => self.remove_partition(partition),
            Action::PutDriveKeys(record) => self.put_drive(1, record),
            Action::PutCounters(record) => self.put_drive(2, record),
            Action::Move(one) => self.apply_moves(&[*one], homeless),
            Action::Appended(appended) => self.remember(*appended),
            Action::Share(shared) => self.share(partition, object, shared),
            Action::CopyPartition { source } => self.copy_partition(*source, partition),
        }
    }

    fn object(&self, partition: u32, object: u64) -> Result<Option<Object>, Trouble> {
        let key = object_key(partition, object);
        get(&self.objects, &key, &key)
    }

    fn store_object(
        &mut self,
        partition: u32,
        object: u64,
        record: &Object,
    ) -> Result<(), Trouble> {
        let key = object_key(partition, object);
        self.objects.insert(&key, record.encode(&key).as_slice())?;
        Ok(())
    }

    /// Changes a record that there must be, and its partition's charge with it.
    fn edit(
        &mut self,
        partition: u32,
        object: u64,
        change: impl FnOnce(&mut Self, &mut Object) -> Result<(), Trouble>,
    ) -> Result<(), Trouble> {
        let Some(mut record) = self.object(partition, object)? else {
            return senseless(format!("there is no object p{partition:x}/o{object:x}"));
        };
        let before = record.charge();
        change(self, &mut record)?;
        self.store_object(partition, object, &record)?;
        self.charge(partition, before, record.charge(), 0)
    }

    /// Adds `after - before` to the partition's charge, and `objects` to its objects.
    fn charge(
        &mut self,
        partition: u32,
        before: u64,
        after: u64,
        objects: i64,
    ) -> Result<(), Trouble> {
        if before == after && objects == 0 {
            return Ok(());
        }
        let key = partition.to_be_bytes();
        let Some(mut record) = get::<Partition, _>(&self.partitions, partition, &key)? else {
            // The check that follows names the partition that is not there.
            return Ok(());
        };
        record.set_charged(record.charged().wrapping_add(after).wrapping_sub(before));
        record.set_objects(record.objects().wrapping_add_signed(objects));
        self.partitions.insert(partition, record.encode(&key).as_slice())?;
        Ok(())
    }

    fn put_object(&mut self, partition: u32, object: u64, record: &Object) -> Result<(), Trouble> {
        let mut record = record.clone();
        let present = self.object(partition, object)?;
        record.set_small(present.as_ref().is_some_and(Object::is_small));
        record.set_used(present.as_ref().map_or(0, Object::used));
        record.set_family(present.as_ref().map_or(0, Object::family));
        self.store_object(partition, object, &record)?;
        let before = present.as_ref().map_or(0, Object::charge);
        self.charge(partition, before, record.charge(), i64::from(present.is_none()))
    }

    fn remove_object(&mut self, partition: u32, object: u64) -> Result<(), Trouble> {
        self.edit(partition, object, |editor, record| {
            editor.clear(partition, object, record, 0, OBJECT_BLOCKS_MAX)
        })?;
        let Some(record) = self.object(partition, object)? else { return Ok(()) };
        let key = object_key(partition, object);
        self.small.remove(&key)?;
        self.objects.remove(&key)?;
        self.charge(partition, record.charge(), 0, -1)?;
        if record.family() != 0 {
            self.leave(partition, record.family(), object)?;
        }
        Ok(())
    }

    fn leave(&mut self, partition: u32, family: u64, object: u64) -> Result<(), Trouble> {
        self.members.remove(&extent_key(partition, family, object))?;
        let key = object_key(partition, family);
        let Some(mut record) = get::<Family, _>(&self.families, &key, &key)? else {
            return Ok(());
        };
        record.members = record.members.saturating_sub(1);
        if record.members == 0 {
            self.families.remove(&key)?;
        } else {
            self.families.insert(&key, record.encode(&key).as_slice())?;
        }
        Ok(())
    }

    /// Extents of an object that have a block in `from..to`.
    fn extents_within(
        &self,
        partition: u32,
        object: u64,
        from: u64,
        to: u64,
    ) -> Result<Vec<(u64, Extent)>, Trouble> {
        let first = extent_key(partition, object, from.saturating_sub(u64::from(EXTENT_MAX)));
        let last = extent_key(partition, object, to);
        let mut found = Vec::new();
        for row in self.extents.range::<&ExtentKey>(&first..&last)? {
            let (key, value) = row?;
            let (_, _, logical) = split_extent(key.value());
            let Ok((extent, _)) = Extent::decode(key.value(), value.value()) else {
                return senseless("an extent that it changes is damaged");
            };
            if logical.saturating_add(u64::from(extent.blocks)) > from {
                found.push((logical, extent));
            }
        }
        Ok(found)
    }

    fn put_extent(
        &mut self,
        partition: u32,
        object: u64,
        logical: u64,
        extent: Extent,
    ) -> Result<(), Trouble> {
        let key = extent_key(partition, object, logical);
        self.extents.insert(&key, extent.encode(&key).as_slice())?;
        Ok(())
    }

    /// Drops what an object has in the blocks `from..to`.
    fn clear(
        &mut self,
        partition: u32,
        object: u64,
        record: &mut Object,
        from: u64,
        to: u64,
    ) -> Result<(), Trouble> {
        if from > to || to > OBJECT_BLOCKS_MAX {
            return senseless("a range that no object can have");
        }
        for (logical, extent) in self.extents_within(partition, object, from, to)? {
            self.extents.remove(&extent_key(partition, object, logical))?;
            if extent.is_compressed() {
                self.drop_run(partition, record, extent.physical, u64::from(extent.stored))?;
                continue;
            }
            let end = logical.saturating_add(u64::from(extent.blocks));
            let (cut_from, cut_to) = (from.max(logical), to.min(end));
            if logical < cut_from {
                let head = extent.part(0, cut_from - logical);
                self.put_extent(partition, object, logical, head)?;
            }
            if cut_to < end {
                let tail = extent.part(cut_to - logical, end - cut_to);
                self.put_extent(partition, object, cut_to, tail)?;
            }
            let physical = extent.physical.saturating_add(cut_from - logical);
            self.drop_run(partition, record, physical, cut_to - cut_from)?;
        }
        Ok(())
    }

    /// The parts of a run of data blocks that are in one share record, or in none.
    fn pieces(&self, start: u64, blocks: u64) -> Result<Vec<Piece>, Trouble> {
        let end = start.saturating_add(blocks);
        let mut pieces = Vec::new();
        let mut at = start;
        while at < end {
            let before = self.shares.range(..=at)?.next_back().transpose()?;
            let before = before.map(|(key, value)| (key.value(), value.value().to_vec()));
            let mut piece = None;
            if let Some((first, value)) = before {
                let Ok((share, _)) = Share::decode(&first.to_be_bytes(), &value) else {
                    return senseless("a share record that it changes is damaged");
                };
                let share_end = first.saturating_add(u64::from(share.blocks));
                if share_end > at {
                    let blocks = share_end.min(end) - at;
                    piece = Some(Piece { start: at, blocks, share: Some((first, share)) });
                }
            }
            let piece = match piece {
                Some(piece) => piece,
                None => {
                    let next = self.shares.range(at.saturating_add(1)..)?.next().transpose()?;
                    let next = next.map_or(end, |(key, _)| key.value().min(end));
                    Piece { start: at, blocks: next - at, share: None }
                }
            };
            at += piece.blocks.max(1);
            pieces.push(piece);
        }
        Ok(pieces)
    }

    /// One extent of an object names these blocks no more.
    fn drop_run(
        &mut self,
        partition: u32,
        record: &mut Object,
        start: u64,
        blocks: u64,
    ) -> Result<(), Trouble> {
        for piece in self.pieces(start, blocks)? {
            let less = record.used().saturating_sub(piece.blocks);
            let Some((_, share)) = &piece.share else {
                record.set_used(less);
                continue;
            };
            let holder = own(share, partition)?;
            let left = with_holder(
                &share.holders,
                Holder { count: holder.count.saturating_sub(1), ..holder },
            );
            self.set_holders(&piece, left)?;
            if holder.family == 0 {
                record.set_used(less);
            } else if holder.count == 1 {
                self.add_shared(partition, holder.family, 0, piece.blocks)?;
            }
        }
        Ok(())
    }

    /// Gives a part of a share record other holders.
    fn set_holders(&mut self, piece: &Piece, holders: Vec<Holder>) -> Result<(), Trouble> {
        if let Some((first, share)) = &piece.share {
            self.cut_share(piece, *first, share)?;
        }
        match is_shared(&holders) {
            true => self.put_share(piece.start, &Share { blocks: piece.blocks as u32, holders }),
            false => Ok(()),
        }
    }

    /// Takes a part out of a share record.
    fn cut_share(&mut self, piece: &Piece, first: u64, share: &Share) -> Result<(), Trouble> {
        self.shares.remove(first)?;
        let end = first.saturating_add(u64::from(share.blocks));
        let piece_end = piece.start + piece.blocks;
        let part = |blocks: u64| Share { blocks: blocks as u32, holders: share.holders.clone() };
        if first < piece.start {
            self.put_share(first, &part(piece.start - first))?;
        }
        if piece_end < end {
            self.put_share(piece_end, &part(end - piece_end))?;
        }
        Ok(())
    }

    fn put_share(&mut self, first: u64, share: &Share) -> Result<(), Trouble> {
        self.shares.insert(first, share.encode(&first.to_be_bytes()).as_slice())?;
        Ok(())
    }

    /// Adds to and takes from SHARED_BLOCKS of a family, and its partition's charge.
    fn add_shared(
        &mut self,
        partition: u32,
        family: u64,
        more: u64,
        less: u64,
    ) -> Result<(), Trouble> {
        let key = object_key(partition, family);
        if let Some(mut record) = get::<Family, _>(&self.families, &key, &key)? {
            record.shared = record.shared.wrapping_add(more).wrapping_sub(less);
            self.families.insert(&key, record.encode(&key).as_slice())?;
        }
        self.charge(partition, less, more, 0)
    }

    fn map(
        &mut self,
        partition: u32,
        object: u64,
        logical: u64,
        extent: Extent,
        sums: &[u32],
    ) -> Result<(), Trouble> {
        let stored = u64::from(extent.stored);
        if extent.physical.checked_add(stored).is_none_or(|end| end > self.data_blocks) {
            return senseless("a map names data blocks that the device does not have");
        }
        self.edit(partition, object, |editor, record| {
            if record.is_small() {
                return senseless("a map for an object whose contents are small");
            }
            let end = logical + u64::from(extent.blocks);
            editor.clear(partition, object, record, logical, end)?;
            for piece in editor.pieces(extent.physical, stored)? {
                if piece.share.is_none() {
                    record.set_used(record.used().wrapping_add(piece.blocks));
                }
            }
            editor.put_merged(partition, object, logical, extent)
        })?;
        self.put_sums(extent.physical, sums)
    }

    /// Puts an extent, as one with the neighbours that it continues.
    fn put_merged(
        &mut self,
        partition: u32,
        object: u64,
        logical: u64,
        extent: Extent,
    ) -> Result<(), Trouble> {
        let (mut logical, mut extent) = (logical, extent);
        let end = logical + u64::from(extent.blocks);
        let around = self.extents_within(
            partition,
            object,
            logical.saturating_sub(1),
            end.saturating_add(1),
        )?;
        for (other_logical, other) in around {
            let fits = u64::from(other.blocks) + u64::from(extent.blocks) <= u64::from(EXTENT_MAX);
            if extent.is_compressed() || other.is_compressed() || !fits {
                continue;
            }
            let (first_at, first, second_at, second) = if other_logical < logical {
                (other_logical, other, logical, extent)
            } else {
                (logical, extent, other_logical, other)
            };
            let blocks = u64::from(first.blocks);
            if first_at + blocks == second_at && first.physical + blocks == second.physical {
                self.extents.remove(&extent_key(partition, object, other_logical))?;
                logical = first_at;
                extent = Extent::plain(first.physical, first.blocks + second.blocks);
            }
        }
        self.put_extent(partition, object, logical, extent)
    }

    fn put_sums(&mut self, physical: u64, sums: &[u32]) -> Result<(), Trouble> {
        let mut at = physical;
        let mut rest = sums;
        while !rest.is_empty() {
            let (group, within) = (at / GROUP, (at % GROUP) as usize);
            let key = group.to_be_bytes();
            let record = get::<Sums, _>(&self.sums, group, &key)?;
            let mut record = record.unwrap_or_else(Sums::zeros);
            let (now, later) = rest.split_at(rest.len().min(GROUP as usize - within));
            record.0[within..within + now.len()].copy_from_slice(now);
            self.sums.insert(group, record.encode(&key).as_slice())?;
            at += now.len() as u64;
            rest = later;
        }
        Ok(())
    }

    fn put_small(&mut self, partition: u32, object: u64, bytes: &[u8]) -> Result<(), Trouble> {
        self.edit(partition, object, |editor, record| {
            if !editor.extents_within(partition, object, 0, OBJECT_BLOCKS_MAX)?.is_empty() {
                return senseless("small contents for an object that has extents");
            }
            let key = object_key(partition, object);
            editor.small.insert(&key, Small(bytes.to_vec()).encode(&key).as_slice())?;
            record.set_small(true);
            Ok(())
        })
    }

    fn drop_small(&mut self, partition: u32, object: u64) -> Result<(), Trouble> {
        self.edit(partition, object, |editor, record| {
            editor.small.remove(&object_key(partition, object))?;
            record.set_small(false);
            Ok(())
        })
    }

    fn clone_object(
        &mut self,
        partition: u32,
        source: u64,
        object: u64,
        record: &Object,
    ) -> Result<(), Trouble> {
        if self.object(partition, object)?.is_some() {
            return senseless(format!("object p{partition:x}/o{object:x} is there already"));
        }
        let mut record = record.clone();
        record.set_small(false);
        record.set_used(0);
        record.set_family(0);
        let key = object_key(partition, object);
        let extents = self.extents_within(partition, source, 0, OBJECT_BLOCKS_MAX)?;
        let mut family = 0;
        self.edit(partition, source, |editor, original| {
            if original.is_small() {
                let from = object_key(partition, source);
                let small = get::<Small, _>(&editor.small, &from, &from)?;
                if let Some(small) = small {
                    editor.small.insert(&key, small.encode(&key).as_slice())?;
                }
                record.set_small(true);
            }
            if !extents.is_empty() {
                if original.family() == 0 {
                    original.set_family(source);
                    editor.join(partition, source, source)?;
                }
                family = original.family();
            }
            for (_, extent) in &extents {
                editor.share_run(partition, family, original, extent)?;
            }
            Ok(())
        })?;
        if family != 0 {
            record.set_family(family);
            self.join(partition, family, object)?;
        }
        for (logical, extent) in extents {
            self.put_extent(partition, object, logical, extent)?;
        }
        self.store_object(partition, object, &record)?;
        self.charge(partition, 0, record.charge(), 1)
    }

    /// Puts blocks of another object in place of what this one has there.
    fn share(&mut self, partition: u32, object: u64, shared: &Shared) -> Result<(), Trouble> {
        let &Shared { source, from, to, blocks, time } = shared;
        let fits =
            |first: u64| first.checked_add(blocks).is_some_and(|end| end <= OBJECT_BLOCKS_MAX);
        if blocks == 0 || source == object || !fits(from) || !fits(to) {
            return senseless("a range of blocks that can't be shared");
        }
        let mut family = 0;
        self.edit(partition, object, |editor, record| {
            if record.is_small() {
                return senseless("shared blocks for an object whose contents are small");
            }
            editor.clear(partition, object, record, to, to + blocks)?;
            record.note_write((to + blocks) * 4096, time);
            family = record.family();
            Ok(())
        })?;
        let extents = self.extents_within(partition, source, from, from + blocks)?;
        if extents.is_empty() {
            return Ok(());
        }
        let joined = family;
        let mut parts = Vec::new();
        self.edit(partition, source, |editor, original| {
            let of_source = original.family();
            if of_source == 0 {
                family = if joined == 0 { source } else { joined };
                original.set_family(family);
                editor.join(partition, family, source)?;
            } else if joined != 0 && joined != of_source {
                return senseless("shared blocks of two families");
            } else {
                family = of_source;
            }
            for (logical, extent) in extents {
                let end = logical + u64::from(extent.blocks);
                let (first, behind) = (logical.max(from), end.min(from + blocks));
                let is_cut = first > logical || behind < end;
                if extent.is_compressed() && is_cut {
                    return senseless("a part of a compressed extent is shared");
                }
                let part =
                    if is_cut { extent.part(first - logical, behind - first) } else { extent };
                editor.share_run(partition, family, original, &part)?;
                parts.push((to + (first - from), part));
            }
            Ok(())
        })?;
        if joined == 0 {
            self.join(partition, family, object)?;
            self.edit(partition, object, |_, record| {
                record.set_family(family);
                Ok(())
            })?;
        }
        for (logical, part) in parts {
            self.put_extent(partition, object, logical, part)?;
        }
        Ok(())
    }

    fn join(&mut self, partition: u32, family: u64, object: u64) -> Result<(), Trouble> {
        self.members.insert(&extent_key(partition, family, object), [].as_slice())?;
        let key = object_key(partition, family);
        let mut record = get::<Family, _>(&self.families, &key, &key)?.unwrap_or_default();
        record.members += 1;
        self.families.insert(&key, record.encode(&key).as_slice())?;
        Ok(())
    }

    /// One more extent names the blocks of this one.
    fn share_run(
        &mut self,
        partition: u32,
        family: u64,
        original: &mut Object,
        extent: &Extent,
    ) -> Result<(), Trouble> {
        for piece in self.pieces(extent.physical, u64::from(extent.stored))? {
            let holder = match &piece.share {
                Some((_, share)) => own(share, partition)?,
                None => Holder { partition, count: 1, family: 0 },
            };
            let before = piece.share.as_ref().map_or(&[][..], |(_, share)| &share.holders);
            let count = holder.count.saturating_add(1);
            self.set_holders(&piece, with_holder(before, Holder { partition, count, family }))?;
            if holder.family == 0 {
                original.set_used(original.used().saturating_sub(piece.blocks));
                self.add_shared(partition, family, piece.blocks, 0)?;
            }
        }
        Ok(())
    }

    fn put_partition(&mut self, partition: u32, record: &Partition) -> Result<(), Trouble> {
        let key = partition.to_be_bytes();
        let present = get::<Partition, _>(&self.partitions, partition, &key)?;
        let mut record = record.clone();
        record.set_objects(present.as_ref().map_or(0, Partition::objects));
        record.set_charged(present.as_ref().map_or(0, Partition::charged));
        self.partitions.insert(partition, record.encode(&key).as_slice())?;
        Ok(())
    }

    fn remove_partition(&mut self, partition: u32) -> Result<(), Trouble> {
        let first = object_key(partition, 0);
        let last = object_key(partition, u64::MAX);
        if self.objects.range::<&ObjectKey>(&first..=&last)?.next().is_some() {
            return senseless(format!("partition p{partition:x} still has objects"));
        }
        if self.partitions.remove(partition)?.is_none() {
            return senseless(format!("there is no partition p{partition:x}"));
        }
        Ok(())
    }

    /// Makes a partition that has what another one has, and holds its blocks too.
    fn copy_partition(&mut self, source: u32, target: u32) -> Result<(), Trouble> {
        let key = source.to_be_bytes();
        let Some(mut record) = get::<Partition, _>(&self.partitions, source, &key)? else {
            return senseless(format!("there is no partition p{source:x} to copy"));
        };
        if self.partitions.get(target)?.is_some() {
            return senseless(format!("partition p{target:x} is there already"));
        }
        let between = (object_key(source, 0), object_key(source, u64::MAX));
        let mut charged = 0;
        for (key, value) in rows_between(&self.objects, &between.0, &between.1)? {
            let new = object_key(target, split_object(&key).1);
            let mut object = decoded::<Object>(&key, &value)?;
            object.set_reserved(0);
            charged += object.charge();
            self.objects.insert(&new, object.encode(&new).as_slice())?;
        }
        for (key, value) in rows_between(&self.small, &between.0, &between.1)? {
            let new = object_key(target, split_object(&key).1);
            self.small.insert(&new, decoded::<Small>(&key, &value)?.encode(&new).as_slice())?;
        }
        for (key, value) in rows_between(&self.families, &between.0, &between.1)? {
            let new = object_key(target, split_object(&key).1);
            let family = decoded::<Family>(&key, &value)?;
            charged += family.shared;
            self.families.insert(&new, family.encode(&new).as_slice())?;
        }
        let between = (extent_key(source, 0, 0), extent_key(source, u64::MAX, u64::MAX));
        for (key, value) in rows_between(&self.members, &between.0, &between.1)? {
            let (_, family, object) = split_extent(&key);
            self.members.insert(&extent_key(target, family, object), value.as_slice())?;
        }
        for (key, value) in rows_between(&self.extents, &between.0, &between.1)? {
            let (_, object, logical) = split_extent(&key);
            let extent = decoded::<Extent>(&key, &value)?;
            self.put_extent(target, object, logical, extent)?;
            self.hold_too(source, target, &extent)?;
        }
        record.set_copied(charged);
        let key = target.to_be_bytes();
        self.partitions.insert(target, record.encode(&key).as_slice())?;
        Ok(())
    }

    /// What a partition holds of an extent's blocks another one holds as well, unless it does already.
    fn hold_too(&mut self, source: u32, target: u32, extent: &Extent) -> Result<(), Trouble> {
        for piece in self.pieces(extent.physical, u64::from(extent.stored))? {
            let alone = Holder { partition: source, count: 1, family: 0 };
            let before = match &piece.share {
                Some((_, share)) => share.holders.clone(),
                None => vec![alone],
            };
            if held_by(&before, target).is_some() {
                continue;
            }
            let Some(holder) = held_by(&before, source) else {
                return senseless(format!("partition p{source:x} does not hold what it names"));
            };
            let after = with_holder(&before, Holder { partition: target, ..holder });
            self.set_holders(&piece, after)?;
        }
        Ok(())
    }

    fn put_drive(&mut self, number: u32, record: &impl Record) -> Result<(), Trouble> {
        self.drive.insert(number, record.encode(&number.to_be_bytes()).as_slice())?;
        Ok(())
    }

    /// Adds an append to the record of the last ones.
    fn remember(&mut self, appended: Appended) -> Result<(), Trouble> {
        let known = get::<Appends, _>(&self.drive, APPENDS, &APPENDS.to_be_bytes())?;
        let mut appends = known.unwrap_or_default();
        appends.push(appended);
        self.put_drive(APPENDS, &appends)
    }

    /// Makes several moves at once, none of which moves what another did.
    ///
    /// # Errors
    /// Nothing is changed when one of them is senseless.
    pub(crate) fn apply_moves(
        &mut self,
        moves: &[Move],
        homeless: &mut Homeless,
    ) -> Result<(), Trouble> {
        let mut moves = moves.to_vec();
        moves.sort_unstable_by_key(|one| one.from);
        for one in &moves {
            let fits = |start: u64| {
                start.checked_add(one.blocks).is_some_and(|end| end <= self.data_blocks)
            };
            if one.blocks == 0 || !fits(one.from) || !fits(one.to) {
                return senseless("a move names data blocks that the device does not have");
            }
            if moves.iter().any(|other| other.meets_source(one.to, one.blocks)) {
                return senseless("a move onto what is moved");
            }
        }
        if moves.windows(2).any(|pair| pair[1].from < pair[0].source_end()) {
            return senseless("a move of what is moved already");
        }
        for (key, pieces) in self.moved_extents(&moves)? {
            let (partition, object, _) = split_extent(&key);
            self.extents.remove(&key)?;
            for (logical, extent) in pieces {
                self.put_extent(partition, object, logical, extent)?;
            }
        }
        for one in &moves {
            self.move_records(one)?;
            // The contents were at their new place before the entry was written.
            for block in one.from..one.source_end() {
                homeless.remove(&block);
                homeless.remove(&(block - one.from + one.to));
            }
        }
        Ok(())
    }

    /// What becomes of each extent that names a moved block.
    fn moved_extents(&self, moves: &[Move]) -> Result<Vec<(ExtentKey, Pieces)>, Trouble> {
        let mut touched = Vec::new();
        for row in self.extents.iter()? {
            let (key, value) = row?;
            let Ok((extent, _)) = Extent::decode(key.value(), value.value()) else { continue };
            let end = extent.physical.saturating_add(u64::from(extent.stored));
            let first = moves.partition_point(|one| one.source_end() <= extent.physical);
            let meeting = moves[first..].iter().take_while(|one| one.from < end);
            let meeting: Vec<Move> = meeting.copied().collect();
            if meeting.is_empty() {
                continue;
            }
            let (_, _, logical) = split_extent(key.value());
            touched.push((*key.value(), moved(logical, extent, end, &meeting)?));
        }
        Ok(touched)
    }

    /// Moves sharing and checksums.
    fn move_records(&mut self, one: &Move) -> Result<(), Trouble> {
        for piece in self.pieces(one.from, one.blocks)? {
            if let Some((first, share)) = &piece.share {
                self.cut_share(&piece, *first, share)?;
                let moved = Share { blocks: piece.blocks as u32, holders: share.holders.clone() };
                self.put_share(piece.start - one.from + one.to, &moved)?;
            }
        }
        let mut at = one.from;
        while at < one.source_end() {
            let (group, within) = (at / GROUP, at % GROUP);
            let count = (GROUP - within).min(one.source_end() - at);
            let sums = get::<Sums, _>(&self.sums, group, &group.to_be_bytes())?;
            if let Some(sums) = sums {
                let (start, end) = (within as usize, (within + count) as usize);
                self.put_sums(at - one.from + one.to, &sums.0[start..end])?;
            }
            at += count;
        }
        Ok(())
    }
}

/// Data blocks `from..` that are `to..` from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) blocks: u64,
}

/// Extents of one object, with their first blocks in it.
type Pieces = Vec<(u64, Extent)>;

impl Move {
    fn source_end(&self) -> u64 {
        self.from.saturating_add(self.blocks)
    }

    /// Whether the range has a block that is moved.
    pub(crate) fn meets_source(&self, start: u64, blocks: u64) -> bool {
        self.from < start.saturating_add(blocks) && start < self.source_end()
    }
}

/// An extent after moves that each have some of its blocks, in order.
fn moved(logical: u64, extent: Extent, end: u64, moves: &[Move]) -> Result<Pieces, Trouble> {
    if extent.is_compressed() {
        let one = moves[0];
        if extent.physical < one.from || end > one.source_end() {
            return senseless("a move of a part of a compressed extent");
        }
        let physical = extent.physical - one.from + one.to;
        return Ok(vec![(logical, Extent { physical, ..extent })]);
    }
    let mut pieces = Vec::new();
    let mut at = extent.physical;
    for one in moves {
        let (cut, cut_end) = (one.from.max(at), one.source_end().min(end));
        if at < cut {
            pieces.push((logical + at - extent.physical, Extent::plain(at, (cut - at) as u32)));
        }
        let physical = cut - one.from + one.to;
        let piece = Extent::plain(physical, (cut_end - cut) as u32);
        pieces.push((logical + cut - extent.physical, piece));
        at = cut_end;
    }
    if at < end {
        pieces.push((logical + at - extent.physical, Extent::plain(at, (end - at) as u32)));
    }
    Ok(pieces)
}
