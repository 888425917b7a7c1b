//! Typed calls to a drive and to a file manager over any channel, with reconnect and retry.
//!
//! * [`DriveClient`]: the operations of `specs/nasd.x` on one drive, each authorized by an
//!   [`Authority`]. It keeps a few connections, makes nonces by the drive's clock, checks the
//!   digest of every reply, and that the drive is the one that was meant.
//! * [`ManagerClient`]: the operations of `specs/manager.x`, each on behalf of a [`Caller`].
//! * [`RetryPolicy`]: how long a call waits for a server that is away; [`ClientError`]: how it
//!   fails in the end.
//!
//! Calls block and may come from any number of threads; calls of several threads share
//! connections. Payload is never copied here: reads are received straight into the caller's
//! memory, writes sent straight from it.
//!
//! Not here: splitting large transfers, caching, renewing capabilities (`nasd-clerk`), sockets
//! (`nasd-transport`, behind a [`Connector`]), and time and sleep (behind a [`Host`]); a
//! [`Network`] gives both.

mod authority;
mod clock;
mod connector;
mod drive;
mod error;
mod host;
pub mod interrupt;
mod manager;
mod network;
mod orders;
mod pool;
mod retry;

pub use authority::{Authority, Prepared};
pub use connector::{Connector, TcpConnector, TlsConnector};
pub use drive::{
    ClockSettings, ConnectOptions, DriveClient, Objects, PendingCall, PendingCreate, PendingExtend,
    PendingRead, PendingRemove, PendingWrite, ReadOutcome,
};
pub use error::{ClientError, TransportError};
pub use host::{Host, SystemHost};
pub use manager::{Caller, ManagerClient};
pub use nasd_transport::Spare;
pub use network::{Network, TcpNetwork};
pub use orders::OrderSource;
pub use retry::RetryPolicy;
