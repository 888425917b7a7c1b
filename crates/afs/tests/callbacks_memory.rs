//! What callbacks take at a file manager, however they are spread over files and clients.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use nasd_afs::callbacks::{Callbacks, Client, Reading, Step, Unknown};

/// Counts what is taken and not given back, with what an allocator keeps for itself of each piece.
struct Counting;

thread_local! {
    /// What each thread took less what it gave back: what other tests do does not count.
    static TAKEN: Cell<isize> = const { Cell::new(0) };
}

/// As glibc's does it: eight bytes more, in steps of sixteen.
const fn pieces(bytes: usize) -> isize {
    (bytes + 8).next_multiple_of(16).cast_signed()
}

fn count(bytes: isize) {
    // A thread that ends has none any more.
    TAKEN.try_with(|taken| taken.set(taken.get() + bytes)).ok();
}

fn taken() -> isize {
    TAKEN.get()
}

// SAFETY: everything is done by the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(pieces(layout.size()));
        // SAFETY: as the caller says.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-pieces(layout.size()));
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
    let before = taken();
    let mut callbacks = Callbacks::default();
    for client in 0..clients {
        for number in 0..files {
            read(&mut callbacks, client, file(client / holders * files + number));
        }
    }
    let count = (clients * files) as usize;
    assert_eq!(callbacks.held(), count);
    (taken() - before).unsigned_abs().div_ceil(count)
}

/// Clients, files that each holds a callback on, and clients that hold one on each file. Tables double: a little beyond that is the
/// worst.
const SPREADS: [(u64, u64, u64); 6] = [
    (10_000, 100, 1),
    (10_000, 113, 1),
    (1, 114_688, 1),
    (1, 120_000, 1),
    (10_000, 113, 2),
    (10_000, 60, 1000),
];

#[test]
fn a_callback_takes_less_than_200_bytes() {
    let before = taken();
    let bytes = SPREADS.map(|(clients, files, holders)| bytes_each(clients, files, holders));
    assert_eq!(taken(), before, "all of it comes back");
    for ((clients, files, holders), bytes) in SPREADS.iter().zip(bytes) {
        println!("{clients} clients, {files} files each, {holders} hold each: {bytes} bytes");
        assert!(bytes < 200, "{bytes}");
    }
}

#[test]
fn those_who_are_gone_and_what_is_broken_are_forgotten() {
    let mut callbacks = Callbacks::default();
    (0..1000).for_each(|client| read(&mut callbacks, client, file(1)));
    let held = taken();
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
    assert!(taken() < held);
}
