//! A volume of the personality `afs`, with several mounts of it.

use std::fs;

use super::lines::{Mounted, done};
use super::{CellOptions, TestCell};

/// A cell of two drives with a volume `shared`.
pub fn cell() -> TestCell {
    let options = CellOptions { drives: 2, size: "256M", cache: "32M", ..CellOptions::default() };
    let cell = TestCell::start(&options);
    done(&cell, "volume create shared --personality afs");
    cell
}

/// A mount of the volume in a directory of the cell's, with a cache of its own.
pub fn mounted(cell: &TestCell, called: &str) -> Mounted {
    mounted_with(cell, called, "cache_size=64M")
}

/// The same with more options.
pub fn mounted_with(cell: &TestCell, called: &str, more: &str) -> Mounted {
    let directory = cell.directory.path();
    let (at, cache) = (directory.join(called), directory.join(format!("cache-{called}")));
    fs::create_dir_all(&at).unwrap();
    let options = format!("-o cache={},{more}", cache.display());
    done(cell, &format!("mount {} --volume shared --detach {options}", at.display()));
    Mounted(at)
}

/// Unmounts it.
pub fn unmounted(cell: &TestCell, at: Mounted) {
    done(cell, &format!("umount {}", at.0.display()));
}
