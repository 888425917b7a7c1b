//! Asking before something is destroyed.

use super::Outcome;
use std::io::{IsTerminal, Write};

/// Asks whether to go on with what `plan` says, in the form "X would be lost". Agreed with `yes`;
/// else by a user on a terminal alone.
///
/// # Errors
/// If nobody agrees.
pub fn agree(plan: &str, yes: bool) -> Outcome {
    if yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        return Err(format!("{plan}: add --yes to agree").into());
    }
    // Whoever can't be asked has not agreed.
    write!(std::io::stderr(), "{plan}. Go on? [y/N] ")?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    let agreed = ["y", "yes"].contains(&answer.trim().to_lowercase().as_str());
    if agreed { Ok(()) } else { Err("nothing was done".into()) }
}
