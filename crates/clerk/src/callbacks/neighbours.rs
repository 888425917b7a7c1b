//! Files of which nothing is known are often looked at one after the other, by whoever walks through a directory. So the question
//! for one of them takes those with it that come next there: one answer brings attributes, capabilities and callbacks of all.

use std::sync::Arc;
use std::time::Instant;

use nasd_protocol::limits::MAX_NEIGHBOURS;

use super::Promises;
use crate::ClerkError;
use crate::clerk::Clerk;
use crate::core::Core;
use crate::grants::Slot;
use crate::wire::{Caller, DirectoryEntry, FileAttributes, FileHandle, FileType, Readable};

/// So many are taken with the first question.
const FIRST: u32 = 16;

/// Files of which nothing was known must have been looked at so often before others are taken with one: who opens a single file is not
/// to pay for its neighbours.
const WORTH: u32 = 2;

/// How often that doubles at most where neighbours were of no use.
const MOST_USELESS: u32 = 6;

/// Entries of a directory that are looked through for neighbours.
const LOOKED_THROUGH: usize = 256;

/// Whether, and how many of, a directory's files are worth to be asked for with one that is wanted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Appetite {
    /// Files that were known when somebody looked at them, and that were not, since neighbours were asked for.
    hits: u32,
    misses: u32,
    /// How many those were.
    last: u32,
    /// How often they were of little use, since they were of some.
    useless: u32,
}

impl Appetite {
    /// Somebody looks at a file, of which something is known or not: how many neighbours are to be asked for with it.
    pub(crate) fn looked(&mut self, is_known: bool) -> usize {
        if is_known {
            self.hits = self.hits.saturating_add(1);
            return 0;
        }
        self.misses = self.misses.saturating_add(1);
        let was_of_use = self.last > 0 && self.hits >= self.last / 2;
        match () {
            () if was_of_use => (2 * self.last).clamp(FIRST, MAX_NEIGHBOURS as u32) as usize,
            () if self.misses >= WORTH << self.useless => FIRST as usize,
            () => 0,
        }
    }

    /// So many were asked for.
    pub(crate) fn asked(&mut self, neighbours: usize) {
        let Appetite { hits, last, useless, .. } = *self;
        let useless = match () {
            () if hits >= last / 2 => 0,
            () if hits < last / 4 => (useless + 1).min(MOST_USELESS),
            () => useless,
        };
        *self = Appetite { hits: 0, misses: 0, last: neighbours as u32, useless };
    }

    /// Somebody lists the directory, and will probably look at its files.
    pub(crate) fn listed(&mut self) {
        self.misses = self.misses.max(WORTH - 1);
    }
}

impl Clerk {
    /// Attributes of a file that was found in this directory, as they are now or were since that moment. Others there that
    /// will probably be looked at next are asked for with it.
    pub(crate) fn getattr_among(
        &self,
        promises: &Promises,
        caller: &Arc<Caller>,
        (dir, handle): (FileHandle, FileHandle),
    ) -> Result<(FileAttributes, Instant), ClerkError> {
        let (begun, known) = (Instant::now(), &self.core.known);
        let wanted = known.looked_at_one(dir, promises.believed(handle).is_some());
        let neighbours = match wanted {
            0 => Vec::new(),
            most => self.neighbours(promises, caller, (dir, handle), most),
        };
        if !neighbours.is_empty() {
            known.asked_for_neighbours(dir, neighbours.len());
        }
        let told = self.core.getattr_with_neighbours(promises, caller, handle, &neighbours);
        told.map(|attributes| (attributes, begun))
    }

    /// The files behind this one in its directory of which nothing is believed, from the first again after the last.
    fn neighbours(
        &self,
        promises: &Promises,
        caller: &Arc<Caller>,
        (dir, file): (FileHandle, FileHandle),
        most: usize,
    ) -> Vec<FileHandle> {
        let Some(entries) = self.believed_entries(caller, dir) else {
            return Vec::new();
        };
        let at = entries.iter().position(|entry| entry.handle == file).map_or(0, |at| at + 1);
        let (before, behind) = entries.split_at(at);
        // Of a directory the file manager would have to read more, and what is in use here is known already.
        let is_wanted = |entry: &&DirectoryEntry| {
            let handle = entry.handle;
            matches!(entry.file_type, FileType::Regular | FileType::Symlink)
                && (handle.drive, handle.partition) == (file.drive, file.partition)
                && handle != file
                && promises.believed(handle).is_none()
                && self.core.open_file(handle).is_none()
        };
        let near = behind.iter().chain(before).take(LOOKED_THROUGH).filter(is_wanted);
        near.take(most).map(|entry| entry.handle).collect()
    }
}

impl Core {
    /// Asks for a callback on a file, and on others with it, and keeps what comes with that.
    pub(crate) fn ask_with_neighbours(
        self: &Arc<Self>,
        slot: &Arc<Slot>,
        neighbours: &[FileHandle],
    ) -> Result<Readable, ClerkError> {
        let Some(promises) = self.promises().filter(|_| !neighbours.is_empty()) else {
            return self.ask_capability(slot);
        };
        self.end_given(slot.handle)?;
        // All of this is before the question: a break may come before the answer.
        let asking = promises.asking(slot.handle);
        let beside: Vec<_> = neighbours.iter().map(|file| promises.asking(*file)).collect();
        let told = self
            .ask_in_session(|names| names.get_capabilities(&slot.caller, slot.handle, neighbours));
        let told = match told {
            // A file manager of before.
            Err(ClerkError::Protocol(_)) => return self.ask_capability(slot),
            told => told?,
        };
        promises.granted(&asking, &told.file);
        slot.install_of(&told.file.file, self.protection(), Some(told.file.version));
        for readable in &told.neighbours {
            let asking = beside.iter().find(|asking| asking.is_about(readable.file.handle));
            if asking.is_some_and(|asking| promises.granted_beside(asking, readable)) {
                let slot = self.grants.slot(&slot.caller, readable.file.handle);
                slot.install_of(&readable.file, self.protection(), Some(readable.version));
            }
        }
        Ok(told.file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many are asked for when so many files are looked at of which nothing is known.
    fn misses(appetite: &mut Appetite, count: usize) -> Vec<usize> {
        let miss = |_| {
            let wanted = appetite.looked(false);
            if wanted > 0 {
                appetite.asked(wanted);
            }
            wanted
        };
        (0..count).map(miss).collect()
    }

    #[test]
    fn one_file_takes_no_neighbours_with_it_and_the_second_does() {
        let mut appetite = Appetite::default();
        assert_eq!(misses(&mut appetite, 2), [0, 16]);
        let mut listed = Appetite::default();
        listed.listed();
        assert_eq!(misses(&mut listed, 1), [16]);
    }

    #[test]
    fn where_all_are_looked_at_ever_more_are_taken() {
        let mut appetite = Appetite::default();
        let (mut asked, mut ahead) = (0, 0);
        for _ in 0..1000 {
            let wanted = appetite.looked(ahead > 0);
            ahead = if ahead > 0 { ahead - 1 } else { wanted };
            if wanted > 0 {
                appetite.asked(wanted);
                asked += 1;
            }
        }
        assert!(asked <= 18, "{asked}");
    }

    #[test]
    fn where_they_are_of_no_use_they_are_taken_ever_more_seldom() {
        let mut appetite = Appetite::default();
        let asked: usize = misses(&mut appetite, 1000).into_iter().map(|wanted| wanted / 16).sum();
        assert!((5..20).contains(&asked), "{asked}");
        // Also where somebody lists the directory each time.
        appetite.listed();
        assert_eq!(misses(&mut appetite, 1), [0]);
        for _ in 0..16 {
            appetite.looked(true);
        }
        assert_eq!(misses(&mut appetite, 1), [32], "they are of use again");
    }
}
