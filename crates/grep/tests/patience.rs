//! What would take minutes is left to whoever has them.

#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

use nasd_grep::remote::read_answer;
use nasd_grep::{Bounds, Give, Matcher, Next, Pattern, Search, Wanted};

/// Looks for each match of a pattern in lines that are shorter than this.
const LONGEST: usize = 256 << 10;

/// After each match, all of the line behind it may be another one's.
const BEHIND: &str = "a.*x|a";

fn matcher(text: &str) -> Matcher {
    let pattern = Pattern { texts: vec![text.to_owned()], ..Pattern::default() };
    pattern.compile(Bounds::SMALL).unwrap()
}

/// A long line in which nobody remembers what follows what.
fn random_line(bytes: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if state >> 63 == 0 { b'a' } else { b'b' }
    };
    (0..bytes).map(|_| next()).collect()
}

#[test]
fn a_long_line_of_matches_ends_the_answer_before_it() {
    let wanted = Wanted { give: Give::Matches, ..Wanted::default() };
    let matcher = matcher(BEHIND);
    let mut search = Search::new(&matcher, &wanted, LONGEST, 4 << 20);
    assert!(search.begin(0));
    let file = [b"a\nb\n", &[b'a'; LONGEST - 10][..], b"\na\n"].concat();
    assert_eq!(search.feed(&file), Ok(Next::Full(4)));
    let data = search.finish();
    let parts = read_answer(std::iter::once(0..file.len() as u64), 4, &data).unwrap();
    assert_eq!((parts.len(), parts[0].end), (1, 4));
}

#[test]
fn lines_are_not_left_that_take_little() {
    let wanted = Wanted { give: Give::Matches, ..Wanted::default() };
    // Many in a short one, few in a long one.
    let many = [b'a'; 20_000];
    let mut few = vec![b'b'; LONGEST - 10];
    (0..LONGEST - 10).step_by(1000).for_each(|at| few[at] = b'a');
    for line in [&many[..], &few] {
        let matcher = matcher(BEHIND);
        let mut search = Search::new(&matcher, &wanted, LONGEST, 4 << 20);
        assert!(search.begin(0));
        assert_eq!(search.feed(&[line, b"\n"].concat()), Ok(Next::More));
    }
}

#[test]
fn who_may_not_go_on_ends_the_answer_before_the_line_at_its_next_match() {
    let wanted = Wanted { give: Give::Matches, ..Wanted::default() };
    // Each of its matches takes a while.
    let matcher = matcher("a(?:[ab]*a[ab]{300}x)?");
    let line = random_line(64 << 10);
    let mut search = Search::new(&matcher, &wanted, LONGEST, 4 << 20);
    assert!(search.begin(0));
    let mut asked = 0;
    let mut may_go_on = |before| {
        // The first one is of another line.
        assert_eq!(before, [0, 0, 1, 2, 3][asked]);
        asked += 1;
        asked < 5
    };
    let file = [b"a\nb\na\n", &line[..], b"\na\n"].concat();
    // One of the short line, and four more.
    assert_eq!(search.feed_while(&file, &mut may_go_on), Ok(Next::Full(6)));
    assert_eq!(asked, 5);
    let data = search.finish();
    let parts = read_answer(std::iter::once(0..file.len() as u64), 6, &data).unwrap();
    let items: Vec<_> = parts[0].items().map(|item| item.unwrap().text.to_vec()).collect();
    assert_eq!((parts.len(), parts[0].end, items), (1, 6, vec![b"a".to_vec()]));
}

#[test]
fn long_expressions_are_for_shorter_lines() {
    let longest = |text: &str| matcher(text).longest(LONGEST);
    assert_eq!(longest("[ab]*a[ab]{900}[c-e]"), LONGEST);
    assert_eq!(longest("[ab]*a[ab]{7000}[c-e]"), LONGEST / 4);
    assert_eq!(longest(r"\w+@\w+"), LONGEST);
}
