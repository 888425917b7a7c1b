//! TLS with certificates of the cell's own authority, required of both ends.

mod config;
mod error;
mod hosts;
mod identity;
mod pinned;
mod wire;

pub use config::{
    ClientTls, PemFiles, ServerTls, certificate_identity, certificate_public_key,
    certificate_serial, certificate_times, first_certificate,
};
pub use error::TlsError;
pub(crate) use error::tls_error_within;
pub use identity::{Certified, Identity, PeerIdentity};
pub(crate) use wire::TlsWire;
