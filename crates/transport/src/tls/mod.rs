//! TLS with certificates of the cell's own authority, required of both ends.

mod config;
mod error;
mod identity;

pub use config::{ClientTls, PemFiles, ServerTls};
pub use error::TlsError;
pub use identity::PeerIdentity;
