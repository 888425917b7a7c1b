//! Files of this machine that are being written: what has their name stays until they are whole.

use super::remote::{Facts, Failure};
use nasd_types::Timestamp;
use rustix::fs::{Advice, AtFlags, CWD, Mode, OFlags, fadvise, linkat, open};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Permission bits that are copied: none that make programs run as others.
pub const MODE_BITS: u32 = 0o777;

/// Longest name of a file.
const MOST_NAME_BYTES: usize = 255;

/// A file that is being written.
pub struct Pending {
    file: File,
    target: PathBuf,
    /// Its name meanwhile; none where it has none.
    name: Option<PathBuf>,
    /// Whether that is removed if it is not finished.
    is_passing: bool,
}

impl Pending {
    /// One that is gone if it is not finished, whatever ends this process where the file system can do that.
    ///
    /// # Errors
    /// The system's.
    pub fn passing(target: &Path) -> Result<Pending, Failure> {
        let directory = directory_of(target);
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        if let Ok(file) = open(directory, flags, Mode::from_raw_mode(0o600)) {
            let target = target.to_owned();
            return Ok(Pending { file: file.into(), target, name: None, is_passing: true });
        }
        let name = directory.join(passing_name(target)?);
        let file = create(&name, OpenOptions::new().create_new(true));
        let file = file.map_err(|error| failed(target, &error))?;
        Ok(Pending { file, target: target.to_owned(), name: Some(name), is_passing: true })
    }

    /// One that stays under a name of its own if it is not finished.
    ///
    /// # Errors
    /// The system's.
    pub fn staying(target: &Path, name: PathBuf) -> Result<Pending, Failure> {
        let file = create(&name, OpenOptions::new().create(true).truncate(false));
        let file = file.map_err(|error| failed(&name, &error))?;
        Ok(Pending { file, target: target.to_owned(), name: Some(name), is_passing: false })
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Makes what was written durable, and forgets it, so that the device is read when it is read.
    ///
    /// # Errors
    /// The system's.
    pub fn to_device(&self) -> Result<(), Failure> {
        self.file.sync_data().map_err(|error| failed(&self.target, &error))?;
        fadvise(&self.file, 0, None, Advice::DontNeed)
            .map_err(|error| failed(&self.target, &error.into()))
    }

    /// Gives it its name, in the place of what had that.
    ///
    /// # Errors
    /// The system's.
    pub fn finish(mut self, facts: &Facts) -> Result<(), Failure> {
        let set = set_facts(&self.file, facts);
        set.map_err(|error| failed(&self.target, &error))?;
        let name = match self.name.take() {
            Some(name) => name,
            None => {
                let name = directory_of(&self.target).join(passing_name(&self.target)?);
                let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
                linkat(CWD, own, CWD, &name, AtFlags::SYMLINK_FOLLOW)
                    .map_err(|error| failed(&name, &error.into()))?;
                name
            }
        };
        let renamed = fs::rename(&name, &self.target);
        if renamed.is_err() && self.is_passing {
            // It would be in the way of nothing, and of no use.
            let _ = fs::remove_file(&name);
        }
        renamed.map_err(|error| failed(&self.target, &error))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(name) = self.name.take().filter(|_| self.is_passing) {
            // The failure that is told is another one.
            let _ = fs::remove_file(name);
        }
    }
}

/// What a name leads to, if that is a link: then it is that which is written.
pub fn followed(target: &Path) -> PathBuf {
    match target.is_symlink() {
        true => target.canonicalize().unwrap_or_else(|_| target.to_owned()),
        false => target.to_owned(),
    }
}

/// Sets a directory's facts.
///
/// # Errors
/// The system's.
pub fn set_directory(path: &Path, facts: &Facts) -> Result<(), Failure> {
    let set = File::open(path).and_then(|directory| set_facts(&directory, facts));
    set.map_err(|error| failed(path, &error))
}

fn set_facts(file: &File, facts: &Facts) -> io::Result<()> {
    file.set_permissions(fs::Permissions::from_mode(facts.mode & MODE_BITS))?;
    // A URL tells no time.
    if facts.time != Timestamp(0) {
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_nanos(facts.time.0))?;
    }
    Ok(())
}

fn create(name: &Path, options: &mut OpenOptions) -> io::Result<File> {
    options.read(true).write(true).mode(0o600).open(name)
}

fn directory_of(target: &Path) -> &Path {
    match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// A name for a file that is not whole, which nobody else has.
fn passing_name(target: &Path) -> Result<OsString, Failure> {
    let random = getrandom::u32().map_err(|error| Failure::Final(error.to_string()))?;
    let name = target.file_name().unwrap_or_default();
    Ok(OsString::from_vec(named(name.as_bytes(), &format!(".nasd-{random:08x}"), true)))
}

/// A name made of another, which is hidden if that is wanted, and that ends so; no longer than one may be.
pub fn named(name: &[u8], end: &str, is_hidden: bool) -> Vec<u8> {
    let dot: &[u8] = if is_hidden { b"." } else { b"" };
    let whole = [dot, name, end.as_bytes()].concat();
    if whole.len() <= MOST_NAME_BYTES {
        return whole;
    }
    let hash = blake3::hash(name).to_hex();
    [dot, b"nasd-", &hash.as_bytes()[..32], end.as_bytes()].concat()
}

/// The same beside a file of this machine.
pub fn beside(target: &Path, end: &str) -> PathBuf {
    let name = target.file_name().unwrap_or_default();
    target.with_file_name(OsStr::from_bytes(&named(name.as_bytes(), end, false)))
}

/// An error of this machine's, with the name that it is about.
pub fn failed(path: &Path, error: &io::Error) -> Failure {
    Failure::Final(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::bulk::remote::Kind;
    use std::io::Write;

    #[test]
    fn what_has_the_name_stays_until_the_new_file_is_whole() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("file");
        fs::write(&target, b"old").unwrap();
        drop(Pending::passing(&target).unwrap());
        let mut pending = Pending::passing(&target).unwrap();
        pending.file.write_all(b"new").unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"old");
        let time = Timestamp::from_parts(1_000_000_000, 5);
        let facts = Facts { kind: Kind::File, mode: 0o4640, size: 3, time };
        pending.finish(&facts).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"new");
        assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o7777, 0o640);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing is left");
    }

    #[test]
    fn names_stay_short_enough() {
        assert_eq!(named(b"a", ".part", false), b"a.part");
        assert_eq!(named(b"a", ".part", true), b".a.part");
        let long = named(&[b'x'; 255], ".part", true);
        assert!(long.len() < 64 && long != named(&[b'y'; 255], ".part", true));
        assert_eq!(beside(Path::new("d/a"), ".part"), Path::new("d/a.part"));
    }
}
