//! The preload library, on a whole cell: programs that know nothing of the bulk service read and write files of a mount.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use support::{
    CellOptions, TestCell, finish, library_directory, noise, scratch, text, wait_for_exit,
};

/// The library, which cargo has built with these tests.
fn library() -> PathBuf {
    let library = library_directory().join("libnasd_bulk.so");
    assert!(library.exists(), "{} is built with the tests", library.display());
    library
}

/// Where programs of tests are.
fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/preload")
}

/// A program with the library before it, which says what it maps.
fn preloaded(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env("LD_PRELOAD", library()).env("NASD_BULK_DEBUG", "1").stdin(Stdio::null());
    command
}

fn succeeded(command: Command) -> String {
    let output: Output = finish(command);
    assert!(output.status.success(), "{}", text(&output));
    text(&output)
}

/// `dd` with the library, past all caches at one end.
fn dd(from: &Path, to: &Path, options: &[&str]) -> String {
    let mut command = preloaded("dd");
    command.arg(format!("if={}", from.display())).arg(format!("of={}", to.display())).args(options);
    succeeded(command)
}

fn kinds() -> [CellOptions; 2] {
    [CellOptions::default(), CellOptions::striped(3, "raid0 --stripe-unit 64K")]
}

fn is_mapped(said: &str, path: &Path) {
    let line = format!("nasd-bulk: {}: mapped", path.display());
    assert!(said.contains(&line) && !said.contains("from here on"), "{said}");
}

#[test]
fn dd_copies_every_byte() {
    for options in kinds() {
        let cell = TestCell::start(&options);
        let directory = scratch();
        let (source, copy) = (directory.path().join("source"), directory.path().join("copy"));
        let contents = noise(1, 20_000_123);
        fs::write(&source, &contents).unwrap();
        for (name, block) in [("a", "bs=1M"), ("b", "bs=12345"), ("c", "bs=7M")] {
            let file = cell.path(name);
            is_mapped(&dd(&source, &file, &[block, "oflag=direct"]), &file);
            assert!(fs::read(&file).unwrap() == contents, "{name}");
            is_mapped(&dd(&file, &copy, &[block, "iflag=direct"]), &file);
            assert!(fs::read(&copy).unwrap() == contents, "{name}");
        }
        // In the middle of a file that is there.
        let file = cell.path("a");
        let options = ["bs=1M", "count=3", "seek=5", "oflag=direct", "conv=notrunc,fsync"];
        is_mapped(&dd(&source, &file, &options), &file);
        let expected = [&contents[..5 << 20], &contents[..3 << 20], &contents[8 << 20..]].concat();
        assert!(fs::read(&file).unwrap() == expected);
        is_mapped(&dd(&file, &copy, &["bs=1M", "skip=4", "count=5", "iflag=direct"]), &file);
        assert!(fs::read(&copy).unwrap() == expected[4 << 20..9 << 20]);
    }
}

#[test]
fn threads_children_and_other_programs_share_a_file() {
    for options in kinds() {
        let cell = TestCell::start(&options);
        let directory = scratch();
        let (copy, file) = (directory.path().join("copy"), cell.path("file"));
        fs::write(&copy, noise(2, 8_000_001)).unwrap();
        fs::copy(&copy, &file).unwrap();
        let mut command = preloaded("python3");
        command.arg(programs().join("descriptors.py")).arg(&file).arg(&copy);
        let said = succeeded(command);
        assert!(said.contains("right"), "{said}");
        is_mapped(&said, &file);
    }
}

#[test]
fn what_is_written_is_told_by_all_that_tell_of_a_file() {
    for options in kinds() {
        let cell = TestCell::start(&options);
        let mut command = preloaded("python3");
        command.arg(programs().join("lengths.py")).arg(cell.mountpoint());
        let said = succeeded(command);
        assert!(said.contains("right"), "{said}");
        is_mapped(&said, &cell.path("lengths"));
    }
}

#[test]
fn fio_finds_what_it_has_written() {
    let cell = TestCell::start(&CellOptions::default());
    for (name, more) in [("processes", &["--numjobs=2"][..]), ("threads", &["--thread=1"])] {
        let file = cell.path(name);
        let mut command = preloaded("fio");
        command.args(["--direct=1", "--ioengine=psync", "--rw=randrw", "--bs=4k-256k"]);
        command.args(["--size=16M", "--verify=crc32c", "--verify_fatal=1", "--name=x"]);
        command.arg("--verify_state_save=0").current_dir(cell.directory.path());
        command.args(more).arg(format!("--filename={}", file.display()));
        if name == "processes" {
            // One region each: fio does not know what another process has written.
            command.arg("--offset_increment=16M");
        }
        let said = succeeded(command);
        is_mapped(&said, &file);
        assert!(!said.contains("not mapped"), "{said}");
    }
}

#[test]
fn programs_do_what_they_usually_do() {
    let cell = TestCell::start(&CellOptions::default());
    let run = |name: &str, is_preloaded: bool| {
        let directory = cell.path(name);
        fs::create_dir(&directory).unwrap();
        let mut command = if is_preloaded { preloaded("sh") } else { Command::new("sh") };
        command.arg(programs().join("usual.sh")).arg(&directory).stdin(Stdio::null());
        let output = finish(command);
        assert!(output.status.success(), "{}", text(&output));
        text(&output)
    };
    assert_eq!(run("with", true), run("without", false));
}

#[test]
fn a_file_that_others_have_open_is_written_the_ordinary_way() {
    let cell = TestCell::start(&CellOptions::default());
    let (directory, file) = (scratch(), cell.path("file"));
    let source = directory.path().join("source");
    let contents = noise(3, 3_000_000);
    fs::write(&source, &contents).unwrap();
    fs::write(&file, "short").unwrap();
    let reader = fs::OpenOptions::new().read(true).custom_flags(0).open(&file).unwrap();
    let said = dd(&source, &file, &["bs=1M", "oflag=direct"]);
    assert!(said.contains("not mapped"), "{said}");
    assert!(fs::read(&file).unwrap() == contents);
    drop(reader);
    // What is no mount's is asked nothing.
    let copy = directory.path().join("copy");
    let said = dd(&source, &copy, &["bs=1M", "iflag=direct"]);
    assert!(!said.contains("nasd-bulk"), "{said}");
    assert!(fs::read(&copy).unwrap() == contents);
}

/// Others take their places.
fn kill_all_drives(cell: &TestCell) {
    for drive in ["drive-1", "drive-2"] {
        if cell.members().iter().any(|(_, line)| line.contains(drive)) {
            cell.kill_and_await(drive);
        }
    }
}

#[test]
fn a_drive_that_starts_anew_is_not_noticed() {
    let cell = TestCell::start(&CellOptions::default());
    let file = cell.path("file");
    let contents = noise(4, 6_000_000);
    fs::write(&file, &contents).unwrap();
    support::sync_tree(&cell.mountpoint());
    let program = "
import os, sys
fd = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
while True:
    block = os.read(fd, 3000000)
    sys.stdout.buffer.write(len(block).to_bytes(4, 'little') + block)
    sys.stdout.buffer.flush()
    if not block or not sys.stdin.readline(): break
";
    let mut command = preloaded("python3");
    command.args(["-c", program]).arg(&file).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let (mut to, mut said) =
        (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
    let mut read = Vec::new();
    loop {
        let mut length = [0; 4];
        std::io::Read::read_exact(&mut said, &mut length).unwrap();
        let at = read.len();
        read.resize(at + u32::from_le_bytes(length) as usize, 0);
        std::io::Read::read_exact(&mut said, &mut read[at..]).unwrap();
        if length == [0; 4] {
            break;
        }
        kill_all_drives(&cell);
        to.write_all(b"\n").unwrap();
    }
    drop(to);
    assert!(wait_for_exit(&mut child).success());
    assert!(read == contents);
    assert!(said.fill_buf().unwrap().is_empty());
    let mut log = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut log).unwrap();
    is_mapped(&log, &file);
}

#[test]
fn what_was_written_to_a_drive_is_not_lost_with_it() {
    let cell = TestCell::start(&CellOptions::default());
    let file = cell.path("file");
    let program = "
import os, sys
contents = sys.argv[2].encode() * 100000
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT | os.O_DIRECT)
assert os.write(fd, contents) == len(contents)
print('written', flush=True)
sys.stdin.readline()
os.fsync(fd)
assert os.pread(fd, len(contents) + 1, 0) == contents
print('right', flush=True)
";
    let mut command = preloaded("python3");
    command.args(["-c", program]).arg(&file).arg("something").stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut told = String::new();
    let mut said = BufReader::new(child.stdout.take().unwrap());
    said.read_line(&mut told).unwrap();
    assert_eq!(told, "written\n");
    kill_all_drives(&cell);
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    let output = child.wait_with_output().unwrap();
    said.read_line(&mut told).unwrap();
    assert!(output.status.success() && told.ends_with("right\n"), "{}", text(&output));
    is_mapped(&text(&output), &file);
}

#[test]
fn programs_in_c_have_calls_of_their_own() {
    let directory = scratch();
    let program = directory.path().join("calls");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new("cc");
    command.args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1", "-o"]);
    command.arg(&program).arg(programs().join("calls.c"));
    command.arg("-I").arg(root.join("../preload/include"));
    command.arg("-L").arg(library().parent().unwrap()).arg("-lnasd_bulk");
    succeeded(command);
    for (number, options) in kinds().iter().enumerate() {
        let cell = TestCell::start(options);
        let mut command = Command::new(&program);
        command.env("LD_LIBRARY_PATH", library().parent().unwrap());
        command.arg(cell.path("calls")).arg(directory.path().join(format!("other-{number}")));
        let said = succeeded(command);
        assert!(said.contains("right"), "{said}");
        let contents = fs::read(cell.path("calls")).unwrap();
        assert!(contents.ends_with(b"end") && contents.len() == 3_200_003);
    }
}
