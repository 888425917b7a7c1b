//! Objects that come from another drive: of the same identifier, and with all attributes as they are there.

use std::sync::Arc;

use nasd_types::{ObjectId, ObjectName, SetAttributes, Timestamp};

use crate::attributes::{ATTEMPTS, Promised, RECORDS_PER_OBJECT, check_sizes};
use crate::flush::Request;
use crate::metadata::record::Appended;
use crate::object::{Body, Object, initial_record};
use crate::{NoSpace, ObjectImage, Store, StoreError};

impl Store {
    /// Makes an object what it is elsewhere, but for its data, which stay as far as the length goes: it is made if there is none of that
    /// identifier. Durable after a flush. No identifier below `identifiers_end`, nor this one, is given out by the drive from now on; that is
    /// durable when this returns.
    ///
    /// # Errors
    ///
    /// `NotToBeChosen` for an identifier that no object can have here, or an end above those that drives give out; `ObjectExists` while the
    /// removal of such an object is not durable; else as of a creation and of `setattr`.
    pub fn put_object(
        &self,
        name: ObjectName,
        identifiers_end: ObjectId,
        image: &ObjectImage,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let is_possible = name.object >= ObjectId::FIRST_DYNAMIC && name.object < ObjectId::END
            || name.object == ObjectId::FIRST_OBJECT;
        if !is_possible || identifiers_end > ObjectId::FIRST_NAMED {
            return Err(StoreError::NotToBeChosen(name));
        }
        let sizes = SetAttributes {
            logical_size: Some(image.attributes.logical_size),
            blocks_allocated: Some(image.attributes.blocks_allocated),
            ..SetAttributes::default()
        };
        check_sizes(&sizes)?;
        self.partitions.get(name.partition)?;
        self.writable()?;
        self.bound_dirty_objects()?;
        let own = if name.object < ObjectId::FIRST_NAMED { name.object.0 + 1 } else { 0 };
        self.pass_identifiers(ObjectId(identifiers_end.0.max(own)))?;
        self.make_unless_there(name, now)?;
        self.set_image(name, image, &sizes, now)
    }

    /// None below this one is given out, durably.
    fn pass_identifiers(&self, end: ObjectId) -> Result<(), StoreError> {
        if self.identifiers.pass(end) {
            return Ok(());
        }
        self.run_flush(Request { identifiers: true, ..Request::default() })
    }

    fn make_unless_there(&self, name: ObjectName, now: Timestamp) -> Result<(), StoreError> {
        let claim = self.claims.take(name);
        match self.object(name) {
            Err(StoreError::NoSuchObject(_)) => {}
            known => {
                // One that is removed is there until that is durable.
                let is_removed = known?.read().removed;
                self.partitions.get(name.partition)?;
                return if is_removed { Err(StoreError::ObjectExists(name)) } else { Ok(()) };
            }
        }
        // A family outlives the object whose number it bears.
        if self.metadata.family(name)?.is_some() {
            return Err(StoreError::ObjectExists(name));
        }
        let record = initial_record(&SetAttributes::default(), now);
        self.promise_create(name.partition, 0)?;
        let made =
            self.create_promised(name.partition, Some(&claim), Promised { record, charge: 0 });
        if made.is_err() {
            self.metadata.capacity.release(RECORDS_PER_OBJECT);
        }
        made.map(drop)
    }

    fn set_image(
        &self,
        name: ObjectName,
        image: &ObjectImage,
        sizes: &SetAttributes,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let object = self.object(name)?;
        let mut settled = self.backlog.settled();
        for _ in 0..ATTEMPTS {
            // Had before the lock: whoever waits for memory must not hold one.
            let spare = self.allocate_frames(2)?;
            let mut body = object.write();
            if body.removed {
                return Err(self.gone(name));
            }
            match self.try_setattr(&object, &mut body, sizes, now, spare)? {
                Ok(_) => {
                    self.impress(&object, &mut body, image, now);
                    return Ok(());
                }
                Err(lacking) => {
                    drop(body);
                    self.make_room(lacking, &mut settled)?;
                }
            }
        }
        Err(StoreError::NoSpace(NoSpace::Data))
    }

    /// Sets what is no matter of room. Appends count as remembered since now: the clock of where they are from may be ahead of this drive's, or behind
    /// it, and one that is forgotten too early could be done twice.
    fn impress(&self, object: &Arc<Object>, body: &mut Body, image: &ObjectImage, now: Timestamp) {
        let (record, told) = (&mut body.record, &image.attributes);
        record.access_control_version = told.access_control_version;
        record.nearby_object = told.nearby_object;
        record.copied_object = told.copied_object;
        record.create_time = told.create_time;
        record.data_modify_time = told.data_modify_time;
        record.attribute_modify_time = told.attribute_modify_time;
        record.fs_data_modify_time = told.fs_data_modify_time;
        record.fs_attribute_modify_time = told.fs_attribute_modify_time;
        record.fs_specific = told.fs_specific.clone();
        for append in &image.appends {
            let appended = Appended {
                name: object.name,
                token: append.token,
                offset: append.offset,
                length: append.length,
                time: now,
            };
            self.remember_once(body, appended);
        }
        object.publish(body);
        self.table.register(object, body);
    }
}
