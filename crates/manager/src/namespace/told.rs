//! What drives told of directories not long ago.
//!
//! Kernels ask for a directory's attributes after each change of its names. Only the manager writes to a
//! directory's object, so what it was told once stays true with its own changes laid over, all but the
//! access control version, which whoever has a key of the drive may raise, and how much room it takes.
//! So the drive is asked again after a moment.
//!
//! Of a file whose version the manager has just set, the drive has told the attributes with that. Nobody can have written since
//! before he is given a capability of the new version: whoever is given the first one, or is told that his store is done, need
//! not have the drive asked once more. The same goes for a file whose version was asked for, and is one under which nobody writes.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nasd_protocol::manager::FileHandle;
use nasd_types::{Attributes, FsSpecific, Timestamp};

use super::records::lay_over;
use super::{Namespace, Outcome};
use crate::file_record::FileRecord;
use crate::journal::RecordImage;
use crate::lru::Lru;

/// How long what a drive told is good.
const MOMENT: Duration = Duration::from_secs(1);

/// Directories that are remembered at most.
const MAX_TOLD: usize = 1024;

/// Files whose version was set or asked for, and of which nobody was told since, at most.
const MAX_ADVANCED: usize = 1024;

/// A file that is given another version, or is asked for the one that it has.
#[derive(Debug)]
enum Advanced {
    /// Its drive is being told: which time that is.
    Asked(u64),
    /// The drive has told this with that, and then.
    Told(Attributes, Instant),
}

#[derive(Debug)]
struct State {
    /// What was told of directories, and when, with what was changed since.
    directories: Lru<FileHandle, (Attributes, Instant)>,
    /// Nothing of these files was changed since.
    advanced: Lru<FileHandle, Advanced>,
    /// How often versions were set.
    advances: u64,
}

/// What drives told.
#[derive(Debug)]
pub(super) struct Told(Mutex<State>);

impl Default for Told {
    fn default() -> Self {
        let (directories, advanced) = (Lru::new(MAX_TOLD), Lru::new(MAX_ADVANCED));
        Told(Mutex::new(State { directories, advanced, advances: 0 }))
    }
}

impl Told {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, directory: FileHandle) -> Option<Attributes> {
        let mut told = self.lock();
        let (attributes, when) = told.directories.get(&directory)?;
        (when.elapsed() < MOMENT).then(|| attributes.clone())
    }

    fn note(&self, directory: FileHandle, attributes: Attributes, asked: Instant) {
        self.lock().directories.insert(directory, (attributes, asked), 1);
    }

    /// A drive is about to be told another version of a file: which time that is.
    pub(super) fn advances(&self, file: FileHandle) -> u64 {
        self.lock().directories.remove(&file);
        self.asks(file)
    }

    /// A drive is about to be asked for the version of a file, with all that it tells: which time that is.
    pub(super) fn asks(&self, file: FileHandle) -> u64 {
        let mut told = self.lock();
        told.advances += 1;
        let number = told.advances;
        told.advanced.insert(file, Advanced::Asked(number), 1);
        number
    }

    /// It has told this with that, unless something was changed meanwhile.
    fn advanced(&self, file: FileHandle, attributes: Attributes, number: u64) {
        let mut told = self.lock();
        if matches!(told.advanced.get(&file), Some(Advanced::Asked(asked)) if *asked == number) {
            told.advanced.insert(file, Advanced::Told(attributes, Instant::now()), 1);
        }
    }

    /// A file was made of an object that has an odd version: as though its drive had just been told that.
    pub(super) fn made(&self, file: FileHandle, attributes: Attributes) {
        self.lock().advanced.insert(file, Advanced::Told(attributes, Instant::now()), 1);
    }

    /// The attributes that a drive has told with this version, once: whoever is told them may write under it from then on.
    fn take_advanced(&self, file: FileHandle, version: u64) -> Option<(Attributes, Instant)> {
        let Some(Advanced::Told(attributes, when)) = self.lock().advanced.remove(&file) else {
            return None;
        };
        let is_good = attributes.access_control_version == version && when.elapsed() < MOMENT;
        is_good.then_some((attributes, when))
    }

    /// A record was changed, and what goes with it.
    pub(super) fn change(
        &self,
        file: FileHandle,
        record: &FsSpecific,
        changed: Timestamp,
        modified: Option<Timestamp>,
    ) {
        let mut told = self.lock();
        told.advanced.remove(&file);
        if let Some((mut attributes, when)) = told.directories.remove(&file) {
            attributes.fs_attribute_modify_time = attributes.fs_attribute_modify_time.max(changed);
            attributes.fs_data_modify_time = modified.unwrap_or(attributes.fs_data_modify_time);
            attributes.fs_specific.copy_from_slice(record);
            told.directories.insert(file, (attributes, when), 1);
        }
    }

    /// The drive was told something else.
    pub(super) fn forget(&self, file: FileHandle) {
        let mut told = self.lock();
        told.directories.remove(&file);
        told.advanced.remove(&file);
    }
}

impl Namespace {
    /// A directory's record and attributes, if the drive told of it a moment ago. The caller holds its lock.
    pub(super) fn told_of(&self, directory: FileHandle) -> Option<(FileRecord, Attributes)> {
        let attributes = self.told.get(directory)?;
        let record = self.known(directory).ok()??;
        Some((record, attributes))
    }

    /// A directory was made: what its drive would tell of it is known.
    pub(super) fn note_made_directory(&self, directory: FileHandle, attributes: Attributes) {
        self.told.note(directory, attributes, Instant::now());
    }

    /// A file's record and attributes, of a directory perhaps as they were a moment ago in what the manager
    /// does not change. The caller holds its lock.
    pub(super) fn latest(&self, handle: FileHandle) -> Outcome<(FileRecord, Attributes)> {
        if let Some(told) = self.told_of(handle) {
            return Ok(told);
        }
        let asked = Instant::now();
        let (record, attributes) = self.fresh(handle)?;
        if record.is_directory() {
            self.told.note(handle, attributes.clone(), asked);
        }
        Ok((record, attributes))
    }

    /// The same of a file that is expected to have this version, where the drive has told it with that. The caller holds its lock.
    pub(super) fn latest_under(
        &self,
        handle: FileHandle,
        version: u64,
    ) -> Outcome<(FileRecord, Attributes)> {
        match self.told_under(handle, version)? {
            Some(told) => Ok(told),
            None => self.latest(handle),
        }
    }

    /// The same where the drive need not be asked.
    pub(super) fn told_under(
        &self,
        handle: FileHandle,
        version: u64,
    ) -> Outcome<Option<(FileRecord, Attributes)>> {
        let Some((attributes, when)) = self.told.take_advanced(handle, version) else {
            return Ok(None);
        };
        let record = self.record_as_told(handle, &attributes)?;
        if record.is_directory() {
            self.told.note(handle, attributes.clone(), when);
        }
        Ok(Some((record, attributes)))
    }

    /// A drive has told these attributes in answer to another version, of a file that had this in the journal before.
    pub(super) fn note_advanced(
        &self,
        file: FileHandle,
        mut attributes: Attributes,
        (before, number): (Option<RecordImage>, u64),
    ) {
        self.note_times(file.drive, &attributes);
        if let Some(newer) = self.journal.record(file).or(before) {
            lay_over(newer, &mut attributes);
        }
        self.told.advanced(file, attributes, number);
    }
}
