//! The client's end of a connection.

mod connection;
mod in_flight;
mod options;
mod pending;
mod receive;

pub use connection::Connection;
pub use in_flight::{Awaited, InFlight};
pub use options::ClientOptions;
