//! Hints: programs that know what they will read tell it, and it is there when they do (CMU-CS-97-118 section 4.6).
//!
//! A stream of hints ([`Hints`]) has a thread that has what comes next fetched to this host, a little ahead of whoever
//! reads. Where fetching takes long, it tells the drives of what comes behind that, so that they read in the order that
//! suits them. How far is [`sequence`]'s to say, what was fetched is kept by each file (`hinted`), and reads of any open of the
//! file find it there.

mod ahead;
mod sequence;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nasd_types::{ByteRange, DriveId};

use crate::clerk::Clerk;
use crate::file::FileState;
use crate::grants::Slot;
use crate::hinted::PieceId;
use crate::open_file::OpenFile;
use crate::wire::{Caller, FileHandle, FileType, ManagerStatus};
use crate::{ClerkError, OpenMode};
use sequence::{Batch, Call, Sequence};

/// One part in this many of the memory for reading ahead is a stream's.
const MEMORY_SHARE: usize = 4;

/// Requests of a stream that are under way at most.
const MOST_UNDER_WAY: usize = 4;

/// Names that are looked up, and hints that are known, before what comes before them is over.
const MOST_KNOWN: usize = 1 << 14;

/// Bytes of paths that wait to be looked up.
const MOST_PATH_BYTES: usize = 4 << 20;

/// Where requests take so long, drives are told what comes next: they have more to do at once.
const SLOW: Duration = Duration::from_millis(3);

/// Longer parts of a file are hinted in parts.
const LONGEST: u64 = 1 << 20;

/// A file of which something will be read.
pub(crate) struct HintedFile {
    state: Arc<FileState>,
    slot: Arc<Slot>,
}

/// The files that are the same are one.
#[derive(Clone)]
struct FileOf(Arc<HintedFile>);

impl PartialEq for FileOf {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0.state, &other.0.state) && Arc::ptr_eq(&self.0.slot, &other.0.slot)
    }
}

/// What will be read, where that is not known as a part of an open file.
enum Target {
    Open(FileOf, ByteRange),
    /// A path from a directory; all of the file if no range is told.
    Path(FileHandle, Vec<u8>, Option<ByteRange>),
}

/// A piece that is to be fetched.
type Wanted = (ByteRange, PieceId);

/// What a stream's thread does next.
enum Work {
    Find(Target),
    Fetch(Batch<FileOf>, Vec<Wanted>),
    Tell(Call<FileOf>),
}

struct State {
    waiting: VecDeque<Target>,
    /// Bytes of the paths that wait.
    path_bytes: usize,
    sequence: Sequence<FileOf, FileHandle>,
    under_way: usize,
    /// How long requests have taken, in nanoseconds; 0 before the first one.
    mean_ns: u64,
    /// The last call that each drive was told.
    told: HashMap<DriveId, Arc<Batch<FileOf>>>,
    /// Whether drives take no hints.
    are_deaf: bool,
    is_over: bool,
}

/// What reads find of a stream.
pub(crate) struct HintStream {
    id: u64,
    state: Mutex<State>,
    changed: Condvar,
}

/// A stream of hints: what one or several programs will read, in this order. It is over when it is dropped.
pub struct Hints {
    stream: Arc<HintStream>,
}

impl Clerk {
    /// Begins a stream of hints of what will be read on behalf of a caller.
    ///
    /// # Errors
    ///
    /// If the system has no thread for it.
    pub fn hints(self: &Arc<Self>, caller: &Arc<Caller>) -> Result<Hints, ClerkError> {
        let core = self.core();
        let memory = (core.settings.read_ahead_bytes / MEMORY_SHARE) as u64;
        let stream = Arc::new(HintStream::new(core.new_stream(), memory));
        let (clerk, caller, conducted) =
            (Arc::clone(self), Arc::clone(caller), Arc::clone(&stream));
        let conduct = move || ahead::conduct(&clerk, &caller, &conducted);
        let thread = std::thread::Builder::new().name("nasd-hints".to_owned()).spawn(conduct);
        thread.map_err(|error| ClerkError::Unreachable(format!("no thread for hints: {error}")))?;
        Ok(Hints { stream })
    }
}

impl Hints {
    /// Parts of an open file will be read, in this order and after all that was told before.
    ///
    /// # Errors
    ///
    /// `NotOpenForThis`; `TooMany` while as many hints are known as can be: tell it again later.
    pub fn add(&self, file: &OpenFile, ranges: &[ByteRange]) -> Result<(), ClerkError> {
        let (state, slot) = file.to_be_read()?;
        let file = FileOf(Arc::new(HintedFile { state, slot }));
        self.tell(ranges.iter().map(|range| Target::Open(file.clone(), *range)), 0)
    }

    /// A part of the file at a path from a directory, or all of it, will be read after all that was told before. A file that
    /// is not there, or may not be read, is left out.
    ///
    /// # Errors
    ///
    /// `TooMany` while as many hints are known as can be: tell it again later.
    pub fn add_path(
        &self,
        directory: FileHandle,
        path: &[u8],
        range: Option<ByteRange>,
    ) -> Result<(), ClerkError> {
        self.tell(std::iter::once(Target::Path(directory, path.to_vec(), range)), path.len())
    }

    fn tell(
        &self,
        targets: impl Iterator<Item = Target>,
        path_bytes: usize,
    ) -> Result<(), ClerkError> {
        let mut state = self.stream.lock();
        if state.waiting.len() >= MOST_KNOWN || state.path_bytes + path_bytes > MOST_PATH_BYTES {
            return Err(ClerkError::TooManyHints);
        }
        state.path_bytes += path_bytes;
        state.waiting.extend(targets);
        self.stream.changed.notify_all();
        Ok(())
    }

    /// Hints that are known and not over.
    pub fn left(&self) -> usize {
        let state = self.stream.lock();
        state.waiting.len() + state.sequence.len()
    }
}

impl Drop for Hints {
    fn drop(&mut self) {
        let held = {
            let mut state = self.stream.lock();
            state.is_over = true;
            state.waiting.clear();
            state.sequence.end()
        };
        self.stream.changed.notify_all();
        release(held);
    }
}

/// What was fetched is over.
fn release(held: Vec<(FileOf, ByteRange)>) {
    for (file, range) in held {
        file.0.state.lock().hinted.over(range);
    }
}

impl HintStream {
    fn new(id: u64, memory: u64) -> HintStream {
        let state = State {
            waiting: VecDeque::new(),
            path_bytes: 0,
            sequence: Sequence::new(memory),
            under_way: 0,
            mean_ns: 0,
            told: HashMap::new(),
            are_deaf: false,
            is_over: false,
        };
        HintStream { id, state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each method of the sequence leaves it whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody has read a part of a file; no file may be locked.
    pub(crate) fn note_read(&self, handle: FileHandle, range: ByteRange) {
        let released = {
            let mut state = self.lock();
            let released = state.sequence.note_read(&handle, range);
            if !released.is_empty() && state.sequence.has_room() {
                self.changed.notify_all();
            }
            released
        };
        release(released);
    }

    /// What to do next; `None` once the stream is over.
    fn next_work(&self) -> Option<Work> {
        let mut state = self.lock();
        loop {
            if state.is_over {
                return None;
            }
            // Drives that are slow are to know of it before it is asked for: what comes along costs them little.
            let is_slow = state.mean_ns > SLOW.as_nanos() as u64;
            if is_slow
                && !state.are_deaf
                && let Some(call) = state.sequence.next_call()
            {
                return Some(Work::Tell(call));
            }
            // How slow they are is known when the first request is over.
            let most = if state.mean_ns == 0 { 1 } else { MOST_UNDER_WAY };
            if state.under_way < most
                && let Some(batch) = state.sequence.next_batch()
            {
                state.under_way += 1;
                // Before it is over: what is over when it comes is not kept.
                let wanted = ahead::begin(&batch);
                return Some(Work::Fetch(batch, wanted));
            }
            if state.sequence.len() < MOST_KNOWN
                && let Some(target) = state.waiting.pop_front()
            {
                if let Target::Path(_, path, _) = &target {
                    state.path_bytes -= path.len();
                }
                return Some(Work::Find(target));
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A file is known of which a range will be read: that is cut into parts, as far as there is room for them.
    fn found(self: &Arc<Self>, file: FileOf, range: ByteRange) {
        file.0.state.lock().watch(self);
        let mut state = self.lock();
        if state.is_over {
            return;
        }
        let (mut at, end) = (range.offset, range.end());
        while at < end && state.sequence.len() < MOST_KNOWN {
            let part = ByteRange::new(at, LONGEST.min(end - at));
            state.sequence.push(file.clone(), file.0.state.handle, part);
            at = part.end();
        }
        if at < end {
            state.waiting.push_front(Target::Open(file, ByteRange::new(at, end - at)));
        }
    }

    /// A request is over that has taken so long.
    fn fetched(&self, taken: Duration) {
        let mut state = self.lock();
        state.under_way -= 1;
        let taken = u64::try_from(taken.as_nanos()).unwrap_or(u64::MAX);
        state.mean_ns = match state.mean_ns {
            0 => taken,
            mean => mean - mean / 4 + taken / 4,
        };
        self.changed.notify_all();
    }
}

/// What a path leads to, and the capability to read it. It is not opened: that would say that what is known of it is as of now.
fn find(
    clerk: &Clerk,
    caller: &Arc<Caller>,
    (directory, path): (FileHandle, &[u8]),
    range: Option<ByteRange>,
) -> Result<(FileOf, ByteRange), ClerkError> {
    let entry = clerk.resolve_from(caller, directory, path, true)?;
    if entry.attributes.file_type != FileType::Regular {
        return Err(ClerkError::Manager(ManagerStatus::Invalid));
    }
    let slot = clerk.slot_for(caller, entry.handle, OpenMode::READ)?;
    let state = clerk.core().file(entry.handle);
    let whole = ByteRange::new(0, entry.attributes.size);
    let range = range.map_or(whole, |range| range.intersection(&whole));
    Ok((FileOf(Arc::new(HintedFile { state, slot })), range))
}
