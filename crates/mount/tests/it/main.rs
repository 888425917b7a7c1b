//! Real mounts over a cell in memory. They need `/dev/fuse` and the right to mount.

#![allow(clippy::unwrap_used)]

mod coherence;
mod directories;
mod files;
mod interrupts;
mod locks;
mod mapping;
mod mount_points;
mod mounting;
mod names;
mod removal;
mod sparse;
mod special;
mod speed;
mod succession;
mod trouble;
mod world;
