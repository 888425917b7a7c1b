//! Fixed records: reading fields into vectors, and comparisons that are made on the bytes themselves.

use crate::batch::Batch;
use crate::compile::Load;
use crate::expression::{Comparison, Expression, Literal};
use crate::format::{FieldKind, Fixed, Type};
use crate::number::float_order;
use crate::vector::{BATCH, Place, Selection, Text, Vector};

/// A comparison of a field with constants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FixedCompare {
    /// Bytes of a record before the field.
    offset: usize,
    test: Test,
}

#[derive(Clone, Copy, Debug)]
enum Test {
    /// Whether `value - low`, as an unsigned number, is at most `span`; or, not `inside`, that it isn't.
    Int {
        load: IntLoad,
        low: i64,
        span: u64,
        inside: bool,
    },
    Float {
        wide: bool,
        big_endian: bool,
        comparison: Comparison,
        value: f64,
    },
}

#[derive(Clone, Copy, Debug)]
struct IntLoad {
    bytes: u8,
    signed: bool,
    big_endian: bool,
}

impl FixedCompare {
    /// Of an expression that compares a numeric field with constants; no other.
    pub(crate) fn new(fixed: &Fixed, expression: &Expression) -> Option<FixedCompare> {
        match expression {
            Expression::Compare(comparison, left, right) => match (&**left, &**right) {
                (Expression::Column(column), Expression::Literal(literal)) => {
                    Self::of(fixed, *column, *comparison, literal)
                }
                (Expression::Literal(literal), Expression::Column(column)) => {
                    Self::of(fixed, *column, comparison.exchanged(), literal)
                }
                _ => None,
            },
            Expression::Between { value, low, high, negated } => {
                match (&**value, &**low, &**high) {
                    (
                        Expression::Column(column),
                        Expression::Literal(Literal::Int(low)),
                        Expression::Literal(Literal::Int(high)),
                    ) => Self::within(fixed, *column, *low, *high, !negated),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    fn of(
        fixed: &Fixed,
        column: u16,
        comparison: Comparison,
        literal: &Literal,
    ) -> Option<FixedCompare> {
        let field = fixed.fields.get(usize::from(column))?;
        match (field.kind, literal) {
            (FieldKind::Integer { .. }, Literal::Int(value)) => {
                let value = *value;
                let (low, high, inside) = match comparison {
                    Comparison::Equal => (value, value, true),
                    Comparison::NotEqual => (value, value, false),
                    Comparison::Less => (value, i64::MAX, false),
                    Comparison::LessEqual => (i64::MIN, value, true),
                    Comparison::Greater => (i64::MIN, value, false),
                    Comparison::GreaterEqual => (value, i64::MAX, true),
                };
                Self::within(fixed, column, low, high, inside)
            }
            (FieldKind::Float { bytes, big_endian }, Literal::Int(_) | Literal::Float(_)) => {
                let value = match literal {
                    Literal::Int(value) => *value as f64,
                    Literal::Float(value) => *value,
                    _ => return None,
                };
                let test = Test::Float { wide: bytes == 8, big_endian, comparison, value };
                Some(FixedCompare { offset: fixed.field_offset(usize::from(column)), test })
            }
            _ => None,
        }
    }

    fn within(
        fixed: &Fixed,
        column: u16,
        low: i64,
        high: i64,
        inside: bool,
    ) -> Option<FixedCompare> {
        let field = fixed.fields.get(usize::from(column))?;
        let FieldKind::Integer { bytes, signed, big_endian } = field.kind else {
            return None;
        };
        let load = IntLoad { bytes, signed, big_endian };
        // Nothing is within a range that ends before it begins: what is not in all numbers.
        let (low, high, inside) =
            if low <= high { (low, high, inside) } else { (i64::MIN, i64::MAX, !inside) };
        let span = high.wrapping_sub(low).cast_unsigned();
        let offset = fixed.field_offset(usize::from(column));
        Some(FixedCompare { offset, test: Test::Int { load, low, span, inside } })
    }

    /// Keeps the selected records for which it holds.
    pub(crate) fn narrow(&self, batch: &Batch<'_>, size: usize, selection: &mut Selection) {
        let records = Records { bytes: batch.bytes, size, offset: self.offset, count: batch.count };
        match self.test {
            Test::Int { load, low, span, inside } => {
                let holds =
                    |value: i64| (value.wrapping_sub(low).cast_unsigned() <= span) == inside;
                // One loop for each width: the compiler makes a plain load of each.
                match (load.bytes, load.signed, load.big_endian) {
                    (1, true, _) => {
                        records.narrow(selection, |b| holds(i8::from_le_bytes(b).into()))
                    }
                    (1, false, _) => {
                        records.narrow(selection, |b| holds(u8::from_le_bytes(b).into()))
                    }
                    (2, true, false) => {
                        records.narrow(selection, |b| holds(i16::from_le_bytes(b).into()));
                    }
                    (2, true, true) => {
                        records.narrow(selection, |b| holds(i16::from_be_bytes(b).into()));
                    }
                    (2, false, false) => {
                        records.narrow(selection, |b| holds(u16::from_le_bytes(b).into()));
                    }
                    (2, false, true) => {
                        records.narrow(selection, |b| holds(u16::from_be_bytes(b).into()));
                    }
                    (4, true, false) => {
                        records.narrow(selection, |b| holds(i32::from_le_bytes(b).into()));
                    }
                    (4, true, true) => {
                        records.narrow(selection, |b| holds(i32::from_be_bytes(b).into()));
                    }
                    (4, false, false) => {
                        records.narrow(selection, |b| holds(u32::from_le_bytes(b).into()));
                    }
                    (4, false, true) => {
                        records.narrow(selection, |b| holds(u32::from_be_bytes(b).into()));
                    }
                    (_, _, false) => records.narrow(selection, |b| holds(i64::from_le_bytes(b))),
                    (_, _, true) => records.narrow(selection, |b| holds(i64::from_be_bytes(b))),
                }
            }
            Test::Float { wide, big_endian, comparison, value } => {
                let holds = |other: f64| comparison.holds(float_order(other, value));
                match (wide, big_endian) {
                    (false, false) => {
                        records.narrow(selection, |b| holds(f32::from_le_bytes(b).into()));
                    }
                    (false, true) => {
                        records.narrow(selection, |b| holds(f32::from_be_bytes(b).into()));
                    }
                    (true, false) => records.narrow(selection, |b| holds(f64::from_le_bytes(b))),
                    (true, true) => records.narrow(selection, |b| holds(f64::from_be_bytes(b))),
                }
            }
        }
    }
}

/// One field of the records of a batch.
struct Records<'a> {
    bytes: &'a [u8],
    size: usize,
    offset: usize,
    count: usize,
}

impl Records<'_> {
    #[inline]
    fn narrow<const N: usize>(&self, selection: &mut Selection, holds: impl Fn([u8; N]) -> bool) {
        if selection.len() == self.count {
            let records = self.bytes.chunks_exact(self.size).take(self.count);
            selection.collect(records.map(|record| holds(self.field(record))));
        } else {
            selection.retain(|index| holds(self.field(&self.bytes[index * self.size..])));
        }
    }

    #[inline]
    fn field<const N: usize>(&self, record: &[u8]) -> [u8; N] {
        // Fields lie within their records, so it is never short.
        record[self.offset..].first_chunk::<N>().copied().unwrap_or([0; N])
    }
}

/// Reads the fields of the selected records into their registers; tells `bad` the records that hold a
/// number that is no `i64`.
pub(crate) fn load(
    fixed: &Fixed,
    loads: &[Load],
    batch: &Batch<'_>,
    selection: &Selection,
    vectors: &mut [Vector],
    mut bad: impl FnMut(usize),
) {
    let size = fixed.record_bytes();
    for load in loads {
        let kind = fixed.fields[load.column].kind;
        let offset = fixed.field_offset(load.column);
        let records = Records { bytes: batch.bytes, size, offset, count: batch.count };
        let vector = &mut vectors[usize::from(load.register)];
        match kind {
            FieldKind::Integer { bytes, signed, big_endian } => {
                records.load_ints(
                    IntLoad { bytes, signed, big_endian },
                    selection,
                    vector,
                    &mut bad,
                );
            }
            FieldKind::Float { bytes, big_endian } => {
                let wide = bytes == 8;
                for &index in selection.as_slice() {
                    let index = usize::from(index);
                    let record = &records.bytes[index * size..];
                    vector.floats[index] = match (wide, big_endian) {
                        (false, false) => f32::from_le_bytes(records.field(record)).into(),
                        (false, true) => f32::from_be_bytes(records.field(record)).into(),
                        (true, false) => f64::from_le_bytes(records.field(record)),
                        (true, true) => f64::from_be_bytes(records.field(record)),
                    };
                }
            }
            FieldKind::Text { bytes } => {
                for &index in selection.as_slice() {
                    let index = usize::from(index);
                    let start = index * size + offset;
                    let text = &records.bytes[start..start + bytes as usize];
                    let length = memchr::memchr(0, text).unwrap_or(text.len());
                    let (start, length) = (start as u32, length as u32);
                    vector.texts[index] = Text { place: Place::Input, start, length };
                }
            }
        }
    }
}

impl Records<'_> {
    fn load_ints(
        &self,
        load: IntLoad,
        selection: &Selection,
        vector: &mut Vector,
        bad: &mut impl FnMut(usize),
    ) {
        match (load.bytes, load.signed, load.big_endian) {
            (1, true, _) => self.gather(selection, vector, |b| i8::from_le_bytes(b).into()),
            (1, false, _) => self.gather(selection, vector, |b| u8::from_le_bytes(b).into()),
            (2, true, false) => self.gather(selection, vector, |b| i16::from_le_bytes(b).into()),
            (2, true, true) => self.gather(selection, vector, |b| i16::from_be_bytes(b).into()),
            (2, false, false) => self.gather(selection, vector, |b| u16::from_le_bytes(b).into()),
            (2, false, true) => self.gather(selection, vector, |b| u16::from_be_bytes(b).into()),
            (4, true, false) => self.gather(selection, vector, |b| i32::from_le_bytes(b).into()),
            (4, true, true) => self.gather(selection, vector, |b| i32::from_be_bytes(b).into()),
            (4, false, false) => self.gather(selection, vector, |b| u32::from_le_bytes(b).into()),
            (4, false, true) => self.gather(selection, vector, |b| u32::from_be_bytes(b).into()),
            (_, _, false) => self.gather(selection, vector, i64::from_le_bytes),
            (_, _, true) => self.gather(selection, vector, i64::from_be_bytes),
        }
        if load.bytes == 8 && !load.signed {
            // The upper half of the unsigned ones reads as negative.
            let wide = selection.as_slice().iter().map(|&index| usize::from(index));
            wide.filter(|&index| vector.ints[index] < 0).for_each(bad);
        }
    }

    #[inline]
    fn gather<const N: usize>(
        &self,
        selection: &Selection,
        vector: &mut Vector,
        value: impl Fn([u8; N]) -> i64,
    ) {
        let ints = &mut vector.ints[..BATCH];
        if selection.len() == self.count {
            let records = self.bytes.chunks_exact(self.size);
            for (slot, record) in ints.iter_mut().zip(records).take(self.count) {
                *slot = value(self.field(record));
            }
            return;
        }
        for &index in selection.as_slice() {
            let index = usize::from(index) & (BATCH - 1);
            ints[index] = value(self.field(&self.bytes[index * self.size..]));
        }
    }
}

/// Bytes of a computed value in a projected fixed record: whether it is there, then the value.
pub(crate) fn computed_bytes(kind: Type, text_bytes: usize) -> usize {
    1 + match kind {
        Type::Bool => 1,
        Type::Int | Type::Float => 8,
        Type::Text => 4 + text_bytes,
    }
}
