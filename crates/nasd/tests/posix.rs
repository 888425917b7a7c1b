//! What programs expect of a file system besides data: access control lists, the umask, set-user-ID bits,
//! capabilities of programs, access times, files without names; with the programs that use them.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use std::fs;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use support::{CellOptions, TestCell, make_tree, scratch, shell};

/// Somebody without an account.
const STRANGER: &str = "setpriv --reuid 12345 --regid 12345 --clear-groups";

/// A cell whose mount everybody can reach and write to.
fn open_cell() -> TestCell {
    let cell = TestCell::start(&CellOptions::default());
    cell.let_everybody_in();
    cell
}

fn permissions(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn lists_decide_and_are_inherited() {
    let cell = open_cell();
    let file = cell.path("file");
    let read = format!("{STRANGER} cat \"$1\"");
    let is_refused = format!("! {STRANGER} cat \"$1\" 2>/dev/null");
    fs::write(&file, "secret").unwrap();
    shell("chmod 600 \"$1\"", &[&file]);
    shell(&is_refused, &[&file]);
    shell("setfacl -m u:12345:r \"$1\"", &[&file]);
    assert_eq!(shell(&read, &[&file]), "secret");
    assert_eq!(permissions(&file), 0o640, "the mask");
    shell("chmod 600 \"$1\"", &[&file]);
    shell(&is_refused, &[&file]);
    shell("setfacl -m m::r \"$1\"", &[&file]);
    assert_eq!(shell(&read, &[&file]), "secret");
    shell("setfacl -x u:12345 \"$1\"", &[&file]);
    shell(&is_refused, &[&file]);
    let folder = cell.path("folder");
    fs::create_dir(&folder).unwrap();
    shell(
        "setfacl -d -m u:12345:rwx \"$1\" && umask 077 && mkdir \"$1/d\" && touch \"$1/f\"",
        &[&folder],
    );
    let told = shell("getfacl -cn \"$1/f\" \"$1/d\"", &[&folder]);
    assert_eq!(told.matches("user:12345:rwx").count(), 3, "{told}");
    assert_eq!(told.matches("mask::rw-").count(), 1, "{told}");
    assert_eq!(permissions(&folder.join("f")), 0o664, "the default list stands for the umask");
    let copy = cell.path("copy");
    shell("cp -a \"$1\" \"$2\"", &[&folder, &copy]);
    assert_eq!(shell("getfacl -cn \"$1/f\" \"$1/d\"", &[&copy]), told, "cp -a keeps them");
}

#[test]
fn the_umask_counts_where_there_is_no_list() {
    let cell = open_cell();
    shell("cd \"$1\"; umask 027; touch f; mkdir d; mkfifo p; mknod s c 1 3", &[&cell.mountpoint()]);
    let modes = ["f", "d", "p", "s"].map(|name| permissions(&cell.path(name)));
    assert_eq!(modes, [0o640, 0o750, 0o640, 0o640]);
}

#[test]
fn a_program_that_is_changed_loses_its_privileges() {
    let cell = open_cell();
    let program = cell.path("program");
    fs::copy("/bin/true", &program).unwrap();
    let changes = [
        ("echo >> \"$1\"", true),
        ("truncate -s 5000 \"$1\"", true),
        ("fallocate -l 100000 \"$1\"", true),
        ("cat \"$1\" >/dev/null", false),
    ];
    for (change, loses) in changes {
        for (mode, kept) in [(0o6777, 0o777), (0o2767, 0o2767)] {
            fs::set_permissions(&program, fs::Permissions::from_mode(mode)).unwrap();
            let line = format!("{STRANGER} sh -c '{change}' sh \"$1\"");
            shell(&line, &[&program]);
            let expected = if loses { kept } else { mode };
            assert_eq!(permissions(&program), expected, "{change} of {mode:o}");
        }
    }
    fs::set_permissions(&program, fs::Permissions::from_mode(0o6777)).unwrap();
    shell("echo >> \"$1\"", &[&program]);
    assert_eq!(permissions(&program), 0o6777, "root may");
    shell("chown 5:5 \"$1\"", &[&program]);
    assert_eq!(permissions(&program), 0o777);
    let setcap = "PATH=$PATH:/sbin:/usr/sbin; setcap cap_net_raw+ep \"$1\"; getcap \"$1\"";
    assert!(shell(setcap, &[&program]).contains("cap_net_raw"));
    shell(&format!("{STRANGER} sh -c 'echo >> \"$1\"' sh \"$1\""), &[&program]);
    assert_eq!(shell("PATH=$PATH:/sbin:/usr/sbin; getcap \"$1\"", &[&program]), "");
}

#[test]
fn reading_moves_the_access_time_once() {
    let mut cell = open_cell();
    let file = cell.path("file");
    fs::write(&file, "text").unwrap();
    let times = |path: &Path| {
        let found = fs::metadata(path).unwrap();
        let at = |seconds: i64, rest: i64| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
        (at(found.atime(), found.atime_nsec()), at(found.mtime(), found.mtime_nsec()))
    };
    let (before, changed) = times(&file);
    assert!(before <= changed, "made before it was written");
    std::thread::sleep(Duration::from_millis(1100));
    let read = |path: &Path| assert_eq!(fs::read(path).unwrap(), b"text");
    read(&file);
    std::thread::sleep(Duration::from_millis(1100));
    let (first, unchanged) = times(&file);
    assert!(first > changed && unchanged == changed, "{first} {changed}");
    read(&file);
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(times(&file).0, first, "relatime: it is later than the change");
    let mut quiet = fs::File::options();
    quiet.read(true).custom_flags(libc::O_NOATIME);
    let other = cell.path("other");
    fs::write(&other, "text").unwrap();
    let (before, _) = times(&other);
    quiet.open(&other).unwrap().read_to_end(&mut Vec::new()).unwrap();
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(times(&other).0, before, "O_NOATIME");
    // What is written does not keep the end from telling times, for which it has a second.
    support::sync_tree(&other);
    // A machine that has other work as well may be too slow for that, once.
    let mut last = first;
    let is_told = (0..3).any(|round| {
        if round > 0 {
            // It was not told, and so it moves again.
            read(&file);
            std::thread::sleep(Duration::from_millis(1100));
            last = times(&file).0;
        }
        cell.stop();
        cell.restart();
        times(&file).0 == last
    });
    assert!(is_told, "the manager was told");
    shell("touch -a -d 2001-02-03 \"$1\"", &[&file]);
    assert_eq!(shell("stat -c %x \"$1\" | cut -c 1-10", &[&file]).trim(), "2001-02-03");
}

#[test]
fn files_without_a_name_get_one_or_go() {
    let cell = open_cell();
    let root = cell.mountpoint();
    let mut options = fs::File::options();
    options.read(true).write(true).custom_flags(libc::O_TMPFILE).mode(0o640);
    let names = || fs::read_dir(&root).unwrap().count();
    let mut kept = options.open(&root).unwrap();
    let mut lost = options.open(&root).unwrap();
    kept.write_all(b"hello").unwrap();
    lost.write_all(&[7; 100_000]).unwrap();
    assert_eq!((kept.metadata().unwrap().nlink(), names()), (0, 0));
    let here = format!("/proc/self/fd/{}\0", kept.as_raw_fd());
    let path = format!("{}\0", cell.path("kept").display());
    // SAFETY: both paths are C strings.
    let linked = unsafe {
        let (from, to) = (here.as_ptr().cast(), path.as_ptr().cast());
        libc::linkat(libc::AT_FDCWD, from, libc::AT_FDCWD, to, libc::AT_SYMLINK_FOLLOW)
    };
    assert_eq!(linked, 0, "{}", std::io::Error::last_os_error());
    kept.write_all(b" there").unwrap();
    assert_eq!((kept.metadata().unwrap().nlink(), names()), (1, 1));
    drop((kept, lost));
    assert_eq!(fs::read(cell.path("kept")).unwrap(), b"hello there");
    let all = || cell.nasd(&["ls", "main:/"]).stdout;
    support::wait_until("nothing is left of the other", || all() == b"kept\n");
    assert_eq!(fs::metadata(cell.path("kept")).unwrap().nlink(), 1);
}

/// Lines of a shell, with a tree of files as `$1` and the mount as `$2`.
const WORK: [(&str, &str); 5] = [
    (
        "tar",
        "tar -C \"$1\" -cf \"$2/tree.tar\" . && mkdir \"$2/tar\" &&
         tar -C \"$2/tar\" -xpf \"$2/tree.tar\" && diff -r --no-dereference \"$1\" \"$2/tar\"",
    ),
    (
        "rsync",
        "rsync -aHAX \"$1/\" \"$2/rsync/\"
         test -z \"$(rsync -aHAXcin --delete \"$1/\" \"$2/rsync/\")\"",
    ),
    (
        "git",
        "export HOME=$2; mkdir \"$2/up\"; cd \"$2/up\"; git init -q .; cp -r \"$1/d1\" .
         git config user.email a@b; git config user.name n; git add .; git commit -qm one; cd ..
         git clone -q --no-local up down; git -C down fsck --full --strict
         git -C down gc -q; test -z \"$(git -C down status --porcelain)\"",
    ),
    (
        "sqlite",
        "cd \"$2\"; for mode in delete wal; do
         sqlite3 $mode.db \"pragma journal_mode=$mode; create table t(a integer primary key, b);
           begin; with recursive n(i) as (select 1 union all select i+1 from n where i<2000)
           insert into t select i, randomblob(500) from n; commit;
           update t set b=randomblob(700) where a%3=0; delete from t where a%5=0; vacuum;\"
         test \"$(sqlite3 $mode.db 'pragma integrity_check; select count(*) from t')\" = 'ok
1600'; done",
    ),
    (
        "cc and make",
        "mkdir \"$2/c\"; cd \"$2/c\"; echo 'int f(int);' > f.h
         echo 'int f(int x) { return x < 2 ? x : f(x - 1) + f(x - 2); }' > f.c
         { echo '#include \"f.h\"'; echo 'int main(void) { return f(10) == 55 ? 0 : 1; }'; } > main.c
         printf 'p: main.o f.o\n\tcc -o p main.o f.o\n%%.o: %%.c f.h\n\tcc -c $<\n' > Makefile
         make -s -j2; ./p; make -q; touch f.h; ! make -q; make -s; make -q",
    ),
];

#[test]
fn programs_do_their_work() {
    let cell = open_cell();
    let source = scratch();
    make_tree(source.path(), 300);
    for (name, line) in WORK {
        eprintln!("{name}");
        shell(line, &[source.path(), &cell.mountpoint()]);
    }
}
