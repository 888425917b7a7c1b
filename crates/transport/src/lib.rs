//! Sockets and TLS: pipelined ONC RPC over TCP for clients and servers.
//!
//! Threads block; there is no event loop. On both ends one thread at a time reads a connection and
//! hands the role on: a server's leader receives whole calls and lets a follower read when a call
//! may block; a client's caller receives until its own reply has come. Bulk data is received
//! straight into, and sent straight from, the buffers of whoever owns it.

mod buffers;
mod channel;
mod client;
mod error;
mod much;
mod record;
mod server;
mod spare;
mod threads;
mod tls;
mod wire;

pub use buffers::{BufferPool, PooledBuffer};
pub use channel::{Channel, OutgoingCall, Reply, ResultShape};
pub use client::{Awaited, ClientOptions, Connection, InFlight};
pub use error::{BreakReason, ChannelError, Execution, FrameError};
pub use much::Much;
pub use server::{
    Answer, Arriving, Attempt, Beside, BesideConnection, BesideSocket, Call, Guests, NoPayload,
    Payload, Peer, Presence, Receive, ReplyVerifier, Server, ServerOptions, Service, Standing,
    Together, Waits,
};
pub use spare::Spare;
pub use threads::{ThreadScope, Threads, job_of_thread};
pub use tls::{
    Certified, ClientTls, Identity, PeerIdentity, PemFiles, ServerTls, TlsError,
    certificate_identity, certificate_public_key, certificate_serial, certificate_times,
    first_certificate,
};

pub use wire::connect_expecting;

// Whoever makes a call or runs a service names these.
pub use nasd_rpc::{AcceptStatus, AuthStatus, CallHead, OpaqueAuth, ReplyError};
