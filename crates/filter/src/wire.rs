//! The XDR form of plans, pieces and reports: bounded before anything is allocated or descended into. Floats travel as the
//! bits of an IEEE 754 double, in an unsigned hyper.

use crate::expression::{Expression, Literal, MAX_DEPTH, MAX_NODES, MAX_TEXT_BYTES};
use crate::format::{
    Column, Delimited, Field, FieldKind, Fixed, Format, JsonLines, MAX_COLUMNS, MAX_NAME_BYTES,
};
use crate::plan::{
    Aggregate, Item, MAX_ITEMS, MAX_KEYS, MAX_PROJECTION, Options, Plan, Program, Select, Top,
};
use crate::scan::{Piece, Report};
use nasd_xdr::{Decoder, Encoder, XdrDecode, XdrEncode, XdrError};

impl XdrEncode for Plan {
    fn encode(&self, out: &mut Encoder) {
        encode_format(&self.format, out);
        encode_program(&self.program, out);
        out.u32(self.options.longest_record);
        out.bool(self.options.strict);
        out.u32(self.options.groups);
        out.u32(self.options.state_bytes);
    }
}

impl XdrDecode for Plan {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Plan {
            format: decode_format(input)?,
            program: decode_program(input)?,
            options: Options {
                longest_record: input.u32()?,
                strict: input.bool()?,
                groups: input.u32()?,
                state_bytes: input.u32()?,
            },
        })
    }
}

impl XdrEncode for Piece {
    fn encode(&self, out: &mut Encoder) {
        out.u64(self.offset);
        out.bool(self.starts_record);
        out.bool(self.ends_file);
    }
}

impl XdrDecode for Piece {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Piece { offset: input.u64()?, starts_record: input.bool()?, ends_file: input.bool()? })
    }
}

impl XdrEncode for Report {
    fn encode(&self, out: &mut Encoder) {
        out.u64(self.records);
        out.u64(self.selected);
        out.u64(self.bad);
        out.u64(self.head_bytes);
        out.bool(self.head_overlong);
        out.bool(self.all_head);
        out.u64(self.row_bytes);
        out.u64(self.tail_offset);
        out.u64(self.tail_bytes);
        out.bool(self.tail_overlong);
        out.bool(self.done);
    }
}

impl XdrDecode for Report {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Report {
            records: input.u64()?,
            selected: input.u64()?,
            bad: input.u64()?,
            head_bytes: input.u64()?,
            head_overlong: input.bool()?,
            all_head: input.bool()?,
            row_bytes: input.u64()?,
            tail_offset: input.u64()?,
            tail_bytes: input.u64()?,
            tail_overlong: input.bool()?,
            done: input.bool()?,
        })
    }
}

fn byte(input: &mut Decoder<'_>) -> Result<u8, XdrError> {
    u8::try_from(input.u32()?).map_err(|_| XdrError::Invalid("a byte is above 255"))
}

fn encode_format(format: &Format, out: &mut Encoder) {
    match format {
        Format::Fixed(fixed) => {
            out.u32(0);
            out.array_with(&fixed.fields, |out, field| {
                out.string(&field.name);
                encode_field_kind(field.kind, out);
            });
        }
        Format::Delimited(delimited) => {
            out.u32(1);
            out.u32(delimited.delimiter.into());
            out.optional(delimited.quote.map(u32::from).as_ref());
            out.bool(delimited.header);
            out.array_with(&delimited.columns, encode_column);
        }
        Format::JsonLines(lines) => {
            out.u32(2);
            out.array_with(&lines.columns, encode_column);
        }
        // Nobody who reads bytes can do anything with it: the number is one that is refused.
        Format::Columns(_) => out.u32(u32::MAX),
    }
}

fn decode_format(input: &mut Decoder<'_>) -> Result<Format, XdrError> {
    Ok(match input.u32()? {
        0 => Format::Fixed(Fixed {
            fields: input.array_with(MAX_COLUMNS, |input| {
                let name = input.string(MAX_NAME_BYTES)?.to_owned();
                Ok(Field { name, kind: decode_field_kind(input)? })
            })?,
        }),
        1 => Format::Delimited(Delimited {
            delimiter: byte(input)?,
            quote: input.optional_with(byte)?,
            header: input.bool()?,
            columns: input.array_with(MAX_COLUMNS, decode_column)?,
        }),
        2 => {
            Format::JsonLines(JsonLines { columns: input.array_with(MAX_COLUMNS, decode_column)? })
        }
        _ => return Err(XdrError::Invalid("no such format")),
    })
}

fn encode_field_kind(kind: FieldKind, out: &mut Encoder) {
    match kind {
        FieldKind::Integer { bytes, signed, big_endian } => {
            out.u32(0);
            out.u32(bytes.into());
            out.bool(signed);
            out.bool(big_endian);
        }
        FieldKind::Float { bytes, big_endian } => {
            out.u32(1);
            out.u32(bytes.into());
            out.bool(big_endian);
        }
        FieldKind::Text { bytes } => {
            out.u32(2);
            out.u32(bytes);
        }
    }
}

fn decode_field_kind(input: &mut Decoder<'_>) -> Result<FieldKind, XdrError> {
    Ok(match input.u32()? {
        0 => FieldKind::Integer {
            bytes: byte(input)?,
            signed: input.bool()?,
            big_endian: input.bool()?,
        },
        1 => FieldKind::Float { bytes: byte(input)?, big_endian: input.bool()? },
        2 => FieldKind::Text { bytes: input.u32()? },
        _ => return Err(XdrError::Invalid("no such kind of a field")),
    })
}

fn encode_column(out: &mut Encoder, column: &Column) {
    out.string(&column.name);
    column.kind.encode(out);
}

fn decode_column(input: &mut Decoder<'_>) -> Result<Column, XdrError> {
    Ok(Column { name: input.string(MAX_NAME_BYTES)?.to_owned(), kind: input.enumeration()? })
}

fn encode_program(program: &Program, out: &mut Encoder) {
    match program {
        Program::Select(select) => {
            out.u32(0);
            out.optional_with(select.filter.as_ref(), encode_expression);
            out.optional_with(select.projection.as_ref(), |out, list| encode_list(out, list));
            out.optional(select.limit.as_ref());
        }
        Program::Aggregate(aggregate) => {
            out.u32(1);
            out.optional_with(aggregate.filter.as_ref(), encode_expression);
            encode_list(out, &aggregate.keys);
            out.array_with(&aggregate.items, |out, item| {
                item.function.encode(out);
                out.optional_with(item.argument.as_ref(), encode_expression);
            });
        }
        Program::Top(top) => {
            out.u32(2);
            out.optional_with(top.filter.as_ref(), encode_expression);
            encode_expression(out, &top.order);
            out.bool(top.descending);
            out.u32(top.count);
            out.optional_with(top.projection.as_ref(), |out, list| encode_list(out, list));
        }
    }
}

fn decode_program(input: &mut Decoder<'_>) -> Result<Program, XdrError> {
    let mut nodes = Nodes { left: MAX_NODES };
    Ok(match input.u32()? {
        0 => Program::Select(Select {
            filter: input.optional_with(|input| nodes.expression(input, 0))?,
            projection: input.optional_with(|input| nodes.list(input, MAX_PROJECTION))?,
            limit: input.optional()?,
        }),
        1 => Program::Aggregate(Aggregate {
            filter: input.optional_with(|input| nodes.expression(input, 0))?,
            keys: nodes.list(input, MAX_KEYS)?,
            items: input.array_with(MAX_ITEMS, |input| {
                let function = input.enumeration()?;
                let argument = input.optional_with(|input| nodes.expression(input, 0))?;
                Ok(Item { function, argument })
            })?,
        }),
        2 => Program::Top(Top {
            filter: input.optional_with(|input| nodes.expression(input, 0))?,
            order: nodes.expression(input, 0)?,
            descending: input.bool()?,
            count: input.u32()?,
            projection: input.optional_with(|input| nodes.list(input, MAX_PROJECTION))?,
        }),
        _ => return Err(XdrError::Invalid("no such program")),
    })
}

fn encode_list(out: &mut Encoder, list: &[Expression]) {
    out.array_with(list, encode_expression);
}

fn encode_literal(out: &mut Encoder, literal: &Literal) {
    match literal {
        Literal::Null => out.u32(0),
        Literal::Bool(value) => {
            out.u32(1);
            out.bool(*value);
        }
        Literal::Int(value) => {
            out.u32(2);
            out.i64(*value);
        }
        Literal::Float(value) => {
            out.u32(3);
            out.u64(value.to_bits());
        }
        Literal::Text(value) => {
            out.u32(4);
            out.opaque(value);
        }
    }
}

fn decode_literal(input: &mut Decoder<'_>) -> Result<Literal, XdrError> {
    Ok(match input.u32()? {
        0 => Literal::Null,
        1 => Literal::Bool(input.bool()?),
        2 => Literal::Int(input.i64()?),
        3 => Literal::Float(f64::from_bits(input.u64()?)),
        4 => Literal::Text(input.opaque(MAX_TEXT_BYTES)?.to_vec()),
        _ => return Err(XdrError::Invalid("no such constant")),
    })
}

fn encode_expression(out: &mut Encoder, expression: &Expression) {
    let operands = |out: &mut Encoder, number, list: &[&Expression]| {
        out.u32(number);
        list.iter().for_each(|operand| encode_expression(out, operand));
    };
    match expression {
        Expression::Column(index) => {
            out.u32(0);
            out.u32((*index).into());
        }
        Expression::Literal(literal) => {
            out.u32(1);
            encode_literal(out, literal);
        }
        Expression::Negate(value) => operands(out, 2, &[value]),
        Expression::Not(value) => operands(out, 3, &[value]),
        Expression::Arithmetic(operator, left, right) => {
            operands(out, 4, &[left, right]);
            operator.encode(out);
        }
        Expression::Compare(comparison, left, right) => {
            operands(out, 5, &[left, right]);
            comparison.encode(out);
        }
        Expression::And(left, right) => operands(out, 6, &[left, right]),
        Expression::Or(left, right) => operands(out, 7, &[left, right]),
        Expression::IsNull { value, negated } => {
            operands(out, 8, &[value]);
            out.bool(*negated);
        }
        Expression::Between { value, low, high, negated } => {
            operands(out, 9, &[value, low, high]);
            out.bool(*negated);
        }
        Expression::In { value, list, negated } => {
            operands(out, 10, &[value]);
            out.array_with(list, encode_literal);
            out.bool(*negated);
        }
        Expression::Like { value, pattern, escape, negated } => {
            operands(out, 11, &[value]);
            out.opaque(pattern);
            out.optional(escape.map(u32::from).as_ref());
            out.bool(*negated);
        }
    }
}

/// How many more nodes the expressions of a plan may have.
struct Nodes {
    left: usize,
}

impl Nodes {
    fn take(&mut self, count: usize) -> Result<(), XdrError> {
        match self.left.checked_sub(count) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(XdrError::Invalid("the expressions have too many nodes")),
        }
    }

    fn list(&mut self, input: &mut Decoder<'_>, limit: usize) -> Result<Vec<Expression>, XdrError> {
        input.array_with(limit, |input| self.expression(input, 0))
    }

    fn expression(
        &mut self,
        input: &mut Decoder<'_>,
        depth: usize,
    ) -> Result<Expression, XdrError> {
        if depth == MAX_DEPTH {
            return Err(XdrError::Invalid("an expression is too deep"));
        }
        self.take(1)?;
        let number = input.u32()?;
        let mut operand = |input: &mut Decoder<'_>| -> Result<Box<Expression>, XdrError> {
            self.expression(input, depth + 1).map(Box::new)
        };
        Ok(match number {
            0 => Expression::Column(
                u16::try_from(input.u32()?)
                    .map_err(|_| XdrError::Invalid("a column is above 65535"))?,
            ),
            1 => Expression::Literal(decode_literal(input)?),
            2 => Expression::Negate(operand(input)?),
            3 => Expression::Not(operand(input)?),
            4 => {
                let (left, right) = (operand(input)?, operand(input)?);
                Expression::Arithmetic(input.enumeration()?, left, right)
            }
            5 => {
                let (left, right) = (operand(input)?, operand(input)?);
                Expression::Compare(input.enumeration()?, left, right)
            }
            6 => Expression::And(operand(input)?, operand(input)?),
            7 => Expression::Or(operand(input)?, operand(input)?),
            8 => Expression::IsNull { value: operand(input)?, negated: input.bool()? },
            9 => Expression::Between {
                value: operand(input)?,
                low: operand(input)?,
                high: operand(input)?,
                negated: input.bool()?,
            },
            10 => {
                let value = operand(input)?;
                let list = input.array_with(self.left, decode_literal)?;
                self.take(list.len())?;
                Expression::In { value, list, negated: input.bool()? }
            }
            11 => Expression::Like {
                value: operand(input)?,
                pattern: input.opaque(MAX_TEXT_BYTES)?.to_vec(),
                escape: input.optional_with(byte)?,
                negated: input.bool()?,
            },
            _ => return Err(XdrError::Invalid("no such expression")),
        })
    }
}
