//! `nasd key rotate-certificate`: another certificate for the cell's own administrator or machine, for
//! one that was stolen. Earlier ones are shut out when it returns.

use crate::arguments::OwnCertificate;
use crate::commands::Outcome;
use crate::commands::agree::agree;
use crate::commands::member::tell_manager;
use crate::output::{note, say};
use nasd_cell::{Cell, MemberKind, replace_own};

/// Replaces it. Given again, it goes on where it was interrupted.
///
/// # Errors
/// Where the authority's key is not; if nobody agrees; a manager that runs and does not answer.
pub fn rotate(cell: &Cell, whose: OwnCertificate, yes: bool) -> Outcome {
    match whose {
        OwnCertificate::Admin => {
            replace_own(cell, MemberKind::Admin)?;
            // It has no files: no capability was minted for it.
            tell_manager(cell, false)?;
            say!("the administrator has another certificate; no earlier one counts any more");
        }
        OwnCertificate::Host => {
            agree("mounts of this machine, which go by the earlier certificate, would fail", yes)?;
            replace_own(cell, MemberKind::Host)?;
            let late = tell_manager(cell, true)?;
            say!(
                "this machine has another certificate; no earlier one counts any more, nor any \
                 capability that was given out before"
            );
            say!("mount again what is mounted here");
            if late > 0 {
                note!("nasd: {late} of the drives are away; there they do until it is back");
            }
        }
    }
    Ok(())
}
