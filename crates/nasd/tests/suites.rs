//! Suites of others on a real mount: pjdfstest (what POSIX says of names, modes and times) and fsx (what
//! is read is what was written, whichever way). `make tools` installs both; a test without its program fails.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::lines::done;
use support::{CellOptions, TestCell, finish, nasd, shell, text, wait_until};

/// A suite that does not end has failed.
const LONGEST: Duration = Duration::from_secs(30 * 60);

/// An external program that `make tools` installs.
fn tool(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/bin").join(name);
    assert!(path.exists(), "there is no {}: run `make tools` first", path.display());
    path.canonicalize().unwrap()
}

/// Runs a command; what it printed lies in `log`.
fn run_long(mut command: Command, log: &Path) -> bool {
    let output = fs::File::create(log).unwrap();
    command.stdout(output.try_clone().unwrap()).stderr(output).stdin(Stdio::null());
    let mut child = command.spawn().unwrap();
    let deadline = Instant::now() + LONGEST;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.success();
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            panic!("{command:?} does not end:\n{}", fs::read_to_string(log).unwrap());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The directory that pjdfstest is given. It fills paths up to the longest one, by a computation that fails for
/// one length in 127; the name sees to it that the length is another.
fn pjdfstest_directory(mount: &Path) -> PathBuf {
    let room = |path: &Path| 4095 - path.as_os_str().len();
    let mut directory = mount.join("p");
    // It makes a directory of its own in there, whose name is shorter than 100 bytes.
    while !(101..=120).contains(&(room(&directory) % 127)) {
        let mut longer = directory.into_os_string();
        longer.push("d");
        directory = longer.into();
    }
    fs::create_dir(&directory).unwrap();
    directory
}

fn pjdfstest(volume: &str, naptime: &str) {
    // SAFETY: has no preconditions.
    assert_eq!(unsafe { libc::geteuid() }, 0, "pjdfstest changes users, and so needs root");
    let cell = TestCell::start(&CellOptions::default());
    let mount = match volume {
        SHARED => shared(&cell, "suid"),
        _ => Beside::new(&cell, volume, "suid"),
    };
    let configuration = cell.directory.path().join("pjdfstest.toml");
    let written = format!(
        "[features]\nposix_fallocate = {{}}\nrename_ctime = {{}}\nutime_now = {{}}\n\
         utimensat = {{}}\n[settings]\nnaptime = {naptime}\nallow_remount = false\n[dummy_auth]\n\
         entries = [[\"nobody\", \"nogroup\"], [\"daemon\", \"daemon\"], [\"bin\", \"bin\"]]\n"
    );
    fs::write(&configuration, written).unwrap();
    let mut command = Command::new(tool("pjdfstest"));
    command.arg("-c").arg(configuration).arg("-p").arg(pjdfstest_directory(mount.path()));
    let log = cell.directory.path().join("pjdfstest.log");
    let success = run_long(command, &log);
    let told = fs::read_to_string(log).unwrap();
    let summary = told.lines().find(|line| line.starts_with("Summary")).unwrap_or("no summary");
    let failed: Vec<&str> = told.lines().filter(|line| line.contains("FAILED")).collect();
    assert!(success && failed.is_empty(), "{summary}\n{}", failed.join("\n"));
    let passed: Vec<&str> = summary.split(", ").filter(|part| part.ends_with(" passed")).collect();
    let passed: u32 = passed[0].trim_end_matches(" passed").parse().unwrap();
    assert!(passed > 370, "the suite ran only in part: {summary}");
}

#[test]
fn pjdfstest_passes() {
    pjdfstest("main", "0.01");
}

/// Long, because the tests of times wait a little more than a second each.
#[test]
#[ignore = "by hand: cargo test -p nasd --test suites -- --ignored"]
fn pjdfstest_passes_with_long_naps() {
    ["main", SHARED].iter().for_each(|volume| pjdfstest(volume, "1.1"));
}

#[test]
fn pjdfstest_passes_in_a_volume_that_clients_cache() {
    pjdfstest(SHARED, "0.01");
}

/// A mount beside the first one of a cell, where everybody gets to, and by a path that is short enough for a
/// socket's.
struct Beside<'a> {
    cell: &'a TestCell,
    directory: tempfile::TempDir,
}

impl<'a> Beside<'a> {
    fn new(cell: &'a TestCell, volume: &str, options: &str) -> Self {
        let directory = tempfile::tempdir_in("/tmp").unwrap();
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(directory.path(), open).unwrap();
        let mut command = nasd();
        command.arg("mount").arg(directory.path()).args(["--volume", volume]);
        command.args(["--detach", "-o", options]).arg("--cell").arg(cell.cell());
        let mounted = finish(command);
        assert!(mounted.status.success(), "{}", text(&mounted));
        Beside { cell, directory }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }
}

impl Drop for Beside<'_> {
    fn drop(&mut self) {
        let mut command = nasd();
        command.arg("umount").arg(self.path());
        let unmounted = finish(command);
        if !std::thread::panicking() {
            assert!(unmounted.status.success(), "{}", text(&unmounted));
            let mounts = || fs::read_to_string("/proc/self/mounts").unwrap();
            let path = self.path().to_str().unwrap();
            wait_until("the mount is gone", || !mounts().contains(path));
            assert!(self.cell.nasd(&["status"]).status.success());
        }
    }
}

/// The volume of the personality `afs`.
const SHARED: &str = "shared";

/// Makes that volume, and mounts it.
fn shared<'a>(cell: &'a TestCell, options: &str) -> Beside<'a> {
    done(cell, &format!("volume create {SHARED} --personality afs"));
    let cache = cell.directory.path().join("cache");
    Beside::new(cell, SHARED, &format!("cache={},{options}", cache.display()))
}

/// How often each kind of operation comes.
const WEIGHTS: &str = "[weights]\nclose_open = 1\nread = 10\nwrite = 10\ntruncate = 3\n\
    fsync = 1\nfdatasync = 1\nposix_fallocate = 2\npunch_hole = 3\nsendfile = 2\n\
    posix_fadvise = 1\ncopy_file_range = 2\n";

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |value| value.parse().unwrap())
}

/// Runs fsx in a directory of a mount, with operations besides the usual ones.
fn fsx(cell: &TestCell, directory: &Path, others: &str) {
    fs::create_dir_all(directory).unwrap();
    let operations = number("NASD_FSX_OPERATIONS", 2_000).to_string();
    let configuration = cell.directory.path().join("fsx.toml");
    let text = format!("flen = 1048576\n[opsize]\nmax = 131072\n{WEIGHTS}{others}");
    fs::write(&configuration, text).unwrap();
    for seed in 1..=number("NASD_FSX_SEEDS", 2) {
        let mut command = Command::new(tool("fsx"));
        command.arg("-f").arg(&configuration).args(["-N", &operations, "-q"]);
        command.args(["-S", &seed.to_string()]).arg("-P").arg(cell.directory.path());
        command.arg(directory.join(format!("fsx-{seed}")));
        let log = cell.directory.path().join("fsx.log");
        let success = run_long(command, &log);
        let told = fs::read_to_string(log).unwrap();
        let told: Vec<&str> = told.lines().take(60).collect();
        assert!(success, "seed {seed}, {operations} operations:\n{}", told.join("\n"));
    }
}

/// How often files are mapped.
const NEVER_MAPPED: &str = "mapread = 0\nmapwrite = 0\ninvalidate = 0\n";
const OFTEN_MAPPED: &str = "mapread = 10\nmapwrite = 10\ninvalidate = 2\n";
const MAPPED_TOO: &str = "mapread = 5\nmapwrite = 5\ninvalidate = 2\n";

#[test]
fn fsx_finds_no_difference_through_the_page_cache() {
    let cell = TestCell::start(&CellOptions::default());
    fsx(&cell, &cell.mountpoint(), NEVER_MAPPED);
}

#[test]
fn fsx_finds_no_difference_in_mapped_files() {
    let cell = TestCell::start(&CellOptions::default());
    fsx(&cell, &cell.mountpoint(), OFTEN_MAPPED);
}

#[test]
fn fsx_finds_no_difference_around_the_page_cache() {
    let cell = TestCell::start(&CellOptions::default());
    let direct = Beside::new(&cell, "main", "direct");
    fsx(&cell, direct.path(), NEVER_MAPPED);
}

/// Both at once: written by the one, mapped and read by the other.
#[test]
fn fsx_finds_no_difference_where_files_are_mapped_and_go_around_the_page_cache() {
    let cell = TestCell::start(&CellOptions::default());
    let direct = Beside::new(&cell, "main", "direct");
    fsx(&cell, direct.path(), MAPPED_TOO);
}

/// The same ways where files are stored as a whole.
#[test]
fn fsx_finds_no_difference_in_a_volume_that_clients_cache() {
    let cell = TestCell::start(&CellOptions::default());
    let cached = shared(&cell, "cached");
    fsx(&cell, &cached.path().join("read and written"), NEVER_MAPPED);
    fsx(&cell, &cached.path().join("mapped"), OFTEN_MAPPED);
}

#[test]
fn fsx_finds_no_difference_around_the_page_cache_in_a_volume_that_clients_cache() {
    let cell = TestCell::start(&CellOptions::default());
    let direct = shared(&cell, "direct");
    fsx(&cell, &direct.path().join("read and written"), NEVER_MAPPED);
    fsx(&cell, &direct.path().join("mapped"), MAPPED_TOO);
}

/// Each makes files of its own, and checks them.
const STRESSORS: [&str; 24] = [
    "access",
    "chmod",
    "chown",
    "copy-file",
    "dentry",
    "dir",
    "fallocate",
    "fcntl",
    "filename",
    "flock",
    "fpunch",
    "getdent",
    "hdd",
    "iomix",
    "link",
    "lockf",
    "lockofd",
    "mknod",
    "open",
    "rename",
    "seek",
    "symlink",
    "utime",
    "xattr",
];

#[test]
fn the_stress_of_many_programs_is_borne() {
    let cell = TestCell::start(&CellOptions::default());
    let seconds = format!("{}s", number("NASD_STRESS_SECONDS", 1));
    for stressor in STRESSORS {
        let mut command = Command::new("stress-ng");
        command.arg("--temp-path").arg(cell.mountpoint()).arg(format!("--{stressor}"));
        command.args(["2", "--timeout", &seconds, "--verify", "--hdd-bytes", "16M"]);
        command.args(["--iomix-bytes", "16M", "--fallocate-bytes", "16M"]);
        let log = cell.directory.path().join("stress.log");
        let success = run_long(command, &log);
        let told = fs::read_to_string(log).unwrap();
        assert!(success && !told.contains("fail:"), "{stressor}: {told}");
    }
    let left: Vec<_> = fs::read_dir(cell.mountpoint()).unwrap().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn fio_reads_back_what_it_wrote() {
    let cell = TestCell::start(&CellOptions::default());
    for (name, options) in [
        ("buffered", "--ioengine=psync --fsync=64"),
        ("direct", "--ioengine=libaio --iodepth=16 --direct=1"),
        ("mapped", "--ioengine=mmap"),
    ] {
        let line = format!(
            "fio --verify_state_save=0 --name={name} --directory=\"$1\" --size=16M --rw=randwrite --bsrange=512-64k \
             --verify=crc32c --do_verify=1 --verify_fatal=1 --numjobs=2 --group_reporting {}",
            options.replace("libaio", "libaio --blockalign=512"),
        );
        shell(&line, &[&cell.mountpoint()]);
    }
}
