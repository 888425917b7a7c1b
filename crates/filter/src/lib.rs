//! Filters: selection, aggregation and top records of structured files, over bytes as they stream by.
//!
//! A [`Plan`] says what the records of a file are and what is to be done with them. It is checked and
//! compiled once ([`Plan::check`]), and run by a [`Scan`] over *pieces* of the file, each a contiguous
//! range of bytes that comes in slices of any size. The records that cross the ends of pieces are given
//! back raw, as heads and tails; [`Seams`] joins and runs them. [`Merge`] adds up partial results. The
//! result is the same however the file is cut, and wherever its pieces are run.
//!
//! A scan allocates all its memory at its start; [`Checked::memory_bytes`] tells how much that is before.
//!
//! What programs mean, and what output looks like, is in the README.

#![forbid(unsafe_code)]

mod aggregate;
mod arena;
mod arrange;
mod batch;
mod columnar;
mod compile;
mod delimited;
mod error;
mod evaluate;
mod exact;
mod expression;
mod fixed;
mod format;
mod guess;
mod join;
mod json;
mod like;
mod list;
mod merge;
mod number;
mod output;
#[cfg(feature = "parquet")]
pub mod parquet;
mod plan;
pub mod remote;
mod row;
mod scan;
#[cfg(feature = "sql")]
pub mod sql;
mod top;
mod vector;
mod wire;

pub use aggregate::{MAX_KEY_BYTES, Value};
pub use arrange::{Arrangement, OrderBy};
pub use columnar::{BATCH_RECORDS, ColumnBatch, ColumnValue};
pub use error::{Fault, Limit, MergeError, ParameterError, ScanError};
pub use expression::{
    Arithmetic, Comparison, Expression, Literal, MAX_DEPTH, MAX_LIKE_STEPS, MAX_NODES,
    MAX_TEXT_BYTES,
};
pub use format::{
    Column, Columns, Delimited, Field, FieldKind, Fixed, Format, JsonLines, MAX_COLUMNS,
    MAX_NAME_BYTES, Type,
};
pub use guess::guess_columns;
pub use join::{Counts, Join};
pub use merge::{Merge, Merged, Seams, first_rows, row_bytes};
pub use output::Output;
pub use plan::{
    Aggregate, Checked, Function, Item, MAX_BYTES, MAX_ITEMS, MAX_KEPT, MAX_KEYS, MAX_PROJECTION,
    Options, Plan, Program, Select, Top,
};
pub use row::delimited_row;
pub use scan::{Fed, Piece, Report, Scan};
pub use top::TopRow;
