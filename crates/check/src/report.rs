//! What a check is asked for, and what it answers.

use std::collections::BTreeMap;
use std::fmt;

use nasd_types::{CellId, DriveId};

use crate::finding::{Code, Finding, Severity};

/// What to check, and how much to remember.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Read every data block in use and compare it with its checksum.
    pub data: bool,
    /// Most findings kept of each code; more are only counted.
    pub findings_per_code: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options { data: true, findings_per_code: 1000 }
    }
}

impl Options {
    /// Whether data blocks are read.
    #[must_use]
    pub fn with_data(mut self, data: bool) -> Options {
        self.data = data;
        self
    }

    /// How many findings of each code are kept.
    #[must_use]
    pub fn with_findings_per_code(mut self, findings: u64) -> Options {
        self.findings_per_code = findings;
        self
    }
}

/// What a repair may do.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RepairOptions {
    /// What is checked.
    pub check: Options,
    /// Only say what would be done; nothing is written.
    pub dry_run: bool,
    /// Make holes of blocks whose contents are lost, so that they read as zeros instead of failing.
    pub punch: bool,
}

impl RepairOptions {
    /// What is checked.
    #[must_use]
    pub fn with_check(mut self, check: Options) -> RepairOptions {
        self.check = check;
        self
    }

    /// Whether it is only said what would be done.
    #[must_use]
    pub fn with_dry_run(mut self, dry_run: bool) -> RepairOptions {
        self.dry_run = dry_run;
        self
    }

    /// Whether lost blocks become holes.
    #[must_use]
    pub fn with_punch(mut self, punch: bool) -> RepairOptions {
        self.punch = punch;
        self
    }
}

/// What a check is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Pages of the metadata tree are read; counted in pages of the region.
    Tree,
    /// The log is applied; counted in its bytes.
    Log,
    /// Records are read; counted in objects.
    Tables,
    /// Data blocks are read; counted in blocks.
    Data,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stage::Tree => "metadata tree",
            Stage::Log => "log",
            Stage::Tables => "tables",
            Stage::Data => "data",
        })
    }
}

/// How far a check is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What it is doing; a repair goes through some stages again.
    pub stage: Stage,
    /// How much of it is done.
    pub done: u64,
    /// How much there is; `done` may end below it.
    pub total: u64,
}

/// What was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Partitions of the drive.
    pub partitions: u64,
    /// Objects with a valid record.
    pub objects: u64,
    /// Valid extents.
    pub extents: u64,
    /// Data blocks that an extent names.
    pub blocks_in_use: u64,
    /// Data blocks of the device.
    pub data_blocks: u64,
    /// Data blocks that were read and compared.
    pub blocks_verified: u64,
    /// Entries of the log that were not in the tables yet.
    pub log_entries: u64,
    /// Pages of the metadata tree.
    pub tree_pages: u64,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// No rule is broken; there may be notes.
    Clean,
    /// Rules were broken, and none is any more.
    Repaired,
    /// Rules are broken.
    Damaged,
}

/// Findings, and what was looked at.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The drive's name, if it has a superblock.
    pub drive: Option<DriveId>,
    /// Its cell.
    pub cell: Option<CellId>,
    /// What was found, in the order in which it was; at most so many of each code.
    pub findings: Vec<Finding>,
    /// How many there were of each code.
    pub counts: BTreeMap<Code, u64>,
    /// What was looked at.
    pub statistics: Statistics,
}

impl Report {
    /// Whether there is something of that severity or worse.
    pub fn has(&self, severity: Severity) -> bool {
        self.counts.keys().any(|code| code.severity() >= severity)
    }

    /// Whether there is something with that code.
    pub fn has_code(&self, code: Code) -> bool {
        self.counts.contains_key(&code)
    }

    /// How it ended.
    pub fn outcome(&self) -> Outcome {
        if self.has(Severity::Damage) { Outcome::Damaged } else { Outcome::Clean }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        for (code, count) in &self.counts {
            let kept = self.findings.iter().filter(|finding| finding.code == *code).count() as u64;
            if kept < *count {
                writeln!(f, "{}: {code}: {} more", code.severity(), count - kept)?;
            }
        }
        let Statistics { objects, extents, blocks_in_use, blocks_verified, .. } = self.statistics;
        let total: u64 = self.counts.values().sum();
        write!(
            f,
            "{total} findings; {objects} objects, {extents} extents, {blocks_in_use} blocks in \
             use, {blocks_verified} verified"
        )
    }
}

/// What a repair found, did, and left.
#[derive(Clone, Debug)]
pub struct Repair {
    /// What was found before.
    pub before: Report,
    /// What is left; of a dry run, what would be.
    pub after: Report,
    /// Rows of the metadata tables that were changed, or would be. What is done to an object's
    /// contents (holes, zeros behind its end) counts as one of `extents` each.
    pub rows_changed: u64,
    /// The same by table.
    pub rows_by_table: BTreeMap<&'static str, u64>,
    /// Data blocks that were written, or would be.
    pub blocks_written: u64,
    /// Whether the metadata tree was, or would be, made anew. A power cut while that is written
    /// leaves the drive without metadata.
    pub tree_rebuilt: bool,
    /// Nothing was written.
    pub dry_run: bool,
}

impl Repair {
    /// How it ended; a dry run ends as the check before it.
    pub fn outcome(&self) -> Outcome {
        match (self.before.outcome(), self.after.outcome()) {
            (before, _) if self.dry_run => before,
            (Outcome::Clean, Outcome::Clean) => Outcome::Clean,
            (_, Outcome::Damaged) => Outcome::Damaged,
            _ => Outcome::Repaired,
        }
    }
}

impl fmt::Display for Repair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.before)?;
        let would = if self.dry_run { "would change" } else { "changed" };
        writeln!(f, "{would} {} data blocks", self.blocks_written)?;
        for (table, rows) in &self.rows_by_table {
            writeln!(f, "{would} {rows} rows of {table}")?;
        }
        if self.tree_rebuilt {
            let makes = if self.dry_run { "would make" } else { "made" };
            writeln!(f, "{makes} the metadata tree anew")?;
        }
        write!(f, "left: {}", self.after)
    }
}
