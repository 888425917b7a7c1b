//! Reads that go on while their thread does something else.
//!
//! A queue belongs to one thread. It owns the memory of its reads until they have ended, so that
//! nothing else can touch it meanwhile.

use std::io::IoSliceMut;
use std::ops::Range;

use crate::{BlockDevice, DeviceError, Frame};

/// What of a frame is to be read, from where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadPart {
    /// First byte on the device.
    pub offset: u64,
    /// The bytes of the frame.
    pub range: Range<usize>,
}

/// Parts of a frame that are to be read.
#[derive(Debug)]
pub struct FrameRead {
    /// What the caller knows it by.
    pub tag: usize,
    /// The memory. Bytes that are not read stay as they are.
    pub frame: Frame,
    /// What goes where: parts of the frame that do not overlap.
    pub parts: Vec<ReadPart>,
}

/// A read that has ended.
#[derive(Debug)]
pub struct ReadEnd {
    /// As it was begun.
    pub tag: usize,
    /// The memory, in which anything may be if the read failed.
    pub frame: Frame,
    /// Whether all parts were read.
    pub outcome: Result<(), DeviceError>,
}

/// See the module. One that is dropped waits for what is under way.
pub trait ReadQueue {
    /// Begins a read.
    fn begin(&mut self, read: FrameRead);

    /// How many reads have been begun and not been given back.
    fn under_way(&self) -> usize;

    /// Gives back reads that have ended, perhaps not all of them at once; waits until `least` of them
    /// have, or all.
    fn ended(&mut self, least: usize) -> Vec<ReadEnd>;
}

/// A queue that does each read when it is begun: for devices that have nothing better.
pub(crate) struct PlainReads<'d, D: ?Sized> {
    device: &'d D,
    ended: Vec<ReadEnd>,
}

impl<'d, D: BlockDevice + ?Sized> PlainReads<'d, D> {
    pub(crate) fn new(device: &'d D) -> Self {
        PlainReads { device, ended: Vec::new() }
    }
}

impl<D: BlockDevice + ?Sized> ReadQueue for PlainReads<'_, D> {
    fn begin(&mut self, read: FrameRead) {
        self.ended.push(read_plainly(self.device, read));
    }

    fn under_way(&self) -> usize {
        self.ended.len()
    }

    fn ended(&mut self, _least: usize) -> Vec<ReadEnd> {
        std::mem::take(&mut self.ended)
    }
}

/// Reads by plain calls, one after the other.
pub(crate) fn read_plainly<D: BlockDevice + ?Sized>(device: &D, read: FrameRead) -> ReadEnd {
    let FrameRead { tag, mut frame, parts } = read;
    let outcome = parts.into_iter().try_for_each(|ReadPart { offset, range }| {
        device.read(offset, &mut [IoSliceMut::new(&mut frame[range])])
    });
    ReadEnd { tag, frame, outcome }
}
