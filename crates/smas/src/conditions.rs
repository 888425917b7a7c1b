//! Conditions as C programs write them: field, operator, value, and so on with AND or OR between.

use nasd_filter::{Comparison, Expression, Format, Literal, Type};

use crate::error::SmasError;

/// How a field is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// By a comparison of two values.
    Compare(Comparison),
    /// By a pattern of LIKE.
    Like,
}

/// A condition that a record meets or not.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// Which field, from 1.
    pub field: u16,
    /// How it is compared.
    pub operand: Operand,
    /// With what.
    pub value: Literal,
}

/// What stands between two conditions. All of them are taken from left to right: there is no precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Junction {
    /// Both.
    And,
    /// One of them, or both.
    Or,
}

impl Condition {
    fn expression(&self, format: &Format) -> Result<Expression, SmasError> {
        let column = column_of(self.field, format.column_count())?;
        let value = Box::new(Expression::Column(column));
        match (self.operand, &self.value) {
            (Operand::Like, Literal::Text(pattern)) => {
                let pattern = pattern.clone();
                Ok(Expression::Like { value, pattern, escape: None, negated: false })
            }
            (Operand::Like, _) => Err(SmasError::Argument("LIKE takes a text".to_owned())),
            (Operand::Compare(comparison), literal) => {
                let literal = match format.column_type(column.into()) {
                    Some(Type::Bool) => truth(literal, self.field)?,
                    _ => literal.clone(),
                };
                let literal = Box::new(Expression::Literal(literal));
                Ok(Expression::Compare(comparison, value, literal))
            }
        }
    }
}

/// The boolean that a value means, which of C programs is 0 or 1.
fn truth(value: &Literal, field: u16) -> Result<Literal, SmasError> {
    match value {
        Literal::Int(0) => Ok(Literal::Bool(false)),
        Literal::Int(1) => Ok(Literal::Bool(true)),
        Literal::Bool(_) | Literal::Null => Ok(value.clone()),
        _ => Err(SmasError::Argument(format!("field {field} is a bool: compare it with 0 or 1"))),
    }
}

/// The column of a field that is counted from 1, of so many.
pub(crate) fn column_of(field: u16, fields: usize) -> Result<u16, SmasError> {
    let is_there = (1..=fields).contains(&usize::from(field));
    let none =
        || SmasError::Argument(format!("there is no field {field}: the first of {fields} is 1"));
    if is_there { Ok(field - 1) } else { Err(none()) }
}

/// The expression of conditions on fields of a format, the first without a junction; `None` of none.
pub(crate) fn all(
    conditions: &[(Junction, Condition)],
    format: &Format,
) -> Result<Option<Expression>, SmasError> {
    let mut whole = None;
    for (junction, condition) in conditions {
        let next = condition.expression(format)?;
        whole = Some(match (whole, junction) {
            (None, _) => next,
            (Some(before), Junction::And) => Expression::And(Box::new(before), Box::new(next)),
            (Some(before), Junction::Or) => Expression::Or(Box::new(before), Box::new(next)),
        });
    }
    Ok(whole)
}
