//! Access control lists as AFS has them, as far as the clerk has to know them itself: who opens a file for writing is to be refused at once, and is given
//! a capability to store it only when there is something to store.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nasd_afs::acl::Acl;

use crate::wire::FileHandle;

/// Files whose lists are kept at most.
const MOST_KEPT: usize = 4096;

#[derive(Debug, Default)]
struct Kept {
    told: HashMap<FileHandle, (u64, Arc<Acl>)>,
    /// Who has made a file, by his number: of its list no more is known.
    made: HashMap<FileHandle, (u64, u32)>,
}

/// Lists that govern files, each with the revision of the attributes that it was told for: another list is another revision.
#[derive(Debug, Default)]
pub(crate) struct Lists(Mutex<Kept>);

impl Lists {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The list that governs a file in this revision.
    pub(crate) fn find(&self, handle: FileHandle, revision: u64) -> Option<Arc<Acl>> {
        let kept = self.kept();
        let (of, list) = kept.told.get(&handle)?;
        (*of == revision).then(|| Arc::clone(list))
    }

    pub(crate) fn keep(&self, handle: FileHandle, revision: u64, list: Arc<Acl>) {
        let told = &mut self.kept().told;
        make_room(told);
        told.insert(handle, (revision, list));
    }

    /// A user has just made a file: he may insert into its directory, and so may fill it. That says nothing of others.
    pub(crate) fn made(&self, handle: FileHandle, revision: u64, uid: u32) {
        let made = &mut self.kept().made;
        make_room(made);
        made.insert(handle, (revision, uid));
    }

    /// Whether the user has made the file, and nothing has changed since of who may do what with it.
    pub(crate) fn is_made_by(&self, handle: FileHandle, revision: u64, uid: u32) -> bool {
        self.kept().made.get(&handle) == Some(&(revision, uid))
    }
}

fn make_room<T>(kept: &mut HashMap<FileHandle, T>) {
    if kept.len() >= MOST_KEPT {
        kept.clear();
    }
}
