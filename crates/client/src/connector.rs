//! How connections are made.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use nasd_transport::{Channel, ClientOptions, ClientTls, Connection};

use crate::TransportError;

/// Makes connections to one server. Names are resolved anew for each.
pub trait Connector: Send + Sync {
    /// Makes a connection within about `timeout`.
    ///
    /// # Errors
    ///
    /// Whatever kept it from being made.
    fn connect(&self, timeout: Duration) -> Result<Arc<dyn Channel>, TransportError>;

    /// The server's address, for messages.
    fn address(&self) -> &str;
}

/// Connections over TCP, as to drives.
#[derive(Clone, Debug)]
pub struct TcpConnector {
    address: String,
    options: ClientOptions,
}

impl TcpConnector {
    /// To `HOST:PORT`.
    pub fn new(address: impl Into<String>, options: ClientOptions) -> Self {
        TcpConnector { address: address.into(), options }
    }
}

impl Connector for TcpConnector {
    fn connect(&self, timeout: Duration) -> Result<Arc<dyn Channel>, TransportError> {
        to_any(&self.address, &self.options, timeout, Connection::tcp)
    }

    fn address(&self) -> &str {
        &self.address
    }
}

/// Connections over TLS, as to the file manager.
#[derive(Clone, Debug)]
pub struct TlsConnector {
    address: String,
    tls: ClientTls,
    options: ClientOptions,
}

impl TlsConnector {
    /// To `HOST:PORT`, whose certificate must have the name that `tls` expects.
    pub fn new(address: impl Into<String>, tls: ClientTls, options: ClientOptions) -> Self {
        TlsConnector { address: address.into(), tls, options }
    }
}

impl Connector for TlsConnector {
    fn connect(&self, timeout: Duration) -> Result<Arc<dyn Channel>, TransportError> {
        to_any(&self.address, &self.options, timeout, |address, options| {
            Connection::tls(address, &self.tls, options)
        })
    }

    fn address(&self) -> &str {
        &self.address
    }
}

/// To the first of the name's addresses that can be connected to.
fn to_any(
    address: &str,
    options: &ClientOptions,
    timeout: Duration,
    connect: impl Fn(SocketAddr, &ClientOptions) -> Result<Connection, nasd_transport::ChannelError>,
) -> Result<Arc<dyn Channel>, TransportError> {
    let unresolved = |why: String| TransportError::Resolve { address: address.to_owned(), why };
    let candidates: Vec<SocketAddr> = match address.to_socket_addrs() {
        Ok(found) => found.collect(),
        Err(error) => return Err(unresolved(error.to_string())),
    };
    let each = timeout / u32::try_from(candidates.len().max(1)).unwrap_or(u32::MAX);
    let connect_timeout = options.connect_timeout.min(each);
    let options = ClientOptions { connect_timeout, ..options.clone() };
    let mut failure = unresolved("the name has no address".to_owned());
    for candidate in candidates {
        match connect(candidate, &options) {
            Ok(connection) => return Ok(Arc::new(connection)),
            Err(error) => failure = TransportError::from(error),
        }
    }
    Err(failure)
}
