//! What can be wrong: with a plan, with a run of it, with a partial result.

use crate::format::{MAX_COLUMNS, Type};
use nasd_xdr::XdrError;
use thiserror::Error;

/// Why a plan can't be run.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ParameterError {
    /// No column, or too many.
    #[error("a format has 1 to {} columns, not {count}", MAX_COLUMNS)]
    Columns {
        /// How many there are.
        count: usize,
    },
    /// A column's name is empty, too long, or another one's too.
    #[error("the name of column {} is empty, too long, or another column's too", .index + 1)]
    ColumnName {
        /// The column, from 0; people are told it from 1.
        index: usize,
    },
    /// No column can be of that kind or size.
    #[error("column {} is of a kind or size that no column of this format has", .index + 1)]
    ColumnKind {
        /// The column, from 0; people are told it from 1.
        index: usize,
    },
    /// The bytes between and around fields can't be told from others.
    #[error(
        "delimiter and quote must be different ASCII bytes, no letters, digits, signs, points or line ends"
    )]
    Delimiter,
    /// A number of the plan is out of its bounds.
    #[error("{what} is {value}, not {least} to {most}")]
    Bounds {
        /// What the number is.
        what: &'static str,
        /// What the plan says.
        value: u64,
        /// The least that it may be.
        least: u64,
        /// The most that it may be.
        most: u64,
    },
    /// An expression names a column that the format doesn't have.
    #[error("there is no column {index}: the format has {count}")]
    NoSuchColumn {
        /// The column, from 0.
        index: u16,
        /// How many there are.
        count: usize,
    },
    /// An operator does not take a value of this type.
    #[error("{operator} does not take {found}")]
    Operand {
        /// The operator, as in SQL.
        operator: &'static str,
        /// What it was given.
        found: Type,
    },
    /// An operator does not take values of these two types together.
    #[error("{operator} does not take {left} with {right}")]
    Operands {
        /// The operator, as in SQL.
        operator: &'static str,
        /// The type on its left.
        left: Type,
        /// The type on its right.
        right: Type,
    },
    /// A record is to be given as it stands that has no bytes of its own.
    #[error("records that come as columns have no bytes of their own: name what is to be given")]
    NoRecord,
    /// A pattern ends with its escape character.
    #[error("the pattern of a LIKE ends with its escape character")]
    Pattern,
    /// An aggregate function other than `count` lacks its argument.
    #[error("{function} needs an argument")]
    NoArgument {
        /// The function.
        function: &'static str,
    },
}

/// What the evaluation of a record ran into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// The result of an integer operation is no `i64`.
    #[error("an integer overflows")]
    Overflow,
    /// The record is a bad one, and the plan is strict.
    #[error("it is no record of this format")]
    BadRecord,
}

/// A bound of the plan that the data goes beyond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Limit {
    /// More groups than `options.groups`.
    #[error("there are more groups than options.groups")]
    Groups,
    /// Keys, texts or records that are kept take more bytes than `options.state_bytes`.
    #[error("what is kept takes more than options.state_bytes")]
    StateBytes,
    /// The key of one group is longer than `MAX_KEY_BYTES`.
    #[error("the key of a group is too long")]
    KeyBytes,
}

/// Why a scan ended without a result. Whatever it has given out by then is void.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ScanError {
    /// A record can't be evaluated.
    #[error("the record at byte {offset}: {fault}")]
    Record {
        /// Where the record begins in the file, in bytes.
        offset: u64,
        /// What is the matter with it.
        fault: Fault,
    },
    /// The same of records that come as columns.
    #[error("record {number}: {fault}")]
    Row {
        /// How many records are before it.
        number: u64,
        /// What is the matter with it.
        fault: Fault,
    },
    /// The result does not fit its bounds.
    #[error("the scan is too large: {0}")]
    Limit(#[from] Limit),
    /// The caller's calls are not in order: a piece in a piece, bytes outside of one, or other
    /// bytes than those that were to be fed again.
    #[error("a call out of order: {0}")]
    Order(&'static str),
}

/// Why partial results can't be merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MergeError {
    /// The bytes are no partial result.
    #[error("no partial result: {0}")]
    Decode(#[from] XdrError),
    /// They are one of another program.
    #[error("a partial result of another program")]
    OtherProgram,
    /// The merged result does not fit the plan's bounds.
    #[error("the result is too large: {0}")]
    Limit(#[from] Limit),
    /// The records between two pieces can't be evaluated.
    #[error(transparent)]
    Scan(#[from] ScanError),
    /// The pieces are not one after the other, or one is missing.
    #[error("the pieces are not in order: {0}")]
    Pieces(&'static str),
}
