//! Whose a cache directory is, where it is by default, and the file that says so.

use crate::CacheError;
use nasd_types::CellId;
use rustix::fs::OFlags;
use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The file in a cache directory that says whose it is.
pub(crate) const IDENTITY_FILE: &str = "identity";
/// The file that whoever uses it holds locked.
pub(crate) const LOCK_FILE: &str = "lock";
const FORMAT: u32 = 1;
/// Longest file of that kind.
const MAX_BYTES: u64 = 4096;

/// Whose contents a cache has. Another volume, or another cell, has another cache.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The cell.
    pub cell: CellId,
    /// The volume's name.
    pub volume: String,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "volume {} of cell {}", self.volume, self.cell)
    }
}

/// Where this user's caches are: `NASD_CACHE`, else `nasd` in `XDG_CACHE_HOME`, else in `~/.cache`.
pub fn default_root() -> PathBuf {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(root) = variable("NASD_CACHE") {
        return root.into();
    }
    let caches = variable("XDG_CACHE_HOME").map(PathBuf::from).unwrap_or_else(|| {
        variable("HOME")
            .map_or_else(|| PathBuf::from("/var/cache"), |home| Path::new(&home).join(".cache"))
    });
    caches.join("nasd")
}

/// Where the cache of a volume is, below [`default_root`]: a directory for the cell, and in it one for the volume.
pub fn default_directory(identity: &Identity) -> PathBuf {
    default_root().join(identity.cell.to_string()).join(file_name(&identity.volume))
}

/// A volume's name as that of a directory: names that cells give are what they are, anything else is escaped.
fn file_name(volume: &str) -> String {
    let mut name = String::new();
    for (index, byte) in volume.bytes().enumerate() {
        let plain = byte.is_ascii_alphanumeric() || (index > 0 && b"._-".contains(&byte));
        if plain {
            name.push(char::from(byte));
        } else {
            name.push_str(&format!("%{byte:02x}"));
        }
    }
    name
}

impl Identity {
    fn text(&self) -> String {
        format!("nasd-cache {FORMAT}\ncell {}\nvolume {}\n", self.cell, self.volume)
    }

    /// The identity that this text is, if it is one that an earlier or this program has written.
    fn parse(text: &str, directory: &Path) -> Result<Identity, CacheError> {
        let damaged = || CacheError::NotACache {
            directory: directory.to_owned(),
            reason: format!("its file `{IDENTITY_FILE}` is damaged, or another program's"),
        };
        let mut lines = text.lines();
        let mut value = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        let found: u32 =
            value("nasd-cache").and_then(|text| text.parse().ok()).ok_or_else(damaged)?;
        if found != FORMAT {
            let directory = directory.to_owned();
            return Err(CacheError::Format { directory, found, known: FORMAT });
        }
        let cell = value("cell").and_then(|text| text.parse().ok()).ok_or_else(damaged)?;
        let volume = value("volume").ok_or_else(damaged)?.to_owned();
        let identity = Identity { cell, volume };
        if identity.text() == text { Ok(identity) } else { Err(damaged()) }
    }

    /// The identity of a cache directory; `None` if the directory says nothing.
    pub(crate) fn read(directory: &Path) -> Result<Option<Identity>, CacheError> {
        let path = directory.join(IDENTITY_FILE);
        let failed = |error| CacheError::io("read", &path)(error);
        let file = match open_plain(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let mut bytes = Vec::new();
        file.take(MAX_BYTES).read_to_end(&mut bytes).map_err(failed)?;
        Self::parse(&String::from_utf8_lossy(&bytes), directory).map(Some)
    }

    /// Makes a directory this one's, if it is nobody's and empty; refuses another's.
    pub(crate) fn claim(&self, directory: &Path) -> Result<(), CacheError> {
        if let Some(found) = Self::read(directory)? {
            if found == *self {
                return Ok(());
            }
            let directory = directory.to_owned();
            return Err(CacheError::OtherOwner { directory, found, wanted: self.clone() });
        }
        let new = directory.join(format!("{IDENTITY_FILE}.new"));
        let write = || -> io::Result<()> {
            let mut options = OpenOptions::new();
            options.create(true).truncate(true).write(true).mode(0o600);
            let mut file = options.custom_flags(OFlags::NOFOLLOW.bits() as i32).open(&new)?;
            file.write_all(self.text().as_bytes())?;
            // The only sync there is: a directory without this file could not be told from a stranger's.
            file.sync_all()?;
            fs::rename(&new, directory.join(IDENTITY_FILE))
        };
        write().map_err(CacheError::io("write", &new))
    }
}

/// Makes the directory if it is not there, for its user alone; refuses one with a stranger's things in it.
pub(crate) fn prepare(directory: &Path) -> Result<(), CacheError> {
    let mut builder = DirBuilder::new();
    builder
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(CacheError::io("create", directory))?;
    require_own(directory)?;
    if Identity::read(directory)?.is_some() {
        return Ok(());
    }
    let own = [LOCK_FILE.to_owned(), format!("{IDENTITY_FILE}.new")];
    let list = fs::read_dir(directory).map_err(CacheError::io("read", directory))?;
    for entry in list {
        let name = entry.map_err(CacheError::io("read", directory))?.file_name();
        if !own.iter().any(|own| name == own.as_str()) {
            let reason = format!("it has no file `{IDENTITY_FILE}`, but `{}`", name.display());
            return Err(CacheError::NotACache { directory: directory.to_owned(), reason });
        }
    }
    Ok(())
}

/// Whoever could write to the directory, or put another one in its place, could put anything in front of everybody who uses the mount: what is
/// read of it is checked for damage, not for who has written it.
fn require_own(directory: &Path) -> Result<(), CacheError> {
    let directory = directory.canonicalize().map_err(CacheError::io("find", directory))?;
    let user = rustix::process::geteuid().as_raw();
    for place in directory.ancestors() {
        let found = fs::metadata(place).map_err(CacheError::io("look at", place))?;
        let (owner, mode) = (found.uid(), found.mode());
        let is_itself = place == directory;
        // Who is root need not ask; and in a directory like /tmp nobody moves what others have.
        let is_strangers = owner != user && (is_itself || owner != 0);
        let others = if is_itself { 0o022 } else { 0o002 };
        let may_write = mode & others != 0 && (is_itself || mode & 0o1000 == 0);
        let reason = match (is_strangers, may_write) {
            (true, _) => format!("{} belongs to user {owner}", place.display()),
            (false, true) => format!("others may write to {}", place.display()),
            (false, false) => continue,
        };
        return Err(CacheError::Unsafe { directory, reason });
    }
    Ok(())
}

/// Opens a file to read, without following a link or waiting for a pipe's other end.
pub(crate) fn open_plain(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_survives_its_text() {
        let identity = Identity { cell: CellId([0x5a; 16]), volume: "main".into() };
        let place = Path::new("/somewhere");
        let text = identity.text();
        assert_eq!(Identity::parse(&text, place).unwrap(), identity);
        for wrong in ["", "x", &text[1..], &text[..text.len() - 1], &format!("{text}more\n")] {
            let told = Identity::parse(wrong, place).unwrap_err();
            assert!(matches!(told, CacheError::NotACache { .. }), "{wrong}: {told}");
        }
        let later = text.replacen("nasd-cache 1", "nasd-cache 2", 1);
        let told = Identity::parse(&later, place).unwrap_err().to_string();
        assert!(told.contains("format 2") && told.contains("knows 1"), "{told}");
    }

    #[test]
    fn a_volume_gets_one_directory_below_the_root() {
        assert_eq!(file_name("main.2_a-b"), "main.2_a-b");
        assert_eq!(file_name("../x y"), "%2e.%2fx%20y");
        assert_eq!(file_name("%2e"), "%252e");
    }
}
