//! Repairs of the name space, each under the locks of what it touches, so that they are made while the
//! volume is in use. Whoever asks has compared names with objects (`nasd fsck`), and may have looked a
//! moment too early: what is not as he takes it to be is left alone.

use super::lookup::require_name;
use super::{Namespace, Outcome};
use crate::file_record::FileRecord;
use crate::locks::{Mode, Wants};
use nasd_protocol::manager::{FileHandle, ManagerStatus, RepairAction, RepairArguments};

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
        let is_kept = self.journal.ledger(|ledger| {
            let ahead = ledger.ahead.get(&file.drive);
            let is_ahead = ahead.is_some_and(|ahead| ahead.may_have(file.object));
            is_ahead || ledger.doomed.contains(&file) || ledger.orphans.contains(&file)
        });
        if is_kept || file == self.volume.root || file == self.volume.log {
            Err(ManagerStatus::Exists)
        } else {
            Ok(())
        }
    }

    fn remove_orphan(&self, file: FileHandle) -> Outcome<()> {
        let _held = self.hold(Wants::new().write(file));
        self.require_forgotten(file)?;
        let record = self.record_if_any(file)?;
        let sequence = self.change(&[], |draft| {
            draft.remove_file(file, record.as_ref());
            Ok(())
        })?;
        self.wait_for(sequence)
    }

    fn adopt_orphan(&self, file: FileHandle, directory: FileHandle, name: &[u8]) -> Outcome<()> {
        require_name(name)?;
        let wants = Wants::new().write(directory).write(file).position(file, Mode::Exclusive);
        let _held = self.hold(wants);
        self.require_forgotten(file)?;
        let above = self.directory_record(directory)?;
        if self.find(directory, name)?.is_some() {
            return Err(ManagerStatus::Exists);
        }
        let (record, _) = self.fresh(file)?;
        let parent = record.is_directory().then_some(directory);
        let adopted = FileRecord { links: 1, parent, ..record.next() };
        let sequence = self.change(&[directory], |draft| {
            draft.set_name(directory, name, file, record.file_type)?;
            draft.set_record(file, &adopted);
            draft.touch(directory, &above);
            Ok(())
        })?;
        self.wait_for(sequence)
    }

    fn remove_wrong_name(
        &self,
        file: FileHandle,
        directory: FileHandle,
        name: &[u8],
    ) -> Outcome<()> {
        let _held = self.hold(Wants::new().write(directory).write(file));
        let above = self.directory_record(directory)?;
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
        let sequence = self.change(&[directory], |draft| {
            draft.remove_name(directory, name)?;
            draft.touch(directory, &above);
            Ok(())
        })?;
        self.wait_for(sequence)
    }

    fn set_links(&self, file: FileHandle, links: u32) -> Outcome<()> {
        let _held = self.hold(Wants::new().write(file));
        let (record, _) = self.fresh(file)?;
        if record.is_directory() || links == 0 {
            return Err(ManagerStatus::Invalid);
        }
        self.repair_record(file, &FileRecord { links, ..record.next() })
    }

    fn set_parent(&self, file: FileHandle, directory: FileHandle) -> Outcome<()> {
        let wants = Wants::new().write(file).read(directory).position(file, Mode::Exclusive);
        let _held = self.hold(wants);
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
        self.repair_record(file, &FileRecord { parent: Some(directory), ..record.next() })
    }

    /// Puts a file's record into the journal. The caller holds its lock alone.
    fn repair_record(&self, file: FileHandle, record: &FileRecord) -> Outcome<()> {
        let sequence = self.change(&[], |draft| {
            draft.set_record(file, record);
            Ok(())
        })?;
        self.wait_for(sequence)
    }
}
