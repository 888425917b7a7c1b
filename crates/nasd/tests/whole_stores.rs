//! A file of a volume of the personality `afs` that is written anew again and again, by the real program on real mounts. It is alone in its process: where
//! another test starts a program, that closes what is open here, which stores it.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use support::shared::{cell, mounted, unmounted};

/// Tells others when it ends, however it does.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_file_that_is_written_anew_is_never_seen_empty_by_others() {
    let cell = cell();
    let (one, two) = (mounted(&cell, "one"), mounted(&cell, "two"));
    let is_whole = |text: &[u8]| text.len() > 2000 && text.iter().all(|byte| *byte == text[0]);
    fs::write(one.join("file"), [b'z'; 9000]).unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let ending = Ending(&is_over);
            for round in 0..60usize {
                let text = vec![b'a' + (round % 26) as u8; 9000 - round * 100];
                let mut file = fs::File::create(one.join("file")).unwrap();
                assert_eq!(file.metadata().unwrap().len(), 0);
                assert_eq!(fs::read(one.join("file")).unwrap(), b"", "who writes sees it at once");
                file.write_all(&text[..1000]).unwrap();
                assert_eq!(fs::read(one.join("file")).unwrap(), text[..1000]);
                file.write_all(&text[1000..]).unwrap();
                drop(file);
                assert_eq!(fs::read(two.join("file")).unwrap(), text);
            }
            drop(ending);
        });
        while !is_over.load(Ordering::Relaxed) {
            let text = fs::read(two.join("file")).unwrap();
            assert!(is_whole(&text), "{} bytes, {:?}", text.len(), text.first());
        }
    });
    // What lies behind what was written is gone, and so is a file that is cut and nothing else.
    let file = fs::File::create(one.join("file")).unwrap();
    file.write_all_at(b"end", 5000).unwrap();
    file.sync_all().unwrap();
    assert_eq!(fs::read(two.join("file")).unwrap(), [&[0; 5000][..], b"end"].concat());
    assert_eq!(fs::read(one.join("file")).unwrap(), [&[0; 5000][..], b"end"].concat());
    file.set_len(0).unwrap();
    let mut append = OpenOptions::new().append(true).open(one.join("file")).unwrap();
    append.write_all(b"appended").unwrap();
    drop((append, file));
    assert_eq!(fs::read(two.join("file")).unwrap(), b"appended");
    drop(fs::File::create(two.join("file")).unwrap());
    assert_eq!(fs::metadata(one.join("file")).unwrap().len(), 0);
    unmounted(&cell, one);
    assert_eq!(fs::read(two.join("file")).unwrap(), b"");
}
