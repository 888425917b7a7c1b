//! `readdir`: a directory's names, a page at a time.

use std::collections::{BTreeSet, HashMap};

use nasd_protocol::limits::{MAX_ENTRIES, MAX_FILES};
use nasd_protocol::manager::{
    DirectoryEntry, DirectoryPage, File, FileHandle, FilePage, FileType, ListedFile, ManagerStatus,
    Name,
};
use nasd_types::{Attributes, DriveId};

use super::{Namespace, Outcome};
use crate::caller::Caller;
use crate::directory::{Listed, Listing};
use crate::file_record::FileRecord;
use crate::locks::Wants;
use crate::permission::{self, Deed};

/// Bytes of names and 48 more for each, so that a page stays within the head of a record.
const PAGE_BYTES: usize = 48 << 10;

/// The same where all is told of each file, which takes less than 320 bytes more.
const FILE_PAGE_NAME_BYTES: usize = 20 << 10;

/// Of whoever is told of the files, too.
const LOOKS: [Deed; 2] = [Deed::List, Deed::Search];

const _: () =
    assert!(FILE_PAGE_NAME_BYTES + 320 * MAX_FILES + 1024 < nasd_types::limits::MAX_HEAD_BYTES);

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
        let listing =
            self.list(caller, directory, cookie, (max_entries, PAGE_BYTES), &[Deed::List]);
        let listing = self.answered(listing, &[directory])?;
        let entry = |listed: Listed| {
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
    /// Entries that the caller may be told of who may do all that in the directory.
    fn list(
        &self,
        caller: &Caller,
        directory: FileHandle,
        cookie: u64,
        (max_entries, max_bytes): (usize, usize),
        deeds: &[Deed],
    ) -> Outcome<Listing> {
        let _held = self.hold(Wants::new().read(directory));
        let record = self.directory_record(directory)?;
        deeds.iter().try_for_each(|deed| permission::require_to(&record, caller, *deed))?;
        self.read_directory(directory, |contents| contents.list(cookie, max_entries, max_bytes))
    }

    /// Entries after `cookie`, as `readdir` tells them, each with what `lookup` would tell of it. Those that more would have to be
    /// read for than their objects' attributes are left out: directories, and files on drives that are away.
    pub fn readdirplus(
        &self,
        caller: &Caller,
        directory: FileHandle,
        cookie: u64,
        max_entries: u32,
    ) -> Outcome<FilePage> {
        let most = MAX_FILES.min(max_entries as usize);
        if most == 0 {
            return Err(ManagerStatus::Invalid);
        }
        let listing = self.list(caller, directory, cookie, (most, FILE_PAGE_NAME_BYTES), &LOOKS);
        let listing = self.answered(listing, &[directory])?;
        let is_asked = |listed: &&Listed| listed.file_type != FileType::Directory;
        let asked: Vec<&Listed> = listing.entries.iter().filter(is_asked).collect();
        let handles: Vec<FileHandle> = asked.iter().map(|listed| listed.handle).collect();
        let told = self.getattr_all(caller, &handles);
        let mut files = Vec::with_capacity(asked.len());
        for (listed, file) in asked.into_iter().zip(told) {
            if let Some(file) = file {
                let name = Name::new(&*listed.name).map_err(|_| ManagerStatus::Io)?;
                files.push(ListedFile { name, file });
            }
        }
        let last = listing.entries.last().map_or(cookie, |listed| listed.cookie);
        Ok(FilePage { files, cookie: last, end: listing.end })
    }

    /// What `getattr` would tell of several files that are no directories, as far as their drives answer. No lock is
    /// waited for, lest a file whose drive is away keep others from being told.
    fn getattr_all(&self, caller: &Caller, files: &[FileHandle]) -> Vec<Option<File>> {
        let mut told: HashMap<FileHandle, (FileRecord, Attributes)> = HashMap::new();
        let drives: BTreeSet<DriveId> = files.iter().map(|file| file.drive).collect();
        for drive in drives {
            let of_drive: Vec<FileHandle> =
                files.iter().copied().filter(|file| file.drive == drive).collect();
            told.extend(self.fresh_all(drive, &of_drive));
        }
        let file = |handle: &FileHandle| {
            let (record, attributes) = told.get(handle)?;
            self.file(caller, *handle, record, attributes).ok()
        };
        files.iter().map(file).collect()
    }
}
