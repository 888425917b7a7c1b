//! Checks and repairs a drive's device, by a second implementation of the on-disk format.
//!
//! It was written from `docs/on-disk-format.md` and shares no code with the store, so that what
//! one of them gets wrong the other finds. [`check`] reads; [`repair`] says what it would do, or
//! does it. What there is to be found is [`Code::ALL`], explained in `docs/checking.md`.

mod appends;
mod bytes;
mod check;
mod data;
mod finding;
mod image;
mod log;
mod pages;
mod record;
mod region;
mod repair;
mod replay;
mod report;
mod scan;
mod sink;
mod space;
mod state;
mod superblock;
mod tree;
mod walk;

pub use check::check;
pub use finding::{Code, Finding, Severity, Subject};
pub use repair::{RepairError, repair};
pub use report::{Options, Outcome, Progress, Repair, RepairOptions, Report, Stage, Statistics};
