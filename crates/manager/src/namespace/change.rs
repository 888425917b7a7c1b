//! A change of several files: planned and done in memory, and put into the journal, at one stroke.

use std::sync::{Arc, PoisonError};

use nasd_protocol::manager::{FileHandle, FileType, ManagerStatus};
use nasd_types::Timestamp;

use super::orphans::Orphaned;
use super::{Namespace, Outcome};
use crate::caller::Caller;
use crate::directory::{self, Directory, DirectoryCell, Entry};
use crate::file_record::FileRecord;
use crate::journal::Step;
use crate::journal::step::RequestKey;

/// A change that is being made.
pub(super) struct Draft<'a> {
    namespace: &'a Namespace,
    cells: Vec<(FileHandle, Arc<DirectoryCell>)>,
    steps: Vec<Step>,
}

impl Namespace {
    /// Makes a change of files whose locks the caller holds alone, of the names in these directories among
    /// others. `plan` has checked everything; only its first step may fail, for want of room. Answers
    /// the number to wait for, without the locks.
    pub(super) fn change(
        &self,
        directories: &[FileHandle],
        plan: impl FnOnce(&mut Draft<'_>) -> Outcome<()>,
    ) -> Outcome<u64> {
        if self.read_only {
            return Err(ManagerStatus::ReadOnly);
        }
        let mut cells: Vec<(FileHandle, Arc<DirectoryCell>)> = Vec::new();
        for directory in directories {
            if cells.iter().all(|(other, _)| other != directory) {
                cells.push((*directory, self.loaded(*directory)?));
            }
        }
        let _shared = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        let mut draft = Draft { namespace: self, cells, steps: Vec::new() };
        plan(&mut draft)?;
        Ok(self.journal.enqueue(&draft.steps))
    }
}

impl Draft<'_> {
    fn names(
        &mut self,
        directory: FileHandle,
        plan: impl FnOnce(&Directory) -> Option<directory::Change>,
    ) -> Outcome<()> {
        let cell = self.cells.iter().find(|(other, _)| *other == directory);
        let (_, cell) = cell.ok_or(ManagerStatus::Io)?;
        let mut contents = cell.contents.write().unwrap_or_else(PoisonError::into_inner);
        let contents = contents.as_mut().ok_or(ManagerStatus::Io)?;
        let change = plan(contents).ok_or(ManagerStatus::NoSpace)?;
        self.steps.extend(contents.steps_of(directory, &change));
        contents.apply(change);
        self.namespace.directories.charge(directory, contents.memory_bytes());
        Ok(())
    }

    /// Makes a name name something, whatever it named before.
    pub(super) fn set_name(
        &mut self,
        directory: FileHandle,
        name: &[u8],
        handle: FileHandle,
        file_type: FileType,
    ) -> Outcome<()> {
        let entry = Entry { name, handle, file_type };
        self.names(directory, |contents| match contents.find(name) {
            Some(_) => contents.plan_replace(&entry),
            None => contents.plan_insert(&entry),
        })
    }

    /// Removes a name that is there.
    pub(super) fn remove_name(&mut self, directory: FileHandle, name: &[u8]) -> Outcome<()> {
        self.names(directory, |contents| contents.plan_remove(name))
    }

    /// Sets a file's record, which has the next revision, and changes now.
    pub(super) fn set_record(&mut self, object: FileHandle, record: &FileRecord) {
        self.set_record_and_time(object, record, None);
    }

    /// The same, and a directory's modification time.
    pub(super) fn set_record_and_time(
        &mut self,
        object: FileHandle,
        record: &FileRecord,
        modified: Option<Timestamp>,
    ) {
        let changed = self.now(object);
        self.put_record(object, record, changed, modified);
    }

    /// Sets a record of which only the access time has changed: that is no change of the file.
    pub(super) fn set_access_time(
        &mut self,
        object: FileHandle,
        record: &FileRecord,
        changed: Timestamp,
    ) {
        self.put_record(object, record, changed, None);
    }

    /// The files of a directory are to get its list as AFS has it, which was set in this revision of its record.
    pub(super) fn govern(&mut self, directory: FileHandle, revision: u64) {
        self.steps.push(Step::Governing { directory, revision });
    }

    /// An object that was made ahead belongs to a file now.
    pub(super) fn take_object(&mut self, object: FileHandle) {
        self.steps.push(Step::Take { object });
    }

    /// A directory's names have changed: so have its times. Answers its new record.
    pub(super) fn touch(&mut self, directory: FileHandle, record: &FileRecord) {
        let now = self.now(directory);
        self.put_record(directory, &record.next(), now, Some(now));
    }

    fn put_record(
        &mut self,
        object: FileHandle,
        record: &FileRecord,
        changed: Timestamp,
        modified: Option<Timestamp>,
    ) {
        let bytes = record.to_bytes();
        self.namespace.remember(object, *record);
        self.namespace.told.change(object, &bytes, changed, modified);
        self.steps.push(Step::SetRecord { object, changed, modified, record: bytes });
    }

    /// An object that was made ahead becomes a file.
    pub(super) fn take(&mut self, object: FileHandle, record: &FileRecord, data: &[u8]) {
        self.steps.push(Step::Take { object });
        let now = record.create_time;
        let modified = (record.file_type != FileType::Regular).then_some(now);
        self.put_record(object, record, now, modified);
        if !data.is_empty() {
            self.steps.push(Step::SetData { object, data: data.to_vec() });
        }
    }

    /// A file has lost its last name: it goes, or stays without one until no client has it open.
    pub(super) fn remove_name_of(
        &mut self,
        caller: &Caller,
        file: FileHandle,
        record: Option<&FileRecord>,
    ) {
        let may_be_open = caller.others || caller.keeps == Some(file);
        match record.filter(|record| may_be_open && record.file_type == FileType::Regular) {
            Some(record) => {
                self.set_record(file, &FileRecord { links: 0, ..record.next() });
                self.steps.push(Step::Orphan { object: file });
                self.namespace.orphaned().push(Orphaned::by(caller, file));
            }
            None => self.remove_file(file, record),
        }
    }

    /// An object that was made ahead becomes a file without a name, which the caller has open.
    pub(super) fn take_nameless(
        &mut self,
        caller: &Caller,
        object: FileHandle,
        record: &FileRecord,
    ) {
        self.take(object, record, b"");
        self.steps.push(Step::Nameless { object });
        let keeps = Some(object);
        let orphaned = Orphaned::by(&Caller { keeps, ..caller.clone() }, object);
        self.namespace.orphaned().push(orphaned);
    }

    /// A file that had no name has one.
    pub(super) fn name_nameless(&mut self, object: FileHandle) {
        self.steps.push(Step::Named { object });
    }

    /// A file goes, with the object of its attributes.
    pub(super) fn remove_file(&mut self, file: FileHandle, record: Option<&FileRecord>) {
        self.remove_object(file);
        if let Some(attributes) = record.and_then(|record| record.attribute_handle(file)) {
            self.remove_object(attributes);
        }
    }

    /// An object is no longer needed.
    pub(super) fn remove_object(&mut self, object: FileHandle) {
        self.steps.push(Step::Remove { object });
        self.namespace.forget(object);
        self.namespace.directories.forget(object);
    }

    /// The caller's request is executed by this.
    pub(super) fn answers(&mut self, caller: &Caller, handle: Option<FileHandle>) {
        let request = caller.request;
        if request.is_numbered() {
            let (client, number) = (request.client, request.number);
            let key = RequestKey { peer: caller.peer, client, number };
            self.steps.push(Step::Outcome { request: key, oldest: request.oldest, handle });
        }
    }

    fn now(&self, object: FileHandle) -> Timestamp {
        self.namespace.time_on(object.drive)
    }
}
