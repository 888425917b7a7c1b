//! Components on drives that are joining: before anything is done to an object, these have components of it too.

use std::sync::{Mutex, MutexGuard, PoisonError};

use nasd_layout::MemberState;
use nasd_protocol::Status;
use nasd_protocol::drive::CreateArguments;
use nasd_types::{Attributes, DriveId, ObjectId, ObjectName, SetAttributes, Timestamp};

use crate::attributes::{Whole, reserved, setattr, share_of_blocks};
use crate::components::{Ask, ComponentError};
use crate::place::Place;
use crate::recent::Recent;
use crate::version::ComponentVersion;
use crate::virtual_drive::{VirtualDrive, component_partition};

/// Most objects that are remembered.
const MOST: usize = 1 << 20;

/// Objects that are known to have components on all drives that are joining: those that were used lately. What is
/// forgotten is made sure of once more.
#[derive(Debug)]
pub(crate) struct Joined(Mutex<Recent<()>>);

impl Default for Joined {
    fn default() -> Joined {
        Joined(Mutex::new(Recent::new(MOST)))
    }
}

impl Joined {
    fn lock(&self) -> MutexGuard<'_, Recent<()>> {
        // Every change leaves it whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn insert(&self, name: ObjectName) {
        self.lock().put(name, ());
    }

    fn contains(&self, name: ObjectName) -> bool {
        // Who is asked about is not forgotten while something is done to it.
        self.lock().get(name).is_some()
    }

    fn remove(&self, name: ObjectName) {
        self.lock().remove(name);
    }

    /// Others are joining.
    pub(crate) fn clear(&self) {
        self.lock().clear();
    }
}

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

    /// Drives that are joining have components of an object from now on.
    pub(crate) fn note_joined(&self, name: ObjectName) {
        self.joined.insert(name);
    }

    /// Whether drives that are joining are known to have components of an object.
    pub(crate) fn has_joined(&self, name: ObjectName) -> bool {
        self.joined.contains(name)
    }

    /// Forgets that, as the object is no more.
    pub(crate) fn forget_joined(&self, name: ObjectName) {
        self.joined.remove(name);
    }

    /// A drive that is to have a component of an object may have to be asked about it only if it is known to.
    pub(crate) fn may_lack(&self, name: ObjectName, place: &Place, drive: DriveId) -> bool {
        place.state_of(drive) == MemberState::Joining
            && !place.is_doubted(drive)
            && !self.has_joined(name)
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
        loop {
            let before = self.versions.get(name);
            for drive in &joining {
                self.join_component(name, place, whole, *drive)?;
            }
            // Another one that joined may have got an earlier version than it has now.
            if self.versions.get(name) == before {
                break;
            }
        }
        self.joined.insert(name);
        Ok(())
    }

    fn join_component(
        &self,
        name: ObjectName,
        place: &Place,
        whole: &Whole,
        drive: DriveId,
    ) -> Result<(), Status> {
        let version =
            self.versions.get(name).map_or(whole.version, |known| known.max(whole.version));
        let attributes = Self::attributes_at(place, (whole, version), drive);
        let partition = component_partition(name.partition);
        let create = CreateArguments {
            partition,
            object: Some(name.object),
            // Everybody counts on it, before it is heard that the drive was started anew too.
            durable: true,
            initial: attributes.clone(),
        };
        let made = match name.object {
            // Every partition has one on every drive.
            ObjectId::FIRST_OBJECT => Err(ComponentError::Answered(Status::ObjectExists)),
            _ => self.components.ask_one(drive, Ask::Create(create.clone())),
        };
        let told = match made {
            Err(ComponentError::Answered(Status::ObjectExists)) => {
                let had = match self.getattr_at(drive, name) {
                    Ok(had) => had,
                    Err(error) if error.is_missing() => {
                        return self.join_after_removal(name, place, drive, create);
                    }
                    Err(error) => return Err(error.status()),
                };
                // What is behind the end is not there any more.
                let end = attributes.logical_size.unwrap_or(whole.attributes.logical_size);
                let logical_size =
                    Some(had.logical_size.min(end).max(attributes.logical_size.unwrap_or(0)));
                let is_resized = logical_size != Some(had.logical_size);
                let version = match is_resized && had.access_control_version == version.0 {
                    true => self.set_version(name, place, version.revoked())?,
                    false => version,
                };
                let changes = SetAttributes {
                    access_control_version: Some(version.0),
                    logical_size,
                    ..attributes
                };
                match self.components.ask_one(drive, setattr(name, changes, false)) {
                    // An attempt that came to nothing elsewhere has left a later version here.
                    Err(ComponentError::Answered(Status::BadArgument)) => {
                        return self.outdo(name, place, whole, &had);
                    }
                    told => told,
                }
            }
            made => made,
        };
        told.map(drop).map_err(|error| error.status())
    }

    /// A drive makes no component of an object that it has had, as long as its removal is not durable there, or others
    /// have blocks in common with it.
    pub(crate) fn join_after_removal(
        &self,
        name: ObjectName,
        place: &Place,
        drive: DriveId,
        create: CreateArguments,
    ) -> Result<(), Status> {
        let flush = Ask::Flush { partition: create.partition, objects: Vec::new() };
        self.components.ask_one(drive, flush).map_err(|error| error.status())?;
        match self.components.ask_one(drive, Ask::Create(create)) {
            Err(ComponentError::Answered(Status::ObjectExists)) => {
                tracing::warn!(%name, %drive, "a drive can't have a component again that it has had");
                if place.is_stand_in(drive) {
                    self.keep_place(name, drive);
                }
                Err(Status::Busy)
            }
            made => made.map(drop).map_err(|error| error.status()),
        }
    }

    /// Raises the version of all components above that of one which has a later one; all else is for the next attempt.
    fn outdo(
        &self,
        name: ObjectName,
        place: &Place,
        whole: &Whole,
        had: &Attributes,
    ) -> Result<(), Status> {
        let had = ComponentVersion(had.access_control_version);
        let had = if whole.version.has_writers() { had.with_writers() } else { had };
        if had.is_spread() && !whole.version.is_spread() {
            // It is spread now, as it was to be: a version that is higher and not spread would be another one of the
            // virtual object.
            self.make_components(name, place, had.revoked())?;
            self.say_spread(name, place, had.revoked())?;
            return Err(Status::Busy);
        }
        let had = if whole.version.is_spread() { had.spread() } else { had };
        let above = had.revoked();
        match self.set_version(name, place, above) {
            Err(Status::NoSuchObject) => self.complete(name, place, whole)?,
            raised => drop(raised?),
        }
        Err(Status::Busy)
    }

    /// Makes components that an object should have and has not: nobody has ever used it, as it could not be made at
    /// all copies, nor what was made be removed.
    fn complete(&self, name: ObjectName, place: &Place, whole: &Whole) -> Result<(), Status> {
        self.may_differ(name);
        for drive in place.holders(whole.version.is_spread()) {
            match self.getattr_at(*drive, name) {
                Err(error) if error.is_missing() => {
                    self.join_component(name, place, whole, *drive)?;
                }
                told => drop(told.map_err(|error| error.status())?),
            }
        }
        Ok(())
    }

    /// The attributes of a component, from those of the whole.
    pub(crate) fn attributes_at(
        place: &Place,
        (whole, version): (&Whole, ComponentVersion),
        drive: DriveId,
    ) -> SetAttributes {
        let version = Some(version.0);
        let attributes = &whole.attributes;
        let blocks_allocated = Some(match whole.version.is_spread() {
            true => share_of_blocks(place, reserved(attributes)),
            false => reserved(attributes),
        });
        if !place.is_home(drive) {
            return SetAttributes {
                access_control_version: version,
                blocks_allocated,
                // Nothing was written here yet; what is, has its time.
                fs_data_modify_time: Some(Timestamp(0)),
                ..SetAttributes::default()
            };
        }
        SetAttributes {
            access_control_version: version,
            nearby_object: Some(attributes.nearby_object),
            logical_size: Some(attributes.logical_size),
            blocks_allocated,
            block_size: None,
            fs_data_modify_time: Some(attributes.fs_data_modify_time),
            fs_attribute_modify_time: Some(attributes.fs_attribute_modify_time),
            fs_specific: Some(attributes.fs_specific.clone()),
        }
    }
}
