//! One line of the result.

use serde::Serialize;

/// A measured value beside its limit.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The row's name, from the command-line contract.
    pub name: String,
    /// What was measured, in `unit`.
    pub value: f64,
    /// `MB/s` (10^6 bytes a second), `1/s`, or `us`.
    pub unit: &'static str,
    /// What the machine could do, in the same unit, measured in the same run.
    pub limit: f64,
    /// What the limit is.
    pub limit_name: String,
    /// `value / limit`.
    pub ratio: f64,
}

impl Row {
    /// A row whose ratio follows from its numbers.
    pub fn new(
        name: &str,
        value: f64,
        unit: &'static str,
        limit: f64,
        limit_name: impl Into<String>,
    ) -> Self {
        let ratio = if limit > 0.0 { value / limit } else { 0.0 };
        Row { name: name.to_owned(), value, unit, limit, limit_name: limit_name.into(), ratio }
    }
}
