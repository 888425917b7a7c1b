//! The ledger as the manager uses it: in memory, and read anew when somebody has changed it.

use super::renewal::renew;
use super::{Cell, CellError, Member, Members, enrol};
use crate::session::manager_tls;
use nasd_manager::membership::{Enrolled, EnrolmentError, Membership, MembershipError};
use nasd_transport::ServerTls;
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, RwLock};

/// The members of the cell in a directory.
#[derive(Debug)]
pub struct Ledger {
    directory: PathBuf,
    /// What the manager shows and demands.
    tls: ServerTls,
    /// Identities by serial numbers.
    present: RwLock<HashMap<String, String>>,
    /// Which file was read last, also if that was of no use: none is tried twice for a stranger.
    seen: Mutex<Option<Stamp>>,
    /// Held from reading the files to knowing what they say: one who has read earlier must not
    /// have the last word, or it would bring back who was removed.
    reading: Mutex<()>,
}

impl Ledger {
    /// Reads it. `tls` is replaced when the files of the manager's certificate are read anew.
    ///
    /// # Errors
    /// As [`Members::load`].
    pub fn open(directory: PathBuf, tls: ServerTls) -> Result<Self, CellError> {
        let seen = Mutex::new(Stamp::of(&directory));
        let present = RwLock::new(read(&directory)?);
        Ok(Ledger { directory, tls, present, seen, reading: Mutex::new(()) })
    }

    fn knows(&self, serial: &str, identity: &str) -> bool {
        let present = self.present.read().unwrap_or_else(PoisonError::into_inner);
        present.get(serial).is_some_and(|known| known == identity)
    }

    /// Whether the file is another than that which was read last.
    fn is_changed(&self) -> bool {
        let stamp = Stamp::of(&self.directory);
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        stamp.is_some() && stamp != *seen
    }
}

/// Tells one writing of the ledger from another: each makes another file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    modified: (i64, i64),
    bytes: u64,
}

impl Stamp {
    fn of(directory: &Path) -> Option<Stamp> {
        let file = std::fs::metadata(Members::path(directory)).ok()?;
        let modified = (file.mtime(), file.mtime_nsec());
        Some(Stamp { inode: file.ino(), modified, bytes: file.len() })
    }
}

fn read(directory: &Path) -> Result<HashMap<String, String>, CellError> {
    let members = Members::load(directory)?;
    let entries = |member: &Member| {
        let identity = member.identity();
        let serials = member.serials();
        serials.map(|serial| (serial.clone(), identity.clone())).collect::<Vec<_>>()
    };
    Ok(members.present().flat_map(entries).collect())
}

impl Membership for Ledger {
    fn has(&self, serial: &str, identity: &str) -> bool {
        // An administrator whose certificate was replaced can tell the manager so by the new one
        // alone.
        self.knows(serial, identity)
            || self.is_changed() && {
                if let Err(error) = self.reload() {
                    tracing::error!(%error, "the members are not known anew");
                }
                self.knows(serial, identity)
            }
    }

    fn reload(&self) -> Result<(), MembershipError> {
        let _reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        // Before it is read: what is written meanwhile is read again.
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Stamp::of(&self.directory);
        let fresh = read(&self.directory).map_err(|error| MembershipError(error.to_string()))?;
        *self.present.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        let cell =
            Cell::open(&self.directory).map_err(|error| MembershipError(error.to_string()))?;
        let tls = manager_tls(&cell).map_err(|error| MembershipError(error.to_string()))?;
        self.tls.replace(&tls);
        Ok(())
    }

    fn enrol(&self, secret: &[u8], public_key: &[u8]) -> Result<Enrolled, EnrolmentError> {
        let failed = |error: CellError| EnrolmentError::Failed(error.to_string());
        let cell = Cell::open(&self.directory).map_err(failed)?;
        let enrolled = enrol(&cell, secret, public_key)?;
        self.reload().map_err(|error| EnrolmentError::Failed(error.to_string()))?;
        Ok(enrolled)
    }

    fn renew(&self, serial: &str, public_key: &[u8]) -> Result<Enrolled, EnrolmentError> {
        let failed = |error: CellError| EnrolmentError::Failed(error.to_string());
        let cell = Cell::open(&self.directory).map_err(failed)?;
        let enrolled = renew(&cell, serial, public_key)?;
        self.reload().map_err(|error| EnrolmentError::Failed(error.to_string()))?;
        Ok(enrolled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::testing::cell;
    use crate::cell::{MemberKind, identity};
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::time::Duration;

    fn ledger(directory: &Path) -> (Ledger, String, String) {
        let cell = cell(directory);
        let tls = manager_tls(&cell).unwrap();
        let members = Members::load(directory).unwrap();
        let host = members.present().find(|member| member.kind == MemberKind::Host).unwrap();
        let who = (host.serial.clone(), host.identity());
        (Ledger::open(directory.to_owned(), tls).unwrap(), who.0, who.1)
    }

    fn remove_host(directory: &Path) {
        let name = |members: &Members| members.all()[0].name.clone();
        Members::update(directory, |members| members.remove(&name(members), MemberKind::Host))
            .unwrap();
    }

    #[test]
    fn who_is_removed_while_another_reads_stays_removed() {
        let directory = tempfile::tempdir().unwrap();
        let (ledger, serial, host) = ledger(directory.path());
        let (path, text) =
            (Members::path(directory.path()), |path: &Path| std::fs::read_to_string(path).unwrap());
        let before = text(&path);
        remove_host(directory.path());
        let after = text(&path);
        // Whoever reads this is told the old contents, when the test says so.
        std::fs::remove_file(&path).unwrap();
        mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
        std::thread::scope(|scope| {
            let early = scope.spawn(|| ledger.reload().unwrap());
            // Opened as soon as the early one reads.
            let mut told = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            std::fs::remove_file(&path).unwrap();
            std::fs::write(&path, after).unwrap();
            let late = scope.spawn(|| ledger.reload().unwrap());
            // Were there no order of the two, this is when the late one would be done.
            for _ in 0..100 {
                if late.is_finished() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            std::io::Write::write_all(&mut told, before.as_bytes()).unwrap();
            drop(told);
            early.join().unwrap();
            late.join().unwrap();
        });
        assert!(!ledger.has(&serial, &host), "an older reading has had the last word");
    }

    #[test]
    fn who_is_not_known_may_be_in_a_newer_file() {
        let directory = tempfile::tempdir().unwrap();
        let (ledger, serial, host) = ledger(directory.path());
        assert!(ledger.has(&serial, &host) && !ledger.is_changed());
        let admin = identity("owner", MemberKind::Admin, None);
        Members::update(directory.path(), |members| {
            members.by_identity(&admin).unwrap().serial = "4242".to_owned();
            Ok(())
        })
        .unwrap();
        assert!(!ledger.has("4242", &host) && ledger.has("4242", &admin));
        // A file that is of no use is read once, and what was known stays.
        std::fs::write(Members::path(directory.path()), "none").unwrap();
        assert!(!ledger.has("43", &admin) && !ledger.is_changed());
        assert!(ledger.has("4242", &admin));
        assert!(ledger.reload().is_err());
    }
}
