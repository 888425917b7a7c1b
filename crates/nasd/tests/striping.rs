//! Files that are spread over many drives: real processes, a real mount.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, Instant};
use support::{CellOptions, TestCell, make_tree, noise, scratch, shell};

/// What is tried on each kind of volume.
fn kinds() -> [(u32, &'static str); 4] {
    [
        (4, "raid0 --stripe-unit 64K"),
        (3, "raid0 --stripe-unit 4K --stripe-width 2"),
        (2, "raid1 --stripe-unit 64K"),
        (4, "raid1 --stripe-unit 16K --copies 3"),
    ]
}

#[test]
fn files_of_all_lengths_are_what_was_written() {
    for (drives, stripe) in kinds() {
        let mut cell = TestCell::start(&CellOptions::striped(drives, stripe));
        let lengths = [0, 1, 4095, 4096, 4097, 65_535, 65_536, 65_537, 300_000, 5_000_001];
        for length in lengths {
            fs::write(cell.path(&format!("f{length}")), noise(length as u64, length)).unwrap();
        }
        let number =
            |cell: &TestCell, length| fs::metadata(cell.path(&format!("f{length}"))).unwrap().ino();
        let numbers = lengths.map(|length| number(&cell, length));
        let source = scratch();
        make_tree(source.path(), 200);
        shell("cp -a \"$1\" \"$2\"", &[source.path(), &cell.path("tree")]);
        shell("sync \"$1\"; sync -f \"$1\"", &[&cell.mountpoint()]);
        for _restarted in [false, true] {
            // The other way round: they do not depend on what is asked for first.
            let now = lengths.iter().rev().map(|length| number(&cell, *length));
            let is_same = now.eq(numbers.into_iter().rev());
            assert!(is_same, "{stripe}: inode numbers are the same in every mount");
            for length in lengths {
                let read = fs::read(cell.path(&format!("f{length}"))).unwrap();
                assert!(read == noise(length as u64, length), "{stripe}: {length}");
            }
            shell("diff -r --no-dereference \"$1\" \"$2\"", &[source.path(), &cell.path("tree")]);
            cell.stop();
            cell.restart();
        }
    }
}

#[test]
fn a_hole_is_one_wherever_it_is() {
    for (drives, stripe) in kinds() {
        let cell = TestCell::start(&CellOptions::striped(drives, stripe));
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(cell.path("f"));
        let mut file = file.unwrap();
        file.write_all_at(b"end", 3_000_000).unwrap();
        file.write_all_at(b"middle", 1_000_000).unwrap();
        file.sync_all().unwrap();
        assert_eq!(file.metadata().unwrap().len(), 3_000_003);
        assert!(file.metadata().unwrap().blocks() < 200, "{stripe}");
        let mut all = Vec::new();
        file.read_to_end(&mut all).unwrap();
        assert_eq!(all.len(), 3_000_003);
        assert!(&all[1_000_000..1_000_006] == b"middle" && &all[3_000_000..] == b"end");
        assert_eq!(all.iter().filter(|byte| **byte != 0).count(), 9);
        // Cut within a hole, and made longer again: what was cut off is not there any more.
        file.set_len(2_000_000).unwrap();
        file.set_len(4_000_000).unwrap();
        file.seek(SeekFrom::Start(0)).unwrap();
        all.clear();
        file.read_to_end(&mut all).unwrap();
        assert_eq!((all.len(), all.iter().filter(|byte| **byte != 0).count()), (4_000_000, 6));
    }
}

#[test]
fn data_go_straight_to_the_drives_and_each_has_its_part() {
    let cell = TestCell::start(&CellOptions::striped(4, "raid0 --stripe-unit 64K"));
    let bytes = noise(3, 32 << 20);
    let written = || {
        [1, 2, 3, 4].map(|index| {
            let told = cell.nasd(&["object", "control", &index.to_string(), "--json"]);
            let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap_or_default();
            told["capability_bytes_written"].as_u64().unwrap_or_default()
        })
    };
    let mut before = written();
    assert_eq!(before, [0; 4]);
    let mut parts = Vec::new();
    // What a drive was too slow to answer is sent to it once more.
    for number in 0..3 {
        let path = cell.path(&format!("big-{number}"));
        fs::write(&path, &bytes).unwrap();
        File::open(&path).unwrap().sync_all().unwrap();
        let after = written();
        parts.push([0, 1, 2, 3].map(|drive| after[drive] - before[drive]));
        before = after;
        if parts.last() == Some(&[8 << 20; 4]) {
            return;
        }
    }
    panic!("{parts:?}");
}

#[test]
fn a_drive_and_the_striping_manager_may_be_killed_and_come_back() {
    for (drives, stripe) in kinds() {
        let cell = TestCell::start(&CellOptions::striped(drives, stripe));
        let source = scratch();
        make_tree(source.path(), 300);
        fs::write(source.path().join("big"), noise(5, 24 << 20)).unwrap();
        let mut copy = std::process::Command::new("cp");
        copy.arg("-a").arg(source.path()).arg(cell.path("tree"));
        let mut copy = copy.spawn().unwrap();
        for victim in ["striping serve", "drive-1.img", "striping serve", "drive-2.img"] {
            std::thread::sleep(std::time::Duration::from_millis(200));
            cell.kill_and_await(victim);
        }
        assert!(support::wait_for_exit(&mut copy).success(), "{stripe}");
        shell("diff -r --no-dereference \"$1\" \"$2\"", &[source.path(), &cell.path("tree")]);
    }
}

#[test]
fn what_was_synced_survives_the_kill_of_everything() {
    for (drives, stripe) in kinds() {
        let mut cell = TestCell::start(&CellOptions::striped(drives, stripe));
        for turn in 0..20_u64 {
            let mut file = File::create(cell.path(&format!("f{turn}"))).unwrap();
            file.write_all(&noise(turn, 1 + (turn as usize * 40_000))).unwrap();
            file.sync_all().unwrap();
        }
        File::open(cell.mountpoint()).unwrap().sync_all().unwrap();
        // What is synced last may be on one drive alone, when the others have all the rest and have kept it in memory.
        let mut long = File::create(cell.path("long")).unwrap();
        long.write_all(&noise(99, 1 << 20)).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(100));
        long.write_all(b"end").unwrap();
        long.sync_all().unwrap();
        cell.kill_everything();
        cell.restart();
        let read = fs::read(cell.path("long")).unwrap();
        assert!(read == [noise(99, 1 << 20), b"end".to_vec()].concat(), "{stripe}");
        for turn in 0..20_u64 {
            let read = fs::read(cell.path(&format!("f{turn}"))).unwrap();
            assert!(read == noise(turn, 1 + (turn as usize * 40_000)), "{stripe}: {turn}");
        }
        fs::write(cell.path("after"), "x").unwrap();
        assert_eq!(fs::read_to_string(cell.path("after")).unwrap(), "x");
    }
}

#[test]
fn a_volume_that_cant_be_spread_so_is_refused() {
    let directory = scratch();
    for (arguments, word) in [
        (&["--drives", "2", "--stripe", "raid0", "--stripe-width", "3"][..], "only 2 drives"),
        (&["--drives", "1", "--stripe", "raid1"], "at most as often"),
        (&["--drives", "2", "--stripe", "raid0", "--stripe-unit", "1000"], "multiple"),
    ] {
        let mut command = support::nasd();
        command.arg("up").arg(directory.path().join("cell")).args(arguments);
        let output = support::finish(command);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(word), "{arguments:?}: {said}");
        assert!(!directory.path().join("cell").exists(), "nothing was made");
    }
}

/// Each drive works on what it has; together they have all.
#[test]
fn an_extension_works_at_all_drives_of_a_file() {
    for (drives, stripe) in kinds() {
        let cell = TestCell::start(&CellOptions::striped(drives, stripe));
        let bytes = noise(7, (9 << 20) + 12_345);
        fs::write(cell.path("big"), &bytes).unwrap();
        let asked = |rest: &[&str]| {
            let path = "main:/big";
            let line = [&["extend", path, "checksum", "--arguments", "00000000"], rest].concat();
            let told = cell.nasd(&[&line[..], &["--json"]].concat());
            assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
            let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
            told["parts"].as_array().unwrap().clone()
        };
        for (offset, length, rest) in [
            (0, bytes.len(), &[][..]),
            (3_000_001, 4_000_000, &["--offset", "3000001", "--length", "4000000"]),
        ] {
            let mut looked_at = 0;
            for part in asked(rest) {
                let pieces = part["pieces"].as_array().unwrap();
                let sums: String = pieces
                    .iter()
                    .map(|piece| {
                        let number = |name: &str| piece[name].as_u64().unwrap() as usize;
                        let (at, count) = (number("offset"), number("length"));
                        looked_at += count;
                        assert!(at >= offset && at + count <= offset + length);
                        format!("{:08x}", crc32c::crc32c(&bytes[at..at + count]))
                    })
                    .collect();
                assert_eq!(part["data"], sums, "{stripe}");
            }
            assert_eq!(looked_at, length, "{stripe}");
        }
    }
}

/// A part of what `nasd extend` tells: path, pieces and data.
type Part = (String, Vec<(usize, usize)>, String);

/// What it tells, for scripts.
fn parts_of(cell: &TestCell, line: &[&str]) -> Vec<Part> {
    let told = cell.nasd(&[&["extend"], line, &["--json"]].concat());
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
    let part = |part: &serde_json::Value| {
        let text = |name: &str| part[name].as_str().unwrap().to_owned();
        let pieces = part["pieces"].as_array().unwrap().iter();
        let number = |piece: &serde_json::Value, name: &str| piece[name].as_u64().unwrap() as usize;
        let pieces = pieces.map(|piece| (number(piece, "offset"), number(piece, "length")));
        (text("path"), pieces.collect(), text("data"))
    };
    told["parts"].as_array().unwrap().iter().map(part).collect()
}

/// The drives of all files work; what they tell is told apart by the file, and by the range where one is named twice.
#[test]
fn an_extension_works_at_the_drives_of_several_files() {
    for (drives, stripe) in kinds() {
        let cell = TestCell::start(&CellOptions::striped(drives, stripe));
        let files = [("a", noise(1, 3 << 20)), ("b", noise(2, 100)), ("c", noise(3, 5_000_000))];
        for (name, bytes) in &files {
            fs::write(cell.path(name), bytes).unwrap();
        }
        let paths = ["main:/a", "main:/c", "main:/b", "main:/a"];
        for (options, ranges) in [
            (&[][..], [(0, 3 << 20), (0, 5_000_000), (0, 100), (0, 3 << 20)]),
            (&["--offset", "10"], [(10, 3 << 20), (10, 5_000_000), (10, 100), (10, 3 << 20)]),
            (
                &["--length=1M", "--length=7", "--length=8", "--length=9", "--offset=1"],
                [(1, (1 << 20) + 1), (1, 8), (1, 9), (1, 10)],
            ),
        ] {
            let rest = [&["checksum", "--arguments", "00000000"], options].concat();
            let parts = parts_of(&cell, &[&paths[..], &rest].concat());
            let mut parts = parts.into_iter().peekable();
            for (path, (begin, end)) in paths.iter().zip(ranges) {
                let bytes = &files.iter().find(|(name, _)| path.ends_with(name)).unwrap().1;
                let mut left = end - begin;
                while left > 0 {
                    let (of, pieces, data) = parts.next().unwrap();
                    assert_eq!(of, *path, "{stripe}");
                    let sum = |&(at, count): &(usize, usize)| {
                        assert!(begin <= at && at + count <= end, "{stripe}: {at}+{count}");
                        left -= count;
                        format!("{:08x}", crc32c::crc32c(&bytes[at..at + count]))
                    };
                    assert_eq!(data, pieces.iter().map(sum).collect::<String>(), "{stripe}");
                }
            }
            assert_eq!(parts.next(), None, "{stripe}");
        }
    }
}

#[test]
fn an_extension_is_found_by_what_the_drives_list() {
    let cell = TestCell::start(&CellOptions::striped(2, "raid0"));
    fs::write(cell.path("a"), noise(1, 100)).unwrap();
    fs::write(cell.path("b"), noise(2, 100)).unwrap();
    // It is called by its name like any other one, and takes a number of four bytes.
    for name in ["cancel", "5"] {
        let parts = parts_of(&cell, &["main:/a", name, "--arguments", "00000001"]);
        assert_eq!(parts, [("main:/a".to_owned(), vec![(0, 100)], String::new())]);
    }
    for (line, words) in [
        ("main:/a spell", &["no extension `spell`", "checksum", "prefetch"][..]),
        ("main:/a 77", &["no extension `77`", "checksum"]),
        ("main:/a checksum --revision 9", &["main:/a", "no such extension"]),
        ("main:/a main:/b checksum", &["main:/a: extension 1", "\nmain:/b: extension 1"]),
        ("main:/a main:/nothing checksum", &["main:/nothing"]),
        ("main:/a checksum --offset 1 --offset 2", &["1 files and 2 --offset"]),
    ] {
        let words_of_line: Vec<&str> = ["extend"].into_iter().chain(line.split(' ')).collect();
        let output = cell.nasd(&words_of_line);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && output.stdout.is_empty(), "{line}: {said}");
        words.iter().for_each(|word| assert!(said.contains(word), "{line}: {said}"));
    }
    // Drives are named as other commands name and take them.
    let whole = ["extend", "main:/a", "checksum", "--arguments=00000000"];
    let told = cell.nasd(&[&whole[..], &["--json"]].concat());
    let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
    let drive = told["parts"][0]["drive"].as_str().unwrap().to_owned();
    let status = String::from_utf8(cell.nasd(&["status", "--json"]).stdout).unwrap();
    assert!(drive.len() == 16 && status.contains(&format!("\"{drive}\"")), "{drive}: {status}");
    let control = cell.nasd(&["object", "control", &drive]);
    assert!(control.status.success(), "{}", String::from_utf8_lossy(&control.stderr));
    let told = String::from_utf8(cell.nasd(&whole).stdout).unwrap();
    assert!(told.starts_with(&format!("drive {drive}  ")), "{told}");
    let said = String::from_utf8(cell.nasd(&["extend", "main:/a", "checksum"]).stderr).unwrap();
    assert!(said.contains(&format!("extension 1 of drive {drive}: ")), "{said}");
    // With other files their names are told, and of one that there is nothing of there is nothing.
    fs::write(cell.path("empty"), "").unwrap();
    let line = ["extend", "main:/b", "main:/empty", "main:/a", "checksum", "--arguments=00000000"];
    let told = String::from_utf8(cell.nasd(&line).stdout).unwrap();
    let names: Vec<&str> = told.lines().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(names, ["main:/b", "main:/a"], "{told}");
}

/// The right to write is shown to the drives that have the bytes, where files are spread as where they are not.
#[test]
fn an_extension_may_be_shown_the_right_to_write() {
    for (drives, stripe) in kinds() {
        let cell = TestCell::start(&CellOptions::striped(drives, stripe));
        let bytes = noise(5, 300_000);
        fs::write(cell.path("a"), &bytes).unwrap();
        let line = ["main:/a", "checksum", "--arguments", "00000000"];
        let before = Instant::now();
        let parts = parts_of(&cell, &[&line[..], &["--write"]].concat());
        assert!(before.elapsed() < Duration::from_secs(20), "{stripe}: {:?}", before.elapsed());
        let told: usize = parts.iter().flat_map(|(_, pieces, _)| pieces).map(|piece| piece.1).sum();
        assert_eq!(told, bytes.len(), "{stripe}");
        for (_, pieces, data) in &parts {
            let sum = |&(at, count): &(usize, usize)| {
                format!("{:08x}", crc32c::crc32c(&bytes[at..at + count]))
            };
            assert_eq!(*data, pieces.iter().map(sum).collect::<String>(), "{stripe}");
        }
        // Who writes then is not waited for, and nothing has changed.
        fs::write(cell.path("a"), &bytes[1..]).unwrap();
        assert!(fs::read(cell.path("a")).unwrap() == bytes[1..], "{stripe}");
    }
}

#[test]
fn what_an_extension_tells_of_some_files_is_printed_though_others_are_not_there() {
    let cell = TestCell::start(&CellOptions::striped(2, "raid0"));
    fs::write(cell.path("a"), noise(1, 100)).unwrap();
    fs::write(cell.path("b"), noise(2, 100)).unwrap();
    for paths in [
        ["main:/nosuch", "main:/a", "main:/b"],
        ["main:/a", "main:/nosuch", "main:/b"],
        ["main:/a", "main:/b", "none:/nosuch"],
    ] {
        let line = [&["extend"], &paths[..], &["checksum", "--arguments", "00000000"]].concat();
        let output = cell.nasd(&line);
        let told = String::from_utf8(output.stdout).unwrap();
        let names: Vec<&str> = told.lines().map(|line| line.split(' ').next().unwrap()).collect();
        assert_eq!(names, ["main:/a", "main:/b"], "{told}");
        let said = String::from_utf8(output.stderr).unwrap();
        let missing = if paths.contains(&"main:/nosuch") { "main:/nosuch" } else { "`none`" };
        assert!(said.contains(missing) && said.lines().count() == 1, "{said}");
        assert_eq!(output.status.code(), Some(1));
    }
    // Nothing is told where no file is there, and each is named.
    let output = cell.nasd(&["extend", "main:/no", "main:/none", "checksum"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("main:/no:") && said.contains("\nmain:/none:"), "{said}");
    assert!(output.stdout.is_empty() && output.status.code() == Some(1));
}
