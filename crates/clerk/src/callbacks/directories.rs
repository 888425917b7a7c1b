//! Directories of a volume with callbacks: their names are read where they are, in the directory's object at its drive
//! (`docs/directory-format.md`), and believed as long as the callback holds.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nasd_directory::{DirectoryError, parse_listing};
use nasd_types::Rights;

use crate::ClerkError;
use crate::clerk::Clerk;
use crate::names::Asking;
use crate::wire::{Caller, DirectoryEntry, DirectoryPage, FileHandle, ManagerStatus, Name};

/// Most bytes of one read.
const READ_BYTES: usize = 1 << 20;

/// Directories whose entries are kept at most, and their entries.
const MAX_LISTINGS: usize = 4096;
const MAX_ENTRIES: usize = 1 << 20;

#[derive(Debug)]
struct Listing {
    /// What was known of the directory when it was read.
    asking: Asking,
    entries: Arc<[DirectoryEntry]>,
}

/// The entries of directories, as they were read.
#[derive(Debug, Default)]
pub(crate) struct Listings(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    listings: HashMap<FileHandle, Listing>,
    entries: usize,
}

impl Listings {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, asking: Asking, entries: Arc<[DirectoryEntry]>) {
        let mut kept = self.lock();
        let is_full = kept.entries + entries.len() > MAX_ENTRIES;
        if is_full || kept.listings.len() >= MAX_LISTINGS {
            *kept = Kept::default();
        }
        kept.entries += entries.len();
        let before = kept.listings.insert(asking.directory(), Listing { asking, entries });
        kept.entries -= before.map_or(0, |before| before.entries.len());
    }

    fn find(&self, directory: FileHandle) -> Option<(Asking, Arc<[DirectoryEntry]>)> {
        let kept = self.lock();
        let known = kept.listings.get(&directory)?;
        Some((known.asking, Arc::clone(&known.entries)))
    }
}

impl Clerk {
    /// The entries of a directory, if what was read of them is believed.
    pub(super) fn believed_entries(
        &self,
        caller: &Arc<Caller>,
        dir: FileHandle,
    ) -> Option<Arc<[DirectoryEntry]>> {
        let (asking, entries) = self.listings.find(dir)?;
        let is_so = self.core.known.is_as_asked(&asking, caller);
        is_so.then_some(entries)
    }

    /// A directory that was just made here has no names: if there is a callback on it, that is believed.
    pub(crate) fn believe_empty(&self, caller: &Arc<Caller>, dir: FileHandle) {
        let (Some(promises), known) = (self.core.promises(), &self.core.known) else {
            return;
        };
        let Some(number) = known.wants_lease(dir, true) else {
            return;
        };
        let is_promised = promises.believed_version(dir).is_some();
        known.leased(dir, number, is_promised);
        let asking = known.asking(dir);
        // It may have ended meanwhile, and the lease then with it, or before it was there.
        if is_promised && promises.believed_version(dir).is_some() {
            known.told(&asking, caller, [], true);
        } else {
            known.end(dir);
        }
    }

    /// Reads the names of a directory from its object, where the caller may list it and holds a callback.
    ///
    /// # Errors
    /// What the drive says; `Manager(Access)` where the caller may not list it; `Protocol` where what it has is no directory.
    pub(crate) fn read_names(
        &self,
        caller: &Arc<Caller>,
        dir: FileHandle,
    ) -> Result<Arc<[DirectoryEntry]>, ClerkError> {
        // In this order: changes by this clerk are told apart by it, and brought home by asking.
        let asking = self.core.known.asking(dir);
        let slot = self.core.grants.slot(caller, dir);
        let told = self.core.ask_to_look(&slot, true)?;
        if !told.file.capability.capability.rights.contains(Rights::READ) {
            return Err(ClerkError::Manager(ManagerStatus::Access));
        }
        let mut data = Vec::new();
        loop {
            let at = data.len();
            data.resize(at + READ_BYTES, 0);
            let read = self.core.with_grant(&slot, |grant| {
                self.core.objects.read(grant, at as u64, &mut data[at..])
            })?;
            data.truncate(at + read.length);
            if read.length < READ_BYTES {
                break;
            }
        }
        let listed = parse_listing(dir.object, &data).map_err(|error| bad(&error))?;
        let entries: Result<Vec<DirectoryEntry>, ClerkError> = listed
            .into_iter()
            .map(|entry| {
                let name = Name::new(&entry.name).map_err(|_| ClerkError::BadName)?;
                let (cookie, handle) = (entry.cookie, entry.handle);
                Ok(DirectoryEntry { cookie, handle, file_type: entry.file_type, name })
            })
            .collect();
        let entries: Arc<[DirectoryEntry]> = entries?.into();
        if asking.belief().is_some() {
            let names = entries.iter().map(|entry| (entry.name.clone(), Some(entry.handle)));
            self.core.known.told(&asking, caller, names, true);
            self.listings.keep(asking, Arc::clone(&entries));
        }
        Ok(entries)
    }

    /// Entries after `cookie`, from the directory's object; nothing where the caller may not read that.
    pub(crate) fn list_promised(
        &self,
        caller: &Arc<Caller>,
        dir: FileHandle,
        (cookie, max_entries): (u64, u32),
    ) -> Option<DirectoryPage> {
        self.core.promises()?;
        let entries = match self.believed_entries(caller, dir) {
            Some(entries) => entries,
            None => {
                self.begin_lease(caller, dir);
                let known = self.believed_entries(caller, dir);
                known.or_else(|| self.read_names(caller, dir).ok())?
            }
        };
        if cookie == 0 {
            self.core.known.is_listed(dir);
        }
        let from = entries.partition_point(|entry| entry.cookie <= cookie);
        let most = max_entries.max(1) as usize;
        let page: Vec<DirectoryEntry> = entries[from..].iter().take(most).cloned().collect();
        let end = from + page.len() == entries.len();
        Some(DirectoryPage { entries: page, end })
    }
}

fn bad(error: &DirectoryError) -> ClerkError {
    ClerkError::Protocol(format!("the drive's directory can't be read: {error}"))
}
