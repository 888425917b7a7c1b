//! A call between the looks that are taken at it: what was found out, and buffers for data on their way
//! in, received where they will stay.
//!
//! Buffers are the scarce thing here: a write gets one when its digest is right, and not before.

use std::io::IoSliceMut;

use nasd_capability::CoveredData;
use nasd_protocol::Credential;
use nasd_protocol::drive::Procedure;
use nasd_store::IncomingFrames;
use nasd_transport::Payload;

use crate::authority::Grant;
use crate::operations::Held;
use crate::operations::private::Opened;
use crate::operations::write::Sent;

/// What is known of a call from `receive` on.
#[derive(Debug)]
pub struct Incoming(pub(crate) Kind);

/// Each in a box, as it goes through many hands, and most calls have none.
#[derive(Debug)]
pub(crate) enum Kind {
    /// A write or an append that is being received, or has been.
    Write(Box<IncomingWrite>),
    /// Another call whose arguments were decrypted.
    Opened(Box<Opened>),
    /// A call that may be executed, and has to wait for the medium.
    Held(Box<Held>),
}

impl Incoming {
    /// Which operation is asked for.
    pub(crate) fn procedure(&self) -> Option<Procedure> {
        match &self.0 {
            Kind::Write(write) => Some(write.arguments.procedure()),
            Kind::Opened(opened) => opened.procedure(),
            Kind::Held(held) => Some(held.procedure()),
        }
    }
}

/// A write or an append that is being received, or has been.
#[derive(Debug)]
pub(crate) struct IncomingWrite {
    pub(crate) arguments: Sent,
    pub(crate) buffer: Buffer,
    pub(crate) credential: Credential,
    /// Of every check but those of the data.
    pub(crate) grant: Grant,
    /// What the digest covers of the data.
    pub(crate) announced: Option<CoveredData>,
    /// Whether it is written elsewhere, which is waited for.
    pub(crate) waits: bool,
}

/// Where the data is received.
#[derive(Debug)]
pub(crate) enum Buffer {
    /// In the places of frames where it belongs, for one contiguous range.
    InPlace(IncomingFrames),
    /// One piece after the other, in frames that only serve as memory.
    Joined(IncomingFrames),
    /// Little enough that a copy costs less than a frame.
    Small(Vec<u8>),
}

impl Buffer {
    /// The data, in order.
    pub(crate) fn slices(&self) -> Vec<&[u8]> {
        match self {
            Buffer::InPlace(frames) | Buffer::Joined(frames) => frames.slices(),
            Buffer::Small(bytes) => vec![bytes],
        }
    }

    /// Where the data goes, in order.
    pub(crate) fn io_slices_mut(&mut self) -> Vec<IoSliceMut<'_>> {
        match self {
            Buffer::InPlace(frames) | Buffer::Joined(frames) => frames.io_slices_mut(),
            Buffer::Small(bytes) => vec![IoSliceMut::new(bytes)],
        }
    }
}

impl Payload for Incoming {
    fn buffers(&mut self) -> Vec<IoSliceMut<'_>> {
        match &mut self.0 {
            Kind::Opened(_) | Kind::Held(_) => Vec::new(),
            Kind::Write(write) => write.buffer.io_slices_mut(),
        }
    }
}
