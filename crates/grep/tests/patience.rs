//! What would take minutes is left to whoever has them.

#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

use nasd_grep::remote::read_answer;
use nasd_grep::{Bounds, Give, Matcher, Next, Pattern, Search, Wanted};

/// Looks for each match of a pattern in lines that are shorter than this.
const LONGEST: usize = 256 << 10;

/// After each match, all of the line behind it may be another one's.
fn matcher(bounds: Bounds) -> Matcher {
    let pattern = Pattern { texts: vec!["a.*x|a".to_owned()], ..Pattern::default() };
    pattern.compile(bounds).unwrap()
}

#[test]
fn a_long_line_of_matches_ends_the_answer_before_it() {
    let wanted = Wanted { give: Give::Matches, ..Wanted::default() };
    let matcher = matcher(Bounds::SMALL);
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
        let matcher = matcher(Bounds::SMALL);
        let mut search = Search::new(&matcher, &wanted, LONGEST, 4 << 20);
        assert!(search.begin(0));
        assert_eq!(search.feed(&[line, b"\n"].concat()), Ok(Next::More));
    }
}
