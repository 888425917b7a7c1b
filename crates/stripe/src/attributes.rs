//! Attributes of the whole, from those of its components; and removal.

use nasd_layout::MemberState;
use nasd_protocol::Status;
use nasd_protocol::drive::{GetattrArguments, RemoveArguments, SetattrArguments};
use nasd_types::limits::BLOCK_BYTES;
use nasd_types::{Attributes, DriveId, ObjectName, SetAttributes};

use crate::components::{Ask, ComponentError};
use crate::place::Place;
use crate::version::{ComponentVersion, MAX_VIRTUAL};
use crate::virtual_drive::{VirtualDrive, attributes, component};

/// An object as all of its components tell it.
pub(crate) struct Whole {
    pub(crate) attributes: Attributes,
    pub(crate) version: ComponentVersion,
    /// The lengths of components that were asked.
    pub(crate) lengths: Vec<(DriveId, u64)>,
}

impl VirtualDrive {
    /// What all components tell of the whole.
    pub(crate) fn whole(&self, name: ObjectName) -> Result<Whole, Status> {
        let place = self.place(name)?;
        let known = self.versions.get(name);
        let mut is_spread = known.is_some_and(ComponentVersion::is_spread);
        loop {
            let drives = askable(&place, is_spread);
            let ask = Ask::Getattr(GetattrArguments { name: component(name) });
            let questions = drives.iter().map(|drive| (*drive, ask.clone())).collect();
            let answers = self.components.ask(questions);
            let mut told = Vec::with_capacity(drives.len());
            for (drive, answer) in drives.iter().zip(answers) {
                told.push((*drive, attributes(answer).map_err(|error| error.status())?));
            }
            // The home component, which says whether there are others.
            let version = ComponentVersion(told[0].1.access_control_version);
            self.versions.put(name, version);
            if version.is_spread() && !is_spread {
                is_spread = true;
                continue;
            }
            if told.iter().any(|(_, told)| told.access_control_version != version.0) {
                // An attempt to raise it has come to nothing at some.
                self.versions.doubt(name);
            }
            let lengths = told.iter().map(|(drive, told)| (*drive, told.logical_size)).collect();
            let told = told.into_iter().map(|(_, attributes)| attributes).collect();
            return Ok(Whole { attributes: merged(told, &place, is_spread), version, lengths });
        }
    }

    pub(crate) fn getattr_whole(&self, name: ObjectName) -> Result<Attributes, Status> {
        Ok(self.whole(name)?.attributes)
    }

    /// Changes attributes of the whole.
    pub(crate) fn setattr_whole(
        &self,
        name: ObjectName,
        changes: &SetAttributes,
        durable: bool,
    ) -> Result<Attributes, Status> {
        let _alone = self.lock(name);
        let place = self.place_to_change(name)?;
        let version = self.known_version(name)?;
        if changes.logical_size.is_some() {
            self.close_appends(name)?;
        }
        let unit = place.shape.unit() / BLOCK_BYTES as u64;
        let version = match changes.blocks_allocated {
            // Other drives are to have their part of it.
            Some(blocks) if blocks > unit && !version.is_spread() => self.spread_locked(name)?,
            _ => version,
        };
        let mut changes = self.component_changes(version, changes)?;
        let version = self.before_resize(name, &place, version, &mut changes)?;
        if !version.is_spread() {
            return self.setattr_homes(name, &place, &changes, durable);
        }
        let before = self.whole(name)?;
        let reserved = reserved_then(&before.attributes, &changes);
        let blocks_allocated = reserved.map(|blocks| share_of_blocks(&place, blocks));
        let changes = SetAttributes { blocks_allocated, ..changes };
        let (home, others) = split_changes(&changes);
        let sized = |drive: DriveId, base: &SetAttributes, is_home: bool| {
            // Of drives that are joining it is not known.
            let known = before.lengths.iter().find(|(of, _)| *of == drive);
            let length = known.map_or(u64::MAX, |found| found.1);
            let cut = changes.logical_size.filter(|size| {
                // The home component alone makes an object longer than any byte that was written, and is as long as
                // the object then: what another one is longer than its columns is not given to who takes its place.
                length > *size || (is_home && length < *size)
            });
            SetAttributes { logical_size: cut, ..base.clone() }
        };
        let questions: Vec<_> = place
            .holders(true)
            .iter()
            .filter_map(|drive| {
                let is_home = place.is_home(*drive);
                let changes = sized(*drive, if is_home { &home } else { &others }, is_home);
                let changes_any = changes != SetAttributes::default();
                (changes_any || durable).then(|| (*drive, setattr(name, changes, durable)))
            })
            .collect();
        let is_raised = changes.access_control_version.is_some();
        if let Err(status) = self.ask_all(name, &place, questions, is_raised) {
            if status == Status::NoSpace && blocks_allocated.is_some() {
                self.reserve_again(name, &place, &before.attributes);
            }
            return Err(status);
        }
        if let Some(version) = changes.access_control_version {
            self.versions.put_everywhere(name, ComponentVersion(version));
        }
        self.getattr_whole(name)
    }

    /// Some drives had room for their part of what was to be reserved, and others not: each reserves what it did before,
    /// if it can be asked now.
    fn reserve_again(&self, name: ObjectName, place: &Place, before: &Attributes) {
        let blocks = share_of_blocks(place, reserved(before));
        let changes = SetAttributes { blocks_allocated: Some(blocks), ..SetAttributes::default() };
        let holders = place.holders(true).iter();
        let questions = holders.map(|drive| (*drive, setattr(name, changes.clone(), false)));
        self.components.ask(questions.collect());
    }

    /// A new length comes with a new version. So it is the same on all copies, whoever writes them: nobody goes on with
    /// a capability of before, whose writes might come before it at one copy and after it at another. What is known of
    /// the lengths of an object that is spread is not true any more either. And a drive that gets it late, after it was
    /// asked for again, and cuts off what was written since, can tell that by the version ([`Self::raise`]).
    fn before_resize(
        &self,
        name: ObjectName,
        place: &Place,
        version: ComponentVersion,
        changes: &mut SetAttributes,
    ) -> Result<ComponentVersion, Status> {
        if changes.logical_size.is_none() {
            return Ok(version);
        }
        let version = self.expect_writers(name, place, version)?;
        self.note_writing(name, place);
        if changes.access_control_version.is_none() {
            changes.access_control_version = Some(version.revoked().0);
        }
        Ok(version)
    }

    /// The same of an object that has home components alone.
    fn setattr_homes(
        &self,
        name: ObjectName,
        place: &Place,
        changes: &SetAttributes,
        durable: bool,
    ) -> Result<Attributes, Status> {
        let homes = place.homes().iter();
        let questions = homes.map(|drive| (*drive, setattr(name, changes.clone(), durable)));
        let is_raised = changes.access_control_version.is_some();
        let told = self.ask_all(name, place, questions.collect(), is_raised)?;
        if let Some(version) = changes.access_control_version {
            self.versions.put_everywhere(name, ComponentVersion(version));
        }
        // What those that are joining hold says nothing yet. The one that decides comes first, and is none of them.
        let told = place.homes().iter().zip(told);
        let (current, joining): (Vec<_>, Vec<_>) =
            told.partition(|(drive, _)| place.state_of(**drive) == MemberState::Current);
        let told = if current.is_empty() { joining } else { current };
        Ok(merged(told.into_iter().map(|(_, told)| told).collect(), place, false))
    }

    /// What changes of the whole are to its components: the version is theirs.
    pub(crate) fn component_changes(
        &self,
        version: ComponentVersion,
        changes: &SetAttributes,
    ) -> Result<SetAttributes, Status> {
        let raised = match changes.access_control_version {
            Some(asked) if asked < version.virtual_version() || asked > MAX_VIRTUAL => {
                return Err(Status::BadArgument);
            }
            // Setting what it is already revokes nothing.
            Some(asked) if asked == version.virtual_version() => None,
            Some(asked) => {
                Some(ComponentVersion::of(asked, version.is_spread(), version.has_writers()).0)
            }
            None => None,
        };
        Ok(SetAttributes { access_control_version: raised, ..changes.clone() })
    }

    /// Asks several drives about one object, the home first in the list; all must do it.
    fn ask_all(
        &self,
        name: ObjectName,
        place: &Place,
        questions: Vec<(DriveId, Ask)>,
        is_raised: bool,
    ) -> Result<Vec<Attributes>, Status> {
        let told: Result<Vec<_>, ComponentError> = match is_raised {
            true => self.ask_home_last(place, questions),
            false => self.components.ask(questions).into_iter().collect(),
        };
        let told = told.and_then(|told| told.into_iter().map(|it| attributes(Ok(it))).collect());
        told.map_err(|error| {
            // Some may have a new version, and others not.
            self.versions.doubt(name);
            if place.has_copies() {
                self.may_differ(name);
            }
            raise_failed(&error, is_raised)
        })
    }

    /// Removes the components, the homes last: until then it can be removed once more.
    pub(crate) fn remove_whole(&self, name: ObjectName, durable: bool) -> Result<(), Status> {
        let _alone = self.lock(name);
        let place = self.place_to_change(name)?;
        let version = self.known_version(name)?;
        let rest = if version.is_spread() { place.others() } else { &[] };
        for drives in [rest, place.homes()].into_iter().filter(|drives| !drives.is_empty()) {
            let remove = RemoveArguments { name: component(name), durable };
            let questions = drives.iter().map(|drive| (*drive, Ask::Remove(remove)));
            for answer in self.components.ask(questions.collect()) {
                match answer {
                    Ok(_) => {}
                    Err(error) if error.is_missing() => {}
                    Err(error) => return Err(error.status()),
                }
            }
        }
        self.versions.forget(name);
        self.writers.forget(name);
        self.forget_joined(name);
        Ok(())
    }
}

/// What is told of a failure. A version that would fall at one component was raised there by an attempt that
/// came to nothing at others; when these are level again the same can be done.
pub(crate) fn raise_failed(error: &ComponentError, is_raised: bool) -> Status {
    match error.status() {
        Status::BadArgument if is_raised => Status::Busy,
        status => status,
    }
}

/// Whom to ask about an object: of copies that say the same, one is enough.
pub(crate) fn askable(place: &Place, is_spread: bool) -> Vec<DriveId> {
    match place.is_striped(is_spread) {
        true => place.current(true).collect(),
        false => vec![place.home()],
    }
}

pub(crate) fn setattr(name: ObjectName, changes: SetAttributes, durable: bool) -> Ask {
    Ask::Setattr(SetattrArguments { name: component(name), durable, changes })
}

/// The changes of home components, and of the others: what they must have too for their own checks, for the times of
/// data, and to have room.
fn split_changes(changes: &SetAttributes) -> (SetAttributes, SetAttributes) {
    let home = SetAttributes { logical_size: None, ..changes.clone() };
    let others = SetAttributes {
        access_control_version: changes.access_control_version,
        blocks_allocated: changes.blocks_allocated,
        fs_data_modify_time: changes.fs_data_modify_time,
        ..SetAttributes::default()
    };
    (home, others)
}

/// Blocks that an object has reserved besides what it uses, with these; none where it reserves nothing.
pub(crate) fn reserved(attributes: &Attributes) -> u64 {
    let Attributes { blocks_allocated, blocks_used, .. } = *attributes;
    if blocks_allocated > blocks_used { blocks_allocated } else { 0 }
}

/// What a spread object reserves from now on, if that changes: what is behind a new end is given back.
fn reserved_then(before: &Attributes, changes: &SetAttributes) -> Option<u64> {
    changes.blocks_allocated.or_else(|| {
        let size = changes.logical_size.filter(|size| *size < before.logical_size)?;
        let left = size.div_ceil(BLOCK_BYTES as u64);
        (reserved(before) > left).then_some(left)
    })
}

/// How many of the blocks that are reserved for a spread object each of its components reserves.
pub(crate) fn share_of_blocks(place: &Place, blocks: u64) -> u64 {
    let block = BLOCK_BYTES as u64;
    place.shape.most_held(blocks.saturating_mul(block)).div_ceil(block)
}

/// The whole of components, the home component first. Of an object that is not spread copies may be among
/// them, or not; of one that is, all.
pub(crate) fn merged(mut told: Vec<Attributes>, place: &Place, is_spread: bool) -> Attributes {
    let others = told.split_off(1);
    let Some(home) = told.pop() else {
        unreachable!("invariant: an object has a home component");
    };
    let mut whole = home;
    let home_blocks = whole.blocks_used;
    let copies = u64::from(place.shape.copies());
    // Where the home component says all, what an attempt that came to nothing has left at another copy must not
    // be seen now and then.
    let is_striped = place.is_striped(is_spread);
    for other in others.iter().filter(|_| is_striped) {
        whole.logical_size = whole.logical_size.max(other.logical_size);
        whole.data_modify_time = whole.data_modify_time.max(other.data_modify_time);
        whole.data_version = whole.data_version.wrapping_add(other.data_version);
        whole.fs_data_modify_time = whole.fs_data_modify_time.max(other.fs_data_modify_time);
    }
    if is_striped {
        // What members have that did not tell is taken to be as much as the others have.
        let (all, asked) = (u64::from(place.shape.width()), others.len() as u64 + 1);
        let whole_of = |blocks: u64| blocks.saturating_mul(all) / asked / copies;
        let used = others.iter().map(|other| other.blocks_used).sum::<u64>() + home_blocks;
        let allocated = others.iter().map(|other| other.blocks_allocated).sum::<u64>();
        whole.blocks_used = whole_of(used);
        whole.blocks_allocated = whole_of(allocated.saturating_add(whole.blocks_allocated));
    }
    let version = ComponentVersion(whole.access_control_version);
    whole.access_control_version = version.virtual_version();
    whole
}

#[cfg(test)]
mod tests {
    use nasd_layout::Shape;
    use nasd_types::{FS_SPECIFIC_BYTES, ObjectId, Timestamp};

    use super::*;

    fn told(data_version: u64, modified: u64) -> Attributes {
        Attributes {
            access_control_version: 1,
            nearby_object: ObjectId(0),
            copied_object: ObjectId(0),
            logical_size: 10,
            blocks_allocated: 0,
            blocks_used: 1,
            block_size: BLOCK_BYTES as u32,
            create_time: Timestamp(1),
            data_modify_time: Timestamp(modified),
            data_version,
            attribute_modify_time: Timestamp(1),
            fs_data_modify_time: Timestamp(modified),
            fs_attribute_modify_time: Timestamp(1),
            fs_specific: Box::new([0; FS_SPECIFIC_BYTES]),
        }
    }

    #[test]
    fn a_write_at_any_component_is_another_version_of_the_whole_whatever_its_clock_says() {
        let states = vec![MemberState::Current; 2];
        let shape = Shape::new(4096, 2, 1).unwrap();
        let place = Place::new(shape, 1, ([1, 2].map(DriveId).to_vec(), states), &[]);
        let whole = |home, other| merged(vec![home, other], &place, true);
        let before = whole(told(100, 100), told(20, 20));
        // The other drive's clock is behind, and so what it writes is not the latest.
        let after = whole(told(100, 100), told(21, 21));
        assert_eq!(after.data_modify_time, before.data_modify_time);
        assert_ne!(after.data_version, before.data_version);
        assert_ne!(whole(told(101, 101), told(20, 20)).data_version, before.data_version);
        // Of what is not spread the home component says all.
        let at_home = |other| merged(vec![told(100, 100), other], &place, false).data_version;
        assert_eq!(at_home(told(20, 20)), at_home(told(21, 21)));
    }
}
