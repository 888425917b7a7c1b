//! The ledger as the manager uses it: in memory, and read anew when somebody has changed it.

use super::renewal::renew;
use super::{Cell, CellError, Member, Members, enrol};
use crate::session::manager_tls;
use nasd_manager::membership::{Enrolled, EnrolmentError, Membership, MembershipError};
use nasd_transport::ServerTls;
use std::collections::HashMap;
use std::error::Error;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// The members of the cell in a directory.
#[derive(Debug)]
pub struct Ledger {
    directory: PathBuf,
    /// What the manager shows and demands.
    tls: ServerTls,
    /// Identities by serial numbers.
    present: RwLock<HashMap<String, String>>,
    /// Which file was read last, also if that was of no use.
    seen: Mutex<Seen>,
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
        let seen = Mutex::new(Seen { stamp: Stamp::of(&directory), again: None });
        let present = RwLock::new(read(&directory)?);
        Ok(Ledger { directory, tls, present, seen, reading: Mutex::new(()) })
    }

    fn knows(&self, serial: &str, identity: &str) -> bool {
        let present = self.present.read().unwrap_or_else(PoisonError::into_inner);
        present.get(serial).is_some_and(|known| known == identity)
    }

    /// Whether the file is another than that which was read last, or was not to be had then.
    fn is_changed(&self) -> bool {
        let stamp = Stamp::of(&self.directory);
        self.seen().is_due(stamp, Instant::now())
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads ledger and certificates, for whoever has `reading`.
    fn read_anew(&self) -> Result<(), Box<dyn Error>> {
        let fresh = read(&self.directory)?;
        *self.present.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        let cell = Cell::open(&self.directory)?;
        self.tls.replace(&manager_tls(&cell)?);
        Ok(())
    }
}

/// What was read last. A file that is of no use is not tried again for every stranger; one that could
/// not be read or taken up for another reason, as the system had no room for that, is after a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    stamp: Option<Stamp>,
    again: Option<Instant>,
}

/// How long after that.
const PAUSE: Duration = Duration::from_secs(1);

impl Seen {
    fn is_due(&self, stamp: Option<Stamp>, now: Instant) -> bool {
        stamp.is_some() && (stamp != self.stamp || self.again.is_some_and(|again| again <= now))
    }

    fn after(error: &(dyn Error + 'static), stamp: Option<Stamp>, now: Instant) -> Seen {
        let is_of_no_use = matches!(error.downcast_ref(), Some(CellError::Damaged { .. }));
        Seen { stamp, again: (!is_of_no_use).then(|| now + PAUSE) }
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
        let stamp = Stamp::of(&self.directory);
        *self.seen() = Seen { stamp, again: None };
        self.read_anew().map_err(|error| {
            *self.seen() = Seen::after(&*error, stamp, Instant::now());
            MembershipError(error.to_string())
        })
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
    use crate::testing::cell;
    use crate::{MemberKind, identity};
    use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};

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

    /// The writing end of a pipe, as soon as somebody has opened it to read; but not for ever.
    fn open_when_read(path: &Path) -> std::fs::File {
        let mut tried = 0;
        let flags = OFlags::WRONLY | OFlags::NONBLOCK;
        loop {
            match open(path, flags, Mode::empty()) {
                Ok(end) => return end.into(),
                Err(rustix::io::Errno::NXIO) if tried < 2000 => tried += 1,
                Err(errno) => panic!("nobody reads the ledger: {errno}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
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
            let mut told = open_when_read(&path);
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
    fn what_could_not_be_read_is_tried_again_and_what_is_damaged_is_not() {
        let (now, stamp) = (Instant::now(), Stamp { inode: 1, modified: (2, 3), bytes: 4 });
        let other = Stamp { inode: 2, ..stamp };
        let failed = |error: CellError| Seen::after(&error, Some(stamp), now);
        let full = || std::io::Error::from_raw_os_error(libc::EMFILE);
        let away = failed(CellError::io("read", "members.toml")(full()));
        assert!(!away.is_due(Some(stamp), now) && away.is_due(Some(stamp), now + PAUSE));
        let damaged = CellError::Damaged { path: PathBuf::new(), reason: String::new() };
        let damaged = failed(damaged);
        assert!(!damaged.is_due(Some(stamp), now + 60 * PAUSE));
        for seen in [away, damaged] {
            assert!(seen.is_due(Some(other), now) && !seen.is_due(None, now + PAUSE));
        }
    }

    #[test]
    fn a_ledger_that_was_not_to_be_had_is_read_later() {
        let directory = tempfile::tempdir().unwrap();
        let (ledger, ..) = ledger(directory.path());
        let admin = identity("owner", MemberKind::Admin, None);
        Members::update(directory.path(), |members| {
            members.by_identity(&admin).unwrap().serial = "4242".to_owned();
            Ok(())
        })
        .unwrap();
        // The same file, which could not be read when it was looked at first.
        let full = || std::io::Error::from_raw_os_error(libc::EMFILE);
        let error = CellError::io("read", "members.toml")(full());
        let seen = Seen::after(&error, Stamp::of(directory.path()), Instant::now());
        let now = Instant::now();
        *ledger.seen() = Seen { again: Some(now + Duration::from_secs(3600)), ..seen };
        assert!(!ledger.has("4242", &admin), "it is not tried again before its time");
        assert!(seen.again.is_some_and(|again| again <= now + PAUSE));
        *ledger.seen() = Seen { again: Some(now), ..seen };
        assert!(ledger.has("4242", &admin));
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
