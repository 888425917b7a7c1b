//! Programs that know nothing of the bulk service, with the library before them, and files of a server of a directory.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use nasd_bulk_service::desk::{Desk, DeskOptions};
use nasd_bulk_service::directory::{DirectoryOptions, Surroundings};
use nasd_capability::SecretKey;
use nasd_transport::{Server, ServerOptions};
use nasd_types::{DriveId, Timestamp};

/// The library, which cargo has built for these tests.
fn library() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    program.parent().unwrap().join("libnasd_bulk.so")
}

/// A server of a directory that anybody may ask, as nobody.
struct Rig {
    root: tempfile::TempDir,
    server: Server,
}

impl Rig {
    fn new() -> Rig {
        let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let now = || {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            Timestamp::from_parts(since.as_secs(), since.subsec_nanos())
        };
        let surroundings = Surroundings {
            identity: DriveId(7),
            secret: SecretKey::new([3; 32]),
            clock: Box::new(now),
            random: [1, 2, 3],
        };
        let options = DeskOptions { anyone: true, ..DeskOptions::default() };
        let desk =
            Desk::new(root.path(), surroundings, DirectoryOptions::default(), options).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server =
            Server::start(listener, None, Arc::new(desk), ServerOptions::default()).unwrap();
        Rig { root, server }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Puts a file there that everybody may change.
    fn put(&self, name: &str, contents: &[u8]) {
        fs::write(self.path(name), contents).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o666)).unwrap();
    }

    /// A program with the library before it, for which files below a prefix are the server's.
    fn program(&self, program: &str, prefix: &Path) -> Command {
        let map = format!("{}=insecure:{}", prefix.display(), self.server.address());
        let mut command = with_map(program, &map);
        command.env("NASD_BULK_TIMEOUT", "10");
        command
    }
}

fn with_map(program: &str, map: &str) -> Command {
    let mut command = Command::new(program);
    command.env("LD_PRELOAD", library()).env("NASD_BULK_DEBUG", "1").env("NASD_BULK_MAP", map);
    command
}

fn text(output: &Output) -> String {
    let told = [&output.stdout[..], &output.stderr].concat();
    format!("{}: {}", output.status, String::from_utf8_lossy(&told))
}

fn succeeded(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    text(&output)
}

fn python(rig: &Rig, prefix: &Path, program: &str, arguments: &[&Path]) -> String {
    let mut command = rig.program("python3", prefix);
    // What a launcher of another python writes is not what is looked at.
    command.arg("-c").arg(format!("{PRELUDE}\n{program}")).args(arguments);
    succeeded(&mut command)
}

/// Memory that is as aligned as transfers past the cache want it.
const PRELUDE: &str = "
import os, sys, mmap, errno
def buffer(data):
    memory = mmap.mmap(-1, max(len(data), 1)); memory[:len(data)] = data
    return memory
def fails(number, run):
    try: run()
    except OSError as error: assert error.errno == number, error
    else: assert False, 'it was done'
";

fn noise(length: usize) -> Vec<u8> {
    let mut state = 88_172_645_463_325_252_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length).map(|_| next()).collect()
}

#[test]
fn dd_reads_and_writes_files_that_are_nowhere_here() {
    let rig = Rig::new();
    let contents = noise(5_000_123);
    rig.put("file", &contents);
    let (nowhere, copy) = (Path::new("/nowhere/at/all"), rig.path("copy"));
    let mut command = rig.program("dd", nowhere);
    command.arg("if=/nowhere/../nowhere/at//all/file").arg(format!("of={}", copy.display()));
    let said = succeeded(command.args(["bs=1M", "iflag=direct"]));
    assert!(said.contains("mapped"), "{said}");
    assert!(fs::read(&copy).unwrap() == contents);
    let mut command = rig.program("dd", nowhere);
    command.arg(format!("if={}", copy.display())).arg("of=/nowhere/at/all/new");
    let said = succeeded(command.args(["bs=1M", "oflag=direct", "conv=fsync"]));
    assert!(said.contains("mapped"), "{said}");
    assert!(fs::read(rig.path("new")).unwrap() == contents);
}

#[test]
fn a_directory_that_is_here_too_has_its_data_by_bulk() {
    let rig = Rig::new();
    let contents = noise(3 << 20);
    rig.put("file", &contents);
    let (here, copy) = (rig.root.path(), rig.path("copy"));
    let mut command = rig.program("dd", here);
    command.arg(format!("if={}", rig.path("file").display()));
    command.arg(format!("of={}", copy.display()));
    let said = succeeded(command.args(["bs=64K", "iflag=direct"]));
    assert!(said.contains("file: mapped"), "{said}");
    assert!(fs::read(&copy).unwrap() == contents);
    // What the desk does not give to nobody is read the ordinary way.
    fs::set_permissions(rig.path("file"), fs::Permissions::from_mode(0o600)).unwrap();
    let mut command = rig.program("dd", here);
    command.arg(format!("if={}", rig.path("file").display()));
    command.arg(format!("of={}", copy.display()));
    let said = succeeded(command.args(["bs=64K", "iflag=direct"]));
    assert!(said.contains("not mapped"), "{said}");
    assert!(fs::read(&copy).unwrap() == contents);
}

#[test]
fn a_file_that_is_nowhere_here_is_like_others() {
    let rig = Rig::new();
    let program = r#"
path = '/nowhere/file'
fails(errno.ENOENT, lambda: os.open(path, os.O_RDWR | os.O_DIRECT))
os.umask(0o077)
fd = os.open(path, os.O_RDWR | os.O_DIRECT | os.O_CREAT | os.O_EXCL, 0o666)
fails(errno.EEXIST, lambda: os.open(path, os.O_RDWR | os.O_DIRECT | os.O_CREAT | os.O_EXCL))
block = bytes(range(256)) * 16
assert os.write(fd, buffer(block * 3)) == 12288
told = os.fstat(fd)
assert told.st_size == 12288 and told.st_mode == 0o100600 and told.st_nlink == 1, told
assert os.stat(fd).st_size == 12288
assert os.lseek(fd, 0, os.SEEK_CUR) == 12288 and os.lseek(fd, -4096, os.SEEK_END) == 8192
assert os.read(fd, 8192) == block and os.read(fd, 8192) == b''
assert os.lseek(fd, 5, os.SEEK_DATA) == 5 and os.lseek(fd, 5, os.SEEK_HOLE) == 12288
fails(errno.ENXIO, lambda: os.lseek(fd, 12288, os.SEEK_DATA))
one, two = buffer(bytes(4096)), buffer(bytes(4096))
assert os.preadv(fd, [one, two], 4096) == 8192 and one[:] == block and two[:] == block
assert os.pwritev(fd, [one, two], 12288) == 8192 and os.fstat(fd).st_size == 20480
os.ftruncate(fd, 5000)
assert os.pread(fd, 8192, 0) == (block * 2)[:5000] and os.fstat(fd).st_size == 5000
fails(errno.EINVAL, lambda: os.ftruncate(fd, -1))
fails(errno.EINVAL, lambda: os.pwrite(fd, b'x', -1))
fails(errno.EINVAL, lambda: mmap.mmap(fd, 4096))
fails(errno.EINVAL, lambda: os.sendfile(1, fd, 0, 10))
os.fsync(fd); os.fdatasync(fd)
other = os.dup(fd)
os.lseek(fd, 0, 0); assert os.read(other, 4096) == block and os.lseek(fd, 0, 1) == 4096
os.close(fd); assert os.pread(other, 4096, 0) == block
child = os.fork()
if child == 0:
    os._exit(0 if os.read(other, 4096) == (block * 2)[4096:5000] else 1)
assert os.waitpid(child, 0)[1] == 0 and os.lseek(other, 0, 1) == 5000
# Another program finds it closed, not empty.
os.set_inheritable(other, True)
assert os.system('cat <&%d 2>/dev/null' % other) != 0
os.close(other)
fails(errno.EBADF, lambda: os.read(other, 1))
fd = os.open(path, os.O_WRONLY | os.O_DIRECT | os.O_TRUNC)
assert os.fstat(fd).st_size == 0
fails(errno.EBADF, lambda: os.pread(fd, 1, 0))
fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
fails(errno.EBADF, lambda: os.pwrite(fd, buffer(block), 0))
print('right')
"#;
    let said = python(&rig, Path::new("/nowhere"), program, &[]);
    assert!(said.contains("right"), "{said}");
}

#[test]
fn a_server_that_is_away_is_an_error_after_a_time() {
    let rig = Rig::new();
    rig.put("file", &noise(1 << 20));
    let program = r"
fd = os.open('/nowhere/file', os.O_RDONLY | os.O_DIRECT)
assert len(os.pread(fd, 4096, 0)) == 4096
print('open', flush=True)
sys.stdin.readline()
fails(errno.EIO, lambda: os.pread(fd, 4096, 8192))
print('right')
";
    let mut command = rig.program("python3", Path::new("/nowhere"));
    command.env("NASD_BULK_TIMEOUT", "1").arg("-c").arg(format!("{PRELUDE}\n{program}"));
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut said = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut said, &mut line).unwrap();
    assert_eq!(line, "open\n");
    drop(rig);
    std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"\n").unwrap();
    line.clear();
    std::io::BufRead::read_line(&mut said, &mut line).unwrap();
    assert_eq!(line, "right\n");
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_map_that_makes_no_sense_is_no_map() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (file, copy) = (directory.path().join("file"), directory.path().join("copy"));
    fs::write(&file, noise(100_000)).unwrap();
    for map in ["nonsense", "/a=b", "relative=h:1"] {
        let mut command = with_map("dd", map);
        command.arg(format!("if={}", file.display())).arg(format!("of={}", copy.display()));
        let said = succeeded(command.args(["bs=64K", "iflag=direct"]));
        assert!(said.contains("NASD_BULK_MAP is not used"), "{said}");
        assert!(fs::read(&copy).unwrap() == noise(100_000));
        // Nobody is told who does not ask.
        let mut command = with_map("true", map);
        assert!(succeeded(command.env_remove("NASD_BULK_DEBUG")).ends_with(": "));
    }
}
