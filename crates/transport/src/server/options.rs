//! Limits of a server. Each bounds what one peer, or all together, can hold of it.

use std::time::Duration;

use nasd_types::limits;

/// Limits of a server; the defaults suit a drive.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Name of the server's threads, at most 12 characters.
    pub name: String,
    /// Most connections at a time, or fewer where the system gives the process fewer descriptors. When
    /// there are nearly as many, one makes room for each new one: of those that have proved nothing the
    /// oldest of the address that has most of them, or else one that is idle. When there is none, the
    /// new one is closed.
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
    /// A record that was begun must be received within this time and that which its bytes take at
    /// `least_bytes_per_second`, and a reply that was begun must be taken within this time.
    pub peer_timeout: Duration,
    /// The rate at which bytes of a call must come at least, once `peer_timeout` is over.
    pub least_bytes_per_second: u64,
    /// A TLS handshake must end within this time.
    pub handshake_timeout: Duration,
    /// As `peer_timeout`, where that is longer, for connections that have proved nothing yet.
    pub stranger_timeout: Duration,
    /// As `idle_timeout`, where that is longer, for connections that have proved nothing yet.
    pub stranger_idle_timeout: Duration,
    /// A connection is closed after so many calls in a row that proved nothing; where something was
    /// proved before, after 16 times as many.
    pub unproved_in_a_row: u32,
    /// What strangers of one address may cost for any length of time, in calls a second that prove
    /// nothing (a new connection costs 4, a TLS handshake 32 more, 4 KiB received 1). Who goes beyond it
    /// waits, at most a second at a time. `u32::MAX` is no limit.
    pub unproved_per_second: u32,
    /// What they may cost at once.
    pub unproved_burst: u32,
    /// The socket's send buffer, in bytes; `None` leaves it to the system.
    pub send_buffer_bytes: Option<usize>,
    /// The socket's receive buffer, in bytes; `None` leaves it to the system.
    pub receive_buffer_bytes: Option<usize>,
}

impl Default for ServerOptions {
    fn default() -> Self {
        ServerOptions {
            name: "nasd-server".to_owned(),
            max_connections: 4096,
            max_outstanding: 8,
            max_record_bytes: limits::MAX_RECORD_BYTES,
            max_head_bytes: limits::MAX_HEAD_BYTES,
            idle_timeout: Duration::from_secs(600),
            peer_timeout: Duration::from_secs(30),
            least_bytes_per_second: 64 << 10,
            handshake_timeout: Duration::from_secs(10),
            stranger_timeout: Duration::from_secs(5),
            stranger_idle_timeout: Duration::from_secs(60),
            unproved_in_a_row: 64,
            unproved_per_second: 1000,
            unproved_burst: 4000,
            send_buffer_bytes: None,
            receive_buffer_bytes: None,
        }
    }
}

impl ServerOptions {
    /// How long a connection may be without calls.
    pub(super) fn idle_patience(&self, is_proved: bool) -> Duration {
        let strangers = self.stranger_idle_timeout.min(self.idle_timeout);
        if is_proved { self.idle_timeout } else { strangers }
    }

    /// How long the beginning of a call may take to come, and a reply to be taken.
    pub(super) fn call_patience(&self, is_proved: bool) -> Duration {
        let strangers = self.stranger_timeout.min(self.peer_timeout);
        if is_proved { self.peer_timeout } else { strangers }
    }
}
