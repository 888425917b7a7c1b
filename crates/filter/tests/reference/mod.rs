//! What a scan means, a record at a time and in the simplest way. Shares no code with the crate but the
//! types of a plan.

mod json;
mod records;
mod sum;

use nasd_filter::{
    Arithmetic, Comparison, Expression, Fault, Fixed, Format, Function, Literal, Plan, Program,
    Type, Value,
};
use records::{Record, read_columns, records};
use std::cmp::Ordering;

/// A value of an expression.
#[derive(Clone, Debug, PartialEq)]
pub enum V {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Vec<u8>),
}

/// What a plan gives for a whole file.
#[derive(Debug, PartialEq)]
pub enum Outcome {
    /// The record at an offset can't be evaluated.
    Fault {
        offset: u64,
        fault: Fault,
    },
    Select {
        rows: Vec<Vec<u8>>,
        counts: Counts,
    },
    Aggregate {
        rows: Vec<Vec<Value>>,
        counts: Counts,
    },
    Top {
        rows: Vec<(V, u64, Vec<u8>)>,
        counts: Counts,
    },
}

/// Records seen, selected, bad.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    pub records: u64,
    pub selected: u64,
    pub bad: u64,
}

/// Why a record has no value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Trouble {
    Bad,
    Overflow,
}

pub fn order_floats(left: f64, right: f64) -> Ordering {
    match (left.is_nan(), right.is_nan()) {
        (true, true) => Ordering::Equal,
        (true, false) => Ordering::Greater,
        (false, true) => Ordering::Less,
        (false, false) => left.partial_cmp(&right).unwrap(),
    }
}

/// The order of two values that are not NULL.
fn order(left: &V, right: &V) -> Ordering {
    match (left, right) {
        (V::Bool(a), V::Bool(b)) => a.cmp(b),
        (V::Int(a), V::Int(b)) => a.cmp(b),
        (V::Text(a), V::Text(b)) => a.cmp(b),
        _ => order_floats(float(left), float(right)),
    }
}

fn float(value: &V) -> f64 {
    match value {
        V::Int(value) => *value as f64,
        V::Float(value) => *value,
        other => panic!("{other:?} is no number"),
    }
}

fn compare(comparison: Comparison, left: &V, right: &V) -> V {
    if *left == V::Null || *right == V::Null {
        return V::Null;
    }
    let order = order(left, right);
    V::Bool(match comparison {
        Comparison::Equal => order == Ordering::Equal,
        Comparison::NotEqual => order != Ordering::Equal,
        Comparison::Less => order == Ordering::Less,
        Comparison::LessEqual => order != Ordering::Greater,
        Comparison::Greater => order == Ordering::Greater,
        Comparison::GreaterEqual => order != Ordering::Less,
    })
}

fn arithmetic(operator: Arithmetic, left: &V, right: &V) -> Result<V, Trouble> {
    if *left == V::Null || *right == V::Null {
        return Ok(V::Null);
    }
    if let (V::Int(a), V::Int(b)) = (left, right) {
        let (a, b) = (i128::from(*a), i128::from(*b));
        let exact = match operator {
            Arithmetic::Add => a + b,
            Arithmetic::Subtract => a - b,
            Arithmetic::Multiply => a * b,
            Arithmetic::Divide if b == 0 => return Ok(V::Null),
            Arithmetic::Divide => return Ok(V::Float(float(left) / float(right))),
            _ if b == 0 => return Ok(V::Null),
            Arithmetic::IntegerDivide => a / b,
            Arithmetic::Remainder => a % b,
        };
        return i64::try_from(exact).map(V::Int).map_err(|_| Trouble::Overflow);
    }
    let (a, b) = (float(left), float(right));
    Ok(match operator {
        Arithmetic::Add => V::Float(a + b),
        Arithmetic::Subtract => V::Float(a - b),
        Arithmetic::Multiply => V::Float(a * b),
        _ if b == 0.0 => V::Null,
        Arithmetic::Divide => V::Float(a / b),
        Arithmetic::Remainder => V::Float(a % b),
        Arithmetic::IntegerDivide => panic!("of floats"),
    })
}

pub fn literal(literal: &Literal) -> V {
    match literal {
        Literal::Null => V::Null,
        Literal::Bool(value) => V::Bool(*value),
        Literal::Int(value) => V::Int(*value),
        Literal::Float(value) => V::Float(*value),
        Literal::Text(value) => V::Text(value.clone()),
    }
}

fn negate(value: V, negated: bool) -> V {
    match value {
        V::Bool(value) => V::Bool(value != negated),
        other => other,
    }
}

/// AND of two values that are both there.
fn and(left: V, right: V) -> V {
    match (left, right) {
        (V::Bool(false), _) | (_, V::Bool(false)) => V::Bool(false),
        (V::Bool(true), V::Bool(true)) => V::Bool(true),
        _ => V::Null,
    }
}

/// The value of an expression over the columns of a record.
pub fn value(expression: &Expression, columns: &[V]) -> Result<V, Trouble> {
    let of = |operand: &Expression| value(operand, columns);
    Ok(match expression {
        Expression::Column(index) => columns[usize::from(*index)].clone(),
        Expression::Literal(constant) => literal(constant),
        Expression::Negate(operand) => match of(operand)? {
            V::Int(value) => V::Int(value.checked_neg().ok_or(Trouble::Overflow)?),
            V::Float(value) => V::Float(-value),
            _ => V::Null,
        },
        Expression::Not(operand) => negate(of(operand)?, true),
        Expression::Arithmetic(operator, left, right) => {
            let (left, right) = (of(left)?, of(right)?);
            arithmetic(*operator, &left, &right)?
        }
        Expression::Compare(comparison, left, right) => {
            let (left, right) = (of(left)?, of(right)?);
            compare(*comparison, &left, &right)
        }
        Expression::And(left, right) => match of(left)? {
            V::Bool(false) => V::Bool(false),
            left => and(left, of(right)?),
        },
        Expression::Or(left, right) => match of(left)? {
            V::Bool(true) => V::Bool(true),
            left => negate(and(negate(left, true), negate(of(right)?, true)), true),
        },
        Expression::IsNull { value, negated } => V::Bool((of(value)? == V::Null) != *negated),
        Expression::Between { value, low, high, negated } => {
            let value = of(value)?;
            let above = compare(Comparison::GreaterEqual, &value, &of(low)?);
            if above == V::Bool(false) {
                return Ok(negate(above, *negated));
            }
            negate(and(above, compare(Comparison::LessEqual, &value, &of(high)?)), *negated)
        }
        Expression::In { value, list, negated } => {
            let mut value = of(value)?;
            if value == V::Null {
                return Ok(V::Null);
            }
            // The list has one type.
            if list.iter().any(|item| matches!(item, Literal::Float(_))) {
                value = V::Float(float(&value));
            }
            let items: Vec<V> = list.iter().map(literal).collect();
            let found = |item: &V| compare(Comparison::Equal, &value, item) == V::Bool(true);
            if items.iter().any(found) {
                V::Bool(!negated)
            } else if items.contains(&V::Null) {
                V::Null
            } else {
                V::Bool(*negated)
            }
        }
        Expression::Like { value, pattern, escape, negated } => match of(value)? {
            V::Text(text) => V::Bool(like(pattern, &text, *escape) != *negated),
            _ => V::Null,
        },
    })
}

/// By bytes: `_` takes one and the continuation bytes behind it, `%` any, others themselves.
fn like(pattern: &[u8], text: &[u8], escape: Option<u8>) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some((first, rest)) if Some(*first) == escape => {
            text.first() == rest.first() && like(&rest[1..], &text[1..], escape)
        }
        Some((b'%', rest)) => (0..=text.len()).any(|skip| like(rest, &text[skip..], escape)),
        Some((b'_', rest)) => text.split_first().is_some_and(|(_, behind)| {
            let more = behind.iter().take_while(|byte| **byte & 0xc0 == 0x80).count();
            like(rest, &behind[more..], escape)
        }),
        Some((first, rest)) => text.first() == Some(first) && like(rest, &text[1..], escape),
    }
}

/// The columns that an expression names.
fn named(expression: &Expression, into: &mut Vec<usize>) {
    match expression {
        Expression::Column(index) => into.push(usize::from(*index)),
        Expression::Literal(_) => {}
        Expression::Negate(a) | Expression::Not(a) => named(a, into),
        Expression::IsNull { value, .. }
        | Expression::In { value, .. }
        | Expression::Like { value, .. } => named(value, into),
        Expression::Arithmetic(_, a, b)
        | Expression::Compare(_, a, b)
        | Expression::And(a, b)
        | Expression::Or(a, b) => {
            named(a, into);
            named(b, into);
        }
        Expression::Between { value, low, high, .. } => {
            for operand in [value, low, high] {
                named(operand, into);
            }
        }
    }
}

/// The operands of the topmost ANDs, in order; the first that is not true ends it.
fn selects(filter: &Expression, columns: &[V]) -> Result<bool, Trouble> {
    match filter {
        Expression::And(left, right) => Ok(selects(left, columns)? && selects(right, columns)?),
        other => Ok(value(other, columns)? == V::Bool(true)),
    }
}

/// Expressions that are evaluated of a selected record; with those of a projection whose columns are
/// copied left out.
fn rest(plan: &Plan) -> Vec<&Expression> {
    let copied = |expression: &&Expression| {
        !(matches!(plan.format, Format::Fixed(_)) && matches!(expression, Expression::Column(_)))
    };
    let projection = match &plan.program {
        Program::Select(select) => select.projection.as_deref(),
        Program::Aggregate(_) => None,
        Program::Top(top) => top.projection.as_deref(),
    };
    let mut all: Vec<&Expression> = projection.unwrap_or_default().iter().filter(copied).collect();
    match &plan.program {
        Program::Select(_) => {}
        Program::Top(top) => all.push(&top.order),
        Program::Aggregate(aggregate) => {
            all.extend(&aggregate.keys);
            all.extend(aggregate.items.iter().filter_map(|item| item.argument.as_ref()));
        }
    }
    all
}

/// The columns of a record that is selected; `None` if it is not.
fn take(plan: &Plan, record: &Record<'_>) -> Result<Option<Vec<V>>, Trouble> {
    let filter = match &plan.program {
        Program::Select(select) => select.filter.as_ref(),
        Program::Aggregate(aggregate) => aggregate.filter.as_ref(),
        Program::Top(top) => top.filter.as_ref(),
    };
    let mut needed = Vec::new();
    if let Some(filter) = filter {
        named(filter, &mut needed);
    }
    let columns = read_columns(&plan.format, record, &needed, true)?;
    if let Some(filter) = filter
        && !selects(filter, &columns)?
    {
        return Ok(None);
    }
    rest(plan).into_iter().for_each(|expression| named(expression, &mut needed));
    let columns = read_columns(&plan.format, record, &needed, false)?;
    for expression in rest(plan) {
        value(expression, &columns)?;
    }
    Ok(Some(columns))
}

/// Runs a plan over a whole file.
pub fn run(plan: &Plan, file: &[u8]) -> Outcome {
    let mut counts = Counts::default();
    let mut taken = Vec::new();
    let limit = match &plan.program {
        Program::Select(select) => select.limit.unwrap_or(u64::MAX),
        _ => u64::MAX,
    };
    for record in records(&plan.format, file, plan.options.longest_record as usize) {
        if counts.selected == limit {
            break;
        }
        counts.records += 1;
        let longest = plan.options.longest_record as usize;
        let result = if record.raw.len() > longest || record.incomplete {
            Err(Trouble::Bad)
        } else {
            take(plan, &record)
        };
        match result {
            Err(Trouble::Bad) if !plan.options.strict => counts.bad += 1,
            Err(trouble) => {
                let fault = match trouble {
                    Trouble::Bad => Fault::BadRecord,
                    Trouble::Overflow => Fault::Overflow,
                };
                return Outcome::Fault { offset: record.offset, fault };
            }
            Ok(None) => {}
            Ok(Some(columns)) => {
                counts.selected += 1;
                taken.push((record, columns));
            }
        }
    }
    match &plan.program {
        Program::Select(select) => {
            let projection = select.projection.as_deref();
            let rows = taken.iter().map(|(record, columns)| row(plan, projection, record, columns));
            Outcome::Select { rows: rows.collect(), counts }
        }
        Program::Aggregate(aggregate) => {
            let columns: Vec<Vec<V>> = taken.into_iter().map(|(_, columns)| columns).collect();
            Outcome::Aggregate { rows: sum::rows(plan, aggregate, &columns), counts }
        }
        Program::Top(top) => {
            let projection = top.projection.as_deref();
            let mut rows: Vec<(V, u64, Vec<u8>)> = taken
                .iter()
                .map(|(record, columns)| {
                    let key = value(&top.order, columns).unwrap();
                    (key, record.offset, row(plan, projection, record, columns))
                })
                .collect();
            // Stable: of equals the earlier comes first.
            rows.sort_by(|(left, ..), (right, ..)| match (left, right) {
                (V::Null, V::Null) => Ordering::Equal,
                (V::Null, _) => Ordering::Greater,
                (_, V::Null) => Ordering::Less,
                _ if top.descending => order(right, left),
                _ => order(left, right),
            });
            rows.truncate(top.count as usize);
            Outcome::Top { rows, counts }
        }
    }
}

/// The row of a record as it is given out.
fn row(
    plan: &Plan,
    projection: Option<&[Expression]>,
    record: &Record<'_>,
    columns: &[V],
) -> Vec<u8> {
    let Some(projection) = projection else {
        let mut row = record.raw.to_vec();
        if !matches!(plan.format, Format::Fixed(_)) && !row.ends_with(b"\n") {
            row.push(b'\n');
        }
        return row;
    };
    let (delimiter, quote) = match &plan.format {
        Format::Fixed(fixed) => return packed(plan, fixed, projection, record, columns),
        Format::Delimited(format) => (format.delimiter, format.quote.unwrap_or(b'"')),
        Format::JsonLines(_) | Format::Columns(_) => (b',', b'"'),
    };
    let mut line = Vec::new();
    for (number, expression) in projection.iter().enumerate() {
        if number > 0 {
            line.push(delimiter);
        }
        match value(expression, columns).unwrap() {
            V::Null => {}
            V::Bool(value) => line.extend(value.to_string().bytes()),
            V::Int(value) => line.extend(value.to_string().bytes()),
            V::Float(value) => line.extend(format!("{value:?}").bytes()),
            V::Text(text) => {
                let special = [delimiter, quote, b'\n', b'\r'];
                if text.is_empty() || text.iter().any(|byte| special.contains(byte)) {
                    line.push(quote);
                    for byte in text {
                        line.push(byte);
                        if byte == quote {
                            line.push(quote);
                        }
                    }
                    line.push(quote);
                } else {
                    line.extend(text);
                }
            }
        }
    }
    line.push(b'\n');
    line
}

/// A row of fixed records.
fn packed(
    plan: &Plan,
    fixed: &Fixed,
    projection: &[Expression],
    record: &Record<'_>,
    columns: &[V],
) -> Vec<u8> {
    let mut row = Vec::new();
    for expression in projection {
        if let Expression::Column(index) = expression {
            let index = usize::from(*index);
            let start: usize = fixed.fields[..index].iter().map(|f| f.kind.bytes()).sum();
            let bytes = fixed.fields[index].kind.bytes();
            row.extend_from_slice(&record.raw[start..start + bytes]);
            continue;
        }
        let found = value(expression, columns).unwrap();
        row.push(u8::from(found != V::Null));
        match found {
            V::Bool(value) => row.push(u8::from(value)),
            V::Int(value) => row.extend(value.to_le_bytes()),
            V::Float(value) if value.is_nan() => row.extend(f64::NAN.to_le_bytes()),
            V::Float(value) => row.extend(value.to_le_bytes()),
            V::Text(text) => {
                row.extend((text.len() as u32).to_le_bytes());
                row.extend(text);
            }
            V::Null => match type_of(plan, expression) {
                Some(Type::Bool) => row.push(0),
                _ => row.extend([0; 8]),
            },
        }
    }
    row
}

/// The type of an expression; `None` for NULL.
pub fn type_of(plan: &Plan, expression: &Expression) -> Option<Type> {
    match expression {
        Expression::Column(index) => plan.format.column_type(usize::from(*index)),
        Expression::Literal(Literal::Null) => None,
        Expression::Literal(Literal::Bool(_)) => Some(Type::Bool),
        Expression::Literal(Literal::Int(_)) => Some(Type::Int),
        Expression::Literal(Literal::Float(_)) => Some(Type::Float),
        Expression::Literal(Literal::Text(_)) => Some(Type::Text),
        Expression::Negate(operand) => type_of(plan, operand),
        Expression::Arithmetic(Arithmetic::Divide, ..) => Some(Type::Float),
        Expression::Arithmetic(_, left, right) => {
            match (type_of(plan, left), type_of(plan, right)) {
                (None, other) | (other, None) => other,
                (Some(Type::Int), Some(Type::Int)) => Some(Type::Int),
                _ => Some(Type::Float),
            }
        }
        _ => Some(Type::Bool),
    }
}

/// Whether a sum of an argument is one of floats.
pub fn sums_floats(plan: &Plan, function: Function, argument: Option<&Expression>) -> bool {
    let sums = matches!(function, Function::Sum | Function::Avg);
    sums && argument.and_then(|argument| type_of(plan, argument)) == Some(Type::Float)
}
