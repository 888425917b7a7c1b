//! `nasd bulk put`: files and trees from this machine.

use super::get::{JOURNAL, PART};
use super::journal::{Journal, Noted, SourceFacts};
use super::local::{MODE_BITS, failed, named};
use super::parts::{PartHash, Parts};
use super::places::Place;
use super::remote::{Facts, Failure, Kind, Making, Remote, RemoteFile, below, must_agree, split};
use super::transfer::{Piece, Reopened, each, lock};
use super::{Copying, stream};
use crate::commands::Outcome;
use crate::output::note;
use nasd_types::Timestamp;
use std::error::Error;
use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// How often a file is written whose server has lost some of it.
const TRIES: u32 = 2;

/// One file that is to be copied.
struct Wanted {
    source: PathBuf,
    path: Vec<u8>,
    size: u64,
}

/// Copies all sources.
///
/// # Errors
/// The first that can't be copied, by name; what was copied before stays.
pub fn put(copying: &Copying<'_>) -> Outcome {
    let arguments = copying.arguments;
    let place = Place::parse(arguments.destination())?;
    if place.is_here() {
        let what = arguments.destination();
        return Err(format!(
            "bulk put copies to a server, and {what} is of this machine: bulk get copies to that"
        )
        .into());
    }
    let mut sources = Vec::new();
    for source in arguments.sources() {
        match Place::parse(source)? {
            here @ (Place::Local(_) | Place::Standard) => sources.push(here),
            _ => {
                return Err(format!(
                    "{source} is not of this machine: bulk put copies from that, bulk get to it"
                )
                .into());
            }
        }
    }
    let (remote, path) = copying.reach(&place)?;
    let facts = remote.facts(&path).map_err(|error| error.about(&remote.called(&path)))?;
    let is_into = facts.is_some_and(|facts| facts.kind == Kind::Directory);
    if sources.len() > 1 && !is_into {
        return Err(format!(
            "{} is no directory, so only one source can go there",
            remote.called(&path)
        )
        .into());
    }
    if !is_into && arguments.destination().ends_with('/') {
        return Err(
            format!("{}: there is no such directory; make it first", remote.called(&path)).into()
        );
    }
    for source in sources {
        let Place::Local(source) = source else {
            if is_into {
                return Err(format!(
                    "{} is a directory: say which file of it the input goes to",
                    remote.called(&path)
                )
                .into());
            }
            stream::from_input(copying, &*remote, &path)?;
            continue;
        };
        let path = match is_into {
            true => below(&path, name_of(&source)?.as_bytes()),
            false => path.clone(),
        };
        one(copying, &*remote, source, path)?;
    }
    Ok(())
}

/// The last name of a local path. `..` and `.` have none of their own; where they lead to has.
fn name_of(path: &Path) -> Result<OsString, Box<dyn Error>> {
    if let Some(name) = path.file_name() {
        return Ok(name.to_owned());
    }
    let whole = path.canonicalize().map_err(|error| format!("{}: {error}", path.display()))?;
    let name = whole.file_name().ok_or_else(|| format!("{} has no name", path.display()))?;
    Ok(name.to_owned())
}

/// Copies a file, or a tree.
fn one(copying: &Copying<'_>, remote: &dyn Remote, source: PathBuf, path: Vec<u8>) -> Outcome {
    let found = fs::metadata(&source).map_err(|error| failed(&source, &error))?;
    let (mut files, mut directories) = (Vec::new(), Vec::new());
    if found.is_dir() {
        if !copying.arguments.recursive {
            return Err(format!("{} is a directory: add -r to copy it", source.display()).into());
        }
        if remote.is_one_file() {
            return Err("a URL is for one file alone".into());
        }
        collect(copying, remote, (source, path), &mut files, &mut directories)?;
    } else if found.is_file() {
        files.push(Wanted { source, path, size: found.len() });
    } else {
        return Err(format!(
            "{} is no regular file; give what it tells to the input, as `- < {0}`",
            source.display()
        )
        .into());
    }
    copying.tally.expect(files.iter().map(|file| file.size).sum());
    let streams = copying.arguments.streams;
    let (small, large): (Vec<_>, Vec<_>) =
        files.iter().partition(|file| Parts::new(file.size, streams).count() <= 1);
    // Small ones side by side, each by one; large ones one after the other, by all.
    each(small, streams, &|wanted: &Wanted, memory| file(copying, remote, wanted, Some(memory)))?;
    large.into_iter().try_for_each(|wanted| file(copying, remote, wanted, None))?;
    // What is in a directory changes its time.
    for (path, found) in directories.iter().rev() {
        set(copying, remote, path, found)?;
    }
    copying.tally.directories(directories.len() as u64);
    Ok(())
}

/// Finds out what is in a tree, and makes its directories.
fn collect(
    copying: &Copying<'_>,
    remote: &dyn Remote,
    (source, path): (PathBuf, Vec<u8>),
    files: &mut Vec<Wanted>,
    directories: &mut Vec<(Vec<u8>, Metadata)>,
) -> Result<(), Failure> {
    let mut rest = vec![(source, path)];
    while let Some((source, path)) = rest.pop() {
        let here = |error: io::Error| failed(&source, &error);
        let found = fs::metadata(&source).map_err(here)?;
        // The owner can write in it until all is there. The root of what is served is there.
        if !path.is_empty() {
            let made = remote.make_directory(&path, found.mode() & MODE_BITS | 0o700);
            made.map_err(|error| explained(error, remote, &path))?;
        }
        for entry in fs::read_dir(&source).map_err(here)? {
            let entry = entry.map_err(here)?;
            let kind = entry.file_type().map_err(here)?;
            let (source, path) = (entry.path(), below(&path, entry.file_name().as_bytes()));
            if kind.is_dir() {
                rest.push((source, path));
            } else if kind.is_file() {
                let size = entry.metadata().map_err(here)?.len();
                files.push(Wanted { source, path, size });
            } else {
                copying.tally.left_out(1);
            }
        }
        if !path.is_empty() {
            directories.push((path, found));
        }
    }
    Ok(())
}

/// Copies one file: by one stream that has memory, or by all.
fn file(
    copying: &Copying<'_>,
    remote: &dyn Remote,
    wanted: &Wanted,
    mut memory: Option<&mut Vec<u8>>,
) -> Result<(), Failure> {
    let Wanted { source, path, .. } = wanted;
    copying.tally.about(&source.display().to_string());
    let here = |error: io::Error| failed(source, &error);
    let local = File::open(source).map_err(here)?;
    let found = local.metadata().map_err(here)?;
    let called = remote.called(path);
    let mut leaving = Leaving::new(copying, remote, (source, &found), path)?;
    let mut tries = 1;
    let copied = loop {
        match leaving.copy(copying, (&local, source), memory.as_deref_mut()) {
            Err(error) if error.is_curable() && tries < TRIES => {
                tracing::warn!(%error, "{called} is written again");
                tries += 1;
            }
            done => break done,
        }
    };
    let finished = copied.and_then(|checksum| {
        leaving.finish(copying, &found)?;
        Ok(checksum)
    });
    if finished.is_err() {
        leaving.clean_up();
    }
    let checksum = finished.map_err(|error| explained(error, remote, path))?;
    let now = local.metadata().map_err(here)?;
    if time_of(&now) != time_of(&found) || now.len() != found.len() {
        note!(
            "nasd: {} was changed while it was copied: the copy may have some of the old and some of the new",
            source.display()
        );
    }
    leaving.forget();
    copying.tally.file(&called, found.len(), checksum);
    Ok(())
}

/// A file on its way.
struct Leaving<'a> {
    remote: &'a dyn Remote,
    path: &'a [u8],
    /// Its name until it is whole.
    meanwhile: Vec<u8>,
    making: Making,
    parts: Parts,
    journal: Option<Mutex<Journal>>,
    done: Mutex<Vec<bool>>,
    hashes: Mutex<Vec<Option<PartHash>>>,
}

impl<'a> Leaving<'a> {
    fn new(
        copying: &Copying<'_>,
        remote: &'a dyn Remote,
        (source, found): (&Path, &Metadata),
        path: &'a [u8],
    ) -> Result<Self, Failure> {
        let (length, resumes) = (found.len(), copying.arguments.resume);
        let fresh = Parts::new(length, copying.arguments.streams);
        let meanwhile = match remote.is_one_file() {
            true => path.to_vec(),
            false => meanwhile(path, resumes)?,
        };
        let making =
            Making { mode: found.mode() & MODE_BITS, length: Some(length), keeps: resumes };
        let leaving = |journal, parts: Parts| {
            let count = parts.count() as usize;
            let (done, hashes) = (Mutex::new(vec![false; count]), Mutex::new(vec![None; count]));
            Leaving {
                remote,
                path,
                meanwhile: meanwhile.clone(),
                making,
                parts,
                journal,
                done,
                hashes,
            }
        };
        if !resumes {
            return Ok(leaving(None, fresh));
        }
        let whole = source.canonicalize().map_err(|error| failed(source, &error))?;
        let called = [whole.as_os_str().as_bytes(), b"\0", remote.called(path).as_bytes()].concat();
        let source = SourceFacts::new(length, time_of(found).0, &called);
        let (mut journal, noted) = Journal::open(&journal_path(&source)?)?;
        let facts = remote.facts(&meanwhile);
        let found = facts.ok().flatten();
        let is_others = found.is_some_and(|found| found.size > 0) && noted.is_none();
        if is_others && !remote.is_one_file() {
            return Err(Failure::Final(format!(
                "{} is there already, and is not of a transfer that was interrupted here: remove it",
                remote.called(&meanwhile)
            )));
        }
        let is_there = found.is_some_and(|facts| facts.kind == Kind::File);
        let noted = match noted {
            Some(noted) if is_there && noted.source == source => noted,
            _ => {
                let noted = Noted::begun(source, fresh);
                journal.begin(&noted)?;
                noted
            }
        };
        let leaving = leaving(Some(Mutex::new(journal)), noted.parts);
        for (index, hash) in noted.done {
            // One whose checksum is wanted and was not noted is copied again.
            if hash.is_some() || !copying.arguments.checksum {
                lock(&leaving.done)[index as usize] = true;
                lock(&leaving.hashes)[index as usize] = hash;
                copying.tally.resumed(noted.parts.range(index).length);
            }
        }
        Ok(leaving)
    }

    /// Writes what is not there, and makes it durable; the checksum, if that is wanted.
    fn copy(
        &mut self,
        copying: &Copying<'_>,
        (local, source): (&File, &Path),
        memory: Option<&mut Vec<u8>>,
    ) -> Result<Option<blake3::Hash>, Failure> {
        let (parts, block) = (self.parts, copying.arguments.block);
        let hashes = copying.arguments.checksum;
        let file = self.remote.make(&self.meanwhile, self.making)?;
        let file: &dyn RemoteFile = &*file;
        let is_lost = AtomicBool::new(false);
        let one = |index: u64, memory: &mut Vec<u8>| {
            let piece = Piece { parts, index, block };
            let mut fill = |at: u64, room: &mut [u8]| {
                let read = local.read_exact_at(room, at);
                read.map_err(|error| unread(error, source, parts.length()))?;
                copying.tally.moved(room.len() as u64);
                Ok(())
            };
            let hash = piece.write(file, (memory, hashes), &mut fill)?;
            lock(&self.hashes)[index as usize] = hash;
            if let Some(journal) = &self.journal {
                // Another one that has written waits, so that it is not told of a sync that is under way still.
                let mut journal = lock(journal);
                // What others wrote may be lost as well, whatever they are told.
                if is_lost.load(Ordering::Acquire) {
                    return Err(Failure::MayBeLost(
                        "something written before may be lost".to_owned(),
                    ));
                }
                file.sync().inspect_err(|_| is_lost.store(true, Ordering::Release))?;
                journal.note(index, hash)?;
                lock(&self.done)[index as usize] = true;
            }
            Ok(())
        };
        let done = lock(&self.done).clone();
        let todo = (0..parts.count()).filter(|index| !done[*index as usize]);
        match memory {
            Some(memory) => todo.into_iter().try_for_each(|index| one(index, memory))?,
            None => each(todo, copying.arguments.streams, &one)?,
        }
        let is_padded = !parts.length().is_multiple_of(file.alignment());
        if is_padded || self.making.keeps || self.remote.is_one_file() {
            file.set_size(parts.length())?;
        }
        file.sync()?;
        if !hashes {
            return Ok(None);
        }
        let sent = lock(&self.hashes).clone();
        let found = read_back(copying, self.remote, &self.meanwhile, parts)?;
        must_agree(&sent, &found, parts.part_bytes())?;
        Ok(parts.whole(&sent))
    }

    /// Gives it its name, in the place of what had that.
    fn finish(&self, copying: &Copying<'_>, found: &Metadata) -> Result<(), Failure> {
        if self.remote.is_one_file() {
            return Ok(());
        }
        set(copying, self.remote, &self.meanwhile, found)?;
        self.remote.rename(&self.meanwhile, self.path)
    }

    /// After a failure: what can't be gone on with is removed.
    fn clean_up(&self) {
        if self.journal.is_none() && !self.remote.is_one_file() {
            // The failure that is told is another one.
            let _ = self.remote.remove(&self.meanwhile);
        }
    }

    /// All is done.
    fn forget(self) {
        if let Some(journal) = self.journal {
            journal.into_inner().unwrap_or_else(PoisonError::into_inner).remove();
        }
    }
}

/// What the parts of a file at the server come to.
pub fn read_back(
    copying: &Copying<'_>,
    remote: &dyn Remote,
    path: &[u8],
    parts: Parts,
) -> Result<Vec<Option<PartHash>>, Failure> {
    let source = Reopened::open(remote, path, copying.first_block(parts))?;
    if source.facts.size != parts.length() {
        let (is, should) = (source.facts.size, parts.length());
        return Err(Failure::Final(format!("{is} bytes are there, and {should} were written")));
    }
    let hashes = Mutex::new(vec![None; parts.count() as usize]);
    each(0..parts.count(), copying.arguments.streams, &|index, memory| {
        let piece = Piece { parts, index, block: copying.arguments.block };
        let hash = source.read(piece, (memory, true), &mut |_, _| Ok(()))?;
        lock(&hashes)[index as usize] = hash;
        Ok(())
    })?;
    Ok(hashes.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// The name of a file at the server that is not whole: known if it is to be gone on with, else nobody else's.
pub fn meanwhile(path: &[u8], resumes: bool) -> Result<Vec<u8>, Failure> {
    let (directory, name) = split(path)
        .ok_or_else(|| "this is the directory that is served: name a file of it".to_owned())?;
    let name = match resumes {
        true => named(name, PART, false),
        false => {
            let random = getrandom::u32().map_err(|error| Failure::Final(error.to_string()))?;
            named(name, &format!(".nasd-{random:08x}{PART}"), true)
        }
    };
    Ok(below(directory, &name))
}

/// Sets mode and time as they are here.
fn set(
    copying: &Copying<'_>,
    remote: &dyn Remote,
    path: &[u8],
    found: &Metadata,
) -> Result<(), Failure> {
    let is_set = remote.set(path, found.mode() & MODE_BITS, time_of(found));
    if !is_set.map_err(|error| error.about(&remote.called(path)))? {
        copying.tally.without_facts();
    }
    Ok(())
}

/// An error with the name that it is about, and what else may be the cause.
pub fn explained(error: Failure, remote: &dyn Remote, path: &[u8]) -> Failure {
    let error = error.about(&remote.called(path));
    let parent = split(path).map(|(parent, _)| parent);
    match parent.map(|parent| (parent, remote.facts(parent))) {
        Some((parent, Ok(None))) if !remote.is_one_file() => Failure::Final(format!(
            "{}: there is no such directory; make it first, or copy a tree with -r",
            remote.called(parent)
        )),
        Some((parent, Ok(Some(Facts { kind: Kind::File, .. })))) if !remote.is_one_file() => {
            Failure::Final(format!("{} is a file, and no directory", remote.called(parent)))
        }
        _ => error,
    }
}

fn unread(error: io::Error, source: &Path, length: u64) -> Failure {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Failure::Final(format!(
            "{} became shorter while it was read: it had {length} bytes",
            source.display()
        )),
        _ => failed(source, &error),
    }
}

fn time_of(found: &Metadata) -> Timestamp {
    let seconds = u64::try_from(found.mtime()).unwrap_or(0);
    Timestamp::from_parts(seconds, u32::try_from(found.mtime_nsec()).unwrap_or(0))
}

/// Where the journal of a copy to a server is: with what programs keep of this user.
fn journal_path(source: &SourceFacts) -> Result<PathBuf, Failure> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let state = variable("XDG_STATE_HOME").map(PathBuf::from).unwrap_or_else(|| {
        Path::new(&variable("HOME").unwrap_or_else(|| "/var/lib".into())).join(".local/state")
    });
    let directory = state.join("nasd").join("bulk");
    fs::create_dir_all(&directory).map_err(|error| failed(&directory, &error))?;
    Ok(directory.join(format!("{}{JOURNAL}", source.which)))
}
