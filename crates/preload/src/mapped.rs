//! An open file whose bytes go by bulk.
//!
//! Where a program is in the file, only the kernel knows: it is shared with other descriptors, with children, and with the programs that
//! those become. So this asks for it and sets it, as if it were the kernel's own reading and writing.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use libc::iovec;
use nasd_bulk_service::client::{BulkError, StripedFile};
use nasd_protocol::bulk_desk::FileFacts;
use rustix::fs::{AtFlags, SeekFrom, StatxFlags};
use rustix::io::Errno;

use crate::config::say;
use crate::error::PreloadError;
use crate::origin::Origin;
use crate::parts::Parts;
use crate::verify::{Identity, Manner, borrowed};

/// How often a new authority is refused before no other is asked for.
const MOST_REFUSALS: u32 = 3;

/// What became of a call: its answer, or nothing where it goes the ordinary way.
pub(crate) type Outcome<T> = Result<Option<T>, PreloadError>;

/// How descriptors of the file are told from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) identity: Identity,
    pub(crate) manner: Manner,
}

/// The file.
pub(crate) struct Mapped {
    origin: Arc<dyn Origin>,
    seen: Seen,
    /// Whether it may be read, and written.
    access: (bool, bool),
    /// What is written is durable when it is.
    durable: bool,
    /// Held by whoever moves the position.
    position: Mutex<()>,
    link: Mutex<Link>,
    /// Something was written that those who know the file were not told of.
    is_changed: AtomicBool,
    /// Something written may be lost, which the next sync is to tell.
    is_lost: AtomicBool,
    /// It goes the ordinary way from here on.
    is_over: AtomicBool,
    /// How often a new authority was refused, one time after the other.
    refusals: AtomicU32,
    /// The program has said that it will write a piece which is not aligned.
    is_relaxed: AtomicBool,
}

/// The servers' side of it.
#[derive(Default)]
struct Link {
    file: Option<Arc<StripedFile>>,
    /// How servers know it, since it was opened first.
    identities: Option<Vec<u64>>,
    /// Grows when another one takes its place.
    number: u64,
}

impl Mapped {
    /// Opens it at its servers.
    pub(crate) fn open(
        fd: c_int,
        origin: Arc<dyn Origin>,
        seen: Seen,
        (access, durable): ((bool, bool), bool),
    ) -> Result<Mapped, PreloadError> {
        let file = origin.open(fd, false)?;
        let mapped = Mapped::new(origin, seen, access, durable);
        let mut link = mapped.lock();
        link.identities = Some(file.identities());
        link.file = Some(Arc::new(file));
        drop(link);
        Ok(mapped)
    }

    fn new(origin: Arc<dyn Origin>, seen: Seen, access: (bool, bool), durable: bool) -> Mapped {
        Mapped {
            origin,
            seen,
            access,
            durable,
            position: Mutex::new(()),
            link: Mutex::default(),
            is_changed: AtomicBool::new(false),
            is_lost: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            is_relaxed: AtomicBool::new(false),
            refusals: AtomicU32::new(0),
        }
    }

    /// The same for a child, which must not use its parent's connections, nor wait for locks that threads of the parent have.
    pub(crate) fn for_child(&self) -> Mapped {
        let child = Mapped::new(Arc::clone(&self.origin), self.seen, self.access, self.durable);
        let copy = |from: &AtomicBool, to: &AtomicBool| {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        };
        // Who has it at the fork may not be there to let go.
        let known = self.link.try_lock().map(|link| link.identities.clone());
        child.lock().identities = known.unwrap_or_default();
        copy(&self.is_changed, &child.is_changed);
        copy(&self.is_lost, &child.is_lost);
        copy(&self.is_over, &child.is_over);
        copy(&self.is_relaxed, &child.is_relaxed);
        child
    }

    fn lock(&self) -> MutexGuard<'_, Link> {
        // One that has panicked has left it as it was.
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Held by whoever moves the position.
    pub(crate) fn hold_position(&self) -> MutexGuard<'_, ()> {
        self.position.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a descriptor is still of this file, and how it was opened. One that is not is to be forgotten.
    pub(crate) fn is_of(&self, fd: c_int) -> bool {
        if self.is_over.load(Ordering::Relaxed) {
            return false;
        }
        let is_it = Identity::of(fd).is_ok_and(|(identity, _)| identity == self.seen.identity);
        if !is_it || self.stand_in().is_some() {
            return is_it;
        }
        let is_as_before = Manner::of(fd) == Ok(self.seen.manner);
        if !is_as_before {
            self.tell_changed(fd);
        }
        is_as_before
    }

    /// How the file was, where the descriptor only holds its place.
    pub(crate) fn stand_in(&self) -> Option<FileFacts> {
        self.origin.stand_in()
    }

    /// Tells those who know the file that it was changed, if it was.
    pub(crate) fn tell_changed(&self, fd: c_int) {
        if self.is_changed.swap(false, Ordering::AcqRel) {
            self.origin.tell_changed(fd);
        }
    }

    /// The program has cleared, or set, `O_DIRECT`.
    pub(crate) fn relax(&self, is_relaxed: bool) {
        self.is_relaxed.store(is_relaxed, Ordering::Relaxed);
    }

    /// The servers' side, opened if need be.
    fn linked(&self, fd: c_int) -> Result<(Arc<StripedFile>, u64), PreloadError> {
        let mut link = self.lock();
        let file = match &link.file {
            Some(file) => Arc::clone(file),
            None => {
                let is_anew = self.refusals.load(Ordering::Relaxed) > 0;
                let file = self.opened(fd, &mut link, is_anew)?;
                Arc::clone(link.file.insert(file))
            }
        };
        Ok((file, link.number))
    }

    /// Opens it at its servers, where it must be the same file still.
    fn opened(
        &self,
        fd: c_int,
        link: &mut Link,
        is_anew: bool,
    ) -> Result<Arc<StripedFile>, PreloadError> {
        let file = self.origin.open(fd, is_anew)?;
        let found = file.identities();
        let known = link.identities.get_or_insert_with(|| found.clone());
        match self.origin.may_be_another() && *known != found {
            true => Err(PreloadError::Replaced),
            false => Ok(Arc::new(file)),
        }
    }

    /// From here on the kernel has all of it.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Opens it anew, unless somebody has done so since it had that number.
    fn renewed(&self, fd: c_int, number: u64) -> Result<Arc<StripedFile>, PreloadError> {
        let mut link = self.lock();
        if let Some(file) = link.file.as_ref().filter(|_| link.number != number) {
            return Ok(Arc::clone(file));
        }
        let anew = self.opened(fd, &mut link, true)?;
        let before = link.file.replace(Arc::clone(&anew));
        link.number += 1;
        drop(link);
        self.leave(before);
        Ok(anew)
    }

    /// The servers are not used by that any more.
    fn leave(&self, before: Option<Arc<StripedFile>>) {
        // What was written by the earlier one is its own to make durable; an authority that has ended may not suffice for that.
        let lost = before.map_or(Ok(()), |before| before.sync());
        let is_lost = match lost {
            Ok(()) => false,
            Err(BulkError::MayBeLost { .. }) => true,
            Err(_) => self.stand_in().is_some(),
        };
        self.is_lost.fetch_or(is_lost, Ordering::AcqRel);
    }

    /// Does something at the servers, with a new authority if that is needed.
    fn at_servers<T>(
        &self,
        fd: c_int,
        mut run: impl FnMut(&StripedFile) -> Result<T, PreloadError>,
    ) -> Outcome<T> {
        let told = self.linked(fd).and_then(|(file, number)| match run(&file) {
            Err(PreloadError::Bulk(error)) if error.needs_new_capability() => {
                say(|| format!("{error}: a new authority is asked for"));
                run(&*self.renewed(fd, number)?)
            }
            told => told,
        });
        match told {
            Ok(told) => {
                self.refusals.store(0, Ordering::Relaxed);
                Ok(Some(told))
            }
            Err(PreloadError::Bulk(error))
                if error.needs_new_capability() && self.may_ask_later() =>
            {
                say(|| format!("descriptor {fd} goes the ordinary way for once: {error}"));
                let before = self.lock().file.take();
                self.leave(before);
                self.tell_changed(fd);
                Ok(None)
            }
            Err(error) if error.is_of_the_way() && self.stand_in().is_none() => {
                say(|| format!("descriptor {fd} goes the ordinary way from here on: {error}"));
                self.is_over.store(true, Ordering::Relaxed);
                self.tell_changed(fd);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether a new authority that was refused is no reason to give up: who gave it may not know yet that it has become old, and
    /// finds that out when he is asked for bytes.
    fn may_ask_later(&self) -> bool {
        self.stand_in().is_none() && self.refusals.fetch_add(1, Ordering::Relaxed) < MOST_REFUSALS
    }

    /// What has no access has the kernel's answer, or its like.
    fn require(&self, has_access: bool) -> Outcome<()> {
        match has_access {
            true => Ok(Some(())),
            false if self.stand_in().is_some() => Err(PreloadError::Access),
            false => Ok(None),
        }
    }

    /// Reads at an offset.
    ///
    /// # Safety
    ///
    /// The parts are memory of the program's that it lets be filled.
    pub(crate) unsafe fn read_at(&self, fd: c_int, parts: &[iovec], at: i64) -> Outcome<isize> {
        let (Some(parts), Some(())) = (Parts::new(parts)?, self.require(self.access.0)?) else {
            return Ok(None);
        };
        let Some(at) = within(at, parts.total()) else { return Ok(None) };
        let read = |file: &StripedFile| {
            // SAFETY: the caller says so.
            unsafe { parts.fill(|into| file.read_at(into, at).map_err(PreloadError::from)) }
        };
        self.at_servers(fd, read).map(counted)
    }

    /// Writes at an offset.
    ///
    /// # Safety
    ///
    /// The parts are memory of the program's.
    pub(crate) unsafe fn write_at(&self, fd: c_int, parts: &[iovec], at: i64) -> Outcome<isize> {
        let (Some(parts), Some(())) = (Parts::new(parts)?, self.require(self.access.1)?) else {
            return Ok(None);
        };
        let Some(at) = within(at, parts.total()) else { return Ok(None) };
        // Before too, for others who ask meanwhile.
        self.is_changed.store(true, Ordering::Release);
        let write = |file: &StripedFile| {
            // SAFETY: the caller says so.
            unsafe { parts.give(|data| self.write_to(file, data, at)) }?;
            Ok(parts.total())
        };
        let told = self.at_servers(fd, write);
        if !self.is_over.load(Ordering::Relaxed) {
            self.is_changed.store(true, Ordering::Release);
        }
        told.map(counted)
    }

    fn write_to(&self, file: &StripedFile, data: &[u8], at: u64) -> Result<(), PreloadError> {
        match file.write_at(data, at) {
            Err(BulkError::Unaligned { .. }) if self.is_relaxed.load(Ordering::Relaxed) => {
                write_tail(file, data, at)?;
            }
            told => told?,
        }
        if self.durable { Ok(file.sync()?) } else { Ok(()) }
    }

    /// Reads where the program is.
    ///
    /// # Safety
    ///
    /// As [`Mapped::read_at`].
    pub(crate) unsafe fn read(&self, fd: c_int, parts: &[iovec]) -> Outcome<isize> {
        // SAFETY: the caller says so.
        self.at_position(fd, |at| unsafe { self.read_at(fd, parts, at) })
    }

    /// Writes where the program is.
    ///
    /// # Safety
    ///
    /// As [`Mapped::write_at`].
    pub(crate) unsafe fn write(&self, fd: c_int, parts: &[iovec]) -> Outcome<isize> {
        // SAFETY: the caller says so.
        self.at_position(fd, |at| unsafe { self.write_at(fd, parts, at) })
    }

    fn at_position(&self, fd: c_int, run: impl FnOnce(i64) -> Outcome<isize>) -> Outcome<isize> {
        let Some(descriptor) = borrowed(fd) else { return Ok(None) };
        let _held = self.hold_position();
        let at = rustix::fs::seek(descriptor, SeekFrom::Current(0))?;
        let Ok(offset) = i64::try_from(at) else { return Ok(None) };
        let told = run(offset)?;
        if let Some(count) = told.filter(|count| *count > 0) {
            rustix::fs::seek(descriptor, SeekFrom::Start(at + count as u64))?;
        }
        Ok(told)
    }

    /// Makes durable what was written by bulk, and tells those who know the file. The kernel is to be asked after that.
    pub(crate) fn sync(&self, fd: c_int) -> Result<(), PreloadError> {
        // By other descriptors, or a parent, of which nobody here knows.
        let by_others = self.origin.may_be_another();
        let sync = |file: &StripedFile| if by_others { file.sync_all() } else { file.sync() };
        let told = self.at_servers(fd, |file| Ok(sync(file)?));
        self.tell_changed(fd);
        if let Err(PreloadError::Bulk(BulkError::MayBeLost { .. })) = &told {
            // It is told once, and what is written again can be made durable.
            self.lock().file = None;
        }
        told?;
        match self.is_lost.swap(false, Ordering::AcqRel) {
            true => Err(PreloadError::Lost),
            false => Ok(()),
        }
    }

    /// The length, of those who know it: what the kernel remembers may be older, even if it asks them.
    pub(crate) fn length(&self, fd: c_int) -> Result<u64, PreloadError> {
        if self.stand_in().is_some() {
            return self.size(fd);
        }
        self.tell_changed(fd);
        let descriptor = borrowed(fd).ok_or(Errno::BADF)?;
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
        Ok(rustix::fs::statx(descriptor, "", flags, StatxFlags::SIZE)?.stx_size)
    }

    /// The length at the servers.
    pub(crate) fn size(&self, fd: c_int) -> Result<u64, PreloadError> {
        self.at_servers(fd, |file| Ok(file.size()?)).map(Option::unwrap_or_default)
    }

    /// Sets it.
    pub(crate) fn set_size(&self, fd: c_int, size: u64) -> Result<(), PreloadError> {
        self.require(self.access.1)?;
        self.at_servers(fd, |file| Ok(file.set_size(size)?)).map(drop)
    }
}

/// A transfer that the kernel does not refuse by itself.
fn within(at: i64, length: usize) -> Option<u64> {
    let length = i64::try_from(length).ok()?;
    at.checked_add(length).and_then(|_| u64::try_from(at).ok())
}

fn counted(told: Option<usize>) -> Option<isize> {
    // No transfer is longer.
    told.map(|count| count as isize)
}

/// Writes what ends within a block, at the end of the file: programs that have cleared `O_DIRECT` for their last bytes expect that.
fn write_tail(file: &StripedFile, data: &[u8], at: u64) -> Result<(), PreloadError> {
    const REASON: &str = "such a piece can be written only at the end of the file";
    let alignment = file.alignment();
    let end = at + data.len() as u64;
    if !at.is_multiple_of(alignment) || end < file.size()? {
        return Err(PreloadError::Argument(REASON));
    }
    let mut whole = data.to_vec();
    let missing = end.next_multiple_of(alignment) - end;
    whole.resize(data.len() + missing as usize, 0);
    file.write_at(&whole, at)?;
    Ok(file.set_size(end)?)
}
