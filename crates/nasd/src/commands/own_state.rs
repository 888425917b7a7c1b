//! Where a striping manager's own state is: on component drives that `cell.toml` names. Before there are any, it is in
//! two files of the cell's directory, as it was made there, or kept by earlier versions.

use super::Outcome;
use super::arranging::component_drives;
use super::drive::{Expected, open_failed};
use nasd_capability::SecretKey;
use nasd_cell::{
    Cell, CellConfig, CellError, DriveConfig, StateCopies, StripeConfig, read_private,
    replace_state_copies, virtual_drive,
};
use nasd_client::ConnectOptions;
use nasd_device::{FileDevice, FileOptions};
use nasd_store::Store;
use nasd_stripe::Role;
use nasd_stripe::own::{
    Candidate, HolderError, Holders, Membership, OwnError, OwnState, Part, Register, RegisterError,
    RemoteHolders,
};
use nasd_transport::ClientOptions;
use nasd_types::DriveId;
use std::error::Error;
use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long drives are waited for that are started with the striping manager, all of them, as long as it has no copies.
const FIRST_PATIENCE: Duration = Duration::from_secs(20);

/// How long one is waited for that has a current copy: it may have much to recover.
const PATIENCE: Duration = Duration::from_secs(100);

/// How long a drive that hangs may take to say who it is.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(1000);

/// How often.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The membership of a virtual drive's copies in `cell.toml`, where drives have indices.
pub struct CellRegister {
    cell: Cell,
    index: u32,
}

impl CellRegister {
    /// Of the virtual drive with that index.
    pub fn new(cell: &Cell, index: u32) -> Self {
        CellRegister { cell: cell.clone(), index }
    }

    fn config(&self) -> Result<CellConfig, RegisterError> {
        Ok(Cell::open(self.cell.directory()).map_err(failed)?.config)
    }
}

fn failed(error: CellError) -> RegisterError {
    RegisterError::Failed(error.to_string())
}

impl Register for CellRegister {
    fn read(&self) -> Result<Membership, RegisterError> {
        let config = self.config()?;
        let found = config.drives.iter().find(|drive| drive.index == self.index);
        let stripe = found.and_then(|drive| drive.stripe.as_ref());
        let gone =
            || RegisterError::Failed(format!("the cell has no virtual drive {}", self.index));
        let StateCopies { epoch, copies } = &stripe.ok_or_else(gone)?.state;
        let id = |index: &u32| config.drives.iter().find(|drive| drive.index == *index);
        let mut copies: Vec<DriveId> =
            copies.iter().filter_map(|index| Some(id(index)?.drive_id())).collect();
        copies.sort_unstable();
        Ok(Membership { epoch: *epoch, copies })
    }

    fn replace(&self, before: u32, with: &Membership) -> Result<(), RegisterError> {
        let config = self.config()?;
        let index = |id: &DriveId| config.drives.iter().find(|drive| drive.drive_id() == *id);
        let copies: Option<Vec<u32>> =
            with.copies.iter().map(|id| Some(index(id)?.index)).collect();
        let gone = || RegisterError::Failed("a drive is none of the cell's".to_owned());
        let mut copies = copies.ok_or_else(gone)?;
        copies.sort_unstable();
        let with = StateCopies { epoch: with.epoch, copies };
        match replace_state_copies(&self.cell, self.index, before, &with).map_err(failed)? {
            true => Ok(()),
            false => Err(RegisterError::Changed),
        }
    }
}

/// A virtual drive of a cell.
#[derive(Clone, Copy)]
pub struct OfDrive<'a> {
    /// The cell.
    pub cell: &'a Cell,
    /// Which drive of it.
    pub config: &'a DriveConfig,
    /// What it is over.
    pub stripe: &'a StripeConfig,
}

/// The state as it is on the drives, where it is copied to if it is not there yet. From then on no other striping
/// manager can write it.
///
/// # Errors
/// Copies that can't be reached or are not the present ones, and files that are not this drive's.
pub fn open(of: OfDrive<'_>, holders: &Arc<RemoteHolders>) -> Result<OwnState, Box<dyn Error>> {
    let OfDrive { cell, config, stripe } = of;
    let register = Arc::new(CellRegister::new(cell, config.index));
    let own = if register.read()?.copies.is_empty() {
        let candidates = await_drives(of, &**holders);
        let path = cell.device_path(config);
        let device = FileDevice::open(&path, FileOptions::default())?;
        let identity = Store::read_identity(&device).map_err(|error| open_failed(&path, &error))?;
        expected(of).check(identity, &path)?;
        let state = read_state(&state_path(of))?;
        tracing::info!(path = %path.display(), "the striping manager's state moves to component drives");
        OwnState::found(Arc::clone(holders) as _, register, &candidates, (&device, state))?
    } else {
        let drives: Vec<DriveId> =
            roles(cell, stripe).into_iter().map(|(drive, _)| drive).collect();
        OwnState::start(Arc::clone(holders) as _, register, &drives, PATIENCE)?
    };
    remove_files(of);
    Ok(own)
}

/// Writes the device of the virtual drive's own store to a new file, as a current copy has it.
///
/// # Errors
/// A cell without a virtual drive, or whose striping manager was never started; copies that can't be read, and a file
/// that is there or can't be written.
pub fn export(cell: &Cell, path: &Path) -> Outcome {
    let (config, stripe) = virtual_drive(&cell.config)?;
    let membership = CellRegister::new(cell, config.index).read()?;
    if membership.copies.is_empty() {
        let path = cell.device_path(config);
        return Err(format!("it is in a file yet: {}", path.display()).into());
    }
    let holders = holders(OfDrive { cell, config, stripe })?;
    let cant_write = |error: std::io::Error| format!("can't write {}: {error}", path.display());
    let mut options = OpenOptions::new();
    let made = options.write(true).create_new(true).mode(0o600).open(path);
    let file = made.map_err(cant_write)?;
    let bytes = nasd_stripe::own::export(&holders, &membership, &mut |offset, data| {
        let written = file.write_all_at(data, offset);
        written.map_err(|error| OwnError::Device(cant_write(error)))
    });
    let done = bytes.map_err(Into::into).and_then(|bytes| Ok(file.set_len(bytes)?));
    if done.is_err() {
        let _ = std::fs::remove_file(path);
    }
    done
}

/// The component drives, as what has the own state of a virtual one.
///
/// # Errors
/// Keys that are not here.
pub fn holders(of: OfDrive<'_>) -> Result<RemoteHolders, Box<dyn Error>> {
    let components = component_drives(of.cell, of.stripe)?;
    let mut secret = [0; 32];
    getrandom::fill(&mut secret)?;
    let (secret, protection) = (SecretKey::new(secret), of.cell.config.protection());
    let transport = ClientOptions { connect_timeout: CONNECT_TIMEOUT, ..ClientOptions::default() };
    let connect = ConnectOptions { transport, ..ConnectOptions::default() };
    Ok(RemoteHolders::new(components, of.config.index, secret, protection, &connect))
}

/// Which drive the device must be.
pub fn expected(of: OfDrive<'_>) -> Expected {
    Expected { cell: Some(of.cell.config.cell_id()), drive: Some(of.config.drive_id()) }
}

/// Component drives and what they are for.
fn roles(cell: &Cell, stripe: &StripeConfig) -> Vec<(DriveId, Role)> {
    let with_role = |index: &u32| {
        let drive = cell.config.drives.iter().find(|drive| drive.index == *index)?;
        let role = match () {
            () if stripe.leaving.contains(index) => Role::Leaving,
            () if stripe.spares.contains(index) => Role::Spare,
            () => Role::Member,
        };
        Some((drive.drive_id(), role))
    };
    stripe.over.iter().filter_map(with_role).collect()
}

/// Waits until the component drives answer, but not for ever.
fn await_drives(of: OfDrive<'_>, holders: &dyn Holders) -> Vec<Candidate> {
    let until = Instant::now() + FIRST_PATIENCE;
    loop {
        let candidate = |(drive, role): (DriveId, Role)| {
            let answer = holders.read(drive, Part::RecordA, 0, 1);
            let is_reachable = matches!(answer, Ok(_) | Err(HolderError::Missing));
            Candidate { drive, role, is_reachable }
        };
        let found: Vec<Candidate> = roles(of.cell, of.stripe).into_iter().map(candidate).collect();
        let are_all_there = found.iter().all(|candidate| candidate.is_reachable);
        if are_all_there || Instant::now() > until {
            return found;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

fn state_path(of: OfDrive<'_>) -> PathBuf {
    let name = format!("{}.state", of.config.member());
    of.cell.directory().join("drives").join(name)
}

/// What was kept in a file, in hexadecimal digits, if there is one.
fn read_state(path: &Path) -> Result<Option<Vec<u8>>, String> {
    if !path.exists() {
        return Ok(None);
    }
    let text = read_private(path).map_err(|error| error.to_string())?;
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Option<Vec<u8>> = text.trim().as_bytes().chunks(2).map(byte).collect();
    bytes.map(Some).ok_or_else(|| format!("{} is damaged", path.display()))
}

/// Removes the files that were copied to the drives: what is in them is old from now on.
fn remove_files(of: OfDrive<'_>) {
    for path in [of.cell.device_path(of.config), state_path(of)] {
        match std::fs::remove_file(&path) {
            Ok(()) => tracing::info!(path = %path.display(), "is not needed any more"),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => tracing::warn!(%error, path = %path.display(), "can't be removed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nasd_cell::write_private;

    #[test]
    fn what_earlier_versions_kept_in_a_file_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("striping-3.state");
        assert_eq!(read_state(&path), Ok(None));
        write_private(&path, b"00ff4e41\n").unwrap();
        assert_eq!(read_state(&path), Ok(Some(vec![0, 0xff, b'N', b'A'])));
        write_private(&path, b"00fg").unwrap();
        assert!(read_state(&path).unwrap_err().contains("is damaged"));
    }
}
