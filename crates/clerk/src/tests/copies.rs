//! Copies and walks.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::{cell, name, new_file, pattern, root, settings};
use crate::{Copied, FileType};

#[test]
fn a_tree_survives_the_way_in_and_out() {
    let cell = cell(2);
    let clerk = cell.clerk(settings());
    let scratch = tempfile::tempdir().unwrap();
    let source = scratch.path().join("source");
    fs::create_dir_all(source.join("a/b")).unwrap();
    fs::create_dir(source.join("empty")).unwrap();
    let big = pattern(0, (3 << 20) + 77);
    fs::write(source.join("a/big"), &big).unwrap();
    fs::write(source.join("a/b/none"), b"").unwrap();
    fs::write(source.join("run"), b"#!/bin/sh").unwrap();
    fs::set_permissions(source.join("run"), fs::Permissions::from_mode(0o750)).unwrap();
    symlink("a/big", source.join("link")).unwrap();
    let mut told = 0;
    for _ in 0..2 {
        // The second time everything is there already.
        told = 0;
        let copied = clerk
            .copy_tree_in(&root(), &source, clerk.root(), &name("tree"), &mut |step| told += step)
            .unwrap();
        let bytes = big.len() as u64 + 9;
        let wanted = Copied { files: 3, directories: 4, links: 1, skipped: 0, bytes };
        assert_eq!(copied, wanted);
        assert_eq!(told, bytes);
    }
    let tree = clerk.resolve(&root(), b"tree", true).unwrap();
    let target = scratch.path().join("target");
    for _ in 0..2 {
        clerk.copy_tree_out(&root(), tree.handle, &target, &mut |_| ()).unwrap();
    }
    assert!(fs::read(target.join("a/big")).unwrap() == big);
    assert!(fs::read(target.join("link")).unwrap() == big);
    assert_eq!(fs::read(target.join("a/b/none")).unwrap(), b"");
    assert!(target.join("empty").is_dir());
    assert_eq!(fs::metadata(target.join("run")).unwrap().permissions().mode() & 0o777, 0o750);
    assert!(told > 0);
}

#[test]
fn a_walk_shows_everything_once_in_both_orders() {
    let cell = cell(1);
    let clerk = cell.clerk(settings());
    let mut dir = clerk.root();
    for depth in 0..30 {
        dir = clerk.mkdir(&root(), dir, &name(&format!("d{depth}")), 0o755).unwrap().handle;
        clerk.create(&root(), dir, &name("f"), 0o644, true).unwrap();
    }
    for contents_first in [false, true] {
        let items: Vec<_> =
            clerk.walk(&root(), clerk.root(), contents_first).map(Result::unwrap).collect();
        assert_eq!(items.len(), 60);
        let directories = items.iter().filter(|item| item.file_type == FileType::Directory);
        let depths: Vec<usize> =
            directories.map(|item| item.path.split(|byte| *byte == b'/').count()).collect();
        let ordered = if contents_first {
            depths.is_sorted_by(|a, b| a > b)
        } else {
            depths.is_sorted_by(|a, b| a < b)
        };
        assert!(ordered, "{depths:?}");
    }
    assert_eq!(clerk.remove_tree(&root(), clerk.root(), &name("d0")).unwrap(), 60);
    assert_eq!(clerk.walk(&root(), clerk.root(), false).count(), 0);
}

#[test]
fn a_file_is_shown_to_a_sink() {
    let cell = cell(1);
    let clerk = cell.clerk(settings());
    let (file, handle) = new_file(&clerk, "f");
    let data = pattern(0, (2 << 20) + 5);
    file.write(0, &data).unwrap();
    file.close().unwrap();
    let mut shown = Vec::new();
    clerk.copy_to(&root(), handle, &mut shown, &mut |_| ()).unwrap();
    assert!(shown == data);
}
