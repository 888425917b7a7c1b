//! The bulk service: big files at the speed of disk and wire (`specs/bulk.md`; McVoy, "Bulk Data Service", 1996).
//!
//! A connection is one open file; nothing is cached at either end; the next reads are guessed, and already made when they are
//! asked for.
//!
//! * [`server`]: the server's end of a connection, over any [`server::Backend`].
//! * [`client`]: open files, and queues of transfers.
//! * [`directory`]: the back end of an ordinary directory.
//! * [`desk`]: who gets tickets for its files.
//! * [`steps`]: several streams that show the same frame at the same time.
//!
//! Objects of a drive are served by the drive (`nasd-drive`), with its own [`server::Backend`].

pub mod client;
pub mod desk;
pub mod directory;
mod guess;
pub mod server;
pub mod steps;
