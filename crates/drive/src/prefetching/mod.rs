//! Informed prefetching: what clients say that they will read is read before they ask, as far as that pays
//! (CMU-CS-97-118 section 4.6). The choice is `nasd_prefetch`'s; here are the drive's threads and its cache.
//!
//! It is an extension of the drive, by number [`notice::NUMBER`], but none that is run: a hint is written down in the
//! thread of the call, and a thread of the drive's own fetches ([`fetching`]). A drive without that thread takes hints,
//! and does nothing with them.

mod fetching;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nasd_capability::KeyKind;
use nasd_device::FRAME_BYTES;
use nasd_prefetch::notice::{self, Notice};
use nasd_prefetch::{Access, Block, Costs, HintError, Planner, Settings, StreamName, Teller};
use nasd_types::{ByteRange, ObjectName, Rights};

pub(crate) use fetching::start;

use crate::audit::Subject;
use crate::extensions::Description;

/// Most of the cache that is kept for what was hinted: one part in this many.
const CACHE_SHARE: usize = 2;

/// Reads that are written down before whoever fetches looks at them; more are forgotten.
const MOST_READS: usize = 1 << 14;

/// So many of them are looked at while nobody else can write down any.
const READS_AT_ONCE: usize = 16;

/// A stream of which nothing was heard for so long is over.
const SILENCE: Duration = Duration::from_secs(300);

/// How long a reader waits at most for what is on its way: whatever is the matter then, he reads it himself.
const PATIENCE: Duration = Duration::from_secs(2);

/// Pieces of one call are told apart by so many low bits of their ordinals.
const PIECE_BITS: u32 = 16;

/// What the next step of fetching is.
#[derive(Debug, Default)]
struct Step {
    /// Bytes of frames that are to be fetched.
    fetch: Vec<(Block<ObjectName>, ByteRange)>,
    /// Frames that nobody has said will be read any more.
    released: Vec<Block<ObjectName>>,
}

/// See the module.
pub(crate) struct Prefetching {
    /// Whether there are streams: if not, reads need not be told.
    is_used: AtomicBool,
    /// Whether the thread has panicked: hints are not taken any more.
    has_failed: AtomicBool,
    shared: Mutex<Shared>,
    /// There is something to do.
    told: Condvar,
    /// Something that was waited for has come.
    come: Condvar,
}

struct Shared {
    planner: Planner<ObjectName>,
    /// Frames that were read since somebody looked.
    reads: Vec<Block<ObjectName>>,
    /// Whether something was told, or read, since somebody looked.
    has_news: bool,
    /// Whether whoever fetches waits for that.
    is_waiting: bool,
    /// Readers that wait for what is on its way.
    readers: usize,
    is_stopping: bool,
}

impl Prefetching {
    /// For a cache of so many frames.
    pub(crate) fn new(frames: usize) -> Prefetching {
        let most_held = (frames / CACHE_SHARE).max(1);
        let settings = Settings { most_held, ..Settings::default() };
        let shared = Shared {
            planner: Planner::new(settings),
            reads: Vec::new(),
            has_news: false,
            is_waiting: false,
            readers: 0,
            is_stopping: false,
        };
        Prefetching {
            is_used: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            shared: Mutex::new(shared),
            told: Condvar::new(),
            come: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        // Each method of the planner leaves it whole.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a client's notice, and what it says will be read of an object; how many of the pieces were taken.
    pub(crate) fn tell(
        &self,
        teller: Teller,
        notice: &Notice,
        name: ObjectName,
        pieces: &[ByteRange],
        now: u64,
    ) -> u32 {
        let mut shared = self.lock();
        if self.has_failed() {
            return 0;
        }
        let planner = &mut shared.planner;
        let stream = StreamName { teller, id: notice.stream };
        let taken = match notice.is_over {
            true => {
                planner.end(stream);
                0
            }
            false => take(planner, stream, notice, name, pieces, now),
        };
        self.is_used.store(planner.streams() > 0, Ordering::Relaxed);
        self.wake(&mut shared);
        taken
    }

    /// Somebody reads pieces of an object.
    #[inline]
    pub(crate) fn note_read(&self, name: ObjectName, pieces: impl Iterator<Item = ByteRange>) {
        if self.is_used.load(Ordering::Relaxed) {
            self.write_down(name, pieces);
        }
    }

    /// Whether some of a range of an object is on its way from the medium, as it was hinted: who reads it needs only wait.
    pub(crate) fn is_coming(&self, name: ObjectName, range: ByteRange) -> bool {
        self.is_used.load(Ordering::Relaxed) && self.lock().is_coming(name, range)
    }

    /// Waits until nothing of some pieces of an object is on its way: reading it once more would take the medium's time from
    /// others.
    pub(crate) fn await_coming(
        &self,
        name: ObjectName,
        pieces: impl Iterator<Item = ByteRange> + Clone,
    ) {
        if !self.is_used.load(Ordering::Relaxed) {
            return;
        }
        let mut shared = self.lock();
        let deadline = Instant::now() + PATIENCE;
        shared.readers += 1;
        while pieces.clone().any(|piece| shared.is_coming(name, piece)) && !shared.is_stopping {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.come.wait_timeout(shared, left);
            shared = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        shared.readers -= 1;
    }

    #[cold]
    fn write_down(&self, name: ObjectName, pieces: impl Iterator<Item = ByteRange>) {
        let mut shared = self.lock();
        for block in pieces.flat_map(|piece| blocks_of(name, piece)) {
            if shared.reads.len() >= MOST_READS {
                break;
            }
            shared.reads.push(block);
        }
        self.wake(&mut shared);
    }

    fn wake(&self, shared: &mut Shared) {
        shared.has_news = true;
        if std::mem::take(&mut shared.is_waiting) {
            self.told.notify_all();
        }
    }

    /// Whoever fetches has panicked: there are no streams any more, and nobody waits. What was held for them.
    fn give_up(&self) -> Vec<Block<ObjectName>> {
        let mut shared = self.lock();
        self.has_failed.store(true, Ordering::Relaxed);
        self.is_used.store(false, Ordering::Relaxed);
        shared.reads = Vec::new();
        let empty = Planner::new(Settings::default());
        let planner = std::mem::replace(&mut shared.planner, empty);
        self.come.notify_all();
        planner.into_held()
    }

    /// Whether nobody fetches what is hinted any more.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Whoever fetches is to stop.
    pub(crate) fn stop(&self) {
        let mut shared = self.lock();
        shared.is_stopping = true;
        self.wake(&mut shared);
        self.come.notify_all();
    }

    /// Waits until there may be something to do, at most for so long; `false` once it is over.
    fn wait(&self, patience: Duration) -> bool {
        let mut shared = self.lock();
        shared.is_waiting = !shared.is_awaited();
        let waited = self.told.wait_timeout_while(shared, patience, |shared| !shared.is_awaited());
        let mut shared = waited.unwrap_or_else(PoisonError::into_inner).0;
        (shared.is_waiting, shared.has_news) = (false, false);
        !shared.is_stopping
    }

    fn is_stopping(&self) -> bool {
        self.lock().is_stopping
    }

    /// Tells the planner what was read, a little at a time: whoever reads waits for the lock.
    fn look_at_reads(&self, now: u64) {
        let mut shared = self.lock();
        shared.has_news = false;
        let reads = std::mem::take(&mut shared.reads);
        drop(shared);
        for some in reads.chunks(READS_AT_ONCE) {
            let planner = &mut self.lock().planner;
            for block in some {
                planner.read(*block, now);
            }
        }
    }

    /// What has come, and what is to be done next.
    fn step(&self, come: &[Block<ObjectName>], mut costs: Costs, now: u64) -> Step {
        self.look_at_reads(now);
        let mut shared = self.lock();
        let planner = &mut shared.planner;
        for &block in come {
            planner.came(block, now);
        }
        if shared.readers > 0 && !come.is_empty() {
            self.come.notify_all();
        }
        let planner = &mut shared.planner;
        let mut fetch = Vec::new();
        planner.reconsider(costs, now);
        while let Some(block) = planner.next(costs, now) {
            costs.free = costs.free.saturating_sub(1);
            fetch.push((block, bytes_of(planner, block)));
        }
        Step { fetch, released: planner.released() }
    }

    /// Where there are no streams any more, what the last of them had: that is nobody's now. Nothing may be on its way.
    fn released_at_the_end(&self) -> Option<Vec<Block<ObjectName>>> {
        let mut shared = self.lock();
        // One may have begun since somebody looked: its blocks would be asked for, and never come.
        (shared.planner.streams() == 0).then(|| shared.planner.released())
    }

    /// Ends streams that nobody has told anything of for long; whether there are any left.
    fn tidy(&self, now: u64) -> bool {
        let mut shared = self.lock();
        let since = now.saturating_sub(SILENCE.as_nanos() as u64);
        shared.planner.end_silent(since);
        let is_used = shared.planner.streams() > 0;
        self.is_used.store(is_used, Ordering::Relaxed);
        is_used
    }
}

impl Shared {
    /// Whether whoever fetches has something to do.
    fn is_awaited(&self) -> bool {
        self.has_news || self.is_stopping
    }

    fn is_coming(&self, name: ObjectName, range: ByteRange) -> bool {
        // A read has at most 8 MiB, and nothing is asked of what is not under way.
        self.planner.under_way() > 0
            && blocks_of(name, range).any(|block| self.planner.is_under_way(block))
    }
}

/// Takes what is told of a stream that is not over; how many of the pieces were taken.
fn take(
    planner: &mut Planner<ObjectName>,
    stream: StreamName,
    notice: &Notice,
    name: ObjectName,
    pieces: &[ByteRange],
    now: u64,
) -> u32 {
    let passed = place(notice.passed, 0);
    let was_known = planner.pass(stream, passed, notice.skipped, now);
    let mut taken = 0;
    for (index, piece) in pieces.iter().enumerate().filter(|_| notice.is_hint) {
        let bytes = piece.offset..piece.end();
        let access = Access::of_bytes(name, bytes, FRAME_BYTES as u64);
        match planner.hint(stream, place(notice.ordinal, index), access, now) {
            // Of nothing nothing need be fetched.
            Ok(()) | Err(HintError::Empty) => taken += 1,
            Err(HintError::TooManyHints(_) | HintError::TooManyStreams(_)) => break,
        }
    }
    if !was_known {
        // Some of the first that is heard of a stream may be over.
        planner.pass(stream, passed, (0, 0), now);
    }
    taken
}

/// The frames that have some of a range.
fn blocks_of(object: ObjectName, range: ByteRange) -> impl Iterator<Item = Block<ObjectName>> {
    let access = Access::of_bytes(object, range.offset..range.end(), FRAME_BYTES as u64);
    let numbers = access.first()..access.first() + access.blocks();
    numbers.map(move |number| Block { object, number })
}

/// All of a frame.
fn whole(block: Block<ObjectName>) -> ByteRange {
    ByteRange::new(block.number * FRAME_BYTES as u64, FRAME_BYTES as u64)
}

/// What of a frame will be read, as one range.
fn bytes_of(planner: &Planner<ObjectName>, block: Block<ObjectName>) -> ByteRange {
    let frame = whole(block);
    let Some(parts) = planner.parts(block) else { return frame };
    let start = parts.iter().map(|part| part.start).min().unwrap_or(0);
    let end = parts.iter().map(|part| part.end).max().unwrap_or(u64::MAX);
    ByteRange::new(start, end - start).intersection(&frame)
}

/// The place of a piece of a call in its stream; of those that are beyond what can be told apart, the last one.
fn place(ordinal: u64, piece: usize) -> u64 {
    let most = (1 << PIECE_BITS) - 1;
    (ordinal.min(u64::MAX >> PIECE_BITS) << PIECE_BITS) | (piece as u64).min(most)
}

/// Who tells hints: whom the file manager gave the capability to, in a volume; whoever holds a key counts as one for each
/// partition.
pub(crate) fn teller(subject: &Subject) -> Teller {
    let is_capability = u128::from(subject.key == KeyKind::Capability);
    let partition = u128::from(subject.partition.0);
    Teller(is_capability << 127 | partition << 64 | u128::from(subject.audit_id.0))
}

/// Reads what an extension's call tells; the text is for the caller.
pub(crate) fn notice(arguments: &[u8]) -> Result<Notice, String> {
    Notice::decode(arguments).map_err(|error| format!("its arguments are no notice: {error}"))
}

/// As the drive's control object lists it.
pub(crate) const DESCRIPTION: Description = Description {
    number: notice::NUMBER,
    name: "prefetch",
    revision: notice::REVISION,
    rights: Rights::READ,
    parameters: "the stream, the place of the pieces in it, how far its reader is, and whether it goes on",
};

#[cfg(test)]
mod tests {
    use super::*;
    use nasd_types::{ObjectId, PartitionId};

    fn name(object: u64) -> ObjectName {
        ObjectName { partition: PartitionId(1), object: ObjectId(object) }
    }

    const FREE: Costs = Costs { free: 1000, marginal_hits: 0.0 };
    const FRAME: u64 = FRAME_BYTES as u64;
    const TELLER: Teller = Teller(3);

    #[test]
    fn hints_become_fetches_and_reads_release_them() {
        let prefetching = Prefetching::new(1000);
        let hint = Notice { stream: 7, ordinal: 3, is_hint: true, ..Notice::default() };
        let pieces = [ByteRange::new(4096, 100), ByteRange::new(2 * FRAME, 2 * FRAME)];
        assert_eq!(prefetching.tell(TELLER, &hint, name(1), &pieces, 1), 2);
        let step = prefetching.step(&[], FREE, 2);
        let block = |number| Block { object: name(1), number };
        let whole = |number| ByteRange::new(number * FRAME, FRAME);
        let expected =
            [(block(0), ByteRange::new(4096, 100)), (block(2), whole(2)), (block(3), whole(3))];
        assert_eq!(step.fetch, expected);
        let come: Vec<_> = expected.iter().map(|(block, _)| *block).collect();
        assert!(prefetching.step(&come, FREE, 3).released.is_empty());
        prefetching.note_read(name(1), [ByteRange::new(4100, 10)].into_iter());
        prefetching.note_read(name(2), [ByteRange::new(0, 10)].into_iter());
        assert_eq!(prefetching.step(&[], FREE, 4).released, [block(0)]);
        let over = Notice { stream: 7, is_over: true, ..Notice::default() };
        assert_eq!(prefetching.tell(TELLER, &over, name(1), &[], 5), 0);
        assert_eq!(prefetching.step(&[], FREE, 6).released, [block(2), block(3)]);
        assert!(!prefetching.tidy(7));
        prefetching.note_read(name(1), [ByteRange::new(0, 10)].into_iter());
        assert!(prefetching.lock().reads.is_empty(), "nobody is interested");
    }

    #[test]
    fn a_stream_that_begins_as_the_last_one_ends_is_fetched() {
        let prefetching = Prefetching::new(1000);
        let hint = Notice { stream: 7, is_hint: true, ..Notice::default() };
        let piece = [ByteRange::new(0, FRAME)];
        let (_, block) = (prefetching.tell(TELLER, &hint, name(1), &piece, 1), name(1));
        assert_eq!(prefetching.step(&[], FREE, 2).fetch.len(), 1);
        prefetching.step(&[Block { object: block, number: 0 }], FREE, 3);
        let over = Notice { stream: 7, is_over: true, ..Notice::default() };
        prefetching.tell(TELLER, &over, name(1), &[], 4);
        assert!(!prefetching.tidy(5));
        let next = Notice { stream: 8, ..hint };
        prefetching.tell(TELLER, &next, name(2), &piece, 6);
        assert_eq!(prefetching.released_at_the_end(), None);
        let step = prefetching.step(&[], FREE, 7);
        assert_eq!((step.fetch.len(), step.released.len()), (1, 1));
        prefetching.step(&[Block { object: name(2), number: 0 }], FREE, 8);
        prefetching.tell(TELLER, &Notice { is_over: true, ..next }, name(2), &[], 9);
        let released = prefetching.released_at_the_end();
        assert_eq!(released, Some(vec![Block { object: name(2), number: 0 }]));
    }

    #[test]
    fn what_is_silent_ends_and_what_does_not_fit_is_not_taken() {
        let prefetching = Prefetching::new(1000);
        let hint = Notice { stream: 7, is_hint: true, ..Notice::default() };
        let most = Settings::default().most_hints;
        let pieces: Vec<_> = (0..=most as u64).map(|at| ByteRange::new(at * 10, 5)).collect();
        assert_eq!(prefetching.tell(TELLER, &hint, name(1), &pieces, 1) as usize, most);
        let silence = SILENCE.as_nanos() as u64;
        assert!(prefetching.tidy(1 + silence));
        assert!(!prefetching.tidy(2 + silence));
    }

    #[test]
    fn of_what_is_told_of_a_new_stream_what_is_over_is_not_fetched() {
        let prefetching = Prefetching::new(1000);
        let told = Notice { stream: 7, passed: 5, ..Notice::default() };
        assert_eq!(prefetching.tell(TELLER, &told, name(1), &[], 1), 0);
        assert!(!prefetching.tidy(1), "there is nothing to fetch of it");
        for ordinal in [4, 5] {
            let hint = Notice { ordinal, is_hint: true, ..told };
            let piece = ByteRange::new(ordinal * FRAME, FRAME);
            assert_eq!(prefetching.tell(TELLER, &hint, name(1), &[piece], 1), 1);
        }
        let fetch = prefetching.step(&[], FREE, 2).fetch;
        let numbers: Vec<_> = fetch.iter().map(|(block, _)| block.number).collect();
        assert_eq!(numbers, [5]);
    }

    #[test]
    fn another_ends_nothing() {
        let prefetching = Prefetching::new(1000);
        let hint = Notice { stream: 7, is_hint: true, ..Notice::default() };
        prefetching.tell(TELLER, &hint, name(1), &[ByteRange::new(0, FRAME)], 1);
        let over = Notice { stream: 7, is_over: true, ..Notice::default() };
        prefetching.tell(Teller(4), &over, name(1), &[], 2);
        assert!(prefetching.tidy(3));
        prefetching.tell(TELLER, &over, name(1), &[], 4);
        assert!(!prefetching.tidy(5));
    }

    #[test]
    fn all_reads_that_gathered_are_looked_at() {
        let prefetching = Prefetching::new(1 << 14);
        let hint = Notice { stream: 7, is_hint: true, ..Notice::default() };
        prefetching.tell(TELLER, &hint, name(1), &[ByteRange::new(0, 1000 * FRAME)], 1);
        prefetching.note_read(name(1), std::iter::once(ByteRange::new(0, 999 * FRAME)));
        let fetch = prefetching.step(&[], FREE, 2).fetch;
        assert!(fetch.iter().any(|(block, _)| block.number == 999));
        assert!(prefetching.lock().reads.is_empty());
    }

    #[test]
    fn absurd_numbers_do_no_harm() {
        let prefetching = Prefetching::new(0);
        let hint = Notice {
            stream: u64::MAX,
            ordinal: u64::MAX,
            passed: u64::MAX,
            skipped: (u64::MAX, 0),
            is_hint: true,
            is_over: false,
        };
        let pieces = [ByteRange::new(0, u64::MAX >> 2), ByteRange::new(u64::MAX >> 2, 1)];
        prefetching.tell(TELLER, &hint, name(1), &pieces, u64::MAX);
        prefetching.note_read(name(1), pieces.into_iter());
        prefetching.step(&[], FREE, 0);
        assert!(prefetching.lock().reads.is_empty());
    }
}
