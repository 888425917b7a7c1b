//! A machine that can't reach the drives uses the cell all the same, through the manager: the real binary
//! in a network of its own, in which nobody but the manager answers.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use support::{
    CellOptions, TestCell, feed, make_tree, nasd, noise, shell, signal, text, wait_for_exit,
    wait_until,
};

/// A network of its own, whose loopback is not ours. Programs are started in it by a thread that has
/// moved there.
struct Elsewhere {
    wanted: Sender<Command>,
    started: Receiver<std::io::Result<Child>>,
}

impl Elsewhere {
    /// In which only this address of ours can be reached, under the same name.
    fn reaching(address: SocketAddr) -> Elsewhere {
        let (wanted, commands) = channel::<Command>();
        let (tell, started) = channel();
        let (arrived, arriving) = channel::<TcpStream>();
        thread::spawn(move || {
            enter_new_network();
            let listener = TcpListener::bind(address).unwrap();
            // A socket stays in the network in which it was made, whoever uses it.
            thread::spawn(move || {
                for stream in listener.incoming() {
                    if arrived.send(stream.unwrap()).is_err() {
                        return;
                    }
                }
            });
            for mut command in commands {
                tell.send(command.spawn()).unwrap();
            }
        });
        thread::spawn(move || {
            for there in arriving {
                if let Ok(here) = TcpStream::connect(address) {
                    relay(&there, &here);
                }
            }
        });
        Elsewhere { wanted, started }
    }

    fn spawn(&self, mut command: Command) -> Child {
        command.stdin(Stdio::null());
        self.wanted.send(command).unwrap();
        self.started.recv_timeout(Duration::from_secs(60)).unwrap().unwrap()
    }

    /// Runs `nasd` with the cell to its end.
    fn nasd(&self, cell: &TestCell, arguments: &[&str]) -> Output {
        let mut command = nasd();
        command.args(arguments).arg("--cell").arg(cell.cell());
        let child = self.spawn({
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            command
        });
        child.wait_with_output().unwrap()
    }
}

/// Moves this thread into a network where there is only a loopback, and brings that up.
fn enter_new_network() {
    // SAFETY: it concerns this thread alone, and no memory.
    let moved = unsafe { libc::unshare(libc::CLONE_NEWNET) };
    assert_eq!(moved, 0, "these tests need root: {}", std::io::Error::last_os_error());
    // SAFETY: the name is terminated, the flags are set before they are read, and the descriptor is ours.
    unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM, 0);
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[..2].copy_from_slice(&[b'l' as libc::c_char, b'o' as libc::c_char]);
        request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
        assert_eq!(libc::ioctl(socket, libc::SIOCSIFFLAGS, &request), 0);
        libc::close(socket);
    }
}

/// Carries bytes both ways until both ends have stopped.
fn relay(one: &TcpStream, other: &TcpStream) {
    for (from, to) in [(one, other), (other, one)] {
        let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
        thread::spawn(move || {
            let mut bytes = vec![0; 256 << 10];
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                if to.write_all(&bytes[..count]).is_err() {
                    break;
                }
            }
            let _ = (to.shutdown(Shutdown::Write), from.shutdown(Shutdown::Read));
        });
    }
}

/// A mount that is served from elsewhere.
struct FarMount {
    at: PathBuf,
    process: Child,
}

impl FarMount {
    fn new(elsewhere: &Elsewhere, cell: &TestCell, options: &str) -> FarMount {
        let at = cell.directory.path().join(options.replace([',', '='], "-"));
        fs::create_dir_all(&at).unwrap();
        let mut command = nasd();
        command.arg("--cell").arg(cell.cell()).arg("mount").arg(&at).args(["-o", options]);
        command.stdout(Stdio::null());
        let process = elsewhere.spawn(command);
        wait_until("the mount", || is_mounted(&at));
        FarMount { at, process }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.at.join(name)
    }

    /// Unmounts as a user would.
    fn unmount(mut self) {
        signal(self.process.id(), "TERM");
        let status = wait_for_exit(&mut self.process);
        assert!(status.success(), "{status}");
    }
}

impl Drop for FarMount {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = Command::new("umount").arg("-l").arg(&self.at).stderr(Stdio::null()).status();
    }
}

fn is_mounted(at: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    mounts.lines().any(|line| line.split(' ').nth(1) == at.to_str())
}

fn facts(cell: &TestCell) -> serde_json::Value {
    let output = cell.nasd(&["status", "--json"]);
    assert!(output.status.success(), "{}", text(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn scene() -> (TestCell, Elsewhere) {
    let cell = TestCell::start(&CellOptions::default());
    let facts = facts(&cell);
    let manager = facts["managers"][0]["address"].as_str().unwrap();
    let elsewhere = Elsewhere::reaching(manager.parse().unwrap());
    (cell, elsewhere)
}

#[test]
fn a_mount_that_can_not_reach_the_drives_works_through_the_manager() {
    let (cell, elsewhere) = scene();
    let far = FarMount::new(&elsewhere, &cell, "path=manager");
    let near = cell.mountpoint();
    make_tree(&far.path("tree"), 300);
    fs::write(far.path("big"), noise(1, 24 << 20)).unwrap();
    assert!(fs::read(near.join("big")).unwrap() == noise(1, 24 << 20), "seen from near");
    shell("diff -r \"$1\" \"$2\"", &[&far.path("tree"), &near.join("tree")]);
    fs::write(near.join("other"), noise(2, 5 << 20)).unwrap();
    assert!(fs::read(far.path("other")).unwrap() == noise(2, 5 << 20), "seen from far");
    let work = "cd \"$1\"
        dd if=big of=direct bs=1M iflag=direct oflag=direct status=none; cmp big direct
        cp --sparse=always big copy; cmp big copy
        truncate -s 1000003 copy; test $(stat -c %s copy) = 1000003; cmp -n 1000003 big copy
        fallocate -p -o 65536 -l 65536 copy
        test $(dd if=copy bs=65536 skip=1 count=1 status=none | tr -d '\\0' | wc -c) = 0
        for line in 1 2 3; do echo $line >> log; done; test \"$(cat log)\" = \"$(seq 3)\"
        mkdir -p a/b; mv big a/b/c; ln a/b/c d; cmp a/b/c direct; rm direct; cmp d a/b/c
        ln -s d e; cmp e d; sync d";
    shell(work, &[&far.at]);
    shell("cmp \"$1\" \"$2\"", &[&far.path("copy"), &near.join("copy")]);
    fs::set_permissions(far.path("d"), fs::Permissions::from_mode(0o600)).unwrap();
    let denied = "setpriv --reuid 12345 --regid 12345 --clear-groups cat \"$1\" && exit 1 || true";
    shell(denied, &[&far.path("d")]);
    let told = facts(&cell);
    assert!(told["bytes"]["manager"].as_u64().unwrap() > 24 << 20, "{told}");
    assert!(told["bytes"]["direct"].as_u64().unwrap() > 24 << 20, "{told}");
    far.unmount();
}

/// What the others would prove little without.
#[test]
fn without_the_manager_s_help_there_is_no_way_to_the_drives() {
    let (cell, elsewhere) = scene();
    fs::write(cell.path("file"), noise(1, 100_000)).unwrap();
    let mut stuck = FarMount::new(&elsewhere, &cell, "soft,timeo=1");
    let error = fs::read(stuck.path("file")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EIO));
    stuck.process.kill().unwrap();
    let output = elsewhere.nasd(&cell, &["cat", "--path", "manager", "main:/file"]);
    assert!(output.stdout == noise(1, 100_000), "{}", output.status);
}

#[test]
fn files_are_copied_through_the_manager() {
    let (cell, elsewhere) = scene();
    let local = cell.directory.path().join("local");
    make_tree(&local, 60);
    let back = cell.directory.path().join("back");
    let [from, to] = [&local, &back].map(|path| path.to_str().unwrap().to_owned());
    let copy = |arguments: &[&str]| {
        let output = elsewhere.nasd(&cell, arguments);
        assert!(output.status.success(), "{}", text(&output));
    };
    copy(&["cp", "--path", "manager", "-r", &from, "main:/tree"]);
    shell("diff -r \"$1\" \"$2\"", &[&local, &cell.path("tree")]);
    copy(&["cp", "--path=manager", "-r", "main:/tree", &to]);
    shell("diff -r \"$1\" \"$2\"", &[&local, &back]);
    let mut wrong = nasd();
    wrong.args(["cp", "--path", "both", "a", "b"]);
    assert!(!feed(wrong, b"").status.success());
}

#[test]
fn a_manager_that_dies_loses_nothing_that_went_through_it() {
    let (cell, elsewhere) = scene();
    let far = FarMount::new(&elsewhere, &cell, "path=manager");
    let data = noise(3, 48 << 20);
    let writing = {
        let (path, data) = (far.path("file"), data.clone());
        thread::spawn(move || {
            let mut file = fs::File::create(path).unwrap();
            for part in data.chunks(1 << 20) {
                file.write_all(part).unwrap();
                thread::sleep(Duration::from_millis(30));
            }
            file.sync_all().unwrap();
        })
    };
    for _ in 0..2 {
        thread::sleep(Duration::from_millis(400));
        let manager = cell.member("manager");
        signal(manager, "KILL");
        wait_until("another manager", || {
            cell.members().iter().any(|(pid, line)| line.contains("manager") && *pid != manager)
        });
    }
    writing.join().unwrap();
    assert!(fs::read(cell.path("file")).unwrap() == data, "from near");
    assert!(fs::read(far.path("file")).unwrap() == data, "from far");
    far.unmount();
}
