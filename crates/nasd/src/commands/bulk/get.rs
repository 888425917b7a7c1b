//! `nasd bulk get`: files and trees to this machine.

use super::journal::{Journal, Noted, SourceFacts};
use super::local::{Pending, beside, failed, followed, set_directory};
use super::parts::{PartHash, Parts};
use super::places::Place;
use super::remote::{Facts, Failure, Kind, Remote, below, is_name, must_agree, split};
use super::transfer::{Piece, Reopened, each, lock};
use super::{Copying, stream};
use crate::commands::Outcome;
use crate::output::note;
use std::error::Error;
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// What ends the name of a file that is not whole, and that of its journal.
pub const PART: &str = ".part";
pub const JOURNAL: &str = ".part.journal";

/// One file that is to be copied.
struct Wanted {
    path: Vec<u8>,
    target: PathBuf,
    size: u64,
}

/// All that is.
#[derive(Default)]
struct Plan {
    files: Vec<Wanted>,
    directories: Vec<(PathBuf, Facts)>,
    left_out: u64,
}

/// Copies all sources.
///
/// # Errors
/// The first that can't be copied, by name; what was copied before stays.
pub fn get(copying: &Copying<'_>) -> Outcome {
    let arguments = copying.arguments;
    let destination = match Place::parse(arguments.destination())? {
        Place::Local(path) => Some(path),
        Place::Standard => None,
        _ => {
            return Err(format!(
                "bulk get copies to this machine, where {} is not: bulk put copies to a server",
                arguments.destination()
            )
            .into());
        }
    };
    let is_into = destination.as_deref().is_some_and(Path::is_dir);
    if arguments.sources().len() > 1 && destination.is_some() && !is_into {
        let what = arguments.destination();
        return Err(format!("{what} is no directory, so only one source can go there").into());
    }
    for source in arguments.sources() {
        let place = Place::parse(source)?;
        if place.is_here() {
            return Err(format!(
                "{source} is of this machine: bulk get copies from a server, bulk put to one"
            )
            .into());
        }
        let (remote, path) = copying.reach(&place)?;
        let facts = remote.facts(&path).map_err(|error| about(&*remote, &path, error))?;
        let facts = facts
            .ok_or_else(|| format!("{}: there is no file of this name", remote.called(&path)))?;
        let Some(destination) = &destination else {
            must_be_file(&*remote, &path, &facts)?;
            stream::to_output(copying, &*remote, (&path, facts.size))?;
            continue;
        };
        let target = match (is_into, split(&path)) {
            (true, Some((_, name))) if is_name(name) => destination.join(OsStr::from_bytes(name)),
            (true, _) if remote.is_one_file() => {
                return Err(format!(
                    "the name in the URL is none for a file: say which file of {} to write",
                    destination.display()
                )
                .into());
            }
            _ => destination.clone(),
        };
        one(copying, &*remote, (&path, facts), target)?;
    }
    Ok(())
}

/// Copies a file, or a tree.
fn one(
    copying: &Copying<'_>,
    remote: &dyn Remote,
    (path, facts): (&[u8], Facts),
    target: PathBuf,
) -> Result<(), Box<dyn Error>> {
    let mut plan = Plan::default();
    match facts.kind {
        Kind::Directory if !copying.arguments.recursive => {
            let called = remote.called(path);
            return Err(format!("{called} is a directory: add -r to copy it").into());
        }
        Kind::Directory => plan.collect(remote, (path, facts), target)?,
        Kind::File => {
            plan.files.push(Wanted { path: path.to_vec(), target, size: facts.size });
        }
        Kind::Other => must_be_file(remote, path, &facts)?,
    }
    let tally = &copying.tally;
    tally.expect(plan.files.iter().fold(0, |sum, file| sum.saturating_add(file.size)));
    tally.left_out(plan.left_out);
    let streams = copying.arguments.streams;
    let (small, large): (Vec<_>, Vec<_>) =
        plan.files.iter().partition(|file| Parts::new(file.size, streams).count() <= 1);
    // Small ones side by side, each by one; large ones one after the other, by all.
    each(small, streams, &|wanted: &Wanted, memory| file(copying, remote, wanted, Some(memory)))?;
    large.into_iter().try_for_each(|wanted| file(copying, remote, wanted, None))?;
    // What is in a directory changes its time.
    for (path, facts) in plan.directories.iter().rev() {
        set_directory(path, facts)?;
    }
    tally.directories(plan.directories.len() as u64);
    Ok(())
}

impl Plan {
    /// Finds out what is in a tree, and makes its directories.
    fn collect(
        &mut self,
        remote: &dyn Remote,
        (path, facts): (&[u8], Facts),
        target: PathBuf,
    ) -> Result<(), Failure> {
        let mut rest = vec![(path.to_vec(), facts, target)];
        while let Some((path, facts, target)) = rest.pop() {
            // The owner can write in it until all is there.
            let made = fs::DirBuilder::new().mode(facts.mode & 0o777 | 0o700).create(&target);
            if let Err(error) = made
                && !target.is_dir()
            {
                return Err(failed(&target, &error));
            }
            let listed = remote.list(&path).map_err(|error| error.about(&remote.called(&path)))?;
            for entry in listed {
                if !is_name(&entry.name) {
                    let name = entry.name.escape_ascii();
                    let why = format!("the server tells a name that is none, `{name}`");
                    return Err(Failure::Final(why).about(&remote.called(&path)));
                }
                let target = target.join(OsStr::from_bytes(&entry.name));
                let (path, facts) = (below(&path, &entry.name), entry.facts);
                match facts.kind {
                    Kind::File => self.files.push(Wanted { path, target, size: facts.size }),
                    Kind::Directory => rest.push((path, facts, target)),
                    Kind::Other => self.left_out += 1,
                }
            }
            self.directories.push((target, facts));
        }
        Ok(())
    }
}

/// Copies one file: by one stream that has memory, or by all.
fn file(
    copying: &Copying<'_>,
    remote: &dyn Remote,
    wanted: &Wanted,
    memory: Option<&mut Vec<u8>>,
) -> Result<(), Failure> {
    let called = remote.called(&wanted.path);
    copying.tally.about(&called);
    let target = followed(&wanted.target);
    let is_odd = fs::metadata(&target).is_ok_and(|found| !found.is_file() && !found.is_dir());
    if is_odd {
        // A device or a pipe takes bytes in order, and keeps its name.
        let output = fs::OpenOptions::new().write(true).open(&target);
        let output = output.map_err(|error| failed(&target, &error))?;
        return stream::into(copying, remote, (&wanted.path, wanted.size), output);
    }
    let block = copying.first_block(Parts::new(wanted.size, copying.arguments.streams));
    let source = Reopened::open(remote, &wanted.path, block);
    let source = source.map_err(|error| error.about(&called))?;
    let mut landing = Landing::new(copying, &source.facts, &target, called.as_bytes())?;
    let copied = landing.copy(copying, &source, memory);
    let checksum = copied.map_err(|error| error.about(&called))?;
    if landing.parts.count() > 1 {
        warn_if_changed(remote, &wanted.path, &source.facts);
    }
    let size = source.facts.size;
    landing.finish(&source.facts)?;
    copying.tally.file(&wanted.target.display().to_string(), size, checksum);
    Ok(())
}

/// Where a file comes to.
struct Landing {
    pending: Pending,
    journal: Option<Mutex<Journal>>,
    parts: Parts,
    /// What is there already.
    done: Vec<bool>,
    hashes: Mutex<Vec<Option<PartHash>>>,
}

impl Landing {
    fn new(
        copying: &Copying<'_>,
        facts: &Facts,
        target: &Path,
        called: &[u8],
    ) -> Result<Landing, Failure> {
        let fresh = Parts::new(facts.size, copying.arguments.streams);
        let landing = |pending, journal, parts: Parts| {
            let count = parts.count() as usize;
            let hashes = Mutex::new(vec![None; count]);
            Landing { pending, journal, parts, done: vec![false; count], hashes }
        };
        if !copying.arguments.resume {
            return Ok(landing(Pending::passing(target)?, None, fresh));
        }
        let part = beside(target, PART);
        let (mut journal, noted) = Journal::open(&beside(target, JOURNAL))?;
        let source = SourceFacts::new(facts.size, facts.time.0, called);
        let found = part.symlink_metadata().ok();
        let is_there = found.as_ref().is_some_and(Metadata::is_file);
        if found.is_some_and(|found| !found.is_file() || (noted.is_none() && found.len() > 0)) {
            return Err(Failure::Final(format!(
                "{} is there already, and is not of a transfer that was interrupted: move it away",
                part.display()
            )));
        }
        let pending = Pending::staying(target, part)?;
        let noted = match noted {
            Some(noted) if is_there && noted.source == source => noted,
            other => {
                if other.is_some_and(|noted| noted.source != source) {
                    note!(
                        "nasd: {} is another than that which was begun, or was changed: it is copied from its beginning",
                        String::from_utf8_lossy(called)
                    );
                }
                let noted = Noted::begun(source, fresh);
                pending.file().set_len(0).map_err(|error| failed(target, &error))?;
                journal.begin(&noted)?;
                noted
            }
        };
        let mut landing = landing(pending, Some(Mutex::new(journal)), noted.parts);
        for (index, hash) in noted.done {
            // One whose checksum is wanted and was not noted is copied again.
            if hash.is_some() || !copying.arguments.checksum {
                landing.done[index as usize] = true;
                lock(&landing.hashes)[index as usize] = hash;
                copying.tally.resumed(noted.parts.range(index).length);
            }
        }
        Ok(landing)
    }

    /// Copies what is not there; the checksum, if that is wanted.
    fn copy(
        &mut self,
        copying: &Copying<'_>,
        source: &Reopened<'_>,
        memory: Option<&mut Vec<u8>>,
    ) -> Result<Option<blake3::Hash>, Failure> {
        let (parts, block) = (self.parts, copying.arguments.block);
        let hashes = copying.arguments.checksum;
        let file = self.pending.file();
        let here = |error: std::io::Error| Failure::Final(format!("can't write here: {error}"));
        file.set_len(parts.length()).map_err(here)?;
        let one = |index: u64, memory: &mut Vec<u8>| {
            let piece = Piece { parts, index, block };
            let mut write = |at: u64, bytes: &[u8]| {
                file.write_all_at(bytes, at).map_err(here)?;
                copying.tally.moved(bytes.len() as u64);
                Ok(())
            };
            let hash = source.read(piece, (memory, hashes), &mut write)?;
            lock(&self.hashes)[index as usize] = hash;
            if let Some(journal) = &self.journal {
                let mut journal = lock(journal);
                file.sync_data().map_err(here)?;
                journal.note(index, hash)?;
            }
            Ok(())
        };
        let todo = (0..parts.count()).filter(|index| !self.done[*index as usize]);
        match memory {
            Some(memory) => todo.into_iter().try_for_each(|index| one(index, memory))?,
            None => each(todo, copying.arguments.streams, &one)?,
        }
        if !hashes {
            return Ok(None);
        }
        self.pending.to_device()?;
        let received = lock(&self.hashes).clone();
        let found = read_back(&self.pending, parts, (block, copying.arguments.streams))?;
        must_agree(&received, &found, parts.part_bytes())?;
        Ok(parts.whole(&received))
    }

    fn finish(self, facts: &Facts) -> Result<(), Failure> {
        self.pending.finish(facts)?;
        if let Some(journal) = self.journal {
            journal.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner).remove();
        }
        Ok(())
    }
}

/// What the parts of a file of this machine come to.
fn read_back(
    pending: &Pending,
    parts: Parts,
    (block, streams): (u64, u16),
) -> Result<Vec<Option<PartHash>>, Failure> {
    let hashes = Mutex::new(vec![None; parts.count() as usize]);
    each(0..parts.count(), streams, &|index, memory| {
        let (range, mut hasher) = (parts.range(index), parts.hasher(index));
        memory.resize(block as usize, 0);
        for at in (range.offset..range.end()).step_by(block as usize) {
            let length = block.min(range.end() - at) as usize;
            let read = pending.file().read_exact_at(&mut memory[..length], at);
            read.map_err(|error| {
                Failure::Final(format!("can't read back what was written: {error}"))
            })?;
            hasher.update(&memory[..length]);
        }
        lock(&hashes)[index as usize] = Some(hasher.finish());
        Ok(())
    })?;
    Ok(hashes.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner))
}

/// A large file takes long to copy: what was written to it meanwhile is there in part.
fn warn_if_changed(remote: &dyn Remote, path: &[u8], before: &Facts) {
    let is_same = |now: Facts| (now.size, now.time) == (before.size, before.time);
    let has_time = before.time.0 != 0;
    if has_time && !matches!(remote.facts(path), Ok(Some(now)) if is_same(now)) {
        note!(
            "nasd: {} was changed while it was copied: the copy may have some of the old and some of the new",
            remote.called(path)
        );
    }
}

/// A directory or a device is no file.
///
/// # Errors
/// That it is none.
fn must_be_file(remote: &dyn Remote, path: &[u8], facts: &Facts) -> Outcome {
    let why = match facts.kind {
        Kind::File => return Ok(()),
        Kind::Directory => "is a directory, which can't be printed",
        Kind::Other => "is no regular file: only those are copied",
    };
    Err(format!("{} {why}", remote.called(path)).into())
}

fn about(remote: &dyn Remote, path: &[u8], error: Failure) -> Failure {
    error.about(&remote.called(path))
}
