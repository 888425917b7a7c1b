//! What can be wrong with a directory's bytes. All of it means damage, or another program's object.

use nasd_types::ObjectId;
use thiserror::Error;

/// A directory object that does not follow `docs/directory-format.md`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DirectoryError {
    /// The object's length is not a whole number of blocks.
    #[error("the directory's length, {length} bytes, is not a multiple of 4096")]
    PartialBlock {
        /// The length found.
        length: u64,
    },
    /// More blocks than a directory can have.
    #[error("the directory has {blocks} blocks, more than it can have")]
    TooLarge {
        /// The number found.
        blocks: u64,
    },
    /// The block does not begin with the magic number.
    #[error("block {block} is not a directory block")]
    NotADirectory {
        /// Which block.
        block: u32,
    },
    /// The block's version is not known here.
    #[error("block {block} has version {version}, this program knows {}", crate::block::VERSION)]
    UnknownVersion {
        /// Which block.
        block: u32,
        /// The version found.
        version: u16,
    },
    /// The block says that it belongs elsewhere.
    #[error("block {block} says that it is block {found_block} of {found_object}")]
    Misplaced {
        /// Which block.
        block: u32,
        /// The block number in it.
        found_block: u32,
        /// The directory in it.
        found_object: ObjectId,
    },
    /// The block's header contradicts its contents.
    #[error("block {block}: {what}")]
    BadHeader {
        /// Which block.
        block: u32,
        /// What is wrong.
        what: &'static str,
    },
    /// An entry can't be understood.
    #[error("block {block}, slot {slot}: {what}")]
    BadEntry {
        /// Which block.
        block: u32,
        /// Which slot.
        slot: u8,
        /// What is wrong.
        what: &'static str,
    },
    /// Two entries have the same name.
    #[error("block {block}, slot {slot}: the name occurs twice in the directory")]
    DuplicateName {
        /// Block of the second one.
        block: u32,
        /// Slot of the second one.
        slot: u8,
    },
}
