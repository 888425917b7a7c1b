//! The volumes that a manager serves: each with its own partitions, keys and name space.
//!
//! The cell's first volume is always there, and without it nothing is served. Further ones are written
//! down in a table ([`crate::config::VolumeTable`]), come and go while the manager runs, and
//! don't wait for each other: one whose root's drive is away is tried again with the housekeeping.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use nasd_protocol::drive::PartitionControl;
use nasd_protocol::limits::MAX_VOLUMES;
use nasd_protocol::manager::{
    DriveAddress, ManagerStatus, Name, Procedure, VolumePart, VolumePartList, VolumeSummary,
    WorkingKeyState,
};
use nasd_types::{DriveId, Location, PartitionId, Personality};
use nasd_xdr::Decoder;

use crate::config::{DriveConfig, ManagerConfig, TableError, VolumeTable};
use crate::keys::WorkingKeys;
use crate::mint::MintOptions;
use crate::namespace::{Backlog, Cached, Namespace, NamespaceOptions, Outcome, StartError};
use crate::objects::ObjectStore;
use crate::objects::remote::RemoteDrives;
use crate::rotation::Rotation;
use crate::server::ServerError;

/// How long a capability to be handed on is good at most where working keys are not changed by
/// schedule. Else it is the interval: a key that is replaced lives for one more as the previous one.
const LONGEST_WITHOUT_ROTATION: Duration = Duration::from_secs(30 * 24 * 3600);

/// Where the parts of a volume are, by the drives where they were made.
struct Parts(BTreeMap<DriveId, Part>);

struct Part {
    index: u32,
    location: Location,
    address: String,
}

impl Parts {
    fn new(drives: &[DriveConfig]) -> Parts {
        let mut parts = Parts(BTreeMap::new());
        drives.iter().for_each(|drive| parts.put(drive));
        parts
    }

    fn put(&mut self, told: &DriveConfig) {
        let (index, location, address) = (told.index, told.location(), told.address.clone());
        self.0.insert(told.id, Part { index, location, address });
    }

    /// What clients are told: where each drive is that has a part; and of those by which files are known, that have none any more, the index.
    fn addresses(&self) -> Vec<DriveAddress> {
        let at = |drive: DriveId, index: u32, address: &String| {
            (drive, DriveAddress { drive, address: address.clone(), index })
        };
        let names = self.0.iter().map(|(made, part)| at(*made, part.index, &part.address));
        let mut told: BTreeMap<DriveId, DriveAddress> = names.collect();
        for part in self.0.values() {
            let drive = part.location.drive;
            let index = self.0.get(&drive).map_or(part.index, |known| known.index);
            told.extend([at(drive, index, &part.address)]);
        }
        told.into_values().collect()
    }
}

/// One volume.
pub(crate) struct Volume {
    name: Name,
    parts: Mutex<Parts>,
    objects: Arc<dyn ObjectStore>,
    /// The same objects, if they are at drives.
    remote: Option<Arc<RemoteDrives>>,
    rotation: Option<Rotation>,
    options: NamespaceOptions,
    /// It may change while the volume is served.
    quota: Mutex<Option<u64>>,
    /// Once it could be opened.
    names: OnceLock<Arc<Namespace>>,
    /// What the last housekeeping could not finish.
    backlog: AtomicU64,
}

impl Volume {
    /// Over drives, whose keys are changed if somebody keeps them.
    fn remote(config: &ManagerConfig) -> Volume {
        let keys = working_keys(config);
        let drives = Arc::new(RemoteDrives::new(config, Arc::clone(&keys)));
        let rotation = config
            .keeper
            .as_ref()
            .map(|_| Rotation::new(Arc::clone(&drives), config.rotation_interval));
        let remote = Some(Arc::clone(&drives));
        Volume { remote, ..Volume::new(drives, rotation, keys, config) }
    }

    fn new(
        objects: Arc<dyn ObjectStore>,
        rotation: Option<Rotation>,
        keys: Arc<WorkingKeys>,
        config: &ManagerConfig,
    ) -> Volume {
        Volume {
            name: config.volume.clone(),
            parts: Mutex::new(Parts::new(&config.drives)),
            objects,
            remote: None,
            rotation,
            options: namespace_options(config, keys),
            quota: Mutex::new(config.quota),
            names: OnceLock::new(),
            backlog: AtomicU64::new(0),
        }
    }

    /// Its name.
    pub(crate) fn name(&self) -> &Name {
        &self.name
    }

    /// How it behaves for those who share its files.
    pub(crate) const fn personality(&self) -> Personality {
        self.options.personality
    }

    /// Whether nobody changes anything in it.
    pub(crate) const fn is_read_only(&self) -> bool {
        self.options.read_only
    }

    /// New working keys at all its drives, twice: no capability that was given out is good any more. `false` where a drive has not
    /// got them yet.
    pub(crate) fn revoke_all(&self) -> bool {
        let Some(rotation) = &self.rotation else {
            return true;
        };
        match rotation.rotate(true) {
            Ok(states) => states.iter().all(|state| state.done),
            Err(error) => {
                tracing::error!(volume = %self.name, %error, "the working keys are not changed");
                false
            }
        }
    }

    /// Its drives, as clients are told of them.
    pub(crate) fn drives(&self) -> Vec<DriveAddress> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).addresses()
    }

    /// Where a drive is reached that has a part of it now.
    fn address_of(&self, drive: DriveId) -> Option<String> {
        let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let found = parts.0.values().find(|part| part.location.drive == drive);
        found.map(|part| part.address.clone())
    }

    /// A part that nothing changes in is elsewhere from now on, on a drive that is reached there if that is known: `write_down` makes that durable.
    fn move_part(
        &self,
        part: DriveId,
        (to, address): (Location, Option<String>),
        write_down: impl FnOnce() -> Result<DriveConfig, TableError>,
    ) -> Outcome<()> {
        let remote = self.remote.as_ref().ok_or(ManagerStatus::NotSupported)?;
        if remote.location(part).is_none() {
            return Err(ManagerStatus::NotFound);
        }
        if remote.location(part) == Some(to) {
            // Who asks has not heard that it was.
            return Ok(());
        }
        let moved = remote.relocate(part, (to, address), || {
            let told = write_down()?;
            let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
            parts.put(&told);
            Ok(told)
        });
        match moved {
            Ok(()) => {
                tracing::info!(volume = %self.name, %part, ?to, "a part of the volume was moved");
                Ok(())
            }
            Err(error) => {
                tracing::error!(volume = %self.name, %part, ?to, %error, "a part of the volume was not moved");
                Err(ManagerStatus::Io)
            }
        }
    }

    /// Opens the name space, unless it is. Callers must not be several at a time.
    fn open(&self) -> Result<&Arc<Namespace>, StartError> {
        if let Some(names) = self.names.get() {
            return Ok(names);
        }
        let options = NamespaceOptions { quota: self.quota(), ..self.options.clone() };
        let names = Namespace::open(Arc::clone(&self.objects), options)?;
        self.fence();
        Ok(self.names.get_or_init(|| Arc::new(names)))
    }

    /// Where there are callbacks: what the file manager before this one has sent to drives and they have not done yet is not done any more, and
    /// no capability that it has given is good. Of drives that are not told yet nothing is promised; of none, if that can't be written down for
    /// all: then housekeeping tries again.
    fn fence(&self) {
        if self.personality() != Personality::Afs {
            return;
        }
        let Some(rotation) = &self.rotation else {
            return;
        };
        self.options.keys.begin_fencing();
        match rotation.rotate(true) {
            Ok(_) => self.options.keys.fencing_is_noted(),
            Err(error) => {
                tracing::error!(volume = %self.name, %error, "the working keys are not changed: no file is read or stored yet");
            }
        }
    }

    fn quota(&self) -> Option<u64> {
        *self.quota.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its files may have so many bytes from now on. Callers must not be several at a time.
    fn set_quota(&self, quota: Option<u64>) {
        let before = {
            let mut present = self.quota.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *present, quota)
        };
        if let Some(names) = self.names.get().filter(|_| before != quota) {
            tracing::info!(volume = %self.name, ?quota, "the volume has another quota");
            names.set_quota(quota);
        }
    }

    fn open_or_wait(&self) {
        if let Err(error) = self.open() {
            tracing::warn!(volume = %self.name, %error, "the volume is not served yet");
        }
    }

    fn served(&self) -> Outcome<Arc<Namespace>> {
        self.names.get().cloned().ok_or(ManagerStatus::Unavailable)
    }

    fn has(&self, drive: DriveId, partition: PartitionId) -> bool {
        self.objects.partition(drive) == Some(partition)
    }

    /// Whether it has the same name and partitions as another, at the same places.
    fn is_same(&self, other: &Volume) -> bool {
        let drives = |volume: &Volume| volume.objects.drives();
        let place = |volume: &Volume, drive| {
            (volume.objects.partition(drive), volume.objects.location(drive))
        };
        self.name == other.name
            && self.personality() == other.personality()
            && self.is_read_only() == other.is_read_only()
            && drives(self) == drives(other)
            && drives(self).into_iter().all(|drive| place(self, drive) == place(other, drive))
    }
}

/// All volumes.
pub(crate) struct Volumes {
    first: Arc<Namespace>,
    /// The first one first.
    list: RwLock<Vec<Arc<Volume>>>,
    /// Of the first, and what all have in common.
    config: ManagerConfig,
    /// Held while volumes are opened or the table is read.
    turn: Mutex<()>,
}

impl fmt::Debug for Volumes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.list().iter().map(|volume| volume.name.clone())).finish()
    }
}

impl Volumes {
    /// Opens the volume of a configuration, waiting for its home, and those in its table.
    ///
    /// # Errors
    /// `Config`, `Start` or `Table`.
    pub(crate) fn open(config: &ManagerConfig) -> Result<Volumes, ServerError> {
        config.check()?;
        let volumes = Volumes::with_first(Volume::remote(config), config)?;
        volumes.reload()?;
        Ok(volumes)
    }

    /// One volume over any objects, whose working keys never change.
    ///
    /// # Errors
    /// `Start`.
    pub(crate) fn over(
        objects: Arc<dyn ObjectStore>,
        config: &ManagerConfig,
    ) -> Result<Volumes, StartError> {
        Volumes::with_first(Volume::new(objects, None, working_keys(config), config), config)
    }

    fn with_first(first: Volume, config: &ManagerConfig) -> Result<Volumes, StartError> {
        Ok(Volumes {
            first: Arc::clone(first.open()?),
            list: RwLock::new(vec![Arc::new(first)]),
            config: config.clone(),
            turn: Mutex::new(()),
        })
    }

    /// The name space of the first volume.
    pub(crate) fn first(&self) -> &Arc<Namespace> {
        &self.first
    }

    /// The name of the first volume.
    pub(crate) fn first_name(&self) -> Name {
        self.config.volume.clone()
    }

    /// The objects of the first volume, which every drive of the cell has a partition for.
    pub(crate) fn first_objects(&self) -> Arc<dyn ObjectStore> {
        Arc::clone(&self.first_volume().objects)
    }

    fn first_volume(&self) -> Arc<Volume> {
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(list.first().expect("invariant: the first volume is always there"))
    }

    fn list(&self) -> Vec<Arc<Volume>> {
        self.list.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The name spaces of the volumes that are served now.
    pub(crate) fn open_ones(&self) -> impl Iterator<Item = Arc<Namespace>> {
        self.list().into_iter().filter_map(|volume| volume.names.get().cloned())
    }

    /// The volume of that name, the empty one being the first's, and its name space.
    pub(crate) fn served(&self, name: &Name) -> Outcome<(Arc<Volume>, Arc<Namespace>)> {
        let volume = self.find(name)?;
        let names = volume.served()?;
        Ok((volume, names))
    }

    /// The name space of the volume of that name.
    pub(crate) fn named(&self, name: &Name) -> Outcome<Arc<Namespace>> {
        self.served(name).map(|(_, names)| names)
    }

    pub(crate) fn find(&self, name: &Name) -> Outcome<Arc<Volume>> {
        if name.as_bytes().is_empty() {
            return Ok(self.first_volume());
        }
        let found = self.list().into_iter().find(|volume| volume.name == *name);
        found.ok_or(ManagerStatus::NotFound)
    }

    /// Where a drive is reached that some volume has a part on.
    pub(crate) fn address(&self, drive: DriveId) -> Option<String> {
        self.list().into_iter().find_map(|volume| volume.address_of(drive))
    }

    /// A part of a volume is elsewhere from now on, which is written down in the table, if `is_held` says at the last moment that nothing has
    /// changed in the volume since it was copied.
    pub(crate) fn move_part(
        &self,
        volume: &Volume,
        part: DriveId,
        to: Location,
        is_held: impl FnOnce() -> bool,
    ) -> Outcome<()> {
        // The table is not read meanwhile.
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let table = self.config.table.as_ref().ok_or(ManagerStatus::NotSupported)?;
        let place = (to, self.address(to.drive));
        volume.move_part(part, place, || match is_held() {
            true => table
                .move_part(&volume.name, part, to)
                .or_else(|error| told_of(table.as_ref(), &volume.name, part, to).ok_or(error)),
            false => Err(TableError("the volume is not held any more".to_owned())),
        })
    }

    /// The name space that a call is about: arguments of procedures about files begin with a
    /// handle. One that is of no volume is refused by whichever looks at it, as are arguments that
    /// make no sense.
    pub(crate) fn of_arguments(
        &self,
        procedure: Procedure,
        arguments: &[u8],
    ) -> Outcome<Arc<Namespace>> {
        let place = if begins_with_handle(procedure) { first_place(arguments) } else { None };
        let Some((drive, partition)) = place else { return Ok(Arc::clone(&self.first)) };
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        match list.iter().find(|volume| volume.has(drive, partition)) {
            Some(volume) => volume.served(),
            None => Ok(Arc::clone(&self.first)),
        }
    }

    /// Which there are.
    pub(crate) fn summaries(&self) -> Vec<VolumeSummary> {
        let summary = |volume: &Arc<Volume>| VolumeSummary {
            name: volume.name.clone(),
            serving: volume.names.get().is_some(),
            backlog: volume.backlog.load(Ordering::Relaxed),
            personality: volume.options.personality,
            read_only: volume.options.read_only,
        };
        self.list().iter().map(summary).collect()
    }

    /// Which there are, and what is in memory of each.
    pub(crate) fn cached(&self) -> Vec<(VolumeSummary, Cached)> {
        let cached = |volume: &Arc<Volume>| {
            volume.names.get().map_or_else(Cached::default, |names| names.cached())
        };
        self.summaries().into_iter().zip(self.list().iter().map(cached)).collect()
    }

    /// What a volume has on each of its drives, all asked at the same time.
    pub(crate) fn parts(&self, name: &Name) -> Outcome<VolumePartList> {
        let volume = self.find(name)?;
        let objects = &volume.objects;
        let parts = std::thread::scope(|scope| {
            let ask = |drive: DriveId| {
                (drive, scope.spawn(move || objects.partition_control(drive).ok()))
            };
            let asked: Vec<_> = objects.drives().into_iter().map(ask).collect();
            let told = asked.into_iter().filter_map(|(drive, answer)| {
                let made = Location { drive, partition: objects.partition(drive)? };
                Some(part(made, objects.location(drive)?, answer.join().ok().flatten()))
            });
            told.collect()
        });
        Ok(VolumePartList { parts })
    }

    /// Reads the table anew: volumes that are in it no more are not served when this returns, new
    /// ones are made, and the others go on.
    ///
    /// # Errors
    /// What the table says; then all stays as it was.
    pub(crate) fn reload(&self) -> Result<(), TableError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(table) = &self.config.table else { return Ok(()) };
        let told = table.volumes()?;
        if told.len() >= MAX_VOLUMES {
            return Err(TableError(format!("a cell has at most {MAX_VOLUMES} volumes")));
        }
        let present = self.list();
        let (mut next, mut quotas) = (vec![self.first_volume()], Vec::new());
        for config in &told {
            let config = self.config.of_volume(config);
            config.check().map_err(|error| TableError(format!("{}: {error}", config.volume)))?;
            let volume = Volume::remote(&config);
            if next.iter().any(|other| other.name == volume.name) {
                return Err(TableError(format!("there are two volumes `{}`", volume.name)));
            }
            let known = present.iter().find(|known| known.is_same(&volume));
            if let Some(known) = known {
                quotas.push((Arc::clone(known), config.quota));
            }
            next.push(known.cloned().unwrap_or_else(|| Arc::new(volume)));
        }
        for (volume, quota) in quotas {
            volume.set_quota(quota);
        }
        for volume in &next {
            volume.open_or_wait();
        }
        *self.list.write().unwrap_or_else(PoisonError::into_inner) = next;
        Ok(())
    }

    /// What is due in all volumes; those that could not be opened are tried again.
    pub(crate) fn keep_house(&self) {
        for volume in self.list() {
            if volume.names.get().is_none() {
                let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
                volume.open_or_wait();
            } else if volume.options.keys.is_to_be_fenced() {
                volume.fence();
            }
            if let Some(names) = volume.names.get() {
                let Backlog { objects, changes } = names.keep_house();
                volume.backlog.store((objects + changes) as u64, Ordering::Relaxed);
            }
        }
    }

    /// Makes durable what was answered in all volumes, and brings home what fills their journals.
    pub(crate) fn tend_journals(&self) {
        self.list().iter().filter_map(|volume| volume.names.get()).for_each(|names| {
            names.tend_journal();
        });
    }

    /// Brings home what is in the journals of all volumes, as far as that goes now.
    pub(crate) fn settle(&self) {
        for names in self.list().iter().filter_map(|volume| volume.names.get()) {
            // The reasons were logged.
            let _ = names.bring_home().and_then(|()| names.commit());
        }
    }

    /// Counts the files of volumes that have a quota, where that is still to be done.
    pub(crate) fn count_files(&self) {
        self.list().iter().filter_map(|volume| volume.names.get()).for_each(|names| {
            names.count_files();
        });
    }

    /// Makes objects ahead where few are left.
    pub(crate) fn make_ahead(&self) {
        self.list().iter().filter_map(|volume| volume.names.get()).for_each(|names| {
            names.make_ahead();
        });
    }

    /// Changes every working key that is due.
    pub(crate) fn tend_keys(&self) {
        for volume in self.list() {
            if let Some(rotation) = &volume.rotation {
                rotation.tend();
            }
        }
    }

    /// Changes the working keys of all volumes, also of those that wait to be served. What is told of
    /// a drive has the number of the first volume's key, and is done when all are.
    pub(crate) fn rotate(&self, at_once: bool) -> Outcome<Vec<WorkingKeyState>> {
        let mut told: Vec<WorkingKeyState> = Vec::new();
        for volume in self.list() {
            let rotation = volume.rotation.as_ref().ok_or(ManagerStatus::Invalid)?;
            let states = rotation.rotate(at_once).map_err(|error| {
                tracing::error!(volume = %volume.name, %error, "the working keys are not changed");
                ManagerStatus::Io
            })?;
            for state in states {
                match told.iter_mut().find(|known| known.drive == state.drive) {
                    Some(known) => known.done &= state.done,
                    None => told.push(state),
                }
            }
        }
        Ok(told)
    }
}

/// A part that the table has at that place, though it could not say so when it was to write that down: there it is after the next start too.
fn told_of(
    table: &dyn VolumeTable,
    volume: &Name,
    part: DriveId,
    to: Location,
) -> Option<DriveConfig> {
    let told = table.volumes().ok()?.into_iter().find(|told| told.name == *volume)?;
    told.drives.into_iter().find(|drive| drive.id == part && drive.location() == to)
}

fn part(made: Location, is: Location, told: Option<PartitionControl>) -> VolumePart {
    VolumePart {
        drive: is.drive,
        partition: is.partition,
        made_drive: made.drive,
        made_partition: made.partition,
        reachable: told.is_some(),
        quota_bytes: told.map_or(0, |told| told.summary.quota_bytes),
        used_bytes: told.map_or(0, |told| told.summary.used_bytes),
        free_bytes: told.map_or(0, |told| told.free_bytes),
        objects: told.map_or(0, |told| told.summary.objects),
    }
}

/// Whether a procedure is about a file.
pub(crate) fn begins_with_handle(procedure: Procedure) -> bool {
    !matches!(
        procedure,
        Procedure::Null
            | Procedure::Volume
            | Procedure::Space
            | Procedure::Status
            | Procedure::Rotate
            | Procedure::Reload
            | Procedure::Enroll
            | Procedure::Renew
            | Procedure::Member
            | Procedure::Volumes
            | Procedure::Volumeparts
            | Procedure::Reloadvolumes
            | Procedure::Holdvolume
            | Procedure::Releasevolume
            | Procedure::Statistics
    )
}

/// Drive and partition of the handle at the beginning.
fn first_place(arguments: &[u8]) -> Option<(DriveId, PartitionId)> {
    let mut input = Decoder::new(arguments);
    Some((DriveId(input.u64().ok()?), PartitionId(input.u32().ok()?)))
}

/// A drive, as clients are told of it.
pub(crate) fn drive_address(drive: &DriveConfig) -> DriveAddress {
    DriveAddress { drive: drive.id, address: drive.address.clone(), index: drive.index }
}

fn working_keys(config: &ManagerConfig) -> Arc<WorkingKeys> {
    let keys = config.drives.iter().map(|drive| (drive.id, drive.keys.clone()));
    Arc::new(WorkingKeys::new(keys, config.keeper.clone()))
}

fn namespace_options(config: &ManagerConfig, keys: Arc<WorkingKeys>) -> NamespaceOptions {
    NamespaceOptions {
        cell: config.cell,
        volume: config.volume.as_bytes().to_vec(),
        home: config.home,
        root: config.root,
        personality: config.personality,
        quota: config.quota,
        read_only: config.read_only,
        keys,
        mint: MintOptions {
            lifetime: config.capability_lifetime,
            longest_lifetime: config.rotation_interval.unwrap_or(LONGEST_WITHOUT_ROTATION),
            minimum_protection: config.protection,
        },
        directory_cache_bytes: config.directory_cache_bytes,
        record_cache_entries: config.record_cache_entries,
        journal_area_bytes: config.journal_area_bytes,
    }
}
