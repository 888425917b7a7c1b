//! Directories that are listed by somebody who wants to know all about their files.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::clerk::{Clerk, Entry};
use crate::wire::{Caller, DirectoryEntry, FileHandle, FileType};

/// Names of a directory that are asked for when it is leased.
const WORTH_KNOWING: u32 = 1024;

/// Files of which nothing is known must be so many that all around them are asked for at once.
const WORTH_LISTING: usize = 2;

/// Pages of files that are asked for at most before some are told.
const MAX_PAGES: usize = 8;

impl Clerk {
    /// Somebody is about to list a directory, and will look at its files: there may be a lease on it then. Answers
    /// whether there is one that was not there before.
    pub fn begin_listing(&self, dir: FileHandle) -> bool {
        self.take_lease(dir, true)
    }

    /// Asks for a lease on a directory that is looked into often, and about the names there are; whether
    /// there is one now that was not there before.
    pub(crate) fn begin_lease(&self, caller: &Arc<Caller>, dir: FileHandle) -> bool {
        let is_granted = self.take_lease(dir, false);
        if is_granted {
            // Who may not list it may look for names one by one.
            let _ = self.readdir(caller, dir, 0, WORTH_KNOWING);
        }
        is_granted
    }

    fn take_lease(&self, dir: FileHandle, is_listed: bool) -> bool {
        let (Some(session), known) = (&self.session, &self.core.known) else {
            return false;
        };
        let Some(number) = known.wants_lease(dir, is_listed) else {
            return false;
        };
        let is_granted = session.lease(dir);
        known.leased(dir, number, is_granted);
        is_granted
    }

    /// What a lookup of these names, which were just listed behind `cookie`, would tell, as far as that is known; where
    /// it is not, many are asked for at once. Nothing is told of files that are in use here, nor of names that
    /// are not believed by a lease.
    pub fn listed_files(
        &self,
        caller: &Arc<Caller>,
        dir: FileHandle,
        cookie: u64,
        entries: &[DirectoryEntry],
    ) -> Vec<Option<Entry>> {
        let known = |entry: &DirectoryEntry| self.find_listed(caller, dir, entry);
        let told: Vec<Option<Entry>> = entries.iter().map(known).collect();
        // Of directories such pages do not tell, and of what is in use here they are not believed.
        let is_missing = |(entry, told): (&DirectoryEntry, &Option<Entry>)| {
            told.is_none()
                && entry.file_type != FileType::Directory
                && self.core.open_file(entry.handle).is_none()
        };
        let missing: Vec<usize> = entries
            .iter()
            .zip(&told)
            .enumerate()
            .filter(|(_, pair)| is_missing(*pair))
            .map(|(at, _)| at)
            .collect();
        let (Some(first), Some(last)) = (missing.first(), missing.last()) else {
            return told;
        };
        if missing.len() < WORTH_LISTING || self.core.known.asking(dir).belief().is_none() {
            return told;
        }
        let mut cookie = first.checked_sub(1).map_or(cookie, |before| entries[before].cookie);
        for _ in 0..MAX_PAGES {
            match self.list_ahead(caller, dir, cookie) {
                Some(next) if next > cookie && next < entries[*last].cookie => cookie = next,
                _ => break,
            }
        }
        entries.iter().zip(told).map(|(entry, told)| told.or_else(|| known(entry))).collect()
    }

    /// What is known of a file that was just listed.
    fn find_listed(
        &self,
        caller: &Arc<Caller>,
        dir: FileHandle,
        entry: &DirectoryEntry,
    ) -> Option<Entry> {
        let (found, belief) = self.core.known.find(caller, dir, &entry.name, Duration::ZERO)?;
        let handle = found.filter(|handle| *handle == entry.handle)?;
        let ttl = self.core.settings.attribute_ttl;
        let (attributes, age) = self.core.attributes.fresh(handle, ttl)?;
        let is_in_use = self.core.open_file(handle).is_some();
        (!is_in_use).then_some(Entry { handle, attributes, age, belief })
    }

    /// Asks for all there is to know of a directory's next files. Answers where to go on, if there are more.
    pub(crate) fn list_ahead(
        &self,
        caller: &Arc<Caller>,
        dir: FileHandle,
        cookie: u64,
    ) -> Option<u64> {
        let asked = Instant::now();
        match self.ask(|names| names.readdirplus(caller, dir, cookie)) {
            Ok(page) => {
                for listed in &page.files {
                    // Of what is written here the length is known better.
                    if self.core.open_file(listed.file.handle).is_none() {
                        self.core.learn(caller, &listed.file, asked);
                    }
                }
                let next = (!page.end).then_some(page.cookie);
                self.core.known.listed(dir, next);
                // Where there are none, their drive may be away.
                next.filter(|_| !page.files.is_empty())
            }
            // Then they are asked for one by one.
            Err(error) => {
                tracing::debug!(%error, "a directory is not listed ahead");
                None
            }
        }
    }
}
