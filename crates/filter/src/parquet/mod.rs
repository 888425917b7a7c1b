//! Parquet: files of columns, of which a query's are read, in those groups of rows that may have a record which it selects.
//!
//! The crate `parquet` decodes. Whatever it would do with numbers that a file makes up is looked at before: what takes memory is bounded
//! here (`thrift`, `pages`), and a panic of it is an error. Nothing is read here but what [`ReadAt`] gives.

mod calendar;
mod footer;
mod group;
mod join;
mod kinds;
mod pages;
mod skip;
mod thrift;
mod values;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use thiserror::Error;

pub use footer::ParquetFile;
pub use group::{GroupScan, Rows};
pub use join::GroupJoin;

/// What a Parquet file begins with.
pub const MAGIC: &[u8; 4] = b"PAR1";

/// Most bytes of what the end of a file tells about it.
pub const MAX_FOOTER_BYTES: u64 = 32 << 20;

/// Most bytes of a page, as it is read and as it is decoded.
pub const MAX_PAGE_BYTES: u64 = 128 << 20;

/// Most bytes of the pages of one row group that are decoded at a time.
pub const MAX_GROUP_BYTES: u64 = 1 << 30;

/// Most records of a row group.
pub const MAX_GROUP_RECORDS: u64 = 1 << 31;

/// Bytes of a file, wherever they are.
pub trait ReadAt: Send + Sync {
    /// Fills `into` with the bytes from `offset` on.
    ///
    /// # Errors
    ///
    /// Why that can't be, for people.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), String>;
}

/// Why a Parquet file is not scanned.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ParquetError {
    /// It is none.
    #[error("it is no Parquet file: {0}")]
    None(String),
    /// Something in it has no meaning.
    #[error("the Parquet file is broken: {0}")]
    Broken(String),
    /// It has a meaning that filters have not.
    #[error("not supported of Parquet: {0}")]
    Unsupported(String),
    /// It would take more memory than it may.
    #[error("the Parquet file asks for too much memory: {0}")]
    Large(String),
    /// Its bytes are not to be had.
    #[error("{0}")]
    Read(String),
}

/// What the crate says of a file.
impl From<parquet::errors::ParquetError> for ParquetError {
    fn from(error: parquet::errors::ParquetError) -> ParquetError {
        match error {
            // Our own, which went through the crate.
            parquet::errors::ParquetError::External(inner) => {
                match inner.downcast::<ParquetError>() {
                    Ok(own) => *own,
                    Err(other) => ParquetError::Broken(other.to_string()),
                }
            }
            parquet::errors::ParquetError::NYI(text) => ParquetError::Unsupported(text),
            parquet::errors::ParquetError::General(text)
                if text.to_ascii_lowercase().contains("disabled feature") =>
            {
                ParquetError::Unsupported(format!("what its pages are packed with: {text}"))
            }
            other => ParquetError::Broken(other.to_string()),
        }
    }
}

impl From<ParquetError> for parquet::errors::ParquetError {
    fn from(error: ParquetError) -> parquet::errors::ParquetError {
        parquet::errors::ParquetError::External(Box::new(error))
    }
}

fn broken<T>(text: impl Into<String>) -> Result<T, ParquetError> {
    Err(ParquetError::Broken(text.into()))
}

/// What decodes bytes of a file may panic where nobody has thought of them.
fn guarded<T>(work: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, ParquetError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = |panic: &(dyn Any + Send)| {
            let text = panic.downcast_ref::<String>().cloned();
            text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        };
        broken(text(&*panic).unwrap_or_else(|| "it can't be decoded".to_owned()))
    })
}
