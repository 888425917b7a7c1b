//! What other programs' own tests say of the mount: PostgreSQL with its benchmark, the file tests of CPython,
//! and those of Go's `os`.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use std::fs;
use std::process::Command;
use std::time::Duration;

use support::{CellOptions, PATIENCE, TestCell, finish_within, scratch, shell_within, text};

/// Each of these is many tests, and they share the machine with each other.
const LONG: Duration = Duration::from_secs(10 * PATIENCE.as_secs());

/// Makes a database with checksums as `$1/pg`, uses it from several sides, ends it as a crash would, and has
/// PostgreSQL check what is there afterwards. It must not be run as root.
const POSTGRESQL: &str = r#"
bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -1); PATH=${bin:+$bin:}$PATH
mkdir "$1/pg"; chown nobody "$1/pg"; cd "$1/pg"
setpriv --reuid nobody --regid nogroup --clear-groups env HOME="$1/pg" PATH="$PATH" sh -ec '
    initdb -D data -A trust -U me --data-checksums --no-instructions >/dev/null
    start() { pg_ctl -D data -w -l log -o "-k $PWD -c listen_addresses=" start >/dev/null; }
    ask() { "$@" -h "$PWD" -U me; }
    start
    ask pgbench -q -i -s 1 postgres 2>/dev/null
    ask pgbench -n -c 4 -j 2 -t 200 postgres 2>&1 | grep "number of failed transactions: 0 "
    pg_ctl -D data -m immediate stop >/dev/null
    start
    sum="select sum(abalance) from pgbench_accounts"
    sums="$sum union select sum(delta) from pgbench_history union select sum(bbalance) from pgbench_branches"
    test "$(ask psql -Atc "select count(*) from ($sums) as s" postgres)" = 1
    test "$(ask psql -Atc "select count(*) from pgbench_history" postgres)" = 800
    ask pg_dump postgres > dump
    pg_ctl -D data -w stop >/dev/null
    pg_checksums -D data --check >/dev/null'
"#;

#[test]
fn postgresql_keeps_its_database() {
    let cell = TestCell::start(&CellOptions::default());
    cell.let_everybody_in();
    shell_within(LONG, POSTGRESQL, &[&cell.mountpoint()]);
}

/// Those of CPython's tests that are about files. `test_largefile`, which writes 2.5 GB, and
/// `test_zipfile` pass as well, and take longer.
const CPYTHON: [&str; 10] = [
    "test_file",
    "test_fileio",
    "test_mmap",
    "test_fcntl",
    "test_shutil",
    "test_tempfile",
    "test_posix",
    "test_pathlib",
    "test_glob",
    "test_os",
];

#[test]
fn the_file_tests_of_cpython_pass() {
    let cell = TestCell::start(&CellOptions::default());
    cell.let_everybody_in();
    let mut command = Command::new("python3");
    // One that hangs says where.
    let patience = PATIENCE.as_secs().to_string();
    command.args(["-m", "test", "-q", "--timeout", &patience]);
    command.arg("--tempdir").arg(cell.path("python"));
    let output = finish_within(LONG, {
        fs::create_dir(cell.path("python")).unwrap();
        command.args(CPYTHON).env("TMPDIR", cell.path("python"));
        command
    });
    let told = text(&output);
    assert!(output.status.success() && told.contains("Tests result: SUCCESS"), "{told}");
}

/// Tests of Go's `os` that are not about files; and `TestNonpollableDeadline`, which wants poll(2) of a file
/// to be refused: the kernel has it for every FUSE file system.
const NOT_OF_FILES: &str = "Deadline|Poll|Pipe|Process|Kill|Hostname|Exec|Env|Stdin";

#[test]
fn the_file_tests_of_go_pass() {
    let cell = TestCell::start(&CellOptions::default());
    cell.let_everybody_in();
    fs::create_dir(cell.path("go")).unwrap();
    let scratch = scratch();
    // By itself, as the compiler takes its time where others compute too.
    let build = "export GOFLAGS=-mod=mod HOME=\"$1\" GOCACHE=\"$1/cache\"
         cd \"$(go env GOROOT)/src/os\"
         go test -c -o \"$1/os.test\" os";
    shell_within(LONG, build, &[scratch.path()]);
    let line = format!(
        "export GOFLAGS=-mod=mod HOME=\"$2\" GOCACHE=\"$2/cache\"
         cd \"$(go env GOROOT)/src/os\"
         tests=$(\"$2/os.test\" -test.list '^Test' | grep -Ev '{NOT_OF_FILES}' | paste -sd '|')
         TMPDIR=$1 \"$2/os.test\" -test.run \"^($tests)\\$\" 2>&1"
    );
    let told = shell_within(LONG, &line, &[&cell.path("go"), scratch.path()]);
    assert!(told.contains("PASS"), "{told}");
}
