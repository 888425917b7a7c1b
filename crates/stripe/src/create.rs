//! New objects, and objects that get more components.

use nasd_protocol::Status;
use nasd_protocol::drive::{CreateArguments, Created, FastcopyArguments};
use nasd_types::{DriveId, ObjectId, ObjectName, PartitionId, SetAttributes, Timestamp};

use crate::attributes::{merged, raise_failed, setattr};
use crate::components::{Answer, Ask, ComponentError, Told};
use crate::mend::Lock;
use crate::place::Place;
use crate::version::{ComponentVersion, MAX_VIRTUAL};
use crate::virtual_drive::{VirtualDrive, component, component_partition, unexpected};

/// The version of a new object, if nobody says another one.
const FIRST_VERSION: u64 = 1;

impl VirtualDrive {
    /// A number for a new object.
    pub(crate) fn new_name(&self, partition: PartitionId) -> Result<ObjectName, Status> {
        let (group, groups) = self.next_group(partition)?;
        let object = self.numbers.draw(group, groups, |limit| self.keep_limit(limit))?;
        Ok(ObjectName { partition, object })
    }

    fn keep_limit(&self, limit: u64) -> Result<(), Status> {
        self.change_state(|state| {
            state.number_limit = limit;
            Ok(())
        })
    }

    /// Makes an object with its home components.
    pub(crate) fn create_whole(&self, arguments: &CreateArguments) -> Result<Created, Status> {
        if arguments.object.is_some() {
            // Where an object lies is in its number.
            return Err(Status::NotPermitted);
        }
        let name = self.new_name(arguments.partition)?;
        // Else who looks for what drives lack might find it at those alone, and take that for what is left of an object.
        let _alone = self.lock(name);
        let place = self.place(name)?;
        let (initial, version) = initial_of(&arguments.initial, &place)?;
        let create = CreateArguments {
            partition: component_partition(name.partition),
            object: Some(name.object),
            durable: arguments.durable,
            initial,
        };
        let homes = place.homes().iter();
        let questions = homes.map(|drive| (*drive, Ask::Create(create.clone()))).collect();
        let answers = self.components.ask(questions);
        let made: Result<Vec<_>, _> = answers.into_iter().map(created).collect();
        let made = made.map_err(|error| {
            self.give_up(name, place.homes());
            error.status()
        })?;
        self.versions.put_everywhere(name, version);
        self.note_writing(name, &place);
        let told = made.into_iter().map(|created| created.attributes).collect();
        Ok(Created { object: name.object, attributes: merged(told, &place, false) })
    }

    /// Makes an object of this number, durably, unless there is one.
    pub(crate) fn create_named(&self, name: ObjectName) -> Result<(), Status> {
        let place = self.place(name)?;
        let (initial, version) = initial_of(&SetAttributes::default(), &place)?;
        let create = CreateArguments {
            partition: component_partition(name.partition),
            object: Some(name.object),
            durable: true,
            initial,
        };
        // The home that decides comes last: an object that it has, all have.
        let (decides, others) = place.homes().split_at(1);
        for drives in [others, decides] {
            let questions = drives.iter().map(|drive| (*drive, Ask::Create(create.clone())));
            for answer in self.components.ask(questions.collect()) {
                match created(answer) {
                    // By an attempt that came to nothing elsewhere.
                    Ok(_) | Err(ComponentError::Answered(Status::ObjectExists)) => {}
                    Err(error) => return Err(error.status()),
                }
            }
        }
        self.versions.put(name, version);
        self.note_writing(name, &place);
        Ok(())
    }

    /// Removes what there is of an object that could not be made, as far as that can be done now; nobody knows its
    /// number.
    pub(crate) fn give_up(&self, name: ObjectName, homes: &[DriveId]) {
        if homes.len() > 1 {
            self.remove_unfinished([homes, &[]], name);
        }
    }

    /// Makes components for all columns of an object, unless there are, and has nobody write behind them who
    /// does not know.
    pub(crate) fn spread(&self, name: ObjectName) -> Result<ComponentVersion, Status> {
        let _alone = self.lock(name);
        self.spread_locked(name)
    }

    /// The same for who has the object's lock.
    pub(crate) fn spread_locked(&self, name: ObjectName) -> Result<ComponentVersion, Status> {
        self.mending(name, None, Lock::Held, || self.spread_now(name))
    }

    fn spread_now(&self, name: ObjectName) -> Result<ComponentVersion, Status> {
        let place = self.place_to_change(name)?;
        let version = self.known_version(name)?;
        if version.is_spread() || place.is_full() {
            return Ok(version);
        }
        let new = version.spread();
        self.make_components(name, &place, new)?;
        self.say_spread(name, &place, new)?;
        Ok(new)
    }

    /// Has the home components say that there are others: durable before anybody writes there.
    pub(crate) fn say_spread(
        &self,
        name: ObjectName,
        place: &Place,
        new: ComponentVersion,
    ) -> Result<(), Status> {
        let home = place.home();
        let changes =
            SetAttributes { access_control_version: Some(new.0), ..SetAttributes::default() };
        if new.has_writers() {
            self.find_writers(name);
        }
        // The length was that of the home component, and is that of the longest one from now on: a copy must not
        // have one that an attempt which came to nothing has left.
        let length = match self.writers.is_uneven(name) {
            true => {
                let told = self.getattr_at(home, name).map_err(|error| error.status())?;
                Some(told.logical_size)
            }
            false => None,
        };
        let homes = place.homes().iter();
        let questions = homes.map(|drive| {
            let logical_size = length.filter(|_| *drive != home);
            (*drive, setattr(name, SetAttributes { logical_size, ..changes.clone() }, true))
        });
        if let Err(error) = self.ask_home_last(place, questions.collect()) {
            self.versions.doubt(name);
            return Err(raise_failed(&error, true));
        }
        self.versions.put_everywhere(name, new);
        self.writers.fence(name);
        Ok(())
    }

    /// Makes empty components, durably; those that there are, from an attempt that came to nothing, get the
    /// version.
    pub(crate) fn make_components(
        &self,
        name: ObjectName,
        place: &Place,
        version: ComponentVersion,
    ) -> Result<(), Status> {
        let drives = place.others();
        let initial = SetAttributes {
            access_control_version: Some(version.0),
            // Nothing was written here: that there is a component now is no change of data.
            fs_data_modify_time: Some(Timestamp(0)),
            ..SetAttributes::default()
        };
        let create = CreateArguments {
            partition: component_partition(name.partition),
            object: Some(name.object).filter(|object| object.is_named()),
            durable: true,
            initial: initial.clone(),
        };
        let ask = |drive: &DriveId| match name.object {
            // Every partition has one on every drive.
            ObjectId::FIRST_OBJECT => (*drive, setattr(name, initial.clone(), true)),
            _ => (*drive, Ask::Create(create.clone())),
        };
        let answers = self.components.ask(drives.iter().map(ask).collect());
        for (drive, answer) in drives.iter().zip(answers) {
            match answer {
                Ok(_) => {}
                Err(ComponentError::Answered(Status::ObjectExists)) => {
                    let set = setattr(name, initial.clone(), true);
                    match self.components.ask_one(*drive, set) {
                        Err(error) if error.is_missing() => {
                            self.join_after_removal(name, place, *drive, create.clone())?;
                        }
                        told => told.map(drop).map_err(|error| error.status())?,
                    }
                }
                Err(error) => return Err(error.status()),
            }
        }
        Ok(())
    }

    /// An object that shares the blocks of another, component by component, in the same group.
    pub(crate) fn fastcopy_whole(&self, arguments: &FastcopyArguments) -> Result<Created, Status> {
        let source = arguments.name;
        let (group, groups) = {
            let state = self.state();
            let record = state.partitions.get(&source.partition).ok_or(Status::NoSuchPartition)?;
            (record.groups.group_of(source.object), record.groups.count())
        };
        let object = self.numbers.draw(group, groups, |limit| self.keep_limit(limit))?;
        let name = ObjectName { object, ..source };
        // The copy too: it is made at one drive after the other.
        let _alone = self.lock_both(source, name);
        let place = self.place_to_change(source)?;
        let version = self.hold_writers(source, &place)?;
        let has_writers = place.has_copies();
        // Drives copy the version too, and none falls.
        let new = if has_writers { version.with_writers() } else { version };
        // The home components last: without them it is no object.
        let (homes, rest) = place.holders(version.is_spread()).split_at(place.homes().len());
        let stages = [rest, homes].into_iter().filter(|drives| !drives.is_empty());
        for drives in stages {
            self.fastcopy_components((source, name), new, drives).inspect_err(|_| {
                self.remove_unfinished([homes, rest], name);
            })?;
        }
        self.versions.put_everywhere(name, new);
        // What the source had of copies that differ, the copy has.
        if has_writers && version.has_writers() {
            self.may_differ(name);
            self.writers.doubt_like(source, name);
        }
        self.note_writing(name, &place);
        self.rebuild.also(name);
        Ok(Created { object, attributes: self.getattr_whole(name)? })
    }

    /// Some drives copy what they have of an object.
    fn fastcopy_components(
        &self,
        (source, name): (ObjectName, ObjectName),
        version: ComponentVersion,
        drives: &[DriveId],
    ) -> Result<(), Status> {
        let copy = FastcopyArguments { name: component(source), copy: Some(name.object) };
        let questions = drives.iter().map(|drive| (*drive, Ask::Fastcopy(copy)));
        for answer in self.components.ask(questions.collect()) {
            created(answer).map_err(|error| error.status())?;
        }
        let changes =
            SetAttributes { access_control_version: Some(version.0), ..SetAttributes::default() };
        let questions = drives.iter().map(|drive| (*drive, setattr(name, changes.clone(), true)));
        for answer in self.components.ask(questions.collect()) {
            answer.map_err(|error| {
                // The source may have a higher one there, by an attempt that came to nothing elsewhere.
                self.versions.doubt(source);
                raise_failed(&error, true)
            })?;
        }
        Ok(())
    }

    /// Removes what there is of an object that could not be made whole, the homes first: what has one is an object.
    fn remove_unfinished(&self, stages: [&[DriveId]; 2], name: ObjectName) {
        let remove =
            nasd_protocol::drive::RemoveArguments { name: component(name), durable: false };
        for drives in stages {
            let questions = drives.iter().map(|drive| (*drive, Ask::Remove(remove)));
            let mut answers = self.components.ask(questions.collect()).into_iter();
            if answers.any(|answer| answer.is_err_and(|error| !error.is_missing())) {
                return;
            }
        }
    }
}

/// What the components of a new object begin with.
pub(crate) fn initial_of(
    initial: &SetAttributes,
    place: &Place,
) -> Result<(SetAttributes, ComponentVersion), Status> {
    let asked = initial.access_control_version.unwrap_or(FIRST_VERSION);
    if asked > MAX_VIRTUAL {
        return Err(Status::BadArgument);
    }
    // It will be written soon: to say so then would cost more than to say the contrary if it is not.
    let version = ComponentVersion::of(asked, false, place.has_copies());
    Ok((SetAttributes { access_control_version: Some(version.0), ..initial.clone() }, version))
}

fn created(answer: Answer) -> Result<Created, ComponentError> {
    match answer? {
        Told::Created(created) => Ok(created),
        other => Err(unexpected(&other)),
    }
}
