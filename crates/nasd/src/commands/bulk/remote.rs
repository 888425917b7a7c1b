//! The other side of a transfer: names there, and open files. Paths are relative to what is served, their components joined by slashes;
//! the empty one is that itself.

use super::parts::PartHash;
use nasd_types::Timestamp;
use std::fmt::Write;

/// What something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A file.
    File,
    /// A directory.
    Directory,
    /// A link, a device, a pipe.
    Other,
}

/// How something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// What it is.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    /// Bytes.
    pub size: u64,
    /// When its data were changed.
    pub time: Timestamp,
}

/// An entry of a directory.
#[derive(Debug, Clone)]
pub struct Listed {
    /// Its name, as whoever it was made it.
    pub name: Vec<u8>,
    /// How it is; links are not followed.
    pub facts: Facts,
}

/// Why something failed, by what can be done.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Nothing.
    #[error("{0}")]
    Final(String),
    /// The server has started anew since something was written that was not durable: it has to be written again.
    #[error("{0}")]
    MayBeLost(String),
    /// Another authority helps: the file has to be opened again.
    #[error("{0}")]
    Stale(String),
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Failure::Final(text)
    }
}

impl Failure {
    /// What failed, before why.
    pub fn about(self, name: &str) -> Failure {
        let told = |why: String| format!("{name}: {why}");
        match self {
            Failure::Final(why) => Failure::Final(told(why)),
            Failure::MayBeLost(why) => Failure::MayBeLost(told(why)),
            Failure::Stale(why) => Failure::Stale(told(why)),
        }
    }

    /// Whether writing it all again may do.
    pub fn is_curable(&self) -> bool {
        matches!(self, Failure::MayBeLost(_) | Failure::Stale(_))
    }
}

/// What a file is made for.
#[derive(Debug, Clone, Copy)]
pub struct Making {
    /// Its permission bits.
    pub mode: u32,
    /// How long it will be, where that is known.
    pub length: Option<u64>,
    /// Whether what is there already stays.
    pub keeps: bool,
}

/// Names at the other side.
pub trait Remote: Send + Sync {
    /// What a path is called, for people.
    fn called(&self, path: &[u8]) -> String;

    /// How something is; links are followed. Nothing if there is no such name.
    ///
    /// # Errors
    /// Why it can't be told, without the name; as all that follow.
    fn facts(&self, path: &[u8]) -> Result<Option<Facts>, Failure>;

    /// What is in a directory.
    #[allow(clippy::missing_errors_doc, reason = "told once, above")]
    fn list(&self, path: &[u8]) -> Result<Vec<Listed>, Failure>;

    /// Makes a directory, or finds that there is one.
    #[allow(clippy::missing_errors_doc, reason = "told once, above")]
    fn make_directory(&self, path: &[u8], mode: u32) -> Result<(), Failure>;

    /// Opens a file for reading, and tells how it is. It will be read from its beginning on in blocks of that many bytes, unless
    /// that is 0.
    #[allow(clippy::missing_errors_doc, reason = "told once, above")]
    fn open(&self, path: &[u8], block: u64) -> Result<(Box<dyn RemoteFile>, Facts), Failure>;

    /// Opens a file for writing, made if there is none.
    #[allow(clippy::missing_errors_doc, reason = "told once, above")]
    fn make(&self, path: &[u8], making: Making) -> Result<Box<dyn RemoteFile>, Failure>;

    /// Sets permission bits, and when data were changed. Whether that was allowed.
    #[allow(clippy::missing_errors_doc, reason = "told once, above")]
    fn set(&self, path: &[u8], mode: u32, time: Timestamp) -> Result<bool, Failure>;

    /// Moves a name, over what has the new one.
    #[allow(clippy::missing_errors_doc, reason = "told once, above")]
    fn rename(&self, from: &[u8], to: &[u8]) -> Result<(), Failure>;

    /// Removes a file.
    #[allow(clippy::missing_errors_doc, reason = "told once, above")]
    fn remove(&self, path: &[u8]) -> Result<(), Failure>;

    /// Whether there is but one file, which has no name that could be changed.
    fn is_one_file(&self) -> bool {
        false
    }
}

/// An open file at the other side. Any number of threads may use it.
pub trait RemoteFile: Send + Sync {
    /// Bytes of which offsets and lengths of transfers are multiples.
    fn alignment(&self) -> u64;

    /// A reader or writer with connections of its own.
    #[allow(clippy::missing_errors_doc, reason = "told once, above")]
    fn lane(&self) -> Result<Box<dyn RemoteLane + '_>, Failure>;

    /// Its length in bytes.
    #[allow(clippy::missing_errors_doc, reason = "told once, above")]
    fn size(&self) -> Result<u64, Failure>;

    /// Sets it.
    #[allow(clippy::missing_errors_doc, reason = "told once, above")]
    fn set_size(&self, size: u64) -> Result<(), Failure>;

    /// Makes durable what was written.
    #[allow(clippy::missing_errors_doc, reason = "told once, above")]
    fn sync(&self) -> Result<(), Failure>;
}

/// Who reads or writes a file in one place after the other.
pub trait RemoteLane {
    /// Reads at an offset. Fewer bytes than there is room for are read only at the end of the file.
    #[allow(clippy::missing_errors_doc, reason = "told once, above")]
    fn read_at(&mut self, into: &mut [u8], offset: u64) -> Result<usize, Failure>;

    /// Writes all of it at an offset.
    #[allow(clippy::missing_errors_doc, reason = "told once, above")]
    fn write_at(&mut self, data: &[u8], offset: u64) -> Result<(), Failure>;
}

/// A path below another.
pub fn below(path: &[u8], name: &[u8]) -> Vec<u8> {
    match path {
        b"" => name.to_vec(),
        path => [path, b"/", name].concat(),
    }
}

/// A path's directory and last name; nothing of the empty path.
pub fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => Some((&path[..at], &path[at + 1..])),
        None if path.is_empty() => None,
        None => Some((b"", path)),
    }
}

/// Whether a name that somebody else has told is one in a directory, and leads nowhere else.
pub fn is_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.contains(&b'/') && !name.contains(&0)
}

/// Where checksums of two sides differ.
pub fn must_agree(
    sent: &[Option<PartHash>],
    found: &[Option<PartHash>],
    part: u64,
) -> Result<(), Failure> {
    let differs = sent.iter().zip(found).position(|(sent, found)| sent != found || sent.is_none());
    let Some(index) = differs.or((sent.len() != found.len()).then_some(0)) else {
        return Ok(());
    };
    let mut why = "the checksum of what was written is not that of what was read".to_owned();
    // A string takes all that is written to it.
    write!(why, ", from byte {} on: copy it again", index as u64 * part).ok();
    Err(Failure::Final(why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        assert_eq!((below(b"", b"a"), below(b"a", b"b")), (b"a".to_vec(), b"a/b".to_vec()));
        assert_eq!(split(b"a/b/c"), Some((&b"a/b"[..], &b"c"[..])));
        assert_eq!((split(b"c"), split(b"")), (Some((&b""[..], &b"c"[..])), None));
        for name in [&b""[..], b".", b"..", b"/", b"a/b", b"../x", b"a\0"] {
            assert!(!is_name(name), "{}", name.escape_ascii());
        }
        assert!(is_name(b"...") && is_name(b"a b"));
    }
}
