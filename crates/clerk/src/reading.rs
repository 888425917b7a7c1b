//! Reads: own unflushed writes first, then what was read ahead, then the drive.

use std::borrow::Cow;
use std::sync::{Arc, PoisonError, Weak};
use std::time::{Duration, Instant};

use nasd_types::ByteRange;

use crate::ClerkError;
use crate::buffers::BUFFER_BYTES;
use crate::core::Core;
use crate::fetched::{FetchId, Found, Slice};
use crate::file::{FileState, Inner};
use crate::grants::Slot;
use crate::hinted::{self, Part, Version};
use crate::hints::HintStream;
use crate::open_file::Reader;
use crate::pending::Piece;
use crate::wire::FileHandle;
use crate::work_pool::caught;

/// What a reader has found out under the file's lock.
struct Plan {
    /// Own unflushed bytes of the range; they go over whatever the drive has.
    overlay: Vec<Piece>,
    /// End of all own unflushed bytes: the file is at least that long.
    pending_end: u64,
    /// Where some own bytes are left out, as the drive has them: how often drives had started anew.
    hides_since: Option<u64>,
    /// Blocks to be fetched ahead.
    fetches: Vec<(FetchId, u64)>,
    /// The whole answer, when one block that was read ahead holds it.
    whole: Option<Whole>,
    /// Who wants to know what is read.
    watchers: Vec<Weak<HintStream>>,
}

/// Own unflushed bytes of a range, as in [`Plan`].
struct Own<'a> {
    overlay: Cow<'a, [Piece]>,
    end: u64,
    hides_since: Option<u64>,
}

/// So often a range is read at the most while drives start anew.
const MOST_READS: usize = 4;

/// Bytes that lie together.
enum Whole {
    Ahead(Slice),
    Hinted(Part),
}

impl Whole {
    fn data(&self) -> &[u8] {
        match self {
            Whole::Ahead(slice) => slice.data(),
            Whole::Hinted(part) => part.data(),
        }
    }
}

impl Plan {
    fn own(&self) -> Own<'_> {
        let overlay = self.overlay.as_slice().into();
        Own { overlay, end: self.pending_end, hides_since: self.hides_since }
    }

    fn tell_watchers(&self, handle: FileHandle, range: ByteRange, filled: usize) {
        tell_watchers(&self.watchers, handle, range, filled);
    }
}

impl FileState {
    /// Reads up to `length` bytes and shows them to `use_data`; fewer only at the end of the file.
    /// `scratch` is where they are put together when they do not lie together anyway.
    pub(crate) fn read_with<R>(
        self: &Arc<Self>,
        core: &Arc<Core>,
        reader: &Reader,
        range: ByteRange,
        scratch: &mut Vec<u8>,
        use_data: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, ClerkError> {
        self.commit_appends(core)?;
        if core.promises().is_some() {
            if scratch.len() < range.length as usize {
                scratch.resize(range.length as usize, 0);
            }
            let filled = self.read_promised(core, reader, range, scratch)?;
            return Ok(use_data(&scratch[..filled]));
        }
        let plan = self.plan(core, reader, range);
        self.submit_fetches(core, reader, &plan.fetches);
        if let Some(slice) = &plan.whole {
            core.measures.ahead.add(slice.data().len() as u64);
            core.measures.read.add(slice.data().len() as u64);
            let used = use_data(slice.data());
            plan.tell_watchers(self.handle, range, slice.data().len());
            return Ok(used);
        }
        let length = range.length as usize;
        if scratch.len() < length {
            scratch.resize(length, 0);
        }
        let filled = self.assemble(core, reader, &plan, range, &mut scratch[..length])?;
        core.measures.read.add(filled as u64);
        plan.tell_watchers(self.handle, range, filled);
        Ok(use_data(&scratch[..filled]))
    }

    /// As `read_with`, into the reader's own memory.
    pub(crate) fn read(
        self: &Arc<Self>,
        core: &Arc<Core>,
        reader: &Reader,
        offset: u64,
        into: &mut [u8],
    ) -> Result<usize, ClerkError> {
        let range = ByteRange::new(offset, into.len() as u64);
        let into = &mut into[..range.length as usize];
        self.commit_appends(core)?;
        if core.promises().is_some() {
            return self.read_promised(core, reader, range, into);
        }
        let plan = self.plan(core, reader, range);
        self.submit_fetches(core, reader, &plan.fetches);
        if let Some(slice) = &plan.whole {
            let filled = slice.data().len();
            into[..filled].copy_from_slice(slice.data());
            core.measures.ahead.add(filled as u64);
            core.measures.read.add(filled as u64);
            plan.tell_watchers(self.handle, range, filled);
            return Ok(filled);
        }
        let filled = self.assemble(core, reader, &plan, range, into)?;
        core.measures.read.add(filled as u64);
        plan.tell_watchers(self.handle, range, filled);
        Ok(filled)
    }

    /// Looks at what there is, and plans what to fetch ahead.
    fn plan(&self, core: &Core, reader: &Reader, range: ByteRange) -> Plan {
        let now = Instant::now();
        let mut inner = self.lock();
        if inner.bulk.may_change() {
            inner.was_changed_elsewhere(core);
        }
        if inner.show_after_restart(core) {
            inner.forget_read();
        }
        let hides_since = inner.hides_since();
        let size = inner.size();
        let overlay = inner.pending.overlay(range);
        let pending_end = inner.pending.end();
        let mut fetches = Vec::new();
        // The parts of a long read go to the drive side by side.
        if range.length > BUFFER_BYTES as u64
            && range.offset < size
            && !inner.hinted.is_coming(range.offset)
        {
            let known = range.intersection(&ByteRange::new(0, size));
            fetches = inner.fetched.plan(known, reader.owner, &core.buffers, now);
        }
        let mut stream = reader.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let advice = stream.advance(range, size);
        if advice.restart {
            inner.fetched.drop_owner(reader.owner);
        } else if !inner.fetched.is_empty() {
            // Not what this very read is about to use.
            let passed = stream.consumed_before().min(range.offset);
            inner.fetched.drop_before(reader.owner, passed);
        }
        drop(stream);
        // Who says what he will read need not be guessed at. That others have told of some other part is no reason.
        let is_hinted = inner.hinted.has(range.offset) || inner.hinted.has(advice.fetch.offset);
        if !advice.fetch.is_empty() && !is_hinted && !inner.bulk.may_change() {
            let ahead = inner.fetched.plan(advice.fetch, reader.owner, &core.buffers, now);
            fetches.extend(ahead);
        }
        let whole =
            if overlay.is_empty() { take_whole(core, &mut inner, range, now) } else { None };
        let watchers = inner.watchers.clone();
        Plan { overlay, pending_end, hides_since, fetches, whole, watchers }
    }

    fn submit_fetches(
        self: &Arc<Self>,
        core: &Arc<Core>,
        reader: &Reader,
        fetches: &[(FetchId, u64)],
    ) {
        for &(id, offset) in fetches {
            let (core, file) = (Arc::clone(core), Arc::clone(self));
            let slot = Arc::clone(&reader.slot);
            self.lane.fetchers.submit(move || file.fetch(&core, &slot, id, offset));
        }
    }

    /// Fetches a planned block, unless somebody else does or it is not wanted any more.
    fn fetch(self: &Arc<Self>, core: &Arc<Core>, slot: &Arc<Slot>, id: FetchId, offset: u64) {
        let mut inner = self.lock();
        let answers = inner.answers();
        let Some(mut fetch) = inner.fetched.take(id, offset) else {
            return;
        };
        drop(inner);
        let into = &mut fetch.buffer[..fetch.length];
        // Readers wait for what is on its way, whatever becomes of it.
        let outcome =
            caught(|| core.with_grant(slot, |grant| core.objects.read(grant, offset, into)));
        let mut inner = self.lock();
        let length = match outcome {
            Ok(outcome) => {
                inner.note_size(outcome.logical_size, answers);
                Some(outcome.length)
            }
            Err(error) => {
                // Whoever needs the block will ask the drive and be told.
                tracing::debug!(%error, handle = ?self.handle, offset, "read-ahead failed");
                None
            }
        };
        inner.fetched.finish(fetch, length, Instant::now());
        drop(inner);
        self.notify();
    }

    /// Asks the drive whether the file is what it was when something was fetched that is old now. Whoever reads slowly need not
    /// have it fetched twice.
    fn look_whether_changed(&self, core: &Arc<Core>, reader: &Reader) {
        let told = core.getattr_from_servers(&reader.slot.caller, self.handle, Duration::ZERO);
        let mut inner = self.lock();
        match told {
            Ok((attributes, _)) => inner.hinted.keep(Version::of(&attributes), Instant::now()),
            // Whoever reads asks the drive and is told.
            Err(_) => inner.hinted.clear(),
        }
    }

    /// Reads where there are callbacks: from what is kept, or else from the drive, what is of one version.
    fn read_promised(
        self: &Arc<Self>,
        core: &Arc<Core>,
        reader: &Reader,
        range: ByteRange,
        into: &mut [u8],
    ) -> Result<usize, ClerkError> {
        let into = &mut into[..range.length as usize];
        let filled = match self.read_emptied(range, into) {
            Some(filled) => filled,
            None => match self.read_cached(core, reader, range, into)? {
                Some(filled) => filled,
                None => self.read_current(core, &reader.slot, || {
                    self.read_at_drive(core, reader, range, into)
                })?,
            },
        };
        core.measures.read.add(filled as u64);
        let watchers = self.lock().watchers.clone();
        tell_watchers(&watchers, self.handle, range, filled);
        Ok(filled)
    }

    /// Reads a file that was cut to nothing here, which is not stored yet: what was written since is all that it has.
    fn read_emptied(&self, range: ByteRange, into: &mut [u8]) -> Option<usize> {
        let inner = self.lock();
        inner.emptied.as_ref()?;
        let length = inner.pending.end().saturating_sub(range.offset);
        let filled = usize::try_from(length).unwrap_or(usize::MAX).min(into.len());
        into[..filled].fill(0);
        put_over(&inner.pending.overlay(range), range, into);
        Some(filled)
    }

    /// Reads from the drive, and from what was read of it ahead, with what was written here over it.
    pub(crate) fn read_at_drive(
        self: &Arc<Self>,
        core: &Arc<Core>,
        reader: &Reader,
        range: ByteRange,
        into: &mut [u8],
    ) -> Result<usize, ClerkError> {
        let plan = self.plan(core, reader, range);
        self.submit_fetches(core, reader, &plan.fetches);
        if let Some(slice) = &plan.whole {
            let filled = slice.data().len();
            into[..filled].copy_from_slice(slice.data());
            return Ok(filled);
        }
        self.assemble(core, reader, &plan, range, into)
    }

    /// Puts the answer together. Returns its length.
    fn assemble(
        self: &Arc<Self>,
        core: &Arc<Core>,
        reader: &Reader,
        plan: &Plan,
        range: ByteRange,
        into: &mut [u8],
    ) -> Result<usize, ClerkError> {
        let length = into.len();
        let (mut filled, mut own) = (0, plan.own());
        for _ in 0..MOST_READS {
            filled = match covers(&own.overlay, range) {
                true => length,
                false => self.fill(core, reader, range.offset, into)?,
            };
            // What a drive has lost by then may be sent again already: it is looked at anew, and read again.
            match own.hides_since {
                Some(restarts) if core.objects.restarts() != Some(restarts) => {
                    own = self.own_again(core, range);
                }
                _ => break,
            }
        }
        let Own { overlay, end: pending_end, .. } = own;
        let pending_length = pending_end.saturating_sub(range.offset);
        let end = filled.max(usize::try_from(pending_length).unwrap_or(usize::MAX).min(length));
        // Between the drive's end of the file and our own there is a hole.
        into[filled..end].fill(0);
        filled = end;
        put_over(overlay.as_ref(), range, into);
        Ok(filled)
    }

    /// What was written here, as of now, after a drive was found to have started anew.
    fn own_again(&self, core: &Core, range: ByteRange) -> Own<'static> {
        let mut inner = self.lock();
        if inner.show_after_restart(core) {
            inner.forget_read();
        }
        let (overlay, end) = (inner.pending.overlay(range).into(), inner.pending.end());
        Own { overlay, end, hides_since: inner.hides_since() }
    }

    /// Fills `into` from blocks read ahead and from the drive, up to the drive's end of the file.
    fn fill(
        self: &Arc<Self>,
        core: &Arc<Core>,
        reader: &Reader,
        offset: u64,
        into: &mut [u8],
    ) -> Result<usize, ClerkError> {
        let mut filled = 0;
        while filled < into.len() {
            let at = offset + filled as u64;
            let (mut inner, now) = (self.lock(), Instant::now());
            match inner.hinted.find(at, into.len() - filled, now) {
                hinted::Found::Ready(part) => {
                    drop(inner);
                    filled += copy_ahead(core, part.data(), &mut into[filled..]);
                    continue;
                }
                hinted::Found::Fetching => {
                    drop(self.wait(inner)?);
                    continue;
                }
                hinted::Found::Old => {
                    drop(inner);
                    self.look_whether_changed(core, reader);
                    continue;
                }
                hinted::Found::None => {}
            }
            let room = inner.hinted.next_after(at) - at;
            let limit = (into.len() - filled).min(usize::try_from(room).unwrap_or(usize::MAX));
            match inner.fetched.find(at, limit, now) {
                Found::Ready(slice) => {
                    inner.fetched.consume(at, slice.data().len());
                    drop(inner);
                    filled += copy_ahead(core, slice.data(), &mut into[filled..]);
                }
                Found::Fetching => drop(self.wait(inner)?),
                Found::Queued(id, block) => {
                    drop(inner);
                    self.fetch(core, &reader.slot, id, block);
                }
                Found::Gap(_)
                    if filled > 0 && inner.ends_before(at, core.settings.attribute_ttl) =>
                {
                    break;
                }
                Found::Gap(next) => {
                    let answers = inner.answers();
                    drop(inner);
                    let room = usize::try_from(next - at).unwrap_or(usize::MAX);
                    let count = room.min(limit).min(BUFFER_BYTES);
                    let part = &mut into[filled..filled + count];
                    let outcome =
                        core.with_grant(&reader.slot, |grant| core.objects.read(grant, at, part))?;
                    self.lock().note_size(outcome.logical_size, answers);
                    filled += outcome.length.min(count);
                    if outcome.length < count {
                        break;
                    }
                }
            }
        }
        Ok(filled)
    }
}

/// So many bytes of a range were read; those that are lacking are behind the end of the file.
fn tell_watchers(
    watchers: &[Weak<HintStream>],
    handle: FileHandle,
    range: ByteRange,
    filled: usize,
) {
    let is_at_end = (filled as u64) < range.length;
    let end = if is_at_end { u64::MAX } else { range.end() };
    for watcher in watchers.iter().filter_map(Weak::upgrade) {
        watcher.note_read(handle, ByteRange::new(range.offset, end - range.offset));
    }
}

/// Bytes that had been fetched are put in their place; how many.
fn copy_ahead(core: &Core, data: &[u8], into: &mut [u8]) -> usize {
    into[..data.len()].copy_from_slice(data);
    core.measures.ahead.add(data.len() as u64);
    data.len()
}

/// The whole range as far as the file goes, when one block that was read ahead holds it.
fn take_whole(core: &Core, inner: &mut Inner, range: ByteRange, now: Instant) -> Option<Whole> {
    let length = usize::try_from(range.length).ok()?;
    if !inner.hinted.is_empty()
        && length > 0
        && let hinted::Found::Ready(part) = inner.hinted.find(range.offset, length, now)
        && (part.data().len() == length
            || inner.ends_at(range.offset + part.data().len() as u64, core.settings.attribute_ttl))
    {
        return Some(Whole::Hinted(part));
    }
    if inner.fetched.is_empty() || length == 0 {
        return None;
    }
    match inner.fetched.find(range.offset, length, now) {
        Found::Ready(slice) if slice.data().len() == length => {
            inner.fetched.consume(range.offset, length);
            Some(Whole::Ahead(slice))
        }
        _ => None,
    }
}

/// Puts what the pieces have of a range over what is there.
fn put_over(overlay: &[Piece], range: ByteRange, into: &mut [u8]) {
    for piece in overlay {
        let part = piece.range().intersection(&range);
        let from = (part.offset - piece.offset) as usize;
        let to = (part.offset - range.offset) as usize;
        let count = part.length as usize;
        into[to..to + count].copy_from_slice(&piece.data()[from..from + count]);
    }
}

/// Whether the pieces, which are in order and do not overlap, hold every byte of the range.
fn covers(pieces: &[Piece], range: ByteRange) -> bool {
    let mut at = range.offset;
    for piece in pieces {
        if piece.offset > at {
            return false;
        }
        at = piece.range().end();
    }
    at >= range.end() && !pieces.is_empty()
}
