//! Limits of a client's connection.

use std::time::Duration;

use nasd_types::limits;

/// Limits of a client's connection.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// A connection, with the TLS handshake if any, must be made within this time.
    pub connect_timeout: Duration,
    /// A reply that was begun must be received within this time.
    pub peer_timeout: Duration,
    /// Most calls in flight; a caller that comes when there are as many waits.
    pub max_outstanding: usize,
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
            max_outstanding: 256,
            max_record_bytes: limits::MAX_RECORD_BYTES,
            max_head_bytes: limits::MAX_HEAD_BYTES,
            send_buffer_bytes: None,
            receive_buffer_bytes: None,
        }
    }
}
