//! Conditions as C programs write them: field, operator, value, and so on with AND or OR between.

use nasd_filter::{Comparison, Expression, Literal};

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
    fn expression(&self, fields: usize) -> Result<Expression, SmasError> {
        let column = column_of(self.field, fields)?;
        let value = Box::new(Expression::Column(column));
        match (self.operand, &self.value) {
            (Operand::Like, Literal::Text(pattern)) => {
                let pattern = pattern.clone();
                Ok(Expression::Like { value, pattern, escape: None, negated: false })
            }
            (Operand::Like, _) => Err(SmasError::Argument("LIKE takes a text".to_owned())),
            (Operand::Compare(comparison), literal) => {
                let literal = Box::new(Expression::Literal(literal.clone()));
                Ok(Expression::Compare(comparison, value, literal))
            }
        }
    }
}

/// The column of a field that is counted from 1, of so many.
pub(crate) fn column_of(field: u16, fields: usize) -> Result<u16, SmasError> {
    let is_there = (1..=fields).contains(&usize::from(field));
    let none =
        || SmasError::Argument(format!("there is no field {field}: the first of {fields} is 1"));
    if is_there { Ok(field - 1) } else { Err(none()) }
}

/// The expression of conditions on so many fields, the first without a junction; `None` of none.
pub(crate) fn all(
    conditions: &[(Junction, Condition)],
    fields: usize,
) -> Result<Option<Expression>, SmasError> {
    let mut whole = None;
    for (junction, condition) in conditions {
        let next = condition.expression(fields)?;
        whole = Some(match (whole, junction) {
            (None, _) => next,
            (Some(before), Junction::And) => Expression::And(Box::new(before), Box::new(next)),
            (Some(before), Junction::Or) => Expression::Or(Box::new(before), Box::new(next)),
        });
    }
    Ok(whole)
}
