//! What an administrator installs: man pages, completions, units, and mount(8) by the type
//! `fuse.nasd`, each with the program that reads it.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use support::{CellOptions, TestCell, finish, free_ports, nasd, scratch, shell, text, wait_until};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Installs the binary under test below a directory.
fn install(destination: &Path) {
    let mut make = Command::new("make");
    make.arg("-C").arg(root()).arg("install").arg("PREFIX=/usr");
    make.arg(format!("DESTDIR={}", destination.display()));
    let program = Path::new(env!("CARGO_BIN_EXE_nasd"));
    make.arg(format!("BINARY={}", program.display()));
    let libraries = support::library_directory();
    make.arg(format!("LIBRARY={}/libsmas.so", libraries.display()));
    make.arg(format!("BULK_LIBRARY={}/libnasd_bulk.so", libraries.display()));
    let output = finish(make);
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn an_installation_has_every_part_and_leaves_nothing_behind() {
    let directory = scratch();
    let place = |name: &str| directory.path().join(name);
    install(directory.path());
    for name in [
        "usr/bin/nasd",
        "usr/lib/libsmas.so.1",
        "usr/lib/libsmas.so",
        "usr/include/smas.h",
        "usr/lib/libnasd_bulk.so",
        "usr/include/nasd_bulk.h",
        "usr/share/man/man1/nasd.1",
        "usr/share/man/man1/nasd-drive-serve.1",
        "usr/share/man/man8/mount.fuse.nasd.8",
        "usr/share/bash-completion/completions/nasd",
        "usr/share/zsh/site-functions/_nasd",
        "usr/share/fish/vendor_completions.d/nasd.fish",
        "usr/lib/systemd/system/nasd-manager.service",
    ] {
        assert!(fs::metadata(place(name)).unwrap().len() > 100, "{name}");
    }
    let unit = fs::read_to_string(place("usr/lib/systemd/system/nasd@.service")).unwrap();
    assert!(unit.contains("ExecStart=/usr/bin/nasd up"), "{unit}");
    for helper in ["sbin/mount.fuse.nasd", "sbin/umount.fuse.nasd"] {
        assert_eq!(fs::read_link(place(helper)).unwrap(), Path::new("/usr/bin/nasd"));
    }
    let destination = format!("DESTDIR={}", directory.path().display());
    shell(
        "make -C \"$1\" uninstall PREFIX=/usr \"$2\"",
        &[root().as_path(), Path::new(&destination)],
    );
    let left = shell("find \"$1\" ! -type d", &[directory.path()]);
    assert_eq!(left, "");
}

#[test]
fn man_pages_are_good_roff() {
    let directory = scratch();
    let pages = directory.path();
    let output = nasd().arg("man").arg("--dir").arg(pages).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let mut checked = 0;
    for page in fs::read_dir(pages).unwrap() {
        let mut groff = Command::new("groff");
        groff.args(["-man", "-ww", "-z", "-Tutf8"]).arg(page.unwrap().path());
        let output = finish(groff);
        assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output));
        checked += 1;
    }
    assert!(checked > 40, "{checked}");
    let one = nasd().args(["man", "drive", "serve"]).output().unwrap();
    assert_eq!(one.stdout, fs::read(pages.join("nasd-drive-serve.1")).unwrap());
    let none = nasd().args(["man", "drive", "fly"]).output().unwrap();
    assert!(!none.status.success() && text(&none).contains("no command `fly`"));
}

#[test]
fn bash_completes_commands_and_options() {
    let directory = scratch();
    let script = directory.path().join("nasd.bash");
    fs::write(&script, nasd().args(["completions", "bash"]).output().unwrap().stdout).unwrap();
    let complete = |words: &str| {
        let line = format!(
            "source \"$1\"; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _nasd nasd \"${{COMP_WORDS[COMP_CWORD]}}\" x; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        );
        let mut bash = Command::new("bash");
        bash.args(["-c", &line, "bash"]).arg(&script);
        let output = finish(bash);
        assert!(output.status.success(), "{}", text(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(complete("nasd umou").trim(), "umount");
    assert_eq!(complete("nasd drive ser").trim(), "serve");
    assert_eq!(complete("nasd drive serve --metr").trim(), "--metrics");
    for (other, word) in [("zsh", "#compdef nasd"), ("fish", "complete -c nasd")] {
        let script = nasd().args(["completions", other]).output().unwrap().stdout;
        assert!(String::from_utf8(script).unwrap().contains(word), "{other}");
    }
}

#[test]
fn units_are_good_and_hardened() {
    let directory = scratch();
    install(directory.path());
    let units = directory.path().join("usr/lib/systemd/system");
    // Instances, as they are started; and the program where the unit says that it is.
    let binary = directory.path().join("usr/bin/nasd");
    for (unit, instance) in [
        ("nasd@.service", "nasd@home.service"),
        ("nasd-drive@.service", "nasd-drive@home.service"),
        ("nasd-manager.service", "nasd-manager.service"),
    ] {
        let text = fs::read_to_string(units.join(unit)).unwrap();
        fs::remove_file(units.join(unit)).unwrap();
        let text = text.replace("/usr/bin/nasd", binary.to_str().unwrap());
        // The pages are not installed on this machine.
        let text: Vec<&str> =
            text.lines().filter(|line| !line.starts_with("Documentation")).collect();
        let path = units.join(instance);
        fs::write(&path, text.join("\n")).unwrap();
        let mut verify = Command::new("systemd-analyze");
        let output = finish({
            verify.args(["verify", "--man=no"]).arg(&path);
            verify
        });
        assert!(output.status.success(), "{unit}: {}", support::text(&output));
        assert!(!support::text(&output).contains(instance), "{}", support::text(&output));
        let mut security = Command::new("systemd-analyze");
        security.args(["security", "--offline=true", "--threshold=40", "--no-pager"]).arg(&path);
        let output = finish(security);
        assert!(output.status.success(), "{unit}: {}", support::text(&output));
    }
}

#[test]
fn services_tell_systemd_when_they_serve_and_when_they_end() {
    let directory = scratch();
    let socket = directory.path().join("notify");
    let listener = UnixDatagram::bind(&socket).unwrap();
    listener.set_read_timeout(Some(support::PATIENCE)).unwrap();
    let heard = || {
        let mut bytes = [0; 64];
        let length = listener.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    let port = free_ports(2).to_string();
    let mut command = nasd();
    command.arg("up").arg(directory.path().join("cell"));
    command.args(["--drives", "1", "--size", "64M", "--base-port", &port]);
    command.env("NOTIFY_SOCKET", &socket).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut up = command.spawn().unwrap();
    assert_eq!(heard(), "READY=1");
    support::signal(up.id(), "TERM");
    assert_eq!(heard(), "STOPPING=1");
    assert!(support::wait_for_exit(&mut up).success());
    // The members' own words are not the service's: theirs never arrived.
    listener.set_nonblocking(true).unwrap();
    assert!(listener.recv(&mut [0; 64]).is_err());
}

/// Runs a shell script in a mount namespace of its own whose `/sbin` has the helpers alone.
fn with_helpers(script: &str, cell: &TestCell) -> String {
    let place = cell.directory.path();
    let set_up = format!(
        "mount -t tmpfs none /usr/sbin; \
         ln -s '{binary}' /sbin/mount.fuse.nasd; ln -s '{binary}' /sbin/umount.fuse.nasd; \
         cell=$1; at=$2; fstab=$3; {script}",
        binary = env!("CARGO_BIN_EXE_nasd")
    );
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-ec", &set_up, "sh"]);
    command.arg(cell.cell()).arg(place.join("at")).arg(place.join("fstab"));
    command.env_remove("NASD_CELL").stdin(Stdio::null());
    let output = finish(command);
    assert!(output.status.success(), "{script}: {}", text(&output));
    text(&output)
}

#[test]
fn mount_and_fstab_know_the_type() {
    let mut cell = TestCell::start(&CellOptions {
        drives: 1,
        size: "64M",
        cache: "32M",
        ..CellOptions::default()
    });
    let at = cell.directory.path().join("at");
    fs::create_dir(&at).unwrap();
    // By hand, with options of everybody.
    with_helpers(
        "mount -t fuse.nasd \"$cell:main\" \"$at\" -o _netdev,noauto,timeout=30; \
         findmnt -n -o FSTYPE,SOURCE \"$at\" | grep -qx \"fuse.nasd *$cell:main\"; \
         echo one > \"$at/file\"; umount \"$at\"; ! findmnt \"$at\"",
        &cell,
    );
    assert_eq!(fs::read_to_string(cell.path("file")).unwrap(), "one\n");
    // By the table of file systems; what is mounted already is left alone.
    let fstab = cell.directory.path().join("fstab");
    let line = format!(
        "main {} fuse.nasd cell={},ro,nofail,x-systemd.automount,_netdev 0 0\n",
        at.display(),
        cell.cell().display()
    );
    fs::write(&fstab, line).unwrap();
    with_helpers(
        "mount -a -T \"$fstab\"; mount -a -T \"$fstab\"; [ $(findmnt -n \"$at\" | wc -l) = 1 ]; \
         cat \"$at/file\"; ! echo two 2>/dev/null > \"$at/file\"; umount \"$at\"; \
         mount -T \"$fstab\" -f \"$at\"; ! findmnt \"$at\"; \
         mount -T \"$fstab\" \"$at\"; exec 5< \"$at/file\"; umount -l \"$at\"; cat <&5",
        &cell,
    );
    cell.stop();
}

#[test]
fn mount_says_what_is_wrong_by_its_exit_status() {
    let mut cell = TestCell::start(&CellOptions {
        drives: 1,
        size: "64M",
        cache: "32M",
        ..CellOptions::default()
    });
    let at = cell.directory.path().join("at");
    fs::create_dir(&at).unwrap();
    for (script, status, why) in [
        ("mount -t fuse.nasd \"$cell:main\" \"$at\" -o sync", 32, "sync"),
        ("mount -t fuse.nasd \"$cell:other\" \"$at\"", 32, "other"),
        ("mount -t fuse.nasd \"$cell.not\" \"$at\"", 32, "nasd up"),
        ("mount -t fuse.nasd \"$cell:main\" \"$at\" -o cell=/elsewhere", 32, "/elsewhere"),
        ("/sbin/mount.fuse.nasd", 1, "Usage"),
    ] {
        let script = format!("set +e; {script}; echo status $?; ! findmnt \"$at\"");
        let shown = with_helpers(&script, &cell);
        assert!(shown.contains(&format!("status {status}\n")) && shown.contains(why), "{shown}");
    }
    // `-s` leaves out what is not known.
    with_helpers("mount -s -t fuse.nasd \"$cell\" \"$at\" -o sync; umount \"$at\"", &cell);
    let gone = || fs::read_dir(&at).unwrap().next().is_none();
    wait_until("nothing is mounted", gone);
    cell.stop();
}
