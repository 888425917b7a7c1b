//! What callbacks take at a file manager, however they are spread over files and clients.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use nasd_afs::callbacks::{Callbacks, Client, Reading, Step, Unknown};

/// Counts what is taken and not given back, with what an allocator keeps for itself of each piece.
struct Counting;

static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// As glibc's does it: eight bytes more, in steps of sixteen.
const fn pieces(bytes: usize) -> usize {
    (bytes + 8).next_multiple_of(16)
}

// SAFETY: everything is done by the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        TAKEN.fetch_add(pieces(layout.size()), Ordering::Relaxed);
        // SAFETY: as the caller says.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        TAKEN.fetch_sub(pieces(layout.size()), Ordering::Relaxed);
        // SAFETY: as the caller says.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// A file's handle is as long: a drive, a partition and an object.
type File = (u64, u32, u64);

const fn file(number: u64) -> File {
    (number % 7, 3, number)
}

fn read(callbacks: &mut Callbacks<File>, client: Client, file: File) {
    if callbacks.may_read(client, file) == Err(Unknown::Ask) {
        assert!(callbacks.found(file, 2).is_empty());
        assert_eq!(callbacks.may_read(client, file), Ok(Reading::Promised(2)));
    }
}

/// Bytes that each callback takes, of so many clients that hold so many each, shared with so many others.
fn bytes_each(clients: u64, files: u64, holders: u64) -> usize {
    let before = TAKEN.load(Ordering::Relaxed);
    let mut callbacks = Callbacks::default();
    for client in 0..clients {
        for number in 0..files {
            read(&mut callbacks, client, file(client / holders * files + number));
        }
    }
    let count = (clients * files) as usize;
    assert_eq!(callbacks.held(), count);
    (TAKEN.load(Ordering::Relaxed) - before).div_ceil(count)
}

// One test, as others would be counted with it.
#[test]
fn a_callback_takes_less_than_200_bytes_and_all_of_it_comes_back() {
    let before = TAKEN.load(Ordering::Relaxed);
    // Tables double: a little beyond that is the worst.
    for (clients, files, holders) in [
        (10_000, 100, 1),
        (10_000, 113, 1),
        (1, 114_688, 1),
        (1, 120_000, 1),
        (10_000, 113, 2),
        (10_000, 60, 1000),
    ] {
        let bytes = bytes_each(clients, files, holders);
        println!(
            "{clients} clients, {files} files each, {holders} hold each: {bytes} bytes a callback"
        );
        assert!(bytes < 200, "{bytes}");
    }
    assert_eq!(TAKEN.load(Ordering::Relaxed), before);
    // All that was known of those who are gone, and of what was broken, is forgotten.
    let mut callbacks = Callbacks::default();
    (0..1000).for_each(|client| read(&mut callbacks, client, file(1)));
    let held = TAKEN.load(Ordering::Relaxed);
    assert_eq!(callbacks.may_write(0, file(1)).unwrap().len(), 1);
    callbacks.advanced(file(1), 3);
    callbacks.returned(0, file(1), 3).unwrap().unwrap();
    let breaks = callbacks.advanced(file(1), 4);
    assert_eq!(breaks.len(), 999);
    for (file, step) in breaks {
        let Step::Break { client, version } = step else { panic!("{step:?}") };
        callbacks.told(client, file, version);
    }
    assert_eq!((callbacks.held(), callbacks.files()), (1, 1));
    callbacks.gone(0);
    assert_eq!((callbacks.held(), callbacks.files()), (0, 0));
    assert!(TAKEN.load(Ordering::Relaxed) < held);
}
