//! What is given of a selected record: its own bytes, or a row of its projection.

use crate::aggregate::Value;
use crate::batch::Batch;
use crate::compile::Outcome;
use crate::evaluate::Machine;
use crate::format::{Fixed, Format, Type};
use crate::number::{NumberText, float_bits};
use crate::output::{Output, Sink};

/// The rows of an evaluated batch.
pub(crate) struct Rows<'a> {
    pub(crate) format: &'a Format,
    /// Expressions of the projection, if there is one.
    pub(crate) projection: Option<&'a [Outcome]>,
    pub(crate) machine: &'a Machine,
    pub(crate) batch: Batch<'a>,
}

impl Rows<'_> {
    /// Writes the first of the selected records, where they are given as they stand and there is room for whole ones. Tells
    /// how many, which may be none.
    #[inline]
    pub(crate) fn put_some(&self, selected: &[u16], output: &mut Output<'_>) -> usize {
        if self.projection.is_some() {
            return 0;
        }
        let Format::Fixed(fixed) = self.format else { return self.put_run(selected, output) };
        let size = fixed.record_bytes();
        let (first, last) = (usize::from(selected[0]), usize::from(selected[selected.len() - 1]));
        if last - first + 1 == selected.len() {
            return self.put_between(first, selected.len().min(output.room() / size), size, output);
        }
        let written = match size {
            0..=16 => self.put_short::<16>(selected, size, output),
            17..=32 => self.put_short::<32>(selected, size, output),
            33..=64 => self.put_short::<64>(selected, size, output),
            65..=128 => self.put_short::<128>(selected, size, output),
            _ => 0,
        };
        if written > 0 { written } else { self.put_run(selected, output) }
    }

    /// Writes records of one length without a gap.
    fn put_between(
        &self,
        first: usize,
        count: usize,
        size: usize,
        output: &mut Output<'_>,
    ) -> usize {
        let run = &self.batch.bytes[first * size..(first + count) * size];
        if output.put_whole(run) { count } else { 0 }
    }

    /// Writes short records of one length as if each had `N` bytes; the next one is written over what is too much. So no branch
    /// and no length depends on which are selected. Ends where the input or the room does.
    #[inline]
    fn put_short<const N: usize>(
        &self,
        selected: &[u16],
        size: usize,
        output: &mut Output<'_>,
    ) -> usize {
        let place = |index: &u16| self.batch.bytes[usize::from(*index) * size..].first_chunk::<N>();
        output.put_overlapping(selected.iter().map_while(place), size)
    }

    /// Writes records that lie one after the other at once, as many as there is room for.
    #[inline]
    fn put_run(&self, selected: &[u16], output: &mut Output<'_>) -> usize {
        let (starts, nexts) = (&self.batch.bounds.starts, &self.batch.bounds.nexts);
        let first = usize::from(selected[0]);
        let (start, room) = (starts[first], output.room());
        let joins = |pair: &&[u16]| {
            let (left, right) = (usize::from(pair[0]), usize::from(pair[1]));
            nexts[left] == starts[right] && (nexts[right] - start) as usize <= room
        };
        let count = 1 + selected.windows(2).take_while(joins).count();
        match self.run(first, usize::from(selected[count - 1])) {
            Some(run) if output.put_whole(run) => count,
            _ => 0,
        }
    }

    /// The bytes of records that lie one after the other, from the first to the last; `None` if the last one has no end.
    #[inline]
    fn run(&self, first: usize, last: usize) -> Option<&[u8]> {
        let bounds = self.batch.bounds;
        let run = &self.batch.bytes[bounds.starts[first] as usize..bounds.nexts[last] as usize];
        let whole = matches!(self.format, Format::Fixed(_)) || run.ends_with(b"\n");
        whole.then_some(run)
    }

    /// Writes one row.
    pub(crate) fn put<S: Sink>(&self, index: usize, sink: &mut S) {
        let bounds = self.batch.bounds;
        let Some(outcomes) = self.projection else {
            let bytes =
                &self.batch.bytes[bounds.starts[index] as usize..bounds.nexts[index] as usize];
            sink.put(bytes);
            if !matches!(self.format, Format::Fixed(_)) && !bytes.ends_with(b"\n") {
                sink.put(b"\n");
            }
            return;
        };
        match self.format {
            Format::Fixed(fixed) => self.put_packed(fixed, outcomes, index, sink),
            Format::Delimited(format) => {
                let quote = format.quote.unwrap_or(b'"');
                self.put_line(outcomes, format.delimiter, quote, index, sink);
            }
            Format::JsonLines(_) | Format::Columns(_) => {
                self.put_line(outcomes, b',', b'"', index, sink)
            }
        }
    }

    /// Fields as they stand; what is computed as a byte that tells whether it is there, and its value.
    fn put_packed<S: Sink>(&self, fixed: &Fixed, outcomes: &[Outcome], index: usize, sink: &mut S) {
        let start = self.batch.bounds.starts[index] as usize;
        for outcome in outcomes {
            if let Some(column) = outcome.column {
                let start = start + fixed.field_offset(column);
                sink.put(&self.batch.bytes[start..start + fixed.fields[column].kind.bytes()]);
                continue;
            }
            let vector = self.machine.vector(outcome.register);
            let there = !vector.nulls[index];
            sink.put(&[u8::from(there)]);
            match outcome.kind {
                Type::Bool => sink.put(&[u8::from(there && vector.bools[index])]),
                Type::Int => {
                    sink.put(&(if there { vector.ints[index] } else { 0 }).to_le_bytes());
                }
                Type::Float => {
                    // Processors do not agree on the bits of a NaN that they make.
                    let bits = if there { float_bits(vector.floats[index]) } else { 0 };
                    sink.put(&bits.to_le_bytes());
                }
                Type::Text => {
                    // Never NULL: no operator makes a text, so it is a constant.
                    let text = self.machine.places(self.batch.bytes).get(vector.texts[index]);
                    sink.put(&(text.len() as u32).to_le_bytes());
                    sink.put(text);
                }
            }
        }
    }

    /// A line of delimited text. NULL is empty, an empty text is quoted.
    fn put_line<S: Sink>(
        &self,
        outcomes: &[Outcome],
        delimiter: u8,
        quote: u8,
        index: usize,
        sink: &mut S,
    ) {
        for (number, outcome) in outcomes.iter().enumerate() {
            if number > 0 {
                sink.put(&[delimiter]);
            }
            let vector = self.machine.vector(outcome.register);
            if vector.nulls[index] {
                continue;
            }
            match outcome.kind {
                Type::Bool => sink.put(if vector.bools[index] { b"true" } else { b"false" }),
                Type::Int => sink.put(NumberText::of_int(vector.ints[index]).as_bytes()),
                Type::Float => sink.put(NumberText::of_float(vector.floats[index]).as_bytes()),
                Type::Text => {
                    let text = self.machine.places(self.batch.bytes).get(vector.texts[index]);
                    put_text(text, delimiter, quote, sink);
                }
            }
        }
        sink.put(b"\n");
    }
}

/// A row of an Aggregate's result as a line of delimited text, as those of a Select are written.
pub fn delimited_row<'a>(
    values: impl IntoIterator<Item = &'a Value>,
    delimiter: u8,
    quote: u8,
) -> Vec<u8> {
    let mut line = Vec::new();
    for (number, value) in values.into_iter().enumerate() {
        if number > 0 {
            line.push(delimiter);
        }
        match value {
            Value::Null => {}
            Value::Bool(value) => line.extend(value.to_string().into_bytes()),
            Value::Int(value) => line.extend(value.to_string().into_bytes()),
            Value::HugeInt(value) => line.extend(value.to_string().into_bytes()),
            Value::Float(value) => line.extend(NumberText::of_float(*value).as_bytes()),
            Value::Text(text) => put_text(text, delimiter, quote, &mut line),
        }
    }
    line.push(b'\n');
    line
}

/// A text, in quotes if it is empty or could be taken for something else.
fn put_text<S: Sink>(text: &[u8], delimiter: u8, quote: u8, sink: &mut S) {
    let plain = |byte: &u8| *byte != delimiter && *byte != quote && !matches!(*byte, b'\n' | b'\r');
    if !text.is_empty() && text.iter().all(plain) {
        sink.put(text);
        return;
    }
    sink.put(&[quote]);
    let mut rest = text;
    while let Some(at) = memchr::memchr(quote, rest) {
        sink.put(&rest[..=at]);
        sink.put(&[quote]);
        rest = &rest[at + 1..];
    }
    sink.put(rest);
    sink.put(&[quote]);
}
