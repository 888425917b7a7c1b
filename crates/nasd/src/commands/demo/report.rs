//! What the demonstration prints at its end.

use super::Limits;
use super::files::{Copied, Tree};
use std::error::Error;
use std::fmt::Write;

/// Most bytes on the manager's connections for each file that is copied or read.
const MANAGER_BYTES_PER_FILE: u64 = 6 << 10;

/// One thing that was done.
pub struct Step {
    /// What.
    pub name: &'static str,
    /// How much.
    pub copied: Copied,
    /// How long it took.
    pub seconds: f64,
}

/// Everything that the table shows.
pub struct Report<'a> {
    /// The tree that was copied.
    pub tree: &'a Tree,
    /// What was done with it.
    pub steps: Vec<Step>,
    /// `nasd status --json` after all of it.
    pub status: serde_json::Value,
    /// What the machine can do.
    pub limits: Limits,
}

impl Report<'_> {
    /// The table.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string can't fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "{:<38}{:>9}{:>16}{:>10}{:>10}", "", "files", "bytes", "seconds", "MB/s")?;
        for step in &self.steps {
            let rate = step.copied.bytes as f64 / step.seconds / 1e6;
            let Copied { files, bytes } = step.copied;
            let (name, seconds) = (step.name, step.seconds);
            writeln!(out, "{name:<38}{files:>9}{bytes:>16}{seconds:>10.2}{rate:>10.0}")?;
        }
        writeln!(out, "\nLimits of this machine in the same run:")?;
        for (name, limit) in [
            ("TCP on loopback (iperf3)", &self.limits.tcp),
            ("device, O_DIRECT write (fio)", &self.limits.disk_write),
            ("device, O_DIRECT read (fio)", &self.limits.disk_read),
        ] {
            match limit {
                Ok(rate) => writeln!(out, "{name:<73}{rate:>10.0}")?,
                Err(reason) => writeln!(out, "{name:<40}{reason}")?,
            }
        }
        let (direct, manager) = self.bytes_by_path();
        writeln!(out, "\nEverything from {} came back the same.", self.tree.root().display())?;
        writeln!(out, "Data bytes that went direct between client and drives: {direct:>15}")?;
        writeln!(out, "Data bytes that went through the file manager:         {manager:>15}")?;
        let all = self.manager_connection_bytes();
        writeln!(out, "Everything on the manager's client connections (names, attributes,")?;
        writeln!(out, "capabilities), measured on its sockets:                {all:>15}")
    }

    /// Every byte that clients and manager exchanged: whatever passed the manager is among them.
    fn manager_connection_bytes(&self) -> u64 {
        let manager = &self.status["managers"][0];
        let number = |name: &str| manager[name].as_u64().unwrap_or(u64::MAX / 2);
        number("client_bytes_received") + number("client_bytes_sent")
    }

    fn bytes_by_path(&self) -> (u64, u64) {
        let bytes = &self.status["bytes"];
        let number = |name: &str| bytes[name].as_u64().unwrap_or(u64::MAX);
        (number("direct"), number("manager"))
    }

    /// Whether the bytes went where they should.
    ///
    /// # Errors
    /// If any passed the manager, or fewer went direct than were written and read.
    pub fn check(&self) -> Result<(), Box<dyn Error>> {
        let (direct, manager) = self.bytes_by_path();
        let moved: u64 = self.steps.iter().map(|step| step.copied.bytes).sum();
        if manager != 0 {
            return Err(format!("{manager} data bytes went through the manager").into());
        }
        // The claim must agree with what was measured on the manager's sockets: a few kilobytes for
        // each file's name, attributes and capabilities, and nothing that grows with its length.
        let files: u64 = self.steps.iter().map(|step| step.copied.files).sum();
        let all = self.manager_connection_bytes();
        if all > MANAGER_BYTES_PER_FILE * files {
            return Err(format!("{all} bytes went through the manager for {files} files").into());
        }
        if direct < moved {
            return Err(format!("only {direct} of {moved} bytes went direct").into());
        }
        Ok(())
    }
}
