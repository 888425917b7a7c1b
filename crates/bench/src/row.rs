//! One line of the result.

use serde::Serialize;

use crate::BenchError;

/// A measured value beside its limit.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The row's name, from the command-line contract.
    pub name: String,
    /// What was measured, in `unit`: the median of several runs.
    pub value: f64,
    /// `MB/s` (10^6 bytes a second), `1/s`, `us`, `ms`, or `s`.
    pub unit: &'static str,
    /// What the machine could do, in the same unit, measured in the same run; `None` where the
    /// program that measures it is missing.
    pub limit: Option<f64>,
    /// What the limit is, or what is missing.
    pub limit_name: String,
    /// `value / limit`.
    pub ratio: Option<f64>,
    /// What the drive's process took for it, where the system tells.
    pub memory: Option<Memory>,
    /// Processor time of the drive, in rows that compare it.
    pub cpu: Option<Cpu>,
    /// Share of one processor that a cell's managers took, in rows of whole cells.
    pub manager_cpu: Option<f64>,
    /// What was measured one after the other, in rows that have such parts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
}

/// A part of what a row measures, in the row's unit.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Part {
    /// Its name.
    pub name: &'static str,
    /// What it took.
    pub value: f64,
    /// What it took of the limit.
    pub limit: f64,
}

/// Processor time of the drive's process, in seconds for a GiB of data.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Cpu {
    /// With what is measured.
    pub value: f64,
    /// With what it is compared to.
    pub limit: f64,
}

/// Memory of the drive's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// The most that was resident at any time of the row, in bytes.
    pub peak_bytes: u64,
    /// What of it may be the cache: the size that the drive was started with.
    pub cache_bytes: u64,
}

impl Memory {
    /// The peak without the cache, as if the cache had been full; negative where it was not.
    pub fn beyond_cache(&self) -> i64 {
        self.peak_bytes.cast_signed() - self.cache_bytes.cast_signed()
    }
}

impl Row {
    /// A row whose ratio follows from its numbers.
    pub fn new(
        name: &str,
        value: f64,
        unit: &'static str,
        limit: f64,
        limit_name: impl Into<String>,
    ) -> Self {
        let ratio = (limit > 0.0).then(|| value / limit);
        let limit_name = limit_name.into();
        Row {
            name: name.to_owned(),
            value,
            unit,
            limit: Some(limit),
            limit_name,
            ratio,
            memory: None,
            cpu: None,
            manager_cpu: None,
            parts: Vec::new(),
        }
    }

    /// A row whose limit can't be measured here; the error says what is missing.
    pub fn without_limit(name: &str, value: f64, unit: &'static str, error: &BenchError) -> Self {
        let limit_name = error.to_string();
        Row {
            name: name.to_owned(),
            value,
            unit,
            limit: None,
            limit_name,
            ratio: None,
            memory: None,
            cpu: None,
            manager_cpu: None,
            parts: Vec::new(),
        }
    }
}
