//! The client's end of a connection.

use std::net::SocketAddr;
use std::time::Duration;

use nasd_types::limits;

use crate::{Channel, ChannelError, ClientTls, OutgoingCall, Reply};

/// Limits of a client's connection.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// A connection, with the TLS handshake if any, must be made within this time.
    pub connect_timeout: Duration,
    /// A reply that was begun must be received, and a call that was begun must be taken, within
    /// this time.
    pub peer_timeout: Duration,
    /// Longest record, in bytes.
    pub max_record_bytes: usize,
    /// Longest reply without its bulk data, in bytes.
    pub max_head_bytes: usize,
    /// The socket's send buffer, in bytes; `None` leaves it to the system.
    pub send_buffer_bytes: Option<usize>,
    /// The socket's receive buffer, in bytes; `None` leaves it to the system.
    pub receive_buffer_bytes: Option<usize>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        ClientOptions {
            connect_timeout: Duration::from_secs(5),
            peer_timeout: Duration::from_secs(30),
            max_record_bytes: limits::MAX_RECORD_BYTES,
            max_head_bytes: limits::MAX_HEAD_BYTES,
            send_buffer_bytes: None,
            receive_buffer_bytes: None,
        }
    }
}

/// A TCP connection to a server, with or without TLS.
#[derive(Debug)]
pub struct Connection {
    address: SocketAddr,
}

impl Connection {
    /// Connects without TLS.
    pub fn tcp(address: SocketAddr, _options: &ClientOptions) -> Result<Connection, ChannelError> {
        Ok(Connection { address })
    }

    /// Connects with TLS.
    pub fn tls(
        _address: SocketAddr,
        _tls: &ClientTls,
        _options: &ClientOptions,
    ) -> Result<Connection, ChannelError> {
        todo!()
    }

    /// The server's address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Channel for Connection {
    fn call(&self, _call: &OutgoingCall<'_>, _into: &mut [u8]) -> Result<Reply, ChannelError> {
        todo!()
    }

    fn is_open(&self) -> bool {
        todo!()
    }
}
