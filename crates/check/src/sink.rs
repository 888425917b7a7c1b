//! Where findings go: kept up to a number of each code, counted beyond; and the fixes for them.

use std::collections::BTreeMap;

use crate::finding::{Code, Finding, Subject};
use crate::tree::Fix;

/// Findings of one pass.
#[derive(Debug, Default)]
pub(crate) struct Sink {
    pub(crate) findings: Vec<Finding>,
    pub(crate) counts: BTreeMap<Code, u64>,
    /// Most findings kept of each code.
    limit: u64,
    /// What to change in the tables, in order; empty unless wanted.
    pub(crate) fixes: Vec<Fix>,
    wants_fixes: bool,
}

impl Sink {
    pub(crate) fn new(limit: u64, wants_fixes: bool) -> Sink {
        Sink { limit, wants_fixes, ..Sink::default() }
    }

    pub(crate) fn add(&mut self, code: Code, subject: Subject, detail: impl Into<String>) {
        let count = self.counts.entry(code).or_default();
        *count += 1;
        if *count <= self.limit {
            self.findings.push(Finding { code, subject, detail: detail.into() });
        }
    }

    pub(crate) fn drive(&mut self, code: Code, detail: impl Into<String>) {
        self.add(code, Subject::Drive, detail);
    }

    pub(crate) fn fix(&mut self, fix: impl FnOnce() -> Fix) {
        if self.wants_fixes {
            self.fixes.push(fix());
        }
    }

    pub(crate) fn wants_fixes(&self) -> bool {
        self.wants_fixes
    }
}
