//! A small cell for unit tests; nothing of it runs.

use super::{Cell, NewCell, create_cell};
use std::path::Path;

/// A new cell with one drive.
pub(super) fn cell(directory: &Path) -> Cell {
    cell_of(directory, 1)
}

/// A new cell with so many drives.
pub(super) fn cell_of(directory: &Path, drives: u32) -> Cell {
    let new = NewCell {
        stripe: None,
        drives,
        devices: Vec::new(),
        size_bytes: 64 << 20,
        cache_bytes: 1 << 20,
        host: "127.0.0.1".parse().unwrap(),
        base_port: 7000,
        protection: "integrity-args".to_owned(),
        volume: "main".to_owned(),
        rotate_keys_every: "never".to_owned(),
    };
    create_cell(directory, &new).unwrap()
}
