//! What a matcher for many others takes, whatever the pattern and whatever the bytes, is no more than is said.

use nasd_grep::{Bounds, Pattern, SMALL_MATCHER_BYTES, Search, Wanted};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts what is taken and not given back, and the most that was so.
struct Counting;

static TAKEN: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is done by the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let taken = TAKEN.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(taken, Ordering::Relaxed);
        // SAFETY: as the caller says.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        TAKEN.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller says.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// The most bytes that were taken while this was done, beyond those before.
fn most_of(work: impl FnOnce()) -> usize {
    let before = TAKEN.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    work();
    MOST.load(Ordering::Relaxed) - before
}

#[test]
fn no_pattern_takes_more_than_is_said() {
    let words: Vec<String> = (0..1000).map(|word| format!("w{}", word * 7919)).collect();
    let patterns = [
        vec!["a".to_owned()],
        vec![r"(\pL\d?){1,40}x".to_owned()],
        vec![r"\w{8}(\s\w+){3}".to_owned()],
        vec![r"(a|b|c|ab|bc)*[abc]{12}z".to_owned()],
        vec![r"[ab]*a[ab]{13}(c)".to_owned()],
        vec![r"^(([^,]{1,200}),){20}(\d+)$".to_owned()],
        vec![r"(?:a?){300}a{300}".to_owned()],
        vec![r"\w".repeat(8190)],
        vec![r"\pL".repeat(5400)],
        vec![r"\pL".repeat(60)],
        vec!["[!-\u{10FFFF}]".repeat(2000)],
        vec!["[!-\u{10FFFF}]".repeat(64)],
        vec![r"\b(\w+)\b \b(\w+)\b".to_owned()],
        vec![r"((a{100}){100}){100}".to_owned()],
        words,
    ];
    let mut bytes = Vec::new();
    let mut number = 1_u64;
    for _ in 0..4 << 20 {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        bytes.push(b"abcabcabcab xyz,19\n"[(number >> 33) as usize % 19]);
    }
    for texts in patterns {
        for ignores_case in [false, true] {
            let pattern = Pattern { texts: texts.clone(), ignores_case, ..Pattern::default() };
            let (longest, most) = (64 << 10, 2 << 20);
            let (mut is_made, wanted) = (false, Wanted::default());
            let taken = most_of(|| {
                // One that would take more is refused.
                let Ok(matcher) = pattern.compile(Bounds::SMALL) else {
                    return;
                };
                is_made = true;
                let mut search = Search::new(&matcher, &wanted, longest, most);
                search.begin(0);
                for slice in bytes.chunks(64 << 10) {
                    search.feed(slice).unwrap();
                }
            });
            let begin: String = pattern.texts[0].chars().take(30).collect();
            let bound = SMALL_MATCHER_BYTES + Search::memory_bytes(&wanted, longest, most);
            println!("{begin} {ignores_case}: {taken} of {bound}, made: {is_made}");
            assert!(taken <= bound, "{begin}: {taken} of {bound} bytes");
        }
    }
}
