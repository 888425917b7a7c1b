//! Directories' contents: read whole into memory, and changed there.

use std::sync::{Arc, PoisonError, RwLockWriteGuard};

use nasd_protocol::manager::{FileHandle, FileType, ManagerStatus};
use nasd_types::limits::MAX_TRANSFER_BYTES;

use super::{Namespace, Outcome, failure};
use crate::directory::overlay::lay_over;
use crate::directory::{Directory, DirectoryCell};
use crate::handle::Shown;
use crate::objects::Wait;

/// The first read of a directory; most end here.
const FIRST_READ_BYTES: u64 = 64 << 10;

/// What a name in a directory says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) handle: FileHandle,
    pub(super) file_type: FileType,
}

impl Namespace {
    /// Looks at a directory's contents. The caller holds its lock.
    pub(super) fn read_directory<T>(
        &self,
        directory: FileHandle,
        look: impl FnOnce(&Directory) -> T,
    ) -> Outcome<T> {
        let cell = self.directories.cell(directory);
        {
            let contents = cell.contents.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(contents) = contents.as_ref() {
                return Ok(look(contents));
            }
        }
        let mut contents = cell.contents.write().unwrap_or_else(PoisonError::into_inner);
        self.load_if_absent(directory, &mut contents).map(|contents| look(contents))
    }

    /// What a name in a directory says. The caller holds the directory's lock.
    pub(super) fn find(&self, directory: FileHandle, name: &[u8]) -> Outcome<Option<Target>> {
        self.read_directory(directory, |contents| {
            let entry = contents.find(name)?;
            Some(Target { handle: entry.handle, file_type: entry.file_type })
        })
    }

    /// A directory whose contents are in memory, and stay there as long as the caller has this. The
    /// caller holds the directory's lock.
    pub(super) fn loaded(&self, directory: FileHandle) -> Outcome<Arc<DirectoryCell>> {
        let cell = self.directories.cell(directory);
        if cell.contents.read().unwrap_or_else(PoisonError::into_inner).is_none() {
            let mut contents = cell.contents.write().unwrap_or_else(PoisonError::into_inner);
            self.load_if_absent(directory, &mut contents)?;
        }
        Ok(cell)
    }

    /// Puts the contents of a directory that was just made into memory.
    pub(super) fn adopt_empty_directory(&self, directory: FileHandle) {
        let cell = self.directories.cell(directory);
        let mut contents = cell.contents.write().unwrap_or_else(PoisonError::into_inner);
        *contents = Some(Directory::empty(directory.object));
    }

    fn load_if_absent<'a>(
        &self,
        directory: FileHandle,
        contents: &'a mut RwLockWriteGuard<'_, Option<Directory>>,
    ) -> Outcome<&'a mut Directory> {
        if contents.is_none() {
            let loaded = self.load(directory)?;
            self.directories.charge(directory, loaded.memory_bytes());
            **contents = Some(loaded);
        }
        // Just put there if it was not.
        contents.as_mut().ok_or(ManagerStatus::Io)
    }

    /// Reads a directory, and lays what may not be home over it. Nobody changes it meanwhile, so that what
    /// comes home while it is read is among that.
    fn load(&self, directory: FileHandle) -> Outcome<Directory> {
        let slots = self.journal.slots(directory);
        let mut data = Vec::new();
        let mut wanted = FIRST_READ_BYTES;
        loop {
            let offset = data.len() as u64;
            let part = self
                .objects
                .read(directory, offset, wanted, Wait::Patient)
                .map_err(|error| failure("read the directory", directory, &error))?;
            let short = (part.len() as u64) < wanted;
            data.extend_from_slice(&part);
            if short {
                break;
            }
            wanted = MAX_TRANSFER_BYTES as u64;
        }
        lay_over(directory.object, &mut data, &slots)
            .and_then(|()| Directory::parse(directory.object, &data))
            .map_err(|error| {
                tracing::error!(directory = %Shown(directory), %error, "bad directory");
                ManagerStatus::Io
            })
    }
}
