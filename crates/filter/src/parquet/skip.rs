//! Groups of rows that no record of can be selected, by what the file tells of the least and the greatest of their values.

use super::ParquetError;
use super::footer::ParquetFile;
use super::kinds::Reading;
use super::values::widened;
use crate::columnar::ColumnValue;
use crate::expression::{Comparison, Expression, Literal};
use crate::number::float_order;
use crate::plan::Checked;
use parquet::data_type::AsBytes;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::statistics::Statistics;
use std::cmp::Ordering;

/// What is known of a column of a group.
#[derive(Debug)]
struct Known {
    low: Option<Literal>,
    high: Option<Literal>,
    /// Whether the bounds are values themselves.
    is_exact: bool,
    /// Whether there may be NaN, which no bound counts in.
    has_nan: bool,
    /// Whether all are NULL, and whether none is.
    all_null: bool,
    no_null: bool,
}

impl ParquetFile {
    /// Whether the WHERE of a program may select a record of a group of rows.
    ///
    /// # Errors
    ///
    /// [`ParquetError::Broken`] if there is no such group.
    pub fn may_select(&self, checked: &Checked, group: usize) -> Result<bool, ParquetError> {
        let (rows, _) = self.group(group)?;
        let plan = checked.plan();
        // Who wants to hear of bad records has them looked for.
        let Some(filter) = plan.program.filter().filter(|_| !plan.options.strict) else {
            return Ok(true);
        };
        let mut operands = Vec::new();
        put_operands(filter, &mut operands);
        for operand in operands {
            if self.excludes(rows, operand) {
                return Ok(false);
            }
            // A record that makes it fail would have to be found.
            if may_fail(operand) {
                break;
            }
        }
        Ok(true)
    }

    /// Whether an expression selects no record of a group.
    fn excludes(&self, rows: &RowGroupMetaData, expression: &Expression) -> bool {
        let known = |expression: &Expression| match expression {
            Expression::Column(column) => self.known(rows, *column),
            _ => None,
        };
        match expression {
            Expression::Compare(comparison, left, right) => match (&**left, &**right) {
                (column, Expression::Literal(literal)) => {
                    known(column).is_some_and(|known| known.excludes(*comparison, literal))
                }
                (Expression::Literal(literal), column) => {
                    let comparison = comparison.exchanged();
                    known(column).is_some_and(|known| known.excludes(comparison, literal))
                }
                _ => false,
            },
            Expression::Between { value, low, high, negated: false } => {
                let (Expression::Literal(low), Expression::Literal(high)) = (&**low, &**high)
                else {
                    return false;
                };
                known(value).is_some_and(|known| {
                    // A NaN that is not below the upper end is no matter of the lower one.
                    known.excludes(Comparison::LessEqual, high)
                        || (known.is_below(low) && !is_nan(high))
                        || known.all_null
                })
            }
            Expression::IsNull { value, negated } => known(value)
                .is_some_and(|known| if *negated { known.all_null } else { known.no_null }),
            _ => false,
        }
    }

    fn known(&self, rows: &RowGroupMetaData, column: u16) -> Option<Known> {
        let told = self.reading(column.into()).ok()?;
        let part = rows.columns().get(told.leaf)?;
        let statistics = part.statistics();
        let nulls = match told.has_nulls {
            true => statistics.and_then(Statistics::null_count_opt),
            false => Some(0),
        };
        let (low, high) = statistics.map_or((None, None), |told_of| bounds(told.reading, told_of));
        let no_nan = statistics.and_then(Statistics::nan_count_opt) == Some(0);
        Some(Known {
            low,
            high,
            is_exact: statistics.is_some_and(|told| told.min_is_exact() && told.max_is_exact()),
            has_nan: told.reading == Reading::Float && !no_nan,
            all_null: nulls.is_some_and(|nulls| i64::try_from(nulls) == Ok(rows.num_rows())),
            no_null: nulls == Some(0),
        })
    }
}

/// The operands of the topmost ANDs, in order.
fn put_operands<'e>(filter: &'e Expression, operands: &mut Vec<&'e Expression>) {
    match filter {
        Expression::And(left, right) => {
            put_operands(left, operands);
            put_operands(right, operands);
        }
        other => operands.push(other),
    }
}

/// Whether there is a record that it could fail for: by an integer that overflows.
fn may_fail(expression: &Expression) -> bool {
    match expression {
        Expression::Column(_) | Expression::Literal(_) => false,
        Expression::Negate(_) | Expression::Arithmetic(..) => true,
        Expression::Not(value)
        | Expression::IsNull { value, .. }
        | Expression::In { value, .. }
        | Expression::Like { value, .. } => may_fail(value),
        Expression::Compare(_, left, right)
        | Expression::And(left, right)
        | Expression::Or(left, right) => may_fail(left) || may_fail(right),
        Expression::Between { value, low, high, .. } => {
            may_fail(value) || may_fail(low) || may_fail(high)
        }
    }
}

impl Known {
    /// Whether no value compares so with a constant.
    fn excludes(&self, comparison: Comparison, literal: &Literal) -> bool {
        if self.all_null || matches!(literal, Literal::Null) {
            return true;
        }
        let is_above = |orders: &[Ordering]| {
            let order = self.low.as_ref().and_then(|low| order(low, literal));
            order.is_some_and(|order| orders.contains(&order))
        };
        match comparison {
            Comparison::Less => is_above(&[Ordering::Greater, Ordering::Equal]),
            Comparison::LessEqual => is_above(&[Ordering::Greater]),
            Comparison::Equal => {
                is_above(&[Ordering::Greater]) || (self.is_below(literal) && !is_nan(literal))
            }
            Comparison::Greater => {
                let high = self.high.as_ref().and_then(|high| order(high, literal));
                high.is_some_and(Ordering::is_le) && !self.has_nan
            }
            Comparison::GreaterEqual => self.is_below(literal) && !self.has_nan,
            Comparison::NotEqual => {
                let same = |bound: &Option<Literal>| {
                    bound.as_ref().and_then(|bound| order(bound, literal)) == Some(Ordering::Equal)
                };
                self.is_exact && !self.has_nan && same(&self.low) && same(&self.high)
            }
        }
    }

    /// Whether all values that a bound counts in are less than a constant.
    fn is_below(&self, literal: &Literal) -> bool {
        let high = self.high.as_ref().and_then(|high| order(high, literal));
        high.is_some_and(Ordering::is_lt)
    }
}

fn is_nan(literal: &Literal) -> bool {
    matches!(literal, Literal::Float(value) if value.is_nan())
}

/// As filters compare them.
fn order(left: &Literal, right: &Literal) -> Option<Ordering> {
    Some(match (left, right) {
        (Literal::Int(left), Literal::Int(right)) => left.cmp(right),
        (Literal::Int(left), Literal::Float(right)) => float_order(*left as f64, *right),
        (Literal::Float(left), Literal::Int(right)) => float_order(*left, *right as f64),
        (Literal::Float(left), Literal::Float(right)) => float_order(*left, *right),
        (Literal::Text(left), Literal::Text(right)) => left.cmp(right),
        (Literal::Bool(left), Literal::Bool(right)) => left.cmp(right),
        _ => return None,
    })
}

/// The least and the greatest value, as far as that is known.
fn bounds(reading: Reading, statistics: &Statistics) -> (Option<Literal>, Option<Literal>) {
    // Once all was compared as signed.
    let is_signed = !matches!(reading, Reading::Unsigned | Reading::Text)
        && !matches!(statistics, Statistics::ByteArray(_) | Statistics::FixedLenByteArray(_));
    if statistics.is_min_max_deprecated() && !is_signed {
        return (None, None);
    }
    let scratch = &mut String::new();
    let mut int = |value: i64| literal(reading.int(value, scratch));
    match statistics {
        Statistics::Boolean(told) => {
            (told.min_opt().map(|v| Literal::Bool(*v)), told.max_opt().map(|v| Literal::Bool(*v)))
        }
        Statistics::Int32(told) => {
            let mut int = |value: &i32| int(widened(*value, reading));
            (told.min_opt().and_then(&mut int), told.max_opt().and_then(&mut int))
        }
        Statistics::Int64(told) => {
            let mut int = |value: &i64| int(*value);
            (told.min_opt().and_then(&mut int), told.max_opt().and_then(&mut int))
        }
        Statistics::Float(told) => {
            let float = |value: &f32| number((*value).into());
            (told.min_opt().and_then(float), told.max_opt().and_then(float))
        }
        Statistics::Double(told) => {
            let float = |value: &f64| number(*value);
            (told.min_opt().and_then(float), told.max_opt().and_then(float))
        }
        Statistics::ByteArray(told) => {
            (texts(reading, told.min_opt()), texts(reading, told.max_opt()))
        }
        Statistics::FixedLenByteArray(told) => {
            (texts(reading, told.min_opt()), texts(reading, told.max_opt()))
        }
        Statistics::Int96(_) => (None, None),
    }
}

fn texts<T: AsBytes>(reading: Reading, value: Option<&T>) -> Option<Literal> {
    literal(reading.bytes(value?.as_bytes()))
}

fn number(value: f64) -> Option<Literal> {
    (!value.is_nan()).then_some(Literal::Float(value))
}

fn literal(value: ColumnValue<'_>) -> Option<Literal> {
    match value {
        ColumnValue::Bool(value) => Some(Literal::Bool(value)),
        ColumnValue::Int(value) => Some(Literal::Int(value)),
        ColumnValue::Float(value) => number(value),
        ColumnValue::Text(text) => Some(Literal::Text(text.to_vec())),
        ColumnValue::Null | ColumnValue::Bad => None,
    }
}
