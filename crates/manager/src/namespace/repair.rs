//! Repairs of the name space, each under the locks of what it touches, so that they are made while the
//! volume is in use. Whoever asks has compared names with objects (`nasd fsck`), and may have looked a
//! moment too early: what is not as he takes it to be is left alone.

use nasd_protocol::manager::{FileHandle, ManagerStatus, RepairAction, RepairArguments};
use nasd_types::SetAttributes;

use super::lookup::require_name;
use super::{Namespace, Outcome, failure};
use crate::directory::Entry;
use crate::file_record::FileRecord;
use crate::locks::{Mode, Wants};
use crate::objects::Wait;

impl Namespace {
    /// Does one repair.
    ///
    /// # Errors
    /// `Exists` where things are not as the caller takes them to be; else what stands in the way.
    pub fn repair(&self, asked: &RepairArguments) -> Outcome<()> {
        let (file, directory, name) = (asked.file, asked.directory, asked.name.as_bytes());
        match asked.action {
            RepairAction::ExamineOrphan => self.require_forgotten(file),
            RepairAction::RemoveOrphan => self.remove_orphan(file),
            RepairAction::AdoptOrphan => self.adopt_orphan(file, directory, name),
            RepairAction::RemoveName => self.remove_wrong_name(file, directory, name),
            RepairAction::SetLinks => self.set_links(file, asked.links),
            RepairAction::SetParent => self.set_parent(file, directory),
        }
    }

    /// Refuses objects that the manager has a use for without a name.
    fn require_forgotten(&self, file: FileHandle) -> Outcome<()> {
        self.require_possible(file)?;
        let used = file == self.volume.root || file == self.volume.log || self.is_doomed(file);
        if used { Err(ManagerStatus::Exists) } else { Ok(()) }
    }

    fn remove_orphan(&self, file: FileHandle) -> Outcome<()> {
        {
            let _held = self.hold(Wants::new().write(file))?;
            self.require_forgotten(file)?;
            self.doom(file);
        }
        // Housekeeping goes on with it where its drive is away.
        self.reap(file, Wait::Patient);
        Ok(())
    }

    fn adopt_orphan(&self, file: FileHandle, directory: FileHandle, name: &[u8]) -> Outcome<()> {
        require_name(name)?;
        let wants = Wants::new().write(directory).write(file).position(file, Mode::Exclusive);
        let _held = self.hold(wants)?;
        self.require_forgotten(file)?;
        self.directory_record(directory)?;
        if self.find(directory, name)?.is_some() {
            return Err(ManagerStatus::Exists);
        }
        let (record, _) = self.fresh(file)?;
        let parent = record.is_directory().then_some(directory);
        // First the record: a crash in between leaves an orphan, as it was.
        self.write_record(file, &FileRecord { links: 1, parent, ..record })?;
        let entry = Entry { name, handle: file, file_type: record.file_type };
        self.change_directory(directory, Wait::Patient, |contents| {
            contents.plan_insert(&entry).map(Some).ok_or(ManagerStatus::NoSpace)
        })
        .map_err(|error| error.status)
    }

    fn remove_wrong_name(
        &self,
        file: FileHandle,
        directory: FileHandle,
        name: &[u8],
    ) -> Outcome<()> {
        let _held = self.hold(Wants::new().write(directory).write(file))?;
        self.directory_record(directory)?;
        if self.find(directory, name)?.is_none_or(|found| found.handle != file) {
            return Err(ManagerStatus::Exists);
        }
        let is_wrong = match self.fresh(file) {
            Err(ManagerStatus::Stale) => true,
            Ok((record, _)) => record.parent.is_some_and(|parent| parent != directory),
            Err(status) => return Err(status),
        };
        if !is_wrong {
            return Err(ManagerStatus::Exists);
        }
        self.remove_entry(directory, name, file, Wait::Patient).map_err(|error| error.status)
    }

    fn set_links(&self, file: FileHandle, links: u32) -> Outcome<()> {
        let _held = self.hold(Wants::new().write(file))?;
        let (record, _) = self.fresh(file)?;
        if record.is_directory() || links == 0 {
            return Err(ManagerStatus::Invalid);
        }
        self.write_record(file, &FileRecord { links, ..record })
    }

    fn set_parent(&self, file: FileHandle, directory: FileHandle) -> Outcome<()> {
        let wants = Wants::new().write(file).read(directory).position(file, Mode::Exclusive);
        let _held = self.hold(wants)?;
        self.directory_record(directory)?;
        let (record, _) = self.fresh(file)?;
        if !record.is_directory() {
            return Err(ManagerStatus::NotDirectory);
        }
        let names_it = self.read_directory(directory, |contents| {
            contents
                .list(0, usize::MAX, usize::MAX)
                .entries
                .iter()
                .any(|entry| entry.handle == file)
        })?;
        if !names_it && file != self.volume.root {
            return Err(ManagerStatus::Exists);
        }
        self.write_record(file, &FileRecord { parent: Some(directory), ..record })
    }

    /// Writes a file's record durably. The caller holds its lock alone.
    fn write_record(&self, file: FileHandle, record: &FileRecord) -> Outcome<()> {
        let set =
            SetAttributes { fs_specific: Some(record.to_bytes()), ..SetAttributes::default() };
        self.objects.setattr(file, &set, Wait::Patient).map_err(|error| {
            self.forget(file);
            failure("repair the record", file, &error)
        })?;
        self.remember(file, *record);
        Ok(())
    }
}
