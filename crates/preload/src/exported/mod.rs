//! The functions that programs call: in front of those of the C library, by the same names.
//!
//! The libraries' own headers say what they are to do. In short, each asks whether its descriptor is of a mapped file, and else
//! calls the next library's at once. The names for offsets of 64 bits are the same functions: on the machines that this is
//! for, offsets have no others.

mod descriptors;
mod lengths;
mod looks;
pub(crate) mod opens;
mod programs;
mod threads;
mod transfers;

pub use descriptors::*;
pub use lengths::*;
pub use looks::*;
pub use opens::*;
pub use programs::*;
pub use threads::*;
pub use transfers::*;
