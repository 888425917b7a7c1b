//! Lines of JSON (RFC 8259): reading the members that are needed into vectors.
//!
//! Every line is checked whole. Text is not checked for being UTF-8.

use crate::batch::Batch;
use crate::compile::Load;
use crate::format::{JsonLines, Type};
use crate::number::{parse_float, parse_int};
use crate::vector::{Place, Selection, Text, Vector};

/// Most levels of arrays and objects in one another; a line with more is no record.
const MAX_LEVELS: usize = 64;

/// A string of the line.
#[derive(Clone, Copy)]
struct Quoted {
    start: usize,
    end: usize,
    escaped: bool,
}

/// A value of the line.
enum Value {
    Null,
    Bool(bool),
    Text(Quoted),
    Number { start: usize, end: usize },
    Other,
}

/// Reads members of the selected lines into their registers; tells `bad` those that are no records.
pub(crate) fn load(
    format: &JsonLines,
    loads: &[Load],
    batch: &Batch<'_>,
    selection: &Selection,
    vectors: &mut [Vector],
    scratch: &mut Vec<u8>,
    mut bad: impl FnMut(usize),
) {
    for &index in selection.as_slice() {
        let index = usize::from(index);
        let content = batch.bounds.content(index);
        let mut line = Line { bytes: &batch.bytes[content.clone()], at: 0 };
        let mut members =
            Members { format, loads, start: content.start, index, vectors, scratch, seen: [0; 16] };
        if line.object(&mut members).is_none() {
            bad(index);
        }
    }
}

/// Where the members of one line go.
struct Members<'a> {
    format: &'a JsonLines,
    loads: &'a [Load],
    /// The line's beginning in the batch.
    start: usize,
    index: usize,
    vectors: &'a mut [Vector],
    scratch: &'a mut Vec<u8>,
    /// A bit for each load whose member was there: a name that is there twice has no one value.
    seen: [u64; 16],
}

impl Members<'_> {
    /// The load that wants a member of this name.
    fn find(&mut self, line: &[u8], name: Quoted) -> Option<usize> {
        let raw = &line[name.start..name.end];
        let first = self.scratch.len();
        if name.escaped {
            unescape(raw, self.scratch)?;
        }
        let text = if name.escaped { &self.scratch[first..] } else { raw };
        let columns = &self.format.columns;
        let found = self.loads.iter().position(|load| columns[load.column].name.as_bytes() == text);
        self.scratch.truncate(first);
        found
    }

    fn set(&mut self, line: &[u8], load: usize, value: &Value) -> Option<()> {
        let bit = 1 << (load % 64);
        if self.seen[load / 64] & bit != 0 {
            return None;
        }
        self.seen[load / 64] |= bit;
        let load = self.loads[load];
        let vector = &mut self.vectors[usize::from(load.register)];
        vector.nulls[self.index] = false;
        match (value, self.format.columns[load.column].kind) {
            (Value::Null, _) => vector.nulls[self.index] = true,
            (Value::Bool(value), Type::Bool) => vector.bools[self.index] = *value,
            (Value::Number { start, end }, Type::Int) => {
                vector.ints[self.index] = parse_int(&line[*start..*end])?;
            }
            (Value::Number { start, end }, Type::Float) => {
                vector.floats[self.index] = parse_float(&line[*start..*end])?;
            }
            (Value::Text(text), Type::Text) => {
                let mut place = Text {
                    place: Place::Input,
                    start: (self.start + text.start) as u32,
                    length: (text.end - text.start) as u32,
                };
                if text.escaped {
                    let first = self.scratch.len();
                    unescape(&line[text.start..text.end], self.scratch)?;
                    place.place = Place::Scratch;
                    place.start = first as u32;
                    place.length = (self.scratch.len() - first) as u32;
                }
                vector.texts[self.index] = place;
            }
            _ => return None,
        }
        Some(())
    }

    /// Those that were not there are NULL.
    fn finish(&mut self) {
        for (number, load) in self.loads.iter().enumerate() {
            if self.seen[number / 64] & (1 << (number % 64)) == 0 {
                self.vectors[usize::from(load.register)].nulls[self.index] = true;
            }
        }
    }
}

/// A walk over one line. `None` everywhere: it is not JSON.
struct Line<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Line<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn spaces(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r')) {
            self.at += 1;
        }
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        if self.peek()? != byte {
            return None;
        }
        self.at += 1;
        Some(())
    }

    /// The whole line: an object and nothing else.
    fn object(&mut self, members: &mut Members<'_>) -> Option<()> {
        self.spaces();
        self.expect(b'{')?;
        self.spaces();
        if self.peek()? == b'}' {
            self.at += 1;
        } else {
            loop {
                let name = self.member_name()?;
                let value = self.value(1)?;
                if let Some(load) = members.find(self.bytes, name) {
                    members.set(self.bytes, load, &value)?;
                }
                if !self.goes_on(b'}')? {
                    break;
                }
            }
        }
        self.spaces();
        members.finish();
        (self.at == self.bytes.len()).then_some(())
    }

    /// A name and its colon.
    fn member_name(&mut self) -> Option<Quoted> {
        self.spaces();
        let name = self.string()?;
        self.spaces();
        self.expect(b':')?;
        Some(name)
    }

    /// Whether a comma follows, or the end.
    fn goes_on(&mut self, end: u8) -> Option<bool> {
        self.spaces();
        let byte = self.peek()?;
        self.at += 1;
        match byte {
            b',' => Some(true),
            _ if byte == end => Some(false),
            _ => None,
        }
    }

    fn value(&mut self, level: usize) -> Option<Value> {
        self.spaces();
        match self.peek()? {
            b'"' => self.string().map(Value::Text),
            b'-' | b'0'..=b'9' => self.number(),
            b'{' | b'[' => self.nested(level),
            b'n' => self.word(b"null").map(|()| Value::Null),
            b't' => self.word(b"true").map(|()| Value::Bool(true)),
            b'f' => self.word(b"false").map(|()| Value::Bool(false)),
            _ => None,
        }
    }

    fn word(&mut self, word: &[u8]) -> Option<()> {
        if !self.bytes[self.at..].starts_with(word) {
            return None;
        }
        self.at += word.len();
        Some(())
    }

    /// An object or an array that is passed over.
    fn nested(&mut self, level: usize) -> Option<Value> {
        if level == MAX_LEVELS {
            return None;
        }
        let object = self.peek()? == b'{';
        let end = if object { b'}' } else { b']' };
        self.at += 1;
        self.spaces();
        if self.peek()? == end {
            self.at += 1;
            return Some(Value::Other);
        }
        loop {
            if object {
                self.member_name()?;
            }
            self.value(level + 1)?;
            if !self.goes_on(end)? {
                return Some(Value::Other);
            }
        }
    }

    fn digits(&mut self) -> Option<()> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        (self.at > start).then_some(())
    }

    fn number(&mut self) -> Option<Value> {
        let start = self.at;
        if self.peek()? == b'-' {
            self.at += 1;
        }
        match self.peek()? {
            b'0' => self.at += 1,
            _ => self.digits()?,
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Some(Value::Number { start, end: self.at })
    }

    fn string(&mut self) -> Option<Quoted> {
        self.expect(b'"')?;
        let start = self.at;
        let mut escaped = false;
        loop {
            match self.peek()? {
                b'"' => break,
                b'\\' => {
                    escaped = true;
                    let (length, _) = escape(&self.bytes[self.at..])?;
                    self.at += length;
                }
                0..=0x1f => return None,
                _ => self.at += 1,
            }
        }
        let end = self.at;
        self.at += 1;
        Some(Quoted { start, end, escaped })
    }
}

/// The escape at the beginning of `text`: its bytes, and what it stands for.
fn escape(text: &[u8]) -> Option<(usize, char)> {
    let simple = match text.get(1)? {
        b'"' => '"',
        b'\\' => '\\',
        b'/' => '/',
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => {
            let unit = four_digits(text)?;
            if !(0xd800..0xdc00).contains(&unit) {
                // The second half of a pair alone is no character.
                return Some((6, char::from_u32(unit)?));
            }
            let low = four_digits(&text[6..])?;
            if !(0xdc00..0xe000).contains(&low) {
                return None;
            }
            let character = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
            return Some((12, char::from_u32(character)?));
        }
        _ => return None,
    };
    Some((2, simple))
}

/// The number of `\uXXXX`.
fn four_digits(text: &[u8]) -> Option<u32> {
    let digits = text.get(..6)?.strip_prefix(b"\\u")?;
    digits.iter().try_fold(0, |sum, &digit| Some(sum * 16 + char::from(digit).to_digit(16)?))
}

/// Appends what a string with escapes stands for; never more bytes than it has.
fn unescape(text: &[u8], into: &mut Vec<u8>) -> Option<()> {
    let mut rest = text;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        into.extend_from_slice(&rest[..at]);
        let (length, character) = escape(&rest[at..])?;
        into.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        rest = &rest[at + length..];
    }
    into.extend_from_slice(rest);
    Some(())
}
