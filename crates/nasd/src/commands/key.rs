//! `nasd key`: the keys of the cell and its drives (CMU-CS-97-118, Table 6), shown and changed step
//! by step. No command ever prints a key.

mod authority;
mod certificate;
mod init;
mod new_key;
mod seal;
mod set;
mod show;

use super::Outcome;
use crate::arguments::{KeyArguments, KeyCommand};
use crate::output::{self, note, say};
use nasd_cell::Cell;
use nasd_cell::session::administrator;
use nasd_protocol::manager::Rotation;
use std::path::Path;

/// Runs a key command.
///
/// # Errors
/// The command's own.
pub fn run(cell: &Path, command: KeyCommand, json: bool) -> Outcome {
    match command {
        KeyCommand::Show => show::show(&Cell::open(cell)?, json),
        KeyCommand::Rotate { now } => rotate(&Cell::open(cell)?, now, json),
        KeyCommand::RotateAuthority { finish: false, .. } => authority::begin(&Cell::open(cell)?),
        KeyCommand::RotateAuthority { finish: true, yes } => {
            authority::finish(&Cell::open(cell)?, yes)
        }
        KeyCommand::RotateCertificate { whose, yes } => {
            certificate::rotate(&Cell::open(cell)?, whose, yes)
        }
        KeyCommand::Seal { credential } => seal::seal(&Cell::open(cell)?, credential.as_deref()),
        KeyCommand::Unseal => seal::unseal(&Cell::open(cell)?),
        KeyCommand::Init { place, yes } => init::initialize(cell, &place, yes),
        KeyCommand::Readmit { drive, key_file } => {
            init::readmit(cell, &KeyArguments { drive, key_file, new_key_file: None })
        }
        KeyCommand::SetDrive { place } => set::drive_key(cell, &place),
        KeyCommand::SetPartition { place, partition } => {
            set::partition_key(cell, &place, partition)
        }
        KeyCommand::SetWorking { place, partition, epoch } => {
            set::working_key(cell, &place, partition, epoch)
        }
    }
}

fn rotate(cell: &Cell, at_once: bool, json: bool) -> Outcome {
    let Rotation { drives } = administrator(cell)?
        .rotate(at_once)
        .map_err(|error| format!("the working keys are not changed: {error}"))?;
    let late = drives.iter().filter(|drive| !drive.done).count();
    if json {
        let each = drives.iter().map(|state| {
            serde_json::json!({
                "drive": format!("{:016x}", state.drive.0),
                "epoch": state.epoch,
                "done": state.done,
            })
        });
        return output::json(&serde_json::json!({ "drives": each.collect::<Vec<_>>() }));
    }
    for state in &drives {
        let done = if state.done { "" } else { "  (away: it gets its key when it is back)" };
        say!("drive {:016x}  epoch {}{done}", state.drive.0, state.epoch);
    }
    if late > 0 && at_once {
        note!("nasd: until then, capabilities given out before are good at {late} of the drives");
    }
    Ok(())
}
