//! The calls in flight of one connection, who waits for which, and who receives.
//!
//! All of it is under one lock, held only for a few instructions at a time. The one delicate thing
//! is a call's buffer: it belongs to a caller that is blocked, or lies beside the call's ticket in
//! a [`super::InFlight`], and another caller, which has the role of the reader, receives into it.
//! Between `claim` and `complete` a call is *claimed*, and its ticket is not dropped before that is
//! over ([`Ticket`] sees to it, even when a caller panics).

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use nasd_rpc::{PendingCalls, ReplyError};

use crate::wire::Patience;
use crate::{BreakReason, Reply, ResultShape};

/// How a call ended.
pub(super) type Outcome = Result<Reply, Failure>;

/// Why a call has no reply. Whether it may have been executed is known to its caller, who knows how
/// much of it was sent.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// The connection can't be used any more.
    Broken(Arc<BreakReason>),
    /// The server answered without results.
    Rejected(ReplyError),
    /// The caller's time is up.
    TimedOut,
}

/// Where a call's bulk data goes. Sent to the thread that receives it; see the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buffer {
    start: *mut u8,
    length: usize,
}

// SAFETY: a `Buffer` is only used by the thread that has claimed the call, and whoever made it has
// promised `Pending::insert` that nobody else uses the memory before the call's ticket is dropped,
// which waits while the call is claimed.
unsafe impl Send for Buffer {}

impl Buffer {
    /// The memory of `into`, which stays where it is when what owns it moves.
    pub(super) fn of(into: &mut [u8]) -> Buffer {
        Buffer { start: into.as_mut_ptr(), length: into.len() }
    }
}

#[derive(Debug)]
enum Progress {
    /// No reply yet.
    Waiting,
    /// No reply yet, and nobody is left who wants it.
    Abandoned,
    /// The reader is receiving the reply.
    Claimed,
    /// The end.
    Done(Outcome),
}

#[derive(Debug)]
struct Entry {
    /// Who waits for the reply, and could take over as the reader; `None` while nobody does.
    waiter: Option<Thread>,
    buffer: Buffer,
    shape: ResultShape,
    progress: Progress,
    kind: Kind,
}

/// A call to be added.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewCall {
    pub(super) buffer: Buffer,
    pub(super) shape: ResultShape,
    pub(super) kind: Kind,
}

/// How a call was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Its caller waits as soon as it has been sent.
    Waited,
    /// Its caller may do anything before it waits: nobody may be receiving meanwhile.
    Begun,
}

#[derive(Debug)]
enum Phase {
    Open,
    /// A call timed out; the others may end, but no new one begins.
    Closing,
    Broken(Arc<BreakReason>),
}

#[derive(Debug)]
struct State {
    calls: PendingCalls<Entry>,
    /// Most calls without a reply at a time.
    limit: usize,
    /// Calls without a reply.
    open: usize,
    /// Those of them that are `Kind::Begun`.
    begun: usize,
    /// Calls that somebody waits for.
    waiters: usize,
    /// Callers that wait until there are fewer calls in flight.
    blocked: Vec<Thread>,
    /// Whether some caller has the role of the reader.
    reading: bool,
    phase: Phase,
    last_end: Instant,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Pending {
    state: Mutex<State>,
}

/// What a waiting caller must do next.
#[derive(Debug)]
pub(super) enum Turn {
    /// Its call has ended.
    Done(Outcome),
    /// Nobody receives: it must, and call [`Pending::stop_reading`] afterwards.
    Read,
}

/// What the reader needs to know of a call whose reply has begun.
#[derive(Debug)]
pub(super) enum Claim<'a> {
    /// The call is claimed: receive the reply, and `complete` it.
    Call(Claimed<'a>),
    /// Its caller gave up: throw the reply away.
    Abandoned,
    /// There never was such a call.
    Unknown,
}

/// A call that the reader has claimed.
#[derive(Debug)]
pub(super) struct Claimed<'a> {
    pending: &'a Pending,
    xid: u32,
    buffer: Buffer,
    pub(super) shape: ResultShape,
}

impl Claimed<'_> {
    /// The caller's buffer for bulk data.
    pub(super) fn buffer(&mut self) -> &mut [u8] {
        // SAFETY: who called `Pending::insert` promised that the memory is there, and is used by
        // nobody else, for as long as the ticket lives; and the ticket outlives the claim: its
        // `wait` and `drop` block while the call is claimed. A call is claimed once.
        unsafe { std::slice::from_raw_parts_mut(self.buffer.start, self.buffer.length) }
    }

    /// Ends the call; its buffer is the caller's again.
    pub(super) fn complete(self, outcome: Outcome) {
        let mut state = self.pending.lock();
        state.end(self.xid, Progress::Done(outcome));
        // The drop has nothing left to do; it would only take the lock again.
        std::mem::forget(self);
    }
}

impl Drop for Claimed<'_> {
    /// The reader failed in the middle of the reply (or panicked): the connection is lost, and the
    /// caller must not wait for ever for its buffer.
    fn drop(&mut self) {
        self.pending.lock().end(self.xid, Progress::Waiting);
    }
}

/// A call in flight, owned by its caller. Dropping it gives the call up. `P` is how it holds on to
/// the table.
#[derive(Debug)]
pub(super) struct Ticket<P: Deref<Target = Pending>> {
    pending: P,
    xid: u32,
    /// Whether the call has been taken out of the table.
    ended: bool,
}

impl Pending {
    pub(super) fn new(max_outstanding: usize) -> Self {
        let state = State {
            // Replies that have come and are not fetched do not count, so the table has no limit.
            calls: PendingCalls::new(first_xid(), usize::MAX),
            limit: max_outstanding,
            open: 0,
            begun: 0,
            waiters: 0,
            blocked: Vec::new(),
            reading: false,
            phase: Phase::Open,
            last_end: Instant::now(),
        };
        Pending { state: Mutex::new(state) }
    }

    /// No code panics while it holds the lock, but if it did, the state would still be whole: each
    /// change is a single assignment.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a call, when there is room for it. While there is none, `make_room` is asked to get
    /// some replies in; where that can't be done now, it answers `false`, and the caller waits.
    /// `check_idle` is asked first when no call is under way, and is told since when.
    ///
    /// # Safety
    ///
    /// Until the ticket is dropped, or for ever if it is not, the memory of the call's buffer must
    /// exist and be used by nobody else.
    pub(super) unsafe fn insert<P: Deref<Target = Pending>>(
        pending: P,
        call: NewCall,
        patience: &Patience,
        check_idle: impl FnOnce(Duration),
        mut make_room: impl FnMut() -> bool,
    ) -> Result<Ticket<P>, Failure> {
        let mut check_idle = Some(check_idle);
        loop {
            let mut state = pending.lock();
            match &state.phase {
                Phase::Open => {}
                Phase::Closing => {
                    return Err(Failure::Broken(Arc::new(BreakReason::ClosedAfterTimeout)));
                }
                Phase::Broken(reason) => return Err(Failure::Broken(Arc::clone(reason))),
            }
            if state.calls.is_empty()
                && !state.reading
                && let Some(check_idle) = check_idle.take()
            {
                let since = state.last_end;
                drop(state);
                check_idle(since.elapsed());
                continue;
            }
            if state.open < state.limit {
                let xid = state.insert(call);
                drop(state);
                return Ok(Ticket { pending, xid, ended: false });
            }
            state.blocked.push(thread::current());
            drop(state);
            let Some(left) = time_left(patience.deadline()) else {
                return Err(Failure::TimedOut);
            };
            if !make_room() {
                thread::park_timeout(left);
            }
        }
    }

    /// Whether calls are under way whose replies nobody may be receiving.
    pub(super) fn has_begun(&self) -> bool {
        self.lock().begun > 0
    }

    /// Takes the role of the reader if it is free; [`Pending::stop_reading`] gives it back.
    pub(super) fn start_reading(&self) -> bool {
        !std::mem::replace(&mut self.lock().reading, true)
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.lock().phase, Phase::Open)
    }

    /// Finds the call that a reply belongs to.
    pub(super) fn claim(&self, xid: u32) -> Claim<'_> {
        let mut state = self.lock();
        let closing = matches!(state.phase, Phase::Closing);
        match state.calls.get_mut(xid) {
            Some(Entry { progress: Progress::Abandoned, .. }) => {
                state.remove(xid);
                Claim::Abandoned
            }
            Some(entry) if matches!(entry.progress, Progress::Waiting) => {
                entry.progress = Progress::Claimed;
                let (buffer, shape) = (entry.buffer, entry.shape);
                Claim::Call(Claimed { pending: self, xid, buffer, shape })
            }
            None if closing => Claim::Abandoned,
            // A second reply to one call is as wrong as a reply to none.
            _ => Claim::Unknown,
        }
    }

    /// Ends every call in flight, and allows no new one. The first reason counts.
    pub(super) fn break_all(&self, reason: BreakReason) -> Arc<BreakReason> {
        let mut state = self.lock();
        if let Phase::Broken(reason) = &state.phase {
            return Arc::clone(reason);
        }
        let reason = Arc::new(reason);
        state.phase = Phase::Broken(Arc::clone(&reason));
        state.wake_everybody();
        reason
    }

    /// Gives the role of the reader to somebody else.
    pub(super) fn stop_reading(&self) {
        let mut state = self.lock();
        state.reading = false;
        state.wake_reader();
    }
}

impl State {
    fn insert(&mut self, call: NewCall) -> u32 {
        let NewCall { buffer, shape, kind } = call;
        let entry = Entry { waiter: None, buffer, shape, progress: Progress::Waiting, kind };
        let Ok(xid) = self.calls.insert(entry) else {
            unreachable!("invariant: a process has no memory for 2^32 calls");
        };
        self.open += 1;
        self.begun += usize::from(kind == Kind::Begun);
        xid
    }

    /// Takes a call out.
    fn remove(&mut self, xid: u32) -> Option<Entry> {
        self.remove_if(xid, |_| true)
    }

    /// Takes a call out if `may_go` says so.
    fn remove_if(&mut self, xid: u32, may_go: impl FnOnce(&Entry) -> bool) -> Option<Entry> {
        let entry = self.calls.remove_if(xid, may_go)?;
        self.waiters -= usize::from(entry.waiter.is_some());
        if !matches!(entry.progress, Progress::Done(_)) {
            self.closed(entry.kind);
        }
        if self.calls.is_empty() {
            self.last_end = Instant::now();
        }
        Some(entry)
    }

    /// A call has got its reply, or will not get one.
    fn closed(&mut self, kind: Kind) {
        self.open -= 1;
        self.begun -= usize::from(kind == Kind::Begun);
        self.wake_blocked();
    }

    /// Ends a claim, and wakes who waits for that.
    fn end(&mut self, xid: u32, progress: Progress) {
        let is_done = matches!(progress, Progress::Done(_));
        let Some(entry) = self.calls.get_mut(xid) else {
            return;
        };
        entry.progress = progress;
        if let Some(waiter) = &entry.waiter {
            waiter.unpark();
        }
        let kind = entry.kind;
        if is_done {
            self.closed(kind);
        }
    }

    /// Notes that this thread waits for a call.
    fn wait_for(&mut self, xid: u32) {
        if let Some(entry) = self.calls.get_mut(xid)
            && entry.waiter.replace(thread::current()).is_none()
        {
            self.waiters += 1;
        }
    }

    /// Somebody who waits for a reply, if nobody is receiving. Where there is none, those who wait for room:
    /// they parked because somebody received, and it comes by replies that nobody waits for.
    fn wake_reader(&mut self) {
        if self.reading {
            return;
        }
        let waiting = |entry: &&mut Entry| {
            entry.waiter.is_some() && matches!(entry.progress, Progress::Waiting)
        };
        let found = (self.waiters > 0).then(|| self.calls.values_mut().find(waiting)).flatten();
        match found {
            Some(Entry { waiter: Some(waiter), .. }) => waiter.unpark(),
            _ => self.wake_blocked(),
        }
    }

    fn wake_everybody(&mut self) {
        for waiter in self.calls.values_mut().filter_map(|entry| entry.waiter.as_ref()) {
            waiter.unpark();
        }
        self.wake_blocked();
    }

    /// All of them: some may have given up since, and must not use up the wake-up of another.
    fn wake_blocked(&mut self) {
        for caller in self.blocked.drain(..) {
            caller.unpark();
        }
    }
}

impl<P: Deref<Target = Pending>> Ticket<P> {
    pub(super) fn xid(&self) -> u32 {
        self.xid
    }

    /// What keeps the table.
    pub(super) fn holder(&self) -> &P {
        &self.pending
    }

    /// The outcome, if the call has ended.
    pub(super) fn poll(&mut self) -> Option<Outcome> {
        let is_done = |entry: &Entry| matches!(entry.progress, Progress::Done(_));
        let entry = self.pending.lock().remove_if(self.xid, is_done)?;
        self.ended = true;
        match entry.progress {
            Progress::Done(outcome) => Some(outcome),
            _ => unreachable!("invariant: nothing else is taken out"),
        }
    }

    /// Waits until the call has ended or nobody else receives.
    pub(super) fn wait(&mut self, deadline: Instant) -> Turn {
        let mut registered = false;
        loop {
            if let Some(outcome) = self.poll() {
                return Turn::Done(outcome);
            }
            let mut guard = self.pending.lock();
            let state = &mut *guard;
            let Some(entry) = state.calls.get_mut(self.xid) else {
                // Only this ticket takes the entry out.
                unreachable!("invariant: a call stays in the table as long as its ticket");
            };
            if matches!(entry.progress, Progress::Done(_)) {
                continue;
            }
            let claimed = matches!(entry.progress, Progress::Claimed);
            if let (Phase::Broken(reason), false) = (&state.phase, claimed) {
                return Turn::Done(Err(Failure::Broken(Arc::clone(reason))));
            }
            if !state.reading && !claimed {
                state.reading = true;
                return Turn::Read;
            }
            if !registered {
                state.wait_for(self.xid);
                registered = true;
            }
            drop(guard);
            match time_left(deadline) {
                Some(left) => thread::park_timeout(left),
                // The reader ends with a claimed call within the peer's time-out.
                None if claimed => thread::park(),
                None => return self.time_out(),
            }
        }
    }

    /// Gives up, unless the reply has come meanwhile.
    pub(super) fn time_out(&mut self) -> Turn {
        if let Some(outcome) = self.poll() {
            return Turn::Done(outcome);
        }
        let mut state = self.pending.lock();
        if matches!(state.phase, Phase::Open) {
            state.phase = Phase::Closing;
            state.wake_blocked();
        }
        Turn::Done(Err(Failure::TimedOut))
    }
}

impl<P: Deref<Target = Pending>> Drop for Ticket<P> {
    /// Takes the call out, as soon as nobody uses its buffer. A reply that is still to come needs
    /// to be known, so that it can be thrown away.
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        loop {
            let mut guard = self.pending.lock();
            let state = &mut *guard;
            let Some(entry) = state.calls.get_mut(self.xid) else {
                return;
            };
            match entry.progress {
                Progress::Claimed => state.wait_for(self.xid),
                Progress::Waiting if matches!(state.phase, Phase::Open) => {
                    entry.progress = Progress::Abandoned;
                    state.waiters -= usize::from(entry.waiter.take().is_some());
                    state.wake_reader();
                    return;
                }
                _ => {
                    state.remove(self.xid);
                    state.wake_reader();
                    return;
                }
            }
            drop(guard);
            thread::park();
        }
    }
}

/// Where to begin counting. Not secret, but an old connection's replies should not fit a new one.
fn first_xid() -> u32 {
    let nanoseconds = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |age| age.subsec_nanos());
    nanoseconds.rotate_left(16)
}

fn time_left(deadline: Instant) -> Option<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    (!left.is_zero()).then_some(left)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    const NEW: NewCall = NewCall {
        buffer: Buffer { start: std::ptr::dangling_mut(), length: 0 },
        shape: ResultShape::Plain,
        kind: Kind::Begun,
    };

    fn insert<P: Deref<Target = Pending>>(
        pending: P,
        make_room: impl FnMut() -> bool,
    ) -> Result<Ticket<P>, Failure> {
        let patience = Patience::from_now(Duration::from_secs(60));
        // SAFETY: the buffer has no bytes.
        unsafe { Pending::insert(pending, NEW, &patience, |_| (), make_room) }
    }

    /// The calls in flight are of callers who do not wait for them.
    #[test]
    fn who_waits_for_room_receives_when_the_reader_stops() {
        let pending = Arc::new(Pending::new(1));
        let first = insert(Arc::clone(&pending), || false).unwrap();
        assert!(pending.start_reading());
        let tries = AtomicU32::new(0);
        let begun = Instant::now();
        thread::scope(|scope| {
            let second = scope.spawn(|| {
                insert(Arc::clone(&pending), || {
                    tries.fetch_add(1, Ordering::SeqCst);
                    if !pending.start_reading() {
                        return false;
                    }
                    let Claim::Call(claimed) = pending.claim(first.xid()) else { return false };
                    claimed.complete(Err(Failure::TimedOut));
                    pending.stop_reading();
                    true
                })
            });
            while tries.load(Ordering::SeqCst) == 0 {
                thread::yield_now();
            }
            thread::sleep(Duration::from_millis(50));
            pending.stop_reading();
            assert!(second.join().unwrap().is_ok());
        });
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    }
}
