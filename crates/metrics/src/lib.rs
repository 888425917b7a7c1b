//! Counters of what happens, and their text for Prometheus.
//!
//! * [`Histogram`]: how long things took, in classes each four times the one before;
//! * [`Counter`]: how much there was;
//! * [`Page`]: the text (exposition format 0.0.4).
//!
//! Numbers are read one after the other while others are counted, so that together they are not a
//! snapshot; each is right by itself.

mod histogram;
mod page;

pub use histogram::{CLASS_ENDS_US, Counter, Histogram};
pub use page::{Labels, Page};
