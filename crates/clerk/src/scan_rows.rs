//! Rows of a part of a scan, in the memory that they came in, so that they are copied to where they are wanted and nowhere before.

use std::collections::VecDeque;
use std::ops::Range;

/// Whole rows in order, in slices of some of them.
#[derive(Debug, Default)]
pub struct ScanRows {
    /// What most of them came in.
    memory: Memory,
    /// Those that came in no memory that is kept.
    own: Vec<u8>,
    /// Those that are left; none is of no bytes.
    slices: VecDeque<Slice>,
}

/// What rows came in.
#[derive(Debug)]
pub(crate) enum Memory {
    /// Answers of drives.
    Answers(Vec<Vec<u8>>),
    /// Room for what was found here.
    Room(Vec<u8>),
}

#[derive(Debug)]
struct Slice {
    /// The number of the answer, of one room 0, or `OWN`.
    answer: usize,
    range: Range<usize>,
}

/// The number of what is in `own`.
const OWN: usize = usize::MAX;

impl Default for Memory {
    fn default() -> Memory {
        Memory::Answers(Vec::new())
    }
}

impl ScanRows {
    /// Whether all of them were taken.
    pub fn is_empty(&self) -> bool {
        self.slices.is_empty()
    }

    /// The slices that are left.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        self.slices.iter().map(|slice| self.bytes(slice.answer, slice.range.clone()))
    }

    /// The first of them, of no bytes if there is none.
    pub fn first(&self) -> &[u8] {
        self.slices().next().unwrap_or_default()
    }

    /// Takes so many bytes of the first slice, or all of them if these are fewer.
    pub fn take(&mut self, bytes: usize) -> &[u8] {
        let Some(first) = self.slices.front_mut() else {
            return &[];
        };
        let answer = first.answer;
        let end = first.range.start + bytes.min(first.range.len());
        let taken = first.range.start..end;
        first.range.start = end;
        if first.range.is_empty() {
            self.slices.pop_front();
        }
        self.bytes(answer, taken)
    }

    /// Puts a copy of rows behind them. What is put at a time may be a part of one, if the rest follows.
    pub fn put(&mut self, rows: &[u8]) {
        let start = self.own.len();
        self.own.extend_from_slice(rows);
        match self.slices.back_mut() {
            Some(last) if last.answer == OWN && last.range.end == start => {
                last.range.end = self.own.len();
            }
            _ => self.push(OWN, start..self.own.len()),
        }
    }

    /// Puts rows behind them, which are in one of these parts of the memory that is to be held.
    pub(crate) fn put_held(&mut self, memory: &[&[u8]], rows: &[u8]) {
        let holds = |part: &&[u8]| {
            let (part, rows) = (part.as_ptr_range(), rows.as_ptr_range());
            part.start <= rows.start && rows.end <= part.end
        };
        match memory.iter().position(holds) {
            Some(answer) => {
                let start = rows.as_ptr().addr() - memory[answer].as_ptr().addr();
                self.push(answer, start..start + rows.len());
            }
            None => self.put(rows),
        }
    }

    /// Takes the memory that rows were put in by `put_held`: once, behind all of them, before any is looked at.
    pub(crate) fn hold(&mut self, memory: Memory) {
        self.memory = memory;
    }

    /// There are none any more. The memory that they came in is given to nobody.
    pub fn clear(&mut self) {
        self.release();
    }

    /// There are none any more: what they were in.
    pub(crate) fn release(&mut self) -> Memory {
        self.slices.clear();
        self.own.clear();
        std::mem::take(&mut self.memory)
    }

    fn push(&mut self, answer: usize, range: Range<usize>) {
        if !range.is_empty() {
            self.slices.push_back(Slice { answer, range });
        }
    }

    fn bytes(&self, answer: usize, range: Range<usize>) -> &[u8] {
        let of = match &self.memory {
            _ if answer == OWN => &self.own,
            Memory::Answers(answers) => &answers[answer],
            Memory::Room(room) => room,
        };
        &of[range]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stay_where_they_came_in_and_are_taken_in_order() {
        let answers = [b"..onetwo".to_vec(), b"three.".to_vec()];
        let memory: Vec<&[u8]> = answers.iter().map(Vec::as_slice).collect();
        let mut rows = ScanRows::default();
        rows.put_held(&memory, &memory[0][2..8]);
        rows.put(b"be");
        rows.put(b"tween");
        rows.put_held(&memory, &memory[1][..5]);
        rows.put_held(&memory, &memory[1][5..5]);
        let at = memory[1].as_ptr();
        rows.hold(Memory::Answers(answers.into()));
        assert_eq!(rows.slices().collect::<Vec<_>>(), [&b"onetwo"[..], b"between", b"three"]);
        assert_eq!(rows.slices().last().map(<[u8]>::as_ptr), Some(at));
        assert_eq!(rows.take(3), b"one");
        assert_eq!(rows.first(), b"two");
        assert_eq!(rows.take(9), b"two");
        assert_eq!(rows.take(7), b"between");
        assert_eq!(rows.take(5), b"three");
        assert!(rows.is_empty() && rows.take(1).is_empty() && rows.first().is_empty());
    }

    #[test]
    fn rows_of_other_memory_are_copied() {
        let room = b"here".to_vec();
        let mut rows = ScanRows::default();
        rows.put_held(&[&room], b"elsewhere");
        rows.put_held(&[&room], &room[1..3]);
        let at = room[1..].as_ptr();
        rows.hold(Memory::Room(room));
        assert_eq!(rows.slices().collect::<Vec<_>>(), [&b"elsewhere"[..], b"er"]);
        assert_eq!(rows.slices().last().map(<[u8]>::as_ptr), Some(at));
        assert!(matches!(rows.release(), Memory::Room(room) if room == b"here"));
        assert!(rows.is_empty());
        // Nothing of before is among others.
        rows.put(b"ab");
        assert_eq!(rows.take(1), b"a");
        rows.put(b"c");
        assert_eq!(rows.slices().collect::<Vec<_>>(), [b"bc"]);
    }
}
