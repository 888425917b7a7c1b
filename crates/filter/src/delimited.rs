//! Lines of delimited fields: reading the columns that are needed into vectors.
//!
//! The structure of every line is checked whole; a field's text is read only where a column is needed.

use crate::batch::Batch;
use crate::compile::Load;
use crate::format::{Delimited, Type};
use crate::number::{parse_float, parse_int};
use crate::vector::{Place, Selection, Text, Vector};

/// Reads columns of the selected lines; tells `bad` those that are no records, by structure if `check` or
/// by a field that does not parse.
pub(crate) struct Reader<'a> {
    pub(crate) format: &'a Delimited,
    pub(crate) loads: &'a [Load],
    /// Whether the whole line is looked at, or was before.
    pub(crate) check: bool,
}

/// A field of a line.
struct FieldText {
    /// In the line, without quotes around it.
    start: usize,
    end: usize,
    /// Whether quotes inside are doubled.
    doubled: bool,
    /// Where the delimiter behind it is, or the line's end.
    stop: usize,
}

/// A one in each byte of a word.
const ONES: u64 = 0x0101_0101_0101_0101;

/// Bytes in which words are counted at most: of more another way is quicker, and a byte has to hold the sum.
const SHORT: usize = 128;

/// How many of `byte` there are in `bytes`, which are expected to be few.
#[inline]
fn count_near(byte: u8, bytes: &[u8]) -> usize {
    /// One in each byte that is zero, and in no other one.
    fn zeros(word: u64) -> u64 {
        const LOW: u64 = !(ONES << 7);
        !(((word & LOW) + LOW) | word | LOW) >> 7
    }
    if bytes.len() > SHORT {
        return memchr::memchr_iter(byte, bytes).count();
    }
    let Some(last) = bytes.last_chunk::<8>() else {
        return bytes.iter().filter(|other| **other == byte).count();
    };
    let found = |chunk: &[u8; 8]| zeros(u64::from_le_bytes(*chunk) ^ (ONES * u64::from(byte)));
    let (chunks, rest) = bytes.as_chunks::<8>();
    // Those of the last word that are in no chunk are its highest bytes.
    let of_rest = found(last).checked_shr(64 - 8 * rest.len() as u32).unwrap_or(0);
    // Each byte counts, and no sum of them is more than a byte holds: not all processors that this is built for count bits.
    let of_each = chunks.iter().fold(of_rest, |sum, chunk| sum + found(chunk));
    (of_each.wrapping_mul(ONES) >> 56) as usize
}

/// The first `byte` in `bytes`, which is expected near.
#[inline]
fn find_near(byte: u8, bytes: &[u8]) -> usize {
    let mut at = 0;
    while at < 32 {
        let Some(chunk) = bytes[at..].first_chunk::<8>() else {
            let rest = &bytes[at..];
            return at + rest.iter().position(|&other| other == byte).unwrap_or(rest.len());
        };
        // The lowest byte that is zero after the exclusive or is the first that is `byte`.
        let word = u64::from_le_bytes(*chunk) ^ (ONES * u64::from(byte));
        let zeros = word.wrapping_sub(ONES) & !word & (ONES << 7);
        if zeros != 0 {
            return at + zeros.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    memchr::memchr(byte, &bytes[at..]).map_or(bytes.len(), |found| at + found)
}

impl Reader<'_> {
    pub(crate) fn read(
        &self,
        batch: &Batch<'_>,
        selection: &Selection,
        vectors: &mut [Vector],
        scratch: &mut Vec<u8>,
        mut bad: impl FnMut(usize),
    ) {
        let quote = self.format.quote;
        let quoted = quote.filter(|&quote| memchr::memchr(quote, batch.bytes).is_some());
        for &index in selection.as_slice() {
            let index = usize::from(index);
            let content = batch.bounds.content(index);
            let line = &batch.bytes[content.clone()];
            let good = match quoted {
                Some(quote) if memchr::memchr(quote, line).is_some() => {
                    self.quoted_line(quote, line, content.start, index, vectors, scratch)
                }
                _ => self.plain_line(line, content.start, index, vectors),
            };
            if good.is_none() {
                bad(index);
            }
        }
    }

    /// A line without quotes. `None` if it is no record.
    #[inline]
    fn plain_line(
        &self,
        line: &[u8],
        start: usize,
        index: usize,
        vectors: &mut [Vector],
    ) -> Option<()> {
        let delimiter = self.format.delimiter;
        // The field that `at` is the beginning of; beyond the line's end when there is none.
        let (mut column, mut at) = (0, 0);
        let mut loads = self.loads.iter();
        for load in loads.by_ref() {
            while column < load.column && at <= line.len() {
                at += find_near(delimiter, &line[at..]) + 1;
                column += 1;
            }
            let vector = &mut vectors[usize::from(load.register)];
            if at > line.len() {
                vector.nulls[index] = true;
                break;
            }
            let length = find_near(delimiter, &line[at..]);
            let text = &line[at..at + length];
            let place =
                Text { place: Place::Input, start: (start + at) as u32, length: length as u32 };
            set(vector, self.format.columns[load.column].kind, index, text, place)?;
            at += length + 1;
            column += 1;
        }
        for load in loads {
            vectors[usize::from(load.register)].nulls[index] = true;
        }
        if self.check && at <= line.len() {
            // `column` fields are before `at`, one begins there, one behind each delimiter.
            let behind = &line[at..];
            column += 1 + count_near(delimiter, behind);
        }
        (column <= self.format.columns.len()).then_some(())
    }

    /// A line with quotes. `None` if it is no record.
    fn quoted_line(
        &self,
        quote: u8,
        line: &[u8],
        start: usize,
        index: usize,
        vectors: &mut [Vector],
        scratch: &mut Vec<u8>,
    ) -> Option<()> {
        let (mut column, mut at) = (0, 0);
        let mut loads = self.loads.iter().peekable();
        while at <= line.len() && (self.check || loads.peek().is_some()) {
            let field = self.field(quote, line, at)?;
            if let Some(load) = loads.next_if(|load| load.column == column) {
                let mut text = &line[field.start..field.end];
                let (begin, length) = ((start + field.start) as u32, text.len() as u32);
                let mut place = Text { place: Place::Input, start: begin, length };
                if field.doubled {
                    let first = scratch.len();
                    undouble(quote, text, scratch);
                    text = &scratch[first..];
                    let (begin, length) = (first as u32, text.len() as u32);
                    place = Text { place: Place::Scratch, start: begin, length };
                }
                let vector = &mut vectors[usize::from(load.register)];
                set(vector, self.format.columns[column].kind, index, text, place)?;
            }
            at = field.stop + 1;
            column += 1;
            if column > self.format.columns.len() {
                return None;
            }
        }
        for load in loads {
            vectors[usize::from(load.register)].nulls[index] = true;
        }
        Some(())
    }

    /// The field that begins at `at`. `None` if its quotes are not in order.
    fn field(&self, quote: u8, line: &[u8], at: usize) -> Option<FieldText> {
        let delimiter = self.format.delimiter;
        if line.get(at) != Some(&quote) {
            let end = at + find_near(delimiter, &line[at..]);
            return Some(FieldText { start: at, end, doubled: false, stop: end });
        }
        let start = at + 1;
        let (mut end, mut doubled) = (start, false);
        loop {
            end += memchr::memchr(quote, &line[end..])?;
            if line.get(end + 1) != Some(&quote) {
                break;
            }
            doubled = true;
            end += 2;
        }
        let stop = end + 1;
        let closed = line.get(stop).is_none_or(|&byte| byte == delimiter);
        closed.then_some(FieldText { start, end, doubled, stop })
    }
}

fn undouble(quote: u8, text: &[u8], into: &mut Vec<u8>) {
    let mut rest = text;
    while let Some(at) = memchr::memchr(quote, rest) {
        into.extend_from_slice(&rest[..=at]);
        rest = &rest[at + 2..];
    }
    into.extend_from_slice(rest);
}

/// Sets a value from its text; an empty one is NULL. `None` if it does not parse.
#[inline]
fn set(vector: &mut Vector, kind: Type, index: usize, text: &[u8], place: Text) -> Option<()> {
    vector.nulls[index] = text.is_empty();
    if text.is_empty() {
        return Some(());
    }
    match kind {
        Type::Int => vector.ints[index] = parse_int(text)?,
        Type::Float => vector.floats[index] = parse_float(text)?,
        Type::Text => vector.texts[index] = place,
        Type::Bool => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn words_find_and_count_what_bytes_do(
            bytes in prop::collection::vec(prop_oneof![Just(b','), Just(b'-'), Just(0x80), Just(0xac), any::<u8>()], 0..300),
            byte in prop_oneof![Just(b','), Just(0), Just(0xff), any::<u8>()],
        ) {
            let counted = bytes.iter().filter(|other| **other == byte).count();
            prop_assert_eq!(count_near(byte, &bytes), counted);
            let found = bytes.iter().position(|other| *other == byte).unwrap_or(bytes.len());
            prop_assert_eq!(find_near(byte, &bytes), found);
        }
    }
}
