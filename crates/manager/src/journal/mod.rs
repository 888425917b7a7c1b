//! The journal: where changes of names and records go first. `docs/directory-format.md` describes it.
//!
//! * [`step`]: what a change is made of, and its bytes;
//! * [`frame`]: what is written at a time, and where a journal that was cut off ends;
//! * [`image`]: what a journal's steps come to, whatever the objects hold by then.
//!
//! All of this is pure; `writer` writes it to the drive.

pub mod frame;
pub mod image;
pub mod step;
mod writer;

pub use frame::{Area, FrameError, Kind, scan};
pub use image::{DirectoryImage, Image, Ledger, RecordImage};
pub use step::{RequestKey, Step, StepError};
pub use writer::OpenError;

pub(crate) use writer::{
    AREAS, Journal, JournalError, MAX_AREA_BYTES, MIN_AREA_BYTES, empty_journal,
};
