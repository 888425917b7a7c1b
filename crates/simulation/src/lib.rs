//! A whole striped cell under a seed: real component drives on devices in memory, the real striping manager, clients with
//! the clerk's striped code, and a network and a time that are simulated; faults of all of them; and a checker that
//! shares no code with what it checks.
//!
//! In [`afs`] there is the same of a volume that clients cache.
//!
//! [`run`] runs one seed. The same seed does the same, in whatever process.

pub mod afs;
mod checker;
mod client;
mod director;
mod drives;
mod ending;
mod logs;
mod manager;
mod members;
mod network;
mod plan;
mod random;
mod run;
mod sabotage;
mod serving;
mod threads;
mod turns;
mod watching;
#[cfg(test)]
mod written;

pub use plan::{Faults, Habits, Plan, Sabotage};
pub use run::{Report, run, trace};
