//! The result of a file from what was told of its pieces, which come in the file's order.

use crate::lines::without_end;
use crate::pattern::Matcher;
use crate::remote::Part;
use crate::wanted::{Give, Wanted};
use std::collections::VecDeque;
use thiserror::Error;

/// Most bytes of a line that crosses pieces.
pub const MOST_OPEN_BYTES: usize = 256 << 20;

/// A line of the result, or something in it that matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// Its number in the file, from 1; how many were given before where lines are not counted.
    pub number: u64,
    /// Whether it is selected; otherwise it is context.
    pub is_selected: bool,
    /// Without a line end.
    pub text: &'a [u8],
}

/// Why there is no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum JoinError {
    /// What was told is not of pieces one after the other.
    #[error("what was told of pieces of the file does not fit together")]
    Pieces,
    /// A line is too long.
    #[error("the line that goes on at byte {0} is longer than {MOST_OPEN_BYTES} bytes")]
    Long(u64),
}

/// See the module.
pub struct Join {
    matcher: Matcher,
    wanted: Wanted,
    /// The beginning of a line whose end has not come.
    open: Vec<u8>,
    /// Where the next piece begins.
    position: u64,
    /// Lines before the one that is open.
    lines: u64,
    /// How many are selected.
    selected: u64,
    /// The number of the last one that is.
    last: Option<u64>,
    /// Lines that are given if a selected one follows soon.
    before: VecDeque<(u64, Vec<u8>)>,
}

impl Join {
    /// Of nothing yet.
    pub fn new(matcher: &Matcher, wanted: &Wanted) -> Join {
        Join {
            matcher: matcher.clone(),
            wanted: wanted.plain(),
            open: Vec::new(),
            position: 0,
            lines: 0,
            selected: 0,
            last: None,
            before: VecDeque::new(),
        }
    }

    /// How many lines are selected of those that were told of.
    pub fn selected(&self) -> u64 {
        self.selected
    }

    /// Whether nothing that follows can make a difference.
    pub fn is_done(&self) -> bool {
        self.left() == 0 && !self.is_after(self.lines.saturating_add(1))
    }

    /// Whether a line is to be given since it is after a selected one.
    fn is_after(&self, number: u64) -> bool {
        let after = u64::from(self.wanted.after);
        self.last.is_some_and(|last| number > last && number - last <= after)
    }

    /// Lines that may still be selected.
    fn left(&self) -> u64 {
        self.wanted.most.map_or(u64::MAX, |most| most.saturating_sub(self.selected))
    }

    /// Takes what was told of the next piece, and gives what is found. Tells whether more is needed.
    ///
    /// # Errors
    ///
    /// [`JoinError`]; this is void then.
    pub fn add(
        &mut self,
        part: &Part<'_>,
        give: &mut dyn FnMut(Line<'_>),
    ) -> Result<bool, JoinError> {
        if part.offset != self.position {
            return Err(JoinError::Pieces);
        }
        self.position = part.end;
        self.keep(part.head)?;
        if !part.report.all_head {
            self.close(give);
            self.take_items(part, give)?;
            self.keep(part.tail)?;
        }
        Ok(!self.is_done())
    }

    /// The file is at its end: gives what is found in a last line that has none.
    pub fn finish(&mut self, give: &mut dyn FnMut(Line<'_>)) {
        if !self.open.is_empty() {
            self.close(give);
        }
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<(), JoinError> {
        if self.open.len() + bytes.len() > MOST_OPEN_BYTES {
            return Err(JoinError::Long(self.position));
        }
        self.open.extend_from_slice(bytes);
        Ok(())
    }

    /// The open line is whole.
    fn close(&mut self, give: &mut dyn FnMut(Line<'_>)) {
        let open = std::mem::take(&mut self.open);
        let line = without_end(&open);
        self.lines += 1;
        let number = self.lines;
        if self.left() > 0 && self.matcher.is_match(line) != self.wanted.is_inverted {
            self.selected += 1;
            self.found(number, give, |matcher, wanted, give| match wanted.give {
                Give::Count => {}
                Give::Lines => give(line),
                Give::Matches => {
                    // Whoever joins what others told has all the time that it takes.
                    matcher.each(line, &mut |_| true, give);
                }
            });
        } else if self.wanted.has_context() {
            self.context(number, line, give);
        }
        self.open = open;
        self.open.clear();
    }

    /// Takes the items of a piece, whose first line is the next.
    fn take_items(
        &mut self,
        part: &Part<'_>,
        give: &mut dyn FnMut(Line<'_>),
    ) -> Result<(), JoinError> {
        let (mut number, mut left) = (self.lines, self.left());
        let mut counted = number;
        let numbers = self.wanted.numbers;
        let last = if numbers { number.checked_add(part.report.lines) } else { None };
        // Each line has a byte.
        let most = part.end - part.offset;
        let is_possible = part.report.lines <= most && part.report.selected <= most;
        if !is_possible || numbers && last.is_none() {
            return Err(JoinError::Pieces);
        }
        for item in part.items() {
            let item = item.ok_or(JoinError::Pieces)?;
            // Where lines are not counted the next one is told.
            if !numbers && item.distance > 1 {
                return Err(JoinError::Pieces);
            }
            number = number.checked_add(item.distance).ok_or(JoinError::Pieces)?;
            if last.is_some_and(|last| number > last) {
                return Err(JoinError::Pieces);
            }
            // Several matches may be of one line.
            let is_next = item.is_selected && number > counted;
            if !item.is_selected || is_next && left == 0 {
                self.context(number, item.text, give);
                continue;
            }
            if is_next {
                (counted, left) = (number, left - 1);
            }
            self.found(number, give, |_, wanted, give| {
                // Of an empty match it is told that the line is selected.
                if wanted.give == Give::Lines || !item.text.is_empty() {
                    give(item.text);
                }
            });
        }
        self.selected = self.selected.saturating_add(part.report.selected.min(self.left()));
        let lines = if self.wanted.numbers { part.report.lines } else { number - self.lines };
        self.lines = self.lines.checked_add(lines).ok_or(JoinError::Pieces)?;
        Ok(())
    }

    /// Gives something of a selected line, and what is before it.
    fn found(
        &mut self,
        number: u64,
        give: &mut dyn FnMut(Line<'_>),
        what: impl FnOnce(&Matcher, &Wanted, &mut dyn FnMut(&[u8])),
    ) {
        for (before, text) in std::mem::take(&mut self.before) {
            if number - before <= u64::from(self.wanted.before) {
                give(Line { number: before, is_selected: false, text: &text });
            }
        }
        let mut tell = |text: &[u8]| give(Line { number, is_selected: true, text });
        what(&self.matcher, &self.wanted, &mut tell);
        self.last = Some(number);
    }

    /// Gives a line if it is after a selected one, or keeps it in case it is before one.
    fn context(&mut self, number: u64, text: &[u8], give: &mut dyn FnMut(Line<'_>)) {
        if self.is_after(number) {
            give(Line { number, is_selected: false, text });
        } else if self.wanted.before > 0 && self.left() > 0 {
            if self.before.len() == self.wanted.before as usize {
                self.before.pop_front();
            }
            self.before.push_back((number, text.to_vec()));
        }
    }
}
