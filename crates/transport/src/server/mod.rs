//! The server's end: accepts connections and runs a service on them.

mod options;
mod service;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

pub use options::ServerOptions;
pub use service::{Answer, Arriving, Call, NoPayload, Payload, Peer, Receive, Service};

use crate::ServerTls;

/// A running server. Dropping it stops it without grace.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
}

impl Server {
    /// Serves on `listener`, with TLS if `tls` is given. Returns at once.
    pub fn start<S: Service>(
        listener: TcpListener,
        _tls: Option<ServerTls>,
        _service: Arc<S>,
        _options: ServerOptions,
    ) -> io::Result<Server> {
        Ok(Server { address: listener.local_addr()? })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connections that are open now.
    pub fn connections(&self) -> usize {
        todo!()
    }

    /// Stops accepting, lets calls that have been received finish within `grace`, and closes every
    /// connection. Returns whether all had finished.
    pub fn shut_down(&self, _grace: Duration) -> bool {
        todo!()
    }
}
