//! Files that are open here and have no name: those that were removed, and those that never had one.
//! The file manager keeps them until this clerk says that they are closed, or its session ends
//! (`docs/decisions/0010-sessions-and-leases.md`).

use std::sync::Arc;
use std::time::Instant;

use crate::ClerkError;
use crate::clerk::Clerk;
use crate::open_file::{OpenFile, OpenMode};
use crate::wire::{Caller, FileAttributes, FileHandle, NewMode};

impl Clerk {
    /// Does what may take the last name of a file that is open here; without a session, nobody keeps it.
    pub(crate) fn keeping(
        &self,
        open: Option<FileHandle>,
        change: impl FnOnce(Option<FileHandle>) -> Result<(), ClerkError>,
    ) -> Result<(), ClerkError> {
        let (Some(session), Some(file)) = (&self.session, open) else {
            return change(None);
        };
        // First, so that a manager that is started meanwhile hears of it.
        session.keep(file);
        let outcome = change(Some(file));
        if let Err(ClerkError::Manager(_)) = outcome {
            session.forget(file);
        }
        outcome
    }

    /// Makes a file without a name, as one of this directory's, and opens it. It is there while it is open, or
    /// until it gets a name by [`Clerk::link`].
    ///
    /// # Errors
    ///
    /// What the manager says; `NoSession`.
    pub fn tmpfile(
        &self,
        caller: &Arc<Caller>,
        dir: FileHandle,
        mode: impl Into<NewMode>,
        open: OpenMode,
    ) -> Result<(OpenFile, FileAttributes), ClerkError> {
        let (session, mode) = (self.session()?, mode.into());
        loop {
            let before = session.instance();
            let made = self.ask(|names| names.tmpfile(caller, dir, mode))?.reply;
            // Open from before it is kept: what is kept and not open is given up.
            let _open = self.core.file(made.handle);
            session.keep(made.handle);
            if session.instance() == before {
                let entry = self.learn(caller, &made, Instant::now());
                return self.open_known(caller, &entry, open);
            }
            // A manager that was started meanwhile may not have heard that it is open.
        }
    }

    /// A file that has no name, as far as this clerk knows, was closed for the last time.
    pub fn closed(&self, file: FileHandle) {
        if let Some(session) = &self.session {
            session.close_removed(&[file]);
        }
    }

    /// The files without a name that are kept for this clerk: to be given to the one that takes its place.
    pub fn kept(&self) -> Vec<FileHandle> {
        self.session.as_ref().map(|session| session.kept()).unwrap_or_default()
    }

    /// Takes another clerk's place, while that is still there: these files are open here, and those of them that
    /// are `kept` have no name.
    ///
    /// # Errors
    ///
    /// What the manager says; then files without a name end with the other clerk.
    pub fn claim(&self, open: &[FileHandle], kept: &[FileHandle]) -> Result<(), ClerkError> {
        self.session()?.claim(open, kept)
    }
}
