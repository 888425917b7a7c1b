//! `nasd renew`: this member's certificate anew, and what the cell trusts now.

use super::Outcome;
use crate::output::say;
use nasd_cell::{Cell, renew};

/// Renews the certificate of the cell's directory.
///
/// # Errors
/// A manager that is away, or does not know the member any more.
pub fn run(cell: &Cell) -> Outcome {
    renew(cell)?;
    say!("renewed the certificate in {}", cell.directory().join("tls").display());
    Ok(())
}
