//! A cell's directory: what a cell is, written down, and becoming a client of it.
//!
//! ```text
//! DIR/cell.toml        who and where: identifiers, addresses, devices (no secret)
//! DIR/keyring.toml     the drives' keys, readable by the owner alone
//! DIR/master-keys.toml the drives' master keys; its owner moves it to where no network reaches
//! DIR/tls/             the cell's authority, the certificates made with it, and the ledger of members
//! DIR/members/         what is to be handed to people and machines, a directory each
//! DIR/drives/          device files, where the cell was not given real devices
//! DIR/cell.lock        held while cell.toml is changed; DIR/adding.lock while a drive is made
//! DIR/log/  DIR/run/   logs; the lock and process numbers of a running cell
//! ```
//!
//! `cell.toml` is written last, so a directory with one is a whole cell. A client's machine needs
//! a directory of its own, which `nasd join TOKEN DIR` makes there with a token of `nasd host add NAME`;
//! nothing of this one is copied.

mod authority;
mod components;
mod config;
mod create;
mod error;
mod files;
#[cfg(test)]
mod fuzz;
mod handed;
mod invitation;
mod keeper;
mod keyring;
mod lock;
mod master_keys;
mod members;
mod membership;
mod moving;
mod path;
mod protection;
mod renew;
mod renewal;
mod sealed;
pub mod session;
pub mod terminal;
#[cfg(test)]
mod testing;
pub mod time;
mod token;
mod volumes;
mod watched;

pub use authority::{Authority, CertificateFiles, MANAGER_NAME, Usage, VALIDITY};
pub use components::{
    change_stripe, component, forget_component, replace_state_copies, virtual_drive,
};
pub use config::{
    CellConfig, DriveConfig, Leftover, StateCopies, StripeConfig, VolumeConfig, VolumePart,
};
pub use create::{
    Added, AddedDrive, NewCell, add_drive, complete_cell, create_cell, renumber_partition,
};
pub use error::CellError;
pub use files::{read_private, remove_stale, write_private};
pub use handed::{hand_over, write_client_directory};
pub use invitation::{Guest, enrol, invite};
pub use keeper::RingKeeper;
pub use keyring::{DriveKeys, KeyPlace, Keyring, PartitionKeys, read_key_file};
pub use lock::{CellLock, KeyTurn, VolumeTurn};
pub use master_keys::{MasterKeys, master_keys_path};
pub use members::{Member, MemberKind, Members, identity};
pub use membership::Ledger;
pub use moving::{MoveNumbers, begin_move, doom_leftovers, forget_leftover};
pub use path::CellPath;
pub use protection::{parse_protection, protection_name_of, protection_named};
pub use renew::renew;
pub use renewal::{
    Renewing, begin_authority, check_authority, complete, finish_authority, follow_authority,
    is_changing, is_due, not_renewed, refresh, replace_certificate, replace_own, serial_of,
    times_of,
};
pub use sealed::Seal;
pub use token::{Token, hash_of};
pub use volumes::{
    CellTable, adopt_volume, begin_copy, begin_volume, check_volume_name, copied_volume,
    forget_volume, renumber_part, set_finished, set_volume_quota,
};
pub use watched::WatchedCell;

use nasd_types::Timestamp;
use std::path::{Path, PathBuf};

/// A cell's directory and what its `cell.toml` says.
#[derive(Debug, Clone)]
pub struct Cell {
    directory: PathBuf,
    /// The contents of `cell.toml`.
    pub config: CellConfig,
}

impl Cell {
    /// Reads the cell in `directory`.
    ///
    /// # Errors
    /// `NoCell` where there is none; `Damaged` where its file can't be understood.
    pub fn open(directory: &Path) -> Result<Cell, CellError> {
        let config = CellConfig::load(&directory.join("cell.toml"))?;
        let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
        Ok(Cell { directory, config })
    }

    /// Removes what was left in the cell's directory by those who were killed while they wrote there.
    pub fn remove_stale(&self) {
        remove_stale(&self.directory);
        remove_stale(&tls_directory(&self.directory));
    }

    /// Whether `directory` holds a cell.
    pub fn exists(directory: &Path) -> bool {
        directory.join("cell.toml").exists()
    }

    /// The cell's directory, absolute.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The drives' keys; only the managers' machine has them.
    ///
    /// # Errors
    /// As `Keyring::load`.
    pub fn keyring(&self) -> Result<Keyring, CellError> {
        Keyring::load(&keyring_path(&self.directory))
    }

    /// The same where they can be read without asking anybody for a passphrase.
    pub fn open_keyring(&self) -> Option<Keyring> {
        let text = zeroize::Zeroizing::new(read_private(&self.keyring_path()).ok()?);
        if sealed::is_sealed(&text) { None } else { self.keyring().ok() }
    }

    /// Where the drives' keys are.
    pub fn keyring_path(&self) -> PathBuf {
        keyring_path(&self.directory)
    }

    /// Certificate files of the named member: `manager` or `host`.
    pub fn certificate(&self, member: &str) -> CertificateFiles {
        CertificateFiles::in_directory(&tls_directory(&self.directory), member)
    }

    /// Where a drive's device is: as configured, relative paths being in the cell's directory.
    pub fn device_path(&self, drive: &DriveConfig) -> PathBuf {
        self.directory.join(&drive.device)
    }

    /// Where the member's log goes.
    pub fn log_path(&self, member: &str) -> PathBuf {
        self.directory.join("log").join(format!("{member}.log"))
    }

    /// Held locked by the process that runs the cell; holds its process number.
    pub fn lock_path(&self) -> PathBuf {
        self.directory.join("run").join("up.lock")
    }
}

/// The cell's directory: as named, else in the user's data directory.
pub fn cell_directory(named: Option<PathBuf>) -> PathBuf {
    if let Some(directory) = named {
        return directory;
    }
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let data = variable("XDG_DATA_HOME").map(PathBuf::from).unwrap_or_else(|| {
        Path::new(&variable("HOME").unwrap_or_else(|| "/var/lib".into())).join(".local/share")
    });
    data.join("nasd")
}

/// The time of day of this machine.
pub fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Timestamp(since.map_or(0, |since| since.as_nanos() as u64))
}

fn keyring_path(directory: &Path) -> PathBuf {
    directory.join("keyring.toml")
}

fn tls_directory(directory: &Path) -> PathBuf {
    directory.join("tls")
}
