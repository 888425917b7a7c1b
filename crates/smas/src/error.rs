//! Why something can't be done, by whose fault it is.

use nasd_clerk::{ClerkError, FileGrepError, FileScanError};
use nasd_filter::sql::SqlError;
use nasd_filter::{MergeError, ParameterError};
use nasd_grep::{JoinError, PatternError, SearchError};
use thiserror::Error;

/// See the module.
#[derive(Clone, Debug, Error)]
pub enum SmasError {
    /// The path is none of a cell.
    #[error("`{0}` is no path of a cell: write VOLUME:/path")]
    Path(String),
    /// This machine is no client of the cell, or the cell does not answer.
    #[error("{0}")]
    Cell(String),
    /// The file can't be reached, or not in this way.
    #[error("{path}: {error}")]
    File {
        /// Which.
        path: String,
        /// Why.
        error: ClerkError,
    },
    /// A filter of records was chosen before it was said what the records are.
    #[error(
        "say what the file's records are first: record_struct or record_format, in C smas_recordstruct or smas_recordformat"
    )]
    NoRecords,
    /// Nothing is to be had record by record before a filter was chosen.
    #[error("choose a filter first: use_filter, in C smas_usefilter")]
    NoFilter,
    /// A record is longer than there is room for.
    #[error("a record of {record} bytes does not fit in {room}")]
    Room {
        /// Bytes of the record, which is still there to be had.
        record: usize,
        /// Bytes of the room.
        room: usize,
    },
    /// A field or an argument of a filter has no meaning.
    #[error("{0}")]
    Argument(String),
    /// The records, or what is to be done with them, can't be so.
    #[error("{0}")]
    Parameters(#[from] ParameterError),
    /// A query can't be read.
    #[error("{0}")]
    Query(#[from] SqlError),
    /// A pattern can't be read.
    #[error("{0}")]
    Pattern(#[from] PatternError),
    /// What is in the file can't be evaluated, or comes to too much.
    #[error("{0}")]
    Records(#[from] MergeError),
    /// What is in the file can't be searched.
    #[error("{0}")]
    Lines(String),
    /// A sum is larger than the number that it is told as.
    #[error("the sum {0} is more than 64 bits hold: ask for it with SQL, which tells it as text")]
    Sum(i128),
    /// This machine can't begin a thread.
    #[error("no thread: {0}")]
    Thread(String),
    /// The library has failed; what it was about can't be used any more.
    #[error("the library has failed in an earlier call: close the file and open it again")]
    Broken,
    /// There is no open file of that number.
    #[error("there is no open file {0}")]
    NoSuchFile(i32),
}

impl From<FileScanError> for SmasError {
    fn from(error: FileScanError) -> Self {
        match error {
            FileScanError::Clerk(error) => SmasError::File { path: "scan".to_owned(), error },
            FileScanError::Filter(error) => SmasError::Records(error),
            FileScanError::Thread(error) => SmasError::Thread(error),
        }
    }
}

impl From<FileGrepError> for SmasError {
    fn from(error: FileGrepError) -> Self {
        match error {
            FileGrepError::Clerk(error) => SmasError::File { path: "grep".to_owned(), error },
            FileGrepError::Join(error) => error.into(),
            FileGrepError::Search(error) => error.into(),
            FileGrepError::Thread(error) => SmasError::Thread(error),
        }
    }
}

impl From<JoinError> for SmasError {
    fn from(error: JoinError) -> Self {
        SmasError::Lines(error.to_string())
    }
}

impl From<SearchError> for SmasError {
    fn from(error: SearchError) -> Self {
        SmasError::Lines(error.to_string())
    }
}

impl SmasError {
    /// The POSIX error that comes nearest, for `errno`.
    pub fn errno(&self) -> i32 {
        const EIO: i32 = 5;
        const EBADF: i32 = 9;
        const EAGAIN: i32 = 11;
        const EINVAL: i32 = 22;
        const ERANGE: i32 = 34;
        const ENOTCONN: i32 = 107;
        match self {
            SmasError::File { error, .. } => error.errno(),
            SmasError::Cell(_) => ENOTCONN,
            SmasError::NoSuchFile(_) => EBADF,
            SmasError::Room { .. } | SmasError::Sum(_) => ERANGE,
            SmasError::Thread(_) => EAGAIN,
            SmasError::Records(_) | SmasError::Lines(_) | SmasError::Broken => EIO,
            SmasError::Path(_)
            | SmasError::NoRecords
            | SmasError::NoFilter
            | SmasError::Argument(_)
            | SmasError::Parameters(_)
            | SmasError::Query(_)
            | SmasError::Pattern(_) => EINVAL,
        }
    }
}
