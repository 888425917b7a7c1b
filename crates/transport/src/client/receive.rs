//! Receiving replies: the work of the caller that has the role of the reader.

use std::io::{self, IoSliceMut};
use std::time::{Duration, Instant};

use nasd_rpc::{MAX_REPLY_HEAD_BYTES, ReplyHead};
use nasd_xdr::{Decoder, xdr_pad};

use super::connection::reason_of;
use super::pending::{Claim, Failure, Pending};
use crate::record::{BUFFER_BYTES, ReadError, RecordReader, Source, Stage};
use crate::wire::{Amount, TICK, Wire, deadline_after};
use crate::{BreakReason, ClientOptions, FrameError, Reply, ResultShape};

/// How far ahead a client reads where many small replies come at once.
const READ_AHEAD_BYTES: usize = 64 << 10;

/// Why receiving stopped.
#[derive(Debug)]
pub(super) enum Ended {
    /// The reader's own call has no more time; the connection is whole.
    TimeUp,
    /// Nothing can be received any more.
    Broken(BreakReason),
}

impl From<FrameError> for Ended {
    fn from(error: FrameError) -> Self {
        Ended::Broken(BreakReason::Protocol(error))
    }
}

impl From<ReadError> for Ended {
    fn from(error: ReadError) -> Self {
        Ended::Broken(match error {
            ReadError::Idle => return Ended::TimeUp,
            ReadError::Frame(error) => BreakReason::Protocol(error),
            ReadError::Io(error) => reason_of(error),
            ReadError::Slow => BreakReason::Stalled,
        })
    }
}

/// The receiving half of a connection.
#[derive(Debug)]
pub(super) struct Receiver {
    records: RecordReader,
    /// How long a receive blocks at present.
    tick: Duration,
    peer_timeout: Duration,
    max_head_bytes: usize,
}

impl Receiver {
    pub(super) fn new(options: &ClientOptions) -> Self {
        Receiver {
            records: RecordReader::new(options.max_record_bytes, READ_AHEAD_BYTES),
            tick: TICK,
            peer_timeout: options.peer_timeout,
            max_head_bytes: options.max_head_bytes,
        }
    }

    /// Whether the next reply can be received without waiting.
    pub(super) fn has_buffered_reply(&self) -> bool {
        self.records.has_buffered_record()
    }

    /// Receives one reply, for whomever it is: returns the identifier of the call that it ended.
    pub(super) fn receive_one(
        &mut self,
        wire: &Wire,
        pending: &Pending,
        deadline: Instant,
    ) -> Result<Option<u32>, Ended> {
        let mut source = PatientSource {
            wire,
            tick: &mut self.tick,
            deadline,
            peer_timeout: self.peer_timeout,
            within_until: None,
        };
        let records = &mut self.records;
        if !records.begin(&mut source)? {
            return Err(Ended::Broken(BreakReason::ClosedByPeer));
        }
        let mut record = Vec::with_capacity(256);
        let head = read_head(records, &mut source, &mut record)?;
        let mut claimed = match pending.claim(head.xid) {
            Claim::Call(claimed) => claimed,
            Claim::Abandoned => {
                records.skip_rest(&mut source)?;
                return Ok(None);
            }
            Claim::Unknown => return Err(FrameError::UnknownCall(head.xid).into()),
        };
        if let Err(failure) = &head.verifier {
            records.skip_rest(&mut source)?;
            claimed.complete(Err(failure.clone()));
            return Ok(Some(head.xid));
        }
        let shape = claimed.shape;
        let mut body = Body { records, source: &mut source, record: &mut record, head: &head };
        let data_length = match shape {
            ResultShape::Plain => body.take_plain(self.max_head_bytes)?,
            ResultShape::DataAfter { head_bytes } => {
                body.take_with_data(head_bytes, claimed.buffer(), self.max_head_bytes)?
            }
        };
        let xid = head.xid;
        claimed.complete(Ok(head.into_reply(record, data_length)));
        Ok(Some(xid))
    }
}

/// A decoded reply head, as positions in the record.
#[derive(Debug)]
struct Head {
    xid: u32,
    results_at: usize,
    /// Flavor, and length of the body, which lies at a fixed place; or why there are no results.
    verifier: Result<(u32, usize), Failure>,
}

/// Where a verifier's body lies: behind xid, message type, reply status, flavor and length.
const VERIFIER_AT: usize = 20;

impl Head {
    fn into_reply(self, record: Vec<u8>, data_length: usize) -> Reply {
        let (verifier_flavor, length) = self.verifier.unwrap_or_default();
        Reply {
            record,
            verifier: VERIFIER_AT..VERIFIER_AT + length,
            verifier_flavor,
            results_at: self.results_at,
            data_length,
        }
    }
}

/// The head of a usual reply, with the first words of its results.
const USUAL_HEAD_BYTES: usize = 80;

/// Takes bytes until the head can be decoded.
fn read_head(
    records: &mut RecordReader,
    source: &mut impl Source,
    record: &mut Vec<u8>,
) -> Result<Head, Ended> {
    // Not much more than the head, as the rest may have to go elsewhere.
    let mut room = USUAL_HEAD_BYTES;
    loop {
        records.take_head(source, record, 1, room)?;
        room = BUFFER_BYTES;
        let mut input = Decoder::new(record);
        match ReplyHead::decode(&mut input) {
            Ok(head) => {
                let verifier = head.success();
                return Ok(Head {
                    xid: head.xid,
                    results_at: input.position(),
                    verifier: verifier
                        .map(|verifier| (verifier.flavor, verifier.body.len()))
                        .map_err(Failure::Rejected),
                });
            }
            Err(error) => {
                let more = !records.at_end() && record.len() < MAX_REPLY_HEAD_BYTES;
                if !error.is_truncated() || !more {
                    return Err(FrameError::Reply(error).into());
                }
            }
        }
    }
}

/// What follows the head of a reply.
struct Body<'a, S> {
    records: &'a mut RecordReader,
    source: &'a mut S,
    record: &'a mut Vec<u8>,
    head: &'a Head,
}

impl<S: Source> Body<'_, S> {
    fn results_length(&self) -> usize {
        self.record.len() - self.head.results_at
    }

    /// All results go to the record. Returns the length of bulk data: none.
    fn take_plain(&mut self, limit: usize) -> Result<usize, Ended> {
        let room = limit.saturating_sub(self.record.len());
        self.records.take_head(self.source, self.record, room, room)?;
        if self.records.at_end() { Ok(0) } else { Err(FrameError::HeadTooLong { limit }.into()) }
    }

    /// The first `head_bytes` of the results go to the record, the rest to `buffer`.
    fn take_with_data(
        &mut self,
        head_bytes: usize,
        buffer: &mut [u8],
        limit: usize,
    ) -> Result<usize, Ended> {
        let missing = head_bytes.saturating_sub(self.results_length());
        if missing > limit {
            return Err(FrameError::HeadTooLong { limit }.into());
        }
        self.records.take_head(self.source, self.record, missing, missing)?;
        if self.records.at_end() && self.results_length() <= head_bytes {
            return Ok(0);
        }
        let data_at = self.head.results_at + head_bytes;
        let announced = last_word(&self.record[..data_at]);
        let surplus = self.record.len() - data_at;
        self.check_length(announced, surplus, buffer.len())?;
        let early = surplus.min(announced);
        buffer[..early].copy_from_slice(&self.record[data_at..data_at + early]);
        let mut padding = [0; 3];
        let pad_left = (announced + xdr_pad(announced)).saturating_sub(surplus.max(announced));
        let mut slices = [
            IoSliceMut::new(&mut buffer[early..announced]),
            IoSliceMut::new(&mut padding[..pad_left]),
        ];
        if !self.records.take_into(self.source, &mut slices)? {
            let present = 0; // how many of them came before the record ended is of no use
            return Err(FrameError::DataLength { announced, present }.into());
        }
        if !self.records.at_end() {
            // Only a record of several fragments gets here; its length was not known before.
            self.records.take_head(self.source, &mut Vec::new(), 1, 1)?;
        }
        if !self.records.at_end() {
            let present = announced + 1;
            return Err(FrameError::DataLength { announced, present }.into());
        }
        self.record.truncate(data_at);
        Ok(announced)
    }

    /// Before anything is put into the caller's buffer.
    fn check_length(&self, announced: usize, surplus: usize, room: usize) -> Result<(), Ended> {
        if announced > room {
            return Err(FrameError::DataTooLong { announced, room }.into());
        }
        let padded = announced + xdr_pad(announced);
        let present = self.records.left().map(|left| left + surplus);
        if surplus > padded || present.is_some_and(|present| present != padded) {
            let present = present.unwrap_or(surplus);
            return Err(FrameError::DataLength { announced, present }.into());
        }
        Ok(())
    }
}

/// The length word at the end of the results' head.
fn last_word(head: &[u8]) -> usize {
    head.last_chunk::<4>().map_or(0, |word| u32::from_be_bytes(*word) as usize)
}

/// Receives until the reader's own time is up between replies, or the peer's within one.
struct PatientSource<'a> {
    wire: &'a Wire,
    tick: &'a mut Duration,
    deadline: Instant,
    peer_timeout: Duration,
    within_until: Option<Instant>,
}

impl PatientSource<'_> {
    /// When to give up.
    fn deadline(&mut self, stage: Stage) -> Instant {
        match stage {
            Stage::Between => self.deadline,
            Stage::Within => {
                *self.within_until.get_or_insert_with(|| deadline_after(self.peer_timeout))
            }
        }
    }

    /// Sets how long a receive blocks: a tick, or less if the deadline is nearer.
    fn set_tick(&mut self, left: Duration) -> io::Result<()> {
        let tick = left.clamp(Duration::from_millis(1), TICK);
        if tick < *self.tick || (tick == TICK && *self.tick < TICK) {
            self.wire.set_receive_tick(tick)?;
            *self.tick = tick;
        }
        Ok(())
    }
}

impl Source for PatientSource<'_> {
    fn receive(
        &mut self,
        stage: Stage,
        into: &mut [IoSliceMut<'_>],
        amount: Amount,
    ) -> Result<usize, ReadError> {
        let deadline = self.deadline(stage);
        loop {
            // Asked before each receive: a peer that sends a byte now and then must not hold the
            // connection longer than one that sends none.
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(match stage {
                    Stage::Between => ReadError::Idle,
                    Stage::Within => ReadError::Slow,
                });
            }
            self.set_tick(left).map_err(ReadError::Io)?;
            match self.wire.receive(into, amount) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result.map_err(ReadError::Io),
            }
        }
    }
}
