//! How what is found in a file is shown.

use super::super::pieces::{List, begin_line, put};
use nasd_clerk::Grepped;
use nasd_grep::Line;
use serde::Serialize;
use serde_json::json;
use std::borrow::Cow;

/// Bytes that are printed at a time.
const SOME: usize = 64 << 10;

/// What is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum What {
    /// Lines, or parts of them.
    #[default]
    Lines,
    /// How many lines there are.
    Counts,
    /// Files that have one.
    Names,
    /// Files that have none.
    OtherNames,
    /// Nothing.
    Nothing,
}

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Show {
    pub what: What,
    /// For scripts.
    pub as_json: bool,
    /// Names of files before what is of them.
    pub names: bool,
    /// Numbers before lines.
    pub numbers: bool,
    /// Lines that are no neighbours are set apart.
    pub has_context: bool,
    /// Lines with zero bytes are shown too.
    pub is_text: bool,
}

/// What is shown of one file.
pub struct Shown<'a> {
    show: Show,
    path: &'a str,
    text: Vec<u8>,
    /// The lines, for scripts.
    facts: List,
    /// The number of the last line that is shown.
    last: Option<u64>,
    is_binary: bool,
}

impl<'a> Shown<'a> {
    pub fn new(show: Show, path: &'a str) -> Shown<'a> {
        // The files are a list of objects, and lines a list in each.
        let facts = List::new(2);
        Shown { show, path, text: Vec::new(), facts, last: None, is_binary: false }
    }

    /// A line; what is to be printed now, if that is much.
    ///
    /// # Errors
    /// None.
    pub fn line(&mut self, line: Line<'_>) -> serde_json::Result<Option<Vec<u8>>> {
        match self.show.as_json {
            true => self.add_fact(line)?,
            false => self.add(line),
        }
        Ok((self.text.len() >= SOME).then(|| std::mem::take(&mut self.text)))
    }

    fn add(&mut self, line: Line<'_>) {
        if self.is_binary {
            return;
        }
        if !self.show.is_text && memchr::memchr(0, line.text).is_some() {
            self.is_binary = true;
            return;
        }
        let is_apart = self.last.is_some_and(|last| last + 1 < line.number);
        if self.show.has_context && is_apart {
            self.text.extend_from_slice(b"--\n");
        }
        self.last = Some(line.number);
        let mark = if line.is_selected { b':' } else { b'-' };
        self.name(mark);
        if self.show.numbers {
            self.text.extend_from_slice(line.number.to_string().as_bytes());
            self.text.push(mark);
        }
        self.text.extend_from_slice(line.text);
        self.text.push(b'\n');
    }

    fn add_fact(&mut self, line: Line<'_>) -> serde_json::Result<()> {
        if self.facts.is_empty() {
            self.text.push(b'{');
            begin_line(&mut self.text, 2);
            self.text.extend_from_slice(b"\"lines\": ");
        }
        let number = self.show.numbers.then_some(line.number);
        let text = String::from_utf8_lossy(line.text);
        self.facts.item(&mut self.text, &Fact { number, selected: line.is_selected, text })
    }

    /// Ends the object of a file that has lines.
    fn end_facts(&mut self) -> serde_json::Result<()> {
        if self.facts.is_empty() {
            return Ok(());
        }
        self.facts.end(&mut self.text);
        self.text.push(b',');
        begin_line(&mut self.text, 2);
        self.text.extend_from_slice(b"\"path\": ");
        put(&mut self.text, &self.path, 2)?;
        begin_line(&mut self.text, 1);
        self.text.push(b'}');
        Ok(())
    }

    /// The rest of what is to be printed of the lines so far.
    ///
    /// # Errors
    /// None.
    pub fn so_far(mut self) -> serde_json::Result<Vec<u8>> {
        self.end_facts()?;
        Ok(self.text)
    }

    fn name(&mut self, mark: u8) {
        if self.show.names {
            self.text.extend_from_slice(self.path.as_bytes());
            self.text.push(mark);
        }
    }

    /// Whether its name is to be shown.
    fn is_listed(&self, grepped: &Grepped) -> bool {
        (grepped.selected > 0) != (self.show.what == What::OtherNames)
    }

    /// The rest of what is to be printed.
    pub fn end(mut self, grepped: &Grepped) -> Vec<u8> {
        match self.show.what {
            What::Lines if self.is_binary => {
                self.text.extend_from_slice(b"Binary file ");
                self.text.extend_from_slice(self.path.as_bytes());
                self.text.extend_from_slice(b" matches\n");
            }
            What::Counts => {
                self.name(b':');
                self.text.extend_from_slice(format!("{}\n", grepped.selected).as_bytes());
            }
            What::Names | What::OtherNames if self.is_listed(grepped) => {
                self.text.extend_from_slice(self.path.as_bytes());
                self.text.push(b'\n');
            }
            What::Lines | What::Names | What::OtherNames | What::Nothing => {}
        }
        self.text
    }

    /// The same for scripts: nothing of a file with which nothing is the matter.
    ///
    /// # Errors
    /// None.
    pub fn end_as_json(mut self, grepped: &Grepped) -> serde_json::Result<Vec<u8>> {
        let path = self.path;
        match self.show.what {
            What::Lines => self.end_facts()?,
            What::Counts => {
                put(&mut self.text, &json!({ "path": path, "count": grepped.selected }), 1)?;
            }
            What::Names | What::OtherNames if self.is_listed(grepped) => {
                put(&mut self.text, &json!({ "path": path }), 1)?;
            }
            What::Names | What::OtherNames | What::Nothing => {}
        }
        Ok(self.text)
    }
}

/// A line, for scripts.
#[derive(Serialize)]
struct Fact<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    number: Option<u64>,
    selected: bool,
    text: Cow<'a, str>,
}
