//! The server's end: accepts connections and runs a service on them.

mod accept;
mod accounts;
mod begun;
mod connection;
mod guests;
mod lines;
mod options;
mod presence;
mod registry;
mod reply;
mod request;
mod service;
mod standing;
mod watch;

pub use accept::Server;
pub use guests::Guests;
pub use options::ServerOptions;
pub use presence::Presence;
pub use service::{
    Answer, Arriving, Attempt, Beside, BesideConnection, BesideSocket, Call, NoPayload, Payload,
    Peer, Receive, ReplyVerifier, Service, Together, Waits,
};
pub use standing::Standing;
