//! A cell with a volume of the personality `afs` under a seed: the real file manager, real clerks with their caches, and real drives, in their own
//! threads ([`crate::threads`]), with their faults; and a checker of what clients have read.
//!
//! [`run`] runs one seed, in a process of its own.

mod apart;
mod client;
mod director;
mod history;
mod lengths;
mod manager;
mod names;
mod plan;
mod registers;
mod room;
mod run;
mod sabotage;

pub use plan::{Faults, Plan, Sabotage};
pub use run::{Report, run, trace};
