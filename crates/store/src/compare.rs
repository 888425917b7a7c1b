//! What a partition has that another one, an earlier copy of it, has not: for who brings it to another drive.
//!
//! Live blocks are never written over, and a copy holds its blocks. So bytes that lie at the same place of the medium in both are the same, and nothing
//! of the data need be read.

use std::cmp::Ordering;
use std::sync::PoisonError;

use nasd_types::limits::BLOCK_BYTES;
use nasd_types::{
    AppendToken, Attributes, ByteRange, ObjectId, ObjectName, PartitionId, Timestamp,
};

use crate::flush::Request;
use crate::metadata::record::{Appended, Codec, Extent, LOGICAL_BLOCKS_MAX, ObjectRecord};
use crate::object::attributes_of;
use crate::{Store, StoreError};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Objects of each partition that one call looks at, at most.
const OBJECTS_AT_ONCE: usize = 256;

/// Extents of each of two objects that are compared together: an object has at most four times as many ranges in a page.
const EXTENTS_AT_ONCE: usize = 256;

/// Where a comparison goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ComparedTo {
    /// Objects of lower identifiers are done.
    pub object: ObjectId,
    /// Bytes of that object in front of this one are done.
    pub offset: u64,
}

/// All that is known of an object besides its contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectImage {
    /// Its attributes; `blocks_allocated` is what is reserved alone.
    pub attributes: Attributes,
    /// The appends to it that are remembered, the oldest first.
    pub appends: Vec<RememberedAppend>,
}

/// An append that is not done again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RememberedAppend {
    /// By which it is known.
    pub token: AppendToken,
    /// Where its bytes went.
    pub offset: u64,
    /// How many there were.
    pub length: u32,
    /// When, by the drive's clock.
    pub time: Timestamp,
}

/// Bytes that are not those of the base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangedBytes {
    /// Which: from a block's begin to one's end, or to that of the object.
    pub range: ByteRange,
    /// They were data in the base, and are a hole.
    pub is_hole: bool,
}

/// An object that is not what it is in the base.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedObject {
    /// Which.
    pub object: ObjectId,
    /// What it is now; `None`: it is none any more.
    pub image: Option<ObjectImage>,
    /// Which of its bytes are others.
    pub changed: Vec<ChangedBytes>,
}

/// A page of what is not the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComparedPage {
    /// The drive has given out no identifier from here on, but for those that others choose.
    pub identifiers_end: ObjectId,
    /// In ascending order; perhaps none, though more follow.
    pub objects: Vec<ChangedObject>,
    /// Where it goes on; `None` at the end.
    pub next: Option<ComparedTo>,
}

/// An object as the tree has it in one of the partitions.
struct Side {
    name: ObjectName,
    record: ObjectRecord,
    small: Option<Vec<u8>>,
}

impl Store {
    /// What of a partition differs from the base, or all of it: from there on, and no more than `room` says is wanted, which is told each
    /// object before the next one is looked at. What was done before the call is in it.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoSuchPartition`] for either; those of reading the metadata and of a flush.
    pub fn compare_partition(
        &self,
        partition: PartitionId,
        base: Option<PartitionId>,
        from: ComparedTo,
        room: &mut dyn FnMut(&ChangedObject) -> bool,
    ) -> Result<ComparedPage, StoreError> {
        for known in [partition].into_iter().chain(base) {
            self.partitions.get(known)?;
        }
        // What is compared is what the tree has.
        let objects = self.table.dirty_of(partition).iter().map(|object| object.name).collect();
        self.run_flush(Request { objects, settle: true, ..Request::default() })?;
        let (mine, ends) = self.metadata.records(partition, from.object, OBJECTS_AT_ONCE)?;
        let (its, its_ends) = match base {
            Some(base) => self.metadata.records(base, from.object, OBJECTS_AT_ONCE)?,
            None => (Vec::new(), true),
        };
        // Behind the last of a list that goes on nothing is known.
        let last = |list: &[(ObjectId, ObjectRecord)], ends: bool| match (ends, list.last()) {
            (false, Some((last, _))) => last.0,
            _ => u64::MAX,
        };
        let known_to = last(&mine, ends).min(last(&its, its_ends));
        let mut page = ComparedPage {
            identifiers_end: ObjectId(self.identifiers.limit()),
            objects: Vec::new(),
            next: (known_to < u64::MAX)
                .then(|| ComparedTo { object: ObjectId(known_to + 1), offset: 0 }),
        };
        let (mut mine, mut its) = (mine.into_iter().peekable(), its.into_iter().peekable());
        loop {
            let order = match (mine.peek(), its.peek()) {
                (Some((one, _)), Some((other, _))) => one.cmp(other),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => return Ok(page),
            };
            let one = if order.is_le() { mine.next() } else { None };
            let other = if order.is_ge() { its.next() } else { None };
            let found = one.as_ref().or(other.as_ref()).map(|(object, _)| *object);
            let Some(object) = found.filter(|object| object.0 <= known_to) else {
                return Ok(page);
            };
            let start = if object == from.object { from.offset } else { 0 };
            let one = one.map(|(_, record)| self.side(partition, object, record)).transpose()?;
            let other = match (base, other) {
                (Some(base), Some((_, record))) => Some(self.side(base, object, record)?),
                _ => None,
            };
            let (changed, goes_on) = self.compare_object(object, one, other, start)?;
            let next = goes_on.map(|offset| ComparedTo { object, offset });
            let wants_more = changed.as_ref().is_none_or(&mut *room);
            page.objects.extend(changed);
            if next.is_some() || !wants_more {
                let behind = ComparedTo { object: ObjectId(object.0 + 1), offset: 0 };
                page.next = Some(next.unwrap_or(behind));
                return Ok(page);
            }
        }
    }

    fn side(
        &self,
        partition: PartitionId,
        object: ObjectId,
        record: ObjectRecord,
    ) -> Result<Side, StoreError> {
        let name = ObjectName { partition, object };
        let small = if record.small { self.metadata.small(name)? } else { None };
        Ok(Side { name, record, small })
    }

    /// What is not the same of an object from a byte on, and from which byte it is not known yet.
    fn compare_object(
        &self,
        object: ObjectId,
        one: Option<Side>,
        other: Option<Side>,
        offset: u64,
    ) -> Result<(Option<ChangedObject>, Option<u64>), StoreError> {
        let Some(one) = one else {
            return Ok((Some(ChangedObject { object, image: None, changed: Vec::new() }), None));
        };
        let same_contents = |other: &Side| one.small.is_some() && one.small == other.small;
        let (changed, goes_on) = match &other {
            Some(other) if same_contents(other) => (Vec::new(), None),
            other => self.compare_bytes(&one, other.as_ref(), offset / BLOCK)?,
        };
        // A copy does not remember the appends that were made before it.
        let appends = self.appends_to(one.name);
        let its_appends = other.as_ref().map(|other| self.appends_to(other.name));
        let are_known = its_appends.is_some_and(|its| appends.iter().all(|one| its.contains(one)));
        let is_same = other.is_some_and(|other| {
            let its = ObjectRecord {
                // How blocks are counted and shared, and where contents are kept, is up to the drive.
                blocks_used: one.record.blocks_used,
                family: one.record.family,
                small: one.record.small,
                ..other.record
            };
            its == one.record
        });
        // The first object, which every partition has, is always told: whoever puts it passes the end of identifiers on, also
        // where nothing else has changed.
        let is_first = object == ObjectId::FIRST_OBJECT;
        if is_same && are_known && changed.is_empty() && !is_first {
            return Ok((None, goes_on));
        }
        let image = Some(ObjectImage { attributes: attributes_of(&one.record), appends });
        Ok((Some(ChangedObject { object, image, changed }), goes_on))
    }

    /// Which bytes are others from a block on, and from which byte that is not known yet.
    fn compare_bytes(
        &self,
        one: &Side,
        other: Option<&Side>,
        from: u64,
    ) -> Result<(Vec<ChangedBytes>, Option<u64>), StoreError> {
        let (mine, known) = self.extents_of(one, from)?;
        let (its, its_known) = match other {
            Some(other) => self.extents_of(other, from)?,
            None => (Vec::new(), LOGICAL_BLOCKS_MAX),
        };
        let known = known.min(its_known);
        let size = one.record.logical_size;
        let to = known.min(size.div_ceil(BLOCK));
        let mut changed: Vec<ChangedBytes> = Vec::new();
        let mut at = from;
        while at < to {
            let (mine, end) = covering(&mine, at, to);
            let (its, its_end) = covering(&its, at, to);
            let end = end.min(its_end);
            let is_hole = mine.is_none();
            if !is_same_place(mine, its, at) {
                let range = ByteRange::new(at * BLOCK, (end * BLOCK).min(size) - at * BLOCK);
                match changed.last_mut() {
                    Some(last) if last.is_hole == is_hole && last.range.end() == range.offset => {
                        last.range.length += range.length;
                    }
                    _ => changed.push(ChangedBytes { range, is_hole }),
                }
            }
            at = end;
        }
        let goes_on = (known * BLOCK < size && known < LOGICAL_BLOCKS_MAX).then_some(known * BLOCK);
        Ok((changed, goes_on))
    }

    /// Extents of an object from a block on, and up to which block they are all.
    fn extents_of(&self, side: &Side, from: u64) -> Result<(Vec<Extent>, u64), StoreError> {
        if side.small.is_some() {
            let blocks = side.record.logical_size.div_ceil(BLOCK);
            // Of no place of the medium, so that it is that of no other.
            let nowhere = Extent { logical: 0, blocks, physical: u64::MAX, codec: Codec::Plain };
            return Ok((vec![nowhere], LOGICAL_BLOCKS_MAX));
        }
        let found = self.metadata.extents_from(side.name, from, EXTENTS_AT_ONCE)?;
        let known = match found.last() {
            Some(last) if found.len() >= EXTENTS_AT_ONCE => last.end(),
            _ => LOGICAL_BLOCKS_MAX,
        };
        Ok((found, known))
    }

    fn appends_to(&self, name: ObjectName) -> Vec<RememberedAppend> {
        let appends = self.appends.lock().unwrap_or_else(PoisonError::into_inner);
        let told = |one: &Appended| RememberedAppend {
            token: one.token,
            offset: one.offset,
            length: one.length,
            time: one.time,
        };
        appends.to(name).map(told).collect()
    }
}

/// The extent that has a block, and the block up to which that holds.
fn covering(extents: &[Extent], block: u64, to: u64) -> (Option<&Extent>, u64) {
    let behind = extents.partition_point(|extent| extent.end() <= block);
    match extents.get(behind) {
        Some(extent) if extent.logical <= block => (Some(extent), extent.end().min(to)),
        Some(extent) => (None, extent.logical.min(to)),
        None => (None, to),
    }
}

/// Whether a block of one object lies where it does of the other one, or is in neither.
fn is_same_place(one: Option<&Extent>, other: Option<&Extent>, block: u64) -> bool {
    let place = |extent: &Extent| extent.physical.wrapping_add(block - extent.logical);
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) if one.codec == Codec::Plain && other.codec == Codec::Plain => {
            one.physical != u64::MAX && place(one) == place(other)
        }
        // A stream that is compressed is the same as a whole.
        (Some(one), Some(other)) => one == other,
        _ => false,
    }
}
