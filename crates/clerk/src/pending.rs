//! What has been written to one file and is not yet known to be durable: pure bookkeeping.
//!
//! The bytes lie in *chunks* that never overlap. A chunk is filled by sequential writes, queued,
//! sent (in flight), and then **retained** until a flush of the drive answers with the `instance`
//! that the write was answered with. When another instance shows up, the drive has started anew
//! and may have lost what was retained, so those chunks are queued again. Because chunks never
//! overlap, the order in which they are sent does not matter; a newer write cuts its range out of
//! older chunks, and has to wait only for a chunk that is in flight.
//!
//! Readers are shown all chunks until the file is opened anew. What the drive has by then is **hidden** from them, as others may have
//! written over it: it is kept only to be sent again.
//!
//! Nothing here locks, waits or does I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use nasd_types::ByteRange;

use crate::buffers::{BUFFER_BYTES, SpareBuffers};

/// Chunks end at multiples of this many bytes, so that drives receive aligned requests.
pub(crate) const CHUNK_BYTES: u64 = BUFFER_BYTES as u64;

/// Filling chunks of one file; another one makes the oldest of them leave.
const MAX_FILLING: usize = 8;

/// A chunk of at least this many bytes gets a buffer of a whole chunk at once.
const EAGER_BYTES: usize = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// May grow by sequential writes.
    Filling,
    /// Waits for a sender.
    Queued,
    /// A sender has it: it must not change.
    InFlight,
    /// The drive has it, perhaps not durably. `acknowledged` counts answers of this file.
    Retained { instance: u64, acknowledged: u64, restarts: Option<u64>, is_hidden: bool },
}

#[derive(Debug)]
struct Chunk<W> {
    id: u64,
    /// The chunk is `bytes[start..start + length]`; cutting only moves the ends.
    bytes: Arc<Vec<u8>>,
    start: usize,
    length: usize,
    state: State,
    writer: W,
}

/// Bytes of a chunk, shared with whoever reads or sends them.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    /// Where in the file they belong.
    pub(crate) offset: u64,
    bytes: Arc<Vec<u8>>,
    start: usize,
    length: usize,
}

impl Piece {
    /// The bytes.
    pub(crate) fn data(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.length]
    }

    /// Where in the file they belong.
    pub(crate) fn range(&self) -> ByteRange {
        ByteRange::new(self.offset, self.length as u64)
    }
}

/// How the drive has answered a sender.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    /// Which start of the drive it was.
    pub(crate) instance: u64,
    /// How often drives were known to have started anew when the bytes were sent, if that is known.
    pub(crate) restarts: Option<u64>,
    /// The bytes are durable.
    pub(crate) durable: bool,
}

/// A chunk that a sender has taken.
#[derive(Debug)]
pub(crate) struct Outgoing<W> {
    /// Names it in `acknowledge` and `drop_failed`.
    pub(crate) id: u64,
    /// What to send, and where.
    pub(crate) piece: Piece,
    /// On whose behalf.
    pub(crate) writer: W,
}

/// The unflushed bytes of one file. `W` is who wrote them.
#[derive(Debug)]
pub(crate) struct Pending<W> {
    chunks: BTreeMap<u64, Chunk<W>>,
    next_id: u64,
    acknowledged: u64,
    held_bytes: u64,
    filling: Index,
    queued: Index,
    in_flight: Index,
    /// How many chunks each instance of the drive has acknowledged, not durably.
    retained: BTreeMap<u64, usize>,
    /// How many of these are hidden.
    hidden: usize,
    spare: SpareBuffers,
}

/// (identifier, offset) of the chunks in one state: the oldest is first.
type Index = BTreeSet<(u64, u64)>;

impl<W: Clone + PartialEq> Pending<W> {
    /// Nothing written. Large buffers come from `spare` and go back there.
    pub(crate) fn new(spare: SpareBuffers) -> Self {
        Pending {
            chunks: BTreeMap::new(),
            next_id: 0,
            acknowledged: 0,
            held_bytes: 0,
            filling: Index::new(),
            queued: Index::new(),
            in_flight: Index::new(),
            retained: BTreeMap::new(),
            hidden: 0,
            spare,
        }
    }

    /// Whether everything written is durable.
    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Bytes held, sent or not.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// Chunks that the drive has not acknowledged and no sender has.
    pub(crate) fn unsent(&self) -> usize {
        self.filling.len() + self.queued.len()
    }

    /// Chunks that senders have.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// The byte after the last one held.
    pub(crate) fn end_of_all(&self) -> u64 {
        self.chunks.last_key_value().map_or(0, |(offset, chunk)| offset + chunk.length as u64)
    }

    /// The byte after the last one held that readers are shown.
    pub(crate) fn end(&self) -> u64 {
        if !self.shows_any() {
            return 0;
        }
        let mut backwards = self.chunks.iter().rev();
        let last = backwards.find(|(_, chunk)| !is_hidden(chunk.state));
        last.map_or(0, |(offset, chunk)| offset + chunk.length as u64)
    }

    /// Whether readers are shown any.
    pub(crate) fn shows_any(&self) -> bool {
        self.chunks.len() > self.hidden
    }

    /// Whether some are hidden from readers.
    pub(crate) fn hides_any(&self) -> bool {
        self.hidden > 0
    }

    /// Readers are to see what the drive has in the place of all that it has acknowledged; but not where it may have lost that,
    /// as drives have started anew since, of which there were so many `restarts` by now, or nobody knows.
    pub(crate) fn hide_acknowledged(&mut self, restarts: Option<u64>) {
        if self.retained.is_empty() {
            return;
        }
        for offset in self.retained_where(|_, _| true) {
            let Some(chunk) = self.chunks.get(&offset) else {
                continue;
            };
            let mut state = chunk.state;
            if let State::Retained { restarts: then, is_hidden, .. } = &mut state {
                *is_hidden = restarts.is_some() && *then == restarts;
            }
            self.set_state(offset, state);
        }
    }

    /// Identifier that the next chunk will get: those that exist now are below it.
    pub(crate) fn next_id(&self) -> u64 {
        self.next_id
    }

    /// How many acknowledgements there have been: the mark for `release`.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Whether a chunk older than `id` has not been acknowledged.
    pub(crate) fn has_unacknowledged_before(&self, id: u64) -> bool {
        [&self.filling, &self.queued, &self.in_flight]
            .iter()
            .any(|index| index.first().is_some_and(|(oldest, _)| *oldest < id))
    }

    /// Whether anything older than `id` is not known to be durable.
    pub(crate) fn has_before(&self, id: u64) -> bool {
        self.chunks.values().any(|chunk| chunk.id < id)
    }

    /// Whether an acknowledged chunk waits for a flush, up to the `mark` of `acknowledged`.
    pub(crate) fn has_retained_to(&self, mark: u64) -> bool {
        !self.retained.is_empty() && !self.retained_where(|_, count| count <= mark).is_empty()
    }

    /// Whether a chunk older than `id` waits for a flush.
    pub(crate) fn has_retained_before(&self, id: u64) -> bool {
        !self.retained.is_empty()
            && self
                .chunks
                .values()
                .any(|chunk| chunk.id < id && matches!(chunk.state, State::Retained { .. }))
    }

    /// Whether a sender has bytes of `range`; such bytes can't be overwritten or cut now.
    pub(crate) fn is_in_flight(&self, range: ByteRange) -> bool {
        !self.in_flight.is_empty()
            && self.overlapping(range).any(|(_, chunk)| chunk.state == State::InFlight)
    }

    /// The chunks that share bytes with `range`, in order.
    fn overlapping(&self, range: ByteRange) -> impl Iterator<Item = (u64, &Chunk<W>)> {
        // Chunks do not overlap, so at most one of those that start before the range reaches in.
        let first = self
            .chunks
            .range(..=range.offset)
            .next_back()
            .filter(|(offset, chunk)| *offset + chunk.length as u64 > range.offset)
            .map_or(range.offset, |(offset, _)| *offset);
        let end = if range.is_empty() { first } else { range.end() };
        self.chunks.range(first..end).map(|(offset, chunk)| (*offset, chunk))
    }

    /// Records a write. The caller has made sure that nothing of the range is in flight. Returns
    /// how many chunks became ready to be sent.
    pub(crate) fn put(&mut self, offset: u64, data: &[u8], writer: &W) -> usize {
        debug_assert!(!self.is_in_flight(ByteRange::new(offset, data.len() as u64)));
        let queued_before = self.queued.len();
        let mut offset = offset;
        let mut rest = data;
        while !rest.is_empty() {
            let room = CHUNK_BYTES - offset % CHUNK_BYTES;
            let length = usize::try_from(room).unwrap_or(usize::MAX).min(rest.len());
            self.put_within_chunk(offset, &rest[..length], writer);
            offset += length as u64;
            rest = &rest[length..];
        }
        self.limit_filling();
        self.queued.len().saturating_sub(queued_before)
    }

    /// `put` for data that does not cross a chunk boundary.
    fn put_within_chunk(&mut self, offset: u64, data: &[u8], writer: &W) {
        if self.overwrite_in_place(offset, data, writer) {
            return;
        }
        self.cut(ByteRange::new(offset, data.len() as u64));
        if !self.append(offset, data, writer) {
            let id = self.next_id;
            self.next_id += 1;
            let mut bytes = match data.len() {
                EAGER_BYTES.. => self.spare.take(),
                small => Vec::with_capacity(small),
            };
            bytes.extend_from_slice(data);
            let length = bytes.len();
            let chunk = Chunk {
                id,
                bytes: Arc::new(bytes),
                start: 0,
                length,
                state: State::Filling,
                writer: writer.clone(),
            };
            self.insert(offset, chunk);
        }
        self.queue_if_full(offset + data.len() as u64);
    }

    /// A rewrite of part of one chunk that nobody has sent yet.
    fn overwrite_in_place(&mut self, offset: u64, data: &[u8], writer: &W) -> bool {
        let Some((start, chunk)) = self.chunks.range_mut(..=offset).next_back() else {
            return false;
        };
        let fits = offset + data.len() as u64 <= start + chunk.length as u64;
        if !fits || chunk.writer != *writer || !is_unsent(chunk.state) {
            return false;
        }
        let from = chunk.start + (offset - start) as usize;
        // A reader may hold the old bytes: then this copies, and the reader keeps what it has.
        Arc::make_mut(&mut chunk.bytes)[from..from + data.len()].copy_from_slice(data);
        true
    }

    /// Adds to the filling chunk that ends at `offset`, when there is one of the same writer.
    fn append(&mut self, offset: u64, data: &[u8], writer: &W) -> bool {
        if offset.is_multiple_of(CHUNK_BYTES) {
            return false;
        }
        let Some((start, chunk)) = self.chunks.range_mut(..offset).next_back() else {
            return false;
        };
        let adjacent = start + chunk.length as u64 == offset;
        if !adjacent || chunk.state != State::Filling || chunk.writer != *writer {
            return false;
        }
        let bytes = Arc::make_mut(&mut chunk.bytes);
        bytes.truncate(chunk.start + chunk.length);
        if bytes.len() + data.len() > bytes.capacity().max(EAGER_BYTES) {
            let mut larger = self.spare.take();
            larger.extend_from_slice(bytes);
            *bytes = larger;
        }
        bytes.extend_from_slice(data);
        chunk.length += data.len();
        self.held_bytes += data.len() as u64;
        true
    }

    /// A chunk that has reached a chunk boundary can't grow any more.
    fn queue_if_full(&mut self, end: u64) {
        if !end.is_multiple_of(CHUNK_BYTES) {
            return;
        }
        if let Some((start, chunk)) = self.chunks.range(..end).next_back()
            && start + chunk.length as u64 == end
            && chunk.state == State::Filling
        {
            self.set_state(*start, State::Queued);
        }
    }

    /// Many small writes far apart must not pile up as filling chunks.
    fn limit_filling(&mut self) {
        while self.filling.len() > MAX_FILLING
            && let Some((_, offset)) = self.filling.first().copied()
        {
            self.set_state(offset, State::Queued);
        }
    }

    /// Notes that chunk (`id`, `offset`) is in `state` now.
    fn enter(&mut self, state: State, id: u64, offset: u64) {
        match state {
            State::Filling => drop(self.filling.insert((id, offset))),
            State::Queued => drop(self.queued.insert((id, offset))),
            State::InFlight => drop(self.in_flight.insert((id, offset))),
            State::Retained { instance, is_hidden, .. } => {
                *self.retained.entry(instance).or_default() += 1;
                self.hidden += usize::from(is_hidden);
            }
        }
    }

    /// Notes that chunk (`id`, `offset`) is not in `state` any more.
    fn leave(&mut self, state: State, id: u64, offset: u64) {
        match state {
            State::Filling => drop(self.filling.remove(&(id, offset))),
            State::Queued => drop(self.queued.remove(&(id, offset))),
            State::InFlight => drop(self.in_flight.remove(&(id, offset))),
            State::Retained { instance, is_hidden, .. } => {
                self.hidden -= usize::from(is_hidden);
                if let Some(count) = self.retained.get_mut(&instance) {
                    *count -= 1;
                    if *count == 0 {
                        self.retained.remove(&instance);
                    }
                }
            }
        }
    }

    fn set_state(&mut self, offset: u64, state: State) {
        let Some(chunk) = self.chunks.get_mut(&offset) else {
            return;
        };
        let (id, before) = (chunk.id, chunk.state);
        chunk.state = state;
        self.leave(before, id, offset);
        self.enter(state, id, offset);
    }

    fn insert(&mut self, offset: u64, chunk: Chunk<W>) {
        self.held_bytes += chunk.length as u64;
        self.enter(chunk.state, chunk.id, offset);
        let previous = self.chunks.insert(offset, chunk);
        debug_assert!(previous.is_none(), "chunks never overlap");
    }

    fn remove(&mut self, offset: u64) -> Option<Chunk<W>> {
        let chunk = self.chunks.remove(&offset)?;
        self.held_bytes -= chunk.length as u64;
        self.leave(chunk.state, chunk.id, offset);
        Some(chunk)
    }

    /// Removes a chunk for good. Its buffer can be used again unless somebody still reads it.
    fn forget(&mut self, offset: u64) {
        if let Some(chunk) = self.remove(offset)
            && let Ok(bytes) = Arc::try_unwrap(chunk.bytes)
        {
            self.spare.give(bytes);
        }
    }

    /// Forgets the bytes of `range`, which newer ones replace or a truncation removed. Nothing of
    /// it may be in flight.
    pub(crate) fn cut(&mut self, range: ByteRange) {
        let touched: Vec<u64> = self.overlapping(range).map(|(offset, _)| offset).collect();
        for offset in touched {
            let Some(chunk) = self.remove(offset) else {
                continue;
            };
            debug_assert!(chunk.state != State::InFlight, "bytes in flight can't be cut");
            let end = offset + chunk.length as u64;
            if end > range.end() {
                let skipped = (range.end() - offset) as usize;
                self.insert(range.end(), part(&chunk, skipped, chunk.length - skipped));
            }
            if offset < range.offset {
                let kept = (range.offset - offset) as usize;
                self.insert(offset, part(&chunk, 0, kept));
            }
        }
    }

    /// Makes every filling chunk ready to be sent. Returns how many there were.
    pub(crate) fn seal(&mut self) -> usize {
        let filling: Vec<u64> = self.filling.iter().map(|(_, offset)| *offset).collect();
        for offset in &filling {
            self.set_state(*offset, State::Queued);
        }
        filling.len()
    }

    /// Who has written the oldest of what is not durable.
    pub(crate) fn first_writer(&self) -> Option<W> {
        let oldest = self.chunks.values().min_by_key(|chunk| chunk.id);
        oldest.map(|chunk| chunk.writer.clone())
    }

    /// Whether some bytes of `range` are older than `id` and not acknowledged.
    pub(crate) fn has_unsent_of(&self, range: ByteRange, id: u64) -> bool {
        self.overlapping(range)
            .any(|(_, chunk)| chunk.id < id && !matches!(chunk.state, State::Retained { .. }))
    }

    /// What was acknowledged is to be sent again.
    pub(crate) fn requeue_all(&mut self) -> usize {
        let retained = self.retained_where(|_, _| true);
        for offset in &retained {
            self.set_state(*offset, State::Queued);
        }
        retained.len()
    }

    /// As [`Pending::take_queued`], if it is older than `id`.
    pub(crate) fn take_queued_before(&mut self, id: u64) -> Option<Outgoing<W>> {
        let is_older = self.queued.first().is_some_and(|(oldest, _)| *oldest < id);
        if is_older { self.take_queued() } else { None }
    }

    /// Hands the oldest queued chunk to a sender.
    pub(crate) fn take_queued(&mut self) -> Option<Outgoing<W>> {
        let (id, offset) = self.queued.first().copied()?;
        self.set_state(offset, State::InFlight);
        let chunk = self.chunks.get(&offset)?;
        Some(Outgoing { id, piece: piece(offset, chunk), writer: chunk.writer.clone() })
    }

    /// The drive has answered.
    pub(crate) fn acknowledge(&mut self, sent: &Outgoing<W>, answer: Answer) {
        let Answer { instance, restarts, durable } = answer;
        self.acknowledged += 1;
        if durable {
            self.drop_failed(sent);
        } else {
            debug_assert!(self.in_flight.contains(&(sent.id, sent.piece.offset)));
            let acknowledged = self.acknowledged;
            let state = State::Retained { instance, acknowledged, restarts, is_hidden: false };
            self.set_state(sent.piece.offset, state);
        }
    }

    /// Gives up the bytes of a write that failed for good.
    pub(crate) fn drop_failed(&mut self, sent: &Outgoing<W>) {
        debug_assert!(self.in_flight.contains(&(sent.id, sent.piece.offset)));
        self.forget(sent.piece.offset);
    }

    /// Nobody has sent the bytes after all: they wait to be sent.
    pub(crate) fn put_back(&mut self, taken: &Outgoing<W>) {
        debug_assert!(self.in_flight.contains(&(taken.id, taken.piece.offset)));
        self.set_state(taken.piece.offset, State::Queued);
    }

    /// The drive runs as `instance`: what another instance acknowledged must be sent again.
    /// Returns how many chunks that is.
    pub(crate) fn requeue_other_instances(&mut self, instance: u64) -> usize {
        if self.retained.keys().all(|theirs| *theirs == instance) {
            return 0;
        }
        let lost = self.retained_where(|theirs, _| theirs != instance);
        for offset in &lost {
            self.set_state(*offset, State::Queued);
        }
        lost.len()
    }

    /// A flush that began after acknowledgement `mark` was answered by `instance`: what that
    /// instance acknowledged before is durable.
    pub(crate) fn release(&mut self, instance: u64, mark: u64) {
        for offset in self.retained_where(|theirs, count| theirs == instance && count <= mark) {
            self.forget(offset);
        }
    }

    /// A flush failed for good: what was acknowledged up to `mark` is given up.
    pub(crate) fn give_up(&mut self, mark: u64) {
        for offset in self.retained_where(|_, count| count <= mark) {
            self.forget(offset);
        }
    }

    /// Offsets of the retained chunks whose instance and acknowledgement number satisfy `wanted`.
    fn retained_where(&self, wanted: impl Fn(u64, u64) -> bool) -> Vec<u64> {
        let matches = |state: State| match state {
            State::Retained { instance, acknowledged, .. } => wanted(instance, acknowledged),
            _ => false,
        };
        let chunks = self.chunks.iter().filter(|(_, chunk)| matches(chunk.state));
        chunks.map(|(offset, _)| *offset).collect()
    }

    /// Forgets everything that is not in flight.
    pub(crate) fn discard(&mut self) {
        let doomed: Vec<u64> = self
            .chunks
            .iter()
            .filter(|(_, chunk)| chunk.state != State::InFlight)
            .map(|(offset, _)| *offset)
            .collect();
        for offset in doomed {
            self.forget(offset);
        }
    }

    /// The held bytes of `range` that readers are shown, in order.
    pub(crate) fn overlay(&self, range: ByteRange) -> Vec<Piece> {
        if !self.shows_any() {
            return Vec::new();
        }
        let shown = self.overlapping(range).filter(|(_, chunk)| !is_hidden(chunk.state));
        shown.map(|(offset, chunk)| piece(offset, chunk)).collect()
    }
}

fn is_hidden(state: State) -> bool {
    matches!(state, State::Retained { is_hidden: true, .. })
}

fn is_unsent(state: State) -> bool {
    matches!(state, State::Filling | State::Queued)
}

fn piece<W>(offset: u64, chunk: &Chunk<W>) -> Piece {
    Piece { offset, bytes: Arc::clone(&chunk.bytes), start: chunk.start, length: chunk.length }
}

/// A part of a chunk in the same state. It gets a buffer of its own when it would otherwise keep
/// a much larger one alive, so that held memory stays within twice the held bytes.
fn part<W: Clone>(chunk: &Chunk<W>, skip: usize, length: usize) -> Chunk<W> {
    let start = chunk.start + skip;
    let (bytes, start) = if length < chunk.bytes.len() / 2 {
        (Arc::new(chunk.bytes[start..start + length].to_vec()), 0)
    } else {
        (Arc::clone(&chunk.bytes), start)
    };
    Chunk { id: chunk.id, bytes, start, length, state: chunk.state, writer: chunk.writer.clone() }
}
