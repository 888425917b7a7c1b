//! Access control lists as AFS has them, as far as the clerk has to know them itself: who opens a file for writing is to be refused at once, and is given
//! a capability to store it only when there is something to store.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use nasd_afs::acl::{Acl, AclRights, AclSubject};

use crate::wire::FileHandle;

/// Files whose lists are kept at most.
const MOST_KEPT: usize = 4096;

/// Lists that govern files, each with the revision of the attributes that it was told for: another list is another revision.
#[derive(Debug, Default)]
pub(crate) struct Lists(Mutex<HashMap<FileHandle, (u64, Arc<Acl>)>>);

impl Lists {
    /// The list that governs a file in this revision.
    pub(crate) fn find(&self, handle: FileHandle, revision: u64) -> Option<Arc<Acl>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (of, list) = kept.get(&handle)?;
        (*of == revision).then(|| Arc::clone(list))
    }

    pub(crate) fn keep(&self, handle: FileHandle, revision: u64, list: Arc<Acl>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MOST_KEPT {
            kept.clear();
        }
        kept.insert(handle, (revision, list));
    }

    /// The caller has just made a file: he may insert into its directory, and so may fill it.
    pub(crate) fn made(&self, handle: FileHandle, revision: u64, uid: u32) {
        let mut list = Acl::default();
        let rights = AclRights::LOOKUP.with(AclRights::INSERT);
        // One entry fits.
        if list.set(AclSubject::User(uid), false, rights).is_ok() {
            self.keep(handle, revision, Arc::new(list));
        }
    }
}
