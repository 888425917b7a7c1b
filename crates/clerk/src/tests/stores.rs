//! Stores of files in a volume with callbacks that do not go as whoever began them thought.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use super::sessions::GivesUp;
use super::{cell, eventually, new_file, open, pattern, root, settings};
use crate::{ClerkError, Interruptible, Settings};

const CHUNK: usize = 1 << 20;

#[test]
fn who_is_interrupted_while_others_store_has_his_store_done_as_a_whole() {
    let cell = cell(1);
    cell.set_callbacks();
    let late = Duration::from_secs(3600);
    let clerk = cell.clerk(Settings {
        unflushed_bytes_per_drive: 64 << 20,
        flush_after_bytes: 32 << 20,
        flush_after_idle: late,
        ..settings()
    });
    let (file, handle) = new_file(&clerk, "f");
    file.write(0, &[b'o'; 100]).unwrap();
    file.close().unwrap();
    let entry = clerk.lookup(&root(), clerk.root(), &super::name("f")).unwrap();
    let file = open(&clerk, &root(), entry);
    assert!(file.empty().unwrap().is_some());
    let text = pattern(0, 4 * CHUNK);
    for (at, part) in text.chunks(CHUNK).enumerate() {
        file.write((at * CHUNK) as u64, part).unwrap();
    }
    // The drive has acknowledged a part of it when it goes away, and the file manager with it.
    let drive = cell.drive(0);
    drive.set_delay(Duration::from_millis(100));
    let writes = || drive.counters.writes.load(Ordering::Relaxed);
    let (before, gives_up) = (writes(), Arc::new(GivesUp::default()));
    let request = Interruptible::new(1, Arc::clone(&gives_up) as _);
    thread::scope(|scope| {
        let closing = scope.spawn(|| request.run(|| file.close()));
        eventually("the last part is on its way", || writes() == before + 4);
        drive.set_reachable(false);
        cell.set_manager_runs(false);
        gives_up.0.store(true, Ordering::Relaxed);
        assert_eq!(closing.join().unwrap(), Err(ClerkError::Interrupted));
    });
    eventually("another thread goes on with it", || clerk.core.store_of(handle).is_none());
    // Its time is over, and somebody else has stored more than it has.
    cell.expire_capabilities();
    cell.stored_by_another(handle, &vec![b'b'; 6 * CHUNK]);
    drive.set_delay(Duration::ZERO);
    drive.set_reachable(true);
    cell.set_manager_runs(true);
    file.close().unwrap();
    assert!(drive.durable_bytes(handle.object).unwrap() == text, "all of it, and nothing else");
}
