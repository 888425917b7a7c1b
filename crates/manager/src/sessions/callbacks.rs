//! The callbacks and stores of all files of volumes of the personality `afs` (`specs/callbacks.md`): what the rules ask for becomes
//! events for clients and work at drives. Pure.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use nasd_afs::callbacks::{
    Callbacks, FileStep, NeverGiven, Reading, State, Step, Unknown, Version, is_store,
};
use nasd_protocol::manager::{Cut, Event, FileHandle};
use nasd_types::{DriveId, PartitionId};

/// How long a store may take when somebody else waits for its end, if it is not asked for again before: longer than a
/// client needs to ask again, and shorter than anybody's patience.
pub const STORE_TIME: Duration = Duration::from_secs(10);

/// The client on whose behalf the file manager stores something itself.
pub(super) const MANAGER: u64 = 0;

/// What a drive is to be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriveWork {
    /// The version of a file that nothing is known of.
    Ask(FileHandle),
    /// To set the file's version.
    Advance {
        /// Which file's.
        file: FileHandle,
        /// To this.
        to: Version,
        /// The length that the object is given with it, durably.
        length: Option<u64>,
        /// Whether what was written before has to be durable then, too: nobody else has seen to that.
        durable: bool,
    },
}

impl DriveWork {
    /// About which file.
    pub const fn file(&self) -> FileHandle {
        match self {
            DriveWork::Ask(file) | DriveWork::Advance { file, .. } => *file,
        }
    }
}

/// What a request has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn<T> {
    /// That.
    Done(T),
    /// Nothing before this is done; then it is to be asked again.
    Work(DriveWork),
    /// Nothing yet: it is to be asked again when something has changed.
    Wait,
}

/// What may be done about a file before anybody is promised anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beforehand {
    /// Nothing is known of it: who is told this asks the drive, and says what that tells.
    Ask,
    /// Nobody stores it.
    Settled,
    /// Somebody stores it, or asks the drive already.
    Leave,
}

/// Events, and whom to tell them.
pub(super) type Told = Vec<(u64, Event)>;

/// A store that is being returned: by how many calls, and what they are to be answered once it is done.
#[derive(Debug, Default)]
struct Return {
    calls: usize,
    is_promised: Option<bool>,
}

/// A store of a client.
#[derive(Clone, Copy, Debug)]
struct Store {
    version: Version,
    /// When its time is over.
    end: Duration,
    /// The client was told that it may write.
    is_given: bool,
}

/// The callbacks of all files.
#[derive(Debug, Default)]
pub(super) struct FileCallbacks {
    rules: Callbacks<FileHandle>,
    work: VecDeque<DriveWork>,
    returns: HashMap<(u64, FileHandle, Version), Return>,
    /// Clients' stores under way.
    stores: HashMap<FileHandle, Store>,
    /// Files that the file manager itself stores.
    own: HashSet<FileHandle>,
    /// Files that somebody stores, from when their drives are told until those know that it is over.
    stored: HashSet<FileHandle>,
    /// Parts of volumes in which no client begins to store.
    held: Vec<Held>,
}

/// Parts of a volume in which no client begins to store.
#[derive(Debug)]
struct Held {
    ticket: u64,
    parts: Vec<(DriveId, PartitionId)>,
    /// It ends then by itself.
    until: Duration,
}

impl Held {
    fn has(&self, file: FileHandle) -> bool {
        self.parts.contains(&(file.drive, file.partition))
    }
}

impl FileCallbacks {
    /// A client wants to read a file, and to hold a callback.
    pub(super) fn may_read(&mut self, client: u64, file: FileHandle) -> Turn<Reading> {
        match self.rules.may_read(client, file) {
            Ok(Reading::Wait) | Err(Unknown::Wait) => self.work_or_wait(file),
            Ok(reading) => Turn::Done(reading),
            Err(Unknown::Ask) => Turn::Work(DriveWork::Ask(file)),
        }
    }

    /// What is known of a file that a client may want to read, so that nobody waits for others and nobody is disturbed.
    pub(super) fn begin_to_look(&mut self, client: u64, file: FileHandle) -> Beforehand {
        let Some(rules) = self.rules.file(file) else {
            return match self.rules.may_read(client, file) {
                Err(Unknown::Ask) => Beforehand::Ask,
                _ => Beforehand::Leave,
            };
        };
        match rules.state() {
            State::Settled => Beforehand::Settled,
            _ => Beforehand::Leave,
        }
    }

    /// A client is to hold a callback on a file, if nobody stores it or changes its attributes: of which version.
    pub(super) fn promise_if_settled(&mut self, client: u64, file: FileHandle) -> Option<Version> {
        self.rules.file(file).filter(|rules| rules.state() == State::Settled)?;
        match self.rules.may_read(client, file) {
            Ok(Reading::Promised(version)) => Some(version),
            _ => None,
        }
    }

    /// A client was promised something: whose callbacks end as there are too many, and of which files.
    pub(super) fn end_some(&mut self, client: u64) -> Vec<(u64, FileHandle)> {
        self.rules.end_some(client)
    }

    /// A client has made a file that has this version: whether it holds a callback on it now.
    pub(super) fn made(&mut self, client: u64, file: FileHandle, version: Version) -> bool {
        if self.rules.may_read(client, file) == Err(Unknown::Ask) {
            let steps = self.rules.found(file, version);
            self.take(steps);
        }
        self.rules.may_read(client, file) == Ok(Reading::Promised(version))
    }

    /// A client is about to make a file of an object that has an odd version: whether it may write under that from now on.
    pub(super) fn may_begin(
        &mut self,
        client: u64,
        (file, version): (FileHandle, Version),
        now: Duration,
    ) -> bool {
        let is_held = self.held.iter().any(|held| now < held.until && held.has(file));
        if is_held || !self.rules.made(client, file, version) {
            return false;
        }
        self.stored.insert(file);
        // Where it was not answered it is told so if it asks, though somebody waits by then.
        self.stores.insert(file, Store { version, end: now + STORE_TIME, is_given: false });
        true
    }

    /// It has not made the file.
    pub(super) fn has_not_begun(&mut self, file: FileHandle) {
        self.stores.remove(&file);
        self.stored.remove(&file);
        self.work.retain(|work| work.file() != file);
        // Nobody knows of the object.
        drop(self.rules.removed(file));
    }

    /// A client wants to write a file: the version of its store, once it may. The file is cut as the store begins, if it has the
    /// version still that is to be cut.
    pub(super) fn may_write(
        &mut self,
        client: u64,
        (file, cut): (FileHandle, Option<Cut>),
        now: Duration,
    ) -> (Turn<Version>, Told) {
        let begins = client != MANAGER && !self.stored.contains(&file);
        if begins && self.held.iter().any(|held| now < held.until && held.has(file)) {
            return (Turn::Wait, Vec::new());
        }
        let steps = match self.rules.may_write(client, file) {
            Ok(steps) => steps,
            Err(Unknown::Ask) => return (Turn::Work(DriveWork::Ask(file)), Vec::new()),
            Err(Unknown::Wait) => return (self.work_or_wait(file), Vec::new()),
        };
        let goes_on = steps.iter().any(|(_, step)| matches!(step, Step::MayWrite { .. }));
        let told = self.take_cutting(steps, cut);
        let is_own = self
            .rules
            .file(file)
            .is_some_and(|rules| rules.state() == State::Writing && rules.writer() == Some(client));
        match self.stores.get_mut(&file) {
            // Where somebody waits already it is told so once.
            Some(store) if is_own && (goes_on || !store.is_given) => {
                (store.end, store.is_given) = (now + STORE_TIME, true);
                (Turn::Done(store.version), told)
            }
            _ => (self.work_or_wait(file), told),
        }
    }

    /// Whether nobody need be told when a client has stored a file under this version.
    pub(super) fn is_alone(&self, client: u64, file: FileHandle, version: Version) -> bool {
        let is_current = self.stores.get(&file).is_some_and(|store| store.version == version);
        is_current && self.rules.is_alone(client, file)
    }

    /// Others wait for what stores of these files may not need: they are not prolonged.
    pub(super) fn wait_for(&mut self, files: &[FileHandle]) {
        files.iter().for_each(|file| self.rules.wait_for(*file));
    }

    /// No client begins to store in these parts of a volume until then, and who stores is not prolonged.
    pub(super) fn hold(
        &mut self,
        ticket: u64,
        parts: Vec<(DriveId, PartitionId)>,
        until: Duration,
    ) {
        let held = Held { ticket, parts, until };
        for file in self.stored.iter().filter(|file| held.has(**file)) {
            self.rules.wait_for(*file);
        }
        self.held.push(held);
    }

    /// Clients may begin to store again.
    pub(super) fn release(&mut self, ticket: u64, now: Duration) {
        self.held.retain(|held| held.ticket != ticket && now < held.until);
    }

    /// Whether nobody stores in what is held; otherwise what is to be done for that, if nobody does yet.
    pub(super) fn quiet(&mut self, ticket: u64) -> Turn<()> {
        let Some(held) = self.held.iter().find(|held| held.ticket == ticket) else {
            return Turn::Done(());
        };
        let stored: Vec<FileHandle> =
            self.stored.iter().copied().filter(|file| held.has(*file)).collect();
        if stored.is_empty() {
            return Turn::Done(());
        }
        let work = stored.into_iter().find_map(|file| self.take_work_of(file));
        work.map_or(Turn::Wait, Turn::Work)
    }

    /// A store that was kept waiting begins now.
    pub(super) fn begins(&mut self, file: FileHandle, now: Duration) {
        if let Some(store) = self.stores.get_mut(&file) {
            store.end = now + STORE_TIME;
        }
    }

    /// A client has stored a file: whether it holds a callback for that, once the store is done. `is_noted` is false in the first of
    /// the calls that wait for that, and true once that is noted ([`FileCallbacks::end_return`]).
    ///
    /// # Errors
    /// [`NeverGiven`].
    pub(super) fn returned(
        &mut self,
        (client, file, version): (u64, FileHandle, Version),
        is_noted: &mut bool,
    ) -> (Result<Turn<bool>, NeverGiven>, Told) {
        let key = (client, file, version);
        let mut told = Vec::new();
        if !*is_noted {
            match self.rules.returned(client, file, version) {
                Ok(Ok(steps)) => {
                    *is_noted = true;
                    self.returns.entry(key).or_default().calls += 1;
                    told = self.take(steps);
                }
                Ok(Err(never)) => return (Err(never), told),
                Err(Unknown::Ask) => return (Ok(Turn::Work(DriveWork::Ask(file))), told),
                Err(Unknown::Wait) => return (Ok(self.work_or_wait(file)), told),
            }
        }
        let turn = match self.returns.get(&key).and_then(|known| known.is_promised) {
            Some(is_promised) => Turn::Done(is_promised),
            None => self.work_or_wait(file),
        };
        (Ok(turn), told)
    }

    /// A call that was told what a return has come to, or waits for it no longer.
    pub(super) fn end_return(&mut self, client: u64, file: FileHandle, version: Version) {
        let key = (client, file, version);
        if let Some(known) = self.returns.get_mut(&key) {
            known.calls = known.calls.saturating_sub(1);
            if known.calls == 0 {
                self.returns.remove(&key);
            }
        }
    }

    /// The file manager wants to store something itself; one such store of a file at a time.
    pub(super) fn may_store(&mut self, file: FileHandle, now: Duration) -> (Turn<Version>, Told) {
        if self.own.contains(&file) {
            return (self.work_or_wait(file), Vec::new());
        }
        let (turn, told) = self.may_write(MANAGER, (file, None), now);
        if matches!(turn, Turn::Done(_)) {
            // It is done when it is done: its time is not over before.
            self.stores.remove(&file);
            self.own.insert(file);
        }
        (turn, told)
    }

    /// The file manager has stored, and others may begin to: the version was that.
    pub(super) fn end_store(&mut self, file: FileHandle, version: Version) -> Told {
        self.own.remove(&file);
        // As though its time were over: who returns a store is promised something.
        let steps = self.rules.expired(file, version);
        self.take(steps)
    }

    /// Whether a client stores a file, as far as is known.
    pub(super) fn is_stored_by(&self, client: u64, file: FileHandle) -> bool {
        self.rules.file(file).is_some_and(|rules| rules.writer() == Some(client))
    }

    /// The version of a file, if anything is known of it.
    pub(super) fn version_of(&self, file: FileHandle) -> Option<Version> {
        self.rules.file(file).map(nasd_afs::callbacks::FileRules::version)
    }

    /// The highest version that a file's drive can have by what it was told here, if anything is known of the file: while it is being told
    /// the next one, it may have that already.
    pub(super) fn highest_version(&self, file: FileHandle) -> Option<Version> {
        let rules = self.rules.file(file)?;
        let is_told = matches!(rules.state(), State::Opening | State::Closing);
        Some(rules.version().saturating_add(u64::from(is_told)))
    }

    /// Whether a store of that version is over, and everybody knows.
    pub(super) fn is_settled(&self, file: FileHandle, version: Version) -> bool {
        self.rules
            .file(file)
            .is_none_or(|rules| rules.version() > version && rules.state() != State::Breaking)
    }

    /// What is to be done for a file, if nobody does yet.
    pub(super) fn take_work_of(&mut self, file: FileHandle) -> Option<DriveWork> {
        let place = self.work.iter().position(|work| work.file() == file);
        place.and_then(|place| self.work.remove(place))
    }

    /// A drive has told a file's version; nothing if it has not.
    pub(super) fn found(&mut self, file: FileHandle, version: Option<Version>) -> Told {
        match version {
            Some(version) => {
                let steps = self.rules.found(file, version);
                self.take(steps)
            }
            None => {
                self.rules.not_found(file);
                Vec::new()
            }
        }
    }

    /// A drive has set a file's version.
    pub(super) fn advanced(&mut self, file: FileHandle, to: Version, now: Duration) -> Told {
        let steps = self.rules.advanced(file, to);
        match is_store(to) {
            true => {
                let store = Store { version: to, end: now + STORE_TIME, is_given: false };
                self.stores.insert(file, store);
            }
            false => {
                self.stores.remove(&file);
                self.stored.remove(&file);
            }
        }
        self.take(steps)
    }

    /// It has not: it is to be asked again.
    pub(super) fn not_done(&mut self, work: DriveWork) {
        match work {
            DriveWork::Ask(file) => self.rules.not_found(file),
            DriveWork::Advance { .. } => self.work.push_back(work),
        }
    }

    /// Somebody else has raised a file's version, so that nothing is known of it: whom to tell.
    pub(super) fn raised(&mut self, file: FileHandle) -> Vec<u64> {
        self.work.retain(|work| work.file() != file);
        self.stores.remove(&file);
        self.stored.remove(&file);
        let told = self.rules.raised(file);
        self.clients_among(told, file)
    }

    /// A file is gone.
    pub(super) fn removed(&mut self, file: FileHandle) -> Told {
        self.work.retain(|work| work.file() != file);
        self.stores.remove(&file);
        self.stored.remove(&file);
        for (_, known) in self.returns.iter_mut().filter(|((_, other, _), _)| *other == file) {
            known.is_promised.get_or_insert(false);
        }
        let believe = self.rules.file(file).map(|rules| (rules.version() | 1, rules.concerned()));
        let steps = self.rules.removed(file);
        let mut told = self.take(steps);
        if let Some((version, clients)) = believe {
            told.extend(clients.into_iter().map(|client| (client, Event::Broken(file, version))));
        }
        told
    }

    /// A client has dealt with an event.
    pub(super) fn dealt_with(&mut self, client: u64, event: &Event) -> Told {
        match *event {
            Event::Broken(file, version) => {
                let steps = self.rules.told(client, file, version);
                self.take(steps)
            }
            Event::Changed(file) => {
                self.rules.told_change(client, file);
                Vec::new()
            }
            Event::Removed(_) | Event::LockFree(..) | Event::DirectoryChanged(_) => Vec::new(),
        }
    }

    /// A client's session is over.
    pub(super) fn gone(&mut self, client: u64) -> Told {
        let steps = self.rules.gone(client);
        self.take(steps)
    }

    /// What is due by now: stores whose time is over.
    pub(super) fn expire(&mut self, now: Duration) -> Told {
        let due = self.stores.iter().filter(|(_, store)| store.end <= now);
        let due: Vec<(FileHandle, Version)> =
            due.map(|(file, store)| (*file, store.version)).collect();
        let mut told = Vec::new();
        for (file, version) in due {
            self.stores.remove(&file);
            let steps = self.rules.expired(file, version);
            told.extend(self.take(steps));
        }
        told
    }

    /// The file manager is about to change attributes or names on behalf of a client: whom to tell.
    pub(super) fn begin_change(&mut self, client: u64, file: FileHandle) -> Vec<u64> {
        let told = self.rules.begin_change(client, file);
        self.clients_among(told, file)
    }

    /// Those who are to be told something of a file, without the file manager, where it is storing the file itself: it believes nothing, and would
    /// be waited for without end.
    fn clients_among(&mut self, told: Vec<u64>, file: FileHandle) -> Vec<u64> {
        if !told.contains(&MANAGER) {
            return told;
        }
        self.rules.told_change(MANAGER, file);
        told.into_iter().filter(|client| *client != MANAGER).collect()
    }

    /// It has.
    pub(super) fn end_change(&mut self, client: u64, file: FileHandle) {
        self.rules.end_change(client, file);
    }

    /// Work that nobody does yet.
    pub(super) fn take_work(&mut self) -> Option<DriveWork> {
        self.work.pop_front()
    }

    /// How many callbacks are held.
    pub(super) fn held(&self) -> usize {
        self.rules.held()
    }

    /// Whether no call waits for what a return comes to.
    #[cfg(test)]
    pub(super) fn is_nothing_returned(&self) -> bool {
        self.returns.is_empty()
    }

    /// Who waits for a file does what is to be done for it, if nobody does yet.
    fn work_or_wait<T>(&mut self, file: FileHandle) -> Turn<T> {
        self.take_work_of(file).map_or(Turn::Wait, Turn::Work)
    }

    /// Whether the store that ends with this version was returned: then the client has seen to it that all of it is durable.
    fn is_returned(&self, file: FileHandle, end: Version) -> bool {
        let writer = self.rules.file(file).and_then(nasd_afs::callbacks::FileRules::writer);
        writer.is_some_and(|client| self.returns.contains_key(&(client, file, end - 1)))
    }

    fn take(&mut self, steps: Vec<FileStep<FileHandle>>) -> Told {
        self.take_cutting(steps, None)
    }

    fn take_cutting(&mut self, steps: Vec<FileStep<FileHandle>>, cut: Option<Cut>) -> Told {
        let mut told = Vec::new();
        for (file, step) in steps {
            match step {
                Step::Advance { to } => {
                    self.stored.insert(file);
                    let durable = !is_store(to) && !self.is_returned(file, to);
                    let cut = cut.filter(|cut| cut.version.checked_add(1) == Some(to));
                    let length = cut.map(|cut| cut.length);
                    self.work.push_back(DriveWork::Advance { file, to, length, durable });
                }
                Step::Break { client, version } => {
                    told.push((client, Event::Broken(file, version)));
                }
                Step::Stored { client, version, is_promised } => {
                    if let Some(known) = self.returns.get_mut(&(client, file, version)) {
                        known.is_promised = Some(is_promised);
                    }
                }
                // Who waits looks for himself.
                Step::MayWrite { .. } | Step::Settled => {}
            }
        }
        told
    }
}
