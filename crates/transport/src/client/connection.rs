//! One connection that any number of threads share.
//!
//! There is no thread of its own: a caller that finds nobody receiving does it, for everybody,
//! until its own reply has come, and then wakes another waiting caller to go on. With a single
//! caller that makes a call one send and a few receives, without any hand-over.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nasd_rpc::{CallHead, MAX_CALL_HEAD_BYTES, seal_record};
use nasd_xdr::{XdrEncode, xdr_pad};

use super::pending::{Failure, Outcome, Pending, Ticket, Turn};
use super::receive::{Ended, Receiver};
use crate::record::begin_record_in;
use crate::tls::{TlsWire, tls_error_within};
use crate::wire::{Wire, connect_socket, deadline_after};
use crate::{
    BreakReason, Channel, ChannelError, ClientOptions, ClientTls, Execution, OutgoingCall, Reply,
    TlsError,
};

/// How long a connection may be idle before it is asked whether the server has closed it.
const TRUSTED_IDLE: Duration = Duration::from_millis(100);

/// A TCP connection to a server, with or without TLS.
#[derive(Debug)]
pub struct Connection {
    address: SocketAddr,
    wire: Wire,
    pending: Pending,
    /// Locked by whoever has the role of the reader.
    receiver: Mutex<Receiver>,
    /// Locked by whoever sends. Holds the buffer for records' heads.
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
    fn check_idle(&self) {
        let idle = self.pending.idle_for().is_some_and(|idle| idle > TRUSTED_IDLE);
        if idle && self.wire.has_event() {
            self.break_with(BreakReason::ClosedByPeer);
        }
    }

    /// Sends a call, in one piece with what other callers send.
    fn send(&self, call: &OutgoingCall<'_>, xid: u32, deadline: Instant) -> io::Result<()> {
        let data_length: usize = call.data.iter().map(|slice| slice.len()).sum();
        let pad = xdr_pad(data_length);
        let mut scratch = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        let mut record = begin_record_in(std::mem::take(&mut *scratch));
        CallHead {
            xid,
            program: call.program,
            version: call.version,
            procedure: call.procedure,
            credential: call.credential,
            verifier: call.verifier,
        }
        .encode(&mut record);
        let mut record = record.into_bytes();
        record.extend_from_slice(call.arguments);
        let sealed = seal_record(&mut record, data_length + pad);
        debug_assert!(sealed.is_ok(), "the length was checked against a lower limit");
        let mut slices = Vec::with_capacity(call.data.len() + 2);
        slices.push(IoSlice::new(&record));
        slices.extend_from_slice(call.data);
        slices.push(IoSlice::new(&[0; 3][..pad]));
        let result = self.wire.send_all(&mut slices, deadline);
        drop(slices);
        *scratch = record;
        result
    }

    /// Waits for the reply, receiving for everybody if nobody else does.
    fn wait(&self, ticket: &Ticket<'_>, deadline: Instant) -> Outcome {
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

    /// Runs a call; the failure comes with whether the call may have been executed.
    fn run(
        &self,
        call: &OutgoingCall<'_>,
        into: &mut [u8],
        deadline: Instant,
    ) -> Result<Reply, (Failure, Execution)> {
        self.check_idle();
        let ticket = self
            .pending
            .insert(into, call.results, deadline)
            .map_err(|failure| (failure, Execution::Never))?;
        if let Err(error) = self.send(call, ticket.xid(), deadline) {
            // Part of a record may be out: nothing can follow it. A server does nothing with it.
            let timed_out = error.kind() == io::ErrorKind::TimedOut;
            let reason = self.break_with(reason_of(error));
            let failure = if timed_out { Failure::TimedOut } else { Failure::Broken(reason) };
            return Err((failure, Execution::Never));
        }
        self.wait(&ticket, deadline).map_err(|failure| (failure, Execution::Possible))
    }

    fn error(
        &self,
        failure: Failure,
        execution: Execution,
        call: &OutgoingCall<'_>,
    ) -> ChannelError {
        let address = self.address;
        match failure {
            Failure::TimedOut => ChannelError::TimedOut { address, after: call.timeout, execution },
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

impl Channel for Connection {
    fn call(&self, call: &OutgoingCall<'_>, into: &mut [u8]) -> Result<Reply, ChannelError> {
        let data_length: usize = call.data.iter().map(|slice| slice.len()).sum();
        let bytes = MAX_CALL_HEAD_BYTES + call.arguments.len() + data_length + xdr_pad(data_length);
        let limit = self.options.max_record_bytes;
        if bytes > limit {
            return Err(ChannelError::TooLong { bytes, limit });
        }
        let deadline = deadline_after(call.timeout);
        self.run(call, into, deadline)
            .map_err(|(failure, execution)| self.error(failure, execution, call))
    }

    fn is_open(&self) -> bool {
        self.pending.is_open()
    }
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
