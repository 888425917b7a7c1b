//! Walking a tree of directories, page by page, in bounded memory.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::ClerkError;
use crate::clerk::Clerk;
use crate::wire::{Caller, DirectoryEntry, FileHandle, FileType, ManagerStatus, Name};

/// Entries asked for at once.
const PAGE: u32 = 1024;

/// A file found on a walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalkItem {
    /// The directory that it is in.
    pub parent: FileHandle,
    /// Its name there.
    pub name: Name,
    /// The names from the start of the walk, joined by slashes.
    pub path: Vec<u8>,
    /// The file.
    pub handle: FileHandle,
    /// What it is.
    pub file_type: FileType,
}

/// Everything below a directory, depth first. Symbolic links are not followed. After an error the
/// walk goes on with what is left.
pub struct Walk<'a> {
    clerk: &'a Clerk,
    caller: Arc<Caller>,
    contents_first: bool,
    stack: Vec<Level>,
}

/// A directory that is being read.
struct Level {
    directory: FileHandle,
    /// Path of the directory, with a slash behind it unless it is the start.
    prefix: Vec<u8>,
    /// The directory itself, when it is to be shown after its contents.
    item: Option<WalkItem>,
    entries: VecDeque<DirectoryEntry>,
    cookie: u64,
    end: bool,
}

impl Level {
    fn new(directory: FileHandle, prefix: Vec<u8>, item: Option<WalkItem>) -> Self {
        Level { directory, prefix, item, entries: VecDeque::new(), cookie: 0, end: false }
    }
}

impl Clerk {
    /// Walks everything below `directory`; each directory is shown before its contents, or after
    /// them with `contents_first`.
    pub fn walk(
        &self,
        caller: &Arc<Caller>,
        directory: FileHandle,
        contents_first: bool,
    ) -> Walk<'_> {
        let stack = vec![Level::new(directory, Vec::new(), None)];
        Walk { clerk: self, caller: Arc::clone(caller), contents_first, stack }
    }

    /// Removes a name, and everything below it if it is a directory's. Returns how many files and
    /// directories that were.
    ///
    /// # Errors
    ///
    /// The first failure; what was removed before stays removed.
    pub fn remove_tree(
        &self,
        caller: &Arc<Caller>,
        dir: FileHandle,
        name: &Name,
    ) -> Result<u64, ClerkError> {
        let entry = self.lookup(caller, dir, name)?;
        if entry.attributes.file_type != FileType::Directory {
            self.unlink(caller, dir, name, None)?;
            return Ok(1);
        }
        let mut removed = 0;
        for item in self.walk(caller, entry.handle, true) {
            let item = item?;
            let outcome = match item.file_type {
                FileType::Directory => self.rmdir(caller, item.parent, &item.name),
                _ => self.unlink(caller, item.parent, &item.name, None),
            };
            match outcome {
                // Somebody else was faster.
                Err(ClerkError::Manager(ManagerStatus::NotFound)) => {}
                outcome => outcome?,
            }
            removed += 1;
        }
        self.rmdir(caller, dir, name)?;
        Ok(removed + 1)
    }
}

impl Walk<'_> {
    /// The next entry of the deepest directory, read from the manager if need be.
    fn next_entry(&mut self) -> Result<Option<DirectoryEntry>, ClerkError> {
        let Some(level) = self.stack.last_mut() else {
            return Ok(None);
        };
        while level.entries.is_empty() && !level.end {
            // After a failure this directory is not asked again.
            level.end = true;
            let page = self.clerk.readdir(&self.caller, level.directory, level.cookie, PAGE)?;
            level.end = page.end || page.entries.is_empty();
            if let Some(last) = page.entries.last() {
                level.cookie = last.cookie;
            }
            level.entries = page.entries.into();
        }
        Ok(level.entries.pop_front())
    }
}

impl Iterator for Walk<'_> {
    type Item = Result<WalkItem, ClerkError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let entry = match self.next_entry() {
                Err(error) => return Some(Err(error)),
                Ok(Some(entry)) => entry,
                Ok(None) => match self.stack.pop()?.item {
                    Some(directory) => return Some(Ok(directory)),
                    None => continue,
                },
            };
            // `next_entry` has just found an entry there.
            let level = self.stack.last()?;
            let path = [level.prefix.as_slice(), entry.name.as_bytes()].concat();
            let item = WalkItem {
                parent: level.directory,
                name: entry.name,
                path,
                handle: entry.handle,
                file_type: entry.file_type,
            };
            if item.file_type != FileType::Directory {
                return Some(Ok(item));
            }
            let prefix = [item.path.as_slice(), b"/"].concat();
            let later = self.contents_first.then(|| item.clone());
            self.stack.push(Level::new(item.handle, prefix, later));
            if !self.contents_first {
                return Some(Ok(item));
            }
        }
    }
}
