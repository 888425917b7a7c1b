//! What clients do in a volume of which the files may have only so many bytes: who is refused must be for a reason, and who is not takes no byte
//! too much ([`super::lengths`]).

use std::time::Duration;

use nasd_clerk::{ClerkError, FileHandle, ManagerStatus, OpenMode, SetFileAttributes};

use super::client::{Working, bytes_of, named};

/// For so long what somebody has cut or removed may not be free yet: the file manager may not have been answered, and may have to ask again.
const UNTIL_FREE: Duration = Duration::from_secs(30);

/// The same where nothing fails.
const UNTIL_FREE_AT_BEST: Duration = Duration::from_secs(1);

/// What somebody is told for whom there is no room.
pub(super) const NO_ROOM: ClerkError = ClerkError::Manager(ManagerStatus::NoSpace);

impl Working {
    /// Somebody who has wanted to make a file as long as this since a moment is told that there is no room for that.
    pub(super) fn is_refused(&self, file: FileHandle, length: u64, begun: Duration) {
        self.tell(|| format!("has no room for {length} bytes of {:x}", file.object.0));
        self.history().refused += 1;
        let never_fails = self.site().plan.faults.are_none();
        let until_free = if never_fails { UNTIL_FREE_AT_BEST } else { UNTIL_FREE };
        let since = begun.saturating_sub(until_free);
        if self.site().lengths.has_had_room(since, (file.drive, file.object), length) {
            let why = format!("{} had room for {length} bytes of {file:x?}", self.who());
            self.site().time.fail(why);
        }
    }

    /// Makes a file longer or shorter behind what is stored and read.
    pub(super) fn resize(&self, file: usize, extra: usize) -> Result<(), ClerkError> {
        let begun = self.site().time.now();
        let length = (bytes_of(self.site().plan.pieces) + extra) as u64;
        self.tell(|| format!("gives file {file} {length} bytes"));
        let handle = self.places.files[file];
        let changes = SetFileAttributes { size: Some(length), ..SetFileAttributes::default() };
        match self.clerk.setattr(&self.caller, handle, &changes) {
            Err(NO_ROOM) => self.is_refused(handle, length, begun),
            outcome => drop(outcome?),
        }
        self.history().done += 1;
        Ok(())
    }

    /// When nothing else happens: takes all the room that there is, and then there is none for a byte more.
    pub(super) fn fill(&mut self) -> Result<(), ClerkError> {
        let Some(quota) = self.site().plan.quota() else { return Ok(()) };
        let (clerk, root) = (&self.clerk, self.clerk.root());
        let name = named("last");
        let file = clerk.create_to_store(&self.caller, root, &name, 0o666, true)?.handle;
        let free = quota.saturating_sub(self.site().lengths.sum());
        let store = |length: u64| {
            self.tell(|| format!("takes {length} bytes"));
            let (open, _) = clerk.open(&self.caller, file, OpenMode::WRITE)?;
            open.write(0, &vec![1; length as usize]).and_then(|()| open.close())
        };
        store(free)?;
        let begun = self.site().time.now();
        match store(free + 1) {
            Err(NO_ROOM) => self.is_refused(file, free + 1, begun),
            outcome => outcome?,
        }
        Ok(())
    }
}
