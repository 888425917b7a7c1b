//! How long a drive looks at one line at the most: the expressions that take longest of those that it takes, in the longest lines for them.
//!
//! `cargo run --release -p nasd-grep --example slowest`

use std::time::Instant;

use nasd_grep::{Bounds, Give, Matcher, Pattern, Search, Wanted};

/// The longest line of a short expression at a drive.
const LONGEST: usize = 256 << 10;

fn compiled(text: &str) -> Option<Matcher> {
    let pattern = Pattern { texts: vec![text.to_owned()], ..Pattern::default() };
    pattern.compile(Bounds::SMALL).ok()
}

/// The longest repetition for which something is so, which is so for all shorter ones.
fn most(is_so: impl Fn(&Matcher) -> bool) -> usize {
    let is_so = |count| compiled(&expression(count)).is_some_and(|matcher| is_so(&matcher));
    let (mut least, mut above) = (1, 1 << 16);
    while above - least > 1 {
        let middle = usize::midpoint(least, above);
        if is_so(middle) { least = middle } else { above = middle }
    }
    least
}

/// Each byte may be the beginning of what is repeated, so that so many places are looked at for each, and none can be remembered.
fn expression(count: usize) -> String {
    format!("[ab]*a[ab]{{{count}}}[c-e]")
}

fn random_line(bytes: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        if state >> 63 == 0 { b'a' } else { b'b' }
    };
    (0..bytes).map(|_| next()).collect()
}

fn main() {
    for count in [most(|matcher| matcher.longest(LONGEST) == LONGEST), most(|_| true)] {
        let matcher = compiled(&expression(count)).expect("it was compiled before");
        let longest = matcher.longest(LONGEST);
        let wanted = Wanted { give: Give::Count, ..Wanted::default() };
        let mut search = Search::new(&matcher, &wanted, longest, Search::least_bytes(longest));
        search.begin(0);
        search.feed(b"\n").expect("it is short");
        let line = [random_line(longest - 1), b"\n".to_vec()].concat();
        let begun = Instant::now();
        search.feed(&line).expect("it is as long as it may be");
        let taken = begun.elapsed();
        println!("{}: a line of {} KiB in {taken:.2?}", expression(count), longest >> 10);
    }
}
