//! LIKE: a pattern cut at its `%` into parts, each of which is looked for from left to right.

use crate::error::ParameterError;
use memchr::memmem::Finder;

/// A compiled pattern.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    /// What must be between one `%` and the next, in order; at least one part.
    parts: Vec<Part>,
}

/// Characters in a row.
#[derive(Clone, Debug)]
struct Part {
    /// Runs of literal bytes; between one and the next stands one character, whichever.
    runs: Vec<Vec<u8>>,
    /// Finds the first run, if it is not empty.
    finder: Option<Finder<'static>>,
}

/// Bytes of the character at the beginning of `text`, which is not empty. Bytes that are no UTF-8 count
/// as a character each, with the continuation bytes behind them.
fn character_bytes(text: &[u8]) -> usize {
    1 + text[1..].iter().take_while(|byte| continues_character(**byte)).count()
}

fn continues_character(byte: u8) -> bool {
    byte & 0xc0 == 0x80
}

impl Part {
    fn new() -> Part {
        Part { runs: vec![Vec::new()], finder: None }
    }

    /// To be searched for.
    fn prepared(mut self) -> Part {
        let first = self.runs.first().filter(|run| !run.is_empty());
        self.finder = first.map(|run| Finder::new(run).into_owned());
        self
    }

    /// See [`Pattern::steps`]. One that begins within a character, as no text does, may be found at each byte of a character with
    /// very many, all of which are what the next `_` stands for: there is no bound then.
    fn steps(&self) -> u64 {
        let places = self.runs.len() - 1;
        let begins_within = || self.runs[0].first().copied().is_some_and(continues_character);
        if places > 0 && begins_within() { u64::MAX } else { places as u64 }
    }

    /// How many bytes of the beginning of `text` it matches.
    fn match_at(&self, text: &[u8]) -> Option<usize> {
        let mut at = 0;
        for (index, run) in self.runs.iter().enumerate() {
            if index > 0 {
                let rest = &text[at..];
                if rest.is_empty() {
                    return None;
                }
                at += character_bytes(rest);
            }
            if !text[at..].starts_with(run) {
                return None;
            }
            at += run.len();
        }
        Some(at)
    }

    /// Where it may begin in `text`, from `at` on.
    fn candidate(&self, text: &[u8], at: usize) -> Option<usize> {
        match &self.finder {
            Some(finder) => Some(at + finder.find(text.get(at..)?)?),
            None => (at <= text.len()).then_some(at),
        }
    }

    /// The next place to try. A part that begins with any one character is tried at each: further within
    /// one it would end in the same place.
    fn next(&self, text: &[u8], at: usize) -> usize {
        match (&self.finder, text.get(at..)) {
            (None, Some(rest @ [_, ..])) => at + character_bytes(rest),
            _ => at + 1,
        }
    }

    /// Whether it matches the end of `text`, from somewhere on.
    fn match_end(&self, text: &[u8]) -> bool {
        if let [run] = self.runs.as_slice() {
            return text.ends_with(run);
        }
        let mut at = 0;
        while let Some(found) = self.candidate(text, at) {
            if self.match_at(&text[found..]) == Some(text.len() - found) {
                return true;
            }
            at = self.next(text, found);
        }
        false
    }

    /// The end of its first match in `text`.
    fn find(&self, text: &[u8]) -> Option<usize> {
        let mut at = 0;
        while let Some(found) = self.candidate(text, at) {
            if let Some(length) = self.match_at(&text[found..]) {
                return Some(found + length);
            }
            at = self.next(text, found);
        }
        None
    }
}

impl Pattern {
    /// How many steps a byte of a text may take: what has to be there between two `_` is looked for at each byte anew.
    pub(crate) fn steps(&self) -> u64 {
        self.parts.iter().map(Part::steps).fold(0, u64::saturating_add)
    }

    /// Compiles a pattern.
    ///
    /// # Errors
    ///
    /// [`ParameterError::Pattern`] when it ends with its escape character, or that is not ASCII.
    pub(crate) fn new(pattern: &[u8], escape: Option<u8>) -> Result<Pattern, ParameterError> {
        if escape.is_some_and(|escape| !escape.is_ascii()) {
            return Err(ParameterError::Pattern);
        }
        let mut parts = vec![];
        let mut part = Part::new();
        let mut run = Vec::new();
        let mut bytes = pattern.iter().copied();
        while let Some(byte) = bytes.next() {
            match byte {
                _ if Some(byte) == escape => {
                    run.push(bytes.next().ok_or(ParameterError::Pattern)?);
                }
                b'%' | b'_' => {
                    if let Some(last) = part.runs.last_mut() {
                        *last = std::mem::take(&mut run);
                    }
                    match byte {
                        b'%' => parts.push(std::mem::replace(&mut part, Part::new()).prepared()),
                        _ => part.runs.push(Vec::new()),
                    }
                }
                _ => run.push(byte),
            }
        }
        if let Some(last) = part.runs.last_mut() {
            *last = run;
        }
        parts.push(part.prepared());
        Ok(Pattern { parts })
    }

    /// Whether all of `text` is matched.
    pub(crate) fn matches(&self, text: &[u8]) -> bool {
        let Some((last, before)) = self.parts.split_last() else {
            return false;
        };
        let Some((first, middle)) = before.split_first() else {
            return last.match_at(text) == Some(text.len());
        };
        // The leftmost match of each part leaves the most for those behind it.
        let Some(mut at) = first.match_at(text) else {
            return false;
        };
        for part in middle {
            match part.find(&text[at..]) {
                Some(length) => at += length,
                None => return false,
            }
        }
        last.match_end(&text[at..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// By definition, over characters.
    fn naive(pattern: &[char], text: &[char], escape: Option<char>) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some((&c, rest)) if Some(c) == escape => {
                !text.is_empty() && text[0] == rest[0] && naive(&rest[1..], &text[1..], escape)
            }
            Some(('%', rest)) => (0..=text.len()).any(|skip| naive(rest, &text[skip..], escape)),
            Some(('_', rest)) => !text.is_empty() && naive(rest, &text[1..], escape),
            Some((c, rest)) => !text.is_empty() && text[0] == *c && naive(rest, &text[1..], escape),
        }
    }

    proptest! {
        #[test]
        fn as_by_definition(
            pattern in "[ab%_!\u{e9}]{0,8}",
            text in "[ab%_!\u{e9}\u{1f600}]{0,10}",
            escaped in any::<bool>(),
        ) {
            let escape = escaped.then_some('!');
            let characters: Vec<char> = pattern.chars().collect();
            let mut escapes = false;
            for c in &characters {
                escapes = !escapes && Some(*c) == escape;
            }
            match Pattern::new(pattern.as_bytes(), escape.map(|c| c as u8)) {
                Err(_) => prop_assert!(escapes),
                Ok(compiled) => {
                    let text_characters: Vec<char> = text.chars().collect();
                    let expected = naive(&characters, &text_characters, escape);
                    prop_assert_eq!(compiled.matches(text.as_bytes()), expected);
                }
            }
        }

        #[test]
        fn bytes_that_are_no_text(
            pattern in proptest::collection::vec(prop::sample::select(b"%_a\xa9\xc3".to_vec()), 0..7),
            text in proptest::collection::vec(prop::sample::select(b"a_\xa9\xc3".to_vec()), 0..9),
        ) {
            let compiled = Pattern::new(&pattern, None).unwrap();
            prop_assert_eq!(compiled.matches(&text), by_bytes(&pattern, &text));
        }
    }

    /// `_` takes a byte and the continuation bytes behind it.
    fn by_bytes(pattern: &[u8], text: &[u8]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some((b'%', rest)) => (0..=text.len()).any(|skip| by_bytes(rest, &text[skip..])),
            Some((b'_', rest)) => {
                !text.is_empty() && by_bytes(rest, &text[character_bytes(text)..])
            }
            Some((byte, rest)) => text.first() == Some(byte) && by_bytes(rest, &text[1..]),
        }
    }

    #[test]
    fn what_begins_within_a_character_may_take_any_number_of_steps() {
        let steps = |pattern: &[u8]| Pattern::new(pattern, None).unwrap().steps();
        assert_eq!(steps(b"%\x80_b%"), u64::MAX);
        assert_eq!(steps(b"a_%\xa9_%\xa9_"), u64::MAX);
        assert_eq!(steps("%\u{e9}_b_%_".as_bytes()), 3);
        assert_eq!(steps(b"%\x80%\x80"), 0);
    }

    #[test]
    fn characters_are_not_bytes() {
        let matches = |pattern: &str, text: &str| {
            Pattern::new(pattern.as_bytes(), None).unwrap().matches(text.as_bytes())
        };
        assert!(matches("_", "\u{e9}"));
        assert!(!matches("__", "\u{e9}"));
        assert!(matches("", ""));
        assert!(!matches("_", ""));
        assert!(matches("%", ""));
        assert!(matches("%%x%", "axb"));
        assert!(matches("%ab", "aab"));
    }
}
