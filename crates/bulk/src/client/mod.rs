//! The client's end: files that are open at a server, by one connection or several each.
//!
//! A [`StripedFile`] is a file of a cell, whose bytes may lie at several servers, as a [`Way`] says. Each of them is a [`BulkFile`]:
//! it reads and writes at offsets and waits; a [`Queue`] has many transfers under way. Both connect again where a
//! connection is lost, and ask again for what was not answered: requests carry their offsets, so that it does no harm
//! if one was done before.

mod connection;
mod error;
mod file;
mod part;
mod play;
mod queue;
mod striped;
mod way;

use std::time::Duration;

use nasd_client::Authority;
use nasd_protocol::bulk::Options;

pub use error::BulkError;
pub use file::BulkFile;
pub use play::{PlayError, Playing, ReadError, Reader, Show, Source, play};
pub use queue::{Completed, Queue};
pub use striped::{Lane, StripedFile};
pub use way::{Way, WayComponent, WayError};

/// Files that are not longer are read in short blocks.
const SHORT_FILE_BYTES: u64 = 32 << 20;

/// The short blocks: what has come is on its way, and is looked at, while the medium reads the next ones.
const SHORT_BLOCK_BYTES: u64 = 256 << 10;

/// Whether a file of so many bytes is best read in short blocks.
pub fn is_short(file_bytes: u64) -> bool {
    file_bytes <= SHORT_FILE_BYTES
}

/// In which blocks a file of so many bytes is best read by who reads all of it: in short ones if it is short, as it is over then
/// before much was read ahead; else in those of `block` bytes that the reader likes.
pub fn block_of(file_bytes: u64, block: u64) -> u64 {
    match is_short(file_bytes) {
        true => block.min(SHORT_BLOCK_BYTES),
        false => block,
    }
}

/// Which file of which server, and by what authority.
#[derive(Clone, Debug)]
pub struct Opening {
    /// HOST:PORT.
    pub address: String,
    /// The authority of a capability or ticket.
    pub authority: Authority,
    /// Where the file is; empty where the capability names an object.
    pub place: Vec<u8>,
    /// Whether it is to be read, or written.
    pub options: Options,
    /// In blocks of how many bytes the file will be read, from its beginning on: then the server reads the first ones as soon as it
    /// is open, and a longer [`BulkFile::read_at`] or [`Lane::read_at`] asks for several of them at a time. A multiple of the server's
    /// alignment, of 4096 for one; 0 if it is not known. [`block_of`] tells one for a file that is read whole.
    pub block: u64,
    /// Whether what is written, and a length that is set, is durable when it is answered, and need not be written again where the
    /// server starts anew. So it is at a drive, of which writes demand it; a server of a directory does not have that for lengths.
    pub durable: bool,
    /// How long a server is waited for that is away.
    pub patience: Duration,
    /// How far the server's clock is ahead of this host's, as far as is known, in nanoseconds. A server that says something else,
    /// which anybody could say in its place, is believed only if that is near.
    pub clock_ahead_ns: i128,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_file_is_read_in_short_blocks() {
        const MIB: u64 = 1 << 20;
        for (bytes, block, best) in [
            (0, 4 * MIB, MIB / 4),
            (32 * MIB, 4 * MIB, MIB / 4),
            (32 * MIB + 1, 4 * MIB, 4 * MIB),
            (MIB, 4096, 4096),
            (u64::MAX, 4096, 4096),
        ] {
            assert_eq!(block_of(bytes, block), best, "{bytes} bytes");
        }
    }
}
