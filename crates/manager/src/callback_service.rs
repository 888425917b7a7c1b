//! The calls of the personality `afs` (`specs/callbacks.md`): capabilities to read, with callbacks; to store; and their return.
//!
//! What the rules want of drives is done by whoever waits for it, and otherwise by [`tend`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use nasd_afs::callbacks::{Reading, Version, is_store};
use nasd_afs::escrow::Wanted;
use nasd_protocol::manager::{
    Begun, File, FileHandle, GetcapArguments, GetcapsArguments, GetwcapArguments, ManagerStatus,
    Readable, Readables, ReturncapArguments, Returned, Writable,
};
use nasd_types::limits::MAX_OBJECT_BYTES;

use crate::caller::Caller;
use crate::namespace::{BEGUN_VERSION, Beginning, Look, Namespace, Outcome, Room, Storing};
use crate::objects::ObjectError;
use crate::session_service::status;
use crate::sessions::callbacks::{DriveWork, STORE_TIME, Turn};
use crate::sessions::hub::SessionHub;
use crate::sessions::{SessionError, Sessions};
use crate::volumes::Volumes;

/// How long a call waits for others beyond the lease: then its client asks again, so that it is known to live.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long a capability to store is good, so that a client need not ask again before its time is over: the file manager
/// ends it by the version.
const STORE_LIFETIME: Duration = Duration::from_secs(60);

/// What a client is given at most beyond what it needs to write: others want some, too.
const MOST_MORE: u64 = 16 << 20;

/// How often a request is begun anew when others come between.
const ATTEMPTS: usize = 64;

/// The calls of one member of the cell, about files of one volume.
pub(crate) struct CallbacksOf<'a> {
    pub(crate) hub: &'a SessionHub,
    pub(crate) names: &'a Namespace,
    pub(crate) caller: &'a Caller,
    pub(crate) member: &'a str,
}

impl CallbacksOf<'_> {
    fn require_callbacks(&self) -> Outcome<()> {
        if self.names.has_callbacks() { Ok(()) } else { Err(ManagerStatus::NotSupported) }
    }

    /// A capability to read, and a callback.
    pub(crate) fn get_capability(&self, arguments: &GetcapArguments) -> Outcome<Readable> {
        self.require_callbacks()?;
        let GetcapArguments { file, client, contents } = *arguments;
        for _ in 0..ATTEMPTS {
            let may_read = |all: &mut Sessions, now| all.may_read(client, self.member, file, now);
            let (version, promised) = match self.turn(may_read)? {
                Reading::Promised(version) => (version, true),
                Reading::Unpromised(version) => (version, false),
                Reading::Wait => continue,
            };
            match self.names.look_under(self.caller, file, version, contents)? {
                Look::Now(file) => return Ok(Readable { file: *file, version, promised }),
                Look::Elsewhere(at) => self.catch_up(file, at, version)?,
            }
        }
        Err(ManagerStatus::Busy)
    }

    /// The same of a file and of others, as far as nobody has to be waited for with those. Their drive is asked once for all.
    pub(crate) fn get_capabilities(&self, arguments: &GetcapsArguments) -> Outcome<Readables> {
        self.require_callbacks()?;
        let GetcapsArguments { file, client, ref neighbours } = *arguments;
        let promised = self.promise_neighbours(client, file, neighbours)?;
        let first = GetcapArguments { file, client, contents: false };
        let first = self.get_capability(&first)?;
        let readable = |(file, version)| {
            let file = self.names.look_if_told(self.caller, file, version)?;
            Some(Readable { file, version, promised: true })
        };
        let neighbours = promised.into_iter().filter_map(readable).collect();
        Ok(Readables { file: first, neighbours })
    }

    /// Has a drive tell versions and attributes of files that nobody stores, and gives callbacks on all but the first: on which, and of which
    /// version. Attributes that it has told before that are as good: whoever has changed any since has had them forgotten.
    fn promise_neighbours(
        &self,
        client: u64,
        first: FileHandle,
        neighbours: &[FileHandle],
    ) -> Outcome<Vec<(FileHandle, Version)>> {
        let is_there = |file: &FileHandle| {
            (file.drive, file.partition) == (first.drive, first.partition)
                && !self.names.is_removed(*file)
        };
        let files: BTreeSet<FileHandle> =
            neighbours.iter().copied().chain([first]).filter(is_there).collect();
        let files: Vec<FileHandle> = files.into_iter().collect();
        let look = |all: &mut Sessions, now| all.begin_to_look(client, self.member, &files, now);
        let asked = self.hub.with(look).map_err(status)?;
        let files: Vec<FileHandle> = asked.iter().map(|(file, _)| *file).collect();
        let told = self.names.object_versions(first.drive, &files);
        let neighbours: Vec<FileHandle> = files.into_iter().filter(|file| *file != first).collect();
        let promised = self.hub.with(|all, now| {
            for ((file, is_new), told) in asked.iter().zip(told) {
                if *is_new {
                    note_found(all, self.names, *file, told);
                }
            }
            all.promise_settled(client, self.member, &neighbours, now)
        });
        promised.map_err(status)
    }

    /// A capability to store.
    pub(crate) fn get_write_capability(&self, arguments: &GetwcapArguments) -> Outcome<Writable> {
        self.require_callbacks()?;
        let GetwcapArguments { file, client, least_end, best_end, cut } = *arguments;
        let least_end = least_end.max(cut.map_or(0, |cut| cut.length));
        if least_end > MAX_OBJECT_BYTES {
            return Err(ManagerStatus::TooLarge);
        }
        // In this order: taking the right away is a store, after which the file has another version than the one that is to be cut.
        let cut = cut.filter(|cut| self.has_been(file, cut.version));
        self.names.may_be_stored(self.caller, file)?;
        let _under = self.names.under_quota();
        self.wait_until_counted(file)?;
        for _ in 0..ATTEMPTS {
            let may_write =
                |all: &mut Sessions, now| all.may_cut(client, self.member, (file, cut), now);
            let version = self.turn(may_write)?;
            let end = match self.room_to_store(file, version, (least_end, best_end)) {
                Ok(Some(end)) => end,
                Ok(None) => continue,
                Err(failed) => {
                    self.give_back(client, file, version);
                    return Err(failed);
                }
            };
            let lifetime_ns = nanoseconds(STORE_LIFETIME);
            let storing = Storing { version, end, lifetime_ns };
            match self.names.look_to_store(self.caller, file, &storing) {
                Ok(Look::Now(file)) => {
                    let (time, handle) = (nanoseconds(STORE_TIME), file.handle);
                    // Where there is a quota, what was set aside is to be back when the store is done.
                    let alone = !self.names.has_quota()
                        && self.hub.with(|all, _| all.stores_alone(client, handle, version));
                    return Ok(Writable { file: *file, version, end, time, alone });
                }
                Ok(Look::Elsewhere(at)) => self.catch_up(file, at, version)?,
                Err(failed) => {
                    self.give_back(client, file, version);
                    return Err(failed);
                }
            }
        }
        Err(ManagerStatus::Busy)
    }

    /// Whether a file has this version, or has had it.
    fn has_been(&self, file: FileHandle, version: Version) -> bool {
        let known = self.hub.with(|all, _| all.highest_version(file));
        let at_drive = || self.names.object_version(file).ok().map(|(version, _)| version);
        known.or_else(at_drive).is_some_and(|highest| version <= highest)
    }

    /// The capability to store a file that the caller's client has made, if it may do that since then. Where that can't be given the store ends.
    pub(crate) fn begun(&self, file: FileHandle) -> Option<(File, Begun)> {
        let client = self.caller.session;
        let version = self.hub.with(|all, _| all.store_alone(client, file));
        // A late request may come upon a store that began after that one.
        let version = version.filter(|version| *version == BEGUN_VERSION)?;
        let (end, lifetime_ns) = (MAX_OBJECT_BYTES, nanoseconds(STORE_LIFETIME));
        match self.names.look_to_store(self.caller, file, &Storing { version, end, lifetime_ns }) {
            Ok(Look::Now(told)) => {
                Some((*told, Begun { version, end, time: nanoseconds(STORE_TIME) }))
            }
            Ok(Look::Elsewhere(_)) | Err(_) => {
                self.give_back(client, file, version);
                None
            }
        }
    }

    /// A store is done.
    pub(crate) fn return_capability(&self, arguments: &ReturncapArguments) -> Outcome<Returned> {
        self.require_callbacks()?;
        let ReturncapArguments { file, client, version } = *arguments;
        // Of another store nothing is known but what he says, who at least might have stored it.
        if !self.hub.with(|all, _| all.is_stored_by(client, file)) {
            self.names.may_be_stored(self.caller, file)?;
        }
        let mut is_noted = false;
        let outcome = self.turn(|all, now| {
            all.returned((client, self.member), file, version, &mut is_noted, now)
        });
        if is_noted {
            self.hub.with(|all, _| all.end_return(client, file, version));
        }
        let (promised, next) = (outcome?, version.saturating_add(1));
        match self.names.look_under(self.caller, file, next, false)? {
            Look::Now(file) => Ok(Returned { file: *file, version: next, promised }),
            // Somebody has begun to store since, or the drive has to be told again: what was promised is worth nothing by now.
            Look::Elsewhere(version) => {
                let file = self.names.getattr(self.caller, file)?;
                Ok(Returned { file, version, promised: false })
            }
        }
    }

    /// Does something that changes a file for those who read it, as a store of the file manager's own, and returns when all who held callbacks
    /// know. It may give the file another size.
    pub(crate) fn storing<T>(
        &self,
        file: FileHandle,
        size: Option<u64>,
        operation: impl FnOnce() -> Outcome<T>,
    ) -> Outcome<T> {
        let _under = self.names.under_quota();
        self.storing_under(file, size, operation)
    }

    /// The same for who keeps [`Namespace::under_quota`] meanwhile.
    pub(crate) fn storing_under<T>(
        &self,
        file: FileHandle,
        size: Option<u64>,
        operation: impl FnOnce() -> Outcome<T>,
    ) -> Outcome<T> {
        self.wait_until_counted(file)?;
        let version = self.turn(|all, now| all.may_store(file, now))?;
        let ending = Ending { hub: self.hub, file, version };
        let room = size.map_or(Ok(()), |size| self.room_to_resize(file, version, size));
        let outcome = room.and_then(|()| operation());
        drop(ending);
        self.turn(|all, _| Ok(all.settled(file, version)))?;
        outcome
    }

    /// Where files may have only so many bytes, none is stored before those of its drive are counted.
    fn wait_until_counted(&self, file: FileHandle) -> Outcome<()> {
        self.turn(|_, _| match self.names.is_counted(file.drive) {
            true => Ok(Turn::Done(())),
            false => Ok(Turn::Wait),
        })
    }

    /// Where a capability to store a file under this version ends: as far as there is room, which may have to be waited for. Nothing where the
    /// store is over, or the drive had to be told again.
    fn room_to_store(
        &self,
        file: FileHandle,
        version: Version,
        (least_end, best_end): (u64, u64),
    ) -> Outcome<Option<u64>> {
        let best_end = best_end.max(least_end).min(MAX_OBJECT_BYTES);
        if !self.names.has_quota() {
            return Ok(Some(best_end));
        }
        let _asking = self.names.ask_for_room(file);
        let length = match self.names.length_under(file, version)? {
            Ok(length) => length,
            Err(at_drive) => {
                self.catch_up(file, at_drive, version)?;
                return Ok(None);
            }
        };
        let least_end = least_end.max(length);
        let best_end = best_end.clamp(least_end, least_end.saturating_add(MOST_MORE));
        let wanted = Wanted { length, least_end, best_end };
        let mut has_waited = false;
        let mut ask = |all: &mut Sessions, now| {
            // What is set aside comes back when that store ends, so it must not have.
            if all.version_of(file) != Some(version) {
                return Ok(Turn::Done(None));
            }
            let room = self.names.room_for(file, wanted);
            match room {
                Room::Wait => {
                    has_waited = true;
                    all.wait_for(&self.names.hold_room());
                    return Ok(Turn::Wait);
                }
                Room::Until(_) if has_waited => all.store_begins(file, now),
                Room::Until(_) | Room::Full | Room::Gone => {}
            }
            Ok(Turn::Done(Some(room)))
        };
        let mut room = self.turn(&mut ask);
        if room == Ok(Some(Room::Full)) && self.names.make_room() {
            room = self.turn(&mut ask);
        }
        match room {
            Ok(Some(Room::Until(end))) => Ok(Some(end)),
            Ok(None) => Ok(None),
            Ok(Some(Room::Full | Room::Wait)) => Err(ManagerStatus::NoSpace),
            Ok(Some(Room::Gone)) => Err(ManagerStatus::Stale),
            Err(failed) => {
                self.names.give_up_room(file);
                Err(failed)
            }
        }
    }

    /// The same for a new size.
    fn room_to_resize(&self, file: FileHandle, version: Version, size: u64) -> Outcome<()> {
        for _ in 0..ATTEMPTS {
            if self.room_to_store(file, version, (size, size))?.is_some() {
                return Ok(());
            }
        }
        Err(ManagerStatus::Busy)
    }

    /// The drive has another version than the rules say.
    fn catch_up(&self, file: FileHandle, at_drive: Version, version: Version) -> Outcome<()> {
        if at_drive < version {
            // It was started anew, and has lost that.
            return match self.names.advance(file, version, true) {
                Ok(_) | Err(ObjectError::Refused(_)) => Ok(()),
                Err(error) => Err(outcome_of(&error)),
            };
        }
        // A store has begun since, or has ended; or somebody else has a key of the drive.
        let highest = self.hub.with(|all, _| all.highest_version(file));
        if highest.is_some_and(|highest| highest < at_drive) {
            tracing::warn!(?file, at_drive, "the version was raised by somebody else");
            version_raised(self.hub, self.names, file);
        }
        Ok(())
    }

    /// Ends a store that came to nothing.
    fn give_back(&self, client: u64, file: FileHandle, version: Version) {
        self.names.settle_if_gone(file);
        let turn = self.hub.with(|all, _| {
            // Where the session is over so is the store.
            if !all.is_stored_by(client, file) || all.version_of(file) != Some(version) {
                return Turn::Done(());
            }
            // As though its time were over: nobody has made durable what the drive has of it, nor its version.
            all.end_store(file, version);
            all.settled(file, version)
        });
        // What can't be done now is done by whoever asks next, or by [`tend`].
        if let Turn::Work(work) = turn {
            let _ = perform(self.hub, self.names, work);
        }
    }

    /// Asks until there is an answer, and does what has to be done for that.
    fn turn<T>(
        &self,
        mut ask: impl FnMut(&mut Sessions, Duration) -> Result<Turn<T>, SessionError>,
    ) -> Outcome<T> {
        let deadline = Instant::now() + self.hub.lease() + PATIENCE;
        loop {
            match self.hub.turn(deadline, &mut ask).map_err(status)? {
                Turn::Done(answer) => return Ok(answer),
                Turn::Work(work) => perform(self.hub, self.names, work)?,
                Turn::Wait => return Err(ManagerStatus::Busy),
            }
        }
    }
}

/// A client's session, for which files are made.
pub(crate) struct BeginningBy<'a> {
    pub(crate) hub: &'a SessionHub,
    pub(crate) session: u64,
}

impl Beginning for BeginningBy<'_> {
    fn may_begin(&self, file: FileHandle, version: Version) -> bool {
        self.hub.with(|all, now| all.may_begin(self.session, file, version, now))
    }

    fn has_not_begun(&self, file: FileHandle) {
        self.hub.with(|all, _| all.has_not_begun(file));
    }
}

/// Ends a store of the file manager's own, also when what was to be stored has panicked.
struct Ending<'a> {
    hub: &'a SessionHub,
    file: FileHandle,
    version: Version,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.hub.with(|all, _| all.end_store(self.file, self.version));
    }
}

/// Does what nobody waits for, without being held up by drives that are away.
pub(crate) fn tend(hub: &Arc<SessionHub>, volumes: &Arc<Volumes>) {
    while let Some(work) = hub.with(|all, _| all.take_work()) {
        let (its_hub, volumes) = (Arc::clone(hub), Arc::clone(volumes));
        let todo = move || {
            let names = volumes.open_ones().find(|names| names.has(work.file()));
            match names {
                // Why it could not be done is in the log, and it is tried again.
                Some(names) => drop(perform(&its_hub, &names, work)),
                None => its_hub.with(|all, _| all.forget_file(work.file())),
            }
        };
        let named = thread::Builder::new().name("nasd-callbacks".to_owned());
        if let Err(error) = named.spawn(todo) {
            tracing::warn!(%error, "no thread to end a store");
            hub.with(|all, _| all.not_done(work));
            return;
        }
    }
}

/// Asks a drive.
pub(crate) fn perform(hub: &SessionHub, names: &Namespace, work: DriveWork) -> Outcome<()> {
    match work {
        DriveWork::Ask(file) => {
            let told = names.object_version(file);
            hub.with(|all, _| note_found(all, names, file, told.ok()));
            told.map(drop)
        }
        DriveWork::Advance { file, to, length, durable } => match names.advance_and_cut(
            file,
            to,
            length,
            // What is accounted for must not change with a power cut.
            durable || (!is_store(to) && names.has_quota()),
        ) {
            Ok(length) => {
                hub.with(|all, now| {
                    if !is_store(to) {
                        names.settle_length(file, length);
                    }
                    all.advanced(file, to, now);
                });
                Ok(())
            }
            Err(ObjectError::NoSuchObject) => {
                hub.with(|all, _| {
                    names.has_left(file);
                    all.forget_file(file);
                });
                Err(ManagerStatus::Stale)
            }
            Err(error) if is_beyond(names, file, to, &error) => {
                tracing::error!(?file, %error, "somebody else sets versions");
                version_raised(hub, names, file);
                Err(outcome_of(&error))
            }
            Err(error) => {
                tracing::warn!(?file, %error, "a version is not set yet");
                hub.with(|all, _| all.not_done(work));
                Err(outcome_of(&error))
            }
        },
    }
}

/// A drive has told a file's version and length, or has not.
fn note_found(
    all: &mut Sessions,
    names: &Namespace,
    file: FileHandle,
    told: Option<(Version, u64)>,
) {
    if let Some((version, length)) = told
        && !is_store(version)
    {
        names.settle_length(file, length);
    }
    all.found(file, told.map(|(version, _)| version));
}

/// Somebody else has raised a file's version, so that no capability to store it is good: what was set aside for it comes back, or whoever waits for
/// room would wait until somebody wants the file.
fn version_raised(hub: &SessionHub, names: &Namespace, file: FileHandle) {
    let told = if names.has_quota() { names.object_version(file).ok() } else { None };
    let length = match told {
        Some((version, length)) if !is_store(version) => Some(length),
        // A store of somebody else, who may not extend what is accounted for here.
        Some((version, _)) => names.advance(file, version.saturating_add(1), true).ok(),
        None => None,
    };
    hub.with(|all, _| {
        names.give_up_room(file);
        if let Some(length) = length {
            names.settle_length(file, length);
        }
        all.version_raised(file);
    });
}

/// Whether a drive refuses to set a version as the file has a higher one: there are other reasons to refuse.
fn is_beyond(names: &Namespace, file: FileHandle, to: Version, error: &ObjectError) -> bool {
    matches!(error, ObjectError::Refused(_))
        && names.object_version(file).is_ok_and(|(at_drive, _)| at_drive > to)
}

fn outcome_of(error: &ObjectError) -> ManagerStatus {
    match error {
        ObjectError::NoSuchObject => ManagerStatus::Stale,
        ObjectError::NoSpace => ManagerStatus::NoSpace,
        ObjectError::ReadOnly => ManagerStatus::ReadOnly,
        ObjectError::Unavailable { .. } => ManagerStatus::Unavailable,
        ObjectError::Refused(_) | ObjectError::Fault(_) => ManagerStatus::Io,
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
