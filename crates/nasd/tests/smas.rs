//! SMAS's interface for C, on a whole cell: programs that are compiled against `smas.h` and linked with the library.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use support::{CellOptions, TestCell, free_ports, library_directory, scratch, wait_for_exit};

/// Compiles a program of `tests/smas` into a directory.
fn compile(name: &str, directory: &Path) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = directory.join(name);
    let told = Command::new("cc")
        .args([
            "-std=c11",
            "-pthread",
            "-D_POSIX_C_SOURCE=200809L",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-O1",
            "-o",
        ])
        .arg(&program)
        .arg(root.join("tests/smas").join(name).with_extension("c"))
        .arg("-I")
        .arg(root.join("../smas/include"))
        .arg("-L")
        .arg(library_directory())
        .arg("-lsmas")
        .output()
        .unwrap_or_else(|error| panic!("cc can't be run ({error}); `make deps` installs it"));
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    // As it is installed: programs look for it by its number.
    symlink(library_directory().join("libsmas.so"), directory.join("libsmas.so.1")).unwrap();
    program
}

/// What a program prints that is a client of the cell, beside which there is the library.
fn run(program: &Path, cell: &TestCell) -> String {
    let told = Command::new(program)
        .env("NASD_CELL", cell.cell())
        .env("LD_LIBRARY_PATH", program.parent().unwrap())
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&told.stdout).into_owned();
    let said = String::from_utf8_lossy(&told.stderr);
    assert!(told.status.success(), "{}: {printed}{said}", told.status);
    printed
}

#[test]
fn the_program_of_the_paper_runs_as_it_stands_there() {
    for options in [CellOptions::default(), CellOptions::striped(3, "raid0 --stripe-unit 4K")] {
        let cell = TestCell::start(&options);
        let told = cell.nasd(&["volume", "create", "zeus.cs.uoi.gr"]);
        assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
        assert!(cell.nasd(&["mkdir", "zeus.cs.uoi.gr:/pub"]).status.success());
        let mut records = Vec::new();
        let (mut selected, mut sum) = (0, 0_i64);
        // More than one answer holds.
        for number in 0..250_000_i32 {
            let value = number.wrapping_mul(7919) % 101 - 50;
            records.extend(value.to_le_bytes());
            records.extend([b'x'; 96]);
            if value > 10 {
                (selected, sum) = (selected + 1, sum + i64::from(value));
            }
        }
        let directory = scratch();
        let file = directory.path().join("testfile");
        fs::write(&file, records).unwrap();
        let told =
            cell.nasd(&["cp".as_ref(), file.as_os_str(), "zeus.cs.uoi.gr:/pub/testfile".as_ref()]);
        assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
        let program = compile("figure", directory.path());
        assert_eq!(run(&program, &cell), format!("{selected} {sum} 0\n"));
    }
}

#[test]
fn every_call_and_every_filter_does_what_the_header_says() {
    let directory = scratch();
    let program = compile("all", directory.path());
    for options in [CellOptions::default(), CellOptions::striped(2, "raid1")] {
        assert_eq!(run(&program, &TestCell::start(&options)), "right\n");
    }
}

#[test]
fn threads_have_files_of_their_own_or_one_together() {
    let directory = scratch();
    let program = compile("threads", directory.path());
    for options in [CellOptions::default(), CellOptions::striped(2, "raid0 --stripe-unit 4K")] {
        assert_eq!(run(&program, &TestCell::start(&options)), "40000 10000\n");
    }
}

/// How often a manager that tells so at this port was asked to make names durable.
fn commits(port: u16) -> u64 {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.contains("nasd_manager_requests_total{operation=\"create\""), "{text}");
    let is_meant =
        |line: &&str| line.starts_with("nasd_manager_requests_total{operation=\"commit\"");
    let count = |line: &str| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
    text.lines().filter(is_meant).map(count).sum()
}

/// Puts files into the volume until there is no room for another one of 64 KiB, at whichever drive.
fn fill(cell: &TestCell) {
    let put = |name: String, bytes: usize| {
        let mut file = fs::File::create(cell.path(&name))?;
        file.write_all(&vec![b'f'; bytes])?;
        file.sync_all()
    };
    for bytes in [1 << 20, 64 << 10] {
        let mut failed = 0;
        for number in 0..200 {
            let is_put = put(format!("filler-{bytes}-{number}"), bytes).is_ok();
            failed = if is_put { 0 } else { failed + 1 };
            if failed == 8 {
                break;
            }
        }
        assert_eq!(failed, 8, "there is room without end");
    }
}

#[test]
fn a_close_that_fails_has_tried_once() {
    let directory = scratch();
    let program = compile("full", directory.path());
    let mut cell = TestCell::start(&CellOptions::default());
    assert!(cell.nasd(&["volume", "resize", "main", "--quota", "26M"]).status.success());
    for name in ["full", "other"] {
        fs::File::create(cell.path(name)).unwrap();
    }
    fill(&cell);
    // Nobody else has anything to make durable then.
    cell.stop();
    let port = free_ports(3);
    cell.restart_by(&["--metrics-base-port", &port.to_string()]);
    let mut program = Command::new(&program)
        .env("NASD_CELL", cell.cell())
        .env("LD_LIBRARY_PATH", directory.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut to = program.stdin.take().unwrap();
    let mut said = BufReader::new(program.stdout.take().unwrap()).lines();
    assert_eq!(said.next().unwrap().unwrap(), "1", "what is written is taken");
    let before = commits(port);
    to.write_all(b"\n").unwrap();
    assert_eq!(said.next().unwrap().unwrap(), "-1");
    // Names are made durable behind data alone: another try would have nothing left that fails.
    assert_eq!(commits(port), before);
    to.write_all(b"\n").unwrap();
    assert!(wait_for_exit(&mut program).success());
}
