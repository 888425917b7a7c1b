//! Limits of a server. Each bounds what one peer, or all together, can hold of it.

use std::time::Duration;

use nasd_types::limits;

/// Limits of a server; the defaults suit a drive.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Name of the server's threads, at most 12 characters.
    pub name: String,
    /// Most connections at a time. When there are as many, the one that has been idle longest makes
    /// room for a new one; when none is idle, the new one is closed.
    pub max_connections: usize,
    /// Most calls of one connection that are executed at a time, which is the number of its
    /// threads. While there are as many, nothing more is received from it.
    pub max_outstanding: usize,
    /// Longest record, in bytes.
    pub max_record_bytes: usize,
    /// Longest call without its bulk data, in bytes.
    pub max_head_bytes: usize,
    /// A connection without calls for so long is closed.
    pub idle_timeout: Duration,
    /// A record that was begun must be received, and a reply that was begun must be taken, within
    /// this time.
    pub peer_timeout: Duration,
    /// A TLS handshake must end within this time.
    pub handshake_timeout: Duration,
    /// The socket's send buffer, in bytes; `None` leaves it to the system.
    pub send_buffer_bytes: Option<usize>,
    /// The socket's receive buffer, in bytes; `None` leaves it to the system.
    pub receive_buffer_bytes: Option<usize>,
}

impl Default for ServerOptions {
    fn default() -> Self {
        ServerOptions {
            name: "nasd-server".to_owned(),
            max_connections: 1024,
            max_outstanding: 8,
            max_record_bytes: limits::MAX_RECORD_BYTES,
            max_head_bytes: limits::MAX_HEAD_BYTES,
            idle_timeout: Duration::from_secs(600),
            peer_timeout: Duration::from_secs(30),
            handshake_timeout: Duration::from_secs(10),
            send_buffer_bytes: None,
            receive_buffer_bytes: None,
        }
    }
}
