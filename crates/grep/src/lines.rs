//! Whole lines in a buffer: where they are, and which of them are selected.

use crate::pattern::{Candidate, Matcher};
use memchr::{memchr, memchr_iter, memrchr};
use std::ops::Range;

/// How many line ends there are.
pub(crate) fn count(bytes: &[u8]) -> u64 {
    memchr_iter(b'\n', bytes).count() as u64
}

/// A line without its end.
pub(crate) fn without_end(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\n").unwrap_or(line)
}

/// The line that begins at `start`, with its end.
pub(crate) fn line_at(lines: &[u8], start: usize) -> Range<usize> {
    let end = memchr(b'\n', &lines[start..]).map_or(lines.len(), |at| start + at + 1);
    start..end
}

/// The line that a byte is in, of those from `first` on.
fn line_around(lines: &[u8], first: usize, at: usize) -> Range<usize> {
    let start = memrchr(b'\n', &lines[first..at]).map_or(first, |before| first + before + 1);
    start..line_at(lines, at).end
}

/// Where the last `most` of these lines begin, and how many there are.
pub(crate) fn last_lines(lines: &[u8], most: u32) -> (usize, u32) {
    let (mut start, mut found) = (lines.len(), 0);
    while found < most && start > 0 {
        start = memrchr(b'\n', &lines[..start - 1]).map_or(0, |before| before + 1);
        found += 1;
    }
    (start, found)
}

/// Those of some whole lines that are selected, in order.
pub(crate) struct Selected<'a> {
    matcher: &'a Matcher,
    is_inverted: bool,
    lines: &'a [u8],
    /// Where the next line begins.
    at: usize,
    /// The next line that matches, where that was looked for.
    matching: Option<Range<usize>>,
}

impl<'a> Selected<'a> {
    pub(crate) fn of(matcher: &'a Matcher, is_inverted: bool, lines: &'a [u8]) -> Selected<'a> {
        let matching = is_inverted.then(|| next_match(matcher, lines, 0));
        Selected { matcher, is_inverted, lines, at: 0, matching }
    }

    /// The next one that does not match.
    fn next_other(&mut self) -> Option<Range<usize>> {
        while self.at < self.lines.len() {
            let line = line_at(self.lines, self.at);
            self.at = line.end;
            match &self.matching {
                Some(matching) if matching.start == line.start => {
                    self.matching = Some(next_match(self.matcher, self.lines, line.end));
                }
                _ => return Some(line),
            }
        }
        None
    }
}

impl Iterator for Selected<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        if self.is_inverted {
            return self.next_other();
        }
        let line = next_match(self.matcher, self.lines, self.at);
        self.at = line.end;
        (!line.is_empty()).then_some(line)
    }
}

/// The first line that matches, of those from `first` on; empty at the end if there is none.
fn next_match(matcher: &Matcher, lines: &[u8], first: usize) -> Range<usize> {
    let mut at = first;
    while at < lines.len() {
        let (byte, is_sure) = match matcher.candidate(&lines[at..]) {
            Some(Candidate::Sure(byte)) => (at + byte, true),
            Some(Candidate::Likely(byte)) => (at + byte, false),
            None => break,
        };
        // Nothing matches behind the last line.
        if byte == lines.len() {
            break;
        }
        let line = line_around(lines, at, byte);
        if is_sure || matcher.is_match(without_end(&lines[line.clone()])) {
            return line;
        }
        at = line.end;
    }
    lines.len()..lines.len()
}
