//! What is found does not depend on how a file is cut, on the slices that its bytes come in, or on how large answers may be.

#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

use nasd_grep::remote::read_answer;
use nasd_grep::{Bounds, Give, Join, Line, Matcher, Next, Pattern, Search, Wanted};
use proptest::prelude::*;
use std::ops::Range;

/// As told, with what it is a copy of.
type Found = (u64, bool, Vec<u8>);

const PATTERNS: [&str; 15] = [
    "a*", "b?", "a", "ab", "^a", "b$", "^$", "", "a.b", "[^a]", r"\bab\b", "aa|bb", r"\s", "(ab)+",
    "c",
];

fn pattern(text: &str) -> Pattern {
    Pattern { texts: vec![text.to_owned()], ..Pattern::default() }
}

/// What is to be found, line by line, from what this says of single lines.
fn expected(matches: impl Fn(&[u8]) -> Vec<Vec<u8>>, file: &[u8], wanted: &Wanted) -> Vec<Found> {
    let text = file.strip_suffix(b"\n").unwrap_or(file);
    let lines: Vec<&[u8]> = match file {
        [] => Vec::new(),
        _ => text.split(|byte| *byte == b'\n').collect(),
    };
    let is_found = |line: &[u8]| matches(line).is_empty() == wanted.is_inverted;
    let selected = (0..lines.len()).filter(|at| is_found(lines[*at]));
    let most = wanted.most.map_or(usize::MAX, |most| most as usize);
    let selected: Vec<usize> = selected.take(most).collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let number = at as u64 + 1;
        let is_selected = selected.binary_search(&at).is_ok();
        let (before, after) = (wanted.before as usize, wanted.after as usize);
        let is_near = |other: &usize| *other <= at + before && at <= *other + after;
        let parts = match wanted.give {
            Give::Count => continue,
            Give::Lines if is_selected || selected.iter().any(is_near) => vec![line.to_vec()],
            Give::Matches if is_selected && !wanted.is_inverted => {
                matches(line).into_iter().filter(|part| !part.is_empty()).collect()
            }
            _ => continue,
        };
        found.extend(parts.into_iter().map(|part| (number, is_selected, part)));
    }
    found
}

/// Answers one request: what was told, and up to where.
fn answer(
    matcher: &Matcher,
    wanted: &Wanted,
    pieces: &[Range<usize>],
    file: &[u8],
    slice: usize,
    (longest, most): (usize, usize),
) -> (u64, Vec<u8>) {
    let mut search = Search::new(matcher, wanted, longest, most);
    let end = pieces.last().unwrap().end as u64;
    for piece in pieces {
        if !search.begin(piece.start as u64) {
            return (piece.start as u64, search.finish());
        }
        for bytes in file[piece.clone()].chunks(slice) {
            match search.feed(bytes).unwrap() {
                Next::More => {}
                Next::Full(position) => return (position, search.finish()),
                Next::Done => return (end, search.finish()),
            }
        }
        if let Next::Full(position) = search.end() {
            return (position, search.finish());
        }
    }
    (end, search.finish())
}

/// What is found in a file of which several pieces are asked for at a time.
fn search(
    matcher: &Matcher,
    wanted: &Wanted,
    file: &[u8],
    mut pieces: Vec<Range<usize>>,
    (at_a_time, slice): (usize, usize),
    sizes: (usize, usize),
) -> (Vec<Found>, u64) {
    let mut join = Join::new(matcher, wanted);
    let mut found = Vec::new();
    let mut give = |line: Line<'_>| {
        found.push((line.number, line.is_selected, line.text.to_vec()));
    };
    'all: while !pieces.is_empty() {
        let asked: Vec<Range<usize>> = pieces.iter().take(at_a_time).cloned().collect();
        let (position, data) = answer(matcher, wanted, &asked, file, slice, sizes);
        assert!(data.len() <= sizes.1, "an answer is longer than it may be");
        assert!(position > asked[0].start as u64, "a search does not get on");
        let ranges = asked.iter().map(|piece| piece.start as u64..piece.end as u64);
        for part in read_answer(ranges, position, &data).unwrap() {
            if !join.add(&part, &mut give).unwrap() {
                break 'all;
            }
        }
        let position = position as usize;
        pieces.retain(|piece| piece.end > position);
        if let Some(first) = pieces.first_mut() {
            first.start = first.start.max(position);
        }
    }
    join.finish(&mut give);
    (found, join.selected())
}

fn wanted() -> impl Strategy<Value = Wanted> {
    let give = prop_oneof![Just(Give::Count), Just(Give::Lines), Just(Give::Matches)];
    let most = prop_oneof![Just(None), (1..5_u64).prop_map(Some)];
    (give, any::<bool>(), 0..4_u32, 0..4_u32, any::<bool>(), most).prop_map(
        |(give, is_inverted, before, after, numbers, most)| {
            let wanted = Wanted { give, is_inverted, before, after, numbers, most };
            wanted.plain()
        },
    )
}

fn file() -> impl Strategy<Value = Vec<u8>> {
    let line = proptest::collection::vec(prop_oneof![Just(b'a'), Just(b'b'), Just(b' ')], 0..9);
    let lines = proptest::collection::vec(line, 0..60);
    (lines, any::<bool>()).prop_map(|(lines, has_end)| {
        let mut file: Vec<u8> =
            lines.into_iter().flat_map(|line| [line, vec![b'\n']].concat()).collect();
        if !has_end {
            file.pop();
        }
        file
    })
}

/// What a drive may tell that is broken, or wants to break its client.
#[test]
fn what_no_search_tells_harms_nobody() {
    let matcher = pattern("a").compile(Bounds::SMALL).unwrap();
    let wanted = Wanted { before: 2, after: 2, ..Wanted::default() };
    let file = b"a\nb\nb\na\nb\na\nb\nb\nb\nb\na\n".repeat(3);
    let all = 0..file.len();
    let (_, data) = answer(&matcher, &wanted, &[all], &file, 7, (9, 1 << 16));
    let tell = |data: &[u8]| {
        let mut join = Join::new(&matcher, &wanted);
        let mut told = 0;
        // The same twice, as of two pieces.
        for offset in [0, file.len() as u64] {
            let range = offset..offset + file.len() as u64;
            let Ok(parts) = read_answer([range.clone()], range.end, data) else {
                return told;
            };
            // After an error it is void.
            if !parts.iter().all(|part| join.add(part, &mut |_| told += 1).is_ok()) {
                return told;
            }
        }
        join.finish(&mut |_| told += 1);
        told
    };
    assert!(tell(&data) > 0);
    for at in 0..data.len() {
        for byte in [0, 1, 2, 0x7f, 0x80, 0xff] {
            let mut wrong = data.clone();
            wrong[at] = byte;
            tell(&wrong);
            // Lengths that fit, so that more of it is looked at.
            wrong[at / 8 * 8..(at / 8 * 8 + 8).min(data.len())].fill(byte);
            tell(&wrong);
        }
        tell(&data[..at]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn a_result_does_not_depend_on_cuts(
        file in file(),
        wanted in wanted(),
        text in proptest::sample::select(&PATTERNS[..]),
        cuts in proptest::collection::btree_set(1..540_usize, 0..12),
        (at_a_time, slice) in (1..5_usize, 1..40_usize),
        spare in 0..150_usize,
    ) {
        let matcher = pattern(text).compile(Bounds::SMALL).unwrap();
        let mut ends: Vec<usize> = cuts.into_iter().filter(|cut| *cut < file.len()).collect();
        ends.push(file.len());
        let starts = std::iter::once(0).chain(ends.iter().copied());
        let pieces: Vec<Range<usize>> =
            starts.zip(ends.iter().copied()).map(|(start, end)| start..end).filter(|piece| !piece.is_empty()).collect();
        let regex = regex::bytes::Regex::new(text).unwrap();
        let matches = |line: &[u8]| regex.find_iter(line).map(|part| part.as_bytes().to_vec()).collect();
        let longest = 9;
        let sizes = (longest, Search::least_bytes(longest) + spare);
        let (mut found, selected) =
            search(&matcher, &wanted, &file, pieces, (at_a_time, slice), sizes);
        let mut expected = expected(matches, &file, &wanted);
        if !wanted.numbers {
            // They have none.
            found.iter_mut().chain(&mut expected).for_each(|line| line.0 = 0);
        }
        prop_assert_eq!(found, expected);
        let counting = Wanted { give: Give::Lines, before: 0, after: 0, ..wanted };
        let all = self::expected(matches, &file, &counting).len() as u64;
        prop_assert_eq!(selected, all);
    }
}
