//! What is done of a transfer that may be interrupted, in a file beside it, as text:
//!
//! ```text
//! nasdbulk1
//! source SIZE NANOSECONDS WHICH
//! parts BYTES
//! done INDEX CHECKSUM
//! ```
//!
//! SIZE and NANOSECONDS (since 1970) say how the source was, WHICH names it by the hash of what it is called. One line follows for each
//! part that is done, with what it comes to in the checksum, or `-`. A line without an end was being written, and counts for nothing.

use super::parts::{PartHash, Parts};
use rustix::fs::{FlockOperation, flock};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

const HEAD: &str = "nasdbulk1";

/// No journal is so long.
const MOST_BYTES: u64 = 64 << 20;

/// How a source is; what has another is another, or was changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFacts {
    /// Bytes.
    pub size: u64,
    /// When it was changed, in nanoseconds since 1970.
    pub changed_ns: u64,
    /// Which: a hash in hexadecimal digits.
    pub which: String,
}

impl SourceFacts {
    /// Of what is called so.
    pub fn new(size: u64, changed_ns: u64, called: &[u8]) -> SourceFacts {
        let which = blake3::hash(called).to_hex()[..16].to_owned();
        SourceFacts { size, changed_ns, which }
    }
}

/// What a journal says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Noted {
    /// How the source was.
    pub source: SourceFacts,
    /// How it was cut.
    pub parts: Parts,
    /// Which parts are done.
    pub done: BTreeMap<u64, Option<PartHash>>,
}

impl Noted {
    /// Nothing is done.
    pub fn begun(source: SourceFacts, parts: Parts) -> Noted {
        Noted { source, parts, done: BTreeMap::new() }
    }

    /// From the text; nothing if it makes no sense.
    pub fn parse(text: &str) -> Option<Noted> {
        // What follows the last end of a line is a line without one.
        let mut lines: Vec<&str> = text.split('\n').collect();
        lines.pop();
        let mut lines = lines.into_iter();
        if lines.next()? != HEAD {
            return None;
        }
        let words: Vec<&str> = lines.next()?.strip_prefix("source ")?.split(' ').collect();
        let [size, changed, which] = words[..] else { return None };
        let size = size.parse().ok()?;
        let changed_ns = changed.parse().ok()?;
        let source = SourceFacts { size, changed_ns, which: which.to_owned() };
        let part = lines.next()?.strip_prefix("parts ")?.parse().ok()?;
        let mut noted = Noted::begun(source, Parts::of_size(size, part)?);
        for line in lines {
            let (index, hash) = line.strip_prefix("done ")?.split_once(' ')?;
            let index: u64 = index.parse().ok().filter(|index| *index < noted.parts.count())?;
            let hash = match hash {
                "-" => None,
                digits => Some(PartHash::from_hex(digits)?),
            };
            noted.done.insert(index, hash);
        }
        Some(noted)
    }

    /// The beginning of the text.
    fn head(&self) -> String {
        let SourceFacts { size, changed_ns, which } = &self.source;
        format!("{HEAD}\nsource {size} {changed_ns} {which}\nparts {}\n", self.parts.part_bytes())
    }
}

/// A line for a part that is done.
fn line(index: u64, hash: Option<PartHash>) -> String {
    format!("done {index} {}\n", hash.map_or_else(|| "-".to_owned(), PartHash::to_hex))
}

/// A journal that nobody else has.
pub struct Journal {
    path: PathBuf,
    file: File,
}

impl Journal {
    /// Opens it, made if there is none, and tells what it says.
    ///
    /// # Errors
    /// The system's, or that somebody else has it.
    pub fn open(path: &Path) -> Result<(Journal, Option<Noted>), String> {
        let failed = |error: io::Error| format!("{}: {error}", path.display());
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true);
        let mut file = options.open(path).map_err(failed)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| format!("{} is in use: the same transfer is under way", path.display()))?;
        let mut text = String::new();
        let read = (&mut file).take(MOST_BYTES).read_to_string(&mut text);
        let noted = read.ok().and_then(|_| Noted::parse(&text));
        // A line that was being written has no end: the next one would go on in it.
        if let (Some(_), Some(end)) = (&noted, text.rfind('\n')) {
            file.set_len(end as u64 + 1).map_err(failed)?;
        }
        Ok((Journal { path: path.to_owned(), file }, noted))
    }

    /// Begins it anew.
    ///
    /// # Errors
    /// The system's.
    pub fn begin(&mut self, noted: &Noted) -> Result<(), String> {
        let begun =
            self.file.set_len(0).and_then(|()| self.file.write_all(noted.head().as_bytes()));
        begun.map_err(|error| format!("{}: {error}", self.path.display()))
    }

    /// Notes a part that is done, and durable.
    ///
    /// # Errors
    /// The system's.
    pub fn note(&mut self, index: u64, hash: Option<PartHash>) -> Result<(), String> {
        let written = self.file.write_all(line(index, hash).as_bytes());
        written.map_err(|error| format!("{}: {error}", self.path.display()))
    }

    /// Removes it: all is done.
    pub fn remove(self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!(%error, path = %self.path.display(), "a journal is left");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted() -> Noted {
        let source = SourceFacts::new(100 << 20, 1_700_000_000_123_456_789, b"bulk://h:1/x");
        Noted::begun(source, Parts::new(100 << 20, 4))
    }

    #[test]
    fn the_text_says_what_was_noted() {
        let mut expected = noted();
        let mut text = expected.head();
        assert_eq!(Noted::parse(&text).as_ref(), Some(&expected));
        let mut hasher = expected.parts.hasher(2);
        hasher.update(b"x");
        for (index, hash) in [(3, None), (2, Some(hasher.finish()))] {
            text.push_str(&line(index, hash));
            expected.done.insert(index, hash);
        }
        assert_eq!(Noted::parse(&text).as_ref(), Some(&expected));
        // Cut anywhere in the last line, it is as if that was never begun.
        expected.done.remove(&2);
        let last = text.trim_end().rfind('\n').unwrap() + 1;
        for end in last..text.len() {
            assert_eq!(Noted::parse(&text[..end]).as_ref(), Some(&expected), "{end}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_nothing() {
        let head = noted().head();
        let too_far = format!("{head}done {} -\n", noted().parts.count());
        for wrong in [
            "",
            "nasdbulk1\n",
            "nasdbulk2\nsource 1 2 a\nparts 8388608\n",
            "nasdbulk1\nsource 1 2 a\nparts 1\n",
            "nasdbulk1\nsource x 2 a\nparts 8388608\n",
            &too_far,
            &format!("{head}done 1 abc\n"),
            &format!("{head}done\n"),
        ] {
            assert_eq!(Noted::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_journal_goes_on_behind_a_line_that_was_cut() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let (mut journal, none) = Journal::open(&path).unwrap();
        assert_eq!(none, None);
        journal.begin(&noted()).unwrap();
        journal.note(0, None).unwrap();
        assert!(Journal::open(&path).is_err(), "somebody has it");
        drop(journal);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{text}done 1")).unwrap();
        let (mut journal, some) = Journal::open(&path).unwrap();
        assert_eq!(some.unwrap().done.into_keys().collect::<Vec<_>>(), [0]);
        journal.note(3, None).unwrap();
        drop(journal);
        let (journal, some) = Journal::open(&path).unwrap();
        assert_eq!(some.unwrap().done.into_keys().collect::<Vec<_>>(), [0, 3]);
        journal.remove();
        assert!(!path.exists());
    }
}
