//! The drive: authorize each request alone, then run it on the object store.
//!
//! * [`Drive`]: the service. It decodes a call's security header, makes the checks of
//!   `nasd_capability` in their order, runs the operation, and seals the reply.
//! * [`DriveServer`]: a drive behind a listening socket, with the threads that write dirty data
//!   back and scrub, and its clean stop.
//!
//! A drive keeps no session: any request may come over any connection. It knows objects and rights,
//! never files, directories or stripes: where its objects are on other drives, an [`Elsewhere`] knows.
//! Operations are in `operations/`, one file each.

mod audit;
mod authority;
mod bulk;
mod clock;
mod counters;
mod drive;
mod elsewhere;
mod environment;
mod extensions;
mod incoming;
mod key_cache;
mod key_ring;
mod metrics;
mod operations;
mod options;
mod order;
mod prefetching;
#[cfg(test)]
#[path = "../../types/tests/random/mod.rs"]
mod random;
mod reply;
mod scrub;
mod server;
mod service;
mod status;
mod stopping;

pub use drive::Drive;
pub use elsewhere::{Elsewhere, Facts, ReadElsewhere, Shown};
pub use environment::Environment;
pub use extensions::{
    Checksum, Chunk, Description, Extension, ExtensionCall, ExtensionError, Granted, Reach,
    RegistrationError, Told,
};
pub use incoming::Incoming;
pub use options::DriveOptions;
pub use reply::ReplyData;
pub use scrub::ScrubPass;
pub use server::{DriveServer, ShutdownError};
pub use stopping::Stopping;
