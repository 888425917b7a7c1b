//! Directories that are listed by somebody who wants to know all about their files.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use nasd_client::interrupt;

use crate::clerk::{Clerk, Entry};
use crate::core::Core;
use crate::wire::{Caller, DirectoryEntry, FileHandle, FileType};

/// Names of a directory that are asked for when it is leased.
const WORTH_KNOWING: u32 = 1024;

/// Files of which nothing is known must be so many that all around them are asked for at once.
const WORTH_LISTING: usize = 2;

/// Names whose files are asked for by one request; several are made side by side.
const PART: usize = nasd_protocol::limits::MAX_FILES;

/// Requests that are made at most for such a part, where names are so long that one does not tell all.
const MAX_PAGES: usize = 8;

/// How soon a wait notices that it was interrupted.
const INTERRUPT_CHECK: Duration = Duration::from_millis(50);

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
            if self.core.promises().is_none() {
                let _ = self.readdir(caller, dir, 0, WORTH_KNOWING);
            } else {
                let _ = self.read_names(caller, dir);
            }
        }
        is_granted
    }

    fn take_lease(&self, dir: FileHandle, is_listed: bool) -> bool {
        let (Some(session), known) = (&self.session, &self.core.known) else {
            return false;
        };
        let promises = self.core.promises();
        let Some(number) = known.wants_lease(dir, is_listed || promises.is_some()) else {
            return false;
        };
        let mut is_granted = match promises {
            Some(promises) => self.core.is_promised(promises, dir),
            None => session.lease(dir),
        };
        known.leased(dir, number, is_granted);
        // The callback may have ended before the lease was there to end with it.
        if promises.is_some_and(|promises| promises.believed_version(dir).is_none()) {
            known.end(dir);
            is_granted = false;
        }
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
        if missing.len() < WORTH_LISTING || self.core.known.asking(dir).belief().is_none() {
            return told;
        }
        let parts = missing_parts(cookie, entries, &missing);
        let end = parts.last().map_or(cookie, |part| part.until);
        if self.list_parts(caller, dir, parts) {
            // Who looks for one that is still not known does not want these again.
            self.core.known.listed_up_to(dir, end);
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
        let (attributes, age) = self.core.known_attributes(handle, ttl)?;
        let is_in_use = self.core.open_file(handle).is_some();
        let now = Instant::now();
        let asked = now.checked_sub(age).unwrap_or(now);
        (!is_in_use).then_some(Entry { handle, attributes, age, asked, belief })
    }

    /// Asks for all there is to know of files in several parts of a directory side by side, and waits until all are
    /// told, or until whoever waits is interrupted. Whether all are told.
    pub(crate) fn list_parts(
        &self,
        caller: &Arc<Caller>,
        dir: FileHandle,
        parts: Vec<Part>,
    ) -> bool {
        let mut parts = parts.into_iter();
        let Some(first) = parts.next() else { return true };
        let (told, parts_told) = mpsc::channel();
        let mut left = parts.len();
        let is_given_up = Arc::new(AtomicBool::new(false));
        for part in parts {
            let (core, caller, told) = (Arc::clone(&self.core), Arc::clone(caller), told.clone());
            let is_given_up = Arc::clone(&is_given_up);
            self.core.listers.submit(move || {
                // Whoever has given up does not hear it.
                let _ = told.send(core.list_part(&caller, dir, part, &is_given_up));
            });
        }
        drop(told);
        let mut are_all_told = self.core.list_part(caller, dir, first, &is_given_up);
        loop {
            match parts_told.recv_timeout(INTERRUPT_CHECK) {
                Ok(is_told) => {
                    are_all_told &= is_told;
                    left -= 1;
                }
                Err(RecvTimeoutError::Disconnected) => return are_all_told && left == 0,
                Err(RecvTimeoutError::Timeout) if interrupt::check().is_ok() => {}
                Err(RecvTimeoutError::Timeout) => {
                    // What is asked for is told yet; what was to be asked for after it holds up nobody else.
                    is_given_up.store(true, Ordering::Relaxed);
                    return false;
                }
            }
        }
    }
}

/// Names of a directory: those behind the first cookie, up to the one of the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) after: u64,
    pub(crate) until: u64,
}

/// What one request has told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ToldPage {
    /// So many files are known now.
    files: usize,
    /// Where to go on, if there are more names.
    pub(crate) next: Option<u64>,
}

/// The parts of what was listed behind `cookie` that have the entries at `missing` in them, each as long as what one
/// request tells.
fn missing_parts(cookie: u64, entries: &[DirectoryEntry], missing: &[usize]) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    let mut end = 0;
    for at in missing.iter().copied() {
        match parts.last_mut() {
            Some(part) if at < end => part.until = entries[at].cookie,
            _ => {
                let after = at.checked_sub(1).map_or(cookie, |before| entries[before].cookie);
                parts.push(Part { after, until: entries[at].cookie });
                end = at + PART;
            }
        }
    }
    parts
}

impl Core {
    /// Asks for all there is to know of the files in a part of a directory, if somebody wants to know it. Whether all of it
    /// is told.
    fn list_part(
        &self,
        caller: &Arc<Caller>,
        dir: FileHandle,
        part: Part,
        is_given_up: &AtomicBool,
    ) -> bool {
        let mut after = part.after;
        for _ in 0..MAX_PAGES {
            if is_given_up.load(Ordering::Relaxed) {
                return false;
            }
            // Where there are no files, their drive may be away.
            let told = self.list_page(caller, dir, after).filter(|told| told.files > 0);
            match told.map(|told| told.next) {
                Some(Some(next)) if next > after && next < part.until => after = next,
                // One that goes back tells nothing of what comes after.
                Some(next) => return next.is_none_or(|next| next >= part.until),
                None => return false,
            }
        }
        false
    }

    /// Asks for all there is to know of a directory's next files, if that is answered.
    pub(crate) fn list_page(
        &self,
        caller: &Arc<Caller>,
        dir: FileHandle,
        cookie: u64,
    ) -> Option<ToldPage> {
        let asked = Instant::now();
        match self.ask_names(|names| names.readdirplus(caller, dir, cookie)) {
            Ok(page) => {
                for listed in &page.files {
                    // Of what is written here the length is known better.
                    if self.open_file(listed.file.handle).is_none() {
                        self.learn(caller, &listed.file, asked);
                    }
                }
                let next = (!page.end).then_some(page.cookie);
                Some(ToldPage { files: page.files.len(), next })
            }
            // Then they are asked for one by one.
            Err(error) => {
                tracing::debug!(%error, "a directory is not listed ahead");
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use nasd_types::{DriveId, ObjectId, PartitionId};

    use super::*;
    use crate::wire::Name;

    fn entries(count: u64) -> Vec<DirectoryEntry> {
        let entry = |number: u64| DirectoryEntry {
            cookie: 10 * number,
            handle: FileHandle {
                drive: DriveId(1),
                partition: PartitionId(1),
                object: ObjectId(number),
            },
            file_type: FileType::Regular,
            name: Name::new(format!("f{number}").as_bytes()).unwrap(),
        };
        (1..=count).map(entry).collect()
    }

    #[test]
    fn what_is_missing_is_asked_for_in_parts_of_one_request_each() {
        let entries = entries(300);
        let all: Vec<usize> = (0..300).collect();
        let parts = missing_parts(7, &entries, &all);
        let part = |after, until| Part { after, until };
        assert_eq!(parts, [part(7, 1280), part(1280, 2560), part(2560, 3000)]);
    }

    #[test]
    fn parts_begin_and_end_at_what_is_missing() {
        let entries = entries(300);
        let part = |after, until| Part { after, until };
        assert_eq!(missing_parts(0, &entries, &[5, 9]), [part(50, 100)]);
        assert_eq!(missing_parts(0, &entries, &[0, 290]), [part(0, 10), part(2900, 2910)]);
        assert_eq!(missing_parts(0, &entries, &[]), []);
    }
}
