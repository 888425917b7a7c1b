//! The clerk: names, attributes and open files of one volume, for any number of callers.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, RwLock, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nasd_metrics::Page;
use nasd_types::Rights;
use nasd_types::limits::MAX_SYMLINK_BYTES;

use crate::ClerkError;
use crate::backend::{Cell, Names};
use crate::background;
use crate::callbacks::{Asked, Listings};
use crate::core::Core;
use crate::file::FileState;
use crate::grants::Slot;
use crate::hinted::Version;
use crate::names::{Asking, Belief};
use crate::open_file::{OpenFile, OpenMode};
use crate::paths::components;
use crate::session::{LockRequest, NameWatcher, Session};
use crate::settings::Settings;
use crate::wire::{
    Caller, CellStatus, Changed, DirectoryPage, Extended, File, FileAttributes, FileHandle,
    FileType, HeldLock, ManagerStatus, Name, NewMode, RenameFlags, SetFileAttributes,
    SpaceInformation, Volume,
};
use crate::xattrs::XattrCache;

/// How long a clerk that ends waits for the manager to say that names are durable.
const COMMIT_PATIENCE: Duration = Duration::from_secs(3);

/// Symbolic links followed on one path at most.
const MAX_LINKS: usize = 40;

/// A file as a name led to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The file.
    pub handle: FileHandle,
    /// Its attributes, as they were that long ago.
    pub attributes: FileAttributes,
    /// How long ago that was.
    pub age: Duration,
    /// They are not older than this.
    pub(crate) asked: Instant,
    /// By what the name may be believed, if it may be.
    pub belief: Option<Belief>,
}

impl Entry {
    /// As it is now, by what was asked for then.
    pub(crate) fn now(handle: FileHandle, attributes: FileAttributes, asked: Instant) -> Entry {
        Entry { handle, attributes, age: Duration::ZERO, asked, belief: None }
    }
}

/// The client of one volume. Cheap to share; every method may be called from any thread.
pub struct Clerk {
    pub(crate) core: Arc<Core>,
    volume: RwLock<Arc<Volume>>,
    pub(crate) session: Option<Arc<Session>>,
    pub(crate) xattrs: XattrCache,
    pub(crate) listings: Listings,
    background: Mutex<Option<JoinHandle<()>>>,
}

impl Clerk {
    /// A clerk over any manager and drives. `caller` asks for the volume.
    ///
    /// # Errors
    ///
    /// What the manager says about the volume.
    pub fn new(cell: Cell, caller: &Arc<Caller>, settings: Settings) -> Result<Self, ClerkError> {
        let Cell { names, objects, sessions } = cell;
        let core = Arc::new(Core::new(names, objects, caller, settings));
        let asked = Instant::now();
        let volume = core.ask_names(|names| names.volume(caller))?;
        core.set_volume(&volume);
        core.learn(caller, &volume.root, asked);
        let no_thread = |error| ClerkError::Unreachable(format!("no thread: {error}"));
        let background = background::start(&core).map_err(no_thread)?;
        let wants_session = core.settings.session || core.promises().is_some();
        let session = match sessions.filter(|_| wants_session) {
            Some(sessions) => {
                Some(Session::start(sessions, core.names.client(), &core).map_err(no_thread)?)
            }
            None => None,
        };
        Ok(Clerk {
            session,
            core,
            volume: RwLock::new(Arc::new(volume)),
            xattrs: XattrCache::default(),
            listings: Listings::default(),
            background: Mutex::new(Some(background)),
        })
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// The volume, as the manager described it last.
    pub fn volume(&self) -> Arc<Volume> {
        Arc::clone(&self.volume.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Asks the manager about the volume again: drives may have been added or moved.
    ///
    /// # Errors
    ///
    /// What the manager says.
    pub fn refresh_volume(&self, caller: &Arc<Caller>) -> Result<Arc<Volume>, ClerkError> {
        let volume = Arc::new(self.core.ask_names(|names| names.volume(caller))?);
        self.core.set_volume(&volume);
        *self.volume.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&volume);
        Ok(volume)
    }

    /// The volume's root directory.
    pub fn root(&self) -> FileHandle {
        self.volume().root.handle
    }

    /// Limits and times.
    pub fn settings(&self) -> &Settings {
        &self.core.settings
    }

    /// Puts what the clerk has counted since its start into a page for Prometheus.
    pub fn put_metrics(&self, page: &mut Page) {
        self.core.measures.put(page);
        let (bytes, files) = self.core.undurable();
        let help = "Bytes that were written and are not durable yet.";
        page.single("nasd_clerk_undurable_bytes", "gauge", help, bytes);
        let help = "Files that have such bytes.";
        page.single("nasd_clerk_undurable_files", "gauge", help, files);
        let help = "Directories whose names are believed by a lease.";
        page.single("nasd_clerk_leases", "gauge", help, self.core.known.leases());
        let help = "Files that callbacks are held on.";
        let held = self.core.promises().map_or(0, |promises| promises.held());
        page.single("nasd_clerk_callbacks", "gauge", help, held);
    }

    /// Keeps what came with an answer to a request made at `asked`.
    pub(crate) fn learn(&self, caller: &Arc<Caller>, file: &File, asked: Instant) -> Entry {
        self.core.learn(caller, file, asked);
        Entry::now(file.handle, file.attributes, asked)
    }

    pub(crate) fn ask<T>(
        &self,
        ask: impl FnMut(&dyn Names) -> Result<T, ClerkError>,
    ) -> Result<T, ClerkError> {
        self.core.ask_names(ask)
    }

    /// The file that has this name in a directory, now.
    ///
    /// # Errors
    ///
    /// `Manager(NotFound)` if there is none.
    pub fn lookup(
        &self,
        caller: &Arc<Caller>,
        dir: FileHandle,
        name: &Name,
    ) -> Result<Entry, ClerkError> {
        if let Some(entry) = self.find_leased(caller, dir, name)? {
            return Ok(entry);
        }
        let asking = match self.begin_lease(caller, dir) {
            true => match self.find_leased(caller, dir, name)? {
                Some(entry) => return Ok(entry),
                None => self.core.known.asking(dir),
            },
            false => self.core.known.asking(dir),
        };
        let asked = Instant::now();
        let told = self.ask(|names| names.lookup(caller, dir, name));
        let found = match &told {
            Ok(file) => Some(Some(file.handle)),
            Err(ClerkError::Manager(ManagerStatus::NotFound)) => Some(None),
            Err(_) => None,
        };
        if let Some(found) = found {
            self.core.known.told(&asking, caller, [(name.clone(), found)], false);
        }
        let entry = self.learn(caller, &told?, asked);
        let belief = self.told_to_all(dir, asking.belief());
        Ok(Entry { belief, ..self.with_own_writes(entry) })
    }

    /// By what whoever looks for a name may believe that it is not there, where that was told to this caller.
    pub fn believes_absent(
        &self,
        caller: &Arc<Caller>,
        dir: FileHandle,
        name: &Name,
    ) -> Option<Belief> {
        match self.core.known.find(caller, dir, name, Duration::ZERO)? {
            (None, belief) => self.told_to_all(dir, belief),
            (Some(_), _) => None,
        }
    }

    /// The file of that name, where that can be told without asking about the name.
    fn find_leased(
        &self,
        caller: &Arc<Caller>,
        dir: FileHandle,
        name: &Name,
    ) -> Result<Option<Entry>, ClerkError> {
        let Some((found, belief)) = self.core.known.find(caller, dir, name, Duration::ZERO) else {
            return Ok(None);
        };
        self.core.measures.names_known.add(1);
        let handle = found.ok_or(ClerkError::Manager(ManagerStatus::NotFound))?;
        let told = match self.core.promises() {
            Some(promises) => self.getattr_among(promises, caller, (dir, handle)),
            None => {
                self.list_around(caller, dir, handle);
                self.getattr_since(caller, handle)
            }
        };
        match told {
            Ok((attributes, asked)) => {
                let age = asked.elapsed();
                let belief = self.told_to_all(dir, belief);
                Ok(Some(Entry { handle, attributes, age, asked, belief }))
            }
            // It was removed a moment ago.
            Err(error) if error.is_gone() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Asks for all there is to know of a page of files, where that is worth it before somebody is told of one.
    fn list_around(&self, caller: &Arc<Caller>, dir: FileHandle, handle: FileHandle) {
        let ttl = self.core.settings.attribute_ttl;
        let is_known = self.core.known_attributes(handle, ttl).is_some();
        if let Some(cookie) = self.core.known.wants_list(dir, is_known)
            && let Some(told) = self.core.list_page(caller, dir, cookie)
        {
            self.core.known.listed(dir, told.next);
        }
    }

    /// By what a name may be believed whoever looks for it. Where the mode of its directory does not tell who may, each caller is to be let in here.
    fn told_to_all(&self, dir: FileHandle, belief: Option<Belief>) -> Option<Belief> {
        let Some(promises) = self.core.promises() else {
            return belief;
        };
        let by_mode =
            |attributes: &FileAttributes| !attributes.extended.has(Extended::NAMES_BY_CALLER);
        belief.filter(|_| promises.believed(dir).is_some_and(|(_, told)| by_mode(&told)))
    }

    /// Whether nobody changes anything in the volume: it is a snapshot.
    pub fn is_read_only(&self) -> bool {
        self.core.is_read_only()
    }

    /// Whether the volume has callbacks: what is told of a file is so until a [`NameWatcher`] is told otherwise.
    pub fn has_callbacks(&self) -> bool {
        self.core.promises().is_some()
    }

    /// What is known of a file without asking, where there are callbacks, and for how long it may be believed if nobody says otherwise.
    pub fn believes(&self, handle: FileHandle) -> Option<(FileAttributes, Duration)> {
        let promises = self.core.promises()?;
        let Some((_, attributes)) = promises.believed(handle) else {
            return self.core.given_attributes(handle);
        };
        let is_written = self.core.open_file(handle).is_some_and(|file| !file.lock().is_settled());
        (!is_written).then(|| (attributes, promises.good_for()))
    }

    /// How long names may be believed that are, if nobody says otherwise.
    pub fn names_good_for(&self) -> Duration {
        self.core.known.good_for()
    }

    /// Whether a name that was told is still what it was.
    pub fn is_believed(&self, belief: &Belief) -> bool {
        self.core.known.is_believed(belief)
    }

    /// Tells `watcher` when names are not to be believed any more that came with a [`Belief`].
    pub fn watch_names(&self, watcher: Arc<dyn NameWatcher>) {
        if let Some(session) = &self.session {
            session.watch(watcher);
        }
    }

    /// The manager does not know what is written but not sent.
    pub(crate) fn with_own_writes(&self, mut entry: Entry) -> Entry {
        if let Some(file) = self.core.open_file(entry.handle) {
            let appended = file.has_appends.load(Ordering::Acquire);
            // What was appended has its place, and the drive has told the length; or somebody does not
            // want to wait for that.
            let _ = file.commit_appends(&self.core);
            let mut inner = file.lock();
            inner.show_after_restart(&self.core);
            if inner.is_hiding_behind(entry.attributes.size)
                && let Some(caller) = inner.last_writer()
            {
                // Somebody has cut the file, or the manager was told so by a drive that has started anew, of which nobody knows here.
                let answers = inner.answers();
                drop(inner);
                let told = self.core.getattr_from_servers(&caller, entry.handle, Duration::ZERO);
                inner = file.lock();
                if let Ok((attributes, _)) = told {
                    entry.attributes.size = attributes.size;
                    inner.note_size(attributes.size, answers);
                }
                inner.show_after_restart(&self.core);
            }
            if inner.emptied.is_some() {
                entry.attributes.size = 0;
            }
            let own_end = if appended { inner.size() } else { inner.pending.end() };
            entry.attributes.size = entry.attributes.size.max(own_end);
        }
        entry
    }

    fn attributes_with_own_writes(
        &self,
        handle: FileHandle,
        attributes: FileAttributes,
    ) -> FileAttributes {
        self.with_own_writes(Entry::now(handle, attributes, Instant::now())).attributes
    }

    /// Attributes, at most `Settings::attribute_ttl` old; own writes are in them.
    ///
    /// # Errors
    ///
    /// `Manager(Stale)` if the file is gone.
    pub fn getattr(
        &self,
        caller: &Arc<Caller>,
        handle: FileHandle,
    ) -> Result<FileAttributes, ClerkError> {
        self.core.getattr(caller, handle, self.core.settings.attribute_ttl)
    }

    /// The same, and since when they may have been so.
    fn getattr_since(
        &self,
        caller: &Arc<Caller>,
        handle: FileHandle,
    ) -> Result<(FileAttributes, Instant), ClerkError> {
        let begun = Instant::now();
        let told = self.core.getattr_aged(caller, handle, self.core.settings.attribute_ttl);
        told.map(|(attributes, age)| (attributes, begun.checked_sub(age).unwrap_or(begun)))
    }

    /// Attributes of a directory that is leased, as others see them, without asking: those it had after this
    /// clerk's last change, as long as they are not older than `Settings::attribute_ttl`. Of everything else
    /// attributes as they are now.
    ///
    /// # Errors
    ///
    /// As `getattr`.
    pub fn getattr_leased(
        &self,
        caller: &Arc<Caller>,
        handle: FileHandle,
    ) -> Result<FileAttributes, ClerkError> {
        let is_leased = self.core.known.asking(handle).belief().is_some();
        match is_leased {
            true => self.getattr(caller, handle),
            false => self.getattr_now(caller, handle),
        }
    }

    /// Attributes as they are now.
    ///
    /// # Errors
    ///
    /// As `getattr`.
    pub fn getattr_now(
        &self,
        caller: &Arc<Caller>,
        handle: FileHandle,
    ) -> Result<FileAttributes, ClerkError> {
        self.core.getattr(caller, handle, Duration::ZERO)
    }

    /// Attributes of which mode, owner, links and what there is of extended attributes are at most
    /// `Settings::attribute_ttl` old; length and times may be older. It costs nothing while a file is
    /// written, and waits for no write.
    ///
    /// # Errors
    ///
    /// `Manager(Stale)` if the file is gone.
    pub fn standing(
        &self,
        caller: &Arc<Caller>,
        handle: FileHandle,
    ) -> Result<FileAttributes, ClerkError> {
        self.core.standing(caller, handle)
    }

    /// Changes attributes. A new length takes effect between the writes before and after it; new
    /// times stand over those of earlier writes.
    ///
    /// # Errors
    ///
    /// What the manager says.
    pub fn setattr(
        &self,
        caller: &Arc<Caller>,
        handle: FileHandle,
        changes: &SetFileAttributes,
    ) -> Result<FileAttributes, ClerkError> {
        self.core.end_given(handle)?;
        let set = || {
            let changed = self.ask(|names| names.setattr(caller, handle, changes));
            self.doubt_if_unknown(handle, &changed);
            let file = changed?;
            // Others may search it now, or not any more.
            self.core.known.end(handle);
            self.core.changed_here(handle, &file.attributes);
            Ok(self.learn(caller, &file, Instant::now()).attributes)
        };
        let sets_time = changes.modify_time.is_some() || changes.modify_time_now;
        let file = match self.core.open_file(handle) {
            Some(file) => file,
            None if sets_time => self.core.file(handle),
            None => return set(),
        };
        if let Some(size) = changes.size {
            let attributes = file.truncate(&self.core, size, set)?;
            let Some(time) = changes.modify_time else { return Ok(attributes) };
            let time = SetFileAttributes { modify_time: Some(time), ..Default::default() };
            return self.setattr(caller, handle, &time);
        }
        if sets_time {
            // What is sent later would move it. Another failure is kept for those who wrote.
            if let Err(ClerkError::Interrupted) = file.drain(&self.core) {
                return Err(ClerkError::Interrupted);
            }
            let before = file.before_time();
            let attributes = set()?;
            // Where there are callbacks the manager has made it durable.
            if self.core.promises().is_none() {
                file.keep_time(&self.core, caller, (&attributes, changes.modify_time), before);
            }
            return Ok(self.attributes_with_own_writes(handle, attributes));
        }
        set().map(|attributes| self.attributes_with_own_writes(handle, attributes))
    }

    /// A regular file; without `exclusive`, an existing one is as good.
    ///
    /// # Errors
    ///
    /// What the manager says.
    pub fn create(
        &self,
        caller: &Arc<Caller>,
        dir: FileHandle,
        name: &Name,
        mode: impl Into<NewMode>,
        exclusive: bool,
    ) -> Result<Entry, ClerkError> {
        let mode = mode.into();
        let create = |names: &dyn Names| names.create(caller, dir, name, mode, exclusive, false);
        self.make(caller, dir, name, create)
    }

    /// The same for who is about to open it and to write to it: where there are callbacks, the file manager need not be asked again before that is
    /// stored.
    ///
    /// # Errors
    ///
    /// What the manager says.
    pub fn create_to_store(
        &self,
        caller: &Arc<Caller>,
        dir: FileHandle,
        name: &Name,
        mode: impl Into<NewMode>,
        exclusive: bool,
    ) -> Result<Entry, ClerkError> {
        let (mode, stores) = (mode.into(), self.has_callbacks());
        let create = |names: &dyn Names| names.create(caller, dir, name, mode, exclusive, stores);
        self.make(caller, dir, name, create)
    }

    /// A directory.
    ///
    /// # Errors
    ///
    /// What the manager says.
    pub fn mkdir(
        &self,
        caller: &Arc<Caller>,
        dir: FileHandle,
        name: &Name,
        mode: impl Into<NewMode>,
    ) -> Result<Entry, ClerkError> {
        let mode = mode.into();
        let made = self.make(caller, dir, name, |names| names.mkdir(caller, dir, name, mode))?;
        self.core.known.made(caller, made.handle);
        self.believe_empty(caller, made.handle);
        Ok(made)
    }

    /// A symbolic link.
    ///
    /// # Errors
    ///
    /// `NameTooLong` above 4095 bytes of target, and what the manager says.
    pub fn symlink(
        &self,
        caller: &Arc<Caller>,
        dir: FileHandle,
        name: &Name,
        target: &[u8],
    ) -> Result<Entry, ClerkError> {
        if target.len() > MAX_SYMLINK_BYTES {
            return Err(ClerkError::NameTooLong);
        }
        self.make(caller, dir, name, |names| names.symlink(caller, dir, name, target))
    }

    /// Another name for a file.
    ///
    /// # Errors
    ///
    /// What the manager says.
    pub fn link(
        &self,
        caller: &Arc<Caller>,
        file: FileHandle,
        dir: FileHandle,
        name: &Name,
    ) -> Result<Entry, ClerkError> {
        self.core.end_given(file)?;
        let made = self.make(caller, dir, name, |names| names.link(caller, file, dir, name));
        self.doubt_if_unknown(file, &made);
        made
    }

    pub(crate) fn make(
        &self,
        caller: &Arc<Caller>,
        dir: FileHandle,
        name: &Name,
        ask: impl FnMut(&dyn Names) -> Result<Changed<File>, ClerkError>,
    ) -> Result<Entry, ClerkError> {
        let asking = self.core.known.changing(dir);
        let (asked, promises) = (Instant::now(), self.core.promises());
        let since = Asked::now(promises.map(AsRef::as_ref));
        let made = self.ask(ask);
        let now = made.as_ref().ok().map(|file| Some(file.handle));
        self.core.known.changed(&asking, &[(name, now)]);
        self.core.expire(dir);
        self.doubt_if_unknown(dir, &made);
        let made = made?;
        self.learn_directories(&made);
        self.core.changed_here(made.reply.handle, &made.reply.attributes);
        if let (Some(promises), Some(version)) = (promises, made.promised) {
            let attributes = &made.reply.attributes;
            self.core.lists.made(made.reply.handle, attributes.revision, caller.uid);
            promises.made(since.ends(), made.reply.handle, (version, &made.reply.attributes));
        }
        if let (Some(_), Some(begun)) = (promises, made.begun) {
            self.core.lists.made(made.reply.handle, made.reply.attributes.revision, caller.uid);
            let file = self.core.file(made.reply.handle);
            file.give(&self.core, caller, (&made.reply, since), begun);
        }
        let entry = Entry { asked, ..self.learn(caller, &made.reply, Instant::now()) };
        let belief = self.told_to_all(dir, asking.belief());
        Ok(Entry { belief, ..self.with_own_writes(entry) })
    }

    /// What a symbolic link points to.
    ///
    /// # Errors
    ///
    /// What the drive says; `Manager(Invalid)` for something else than a symbolic link.
    pub fn readlink(
        &self,
        caller: &Arc<Caller>,
        handle: FileHandle,
    ) -> Result<Vec<u8>, ClerkError> {
        self.target(caller, handle, FileType::Symlink)
    }

    /// The data of what leads on to another file.
    pub(crate) fn target(
        &self,
        caller: &Arc<Caller>,
        handle: FileHandle,
        file_type: FileType,
    ) -> Result<Vec<u8>, ClerkError> {
        let attributes = self.getattr(caller, handle)?;
        if attributes.file_type != file_type {
            return Err(ClerkError::Manager(ManagerStatus::Invalid));
        }
        let slot = self.core.grants.slot(caller, handle);
        let mut target = vec![0; MAX_SYMLINK_BYTES];
        let outcome =
            self.core.with_grant(&slot, |grant| self.core.objects.read(grant, 0, &mut target))?;
        target.truncate(outcome.length);
        Ok(target)
    }

    /// Removes a name that is not a directory's. A file that has it and is `open` here stays until it is
    /// [`closed`](Clerk::closed).
    ///
    /// # Errors
    ///
    /// What the manager says.
    pub fn unlink(
        &self,
        caller: &Arc<Caller>,
        dir: FileHandle,
        name: &Name,
        open: Option<FileHandle>,
    ) -> Result<(), ClerkError> {
        self.keeping(open, |open| {
            self.change_name(dir, name, |names| names.unlink(caller, dir, name, open))
        })
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    ///
    /// What the manager says.
    pub fn rmdir(
        &self,
        caller: &Arc<Caller>,
        dir: FileHandle,
        name: &Name,
    ) -> Result<(), ClerkError> {
        self.change_name(dir, name, |names| names.rmdir(caller, dir, name))
    }

    /// Moves a name, over an existing one unless the flags say no. A file that has that one and is `open` here
    /// stays until it is [`closed`](Clerk::closed).
    ///
    /// # Errors
    ///
    /// What the manager says.
    pub fn rename(
        &self,
        caller: &Arc<Caller>,
        from: (FileHandle, &Name),
        to: (FileHandle, &Name),
        flags: RenameFlags,
        open: Option<FileHandle>,
    ) -> Result<(), ClerkError> {
        self.keeping(open, |open| self.rename_keeping(caller, from, to, flags, open))
    }

    fn rename_keeping(
        &self,
        caller: &Arc<Caller>,
        from: (FileHandle, &Name),
        to: (FileHandle, &Name),
        flags: RenameFlags,
        open: Option<FileHandle>,
    ) -> Result<(), ClerkError> {
        self.end_given_at(from.0, from.1)?;
        self.end_given_at(to.0, to.1)?;
        let known = &self.core.known;
        let source = known.leads_to(from.0, from.1).filter(|_| !flags.is_exchange());
        let asking = known.changing(from.0);
        let asking_there = (to.0 != from.0).then(|| known.changing(to.0));
        let outcome = self.ask(|names| names.rename(caller, from, to, flags, open));
        [from.0, to.0].into_iter().for_each(|dir| self.doubt_if_unknown(dir, &outcome));
        let source = source.filter(|_| outcome.is_ok());
        let (gone, come) = ((from.1, source.map(|_| None)), (to.1, source.map(Some)));
        match asking_there {
            None => self.names_changed(&asking, &[gone, come]),
            Some(there) => {
                self.names_changed(&asking, &[gone]);
                self.names_changed(&there, &[come]);
            }
        }
        outcome.map(|changed| self.learn_directories(&changed))
    }

    /// Keeps what came with the answer to a change.
    fn learn_directories<R>(&self, changed: &Changed<R>) {
        for told in &changed.directories {
            self.core.told_directory(told.handle, &told.attributes);
        }
    }

    /// What a name leads to is about to lose it, or to get another one.
    fn end_given_at(&self, dir: FileHandle, name: &Name) -> Result<(), ClerkError> {
        match self.core.known.last_known(dir, name) {
            Some(Some(file)) => self.core.end_given(file),
            Some(None) => Ok(()),
            None => self.core.end_all_given(),
        }
    }

    /// Where it is not known what has become of a change of a file's attributes, or of a directory's names, the file manager may make it yet, and
    /// would not tell its own client of it: what it has promised of that is not believed any more.
    pub(crate) fn doubt_if_unknown<T>(&self, file: FileHandle, outcome: &Result<T, ClerkError>) {
        let is_unknown = |error: &ClerkError| {
            matches!(error, ClerkError::Interrupted | ClerkError::Unreachable(_))
                || error.is_momentary()
        };
        if outcome.as_ref().is_err_and(is_unknown) {
            self.core.known.end(file);
            self.core.promises().into_iter().for_each(|promises| promises.changed(file));
        }
    }

    fn change_name(
        &self,
        dir: FileHandle,
        name: &Name,
        ask: impl FnMut(&dyn Names) -> Result<Changed<()>, ClerkError>,
    ) -> Result<(), ClerkError> {
        self.end_given_at(dir, name)?;
        let asking = self.core.known.changing(dir);
        let outcome = self.ask(ask);
        self.doubt_if_unknown(dir, &outcome);
        self.names_changed(&asking, &[(name, outcome.is_ok().then_some(None))]);
        outcome.map(|changed| self.learn_directories(&changed))
    }

    /// Names have changed: so have change time and links of the files that they led to, of which the drive
    /// hears a moment later.
    fn names_changed(&self, asking: &Asking, changes: &[(&Name, Option<Option<FileHandle>>)]) {
        self.core.expire(asking.directory());
        let files = self.core.known.changed(asking, changes);
        if files.is_empty()
            && let Some(promises) = self.core.promises()
        {
            // It is not known which files had the names.
            promises.any_attributes_changed();
        }
        for file in files {
            self.core.forget(file);
        }
    }

    /// Entries of a directory after `cookie`; 0 starts.
    ///
    /// # Errors
    ///
    /// What the manager says.
    pub fn readdir(
        &self,
        caller: &Arc<Caller>,
        dir: FileHandle,
        cookie: u64,
        max_entries: u32,
    ) -> Result<DirectoryPage, ClerkError> {
        if let Some(page) = self.list_promised(caller, dir, (cookie, max_entries)) {
            return Ok(page);
        }
        let asking = self.core.known.asking(dir);
        let page = self.ask(|names| names.readdir(caller, dir, cookie, max_entries))?;
        let names = page.entries.iter().map(|entry| (entry.name.clone(), Some(entry.handle)));
        if asking.belief().is_some() {
            self.core.known.told(&asking, caller, names, cookie == 0 && page.end);
        }
        Ok(page)
    }

    /// Room in the volume.
    ///
    /// # Errors
    ///
    /// What the manager says.
    pub fn space(&self, caller: &Arc<Caller>) -> Result<SpaceInformation, ClerkError> {
        self.ask(|names| names.space(caller))
    }

    /// The state of the cell.
    ///
    /// # Errors
    ///
    /// What the manager says.
    pub fn status(&self, caller: &Arc<Caller>) -> Result<CellStatus, ClerkError> {
        self.ask(|names| names.status(caller))
    }

    /// Opens a file. What others had written and closed before is seen from now on, and the
    /// attributes are as of now.
    ///
    /// # Errors
    ///
    /// `Access` if the caller's rights on the file do not allow the mode, `IsDirectory`.
    pub fn open(
        &self,
        caller: &Arc<Caller>,
        handle: FileHandle,
        mode: OpenMode,
    ) -> Result<(OpenFile, FileAttributes), ClerkError> {
        let asked = Instant::now();
        let attributes = self.getattr_now(caller, handle)?;
        self.open_by(caller, &Entry::now(handle, attributes, asked), mode, true)
    }

    /// Opens a file whose attributes the caller has just been told by `create` or `lookup`.
    ///
    /// # Errors
    ///
    /// As `open`.
    pub fn open_known(
        &self,
        caller: &Arc<Caller>,
        entry: &Entry,
        mode: OpenMode,
    ) -> Result<(OpenFile, FileAttributes), ClerkError> {
        self.open_by(caller, entry, mode, false)
    }

    /// The same, and whether the attributes are as of now for certain.
    fn open_by(
        &self,
        caller: &Arc<Caller>,
        entry: &Entry,
        mode: OpenMode,
        are_of_now: bool,
    ) -> Result<(OpenFile, FileAttributes), ClerkError> {
        if matches!(entry.attributes.file_type, FileType::Directory | FileType::MountPoint) {
            return Err(ClerkError::Manager(ManagerStatus::IsDirectory));
        }
        if self.core.promises().is_some() {
            return self.open_promised(caller, entry, mode);
        }
        let slot = self.slot_for(caller, entry.handle, mode)?;
        let file = self.core.file(entry.handle);
        let mut inner = file.lock();
        inner.hide_acknowledged(&self.core);
        if inner.restarts().is_none() && inner.pending.has_retained_to(u64::MAX) {
            // Nobody would tell when it has to be shown again: once it is durable it is kept no more. A failure is told to those who wrote.
            drop(inner);
            let _ = file.sync(&self.core);
            inner = file.lock();
        }
        inner.fetched.clear();
        // Whoever hinted it had it fetched for this open.
        let version = Version::of(&entry.attributes);
        match are_of_now {
            true => inner.hinted.keep(version, Instant::now()),
            false => {
                inner.hinted.clear();
                inner.hinted.note(version);
            }
        }
        if !inner.pending.shows_any() {
            // A write that was answered since may have made it longer.
            let is_older = inner.has_answered_since(entry.asked);
            let answers = if is_older { u64::MAX } else { inner.answers() };
            inner.note_size(entry.attributes.size, answers);
        }
        drop(inner);
        let open = OpenFile::new(Arc::clone(&self.core), file, mode, slot);
        Ok((open, entry.attributes))
    }

    /// Opens a file of a volume with callbacks: what is read is looked at when it is read.
    fn open_promised(
        &self,
        caller: &Arc<Caller>,
        entry: &Entry,
        mode: OpenMode,
    ) -> Result<(OpenFile, FileAttributes), ClerkError> {
        if mode.write && !self.core.may_store(caller, entry.handle, &entry.attributes)? {
            return Err(ClerkError::Access);
        }
        let reads = OpenMode { write: false, ..mode };
        let slot = self.slot_for(caller, entry.handle, reads)?;
        let file = self.core.file(entry.handle);
        if mode.read {
            // A capability in hand may be one that was ended, and others may have asked for the attributes since.
            self.core.require_readable(&slot)?;
            // Whoever opens it may want to know its length before he reads.
            file.show_current(&self.core, &slot)?;
        }
        let open = OpenFile::new(Arc::clone(&self.core), file, mode, slot);
        Ok((open, entry.attributes))
    }

    /// Where the caller's capability for a file is, if it allows the mode.
    pub(crate) fn slot_for(
        &self,
        caller: &Arc<Caller>,
        handle: FileHandle,
        mode: OpenMode,
    ) -> Result<Arc<Slot>, ClerkError> {
        let slot = self.core.grants.slot(caller, handle);
        let has = |rights: Rights| rights.contains(mode.rights());
        let grant = slot.current();
        if !grant.as_ref().is_some_and(|grant| has(grant.rights())) {
            // The mode of the file may have been changed since.
            let newer = self.core.renew(&slot, grant.as_ref())?;
            if !has(newer.rights()) {
                return Err(ClerkError::Access);
            }
        }
        Ok(slot)
    }

    /// The file at a path from the root. Symbolic links on the way are followed; the last one
    /// only with `follow`.
    ///
    /// # Errors
    ///
    /// What the manager says on the way; `Manager(Invalid)` for a circle of links; `OtherVolume` for a path that leads over a mount
    /// point. One that ends there is that of the mount point itself.
    pub fn resolve(
        &self,
        caller: &Arc<Caller>,
        path: &[u8],
        follow: bool,
    ) -> Result<Entry, ClerkError> {
        let root = self.root();
        self.resolve_from(caller, (root, Some(root)), path, follow)
    }

    /// The same from a directory, above which `..` does not lead. Links whose target begins with a slash lead to the
    /// directory that is given for them; `Manager(Invalid)` if none is.
    pub(crate) fn resolve_from(
        &self,
        caller: &Arc<Caller>,
        (begin, slash): (FileHandle, Option<FileHandle>),
        path: &[u8],
        follow: bool,
    ) -> Result<Entry, ClerkError> {
        let mut stack = vec![begin];
        let mut rest: Vec<Vec<u8>> = components(path).map(<[u8]>::to_vec).collect();
        rest.reverse();
        let (mut links, mut last) = (0, None);
        while let Some(name) = rest.pop() {
            if name == b".." {
                last = None;
                if stack.len() > 1 {
                    stack.pop();
                }
                continue;
            }
            let name = Name::new(&name).map_err(|_| ClerkError::NameTooLong)?;
            // There is always one on the stack.
            let dir = stack.last().copied().unwrap_or(begin);
            let handle = self.find(caller, dir, &name)?;
            let (attributes, asked) = self.getattr_since(caller, handle)?;
            if attributes.file_type == FileType::Symlink && (follow || !rest.is_empty()) {
                links += 1;
                if links > MAX_LINKS {
                    return Err(ClerkError::Manager(ManagerStatus::Invalid));
                }
                let target = self.readlink(caller, handle)?;
                if target.starts_with(b"/") {
                    stack = vec![slash.ok_or(ClerkError::Manager(ManagerStatus::Invalid))?];
                }
                let names: Vec<Vec<u8>> = components(&target).map(<[u8]>::to_vec).collect();
                rest.extend(names.into_iter().rev());
                last = None;
                continue;
            }
            if attributes.file_type == FileType::MountPoint && !rest.is_empty() {
                last = None;
                // It leads back before it leads anywhere.
                if rest.pop_if(|name| name == b"..").is_some() {
                    continue;
                }
                let volume = self.mounted_volume(caller, handle)?;
                let names: Vec<Vec<u8>> = rest.into_iter().rev().collect();
                return Err(ClerkError::OtherVolume { volume, path: names.join(&b'/') });
            }
            stack.push(handle);
            last = Some((attributes, asked));
        }
        let handle = stack.last().copied().unwrap_or(begin);
        let (attributes, asked) = last.map_or_else(|| self.getattr_since(caller, handle), Ok)?;
        Ok(Entry::now(handle, attributes, asked))
    }

    /// `lookup` through the cache of names.
    fn find(
        &self,
        caller: &Arc<Caller>,
        dir: FileHandle,
        name: &Name,
    ) -> Result<FileHandle, ClerkError> {
        match self.core.known.find(caller, dir, name, self.core.settings.attribute_ttl) {
            Some((Some(handle), _)) => Ok(handle),
            _ => Ok(self.lookup(caller, dir, name)?.handle),
        }
    }

    /// Takes a lock between all clients of the volume: `None` when its owner has it, else the one
    /// that is in the way. What others wrote under the lock is seen by whoever has it: what was
    /// read ahead is forgotten.
    ///
    /// # Errors
    ///
    /// `NoSession` where the clerk was told to have none; `LockLost`, `Interrupted`, and what the
    /// manager says.
    pub fn lock(
        &self,
        caller: &Arc<Caller>,
        request: &LockRequest,
        wait: bool,
    ) -> Result<Option<HeldLock>, ClerkError> {
        let in_the_way = self.session()?.lock(caller, request, wait)?;
        if in_the_way.is_none() {
            if let Some(file) = self.core.open_file(request.file) {
                // What was written here before the lock, and is kept because it is not durable, would hide what
                // others have written since. A failure is kept for those who wrote.
                let _ = file.sync(&self.core);
                file.lock().forget_read();
            }
            self.core.expire(request.file);
        }
        Ok(in_the_way)
    }

    /// Lets go of an owner's locks on some bytes. What was written under them is durable
    /// before.
    ///
    /// # Errors
    ///
    /// `NoSession`, and what the manager says; failures to write are kept for those who wrote.
    pub fn unlock(&self, request: &LockRequest) -> Result<(), ClerkError> {
        let session = self.session()?;
        if !session.holds(request.file, request.kind, request.owner) {
            return Ok(());
        }
        if let Some(file) = self.core.open_file(request.file) {
            // Durable, as what is not is kept here, and would hide what others write next.
            let _ = file.sync(&self.core);
        }
        session.unlock(request)
    }

    /// Who would be in the way of a lock.
    ///
    /// # Errors
    ///
    /// `NoSession`, and what the manager says.
    pub fn test_lock(&self, request: &LockRequest) -> Result<Option<HeldLock>, ClerkError> {
        self.session()?.test_lock(request)
    }

    pub(crate) fn session(&self) -> Result<&Session, ClerkError> {
        self.session.as_deref().ok_or(ClerkError::NoSession)
    }

    /// Makes everything that anybody has written through this clerk durable.
    ///
    /// # Errors
    ///
    /// The first failure; the other files are flushed nevertheless. Drives that are away are
    /// waited for side by side.
    pub fn sync_all(&self) -> Result<(), ClerkError> {
        let files: Vec<Arc<FileState>> = self.core.dirty().files.values().cloned().collect();
        for file in &files {
            file.sync_in_background(&self.core);
        }
        let mut outcome = Ok(());
        for file in &files {
            outcome = outcome.and(match file.sync(&self.core) {
                // It was removed: nobody misses what it had.
                Err(error) if error.is_gone() => Ok(()),
                outcome => outcome,
            });
        }
        outcome
    }

    /// Commits if the manager answers soon. If not, what it has answered is durable a moment later anyway.
    fn try_to_commit(&self) {
        let (told, answer) = mpsc::channel();
        let (core, root) = (Arc::clone(&self.core), self.root());
        let commit = move || drop(told.send(core.commit(root)));
        let asked = thread::Builder::new().name("nasd-commit".into()).spawn(commit);
        let committed = asked.ok().and_then(|_| answer.recv_timeout(COMMIT_PATIENCE).ok());
        if !matches!(committed, Some(Ok(()))) {
            tracing::warn!("the manager did not say that the last changes of names are durable");
        }
    }

    /// Makes durable what this clerk has changed of names and attributes (fsync of a directory).
    ///
    /// # Errors
    ///
    /// What the manager says.
    pub fn commit(&self) -> Result<(), ClerkError> {
        self.core.commit(self.root())
    }

    /// Flushes everything and ends the clerk's threads. Files still open must not be written any
    /// more.
    ///
    /// # Errors
    ///
    /// As `sync_all`; also a failure of an earlier write that nobody was told of.
    pub fn close(&self) -> Result<(), ClerkError> {
        let outcome = self.sync_all().and(self.core.untold_failure().map_or(Ok(()), Err));
        self.try_to_commit();
        self.stop();
        outcome
    }

    fn stop(&self) {
        if let Some(session) = &self.session {
            session.close();
        }
        self.core.dirty().closed = true;
        self.core.dirtied.notify_all();
        let thread = self.background.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the background thread of the clerk failed");
        }
        self.core.close_pools();
        // Whoever has a part of this clerk yet ends with the process, and does not wait for what is to be kept.
        if let Some(cache) = self.core.promises().and_then(|promises| promises.cache()) {
            cache.settle();
        }
    }
}

impl Drop for Clerk {
    fn drop(&mut self) {
        self.stop();
    }
}
