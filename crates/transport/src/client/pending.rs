//! The calls in flight of one connection, who waits for which, and who receives.
//!
//! All of it is under one lock, held only for a few instructions at a time. The one delicate thing
//! is a call's buffer: it belongs to a caller that is blocked, and another caller, which has the
//! role of the reader, receives into it. Between `claim` and `complete` a call is *claimed*, and
//! its caller does not return before that is over ([`Ticket`] sees to it, even when a caller
//! panics).

use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use nasd_rpc::{PendingCalls, ReplyError};

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
struct Buffer {
    start: *mut u8,
    length: usize,
}

// SAFETY: a `Buffer` is only used by the thread that has claimed the call, while the one that owns
// the memory is blocked in `Ticket::wait` or `Ticket::drop`.
unsafe impl Send for Buffer {}

#[derive(Debug)]
enum Progress {
    /// No reply yet.
    Waiting,
    /// The reader is receiving the reply.
    Claimed,
    /// The end.
    Done(Outcome),
}

#[derive(Debug)]
struct Entry {
    caller: Thread,
    /// Whether the caller has sent its call and could take over as the reader.
    waits: bool,
    buffer: Buffer,
    shape: ResultShape,
    progress: Progress,
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
        // SAFETY: the memory is that of the `&mut [u8]` given to `Pending::insert`, which outlives
        // the ticket, and the ticket outlives the claim: its `wait` and `drop` block while the call
        // is claimed. Nobody else uses it: the caller is blocked, and a call is claimed once.
        unsafe { std::slice::from_raw_parts_mut(self.buffer.start, self.buffer.length) }
    }

    /// Ends the call; its buffer is the caller's again.
    pub(super) fn complete(self, outcome: Outcome) {
        let mut state = self.pending.lock();
        if let Some(entry) = state.calls.get_mut(self.xid) {
            entry.progress = Progress::Done(outcome);
            entry.caller.unpark();
        }
        // The drop has nothing left to do; it would only take the lock again.
        std::mem::forget(self);
    }
}

impl Drop for Claimed<'_> {
    /// The reader failed in the middle of the reply (or panicked): the connection is lost, and the
    /// caller must not wait for ever for its buffer.
    fn drop(&mut self) {
        let mut state = self.pending.lock();
        if let Some(entry) = state.calls.get_mut(self.xid) {
            entry.progress = Progress::Waiting;
            entry.caller.unpark();
        }
    }
}

/// A call in flight, owned by its caller. Dropping it gives the call up.
#[derive(Debug)]
pub(super) struct Ticket<'a> {
    pending: &'a Pending,
    xid: u32,
    /// The caller's buffer is lent for as long as the ticket lives.
    _buffer: PhantomData<&'a mut [u8]>,
}

impl Pending {
    pub(super) fn new(max_outstanding: usize) -> Self {
        let state = State {
            calls: PendingCalls::new(first_xid(), max_outstanding),
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

    /// Adds a call, when there is room for it.
    pub(super) fn insert<'a>(
        &'a self,
        into: &'a mut [u8],
        shape: ResultShape,
        deadline: Instant,
    ) -> Result<Ticket<'a>, Failure> {
        let buffer = Buffer { start: into.as_mut_ptr(), length: into.len() };
        let caller = thread::current();
        let mut entry = Entry { caller, waits: false, buffer, shape, progress: Progress::Waiting };
        loop {
            let mut state = self.lock();
            match &state.phase {
                Phase::Open => {}
                Phase::Closing => {
                    return Err(Failure::Broken(Arc::new(BreakReason::ClosedAfterTimeout)));
                }
                Phase::Broken(reason) => return Err(Failure::Broken(Arc::clone(reason))),
            }
            match state.calls.insert(entry) {
                Ok(xid) => {
                    return Ok(Ticket { pending: self, xid, _buffer: PhantomData });
                }
                Err(back) => entry = back,
            }
            state.blocked.push(entry.caller.clone());
            drop(state);
            let Some(left) = time_left(deadline) else {
                return Err(Failure::TimedOut);
            };
            thread::park_timeout(left);
        }
    }

    /// For how long no call has been in flight; `None` if one is, or none may begin.
    pub(super) fn idle_for(&self) -> Option<Duration> {
        let state = self.lock();
        let idle = state.calls.is_empty() && !state.reading && matches!(state.phase, Phase::Open);
        idle.then(|| state.last_end.elapsed())
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.lock().phase, Phase::Open)
    }

    /// Finds the call that a reply belongs to.
    pub(super) fn claim(&self, xid: u32) -> Claim<'_> {
        let mut state = self.lock();
        let closing = matches!(state.phase, Phase::Closing);
        match state.calls.get_mut(xid) {
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
    /// Somebody who waits for a reply, if nobody is receiving.
    fn wake_reader(&mut self) {
        if self.reading {
            return;
        }
        let waiting =
            |entry: &&mut Entry| entry.waits && matches!(entry.progress, Progress::Waiting);
        if let Some(entry) = self.calls.values_mut().find(waiting) {
            entry.caller.unpark();
        }
    }

    fn wake_everybody(&mut self) {
        for entry in self.calls.values_mut() {
            entry.caller.unpark();
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

impl Ticket<'_> {
    pub(super) fn xid(&self) -> u32 {
        self.xid
    }

    /// Waits until the call has ended or nobody else receives.
    pub(super) fn wait(&self, deadline: Instant) -> Turn {
        loop {
            let mut guard = self.pending.lock();
            let state = &mut *guard;
            let Some(entry) = state.calls.get_mut(self.xid) else {
                // Only this ticket's drop takes the entry out.
                unreachable!("invariant: a call stays in the table as long as its ticket");
            };
            entry.waits = true;
            let claimed = matches!(entry.progress, Progress::Claimed);
            if matches!(entry.progress, Progress::Done(_)) {
                return Turn::Done(self.take(guard));
            }
            if let (Phase::Broken(reason), false) = (&state.phase, claimed) {
                return Turn::Done(Err(Failure::Broken(Arc::clone(reason))));
            }
            if !state.reading && !claimed {
                state.reading = true;
                return Turn::Read;
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
    pub(super) fn time_out(&self) -> Turn {
        let mut state = self.pending.lock();
        if matches!(state.phase, Phase::Open) {
            state.phase = Phase::Closing;
            state.wake_blocked();
        }
        match state.calls.get_mut(self.xid).map(|entry| &entry.progress) {
            Some(Progress::Done(_)) => Turn::Done(self.take(state)),
            _ => Turn::Done(Err(Failure::TimedOut)),
        }
    }

    fn take(&self, mut state: MutexGuard<'_, State>) -> Outcome {
        match state.calls.get_mut(self.xid).map(|entry| &mut entry.progress) {
            Some(progress @ Progress::Done(_)) => {
                match std::mem::replace(progress, Progress::Waiting) {
                    Progress::Done(outcome) => outcome,
                    _ => unreachable!("invariant: it was matched one line above"),
                }
            }
            _ => unreachable!("invariant: callers have seen that it is done"),
        }
    }
}

impl Drop for Ticket<'_> {
    /// Takes the call out, as soon as nobody uses its buffer.
    fn drop(&mut self) {
        loop {
            let mut state = self.pending.lock();
            let claimed = state
                .calls
                .get_mut(self.xid)
                .is_some_and(|entry| matches!(entry.progress, Progress::Claimed));
            if !claimed {
                state.calls.remove(self.xid);
                state.last_end = Instant::now();
                state.wake_reader();
                state.wake_blocked();
                return;
            }
            drop(state);
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
