//! The server's end: one connection is one open file, whose reads are guessed and made ahead.
//!
//! What is served is behind [`Backend`]. A connection has a thread that receives, checks and mostly answers, and others
//! that read ahead, or do what would keep the next request waiting; they are its own, so that no open file waits for
//! another's. All connections together have so many of these: without any, a connection does one request after the other.

mod ahead;
mod connection;
mod hands;
mod incoming;
mod reply;
mod sessions;
#[cfg(test)]
mod tests;

use std::io::IoSliceMut;
use std::sync::Arc;

use nasd_capability::DigestKeys;
use nasd_protocol::Status;
use nasd_protocol::bulk::{Asked, Fields, Open, Packet};
use nasd_types::{ByteRange, Protection, Timestamp};

pub use connection::{Ended, serve};
pub use incoming::Watcher;
pub(crate) use incoming::{is_passing, receive_into};
pub(crate) use reply::send_all;
pub use sessions::Sessions;

/// What a bulk server serves: who may do what, and the bytes.
///
/// A request is permitted first; nothing is done, and nothing about a file told, before. Methods may block.
pub trait Backend: Send + Sync + 'static {
    /// A file that a connection has open.
    type File: Send + Sync;
    /// What the back end has to remember of a request that it permitted.
    type Grant: Send;
    /// Bytes that were read.
    type Block: Block;
    /// Memory for bytes that are to be written.
    type Room: Room;

    /// What it is, and what it can do.
    fn traits(&self) -> Traits;

    /// Makes every check of an open, and then opens its file, if that goes.
    ///
    /// # Errors
    ///
    /// [`Refused`].
    #[allow(
        clippy::type_complexity,
        reason = "two outcomes: whether it may be, and whether it can"
    )]
    fn open(
        &self,
        request: &Request<'_>,
        open: &Open<'_>,
    ) -> Result<(Permit<Self::Grant>, Result<Self::File, Status>), Refused>;

    /// Makes every check of another request for the file: all but that of data, which come later.
    ///
    /// # Errors
    ///
    /// [`Refused`].
    fn permit(
        &self,
        file: &Self::File,
        request: &Request<'_>,
    ) -> Result<Permit<Self::Grant>, Refused>;

    /// Makes those checks again whose outcome may have changed since: of a request that has waited.
    ///
    /// # Errors
    ///
    /// [`Refused`].
    fn permit_again(
        &self,
        file: &Self::File,
        permit: &Permit<Self::Grant>,
        request: &Request<'_>,
    ) -> Result<(), Refused>;

    /// A nonce for an answer.
    fn nonce(&self) -> nasd_capability::Nonce;

    /// Takes note of what came of a request: so many bytes were read or written, or why not.
    fn note(&self, permit: &Permit<Self::Grant>, outcome: Result<u64, Status>);

    /// How the file is.
    ///
    /// # Errors
    ///
    /// A [`Status`], as all that follow.
    fn stat(&self, file: &Self::File) -> Result<Facts, Status>;

    /// A number that no other file has which was, or will be, found by the same credential and place.
    fn identity(&self, file: &Self::File) -> u64;

    /// Sets the file's length.
    #[allow(clippy::missing_errors_doc, reason = "told once, above")]
    fn resize(&self, file: &Self::File, grant: &Self::Grant, size: u64) -> Result<Facts, Status>;

    /// Reads what a range has in common with the file, from the medium, and keeps nothing.
    #[allow(clippy::missing_errors_doc, reason = "told once, above")]
    fn read(&self, file: &Self::File, range: ByteRange) -> Result<Self::Block, Status>;

    /// The same before it is asked for, if there is memory for that.
    fn ahead(&self, file: &Self::File, range: ByteRange) -> Option<Self::Block> {
        self.read(file, range).ok()
    }

    /// A range will be read soon, or parts of it: what takes time and little memory may be done before.
    fn expect(&self, _file: &Self::File, _range: ByteRange) {}

    /// Whether what was read some time ago is what would be read now.
    fn is_current(&self, file: &Self::File, block: &Self::Block) -> bool;

    /// Memory for what is to be written there.
    #[allow(clippy::missing_errors_doc, reason = "told once, above")]
    fn room(&self, file: &Self::File, range: ByteRange) -> Result<Self::Room, Status>;

    /// Writes what room there is, and makes it durable if that is wanted.
    #[allow(clippy::missing_errors_doc, reason = "told once, above")]
    fn write(
        &self,
        file: &Self::File,
        grant: &Self::Grant,
        range: ByteRange,
        how: (Self::Room, bool),
    ) -> Result<Facts, Status>;

    /// Makes durable what was written.
    #[allow(clippy::missing_errors_doc, reason = "told once, above")]
    fn sync(&self, file: &Self::File, grant: &Self::Grant) -> Result<Facts, Status>;
}

/// Bytes that were read.
pub trait Block: Send {
    /// They, in order.
    fn slices(&self) -> Vec<&[u8]>;

    /// How the file was then.
    fn facts(&self) -> Facts;
}

/// Memory for bytes that are to be written.
pub trait Room: Send {
    /// Where they go, in order.
    fn slices(&mut self) -> Vec<IoSliceMut<'_>>;
}

/// What is told of a server to whoever opens a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traits {
    /// Another number after each start.
    pub instance: u64,
    /// Most bytes of one read or write.
    pub most: u64,
    /// Bytes that may be read ahead for one open file.
    pub ahead_bytes: u64,
}

/// How a file is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Its length in bytes.
    pub size: u64,
    /// When its data were changed.
    pub time: Timestamp,
    /// Bytes of which offsets and lengths must be multiples.
    pub alignment: u64,
}

/// A request as it came.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Its packet.
    pub packet: &'a Packet,
    /// What its digest covers besides: of an open its payload, of others the credential and what the open was answered with.
    pub shown: &'a [u8],
}

/// A request whose every check has passed.
#[derive(Debug)]
pub struct Permit<G> {
    /// What it says.
    pub fields: Fields,
    /// What its answer is bound to.
    pub asked: Asked,
    /// How it and its answer are protected.
    pub protection: Protection,
    /// What proves both. Not used with NO_PROTECTION.
    pub keys: Option<Arc<DigestKeys>>,
    /// What the back end remembers of it.
    pub grant: G,
}

/// A request that is not permitted. It is told to anybody, and proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Why.
    pub status: Status,
    /// The server's clock, by which nonces are to be drawn.
    pub clock: Timestamp,
}
