//! `nasd hint`: what it tells a mount is there when it is read, whatever it is told, and whoever reads.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use support::beside::Beside;
use support::{
    CellOptions, TestCell, feed, finish, free_ports, nasd, noise, scratch, signal, sync_tree, text,
    wait_for_exit, wait_until,
};

const FILES: usize = 300;

fn cell_with_files() -> (TestCell, Vec<u8>) {
    let cell = TestCell::start(&CellOptions::default());
    fs::create_dir_all(cell.path("set/below")).unwrap();
    let mut all = Vec::new();
    for number in 0..FILES {
        let bytes = noise(number as u64, 10_000 + number);
        fs::write(cell.path(&format!("set/below/{number} x")), &bytes).unwrap();
        all.extend(bytes);
    }
    sync_tree(&cell.path("set"));
    (cell, all)
}

fn hint(directory: &Path, options: &[&str], list: &[u8]) -> Output {
    let mut command = nasd();
    command.arg("hint").arg(directory).args(options);
    feed(command, list)
}

fn list() -> String {
    (0..FILES).map(|number| format!("below/{number} x\n")).collect()
}

/// Prints the files in order.
const PRINT: [&str; 4] = [
    "--",
    "sh",
    "-ec",
    "cd \"$MOUNT/set/below\"; number=0; while [ $number -lt 300 ]; do cat \"$number x\"; \
     number=$((number + 1)); done",
];

#[test]
fn a_command_reads_what_was_told() {
    let (mut cell, all) = cell_with_files();
    let port = free_ports(8).to_string();
    // Nobody has anything in memory.
    cell.stop();
    cell.restart_by(&["--metrics-base-port", &port]);
    let file = scratch();
    let list_file = file.path().join("list");
    fs::write(&list_file, list()).unwrap();
    let mut command = nasd();
    command.arg("hint").arg(cell.path("set")).arg("--list").arg(&list_file).args(PRINT);
    command.env("MOUNT", cell.mountpoint());
    let output = finish(command);
    assert!(output.status.success(), "{}", text(&output));
    assert!(output.stdout == all, "{} bytes of {}", output.stdout.len(), all.len());
    // The status is the command's own.
    for (line, status) in [("exit 7", 7), ("kill -9 $$", 137)] {
        let output = hint(&cell.path("set"), &["--", "sh", "-c", line], b"");
        assert_eq!(output.status.code(), Some(status), "{}", text(&output));
    }
}

#[test]
fn hints_are_good_while_it_runs_and_it_can_be_stopped() {
    let (cell, all) = cell_with_files();
    let mut command = nasd();
    command.arg("hint").arg(cell.path("set")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(list().as_bytes()).unwrap();
    let mut said = [0; 9];
    child.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
    assert_eq!(&said, b"300 hints");
    let mut read = Vec::new();
    for number in 0..FILES {
        read.extend(fs::read(cell.path(&format!("set/below/{number} x"))).unwrap());
    }
    assert!(read == all);
    signal(child.id(), "TERM");
    wait_for_exit(&mut child);
    // It holds nothing that keeps the mount from going.
    let mut cell = cell;
    cell.stop();
}

/// Bytes that a mount has had from drives, as it tells at this socket.
fn fetched(socket: &Path) -> u64 {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let name = "nasd_clerk_fetched_bytes_total ";
    text.lines().find_map(|line| line.strip_prefix(name)).map_or(0, |bytes| bytes.parse().unwrap())
}

#[test]
fn what_is_written_bit_by_bit_is_told_as_it_comes() {
    let (cell, _) = cell_with_files();
    let socket = cell.directory.path().join("metrics");
    let options = format!("metrics={}", socket.display());
    let beside = Beside::mount_as(&cell, "beside", &["-o", &options]);
    wait_until("the metrics", || socket.exists());
    let mut command = nasd();
    command.arg("hint").arg(beside.at.join("set")).args(["--list", "-"]).stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    // Far less than is told at a time, and who writes it is in the middle of a line.
    input.write_all(&list().as_bytes()[..1000]).unwrap();
    wait_until("it is fetched, and nobody has asked for it", || fetched(&socket) > 400_000);
    signal(child.id(), "TERM");
    wait_for_exit(&mut child);
    drop(input);
}

#[test]
fn what_has_no_meaning_is_refused_and_what_is_not_there_is_left_out() {
    let (cell, _) = cell_with_files();
    let set = cell.path("set");
    let refused = |directory: &Path, options: &[&str], list: &[u8], words: &str| {
        let output = hint(directory, options, list);
        let said = text(&output);
        assert!(!output.status.success() && said.contains(words), "{said}");
    };
    let elsewhere = scratch();
    refused(elsewhere.path(), &[], b"x\n", "not a directory of a mounted volume");
    refused(&cell.path("set/below/1 x"), &[], b"x\n", "name one, and the files below it");
    refused(&elsewhere.path().join("nothing"), &[], b"x\n", "No such file");
    refused(&set, &["--ranges"], b"0 5 below/1 x\n7 x\n", "line 2 of the list");
    refused(&set, &["--list", "/nowhere"], b"", "/nowhere");
    refused(&set, &["--", "/nowhere/program"], b"", "can't run /nowhere/program");
    refused(&set, &[], &[b'x'; 9000], "line 1 of the list is too long");
    refused(&set, &[], b"below/1 x\0below/2 x\0", "line 1 of the list has a zero byte");
    refused(&set, &["--ranges"], b"0 5 below/1 x\n0 5 a\0b\n", "line 2 of the list has a zero");
    let odd = b"missing\nbelow\n../set/below/1 x\n/set/below/2 x\nbelow/3 x/4\n\n\xff\xfe\n";
    let output = hint(&set, &["--", "cat", set.join("below/1 x").to_str().unwrap()], odd);
    assert!(output.status.success(), "{}", text(&output));
    assert!(output.stdout == noise(1, 10_001));
    let ranges = b"100 50 below/1 x\n0 0 below/2 x\n18446744073709551615 1 below/3 x\n";
    let output = hint(&set, &["--ranges", "--", "true"], ranges);
    assert!(output.status.success(), "{}", text(&output));
}

/// What is wrong with a list is told, all of it, though the command is over before anybody has looked at the list.
#[test]
fn a_quick_command_hides_no_complaint() {
    let (cell, _) = cell_with_files();
    let set = cell.path("set");
    let complaint = "nasd hint: line 3 of the list is not `OFFSET LENGTH PATH`: below/3 x\n";
    let wrong = b"0 0 below/1 x\n0 0 below/2 x\nbelow/3 x\n";
    for _ in 0..20 {
        let output = hint(&set, &["--ranges", "--", "true"], wrong);
        assert!(output.status.success());
        assert_eq!(String::from_utf8_lossy(&output.stderr), complaint);
    }
    // Many lines behind what there is room for, and nobody reads.
    let list = [list().replace("below", "0 0 below").repeat(150).as_bytes(), b"wrong\n"].concat();
    let output = hint(&set, &["--ranges", "--", "true"], &list);
    assert!(text(&output).contains("line 45001 of the list is not"), "{}", text(&output));
    // Whoever writes a list and does not end it, or a line, is not waited for.
    let mut command = nasd();
    command.arg("hint").arg(&set).args(["--list", "-", "--ranges", "--", "sleep", "0.2"]);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"0 0 below/1 x\n0 ").unwrap();
    let begun = Instant::now();
    assert!(wait_for_exit(&mut child).success());
    assert!(begun.elapsed() < Duration::from_millis(1800), "{:?}", begun.elapsed());
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said, "");
    drop(input);
}

#[test]
fn more_is_told_than_can_be_known_at_once() {
    let (cell, all) = cell_with_files();
    let mut list = list();
    // Behind what is read there is much that never is.
    (0..40_000).for_each(|number| list.push_str(&format!("below/none-{number}\n")));
    let mut command = nasd();
    command.arg("hint").arg(cell.path("set")).args(PRINT).env("MOUNT", cell.mountpoint());
    let output = feed(command, list.as_bytes());
    assert!(output.stdout == all, "{}", text(&output).chars().take(1000).collect::<String>());
}

#[test]
fn what_the_kernel_has_in_its_pages_goes_by_as_well() {
    let (cell, _) = cell_with_files();
    let read = |number: usize| fs::read(cell.path(&format!("set/below/{number} x"))).unwrap();
    (0..FILES).for_each(|number| drop(read(number)));
    // More than can be known before some are over.
    let list: Vec<u8> = list().into_bytes().repeat(115);
    let mut command = nasd();
    command.arg("hint").arg(cell.path("set")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let feeder = std::thread::spawn(move || input.write_all(&list));
    let mut output = child.stdout.take().unwrap();
    let told = std::thread::spawn(move || {
        let mut said = [0; 11];
        output.read_exact(&mut said).map(|()| said)
    });
    let begun = Instant::now();
    for number in (0..FILES).cycle() {
        if told.is_finished() {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "hints are over that nobody asks for");
        read(number);
    }
    feeder.join().unwrap().unwrap();
    assert_eq!(&told.join().unwrap().unwrap(), b"34500 hints");
    signal(child.id(), "TERM");
    wait_for_exit(&mut child);
}

#[test]
fn pieces_of_a_file_on_several_drives_are_what_was_written() {
    const PIECE: usize = 100_000;
    let mut cell = TestCell::start(&CellOptions::striped(3, "raid0 --stripe-unit 64K"));
    let mut bytes = noise(5, 6 << 20);
    bytes[1 << 20..2 << 20].fill(0);
    let file = fs::File::create(cell.path("spread")).unwrap();
    file.write_all_at(&bytes[..1 << 20], 0).unwrap();
    file.write_all_at(&bytes[2 << 20..], 2 << 20).unwrap();
    file.sync_all().unwrap();
    drop(file);
    cell.stop();
    cell.restart();
    // The last one ends behind the file.
    let offsets: Vec<usize> = (0..bytes.len().div_ceil(PIECE)).rev().map(|at| at * PIECE).collect();
    let list: String = offsets.iter().map(|at| format!("{at} {PIECE} spread\n")).collect();
    let mut command = nasd();
    command.arg("hint").arg(cell.mountpoint()).arg("--ranges");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(list.as_bytes()).unwrap();
    let mut said = [0; 8];
    child.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
    let file = fs::File::open(cell.path("spread")).unwrap();
    for at in offsets {
        let expected = &bytes[at..bytes.len().min(at + PIECE)];
        let mut read = vec![1; expected.len()];
        file.read_exact_at(&mut read, at as u64).unwrap();
        assert!(read == expected, "at {at}");
    }
    signal(child.id(), "TERM");
    wait_for_exit(&mut child);
}

#[test]
fn hints_by_ioctl_work_from_other_languages() {
    let (cell, _) = cell_with_files();
    let program = "\
import fcntl, os, struct, sys
HINT = 0x60004e48
directory = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECTORY)
text = b''.join(b'0 0 below/%d x\\0' % number for number in range(100))
request = bytearray((struct.pack('<I', len(text)) + text).ljust(8192, b'\\0'))
print(fcntl.ioctl(directory, HINT, request))
";
    let mut python = Command::new("python3");
    python.args(["-c", program]).arg(cell.path("set"));
    let output = finish(python);
    assert_eq!(text(&output).trim(), "exit status: 0 100");
    let fails = program.replace("0x60004e48", "0x60004e49");
    let mut python = Command::new("python3");
    python.args(["-c", &fails]).arg(cell.path("set"));
    let output = finish(python);
    assert!(text(&output).contains("Inappropriate ioctl"), "{}", text(&output));
    // A user has so many streams at a time.
    let many = format!(
        "{program}import errno\nkept = []\ntry:\n    while True:\n        \
         kept.append(os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECTORY))\n        \
         fcntl.ioctl(kept[-1], HINT, request)\n\
         except OSError as error:\n    print(len(kept), errno.errorcode[error.errno])\n"
    );
    let mut python = Command::new("python3");
    python.args(["-c", &many]).arg(cell.path("set"));
    let output = finish(python);
    assert!(text(&output).contains("16 EDQUOT"), "{}", text(&output));
}
