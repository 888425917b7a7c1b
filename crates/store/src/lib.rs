//! The object store: copy-on-write objects on a device it owns.
//!
//! See `store` for the locks, `flush` for what makes changes durable, `metadata` for what is on the
//! device besides data, and docs/on-disk-format.md for every byte of it.

mod append;
mod attributes;
mod cache;
mod clears;
mod compare;
mod compress;
mod copy;
mod copy_range;
mod data;
#[cfg(test)]
mod document;
mod error;
mod flush;
mod format;
mod frames;
mod free_map;
mod geometry;
mod identifiers;
mod key;
mod layout;
mod log;
mod medium;
mod metadata;
mod object;
mod open;
mod options;
mod packing;
mod partitions;
mod policy;
mod prefetch;
mod put;
mod read;
mod resize;
mod scrub;
mod space;
mod sparse;
mod store;
mod superblock;
mod table;
mod tally;
#[cfg(test)]
mod testing;
mod write;

pub use append::{Append, AppendDone};
pub use cache::CachePressure;
pub use compare::{
    ChangedBytes, ChangedObject, ComparedPage, ComparedTo, ObjectImage, RememberedAppend,
};
pub use copy_range::CopyRange;
pub use data::{IncomingFrames, ReadData, Segment, WriteData, Written};
pub use error::{FormatError, NoSpace, OpenError, StoreError};
pub use key::{DriveKeys, KEY_BYTES, PartitionKeys, StoredKey, WorkingKey};
pub use options::{
    BlocksRequired, ClockState, FormatOptions, Identity, OpenOptions, PartitionFormat,
    PartitionSettings, PartitionSpace, Space, Statistics,
};
pub use prefetch::Prefetch;
pub use read::Located;
pub use resize::{ResizeError, Resized};
pub use scrub::{ScrubCursor, ScrubFault, ScrubFinding, ScrubHolder, ScrubStep};
pub use store::{Store, WriteBack};
