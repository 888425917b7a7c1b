//! Components on drives that are joining: before anything is done to an object, these have components of it too.

use std::sync::PoisonError;

use nasd_layout::MemberState;
use nasd_protocol::Status;
use nasd_protocol::drive::{CreateArguments, RemoveArguments};
use nasd_types::{Attributes, DriveId, ObjectId, ObjectName, SetAttributes, Timestamp};

use crate::attributes::{Whole, setattr};
use crate::components::{Ask, ComponentError};
use crate::place::Place;
use crate::version::ComponentVersion;
use crate::virtual_drive::{VirtualDrive, component, component_partition};

impl VirtualDrive {
    /// Where an object lies that is going to be changed, for who has its lock: drives that are joining have
    /// components of it then.
    pub(crate) fn place_to_change(&self, name: ObjectName) -> Result<Place, Status> {
        let place = self.place(name)?;
        if place.joining().next().is_none() || self.has_joined(name) {
            return Ok(place);
        }
        match self.whole(name) {
            Ok(whole) => self.join(name, &place, &whole)?,
            // Whoever asks is told by those who have to know.
            Err(Status::NoSuchObject) => return Ok(place),
            Err(status) => return Err(status),
        }
        Ok(place)
    }

    /// Whether drives that are joining are known to have components of an object.
    pub(crate) fn has_joined(&self, name: ObjectName) -> bool {
        self.joined.lock().unwrap_or_else(PoisonError::into_inner).contains(&name)
    }

    /// Forgets that, as the object is no more.
    pub(crate) fn forget_joined(&self, name: ObjectName) {
        self.joined.lock().unwrap_or_else(PoisonError::into_inner).remove(&name);
    }

    /// A drive that is to have a component of an object may have to be asked about it only if it is known to.
    pub(crate) fn may_lack(&self, name: ObjectName, place: &Place, drive: DriveId) -> bool {
        place.state_of(drive) == MemberState::Joining && !self.has_joined(name)
    }

    /// Makes sure that drives which are joining have components of an object, with the attributes that they would
    /// have if they had never been away; what they hold is another matter.
    pub(crate) fn join(
        &self,
        name: ObjectName,
        place: &Place,
        whole: &Whole,
    ) -> Result<(), Status> {
        let holders = place.holders(whole.version.is_spread());
        let joining: Vec<DriveId> =
            place.joining().filter(|drive| holders.contains(drive)).collect();
        for drive in joining {
            self.join_component(name, place, whole, drive)?;
        }
        self.joined.lock().unwrap_or_else(PoisonError::into_inner).insert(name);
        Ok(())
    }

    fn join_component(
        &self,
        name: ObjectName,
        place: &Place,
        whole: &Whole,
        drive: DriveId,
    ) -> Result<(), Status> {
        let attributes = Self::attributes_at(place, whole, drive);
        let partition = component_partition(name.partition);
        let create = CreateArguments {
            partition,
            object: Some(name.object),
            durable: false,
            initial: attributes.clone(),
        };
        let made = match name.object {
            // Every partition has one on every drive.
            ObjectId::FIRST_OBJECT => Err(ComponentError::Answered(Status::ObjectExists)),
            _ => self.components.ask_one(drive, Ask::Create(create.clone())),
        };
        let told = match made {
            Err(ComponentError::Answered(Status::ObjectExists)) => {
                let had = self.getattr_at(drive, name).map_err(|error| error.status())?;
                // What is behind the end is not there any more.
                let end = attributes.logical_size.unwrap_or(whole.attributes.logical_size);
                let logical_size =
                    Some(had.logical_size.min(end).max(attributes.logical_size.unwrap_or(0)));
                let changes = SetAttributes { logical_size, ..attributes };
                match self.components.ask_one(drive, setattr(name, changes, false)) {
                    // An attempt that came to nothing elsewhere has left a later version here.
                    Err(ComponentError::Answered(Status::BadArgument)) => {
                        if name.object == ObjectId::FIRST_OBJECT {
                            return self.outdo(name, place, whole, &had);
                        }
                        self.replace_component(name, drive, create)
                    }
                    told => told,
                }
            }
            made => made,
        };
        told.map(drop).map_err(|error| error.status())
    }

    /// Raises the version of all components above that of one which can't be replaced; all else is for the next
    /// attempt.
    fn outdo(
        &self,
        name: ObjectName,
        place: &Place,
        whole: &Whole,
        had: &Attributes,
    ) -> Result<(), Status> {
        let had = ComponentVersion(had.access_control_version);
        let has_writers = whole.version.has_writers();
        let above = match whole.version.is_spread() {
            true => had.spread().revoked(),
            false => had.above(has_writers),
        };
        let above = if has_writers { above.with_writers() } else { above };
        self.set_version(name, place, above)?;
        Err(Status::Busy)
    }

    /// Puts an empty component in the place of one that can't be made what it should be.
    fn replace_component(
        &self,
        name: ObjectName,
        drive: DriveId,
        create: CreateArguments,
    ) -> crate::components::Answer {
        let remove = RemoveArguments { name: component(name), durable: true };
        self.components.ask_one(drive, Ask::Remove(remove))?;
        self.components.ask_one(drive, Ask::Create(create))
    }

    /// The attributes of a component, from those of the whole.
    fn attributes_at(place: &Place, whole: &Whole, drive: DriveId) -> SetAttributes {
        let version = Some(whole.version.0);
        if !place.is_home(drive) {
            return SetAttributes {
                access_control_version: version,
                // Nothing was written here yet; what is, has its time.
                fs_data_modify_time: Some(Timestamp(0)),
                ..SetAttributes::default()
            };
        }
        let attributes = &whole.attributes;
        SetAttributes {
            access_control_version: version,
            nearby_object: Some(attributes.nearby_object),
            logical_size: Some(attributes.logical_size),
            blocks_allocated: Some(attributes.blocks_allocated),
            block_size: None,
            fs_data_modify_time: Some(attributes.fs_data_modify_time),
            fs_attribute_modify_time: Some(attributes.fs_attribute_modify_time),
            fs_specific: Some(attributes.fs_specific.clone()),
        }
    }
}
