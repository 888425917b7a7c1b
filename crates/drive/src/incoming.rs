//! Data of a write on its way in: received where it will stay.
//!
//! Buffers are the scarce thing here: a write gets one when its digest is right, and not before.

use std::io::IoSliceMut;

use nasd_protocol::drive::WriteArguments;
use nasd_store::IncomingFrames;
use nasd_transport::Payload;

use crate::authority::Grant;

/// A write that is being received, or has been.
#[derive(Debug)]
pub struct Incoming {
    pub(crate) arguments: WriteArguments,
    pub(crate) buffer: Buffer,
    /// Of every check but those of the data.
    pub(crate) grant: Grant,
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
}

impl Payload for Incoming {
    fn buffers(&mut self) -> Vec<IoSliceMut<'_>> {
        match &mut self.buffer {
            Buffer::InPlace(frames) | Buffer::Joined(frames) => frames.io_slices_mut(),
            Buffer::Small(bytes) => vec![IoSliceMut::new(bytes)],
        }
    }
}
