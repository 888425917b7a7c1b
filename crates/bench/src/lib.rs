//! Measured rows, each beside the limit that the same run measured.
//!
//! A row's name, what it does and its limit are a contract: scripts compare them over time. The
//! value and the limit come from one run on one machine, by turns, and are medians; so their ratio
//! means something where either number alone would not.

mod andrew;
mod cells;
mod crowd;
mod error;
mod limits;
mod linking;
mod plot;
mod program;
mod row;
mod rows;
mod sampling;
#[cfg(test)]
mod testing;
mod workload;

pub use andrew::{Contents, Phases, andrew};
pub use cells::{Cells, Client, Connect};
pub use crowd::{Crowd, CrowdReport, CrowdSize};
pub use error::BenchError;
pub use limits::{disk_read, disk_write, tcp_loopback};
pub use plot::figures;
pub use row::{Cpu, Memory, Part, Row};
pub use rows::{ROW_NAMES, make_objects, measure};
pub use workload::{CpuSeconds, Issue, Mint, OpenFilled, PeakMemory, Restart, Target};
