//! Callbacks and stores (`specs/callbacks.md`): who may believe the copy of a file that he has, and when a store is done.
//!
//! The file manager has a [`Callbacks`] for all files, a client a [`CachedCopy`] for each.

mod cached_copy;
mod clients;
mod files;
mod rules;
mod table;

pub use cached_copy::{CachedCopy, Era};
pub use rules::{Client, FileRules, NeverGiven, Reading, State, Step, Version, is_store};
pub use table::{Callbacks, FileStep, Limits, Unknown};
