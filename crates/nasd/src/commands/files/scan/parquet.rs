//! Parquet files.

use super::source::Groups;
use nasd_clerk::{OpenFile, OpenParquet, ParquetScanError, Scanned};
use nasd_filter::{Checked, Format};
use std::sync::Arc;

/// One whose end was read.
pub struct Parquet(OpenParquet);

impl Parquet {
    pub fn open(file: Arc<OpenFile>) -> Result<Parquet, ParquetScanError> {
        OpenParquet::open(file).map(Parquet)
    }

    pub fn format(&self) -> Format {
        self.0.format()
    }

    pub fn unreadable(&self) -> &[(String, String)] {
        self.0.unreadable()
    }

    /// Why a column is not among those of the format.
    pub fn why_not(&self, name: &str) -> Option<&str> {
        let found = self.unreadable().iter().find(|(other, _)| other.eq_ignore_ascii_case(name));
        found.map(|(_, why)| why.as_str())
    }

    pub fn scan(
        &self,
        checked: &Checked,
        give: &mut dyn FnMut(&[u8]),
    ) -> Result<(Scanned, Groups), ParquetScanError> {
        let scan = self.0.scan(checked)?;
        let groups = Groups { all: self.0.groups(), looked: scan.groups() };
        Ok((scan.finish(give)?, groups))
    }
}
