//! Streams that are played in step, from real sockets.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use nasd_bulk_service::client::{PlayError, Playing, ReadError, Reader, Source, StripedFile, play};
use nasd_bulk_service::directory::DirectoryOptions;
use nasd_protocol::bulk::Options;

use support::{Rig, noise};

const FRAME: usize = 64 << 10;

fn streams(rig: &Rig, count: usize, frames: usize) -> Vec<StripedFile> {
    let stream = |number: usize| {
        let name = format!("s{number}");
        rig.put(&name, &noise(number as u64, frames * FRAME + 100));
        StripedFile::open(vec![rig.opening(&name, Options::READ)], 0).unwrap()
    };
    (0..count).map(stream).collect()
}

fn sources(files: &[StripedFile]) -> Vec<&dyn Source> {
    files.iter().map(|file| file as &dyn Source).collect()
}

fn playing(frames: u64, period_ms: u64) -> Playing {
    let period = Duration::from_millis(period_ms);
    Playing { frame_bytes: FRAME, period, frames, ahead: 3 }
}

#[test]
fn all_streams_show_every_frame_in_order_and_begin_again_at_their_end() {
    let rig = Rig::new(DirectoryOptions::default());
    let files = streams(&rig, 4, 10);
    let seen = Mutex::new(vec![Vec::new(); 4]);
    let show = |stream: usize, frame: u64, bytes: &[u8]| {
        let at = (frame % 10) as usize * FRAME;
        assert!(bytes == &noise(stream as u64, 10 * FRAME)[at..at + FRAME], "{stream} {frame}");
        seen.lock().unwrap()[stream].push(frame);
        Ok(())
    };
    let begun = Instant::now();
    let report = play(&sources(&files), &playing(25, 20), &show, &mut |_| true).unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(24 * 20), "no faster than it is to be");
    assert_eq!(report.shown + report.dropped, 25);
    // A machine that is busy may be late for some.
    assert!(report.shown > 12, "{report:?}");
    let seen = seen.into_inner().unwrap();
    assert!(seen.iter().all(|frames| *frames == seen[0]), "all have shown the same");
    assert_eq!(seen[0].len() as u64, report.shown);
    assert!(seen[0].is_sorted());
}

#[test]
fn who_shows_slowly_makes_all_late_and_none_drop_frames() {
    let rig = Rig::new(DirectoryOptions::default());
    let files = streams(&rig, 2, 10);
    let seen = Mutex::new(vec![Vec::new(); 2]);
    let show = |stream: usize, frame: u64, _: &[u8]| {
        seen.lock().unwrap()[stream].push(frame);
        if stream == 1 {
            thread::sleep(Duration::from_millis(55));
        }
        Ok(())
    };
    let report = play(&sources(&files), &playing(20, 10), &show, &mut |_| true).unwrap();
    assert!(report.late > 0 && report.skew >= Duration::from_millis(50), "{report:?}");
    assert!(report.shown > 15 && report.late > 15, "{report:?}");
    let seen = seen.into_inner().unwrap();
    assert_eq!(seen[0], seen[1]);
}

#[test]
fn what_can_not_be_played_is_told() {
    let rig = Rig::new(DirectoryOptions::default());
    let files = streams(&rig, 2, 10);
    let nothing = |_: usize, _: u64, _: &[u8]| Ok(());
    let long = Playing { frame_bytes: 11 * FRAME, ..playing(3, 1) };
    let short = play(&sources(&files), &long, &nothing, &mut |_| true).unwrap_err();
    assert!(matches!(short, PlayError::Short { stream: 0 }), "{short}");
    rig.put("s1", &noise(1, 3 * FRAME));
    let cut = play(&sources(&files), &playing(10, 1), &nothing, &mut |_| true).unwrap_err();
    assert!(matches!(cut, PlayError::Cut { stream: 1, .. }), "{cut}");
    let nothing_each = Playing { frame_bytes: 0, ..playing(10, 1) };
    // A frame is a byte at least, which may be less than is read there.
    drop(play(&sources(&files), &nothing_each, &nothing, &mut |_| true));
    let full = |_: usize, _: u64, _: &[u8]| Err(std::io::ErrorKind::StorageFull.into());
    let unshown = play(&sources(&files), &playing(2, 1), &full, &mut |_| true).unwrap_err();
    assert!(matches!(unshown, PlayError::Show { .. }), "{unshown}");
    // Whoever looks on ends it.
    let begun = Instant::now();
    play(&sources(&files[..1]), &playing(1_000_000, 5), &nothing, &mut |_| false).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(20));
}

/// A file of zeros, a frame of which its reader may not expect.
#[derive(Default)]
struct Zeros {
    unexpected: Option<u64>,
    /// How long a frame takes to be read.
    takes: Duration,
}

impl Source for Zeros {
    fn length(&self) -> u64 {
        1000 * FRAME as u64
    }

    fn reader(&self) -> Result<Reader<'_>, ReadError> {
        Ok(Box::new(|into, offset| {
            assert!(Some(offset / FRAME as u64) != self.unexpected, "unexpected");
            thread::sleep(self.takes);
            Ok(into.len())
        }))
    }
}

#[test]
fn who_reads_slowly_makes_all_drop_frames_and_not_only_himself() {
    let files = [Zeros::default(), Zeros { takes: Duration::from_millis(55), ..Zeros::default() }];
    let sources: Vec<&dyn Source> = files.iter().map(|file| file as &dyn Source).collect();
    let seen = Mutex::new(vec![Vec::new(); 2]);
    let show = |stream: usize, frame: u64, _: &[u8]| {
        seen.lock().unwrap()[stream].push(frame);
        Ok(())
    };
    let report = play(&sources, &playing(60, 10), &show, &mut |_| true).unwrap();
    // A frame takes as long to be read as five may take to be shown.
    assert!(report.shown > 0 && report.dropped >= 30, "{report:?}");
    assert_eq!(report.shown + report.dropped, 60);
    let seen = seen.into_inner().unwrap();
    assert_eq!(seen[0], seen[1], "none shows what the other one does not have");
    assert_eq!(seen[0].len() as u64, report.shown);
}

/// Where something is not expected: what panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unexpected {
    Shown,
    Read,
    LookedOn,
}

#[test]
fn a_panic_ends_it_and_goes_on_in_who_has_begun_it() {
    for unexpected in [Unexpected::Shown, Unexpected::Read, Unexpected::LookedOn] {
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            let frame = (unexpected == Unexpected::Read).then_some(3);
            let files = [Zeros::default(), Zeros { unexpected: frame, ..Zeros::default() }];
            let sources: Vec<&dyn Source> = files.iter().map(|file| file as &dyn Source).collect();
            let show = |stream: usize, frame: u64, _: &[u8]| {
                assert!(unexpected != Unexpected::Shown || (stream, frame) != (1, 3), "unexpected");
                Ok(())
            };
            let mut looks_on = |_: &_| {
                assert!(unexpected != Unexpected::LookedOn, "unexpected");
                true
            };
            let play = || play(&sources, &playing(1_000_000, 5), &show, &mut looks_on).map(drop);
            let panic = catch_unwind(AssertUnwindSafe(play)).unwrap_err();
            tell.send(panic.downcast_ref::<&str>().copied()).unwrap();
        });
        let panic = told.recv_timeout(Duration::from_secs(20));
        assert_eq!(panic, Ok(Some("unexpected")), "{unexpected:?}");
    }
}
