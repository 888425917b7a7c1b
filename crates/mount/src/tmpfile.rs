//! Files that are made without a name (`O_TMPFILE`). An object has no life without one, so such a file has
//! a hidden name, as one has that was removed while open; it may get a name that is seen later.

use nasd_clerk::NewMode;
use nasd_fuse::{Attributes, Errno, Opened};

use crate::attributes::errno;
use crate::callers::Who;
use crate::files::{Opening, mode_of};
use crate::hidden::Place;
use crate::tree::{Tree, permissions};

impl Tree {
    /// Makes a file without a name in a directory, and opens it.
    pub(crate) fn tmpfile(
        &self,
        who: Who,
        parent: u64,
        mode: NewMode,
        flags: i32,
    ) -> Result<(Attributes, Opened), Errno> {
        let (dir, caller) = (self.handle(parent)?, self.callers.get(who));
        let place = Place::new(dir, &caller)?;
        let made = self.clerk.create(&caller, dir, &place.name, permissions(mode), true);
        let entry = made.map_err(|error| errno(&error))?;
        self.number(&caller, entry.handle);
        let ino = self.inodes.remember_nameless(entry.handle, place);
        let opening = Opening::begin(self, ino, entry.handle, mode_of(flags));
        let opened = self.clerk.open_known(&caller, &entry, mode_of(flags));
        let (open, attributes) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                // The kernel is not told of it.
                self.inodes.forget(ino, 1);
                return Err(errno(&error));
            }
        };
        let opened = self.opened(opening, (open, caller), &attributes, flags);
        Ok((self.present(ino, &attributes), opened))
    }
}
