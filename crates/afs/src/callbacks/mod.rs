//! Callbacks and stores (`specs/callbacks.md`): who may believe the copy of a file that he has, and when a store is done.
//!
//! The file manager has a [`Callbacks`] for all files, a client a [`Copy`] for each.

mod clients;
mod copy;
mod rules;
mod table;

pub use copy::{Copy, Era};
pub use rules::{Client, FileRules, NeverGiven, Reading, State, Step, Version, is_store};
pub use table::{Callbacks, FileStep, Unknown};
