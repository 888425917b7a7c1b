//! What lines are selected by, and what is made of it.

use grep_matcher::Matcher as _;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use nasd_xdr::{Decoder, Encoder, XdrDecode, XdrEncode, XdrError};
use std::sync::Arc;
use thiserror::Error;

/// Most texts of a pattern.
pub const MAX_PATTERNS: usize = 1024;
/// Most bytes of all texts of a pattern together.
pub const MAX_PATTERN_BYTES: usize = 16 << 10;

/// How much memory an expression may take, and how much time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of the compiled expression.
    program: usize,
    /// Bytes of one that may be looked for in lines of any length: one that remembers too little takes about 50 ns for each KiB of it and byte
    /// of the line.
    quick_program: usize,
    /// Bytes of what is remembered while it is looked for, in each direction.
    cache: usize,
    /// Classes of characters: each takes up to 50 KiB, and some milliseconds, before the compiled size is known.
    classes: usize,
    /// Bytes of a line that are behind the beginnings of its matches, all together: each match may have been looked for in all of those
    /// behind the one before, so that a long line could take minutes.
    behind_matches: u64,
}

impl Bounds {
    /// For who works for many others.
    pub const SMALL: Bounds = Bounds {
        program: 512 << 10,
        quick_program: 128 << 10,
        cache: 1 << 20,
        classes: 64,
        behind_matches: 1 << 29,
    };
    /// For who works for himself.
    pub const LARGE: Bounds = Bounds {
        program: 32 << 20,
        quick_program: 32 << 20,
        cache: 8 << 20,
        classes: MAX_PATTERN_BYTES,
        behind_matches: u64::MAX,
    };
}

/// All the bytes of memory that a matcher within [`Bounds::SMALL`] takes, while it is made too.
pub const SMALL_MATCHER_BYTES: usize = 16 << 20;

/// Which lines are meant: those in which one of the texts matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pattern {
    /// Regular expressions, or what is looked for as it is. Without any no line is meant, with an empty one all are.
    pub texts: Vec<String>,
    /// The texts are no expressions.
    pub is_fixed: bool,
    /// Letters match whatever their case.
    pub ignores_case: bool,
    /// Only between what is not part of a word.
    pub is_word: bool,
    /// Only lines that match from their beginning to their end.
    pub is_whole_line: bool,
}

/// Why a pattern is none.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PatternError {
    /// It can't be read, or would take too much.
    #[error("{0}")]
    Expression(String),
    /// It has `\A` or `\z`.
    #[error(r"\A and \z have no meaning where lines are looked at: use ^ and $")]
    Anchor,
    /// It has other line ends.
    #[error("lines end with LF: there is no flag R")]
    LineEnds,
    /// It may take too much for those who have to look for it.
    #[error("a pattern has at most {0} classes of characters here")]
    Classes(usize),
    /// It is too long.
    #[error("a pattern has at most {MAX_PATTERNS} texts with {MAX_PATTERN_BYTES} bytes")]
    Long,
}

/// A pattern that can be looked for.
#[derive(Clone, Debug)]
pub struct Matcher {
    /// `None` matches nothing. A copy would begin with nothing remembered.
    regex: Option<Arc<RegexMatcher>>,
    most_behind_matches: u64,
    /// One part in so many of a long line is what it is to be looked for in.
    share_of_line: usize,
}

impl Pattern {
    /// Makes it ready.
    ///
    /// # Errors
    ///
    /// [`PatternError`].
    pub fn compile(&self, bounds: Bounds) -> Result<Matcher, PatternError> {
        let bytes: usize = self.texts.iter().map(String::len).sum();
        if self.texts.len() > MAX_PATTERNS || bytes > MAX_PATTERN_BYTES {
            return Err(PatternError::Long);
        }
        if !self.is_fixed {
            self.check_classes(bounds)?;
        }
        let matcher = |regex, share_of_line| Matcher {
            regex,
            most_behind_matches: bounds.behind_matches,
            share_of_line,
        };
        if self.texts.is_empty() {
            return Ok(matcher(None, 1));
        }
        let build = |program| {
            RegexMatcherBuilder::new()
                .multi_line(true)
                .line_terminator(Some(b'\n'))
                .case_insensitive(self.ignores_case)
                .fixed_strings(self.is_fixed)
                .word(self.is_word)
                .whole_line(self.is_whole_line)
                .size_limit(program)
                .dfa_size_limit(bounds.cache)
                .build_many(&self.texts)
        };
        let (regex, share_of_line) = match build(bounds.quick_program) {
            Err(_) if bounds.quick_program < bounds.program => {
                (build(bounds.program), bounds.program / bounds.quick_program)
            }
            built => (built, 1),
        };
        let regex = regex.map_err(|error| PatternError::Expression(error.to_string()))?;
        // Otherwise it is not to be run over more than one line.
        match regex.line_terminator() {
            Some(_) => Ok(matcher(Some(Arc::new(regex)), share_of_line)),
            None => Err(PatternError::Anchor),
        }
    }
}

impl Pattern {
    /// Refuses what would take much before it is known how much, and what looks different in a line by itself.
    fn check_classes(&self, bounds: Bounds) -> Result<(), PatternError> {
        let mut classes = 0;
        for text in &self.texts {
            let mut rest = text.as_bytes();
            while let Some((&byte, behind)) = rest.split_first() {
                rest = behind;
                match (byte, behind.first()) {
                    (b'\\', Some(escaped)) => {
                        classes += usize::from(escaped.is_ascii_alphanumeric());
                        rest = &behind[1..];
                    }
                    (b'[', _) => classes += 1,
                    (b'(', Some(b'?')) => {
                        let flags =
                            behind[1..].iter().take_while(|byte| byte.is_ascii_alphabetic());
                        if flags.copied().any(|flag| flag == b'R') {
                            return Err(PatternError::LineEnds);
                        }
                    }
                    _ => {}
                }
            }
        }
        if classes > bounds.classes {
            return Err(PatternError::Classes(bounds.classes));
        }
        Ok(())
    }
}

/// Where something may match.
pub(crate) enum Candidate {
    /// In the line with this byte it does.
    Sure(usize),
    /// In the line with this byte it may.
    Likely(usize),
}

impl Matcher {
    /// Bytes of a line that take no more time than `longest` do of a pattern that is short.
    pub fn longest(&self, longest: usize) -> usize {
        longest / self.share_of_line
    }

    /// Whether a line, without its end, matches.
    pub(crate) fn is_match(&self, line: &[u8]) -> bool {
        // A matcher of bytes has no errors, here and below.
        self.regex.as_ref().is_some_and(|regex| regex.is_match(line).unwrap_or(false))
    }

    /// A byte of the first of these lines that may match.
    pub(crate) fn candidate(&self, lines: &[u8]) -> Option<Candidate> {
        Some(match self.regex.as_ref()?.find_candidate_line(lines).ok()?? {
            grep_matcher::LineMatchKind::Confirmed(at) => Candidate::Sure(at),
            grep_matcher::LineMatchKind::Candidate(at) => Candidate::Likely(at),
        })
    }

    /// Tells each match in a line that is not empty, as long as it `may_go_on`, which is asked at each, with how many were before it.
    /// Whether these are all: it may take too long to find them.
    pub(crate) fn each(
        &self,
        line: &[u8],
        may_go_on: &mut dyn FnMut(u64) -> bool,
        mut tell: impl FnMut(&[u8]),
    ) -> bool {
        let Some(regex) = &self.regex else { return true };
        let (mut behind_matches, mut matches, mut goes_on) = (0_u64, 0, true);
        let _ = regex.find_iter(line, |found| {
            behind_matches += (line.len() - found.start()) as u64;
            goes_on = behind_matches <= self.most_behind_matches && may_go_on(matches);
            matches += 1;
            if goes_on && !found.is_empty() {
                tell(&line[found]);
            }
            goes_on
        });
        goes_on
    }
}

impl XdrEncode for Pattern {
    fn encode(&self, out: &mut Encoder) {
        out.array_with(&self.texts, |out, text| out.string(text));
        out.bool(self.is_fixed);
        out.bool(self.ignores_case);
        out.bool(self.is_word);
        out.bool(self.is_whole_line);
    }
}

impl XdrDecode for Pattern {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        let texts = input
            .array_with(MAX_PATTERNS, |input| Ok(input.string(MAX_PATTERN_BYTES)?.to_owned()))?;
        Ok(Pattern {
            texts,
            is_fixed: input.bool()?,
            ignores_case: input.bool()?,
            is_word: input.bool()?,
            is_whole_line: input.bool()?,
        })
    }
}
