//! What applications use: caches capabilities, moves data straight to drives, retries, reads ahead.
//!
//! Start reading at [`Clerk`]. Names and attributes come from the file manager, data goes straight
//! to the drives under capabilities that are cached and renewed (or, by [`Route::Manager`], through the
//! manager). Open files read ahead and write
//! behind; what is written is kept until the drive that took it says, under the same `instance`,
//! that it is durable.

mod appending;
mod appends;
mod attributes;
mod backend;
mod background;
mod budget;
mod buffers;
mod bulk;
mod callbacks;
mod chunks;
mod clerk;
mod copy;
mod core;
mod error;
mod extending;
#[cfg(any(test, feature = "fake"))]
pub mod fake;
mod fetched;
mod file;
mod forwarded;
mod grants;
mod grepping;
mod hinted;
mod hints;
mod latch;
mod listing;
mod measures;
mod mount_points;
mod nameless;
mod names;
mod open_file;
mod packing;
#[cfg(feature = "parquet")]
mod parquet;
mod paths;
mod pending;
mod pieces;
mod ranges;
mod reading;
mod remote;
mod scan_rows;
mod scanning;
mod session;
mod settings;
mod stream;
mod striped;
#[cfg(test)]
mod tests;
mod times;
mod walk;
mod wire;
mod work_pool;
mod xattrs;

pub use backend::{Cell, Grant, Names, Objects, Sessions};
pub use clerk::{Clerk, Entry};
pub use copy::{Copied, CopyError};
pub use error::ClerkError;
pub use extending::{ExtendedPart, ExtensionCall, new_job};
pub use grepping::{FileGrep, FileGrepError, GrepPlan, Grepped};
pub use hints::Hints;
pub use names::Belief;
pub use nasd_types::Timestamp;
pub use open_file::{OpenFile, OpenMode};
#[cfg(feature = "parquet")]
pub use parquet::{OpenParquet, ParquetScan, ParquetScanError, ParquetSoFar};
pub use remote::{ClerkOptions, RemoteDrives};
pub use scan_rows::ScanRows;
pub use scanning::{FileScan, FileScanError, ScanOptions, Scanned, Work};
pub use session::{LockRequest, NameWatcher};
pub use settings::{CacheSettings, Route, Settings};
pub use walk::{Walk, WalkItem};
pub use wire::*;
