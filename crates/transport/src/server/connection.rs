//! One connection of a server: leader and followers.
//!
//! One thread at a time, the leader, has the *turn*: it receives one whole call, and executes it at
//! once and goes on, or begins it if it can wait together with others (see `begun`). When it has to
//! wait, for a call or for those it has begun, it gives the turn to a follower first if more has come.
//! When nothing more has come it lays the turn down, to take it up again afterwards; should something
//! come meanwhile, a follower is given it (see `watch`). So a connection whose calls never wait, or
//! come one by one, or wait together, has one thread, without any hand-over; followers are started
//! when they are needed and end when they are not. Replies go out in the order of completion.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use super::begun::Begun;
use super::lines::{Kind, Lines};
use super::registry::{Member, Place};
use super::reply::Outbox;
use super::request::{Received, Request, ServerSource, receive_request};
use super::service::{Answer, Attempt, Call, Peer, Service, Waits};
use super::standing::Next;
use super::watch::{Watch, Watched};
use super::{Presence, ServerOptions};
use crate::AcceptStatus;
use crate::record::{Ahead, ReadError, RecordReader};
use crate::threads::{STACK_BYTES, Threads};
use crate::wire::{Patience, Wire, wait_unless_closed};

/// A connection is watched until its turn was found in use so many times in a row. To ask for it anew costs
/// about as much as a few looks.
const QUIET_LOOKS: u32 = 16;

/// The turn may have lain since the same time at so many looks before a follower is given it. Calls
/// that wait together end one after the other, so that their leader is back before long.
const LOOKS_ALONE: u32 = 1;
const LOOKS_TOGETHER: u32 = 4;

/// At which look a follower is given a turn that lies, though nothing has come: 32 ms. Who waits so long, as for
/// news of a session, mostly waits far longer, and nobody need look all the while.
const LOOKS_AT_MOST: u32 = 64;

/// A follower that has had nothing to do for so long ends.
const FOLLOWER_IDLE: Duration = Duration::from_secs(10);

/// How far ahead a connection is read where many small calls come at once: peers that never read
/// their replies hold no more of the server's memory than this each.
const READ_AHEAD_BYTES: usize = 16 << 10;

/// What the leader has and hands on.
struct Lead<S: Service> {
    records: RecordReader,
    outbox: Outbox<S::Segment>,
    /// A vector to receive the next call into.
    spare: Vec<u8>,
    /// A call that may wait alone, and has not been executed.
    alone: Option<Request<S::Payload>>,
}

impl<S: Service> Lead<S> {
    /// Whether something has to be seen to before the next call is received: one that waits alone, or
    /// those that were begun, if there is no other to begin at once.
    fn cannot_go_on(&self, has_begun: bool) -> bool {
        self.alone.is_some() || (has_begun && !self.records.has_buffered_record())
    }
}

struct Turn<S: Service> {
    /// `None` while a leader has it.
    lead: Option<Box<Lead<S>>>,
    /// Where the turn was laid down by a leader that will be back: what a follower needs if it is
    /// started. Never while nobody will be back.
    laid_down: Option<Arc<Place>>,
    /// At how many looks more it must be found so.
    looks: u32,
    /// At how many it was found so.
    lain: u32,
    /// How often it has looked since without finding the turn laid down, while it looks at all.
    looked: Option<u32>,
    threads: usize,
    waiting: usize,
    ended: bool,
}

/// See the module.
pub(super) struct Connection<S: Service> {
    this: Weak<Self>,
    service: Arc<S>,
    options: Arc<ServerOptions>,
    peer: Peer,
    wire: Arc<Wire>,
    turn: Mutex<Turn<S>>,
    turn_free: Condvar,
    /// Locked by whoever sends.
    sending: Mutex<()>,
    member: Arc<Member>,
    watch: Arc<Watch>,
    lines: Arc<Lines>,
    threads: Arc<Threads>,
}

/// How a leader's work ended.
enum Step {
    /// The turn was given away: wait for it again.
    Follow,
    /// The connection has ended.
    End,
}

impl<S: Service> Connection<S> {
    pub(super) fn new(
        service: Arc<S>,
        options: Arc<ServerOptions>,
        peer: Peer,
        wire: Arc<Wire>,
        member: Arc<Member>,
        watch: Arc<Watch>,
        (lines, threads): (Arc<Lines>, Arc<Threads>),
    ) -> Arc<Self> {
        let lead = Lead {
            records: RecordReader::new(options.max_record_bytes, READ_AHEAD_BYTES),
            outbox: Outbox::new(),
            spare: Vec::new(),
            alone: None,
        };
        let turn = Turn {
            lead: Some(Box::new(lead)),
            laid_down: None,
            looks: 0,
            lain: 0,
            looked: None,
            threads: 1,
            waiting: 0,
            ended: false,
        };
        Arc::new_cyclic(|this| Connection {
            this: Weak::clone(this),
            service,
            options,
            peer,
            wire,
            turn: Mutex::new(turn),
            turn_free: Condvar::new(),
            sending: Mutex::new(()),
            member,
            watch,
            lines,
            threads,
        })
    }

    /// Serves until the connection ends and its last thread with it: all but the last return early.
    /// The caller is the first thread. `place` is given back by the last one.
    pub(super) fn run(self: Arc<Self>, place: Arc<Place>) {
        while let Some(lead) = self.take_turn() {
            match catch_unwind(AssertUnwindSafe(|| self.lead(lead, &place))) {
                Ok(Step::Follow) => {}
                Ok(Step::End) => self.end(),
                Err(_) => {
                    tracing::error!(peer = %self.peer.address, "closed: a thread panicked");
                    self.end();
                    self.wire.close();
                }
            }
        }
        let mut turn = self.lock_turn();
        turn.threads -= 1;
        let is_last = turn.threads == 0;
        drop(turn);
        if is_last {
            self.wire.close();
        }
        // In this order: who waits for the places then finds the service no longer in use, but for a
        // moment by the watch.
        drop(self);
        drop(place);
    }

    /// A panic in a service is caught where it happens, and the state below is whole at any time.
    fn lock_turn(&self) -> MutexGuard<'_, Turn<S>> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits to become the leader; `None` when this thread is not needed.
    fn take_turn(&self) -> Option<Box<Lead<S>>> {
        let mut turn = self.lock_turn();
        loop {
            if turn.ended {
                return None;
            }
            if let Some(lead) = turn.lead.take() {
                turn.laid_down = None;
                return Some(lead);
            }
            turn.waiting += 1;
            let (back, timeout) = self
                .turn_free
                .wait_timeout(turn, FOLLOWER_IDLE)
                .unwrap_or_else(PoisonError::into_inner);
            turn = back;
            turn.waiting -= 1;
            // Not the last thread: some other has the turn, or will be back for it.
            if timeout.timed_out() && turn.lead.is_none() && turn.threads > 1 {
                return None;
            }
        }
    }

    /// Lets another thread receive.
    fn give_turn(self: &Arc<Self>, lead: Box<Lead<S>>, place: &Arc<Place>) {
        let mut turn = self.lock_turn();
        turn.lead = Some(lead);
        self.call_follower(turn, place);
    }

    /// Has a follower take the turn. Starts one if none waits, up to the limit.
    fn call_follower(self: &Arc<Self>, mut turn: MutexGuard<'_, Turn<S>>, place: &Arc<Place>) {
        if turn.waiting > 0 {
            drop(turn);
            self.turn_free.notify_one();
            return;
        }
        if turn.threads >= self.options.max_outstanding {
            return;
        }
        turn.threads += 1;
        drop(turn);
        let connection = Arc::clone(self);
        let place = Arc::clone(place);
        if let Err(error) = self.threads.run(move || connection.run(place)) {
            self.lines.write(Kind::System, || {
                tracing::warn!(%error, "no thread for a follower: calls wait for one another");
            });
            self.lock_turn().threads -= 1;
        }
    }

    /// Lays the turn down while this thread waits; whoever sees that something has come takes it.
    fn lay_down_turn(&self, lead: Box<Lead<S>>, place: &Arc<Place>, looks: u32) {
        let mut turn = self.lock_turn();
        turn.lead = Some(lead);
        turn.laid_down = Some(Arc::clone(place));
        (turn.looks, turn.lain) = (looks, 0);
        let is_watched = turn.looked.replace(0).is_some();
        drop(turn);
        if !is_watched {
            // In two steps, since a `Weak` of a trait's object is made of one of the type.
            let this: Weak<Self> = Weak::clone(&self.this);
            self.watch.add(this);
        }
    }

    /// Takes the turn up again, if nobody has it.
    fn take_up_turn(&self) -> Option<Box<Lead<S>>> {
        let mut turn = self.lock_turn();
        turn.laid_down = None;
        if turn.ended { None } else { turn.lead.take() }
    }

    fn presence(&self) -> Presence<'_> {
        Presence::of(&self.wire, &self.member)
    }

    fn end(&self) {
        self.lock_turn().ended = true;
        self.turn_free.notify_all();
    }

    /// Receives and executes calls until the turn is given away.
    fn lead(self: &Arc<Self>, mut lead: Box<Lead<S>>, place: &Arc<Place>) -> Step {
        let mut begun = Begun::new(&*self.service);
        loop {
            while begun.is_full() || lead.cannot_go_on(!begun.is_empty()) {
                match self.go_on(lead, &mut begun, place) {
                    Ok(back) => lead = back,
                    Err(step) => return step,
                }
            }
            let must_send = lead.outbox.is_full() || !lead.records.has_buffered_record();
            if must_send && !self.send(&mut lead.outbox) {
                return Step::End;
            }
            let next = self.member.standing.next();
            if next != Next::Receive && !self.hold_back(next, &mut lead, &mut begun) {
                return Step::End;
            }
            let request = match self.receive(&mut lead) {
                Ok(Received::Call(request)) => request,
                Ok(Received::Refused(reply)) => {
                    self.member.standing.note_unproved();
                    lead.outbox.push_head(&reply);
                    continue;
                }
                Ok(Received::End) => return Step::End,
                Err(error) => {
                    self.log(&error);
                    // What was received is answered all the same.
                    self.answer_all(&mut begun, &mut lead.outbox);
                    return Step::End;
                }
            };
            self.dispatch(request, &mut lead, &mut begun);
        }
    }

    /// Answers what was received, and waits before more is, or closes the connection: `false`.
    fn hold_back(&self, next: Next, lead: &mut Lead<S>, begun: &mut Begun<'_, S>) -> bool {
        if !self.answer_all(begun, &mut lead.outbox) {
            return false;
        }
        match next {
            Next::Receive => true,
            Next::Wait(patience) => wait_unless_closed(self.wire.socket(), patience),
            Next::Close => {
                let peer = self.peer.address;
                self.lines.write(Kind::Unproved, || {
                    tracing::warn!(%peer, "closed: too many calls in a row that prove nothing");
                });
                false
            }
        }
    }

    /// Executes a call, or begins it, or leaves it for when somebody else may receive. A stranger's calls
    /// are executed one by one, and take no threads.
    fn dispatch(
        &self,
        mut request: Request<S::Payload>,
        lead: &mut Lead<S>,
        begun: &mut Begun<'_, S>,
    ) {
        let (peer, standing) = (&self.peer, &self.member.standing);
        if !standing.is_proved() {
            self.execute_request(&mut request, &mut lead.outbox);
            lead.spare = request.record;
            return;
        }
        let payload = request.payload.take();
        let (head, arguments) = request.parts();
        let presence = self.presence();
        let call = Call { head: &head, arguments, payload, peer, standing, presence };
        match self.guarded(|| self.service.attempt(call)) {
            Some(Attempt::Answered(answer)) => lead.outbox.push(head.xid, answer),
            Some(Attempt::Waits(Waits::Together, payload)) => {
                let call = Call { head: &head, arguments, payload, peer, standing, presence };
                begun.begin(call, &mut lead.outbox);
            }
            Some(Attempt::Waits(Waits::Alone, payload)) => {
                request.payload = payload;
                lead.alone = Some(request);
                return;
            }
            None => lead.outbox.push(head.xid, Answer::Rejected(AcceptStatus::SystemError)),
        }
        lead.spare = request.record;
    }

    /// With calls under way, or one that waits: sees whether more can be received at once, or waits.
    /// Returns the turn if it is to be had then.
    fn go_on(
        self: &Arc<Self>,
        mut lead: Box<Lead<S>>,
        begun: &mut Begun<'_, S>,
        place: &Arc<Place>,
    ) -> Result<Box<Lead<S>>, Step> {
        // What was received last is on its way first, and what is done is answered, though not so much
        // at a time that nothing new could be on its way meanwhile. One alone may be waited for.
        if begun.len() > 1 {
            begun.answer(0, &mut lead.outbox);
        }
        let has_answers = !lead.outbox.is_empty();
        if !self.send(&mut lead.outbox) {
            return Err(Step::End);
        }
        if begun.is_empty() && lead.alone.is_none() {
            return Ok(lead);
        }
        let ahead = lead.records.read_ahead(|into| self.wire.receive_now(into));
        let may_receive = lead.alone.is_none() && !begun.is_full();
        match ahead {
            Ahead::Record if may_receive => {
                if begun.len() == 1 {
                    // Not waited for, so it is to be on its way.
                    begun.answer(0, &mut lead.outbox);
                }
                Ok(lead)
            }
            Ahead::Nothing if may_receive && has_answers => Ok(lead),
            Ahead::Record | Ahead::Part | Ahead::Nothing => self.wait(lead, begun, place, ahead),
            Ahead::End => {
                let mut sent = self.answer_all(begun, &mut lead.outbox);
                if let Some(mut request) = lead.alone.take().filter(|_| sent) {
                    self.execute_request(&mut request, &mut lead.outbox);
                    sent = self.send(&mut lead.outbox);
                }
                if sent { Ok(lead) } else { Err(Step::End) }
            }
        }
    }

    /// Waits for calls that were begun, or executes one that waits alone, while somebody else may
    /// receive if there is something `ahead`, or when there is. Returns the turn if it is to be had
    /// then.
    fn wait(
        self: &Arc<Self>,
        mut lead: Box<Lead<S>>,
        begun: &mut Begun<'_, S>,
        place: &Arc<Place>,
        ahead: Ahead,
    ) -> Result<Box<Lead<S>>, Step> {
        let mut outbox = Outbox::new();
        let member = Arc::clone(&self.member);
        let _under_way = member.is_waited_for();
        // With others begun, one that waits alone is left to the follower: neither waits for the other.
        let alone = if begun.is_empty() { lead.alone.take() } else { None };
        match ahead {
            Ahead::Nothing if alone.is_some() => self.lay_down_turn(lead, place, LOOKS_ALONE),
            Ahead::Nothing if lead.alone.is_none() => {
                self.lay_down_turn(lead, place, LOOKS_TOGETHER);
            }
            _ => self.give_turn(lead, place),
        }
        match alone {
            Some(mut request) => self.execute_request(&mut request, &mut outbox),
            None => begun.answer(1, &mut outbox),
        }
        if !self.send(&mut outbox) {
            return Err(Step::End);
        }
        match self.take_up_turn() {
            Some(lead) => Ok(lead),
            None if self.answer_all(begun, &mut outbox) => Err(Step::Follow),
            None => Err(Step::End),
        }
    }

    /// Waits for all calls that were begun, and sends each answer as soon as it is there, with what is
    /// in `outbox`; `false` if the connection is lost.
    fn answer_all(&self, begun: &mut Begun<'_, S>, outbox: &mut Outbox<S::Segment>) -> bool {
        while !begun.is_empty() {
            begun.answer(1, outbox);
            if !self.send(outbox) {
                return false;
            }
        }
        self.send(outbox)
    }

    fn receive(&self, lead: &mut Lead<S>) -> Result<Received<S::Payload>, ReadError> {
        let mut source = ServerSource::new(&self.wire, &self.options, &self.member);
        receive_request(
            &mut lead.records,
            &mut source,
            std::mem::take(&mut lead.spare),
            &*self.service,
            &self.peer,
            self.options.max_head_bytes,
        )
    }

    /// Executes a call and puts the reply into `outbox`.
    fn execute_request(&self, request: &mut Request<S::Payload>, outbox: &mut Outbox<S::Segment>) {
        let payload = request.payload.take();
        let (head, arguments) = request.parts();
        let xid = head.xid;
        let (peer, standing, presence) = (&self.peer, &self.member.standing, self.presence());
        let call = Call { head: &head, arguments, payload, peer, standing, presence };
        let answer = self.guarded(|| self.service.execute(call));
        if !standing.is_proved() && !self.service.judges() {
            // Nobody else would count what somebody without a certificate asks for.
            standing.note_unproved();
        }
        outbox.push(xid, answer.unwrap_or(Answer::Rejected(AcceptStatus::SystemError)));
    }

    /// A bug that one call finds must not end the service of the others.
    fn guarded<T>(&self, action: impl FnOnce() -> T) -> Option<T> {
        let outcome = catch_unwind(AssertUnwindSafe(action));
        if outcome.is_err() {
            tracing::error!(peer = %self.peer.address, "the service panicked in a call");
        }
        outcome.ok()
    }

    /// Sends what `outbox` holds; `false` if the connection is lost.
    fn send(&self, outbox: &mut Outbox<S::Segment>) -> bool {
        if outbox.is_empty() {
            return true;
        }
        let sending = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        let patience = self.options.call_patience(self.member.standing.is_proved());
        let result = outbox.send(&self.wire, &Patience::from_first_use(patience));
        drop(sending);
        match result {
            Ok(()) => true,
            Err(error) => {
                self.log_lost(&error);
                // The leader may be waiting to receive.
                self.wire.close();
                false
            }
        }
    }

    fn log_lost(&self, error: &io::Error) {
        if error.kind() == io::ErrorKind::TimedOut {
            self.lines.write(Kind::Slow, || {
                tracing::warn!(peer = %self.peer.address, "closed: it does not take its replies");
            });
        } else {
            tracing::debug!(peer = %self.peer.address, %error, "connection lost");
        }
    }

    /// Logs why nothing more is received, and remembers whose fault it was.
    fn log(&self, error: &ReadError) {
        let peer = self.peer.address;
        match error {
            ReadError::Frame(error) => {
                self.member.standing.note_offence();
                self.lines.write(Kind::Protocol, || {
                    tracing::warn!(%peer, %error, "closed: protocol error");
                });
            }
            ReadError::Slow => {
                self.member.standing.note_offence();
                self.lines.write(Kind::Slow, || {
                    tracing::warn!(%peer, "closed: a call came too slowly, or not to its end");
                });
            }
            ReadError::Idle => tracing::debug!(%peer, "closed: idle"),
            ReadError::Io(error) => tracing::debug!(%peer, %error, "connection lost"),
        }
    }
}

impl<S: Service> Watched for Connection<S> {
    fn relieve(&self) -> bool {
        let Some(this) = self.this.upgrade() else {
            return false;
        };
        let mut turn = self.lock_turn();
        let Some(place) = turn.laid_down.clone() else {
            // It is laid down again before long, most likely.
            turn.looked =
                turn.looked.map(|looked| looked + 1).filter(|looked| *looked < QUIET_LOOKS);
            return turn.looked.is_some();
        };
        turn.looked = Some(0);
        turn.lain += 1;
        if turn.looks > 0 {
            turn.looks -= 1;
        } else if turn.lead.is_some() && (turn.lain >= LOOKS_AT_MOST || self.wire.has_event()) {
            turn.laid_down = None;
            this.call_follower(turn, &place);
        }
        true
    }
}

/// A named thread with a small stack, for as long as the server runs.
pub(super) fn start_thread(
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> io::Result<thread::JoinHandle<()>> {
    thread::Builder::new().name(name.to_owned()).stack_size(STACK_BYTES).spawn(body)
}
