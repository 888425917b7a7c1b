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
    /// How long reads will be, from the beginning on, in bytes: then the first are made as soon as it is open. 0 if that is not known.
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
