//! Directories' contents: read whole into memory, changed by one write at a time.

use std::sync::{PoisonError, RwLockWriteGuard};

use nasd_protocol::manager::{FileHandle, FileType, ManagerStatus};
use nasd_types::SetAttributes;
use nasd_types::limits::{BLOCK_BYTES, MAX_TRANSFER_BYTES};

use super::{Namespace, Outcome, failure};
use crate::directory::{Change, Directory};
use crate::handle::Shown;
use crate::objects::{ObjectError, Wait};

/// The first read of a directory; most end here.
const FIRST_READ_BYTES: u64 = 64 << 10;

/// What a name in a directory says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) handle: FileHandle,
    pub(super) file_type: FileType,
}

/// A change of a directory that failed.
#[derive(Debug)]
pub(super) struct NotChanged {
    /// What the client is told.
    pub(super) status: ManagerStatus,
    /// Whether the directory is certainly as it was.
    pub(super) certain: bool,
    /// Whether the drive may do it when it is back.
    pub(super) unavailable: bool,
}

impl NotChanged {
    pub(super) fn for_certain(status: ManagerStatus) -> Self {
        let unavailable = status == ManagerStatus::Unavailable;
        NotChanged { status, certain: true, unavailable }
    }
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
        self.load_if_absent(directory, &mut contents, Wait::Patient).map(|contents| look(contents))
    }

    /// What a name in a directory says. The caller holds the directory's lock.
    pub(super) fn find(&self, directory: FileHandle, name: &[u8]) -> Outcome<Option<Target>> {
        self.read_directory(directory, |contents| {
            let entry = contents.find(name)?;
            Some(Target { handle: entry.handle, file_type: entry.file_type })
        })
    }

    /// Changes a directory's contents: plans one change, writes it durably, applies it in memory.
    /// Without a plan nothing is to be done. The caller holds the directory's lock alone.
    pub(super) fn change_directory(
        &self,
        directory: FileHandle,
        wait: Wait,
        plan: impl FnOnce(&Directory) -> Outcome<Option<Change>>,
    ) -> Result<(), NotChanged> {
        let cell = self.directories.cell(directory);
        let mut contents = cell.contents.write().unwrap_or_else(PoisonError::into_inner);
        let loaded =
            self.load_if_absent(directory, &mut contents, wait).map_err(NotChanged::for_certain)?;
        let Some(change) = plan(loaded).map_err(NotChanged::for_certain)? else {
            return Ok(());
        };
        if let Err(error) = self.write_change(directory, &change, wait) {
            // Whatever the drive has now, it will be read again.
            *contents = None;
            return Err(NotChanged {
                status: failure("change the directory", directory, &error),
                certain: error.is_certain(),
                unavailable: error.is_unavailable(),
            });
        }
        loaded.apply(change);
        self.directories.charge(directory, loaded.memory_bytes());
        Ok(())
    }

    fn write_change(
        &self,
        directory: FileHandle,
        change: &Change,
        wait: Wait,
    ) -> Result<(), ObjectError> {
        match change {
            Change::Write { number, block, .. } => {
                let offset = u64::from(*number) * BLOCK_BYTES as u64;
                self.objects.write(directory, offset, block.bytes(), wait)
            }
            Change::Shrink { blocks } => {
                let size = u64::from(*blocks) * BLOCK_BYTES as u64;
                let changes =
                    SetAttributes { logical_size: Some(size), ..SetAttributes::default() };
                self.objects.setattr(directory, &changes, wait).map(|_| ())
            }
        }
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
        wait: Wait,
    ) -> Outcome<&'a mut Directory> {
        if contents.is_none() {
            let loaded = self.load(directory, wait)?;
            self.directories.charge(directory, loaded.memory_bytes());
            **contents = Some(loaded);
        }
        // Just put there if it was not.
        contents.as_mut().ok_or(ManagerStatus::Io)
    }

    /// Reads a directory. What is read is made durable before: a write that was never answered
    /// may lie in the drive's memory, and a name that was seen once must not vanish.
    fn load(&self, directory: FileHandle, wait: Wait) -> Outcome<Directory> {
        let failed = |error| failure("read the directory", directory, &error);
        self.objects.flush(directory, wait).map_err(failed)?;
        let mut data = Vec::new();
        let mut wanted = FIRST_READ_BYTES;
        loop {
            let offset = data.len() as u64;
            let part = self.objects.read(directory, offset, wanted, wait).map_err(failed)?;
            let short = (part.len() as u64) < wanted;
            data.extend_from_slice(&part);
            if short {
                break;
            }
            wanted = MAX_TRANSFER_BYTES as u64;
        }
        Directory::parse(directory.object, &data).map_err(|error| {
            tracing::error!(directory = %Shown(directory), %error, "bad directory");
            ManagerStatus::Io
        })
    }
}
