//! `nasd key rotate-authority`: another authority for the cell's certificates, in two steps.

use crate::commands::Outcome;
use crate::commands::agree::agree;
use crate::output::say;
use nasd_cell::session::administrator;
use nasd_cell::{
    Cell, begin_authority, check_authority, finish_authority, follow_authority, is_changing,
    not_renewed,
};
use nasd_client::ManagerClient;

/// A new authority beside the old one. Given again, it goes on where it was interrupted.
///
/// # Errors
/// A manager that does not answer; files that can't be written.
pub fn begin(cell: &Cell) -> Outcome {
    // Asked by the certificate of now: the manager must trust the new authority before anybody shows
    // a certificate of it, and know the new certificate before that is shown.
    let manager = administrator(cell)?;
    begin_authority(cell)?;
    reload(&manager)?;
    follow_authority(cell)?;
    reload(&manager)?;
    let waiting = not_renewed(cell)?;
    say!("a new authority makes the certificates; those of the old one are good as well");
    if !waiting.is_empty() {
        say!("these need new ones (`nasd renew` there): {}", waiting.join(", "));
    }
    say!("then: nasd key rotate-authority --finish");
    Ok(())
}

/// The new one alone.
///
/// # Errors
/// If there are not two; if members would be shut out, and nobody agrees; a manager that does not
/// answer.
pub fn finish(cell: &Cell, yes: bool) -> Outcome {
    if !is_changing(cell.directory())? {
        return Err("there is one authority: begin with `nasd key rotate-authority`".into());
    }
    check_authority(cell)?;
    let waiting = not_renewed(cell)?;
    if !waiting.is_empty() {
        let list = waiting.join(", ");
        agree(&format!("who has no new certificate yet would be shut out: {list}"), yes)?;
    }
    // Until it is told, the manager shows a certificate of the old one, which this client still trusts.
    let manager = administrator(cell)?;
    finish_authority(cell)?;
    reload(&manager)?;
    say!("the old authority is trusted no more");
    Ok(())
}

fn reload(manager: &ManagerClient) -> Outcome {
    let told = manager.reload(false);
    told.map_err(|error| format!("the manager was not told: {error}; start it anew"))?;
    Ok(())
}
