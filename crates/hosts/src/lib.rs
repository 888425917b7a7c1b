//! Hosts with addresses and links of their own on one machine, and a cell whose members are on them.

mod cell;
mod error;
mod network;
mod process;

pub use cell::{CellPlan, HostedCell, Route};
pub use error::HostError;
pub use network::{Host, Link, Network};
pub use process::Process;
