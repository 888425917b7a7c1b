//! What the file manager has promised to tell of changes of, and what was told with that.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nasd_afs::callbacks::{CachedCopy, Era, Version};
use nasd_cache::Cache;
use nasd_types::Timestamp;

use super::cached;
use crate::names::KnownNames;
use crate::settings::CacheSettings;
use crate::wire::{Extended, FileAttributes, FileHandle, Readable, Returned, Volume};

/// Files of which something is believed at most.
const MAX_FILES: usize = 1 << 17;

/// Names a question about a file, so that answers that were overtaken are not believed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asking {
    handle: FileHandle,
    /// Of what was known of the file then.
    id: u64,
    era: Era,
    changes: u64,
    answers: u64,
}

impl Asking {
    pub(crate) fn is_about(&self, file: FileHandle) -> bool {
        self.handle == file
    }
}

#[derive(Debug, Default)]
struct Held {
    id: u64,
    copy: CachedCopy,
    /// The version of the last answer, promised or not.
    version: Option<Version>,
    /// What was told with the promise, and is so until it ends.
    attributes: Option<FileAttributes>,
    /// Revision and change time of the newest attributes that any answer has told, believed or not.
    newest: Option<(u64, Timestamp)>,
    /// Whether these said that a list governs the file. Another list is another version of it.
    is_governed: bool,
    /// Changes of the file's attributes by this clerk, of which the file manager does not tell it.
    changes: u64,
    /// Answers that have told of the file.
    answers: u64,
}

#[derive(Debug, Default)]
struct State {
    files: HashMap<FileHandle, Held>,
    next_id: u64,
    /// How often anything has ended that was promised.
    ends: u64,
    /// How often nothing was promised any more.
    lapses: u64,
}

/// What is believed of all files.
#[derive(Debug)]
pub(crate) struct Promises {
    state: Mutex<State>,
    /// Knows how long the session is good.
    names: Arc<KnownNames>,
    /// What is kept of files' contents.
    cache: Option<Arc<Cache>>,
}

impl Promises {
    /// Nothing yet; of a volume whose contents are cached by these settings.
    pub(crate) fn new(
        names: &Arc<KnownNames>,
        settings: &CacheSettings,
        volume: &Volume,
    ) -> Promises {
        let cache = cached::open(settings, volume);
        Promises { state: Mutex::default(), names: Arc::clone(names), cache }
    }

    /// What is kept of files' contents.
    pub(crate) const fn cache(&self) -> Option<&Arc<Cache>> {
        self.cache.as_ref()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody is about to ask about a file.
    pub(crate) fn asking(&self, handle: FileHandle) -> Asking {
        let mut state = self.lock();
        let held = state.noted(handle);
        let Held { id, changes, answers, .. } = *held;
        Asking { handle, id, era: held.copy.era(), changes, answers }
    }

    /// How often anything has ended that was promised: for the answer to who makes a file.
    pub(crate) fn ends(&self) -> u64 {
        self.lock().ends
    }

    /// How often nothing was promised any more, as a session was over or the file manager started anew.
    pub(crate) fn lapses(&self) -> u64 {
        self.lock().lapses
    }

    /// A file was made here, and a callback on it is held, unless that has ended since there had been so many ends.
    pub(crate) fn made(
        &self,
        ends: u64,
        handle: FileHandle,
        (version, attributes): (Version, &FileAttributes),
    ) {
        let asking = self.asking(handle);
        let mut state = self.lock();
        if state.ends != ends {
            return;
        }
        if let Some(held) = state.held(&asking) {
            held.version = Some(version);
            held.answers += 1;
            let is_newest = held.note(attributes);
            if held.copy.granted(asking.era, version) && is_newest {
                held.attributes = Some(*attributes);
            }
        }
    }

    /// The file manager has answered.
    pub(crate) fn granted(&self, asking: &Asking, told: &Readable) {
        let mut state = self.lock();
        let Some(held) = state.held(asking) else {
            return;
        };
        held.version = Some(told.version);
        held.answers += 1;
        held.note(&told.file.attributes);
        // Where the promise is worth nothing any more, an answer that came before may have told what is newer.
        if told.promised && held.copy.granted(asking.era, told.version) {
            held.attributes = (held.changes == asking.changes).then_some(told.file.attributes);
        }
    }

    /// The same of a file that was asked for with another one, and whether that is believed: not where anything else was told of
    /// it meanwhile, as nobody waits for this.
    pub(crate) fn granted_beside(&self, asking: &Asking, told: &Readable) -> bool {
        let mut state = self.lock();
        let Some(held) = state.held(asking) else {
            return false;
        };
        let is_first = held.answers == asking.answers && held.changes == asking.changes;
        let is_good = told.promised && is_first && held.copy.granted(asking.era, told.version);
        if is_good {
            held.version = Some(told.version);
            held.answers += 1;
            held.note(&told.file.attributes);
            held.attributes = Some(told.file.attributes);
        }
        is_good
    }

    /// This clerk is about to ask for a store of a file: its callback has ended, and nothing is promised before that is answered.
    pub(crate) fn writes(&self, handle: FileHandle) {
        let mut state = self.lock();
        let held = state.noted(handle);
        held.copy.writes();
        held.attributes = None;
    }

    /// It is answered, whatever to: the file manager has nothing of the question to deal with any more.
    pub(crate) fn answered_to_write(&self, handle: FileHandle) {
        if let Some(held) = self.lock().files.get_mut(&handle) {
            held.copy.answered_to_write();
            held.end_if_broken();
        }
    }

    /// A store under this version is done.
    pub(crate) fn stored(&self, asking: &Asking, version: Version, told: &Returned) {
        let mut state = self.lock();
        let Some(held) = state.held(asking) else {
            return;
        };
        held.version = Some(told.version);
        held.answers += 1;
        held.note(&told.file.attributes);
        if held.copy.stored(asking.era, version, told.promised) {
            held.attributes = (held.changes == asking.changes).then_some(told.file.attributes);
        }
    }

    /// The file as it is, if that is believed.
    pub(crate) fn believed(&self, handle: FileHandle) -> Option<(Version, FileAttributes)> {
        if !self.names.is_good() {
            return None;
        }
        let state = self.lock();
        let held = state.files.get(&handle)?;
        Some((held.copy.promised()?, held.attributes?))
    }

    /// The version of its contents, if that is believed.
    pub(crate) fn believed_version(&self, handle: FileHandle) -> Option<Version> {
        if !self.names.is_good() {
            return None;
        }
        self.lock().files.get(&handle)?.copy.promised()
    }

    /// The same, and whether a list governs the file as it is in this version.
    pub(crate) fn believed_rule(&self, handle: FileHandle) -> Option<(Version, bool)> {
        if !self.names.is_good() {
            return None;
        }
        let state = self.lock();
        let held = state.files.get(&handle)?;
        Some((held.copy.promised()?, held.is_governed))
    }

    /// How long what is believed may be believed, if nothing is told.
    pub(crate) fn good_for(&self) -> Duration {
        self.names.good_for()
    }

    /// The version that was told last, whether it is believed or not.
    pub(crate) fn version(&self, handle: FileHandle) -> Option<Version> {
        self.lock().files.get(&handle)?.version
    }

    /// The file manager tells that nothing up to this version is so any more.
    pub(crate) fn broken(&self, handle: FileHandle, version: Version) {
        let mut state = self.lock();
        state.ends += 1;
        if let Some(held) = state.files.get_mut(&handle) {
            held.copy.broken(version);
            held.end_if_broken();
        }
    }

    /// It tells that attributes of the file, or names in it, are about to change.
    pub(crate) fn changed(&self, handle: FileHandle) {
        let mut state = self.lock();
        state.ends += 1;
        if let Some(held) = state.files.get_mut(&handle) {
            held.copy.lapsed();
            held.end_if_broken();
        }
    }

    /// Nothing is promised any more: the session is over, or goes on with another file manager.
    pub(crate) fn lapsed(&self) {
        let mut state = self.lock();
        state.ends += 1;
        state.lapses += 1;
        for held in state.files.values_mut() {
            held.copy.lapsed();
            held.end_if_broken();
        }
    }

    /// This clerk has changed attributes of the file, or names in it, or has tried to: they are to be asked for.
    pub(crate) fn attributes_changed(&self, handle: FileHandle) {
        if let Some(held) = self.lock().files.get_mut(&handle) {
            held.changes += 1;
            held.attributes = None;
        }
    }

    /// The same of files that nobody knows which they are.
    pub(crate) fn any_attributes_changed(&self) {
        for held in self.lock().files.values_mut() {
            held.changes += 1;
            held.attributes = None;
        }
    }

    /// The answer to such a change has told the attributes after it. It may have been overtaken by the answer to a later one, or to
    /// a question after that, also where what that has told is not believed.
    pub(crate) fn attributes_told(&self, handle: FileHandle, told: &FileAttributes) {
        if let Some(held) = self.lock().files.get_mut(&handle) {
            let is_newest = held.note(told);
            if held.copy.promised().is_some() && is_newest {
                held.attributes = Some(*told);
            }
        }
    }

    /// The file was read here: its access time has moved.
    pub(crate) fn accessed(&self, handle: FileHandle, time: Timestamp) {
        if let Some(held) = self.lock().files.get_mut(&handle)
            && let Some(attributes) = &mut held.attributes
        {
            attributes.access_time = attributes.access_time.max(time);
        }
    }

    /// How many files are believed something of.
    pub(crate) fn held(&self) -> usize {
        let state = self.lock();
        state.files.values().filter(|held| held.copy.promised().is_some()).count()
    }
}

impl State {
    /// What is known of a file, which may be nothing yet.
    fn noted(&mut self, handle: FileHandle) -> &mut Held {
        let State { files, next_id, .. } = self;
        if files.len() >= MAX_FILES && !files.contains_key(&handle) {
            // The file manager tells of them in vain. Answers that are on their way find nothing.
            files.retain(|_, held| held.copy.asks_to_store());
        }
        files.entry(handle).or_insert_with(|| {
            *next_id += 1;
            Held { id: *next_id, ..Held::default() }
        })
    }

    fn held(&mut self, asking: &Asking) -> Option<&mut Held> {
        self.files.get_mut(&asking.handle).filter(|held| held.id == asking.id)
    }
}

impl Held {
    /// An answer has told these attributes: whether none was newer.
    fn note(&mut self, told: &FileAttributes) -> bool {
        let is_governed = told.extended.has(Extended::AFS_ACL);
        let told = (told.revision, told.change_time);
        let is_newest = self.newest.is_none_or(|newest| newest <= told);
        if is_newest {
            self.newest = Some(told);
            self.is_governed = is_governed;
        }
        is_newest
    }

    fn end_if_broken(&mut self) {
        if self.copy.promised().is_none() {
            self.attributes = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::backend::Names;
    use crate::tests::{cell, root};
    use crate::wire::File;

    type Happening<'a> = &'a dyn Fn(&Promises);

    fn file() -> File {
        cell(1).volume(&root()).unwrap().root
    }

    /// Nothing is cached, and the session is good.
    fn promises() -> Promises {
        let names = Arc::new(KnownNames::default());
        names.good_until(Instant::now() + Duration::from_secs(3600));
        Promises { state: Mutex::default(), names, cache: None }
    }

    fn readable(version: Version, promised: bool) -> Readable {
        Readable { file: file(), version, promised }
    }

    #[test]
    fn what_was_asked_for_beside_another_file_is_believed_if_nothing_came_between() {
        let (all, file) = (promises(), file().handle);
        let asking = all.asking(file);
        assert!(all.granted_beside(&asking, &readable(2, true)));
        assert_eq!(all.believed(file).map(|(version, _)| version), Some(2));
        assert!(!all.granted_beside(&asking, &readable(2, true)), "that was an answer");
        assert!(!all.granted_beside(&all.asking(file), &readable(2, false)));
    }

    #[test]
    fn what_came_between_counts_and_not_what_was_asked_for_beside_another_file() {
        let file = file().handle;
        let between: [(&str, Happening<'_>); 6] = [
            ("a break", &|all: &Promises| all.broken(file, 3)),
            ("a change", &|all: &Promises| all.changed(file)),
            ("the end of the session", &Promises::lapsed),
            ("a store", &|all: &Promises| all.writes(file)),
            ("an own change", &|all: &Promises| all.attributes_changed(file)),
            ("another answer", &|all: &Promises| {
                all.granted(&all.asking(file), &readable(4, true))
            }),
        ];
        for (what, happens) in between {
            let all = promises();
            let asking = all.asking(file);
            happens(&all);
            let before = all.believed(file);
            assert!(!all.granted_beside(&asking, &readable(2, true)), "{what}");
            assert_eq!(
                (all.believed(file), all.version(file) == Some(2)),
                (before, false),
                "{what}"
            );
        }
    }
}
