//! Files without a name that the file manager keeps for this session.

use std::sync::Weak;

use super::Session;
use crate::ClerkError;
use crate::core::Core;
use crate::wire::{ClosedArguments, EventsArguments, FileHandle, MAX_CLAIMS};

impl Session {
    /// A file that is open here may have no name soon.
    pub(crate) fn keep(&self, file: FileHandle) {
        self.state().removed.insert(file);
    }

    /// It has one after all.
    pub(crate) fn forget(&self, file: FileHandle) {
        self.state().removed.remove(&file);
    }

    /// Which start of the manager this session is with, if it is with one.
    pub(crate) fn instance(&self) -> Option<u64> {
        self.state().attached.map(|attached| attached.instance)
    }

    /// All that are kept.
    pub(crate) fn kept(&self) -> Vec<FileHandle> {
        self.state().removed.iter().copied().collect()
    }

    /// Has the manager know that files are open here as well, some of which are kept for another session.
    pub(crate) fn claim(&self, open: &[FileHandle], kept: &[FileHandle]) -> Result<(), ClerkError> {
        self.state().removed.extend(kept);
        for files in open.chunks(MAX_CLAIMS) {
            let (client, open) = (self.client, files.to_vec());
            // What it tells is told again to the thread that waits for it.
            self.backend.events(&EventsArguments { client, seen: 0, open, wait: false })?;
        }
        Ok(())
    }

    /// Of the files that are kept for this clerk, those that it has not open any more.
    fn take_closed(&self, core: &Weak<Core>) -> Vec<FileHandle> {
        let mut state = self.state();
        let is_open =
            |file: &FileHandle| core.upgrade().is_some_and(|core| core.open_file(*file).is_some());
        state.removed.extract_if(|file| !is_open(file)).collect()
    }

    /// Tells the manager which files need not be kept for this clerk any more.
    pub(super) fn report_closed(&self, core: &Weak<Core>) {
        self.close_removed(&self.take_closed(core));
    }

    /// Tells the manager that these files are not open here.
    pub(crate) fn close_removed(&self, files: &[FileHandle]) {
        let mut left = files;
        while !left.is_empty() {
            let (files, rest) = left.split_at(left.len().min(MAX_CLAIMS));
            let arguments = ClosedArguments { client: self.client, files: files.to_vec() };
            if let Err(error) = self.backend.closed(&arguments) {
                // They are asked about again with the next attachment, or go with the session.
                tracing::debug!(%error, "removed files stay for a while");
                self.state().removed.extend(left);
                return;
            }
            files.iter().for_each(|file| self.forget(*file));
            left = rest;
        }
    }
}
