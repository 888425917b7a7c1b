//! Lines of a file that a regular expression matches, over bytes as they stream by.
//!
//! A [`Pattern`] says which lines are selected, [`Wanted`] what is told of them. A [`Search`] looks at *pieces* of the file, each a
//! contiguous range of bytes that comes in slices of any size, and tells in one buffer of bounded size what it has found. Lines
//! that cross the ends of pieces are told as they are; [`Join`] puts them together and selects among them. The result is the
//! same however the file is cut, and wherever its pieces are looked at.
//!
//! The syntax of regular expressions is that of the `regex` crate; a search takes time that grows with the bytes and not
//! with what is in them.

#![forbid(unsafe_code)]

mod join;
mod lines;
mod pattern;
pub mod remote;
mod search;
mod wanted;

pub use join::{Join, JoinError, Line, MOST_OPEN_BYTES};
pub use pattern::{
    Bounds, MAX_PATTERN_BYTES, MAX_PATTERNS, Matcher, Pattern, PatternError, SMALL_MATCHER_BYTES,
};
pub use search::{Next, Search, SearchError};
pub use wanted::{Give, MAX_CONTEXT, Wanted};
