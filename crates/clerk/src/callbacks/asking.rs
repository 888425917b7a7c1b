//! How a clerk comes to believe something of a file: it asks for a capability to read, and a callback.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nasd_afs::acl::{Acl, AclRights};
use nasd_afs::callbacks::Version;
use nasd_client::interrupt;
use nasd_types::{Rights, Timestamp};

use super::Promises;
use crate::ClerkError;
use crate::backend::Names;
use crate::core::Core;
use crate::file::FileState;
use crate::grants::Slot;
use crate::wire::{Caller, Extended, FileAttributes, FileHandle, ManagerStatus, Name, Readable};
use crate::xattrs::AFS_ACL;

/// Between two looks whether a session has begun anew.
const SESSION_PAUSE: Duration = Duration::from_millis(20);

impl Core {
    /// What is believed, where the volume has callbacks.
    pub(crate) fn promises(&self) -> Option<&Arc<Promises>> {
        self.promises.get()
    }

    /// Asks for a callback, and keeps what comes with it.
    pub(crate) fn ask_capability(
        self: &Arc<Self>,
        slot: &Arc<Slot>,
    ) -> Result<Readable, ClerkError> {
        self.ask_to_look(slot, false)
    }

    /// The same; a directory's contents are in its object then if they are to be read.
    pub(crate) fn ask_to_look(
        self: &Arc<Self>,
        slot: &Arc<Slot>,
        contents: bool,
    ) -> Result<Readable, ClerkError> {
        self.end_given(slot.handle)?;
        let asking = self.promises().map(|promises| promises.asking(slot.handle));
        let told =
            self.ask_in_session(|names| names.get_capability(&slot.caller, slot.handle, contents))?;
        if let (Some(promises), Some(asking)) = (self.promises(), asking) {
            promises.granted(&asking, &told);
        }
        slot.install_of(&told.file, self.protection(), Some(told.version));
        Ok(told)
    }

    /// Whether there is a callback on a directory; where nobody has got one yet, it is got on behalf of the clerk itself.
    pub(crate) fn is_promised(
        self: &Arc<Self>,
        promises: &Promises,
        directory: FileHandle,
    ) -> bool {
        if promises.believed_version(directory).is_some() {
            return true;
        }
        let slot = self.grants.slot(&self.caller, directory);
        self.ask_capability(&slot).is_ok_and(|told| told.promised)
    }

    /// Asks the file manager for what only a session is given; again where that has just ended, until it has begun anew.
    pub(crate) fn ask_in_session<T>(
        &self,
        mut ask: impl FnMut(&dyn Names) -> Result<T, ClerkError>,
    ) -> Result<T, ClerkError> {
        let deadline = self.deadline();
        loop {
            match self.ask_names(&mut ask) {
                Err(ClerkError::Manager(ManagerStatus::NoSession)) if Instant::now() < deadline => {
                    interrupt::pause(SESSION_PAUSE)?;
                }
                outcome => return outcome,
            }
        }
    }

    /// Requires that the file manager lets the caller read a file, as it is now, where more than its mode decides that. Who has
    /// it open may have lost the right since, and what others have read is kept here for all.
    pub(crate) fn require_readable(self: &Arc<Self>, slot: &Arc<Slot>) -> Result<(), ClerkError> {
        let Some(promises) = self.promises() else {
            return Ok(());
        };
        if let Some((version, is_governed)) = promises.believed_rule(slot.handle)
            && (!is_governed || slot.may_read(version))
        {
            return Ok(());
        }
        if self.given_grant(slot).is_some_and(|grant| grant.rights().contains(Rights::READ)) {
            // As he has made it, and nobody else can have changed it yet.
            return Ok(());
        }
        if let Some(store) = self.store_of(slot.handle) {
            // Nobody changes the list of a file that is being stored: what was told of the version that the store began with is so, and whoever
            // stores is known to the file manager. For others it answers when the store is over.
            let is_governed = store.attributes_before().extended.has(Extended::AFS_ACL);
            let is_his = store.grant.caller == slot.caller;
            if !is_governed || is_his || slot.may_read(store.version.saturating_sub(1)) {
                return Ok(());
            }
        }
        let told = self.ask_capability(slot)?;
        let may = told.file.capability.capability.rights.contains(Rights::READ);
        let is_governed = told.file.attributes.extended.has(Extended::AFS_ACL);
        if may || !is_governed { Ok(()) } else { Err(ClerkError::Access) }
    }

    /// Whether the caller may write to a file, as far as its mode says, or the list that governs it; the file manager has the last word
    /// when it is stored.
    ///
    /// # Errors
    /// What the file manager says where it has to be asked for the list.
    pub(crate) fn may_store(
        &self,
        caller: &Arc<Caller>,
        handle: FileHandle,
        attributes: &FileAttributes,
    ) -> Result<bool, ClerkError> {
        if caller.uid == 0 || !attributes.extended.has(Extended::AFS_ACL) {
            return Ok(self.may_store_by_mode(caller, attributes));
        }
        // What is shown of others is what the mode leaves of the list. The owner's bits are his kernel's affair: he may write on what he has
        // made read-only.
        let owns = caller.uid == attributes.uid;
        const OTHERS_WRITE: u32 = 0o002;
        if !owns && attributes.mode & OTHERS_WRITE == 0 {
            return Ok(false);
        }
        if owns && self.lists.is_made_by(handle, attributes.revision, caller.uid) {
            return Ok(true);
        }
        let list = self.list_of(caller, handle, attributes.revision)?;
        let rights =
            list.rights_of(caller.uid, &|gid| caller.gid == gid || caller.groups.contains(&gid));
        Ok(rights.has(AclRights::WRITE) || (owns && rights.has(AclRights::INSERT)))
    }

    /// The list that governs a file in this revision of its attributes.
    fn list_of(
        &self,
        caller: &Arc<Caller>,
        handle: FileHandle,
        revision: u64,
    ) -> Result<Arc<Acl>, ClerkError> {
        if let Some(list) = self.lists.find(handle, revision) {
            return Ok(list);
        }
        let name = Name::new(AFS_ACL).map_err(|_| ClerkError::BadName)?;
        let told = self.ask_names(|names| names.getxattr(caller, handle, &name));
        let text = match told {
            // None governs it any more: the next who asks is told its mode.
            Err(ClerkError::Manager(ManagerStatus::NoData)) => return Ok(Arc::default()),
            told => told?,
        };
        let list =
            Acl::from_text(&text).map_err(|error| ClerkError::Protocol(error.to_string()))?;
        let list = Arc::new(list);
        self.lists.keep(handle, revision, Arc::clone(&list));
        Ok(list)
    }

    /// The same as far as a file's mode says.
    fn may_store_by_mode(&self, caller: &Caller, attributes: &FileAttributes) -> bool {
        const WRITE: u32 = 0o2;
        let mode = attributes.mode;
        let is_in_group = caller.gid == attributes.gid || caller.groups.contains(&attributes.gid);
        let granted = match () {
            () if caller.uid == 0 || caller.uid == attributes.uid => return true,
            () if attributes.extended.has(Extended::ACCESS_ACL) => return true,
            () if is_in_group => mode >> 3,
            () => mode,
        };
        granted & WRITE != 0
    }

    /// The answer to a change of a file by this clerk has told its attributes.
    pub(crate) fn changed_here(&self, handle: FileHandle, attributes: &FileAttributes) {
        if let Some(promises) = self.promises() {
            promises.attributes_changed(handle);
            promises.attributes_told(handle, attributes);
        }
    }

    /// Attributes as they are now, own writes in them.
    pub(crate) fn getattr_promised(
        self: &Arc<Self>,
        promises: &Promises,
        caller: &Arc<Caller>,
        handle: FileHandle,
    ) -> Result<FileAttributes, ClerkError> {
        self.getattr_with_neighbours(promises, caller, handle, &[])
    }

    /// The same. Where the file manager has to be asked it is asked for these neighbours, too.
    pub(crate) fn getattr_with_neighbours(
        self: &Arc<Self>,
        promises: &Promises,
        caller: &Arc<Caller>,
        handle: FileHandle,
        neighbours: &[FileHandle],
    ) -> Result<FileAttributes, ClerkError> {
        let file = self.open_file(handle);
        if let Some(file) = &file {
            file.await_return(self)?;
        }
        let (is_stored, stored) = file.as_ref().map_or((false, None), |file| {
            let inner = file.lock();
            let stored = inner.store.as_ref().map(|store| store.attributes(promises));
            (stored.is_some(), stored.unwrap_or_else(|| inner.given_attributes(promises)))
        });
        let attributes = match stored.or(promises.believed(handle).map(|(_, told)| told)) {
            Some(attributes) => {
                self.measures.attributes_known.add(1);
                attributes
            }
            // Who asks for a callback waits for the store. Nobody else can change the contents meanwhile.
            None if is_stored => {
                self.measures.attributes_asked.add(1);
                self.ask_names(|names| names.getattr(caller, handle))?.attributes
            }
            None => {
                self.measures.attributes_asked.add(1);
                let slot = self.grants.slot(caller, handle);
                self.ask_with_neighbours(&slot, neighbours)?.file.attributes
            }
        };
        Ok(file.map_or(attributes, |file| file.with_own(attributes)))
    }

    /// The same, if they are known without asking.
    pub(crate) fn known_attributes(
        &self,
        handle: FileHandle,
        ttl: Duration,
    ) -> Option<(FileAttributes, Duration)> {
        match self.promises() {
            Some(promises) => promises.believed(handle).map(|(_, told)| (told, Duration::ZERO)),
            None => self.attributes.fresh(handle, ttl),
        }
    }

    /// Length and times of a file were changed here.
    pub(crate) fn expire(&self, handle: FileHandle) {
        self.attributes.expire(handle);
        if let Some(promises) = self.promises() {
            promises.attributes_changed(handle);
        }
    }

    /// All attributes of a file were changed here.
    pub(crate) fn forget(&self, handle: FileHandle) {
        self.attributes.forget(handle);
        if let Some(promises) = self.promises() {
            promises.attributes_changed(handle);
        }
    }

    /// The answer to a change of a directory has told its attributes.
    pub(crate) fn told_directory(&self, handle: FileHandle, attributes: &FileAttributes) {
        self.attributes.told_directory(handle, attributes);
        if let Some(promises) = self.promises() {
            promises.attributes_told(handle, attributes);
        }
    }
}

impl FileState {
    /// Attributes with what was written here and is not stored yet.
    fn with_own(&self, mut attributes: FileAttributes) -> FileAttributes {
        let inner = self.lock();
        if !inner.has_written() {
            return attributes;
        }
        if inner.emptied.is_some() {
            attributes.size = 0;
        }
        let end = attributes.size.max(inner.pending.end()) + inner.appending.held_bytes();
        let written = wall_clock(inner.last_write);
        attributes.size = end;
        attributes.modify_time = attributes.modify_time.max(written);
        attributes.change_time = attributes.change_time.max(written);
        attributes
    }

    /// What is read from now on is what the file is now, or was later. Answers the version that is shown; nothing where that needs not be
    /// looked at again after something was read: nobody else can change the file, or the volume has no callbacks.
    pub(crate) fn show_current(
        self: &Arc<Self>,
        core: &Arc<Core>,
        slot: &Arc<Slot>,
    ) -> Result<Option<Version>, ClerkError> {
        let Some(promises) = core.promises() else {
            return Ok(None);
        };
        self.await_return(core)?;
        if self.lock().is_own(promises) {
            return Ok(None);
        }
        if let Some(version) = promises.believed_version(self.handle)
            && self.lock().shown == Some(version)
        {
            return Ok(Some(version));
        }
        let (version, attributes) = match promises.believed(self.handle) {
            Some(believed) => believed,
            None => {
                let told = core.ask_capability(slot)?;
                (told.version, told.file.attributes)
            }
        };
        let mut inner = self.lock();
        if !inner.is_own(promises) && inner.shown != Some(version) {
            inner.forget_read();
            let answers = inner.answers();
            inner.note_size(attributes.size, answers);
            inner.shown = Some(version);
        }
        Ok(Some(version))
    }

    /// Reads, and again where somebody else has stored the file meanwhile: what is read is of one version.
    pub(crate) fn read_current<T>(
        self: &Arc<Self>,
        core: &Arc<Core>,
        slot: &Arc<Slot>,
        mut read: impl FnMut() -> Result<T, ClerkError>,
    ) -> Result<T, ClerkError> {
        let deadline = core.deadline();
        loop {
            let shown = self.show_current(core, slot)?;
            let outcome = read();
            let told = core.promises().and_then(|promises| promises.version(self.handle));
            if shown.is_none() || told == shown {
                return outcome;
            }
            if Instant::now() >= deadline {
                return Err(ClerkError::Manager(ManagerStatus::Busy));
            }
            interrupt::check()?;
        }
    }
}

/// A moment on this host's clock.
fn wall_clock(moment: Instant) -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let then = since.saturating_sub(moment.elapsed());
    Timestamp::from_parts(then.as_secs(), then.subsec_nanos())
}
