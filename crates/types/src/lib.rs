//! Names, ranges, rights, attributes and limits that every part of NASD speaks in.
//!
//! The words are the papers': a *drive* holds *partitions*, a partition holds *objects*, an object
//! has *attributes* (CMU-CS-97-118, sections 2.2-2.3). Nothing here does I/O, reads a clock or
//! draws a random number.

mod append;
mod attributes;
mod compression;
mod hashing;
mod ids;
pub mod limits;
mod order;
mod personality;
mod protection;
mod range;
mod rights;
mod seek;
mod time;

pub use append::AppendToken;
pub use attributes::{Attributes, FS_SPECIFIC_BYTES, FsSpecific, SetAttributes};
pub use compression::Compression;
pub use hashing::{NameHasher, NameHashing};
pub use ids::{AuditId, CellId, DriveId, Location, ObjectId, ObjectName, PartitionId};
pub use order::WriteOrder;
pub use personality::{Personality, UnknownPersonality};
pub use protection::Protection;
pub use range::ByteRange;
pub use rights::Rights;
pub use seek::SeekTarget;
pub use time::Timestamp;
