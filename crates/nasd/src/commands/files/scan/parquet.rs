//! Parquet files.

use super::bounds;
use super::files::Named;
use super::source::{Groups, Take, Taker};
use crate::arguments::ScanArguments;
use nasd_clerk::{OpenFile, OpenParquet, ParquetScanError, ParquetSoFar, Scanned};
use nasd_filter::{Checked, Format};
use std::error::Error;
use std::sync::Arc;

/// One whose end was read.
pub struct Parquet(OpenParquet);

/// The next file, if there is one.
pub type Next<'f, 'n> = dyn FnMut() -> Result<Option<(&'f Named, Parquet)>, Box<dyn Error>> + 'n;

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

    /// Scans files, all with the same columns, until rows are refused: the first one, and the `next` ones.
    pub fn scan(
        first: (&Named, &Parquet),
        next: &mut Next<'_, '_>,
        checked: &Checked,
        arguments: &ScanArguments,
        take: &mut Take<'_>,
    ) -> Result<(Scanned, Groups), Box<dyn Error>> {
        let told = |error| match error {
            ParquetScanError::Filter(error) => bounds::of_result(&error, arguments),
            other => other.to_string(),
        };
        let (mut taker, mut groups) = (Taker::new(take), Groups::default());
        let mut so_far = ParquetSoFar::none(checked);
        let mut other;
        let (mut named, mut file) = first;
        loop {
            let failed = |error| named.failed(&told(error));
            let mut scan = file.0.scan_behind(checked, so_far).map_err(failed)?;
            groups.all += file.0.groups();
            groups.looked += scan.groups();
            while scan.next_rows(&mut |rows| taker.take(rows)).map_err(failed)? {
                taker.check()?;
            }
            so_far = scan.end_file(&mut |_| ()).map_err(failed)?;
            taker.check()?;
            if so_far.is_over() {
                break;
            }
            match next()? {
                Some((name, parquet)) => {
                    other = parquet;
                    (named, file) = (name, &other);
                }
                None => break,
            }
        }
        Ok((so_far.finish().map_err(told)?, groups))
    }
}
