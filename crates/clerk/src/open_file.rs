//! An open file: what `open` gives to one application.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use nasd_bulk_service::client::Way;
use nasd_client::Spare;
use nasd_types::{ByteRange, Rights};

use crate::ClerkError;
use crate::backend::Grant;
use crate::bulk::BulkUse;
use crate::core::Core;
use crate::extending::{ExtendedPart, ExtensionCall};
use crate::file::FileState;
use crate::grants::{Slot, Writer};
use crate::latch::Seen;
use crate::ranges::{self, End};
use crate::stream::Stream;
use crate::wire::{Extended, FileAttributes, FileHandle, SeekTarget};

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenMode {
    /// Data will be read.
    pub read: bool,
    /// Data will be written.
    pub write: bool,
}

impl OpenMode {
    /// For reading.
    pub const READ: OpenMode = OpenMode { read: true, write: false };
    /// For writing.
    pub const WRITE: OpenMode = OpenMode { read: false, write: true };
    /// For both.
    pub const READ_WRITE: OpenMode = OpenMode { read: true, write: true };

    /// The rights that this needs.
    pub(crate) fn rights(self) -> Rights {
        let mut rights = Rights::empty();
        if self.read {
            rights |= Rights::READ;
        }
        if self.write {
            rights |= Rights::WRITE;
        }
        rights
    }
}

/// Who reads, and how he has been reading.
pub(crate) struct Reader {
    pub(crate) slot: Arc<Slot>,
    /// Names the blocks that were read ahead for him.
    pub(crate) owner: u64,
    pub(crate) stream: Mutex<Stream>,
}

impl Reader {
    /// Whether he goes on with this range where he was.
    pub(crate) fn continues(&self, range: ByteRange) -> bool {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner).continues(range)
    }
}

/// A file that somebody has open. Any number of threads may use it.
///
/// Dropping it without `close` loses no data: what was written is flushed in the background; but
/// nobody is told of a failure.
pub struct OpenFile {
    core: Arc<Core>,
    file: Arc<FileState>,
    mode: OpenMode,
    reader: Reader,
    seen: Mutex<Seen>,
    bulk: Mutex<Option<BulkUse>>,
}

impl OpenFile {
    pub(crate) fn new(
        core: Arc<Core>,
        file: Arc<FileState>,
        mode: OpenMode,
        slot: Arc<Slot>,
    ) -> Self {
        let seen = Mutex::new(file.lock().errors.at_open());
        let reader = Reader { slot, owner: core.new_owner(), stream: Mutex::default() };
        OpenFile { core, file, mode, reader, seen, bulk: Mutex::default() }
    }

    /// The same, for somebody who reads a part of it from its begin to its end.
    pub(crate) fn part(&self, range: ByteRange) -> OpenFile {
        let slot = Arc::clone(&self.reader.slot);
        let mode = OpenMode { write: false, ..self.mode };
        let part = OpenFile::new(Arc::clone(&self.core), Arc::clone(&self.file), mode, slot);
        *part.reader.stream.lock().unwrap_or_else(PoisonError::into_inner) = Stream::of_part(range);
        part
    }

    /// The file.
    pub fn handle(&self) -> FileHandle {
        self.file.handle
    }

    /// What it was opened for.
    pub fn mode(&self) -> OpenMode {
        self.mode
    }

    /// Length in bytes as this clerk knows it, its own writes included; what was appended is, once it has its place.
    pub fn size(&self) -> u64 {
        self.file.lock().size()
    }

    /// The same with everything that was appended here before.
    ///
    /// # Errors
    ///
    /// `Interrupted`; a failure to append is kept for those who appended.
    pub fn settled_size(&self) -> Result<u64, ClerkError> {
        self.file.commit_appends(&self.core)?;
        Ok(self.size())
    }

    /// The same as it is now, whoever has changed it.
    ///
    /// # Errors
    ///
    /// What the drive or the manager says.
    pub fn size_now(&self) -> Result<u64, ClerkError> {
        let told = self.core.getattr(&self.reader.slot.caller, self.handle(), Duration::ZERO)?;
        Ok(told.size)
    }

    /// All of a short file, where that is kept here and known to be what the file is at this moment without asking anybody (of volumes of
    /// the personality `afs`); with its attributes. Whoever keeps it hears of the next change by a [`NameWatcher`](crate::NameWatcher).
    pub fn cached_whole(&self) -> Option<(FileAttributes, Arc<[u8]>)> {
        if !self.mode.read {
            return None;
        }
        self.file.cached_whole(&self.core)
    }

    /// Tells the clerk that the file will be read from start to end.
    pub fn expect_sequential(&self) {
        let mut stream = self.reader.stream.lock().unwrap_or_else(PoisonError::into_inner);
        *stream = Stream::sequential();
    }

    /// Reads into `into`; returns how many bytes, fewer than asked only at the end of the file.
    ///
    /// # Errors
    ///
    /// `NotOpenForThis`, and whatever the drive or the manager says.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize, ClerkError> {
        self.check_mode(self.mode.read)?;
        self.core.require_readable(&self.reader.slot)?;
        self.file.read(&self.core, &self.reader, offset, into)
    }

    /// Shows up to `length` bytes to `use_data`, without copying them where that can be. `scratch`
    /// grows to `length` when it is needed, and may be used again.
    ///
    /// # Errors
    ///
    /// As `read`.
    pub fn read_with<R>(
        &self,
        offset: u64,
        length: usize,
        scratch: &mut Vec<u8>,
        use_data: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, ClerkError> {
        self.check_mode(self.mode.read)?;
        self.core.require_readable(&self.reader.slot)?;
        let range = ByteRange::new(offset, length as u64);
        self.file.read_with(&self.core, &self.reader, range, scratch, use_data)
    }

    /// Takes all of `data`; it reaches the drive later, at the latest with `sync` or `close`.
    ///
    /// # Errors
    ///
    /// `NotOpenForThis`, `TooLarge`, a failure of an earlier write that nobody was told of yet,
    /// or one of this write after earlier ones have failed.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<(), ClerkError> {
        self.check_mode(self.mode.write)?;
        self.check_errors()?;
        let writer = Writer(Arc::clone(&self.reader.slot));
        let mut offset = offset;
        for part in data.chunks(FileState::WRITE_BYTES) {
            if let Err(error) = self.file.write(&self.core, &writer, offset, part) {
                // It is told now, and need not be told again.
                let _ = self.check_errors();
                return Err(error);
            }
            offset = offset.saturating_add(part.len() as u64);
            self.core.measures.written.add(part.len() as u64);
        }
        Ok(())
    }

    /// Takes all of `data`, to be appended where the file ends when the drive comes to it, whoever else
    /// appends meanwhile: each mebibyte of it together, and nothing twice. It reaches the drive later, at
    /// the latest with `sync` or `close`, and before anything else that is done with the file here.
    ///
    /// # Errors
    ///
    /// As `write`.
    pub fn append(&self, data: &[u8]) -> Result<(), ClerkError> {
        self.check_mode(self.mode.write)?;
        self.check_errors()?;
        let writer = Writer(Arc::clone(&self.reader.slot));
        for part in data.chunks(FileState::WRITE_BYTES) {
            if let Err(error) = self.file.append(&self.core, &writer, part) {
                // It is told now, and need not be told again.
                let _ = self.check_errors();
                return Err(error);
            }
        }
        Ok(())
    }

    /// Cuts the file to nothing, where others are to see that together with what is written then: when it is stored. Answers the attributes
    /// that it has then; nothing where it has to be cut at once ([`crate::Clerk::setattr`]).
    ///
    /// # Errors
    ///
    /// `NotOpenForThis`, and whatever the manager says.
    pub fn empty(&self) -> Result<Option<FileAttributes>, ClerkError> {
        self.check_mode(self.mode.write)?;
        let Some(promises) = self.core.promises() else { return Ok(None) };
        let caller = &self.reader.slot.caller;
        let known = self.core.getattr_promised(promises, caller, self.handle())?;
        // Who may not keep it loses what the file is privileged to by its mode or attributes; the file manager sees to that.
        let is_plain = known.mode & 0o6000 == 0 && !known.extended.has(Extended::ATTRIBUTES);
        if !is_plain || !self.file.empty(&self.core, &Writer(Arc::clone(&self.reader.slot))) {
            return Ok(None);
        }
        self.core.getattr_promised(promises, caller, self.handle()).map(Some)
    }

    /// Makes a part of the file read as zeros, and gives its room back. The length stays.
    ///
    /// # Errors
    ///
    /// `NotOpenForThis`, and whatever the drive or the manager says.
    pub fn punch(&self, range: ByteRange) -> Result<(), ClerkError> {
        self.check_mode(self.mode.write)?;
        self.file.punch(&self.core, &self.reader.slot, range)
    }

    /// Copies at most `length` bytes of another file from `source_offset` on to `offset` of this one, at
    /// their drive, which shares whole blocks where it can. Tells how many: none only at the source's
    /// end. What was copied is durable. Within one file the ranges must not overlap.
    ///
    /// # Errors
    ///
    /// `Apart` where it can't be done so: read and write then. `NotOpenForThis`, and whatever the drive
    /// or the manager says.
    pub fn copy_range(
        &self,
        offset: u64,
        (source, source_offset): (&OpenFile, u64),
        length: u64,
    ) -> Result<u64, ClerkError> {
        self.check_mode(self.mode.write)?;
        source.check_mode(source.mode.read)?;
        self.core.require_readable(&source.reader.slot)?;
        ranges::copy(&self.core, source.end_at(source_offset), self.end_at(offset), length)
    }

    fn end_at(&self, offset: u64) -> End<'_> {
        End { file: &self.file, slot: &self.reader.slot, offset }
    }

    /// Where data, or a hole, begins at or after `offset`; `None` if not before the file's end.
    ///
    /// # Errors
    ///
    /// `NotOpenForThis`, and whatever the drive or the manager says.
    pub fn seek(&self, offset: u64, target: SeekTarget) -> Result<Option<u64>, ClerkError> {
        self.check_mode(self.mode.read)?;
        self.core.require_readable(&self.reader.slot)?;
        self.file.seek(&self.core, &self.reader.slot, offset, target)
    }

    /// Whether a file of so many bytes is rather read than scanned by drives.
    pub(crate) fn is_rather_read(&self, bytes: u64) -> bool {
        bytes <= self.core.settings.read_to_scan_bytes
    }

    /// Memory for answers of extensions.
    pub(crate) fn room_for_answers(&self) -> Arc<Spare> {
        self.core.room_for_answers()
    }

    /// Has an extension of the drives that have the bytes do something with a range of the file (CMU-CS-97-118 section 3.4):
    /// what each has told, its parts in order; nothing of an empty one. What is not data of the file does not come through here.
    /// [`crate::Clerk::extend`] does it with several files at a time.
    ///
    /// # Errors
    ///
    /// `NotOpenForThis`; `Drive(NoSuchExtension)` where a drive lacks it, or is reached by way of the manager; and whatever
    /// the drives or the manager say.
    pub fn extend(
        &self,
        range: ByteRange,
        call: &ExtensionCall,
    ) -> Result<Vec<ExtendedPart>, ClerkError> {
        self.check_mode(self.mode.read)?;
        self.check_mode(self.mode.write || !call.rights.contains(Rights::WRITE))?;
        if range.is_empty() {
            return Ok(Vec::new());
        }
        self.core.require_readable(&self.reader.slot)?;
        self.file.extend(&self.core, &self.reader.slot, range, call)
    }

    /// The way to the file's bytes by the bulk protocol (`specs/bulk.md`), for whoever moves them himself, in this mode, which the
    /// opening has; nothing where that can't be. What was written here is with the drives when this returns, and as long as
    /// this is open the clerk shows to others what he writes. `is_anew` where he has got one before, and it was refused.
    ///
    /// # Errors
    ///
    /// `NotOpenForThis`, and whatever the drive or the manager says.
    pub fn bulk_way(&self, mode: OpenMode, is_anew: bool) -> Result<Option<Way>, ClerkError> {
        self.check_mode(self.mode.read || !mode.read)?;
        self.check_mode(self.mode.write || !mode.write)?;
        if self.core.promises().is_some() {
            // Nobody would be told of what is written that way, and what is read would be of several versions.
            return Ok(None);
        }
        let begun = BulkUse::begin(&self.core, &self.file, mode)?;
        let slot = &self.reader.slot;
        if is_anew {
            self.core.renew(slot, slot.current().as_ref())?;
        }
        let tell = |grant: &Grant| self.core.objects.bulk_way(grant, mode, is_anew);
        let way = self.core.with_grant(slot, tell)?;
        if way.is_some() {
            let mut before = self.bulk.lock().unwrap_or_else(PoisonError::into_inner);
            // A way for reading does not end one for writing that he has got before.
            if before.as_ref().is_none_or(|before| mode.write || !before.may_write()) {
                *before = Some(begun);
            }
        }
        Ok(way)
    }

    /// Whoever has a bulk way has changed the file: how it is now.
    ///
    /// # Errors
    ///
    /// What the drive or the manager says.
    pub fn note_bulk_changes(&self) -> Result<FileAttributes, ClerkError> {
        self.file.look_at_bulk_changes(&self.core, &self.reader.slot)
    }

    /// What a stream of hints needs to know of it.
    pub(crate) fn to_be_read(&self) -> Result<(Arc<FileState>, Arc<Slot>), ClerkError> {
        self.check_mode(self.mode.read)?;
        Ok((Arc::clone(&self.file), Arc::clone(&self.reader.slot)))
    }

    /// Whoever had it open had all that he wanted of it from a cache in front of the clerk: hints that all of it will be read are
    /// over as if it had been read here.
    pub fn note_had_elsewhere(&self) {
        let watchers = self.file.lock().watchers.clone();
        for watcher in watchers.iter().filter_map(Weak::upgrade) {
            watcher.note_had(self.file.handle);
        }
    }

    /// Makes everything written to the file so far durable, and its name and attributes (fsync).
    ///
    /// # Errors
    ///
    /// A failure of any write since the last time one was told, once.
    pub fn sync(&self) -> Result<(), ClerkError> {
        match self.file.make_durable(&self.core) {
            Err(ClerkError::Interrupted) => Err(ClerkError::Interrupted),
            // The failure, if any, is in the latch, where it is found once for each open file.
            _ => self.check_errors().and_then(|()| self.core.commit(self.reader.slot.handle)),
        }
    }

    /// What close does: of a file open for writing, the drive has all that was written, for others to
    /// read. It is durable a little later, as on a disk. May be called many times, as descriptors are
    /// duplicated.
    ///
    /// # Errors
    ///
    /// As `sync`.
    pub fn close(&self) -> Result<(), ClerkError> {
        if !self.mode.write {
            return Ok(());
        }
        match self.file.close(&self.core) {
            Err(ClerkError::Interrupted) => Err(ClerkError::Interrupted),
            _ => self.check_errors(),
        }
    }

    /// The file has no name any more, and this was its last opening: what is not durable is
    /// forgotten.
    pub fn discard(&self) {
        self.file.discard(&self.core);
    }

    fn check_mode(&self, allowed: bool) -> Result<(), ClerkError> {
        if allowed { Ok(()) } else { Err(ClerkError::NotOpenForThis) }
    }

    fn check_errors(&self) -> Result<(), ClerkError> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = self.file.lock().errors.check(&mut seen);
        if outcome.is_err() {
            self.core.forget_failed(self.file.handle);
        }
        outcome
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.file.lock().fetched.drop_owner(self.reader.owner);
    }
}
