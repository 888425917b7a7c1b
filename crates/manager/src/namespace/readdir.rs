//! `readdir`: a directory's names, a page at a time.

use nasd_protocol::limits::MAX_ENTRIES;
use nasd_protocol::manager::{DirectoryEntry, DirectoryPage, FileHandle, ManagerStatus, Name};

use super::{Namespace, Outcome};
use crate::caller::Caller;
use crate::directory::Listing;
use crate::locks::Wants;
use crate::permission::{self, READ};

/// Bytes of names and 48 more for each, so that a page stays within the head of a record.
const PAGE_BYTES: usize = 48 << 10;

const _: () = assert!(PAGE_BYTES + 1024 < nasd_types::limits::MAX_HEAD_BYTES);

impl Namespace {
    /// Entries after `cookie`, which is 0 or the cookie of the last entry seen, without `.` and
    /// `..`. An entry that is there all the time is listed once, whatever else comes and goes; one
    /// that comes or goes meanwhile is listed or not.
    pub fn readdir(
        &self,
        caller: &Caller,
        directory: FileHandle,
        cookie: u64,
        max_entries: u32,
    ) -> Outcome<DirectoryPage> {
        let max_entries = MAX_ENTRIES.min(max_entries as usize);
        if max_entries == 0 {
            return Err(ManagerStatus::Invalid);
        }
        let listing = self.list(caller, directory, cookie, max_entries);
        let listing = self.answered(listing, &[directory])?;
        let entry = |listed: crate::directory::Listed| {
            Ok(DirectoryEntry {
                cookie: listed.cookie,
                handle: listed.handle,
                file_type: listed.file_type,
                name: Name::new(listed.name).map_err(|_| ManagerStatus::Io)?,
            })
        };
        let entries: Outcome<Vec<DirectoryEntry>> =
            listing.entries.into_iter().map(entry).collect();
        Ok(DirectoryPage { entries: entries?, end: listing.end })
    }
    fn list(
        &self,
        caller: &Caller,
        directory: FileHandle,
        cookie: u64,
        max_entries: usize,
    ) -> Outcome<Listing> {
        let _held = self.hold(Wants::new().read(directory));
        let record = self.directory_record(directory)?;
        permission::require(&record, caller, READ)?;
        self.read_directory(directory, |contents| contents.list(cookie, max_entries, PAGE_BYTES))
    }
}
