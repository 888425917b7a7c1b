//! The client's end of a connection.

mod connection;
mod options;
mod pending;
mod receive;

pub use connection::Connection;
pub use options::ClientOptions;
