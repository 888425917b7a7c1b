//! Parquet files, of which this program was built to read none.

use super::files::Named;
use super::source::{Groups, Take};
use crate::arguments::ScanArguments;
use nasd_clerk::{OpenFile, Scanned};
use nasd_filter::{Checked, Columns, Format};
use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;

/// None.
pub struct Parquet(Infallible);

/// The next file, if there is one.
pub type Next<'f, 'n> = dyn FnMut() -> Result<Option<(&'f Named, Parquet)>, Box<dyn Error>> + 'n;

impl Parquet {
    pub fn open(_: Arc<OpenFile>) -> Result<Parquet, String> {
        Err("this nasd was built without what reads Parquet files".to_owned())
    }

    pub fn format(&self) -> Format {
        Format::Columns(Columns { columns: Vec::new() })
    }

    pub fn unreadable(&self) -> &[(String, String)] {
        &[]
    }

    pub fn why_not(&self, _: &str) -> Option<&str> {
        None
    }

    pub fn scan(
        (_, first): (&Named, &Parquet),
        _: &mut Next<'_, '_>,
        _: &Checked,
        _: &ScanArguments,
        _: &mut Take<'_>,
    ) -> Result<(Scanned, Groups), Box<dyn Error>> {
        match first.0 {}
    }
}
