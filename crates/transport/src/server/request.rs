//! Receiving calls: the work of a connection's leader.

use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nasd_rpc::{AcceptStatus, CallError, CallHead, OpaqueAuth, ReplyHead};
use nasd_xdr::{Decoder, xdr_pad};

use super::ServerOptions;
use super::registry::Member;
use super::service::{Arriving, Payload, Peer, Receive, Service};
use crate::FrameError;
use crate::record::{BUFFER_BYTES, FIRST_HEAD_BYTES, ReadError, RecordReader, Source, Stage};
use crate::wire::{Amount, Wire};

/// A call as it was received.
#[derive(Debug)]
pub(super) struct Request<P> {
    /// Head and arguments, without bulk data.
    pub(super) record: Vec<u8>,
    head: HeadPlaces,
    pub(super) payload: Option<P>,
}

/// A decoded head without a borrow of the record, which moves from thread to thread.
#[derive(Clone, Debug)]
struct HeadPlaces {
    xid: u32,
    program: u32,
    version: u32,
    procedure: u32,
    credential: (u32, Range<usize>),
    verifier: (u32, Range<usize>),
    /// Where the arguments begin.
    arguments_at: usize,
}

/// Where a credential's body lies: behind six words, its flavor and its length.
const CREDENTIAL_AT: usize = 32;

impl HeadPlaces {
    fn of(head: &CallHead<'_>, arguments_at: usize) -> HeadPlaces {
        let credential = CREDENTIAL_AT..CREDENTIAL_AT + head.credential.body.len();
        let verifier_at = credential.end + xdr_pad(credential.len()) + 8;
        let verifier = verifier_at..verifier_at + head.verifier.body.len();
        HeadPlaces {
            xid: head.xid,
            program: head.program,
            version: head.version,
            procedure: head.procedure,
            credential: (head.credential.flavor, credential),
            verifier: (head.verifier.flavor, verifier),
            arguments_at,
        }
    }
}

impl<P> Request<P> {
    /// The head, and the arguments.
    pub(super) fn parts(&self) -> (CallHead<'_>, &[u8]) {
        let part = |(flavor, place): &(u32, Range<usize>)| OpaqueAuth {
            flavor: *flavor,
            body: &self.record[place.clone()],
        };
        let HeadPlaces { xid, program, version, procedure, credential, verifier, arguments_at } =
            &self.head;
        let head = CallHead {
            xid: *xid,
            program: *program,
            version: *version,
            procedure: *procedure,
            credential: part(credential),
            verifier: part(verifier),
        };
        (head, &self.record[*arguments_at..])
    }
}

/// What the leader received.
#[derive(Debug)]
pub(super) enum Received<P> {
    /// A call to execute.
    Call(Request<P>),
    /// A call that was not understood, and what RFC 5531 has as an answer.
    Refused(ReplyHead<'static>),
    /// The end of the connection, between two calls.
    End,
}

/// Receives one call into `record`, and its bulk data where the service wants it.
pub(super) fn receive_request<S: Service>(
    records: &mut RecordReader,
    source: &mut impl Source,
    mut record: Vec<u8>,
    service: &S,
    peer: &Peer,
    max_head_bytes: usize,
) -> Result<Received<S::Payload>, ReadError> {
    record.clear();
    if !records.begin(source)? {
        return Ok(Received::End);
    }
    let (mut more, mut most) = (1, FIRST_HEAD_BYTES);
    loop {
        let room = max_head_bytes.saturating_sub(record.len());
        if room == 0 {
            return Err(FrameError::HeadTooLong { limit: max_head_bytes }.into());
        }
        records.take_head(source, &mut record, more.min(room), room.min(most.max(more)))?;
        most = BUFFER_BYTES;
        let complete = records.at_end();
        let mut input = Decoder::new(&record);
        let head = match CallHead::decode(&mut input) {
            Ok(head) => head,
            Err(error) if error.is_truncated() && !complete => {
                more = 1;
                continue;
            }
            Err(error) => return refuse(records, source, error),
        };
        let arguments = input.rest();
        let arguments_at = input.position();
        let arriving = Arriving { head: &head, arguments, complete, peer };
        match service.receive(&arriving) {
            Receive::More { at_least } if !complete => {
                more = at_least.saturating_sub(arguments.len()).max(1);
            }
            Receive::Whole | Receive::More { .. } => {
                let head = HeadPlaces::of(&head, arguments_at);
                take_rest(records, source, &mut record, max_head_bytes)?;
                return Ok(Received::Call(Request { record, head, payload: None }));
            }
            Receive::Discard { head_bytes } => {
                let head = HeadPlaces::of(&head, arguments_at);
                records.skip_rest(source)?;
                record.truncate(arguments_at + head_bytes);
                return Ok(Received::Call(Request { record, head, payload: None }));
            }
            Receive::Data { head_bytes, payload } => {
                let head = HeadPlaces::of(&head, arguments_at);
                return take_data(records, source, record, head, head_bytes, payload);
            }
        }
    }
}

/// A call without bulk data may be as long as a head.
fn take_rest(
    records: &mut RecordReader,
    source: &mut impl Source,
    record: &mut Vec<u8>,
    limit: usize,
) -> Result<(), ReadError> {
    let room = limit.saturating_sub(record.len());
    records.take_head(source, record, room, room)?;
    if records.at_end() { Ok(()) } else { Err(FrameError::HeadTooLong { limit }.into()) }
}

/// Nothing can be said about where the next call begins unless this one is taken whole; where
/// nothing can be answered either, the connection ends.
fn refuse<P>(
    records: &mut RecordReader,
    source: &mut impl Source,
    error: CallError,
) -> Result<Received<P>, ReadError> {
    match error.reply() {
        Some(reply) => {
            records.skip_rest(source)?;
            Ok(Received::Refused(reply))
        }
        None => Err(FrameError::Call(error).into()),
    }
}

/// Receives the bulk data into the payload's buffers.
fn take_data<P: Payload>(
    records: &mut RecordReader,
    source: &mut impl Source,
    mut record: Vec<u8>,
    head: HeadPlaces,
    head_bytes: usize,
    mut payload: P,
) -> Result<Received<P>, ReadError> {
    let data_at = head.arguments_at + head_bytes;
    let mut buffers = payload.buffers();
    let length: usize = buffers.iter().map(|buffer| buffer.len()).sum();
    let padded = length + xdr_pad(length);
    let surplus = record.get(data_at..).map_or(0, <[u8]>::len);
    let present = records.left().map(|left| left + surplus);
    if data_at > record.len() || surplus > padded || present.is_some_and(|bytes| bytes != padded) {
        drop(buffers);
        return garbage(records, source, head.xid);
    }
    let early = surplus.min(length);
    let mut slices = &mut buffers[..];
    copy_to(&record[data_at..data_at + early], &mut slices);
    let mut padding = [0; 3];
    let padding_left = padded - surplus.max(length);
    let mut slices: Vec<_> = slices.iter_mut().map(|slice| IoSliceMut::new(slice)).collect();
    slices.push(IoSliceMut::new(&mut padding[..padding_left]));
    let filled = records.take_into(source, &mut slices)?;
    drop(slices);
    drop(buffers);
    // Only of a record of several fragments was the length not known before.
    records.take_head(source, &mut Vec::new(), 1, 1)?;
    if !filled || !records.at_end() {
        return garbage(records, source, head.xid);
    }
    record.truncate(data_at);
    Ok(Received::Call(Request { record, head, payload: Some(payload) }))
}

/// The data's length word and the record's length contradict one another.
fn garbage<P>(
    records: &mut RecordReader,
    source: &mut impl Source,
    xid: u32,
) -> Result<Received<P>, ReadError> {
    records.skip_rest(source)?;
    let status = AcceptStatus::GarbageArguments;
    let verifier = OpaqueAuth::NONE;
    let body = nasd_rpc::ReplyBody::Accepted { verifier, status };
    Ok(Received::Refused(ReplyHead { xid, body }))
}

/// Copies into the first slices and moves on behind what was filled.
fn copy_to(mut from: &[u8], slices: &mut &mut [IoSliceMut<'_>]) {
    while !from.is_empty() && !slices.is_empty() {
        let count = slices[0].len().min(from.len());
        slices[0][..count].copy_from_slice(&from[..count]);
        from = &from[count..];
        IoSliceMut::advance_slices(slices, count);
    }
}

/// Receives for a server: patient between calls, less so within one, and least with strangers.
pub(super) struct ServerSource<'a> {
    wire: &'a Wire,
    options: &'a ServerOptions,
    member: &'a Member,
    /// When the first byte of this call was asked for that did not come with the one before.
    within_since: Option<Instant>,
    /// Bytes of it that have come since.
    within_bytes: u64,
}

impl Source for ServerSource<'_> {
    fn receive(
        &mut self,
        stage: Stage,
        into: &mut [IoSliceMut<'_>],
        amount: Amount,
    ) -> Result<usize, ReadError> {
        let count = match stage {
            Stage::Between => self.receive_between(into, amount),
            Stage::Within => self.receive_within(into, amount),
        }?;
        self.member.standing.note_received(count);
        Ok(count)
    }
}

impl<'a> ServerSource<'a> {
    /// For one call.
    pub(super) fn new(wire: &'a Wire, options: &'a ServerOptions, member: &'a Member) -> Self {
        ServerSource { wire, options, member, within_since: None, within_bytes: 0 }
    }

    fn receive_between(
        &mut self,
        into: &mut [IoSliceMut<'_>],
        amount: Amount,
    ) -> Result<usize, ReadError> {
        let mut since = None;
        loop {
            match self.wire.receive(into, amount) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => {
                    if since.is_some() {
                        self.member.idle_ms.store(0, Ordering::Relaxed);
                    }
                    return result.map_err(ReadError::Io);
                }
            }
            if self.member.under_way.load(Ordering::Acquire) > 0 {
                // Its peer waits for an answer. It begins to be idle when that has it.
                since = None;
                self.member.idle_ms.store(0, Ordering::Relaxed);
                continue;
            }
            let idle = since.get_or_insert_with(Instant::now).elapsed();
            self.note_idle(idle);
            if idle >= self.options.idle_patience(self.member.standing.is_proved()) {
                return Err(ReadError::Idle);
            }
        }
    }

    fn receive_within(
        &mut self,
        into: &mut [IoSliceMut<'_>],
        amount: Amount,
    ) -> Result<usize, ReadError> {
        let mut silent_since = None;
        loop {
            // Asked before each receive: a peer that sends a byte now and then must not hold the
            // connection longer than one that sends none.
            let since = *self.within_since.get_or_insert_with(Instant::now);
            if since.elapsed() >= self.patience() {
                return Err(ReadError::Slow);
            }
            match self.wire.receive(into, amount) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => {
                    if silent_since.is_some() {
                        self.member.idle_ms.store(0, Ordering::Relaxed);
                    }
                    let count = result.map_err(ReadError::Io)?;
                    self.within_bytes += count as u64;
                    return Ok(count);
                }
            }
            // One that stops within a call makes room for others like one that stops before it.
            self.note_idle(silent_since.get_or_insert_with(Instant::now).elapsed());
        }
    }

    fn note_idle(&self, idle: Duration) {
        let milliseconds = u64::try_from(idle.as_millis()).unwrap_or(u64::MAX).max(1);
        self.member.idle_ms.store(milliseconds, Ordering::Relaxed);
    }

    /// How long the call may take that is being received, by what has come of it.
    fn patience(&self) -> Duration {
        let first = self.options.call_patience(self.member.standing.is_proved());
        match self.options.least_bytes_per_second {
            0 => first,
            rate => {
                let milliseconds = self.within_bytes.saturating_mul(1000) / rate;
                first.saturating_add(Duration::from_millis(milliseconds))
            }
        }
    }
}
