//! The drive: authorize each request alone, then run it on the object store.
