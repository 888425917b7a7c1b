//! Sockets and TLS: pipelined ONC RPC over TCP for clients and servers.
//!
//! Threads block; there is no event loop. On both ends one thread at a time reads a connection and
//! hands the role on: a server's leader receives whole calls and lets a follower read when a call
//! may block; a client's caller receives until its own reply has come. Bulk data is received
//! straight into, and sent straight from, the buffers of whoever owns it.

mod channel;
mod client;
mod error;
mod server;
mod tls;

pub use channel::{Channel, OutgoingCall, Reply, ResultShape};
pub use client::{ClientOptions, Connection};
pub use error::{BreakReason, ChannelError, Execution, FrameError, Rejection};
pub use server::{
    Answer, Arriving, Call, NoPayload, Payload, Peer, Receive, Server, ServerOptions, Service,
};
pub use tls::{ClientTls, PeerIdentity, PemFiles, ServerTls, TlsError};
