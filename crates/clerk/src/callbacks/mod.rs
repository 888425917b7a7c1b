//! What a clerk has of a volume of the personality `afs` (`specs/callbacks.md`): it believes what it was told of files while it holds
//! callbacks on them, and stores what is written here.
//!
//! [`Promises`] is what is believed, `asking` how it comes about, `neighbours` how it does of several files at once, `storing` how files
//! are stored, `given` what comes with new files for that, `cached` what is kept of their contents.

mod asking;
mod cached;
mod directories;
mod given;
mod lists;
mod neighbours;
mod promises;
mod storing;

pub(crate) use directories::Listings;
pub(crate) use given::{Asked, Given, GivenSince};
pub(crate) use lists::Lists;
pub(crate) use neighbours::Appetite;
pub(crate) use promises::Promises;
pub(crate) use storing::{Store, Unfinished, Until};
