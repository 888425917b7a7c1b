//! The two ends' certificates, checked when they are read.

use std::sync::Arc;

use rustls::pki_types::ServerName;

use crate::TlsError;

/// PEM texts of one end: the cell's authority, this end's certificate, and its private key.
#[derive(Clone, Copy)]
pub struct PemFiles<'a> {
    /// The cell's authority: the only one trusted.
    pub authority: &'a [u8],
    /// This end's certificate, with those between it and the authority if any.
    pub certificate: &'a [u8],
    /// Its private key.
    pub key: &'a [u8],
}

/// A server's side: shows its certificate, and demands one of the cell from every client.
#[derive(Clone, Debug)]
pub struct ServerTls {
    pub(crate) config: Arc<rustls::ServerConfig>,
}

/// A client's side: shows its certificate, and demands one of the cell from the server, for
/// server authentication (extended key usage) and with the expected name (subject alternative name).
#[derive(Clone, Debug)]
pub struct ClientTls {
    pub(crate) config: Arc<rustls::ClientConfig>,
    pub(crate) server_name: ServerName<'static>,
}

impl ServerTls {
    /// From PEM texts.
    pub fn new(_files: &PemFiles<'_>) -> Result<ServerTls, TlsError> {
        todo!()
    }
}

impl ClientTls {
    /// From PEM texts. `server_name` is a DNS name or an IP address in the server's certificate.
    pub fn new(_files: &PemFiles<'_>, _server_name: &str) -> Result<ClientTls, TlsError> {
        todo!()
    }
}
