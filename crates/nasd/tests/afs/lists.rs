//! Access control lists as AFS has them, on real mounts, with users of one machine: what the kernel has from one another one does not get.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::support::lines::{Mounted, ask, done, facts};
use super::support::{TestCell, text};

const READER: u32 = 1002;
const WRITER: u32 = 1001;
const STRANGER: u32 = 1003;
const GROUP: u32 = 3000;

/// Runs as another user in a thread of its own; Linux has credentials by thread.
fn by<T: Send>(uid: u32, groups: &[u32], run: impl FnOnce() -> T + Send) -> T {
    let change = || {
        // SAFETY: the list of groups lives through the call; raw calls concern this thread only, which ends with the closure.
        unsafe {
            let set = libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr());
            assert_eq!(set, 0);
            assert_eq!(libc::syscall(libc::SYS_setresgid, uid, uid, uid), 0);
            assert_eq!(libc::syscall(libc::SYS_setresuid, uid, uid, uid), 0);
        }
    };
    let in_thread = || {
        change();
        run()
    };
    std::thread::scope(|scope| scope.spawn(in_thread).join().unwrap())
}

fn is_refused<T>(outcome: io::Result<T>) {
    match outcome {
        Ok(_) => panic!("it was allowed"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}"),
    }
}

struct Scene {
    // Before the cell, which takes away the directory that they are in.
    one: Mounted,
    two: Mounted,
    cell: TestCell,
}

impl Scene {
    fn new() -> Scene {
        let cell = super::cell();
        // The way to the mounts must be open for the other users.
        fs::set_permissions(cell.directory.path(), Permissions::from_mode(0o755)).unwrap();
        let (one, two) = (super::mounted(&cell, "one"), super::mounted(&cell, "two"));
        fs::create_dir(one.join("governed")).unwrap();
        let scene = Scene { one, two, cell };
        scene.set(&format!("user:{WRITER} write --clear"));
        scene
    }

    /// Sets an entry by the command.
    fn set(&self, entry: &str) {
        done(&self.cell, &format!("acl set shared:/governed {entry}"));
    }

    fn path(&self, name: &str) -> PathBuf {
        self.one.join("governed").join(name)
    }

    fn shown(&self, path: &str) -> String {
        done(&self.cell, &format!("acl show {path}"))
    }
}

/// All that takes rights in a directory with the file `file`, by name.
type Deed = (&'static str, fn(&Path) -> io::Result<()>);

const LOOKING: &[Deed] = &[
    ("stat", |at| fs::symlink_metadata(at.join("file")).map(drop)),
    ("stat what is not there", |at| match fs::symlink_metadata(at.join("nothing")) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        outcome => outcome.map(drop),
    }),
    ("list", |at| fs::read_dir(at)?.try_for_each(|entry| entry.map(drop))),
];

const READING: &[Deed] = &[("read", |at| fs::read(at.join("file")).map(drop))];

const WRITING: &[Deed] = &[
    ("open to write", |at| OpenOptions::new().write(true).open(at.join("file")).map(drop)),
    ("append", |at| OpenOptions::new().append(true).open(at.join("file")).map(drop)),
    ("cut", |at| {
        let path = std::ffi::CString::new(at.join("file").into_os_string().into_encoded_bytes())?;
        // SAFETY: the path is a C string that lives through the call.
        match unsafe { libc::truncate(path.as_ptr(), 0) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }),
];

const CHANGING: &[Deed] = &[
    ("create", |at| File::create_new(at.join("new")).map(drop)),
    ("mkdir", |at| fs::create_dir(at.join("new"))),
    ("symlink", |at| std::os::unix::fs::symlink("x", at.join("new"))),
    ("link", |at| fs::hard_link(at.join("file"), at.join("new"))),
    ("rename", |at| fs::rename(at.join("file"), at.join("new"))),
    ("unlink", |at| fs::remove_file(at.join("file"))),
    ("rmdir", |at| fs::remove_dir(at.join("below"))),
];

fn refused(uid: u32, groups: &[u32], at: &Path, deeds: &[Deed]) {
    for (what, deed) in deeds {
        let outcome = by(uid, groups, || deed(at));
        let kind = outcome.as_ref().map_err(io::Error::kind);
        assert_eq!(kind, Err(ErrorKind::PermissionDenied), "{what} by {uid}");
    }
}

fn allowed(uid: u32, groups: &[u32], at: &Path, deeds: &[Deed]) {
    for (what, deed) in deeds {
        let outcome = by(uid, groups, || deed(at));
        assert!(outcome.is_ok(), "{what} by {uid}: {outcome:?}");
    }
}

#[test]
fn what_one_user_may_another_one_of_the_machine_may_not() {
    let scene = Scene::new();
    let at = scene.one.join("governed");
    by(WRITER, &[], || {
        fs::write(at.join("file"), "text").unwrap();
        fs::create_dir(at.join("below")).unwrap();
    });
    let everything = [LOOKING, READING, WRITING, CHANGING];
    // What the kernel has from one it has for all: names, attributes, pages.
    allowed(WRITER, &[], &at, LOOKING);
    allowed(WRITER, &[], &at, READING);
    everything.iter().for_each(|deeds| refused(READER, &[GROUP], &at, deeds));
    // Let in by a group: what the mode can't tell the file manager is asked for each.
    scene.set(&format!("group:{GROUP} read"));
    for _ in 0..3 {
        allowed(READER, &[GROUP], &at, LOOKING);
        allowed(READER, &[GROUP], &at, READING);
        everything.iter().for_each(|deeds| refused(STRANGER, &[], &at, deeds));
        everything.iter().for_each(|deeds| refused(READER, &[], &at, deeds));
        [WRITING, CHANGING].iter().for_each(|deeds| refused(READER, &[GROUP], &at, deeds));
    }
    // Let in with all others, and one is not.
    scene.set("anyuser read");
    scene.set(&format!("user:{STRANGER} l --negative"));
    for _ in 0..3 {
        allowed(READER, &[], &at, LOOKING);
        allowed(READER, &[], &at, READING);
        everything.iter().for_each(|deeds| refused(STRANGER, &[GROUP], &at, deeds));
    }
    // Each right by itself.
    scene.set(&format!("user:{READER} li --clear"));
    refused(READER, &[], &at, READING);
    refused(READER, &[], &at, WRITING);
    refused(READER, &[], &at, &CHANGING[4..]);
    by(READER, &[], || {
        fs::write(at.join("letter"), "mine").unwrap();
        assert_eq!(fs::read(at.join("letter")).unwrap(), b"mine", "who has put it there");
        is_refused(fs::remove_file(at.join("letter")));
    });
    scene.set(&format!("user:{READER} lw --clear"));
    allowed(READER, &[], &at, WRITING);
    refused(READER, &[], &at, CHANGING);
    scene.set(&format!("user:{READER} ld --clear"));
    refused(READER, &[], &at, WRITING);
    refused(READER, &[], &at, &CHANGING[..5]);
    allowed(READER, &[], &at, &CHANGING[5..]);
}

#[test]
fn who_loses_a_right_loses_what_he_has_open_and_cached() {
    let scene = Scene::new();
    let at = scene.one.join("governed");
    by(WRITER, &[], || fs::write(at.join("file"), "for all").unwrap());
    for group in [&[][..], &[GROUP]] {
        let entry = match group {
            [] => format!("user:{READER}"),
            _ => format!("group:{GROUP}"),
        };
        scene.set(&format!("{entry} rl"));
        let open = by(READER, group, || File::open(at.join("file")).unwrap());
        let directory = by(READER, group, || File::open(&at).unwrap());
        let mut data = [0; 7];
        by(READER, group, || open.read_exact_at(&mut data, 0)).unwrap();
        // Only reading is taken: names and attributes stay.
        scene.set(&format!("{entry} l"));
        allowed(READER, group, &at, LOOKING);
        refused(READER, group, &at, READING);
        by(WRITER, &[], || fs::write(scene.two.join("governed/file"), "for one").unwrap());
        is_refused(by(READER, group, || open.read_at(&mut [0; 7], 0)));
        // Then all is, also by way of a directory that is open.
        scene.set(&format!("{entry} none"));
        refused(READER, group, &at, LOOKING);
        is_refused(by(READER, group, || {
            let name = std::ffi::CString::new("file").unwrap();
            // SAFETY: the name is a C string that lives through the call.
            let found =
                unsafe { libc::openat(directory.as_raw_fd(), name.as_ptr(), libc::O_RDONLY) };
            if found < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
        }));
        // And is there again.
        scene.set(&format!("{entry} rl"));
        let read = by(READER, group, || fs::read(at.join("file")).unwrap());
        assert_eq!(read, b"for one");
        by(WRITER, &[], || fs::write(at.join("file"), "for all").unwrap());
        scene.set(&format!("{entry} none"));
    }
}

#[test]
fn who_may_write_may_write_what_another_one_of_the_machine_has_just_made() {
    let scene = Scene::new();
    let at = scene.one.join("governed");
    scene.set(&format!("user:{READER} write"));
    scene.set("anyuser rl");
    by(WRITER, &[], || fs::write(at.join("file"), "one").unwrap());
    by(READER, &[], || {
        let mut file = OpenOptions::new().append(true).open(at.join("file")).unwrap();
        file.write_all(b" and two").unwrap();
    });
    refused(STRANGER, &[], &at, WRITING);
    assert_eq!(fs::read(at.join("file")).unwrap(), b"one and two");
}

/// Neither what is there nor where something is, also while another user of the machine stores it by his own capability.
#[test]
fn who_has_lost_a_right_does_not_read_while_another_one_stores() {
    let scene = Scene::new();
    let at = scene.one.join("governed");
    let text = vec![b'x'; 8 << 20];
    by(WRITER, &[], || fs::write(at.join("file"), &text).unwrap());
    scene.set(&format!("user:{READER} rl"));
    let open = by(READER, &[], || {
        let open = File::open(at.join("file")).unwrap();
        open.read_exact_at(&mut [0; 7], 0).unwrap();
        open
    });
    scene.set(&format!("user:{READER} l"));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            by(WRITER, &[], || {
                let file = OpenOptions::new().write(true).open(at.join("file")).unwrap();
                for _ in 0..12 {
                    file.write_all_at(&text, 0).unwrap();
                    file.sync_all().unwrap();
                }
            });
            is_over.store(true, Ordering::Relaxed);
        });
        by(READER, &[], || {
            while !is_over.load(Ordering::Relaxed) {
                is_refused(open.read_at(&mut [0; 7], 0));
                // SAFETY: the call has no preconditions.
                let found = unsafe { libc::lseek(open.as_raw_fd(), 0, libc::SEEK_DATA) };
                is_refused(if found < 0 { Err(io::Error::last_os_error()) } else { Ok(found) });
                // So that some begin while it is being stored, and not all before that.
                std::thread::sleep(Duration::from_millis(5));
            }
        });
    });
}

#[test]
fn locks_take_their_right_and_owners_bits_limit_all() {
    let scene = Scene::new();
    let at = scene.one.join("governed");
    let lock = || {
        let file = File::open(at.join("file"))?;
        // SAFETY: the call has no preconditions.
        match unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_SH | libc::LOCK_NB) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    by(WRITER, &[], || fs::write(at.join("file"), "text").unwrap());
    scene.set(&format!("user:{READER} rlw"));
    is_refused(by(READER, &[], lock));
    scene.set(&format!("user:{READER} rlwk"));
    by(READER, &[], lock).unwrap();
    by(WRITER, &[], || {
        fs::set_permissions(at.join("file"), Permissions::from_mode(0o400)).unwrap();
    });
    allowed(READER, &[], &at, READING);
    refused(READER, &[], &at, WRITING);
    assert_eq!(fs::metadata(at.join("file")).unwrap().mode() & 0o777, 0o444, "it is shown so");
    by(WRITER, &[], || {
        fs::set_permissions(at.join("file"), Permissions::from_mode(0o200)).unwrap();
    });
    refused(READER, &[], &at, READING);
}

#[test]
fn lists_are_carried_by_tools_and_told_by_commands() {
    let scene = Scene::new();
    let cell = &scene.cell;
    let list = format!("anyuser l\nuser:root rlidwka\nuser:{WRITER} rlidwk\n-group:{GROUP} w\n");
    done(cell, "acl set shared:/governed root all");
    scene.set("anyuser l");
    scene.set(&format!("group:{GROUP} w --negative"));
    assert_eq!(scene.shown("shared:/governed"), list);
    let mounted = scene.one.join("governed").display().to_string();
    assert_eq!(scene.shown(&mounted), list, "by the mount");
    fs::write(scene.path("file"), "text").unwrap();
    fs::create_dir(scene.path("below")).unwrap();
    for name in ["file", "below"] {
        assert_eq!(scene.shown(&format!("shared:/governed/{name}")), list, "{name} has it");
    }
    let entries = &facts(cell, "acl show shared:/governed")["entries"];
    assert_eq!(entries[1]["who"], "user:0");
    assert_eq!((&entries[1]["name"], &entries[3]["negative"]), (&"root".into(), &true.into()));
    // Copies of trees have it: cp and tar set it as an attribute.
    let at = scene.one.0.display();
    let line = format!(
        "cd {at} && cp -a governed copied && tar --xattrs --xattrs-include='*' -cf tree.tar governed && mkdir out && \
         tar --xattrs --xattrs-include='*' -xf tree.tar -C out"
    );
    let output = Command::new("sh").args(["-ec", &line]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    for path in ["copied", "copied/below", "copied/file", "out/governed", "out/governed/below"] {
        assert_eq!(scene.shown(&format!("shared:/{path}")), list, "{path}");
    }
    // Each command.
    done(cell, "mkdir shared:/other");
    assert!(scene.shown("shared:/other").contains("no access control list"));
    assert!(facts(cell, "acl show shared:/other")["entries"].is_null());
    done(cell, "acl copy shared:/governed shared:/other");
    assert_eq!(scene.shown("shared:/other"), list);
    done(cell, &format!("acl remove shared:/other group:{GROUP} --negative"));
    assert_eq!(scene.shown("shared:/other"), list.replace(&format!("-group:{GROUP} w\n"), ""));
    done(cell, "acl remove shared:/other");
    assert!(scene.shown("shared:/other").contains("no access control list"));
    let local = scene.one.join("other").display().to_string();
    done(cell, &format!("acl set {local} user:{WRITER} read"));
    assert_eq!(scene.shown("shared:/other"), format!("user:root rlidwka\nuser:{WRITER} rl\n"));
    let refusals = [
        ("acl set shared:/governed/file anyuser l", "only directories"),
        ("acl set shared:/other somebody-else l", "nobody that this machine knows"),
        ("acl set shared:/other anyuser rx", "rlidwka"),
        ("acl remove shared:/other anyuser", "no such entry"),
        ("acl set main:/ anyuser l", "personality `afs`"),
    ];
    for (line, reason) in refusals {
        let output = ask(cell, line);
        assert!(
            !output.status.success() && text(&output).contains(reason),
            "{line}: {}",
            text(&output)
        );
    }
}
