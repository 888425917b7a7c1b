//! A file in chunks: each is worked on at the drives that have its bytes, or here where those can't.
//!
//! Some threads have one chunk each worked on; who wants the results takes them in the file's order. So drives read and look at
//! what comes next while an answer travels, and memory is bounded by the chunks that are under way.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nasd_client::Spare;
use nasd_protocol::Status;
use nasd_protocol::cancelling;
use nasd_protocol::limits::MAX_EXTENSION_BYTES;
use nasd_protocol::packing::{WISH_BYTES, Wish, put_wish};
use nasd_types::{ByteRange, Rights};

use crate::extending::{ExtendedPart, ExtensionCall, new_job};
use crate::packing::{Answers, unpack_all};
use crate::wire::{ExtensionOutcome, Interruptible, Interrupts};
use crate::{ClerkError, OpenFile};

/// Chunks that are worked on at a time, at least and at most: while one answer travels the next one is made. With more than there are
/// processors they would take turns, unless it is the network that is waited for, as answers show.
const AT_A_TIME: (usize, usize) = (2, 3);

/// Chunks that may be there before the one that is wanted is.
const MOST_AHEAD: u64 = 4;

/// Chunks that are done here after a drive has not answered, or would tell all, at first and at most, before drives are asked again.
const RESTS: (u64, u64) = (4, 64);

/// So many times as many at the most, where drives would tell more than all.
const MOST_TIMES: u64 = 16;

/// Bytes that an answer is to have, so that asking costs little beside it: nearly as many as it may have, as not as many are selected of
/// each part.
const ANSWER_BYTES: u64 = (4 << 20) / 16 * 15;

/// Chunks are of whole ones of these. With longer ones an answer would leave more of its room, all of which is cleared before it is used again
/// ([`Spare`]).
const PIECE_BYTES: u64 = 256 << 10;

/// What is done with all of a file.
pub(crate) trait Job: Send + Sync + 'static {
    /// What is found where it is done here.
    type Found: Send;

    /// Which extension of drives does it: its number and its revision.
    const EXTENSION: (u32, u32);

    /// What that is told.
    fn arguments(&self) -> Vec<u8>;

    /// The same for drives that refuse that, as it may take more memory than they have: with less, what takes least last.
    fn lesser_arguments(&self) -> Vec<Vec<u8>> {
        Vec::new()
    }

    /// Most bytes that each drive may tell in one answer.
    fn most(&self) -> usize;

    /// Whether drives have told all of a range.
    fn is_whole(&self, told: &[ExtendedPart], range: ByteRange) -> bool;

    /// Bytes that drives would have told instead, where what is found here shows that: of partial results each of them tells several.
    fn bytes(found: &Self::Found) -> Option<u64>;

    /// Does it here, until it is over. What is read may lie in `scratch` meanwhile, in which there is whatever was read before.
    ///
    /// # Errors
    ///
    /// Those of reading.
    fn find(&self, here: &Here<'_>, scratch: &mut Vec<u8>) -> Result<Self::Found, ClerkError>;
}

/// What is to be done here.
#[derive(Clone, Copy)]
pub(crate) struct Here<'a> {
    pub(crate) file: &'a OpenFile,
    pub(crate) range: ByteRange,
    /// Nobody wants it any more.
    pub(crate) is_over: &'a dyn Fn() -> bool,
}

/// How large chunks are, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Of the first ones, and the least that drives are asked for.
    pub(crate) first: u64,
    /// The most, where little is told of them.
    pub(crate) most: u64,
    /// Of those that are read since drives would tell all of them, on a quick network: caches of the processor have room for what each
    /// drive has of one while it is looked at.
    pub(crate) here: u64,
}

/// What there is of a chunk.
pub(crate) enum Chunk<F> {
    /// What drives told, whole, and how that came.
    Told(Vec<ExtendedPart>, Came),
    /// What was found here.
    Found(F),
}

/// How answers of a chunk came.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Came {
    /// Bytes that were on their way.
    pub(crate) bytes: u64,
    /// Whether they were wished packed.
    is_packed: bool,
}

/// What drives told, and how that came.
type Told = (Vec<ExtendedPart>, Came);

fn is_refused(part: &ExtendedPart) -> bool {
    part.outcome == ExtensionOutcome::Refused
}

/// See the module.
pub(crate) struct Chunks<J: Job> {
    shared: Arc<Shared<J>>,
    /// They end with it.
    threads: Threads<J>,
    /// The chunk that is wanted next.
    number: u64,
    /// Where it begins.
    offset: u64,
    /// Drives have told something of one that was taken.
    is_told: bool,
}

/// Those that have chunks worked on, until it is over.
struct Threads<J: Job> {
    shared: Arc<Shared<J>>,
    handles: Vec<JoinHandle<()>>,
}

struct Shared<J: Job> {
    file: Arc<OpenFile>,
    job: J,
    /// The first of them, and those that take less.
    arguments: Vec<Vec<u8>>,
    file_bytes: u64,
    sizes: Sizes,
    /// Chunks that are worked on at a time, where the network is quick.
    at_a_time: u64,
    /// By which drives know which calls are of one job.
    number: u64,
    /// Memory for answers.
    spare: Arc<Spare>,
    state: Mutex<State<J>>,
    /// A chunk was taken, or is there, or it is over.
    changed: Condvar,
}

struct State<J: Job> {
    /// The first chunk that nobody works on.
    next: u64,
    /// How many are worked on.
    under_way: u64,
    /// Where the first one that is not begins.
    offset: u64,
    /// How large it is to be.
    chunk_bytes: u64,
    /// The chunk that is wanted.
    wanted: u64,
    there: BTreeMap<u64, There<J::Found>>,
    /// Chunks for which drives are asked now, by where they begin, and where they end.
    asked: BTreeMap<u64, u64>,
    /// Drives can't, or are not to.
    here: bool,
    /// Drives have not answered: they may later.
    rest: Rest,
    /// Drives tell nearly all that they look at: that is read as fast.
    is_all_told: bool,
    /// What is found here does not show whether they would the next time: they are asked now and then.
    is_partial: bool,
    all_told: Rest,
    /// How answers came so far.
    answers: Answers,
    /// How many drives told something of the last chunk that any did.
    drives: u64,
    /// Drives know of no wishes.
    no_wish: bool,
    /// Which of the arguments drives do not refuse, as far as is known.
    lesser: usize,
    is_over: bool,
}

/// For how many chunks drives are left alone.
#[derive(Clone, Copy, Debug)]
struct Rest {
    chunks: u64,
    /// How many the next time.
    next: u64,
    /// So many times as many, as asking them costs more.
    times: u64,
}

/// What drives had to do with a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// Nothing.
    No,
    Told,
    /// They can't do it, and could not the next time.
    CanNot,
    /// They did not answer.
    Away,
}

struct There<F> {
    end: u64,
    chunk: Result<Chunk<F>, ClerkError>,
}

impl<J: Job> Chunks<J> {
    /// Begins to work on the first `file_bytes` of a file that is open for reading, which is all of it; nothing is asked of drives
    /// if it is to be done `here`.
    ///
    /// # Errors
    ///
    /// Without a thread.
    pub(crate) fn start(
        (file, file_bytes): (Arc<OpenFile>, u64),
        job: J,
        sizes: Sizes,
        here: bool,
    ) -> io::Result<Chunks<J>> {
        let state = State {
            next: 0,
            under_way: 0,
            offset: 0,
            chunk_bytes: sizes.first,
            wanted: 0,
            there: BTreeMap::new(),
            asked: BTreeMap::new(),
            here,
            rest: Rest::NONE,
            is_all_told: false,
            is_partial: false,
            all_told: Rest::NONE,
            answers: Answers::default(),
            drives: 1,
            no_wish: false,
            lesser: 0,
            is_over: false,
        };
        let shared = Arc::new(Shared {
            spare: file.room_for_answers(),
            file_bytes,
            file,
            arguments: [vec![job.arguments()], job.lesser_arguments()].concat(),
            job,
            sizes,
            at_a_time: at_a_time(),
            number: new_job(),
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        let count = shared.file_bytes.div_ceil(sizes.first).min(AT_A_TIME.1 as u64);
        let threads = Threads::start(&shared, count)?;
        Ok(Chunks { shared, threads, number: 0, offset: 0, is_told: false })
    }

    pub(crate) fn job(&self) -> &J {
        &self.shared.job
    }

    pub(crate) fn file(&self) -> &OpenFile {
        &self.shared.file
    }

    /// Nobody looks any more at what drives told. Memory is kept that there is room in for any answer.
    pub(crate) fn give_back(&self, told: impl IntoIterator<Item = Vec<u8>>) {
        let most = self.shared.job.most();
        let long = told.into_iter().filter(|data| data.capacity() >= most);
        long.for_each(|data| self.shared.spare.give(data));
    }

    /// No more chunks are wanted: nothing is worked on any more, and `next` must not be asked.
    pub(crate) fn end(&self) {
        self.threads.end();
    }

    /// The next chunk, when it is there; `None` behind the last one.
    pub(crate) fn next(&mut self) -> Option<Result<Chunk<J::Found>, ClerkError>> {
        if self.offset >= self.shared.file_bytes {
            return None;
        }
        let There { end, chunk } = self.shared.take(self.number);
        self.number += 1;
        self.offset = end;
        self.is_told |= matches!(chunk, Ok(Chunk::Told(..)));
        Some(chunk)
    }

    /// Fails if the file has become shorter than what was looked at of it: drives take zeros for what is not there, as there are files
    /// with holes. Where all was read here, that has failed.
    pub(crate) fn check_uncut(&self) -> Result<(), ClerkError> {
        match self.is_told && self.shared.file.size_now()? < self.offset {
            true => Err(ClerkError::Cut),
            false => Ok(()),
        }
    }
}

impl<J: Job> Threads<J> {
    fn start(shared: &Arc<Shared<J>>, count: u64) -> io::Result<Threads<J>> {
        let mut threads = Threads { shared: Arc::clone(shared), handles: Vec::new() };
        for _ in 0..count {
            let shared = Arc::clone(shared);
            let until_over = Interruptible::new(0, Arc::clone(&shared) as Arc<dyn Interrupts>);
            let run = move || until_over.run(|| shared.run());
            let started = thread::Builder::new().name("chunks".into()).spawn(run);
            threads.handles.push(started?);
        }
        Ok(threads)
    }
}

impl<J: Job> Threads<J> {
    /// They end soon, and drives do nothing more for them.
    fn end(&self) {
        if std::mem::replace(&mut self.shared.lock().is_over, true) {
            return;
        }
        self.shared.changed.notify_all();
        if self.shared.lock().asked.is_empty() {
            return;
        }
        let shared = Arc::clone(&self.shared);
        let until_over = Interruptible::new(0, Arc::clone(&shared) as Arc<dyn Interrupts>);
        // Nobody waits for a drive that does not hear of it: it does a chunk for nothing.
        let tell = move || until_over.run(|| shared.give_up());
        thread::Builder::new().name("chunks-over".into()).spawn(tell).ok();
    }
}

impl<J: Job> Drop for Threads<J> {
    fn drop(&mut self) {
        self.end();
        for thread in self.handles.drain(..) {
            // One that panicked has said so.
            thread.join().ok();
        }
    }
}

impl<J: Job> State<J> {
    /// Whether the chunk that is begun now is done here.
    fn is_next_here(&mut self) -> bool {
        if self.here {
            return true;
        }
        if !self.is_all_told {
            return self.rest.take();
        }
        if !self.is_partial || self.rest.take() || self.all_told.take() {
            return true;
        }
        // Drives are asked for this one, and others go on as before.
        self.all_told.begin();
        false
    }
}

impl Rest {
    /// They are asked.
    const NONE: Rest = Rest { chunks: 0, next: RESTS.0, times: 1 };

    /// Whether a chunk that is begun now is done here.
    fn take(&mut self) -> bool {
        let is_here = self.chunks > 0;
        self.chunks = self.chunks.saturating_sub(1);
        is_here
    }

    /// A chunk has shown that they are to be left alone. What several have shown at the same time is one thing.
    fn begin(&mut self) {
        if self.chunks == 0 {
            self.chunks = self.next * self.times;
            self.next = (2 * self.next).min(RESTS.1);
        }
    }

    /// One has shown that they need not be.
    fn end(&mut self) {
        self.next = RESTS.0;
    }
}

impl<J: Job> Interrupts for Shared<J> {
    fn wait(&self, _request: u64, limit: Duration) -> bool {
        let state = self.lock();
        let waited = self.changed.wait_timeout_while(state, limit, |state| !state.is_over);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_over
    }
}

impl<J: Job> Shared<J> {
    fn lock(&self) -> MutexGuard<'_, State<J>> {
        // Nothing that can panic is done with it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State<J>>) -> MutexGuard<'a, State<J>> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, wanted: u64) -> There<J::Found> {
        let mut state = self.lock();
        state.wanted = wanted;
        self.changed.notify_all();
        loop {
            if let Some(there) = state.there.remove(&wanted) {
                return there;
            }
            state = self.wait(state);
        }
    }

    /// What a thread does.
    fn run(&self) {
        // The memory of what is read is used again: the system clears new memory first, which takes as long as to look at it.
        let mut scratch = Vec::new();
        let mut state = self.lock();
        loop {
            if state.is_over || state.offset >= self.file_bytes {
                return;
            }
            let is_enough = state.under_way >= self.at_a_time(&state);
            if is_enough || state.next >= state.wanted + MOST_AHEAD {
                state = self.wait(state);
                continue;
            }
            let here = state.is_next_here();
            let range = self.next_range(&state, here);
            let number = state.next;
            state.next += 1;
            state.under_way += 1;
            state.offset = range.end();
            if !here {
                state.asked.insert(range.offset, range.end());
            }
            drop(state);
            // Who waits for the chunk must hear of it in any case.
            let done = catch_unwind(AssertUnwindSafe(|| self.do_chunk(range, here, &mut scratch)));
            let bug =
                || ClerkError::Protocol("a chunk's work has panicked: see the log".to_owned());
            let chunk = done.unwrap_or_else(|_| Err(bug()));
            state = self.lock();
            state.asked.remove(&range.offset);
            state.under_way -= 1;
            if let Ok((chunk, asked)) = &chunk {
                self.learn(&mut state, range.length, chunk, *asked);
            }
            let chunk = chunk.map(|(chunk, _)| chunk);
            state.there.insert(number, There { end: range.end(), chunk });
            self.changed.notify_all();
        }
    }

    /// Chunks that are worked on at a time.
    fn at_a_time(&self, state: &State<J>) -> u64 {
        if state.answers.are_slow() { AT_A_TIME.1 as u64 } else { self.at_a_time }
    }

    /// How large chunks are that are done here.
    fn here_bytes(&self, state: &State<J>) -> u64 {
        match state.is_all_told && state.answers.are_quick() {
            true => self.sizes.first.min(self.sizes.here * state.drives),
            false => self.sizes.first,
        }
    }

    /// The next chunk. Near the end they are smaller, so that no thread is long alone.
    fn next_range(&self, state: &State<J>, here: bool) -> ByteRange {
        let left = self.file_bytes - state.offset;
        if here {
            return ByteRange::new(state.offset, self.here_bytes(state).min(left));
        }
        let share = left / self.at_a_time(state);
        let bytes = state.chunk_bytes.min(share.next_multiple_of(self.sizes.first));
        ByteRange::new(state.offset, bytes.max(self.sizes.first).min(left))
    }

    /// Drives are told that nobody wants any more what they do.
    fn give_up(&self) {
        let asked = self.lock().asked.clone();
        let (Some(begin), Some(end)) = (asked.keys().next(), asked.values().max()) else { return };
        let call = ExtensionCall {
            extension: (cancelling::NUMBER, cancelling::REVISION),
            rights: Rights::READ,
            most: 0,
            arguments: cancelling::encode(J::EXTENSION.0),
            job: self.number,
            bytes_left: 0,
            spare: Arc::default(),
        };
        if let Err(error) = self.file.extend(ByteRange::new(*begin, end - begin), &call) {
            tracing::debug!(%error, "drives do not hear that a job is over");
        }
    }

    /// What a chunk, of which drives had something to do with or not, shows about the next ones: how large they should be, if as much is
    /// told of them, and who looks at them best.
    fn learn(&self, state: &mut State<J>, bytes: u64, chunk: &Chunk<J::Found>, asked: Asked) {
        let told = match chunk {
            Chunk::Told(told, _) => Some(told.iter().map(|part| part.data.len() as u64).sum()),
            Chunk::Found(found) => J::bytes(found),
        };
        if let Chunk::Told(told, _) = chunk {
            let drives: BTreeSet<_> = told.iter().map(|part| part.drive).collect();
            state.drives = drives.len().max(1) as u64;
        }
        // What was left to this clerk once will be so again, mostly.
        state.here |= asked == Asked::CanNot;
        match asked {
            Asked::Told => state.rest.end(),
            Asked::Away => state.rest.begin(),
            Asked::No | Asked::CanNot => {}
        }
        self.learn_all_told(state, bytes, chunk);
        let size =
            u128::from(bytes) * u128::from(ANSWER_BYTES) / u128::from(told.unwrap_or(bytes).max(1));
        let size = u64::try_from(size).unwrap_or(u64::MAX);
        // No more than is known to be right.
        let most = self.sizes.most.min(4 * bytes).max(self.sizes.first);
        state.chunk_bytes = match state.here || state.rest.chunks > 0 {
            true => self.sizes.first,
            false => (size / PIECE_BYTES * PIECE_BYTES).clamp(self.sizes.first, most),
        };
    }

    /// Whether drives would tell nearly all of the next chunks.
    fn learn_all_told(&self, state: &mut State<J>, bytes: u64, chunk: &Chunk<J::Found>) {
        let nearly_all = bytes / 20 * 19;
        // Where the network is slow answers are to come packed before that is said.
        let is_to_be = state.answers.wish() == Wish::Packed && !state.no_wish;
        let found = match chunk {
            Chunk::Told(_, came) => {
                state.is_all_told = came.bytes >= nearly_all && (came.is_packed || !is_to_be);
                match state.is_all_told {
                    true => {
                        // Each of several drives may tell as much.
                        state.all_told.times = came.bytes.div_ceil(bytes).clamp(1, MOST_TIMES);
                        state.all_told.begin();
                    }
                    false => state.all_told = Rest::NONE,
                }
                return;
            }
            Chunk::Found(found) => J::bytes(found),
        };
        match found {
            Some(told) => state.is_all_told = told >= nearly_all,
            None => state.is_partial = true,
        }
    }

    /// A chunk, from drives if that goes.
    fn do_chunk(
        &self,
        range: ByteRange,
        here: bool,
        scratch: &mut Vec<u8>,
    ) -> Result<(Chunk<J::Found>, Asked), ClerkError> {
        let mut asked = Asked::No;
        let longest = self.arguments.iter().map(Vec::len).max().unwrap_or(0);
        if !here && longest + WISH_BYTES <= MAX_EXTENSION_BYTES {
            match self.ask(range) {
                Ok(Some(chunk)) => return Ok((chunk, Asked::Told)),
                Ok(None) | Err(ClerkError::Drive(Status::NoSuchExtension)) => {
                    asked = Asked::CanNot;
                }
                // A drive may have gone: a read finds another one that has the bytes.
                Err(error) => {
                    tracing::debug!(%error, "work goes on without its drive");
                    asked = Asked::Away;
                }
            }
        }
        let is_over = || self.lock().is_over;
        let here = Here { file: &self.file.part(range), range, is_over: &is_over };
        Ok((Chunk::Found(self.job.find(&here, scratch)?), asked))
    }

    /// What drives tell of a range, if they tell of all of it.
    fn ask(&self, range: ByteRange) -> Result<Option<Chunk<J::Found>>, ClerkError> {
        let lesser = self.lock().lesser;
        let (mut told, mut came) = self.ask_with(range, lesser)?;
        for lesser in lesser + 1..self.arguments.len() {
            if !told.iter().any(is_refused) {
                break;
            }
            (told, came) = self.ask_with(range, lesser)?;
            let mut state = self.lock();
            state.lesser = state.lesser.max(lesser);
        }
        if let Some(part) = told.iter().find(|part| part.outcome != ExtensionOutcome::Done) {
            let text = String::from_utf8_lossy(&part.data);
            tracing::debug!(drive = %part.drive, %text, "a drive leaves work to its client");
            return Ok(None);
        }
        let is_whole = self.job.is_whole(&told, range);
        Ok(is_whole.then_some(Chunk::Told(told, came)))
    }

    /// What drives tell that are asked with some of the arguments.
    fn ask_with(&self, range: ByteRange, lesser: usize) -> Result<Told, ClerkError> {
        let wish = {
            let state = self.lock();
            (!state.no_wish).then(|| state.answers.wish())
        };
        let (told, came) = self.extend(range, lesser, wish)?;
        if wish.is_none() || !told.iter().any(is_refused) {
            return Ok((told, came));
        }
        // An older drive takes no wishes.
        let (told, came) = self.extend(range, lesser, None)?;
        self.lock().no_wish |= !told.iter().any(is_refused);
        Ok((told, came))
    }

    /// What drives tell, unpacked, and how it came.
    fn extend(
        &self,
        range: ByteRange,
        lesser: usize,
        wish: Option<Wish>,
    ) -> Result<Told, ClerkError> {
        let mut arguments = self.arguments[lesser].clone();
        if let Some(wish) = wish {
            put_wish(wish, &mut arguments);
        }
        let call = ExtensionCall {
            extension: J::EXTENSION,
            rights: Rights::READ,
            most: self.job.most(),
            arguments,
            job: self.number,
            bytes_left: self.file_bytes - range.offset,
            spare: Arc::clone(&self.spare),
        };
        let begun = Instant::now();
        let mut told = self.file.extend(range, &call)?;
        if wish.is_none() {
            let bytes = told.iter().map(|part| part.data.len() as u64).sum();
            return Ok((told, Came { bytes, is_packed: false }));
        }
        let arrived = unpack_all(&mut told, call.most, begun.elapsed())?;
        self.lock().answers.count(&arrived);
        let is_packed = wish == Some(Wish::Packed);
        Ok((told, Came { bytes: arrived.sent, is_packed }))
    }
}

/// Chunks that are worked on at a time on this machine.
pub(crate) fn at_a_time() -> u64 {
    let (least, most) = AT_A_TIME;
    thread::available_parallelism().map_or(least, |count| count.get().clamp(least, most)) as u64
}

/// Whether parts are all of a range, up to its end or one behind which nothing is wanted. Of each: where it begins and ends, and
/// whether it is that one.
pub(crate) fn are_whole(parts: impl Iterator<Item = (u64, u64, bool)>, range: ByteRange) -> bool {
    let mut at = range.offset;
    for (begin, end, is_last) in parts {
        if begin != at {
            return false;
        }
        if is_last {
            return true;
        }
        at = end;
    }
    at == range.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drives_that_do_not_answer_are_asked_again_later_and_less_often() {
        let mut rest = Rest::NONE;
        for chunks in [4, 8, 16, 32, 64, 64] {
            assert!(!rest.take(), "they are asked");
            // Several chunks were under way.
            (0..3).for_each(|_| rest.begin());
            assert_eq!((0..chunks).filter(|_| rest.take()).count(), chunks);
        }
        assert!(!rest.take());
        rest.end();
        rest.begin();
        assert_eq!(rest.chunks, RESTS.0);
        // Who tells three times as much is asked after three times as many.
        let mut rest = Rest { times: 3, ..Rest::NONE };
        rest.begin();
        assert_eq!(rest.chunks, 3 * RESTS.0);
    }
}
