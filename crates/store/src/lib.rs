//! The object store: copy-on-write objects on a device it owns.
