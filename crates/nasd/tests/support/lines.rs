//! Commands for a cell, each written as one line, and mounts beside the cell's first one.

use super::{TestCell, text};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// A command that must succeed, and what it printed.
pub fn done(cell: &TestCell, line: &str) -> String {
    let output = ask(cell, line);
    assert!(output.status.success(), "{line}: {}", text(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// A command that may fail.
pub fn ask(cell: &TestCell, line: &str) -> Output {
    cell.nasd(&line.split_whitespace().collect::<Vec<_>>())
}

/// What a command that must succeed tells with `--json`.
pub fn facts(cell: &TestCell, line: &str) -> Value {
    serde_json::from_str(&done(cell, &format!("{line} --json"))).unwrap()
}

/// A mount that a failing test leaves takes nobody with it.
pub struct Mounted(pub PathBuf);

impl Mounted {
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let mut umount = Command::new("umount");
        let _ = umount.arg("-l").arg(&self.0).stderr(Stdio::null()).status();
    }
}
