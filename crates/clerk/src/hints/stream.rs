//! One stream of hints: what is known of it, and what there is to do next.
//!
//! Whoever holds the stream may lock a file, and the room of all streams, and not the other way round.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nasd_types::{ByteRange, DriveId};

use super::listeners::Listeners;
use super::sequence::{Batch, Call, Released, Sequence, Taken};
use super::{Answer, Fetch, FileOf, Room, Target, Told, Work, ahead};
use crate::ClerkError;
use crate::hinted::Begun;
use crate::wire::FileHandle;

/// Requests of a stream that are under way at most.
const MOST_UNDER_WAY: usize = 4;

/// Names that are looked up side by side, and that are known out of order, at most.
const MOST_FINDS: usize = 8;
const MOST_FOUND: usize = 128;

/// Of many that wait so many are looked up one after the other, at most: most are known here, and cost less than a thread's turn.
const FINDS_AT_ONCE: usize = MOST_FOUND / MOST_FINDS;

/// Where requests take so long, drives are told what comes next: they have more to do at once.
const SLOW: Duration = Duration::from_millis(3);

/// A drive that did not take all of a call is told it again after this long.
const AGAIN: Duration = Duration::from_millis(500);

/// Others do not wait for longer than this for a drive that is being told something: it does not hear of what comes meanwhile.
const PATIENCE: Duration = Duration::from_secs(1);

/// Whoever waits looks around at least this often.
const LOOK_AROUND: Duration = Duration::from_millis(500);

/// What was told is looked up, in any order, and taken up in the order in which it was told.
enum Finding {
    UnderWay(u64),
    /// Nothing if there is no such file.
    Known(Option<(FileOf, ByteRange)>),
}

/// Calls for one drive that wait, in order.
#[derive(Default)]
struct Line {
    calls: VecDeque<Told>,
    /// Of the first one the drive has not taken all: it is told again then.
    again: Option<Instant>,
}

struct State {
    waiting: VecDeque<Target>,
    /// Bytes of the paths that wait.
    path_bytes: usize,
    findings: VecDeque<Finding>,
    /// How many of them are under way, and the number of the next one.
    finds: usize,
    next_find: u64,
    last_find: Instant,
    sequence: Sequence<FileOf, FileHandle>,
    /// Longer parts of a file are hinted in parts.
    longest: u64,
    under_way: usize,
    /// How long requests have taken, in nanoseconds; 0 before the first one.
    mean_ns: u64,
    /// Who was told what, and how far the stream was then.
    listeners: Listeners<FileOf>,
    /// Drives that take no hints.
    deaf: HashSet<DriveId>,
    /// Drives that are being told something, and since when; each one thing at a time, so that what is told later comes later.
    telling: HashMap<DriveId, Instant>,
    /// What waits for that, or was not taken. What is told is not far ahead of what is fetched, so that there are not many.
    lines: HashMap<DriveId, Line>,
    is_over: bool,
}

/// What reads find of a stream.
pub(crate) struct HintStream {
    pub(super) id: u64,
    room: Arc<Room>,
    state: Mutex<State>,
    pub(super) changed: Condvar,
}

/// What was fetched is over.
fn release(held: Vec<Released<FileOf>>) {
    for Released { file, range, piece } in held {
        if let Some(piece) = piece {
            file.0.state.lock().hinted.over(range.offset, piece);
        }
    }
}

impl HintStream {
    pub(super) fn new(id: u64, room: &Arc<Room>) -> HintStream {
        let state = State {
            waiting: VecDeque::new(),
            path_bytes: 0,
            findings: VecDeque::new(),
            finds: 0,
            next_find: 0,
            last_find: Instant::now(),
            sequence: Sequence::new(room.most()),
            longest: room.longest(),
            under_way: 0,
            mean_ns: 0,
            listeners: Listeners::new(),
            deaf: HashSet::new(),
            telling: HashMap::new(),
            lines: HashMap::new(),
            is_over: false,
        };
        let room = Arc::clone(room);
        HintStream { id, room, state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each method of the sequence leaves it whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This will be read after all that was told before; the paths have so many bytes.
    pub(super) fn add(
        &self,
        targets: impl Iterator<Item = Target>,
        path_bytes: usize,
    ) -> Result<(), ClerkError> {
        let mut state = self.lock();
        if state.left() >= self.room.known()
            || state.path_bytes + path_bytes > self.room.path_bytes()
        {
            return Err(ClerkError::TooManyHints);
        }
        state.path_bytes += path_bytes;
        state.waiting.extend(targets);
        // Now, and not by the stream's thread: what is read next must find it known.
        state.take_up(self.room.known());
        let is_due = state.is_find_due(self.room.known(), Instant::now());
        let is_work = is_due || self.may_fetch(&state) || state.is_slow();
        self.wake_if(state, is_work);
        Ok(())
    }

    /// Hints that are known and not over.
    pub(super) fn left(&self) -> usize {
        self.lock().left()
    }

    /// Nothing more will be read.
    pub(super) fn end(&self) {
        let (held, freed) = {
            let mut state = self.lock();
            state.is_over = true;
            state.waiting.clear();
            state.findings.clear();
            state.lines.clear();
            let freed = state.sequence.held();
            (state.sequence.end(), freed)
        };
        self.changed.notify_all();
        release(held);
        self.room.give_back(freed);
    }

    /// Somebody has read a part of a file; no file may be locked.
    pub(crate) fn note_read(&self, handle: FileHandle, range: ByteRange) {
        self.note(|sequence| sequence.note_read(&handle, range));
    }

    /// Somebody had all that he wanted of a file from a cache in front of this clerk; no file may be locked.
    pub(crate) fn note_had(&self, handle: FileHandle) {
        self.note(|sequence| sequence.note_had(&handle));
    }

    fn note(&self, note: impl FnOnce(&mut Sequence<FileOf, FileHandle>) -> Vec<Released<FileOf>>) {
        let (released, freed) = {
            let mut state = self.lock();
            let before = state.sequence.held();
            let released = note(&mut state.sequence);
            let freed = before - state.sequence.held();
            let is_of_use = !released.is_empty() || state.sequence.has_strays();
            let is_work = is_of_use && self.may_fetch(&state);
            self.wake_if(state, is_work);
            (released, freed)
        };
        release(released);
        self.room.give_back(freed);
    }

    /// Whether there may be something to fetch. While as many requests are under way as may be, those who do them go on.
    fn may_fetch(&self, state: &State) -> bool {
        state.under_way < state.most_under_way() && state.sequence.has_room(self.room.share())
    }

    /// Has the stream's thread look for what there is to do. It would only wait for a lock that is held still.
    fn wake_if(&self, state: MutexGuard<'_, State>, is_work: bool) {
        drop(state);
        if is_work {
            self.changed.notify_all();
        }
    }

    /// What to do next; `None` once the stream is over.
    pub(super) fn next_work(&self) -> Option<Work> {
        let mut state = self.lock();
        loop {
            if state.is_over {
                return None;
            }
            state.take_up(self.room.known());
            self.trim(&mut state);
            let fetch = self.next_fetch(&mut state).map(Work::Fetch);
            let now = Instant::now();
            let work = fetch.or_else(|| state.next_to_tell(now));
            if let Some(work) = work.or_else(|| state.next_find(self.room.known(), now)) {
                return Some(work);
            }
            let waited = self.changed.wait_timeout(state, LOOK_AROUND);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Gives back what is more than the stream's share, which has become smaller.
    fn trim(&self, state: &mut State) {
        let before = state.sequence.held();
        let released = state.sequence.trim(self.room.share());
        release(released);
        self.room.give_back(before - state.sequence.held());
    }

    fn next_fetch(&self, state: &mut State) -> Option<Fetch> {
        if state.under_way >= state.most_under_way() {
            return None;
        }
        let sequence = &mut state.sequence;
        let Taken { file, ranges, positions } = self.room.take(sequence.held(), |limit| {
            let taken = sequence.next_batch(limit);
            (taken, sequence.held())
        })?;
        state.under_way += 1;
        let batch = Batch { file, ranges };
        // Before it is over: what is over when it comes is not kept.
        let begun = ahead::begin(&batch);
        let pieces = begun.iter().map(|begun| begun.map(|begun| begun.id));
        sequence.note_pieces(positions.into_iter().zip(pieces));
        let new = |(range, begun): (&ByteRange, Option<Begun>)| {
            let begun = begun.filter(|begun| begun.is_new)?;
            Some((*range, begun.id))
        };
        let wanted = batch.ranges.iter().zip(begun).filter_map(new).collect();
        Some(Fetch { batch, wanted })
    }

    /// What was looked up together is this, each by its number, if there is any.
    pub(super) fn found(self: &Arc<Self>, found: Vec<(u64, Option<(FileOf, ByteRange)>)>) {
        for (file, _) in found.iter().filter_map(|(_, found)| found.as_ref()) {
            file.0.state.lock().watch(self);
        }
        let mut state = self.lock();
        state.finds -= 1;
        for (number, found) in found {
            let is_it =
                |finding: &&mut Finding| matches!(finding, Finding::UnderWay(it) if *it == number);
            if let Some(finding) = state.findings.iter_mut().find(is_it) {
                *finding = Finding::Known(found);
            }
        }
        self.wake_if(state, true);
    }

    pub(super) fn is_over(&self) -> bool {
        self.lock().is_over
    }

    /// A request is over that has taken so long, if a drive was asked at all. What to fetch next, by whoever has done it: another
    /// thread would cost a turn.
    pub(super) fn fetched(&self, taken: Option<Duration>) -> Option<Fetch> {
        let mut state = self.lock();
        state.under_way -= 1;
        let is_first = state.mean_ns == 0;
        if let Some(taken) = taken {
            let taken = u64::try_from(taken.as_nanos()).unwrap_or(u64::MAX);
            state.mean_ns = match state.mean_ns {
                0 => taken.max(1),
                mean => mean - mean / 4 + taken / 4,
            };
        }
        let next = if state.is_over { None } else { self.next_fetch(&mut state) };
        // There may be room for more requests, something to tell, or to look up.
        let is_due = state.is_find_due(self.room.known(), Instant::now());
        let is_work = is_first || state.is_slow() || is_due;
        self.wake_if(state, is_work);
        next
    }

    /// A drive was told something, and that is what became of it. Returns by which calls the end of the stream is still to be told.
    pub(super) fn was_told(&self, told: Told, answer: &Answer) -> Vec<Arc<Batch<FileOf>>> {
        let mut state = self.lock();
        let (drive, how_far) = (told.drive(), (told.progress, Instant::now()));
        state.telling.remove(&drive);
        match answer {
            Answer::Deaf => {
                state.deaf.insert(drive);
                state.lines.remove(&drive);
            }
            Answer::Heard { by, is_taken } => {
                state.listeners.heard(drive, by, &told.hints, how_far);
                state.note_taken(told, *is_taken);
            }
            Answer::Lost => {
                state.listeners.may_have_heard(drive, &told.hints, how_far);
                state.note_taken(told, true);
            }
        }
        let rest = match state.is_over {
            true => state.listeners.take(|way| way == drive),
            false => Vec::new(),
        };
        self.wake_if(state, true);
        rest
    }

    /// Calls to all drives that were told anything, but for those that are being told something: whoever does tells them
    /// the end.
    pub(super) fn take_told(&self) -> Vec<Arc<Batch<FileOf>>> {
        let state = &mut *self.lock();
        let telling = &state.telling;
        state.listeners.take(|drive| !telling.contains_key(&drive))
    }
}

impl State {
    /// A drive has taken all of a call, or is to be told it again.
    fn note_taken(&mut self, told: Told, is_taken: bool) {
        if !told.is_hint || self.is_over {
            return;
        }
        let line = self.lines.entry(told.drive()).or_default();
        line.again = (!is_taken).then(|| Instant::now() + AGAIN);
        if !is_taken {
            line.calls.push_front(told);
        }
    }

    fn left(&self) -> usize {
        self.waiting.len() + self.findings.len() + self.sequence.left()
    }

    /// How slow drives are is known when the first request is over.
    fn most_under_way(&self) -> usize {
        if self.mean_ns == 0 { 1 } else { MOST_UNDER_WAY }
    }

    /// Drives that are quick need not know before they are asked.
    fn is_slow(&self) -> bool {
        self.mean_ns > SLOW.as_nanos() as u64
    }

    /// Takes up what is known, in its order, as far as so many may be known: what was found, and what need not be looked up.
    fn take_up(&mut self, most: usize) {
        while self.sequence.len() < most {
            match (self.findings.front(), self.waiting.front()) {
                (Some(Finding::Known(_)), _) => self.take_up_found(most),
                (_, Some(Target::Open(..))) if self.findings.len() < MOST_FOUND => {
                    if let Some(Target::Open(file, range)) = self.waiting.pop_front() {
                        self.findings.push_back(Finding::Known(Some((file, range))));
                    }
                }
                _ => break,
            }
        }
    }

    /// Takes up the first one that was found: it is cut into parts, as far as so many may be known.
    fn take_up_found(&mut self, most: usize) {
        let Some(Finding::Known(Some((file, range)))) = self.findings.pop_front() else { return };
        let (mut at, end) = (range.offset, range.end());
        while at < end && self.sequence.len() < most {
            let part = ByteRange::new(at, self.longest.min(end - at));
            self.sequence.push(file.clone(), file.0.state.handle, part);
            at = part.end();
        }
        if at < end {
            let rest = (file, ByteRange::new(at, end - at));
            self.findings.push_front(Finding::Known(Some(rest)));
        }
    }

    /// Whether what is next to be looked up had better be known soon. If not, some are looked up at once.
    fn is_find_urgent(&self, now: Instant) -> bool {
        let is_little = self.findings.len() + self.sequence.ahead() < MOST_FOUND;
        is_little || self.is_slow() || now.duration_since(self.last_find) >= LOOK_AROUND
    }

    fn is_find_due(&self, most: usize, now: Instant) -> bool {
        let has_room = self.findings.len() < MOST_FOUND && self.sequence.len() < most;
        let least = if self.is_find_urgent(now) { 1 } else { FINDS_AT_ONCE };
        has_room && self.finds < MOST_FINDS && self.waiting.len() >= least
    }

    /// What to look up next.
    fn next_find(&mut self, most: usize, now: Instant) -> Option<Work> {
        if !self.is_find_due(most, now) {
            return None;
        }
        let most = match self.is_find_urgent(now) {
            true => (self.waiting.len() / MOST_FINDS).clamp(1, FINDS_AT_ONCE),
            false => FINDS_AT_ONCE,
        };
        self.last_find = now;
        let mut places = Vec::new();
        while places.len() < most
            && let Some(Target::Path(place)) =
                self.waiting.pop_front_if(|next| matches!(next, Target::Path(_)))
        {
            self.path_bytes -= place.1.len();
            self.findings.push_back(Finding::UnderWay(self.next_find));
            places.push((self.next_find, place));
            self.next_find += 1;
        }
        if places.is_empty() {
            return None;
        }
        self.finds += 1;
        Some(Work::Find(places))
    }

    /// What to tell a drive next, of whatever kind.
    fn next_to_tell(&mut self, now: Instant) -> Option<Work> {
        let told = self.next_of_lines(now).or_else(|| self.next_call(now));
        let told = told.or_else(|| self.next_news(now))?;
        let (drive, progress) = (told.drive(), self.sequence.progress());
        self.telling.insert(drive, now);
        let news = progress.since(self.listeners.known_by(drive));
        Some(Work::Tell(Told { progress, news, ..told }))
    }

    /// What has waited for its drive; what is over meanwhile need not be told.
    fn next_of_lines(&mut self, now: Instant) -> Option<Told> {
        let passed = self.sequence.progress().passed;
        for (drive, line) in &mut self.lines {
            while line.calls.pop_front_if(|told| told.ordinal < passed).is_some() {
                line.again = None;
            }
            if self.telling.contains_key(drive) || line.again.is_some_and(|again| now < again) {
                continue;
            }
            if let Some(told) = line.calls.pop_front() {
                return Some(told);
            }
        }
        None
    }

    /// What a drive is to be told of what will be read.
    fn next_call(&mut self, now: Instant) -> Option<Told> {
        if !self.is_slow() {
            return None;
        }
        while let Some(told) = self.next_hints() {
            let drive = told.drive();
            if self.deaf.contains(&drive) {
                continue;
            }
            let since = self.telling.get(&drive);
            if since.is_some_and(|since| now.duration_since(*since) > PATIENCE) {
                continue;
            }
            let line = self.lines.entry(drive).or_default();
            if since.is_none() && line.calls.is_empty() {
                return Some(told);
            }
            line.calls.push_back(told);
        }
        None
    }

    fn next_hints(&mut self) -> Option<Told> {
        let Call { hints, ordinal } = self.sequence.next_call()?;
        Some(Told::new(hints, ordinal, true))
    }

    /// A drive that has not heard for long how far the stream is.
    fn next_news(&mut self, now: Instant) -> Option<Told> {
        let (telling, far) = (&self.telling, (self.sequence.progress(), now));
        let hints = self.listeners.next_due(|drive| telling.contains_key(&drive), far)?;
        Some(Told::new(hints, 0, false))
    }
}
