//! Copies within a mount by the programs that people use, which share blocks at the drive where they can.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;

use rustix::io::Errno;
use support::beside::Beside;
use support::{CellOptions, TestCell, noise, shell, text};

const MIB: usize = 1 << 20;

/// Bytes of the cell's drives that are in use, as `df` tells once all is durable.
fn used(cell: &TestCell) -> i64 {
    shell("sync -f \"$1\"", &[&cell.mountpoint()]);
    let told = shell("df --output=used -B1 \"$1\" | tail -1", &[&cell.mountpoint()]);
    told.trim().parse().unwrap()
}

/// What copy_file_range(2) says to copying `length` bytes.
fn copy_range(from: (&fs::File, u64), to: (&fs::File, u64), length: usize) -> Result<usize, Errno> {
    let (mut at, mut onto) = (from.1, to.1);
    rustix::fs::copy_file_range(from.0, Some(&mut at), to.0, Some(&mut onto), length)
}

fn open(path: &Path) -> fs::File {
    fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

#[test]
fn copies_share_blocks_at_the_drive() {
    let cell = TestCell::start(&CellOptions {
        drives: 1,
        size: "512M",
        cache: "32M",
        ..CellOptions::default()
    });
    let (file, copy) = (cell.path("file"), cell.path("copy"));
    let data = noise(7, 40 * MIB + 77);
    fs::write(&file, &data).unwrap();
    let before = used(&cell);
    shell("cp \"$1\" \"$2\"", &[&file, &copy]);
    assert!(fs::read(&copy).unwrap() == data);
    let taken = used(&cell) - before;
    assert!(taken < MIB as i64, "{taken} bytes were taken by a copy");
    // Ten copies of what does not fit ten times.
    for number in 0..12 {
        let another = cell.path(&format!("copy-{number}"));
        shell("cp --reflink=auto --sparse=never \"$1\" \"$2\"", &[&copy, &another]);
        assert!(fs::read(&another).unwrap() == data, "{number}");
    }
    // Each is its own from now on.
    open(&copy).write_all_at(b"changed", 5 * MIB as u64).unwrap();
    open(&file).write_all_at(b"original", 9 * MIB as u64 + 3).unwrap();
    fs::remove_file(cell.path("copy-3")).unwrap();
    assert!(fs::read(cell.path("copy-4")).unwrap() == data);
    let (mut of_copy, mut of_file) = (data.clone(), data);
    of_copy[5 * MIB..5 * MIB + 7].copy_from_slice(b"changed");
    of_file[9 * MIB + 3..9 * MIB + 11].copy_from_slice(b"original");
    assert!(fs::read(&copy).unwrap() == of_copy && fs::read(&file).unwrap() == of_file);
    let checked = cell.nasd(&["fsck", "main"]);
    assert!(checked.status.success(), "{}", text(&checked));
}

/// What was written, mapped or cut off just before is in the copy, and what the kernel has of the
/// target's pages is not.
#[test]
fn ranges_are_copied_in_order_with_all_else() {
    let cell = TestCell::start(&CellOptions {
        drives: 1,
        size: "256M",
        cache: "32M",
        ..CellOptions::default()
    });
    let (source, target) = (open(&cell.path("source")), open(&cell.path("target")));
    let data = noise(9, 3 * MIB);
    target.write_all_at(&vec![7; 4 * MIB], 0).unwrap();
    let mut seen = vec![0; 4 * MIB];
    target.read_exact_at(&mut seen, 0).unwrap();
    source.write_all_at(&data, 0).unwrap();
    let (from, onto, length) = (4096 + 5, 4096 * 3 + 5, 2 * MIB + 11);
    let mut done = 0;
    while done < length {
        let at = |start: usize| (start + done) as u64;
        done += copy_range((&source, at(from)), (&target, at(onto)), length - done).unwrap();
    }
    let mut expected = vec![7; 4 * MIB];
    expected[onto..onto + length].copy_from_slice(&data[from..from + length]);
    target.read_exact_at(&mut seen, 0).unwrap();
    assert!(seen == expected);
    // Up to the source's end, and behind it.
    source.set_len(100).unwrap();
    assert_eq!(copy_range((&source, 0), (&target, 4 * MIB as u64), MIB), Ok(100));
    assert_eq!(target.metadata().unwrap().len(), 4 * MIB as u64 + 100);
    assert_eq!(copy_range((&source, 100), (&target, 0), MIB), Ok(0));
    // Within one file, and onto itself.
    assert_eq!(copy_range((&target, 0), (&target, 8 * MIB as u64), MIB), Ok(MIB));
    let mut again = vec![0; MIB];
    target.read_exact_at(&mut again, 8 * MIB as u64).unwrap();
    assert!(again == expected[..MIB]);
    assert_eq!(copy_range((&target, 0), (&target, 10), MIB), Err(Errno::INVAL));
    let read_only = fs::File::open(cell.path("target")).unwrap();
    assert_eq!(copy_range((&source, 0), (&read_only, 0), 10), Err(Errno::BADF));
}

#[test]
fn a_copy_over_a_program_takes_its_privileges() {
    let cell = TestCell::start(&CellOptions {
        drives: 1,
        size: "128M",
        cache: "32M",
        ..CellOptions::default()
    });
    cell.let_everybody_in();
    let (source, program) = (cell.path("source"), cell.path("program"));
    fs::write(&source, vec![1; 10_000]).unwrap();
    fs::write(&program, vec![2; 10_000]).unwrap();
    for mode in [0o4777, 0o2777] {
        fs::set_permissions(&program, fs::Permissions::from_mode(mode)).unwrap();
        let copy = "import os, sys\n\
            source, target = open(sys.argv[1], 'rb'), open(sys.argv[2], 'r+b')\n\
            assert os.copy_file_range(source.fileno(), target.fileno(), 4096, 0, 0) == 4096";
        let script = cell.directory.path().join("copy.py");
        fs::write(&script, copy).unwrap();
        let stranger = "setpriv --reuid 12345 --regid 12345 --clear-groups";
        shell(
            &format!("{stranger} env PATH=/usr/bin:/bin python3 \"$1\" \"$2\" \"$3\""),
            &[&script, &source, &program],
        );
        assert_eq!(fs::metadata(&program).unwrap().mode() & 0o7777, 0o777);
        assert_eq!(fs::read(&program).unwrap()[..4097], [&[1; 4096][..], &[2]].concat());
    }
}

/// Files of several drives, and of drives that are reached by way of the manager, are copied through the
/// client.
#[test]
fn what_no_drive_can_copy_is_copied_all_the_same() {
    let cell = TestCell::start(&CellOptions {
        drives: 3,
        size: "256M",
        cache: "32M",
        ..CellOptions::default()
    });
    let data = noise(5, 2 * MIB + 5);
    fs::write(cell.path("file"), &data).unwrap();
    for number in 0..9 {
        let copy = cell.path(&format!("copy-{number}"));
        shell("cp \"$1\" \"$2\"", &[&cell.path("file"), &copy]);
        assert!(fs::read(&copy).unwrap() == data, "{number}");
    }
    let beside = Beside::mount_as(&cell, "beside", &["-o", "path=manager"]);
    shell("cp \"$1\" \"$2\"", &[&beside.at.join("file"), &beside.at.join("another")]);
    assert!(fs::read(cell.path("another")).unwrap() == data);
}
