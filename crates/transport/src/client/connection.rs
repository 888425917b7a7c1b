//! One connection that any number of threads share.
//!
//! There is no thread of its own: a caller that finds nobody receiving does it, for everybody,
//! until its own reply has come, and then wakes another waiting caller to go on. With a single
//! caller that makes a call one send and a few receives, without any hand-over.
//!
//! A call that is begun, and waited for later, is only queued: it is sent with the next one that
//! somebody waits for, or when enough is queued. One thread that keeps many small calls under way
//! so makes few system calls: each receive brings many replies, each send takes as many calls.
//! While nobody waits, nobody receives; so a send that can't go on, perhaps because the server
//! can't get rid of its replies, receives meanwhile.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nasd_rpc::{CallHead, MAX_CALL_HEAD_BYTES, seal_record};
use nasd_xdr::{XdrEncode, xdr_pad};

use super::pending::{Buffer, Failure, Kind, NewCall, Outcome, Pending, Ticket, Turn};
use super::receive::{Ended, Receiver};
use crate::record::append_record_to;
use crate::tls::{TlsWire, tls_error_within};
use crate::wire::{Patience, Wire, connect_socket, deadline_after};
use crate::{
    BreakReason, Channel, ChannelError, ClientOptions, ClientTls, Execution, InFlight,
    OutgoingCall, Reply, TlsError,
};

/// How long a connection may be idle before it is asked whether the server has closed it.
const TRUSTED_IDLE: Duration = Duration::from_millis(100);

/// Calls are queued up to so many bytes: a server receives about as much at once.
const QUEUE_BYTES: usize = 8192;

/// How long a sender waits before it looks whether anybody still receives.
const SHORT_TICK: Duration = Duration::from_millis(20);

/// A TCP connection to a server, with or without TLS.
#[derive(Debug)]
pub struct Connection {
    address: SocketAddr,
    wire: Wire,
    pending: Pending,
    /// Locked by whoever has the role of the reader.
    receiver: Mutex<Receiver>,
    /// Locked by whoever sends. Holds the records that are queued.
    sender: Mutex<Vec<u8>>,
    options: ClientOptions,
}

impl Connection {
    /// Connects without TLS.
    ///
    /// # Errors
    ///
    /// [`ChannelError::Connect`].
    pub fn tcp(address: SocketAddr, options: &ClientOptions) -> Result<Connection, ChannelError> {
        let socket = connect(address, options)?;
        Ok(Connection::over(Wire::Tcp(socket), address, options))
    }

    /// Connects with TLS.
    ///
    /// # Errors
    ///
    /// [`ChannelError::Connect`] and [`ChannelError::Tls`]. A server that does not accept this
    /// end's certificate says so only in answer to the first call.
    pub fn tls(
        address: SocketAddr,
        tls: &ClientTls,
        options: &ClientOptions,
    ) -> Result<Connection, ChannelError> {
        let deadline = deadline_after(options.connect_timeout);
        let socket = connect(address, options)?;
        let wire = TlsWire::connect(socket, tls, deadline).map_err(|source| ChannelError::Tls {
            address,
            source,
            execution: Execution::Never,
        })?;
        Ok(Connection::over(Wire::Tls(Box::new(wire)), address, options))
    }

    fn over(wire: Wire, address: SocketAddr, options: &ClientOptions) -> Connection {
        Connection {
            address,
            wire,
            pending: Pending::new(options.max_outstanding),
            receiver: Mutex::new(Receiver::new(options)),
            sender: Mutex::new(Vec::new()),
            options: options.clone(),
        }
    }

    /// The server's address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Finds out that the server has closed an idle connection before a call is sent on it: after,
    /// nobody could say whether the call was executed.
    fn check_idle(&self, idle: Duration) {
        if idle > TRUSTED_IDLE && self.wire.has_event() {
            self.break_with(BreakReason::ClosedByPeer);
        }
    }

    /// Queues a call; sends it, in one piece with what is queued, if it has to go now.
    fn send(
        &self,
        call: &OutgoingCall<'_>,
        xid: u32,
        kind: Kind,
        patience: &Patience,
    ) -> io::Result<()> {
        let data_length = data_length(call);
        let pad = xdr_pad(data_length);
        let mut queue = self.lock_sender();
        push_record(&mut queue, call, xid, data_length + pad);
        if kind == Kind::Begun && data_length == 0 && queue.len() < QUEUE_BYTES {
            return Ok(());
        }
        let result = if data_length == 0 {
            self.send_all(&mut [IoSlice::new(&queue)], patience)
        } else {
            let mut slices = Vec::with_capacity(call.data.len() + 2);
            slices.push(IoSlice::new(&queue));
            slices.extend_from_slice(call.data);
            slices.push(IoSlice::new(&[0; 3][..pad]));
            self.send_all(&mut slices, patience)
        };
        queue.clear();
        result
    }

    /// Sends what is queued.
    fn flush(&self, patience: &Patience) -> io::Result<()> {
        let mut queue = self.lock_sender();
        if queue.is_empty() {
            return Ok(());
        }
        let result = self.send_all(&mut [IoSlice::new(&queue)], patience);
        queue.clear();
        result
    }

    fn lock_sender(&self) -> MutexGuard<'_, Vec<u8>> {
        // Whole records are in it whenever anything could panic.
        self.sender.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends all of `slices`. The server may wait for its replies to be taken before it takes more;
    /// so where some may come that nobody waits for, this receives while it can't send.
    fn send_all(&self, mut slices: &mut [IoSlice<'_>], patience: &Patience) -> io::Result<()> {
        IoSlice::advance_slices(&mut slices, 0); // drops empty slices in front
        while self.wire.is_plain() && !slices.is_empty() && self.pending.has_begun() {
            let sent = self.wire.send_some(slices)?;
            IoSlice::advance_slices(&mut slices, sent);
            if slices.is_empty() {
                return Ok(());
            }
            let deadline = patience.deadline();
            if Instant::now() >= deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if self.pending.start_reading() {
                let received = match self.wire.wait_to_send_or_receive() {
                    Ok(true) => self.receive_some(deadline),
                    Ok(false) => Ok(()),
                    Err(error) => Err(error),
                };
                self.pending.stop_reading();
                received?;
            } else {
                // Not for long: whoever receives stops when he has what he waits for.
                self.wire.wait_to_send(SHORT_TICK)?;
            }
        }
        if slices.is_empty() {
            return Ok(());
        }
        self.wire.send_all(slices, patience)
    }

    /// Waits for the reply, receiving for everybody if nobody else does.
    fn wait(
        &self,
        ticket: &mut Ticket<impl Deref<Target = Pending>>,
        deadline: Instant,
    ) -> Outcome {
        loop {
            match ticket.wait(deadline) {
                Turn::Done(outcome) => return outcome,
                Turn::Read => {
                    let timed_out = self.receive_until(ticket.xid(), deadline);
                    self.pending.stop_reading();
                    if timed_out && let Turn::Done(outcome) = ticket.time_out() {
                        return outcome;
                    }
                }
            }
        }
    }

    /// The end of a call that was begun.
    pub(super) fn finish(
        ticket: &mut Ticket<PendingOf>,
        timeout: Duration,
    ) -> Result<Reply, ChannelError> {
        if let Some(result) = Connection::poll(ticket, timeout) {
            return result;
        }
        let connection = Arc::clone(&ticket.holder().0);
        let patience = Patience::from_now(timeout);
        let outcome = match connection.flush(&patience) {
            Ok(()) => connection.wait(ticket, patience.deadline()),
            Err(error) => Err(connection.send_failed(error)),
        };
        connection.begun_result(outcome, timeout)
    }

    /// How a call that was begun has ended, if it has.
    pub(super) fn poll(
        ticket: &mut Ticket<PendingOf>,
        timeout: Duration,
    ) -> Option<Result<Reply, ChannelError>> {
        let outcome = ticket.poll()?;
        Some(ticket.holder().0.begun_result(outcome, timeout))
    }

    /// Waits until some call of the connection has ended; how this one has, if it has.
    pub(super) fn advance(
        ticket: &mut Ticket<PendingOf>,
        timeout: Duration,
    ) -> Option<Result<Reply, ChannelError>> {
        let connection = Arc::clone(&ticket.holder().0);
        let patience = Patience::from_now(timeout);
        let outcome = match connection.flush(&patience) {
            Err(error) => Err(connection.send_failed(error)),
            Ok(()) => match ticket.wait(patience.deadline()) {
                Turn::Done(outcome) => outcome,
                Turn::Read => {
                    let received = connection.receive_some(patience.deadline());
                    connection.pending.stop_reading();
                    let turn = match received {
                        Ok(()) => Turn::Done(ticket.poll()?),
                        Err(error) if error.kind() == io::ErrorKind::TimedOut => ticket.time_out(),
                        // The connection is at its end, and so is the call.
                        Err(_) => ticket.wait(patience.deadline()),
                    };
                    match turn {
                        Turn::Done(outcome) => outcome,
                        Turn::Read => {
                            connection.pending.stop_reading();
                            return None;
                        }
                    }
                }
            },
        };
        Some(connection.begun_result(outcome, timeout))
    }

    /// Whether a call that was begun has been sent is not known when it ends.
    fn begun_result(&self, outcome: Outcome, timeout: Duration) -> Result<Reply, ChannelError> {
        outcome.map_err(|failure| self.error(failure, Execution::Possible, timeout))
    }

    /// Receives replies that have begun to come, until there are none for the moment.
    fn receive_some(&self, deadline: Instant) -> io::Result<()> {
        let mut receiver = self.receiver.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match receiver.receive_one(&self.wire, &self.pending, deadline) {
                Ok(_) if receiver.has_buffered_reply() => {}
                Ok(_) => return Ok(()),
                Err(Ended::TimeUp) => return Err(io::ErrorKind::TimedOut.into()),
                Err(Ended::Broken(reason)) => {
                    self.break_with(reason);
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
            }
        }
    }

    /// Makes room for a call where nobody else will: `false` if somebody receives.
    fn make_room(&self, patience: &Patience) -> bool {
        // What fails here is found in the table. In this order, as who sends may want to receive.
        if let Err(error) = self.flush(patience) {
            self.send_failed(error);
            return true;
        }
        if !self.pending.start_reading() {
            return false;
        }
        let _ = self.receive_some(patience.deadline());
        self.pending.stop_reading();
        true
    }

    /// Receives replies up to the one of `xid`, and those that came in the same piece: their
    /// callers need not take over for them. Returns whether the time was up before.
    fn receive_until(&self, xid: u32, deadline: Instant) -> bool {
        let mut receiver = self.receiver.lock().unwrap_or_else(PoisonError::into_inner);
        let mut done = false;
        while !done || receiver.has_buffered_reply() {
            match receiver.receive_one(&self.wire, &self.pending, deadline) {
                Ok(ended) => done |= ended == Some(xid),
                Err(Ended::TimeUp) => return !done,
                Err(Ended::Broken(reason)) => {
                    self.break_with(reason);
                    return false;
                }
            }
        }
        false
    }

    fn break_with(&self, reason: BreakReason) -> Arc<BreakReason> {
        let reason = self.pending.break_all(reason);
        self.wire.close();
        reason
    }

    /// Sends a call, or queues it.
    fn start<P: Deref<Target = Pending>>(
        &self,
        pending: P,
        call: &OutgoingCall<'_>,
        into: &mut [u8],
        kind: Kind,
        patience: &Patience,
    ) -> Result<Ticket<P>, ChannelError> {
        let data_length = data_length(call);
        let bytes = MAX_CALL_HEAD_BYTES + call.arguments.len() + data_length + xdr_pad(data_length);
        let limit = self.options.max_record_bytes;
        if bytes > limit {
            return Err(ChannelError::TooLong { bytes, limit });
        }
        let new = NewCall { buffer: Buffer::of(into), shape: call.results, kind };
        let check_idle = |idle| self.check_idle(idle);
        let make_room = || self.make_room(patience);
        // SAFETY: `call` and `begin`, who alone call this, keep the memory until the ticket is
        // dropped, and don't look at it.
        let inserted = unsafe { Pending::insert(pending, new, patience, check_idle, make_room) };
        let never = |failure| self.error(failure, Execution::Never, call.timeout);
        let ticket = inserted.map_err(never)?;
        match self.send(call, ticket.xid(), kind, patience) {
            Ok(()) => Ok(ticket),
            Err(error) => Err(never(self.send_failed(error))),
        }
    }

    /// Part of a record may be out: nothing can follow it. A server does nothing with it.
    fn send_failed(&self, error: io::Error) -> Failure {
        let timed_out = error.kind() == io::ErrorKind::TimedOut;
        let reason = self.break_with(reason_of(error));
        if timed_out { Failure::TimedOut } else { Failure::Broken(reason) }
    }

    fn error(&self, failure: Failure, execution: Execution, timeout: Duration) -> ChannelError {
        let address = self.address;
        match failure {
            Failure::TimedOut => ChannelError::TimedOut { address, after: timeout, execution },
            Failure::Rejected(reason) => ChannelError::Rejected { address, reason },
            Failure::Broken(reason) => match &*reason {
                // The server ends the handshake with it, and never gets to a call.
                BreakReason::Tls(source @ TlsError::Refused { .. }) => {
                    let source = source.clone();
                    ChannelError::Tls { address, source, execution: Execution::Never }
                }
                BreakReason::Tls(source) => {
                    ChannelError::Tls { address, source: source.clone(), execution }
                }
                _ => ChannelError::Broken { address, reason, execution },
            },
        }
    }
}

/// The table of a connection that whoever has this keeps alive.
#[derive(Debug)]
pub(super) struct PendingOf(Arc<Connection>);

impl Deref for PendingOf {
    type Target = Pending;

    fn deref(&self) -> &Pending {
        &self.0.pending
    }
}

impl Channel for Connection {
    fn call(&self, call: &OutgoingCall<'_>, into: &mut [u8]) -> Result<Reply, ChannelError> {
        let patience = Patience::from_now(call.timeout);
        let mut ticket = self.start(&self.pending, call, into, Kind::Waited, &patience)?;
        self.wait(&mut ticket, patience.deadline())
            .map_err(|failure| self.error(failure, Execution::Possible, call.timeout))
    }

    fn begin(
        self: Arc<Self>,
        call: &OutgoingCall<'_>,
        mut into: Vec<u8>,
    ) -> Result<InFlight, (ChannelError, Vec<u8>)> {
        let patience = Patience::from_first_use(call.timeout);
        let pending = PendingOf(Arc::clone(&self));
        match self.start(pending, call, &mut into, Kind::Begun, &patience) {
            Ok(ticket) => Ok(InFlight::sent(ticket, call.timeout, into)),
            Err(error) => Err((error, into)),
        }
    }

    fn send_begun(&self, timeout: Duration) {
        if let Err(error) = self.flush(&Patience::from_now(timeout)) {
            self.send_failed(error);
        }
    }

    fn is_open(&self) -> bool {
        self.pending.is_open()
    }

    fn close(&self) {
        self.break_with(BreakReason::GivenUp);
    }
}

fn data_length(call: &OutgoingCall<'_>) -> usize {
    call.data.iter().map(|slice| slice.len()).sum()
}

/// Appends a call's record, but for its bulk data and padding of `following` bytes.
fn push_record(queue: &mut Vec<u8>, call: &OutgoingCall<'_>, xid: u32, following: usize) {
    let start = queue.len();
    let mut record = append_record_to(std::mem::take(queue));
    CallHead {
        xid,
        program: call.program,
        version: call.version,
        procedure: call.procedure,
        credential: call.credential,
        verifier: call.verifier,
    }
    .encode(&mut record);
    *queue = record.into_bytes();
    queue.extend_from_slice(call.arguments);
    let sealed = seal_record(&mut queue[start..], following);
    debug_assert!(sealed.is_ok(), "the length was checked against a lower limit");
}

fn connect(
    address: SocketAddr,
    options: &ClientOptions,
) -> Result<std::net::TcpStream, ChannelError> {
    connect_socket(
        address,
        options.connect_timeout,
        options.send_buffer_bytes,
        options.receive_buffer_bytes,
    )
    .map_err(|source| ChannelError::Connect { address, source: Arc::new(source) })
}

/// Why the connection broke, from what the wire said.
pub(super) fn reason_of(error: io::Error) -> BreakReason {
    match tls_error_within(&error, "server") {
        Some(tls) => BreakReason::Tls(tls),
        None => BreakReason::Io(error),
    }
}
