//! A queue of reads behind an arm.
//!
//! The bytes come by a queue of the device below, the time by the arm; a read has ended when both have
//! come.

use slab::Slab;

use crate::arm::{Commands, Disk, Place};
use crate::read_queue::{FrameRead, ReadEnd, ReadQueue};

/// A read of which the bytes or the time are still to come.
struct Slot {
    tag: usize,
    /// Its parts that the arm has not served.
    left: usize,
    /// What came of the bytes.
    end: Option<ReadEnd>,
}

/// See the module.
pub(crate) struct SeekReads<'d> {
    // Dropped first: nothing is read once the commands are gone.
    bytes: Box<dyn ReadQueue + 'd>,
    commands: Commands<'d>,
    disk: &'d Disk,
    slots: Slab<Slot>,
    ended: Vec<ReadEnd>,
}

impl<'d> SeekReads<'d> {
    /// Reads by `bytes`, as fast as `disk` does.
    pub(crate) fn new(bytes: Box<dyn ReadQueue + 'd>, disk: &'d Disk) -> SeekReads<'d> {
        let commands = disk.commands();
        SeekReads { bytes, commands, disk, slots: Slab::new(), ended: Vec::new() }
    }

    /// Takes the reads whose bytes have come, at least `least`.
    fn take_bytes(&mut self, least: usize) {
        if self.bytes.under_way() == 0 {
            return;
        }
        for end in self.bytes.ended(least) {
            let index = end.tag;
            let Some(slot) = self.slots.get_mut(index) else { continue };
            if end.outcome.is_err() {
                // What can't be read takes no time that has not begun to pass.
                slot.left -= self.commands.withdraw(index);
            }
            slot.end = Some(ReadEnd { tag: slot.tag, ..end });
            self.end_if_done(index);
        }
    }

    /// Takes what the arm has served, at least `least` parts.
    fn take_times(&mut self, least: usize) {
        for index in self.commands.ended(least) {
            if let Some(slot) = self.slots.get_mut(index) {
                slot.left -= 1;
                self.end_if_done(index);
            }
        }
    }

    fn end_if_done(&mut self, index: usize) {
        let is_done = |slot: &Slot| slot.left == 0 && slot.end.is_some();
        if self.slots.get(index).is_some_and(is_done) {
            self.ended.extend(self.slots.remove(index).end);
        }
    }
}

impl ReadQueue for SeekReads<'_> {
    fn begin(&mut self, read: FrameRead) {
        let came = self.disk.now();
        let places = read
            .parts
            .iter()
            .map(|part| Place { offset: part.offset, length: part.range.len() as u64 });
        let places: Vec<Place> = places.collect();
        // Does not end in here: what can't be read at all takes no time.
        let index = self.slots.insert(Slot { tag: read.tag, left: 1, end: None });
        self.bytes.begin(FrameRead { tag: index, ..read });
        self.take_bytes(0);
        let slot = &mut self.slots[index];
        if slot.end.as_ref().is_none_or(|end| end.outcome.is_ok()) {
            slot.left += self.commands.transfer(index, places, came);
        }
        slot.left -= 1;
        self.end_if_done(index);
    }

    fn under_way(&self) -> usize {
        self.slots.len() + self.ended.len()
    }

    fn ended(&mut self, least: usize) -> Vec<ReadEnd> {
        // Where time is only counted, it must not matter how fast the bytes come.
        self.take_bytes(if self.disk.sleeps() { 0 } else { self.bytes.under_way() });
        self.take_times(0);
        while self.ended.len() < least && !self.slots.is_empty() {
            if self.slots.iter().any(|(_, slot)| slot.left == 0) {
                self.take_bytes(1);
            } else {
                self.take_times(1);
                self.take_bytes(0);
            }
        }
        std::mem::take(&mut self.ended)
    }
}
