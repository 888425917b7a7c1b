//! `rename`: a name goes, another one comes, and what had that one may go with it.

use nasd_protocol::manager::{FileHandle, FileType, ManagerStatus, RenameFlags};

use super::change::Draft;
use super::contents::Target;
use super::govern::require_movable;
use super::lookup::require_name;
use super::{ATTEMPTS, Namespace, Outcome};
use crate::caller::Caller;
use crate::file_record::FileRecord;
use crate::locks::{Mode, Wants};
use crate::permission::{self, Deed, WRITE};

/// More directories above each other than any path can name; a circle, that is.
const MAX_DEPTH: usize = 1 << 16;

/// A name in a directory.
#[derive(Clone, Copy, Debug)]
struct Place<'a> {
    directory: FileHandle,
    name: &'a [u8],
}

/// What was seen before the locks were taken.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    source: Target,
    victim: Option<Target>,
    /// The new directory and all above it, if a directory moves to another one.
    above: Vec<FileHandle>,
    /// The old directory and all above it, if a directory moves from the new one in exchange.
    above_old: Vec<FileHandle>,
    /// Whether both names stay, and change places.
    exchange: bool,
}

/// The records that count, read under the locks; those of what moves with the list that governs it then.
struct Records {
    old: FileRecord,
    new: FileRecord,
    source: FileRecord,
    victim: Option<FileRecord>,
}

impl Namespace {
    /// Moves a name, over what has the new name if that can be.
    pub fn rename(
        &self,
        caller: &Caller,
        (from_directory, from_name): (FileHandle, &[u8]),
        (to_directory, to_name): (FileHandle, &[u8]),
        flags: RenameFlags,
    ) -> Outcome<()> {
        let special = |name: &[u8]| matches!(name, b"." | b"..");
        if !flags.is_meaningful() || special(from_name) || special(to_name) {
            return Err(ManagerStatus::Invalid);
        }
        require_name(from_name)?;
        require_name(to_name)?;
        let from = Place { directory: from_directory, name: from_name };
        let to = Place { directory: to_directory, name: to_name };
        self.once_without(caller, || {
            for _ in 0..ATTEMPTS {
                let renamed = match self.look_before_rename(caller, from, to, flags) {
                    Ok(Some(seen)) => self.try_rename(caller, from, to, &seen),
                    Ok(None) => return self.answered(Ok(()), &[from.directory, to.directory]),
                    Err(status) => Err(status),
                };
                match renamed {
                    Ok(Some(sequence)) => return self.wait_for(sequence),
                    Ok(None) => {}
                    Err(status) => {
                        return self.answered(Err(status), &[from.directory, to.directory]);
                    }
                }
            }
            Err(ManagerStatus::Unavailable)
        })
    }

    /// Looks at all that takes part, one lock at a time. `None` if nothing is to be done: both
    /// names are the same file's.
    fn look_before_rename(
        &self,
        caller: &Caller,
        from: Place<'_>,
        to: Place<'_>,
        flags: RenameFlags,
    ) -> Outcome<Option<Seen>> {
        let source = self.search(caller, from.directory, from.name)?;
        let source = source.ok_or(ManagerStatus::NotFound)?;
        let victim = self.search(caller, to.directory, to.name)?;
        if victim.is_some() && flags.is_no_replace() {
            return Err(ManagerStatus::Exists);
        }
        let exchange = flags.is_exchange();
        if exchange && victim.is_none() {
            return Err(ManagerStatus::NotFound);
        }
        if victim.is_some_and(|victim| victim.handle == source.handle) {
            return Ok(None);
        }
        match self.preload(source.handle) {
            Ok(_) | Err(ManagerStatus::Stale) => {}
            Err(status) => return Err(status),
        }
        if let Some(victim) = victim {
            self.look_at(victim)?;
        }
        let elsewhere = from.directory != to.directory;
        let moves = |target: Target| elsewhere && target.file_type == FileType::Directory;
        let above = if moves(source) { self.above(to.directory)? } else { Vec::new() };
        if above.contains(&source.handle) {
            return Err(ManagerStatus::Invalid);
        }
        let mut above_old = Vec::new();
        if let Some(victim) = victim.filter(|victim| moves(*victim)) {
            above_old = self.above(from.directory)?;
            if above_old.contains(&victim.handle) {
                let status =
                    if exchange { ManagerStatus::Invalid } else { ManagerStatus::NotEmpty };
                return Err(status);
            }
        }
        if !exchange {
            above_old.clear();
        }
        Ok(Some(Seen { source, victim, above, above_old, exchange }))
    }

    /// A directory and all above it, up to the root.
    fn above(&self, directory: FileHandle) -> Outcome<Vec<FileHandle>> {
        let mut above = vec![directory];
        let mut last = directory;
        while last != self.root() {
            last = self.parent(last)?;
            above.push(last);
            if above.len() > MAX_DEPTH {
                tracing::error!("directories lie in a circle");
                return Err(ManagerStatus::Io);
            }
        }
        Ok(above)
    }

    /// `None` if others have changed what it looked at.
    fn try_rename(
        &self,
        caller: &Caller,
        from: Place<'_>,
        to: Place<'_>,
        seen: &Seen,
    ) -> Outcome<Option<u64>> {
        let _held = self.hold(wants(from, to, seen));
        let unchanged = self.find(from.directory, from.name)? == Some(seen.source)
            && self.find(to.directory, to.name)? == seen.victim
            && (seen.above.is_empty() || self.above(to.directory)? == seen.above)
            && (seen.above_old.is_empty() || self.above(from.directory)? == seen.above_old);
        if !unchanged {
            return Ok(None);
        }
        let records = self.check_rename(caller, from, to, seen)?;
        let sequence = self.change(&[from.directory, to.directory], |draft| {
            draft_rename(draft, caller, from, to, seen, &records)?;
            draft.answers(caller, None);
            Ok(())
        })?;
        Ok(Some(sequence))
    }

    /// Checks the rules; the caller holds all locks.
    fn check_rename(
        &self,
        caller: &Caller,
        from: Place<'_>,
        to: Place<'_>,
        seen: &Seen,
    ) -> Outcome<Records> {
        let (old, new) =
            (self.directory_record(from.directory)?, self.directory_record(to.directory)?);
        let source = self.record_if_any(seen.source.handle)?.ok_or(ManagerStatus::Io)?;
        permission::require_to(&old, caller, Deed::Delete)?;
        permission::require_removable(&old, &source, caller)?;
        permission::require_to(&new, caller, Deed::Insert)?;
        if seen.victim.is_some() {
            permission::require_to(&new, caller, Deed::Delete)?;
        }
        if seen.exchange {
            permission::require_to(&old, caller, Deed::Insert)?;
        }
        let mut victim = None;
        if let Some(target) = seen.victim {
            victim = self.record_if_any(target.handle)?;
            if let Some(record) = &victim {
                permission::require_removable(&new, record, caller)?;
            }
            let is_directory = target.file_type == FileType::Directory;
            if seen.exchange {
                let record = victim.ok_or(ManagerStatus::Io)?;
                if is_directory && from.directory != to.directory {
                    require_to_move(&record, caller)?;
                }
            }
            match (source.is_directory(), is_directory) {
                _ if seen.exchange => {}
                // A volume goes from where it is seen when somebody says so, and not because another file comes.
                (false, false) if target.file_type == FileType::MountPoint => {
                    return Err(ManagerStatus::Exists);
                }
                (true, false) => return Err(ManagerStatus::NotDirectory),
                (false, true) => return Err(ManagerStatus::IsDirectory),
                (true, true) if victim.is_some() => self.require_empty(target.handle)?,
                _ => {}
            }
        }
        if source.is_directory() && from.directory != to.directory {
            require_to_move(&source, caller)?;
        }
        if from.directory == to.directory {
            return Ok(Records { old, new, source, victim });
        }
        let source = require_movable(caller, (seen.source, &source), (&old, &new))?;
        if let (true, Some(target), Some(record)) = (seen.exchange, seen.victim, &victim) {
            victim = Some(require_movable(caller, (target, record), (&new, &old))?);
        }
        Ok(Records { old, new, source, victim })
    }
}

/// Requires that the caller may move a directory to another one: its `..` changes, which is a change of its own where no list governs it.
fn require_to_move(directory: &FileRecord, caller: &Caller) -> Outcome<()> {
    match directory.afs_acl() {
        Some(_) => Ok(()),
        None => permission::require(directory, caller, WRITE),
    }
}

fn wants(from: Place<'_>, to: Place<'_>, seen: &Seen) -> Wants {
    let mut wants = Wants::new().write(from.directory).write(to.directory);
    wants = wants.write(seen.source.handle);
    if !seen.above.is_empty() {
        wants = wants.position(seen.source.handle, Mode::Exclusive);
    }
    for directory in seen.above.iter().chain(&seen.above_old) {
        wants = wants.position(*directory, Mode::Shared);
    }
    match seen.victim {
        Some(victim) if seen.above_old.is_empty() => wants.write(victim.handle),
        Some(victim) => wants.write(victim.handle).position(victim.handle, Mode::Exclusive),
        None => wants,
    }
}

fn draft_rename(
    draft: &mut Draft<'_>,
    caller: &Caller,
    from: Place<'_>,
    to: Place<'_>,
    seen: &Seen,
    records: &Records,
) -> Outcome<()> {
    let source = seen.source;
    draft.set_name(to.directory, to.name, source.handle, source.file_type)?;
    match seen.victim {
        Some(victim) if seen.exchange => {
            draft.set_name(from.directory, from.name, victim.handle, victim.file_type)?;
        }
        _ => draft.remove_name(from.directory, from.name)?,
    }
    draft.touch(from.directory, &records.old);
    if to.directory != from.directory {
        draft.touch(to.directory, &records.new);
    }
    draft.set_record(source.handle, &moved(&records.source, to.directory));
    match (seen.victim, records.victim) {
        (Some(victim), Some(record)) if seen.exchange => {
            draft.set_record(victim.handle, &moved(&record, from.directory));
        }
        (Some(victim), Some(record)) if !record.is_directory() && record.links > 1 => {
            let links = record.links - 1;
            draft.set_record(victim.handle, &FileRecord { links, ..record.next() });
        }
        (Some(victim), record) => {
            draft.remove_name_of(caller, victim.handle, record.as_ref());
        }
        (None, _) => {}
    }
    Ok(())
}

/// The record of a file that lies in another directory now: its change time moves, and where `..` leads.
fn moved(record: &FileRecord, directory: FileHandle) -> FileRecord {
    FileRecord { parent: record.parent.map(|_| directory), ..record.next() }
}
