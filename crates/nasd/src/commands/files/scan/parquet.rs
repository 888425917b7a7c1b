//! Parquet files.

use super::bounds;
use super::source::{Groups, Take, Taker};
use crate::arguments::ScanArguments;
use nasd_clerk::{OpenFile, OpenParquet, ParquetScanError, Scanned};
use nasd_filter::{Checked, Format};
use std::error::Error;
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

    /// Scans it, until rows are refused.
    pub fn scan(
        &self,
        checked: &Checked,
        arguments: &ScanArguments,
        take: &mut Take<'_>,
    ) -> Result<(Scanned, Groups), Box<dyn Error>> {
        let told = |error| match error {
            ParquetScanError::Filter(error) => bounds::of_result(&error, arguments),
            other => other.to_string(),
        };
        let mut taker = Taker::new(take);
        let mut scan = self.0.scan(checked).map_err(told)?;
        let groups = Groups { all: self.0.groups(), looked: scan.groups() };
        while scan.next_rows(&mut |rows| taker.take(rows)).map_err(told)? {
            taker.check()?;
        }
        Ok((scan.finish(&mut |_| ()).map_err(told)?, groups))
    }
}
