//! Informed prefetching: from hints of what will be read, what to bring into a cache next, and what to let go
//! (CMU-CS-97-118 section 4.6, which builds on Patterson et al., "Informed Prefetching and Caching", SOSP 1995).
//!
//! Whoever knows what he will read tells it as a *stream* of [`Access`]es, in order, and later how far he is. A
//! [`Planner`] says which block is worth fetching now ([`Planner::next`]), and which blocks need not be kept any more
//! ([`Planner::released`]). The cache that they are in has a fixed size and others use it as well, so each block is
//! weighed: what reading it ahead saves, against what the others lose by having one block less.
//!
//! A block is what the cache has memory for as a whole. Times are nanoseconds of a clock that never goes back; all of
//! them are arguments.

#![forbid(unsafe_code)]

mod estimate;
mod held;
pub mod notice;
mod planner;
mod room;
mod stream;

pub use planner::{Costs, HintError, Planner, Settings};
pub use stream::{Access, Block};

/// What whoever tells hints calls a stream of them.
pub type StreamId = u64;

/// Who tells hints, by whatever he is known: streams are limited for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Teller(pub u128);

/// Names a stream of hints. Nobody can tell anything of another's, whatever he calls it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamName {
    /// Whose it is.
    pub teller: Teller,
    /// What he calls it.
    pub id: StreamId,
}
