//! A search: bytes come in whatever slices, what is found leaves in one buffer of a size that was said before.
//!
//! A piece is told as a head, what was found, and a tail. The *head* is everything up to its first line end, the *tail* what is
//! behind its last one; whoever has the pieces before and behind makes lines of them. Of the lines between, those are given that
//! are wanted. Since a piece is not told what surrounds it, it gives its first and its last lines as context in any case, as if
//! there were something selected before and behind it.

use crate::lines::{Selected, count, last_lines, line_at, without_end};
use crate::pattern::Matcher;
use crate::remote::{Item, REPORT_BYTES, Report};
use crate::wanted::{Give, Wanted};
use memchr::{memchr, memrchr};
use std::collections::VecDeque;
use thiserror::Error;

/// What comes after some bytes of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// More of them.
    More,
    /// Nothing, since the answer is full: the piece was ended before this byte of the file.
    Full(u64),
    /// Nothing: as many lines were found as are wanted.
    Done,
}

/// Why a search has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SearchError {
    /// A line is too long to be kept.
    #[error("the line at byte {offset} has more than {longest} bytes")]
    Long {
        /// Where the line, or what there is of it in the piece, begins.
        offset: u64,
        /// The most bytes of a line.
        longest: usize,
    },
}

/// There is no room for a line.
struct IsFull;

/// What the next bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Before the piece's first line end.
    Head,
    Lines,
    /// As many lines are selected as are wanted; what follows is context.
    Closing,
}

/// A line that is given if it turns out to be before a selected one.
struct Before {
    /// Which of the piece's lines it is.
    index: u64,
    offset: u64,
    line: Vec<u8>,
}

/// See the module.
pub struct Search {
    matcher: Matcher,
    wanted: Wanted,
    longest: usize,
    most: usize,
    answer: Vec<u8>,
    mode: Mode,
    /// Where the piece under way has its report.
    report_at: usize,
    report: Report,
    offset: u64,
    /// Where the next line is in the file.
    position: u64,
    /// The beginning of a line whose end has not come.
    open: Vec<u8>,
    /// The number behind that of the line that was given last.
    given: u64,
    /// Lines that may still be selected.
    left: u64,
    /// Lines that are given as those after a selected one.
    after: u32,
    before: VecDeque<Before>,
}

impl Search {
    /// Bytes that an answer must have room for, so that there is some for what a line gives in any case.
    pub fn least_bytes(longest: usize) -> usize {
        // Of each byte that matches by itself two numbers are told.
        REPORT_BYTES + 32 + 4 * longest
    }

    /// Bytes of memory that one takes.
    pub fn memory_bytes(wanted: &Wanted, longest: usize, most: usize) -> usize {
        let before = (wanted.before as usize).saturating_mul(longest + size_of::<Before>());
        most + 3 * longest + before + size_of::<Search>()
    }

    /// One whose answer has at most `most` bytes, [`least_bytes`](Self::least_bytes) or more, of lines that have at most
    /// `longest`, and that takes at most as much memory as it says.
    pub fn new(matcher: &Matcher, wanted: &Wanted, longest: usize, most: usize) -> Search {
        let wanted = wanted.plain();
        Search {
            matcher: matcher.clone(),
            wanted,
            longest,
            most,
            // Of which no more is touched than is used; where lines are only counted that is little.
            answer: Vec::with_capacity(if wanted.give == Give::Count { 0 } else { most }),
            mode: Mode::Head,
            report_at: 0,
            report: Report::default(),
            offset: 0,
            position: 0,
            open: Vec::new(),
            given: 0,
            left: wanted.most.unwrap_or(u64::MAX),
            after: 0,
            before: VecDeque::new(),
        }
    }

    /// Begins the piece whose first byte is `offset`, if there is room for it; tells whether. If there is none the answer
    /// ends before it.
    pub fn begin(&mut self, offset: u64) -> bool {
        if self.answer.len() + REPORT_BYTES > self.most {
            return false;
        }
        self.report_at = self.answer.len();
        self.answer.resize(self.report_at + REPORT_BYTES, 0);
        self.report = Report::default();
        (self.offset, self.position, self.given) = (offset, offset, 0);
        self.after = self.wanted.after;
        self.mode = Mode::Head;
        true
    }

    /// Takes the next bytes of the piece.
    ///
    /// # Errors
    ///
    /// [`SearchError`]; the answer is void then.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Next, SearchError> {
        self.feed_while(bytes, &mut |_| true)
    }

    /// The same, for who asks at each match of a line for which all are wanted, with how many were before it there, whether it `may_go_on`:
    /// if it may not, the answer ends before that line, as if it took too long.
    ///
    /// # Errors
    ///
    /// [`SearchError`]; the answer is void then.
    pub fn feed_while(
        &mut self,
        bytes: &[u8],
        may_go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Next, SearchError> {
        let mut bytes = bytes;
        if self.mode == Mode::Head || !self.open.is_empty() {
            let Some(end) = memchr(b'\n', bytes) else {
                return self.keep(bytes);
            };
            let rest;
            (bytes, rest) = bytes.split_at(end + 1);
            self.keep(bytes)?;
            let line = std::mem::take(&mut self.open);
            let next = self.look_at(&line, may_go_on);
            self.open = line;
            self.open.clear();
            if next != Next::More {
                return Ok(next);
            }
            bytes = rest;
        }
        let whole = memrchr(b'\n', bytes).map_or(0, |end| end + 1);
        let (lines, open) = bytes.split_at(whole);
        let next = if lines.is_empty() { Next::More } else { self.look_at(lines, may_go_on) };
        if next == Next::More { self.keep(open) } else { Ok(next) }
    }

    /// Ends the piece.
    pub fn end(&mut self) -> Next {
        self.report.all_head = self.mode == Mode::Head;
        if !self.report.all_head {
            // What is behind the piece may be selected.
            while let Some(before) = self.before.pop_front() {
                if self.give(before.index, &before.line, false).is_err() {
                    return self.cut(before.index, before.offset);
                }
            }
        }
        let open = std::mem::take(&mut self.open);
        if self.room() < open.len() {
            return self.cut(self.report.lines, self.position);
        }
        self.answer.extend_from_slice(&open);
        let bytes = open.len() as u64;
        if self.report.all_head {
            self.report.head_bytes = bytes;
        } else {
            self.report.tail_bytes = bytes;
        }
        self.put_report();
        Next::More
    }

    /// The whole of it.
    pub fn finish(mut self) -> Vec<u8> {
        // It may wait for a while until it is sent.
        self.answer.shrink_to_fit();
        self.answer
    }

    fn room(&self) -> usize {
        self.most - self.answer.len()
    }

    /// Keeps the beginning of a line.
    fn keep(&mut self, bytes: &[u8]) -> Result<Next, SearchError> {
        if self.open.len() + bytes.len() > self.longest {
            return Err(SearchError::Long { offset: self.position, longest: self.longest });
        }
        self.open.extend_from_slice(bytes);
        Ok(Next::More)
    }

    /// Takes whole lines: the first one of the piece alone, as its head.
    fn look_at(&mut self, lines: &[u8], may_go_on: &mut dyn FnMut(u64) -> bool) -> Next {
        if self.mode == Mode::Head {
            return self.take_head(lines);
        }
        let found = match self.wanted.give {
            Give::Count => Ok(self.tally(lines)),
            Give::Lines | Give::Matches => self.find(lines, may_go_on),
        };
        match found {
            Ok(next) => {
                self.position += lines.len() as u64;
                next
            }
            Err((index, offset)) => self.cut(index, offset),
        }
    }

    fn take_head(&mut self, line: &[u8]) -> Next {
        if self.room() < line.len() {
            return self.cut(0, self.offset);
        }
        self.answer.extend_from_slice(line);
        self.report.head_bytes = line.len() as u64;
        self.position += line.len() as u64;
        self.mode = Mode::Lines;
        match self.left {
            0 => self.close(),
            _ => Next::More,
        }
    }

    /// Counts those that are selected, and all.
    fn tally(&mut self, lines: &[u8]) -> Next {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX);
        let selected = Selected::of(&self.matcher, self.wanted.is_inverted, lines);
        let found = selected.take(most).count() as u64;
        self.report.selected += found;
        self.left -= found;
        if self.wanted.numbers {
            self.report.lines += count(lines);
        }
        if self.left == 0 { self.close() } else { Next::More }
    }

    /// Gives what is wanted of some lines; if there is no room, tells the line that it is for, and where that begins in the file.
    fn find(
        &mut self,
        lines: &[u8],
        may_go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Next, (u64, u64)> {
        let matcher = self.matcher.clone();
        let (mut at, mut index) = (0, self.report.lines);
        if self.mode == Mode::Lines {
            for line in Selected::of(&matcher, self.wanted.is_inverted, lines) {
                let start = line.start;
                self.give_before(&lines[at..start], index, self.position + at as u64)?;
                index += if self.wanted.numbers { count(&lines[at..start]) } else { 0 };
                let offset = self.position + start as u64;
                let text = without_end(&lines[line.clone()]);
                self.give_selected(index, text, may_go_on).map_err(|IsFull| (index, offset))?;
                index += u64::from(self.wanted.numbers);
                at = line.end;
                self.report.selected += 1;
                self.left -= 1;
                self.after = self.wanted.after;
                if self.left == 0 {
                    self.mode = Mode::Closing;
                    break;
                }
            }
        }
        self.give_after(&lines[at..], index, self.position + at as u64)?;
        if self.wanted.numbers {
            self.report.lines = index + count(&lines[at..]);
        }
        match self.mode {
            Mode::Closing => Ok(self.close()),
            _ => Ok(Next::More),
        }
    }

    /// Takes lines before a selected one: those that are after the one before, and the last ones.
    fn give_before(&mut self, lines: &[u8], index: u64, offset: u64) -> Result<(), (u64, u64)> {
        if !self.wanted.has_context() {
            return Ok(());
        }
        let (index, at) = self.give_first(lines, index, offset)?;
        let rest = &lines[at..];
        let (start, found) = last_lines(rest, self.wanted.before);
        let kept = (self.wanted.before - found) as usize;
        // Kept lines lie right before these, and nothing of these was given.
        let passed = self.before.len().saturating_sub(kept);
        for before in std::mem::take(&mut self.before).into_iter().skip(passed) {
            let full = |IsFull| (before.index, before.offset);
            self.give(before.index, &before.line, false).map_err(full)?;
        }
        let index = index + count(&rest[..start]);
        self.give_all(&rest[start..], index, offset + (at + start) as u64)
    }

    /// Takes lines behind the last selected one: gives those that are after it, and keeps the last ones.
    fn give_after(&mut self, lines: &[u8], index: u64, offset: u64) -> Result<(), (u64, u64)> {
        if !self.wanted.has_context() {
            return Ok(());
        }
        let (index, at) = self.give_first(lines, index, offset)?;
        let rest = &lines[at..];
        let most = self.wanted.before;
        if self.mode == Mode::Closing || most == 0 || rest.is_empty() {
            return Ok(());
        }
        let (start, found) = last_lines(rest, most);
        let passed = (self.before.len() + found as usize).saturating_sub(most as usize);
        self.before.drain(..passed);
        let (mut index, mut at) = (index + count(&rest[..start]), at + start);
        while at < lines.len() {
            let line = line_at(lines, at);
            let text = without_end(&lines[line.clone()]).to_vec();
            self.before.push_back(Before { index, offset: offset + at as u64, line: text });
            (index, at) = (index + 1, line.end);
        }
        Ok(())
    }

    /// Gives the first lines, as many as are still to be given after a selected one; which line is next, and where.
    fn give_first(
        &mut self,
        lines: &[u8],
        mut index: u64,
        offset: u64,
    ) -> Result<(u64, usize), (u64, u64)> {
        let mut at = 0;
        while self.after > 0 && at < lines.len() {
            let line = line_at(lines, at);
            self.give_all(&lines[line.clone()], index, offset + at as u64)?;
            (index, at) = (index + 1, line.end);
            self.after -= 1;
        }
        Ok((index, at))
    }

    /// Gives lines as context.
    fn give_all(&mut self, lines: &[u8], index: u64, offset: u64) -> Result<(), (u64, u64)> {
        let (mut index, mut at) = (index, 0);
        while at < lines.len() {
            let line = line_at(lines, at);
            let full = |IsFull| (index, offset + at as u64);
            self.give(index, without_end(&lines[line.clone()]), false).map_err(full)?;
            (index, at) = (index + 1, line.end);
        }
        Ok(())
    }

    /// Gives a line that is selected, or each match in it, if there is room for all of that, and it takes not too long. The next answer begins
    /// with a line that took too long, and tells it as it is, as nobody knows there that a line begins: whoever asks looks at it.
    fn give_selected(
        &mut self,
        index: u64,
        line: &[u8],
        may_go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<(), IsFull> {
        match self.wanted.give {
            Give::Matches => self.give_matches(index, line, may_go_on)?,
            _ => self.give(index, line, true)?,
        }
        self.before.clear();
        Ok(())
    }

    fn give_matches(
        &mut self,
        index: u64,
        line: &[u8],
        may_go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<(), IsFull> {
        let matcher = self.matcher.clone();
        let (before, given, number) = (self.answer.len(), self.given, self.number(index));
        let (mut is_full, mut is_empty) = (false, true);
        let is_whole = matcher.each(line, may_go_on, |text| {
            is_empty = false;
            is_full = is_full || self.put(number, text, true).is_err();
        });
        if !is_whole || is_full {
            self.answer.truncate(before);
            self.given = given;
            return Err(IsFull);
        }
        // That it is selected is told even so.
        if is_empty { self.put(number, &[], true) } else { Ok(()) }
    }

    /// Gives a line, if there is room for it.
    fn give(&mut self, index: u64, line: &[u8], is_selected: bool) -> Result<(), IsFull> {
        self.put(self.number(index), line, is_selected)
    }

    /// The number of a line: where these are not wanted, the next one.
    fn number(&self, index: u64) -> u64 {
        if self.wanted.numbers { index + 1 } else { self.given + 1 }
    }

    /// Puts a text of a line into the answer, if there is room for it.
    fn put(&mut self, number: u64, text: &[u8], is_selected: bool) -> Result<(), IsFull> {
        // The number is told as the distance from that of the line before.
        let item = Item { distance: number - self.given, is_selected, text };
        if item.bytes() > self.room() {
            return Err(IsFull);
        }
        item.append_to(&mut self.answer);
        self.given = number;
        Ok(())
    }

    /// As many are selected as are wanted: nothing more is, unless it is context.
    fn close(&mut self) -> Next {
        self.mode = Mode::Closing;
        if self.after > 0 && self.wanted.has_context() {
            return Next::More;
        }
        self.report.done = true;
        self.put_report();
        Next::Done
    }

    /// Ends the piece before a line.
    fn cut(&mut self, lines: u64, position: u64) -> Next {
        self.open.clear();
        self.before.clear();
        if position == self.offset {
            // Nothing of it is told.
            self.answer.truncate(self.report_at);
        } else {
            self.report.lines = lines;
            self.put_report();
        }
        Next::Full(position)
    }

    fn put_report(&mut self) {
        let head = self.report_at + REPORT_BYTES;
        let items = (self.answer.len() - head) as u64;
        self.report.item_bytes = items - self.report.head_bytes - self.report.tail_bytes;
        let report = nasd_xdr::to_bytes(&self.report);
        self.answer[self.report_at..head].copy_from_slice(&report);
    }
}
