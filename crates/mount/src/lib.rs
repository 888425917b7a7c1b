//! The FUSE face of the clerk.
