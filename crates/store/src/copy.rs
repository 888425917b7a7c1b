//! `fastcopy`: an object that shares its source's blocks until either is written (CMU-CS-97-118,
//! section 2.3).

use nasd_types::{Attributes, ObjectId, ObjectName, Timestamp};

use crate::attributes::RECORDS_PER_OBJECT;
use crate::flush::{Copy, Request};
use crate::identifiers::Claim;
use crate::metadata::record::LOGICAL_BLOCKS_MAX;
use crate::space::Demand;
use crate::{NoSpace, Store, StoreError};

/// Records that an extent of the source may add: the copy's, and those of the sharing.
const RECORDS_PER_EXTENT: u64 = 3;

impl Store {
    /// Makes a copy that shares the source's blocks; durable when this returns. It has what was
    /// written to the source before the call, and of what is written meanwhile each write wholly or
    /// not at all. Attributes are the source's, but for copied_object, the drive's own times (now),
    /// blocks_used, and blocks_allocated: nothing is reserved for the copy.
    pub fn fastcopy(
        &self,
        source: ObjectName,
        now: Timestamp,
    ) -> Result<(ObjectId, Attributes), StoreError> {
        self.fastcopy_as(source, None, now)
    }

    /// The same with an identifier that is chosen, as [`Store::create_as`] takes it.
    ///
    /// # Errors
    ///
    /// Those of [`Store::create_as`] for the copy, and of [`Store::fastcopy`].
    pub fn fastcopy_as(
        &self,
        source: ObjectName,
        chosen: Option<ObjectId>,
        now: Timestamp,
    ) -> Result<(ObjectId, Attributes), StoreError> {
        self.writable()?;
        self.object(source)?;
        // Until the copy is there, or is not: two of one number are not made at a time.
        let claim = chosen.map(|object| self.claim(ObjectName { object, ..source })).transpose()?;
        // What the copy is made of is what the tree has.
        let objects = [source.object].map(|object| ObjectName { object, ..source }).into();
        self.run_flush(Request { objects, settle: true, ..Request::default() })?;
        let extents = self.metadata.extents(source, 0, LOGICAL_BLOCKS_MAX)?.len() as u64;
        let records = RECORDS_PER_OBJECT + RECORDS_PER_EXTENT * extents;
        self.require_room_for_object()?;
        self.promise_records(source, records)?;
        let copied = self.copy_object(source, claim.as_ref(), now);
        self.metadata.capacity.release(records);
        let name = ObjectName { object: copied?, ..source };
        self.accounts().count_objects(name.partition, 1);
        Ok((name.object, self.getattr(name)?))
    }

    fn require_room_for_object(&self) -> Result<(), StoreError> {
        let takes_objects = || self.metadata.capacity.takes_objects();
        let mut settled = self.backlog.settled();
        if !takes_objects() {
            self.make_room(NoSpace::Metadata, &mut settled)?;
        }
        if takes_objects() { Ok(()) } else { Err(StoreError::NoSpace(NoSpace::Metadata)) }
    }

    pub(crate) fn promise_records(&self, name: ObjectName, records: u64) -> Result<(), StoreError> {
        let nothing = Demand::default();
        let mut settled = self.backlog.settled();
        match self.promise(name.partition, nothing, records) {
            Ok(()) => Ok(()),
            Err(lacking) => {
                self.make_room(lacking, &mut settled)?;
                Ok(self.promise(name.partition, nothing, records)?)
            }
        }
    }

    fn copy_object(
        &self,
        source: ObjectName,
        claim: Option<&Claim<'_>>,
        now: Timestamp,
    ) -> Result<ObjectId, StoreError> {
        let target = self.identifier(claim)?;
        let copies = vec![Copy { source, target, now }];
        self.run_flush(Request { copies, settle: true, ..Request::default() })?;
        match self.metadata.object(ObjectName { object: target, ..source })? {
            Some(_) => Ok(target),
            // The source was removed in the last moment.
            None => Err(self.gone(source)),
        }
    }
}
