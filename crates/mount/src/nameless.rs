//! Open files without a name: those that were removed while they are open, and those that were made without
//! one (`O_TMPFILE`). The file manager keeps them until they are closed, or the mount ends.

use std::sync::Arc;

use nasd_clerk::{Caller, FileHandle, NewMode};
use nasd_fuse::{Attributes, Errno, Opened};

use crate::attributes::errno;
use crate::callers::Who;
use crate::files::{Opening, mode_of};
use crate::tree::{Tree, permissions};

impl Tree {
    /// A file has lost a name while it was open here; perhaps its last one.
    pub(crate) fn lost_name(&self, caller: &Arc<Caller>, open: Option<(u64, FileHandle)>) {
        let Some((ino, file)) = open else { return };
        if self.clerk.getattr_now(caller, file).is_ok_and(|now| now.links == 0) {
            self.inodes.set_nameless(ino, true);
        }
        if !self.inodes.is_open(ino) {
            // It was closed meanwhile, and that was not told as nobody knew.
            self.clerk.closed(file);
        }
    }

    /// A file has a name, if it had none before.
    pub(crate) fn got_name(&self, ino: u64, file: FileHandle) {
        if self.inodes.is_nameless(ino) {
            self.inodes.set_nameless(ino, false);
            self.clerk.closed(file);
        }
    }

    /// Makes a file without a name in a directory, and opens it.
    pub(crate) fn tmpfile(
        &self,
        who: Who,
        parent: u64,
        mode: NewMode,
        flags: i32,
    ) -> Result<(Attributes, Opened), Errno> {
        let (dir, caller) = (self.handle(parent)?, self.callers.get(who));
        let made = self.clerk.tmpfile(&caller, dir, permissions(mode), mode_of(flags));
        let (open, attributes) = made.map_err(|error| errno(&error))?;
        let file = open.handle();
        self.number(&caller, file);
        let ino = self.inodes.remember_nameless(file);
        let opening = Opening::begin(self, ino, file, mode_of(flags));
        let opened = self.opened(opening, (open, caller), &attributes, flags);
        Ok((self.present(ino, &attributes), opened))
    }

    /// What the process before has open is open here, and what it was kept for by the file manager is kept for
    /// this one.
    pub(crate) fn claim_nameless(&self, kept: &[FileHandle]) {
        let open: Vec<FileHandle> =
            self.files.all().iter().map(|(_, file)| file.open.handle()).collect();
        if let Err(error) = self.clerk.claim(&open, kept) {
            tracing::warn!(%error, "files without a name end with the process before");
        }
    }
}
