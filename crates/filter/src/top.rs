//! The first records in an order: a heap of the best so far, the worst of them at its root.

use crate::aggregate::Value;
use crate::arena::{Arena, Slot};
use crate::batch::Batch;
use crate::compile::Outcome;
use crate::error::{Limit, MergeError};
use crate::evaluate::Machine;
use crate::format::Type;
use crate::number::{float_bits, float_order};
use crate::output::{Counter, Filler, Output, Sink};
use crate::plan::{self, Checked};
use crate::row::Rows;
use nasd_xdr::{Decoder, XdrError};
use std::cmp::Ordering;

/// The mark of a partial result of this kind.
const PARTIAL: u32 = 2;

/// A record that is kept.
#[derive(Clone, Copy, Debug)]
struct Entry {
    null: bool,
    /// The value that it is ordered by: its bits, or the slot of a text.
    key: u64,
    /// Where the record begins in the file.
    offset: u64,
    row: Slot,
}

/// A record of a top's result.
#[derive(Clone, Debug, PartialEq)]
pub struct TopRow {
    /// What it is ordered by.
    pub key: Value,
    /// Where it begins in the file, in bytes; of several files in all of them, one behind the other.
    pub offset: u64,
    /// The record, or its projection, as a Select gives it.
    pub row: Vec<u8>,
}

/// A value to order by.
#[derive(Clone, Copy)]
enum Key<'a> {
    Null,
    Bits(u64),
    Text(&'a [u8]),
}

/// The best records so far.
pub(crate) struct Top {
    kind: Type,
    descending: bool,
    limit: usize,
    /// Every entry comes behind its two children, in the order of the result.
    heap: Vec<Entry>,
    arena: Arena,
    /// What is added to offsets of records of partial results: they are behind those of other files.
    behind: u64,
}

impl Top {
    pub(crate) fn new(checked: &Checked, program: &plan::Top) -> Top {
        let limit = program.count as usize;
        Top {
            kind: checked.code().outputs[0].kind,
            descending: program.descending,
            limit,
            heap: Vec::with_capacity(limit),
            arena: Arena::new(checked.plan().options.state_bytes as usize),
            behind: 0,
        }
    }

    pub(crate) fn memory_bytes(checked: &Checked, program: &plan::Top) -> usize {
        size_of::<Top>()
            + program.count as usize * size_of::<Entry>()
            + checked.plan().options.state_bytes as usize
    }

    /// Offers the selected records of a batch.
    pub(crate) fn update(
        &mut self,
        machine: &Machine,
        batch: &Batch<'_>,
        order: &Outcome,
        rows: &Rows<'_>,
    ) -> Result<(), Limit> {
        let vector = machine.vector(order.register);
        let places = machine.places(batch.bytes);
        for &index in machine.selected().as_slice() {
            let index = usize::from(index);
            let key = match order.kind {
                _ if vector.nulls[index] => Key::Null,
                Type::Bool => Key::Bits(vector.bools[index].into()),
                Type::Int => Key::Bits(vector.ints[index].cast_unsigned()),
                Type::Float => Key::Bits(float_bits(vector.floats[index])),
                Type::Text => Key::Text(places.get(vector.texts[index])),
            };
            let offset = batch.offset + u64::from(batch.bounds.starts[index]);
            if self.make_room(key, offset) {
                let mut counter = Counter::default();
                rows.put(index, &mut counter);
                let row = self.arena.allocate(counter.0).ok_or(Limit::StateBytes)?;
                rows.put(index, &mut Filler { room: self.arena.get_mut(row), length: 0 });
                self.insert(key, offset, row)?;
            }
        }
        Ok(())
    }

    /// Whether a record belongs to the best so far; if so there is a place for it.
    fn make_room(&mut self, key: Key<'_>, offset: u64) -> bool {
        if self.heap.len() < self.limit {
            return true;
        }
        let Some(&worst) = self.heap.first() else {
            return false;
        };
        let order = self.order(key, self.key_of(&worst)).then(offset.cmp(&worst.offset));
        if order.is_ge() {
            return false;
        }
        self.heap.swap_remove(0);
        self.sift_down(0);
        self.arena.release(worst.row);
        if self.kind == Type::Text && !worst.null {
            self.arena.release(Slot::from_word(worst.key));
        }
        true
    }

    fn insert(&mut self, key: Key<'_>, offset: u64, row: Slot) -> Result<(), Limit> {
        let (null, key) = match key {
            Key::Null => (true, 0),
            Key::Bits(bits) => (false, bits),
            Key::Text(text) => (false, self.arena.keep(text).ok_or(Limit::StateBytes)?.to_word()),
        };
        self.heap.push(Entry { null, key, offset, row });
        let mut at = self.heap.len() - 1;
        while at > 0 {
            let parent = (at - 1) / 2;
            if self.entry_order(&self.heap[at], &self.heap[parent]).is_le() {
                break;
            }
            self.heap.swap(at, parent);
            at = parent;
        }
        Ok(())
    }

    fn sift_down(&mut self, mut at: usize) {
        loop {
            let mut last = at;
            for child in [2 * at + 1, 2 * at + 2] {
                if child < self.heap.len()
                    && self.entry_order(&self.heap[child], &self.heap[last]).is_gt()
                {
                    last = child;
                }
            }
            if last == at {
                return;
            }
            self.heap.swap(at, last);
            at = last;
        }
    }

    fn key_of(&self, entry: &Entry) -> Key<'_> {
        match self.kind {
            _ if entry.null => Key::Null,
            Type::Text => Key::Text(self.arena.get(Slot::from_word(entry.key))),
            _ => Key::Bits(entry.key),
        }
    }

    fn entry_order(&self, left: &Entry, right: &Entry) -> Ordering {
        let order = self.order(self.key_of(left), self.key_of(right));
        order.then(left.offset.cmp(&right.offset))
    }

    /// Which key comes first in the result.
    fn order(&self, left: Key<'_>, right: Key<'_>) -> Ordering {
        let order = match (left, right) {
            (Key::Null, Key::Null) => return Ordering::Equal,
            // Last whatever the direction.
            (Key::Null, _) => return Ordering::Greater,
            (_, Key::Null) => return Ordering::Less,
            (Key::Text(left), Key::Text(right)) => left.cmp(right),
            (Key::Bits(left), Key::Bits(right)) => match self.kind {
                Type::Float => float_order(f64::from_bits(left), f64::from_bits(right)),
                _ => left.cast_signed().cmp(&right.cast_signed()),
            },
            // Keys of one top are all of its type.
            _ => Ordering::Equal,
        };
        if self.descending { order.reverse() } else { order }
    }

    /// The entries in the result's order; nothing is added afterwards.
    pub(crate) fn sort(&mut self) {
        let mut heap = std::mem::take(&mut self.heap);
        heap.sort_unstable_by(|left, right| self.entry_order(left, right));
        self.heap = heap;
    }

    /// Writes the partial result, which is sorted, from `item` on: its head, then each record. Tells
    /// whether it is whole.
    pub(crate) fn emit(
        &self,
        output: &mut Output<'_>,
        item: &mut usize,
        progress: &mut usize,
    ) -> bool {
        while *item <= self.heap.len() {
            if !output.item(progress, |part| self.put_item(*item, part)) {
                return false;
            }
            *item += 1;
        }
        true
    }

    /// Bytes of the partial result.
    pub(crate) fn result_bytes(&self) -> usize {
        let mut counter = Counter::default();
        (0..=self.heap.len()).for_each(|item| self.put_item(item, &mut counter));
        counter.0
    }

    /// No less than these bytes, without looking at each record.
    pub(crate) fn result_bound(&self) -> usize {
        // Lengths, and what fills up the last words of a key and a row.
        12 + self.heap.len() * (4 + 8 + 8 + 8) + self.arena.used_bytes()
    }

    fn put_item(&self, item: usize, sink: &mut impl Sink) {
        let Some(entry) = item.checked_sub(1).map(|number| &self.heap[number]) else {
            sink.put_u32(PARTIAL);
            sink.put_u32(self.kind.into());
            sink.put_u32(self.heap.len() as u32);
            return;
        };
        sink.put_u32(u32::from(!entry.null));
        match self.key_of(entry) {
            Key::Null => {}
            Key::Bits(bits) => sink.put_u64(bits),
            Key::Text(text) => sink.put_opaque(text),
        }
        sink.put_u64(entry.offset);
        sink.put_opaque(self.arena.get(entry.row));
    }

    /// Partial results that come now are of a file behind one of so many bytes, and all before it.
    pub(crate) fn next_file(&mut self, bytes: u64) {
        self.behind = self.behind.saturating_add(bytes);
    }

    /// Adds a partial result.
    pub(crate) fn merge(&mut self, bytes: &[u8]) -> Result<(), MergeError> {
        let mut input = Decoder::new(bytes);
        if (input.u32()?, input.u32()?) != (PARTIAL, self.kind.into()) {
            return Err(MergeError::OtherProgram);
        }
        let count = input.u32()?;
        if count as usize > self.limit {
            return Err(XdrError::Invalid("more records than the program asks for").into());
        }
        for _ in 0..count {
            let there = input.bool()?;
            let key = match self.kind {
                _ if !there => Key::Null,
                Type::Text => Key::Text(input.opaque(usize::MAX)?),
                _ => Key::Bits(input.u64()?),
            };
            let offset = input.u64()?.saturating_add(self.behind);
            let bytes = input.opaque(usize::MAX)?;
            if self.make_room(key, offset) {
                let row = self.arena.keep(bytes).ok_or(Limit::StateBytes)?;
                self.insert(key, offset, row)?;
            }
        }
        input.finish()?;
        Ok(())
    }

    /// The records, in order.
    pub(crate) fn rows(&mut self) -> Vec<TopRow> {
        self.sort();
        let rows = self.heap.iter().map(|entry| TopRow {
            key: match (self.key_of(entry), self.kind) {
                (Key::Null, _) => Value::Null,
                (Key::Text(text), _) => Value::Text(text.to_vec()),
                (Key::Bits(bits), Type::Bool) => Value::Bool(bits != 0),
                (Key::Bits(bits), Type::Float) => Value::Float(f64::from_bits(bits)),
                (Key::Bits(bits), _) => Value::Int(bits.cast_signed()),
            },
            offset: entry.offset,
            row: self.arena.get(entry.row).to_vec(),
        });
        rows.collect()
    }
}
