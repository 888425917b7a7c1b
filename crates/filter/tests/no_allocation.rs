//! A scan allocates what it says it will, at its start, and nothing after it.

#![allow(clippy::unwrap_used, reason = "compiled for tests alone")]

mod generate;

use generate::Random;
use nasd_filter::{Fed, Output, Piece, Plan, Scan};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static CALLS: Cell<usize> = const { Cell::new(0) };
    static BYTES: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, counting what each thread asks for.
struct Counting;

// SAFETY: everything is the system's allocator's; counting touches no memory of the heap.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.set(CALLS.get() + 1);
        BYTES.set(BYTES.get() + layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Runs a plan over a file in slices, with one output buffer; gives up at the first error.
fn run(scan: &mut Scan, file: &[u8], buffer: &mut [u8]) {
    for (offset, end) in [(0, file.len() / 2), (file.len() / 2, file.len())] {
        let ends_file = end == file.len();
        scan.begin_piece(Piece { offset: offset as u64, starts_record: false, ends_file });
        for slice in file[offset..end].chunks(100) {
            let mut rest = slice;
            loop {
                match scan.feed(rest, &mut Output::new(buffer)) {
                    Ok(Fed::Full { consumed }) => rest = &rest[consumed..],
                    Ok(_) => break,
                    Err(_) => return,
                }
            }
        }
        loop {
            match scan.end_piece(&mut Output::new(buffer)) {
                Ok(Fed::Full { .. }) => {}
                Ok(_) => break,
                Err(_) => return,
            }
        }
    }
    while let Ok(Fed::Full { .. }) = scan.finish(&mut Output::new(buffer)) {}
}

fn allocated(work: impl FnOnce()) -> (usize, usize) {
    let before = (CALLS.get(), BYTES.get());
    work();
    (CALLS.get() - before.0, BYTES.get() - before.1)
}

#[test]
fn nothing_is_allocated_after_the_start() {
    let mut buffer = vec![0; 64];
    for seed in 0..3000 {
        let mut random = Random::new(seed);
        let format = generate::format(&mut random);
        let file = generate::file(&mut random, &format);
        let plan: Plan = generate::plan(&mut random, format);
        let checked = plan.check().unwrap();
        let told = checked.memory_bytes();
        let mut scan = None;
        let (_, bytes) = allocated(|| scan = Some(checked.start()));
        let mut scan = scan.unwrap();
        let held = bytes + size_of::<Scan>();
        // What is told is what is held, but for the heads of some small vectors.
        assert!(held <= told && told - held < 1024, "{held} of {told}: {plan:?}");
        let (calls, bytes) = allocated(|| run(&mut scan, &file, &mut buffer));
        assert_eq!((calls, bytes), (0, 0), "{plan:?}");
    }
}
