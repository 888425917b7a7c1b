//! A search that is asked for where the bytes are: what is asked, and the one buffer in which it is answered.
//!
//! Nothing is kept between two requests. An answer is, for each piece that was looked at, its [`Report`] in XDR, then its head,
//! its items and its tail as they are, without padding. Where it is full the piece is cut, and the rest of it is asked
//! for as a piece of its own. A piece whose report is `done` is the last one, whatever was asked for behind it.
//!
//! An item is a number, twice the distance of the line's from that of the item before (of the first line behind the head it is
//! 1), and one more if the line is selected; a number, how many bytes the text has; the text. Numbers are in base 128, the
//! least digits first, 128 added to all but the last.

use crate::pattern::Pattern;
use crate::wanted::Wanted;
use nasd_xdr::{Decoder, Encoder, XdrDecode, XdrEncode, XdrError};
use std::ops::Range;

/// The number of the drives' extension that answers.
pub const EXTENSION: u32 = 3;
/// The revision of it that this is.
pub const REVISION: u32 = 1;

/// Bytes of a report.
pub const REPORT_BYTES: usize = 5 * 8 + 2 * 4;

/// What is asked for besides the pieces (`nasd_grep_request`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Which lines are meant.
    pub pattern: Pattern,
    /// What is to be told of them.
    pub wanted: Wanted,
}

impl XdrEncode for Request {
    fn encode(&self, out: &mut Encoder) {
        self.pattern.encode(out);
        self.wanted.encode(out);
    }
}

impl XdrDecode for Request {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Request { pattern: Pattern::decode(input)?, wanted: Wanted::decode(input)? })
    }
}

/// What was found in a piece (`nasd_grep_report`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Lines between head and tail, where those were to be counted.
    pub lines: u64,
    /// Those of them that are selected.
    pub selected: u64,
    /// Bytes of the head.
    pub head_bytes: u64,
    /// Bytes of the items.
    pub item_bytes: u64,
    /// Bytes of the tail.
    pub tail_bytes: u64,
    /// Whether there is no line end in the piece: all of it is head.
    pub all_head: bool,
    /// Whether as many were selected as were wanted: neither tail nor what follows are needed then.
    pub done: bool,
}

impl XdrEncode for Report {
    fn encode(&self, out: &mut Encoder) {
        out.u64(self.lines);
        out.u64(self.selected);
        out.u64(self.head_bytes);
        out.u64(self.item_bytes);
        out.u64(self.tail_bytes);
        out.bool(self.all_head);
        out.bool(self.done);
    }
}

impl XdrDecode for Report {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Report {
            lines: input.u64()?,
            selected: input.u64()?,
            head_bytes: input.u64()?,
            item_bytes: input.u64()?,
            tail_bytes: input.u64()?,
            all_head: input.bool()?,
            done: input.bool()?,
        })
    }
}

/// A line that is given, or something in it that matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// How much greater the line's number is than that of the item before.
    pub distance: u64,
    /// Whether it is selected; otherwise it is context.
    pub is_selected: bool,
    /// Without a line end.
    pub text: &'a [u8],
}

impl<'a> Item<'a> {
    fn numbers(&self) -> [u64; 2] {
        [self.distance << 1 | u64::from(self.is_selected), self.text.len() as u64]
    }

    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.text.len() + self.numbers().map(number_bytes).iter().sum::<usize>()
    }

    pub(crate) fn append_to(&self, answer: &mut Vec<u8>) {
        for number in self.numbers() {
            append_number(number, answer);
        }
        answer.extend_from_slice(self.text);
    }

    /// Takes the first of some items.
    fn take(items: &mut &'a [u8]) -> Option<Item<'a>> {
        let line = take_number(items)?;
        let bytes = usize::try_from(take_number(items)?).ok()?;
        let (text, rest) = items.split_at_checked(bytes)?;
        *items = rest;
        Some(Item { distance: line >> 1, is_selected: line & 1 == 1, text })
    }
}

fn number_bytes(number: u64) -> usize {
    (64 - (number | 1).leading_zeros()).div_ceil(7) as usize
}

fn append_number(mut number: u64, to: &mut Vec<u8>) {
    while number >= 128 {
        to.push(number as u8 | 128);
        number >>= 7;
    }
    to.push(number as u8);
}

fn take_number(from: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (&digit, rest) = from.split_first()?;
        *from = rest;
        let bits = u64::from(digit & 127);
        if bits << shift >> shift != bits {
            return None;
        }
        number |= bits << shift;
        if digit < 128 {
            return Some(number);
        }
    }
    None
}

/// What an answer tells of one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// Where it begins in the file.
    pub offset: u64,
    /// The byte of the file that it ends before.
    pub end: u64,
    /// What was found.
    pub report: Report,
    /// What is before the first line end, and that.
    pub head: &'a [u8],
    /// What was found.
    pub items: &'a [u8],
    /// What is behind the last line end.
    pub tail: &'a [u8],
}

impl<'a> Part<'a> {
    /// What was found, in order; `None` of what is no item, with which it ends.
    pub fn items(&self) -> impl Iterator<Item = Option<Item<'a>>> + use<'a> {
        let mut items = self.items;
        std::iter::from_fn(move || {
            if items.is_empty() {
                return None;
            }
            let item = Item::take(&mut items);
            if item.is_none() {
                items = &[];
            }
            Some(item)
        })
    }
}

/// Reads an answer to a request for pieces of a file, which has come up to byte `position`: what it tells of each piece.
///
/// # Errors
///
/// If it is none.
pub fn read_answer(
    pieces: impl IntoIterator<Item = Range<u64>>,
    position: u64,
    data: &[u8],
) -> Result<Vec<Part<'_>>, XdrError> {
    let mut input = Decoder::new(data);
    let mut parts = Vec::new();
    for piece in pieces.into_iter().take_while(|piece| piece.start < position) {
        let end = piece.end.min(position);
        let report: Report = XdrDecode::decode(&mut input)?;
        let mut take = |bytes: u64| {
            let bytes = usize::try_from(bytes).map_err(|_| XdrError::Invalid("a length"))?;
            input.take(bytes)
        };
        let (head, items) = (take(report.head_bytes)?, take(report.item_bytes)?);
        let tail = take(report.tail_bytes)?;
        let part = Part { offset: piece.start, end, report, head, items, tail };
        if part.items().any(|item| item.is_none()) {
            return Err(XdrError::Invalid("an item"));
        }
        parts.push(part);
        if report.done {
            break;
        }
    }
    match input.rest() {
        [] => Ok(parts),
        _ => Err(XdrError::Invalid("more than was asked for")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_as_long_as_is_said() {
        assert_eq!(nasd_xdr::to_bytes(&Report::default()).len(), REPORT_BYTES);
    }

    #[test]
    fn items_are_what_they_were() {
        for distance in [0, 1, 63, 64, 8191, 8192, u64::MAX >> 1] {
            for length in [0, 1, 127, 128, 20_000] {
                let text = vec![b'x'; length];
                let item = Item { distance, is_selected: length % 2 == 0, text: &text };
                let mut bytes = Vec::new();
                item.append_to(&mut bytes);
                assert_eq!(bytes.len(), item.bytes());
                let mut rest = &bytes[..];
                assert_eq!(Item::take(&mut rest), Some(item));
                assert!(rest.is_empty());
                assert_eq!(Item::take(&mut &bytes[..bytes.len() - 1]), None);
            }
        }
        assert_eq!(take_number(&mut &[255; 10][..]), None);
        assert_eq!(take_number(&mut &[128; 11][..]), None);
    }
}
