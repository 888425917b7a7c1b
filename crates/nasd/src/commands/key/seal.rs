//! `nasd key seal` and `unseal`: the keyring at rest.

use crate::commands::Outcome;
use crate::output::say;
use nasd_cell::{Cell, CellError, CellLock, Keyring, Seal};

/// Seals the keyring.
///
/// # Errors
/// While the cell runs, whose manager could not open the file any more; if it is sealed already; if
/// the passphrase or credential is not to be had.
pub fn seal(cell: &Cell, credential: Option<&str>) -> Outcome {
    require_stopped(cell)?;
    let seal = match credential {
        Some(name) => Seal::by_credential(name)?,
        None => Seal::by_passphrase()?,
    };
    Keyring::update(&cell.keyring_path(), |ring| match ring.seal() {
        Some(_) => Err(CellError::Sealed("unseal it first: `nasd key unseal`".to_owned())),
        None => ring.set_seal(Some(seal)),
    })?;
    match credential {
        Some(name) => say!("sealed; the manager's service needs LoadCredentialEncrypted={name}"),
        None => say!(
            "sealed; where nobody can be asked, the manager reads its passphrase from the file \
             that NASD_PASSPHRASE_FILE names"
        ),
    }
    Ok(())
}

/// Keeps the keyring unencrypted again.
///
/// # Errors
/// While the cell runs; if the passphrase or credential is not to be had.
pub fn unseal(cell: &Cell) -> Outcome {
    require_stopped(cell)?;
    Keyring::update(&cell.keyring_path(), |ring| ring.set_seal(None))?;
    say!("unsealed: whoever can read keyring.toml has the keys");
    Ok(())
}

fn require_stopped(cell: &Cell) -> Outcome {
    match CellLock::holder(&cell.lock_path()) {
        None => Ok(()),
        Some(_) => Err("the cell is running; stop it first: `nasd down`".into()),
    }
}
