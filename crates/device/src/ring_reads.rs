//! A queue of reads through a ring.
//!
//! The queue takes a ring of its device when it has reads to do, and gives it back when it has none
//! any more; without one, reads are done by plain calls, one after the other, when they are waited for.
//!
//! What makes this sound: a frame of which the kernel may still read a part stays in the queue, and the
//! queue does not end before the kernel is done.

use std::collections::VecDeque;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

use io_uring::{opcode, types};
use rustix::io::Errno;
use slab::Slab;

use crate::file::FileDevice;
use crate::read_queue::{FrameRead, ReadEnd, ReadPart, ReadQueue, read_plainly};
use crate::ring::{DEPTH, Lease};
use crate::{DeviceError, Frame};

/// Most completions that are taken at a time: the caller has work with each, and while it does that
/// work other reads could be begun.
const REAPED: usize = 4;

/// A read whose parts are not all done.
struct Slot {
    tag: usize,
    frame: Frame,
    /// Where the frame's memory begins. While the kernel may write to some of it, nobody makes a
    /// reference to the whole.
    memory: NonNull<u8>,
    parts: Vec<ReadPart>,
    /// Parts that are waiting to be put into the ring, or in it.
    left: usize,
    /// What failed first.
    failed: Option<DeviceError>,
}

impl Slot {
    /// Where the rest of a part goes on the device, and the memory for it.
    fn rest(&self, part: usize) -> (u64, *mut [u8]) {
        let ReadPart { offset, range } = &self.parts[part];
        let start = self.memory.as_ptr().wrapping_add(range.start);
        (*offset, std::ptr::slice_from_raw_parts_mut(start, range.len()))
    }
}

/// One part of a read, by places in the lists.
#[derive(Clone, Copy)]
struct PartOf {
    slot: usize,
    part: usize,
}

impl PartOf {
    fn to_word(self) -> u64 {
        ((self.slot as u64) << 32) | self.part as u64
    }

    fn of_word(word: u64) -> PartOf {
        PartOf { slot: (word >> 32) as usize, part: word as u32 as usize }
    }
}

/// See the module.
pub(crate) struct RingReads<'d> {
    device: &'d FileDevice,
    lease: Option<Lease<'d>>,
    slots: Slab<Slot>,
    /// Parts that are to be put into the ring.
    waiting: VecDeque<PartOf>,
    /// Entries put into the ring whose completions have not been seen.
    pushed: usize,
    ended: Vec<ReadEnd>,
}

impl<'d> RingReads<'d> {
    pub(crate) fn new(device: &'d FileDevice) -> RingReads<'d> {
        RingReads {
            device,
            lease: None,
            slots: Slab::new(),
            waiting: VecDeque::new(),
            pushed: 0,
            ended: Vec::new(),
        }
    }

    /// Puts into the ring what waits, as far as there is room; whether it put anything.
    fn fill(&mut self) -> bool {
        let RingReads { device, lease, slots, waiting, pushed, .. } = self;
        let Some(ring) = lease.as_mut().and_then(Lease::ring) else { return false };
        let before = *pushed;
        let mut queue = ring.submission();
        while *pushed < DEPTH && !queue.is_full() {
            let Some(of) = waiting.pop_front() else { break };
            let Some(slot) = slots.get_mut(of.slot) else { continue };
            let (offset, memory) = slot.rest(of.part);
            let fd = types::Fd(device.descriptor().as_raw_fd());
            // A part is no longer than a frame.
            let entry = opcode::Read::new(fd, memory.cast(), memory.len() as u32)
                .offset(offset)
                .build()
                .user_data(of.to_word());
            // SAFETY: the descriptor is the device's, which outlives `self`. The memory is the
            // frame's, which stays in its slot, where nobody touches this part of it, until the
            // completion has been seen; `drop` waits for that.
            let put = unsafe { queue.push(&entry) };
            debug_assert!(put.is_ok(), "the queue was not full");
            *pushed += 1;
        }
        *pushed > before
    }

    /// Takes the completions that are there.
    fn reap(&mut self) {
        let Some(ring) = self.lease.as_mut().and_then(Lease::ring) else { return };
        let completions: Vec<(u64, i32)> = ring
            .completion()
            .take(REAPED)
            .map(|entry| (entry.user_data(), entry.result()))
            .collect();
        self.pushed -= completions.len();
        for (word, result) in completions {
            self.complete(PartOf::of_word(word), result);
        }
    }

    /// Notes what came of a part.
    fn complete(&mut self, of: PartOf, result: i32) {
        let Some(slot) = self.slots.get_mut(of.slot) else { return };
        let part = &mut slot.parts[of.part];
        match usize::try_from(result) {
            Ok(bytes) if bytes > 0 => {
                part.offset += bytes as u64;
                part.range.start += bytes;
                if !part.range.is_empty() {
                    self.waiting.push_back(of);
                    return;
                }
            }
            // What the ring does not do is tried by a plain call: it tells the error, if it is one.
            _ => {
                let (offset, memory) = slot.rest(of.part);
                // SAFETY: the memory lies within the slot's frame, and the kernel has given this part
                // of it back.
                let read = self.device.read_single(offset, unsafe { &mut *memory });
                slot.failed = slot.failed.take().or(read.err());
                let range = &mut slot.parts[of.part].range;
                range.start = range.end;
            }
        }
        self.part_done(of.slot);
    }

    /// One part less of a read is left.
    fn part_done(&mut self, index: usize) {
        let Some(slot) = self.slots.get_mut(index) else { return };
        slot.left -= 1;
        if slot.left == 0 {
            let Slot { tag, frame, failed, .. } = self.slots.remove(index);
            self.ended.push(ReadEnd { tag, frame, outcome: failed.map_or(Ok(()), Err) });
        }
    }

    /// Does by plain calls, without a ring, what waits, until `least` reads have ended.
    fn serve_plainly(&mut self, least: usize) {
        while self.ended.len() < least
            && let Some(of) = self.waiting.pop_front()
        {
            // As an entry that a ring gave back undone.
            self.complete(of, -Errno::AGAIN.raw_os_error());
        }
    }

    /// Whether completions are there already.
    fn has_completions(&mut self) -> bool {
        let ring = self.lease.as_mut().and_then(Lease::ring);
        ring.is_some_and(|ring| !ring.completion().is_empty())
    }

    /// Gives the kernel what was put into the ring and waits for `want` completions; whether the ring
    /// works.
    fn enter(&mut self, want: usize) -> bool {
        self.lease.as_mut().is_some_and(|lease| lease.submit_and_wait(want))
    }

    /// The ring does not work any more: what the kernel has is waited for, and the rest is done by
    /// plain calls.
    fn abandon_ring(&mut self) {
        self.drain();
        let undone = self.slots.iter().flat_map(|(slot, read)| {
            let parts = read.parts.iter().enumerate();
            let undone = parts.filter(|(_, part)| !part.range.is_empty());
            // What the kernel may have done meanwhile is done again.
            undone.map(move |(part, _)| PartOf { slot, part })
        });
        let undone: Vec<PartOf> = undone.collect();
        for of in undone {
            self.complete(of, -Errno::AGAIN.raw_os_error());
        }
        self.waiting.clear();
    }

    /// Waits until the kernel has nothing of this queue, and gives up the ring if it has entries that
    /// the kernel never took. What completed meanwhile is not looked at.
    fn drain(&mut self) {
        if let Some(lease) = &mut self.lease {
            lease.drain(self.pushed);
        }
        self.pushed = 0;
        self.lease = None;
    }
}

impl ReadQueue for RingReads<'_> {
    fn begin(&mut self, read: FrameRead) {
        let FrameRead { tag, mut frame, mut parts } = read;
        parts.retain(|part| !part.range.is_empty());
        let refused = self.device.check_parts(&frame, &parts).err();
        if refused.is_some() || parts.is_empty() {
            let outcome = refused.map_or(Ok(()), Err);
            return self.ended.push(ReadEnd { tag, frame, outcome });
        }
        if parts.windows(2).any(|pair| pair[0].range.end > pair[1].range.start) {
            // The kernel would write to the same memory twice.
            return self.ended.push(read_plainly(self.device, FrameRead { tag, frame, parts }));
        }
        let (memory, count) = (NonNull::from(&mut frame[..]).cast(), parts.len());
        let slot = Slot { tag, frame, memory, parts, left: count, failed: None };
        let index = self.slots.insert(slot);
        self.waiting.extend((0..count).map(|part| PartOf { slot: index, part }));
    }

    fn under_way(&self) -> usize {
        self.slots.len() + self.ended.len()
    }

    fn ended(&mut self, least: usize) -> Vec<ReadEnd> {
        let is_single = self.pushed == 0 && self.waiting.len() == 1;
        if self.lease.is_none() && !self.waiting.is_empty() && !(is_single && least > 0) {
            self.lease = self.device.lease();
        }
        if self.lease.is_none() {
            // One alone is faster without a ring; and where there is none, others have a turn in between.
            self.serve_plainly(least);
            return std::mem::take(&mut self.ended);
        }
        loop {
            let is_more_to_do = self.fill() || !self.has_completions();
            let lacking = least.saturating_sub(self.ended.len()).min(self.pushed);
            if is_more_to_do && !self.slots.is_empty() && !self.enter(lacking) {
                self.abandon_ring();
            }
            self.reap();
            let is_enough = self.ended.len() >= least || self.slots.is_empty();
            // What is waiting is under way before anything else is done.
            if is_enough && (self.waiting.is_empty() || self.pushed == DEPTH) {
                break;
            }
        }
        if self.slots.is_empty() {
            self.lease = None;
        }
        std::mem::take(&mut self.ended)
    }
}

impl Drop for RingReads<'_> {
    fn drop(&mut self) {
        self.drain();
    }
}
