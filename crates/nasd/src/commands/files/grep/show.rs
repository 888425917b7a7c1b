//! How what is found in a file is shown.

use nasd_clerk::Grepped;
use nasd_grep::Line;
use serde_json::{Value, json};

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
    lines: Vec<Value>,
    /// The number of the last line that is shown.
    last: Option<u64>,
    is_binary: bool,
}

impl<'a> Shown<'a> {
    pub fn new(show: Show, path: &'a str) -> Shown<'a> {
        Shown { show, path, text: Vec::new(), lines: Vec::new(), last: None, is_binary: false }
    }

    /// A line; what is to be printed now, if that is much.
    pub fn line(&mut self, line: Line<'_>) -> Option<Vec<u8>> {
        if self.show.as_json {
            self.lines.push(self.fact(line));
            return None;
        }
        if self.is_binary {
            return None;
        }
        if !self.show.is_text && memchr::memchr(0, line.text).is_some() {
            self.is_binary = true;
            return None;
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
        (self.text.len() >= SOME).then(|| std::mem::take(&mut self.text))
    }

    /// What is to be printed of the lines so far.
    pub fn so_far(self) -> Vec<u8> {
        self.text
    }

    fn fact(&self, line: Line<'_>) -> Value {
        let text = String::from_utf8_lossy(line.text);
        match self.show.numbers {
            true => json!({ "number": line.number, "selected": line.is_selected, "text": text }),
            false => json!({ "selected": line.is_selected, "text": text }),
        }
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

    /// The same for scripts; `None` of a file with which nothing is the matter.
    pub fn facts(self, grepped: &Grepped) -> Option<Value> {
        let path = self.path;
        match self.show.what {
            What::Lines if self.lines.is_empty() => None,
            What::Lines => Some(json!({ "path": path, "lines": self.lines })),
            What::Counts => Some(json!({ "path": path, "count": grepped.selected })),
            What::Names | What::OtherNames => {
                self.is_listed(grepped).then(|| json!({ "path": path }))
            }
            What::Nothing => None,
        }
    }
}
