//! How many bytes the volume's files have at the drives, at each moment: they never have more together than the quota allows, and who is told
//! that there is no room for something is told so for a reason.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nasd_drive::Drive;
use nasd_types::{DriveId, ObjectId, ObjectName};

use crate::drives::{ComponentDrive, PARTITION};
use crate::turns::{Time, lock};
use crate::watching::{Changed, Watch};

/// A drive has fewer objects in a run.
const MOST_OBJECTS: usize = 10_000;

/// Where an object is.
pub(super) type Place = (DriveId, ObjectId);

/// One that has another length than it had.
#[derive(Clone, Copy, Debug)]
struct Change {
    when: Duration,
    place: Place,
    length: u64,
}

/// See the module.
pub(super) struct Lengths {
    time: Arc<Time>,
    quota: Option<u64>,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// The volume's own objects, which no quota counts; nothing before they are known.
    uncounted: Option<BTreeSet<Place>>,
    /// Of a drive that is away, what it had.
    present: BTreeMap<Place, u64>,
    changes: Vec<Change>,
}

impl Inner {
    fn sum(&self) -> u64 {
        self.present.values().sum()
    }
}

fn length(store: &Drive, object: ObjectId) -> u64 {
    let name = ObjectName { partition: PARTITION, object };
    store.store().getattr(name).map_or(0, |attributes| attributes.logical_size)
}

fn objects(store: &Drive) -> Vec<ObjectId> {
    let objects = store.store().list(PARTITION, ObjectId::FIRST_DYNAMIC, MOST_OBJECTS);
    objects.unwrap_or_default()
}

impl Lengths {
    pub(super) fn new(time: &Arc<Time>, quota: Option<u64>) -> Arc<Lengths> {
        Arc::new(Lengths { time: Arc::clone(time), quota, inner: Mutex::default() })
    }

    /// All files and directories there are were just made, and nobody does anything: all else that has contents by now is the volume's own.
    pub(super) fn begin(
        &self,
        drives: &[Arc<ComponentDrive>],
        files: &[Place],
        directories: &[Place],
    ) {
        if self.quota.is_none() {
            return;
        }
        let running: Vec<(DriveId, Arc<Drive>)> =
            drives.iter().filter_map(|drive| Some((drive.drive, drive.running()?))).collect();
        let mut uncounted: BTreeSet<Place> = directories.iter().copied().collect();
        for (drive, store) in &running {
            let has_contents = |object: &ObjectId| length(store, *object) > 0;
            let objects = objects(store).into_iter().filter(has_contents);
            let places = objects.map(|object| (*drive, object));
            uncounted.extend(places.filter(|place| !files.contains(place)));
        }
        lock(&self.inner).uncounted = Some(uncounted);
        running.iter().for_each(|(drive, store)| self.look(*drive, store, Changed::All));
    }

    /// Bytes of all files.
    pub(super) fn sum(&self) -> u64 {
        lock(&self.inner).sum()
    }

    /// Whether there was room for a file of this length even if each other one still counted for the most that it has had since a moment: the file
    /// manager may not have heard of what was cut or removed.
    pub(super) fn has_had_room(&self, since: Duration, file: Place, length: u64) -> bool {
        let inner = lock(&self.inner);
        let (before, after): (Vec<&Change>, Vec<&Change>) =
            inner.changes.iter().partition(|change| change.when < since);
        let mut most: BTreeMap<Place, u64> =
            before.iter().map(|change| (change.place, change.length)).collect();
        for change in after {
            let known = most.entry(change.place).or_default();
            *known = change.length.max(*known);
        }
        most.remove(&file);
        most.values().sum::<u64>() + length <= self.quota.unwrap_or(u64::MAX)
    }

    /// Objects have these lengths now.
    fn note(&self, lengths: &[(Place, u64)]) {
        let (when, quota) = (self.time.now(), self.quota.unwrap_or(u64::MAX));
        let mut inner = lock(&self.inner);
        let mut changes = Vec::new();
        for (place, length) in lengths.iter().copied() {
            let uncounted = inner.uncounted.as_ref();
            let is_counted = uncounted.is_some_and(|others| !others.contains(&place));
            if is_counted && inner.present.insert(place, length).unwrap_or(0) != length {
                changes.push(Change { when, place, length });
            }
        }
        if changes.is_empty() {
            return;
        }
        let sum = inner.sum();
        inner.changes.extend(&changes);
        drop(inner);
        let told = || changes.iter().map(|it| (it.place.0.0, it.place.1.0, it.length));
        let told = || format!("{:x?}", told().collect::<Vec<_>>());
        self.time.tell(|| format!("files have other lengths, {sum} of {quota}: {}", told()));
        if sum > quota {
            self.time.fail(format!("files have {sum} bytes, and may have {quota}: {}", told()));
        }
    }
}

impl Watch for Lengths {
    fn look(&self, drive: DriveId, store: &Drive, changed: Changed) {
        if lock(&self.inner).uncounted.is_none() {
            return;
        }
        let objects: BTreeSet<ObjectId> = match changed {
            Changed::Named(objects) => {
                objects.into_iter().filter(|object| *object >= ObjectId::FIRST_DYNAMIC).collect()
            }
            Changed::All => {
                let inner = lock(&self.inner);
                let known = inner.present.keys().filter(|place| place.0 == drive);
                let known: Vec<ObjectId> = known.map(|place| place.1).collect();
                objects(store).into_iter().chain(known).collect()
            }
        };
        let lengths: Vec<(Place, u64)> =
            objects.into_iter().map(|object| ((drive, object), length(store, object))).collect();
        self.note(&lengths);
    }
}
