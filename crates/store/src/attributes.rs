//! Operations on objects that move no data: create, remove, getattr, setattr, list.
//!
//! What they do to Table 5 of CMU-CS-97-118: `create` sets every time to now. `setattr` moves
//! attribute_modify_time, and fs_attribute_modify_time unless that is set, or access_control_version is all that
//! is; changing logical_size
//! moves data_modify_time, and fs_data_modify_time unless that is set. A write (see `write`) moves
//! data_modify_time and fs_data_modify_time.

use std::cmp::Ordering::{Equal, Greater, Less};
use std::collections::BTreeSet;
use std::sync::Arc;

use nasd_types::limits::{BLOCK_BYTES, MAX_OBJECT_BYTES};
use nasd_types::{Attributes, ObjectId, ObjectName, PartitionId, SetAttributes, Timestamp};

use crate::flush::Request;
use crate::identifiers::Claim;
use crate::metadata::record::{LOGICAL_BLOCKS_MAX, ObjectRecord, SMALL_BYTES_MAX};
use crate::object::{Body, Object, initial_record};
use crate::read::Located;
use crate::space::Demand;
use crate::{NoSpace, Store, StoreError};

/// Small records that an object's record is worth, as far as room for them goes.
pub(crate) const RECORDS_PER_OBJECT: u64 = 8;

/// Dirty objects from which on those who create, change or remove one help to write back.
const DIRTY_OBJECTS_MAX: usize = 8192;

/// How often a change makes room and tries again.
pub(crate) const ATTEMPTS: usize = 8;

/// An object to be made, for which there is room.
pub(crate) struct Promised {
    pub(crate) record: ObjectRecord,
    /// What it is charged, in blocks.
    pub(crate) charge: u64,
}

/// Whether the access control version is all that changes.
fn is_revocation(changes: &SetAttributes) -> bool {
    let access_control_version = changes.access_control_version;
    let alone = SetAttributes { access_control_version, ..SetAttributes::default() };
    access_control_version.is_some() && *changes == alone
}

/// Capabilities that were revoked don't become good again. A length that comes with a version comes once with it: who
/// asks for both, and asks again as he hears nothing, may be answered while the first request is still on its way. When
/// that comes, it must not cut off what others have written since, who had a capability of the new version for it.
fn check_version(
    object: ObjectName,
    present: &ObjectRecord,
    changes: &SetAttributes,
) -> Result<(), StoreError> {
    let Some(asked) = changes.access_control_version else { return Ok(()) };
    let is_resized = changes.logical_size.is_some_and(|size| size != present.logical_size);
    let present = present.access_control_version;
    match asked.cmp(&present) {
        Less => Err(StoreError::VersionFalls { object, present, asked }),
        Equal if is_resized => Err(StoreError::VersionStays { object, present }),
        Equal | Greater => Ok(()),
    }
}

pub(crate) fn check_sizes(changes: &SetAttributes) -> Result<(), StoreError> {
    let size = changes.logical_size.unwrap_or_default();
    if size > MAX_OBJECT_BYTES {
        let limit = MAX_OBJECT_BYTES;
        return Err(StoreError::TooLarge { what: "an object", bytes: size, limit });
    }
    let blocks = changes.blocks_allocated.unwrap_or_default();
    if blocks > LOGICAL_BLOCKS_MAX {
        let bytes = blocks.saturating_mul(BLOCK_BYTES as u64);
        let limit = MAX_OBJECT_BYTES;
        return Err(StoreError::TooLarge { what: "a reservation", bytes, limit });
    }
    Ok(())
}

impl Store {
    /// Creates an object with the attributes that `initial` gives. The identifier is new: it was
    /// never given out before, not even by a create that a crash undid.
    pub fn create(
        &self,
        partition: PartitionId,
        initial: &SetAttributes,
        now: Timestamp,
    ) -> Result<(ObjectId, Attributes), StoreError> {
        self.create_as(partition, None, initial, now)
    }

    /// The same with an identifier that is chosen: one of those that the drive never gives out
    /// ([`ObjectId::is_named`]), and that no object of the partition has. Whoever chooses sees to it that none
    /// ever had it: whatever was meant for that object would be good for this one.
    ///
    /// # Errors
    ///
    /// `ObjectExists` also while the removal of such an object is not durable, and while others share blocks
    /// in its name; `NotToBeChosen`; and those of [`Store::create`].
    pub fn create_as(
        &self,
        partition: PartitionId,
        chosen: Option<ObjectId>,
        initial: &SetAttributes,
        now: Timestamp,
    ) -> Result<(ObjectId, Attributes), StoreError> {
        self.partitions.get(partition)?;
        self.writable()?;
        check_sizes(initial)?;
        self.bound_dirty_objects()?;
        let name = |object| ObjectName { partition, object };
        let claim = chosen.map(|object| self.claim(name(object))).transpose()?;
        let record = initial_record(initial, now);
        let charge = record.blocks_reserved;
        self.promise_create(partition, charge)?;
        let promised = Promised { record, charge };
        let created = self.create_promised(partition, claim.as_ref(), promised);
        if created.is_err() {
            self.metadata.capacity.release(RECORDS_PER_OBJECT);
            self.accounts().charge(partition, charge, 0);
        }
        created
    }

    /// Makes an object for which there is room.
    pub(crate) fn create_promised(
        &self,
        partition: PartitionId,
        claim: Option<&Claim<'_>>,
        Promised { record, charge }: Promised,
    ) -> Result<(ObjectId, Attributes), StoreError> {
        let identifier = self.identifier(claim)?;
        let name = ObjectName { partition, object: identifier };
        let object = Arc::new(Object::created(name, record, charge));
        // Whoever removes the partition finds it in the table.
        let attributes = self.partitions.while_there(partition, || {
            let mut body = object.write();
            body.promised_records += RECORDS_PER_OBJECT;
            self.table.insert_created(object.clone());
            self.table.register(&object, &mut body);
            self.accounts().count_objects(partition, 1);
            body.attributes(0)
        })?;
        Ok((identifier, attributes))
    }

    /// Makes sure that there is no object of a chosen identifier, and that nobody else makes one, until the
    /// claim is dropped.
    pub(crate) fn claim(&self, name: ObjectName) -> Result<Claim<'_>, StoreError> {
        if !name.object.is_named() {
            return Err(StoreError::NotToBeChosen(name));
        }
        let claim = self.claims.take(name);
        // One in the table may have been removed. Its successor must not come into the same log entry, nor be
        // found by what settles the removal. A family outlives the object whose number it bears, and would be
        // taken for one that the successor begins.
        let exists = self.table.get(name).is_ok()
            || self.metadata.object(name)?.is_some()
            || self.metadata.family(name)?.is_some();
        if exists { Err(StoreError::ObjectExists(name)) } else { Ok(claim) }
    }

    /// The identifier that was claimed, or a new one.
    pub(crate) fn identifier(&self, claim: Option<&Claim<'_>>) -> Result<ObjectId, StoreError> {
        claim.map_or_else(|| self.take_identifier(), |claim| Ok(claim.object()))
    }

    /// Helps to write back when very many objects are dirty, which takes memory that the cache does not
    /// count. No object may be locked.
    pub(crate) fn bound_dirty_objects(&self) -> Result<(), StoreError> {
        if self.table.dirty_count() >= DIRTY_OBJECTS_MAX {
            self.write_back(self.cache.dirty_limit() / 4)?;
        }
        Ok(())
    }

    pub(crate) fn promise_create(
        &self,
        partition: PartitionId,
        charge: u64,
    ) -> Result<(), StoreError> {
        let demand = Demand { charge_before: 0, charge_after: charge, dirty: 0 };
        let mut settled = self.backlog.settled();
        for _ in 0..ATTEMPTS {
            match self.promise_object(partition, demand, RECORDS_PER_OBJECT) {
                Ok(()) => return Ok(()),
                Err(lacking) => self.make_room(lacking, &mut settled)?,
            }
        }
        Err(StoreError::NoSpace(NoSpace::Data))
    }

    fn take_identifier(&self) -> Result<ObjectId, StoreError> {
        loop {
            if let Some(identifier) = self.identifiers.take() {
                return Ok(identifier);
            }
            if self.identifiers.is_exhausted() {
                return Err(StoreError::NoSpace(NoSpace::Metadata));
            }
            self.run_flush(Request { identifiers: true, ..Request::default() })?;
        }
    }

    /// As `promise`, for another object: it leaves room for the data of those that there are.
    fn promise_object(
        &self,
        partition: PartitionId,
        demand: Demand,
        records: u64,
    ) -> Result<(), NoSpace> {
        if !self.metadata.capacity.takes_objects() {
            return Err(NoSpace::Metadata);
        }
        self.promise(partition, demand, records)
    }

    /// Promises blocks and records together, or neither.
    pub(crate) fn promise(
        &self,
        partition: PartitionId,
        demand: Demand,
        records: u64,
    ) -> Result<(), NoSpace> {
        if !self.metadata.capacity.promise(records) {
            return Err(NoSpace::Metadata);
        }
        let promised = self.accounts().promise(partition, demand);
        if promised.is_err() {
            self.metadata.capacity.release(records);
        }
        promised
    }

    /// Removes an object with its data.
    pub fn remove(&self, name: ObjectName) -> Result<(), StoreError> {
        self.writable()?;
        self.bound_dirty_objects()?;
        let object = self.object(name)?;
        let mut body = object.write();
        if body.removed {
            return Err(self.gone(name));
        }
        self.make_removed(&object, &mut body);
        Ok(())
    }

    /// Removes an object whose body is locked.
    pub(crate) fn make_removed(&self, object: &Arc<Object>, body: &mut Body) {
        body.removed = true;
        object.publish(body);
        self.drop_cached(object, body, 0, LOGICAL_BLOCKS_MAX);
        self.accounts().count_objects(object.name.partition, -1);
        if body.in_tree {
            // Its blocks are free when the removal is durable; a flush sees to that.
            self.table.register(object, body);
        } else {
            self.table.unregister(body);
            self.give_up(object, body);
        }
    }

    /// Forgets a removed object that the tree does not have.
    pub(crate) fn give_up(&self, object: &Object, body: &mut Body) {
        self.settle_charge(object, body, 0);
        self.metadata.capacity.release(std::mem::take(&mut body.promised_records));
        self.table.forget(object.name);
    }

    /// Drops the cached blocks `[from, to)`, with the promises made for dirty ones.
    pub(crate) fn drop_cached(&self, object: &Object, body: &mut Body, from: u64, to: u64) {
        let dropped = self.cache.frames(object).drop_blocks(from, to);
        body.fresh -= dropped.fresh;
        self.accounts().forget_dirty(dropped.dirty);
    }

    /// Charges the object for exactly what it has and will have.
    pub(crate) fn settle_charge(&self, object: &Object, body: &mut Body, charge: u64) {
        self.accounts().charge(object.name.partition, body.charge, charge);
        body.charge = charge;
    }

    /// Whether `getattr` need not wait for flushes of the object to be settled, as far as can be told
    /// quickly.
    pub fn is_settled(&self, name: ObjectName) -> bool {
        let Ok(object) = self.table.get(name) else {
            return true;
        };
        object.try_read().is_some_and(|body| !body.writing.frees_blocks())
    }

    /// An object's attributes.
    pub fn getattr(&self, name: ObjectName) -> Result<Attributes, StoreError> {
        let object = self.object(name)?;
        let mut body = object.read();
        if body.writing.frees_blocks() {
            // What was flushed counts for what it is.
            drop(body);
            self.settle_accounts();
            body = object.read();
        }
        if body.removed {
            return Err(self.gone(name));
        }
        self.attributes(name, &body)
    }

    /// The attributes of an object whose body is locked.
    fn attributes(&self, name: ObjectName, body: &Body) -> Result<Attributes, StoreError> {
        Ok(body.attributes(self.shared_blocks(name, body)?))
    }

    /// The blocks that an object whose body is locked shares with its family, if they count for it: they
    /// do for the member with the lowest number. Asked for before a change that tells attributes, so
    /// that a change that says that it failed was not made.
    pub(crate) fn shared_blocks(&self, name: ObjectName, body: &Body) -> Result<u64, StoreError> {
        let family = body.record.family;
        if family == ObjectId(0) {
            return Ok(0);
        }
        let found = self.metadata.family(ObjectName { object: family, ..name })?;
        let own = found.filter(|(_, head)| *head == name.object);
        Ok(own.map_or(0, |(record, _)| record.shared_blocks))
    }

    /// Finds an object, for [`Located::access_control_version`] and [`Store::read_located`];
    /// `Ok(None)` when there is no such object (or partition).
    pub fn locate(&self, name: ObjectName) -> Result<Option<Located>, StoreError> {
        match self.object(name) {
            Ok(object) => Ok(Some(Located(object))),
            Err(StoreError::NoSuchObject(_) | StoreError::NoSuchPartition(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The same of an object that is in memory; `None` if it is not, which says nothing of whether there
    /// is one.
    pub fn locate_in_memory(&self, name: ObjectName) -> Option<Located> {
        self.table.get(name).ok().map(Located)
    }

    /// The attribute that the authority check needs; `Ok(None)` when there is no such object.
    pub fn access_control_version(&self, name: ObjectName) -> Result<Option<u64>, StoreError> {
        Ok(self.locate(name)?.and_then(|found| found.access_control_version()))
    }

    /// Changes the attributes that `changes` gives; returns all of them afterwards.
    pub fn setattr(
        &self,
        name: ObjectName,
        changes: &SetAttributes,
        now: Timestamp,
    ) -> Result<Attributes, StoreError> {
        self.writable()?;
        check_sizes(changes)?;
        self.bound_dirty_objects()?;
        let object = self.object(name)?;
        let mut settled = self.backlog.settled();
        for _ in 0..ATTEMPTS {
            // Had before the lock: whoever waits for memory must not hold one.
            let spare = self.allocate_frames(2)?;
            let mut body = object.write();
            if body.removed {
                return Err(self.gone(name));
            }
            match self.try_setattr(&object, &mut body, changes, now, spare)? {
                Ok(attributes) => return Ok(attributes),
                Err(lacking) => {
                    drop(body);
                    self.make_room(lacking, &mut settled)?;
                }
            }
        }
        Err(StoreError::NoSpace(NoSpace::Data))
    }

    pub(crate) fn try_setattr(
        &self,
        object: &Arc<Object>,
        body: &mut Body,
        changes: &SetAttributes,
        now: Timestamp,
        mut spare: Vec<nasd_device::Frame>,
    ) -> Result<Result<Attributes, NoSpace>, StoreError> {
        check_version(object.name, &body.record, changes)?;
        let shared = self.shared_blocks(object.name, body)?;
        let old_size = body.record.logical_size;
        let new_size = changes.logical_size.unwrap_or(old_size);
        // Only small objects do anything here, so that the frame is left for `truncate`.
        if new_size > SMALL_BYTES_MAX as u64
            && let Err(lacking) = self.outgrow(object, body, &mut spare)?
        {
            return Ok(Err(lacking));
        }
        let old_reservation = body.record.blocks_reserved;
        // What is cut off is not going to be written.
        let cut = Some(new_size.div_ceil(BLOCK_BYTES as u64))
            .filter(|blocks| new_size < old_size && *blocks < old_reservation);
        if let Some(blocks) = changes.blocks_allocated.or(cut)
            && let Err(lacking) = self.reserve(object, body, blocks)
        {
            return Ok(Err(lacking));
        }
        if new_size < old_size {
            let truncated = self.truncate(object, body, new_size, spare);
            if !matches!(truncated, Ok(Ok(()))) {
                // All or nothing: the reservation goes back to what it was, if it still can.
                let _ = self.reserve(object, body, old_reservation);
                return truncated.map(|outcome| outcome.map(|()| body.attributes(shared)));
            }
        }
        let record = &mut body.record;
        record.logical_size = new_size;
        if new_size != old_size {
            record.note_change(now);
        }
        record.attribute_modify_time = now;
        // Revoking capabilities changes nothing for those who use files.
        if !is_revocation(changes) {
            record.fs_attribute_modify_time = changes.fs_attribute_modify_time.unwrap_or(now);
        }
        if let Some(time) = changes.fs_data_modify_time {
            record.fs_data_modify_time = time;
        }
        if let Some(version) = changes.access_control_version {
            record.access_control_version = version;
        }
        if let Some(nearby) = changes.nearby_object {
            record.nearby_object = nearby;
        }
        if let Some(bytes) = &changes.fs_specific {
            record.fs_specific = bytes.clone();
        }
        object.publish(body);
        self.table.register(object, body);
        Ok(Ok(body.attributes(shared)))
    }

    /// Reserves so many blocks for an object. Fewer than before there is always room for.
    pub(crate) fn reserve(
        &self,
        object: &Object,
        body: &mut Body,
        blocks: u64,
    ) -> Result<(), NoSpace> {
        let before = std::mem::replace(&mut body.record.blocks_reserved, blocks);
        let charge = body.charge_with(0);
        let demand = Demand { charge_before: body.charge, charge_after: charge, dirty: 0 };
        match self.accounts().promise(object.name.partition, demand) {
            Ok(()) => {
                body.charge = charge;
                Ok(())
            }
            Err(lacking) => {
                body.record.blocks_reserved = before;
                Err(lacking)
            }
        }
    }

    /// Cuts the object's data off at `size`. What is left of the last block gets zeros behind it, so
    /// that the old bytes do not come back when the object grows again.
    fn truncate(
        &self,
        object: &Arc<Object>,
        body: &mut Body,
        size: u64,
        mut spare: Vec<nasd_device::Frame>,
    ) -> Result<Result<(), NoSpace>, StoreError> {
        let rests = self.rests(object, body, &(size..MAX_OBJECT_BYTES))?;
        if let Err(lacking) = self.write_rests(object, body, rests, &mut spare)? {
            return Ok(Err(lacking));
        }
        if let Err(lacking) = self.clear_tail(object, body, size, spare)? {
            return Ok(Err(lacking));
        }
        let first_dead = size.div_ceil(BLOCK_BYTES as u64);
        self.drop_cached(object, body, first_dead, LOGICAL_BLOCKS_MAX);
        // Whatever the tree has from there on, or will have from the flush under way, is dead.
        if first_dead < body.mapped_end || (body.small && first_dead == 0) {
            body.clears.add(first_dead, LOGICAL_BLOCKS_MAX);
        }
        Ok(Ok(()))
    }

    /// Up to `most` objects of a partition with identifiers from `from` on, in ascending order.
    pub fn list(
        &self,
        partition: PartitionId,
        from: ObjectId,
        most: usize,
    ) -> Result<Vec<ObjectId>, StoreError> {
        self.partitions.get(partition)?;
        let mut removed = BTreeSet::new();
        let mut present = BTreeSet::new();
        // Whatever is not in the tree as it is now is in memory. What leaves memory while this goes
        // on is in the tree by then, which is asked last.
        for object in self.table.all_of(partition) {
            let set = if object.read().removed { &mut removed } else { &mut present };
            set.insert(object.name.object);
        }
        let in_tree = self.metadata.list(partition, from, most.saturating_add(removed.len()))?;
        let mut found: BTreeSet<ObjectId> = in_tree.into_iter().collect();
        found.retain(|object| !removed.contains(object));
        found.extend(present.range(from..));
        Ok(found.into_iter().take(most).collect())
    }
}
